"""Content of the report page: manifest, selection and figures of a run, as sentences and rows of tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import clean, count, counted, format_seconds, from_logarithm, number
from sketchselect.cluster import Certificate
from sketchselect.cluster.certificates.certificate import LARGE_SHARE, closer_one, shown_share, strongest
from sketchselect.errors import BadParameter
from sketchselect.linalg.kmeans.sample import lift_of
from sketchselect.linalg.validation import Floats
from sketchselect.plots.charts import Ranking
from sketchselect.report.charts import COUNT_MEASURES
from sketchselect.report.drawing import (
    NOTE_LENGTH,
    as_numbers,
    at_least,
    at_most_percent,
    factor,
    not_above,
    percent,
    probability,
)
from sketchselect.report.model import headline_of


class RunContent:
    """A run to draw, from the content of three files in its folder; see `sketchselect.report.page.render`.

    Raises `BadParameter` if they contradict each other.
    """

    def __init__(self, manifest: Mapping[str, Any], selection: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
        self.manifest, self.figures = manifest, figures
        self.n_rows: int = manifest["source"]["shape"][0]
        self.n_columns: int = manifest["prepared_columns"]
        self.n_dropped: int = figures.get("n_dropped", 0)
        self.prepare: Sequence[str] = figures.get("prepare", ())
        self.method: str = selection["method"]
        self.scores = as_numbers(selection["scores"])
        self.support = np.asarray(selection["support"], dtype=np.int64)
        self.names: Sequence[str] | None = selection.get("feature_names")
        self.weights = _numbers(selection.get("weights"))
        self.columns = {name: as_numbers(values) for name, values in selection.get("columns", {}).items()}
        self.diagnostics: Mapping[str, Any] = manifest["selection"].get("diagnostics", {})
        self.sizes = _numbers(manifest["clustering"]["cluster_sizes"] if "clustering" in manifest else None)
        self.certificates = [Certificate.from_dict(entry) for entry in manifest.get("certificates", ())]
        self.image_shape: Sequence[int] | None = manifest["job"]["output"].get("image_shape")
        self.stages: Sequence[Mapping[str, Any]] = manifest["stages"]
        self.seconds: float = manifest["seconds"]
        self.profiles, self.centres = _numbers(figures.get("profiles")), _numbers(figures.get("centres"))
        self.points, self.point_labels = _numbers(figures.get("points")), figures.get("point_labels")
        self.model: Mapping[str, Any] | None = figures.get("model")
        self._check()

    def _check(self) -> None:
        d, support, figures = self.n_columns, self.support, self.figures
        require_shape("scores", self.scores, (d,))
        if support.ndim != 1 or (support.size and not (support.min() >= 0 and support.max() < d)):
            raise BadParameter(f"report: support must be a list of columns in 0..{d - 1}, got shape {support.shape}")
        require_shape("feature_names", self.names, (d,))
        require_shape("weights", self.weights, (support.size,))
        for name, values in self.columns.items():
            require_shape(name, values, (d,))
        if self.sizes is not None:
            require_shape("profiles", self.profiles, (self.sizes.size, support.size))
            require_shape("centres", self.centres, (self.sizes.size, d))
        if self.points is not None and len(self.points):
            require_shape("points", self.points, (len(self.points), 2))
            require_shape("point_labels", self.point_labels, (len(self.points),))
        shape = self.image_shape
        if shape is not None and (len(shape) not in (2, 3) or int(np.prod(shape)) != d):
            raise BadParameter(f"report: image_shape {tuple(shape)} does not hold {d} columns")
        if (known := figures.get("known_labels")) is not None:
            rows = np.shape(known["table"])
            if len(rows) != 2 or rows[0] != len(known["classes"]):
                raise BadParameter(f"report: known_labels.table has shape {rows} for {len(known['classes'])} classes")
        for name, check in (("model", _check_model), ("timeline", check_timeline), ("cluster_count", _check_counts)):
            if figures.get(name) is not None:
                check(figures[name])


def require_shape(name: str, values: Any, expected: tuple[int, ...]) -> None:
    """Raise `BadParameter` unless values, if given, have this shape."""
    shape = np.shape(values)
    # An empty table read back from a file has lost its width.
    if values is not None and shape != expected and (math.prod(shape) or math.prod(expected)):
        raise BadParameter(f"report: {name} has shape {shape}, expected {expected}")


def _check_model(model: Mapping[str, Any]) -> None:
    m, n, q = len(model["values"]), len(model["terms"]), len(model["outputs"])
    if not 0 <= model["chosen"] < m:
        raise BadParameter(f"report: model.chosen is {model['chosen']}, the path has {m} models")
    require_shape("model.strengths", model["strengths"], (n,))
    require_shape("model.intercepts", model["intercepts"], (q,))
    require_shape("model.coefficients", model["coefficients"], (n, q))
    if len(model["path_terms"]):
        require_shape("model.path_lines", model["path_lines"], (m, len(model["path_terms"])))
    curves = {name: model[name] for name in ("sizes", "cv_mean", "cv_error")} | dict(model["criteria"])
    for name, values in curves.items():
        require_shape(f"model.{name}", values, (m,))


def check_timeline(timeline: Mapping[str, Any]) -> None:
    """Raise `BadParameter` if parts of a timeline contradict each other."""
    t, m = len(timeline["rows"]), len(timeline["names"])
    if t == 0:
        raise BadParameter("report: timeline has no points")
    require_shape("timeline.n_selected", timeline["n_selected"], (t,))
    require_shape("timeline.ranks", timeline["ranks"], (t, m))
    if not 0 <= timeline["n_risen"] <= m:
        raise BadParameter(f"report: timeline.n_risen is {timeline['n_risen']} of {m} columns shown")


def _check_counts(counts: Mapping[str, Any]) -> None:
    lengths = {len(counts[name]) for name in COUNT_MEASURES}
    if len(lengths) != 1 or 0 in lengths:
        raise BadParameter(f"report: columns of the range of clusters have lengths {sorted(lengths)}")


def _numbers(values: Any) -> Floats | None:
    return None if values is None else as_numbers(values)


@dataclass(frozen=True)
class Headline:
    """The statement at the top of the page, the sentences below it, and whether it proves much of the clusters."""

    statement: str
    explanation: str
    proven: bool


def summary_sentence(run: RunContent) -> str:
    """Return the run in one sentence."""
    r, d = run.support.size, run.n_columns
    prepared = f" (prepared: {clean(', '.join(run.prepare))})" if run.prepare else ""
    matrix = f"{counted(run.n_rows, 'row', count)} and {counted(d, 'column', count)}{prepared}"
    if run.n_dropped:
        n_used, n_dropped = count(run.n_rows - run.n_dropped), count(run.n_dropped)
        matrix += f" (of which {n_used} rows were used and {n_dropped} left out, for values that are not finite)"
    verb = "was" if r == 1 else "were"
    text = f"From a matrix of {matrix}, {counted(r, 'column', count)} {verb} selected by “{clean(run.method)}”"
    if run.sizes is None:
        return text + "."
    return f"{text} and used to group the rows into {counted(run.sizes.size, 'cluster', count)}."


def headline(run: RunContent) -> Headline:
    """Return the strongest statement about the result."""
    r, d = run.support.size, run.n_columns
    best = strongest(run.certificates)
    if run.sizes is None and run.model is not None:
        return Headline(*headline_of(run.model, d), False)
    if run.sizes is None:
        statement = f"{counted(r, 'column', count)} of {count(d)} selected"
        return Headline(statement, "The job has no clustering, so there is nothing to certify.", False)
    k = run.sizes.size
    if best is None:
        statement = f"{counted(k, 'cluster', count)} from {count(r)} of {count(d)} columns"
        return Headline(statement, "No certificate was computed, so the best possible cost is not known.", False)
    rows = "these rows" if not run.prepare else f"these rows (prepared: {clean(', '.join(run.prepare))})"
    if not math.isfinite(best.factor):
        return Headline("No guarantee could be proven", clean(best.sentence(), NOTE_LENGTH), False)
    if best.objective == 0:
        explanation = "The rows of each cluster are identical, so no clustering can be better."
        return Headline("This clustering is the best possible", explanation, True)
    ratio = max(1.0, best.factor)
    certainty = "Proven" if best.confidence == 1 else f"With {probability(best.confidence)} confidence"
    statement = f"{certainty}: {_statement(best, ratio, k)}"
    closer = closer_one(run.certificates)
    proven = best.says_much or (closer is not None and closer.says_much)
    if closer is not None:
        statement += f"; {_statement(closer, closer.factor, k)} with {probability(closer.confidence)} confidence"
    if best.share is not None and not proven:
        statement = f"Little is proven of these clusters: {shown_share(best.share)} of the possible gain"
        if best.share >= LARGE_SHARE:
            statement += f", and labels drawn at random have {shown_share(best.chance_share or 0.0)}"
    objective = f"at most {not_above(best.objective)}" if best.is_bounded else number(best.objective)
    explanation = (
        f"Over all {count(d)} columns, no grouping of {rows} into {counted(k, 'cluster', count)} has an inertia (sum "
        f"of squared distances to the cluster centres) below {at_least(best.lower_bound)}. This clustering, found from "
        f"{count(r)} of the columns, has {objective}: at most {factor(ratio)} times as much."
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
    """Return the proven share of the possible gain, or the factor if no share is known."""
    if best.share is not None:
        clusters = counted(n_clusters, "cluster", count)
        return f"at least {shown_share(best.share)} of what {clusters} can gain over a single one"
    if ratio < 1.5:
        return f"at most {at_most_percent(ratio - 1)} worse than the best possible clustering"
    return f"at most {factor(ratio)} times the cost of the best possible clustering"


MAX_FEATURES = 250
MAX_PROFILED = 15
MAX_PROFILES = 12
MAX_CLUSTERS = 40
MAX_TOP = 4
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
    tests: tuple[str, ...] = ()


SMALLEST = 1e-307
"""A number above those that a float rounds to 0."""
TESTS = ("effect", "95 % interval", "p", "adjusted p")
"""Titles of `FeatureRow.tests`."""


def has_tests(run: RunContent) -> bool:
    """Whether the selection is by tests of single columns."""
    return {"effects", "log_pvalues", "qvalues", "confint_low", "confint_high"} <= run.columns.keys()


def _tests_of(run: RunContent, column: int) -> tuple[str, ...]:
    """Return the effect of a column, its interval, p-value and adjusted p-value."""
    values = {name: float(numbers[column]) for name, numbers in run.columns.items()}
    interval = f"{number(values['confint_low'], 3)} to {number(values['confint_high'], 3)}"
    p, q = from_logarithm(values["log_pvalues"], 2), values["qvalues"]
    return number(values["effects"], 3), interval, p, number(q, 2) if q else f"below {number(SMALLEST, 1)}"


def feature_rows(run: RunContent, ranking: Ranking) -> list[FeatureRow]:
    """Return the selected columns by falling score, at most `MAX_FEATURES`."""
    names = run.names
    weights, support = run.weights, run.support
    highest = max((abs(float(v)) for v in ranking.values[: ranking.n_scored]), default=0.0)
    rows = []
    for position in np.flatnonzero(ranking.chosen)[:MAX_FEATURES]:
        column, score = int(ranking.order[position]), float(ranking.values[position])
        has_score = bool(np.isfinite(score))
        weight = "" if weights is None else number(float(weights[np.flatnonzero(support == column)[0]]))
        share = 100 * abs(score) / highest if has_score and highest > 0 and not ranking.is_order else 0.0
        name = "" if names is None else clean(names[column])
        place, tests = count(int(position) + 1) if has_score else "–", _tests_of(run, column) if has_tests(run) else ()
        rows.append(FeatureRow(place, column, name, number(score), weight, share, tests))
    return rows


@dataclass(frozen=True)
class ClusterRow:
    """A cluster: its size, share of the rows in per cent, and share of the largest one (for the bar)."""

    cluster: str
    colour: int
    rows: str
    share: str
    bar: float
    top: str = ""  # Columns that are highest in it


def cluster_rows(run: RunContent, weights: np.ndarray, n_colours: int) -> tuple[list[ClusterRow], str]:
    """Return the clusters by number, the largest `MAX_CLUSTERS` if there are more, and a remark on the others."""
    total, largest = float(weights.sum()), float(weights.max(initial=0.0))
    clusters = np.sort(np.argsort(-weights, kind="stable")[:MAX_CLUSTERS])
    tops = top_columns(run)
    rows = [
        ClusterRow(
            str(int(c)),
            int(c) % n_colours,
            count(float(weights[c])),
            percent(float(weights[c]) / total) if total > 0 else "–",
            100 * float(weights[c]) / largest if largest > 0 else 0.0,
            tops[int(c)] if tops else "",
        )
        for c in clusters
    ]
    empty = int((weights == 0).sum())
    n_unlisted = len(weights) - len(clusters)
    remark = []
    if n_unlisted:
        n_rows = count(total - float(weights[clusters].sum()))
        remark.append(f"The {count(n_unlisted)} smaller clusters, with {n_rows} rows in total, are not listed.")
    if empty:
        remark.append(f"{count(empty)} of the clusters are empty.")
    return rows, " ".join(remark)


HIGH = 0.5
"""Standard deviations above the mean of all rows from which a column is high in a cluster."""


def top_columns(run: RunContent) -> list[str]:
    """Return for each cluster the `MAX_TOP` high selected columns of largest chi-square, with their lift.

    Lift, the mean in the cluster over that of all rows, needs values that are not negative; of others, the columns that
    are most standard deviations above the mean.
    """
    away, centres, sizes, support = run.profiles, run.centres, run.sizes, run.support
    if away is None or centres is None or sizes is None or not away.size:
        return []
    means = centres[:, support]
    of_means = lift_of(means, sizes)
    has_lift, (lift, score) = of_means is not None, of_means or (away, away)
    texts = []
    for cluster in range(len(away)):
        high = [j for j in np.argsort(-score[cluster], kind="stable") if away[cluster, j] >= HIGH][:MAX_TOP]
        marks = (f"{lift[cluster, j]:.1f} ×" if has_lift else f"{away[cluster, j]:+.1f} sd" for j in high)
        texts.append(", ".join(f"{_column_name(run, j)} ({mark})" for j, mark in zip(high, marks, strict=True)) or "–")
    return texts


def _column_name(run: RunContent, position: int) -> str:
    """Return the name of a selected column."""
    column = int(run.support[position])
    return f"column {column}" if run.names is None else clean(run.names[column])


def profile_table(run: RunContent) -> dict[str, Any] | None:
    """Return the selected columns in which each cluster differs most from all rows, and those differences.

    The columns are the first of each cluster, the second of each, and so on; those of a cluster stand together.
    """
    if run.profiles is None or run.sizes is None:
        return None
    away, support = run.profiles, run.support
    if not away.size:
        return None
    clusters = np.sort(np.argsort(-run.sizes, kind="stable")[:MAX_PROFILES])
    differences = np.abs(away[clusters])
    places = np.argsort(np.argsort(-differences, axis=1, kind="stable"), axis=1)  # of each column in each cluster
    best = places.min(axis=0)
    columns = np.lexsort((-differences.max(axis=0), best))[:MAX_PROFILED]
    columns = columns[np.lexsort((best[columns], places[:, columns].argmin(axis=0)))]
    largest = max(float(np.abs(away[np.ix_(clusters, columns)]).max()), 1e-300)
    rows = [
        (_column_name(run, int(j)), [(f"{v:+.1f}", 100 * abs(float(v)) / largest, v < 0) for v in away[clusters, j]])
        for j in columns
    ]
    left_off = len(support) - len(columns), len(away) - len(clusters)
    return {"clusters": clusters.tolist(), "rows": rows, "columns_left_off": left_off[0], "left_off": left_off[1]}


@dataclass(frozen=True)
class ContingencyTable:
    """Classes by clusters; a cell is (count, share of its class in per cent), clusters ordered along the diagonal."""

    clusters: list[int]
    rows: list[tuple[str, list[tuple[str, float]], str]]
    remark: str


def contingency(table: Floats, classes: Sequence[str]) -> ContingencyTable:
    """Return the heat map's cells, of at most the `MAX_CLASSES` largest classes and clusters."""
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
        rows.append((clean(classes[int(c)], 24), cells, count(total)))
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


