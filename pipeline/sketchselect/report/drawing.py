"""Figures as small inline SVG that follows the page's light or dark colours.

Matplotlib lays out axes and ticks; the text it writes is then tightened: colours become the page's CSS variables,
coordinates lose digits that nobody sees, ids get a prefix so that several figures share one page.
"""

from __future__ import annotations

import base64
import io
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.report.text import tick

INK, MUTED, GRID, ACCENT, OTHER, BAND, CARD = (f"#0{i}0b0c" for i in range(1, 8))
"""Stand-ins that no figure uses otherwise; `to_svg` puts the CSS variable of the same name in their place."""

N_COLOURS = 10
_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    ACCENT: "accent",
    OTHER: "other",
    BAND: "band",
    CARD: "card",
    **{f"#0c0d{i:02d}": f"c{i}" for i in range(N_COLOURS)},
}
_DOTS_UNTIL = 60
_WIDTH = 460  # CSS pixels: text of 11 px stays readable when a phone shrinks it to 350 px
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "sketchselect",
    "font.family": "DejaVu Sans",  # comes with Matplotlib and is wider than the fonts shown: labels never overlap
    "font.size": 11 * 0.72,
    "axes.titlesize": 11 * 0.72,
    "axes.linewidth": 0.72,
    "axes.unicode_minus": True,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
}


def cluster_colour(label: int) -> str:
    """Return the stand-in colour of a cluster; from the eleventh on they repeat, and numbers tell them apart."""
    return f"#0c0d{label % N_COLOURS:02d}"


@contextmanager
def style() -> Iterator[None]:
    """Draw with the page's style, whatever the user's own settings of Matplotlib are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure(height: int, panels: Sequence[float] = (1.0,)) -> tuple[Figure, list[Axes]]:
    """Return a figure of the page's width, `height` CSS pixels high, with panels of these relative heights."""
    figure = Figure(figsize=(_WIDTH / 100, height / 100), dpi=100, layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw={"height_ratios": list(panels)})
    panels_drawn: list[Axes] = list(axes[:, 0])
    for panel in panels_drawn:
        panel.set_autoscale_on(False)  # every figure sets its limits; huge numbers overflow the automatic ones
    return figure, panels_drawn


def _plain_ticks(axis: Any, *, log: bool, whole: bool = False) -> None:
    """Give one axis few ticks with plain labels."""
    if log:
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(6, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _position: tick(float(value))))


def draw_dots(axes: Axes, points: Floats, colour: str, size: float, opacity: float = 1.0) -> None:
    """Draw points as one path of zero-length strokes with round ends: some 12 bytes a point."""
    if len(points):
        vertices = np.repeat(points, 2, axis=0)
        _strokes(axes, vertices, colour, size, opacity, "round")


def draw_bars(axes: Axes, x: Floats, low: Floats, high: Floats, colour: str, width: float) -> None:
    """Draw vertical strokes from `low` to `high`, `width` points wide, as one path."""
    if len(x):
        vertices = np.column_stack([x, low, x, high]).reshape(-1, 2)
        _strokes(axes, vertices, colour, width, 1.0, "butt")


