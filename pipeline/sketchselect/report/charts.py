"""Charts and images of the page, each with its caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from sketchselect._text import clean, count, counted, number
from sketchselect.linalg.validation import Array, Floats
from sketchselect.plots import charts
from sketchselect.report import drawing
from sketchselect.report.drawing import NOTE_LENGTH, as_numbers, percent

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
    word = "proved" if "largest_objective" in diagnostics else "chosen"
    mark = f"{counted(n_selected, 'column', count)}, {word} "
    charts.draw_curve(drawing.PAGE, axes, {**curve, "method": names}, (method, n_selected), mark)
    methods = set(names)
    label = f"Line chart of the inertia by columns for {len(methods)} methods"
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


_VOLCANO = (390.0, 240.0)  # Pixels inside the axes


def volcano_section(
    columns: Mapping[str, Floats], support: Array, names: Sequence[str] | None, effect: str
) -> Mapping[str, Any] | None:
    """Return the content of the page's section on tests of single columns; None where no column has a test."""
    effects, log_p = columns["effects"], columns["log_pvalues"]
    if not (np.isfinite(effects) & ~np.isnan(log_p)).any():
        return None
    figure, (axes,) = drawing.new_figure(320)
    shown = charts.draw_volcano(drawing.PAGE, axes, effects, log_p, support, names, effect, _VOLCANO)
    caption = "Each dot is a column; those selected are in colour, and some of the most significant have their name."
    if shown.has_cut:
        caption += " Columns on the dashed line and above are selected."
    if shown.n_certain:
        caption += f" {count(shown.n_certain)} with a p-value of 0 are at the upper edge."
    if shown.n_left_off:
        caption += f" {count(shown.n_left_off)} of the less significant are not drawn."
    if shown.n_untested:
        caption += f" {count(shown.n_untested)} without a test are left out."
    label = f"Volcano plot of {count(shown.n_tested)} columns: effect and significance, {count(len(support))} selected"
    return {"svg": Markup(drawing.to_svg(figure, "volcano", label)), "caption": caption}


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
        "svg": Markup(_count_figure(counts)),
        "caption": (
            "All measures are of the selected columns. Above: the inertia (k-means objective) of the best clustering "
            "over all rows, and the lower bound for any clustering into that many clusters, as shares of the highest "
            f"inertia shown. Below: the stability of clusterings from {count(counts['n_seeds'])} seeds (mean ARI on "
            f"{count(counts['n_sampled'])} rows; 1 is complete agreement), and the silhouette of squared distances "
            "over all rows (1: clusters are far apart)."
            + ("" if recommended is None else " The dashed line marks the recommended number.")
            + f" This run used {count(used)}."
        ),
        "rows": rows,
    }


def _count_figure(counts: Mapping[str, Any]) -> str:
    figure, panels = drawing.new_figure(360, (1.6, 1.0))
    charts.draw_counts(drawing.PAGE, panels, counts)
    n = len(counts["n_clusters"])
    return drawing.to_svg(
        figure, "cluster-count", f"Line charts of inertia, stability and silhouette for {n} numbers of clusters"
    )


def draw_drift(names: Sequence[str], days: Sequence[Mapping[str, Any]]) -> str:
    """Return the SVG: the share of each day with its interval, its threshold, and a dot where there is an alarm."""
    columns = ("share", "low", "high", "threshold")
    share, low, high, threshold = (as_numbers([day[name] for day in days]) for name in columns)
    alarm = np.array([bool(day["exceeded"]) for day in days])
    x = np.arange(1.0, len(days) + 1)
    figure, (axes,) = drawing.new_figure(300)
    drawing.PAGE.bars(axes, x, low, high, drawing.BAND, min(8.0, 200 / len(x)))
    axes.plot(x, threshold, color=drawing.INK, linewidth=0.9, dashes=(3, 2), label="threshold")
    drawing.PAGE.line(axes, x, share, drawing.ACCENT, label="share outside the base's principal components")
    drawing.PAGE.dots(axes, np.column_stack([x, share])[alarm], drawing.PAGE.colour(2), 5.0)
    limits = charts.widened(np.concatenate([low, high, threshold]), 0.06)
    drawing.PAGE.frame(axes, charts.widened(x, 0.03), limits, ("day", "share of the variance"), whole="x")
    if len(names) <= _NAMED_DAYS:
        axes.set_xticks(x, names, rotation=30, ha="right")
        axes.set_xlabel("")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)  # above the axes: an alarm may be anywhere
    label = f"Line chart of drift on {count(len(x))} days, {count(int(alarm.sum()))} of them with an alarm"
    return drawing.to_svg(figure, "drift", label)


