"""Line chart of the objective in all columns against the number of selected columns.

Line charts of objective, lower bound and stability against the number of clusters.

Line chart of the ranks of the columns that rose and fell the most, along the rows.

Line chart of the singular values of the sketch, with the band that contains the true ones.

Scatter plot of a sample of the rows on the two strongest directions, coloured by cluster.

Images of the columns as pixels: the score of each pixel, the selected pixels, and the centres of the clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.report import drawing
from sketchselect.report.records import ClusterCountRecord, TimelineRecord
from sketchselect.report.text import NOTE_LENGTH, as_numbers, clean, count, number, percent

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


_DOTS_UNTIL = 60


def cluster_count_section(record: ClusterCountRecord) -> Mapping[str, Any]:
    """Return the content of the page's section on the number of clusters."""
    return {
        "sentence": clean(record.sentence, NOTE_LENGTH),
        "svg": Markup(_n_clusters_draw(record)),
        "caption": (
            "Above: the objective of the best clustering over all rows, and the lower bound for any clustering into "
            "that many clusters, as shares of the highest objective shown. Below: the agreement of clusterings from "
            f"{count(record.n_seeds)} seeds (mean adjusted Rand index on {count(record.n_sampled)} rows); 1 is "
            "complete agreement."
            + ("" if record.recommended is None else " The dotted line marks the recommended number.")
            + ("" if record.used is None else f" This run used {count(record.used)}.")
        ),
    }


def _n_clusters_draw(record: ClusterCountRecord) -> str:
    ks, objective, bound = (as_numbers(a) for a in (record.n_clusters, record.objectives, record.lower_bounds))
    stable = as_numbers(record.stability)
    figure, (above, below) = drawing.new_figure(360, (1.6, 1.0))
    top = float(np.nanmax(objective, initial=0.0))
    scale = top if np.isfinite(top) and top > 0 else 1.0
    _line(above, ks, objective / scale, drawing.ACCENT, "best clustering")
    _line(above, ks, bound / scale, drawing.MUTED, "lower bound")
    above.set_ylim(0, 1.08)
    above.set_ylabel("objective")
    above.legend(loc="upper right")
    _line(below, ks, stable, drawing.ACCENT, "agreement")
    below.set_ylim(min(0.0, float(np.nanmin(stable, initial=0.0))), 1.08)
    below.set_ylabel("agreement")
    below.set_xlabel("number of clusters")
    margin = 0.03 * float(ks.max() - ks.min()) or 0.5
    for axes in (above, below):
        axes.set_xlim(float(ks.min()) - margin, float(ks.max()) + margin)
        drawing.plain_ticks(axes.xaxis, log=False, whole=True, bins=10)
        drawing.plain_ticks(axes.yaxis, log=False)
        if record.recommended is not None:
            axes.axvline(record.recommended, color=drawing.INK, linewidth=0.9, dashes=(1, 2))
    return drawing.to_svg(
        figure, "cluster-count", f"Line charts of objective and agreement for {len(ks)} numbers of clusters"
    )


def _line(axes: Any, x: Floats, y: Floats, colour: str, label: str) -> None:
    axes.plot(x, y, color=colour, linewidth=1.2, label=label)
    if len(x) <= _DOTS_UNTIL:
        drawing.draw_dots(axes, np.column_stack([x, y])[np.isfinite(y)], colour, 3.2)


TIMELINE_DOTS_UNTIL = 40


def timeline_section(record: TimelineRecord) -> Mapping[str, Any]:
    """Return the content of the page's section on the timeline."""
    ranks = as_numbers(record.ranks).reshape(len(np.asarray(record.rows)), -1)[:, : drawing.N_COLOURS]
    moves = [(j, clean(name), _move(ranks[:, j])) for j, name in enumerate(record.names[: drawing.N_COLOURS])]
    return {
        "sentence": _sentence(record),
        "svg": Markup(_timeline_draw(record, ranks)) if moves else None,
        "risen": moves[: record.n_risen],
        "fallen": moves[record.n_risen :],
        "caption": _caption(record),
    }


def _sentence(record: TimelineRecord) -> str:
    points = len(np.asarray(record.rows))
    text = f"The selection was repeated at {count(points)} point{'s' if points != 1 else ''} along the rows"
    if record.window is not None:
        text += f", each time from the last {count(record.window)} rows (rounded up to whole partitions)"
    else:
        text += ", each time from all rows up to that point"
    if record.half_life is not None:
        text += f", where the weight of a row halves every {count(record.half_life)} rows"
    always, ever = record.n_always, record.n_ever
    return (
        f"{text}. {count(ever)} column{'s were' if ever != 1 else ' was'} selected at some point, "
        f"{count(always)} of them at every point."
    )


def _caption(record: TimelineRecord) -> str:
    return (
        "Rank 1 is the highest score. Where the method takes the highest scores, the columns above the dashed line are "
        "selected. Rises and falls are from the first point to the last, in halvings and doublings of the rank."
    )