def _strokes(axes: Axes, vertices: Floats, colour: str, width: float, opacity: float, cap: Any) -> None:
    codes = np.tile(np.array([Path.MOVETO, Path.LINETO], dtype=np.uint8), len(vertices) // 2)
    path = Path(vertices, codes)
    path.should_simplify = False  # it would leave out strokes without length
    patch = PathPatch(path, fill=False, edgecolor=colour, linewidth=width, capstyle=cap, alpha=opacity)
    axes.add_artist(patch)


def draw_line(
    axes: Axes, x: Floats, y: Floats, colour: str, *, label: str | None = None, width: float = 1.2, style: Any = "-"
) -> None:
    """Draw a line, with a dot for each value where they are few; values that are not finite are gaps."""
    axes.plot(x, y, color=colour, linewidth=width, linestyle=style, label=label)
    if len(x) <= _DOTS_UNTIL:
        draw_dots(axes, np.column_stack([x, y])[np.isfinite(y)], colour, 3.2)


def draw_band(axes: Axes, x: Floats, low: Floats, high: Floats, label: str) -> None:
    """Draw the area between two lines."""
    outline = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
    axes.fill(*outline, color=BAND, linewidth=0, label=label)
    axes.plot(x, high, color=BAND, linewidth=0.8)


def frame(
    axes: Axes,
    x_limits: tuple[float, float],
    y_limits: tuple[float, float],
    names: tuple[str, str],
    *,
    log: str = "",
    whole: bool = False,
    chosen: float | None = None,
) -> None:
    """Set limits, names and ticks of both axes; those in `log` are logarithmic, and `chosen` is marked on the first."""
    for direction, axis, limits, name in zip("xy", (axes.xaxis, axes.yaxis), (x_limits, y_limits), names, strict=True):
        axes.set(**{f"{direction}label": name, f"{direction}scale": "log" if direction in log else "linear"})
        axes.set(**{f"{direction}lim": limits})
        _plain_ticks(axis, log=direction in log, whole=whole and direction == "x")
    if chosen is not None:
        axes.axvline(chosen, color=INK, linewidth=0.9, dashes=(3, 2))


def widened(values: Floats, share: float) -> tuple[float, float]:
    """Return the range of values, wider by a share on each side; never empty."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = share * (high - low) or 0.5
    return low - margin, high + margin


def to_svg(figure: Figure, name: str, label: str) -> str:
    """Return the figure as an inline ``<svg>`` element.

    `figure`: Drawn with the stand-in colours of this module.
    `name`: Prefix of all ids, unique on the page.
    `label`: What the figure shows, in words, for those who do not see it; must need no escaping.
    """
    buffer = io.StringIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"(<g) id=\"[^\"]*\"", r"\1", text)
    text = re.sub(r'xlink:href="#', 'href="#', text)
    text = re.sub(r'(id="|href="#|url\(#)', rf"\1{name}-", text)
    text = re.sub(r"font: [^;\"]*px 'DejaVu Sans'", _font_size, text)
    text = re.sub("#[0-9a-f]{6}", lambda m: f"var(--{_VARIABLES[m[0]]})" if m[0] in _VARIABLES else m[0], text)
    text = re.sub(r' d="([^"]*)"', lambda m: f' d="{_tight_path(m[1])}"', text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    width, height = (float(figure.get_figwidth() * 72), float(figure.get_figheight() * 72))
    head = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{label}">'
    return head + text[text.index(">") + 1 :].strip()


def _font_size(match: re.Match[str]) -> str:
    size = re.search(r"([\d.]+)px", match[0])
    return f"font-size: {size[1]}px" if size else ""


def _tight_path(path: str) -> str:
    path = re.sub(r"-?\d+\.\d+(?:e-?\d+)?", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), path)
    path = re.sub(r"\s*\n\s*", "", path)
    path = re.sub(r"([MLHVCQzZ]) ?", r"\1", path)
    path = re.sub(r"M(\S+ \S+?)L\1(?=M|$)", r"M\1h0", path)
    return re.sub(r"M(\S+) (\S+?)L\1 (\S+?)(?=M|$)", r"M\1 \2V\3", path).strip()


def png(indexes: Array, palette: Array) -> str:
    """Return a palette image as a ``data:`` address.

    `indexes`: Palette index of each pixel.
    `palette`: Red, green, blue, opacity; m <= 256.
    """
    height, width = indexes.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # first byte of a row: filter type none
    rows[:, 1:] = indexes
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette[:, :3].tobytes()),
        (b"tRNS", palette[:, 3].tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    ]
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")


def ramp(n: int = 255) -> Array:
    """Return `n` steps of the cividis colour map (legible with any colour vision, dark to light) as RGBA bytes."""
    colours = matplotlib.colormaps["cividis"](np.linspace(0.0, 1.0, n), bytes=True)
    return np.asarray(colours, dtype=np.uint8)