def timeline_section(timeline: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of the page's section on the timeline."""
    ranks = as_numbers(timeline["ranks"]).reshape(len(timeline["rows"]), -1)[:, : drawing.N_COLOURS]
    moves = [(j, clean(name), _move(ranks[:, j])) for j, name in enumerate(timeline["names"][: drawing.N_COLOURS])]
    return {
        "sentence": _describe_timeline(timeline),
        "svg": Markup(_timeline_figure(timeline)) if moves else None,
        "risen": moves[: timeline["n_risen"]],
        "fallen": moves[timeline["n_risen"] :],
        "caption": (
            "Rank 1 is the highest score. Where the method takes the highest scores, the columns above the dashed line "
            "are selected. Drawn are at most five columns that rose and five that fell, those that moved most from the "
            "first point to the last, in halvings and doublings of the rank; those of the same rank at both are not."
        ),
    }


def _describe_timeline(timeline: Mapping[str, Any]) -> str:
    points, window, half_life = len(timeline["rows"]), timeline.get("window"), timeline.get("half_life")
    period = timeline.get("period")
    text = f"The selection was repeated at {count(points)} point{'s' if points != 1 else ''} along the rows"
    if period is not None:
        last = f"{period}" if window == 1 else f"{period} and the {count((window or 2) - 1)} with rows before it"
        text += f", each the end of a {period}, from "
        text += "all rows up to then" if window is None else f"the rows of that {last}"
    elif window is not None:
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


def _timeline_figure(timeline: Mapping[str, Any]) -> str:
    figure, (axes,) = drawing.new_figure(300)
    charts.draw_timeline(drawing.PAGE, axes, timeline)
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
        drawing.PAGE.between(axes, x, low, top, "range of the true values")
        if len(s) == 1:
            drawing.PAGE.bars(axes, x, low, top, drawing.BAND, 6.0)
    drawing.PAGE.line(axes, x, s, drawing.ACCENT, label="sketch")
    highest = float(top.max())
    drawing.PAGE.frame(
        axes,
        (1 - 0.02 * len(s) - 0.3, len(s) * 1.02 + 0.3),
        (floor * 0.9, 1.25 * highest) if log else (0.0, 1.05 * highest or 1.0),
        ("principal component", "singular value (unit of the data)"),
        log="y" if log else "",
        whole="x",
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


def scatter_figure(points: Floats, labels: Array | None, centres: Floats | None) -> str:
    """Return the SVG of rows on two principal components, in the colours of their clusters."""
    figure, (axes,) = drawing.new_figure(360)
    n_points, n_clusters = charts.draw_scatter(drawing.PAGE, axes, points, labels, centres)
    groups = f"in {n_clusters} clusters" if n_clusters else "not clustered"
    label = f"Scatter plot of {count(n_points)} rows on two principal components, {groups}"
    return drawing.to_svg(figure, "scatter", label)


def describe_scatter(n_points: int, n_rows: int, n_clusters: int) -> str:
    """Return the caption: the rows that are shown, and the meaning of the numbers."""
    n_drawn = min(n_points, charts.MAX_POINTS)
    which = f"All {count(n_rows)} rows." if n_drawn >= n_rows else f"{count(n_drawn)} of the {count(n_rows)} rows."
    if n_clusters == 0:
        return which
    numbers = " A number marks the centre of the cluster with that number."
    if n_clusters > charts.MAX_NUMBERED:
        numbers = (
            f" A number marks the centre of the cluster with that number, for the first {charts.MAX_NUMBERED} clusters."
        )
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


def score_figure(ranking: charts.Ranking) -> str:
    """Return the SVG: all columns, and below them the neighbourhood of the cut where it would be too narrow to see."""
    n, r, panels = ranking.n_scored, ranking.n_chosen, charts.panels_of(ranking)
    figure, axes = drawing.new_figure(270 if len(panels) == 1 else 400, [1.0] * len(panels))
    for ax, n_shown in zip(axes, panels, strict=True):
        charts.draw_scores(drawing.PAGE, ax, ranking, n_shown)
    axes[-1].set_xlabel("rank of the column (1 = highest score)")
    if len(panels) == 2:
        axes[0].set_title("all columns", loc="left")
        axes[1].set_title(f"the first {count(panels[1])}", loc="left")
    label = f"Bar chart of {count(n)} feature scores in falling order; {count(r)} selected columns are marked"
    return drawing.to_svg(figure, "scores", label)


def describe_scores(ranking: charts.Ranking) -> str:
    """Return the caption: the relation of the selection to the scores, and the meaning of a bar."""
    n, r, d = ranking.n_scored, ranking.n_chosen, len(ranking.values)
    text = []
    if n and ranking.values[0] == ranking.values[n - 1] and n > 1:
        text.append("All scores are equal, so they do not rank the columns.")
    if r == d:
        text.append("Every column is selected.")
    elif r == 0:
        text.append("No column is selected.")
    elif ranking.by_score:
        text.append(f"The {count(r)} columns with the highest score are selected; ties go to the lowest column.")
    else:
        inside = int(ranking.chosen[:r].sum())
        text.append(
            f"The method does not choose by the score alone: {count(inside)} of the {count(r)} selected columns are "
            f"also among the {count(r)} with the highest score."
        )
    if n > charts.MAX_BARS:
        a_bar = count(round(n / charts.MAX_BARS))
        text.append(f"Where all {count(n)} columns are shown, one bar stands for about {a_bar} columns.")
    if n < d:
        text.append(
            "One column has no score and is left out of the figure."
            if d - n == 1
            else f"{count(d - n)} columns have no score and are left out of the figure."
        )
    return " ".join(text)