def _timeline_draw(record: TimelineRecord, ranks: Floats) -> str:
    rows = as_numbers(record.rows)
    chosen = as_numbers(record.n_selected)
    figure, (axes,) = drawing.new_figure(300)
    axes.set_yscale("log")
    lowest = float(np.nanmax(ranks)) if np.isfinite(ranks).any() else 1.0
    axes.set_ylim(1.35 * max(lowest, float(chosen.max())), 0.75)
    left, right = float(rows.min()), float(rows.max())
    margin = 0.03 * (right - left) or 0.5
    axes.set_xlim(left - margin, right + margin)
    axes.plot(rows, np.maximum(chosen, 0.5) + 0.5, color=drawing.INK, linewidth=0.9, dashes=(3, 2))
    for j in range(ranks.shape[1] - 1, -1, -1):  # what moved most lies on top
        colour = drawing.cluster_colour(j)
        axes.plot(
            rows, ranks[:, j], color=colour, linewidth=1.4, linestyle="-" if j < record.n_risen else (0, (5, 1.5))
        )
        known = np.isfinite(ranks[:, j])
        if len(rows) <= TIMELINE_DOTS_UNTIL:
            drawing.draw_dots(axes, np.column_stack([rows, ranks[:, j]])[known], colour, 3.0)
    axes.set_xlabel("rows so far" if record.window is None else "last row of the window")
    axes.set_ylabel("rank of the column")
    drawing.plain_ticks(axes.xaxis, log=False, whole=True)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if lowest < 200 else (1.0,), numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: count(float(value))))
    return drawing.to_svg(figure, "timeline", "Line chart of the ranks of columns along the rows")


def _move(ranks: Floats) -> str:
    """Return the first and the last known rank."""
    known = ranks[np.isfinite(ranks)]
    return f"{count(known[0])} → {count(known[-1])}" if known.size else ""


SPECTRUM_DOTS_UNTIL = 80
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
    if len(s) <= SPECTRUM_DOTS_UNTIL:
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


MAX_POINTS = 6000
_MAX_NUMBERED = 30
_PATHS = 60  # clusters are drawn in turns, so that the last one does not cover the others


def draw_scatter(points: Floats, labels: Array | None, centres: Floats | None) -> str:
    """Return the SVG of at most `MAX_POINTS` points, evenly taken, with the number of each cluster at its centre."""
    keep = np.isfinite(points).all(axis=1)
    points = points[keep]
    labels = np.full(len(points), -1) if labels is None else labels[keep]
    if len(points) > MAX_POINTS:
        chosen = np.linspace(0, len(points) - 1, MAX_POINTS).round().astype(int)
        points, labels = points[chosen], labels[chosen]
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
    # A palette has ten colours, and not everybody sees them all: the number is what identifies a cluster.
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
        shown = np.vstack([points, spots])
    else:
        shown = points
    _limits(axes, shown)
    axes.set_xlabel("direction 1 (unit of the data)")
    axes.set_ylabel("direction 2 (unit of the data)")
    drawing.plain_ticks(axes.xaxis, log=False)
    drawing.plain_ticks(axes.yaxis, log=False)
    groups = f"in {clusters.size} clusters" if clusters.size else "not clustered"
    return drawing.to_svg(figure, "scatter", f"Scatter plot of {count(len(points))} rows on two directions, {groups}")


def _limits(axes: Axes, shown: Floats) -> None:
    low, high = (shown.min(axis=0), shown.max(axis=0)) if len(shown) else (np.zeros(2), np.ones(2))
    pad = 0.05 * (high - low)
    pad[pad == 0] = 0.5
    axes.set_xlim(float(low[0] - pad[0]), float(high[0] + pad[0]))
    axes.set_ylim(float(low[1] - pad[1]), float(high[1] + pad[1]))


def describe_scatter(n_points: int, n_rows: int, n_clusters: int) -> str:
    """Return the caption: the rows that are shown, and the meaning of the numbers."""
    drawn = min(n_points, MAX_POINTS)
    which = f"All {count(n_rows)} rows." if drawn >= n_rows else f"{count(drawn)} of the {count(n_rows)} rows."
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
    chosen = np.zeros(len(scores))
    chosen[support] = 1.0
    step = -(-max(height, width) // _LARGEST_SIDE)
    heat = _reduce(finite.reshape(height, width, channels).max(axis=2), step)
    mask = _reduce(chosen.reshape(height, width, channels).max(axis=2), step)

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
    shown = np.sort(largest[weights[largest] > 0])
    step = -(-max(height, width) // _LARGEST_CENTRE)
    rows, columns = (np.arange(0, side, step) for side in (height, width))
    pixels = centres[shown].reshape(len(shown), height, width, -1).mean(axis=3)
    sums = np.add.reduceat(np.add.reduceat(pixels, rows, axis=1), columns, axis=2)
    means = sums / np.outer(np.diff(rows, append=height), np.diff(columns, append=width))
    known = means[np.isfinite(means)]
    lowest, highest = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    images = [(int(c), _heat_map(image, lowest, highest)) for c, image in zip(shown, means, strict=True)]
    return CentreImages(images, lowest, highest, int((weights > 0).sum()) - len(shown))


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
