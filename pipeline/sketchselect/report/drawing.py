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
import unicodedata
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
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from sketchselect._byte_sizes import format_bytes
from sketchselect.linalg.validation import Array, Floats

NAME_LENGTH = 60
NOTE_LENGTH = 600
JOB_LENGTH = 40_000

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Cc control, Cf format (bidirectional overrides, zero width), Cs lone surrogates, Co private, Zl/Zp line separators.
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def clean(value: Any, length: int = NAME_LENGTH, keep: str = "") -> str:
    r"""Return `value` as printable text of at most `length` characters.

    Invisible characters, and characters that change how the text around them is shown, become U+FFFD; characters in
    `keep` stay. Escaping is the template's business. Costs O(length) however long the text is.

    Examples
    --------
    >>> clean("a" * 100, 5)
    'aaaa…'
    >>> clean("left\u202eright")
    'left\ufffdright'
    """
    text = value if isinstance(value, str) else str(value)
    if len(text) > length:
        text = text[: length - 1] + "…"
    return "".join(c if c in keep or unicodedata.category(c) not in _INVISIBLE else "\ufffd" for c in text)


def as_numbers(values: Any) -> Floats:
    """Return numbers read from a file, where null stands for one that is not finite, as an array."""
    return np.asarray(values, dtype=np.float64)


def count(n: float) -> str:
    """Return a whole number with thousands separated: ``70,000``; weights keep up to two decimals."""
    if not math.isfinite(n):
        return number(n)
    return f"{round(n):,}" if float(n).is_integer() or abs(n) >= 1e6 else f"{n:,.2f}"


def number(x: float, digits: int = 4) -> str:
    """Return `x` to `digits` significant digits, with a power of ten only where it helps.

    Examples
    --------
    >>> number(1234.5678), number(0.00012), number(6.02e23), number(float("inf"))
    ('1,235', '0.00012', '6.02 × 10²³', '∞')
    """
    if math.isnan(x):
        return "–"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x == 0:
        return "0"
    if 1e-4 <= abs(x) < 1e7:
        rounded = float(f"{x:.{digits}g}")
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
        text = f"{rounded:,.{decimals}f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")
    mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
    return _power(mantissa, int(exponent))


def _power(mantissa: str, exponent: int) -> str:
    mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
    return f"{mantissa} × 10{str(exponent).translate(_SUPERSCRIPT)}"


def from_logarithm(log: float, digits: int = 4) -> str:
    """Return the number with this natural logarithm as `number` does, also where it is below every float.

    Examples
    --------
    >>> from_logarithm(math.log(0.05)), from_logarithm(-1000.0, 3)
    ('0.05', '5.08 × 10⁻⁴³⁵')
    """
    if not math.isfinite(log) or log > math.log(1e-300):
        return number(math.exp(log), digits)
    exponent = math.floor(log / math.log(10))
    return _power(f"{math.exp(log - exponent * math.log(10)):.{digits - 1}f}", exponent)


def at_least(x: float, digits: int = 4) -> str:
    """Return a positive number as `number` does, rounded down: a lower bound stays one.

    Examples
    --------
    >>> number(1.2346789), at_least(1.2346789), at_least(0.0)
    ('1.235', '1.234', '0')
    """
    return number(_cut(x, digits, ROUND_FLOOR), digits)


def not_above(x: float, digits: int = 4) -> str:
    """Return a positive number as `number` does, rounded up: an upper bound stays one.

    Examples
    --------
    >>> not_above(1.23401)
    '1.235'
    """
    return number(_cut(x, digits, ROUND_CEILING), digits)


def _cut(x: float, digits: int, rounding: str) -> float:
    return float(Context(prec=digits, rounding=rounding).create_decimal_from_float(x)) if math.isfinite(x) else x


def tick(x: float) -> str:
    """Return the short label of an axis tick, powers of ten with superscripts."""
    if x != 0 and not 1e-3 <= abs(x) < 1e6:
        mantissa, exponent = f"{x:.2e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".").replace("-", "−")
        power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
        return power if mantissa == "1" else f"{mantissa}·{power}"
    return f"{x:,.6g}".replace("-", "−")


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


def at_most_percent(fraction: float, decimals: int = 1) -> str:
    """Return a fraction as per cent, rounded up: an upper bound stays one.

    Examples
    --------
    >>> at_most_percent(0.0671), at_most_percent(0.067)
    ('6.8 %', '6.7 %')
    """
    scale = 10**decimals
    return f"{math.ceil(round(100 * fraction * scale, 6)) / scale:,.{decimals}f} %"


def factor(x: float) -> str:
    """Return a factor rounded up to three decimals (``1.068``)."""
    if not math.isfinite(x):
        return number(x)
    return f"{math.ceil(round(x * 1000, 6)) / 1000:,.3f}" if x < 1e6 else number(x)


def words(name: str) -> str:
    """Return a ``snake_case`` key as words."""
    return name.replace("_", " ")


def flat(mapping: Mapping[str, Any], limit: int = 150, prefix: str = "") -> list[tuple[str, str]]:
    """Return the leaves of a nested mapping as (dotted key, text), cleaned, at most `limit`."""
    rows: list[tuple[str, str]] = []
    for key, value in _leaves(mapping, prefix):
        if len(rows) == limit:
            rows.append(("…", "shortened"))
            break
        rows.append((clean(key, 2 * NAME_LENGTH), clean(_readable(key, value), NOTE_LENGTH)))
    return rows


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
    path.should_simplify = False  # clipping would leave out strokes without length
    patch = PathPatch(path, fill=False, edgecolor=colour, linewidth=width, capstyle=cap, alpha=opacity)
    axes.add_artist(patch)


def draw_line(
    axes: Axes, x: Floats, y: Floats, colour: str, *, label: str | None = None, width: float = 1.2, style: Any = "-"
) -> None:
    """Draw a line, with a dot for each value if they are few; values that are not finite are gaps."""
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
