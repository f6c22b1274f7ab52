"""Rows of the page's tables, with every text cleaned for the template.

First sentences of the page: the result and its guarantee, for readers without mathematics.

Bar chart of the sorted column scores, with the cut and the selected columns marked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import format_seconds
from sketchselect.cluster import Certificate
from sketchselect.cluster.certificates.certificate import LARGE_SHARE, closer_one, shown_share, strongest
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.report import drawing
from sketchselect.report.model import headline_of
from sketchselect.report.records import Agreement, RunRecord
from sketchselect.report.text import (
    NOTE_LENGTH,
    at_least,
    at_most_percent,
    clean,
    count,
    factor,
    not_above,
    number,
    percent,
    probability,
)


@dataclass(frozen=True)
class Headline:
    """The statement at the top of the page, the sentences below it, and whether it proves much of the clusters."""

    statement: str
    explanation: str
    proven: bool


def summary_sentence(record: RunRecord) -> str:
    """Return the run in one sentence."""
    r, d = len(np.asarray(record.support)), record.n_columns
    prepared = f" (prepared: {clean(', '.join(record.prepare))})" if record.prepare else ""
    matrix = f"{_counted(record.n_rows, 'row')} and {_counted(d, 'column')}{prepared}"
    if record.n_dropped:
        used, dropped = count(record.n_rows - record.n_dropped), count(record.n_dropped)
        matrix += f" (of which {used} rows were used and {dropped} left out, for values that are not finite)"
    verb = "was" if r == 1 else "were"
    text = f"From a matrix of {matrix}, {_counted(r, 'column')} {verb} selected by “{clean(record.method)}”"
    if record.cluster_weights is None:
        return text + "."
    return f"{text} and used to group the rows into {_counted(len(np.asarray(record.cluster_weights)), 'cluster')}."


def headline(record: RunRecord) -> Headline:
    """Return the strongest statement about the result."""
    r, d = len(np.asarray(record.support)), record.n_columns
    best = strongest(record.certificates)
    if record.cluster_weights is None and record.model is not None:
        return Headline(*headline_of(record.model, d), False)
    if record.cluster_weights is None:
        statement = f"{_counted(r, 'column')} of {count(d)} selected"
        return Headline(statement, "The job has no clustering, so there is nothing to certify.", False)
    k = len(np.asarray(record.cluster_weights))
    if best is None:
        statement = f"{_counted(k, 'cluster')} from {count(r)} of {count(d)} columns"
        return Headline(statement, "No certificate was computed, so the best possible cost is not known.", False)
    rows = "these rows" if not record.prepare else f"these rows (prepared: {clean(', '.join(record.prepare))})"
    if not math.isfinite(best.factor):
        return Headline("No guarantee could be proven", clean(best.sentence(), NOTE_LENGTH), False)
    if best.objective == 0:
        explanation = "The rows of each cluster are identical, so no clustering can be better."
        return Headline("This clustering is the best possible", explanation, True)
    ratio = max(1.0, best.factor)
    certainty = "Proven" if best.confidence == 1 else f"With {probability(best.confidence)} confidence"
    statement = f"{certainty}: {_statement(best, ratio, k)}"
    closer = closer_one(record.certificates)
    proven = best.says_much or (closer is not None and closer.says_much)
    if closer is not None:
        statement += f"; {_statement(closer, closer.factor, k)} with {probability(closer.confidence)} confidence"
    if best.share is not None and not proven:
        statement = f"Little is proven of these clusters: {shown_share(best.share)} of the possible gain"
        if best.share >= LARGE_SHARE:
            statement += f", and labels drawn at random have {shown_share(best.chance_share or 0.0)}"
    objective = f"at most {not_above(best.objective)}" if best.is_bounded else number(best.objective)
    explanation = (
        f"Over all {count(d)} columns, no grouping of {rows} into {_counted(k, 'cluster')} has a sum of squared "
        f"distances to the cluster centres below {at_least(best.lower_bound)}. This clustering, found from {count(r)} "
        f"of the columns, has {objective}: at most {factor(ratio)} times as much."
    )
    if best.share is not None and best.scatter is not None:
        explanation += (
            f" A single cluster has {number(best.scatter)}; of what can be gained over it, at least "
            f"{shown_share(best.share)} is proven to be gained."
        )
    if closer is not None:
        explanation += (
            f" With {probability(closer.confidence)} confidence it is at most {factor(closer.factor)} times the best."
        )
    return Headline(statement, explanation, proven)


def _statement(best: Certificate, ratio: float, n_clusters: int) -> str:
    """Return what is proven: the share of the possible gain, or the factor where no share is known."""
    if best.share is not None:
        clusters = _counted(n_clusters, "cluster")
        return f"at least {shown_share(best.share)} of what {clusters} can gain over a single one"
    if ratio < 1.5:
        return f"at most {at_most_percent(ratio - 1)} worse than the best possible clustering"
    return f"at most {factor(ratio)} times the cost of the best possible clustering"


def _counted(n: int, noun: str) -> str:
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {noun}s"


_BARS = 400  # more would be thinner than a pixel
_SEPARATE_BARS = 64
_ONE_PANEL = 200
_DEPTH = 1e-12  # scores below this share of the highest lie on the bottom of a logarithmic axis
_PANEL_POINTS = 272.0  # width of a panel in points, axis labels taken off
_MANY_DECADES = 300.0


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
    chosen = np.zeros(len(scores), dtype=bool)
    chosen[support] = True
    return Ranking(order, scores[order], chosen[order], int(finite.sum()))


def draw_scores(ranking: Ranking) -> str:
    """Return the SVG: all columns, and below them the neighbourhood of the cut where it would be too narrow to see."""
    n, r = ranking.n_scored, ranking.n_chosen
    zoom = max(2 * r, 20)
    panels = [n] if n <= max(2 * zoom, _ONE_PANEL) or r == 0 else [n, zoom]
    figure, axes = drawing.new_figure(270 if len(panels) == 1 else 400, [1.0] * len(panels))
    for ax, shown in zip(axes, panels, strict=True):
        _draw_panel(ax, ranking, shown)
    axes[-1].set_xlabel("rank of the column (1 = highest score)")
    if len(panels) == 2:
        axes[0].set_title("all columns", loc="left")
        axes[1].set_title(f"the first {count(zoom)} of them", loc="left")
    label = f"Bar chart of {count(n)} feature scores in falling order; {count(r)} selected columns are marked"
    return drawing.to_svg(figure, "scores", label)


def _draw_panel(axes: Axes, ranking: Ranking, shown: int) -> None:
    values, chosen = ranking.values[:shown], ranking.chosen[:shown]
    edges = np.linspace(0, shown, min(shown, _BARS) + 1).round().astype(int)
    middle = (edges[:-1] + 1 + edges[1:]) / 2
    high = np.maximum.reduceat(values, edges[:-1])
    low = np.minimum.reduceat(values, edges[:-1])
    high = np.where(np.abs(low) > np.abs(high), low, high)
    # A bar stands for several columns where there are many; it is marked to the height of its highest selected one.
    marked = np.maximum.reduceat(np.where(chosen, values, -np.inf), edges[:-1])
    has = np.isfinite(marked)
    positive = values[values > 0]
    log = bool(positive.size > 1 and values.min() >= 0 and positive[0] > _MANY_DECADES * np.median(positive))
    base = 0.8 * max(float(positive[-1]), _DEPTH * float(positive[0])) if log else 0.0
    filled = 0.82 if len(middle) <= _SEPARATE_BARS else 1.03  # many bars touch: gaps of half a pixel only flicker
    width = min(14.0, filled * _PANEL_POINTS / len(middle))
    floor = np.full(len(middle), base)
    drawing.draw_bars(axes, middle, floor, np.maximum(high, base) if log else high, drawing.OTHER, width)
    drawing.draw_bars(axes, middle[has], floor[has], np.maximum(marked[has], base), drawing.ACCENT, width)

    top, bottom = float(values.max(initial=0.0)), float(values.min(initial=0.0))
    if log:
        axes.set_yscale("log")
        axes.set_ylim(base, 1.5 * top)
    else:
        pad = 0.06 * (top - bottom) or 0.5
        axes.set_ylim(bottom - pad if bottom < 0 else 0.0, top + pad)
    axes.set_xlim(0.5 - 0.01 * shown, shown * 1.01 + 0.5)
    r = ranking.n_chosen
    if ranking.by_score and 0 < r < shown:
        axes.axvline(r + 0.5, color=drawing.INK, linewidth=0.9, dashes=(3, 2))
        axes.annotate(
            f"cut after {count(r)}",
            (r + 0.5, 0.97),
            (4 if r < 0.6 * shown else -4, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="left" if r < 0.6 * shown else "right",
            va="top",
        )
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("score")
    drawing.plain_ticks(axes.xaxis, log=False, whole=True)
    drawing.plain_ticks(axes.yaxis, log=log, bins=5)


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
            f"Where all {count(n)} columns are shown, one bar stands for about {count(round(n / _BARS))} of them."
        )
    if n < d:
        text.append(
            "One column has no score and is left out of the figure."
            if d - n == 1
            else f"{count(d - n)} columns have no score and are left out of the figure."
        )
    return " ".join(text)


MAX_FEATURES = 250
MAX_PROFILED = 15
MAX_PROFILES = 12
MAX_CLUSTERS = 40
MAX_CLASSES = 30


@dataclass(frozen=True)
class FeatureRow:
    """A selected column; `share` is its score as per cent of the highest, for the bar behind it."""

    rank: str
    column: int
    name: str
    score: str
    weight: str
    share: float


def feature_rows(record: RunRecord, ranking: Ranking) -> list[FeatureRow]:
    """Return the selected columns by falling score, at most `MAX_FEATURES` of them."""
    names = record.feature_names
    weights = None if record.weights is None else np.asarray(record.weights, dtype=float)
    support = np.asarray(record.support)
    highest = max((abs(float(v)) for v in ranking.values[: ranking.n_scored]), default=0.0)
    rows = []
    for place in np.flatnonzero(ranking.chosen)[:MAX_FEATURES]:
        column, score = int(ranking.order[place]), float(ranking.values[place])
        scored = bool(np.isfinite(score))
        weight = "" if weights is None else number(float(weights[np.flatnonzero(support == column)[0]]))
        share = 100 * abs(score) / highest if scored and highest > 0 and not ranking.is_order else 0.0
        name = "" if names is None else clean(names[column])
        rows.append(FeatureRow(count(int(place) + 1) if scored else "–", column, name, number(score), weight, share))
    return rows


@dataclass(frozen=True)
class ClusterRow:
    """A cluster: its size, share of the rows in per cent, and share of the largest one (for the bar)."""

    cluster: str
    colour: int
    rows: str
    share: str
    bar: float


def cluster_rows(weights: np.ndarray, n_colours: int) -> tuple[list[ClusterRow], str]:
    """Return the clusters by number, at most `MAX_CLUSTERS` of them (the largest), and a remark on the others."""
    total, largest = float(weights.sum()), float(weights.max(initial=0.0))
    shown = np.sort(np.argsort(-weights, kind="stable")[:MAX_CLUSTERS])
    rows = [
        ClusterRow(
            str(int(c)),
            int(c) % n_colours,
            count(float(weights[c])),
            percent(float(weights[c]) / total) if total > 0 else "–",
            100 * float(weights[c]) / largest if largest > 0 else 0.0,
        )
        for c in shown
    ]
    empty = int((weights == 0).sum())
    n_unlisted = len(weights) - len(shown)
    remark = []
    if n_unlisted:
        n_rows = count(total - float(weights[shown].sum()))
        remark.append(f"The {count(n_unlisted)} smaller clusters, with {n_rows} rows in total, are not listed.")
    if empty:
        remark.append(f"{count(empty)} of the clusters are empty.")
    return rows, " ".join(remark)


def profile_table(record: RunRecord) -> dict[str, Any] | None:
    """Return the selected columns in which clusters differ most from all rows, and how far the largest clusters do."""
    if record.profiles is None or record.cluster_weights is None:
        return None
    away, support = np.asarray(record.profiles, dtype=float), np.asarray(record.support)
    if not away.size:
        return None
    clusters = np.sort(np.argsort(-np.asarray(record.cluster_weights, dtype=float), kind="stable")[:MAX_PROFILES])
    shown = np.argsort(-np.abs(away[clusters]).max(axis=0), kind="stable")[:MAX_PROFILED]
    names, largest = record.feature_names, max(float(np.abs(away[np.ix_(clusters, shown)]).max()), 1e-300)
    rows = [
        (
            f"column {support[j]}" if names is None else clean(names[support[j]]),
            [(f"{v:+.1f}", 100 * abs(float(v)) / largest, v < 0) for v in away[clusters, j]],
        )
        for j in shown
    ]
    left_off = len(support) - len(shown), len(away) - len(clusters)
    return {"clusters": clusters.tolist(), "rows": rows, "columns_left_off": left_off[0], "left_off": left_off[1]}


@dataclass(frozen=True)
class ContingencyTable:
    """Classes by clusters; a cell is (count, share of its class in per cent), clusters ordered along the diagonal."""

    clusters: list[int]
    rows: list[tuple[str, list[tuple[str, float]], str]]
    remark: str


def contingency(known: Agreement) -> ContingencyTable:
    """Return the heat map's cells, the largest `MAX_CLASSES` classes and clusters where there are more."""
    table = np.asarray(known.table, dtype=float)
    n_classes, n_clusters = table.shape
    shown_rows = np.sort(np.argsort(-table.sum(axis=1), kind="stable")[:MAX_CLASSES])
    shown_columns = np.sort(np.argsort(-table.sum(axis=0), kind="stable")[:MAX_CLASSES])
    part = table[np.ix_(shown_rows, shown_columns)]
    if part.size:
        # Each cluster under its most frequent class: agreement then shows as a diagonal.
        along = np.lexsort((-part.max(axis=0), part.argmax(axis=0)))
        shown_columns, part = shown_columns[along], part[:, along]
    rows = []
    for c, line in zip(shown_rows, part, strict=True):
        total = float(table[c].sum())
        cells = [(count(float(v)) if v else "", 100 * float(v) / total if total > 0 else 0.0) for v in line]
        rows.append((clean(known.classes[int(c)], 24), cells, count(total)))
    remark = ""
    if len(shown_rows) < n_classes or len(shown_columns) < n_clusters:
        remark = (
            f"Only the {MAX_CLASSES} largest of {count(n_classes)} classes and {count(n_clusters)} clusters are shown."
        )
    return ContingencyTable([int(c) for c in shown_columns], rows, remark)