def stage_profile(stages: Sequence[Mapping[str, Any]]) -> str:
    """Return in words how the passes of the longest stage with passes spent their time; empty if none has any."""
    profiled = [
        stage for stage in stages if any(stage.get("profile", {}).get(step) for step in _STEPS.keys() - {"wait"})
    ]
    if not profiled:
        return ""
    stage = max(profiled, key=lambda entry: entry["seconds"])
    profile = stage["profile"]
    total = sum(profile.values())
    shares = [f"{words} {percent(profile[step] / total)}" for step, words in _STEPS.items() if step in profile]
    return f"Passes of “{clean(stage['name'])}”: {', '.join(shares)}."


def stage_rows(stages: Sequence[Mapping[str, Any]]) -> list[StageRow]:
    """Return the stages in order, each once; those of several rounds with their number and sums."""
    rounds: dict[str, list[Mapping[str, Any]]] = {}
    for stage in stages:
        rounds.setdefault(stage["name"], []).append(stage)
    sums = [
        (
            f"{name} ({len(several)} times)" if len(several) > 1 else name,
            sum(stage.get("bytes_read") or 0 for stage in several)
            if any(stage.get("bytes_read") is not None for stage in several)
            else None,
            sum(stage["seconds"] for stage in several),
        )
        for name, several in rounds.items()
    ]
    longest = max((seconds for *_, seconds in sums), default=0.0)
    rows = []
    for name, bytes_read, seconds in sums:
        size = "–" if bytes_read is None else format_bytes(bytes_read)
        rate = f"{format_bytes(bytes_read / seconds)}/s" if bytes_read and seconds > 0 else "–"
        bar = 100 * seconds / longest if longest > 0 else 0.0
        rows.append(StageRow(clean(name), format_seconds(seconds), size, rate, bar))
    return rows
