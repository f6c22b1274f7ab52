"""How good the answer is: exact objective in all columns, certificates, and agreement with labels known beforehand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from sketchselect.cluster import Certificate, blocks_certificate, bounded_certificate, certify, drop_certificate
from sketchselect.cluster.block_certificate import block_description, block_partition_bytes
from sketchselect.execution import Source, summarize_source
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.readers import Vector, open_vector
from sketchselect.selectors import Selection
from sketchselect.summaries import BlockBound, CentroidSums, Summary
from sketchselect.workflow.clustering import Clustering, k_means, publish
from sketchselect.workflow.session import Session

MAX_CLASSES = 1000
"""More distinct labels than this are no classes."""

_TIE = 1e-9
"""Objectives of one partition, summed in another order, differ by less."""


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
class Compared:
    """One of several clusterings of the same rows.

    Parameters
    ----------
    columns : str
        What it was found in: "selected columns", "selected columns, weighted", "all columns".
    objective : float
        Exact within-cluster sum of squares in all prepared columns, whatever it was found in.
    nmi, ari : float or None
        Agreement with known labels, where there are any.
    published : bool
        Whether ``labels.zarr`` holds it.
    """

    columns: str
    objective: float
    nmi: float | None = None
    ari: float | None = None
    published: bool = False


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
    compared : tuple of Compared
        All clusterings that were made, where there are several.
    """

    objective: float
    means: Floats
    certificates: tuple[Certificate, ...] = ()
    agreement: Agreement | None = None
    objective_all_columns: float | None = None
    compared: tuple[Compared, ...] = ()


def evaluate(
    session: Session, summary: Summary[Any], selection: Selection, found: Sequence[Clustering]
) -> tuple[Clustering, Evaluation]:
    """Compute the exact objective of each clustering in one pass, then all that follows; return the better one first.

    Of two clusterings (with the selection's weights and without) the one of the lower objective in all columns is
    published as the job's; a tie goes to the first.
    """
    settings = session.config.cluster
    assert settings is not None
    sums = []
    for one in found:
        with session.stage("objective" if len(found) == 1 else f"objective, {one.variant}") as entry:
            sums.append(cluster_sums(session, one, entry))
    # Of equal partitions, which differ by rounding alone, the first.
    best = next(i for i, one in enumerate(sums) if one.objective <= min(s.objective for s in sums) * (1 + _TIE))
    clustering, objective = found[best], float(sums[best].objective)
    if len(found) > 1:
        clustering = publish(session, clustering)
    certificates: list[Certificate] = []
    if settings.certificate:
        # Where fewer clusters were found than wanted, the bound is still that of the number wanted: the lower one.
        certificates.append(certify(summary, objective, settings.n_clusters, method="spectral"))
        if settings.certificate == "blocks":
            certificates.append(_from_blocks(session, objective))
        certificates.append(drop_certificate(summary, clustering.inertia, selection.support, settings.n_clusters))
        own = getattr(session.selector, "certificate_", None)
        if own is not None and clustering.weighted_inertia is not None and own.n_clusters == settings.n_clusters:
            bound, began = own.bound(clustering.weighted_inertia), time.perf_counter()
            certificates.append(bounded_certificate(own.lower_bound, bound, settings.n_clusters, began))
    on_all = None
    if settings.compare_all_columns:
        with session.stage("k-means on all columns") as entry:
            on_all = k_means(session, Source(session.matrix, None, None, session.prepare))
            entry.update(inertia=on_all.inertia, n_iter=on_all.n_iter)
    known = session.vector("labels")
    all_found = [*found, *([] if on_all is None else [on_all])]
    agreements = [None if known is None else agree(known, one, on_all, session.note) for one in all_found]
    compared = []
    for place, (one, own) in enumerate(zip(all_found, agreements, strict=True)):
        compared.append(
            Compared(
                "all columns" if one is on_all else _columns(one),
                float(sums[place].objective) if place < len(sums) else one.inertia,
                None if own is None else own.nmi,
                None if own is None else own.ari,
                place == best,
            )
        )
    evaluation = Evaluation(
        objective,
        sums[best].cluster_means,
        tuple(certificates),
        agreements[best],
        None if on_all is None else on_all.inertia,
        tuple(compared) if len(compared) > 1 else (),
    )
    return clustering, evaluation


def _from_blocks(session: Session, objective: float) -> Certificate:
    """Return the certificate of a pass over the prepared rows, all columns; the pass resumes from its checkpoints."""
    settings, began = session.config.cluster, time.perf_counter()
    assert settings is not None
    source = Source(session.matrix, None, None, session.prepare)
    description = block_description(settings.n_clusters, seed=settings.random_state)
    size = block_partition_bytes(description.block_rows, source.n_columns)
    options = session.pass_options | {"partition_bytes": size}
    with session.stage("block certificate") as entry:
        reduced = summarize_source(
            source, description, stage="block certificate", checkpoint=session.checkpoint, **options
        )
        session.account(entry, reduced.stats)
        session.require_unchanged()
    return blocks_certificate(cast(BlockBound, reduced.value), objective, None, began)


def _columns(clustering: Clustering) -> str:
    return "selected columns, weighted" if clustering.variant == "weighted" else "selected columns"


def cluster_sums(session: Session, clustering: Clustering, entry: dict[str, Any]) -> CentroidSums:
    """Return the sums of a published clustering in all prepared columns: one fused pass."""
    n_clusters = clustering.centers.shape[0]
    labels = open_vector(str(session.folder.path / clustering.labels_file), session.matrix.shape[0], name="labels")
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
