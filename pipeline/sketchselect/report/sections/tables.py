"""Rows of the page's tables, with every text cleaned for the template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import format_seconds
from sketchselect.report.records.record import Agreement, RunRecord
from sketchselect.report.sections.scores import Ranking
from sketchselect.report.text import clean, count, number, percent

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
