"""Charts on axes of Matplotlib, in the colours of the user's own style or of the report page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from sketchselect._text import clean, count, tick
from sketchselect.linalg.validation import Array, Floats

_DOTS_UNTIL = 60


@dataclass(frozen=True)
class Pen:
    """Colours of a chart, and the form of its dots."""

    ink: Any  # Text and marks
    muted: Any  # Lines for comparison
    accent: Any  # The main line
    other: Any  # What is not selected, or has no colour of its own
    band: Any  # Areas
    card: Any  # Background
    colours: Sequence[Any]  # Of methods, clusters and columns
    strokes: bool = False  # Dots are strokes without length: some 12 bytes each in SVG, but only SVG draws them

    @classmethod
    def of_matplotlib(cls) -> Pen:
        """Return the colours of Matplotlib's current style."""
        colours = matplotlib.rcParams["axes.prop_cycle"].by_key().get("color", ["C0"])
        band, card = to_rgba(colours[0], 0.25), matplotlib.rcParams["axes.facecolor"]
        return cls(matplotlib.rcParams["text.color"], "0.5", colours[0], "0.7", band, card, colours)

    def colour(self, label: int) -> Any:
        """Return the colour of a cluster, method or column; they repeat where there are more than colours."""
        return self.colours[label % len(self.colours)]

    def dots(self, axes: Axes, points: Floats, colour: Any, size: float, opacity: float = 1.0) -> None:
        """Draw points, as one artist."""
        if not len(points):
            return
        if self.strokes:
            _strokes(axes, np.repeat(points, 2, axis=0), colour, size, opacity, "round")
        else:
            (dots,) = axes.plot(*points.T, linestyle="none", color=colour, alpha=opacity)
            dots.set(marker="o", markersize=size, markeredgewidth=0)

    def bars(self, axes: Axes, x: Floats, low: Floats, high: Floats, colour: Any, width: float) -> None:
        """Draw vertical strokes from `low` to `high`, `width` points wide, as one artist."""
        if len(x):
            _strokes(axes, np.column_stack([x, low, x, high]).reshape(-1, 2), colour, width, 1.0, "butt")

    def line(
        self,
        axes: Axes,
        x: Floats,
        y: Floats,
        colour: Any,
        *,
        label: str | None = None,
        width: float = 1.2,
        style: Any = "-",
    ) -> Line2D:
        """Draw a line, with a dot for each value if they are few; values that are not finite are gaps."""
        (line,) = axes.plot(x, y, color=colour, linewidth=width, linestyle=style, label=label)
        if len(x) <= _DOTS_UNTIL:
            self.dots(axes, np.column_stack([x, y])[np.isfinite(y)], colour, 3.2)
        return line

    def between(self, axes: Axes, x: Floats, low: Floats, high: Floats, label: str) -> None:
        """Draw the area between two lines."""
        outline = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
        axes.fill(*outline, color=self.band, linewidth=0, label=label)
        axes.plot(x, high, color=self.band, linewidth=0.8)

    def frame(
        self,
        axes: Axes,
        x_limits: tuple[float, float],
        y_limits: tuple[float, float],
        names: tuple[str, str],
        *,
        log: str = "",
        whole: str = "",
        chosen: float | None = None,
    ) -> None:
        """Set limits, names and ticks of both axes, of which `chosen` is marked on the first.

        Those in `log` are logarithmic, those in `whole` have ticks at whole numbers.
        """
        for direction, axis, limits, name in zip(
            "xy", (axes.xaxis, axes.yaxis), (x_limits, y_limits), names, strict=True
        ):
            axes.set(**{f"{direction}label": name, f"{direction}scale": "log" if direction in log else "linear"})
            axes.set(**{f"{direction}lim": limits})
            _plain_ticks(axis, log=direction in log, whole=direction in whole)
        if chosen is not None:
            axes.axvline(chosen, color=self.ink, linewidth=0.9, dashes=(3, 2))


def _strokes(axes: Axes, vertices: Floats, colour: Any, width: float, opacity: float, cap: Any) -> None:
    codes = np.tile(np.array([Path.MOVETO, Path.LINETO], dtype=np.uint8), len(vertices) // 2)
    path = Path(vertices, codes)
    path.should_simplify = False  # clipping would leave out strokes without length
    patch = PathPatch(path, fill=False, edgecolor=colour, linewidth=width, capstyle=cap, alpha=opacity)
    axes.add_artist(patch)


def _plain_ticks(axis: Any, *, log: bool, whole: bool = False) -> None:
    """Give one axis few ticks with plain labels."""
    if log:
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(6, integer=whole, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _position: tick(float(value))))


