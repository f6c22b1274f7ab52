"""First sentences of the page: the result and its guarantee, for readers without mathematics."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sketchselect.cluster import Certificate
from sketchselect.cluster.certificates.certificate import LARGE_SHARE, closer_one, shown_share, strongest
from sketchselect.report.records.record import RunRecord
from sketchselect.report.sections.model import headline_of
from sketchselect.report.text import (
    NOTE_LENGTH,
    at_least,
    at_most_percent,
    clean,
    count,
    factor,
    not_above,
    number,
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
