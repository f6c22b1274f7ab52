"""Evaluation of clusterings: exact objective in all columns, certificates, agreement with known labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sketchselect.cluster import Certificate, SelectionBound
from sketchselect.errors import BadParameter
from sketchselect.execution import Source, summarize_source
from sketchselect.linalg.arrays import Floats
from sketchselect.readers import Vector
from sketchselect.readers.arrays.numpy_scipy import ArrayVector
from sketchselect.report import Agreement, ComparedRecord
from sketchselect.selectors import Selection
from sketchselect.summaries import CentroidSums, Summary
from sketchselect.workflow.stages.agreement import MAX_CLASSES, cross
from sketchselect.workflow.stages.certificates import prove, reassigned
from sketchselect.workflow.stages.clustering import Clustering, k_means, publish
from sketchselect.workflow.stages.session import Session

_TIE = 1e-9
"""Objectives of one partition, summed in another order, differ by less."""


@dataclass(frozen=True)
class Evaluation:
    """What is known of a clustering."""

    objective: float  # Exact within-cluster sum of squares in all prepared columns
    means: Floats  # shape (n_clusters, n_columns): Mean of each cluster in all prepared columns
    certificates: tuple[Certificate, ...] = ()  # Bounds on objective / optimum; empty where the job wants none
    agreement: Agreement | None = None  # With known labels
    # Objective of k-means on all columns, where the job asked for the comparison
    objective_all_columns: float | None = None
    compared: tuple[ComparedRecord, ...] = ()  # All clusterings that were made, where there are several
    # Of k-means itself: of the clustering it candidates, in the columns that it worked on
    selected_certificate: Certificate | None = None
    # What the selected columns promised for all columns before they were clustered
    selection_bound: SelectionBound | None = None
    moved: Reassignment | None = None  # What one reassignment in all columns changed, where the job asked for it


@dataclass(frozen=True)
class Reassignment:
    """What a reassignment changed."""

    n_rows: int  # Rows that went to another cluster
    objective_before: float  # In all prepared columns, before


def evaluate(
    session: Session, summary: Summary[Any], selection: Selection, features: Source, clusterings: Sequence[Clustering]
) -> tuple[Clustering, Evaluation]:
    """Compute the exact objective of each clustering in one pass, then all that follows; return the better one first.

    Of two clusterings (with the selection's weights and without) the one of the lower objective in all columns is
    published as the job's; a tie goes to the first.
    """
    settings = session.config.cluster
    assert settings is not None
    sums = []
    for one in clusterings:
        with session.stage("objective" if len(clusterings) == 1 else f"objective, {one.variant}") as entry:
            sums.append(cluster_sums(session, one, entry))
    # Of equal partitions, which differ by rounding alone, the first.
    best = next(i for i, one in enumerate(sums) if one.objective <= min(s.objective for s in sums) * (1 + _TIE))
    clustering, objective, means = clusterings[best], float(sums[best].objective), sums[best].cluster_means
    moved: Reassignment | None = None
    if settings.reassign:
        clustering, after = reassigned(session, features, selection, clustering, sums[best])
        moved = Reassignment(int(np.count_nonzero(after.labels != clusterings[best].labels)), objective)
        objective, means = float(after.objective), after.means
    elif len(clusterings) > 1:
        clustering = publish(session, clustering)
    proofs = prove(session, summary, selection, features, clusterings[best], clustering, sums[best], objective)
    candidates = [(_columns(one, False), one, float(sums[place].objective)) for place, one in enumerate(clusterings)]
    candidates[best] = (_columns(clusterings[best], moved is not None), clustering, objective)
    on_all = None
    if settings.compare_all_columns:
        with session.stage("k-means on all columns") as entry:
            on_all = k_means(session, session.rows)
            entry.update(inertia=on_all.inertia, n_iter=on_all.n_iter)
        with session.stage("k-means on random columns") as entry:
            at_random = _on_random_columns(session, selection.support.size, entry)
        candidates += [("all columns", on_all, on_all.inertia), ("as many random columns", *at_random)]
    known = session.vector("labels")
    agreements = [None if known is None else agree(known, one, on_all, session.note) for _, one, _ in candidates]
    compared = [
        ComparedRecord(
            columns,
            cost,
            None if agreement is None else agreement.nmi,
            None if agreement is None else agreement.ari,
            place == best,
        )
        for place, ((columns, _, cost), agreement) in enumerate(zip(candidates, agreements, strict=True))
    ]
    evaluation = Evaluation(
        objective,
        means,
        proofs.certificates,
        agreements[best],
        None if on_all is None else on_all.inertia,
        tuple(compared) if len(compared) > 1 else (),
        proofs.selected,
        proofs.selection,
        moved,
    )
    return clustering, evaluation


def _columns(clustering: Clustering, was_reassigned: bool) -> str:
    columns = "selected columns, weighted" if clustering.variant == "weighted" else "selected columns"
    return f"{columns}, reassigned" if was_reassigned else columns


def _on_random_columns(session: Session, n_columns: int, entry: dict[str, Any]) -> tuple[Clustering, float]:
    """Return the clustering on some random columns, and its objective in all of them."""
    settings = session.config.cluster
    assert settings is not None
    drawn = np.random.default_rng(settings.random_state).choice(session.n_columns, n_columns, replace=False)
    columns = np.sort(drawn)
    clustering = k_means(session, replace(session.rows, columns=tuple(columns.tolist())), columns)
    labelled = replace(session.rows, target=ArrayVector(clustering.labels, "labels of random columns"))
    reduced = summarize_source(labelled, CentroidSums(clustering.centers.shape[0]), session.pass_options)
    session.account(entry, reduced.stats)
    return clustering, float(reduced.value.objective)  # type: ignore[attr-defined]


def cluster_sums(session: Session, clustering: Clustering, entry: dict[str, Any]) -> CentroidSums:
    """Return the sums of a published clustering in all prepared columns: one fused pass."""
    source, description = session.labelled_rows(clustering.labels_file), CentroidSums(clustering.centers.shape[0])
    reduced = summarize_source(source, description, session.pass_options, stage="objective")
    session.account(entry, reduced.stats)
    session.require_unchanged()
    return cast(CentroidSums, reduced.value)


def agree(
    known: Vector, clustering: Clustering, on_all: Clustering | None, note: Callable[[str], None]
) -> Agreement | None:
    """Return the agreement with known labels, rows labelled NaN left out; None where they are no classes."""
    try:
        crossed = cross(known, clustering.labels)
        count = str(len(crossed.table.classes))
    except BadParameter:
        crossed, count = None, f"more than {MAX_CLASSES}"
    if crossed is not None and crossed.n_unknown:
        note(f"labels: {crossed.n_unknown} of {known.n_rows} are NaN; those rows are left out of the comparison")
    if crossed is None or not 0 < len(crossed.table.classes) <= MAX_CLASSES:
        note(f"labels: {count} different values, so not compared with the clusters (1 to {MAX_CLASSES} can be)")
        return None
    contingency = crossed.table
    table = np.zeros((len(contingency.classes), clustering.centers.shape[0]), dtype=np.int64)
    table[:, contingency.clusters] = contingency.counts
    other = None if on_all is None else cross(known, on_all.labels).table
    return Agreement(
        table,
        tuple(map(str, contingency.classes.tolist())),
        contingency.nmi,
        contingency.ari,
        contingency.accuracy,
        *((None, None, None) if other is None else (other.nmi, other.ari, other.accuracy)),
    )