def widened(values: Floats, share: float) -> tuple[float, float]:
    """Return the range of values, wider by a share on each side; never empty."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = share * (high - low) or 0.5
    return low - margin, high + margin


def draw_curve(
    pen: Pen, axes: Axes, curve: Mapping[str, Any], chosen: tuple[str, int] | None = None, mark: str = ""
) -> None:
    """Draw the objective by number of columns, a line for each method, and intervals of the chosen one (or of all).

    `curve`: Columns of `SelectionCurve.to_dict`. `chosen`: Method and number of columns, beside which `mark` stands.
    """
    names = list(curve["method"])
    sizes, ratio, low, high = (np.asarray(curve[name], dtype=float) for name in ("n_features", "ratio", "low", "high"))
    for place, name in enumerate(dict.fromkeys(names)):
        of_method = np.array([other == name for other in names])
        colour = pen.colour(place)
        pen.line(axes, sizes[of_method], ratio[of_method], colour, label=name)
        if chosen is None or name == chosen[0]:
            # Side by side where there are several.
            shift = 1.0 if chosen is not None else 1.015 ** (place - len(set(names)) // 2)
            pen.bars(axes, shift * sizes[of_method], low[of_method], high[of_method], colour, 0.9)
    axes.axhline(1.0, color=pen.muted, linewidth=0.9)
    top = float(np.nanmax(np.where(np.isfinite(ratio), ratio, 1.0)))
    bottom = min(0.98, float(np.nanmin(low)))
    # Intervals are shown whole unless they are much longer than the lines are high.
    drawn = [value for name, value in zip(names, high.tolist(), strict=True) if chosen is None or name == chosen[0]]
    top = max(top, min(float(np.nanmax(drawn, initial=top)), top + 2.0 * (top - bottom)))
    pen.frame(
        axes,
        (0.9 * float(sizes.min()), 1.1 * float(sizes.max())),
        (bottom, top + 0.05 * (top - 0.95)),
        ("selected columns", "inertia, relative to all columns"),
        log="x",
        chosen=None if chosen is None else chosen[1],
    )
    if chosen is not None:
        for name, size, value in zip(names, sizes, ratio, strict=True):
            if (name, int(size)) == chosen:
                pen.dots(axes, np.array([[size, value]]), pen.ink, 8.0)
                axes.annotate(mark, (size, 1.0), xycoords=("data", "axes fraction"), ha="right", va="top")
    axes.set_xticks(_apart(np.unique(sizes)))
    axes.legend(loc="best")  # the chosen size is at the right where nearly all columns are selected


def _apart(sizes: Floats) -> list[float]:
    """Return sizes, ascending, whose labels do not touch on a logarithmic axis: the largest, and others down to it."""
    shown: list[float] = []
    for size in sizes[::-1].tolist():
        if not shown or np.log(shown[-1] / size) >= np.log(1.3 * sizes[-1] / sizes[0]) / 10:
            shown.append(size)
    return shown[::-1]


def draw_counts(
    pen: Pen, panels: Sequence[Axes], counts: Mapping[str, Any], names: tuple[str, str] = ("inertia", "")
) -> None:
    """Draw objective and lower bound by number of clusters, and below stability and silhouette, but on one panel.

    `counts`: `n_clusters`, `objectives`, `lower_bounds`, `stability` and `silhouette`, NaN or None where not known, and
    `recommended`.
    """
    columns = ("n_clusters", "objectives", "lower_bounds", "stability", "silhouette")
    ks, objective, bound, stability, silhouette = (np.asarray(counts[name], dtype=float) for name in columns)
    top = float(np.nanmax(objective, initial=0.0))
    scale = top if np.isfinite(top) and top > 0 else 1.0
    pen.line(panels[0], ks, objective / scale, pen.accent, label="best clustering")
    pen.line(panels[0], ks, bound / scale, pen.muted, label="lower bound")
    lows = [0.0]
    if len(panels) > 1:
        pen.line(panels[1], ks, stability, pen.accent, label="stability (mean ARI)")
        pen.line(panels[1], ks, silhouette, pen.muted, label="silhouette")
        lows.append(min(0.0, *(float(np.nanmin(values, initial=0.0)) for values in (stability, silhouette))))
    for axes, low, name in zip(panels, lows, names, strict=False):
        along = "number of clusters" if axes is panels[-1] else ""
        pen.frame(axes, widened(ks, 0.03), (low, 1.08), (along, name), whole="x", chosen=counts["recommended"])
    for axes in panels[:2]:
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)  # above the axes: lines may be anywhere


def draw_timeline(pen: Pen, axes: Axes, timeline: Mapping[str, Any], *, named: bool = False, title: str = "") -> None:
    """Draw the ranks of the columns that moved most, solid if they rose, and the number of selected columns.

    `timeline`: `rows` (n_points,), `ranks` (n_points, n_names), `n_selected` (n_points,), `names` and `n_risen`; and
        perhaps `dates` (n_points,), the first days of the periods, and `period`, in whose middle the points are.
    `title`: Above the names.
    """
    dates = timeline.get("dates")
    rows, chosen = (np.asarray(timeline[name], dtype=float) for name in ("rows", "n_selected"))
    ranks = np.asarray(timeline["ranks"], dtype=float).reshape(len(rows), -1)[:, : len(pen.colours)]
    lowest = float(np.nanmax(ranks)) if np.isfinite(ranks).any() else 1.0
    along = "rows so far" if timeline.get("window") is None else "last row of the window"
    if dates is not None:
        period = timeline.get("period") or "day"
        dates = np.array(dates, dtype="datetime64[D]")
        along, rows = _ALONG_DATES[period], _middles(dates, period)
    axes.plot(rows, np.maximum(chosen, 0.5) + 0.5, color=pen.ink, linewidth=0.9, dashes=(3, 2))
    drawn: list[Line2D] = []
    for j in range(ranks.shape[1] - 1, -1, -1):  # what moved most lies on top
        style = "-" if j < timeline["n_risen"] else (0, (5, 1.5))
        label = timeline["names"][j] if named else None
        drawn.append(pen.line(axes, rows, ranks[:, j], pen.colour(j), width=1.4, style=style, label=label))
    pen.frame(
        axes,
        widened(rows, 0.03),
        (1.35 * max(lowest, float(chosen.max())), 0.75),
        (along, "rank of the column"),
        log="y",
        whole="x",
    )
    if dates is not None:
        marked = _marked_periods(dates, period)
        axes.xaxis.set_major_locator(FixedLocator(rows[marked].tolist()))
        axes.xaxis.set_major_formatter(FixedFormatter([_period_name(dates[i], period) for i in marked]))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if lowest < 200 else (1.0,), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: count(float(value))))
    if named and drawn:
        _legend_beside(axes, drawn, title)


_ALONG_DATES = {"day": "day", "week": "week that begins on", "month": "month", "year": "year"}
_AXIS_WIDTH = 48
"""Characters that fit below an axis."""


def _middles(first_days: Any, period: str) -> Floats:
    """Return the middle of the period that begins on each day, in days since 1970-01-01."""
    if period == "week":  # NumPy's begin on Thursday
        after = first_days + np.timedelta64(7, "D")
    else:
        unit: Any = period[0].upper()
        after = (first_days.astype(f"datetime64[{unit}]") + np.timedelta64(1, unit)).astype("datetime64[D]")
    begin, end = (days.astype(np.float64) for days in (first_days, after))
    return np.asarray(0.5 * (begin + end))


def _period_name(first_day: Any, period: str) -> str:
    """Return a period by its first day, as the table of the timeline does: a month and a year without the rest."""
    return str(first_day)[: {"year": -6, "month": -3}.get(period)]


def _marked_periods(first_days: Any, period: str) -> list[int]:
    """Return which periods have a tick: few, evenly spaced, and the first ones of longer periods where there are many.

    Matplotlib's own ticks of dates name periods without rows, and fail before the year 1.
    """
    width = len(_period_name(first_days[-1], period)) + 1
    days, months = first_days.astype(np.int64), first_days.astype("datetime64[M]").astype(np.int64)
    least = (days[-1] - days[0]) * width / _AXIS_WIDTH
    coarser = [days, days // 2, (days + 3) // 7, (days + 3) // 14, *(months // step for step in (1, 2, 3, 6))]
    coarser += [(months // 12 + 1970) // (power * step) for power in (1, 10, 100, 1000) for step in (1, 2, 5)]
    for group in coarser:
        marked = np.flatnonzero(np.diff(group, prepend=group[0] - 1)).tolist()
        chosen = [marked.pop()]
        for i in marked[::-1]:
            if days[chosen[-1]] - days[i] >= least:
                chosen.append(i)
        if len(chosen) >= len(marked):  # the first one may be of a longer period that began before the rows did
            break
    return chosen[::-1]


def _legend_beside(axes: Axes, lines: Sequence[Line2D], title: str = "") -> None:
    """Name lines to the right of the axes, the last one drawn, which lies on top, first."""
    blank = ["x"] * len(lines)  # Matplotlib leaves out names that begin with "_", and reads some as formulas
    legend = axes.legend(lines[::-1], blank, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, title=title)
    for text, line in zip(legend.get_texts(), lines[::-1], strict=True):
        text.set_parse_math(False)
        text.set_text(clean(line.get_label(), 30))


def draw_certificates(pen: Pen, axes: Axes, certificates: Sequence[Any]) -> None:
    """Draw each certificate as a horizontal line from the lower bound by the objective to that of one cluster."""
    top = max([c.objective for c in certificates] + [c.scatter or 0.0 for c in certificates])
    places = np.arange(len(certificates), 0.0, -1.0)
    for y, c in zip(places, certificates, strict=True):
        first = y == places[0]
        axes.plot(
            [c.lower_bound, c.objective],
            [y, y],
            color=pen.muted,
            linewidth=5.0,
            solid_capstyle="butt",
            label="may still be gained" if first else None,
        )
        if c.scatter is not None:
            axes.plot(
                [c.objective, c.scatter],
                [y, y],
                color=pen.accent,
                linewidth=5.0,
                solid_capstyle="butt",
                label="gain over one cluster" if first else None,
            )
        pen.dots(axes, np.array([[c.objective, y]]), pen.ink, 8.0)
    high = 1.05 * top or 1.0
    pen.frame(axes, (0.0, high), (0.4, len(certificates) + 0.9), ("inertia (k-means objective)", ""))
    axes.set_yticks(places, [c.method if c.confidence == 1 else f"{c.method} ({c.confidence:g})" for c in certificates])
    axes.legend(loc="upper left", ncols=2)


MAX_POINTS = 6000
MAX_NUMBERED = 30
_PATHS = 60  # clusters are drawn in turns, so that the last one does not cover the others


def draw_scatter(pen: Pen, axes: Axes, points: Floats, labels: Array | None, centres: Floats | None) -> tuple[int, int]:
    """Draw at most `MAX_POINTS` points, evenly taken, with the number of each cluster at its centre.

    Return the number of points and of clusters that were drawn.
    """
    keep = np.isfinite(points).all(axis=1)
    points = points[keep]
    labels = np.full(len(points), -1) if labels is None else labels[keep]
    if len(points) > MAX_POINTS:
        sampled = np.linspace(0, len(points) - 1, MAX_POINTS).round().astype(int)
        points, labels = points[sampled], labels[sampled]
    clusters = np.unique(labels[labels >= 0])

    size = float(np.clip(90 / np.sqrt(max(len(points), 1)), 1.7, 4.5))
    plain = pen.accent if clusters.size == 0 else pen.other
    pen.dots(axes, points[labels < 0], plain, size, 0.7)
    members = [(int(c), points[labels == c]) for c in clusters]
    turns = max(1, _PATHS // max(1, len(members)))
    for turn in range(turns):
        for cluster, rows in members:
            pen.dots(axes, rows[turn::turns], pen.colour(cluster), size, 0.75)
    # A palette has ten colours, which not all readers can tell apart: the number identifies a cluster.
    if centres is None:
        places = [(c, np.median(rows, axis=0)) for c, rows in members]
    else:
        places = [(c, centre) for c, centre in enumerate(centres) if np.isfinite(centre).all()]
    places = places[:MAX_NUMBERED]
    if places and clusters.size:
        spots = np.array([place for _, place in places])
        lone = [cluster for cluster, rows in members if len(rows) == 1]  # a number on the only point would hide it
        pen.dots(axes, spots[[cluster not in lone for cluster, _ in places]], pen.card, 13.0, 0.85)
        for cluster, (x, y) in places:
            above = (0.0, 9.0 if cluster in lone else 0.0)
            axes.annotate(
                str(cluster),
                (float(x), float(y)),
                above,
                textcoords="offset points",
                ha="center",
                va="center",
                fontweight="bold",
            )
        visible = np.vstack([points, spots])
    else:
        visible = points
    limits = [widened(values, 0.05) if len(visible) else (0.0, 1.0) for values in visible.T]
    pen.frame(axes, limits[0], limits[1], ("principal component 1", "principal component 2"))
    return len(points), int(clusters.size)


_LABELLED = 8
_CHARACTER, _LINE = 6.5, 13.0  # Points of a label


@dataclass(frozen=True)
class Volcano:
    """Numbers of columns: tested, beyond doubt, not drawn, untested; and whether one height parts those selected."""

    n_tested: int
    n_certain: int
    n_left_off: int
    n_untested: int
    has_cut: bool


def draw_volcano(
    pen: Pen,
    axes: Axes,
    effects: Floats,
    log_pvalues: Floats,
    support: Array,
    names: Sequence[str] | None,
    effect: str,
    room: tuple[float, float],
) -> Volcano:
    """Draw effects against the significance of their tests, the selected ones marked and some of them named.

    Columns beyond doubt, such as two constants that differ, are at the upper edge. `room`: width and height of the
    axes, in points.
    """
    heights = -log_pvalues / np.log(10)
    tested = np.flatnonzero(np.isfinite(effects) & ~np.isnan(heights))
    certain = np.isinf(heights[tested])
    top = 1.08 * float(heights[tested][~certain].max(initial=1.0))
    y = np.minimum(heights, top)
    chosen = np.zeros(effects.size, dtype=bool)
    chosen[support] = True
    by_height = tested[np.argsort(-heights[tested], kind="stable")]
    drawn, left_off = by_height, max(by_height.size - MAX_POINTS, 0)
    if left_off:
        rest = by_height[MAX_POINTS // 2 :]
        evenly = rest[np.linspace(0, rest.size - 1, MAX_POINTS // 2).round().astype(int)]
        drawn = np.concatenate([by_height[: MAX_POINTS // 2], evenly])
    points = np.column_stack([effects, y])
    for is_chosen, colour in ((False, pen.other), (True, pen.accent)):
        pen.dots(axes, points[drawn[chosen[drawn] == is_chosen]], colour, 3.6, 0.75)
    low, high = widened(effects[tested], 0.06)
    floor = -0.02 * top
    pen.frame(axes, (low, high), (floor, 1.03 * top), (clean(effect), "−log₁₀ of the p-value"))
    axes.xaxis.label.set_parse_math(False)
    least, most = (heights[tested[chosen[tested] == flag]] for flag in (True, False))
    has_cut = bool(least.size and most.size and least.min() >= most.max())
    if has_cut:
        axes.axhline(float(min(least.min(), top)), color=pen.ink, linewidth=0.9, dashes=(3, 2))
    boxes: list[tuple[float, float, float]] = []
    scale = np.array(room) / (high - low, 1.03 * top - floor)
    for j in by_height[chosen[by_height]][: 10 * _LABELLED].tolist():
        if len(boxes) == _LABELLED:
            break
        text = str(j) if names is None else clean(names[j], 16)
        x, width = (effects[j] - low) * scale[0], len(text) * _CHARACTER
        # Outwards, away from the other dots, where there is room.
        right = x + width < room[0] if effects[j] >= 0 else x < width
        box = (x - (0.0 if right else width), x + (width if right else 0.0), y[j] * scale[1])
        if all(box[1] < b[0] or b[1] < box[0] or abs(box[2] - b[2]) >= _LINE for b in boxes):
            boxes.append(box)
            axes.annotate(
                text,
                points[j],
                (4 if right else -4, 0),
                textcoords="offset points",
                ha="left" if right else "right",
                va="center",
                parse_math=False,
            )
    return Volcano(tested.size, int(certain.sum()), left_off, effects.size - tested.size, has_cut)


MAX_BARS = 400  # more bars would be thinner than a pixel
_SEPARATE_BARS = 64
_ONE_PANEL = 200
_DEPTH = 1e-12  # scores below this share of the highest lie on the bottom of a logarithmic axis
_PANEL_POINTS = 272.0  # width of a panel in points, axis labels taken off
_MANY_TIMES = 300.0


@dataclass(frozen=True)
class Ranking:
    """Columns by falling score: `order` (columns without a score last), `values` in that order, `chosen` flags."""

    order: Array
    values: Floats
    chosen: Array
    n_scored: int

    @property
    def n_chosen(self) -> int:
        """Number of selected columns."""
        return int(self.chosen.sum())

    @property
    def is_order(self) -> bool:
        """Whether the scores of the selected columns only count down in the order of their choice."""
        chosen = self.values[: self.n_chosen]
        return chosen.size > 2 and self.by_score and bool((np.diff(chosen) == -1).all())

    @property
    def by_score(self) -> bool:
        """Whether the selected columns are exactly the ones with the highest scores."""
        return bool(self.chosen[: self.n_chosen].all())


def rank(scores: Floats, support: Array) -> Ranking:
    """Return the columns by falling score; ties by lowest column, columns without a finite score last."""
    finite = np.isfinite(scores)
    order = np.lexsort((np.arange(len(scores)), -np.where(finite, scores, 0.0), ~finite))
    is_selected = np.zeros(len(scores), dtype=bool)
    is_selected[support] = True
    return Ranking(order, scores[order], is_selected[order], int(finite.sum()))


def panels_of(ranking: Ranking) -> list[int]:
    """Return the columns of each panel: all, and those about the cut where it would be too narrow to see."""
    n, r = ranking.n_scored, ranking.n_chosen
    zoom = max(2 * r, 20)
    return [n] if n <= max(2 * zoom, _ONE_PANEL) or r == 0 else [n, zoom]


def draw_scores(pen: Pen, axes: Axes, ranking: Ranking, n_shown: int) -> None:
    """Draw the scores of the first columns, the selected ones marked, and the cut where it is one by score."""
    values, chosen = ranking.values[:n_shown], ranking.chosen[:n_shown]
    edges = np.linspace(0, n_shown, min(n_shown, MAX_BARS) + 1).round().astype(int)
    middle = (edges[:-1] + 1 + edges[1:]) / 2
    high = np.maximum.reduceat(values, edges[:-1])
    low = np.minimum.reduceat(values, edges[:-1])
    high = np.where(np.abs(low) > np.abs(high), low, high)
    # With many columns a bar stands for several; it is marked to the height of its highest selected column.
    selected_heights = np.maximum.reduceat(np.where(chosen, values, -np.inf), edges[:-1])
    has = np.isfinite(selected_heights)
    positive = values[values > 0]
    log = bool(positive.size > 1 and values.min() >= 0 and positive[0] > _MANY_TIMES * np.median(positive))
    base = 0.8 * max(float(positive[-1]), _DEPTH * float(positive[0])) if log else 0.0
    bar_width = 0.82 if len(middle) <= _SEPARATE_BARS else 1.03  # many bars touch: gaps of half a pixel only flicker
    width = min(14.0, bar_width * _PANEL_POINTS / len(middle))
    floor = np.full(len(middle), base)
    pen.bars(axes, middle, floor, np.maximum(high, base) if log else high, pen.other, width)
    pen.bars(axes, middle[has], floor[has], np.maximum(selected_heights[has], base), pen.accent, width)

    top, bottom = float(values.max(initial=0.0)), float(values.min(initial=0.0))
    pad = 0.06 * (top - bottom) or 0.5
    heights = (base, 1.5 * top) if log else (bottom - pad if bottom < 0 else 0.0, top + pad)
    widths = (0.5 - 0.01 * n_shown, n_shown * 1.01 + 0.5)
    r = ranking.n_chosen
    title = "order of choice, highest first" if ranking.is_order else "score"
    pen.frame(axes, widths, heights, ("", title), log="y" if log else "", whole="xy" if ranking.is_order else "x")
    if ranking.by_score and 0 < r < n_shown:
        axes.axvline(r + 0.5, color=pen.ink, linewidth=0.9, dashes=(3, 2))
        axes.annotate(
            f"cut after {count(r)}",
            (r + 0.5, 0.97),
            (4 if r < 0.6 * n_shown else -4, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="left" if r < 0.6 * n_shown else "right",
            va="top",
        )
    axes.grid(visible=False, axis="x")


_MAX_LINES = 30
_STEEP = 20.0
_HUGE = 1e100


def draw_path(pen: Pen, axes: Axes, model: Mapping[str, Any], *, named: bool = False) -> int:
    """Draw the standardised coefficients along the path, and mark the chosen model; return how many lines were drawn.

    `model`: `parameter`, `values` (n_models,), `chosen`, `path_terms` and `path_lines` (n_models, n_terms), the
    strongest first.
    """
    lines = _drawable(model["path_lines"])[:, :_MAX_LINES]
    axes.axhline(0.0, color=pen.muted, linewidth=0.6)
    x, log = _positions(model)
    n_coloured, drawn = len(pen.colours), list[Line2D]()
    for j in range(lines.shape[1] - 1, -1, -1):  # the strongest last, on top
        colour = pen.colour(j) if j < n_coloured else pen.other
        label = model["path_terms"][j] if named and j < n_coloured else None
        drawn += axes.plot(x, lines[:, j], color=colour, linewidth=1.3 if j < n_coloured else 0.8, label=label)
    heights = widened(lines, 0.06) if lines.size else (-1.0, 1.0)
    _frame_path(pen, axes, model, heights, "standardised coefficient", log="x" if log else "")
    if named and lines.shape[1]:
        _legend_beside(axes, drawn[-n_coloured:])
    return int(lines.shape[1])


def draw_validation(pen: Pen, axes: Axes, model: Mapping[str, Any]) -> int:
    """Draw the cross-validation error along the path with its one-standard-error band; return the best model.

    `model`: As for `draw_path`, with `cv_mean`, `cv_error` (n_models,) and `family`.
    """
    chosen, mean = model["chosen"], _drawable(model["cv_mean"])
    error = np.zeros_like(mean) if model["cv_error"] is None else _drawable(model["cv_error"])
    best = int(np.argmin(mean))
    low, high = mean - error, mean + error
    # The model without columns is often worse by so much that nothing else could be told apart.
    steep = bool(mean.min() > 0 and mean.max() > _STEEP * mean.min())
    low = np.maximum(low, 0.5 * mean) if steep else low
    x, log = _positions(model)
    pen.between(axes, x, low, high, "± one standard error")
    pen.line(axes, x, mean, pen.accent, label="mean over the folds", width=1.4)
    axes.axhline(float(high[best]), color=pen.muted, linewidth=0.8, dashes=(3, 2))
    pen.dots(axes, np.array([[x[chosen], mean[chosen]]]), pen.ink, 6.0)
    heights = (0.9 * float(low.min()), 1.15 * float(high.max())) if steep else widened(np.r_[low, high], 0.06)
    measure = "mean squared error" if model.get("family", "gaussian") == "gaussian" else "mean deviance"
    _frame_path(pen, axes, model, heights, f"{measure} on held-out rows", log="x" * log + "y" * steep)
    axes.legend(loc="best")
    return best


def _positions(model: Mapping[str, Any]) -> tuple[Floats, bool]:
    """Return the position of each model on the horizontal axis, and whether the axis is logarithmic."""
    values = _drawable(model["values"])
    if model["parameter"] != "alpha" or not (np.asarray(model["values"], dtype=float) > 0).all():
        return values, False
    values = np.maximum(values, 1 / _HUGE)
    return values, float(values.max()) > 10 * float(values.min())


def _frame_path(
    pen: Pen, axes: Axes, model: Mapping[str, Any], heights: tuple[float, float], name: str, *, log: str
) -> None:
    """Frame a chart along the path, and mark the chosen model."""
    x, by_alpha = _positions(model)[0], model["parameter"] == "alpha"
    left, right = (float(x.min()) / 1.1, float(x.max()) * 1.1) if "x" in log else widened(x, 0.03)
    along = "alpha (regularisation strength), decreasing" if by_alpha else "number of columns allowed"
    limits = (right, left) if by_alpha else (left, right)  # from the sparsest model on
    pen.frame(
        axes, limits, heights, (along, name), log=log, whole="" if by_alpha else "x", chosen=float(x[model["chosen"]])
    )


def _drawable(values: Any) -> Floats:
    """Return numbers for drawing: finite, and not so large that ticks overflow."""
    numbers = np.asarray(values, dtype=np.float64)
    return np.clip(np.nan_to_num(numbers, posinf=_HUGE, neginf=-_HUGE), -_HUGE, _HUGE)
