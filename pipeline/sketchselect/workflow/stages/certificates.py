"""The certificates of a job: from its summary, from blocks of rows, of its selected columns, and of a reassignment."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

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
from sketchselect.cluster.certificates.block import Affordable, BlockOptions, affordable_blocks, block_pass
from sketchselect.cluster.certificates.certificate import compared
from sketchselect.cluster.certificates.labels import require_all_rows, rows_are_same
from sketchselect.cluster.kmeans.passes import WeightedColumns
from sketchselect.cluster.kmeans.seeding import n_starts
from sketchselect.errors import WillNotFit
from sketchselect.execution import Result, Source
from sketchselect.job.schema import JobConfig
from sketchselect.linalg.arrays import Floats
from sketchselect.readers import open_vector
from sketchselect.selectors import Selection
from sketchselect.summaries import BlockBound, CentroidSums, FrequentDirections, Moments, Summary, pick
from sketchselect.workflow.session import Session
from sketchselect.workflow.stages import clustering as clusterings
from sketchselect.workflow.stages.clustering import Clustering


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
    clustering: Clustering,
    published: Clustering,
    sums: CentroidSums,
    objective: float,
) -> Certificates:
    """Return every certificate that the job asks for.

    `features` are the rows of the selected columns; `clustering` is that of k-means, with its `sums` in all prepared
    columns; `published` is the same or its reassignment, with its `objective` in all prepared columns.
    """
    settings = session.config.cluster
    assert settings is not None
    options = settings.certificate_settings
    if options is None:
        return Certificates()
    # Where fewer clusters were found than wanted, the bound is still that of the number wanted: the lower one.
    k = settings.n_clusters
    certificates = [certify(summary, objective, k, method="spectral")]
    scatter = certificates[0].scatter
    selected = None
    planned = solved_blocks(session.config, session.rows, len(selection.support))
    if (closer := _of_rows(session, planned, objective, sums)) is not None:
        certificates.append(replace(closer, scatter=scatter))
    # With all columns selected, it would be another draw of what the certificate above says.
    whole = published is clustering and clustering.weighted_inertia is None
    if options.method == "blocks" and not (whole and len(selection.support) == session.n_columns):
        spectrum = cast(FrequentDirections | Moments, pick(summary, "frequent-directions", "moments"))
        norms = spectrum.centered_column_squared_norms[selection.support]
        selected = _of_selected(session, features, selection, clustering, planned, norms)
    certificates.append(dropped_columns_certificate(summary, published.inertia, selection.support, k))
    method_certificate = getattr(session.selector, "certificate_", None)
    if method_certificate is not None and published.weighted_inertia is not None and method_certificate.n_clusters == k:
        bound, began = method_certificate.bound(published.weighted_inertia), time.perf_counter()
        certificates.append(bounded_certificate(method_certificate.lower_bound, bound, k, began, scatter))
    if any(one.objective == 0 for one in certificates):
        same = _rows_are_same(session, session.rows, published)
        certificates = [compared(one, same) for one in certificates]
    promise = certify_selection(summary, selection.support, k)
    for one in certificates:
        # The columns' promise is of every clustering, so the best bound of the optimum serves it too.
        if one.method == "blocks" and one.confidence == 1 and one.lower_bound > promise.lower_bound:
            excess = promise.dropped_scatter / one.lower_bound
            promise = replace(promise, excess=excess, lower_bound=one.lower_bound, method="blocks")
    return Certificates(tuple(certificates), selected, promise)


def solved_blocks(config: JobConfig, source: Source, n_selected: int) -> Affordable:
    """Return which blocks of the prepared rows the certificate of a job solves."""
    settings = config.cluster
    assert settings is not None
    options, k = settings.certificate_settings, settings.n_clusters
    if options is None or options.method == "spectral":
        return Affordable()
    blocks = BlockOptions(**options.blocks, random_state=settings.random_state)
    if options.method == "blocks":
        return Affordable(blocks.description(k), options.confidence)
    every = config.select.tolerance_proved is not None
    return affordable_blocks(source, n_selected, k, n_starts(settings.n_init, k, n_selected), blocks, every=every)


def _of_rows(session: Session, planned: Affordable, objective: float, sums: CentroidSums) -> Certificate | None:
    """Return what blocks of the rows prove in all columns; None where none are solved."""
    if planned.is_automatic and planned.n_solved < planned.n_blocks:
        session.note(planned.sentence())
    if planned.description is None:
        return None
    try:
        bound = from_blocks(session, session.rows, planned, objective, "block certificate", sums)
    except WillNotFit as error:
        if not planned.is_automatic:
            raise
        # Nobody asked for it: what ran in this memory without it still does.
        session.note(f"certificate: from the spectrum alone; {error}")
        return None
    return (
        replace(bound, details={**bound.details, "cost_share": planned.cost_share}) if planned.is_automatic else bound
    )


def from_blocks(
    session: Session,
    source: Source,
    planned: Affordable,
    objective: float,
    stage: str,
    sums: CentroidSums | None = None,
) -> Certificate:
    """Return the certificate of a pass over rows in blocks; the pass resumes from its checkpoints.

    The source has the columns in which the objective was measured. A clustering (its `sums`) that is not one of all
    these rows is refused.
    """
    began = time.perf_counter()
    assert planned.description is not None
    reduced = bound_of_blocks(session, source, planned.description, stage)
    if sums is not None:
        require_all_rows(sums, reduced.value.n_rows)
    return blocks_certificate(reduced.value, objective, planned.confidence, began, reduced.stats)


def bound_of_blocks(session: Session, source: Source, description: BlockBound, stage: str) -> Result[BlockBound]:
    """Return the bound of a pass over rows in blocks; that of all columns is made once in a run."""
    if source.columns is None and source.matrix is session.matrix and session.block_bound is not None:
        return session.block_bound
    with session.stage(stage) as entry:
        reduced = cast(Result[BlockBound], block_pass(source, description, session.pass_options, stage))
        session.add_statistics(entry, reduced.stats)
        session.require_unchanged()
    if source.matrix is session.matrix:
        session.block_bound = reduced
    return reduced


def _of_selected(
    session: Session,
    features: Source,
    selection: Selection,
    clustering: Clustering,
    planned: Affordable,
    squared_norms: Floats,
) -> Certificate:
    """Return how far k-means can be from the best clustering of the columns it worked on, of these squared norms."""
    source, objective = features, clustering.inertia
    if clustering.weighted_inertia is not None:
        assert selection.weights is not None
        source, objective = Source(WeightedColumns(features.matrix, selection.weights)), clustering.weighted_inertia
        squared_norms = squared_norms * selection.weights**2
    certificate = from_blocks(session, source, planned, objective, "block certificate of the selected columns")
    if certificate.objective == 0:
        certificate = compared(certificate, _rows_are_same(session, source, clustering))
    return replace(certificate, columns="selected", scatter=float(squared_norms.sum()))


def _rows_are_same(session: Session, source: Source, clustering: Clustering) -> bool:
    """Return whether an objective of 0 is one, or squares of small differences vanished."""
    labels = open_vector(clustering.labels, source.n_rows, name="labels")
    with session.stage("comparing the rows of each cluster"):
        return rows_are_same(replace(source, target=labels), clustering.centers.shape[0], session.pass_options)


def reassigned(
    session: Session, features: Source, selection: Selection, clustering: Clustering, sums: CentroidSums
) -> tuple[Clustering, Reassigned]:
    """Publish the labels after one step of k-means in all columns, and return them as a clustering."""
    source = session.labelled_rows(clustering.labels_file)
    with session.stage("reassign") as entry:
        moved, stats = reassign_source(source, sums, session.pass_options)
        session.add_statistics(entry, stats)
        session.require_unchanged()
    better = replace(clustering, labels=moved.labels, centers=moved.means[:, selection.support], weighted_inertia=None)
    if not np.array_equal(moved.labels, clustering.labels):
        better = replace(better, nearest=sums.cluster_means)
    published = clusterings.publish(session, better)
    here = clusterings.sums_in_selected(session, features, published.labels_file, published.centers.shape[0])
    return replace(published, inertia=float(here.objective)), moved
