"""Line chart of the singular values of the sketch, with the band that contains the true ones."""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.report import drawing
from sketchselect.report.text import number, percent

_DOTS_UNTIL = 80
_MANY_DECADES = 50.0
_ZERO = 1e-7  # of the largest: square roots of the rounding of a Gram matrix


def draw_spectrum(singular_values: Floats, shrinkage: float) -> str:
    """Return the SVG: s_i as a line, the band [s_i, sqrt(s_i^2 + shrinkage)] behind it."""
    s = np.sort(np.maximum(np.nan_to_num(singular_values), 0.0))[::-1]
    top = np.sqrt(s**2 + max(shrinkage, 0.0))
    positive = s[s > _ZERO * s[0]]
    log = positive.size > 1 and bool(positive[0] > _MANY_DECADES * positive[-1])
    floor = 0.7 * float(positive[-1]) if log else 0.0
    low, top = np.maximum(s, floor), np.maximum(top, floor)
    if log:
        s = np.where(s > _ZERO * s[0], s, np.nan)
    x = np.arange(1, len(s) + 1, dtype=float)

    figure, (axes,) = drawing.new_figure(270)
    if shrinkage > 0:
        outline = np.concatenate([x, x[::-1]]), np.concatenate([low, top[::-1]])
        axes.fill(*outline, color=drawing.BAND, linewidth=0, label="range of the true values")
        axes.plot(x, top, color=drawing.BAND, linewidth=0.8)
        if len(s) == 1:
            drawing.draw_bars(axes, x, low, top, drawing.BAND, 6.0)
    axes.plot(x, s, color=drawing.ACCENT, linewidth=1.2, label="sketch")
    if len(s) <= _DOTS_UNTIL:
        dots = np.column_stack([x, s])
        drawing.draw_dots(axes, dots[np.isfinite(s)], drawing.ACCENT, 3.2)
    axes.set_xlim(1 - 0.02 * len(s) - 0.3, len(s) * 1.02 + 0.3)
    if log:
        axes.set_yscale("log")
        axes.set_ylim(floor * 0.9, 1.25 * float(top.max()))
    else:
        axes.set_ylim(0, 1.05 * float(top.max()) if top.max() > 0 else 1.0)
    drawing.plain_ticks(axes.xaxis, log=False, whole=True)
    drawing.plain_ticks(axes.yaxis, log=log)
    axes.set_xlabel("direction (1 = strongest)")
    axes.set_ylabel("singular value (unit of the data)")
    if shrinkage > 0:
        axes.legend(loc="upper right")
    return drawing.to_svg(
        figure,
        "spectrum",
        f"Line chart of {len(s)} singular values, falling from {number(float(low[0]))}",
    )


def describe_spectrum(singular_values: Floats, shrinkage: float, squared_norm: float | None) -> str:
    """Return the caption: the width of the band, and the share of the leading directions."""
    s = np.sort(np.nan_to_num(singular_values))[::-1]
    if shrinkage > 0:
        band = (
            "The sketch underestimates the singular values: each true one lies between the line and the upper edge of "
            f"the band, √(s² + {number(shrinkage)})."
        )
    else:
        band = "The sketch is exact here, so there is no band."
    if squared_norm is None or not squared_norm > 0:
        return band
    leading = min(10, len(s))
    share = min(1.0, float((s[:leading] ** 2).sum()) / squared_norm)
    directions = "direction accounts" if leading == 1 else f"{leading} directions account"
    least = "at least " if shrinkage > 0 else ""
    return f"{band} The first {directions} for {least}{percent(share)} of the total squared length of the rows."
