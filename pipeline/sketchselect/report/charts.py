"""Charts and images of the page, each with its caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from sketchselect.linalg.validation import Array, Floats
from sketchselect.report import drawing
from sketchselect.report.drawing import NOTE_LENGTH, as_numbers, clean, count, number, percent

_TABLE_ROWS = 60
_NAMED_DAYS = 14  # names of more would overlap


def curve_section(diagnostics: Mapping[str, Any], method: str, n_selected: int) -> Mapping[str, Any] | None:
    """Return the content of the page's section on the curve; None where the selection has none."""
    curve = diagnostics.get("curve")
    if not isinstance(curve, Mapping) or not curve.get("method"):
        return None
    names = [clean(name) for name in curve["method"]]
    sizes, ratio, low, high = (as_numbers(curve[name]) for name in ("n_features", "ratio", "low", "high"))
    rows = [
        [name, count(int(r)), *(f"{value:.3f}" for value in row)]
        for name, r, *row in zip(names, sizes, ratio, low, high, strict=True)
    ]
    # The curve distinguishes several competitors of one method.
    method = clean(str(diagnostics.get("competitor", method)))
    figure, (axes,) = drawing.new_figure(320)
    methods = list(dict.fromkeys(names))
    for place, name in enumerate(methods):
        is_method = np.array([other == name for other in names])
        colour = drawing.cluster_colour(place)
        drawing.draw_line(axes, sizes[is_method], ratio[is_method], colour, label=name)
        if name == method:
            drawing.draw_bars(axes, sizes[is_method], low[is_method], high[is_method], colour, 0.9)
    axes.axhline(1.0, color=drawing.MUTED, linewidth=0.9)
    top = float(np.nanmax(np.where(np.isfinite(ratio), ratio, 1.0)))
    drawing.frame(
        axes,
        (0.9 * float(sizes.min()), 1.1 * float(sizes.max())),
        (min(0.98, float(np.nanmin(low))), top + 0.05 * (top - 0.95)),
        ("selected columns", "inertia, relative to all columns"),
        log="x",
        chosen=n_selected,
    )
    chosen = [i for i, (name, r) in enumerate(zip(names, sizes, strict=True)) if (name, int(r)) == (method, n_selected)]
    if chosen:
        place = chosen[0]
        drawing.draw_dots(axes, np.array([[sizes[place], ratio[place]]]), drawing.INK, 8.0)
        proved = "proved" if "largest_objective" in diagnostics else "chosen"
        text = f"{count(n_selected)} column{'' if n_selected == 1 else 's'}, {proved} "
        axes.annotate(text, (sizes[place], 1.0), xycoords=("data", "axes fraction"), ha="right", va="top")
    axes.set_xticks(np.unique(sizes)[:: max(1, len(np.unique(sizes)) // 8)])
    axes.legend(loc="upper right")
    label = f"Line chart of the objective by columns for {len(methods)} methods"
    return {
        "sentence": clean(str(diagnostics.get("choice", "")), NOTE_LENGTH),
        "svg": Markup(drawing.to_svg(figure, "curve", label)),
        "caption": (
            "Inertia (k-means objective) in all columns of k-means on the selected ones, relative to k-means on all "
            "columns, by method: "
            f"estimated from {count(int(diagnostics.get('sampled_rows', 0)))} rows. Strokes are the 95 % intervals of "
            "the chosen method, the dashed line is what was selected."
        ),
        "rows": rows[:_TABLE_ROWS],
        "left_off": max(len(rows) - _TABLE_ROWS, 0),
    }


COUNT_MEASURES = (
    "n_clusters",
    "objectives",
    "lower_bounds",
    "stability",
    "calinski_harabasz",
    "davies_bouldin",
    "silhouette",
)
"""Columns of a range of numbers of clusters."""


def cluster_count_section(counts: Mapping[str, Any], used: int) -> Mapping[str, Any]:
    """Return the content of the page's section on the number of clusters."""
    recommended = counts["recommended"]
    ks, objective, _, *measures = (as_numbers(counts[name]) for name in COUNT_MEASURES)
    rows = [
        [count(int(k)), *("" if np.isnan(value) else number(float(value)) for value in values)]
        for k, *values in zip(ks, objective, *measures, strict=True)
    ]
    return {
        "sentence": clean(counts["sentence"], NOTE_LENGTH),
        "svg": Markup(_draw_counts(counts)),
        "caption": (
            "Above: the objective of the best clustering over all rows, and the lower bound for any clustering into "
            "that many clusters, as shares of the highest objective shown. Below: the agreement of clusterings from "
            f"{count(counts['n_seeds'])} seeds (mean adjusted Rand index on {count(counts['n_sampled'])} rows; 1 is "
            "complete agreement), and the silhouette of squared distances over all rows (1: clusters are far apart)."
            + ("" if recommended is None else " The dashed line marks the recommended number.")
            + f" This run used {count(used)}."
        ),
        "rows": rows,
    }


def _draw_counts(counts: Mapping[str, Any]) -> str:
    ks, objective, bound, stability, _, _, silhouette = (as_numbers(counts[name]) for name in COUNT_MEASURES)
    figure, (above, below) = drawing.new_figure(360, (1.6, 1.0))
    top = float(np.nanmax(objective, initial=0.0))
    scale = top if np.isfinite(top) and top > 0 else 1.0
    drawing.draw_line(above, ks, objective / scale, drawing.ACCENT, label="best clustering")
    drawing.draw_line(above, ks, bound / scale, drawing.MUTED, label="lower bound")
    drawing.draw_line(below, ks, stability, drawing.ACCENT, label="agreement")
    drawing.draw_line(below, ks, silhouette, drawing.MUTED, label="silhouette")
    least = min(0.0, *(float(np.nanmin(values, initial=0.0)) for values in (stability, silhouette)))
    for axes, low, axis_names in ((above, 0.0, ("", "objective")), (below, least, ("number of clusters", ""))):
        chosen = counts["recommended"]
        drawing.frame(axes, drawing.widened(ks, 0.03), (low, 1.08), axis_names, whole=True, chosen=chosen)
    above.legend(loc="upper right")
    below.legend(loc="lower right")
    label = f"Line charts of objective, agreement and silhouette for {len(ks)} numbers of clusters"
    return drawing.to_svg(figure, "cluster-count", label)


def draw_drift(names: Sequence[str], days: Sequence[Mapping[str, Any]]) -> str:
    """Return the SVG: the share of each day with its interval, its threshold, and a dot where there is an alarm."""
    columns = ("share", "low", "high", "threshold")
    share, low, high, threshold = (as_numbers([day[name] for day in days]) for name in columns)
    alarm = np.array([bool(day["exceeded"]) for day in days])
    x = np.arange(1.0, len(days) + 1)
    figure, (axes,) = drawing.new_figure(300)
    drawing.draw_bars(axes, x, low, high, drawing.BAND, min(8.0, 200 / len(x)))
    axes.plot(x, threshold, color=drawing.INK, linewidth=0.9, dashes=(3, 2), label="threshold")
    drawing.draw_line(axes, x, share, drawing.ACCENT, label="share outside the base's directions")
    drawing.draw_dots(axes, np.column_stack([x, share])[alarm], drawing.cluster_colour(2), 5.0)
    limits = drawing.widened(np.concatenate([low, high, threshold]), 0.06)
    drawing.frame(axes, drawing.widened(x, 0.03), limits, ("day", "share of the scatter"), whole=True)
    if len(names) <= _NAMED_DAYS:
        axes.set_xticks(x, names, rotation=30, ha="right")
        axes.set_xlabel("")
    axes.legend(loc="upper left")
    label = f"Line chart of drift on {count(len(x))} days, {count(int(alarm.sum()))} of them with an alarm"
    return drawing.to_svg(figure, "drift", label)


def timeline_section(timeline: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of the page's section on the timeline."""
    ranks = as_numbers(timeline["ranks"]).reshape(len(timeline["rows"]), -1)[:, : drawing.N_COLOURS]
    moves = [(j, clean(name), _move(ranks[:, j])) for j, name in enumerate(timeline["names"][: drawing.N_COLOURS])]
    return {
        "sentence": _describe_timeline(timeline),
        "svg": Markup(_draw_timeline(timeline, ranks)) if moves else None,
        "risen": moves[: timeline["n_risen"]],
        "fallen": moves[timeline["n_risen"] :],
        "caption": (
            "Rank 1 is the highest score. Where the method takes the highest scores, the columns above the dashed line "
            "are selected. Rises and falls are from the first point to the last, in halvings and doublings of the rank."
        ),
    }


def _describe_timeline(timeline: Mapping[str, Any]) -> str:
    points, window, half_life = len(timeline["rows"]), timeline.get("window"), timeline.get("half_life")
    text = f"The selection was repeated at {count(points)} point{'s' if points != 1 else ''} along the rows"
    if window is not None:
        text += f", each time from the last {count(window)} rows (rounded up to whole partitions)"
    else:
        text += ", each time from all rows up to that point"
    if half_life is not None:
        text += f", where the weight of a row halves every {count(half_life)} rows"
    ever = timeline["n_ever"]
    return (
        f"{text}. {count(ever)} column{'s were' if ever != 1 else ' was'} selected at some point, "
        f"{count(timeline['n_always'])} of them at every point."
    )


def _draw_timeline(timeline: Mapping[str, Any], ranks: Floats) -> str:
    rows, chosen = as_numbers(timeline["rows"]), as_numbers(timeline["n_selected"])
    figure, (axes,) = drawing.new_figure(300)
    lowest = float(np.nanmax(ranks)) if np.isfinite(ranks).any() else 1.0
    axes.plot(rows, np.maximum(chosen, 0.5) + 0.5, color=drawing.INK, linewidth=0.9, dashes=(3, 2))
    for j in range(ranks.shape[1] - 1, -1, -1):  # what moved most lies on top
        style = "-" if j < timeline["n_risen"] else (0, (5, 1.5))
        drawing.draw_line(axes, rows, ranks[:, j], drawing.cluster_colour(j), width=1.4, style=style)
    drawing.frame(
        axes,
        drawing.widened(rows, 0.03),
        (1.35 * max(lowest, float(chosen.max())), 0.75),
        ("rows so far" if timeline.get("window") is None else "last row of the window", "rank of the column"),
        log="y",
        whole=True,
    )
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if lowest < 200 else (1.0,), numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: count(float(value))))
    return drawing.to_svg(figure, "timeline", "Line chart of the ranks of columns along the rows")


def _move(ranks: Floats) -> str:
    """Return the first and the last known rank."""
    known = ranks[np.isfinite(ranks)]
    return f"{count(known[0])} → {count(known[-1])}" if known.size else ""


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
        drawing.draw_band(axes, x, low, top, "range of the true values")
        if len(s) == 1:
            drawing.draw_bars(axes, x, low, top, drawing.BAND, 6.0)
    drawing.draw_line(axes, x, s, drawing.ACCENT, label="sketch")
    highest = float(top.max())
    drawing.frame(
        axes,
        (1 - 0.02 * len(s) - 0.3, len(s) * 1.02 + 0.3),
        (floor * 0.9, 1.25 * highest) if log else (0.0, 1.05 * highest or 1.0),
        ("principal component", "singular value (unit of the data)"),
        log="y" if log else "",
        whole=True,
    )
    if shrinkage > 0:
        axes.legend(loc="upper right")
    label = f"Line chart of {len(s)} singular values, falling from {number(float(low[0]))}"
    return drawing.to_svg(figure, "spectrum", label)


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
    components = "principal component explains" if leading == 1 else f"{leading} principal components explain"
    prefix = "at least " if shrinkage > 0 else ""
    return f"{band} The first {components} {prefix}{percent(share)} of the variance."


MAX_POINTS = 6000
_MAX_NUMBERED = 30
_PATHS = 60  # clusters are drawn in turns, so that the last one does not cover the others


def draw_scatter(points: Floats, labels: Array | None, centres: Floats | None) -> str:
    """Return the SVG of at most `MAX_POINTS` points, evenly taken, with the number of each cluster at its centre."""
    keep = np.isfinite(points).all(axis=1)
    points = points[keep]
    labels = np.full(len(points), -1) if labels is None else labels[keep]
    if len(points) > MAX_POINTS:
        sampled = np.linspace(0, len(points) - 1, MAX_POINTS).round().astype(int)
        points, labels = points[sampled], labels[sampled]
    clusters = np.unique(labels[labels >= 0])

    figure, (axes,) = drawing.new_figure(360)
    size = float(np.clip(90 / np.sqrt(max(len(points), 1)), 1.7, 4.5))
    plain = drawing.ACCENT if clusters.size == 0 else drawing.OTHER
    drawing.draw_dots(axes, points[labels < 0], plain, size, 0.7)
    members = [(int(c), points[labels == c]) for c in clusters]
    turns = max(1, _PATHS // max(1, len(members)))
    for turn in range(turns):
        for cluster, rows in members:
            drawing.draw_dots(axes, rows[turn::turns], drawing.cluster_colour(cluster), size, 0.75)
    # A palette has ten colours, which not all readers can tell apart: the number identifies a cluster.
    if centres is None:
        places = [(c, np.median(rows, axis=0)) for c, rows in members]
    else:
        places = [(c, centre) for c, centre in enumerate(centres) if np.isfinite(centre).all()]
    places = places[:_MAX_NUMBERED]
    if places and clusters.size:
        spots = np.array([place for _, place in places])
        drawing.draw_dots(axes, spots, drawing.CARD, 13.0, 0.85)
        for cluster, (x, y) in places:
            axes.annotate(str(cluster), (float(x), float(y)), ha="center", va="center", fontweight="bold")
        visible = np.vstack([points, spots])
    else:
        visible = points
    limits = [drawing.widened(values, 0.05) if len(visible) else (0.0, 1.0) for values in visible.T]
    names = ("principal component 1", "principal component 2")
    drawing.frame(axes, limits[0], limits[1], names)
    groups = f"in {clusters.size} clusters" if clusters.size else "not clustered"
    return drawing.to_svg(
        figure, "scatter", f"Scatter plot of {count(len(points))} rows on two principal components, {groups}"
    )


def describe_scatter(n_points: int, n_rows: int, n_clusters: int) -> str:
    """Return the caption: the rows that are shown, and the meaning of the numbers."""
    n_drawn = min(n_points, MAX_POINTS)
    which = f"All {count(n_rows)} rows." if n_drawn >= n_rows else f"{count(n_drawn)} of the {count(n_rows)} rows."
    if n_clusters == 0:
        return which
    numbers = " A number marks the centre of the cluster with that number."
    if n_clusters > _MAX_NUMBERED:
        numbers = f" A number marks the centre of the cluster with that number, for the first {_MAX_NUMBERED} clusters."
    repeat = " Colours repeat after ten." if n_clusters > drawing.N_COLOURS else ""
    return which + numbers + repeat


_LARGEST_SIDE = 256
_LARGEST_CENTRE = 96
MAX_CENTRES = 40


@dataclass(frozen=True)
class ScoreImages:
    """Two ``data:`` images of equal shape, the range of the scores, and the factor by which the images are reduced."""

    scores: str
    mask: str
    lowest: float
    highest: float
    width: int
    height: int
    reduction: int


@dataclass(frozen=True)
class CentreImages:
    """The centres as ``data:`` images by cluster, on one scale from `lowest` to `highest`."""

    images: list[tuple[int, str]]
    lowest: float
    highest: float
    left_off: int


def draw_images(scores: Floats, support: Array, shape: Sequence[int]) -> ScoreImages:
    """Return heat map and mask; a pixel with several channels, or a block of pixels, shows its highest score."""
    height, width, channels = (*shape, 1)[:3] if len(shape) == 2 else tuple(shape)
    finite = np.where(np.isfinite(scores), scores, -np.inf)
    is_selected = np.zeros(len(scores))
    is_selected[support] = 1.0
    step = -(-max(height, width) // _LARGEST_SIDE)
    heat = _reduce(finite.reshape(height, width, channels).max(axis=2), step)
    mask = _reduce(is_selected.reshape(height, width, channels).max(axis=2), step)

    known = heat[np.isfinite(heat)]
    lowest, highest = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    two = np.array([[0, 0, 0, 0], [0x3F, 0x90, 0xDA, 255]], dtype=np.uint8)
    return ScoreImages(
        _heat_map(heat, lowest, highest),
        drawing.png(mask.astype(np.uint8), two),
        lowest,
        highest,
        heat.shape[1],
        heat.shape[0],
        step,
    )


def draw_centres(centres: Floats, weights: Floats, shape: Sequence[int]) -> CentreImages:
    """Return the images of the largest clusters' centres; channels are averaged, and blocks of large images."""
    height, width = int(shape[0]), int(shape[1])
    largest = np.argsort(-weights, kind="stable")[:MAX_CENTRES]
    clusters = np.sort(largest[weights[largest] > 0])
    step = -(-max(height, width) // _LARGEST_CENTRE)
    rows, columns = (np.arange(0, side, step) for side in (height, width))
    pixels = centres[clusters].reshape(len(clusters), height, width, -1).mean(axis=3)
    sums = np.add.reduceat(np.add.reduceat(pixels, rows, axis=1), columns, axis=2)
    means = sums / np.outer(np.diff(rows, append=height), np.diff(columns, append=width))
    known = means[np.isfinite(means)]
    lowest, highest = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    images = [(int(c), _heat_map(image, lowest, highest)) for c, image in zip(clusters, means, strict=True)]
    return CentreImages(images, lowest, highest, int((weights > 0).sum()) - len(clusters))


def _heat_map(values: Floats, lowest: float, highest: float) -> str:
    """Return values as an image of the colour map; what is not finite is transparent."""
    span = highest - lowest
    level = (np.where(np.isfinite(values), values, lowest) - lowest) / span if span > 0 else np.zeros(values.shape)
    indexes = np.where(np.isfinite(values), 1 + np.rint(254 * level), 0).astype(np.uint8)
    return drawing.png(indexes, np.vstack([np.zeros((1, 4), dtype=np.uint8), drawing.ramp(255)]))


def _reduce(image: Floats, step: int) -> Floats:
    """Return the image with each `step` x `step` block replaced by its maximum."""
    if step == 1:
        return image
    height, width = image.shape
    full = np.full((-(-height // step) * step, -(-width // step) * step), -np.inf)
    full[:height, :width] = image
    blocks = full.reshape(full.shape[0] // step, step, full.shape[1] // step, step)
    return np.asarray(blocks.max(axis=(1, 3)))


_BARS = 400  # more bars would be thinner than a pixel
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


def draw_scores(ranking: Ranking) -> str:
    """Return the SVG: all columns, and below them the neighbourhood of the cut where it would be too narrow to see."""
    n, r = ranking.n_scored, ranking.n_chosen
    zoom = max(2 * r, 20)
    panels = [n] if n <= max(2 * zoom, _ONE_PANEL) or r == 0 else [n, zoom]
    figure, axes = drawing.new_figure(270 if len(panels) == 1 else 400, [1.0] * len(panels))
    for ax, n_shown in zip(axes, panels, strict=True):
        _draw_panel(ax, ranking, n_shown)
    axes[-1].set_xlabel("rank of the column (1 = highest score)")
    if len(panels) == 2:
        axes[0].set_title("all columns", loc="left")
        axes[1].set_title(f"the first {count(zoom)}", loc="left")
    label = f"Bar chart of {count(n)} feature scores in falling order; {count(r)} selected columns are marked"
    return drawing.to_svg(figure, "scores", label)


def _draw_panel(axes: Axes, ranking: Ranking, n_shown: int) -> None:
    values, chosen = ranking.values[:n_shown], ranking.chosen[:n_shown]
    edges = np.linspace(0, n_shown, min(n_shown, _BARS) + 1).round().astype(int)
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
    drawing.draw_bars(axes, middle, floor, np.maximum(high, base) if log else high, drawing.OTHER, width)
    drawing.draw_bars(axes, middle[has], floor[has], np.maximum(selected_heights[has], base), drawing.ACCENT, width)

    top, bottom = float(values.max(initial=0.0)), float(values.min(initial=0.0))
    pad = 0.06 * (top - bottom) or 0.5
    heights = (base, 1.5 * top) if log else (bottom - pad if bottom < 0 else 0.0, top + pad)
    widths = (0.5 - 0.01 * n_shown, n_shown * 1.01 + 0.5)
    drawing.frame(axes, widths, heights, ("", "score"), log="y" if log else "", whole=True)
    r = ranking.n_chosen
    if ranking.by_score and 0 < r < n_shown:
        axes.axvline(r + 0.5, color=drawing.INK, linewidth=0.9, dashes=(3, 2))
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


def describe_scores(ranking: Ranking) -> str:
    """Return the caption: the relation of the selection to the scores, and the meaning of a bar."""
    n, r, d = ranking.n_scored, ranking.n_chosen, len(ranking.values)
    text = []
    if n and ranking.values[0] == ranking.values[n - 1] and n > 1:
        text.append("All scores are equal, so they do not rank the columns.")
    if r == d:
        text.append("Every column is selected.")
    elif ranking.by_score:
        text.append(f"The {count(r)} columns with the highest score are selected; ties go to the lowest column.")
    else:
        inside = int(ranking.chosen[:r].sum())
        text.append(
            f"The columns were chosen as a set that avoids redundancy: {count(inside)} of the {count(r)} selected are "
            f"also among the {count(r)} with the highest score."
        )
    if n > _BARS:
        text.append(
            f"Where all {count(n)} columns are shown, one bar stands for about {count(round(n / _BARS))} columns."
        )
    if n < d:
        text.append(
            "One column has no score and is left out of the figure."
            if d - n == 1
            else f"{count(d - n)} columns have no score and are left out of the figure."
        )
    return " ".join(text)