@dataclass(frozen=True)
class StageRow:
    """A stage: time, bytes read, rate, and its share of the longest in per cent (for the bar)."""

    name: str
    time: str
    bytes_read: str
    rate: str
    bar: float


_STEPS = {
    "read": "reading and decoding",
    "prepare": "screening and preparing",
    "kernel": "computing",
    "merge": "merging",
    "save": "saving",
    "wait": "waiting",
}


def stage_profile(record: RunRecord) -> str:
    """Return in words how the passes of the longest stage that has some spent their time; empty if none has."""
    stages = [stage for stage in record.stages if any(stage.profile.get(step) for step in _STEPS if step != "wait")]
    if not stages:
        return ""
    stage = max(stages, key=lambda one: one.seconds)
    whole = sum(stage.profile.values())
    shares = [
        f"{words} {percent(stage.profile[step] / whole)}" for step, words in _STEPS.items() if step in stage.profile
    ]
    return f"Passes of “{clean(stage.name)}”: {', '.join(shares)}."


def stage_rows(record: RunRecord) -> list[StageRow]:
    """Return the stages in order."""
    longest = max((stage.seconds for stage in record.stages), default=0.0)
    rows = []
    for stage in record.stages:
        read = stage.bytes_read
        size = "–" if read is None else format_bytes(read)
        rate = f"{format_bytes(read / stage.seconds)}/s" if read and stage.seconds > 0 else "–"
        bar = 100 * stage.seconds / longest if longest > 0 else 0.0
        rows.append(StageRow(clean(stage.name), format_seconds(stage.seconds), size, rate, bar))
    return rows
