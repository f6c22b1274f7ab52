"""The certificates of a job: from its summary, from blocks of rows, of its selected columns, and of a reassignment."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, cast

from sketchselect.cluster import (
    Certificate,
    Reassigned,
    SelectionBound,
    blocks_certificate,
    bounded_certificate,
    certify,
    certify_selection,
    dropped_columns_certificate,
    reassign_source,
)
from sketchselect.cluster.certificates.block import BlockOptions, block_pass
from sketchselect.cluster.certificates.certificate import compared
from sketchselect.cluster.certificates.labelled_rows import require_all_rows, rows_are_same
from sketchselect.cluster.kmeans.weighted import WeightedColumns
from sketchselect.execution import Source
from sketchselect.job.schema import CertificateSettings
from sketchselect.linalg.arrays import Floats
from sketchselect.readers import open_vector
from sketchselect.selectors import Selection
from sketchselect.summaries import BlockBound, CentroidSums, FrequentDirections, Moments, Summary, pick
from sketchselect.workflow.stages import clustering as clusterings
from sketchselect.workflow.stages.clustering import Clustering
from sketchselect.workflow.stages.session import Session


@dataclass(frozen=True)
class Certificates:
    """What is proved of a clustering."""

    certificates: tuple[Certificate, ...] = ()  # Of the published labels, in all columns
    # Of k-means itself: of the clustering that it found, in the columns that it worked on
    selected: Certificate | None = None
    selection: SelectionBound | None = None  # What the selected columns promised before they were clustered


def prove(
    session: Session,
    summary: Summary[Any],
    selection: Selection,
    features: Source,
    found: Clustering,
    published: Clustering,
    sums: CentroidSums,
    objective: float,
) -> Certificates:
    """Return every certificate that the job asks for.

    Parameters
    ----------
    session : Session
        The job.
    summary : Summary
        Of the rows.
    selection : Selection
        The selected columns.
    features : Source
        The selected columns' rows.
    found, published : Clustering
        What k-means found, and that or what a reassignment made of it.
    sums : CentroidSums
        Of what k-means found, in all prepared columns.
    objective : float
        Of the published labels in all prepared columns.
    """
    settings = session.config.cluster
    assert settings is not None
    wanted = settings.certificate_settings
    if wanted is None:
        return Certificates()
    # Where fewer clusters were found than wanted, the bound is still that of the number wanted: the lower one.
    k = settings.n_clusters
    certificates = [certify(summary, objective, k, method="spectral")]
    scatter = certificates[0].scatter
    selected = None
    source = Source(session.matrix, None, None, session.steps)
    if wanted.method == "blocks":
        bound = from_blocks(session, source, wanted, k, objective, settings.random_state, "block certificate", sums)
        certificates.append(replace(bound, scatter=scatter))
        spectrum = cast(FrequentDirections | Moments, pick(summary, "frequent-directions", "moments"))
        norms = spectrum.centered_column_squared_norms[selection.support]
        selected = _of_selected(session, features, selection, found, wanted, norms)
    certificates.append(dropped_columns_certificate(summary, published.inertia, selection.support, k))
    own = getattr(session.selector, "certificate_", None)
    if own is not None and published.weighted_inertia is not None and own.n_clusters == k:
        bound, began = own.bound(published.weighted_inertia), time.perf_counter()
        certificates.append(bounded_certificate(own.lower_bound, bound, k, began, scatter))
    if any(one.objective == 0 for one in certificates):
        same = _rows_are_same(session, source, published)
        certificates = [compared(one, same) for one in certificates]
    promise = certify_selection(summary, selection.support, k)
    for one in certificates:
        # The columns' promise is of every clustering, so the best bound of the optimum serves it too.
        if one.method == "blocks" and one.confidence == 1 and one.lower_bound > promise.lower_bound:
            excess = promise.dropped_scatter / one.lower_bound
            promise = replace(promise, excess=excess, lower_bound=one.lower_bound, method="blocks")
    return Certificates(tuple(certificates), selected, promise)


def from_blocks(
    session: Session,
    source: Source,
    wanted: CertificateSettings,
    n_clusters: int,
    objective: float,
    seed: int,
    stage: str,
    sums: CentroidSums | None = None,
) -> Certificate:
    """Return the certificate of a pass over rows in blocks; the pass resumes from its checkpoints.

    Parameters
    ----------
    session : Session
        What the pass runs on.
    source : Source
        The rows, in the columns in which the objective was measured.
    wanted : CertificateSettings
        How they are cut, and which blocks are solved.
    n_clusters, objective, seed
        As in `certify`.
    stage : str
        Name of the pass.
    sums : CentroidSums, optional
        Of the clustering: refused unless it is one of all these rows.
    """
    began = time.perf_counter()
    description = BlockOptions(**wanted.blocks, seed=seed).description(n_clusters)
    with session.stage(stage) as entry:
        reduced = block_pass(source, description, session.pass_options, stage)
        session.account(entry, reduced.stats)
        session.require_unchanged()
    found = cast(BlockBound, reduced.value)
    if sums is not None:
        require_all_rows(sums, found.n_rows)
    return blocks_certificate(found, objective, wanted.confidence, began, reduced.stats)


def _of_selected(
    session: Session,
    features: Source,
    selection: Selection,
    found: Clustering,
    wanted: CertificateSettings,
    squared_norms: Floats,
) -> Certificate:
    """Return how far k-means can be from the best clustering of the columns it worked on, of these squared norms."""
    settings = session.config.cluster
    assert settings is not None
    source, objective = features, found.inertia
    if found.weighted_inertia is not None:
        assert selection.weights is not None
        source, objective = Source(WeightedColumns(features.matrix, selection.weights)), found.weighted_inertia
        squared_norms = squared_norms * selection.weights**2
    stage, seed = "block certificate of the selected columns", settings.random_state
    certificate = from_blocks(session, source, wanted, settings.n_clusters, objective, seed, stage)
    if certificate.objective == 0:
        certificate = compared(certificate, _rows_are_same(session, source, found))
    return replace(certificate, columns="selected", scatter=float(squared_norms.sum()))


def _rows_are_same(session: Session, source: Source, clustering: Clustering) -> bool:
    """Return whether an objective of 0 is one, or squares of small differences vanished."""
    labels = open_vector(clustering.labels, source.n_rows, name="labels")
    with session.stage("comparing the rows of each cluster"):
        return rows_are_same(replace(source, target=labels), clustering.centers.shape[0], session.pass_options)


def reassigned(
    session: Session, features: Source, selection: Selection, found: Clustering, sums: CentroidSums
) -> tuple[Clustering, Reassigned]:
    """Publish the labels after one step of k-means in all columns, and return them as a clustering."""
    labels = open_vector(str(session.folder.path / found.labels_file), session.matrix.shape[0], name="labels")
    source = Source(session.matrix, labels, None, session.steps)
    with session.stage("reassign") as entry:
        moved, stats = reassign_source(source, sums, session.pass_options)
        session.account(entry, stats)
        session.require_unchanged()
    better = replace(found, labels=moved.labels, centers=moved.means[:, selection.support], weighted_inertia=None)
    published = clusterings.publish(session, better)
    here = clusterings.sums_in_selected(session, features, published.labels_file, published.centers.shape[0])
    return replace(published, inertia=float(here.objective)), moved
