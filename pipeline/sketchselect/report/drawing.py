"""Figures as small inline SVG in the page's light or dark colours; numbers and text, formatted for them and the page.

Matplotlib lays out axes and ticks; the text it writes is then tightened: colours become the page's CSS variables,
coordinates lose digits that cannot be seen, ids get a prefix so that several figures share one page.
"""

from __future__ import annotations

import base64
import io
import math
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import NAME_LENGTH, clean, number
from sketchselect.linalg.validation import Array, Floats
from sketchselect.plots.charts import Pen

NOTE_LENGTH = 600
JOB_LENGTH = 40_000
MOST_LEAVES = 150


def as_numbers(values: Any) -> Floats:
    """Return numbers read from a file, where null stands for one that is not finite, as an array."""
    return np.asarray(values, dtype=np.float64)


def at_least(x: float) -> str:
    """Return a positive number as `number` does, rounded down: a lower bound stays one.

    Examples
    --------
    >>> number(1.2346789), at_least(1.2346789), at_least(0.0)
    ('1.235', '1.234', '0')
    """
    return number(_cut(x, ROUND_FLOOR))


def not_above(x: float) -> str:
    """Return a positive number as `number` does, rounded up: an upper bound stays one.

    Examples
    --------
    >>> not_above(1.23401)
    '1.235'
    """
    return number(_cut(x, ROUND_CEILING))


def _cut(x: float, rounding: str) -> float:
    """Return a number to the four digits that `number` shows."""
    return float(Context(prec=4, rounding=rounding).create_decimal_from_float(x)) if math.isfinite(x) else x


def percent(fraction: float, decimals: int = 1) -> str:
    """Return a fraction as per cent, rounded to the nearest."""
    return f"{100 * fraction:.{decimals}f} %"


def probability(p: float) -> str:
    """Return a probability as per cent, with all its decimals: nothing short of 1 becomes 100 %.

    Examples
    --------
    >>> probability(0.99), probability(0.99999)
    ('99.0 %', '99.999 %')
    """
    short = f"{100 * p:.1f}"
    return f"{short if math.isclose(float(short), 100 * p, rel_tol=1e-12) else f'{100 * p:.12g}'} %"


def at_most_percent(fraction: float) -> str:
    """Return a fraction as per cent, rounded up: an upper bound stays one.

    Examples
    --------
    >>> at_most_percent(0.0671), at_most_percent(0.067)
    ('6.8 %', '6.7 %')
    """
    return f"{math.ceil(round(1000 * fraction, 6)) / 10:,.1f} %"


def factor(x: float) -> str:
    """Return a factor rounded up to three decimals (``1.068``)."""
    if not math.isfinite(x):
        return number(x)
    return f"{math.ceil(round(x * 1000, 6)) / 1000:,.3f}" if x < 1e6 else number(x)


def words(name: str) -> str:
    """Return a ``snake_case`` key as words."""
    return name.replace("_", " ")


def flat(mapping: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the leaves of a nested mapping as (dotted key, text), cleaned, at most `MOST_LEAVES`."""
    leaves = list(_leaves(mapping, ""))
    rows = [(clean(k, 2 * NAME_LENGTH), clean(_readable(k, value), NOTE_LENGTH)) for k, value in leaves[:MOST_LEAVES]]
    return rows if len(leaves) <= MOST_LEAVES else [*rows, ("…", "shortened")]


def _readable(key: str, value: Any) -> Any:
    """Return a number of bytes, known by the last part of its key, in units; anything else unchanged."""
    last = key.rpartition(".")[2]
    is_bytes = last == "memory_limit" or last.endswith("bytes") or "_bytes_" in last
    return format_bytes(value) if is_bytes and isinstance(value, int) and not isinstance(value, bool) else value


def _leaves(mapping: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in mapping.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "–" if value is None or value == {} else value


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


PAGE = Pen(INK, MUTED, ACCENT, OTHER, BAND, CARD, [f"#0c0d{i:02d}" for i in range(N_COLOURS)], strokes=True)
"""The page's colours; of clusters they repeat from the eleventh on, and numbers tell them apart."""


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


def to_svg(figure: Figure, name: str, label: str) -> str:
    """Return the figure as an inline ``<svg>`` element.

    `figure`: Drawn with the stand-in colours of this module.
    `name`: Prefix of all ids, unique on the page.
    `label`: The figure in words, for screen readers; must need no escaping.
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
