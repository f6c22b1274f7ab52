"""How good the answer is: exact objective in all columns, certificates, and agreement with labels known beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from sketchselect.cluster import Certificate, certify, drop_certificate
from sketchselect.execution import Source, summarize_source
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.readers import Vector, open_vector
from sketchselect.selectors import Selection
from sketchselect.summaries import CentroidSums, Summary
from sketchselect.workflow.session import Session
from sketchselect.workflow.stages import Clustering, k_means

MAX_CLASSES = 1000
"""More distinct labels than this are no classes."""


@dataclass(frozen=True)
class Agreement:
    """How clusters agree with known labels.

    Parameters
    ----------
    classes : tuple of str
        Names of the classes, sorted.
    table : array of shape (n_classes, n_clusters)
        Rows of each class in each cluster.
    nmi, ari : float
        Normalised mutual information (arithmetic) and adjusted Rand index; dropped rows are left out.
    nmi_all_columns, ari_all_columns : float or None
        The same for k-means on all columns, where the job asked for the comparison.
    """

    classes: tuple[str, ...]
    table: Array
    nmi: float
    ari: float
    nmi_all_columns: float | None = None
    ari_all_columns: float | None = None


@dataclass(frozen=True)
class Evaluation:
    """What is known of a clustering.

    Parameters
    ----------
    objective : float
        Exact within-cluster sum of squares in all prepared columns.
    means : array of shape (n_clusters, n_columns)
        Mean of each cluster in all prepared columns.
    certificates : tuple of Certificate
        Bounds on objective / optimum; empty where the job wants none.
    agreement : Agreement or None
        With known labels.
    objective_all_columns : float or None
        Objective of k-means on all columns, where the job asked for the comparison.
    """

    objective: float
    means: Floats
    certificates: tuple[Certificate, ...] = ()
    agreement: Agreement | None = None
    objective_all_columns: float | None = None


def evaluate(session: Session, summary: Summary[Any], selection: Selection, clustering: Clustering) -> Evaluation:
    """Compute the exact objective in one pass, then all that follows from it."""
    settings = session.config.cluster
    assert settings is not None
    with session.stage("objective") as entry:
        sums = cluster_sums(session, clustering.centers.shape[0], entry)
        objective = float(sums.objective)
    certificates: list[Certificate] = []
    if settings.certificate:
        # Where fewer clusters were found than wanted, the bound is still that of the number wanted: the lower one.
        certificates.append(certify(summary, objective, settings.n_clusters, method=settings.certificate))
        certificates.append(drop_certificate(summary, clustering.inertia, selection.support, settings.n_clusters))
    on_all = None
    if settings.compare_all_columns:
        with session.stage("k-means on all columns") as entry:
            on_all = k_means(session, Source(session.matrix, None, None, session.prepare))
            entry.update(inertia=on_all.inertia, n_iter=on_all.n_iter)
    known = session.vector("labels")
    agreement = None if known is None else agree(known, clustering, on_all, session.note)
    return Evaluation(
        objective, sums.cluster_means, tuple(certificates), agreement, None if on_all is None else on_all.inertia
    )


def cluster_sums(session: Session, n_clusters: int, entry: dict[str, Any]) -> CentroidSums:
    """Return the sums of the published labels' clusters in all prepared columns: one fused pass."""
    labels = open_vector(str(session.folder.path / "labels.zarr"), session.matrix.shape[0], name="labels")
    source = Source(session.matrix, labels, None, session.prepare)
    reduced = summarize_source(
        source, CentroidSums(n_clusters), stage="objective", checkpoint=session.checkpoint, **session.pass_options
    )
    session.account(entry, reduced.stats)
    session.require_unchanged()
    return cast(CentroidSums, reduced.value)


def agree(
    known: Vector, clustering: Clustering, on_all: Clustering | None, note: Callable[[str], None]
) -> Agreement | None:
    """Return the agreement with known labels, rows labelled NaN left out; None where they are no classes."""
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    labels = np.asarray(known.read(0, known.n_rows)).reshape(-1)
    kept = clustering.labels >= 0
    if labels.dtype.kind == "f" and (unknown := np.isnan(labels)).any():
        note(f"labels: {np.count_nonzero(unknown)} of {labels.size} are NaN; those rows are left out of the comparison")
        kept &= ~unknown
    classes, index = np.unique(labels[kept], return_inverse=True)
    if not 0 < classes.size <= MAX_CLASSES:
        note(f"labels: {classes.size} different values, so not compared with the clusters (1 to {MAX_CLASSES} can be)")
        return None
    table = np.zeros((classes.size, clustering.centers.shape[0]), dtype=np.int64)
    np.add.at(table, (index, clustering.labels[kept]), 1)

    def scores(found: Clustering) -> tuple[float, float]:
        there = found.labels[kept]
        return float(normalized_mutual_info_score(index, there)), float(adjusted_rand_score(index, there))

    nmi, ari = scores(clustering)
    nmi_all, ari_all = (None, None) if on_all is None else scores(on_all)
    return Agreement(tuple(map(str, classes.tolist())), table, nmi, ari, nmi_all, ari_all)
