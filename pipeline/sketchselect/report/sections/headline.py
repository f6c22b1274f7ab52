"""The page's first sentences: what was done, and how good it provably is, for a reader who knows no mathematics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sketchselect.report.records.record import CertificateRecord, RunRecord
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
    """The hero statement, the sentences below it, and whether it is a guarantee."""

    statement: str
    explanation: str
    proven: bool


def summary_sentence(record: RunRecord) -> str:
    """Return what was done, in one sentence."""
    r, d = len(np.asarray(record.support)), record.n_columns
    method = clean(record.method)
    prepared = f" (prepared: {clean(', '.join(record.prepare))})" if record.prepare else ""
    text = (
        f"From a matrix of {_some(record.n_rows, 'row')} and {_some(d, 'column')}{prepared}, {_some(r, 'column')} "
        f"{'was' if r == 1 else 'were'} selected by “{method}”"
    )
    if record.cluster_weights is None:
        return text + "."
    k = len(np.asarray(record.cluster_weights))
    return f"{text} and the rows were grouped into {_some(k, 'cluster')} on {'it' if r == 1 else 'them'}."


def headline(record: RunRecord) -> Headline:
    """Return the strongest thing that can be said about the result."""
    r, d = len(np.asarray(record.support)), record.n_columns
    best = strongest(record.certificates)
    if record.cluster_weights is None and record.model is not None:
        what, why = headline_of(record.model, d)
        return Headline(what, why, False)
    if record.cluster_weights is None:
        what = f"{_some(r, 'column')} of {count(d)} selected"
        return Headline(what, "No clustering was asked for, so there is nothing to certify.", False)
    k = len(np.asarray(record.cluster_weights))
    if best is None:
        what = f"{_some(k, 'cluster')} on {count(r)} of {count(d)} columns"
        return Headline(what, "No certificate was asked for: how close this is to the best is not known.", False)
    rows = "these rows" if not record.prepare else f"these rows (prepared: {clean(', '.join(record.prepare))})"
    if not math.isfinite(best.factor):
        # A certificate says itself why it says nothing.
        why = clean(best.sentence, NOTE_LENGTH) or (
            f"The clustering's sum of squared distances is {number(best.objective)}, but the bound on what any other "
            "could reach came out as zero. A larger sketch, or the certificate “blocks”, may prove something."
        )
        return Headline("No guarantee could be proven", why, False)
    if best.objective == 0:
        why = "The rows of each cluster are all the same: nothing can be better."
        return Headline("This clustering is the best possible", why, True)
    ratio = max(1.0, best.factor)
    if ratio < 1.5:
        what = f"at most {at_most_percent(ratio - 1)} worse than the best possible clustering"
    else:
        what = f"at most {factor(ratio)} times the cost of the best possible clustering"
    sure = "Proven" if best.confidence is None else f"With {probability(best.confidence)} confidence"
    what = f"{sure}: {what}"
    has = f"at most {not_above(best.objective)}" if best.is_bounded else number(best.objective)
    why = (
        f"No grouping of {rows} into {_some(k, 'cluster')}, with all {count(d)} columns, can have a sum of squared "
        f"distances to the cluster centres below {at_least(best.lower_bound)}. This one, found with {count(r)} of "
        f"them, has {has} over all columns: at most {factor(ratio)} times as much."
    )
    closer = min((c for c in record.certificates if c.confidence is not None), key=lambda c: c.factor, default=best)
    if closer.confidence is not None and closer.factor < best.factor:
        why += (
            f" With {probability(closer.confidence)} confidence it is at most {factor(closer.factor)} times the best."
        )
    return Headline(what, why, True)


def strongest(certificates: Sequence[CertificateRecord]) -> CertificateRecord | None:
    """Return the certificate with the smallest factor; one that always holds goes before one with a confidence."""
    usable = [c for c in certificates if not math.isnan(c.factor)]
    return min(usable, key=lambda c: (not math.isfinite(c.factor), c.confidence is not None, c.factor), default=None)


def _some(n: int, noun: str) -> str:
    return f"{count(n)} {noun}" if n == 1 else f"{count(n)} {noun}s"
