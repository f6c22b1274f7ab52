"""Line chart of the objective in all columns against the number of selected columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from sketchselect.report import drawing
from sketchselect.report.text import NOTE_LENGTH, as_numbers, clean, count

_TABLE_ROWS = 60


def curve_section(diagnostics: Mapping[str, Any], method: str, n_selected: int) -> Mapping[str, Any] | None:
    """Return the content of the page's section on the curve; None where the selection has none."""
    curve = diagnostics.get("curve")
    if not isinstance(curve, Mapping) or not curve.get("method"):
        return None
    names = [clean(name) for name in curve["method"]]
    # Where several of one method competed, the curve tells them apart.
    method = str(diagnostics.get("competitor", method))
    sizes, ratio, low, high = (as_numbers(curve[name]) for name in ("n_features", "ratio", "low", "high"))
    shown = [
        [name, count(int(r)), *(f"{value:.3f}" for value in row)]
        for name, r, *row in zip(names, sizes, ratio, low, high, strict=True)
    ]
    return {
        "sentence": clean(str(diagnostics.get("choice", "")), NOTE_LENGTH),
        "svg": Markup(_draw(names, sizes, ratio, low, high, clean(method), n_selected)),
        "caption": (
            f"Objective in all columns of k-means on the selected ones, relative to k-means on all columns, by method: "
            f"estimated from {count(int(diagnostics.get('sampled_rows', 0)))} rows. Strokes are the 95 % intervals of "
            "the chosen method, the dotted line is what was selected."
        ),
        "rows": shown[:_TABLE_ROWS],
        "left_off": max(len(shown) - _TABLE_ROWS, 0),
    }


def _draw(names: list[str], sizes: Any, ratio: Any, low: Any, high: Any, method: str, n_selected: int) -> str:
    figure, (axes,) = drawing.new_figure(320)
    methods = list(dict.fromkeys(names))
    top = float(np.nanmax(np.where(np.isfinite(ratio), ratio, 1.0)))
    for place, name in enumerate(methods):
        here = np.array([other == name for other in names])
        colour = drawing.cluster_colour(place)
        axes.plot(sizes[here], ratio[here], color=colour, linewidth=1.2, label=name)
        drawing.draw_dots(axes, np.column_stack([sizes, ratio])[here & np.isfinite(ratio)], colour, 3.2)
        if name == method:
            drawing.draw_bars(axes, sizes[here], low[here], high[here], colour, 0.9)
    axes.axhline(1.0, color=drawing.MUTED, linewidth=0.9)
    axes.axvline(n_selected, color=drawing.INK, linewidth=0.9, dashes=(1, 2))
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.9 * float(sizes.min()), 1.1 * float(sizes.max()))
    axes.set_ylim(min(0.98, float(np.nanmin(low))), top + 0.05 * (top - 0.95))
    axes.set_xlabel("selected columns")
    axes.set_ylabel("objective, relative")
    axes.set_xticks(np.unique(sizes)[:: max(1, len(np.unique(sizes)) // 8)])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axes.minorticks_off()
    axes.legend(loc="upper right")
    return drawing.to_svg(figure, "curve", f"Line chart of the objective by columns for {len(methods)} methods")
