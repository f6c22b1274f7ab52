"""Evaluation of a clustering: its exact objective in all columns, and its certificates.

Also the search for the fewest columns whose clustering is proved to be within a tolerance of the best possible.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sketchselect._progress import give_detail
from sketchselect._text import counted
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
from sketchselect.cluster.certificates.certificate import with_row_check
from sketchselect.cluster.certificates.labels import require_all_rows, rows_are_same
from sketchselect.cluster.kmeans.passes import WeightedColumns, weighted_points
from sketchselect.cluster.kmeans.seeding import n_starts
from sketchselect.errors import WillNotFit
from sketchselect.execution import Result, Source, summarize_source
from sketchselect.job.schema import JobConfig
from sketchselect.linalg.validation import Floats
from sketchselect.readers import open_vector
from sketchselect.readers.arrays import ArrayVector
from sketchselect.selectors import AutoSelector, Selection
from sketchselect.summaries import BlockBound, CentroidSums, Summary, pick_spectrum
from sketchselect.workflow.agreement import Agreement, agree
from sketchselect.workflow.folder import file_digest
from sketchselect.workflow.session import VERSION, Session
from sketchselect.workflow.stages.clustering import Clustering, k_means, publish, sizes, sums_in_selected
from sketchselect.workflow.stages.model import Model

_TIE = 1e-9
"""Objectives of one partition, summed in another order, differ by less."""


@dataclass(frozen=True)
class ComparedClustering:
    """One of several clusterings of the same rows."""

    columns: str  # "selected columns", "selected columns, weighted", "all columns", ...
    objective: float  # Exact within-cluster sum of squares in all prepared columns
    nmi: float | None = None
    ari: float | None = None
    published: bool = False  # Whether it is the run's result, in ``labels.zarr``


@dataclass(frozen=True)
class Evaluation:
    """Objective, certificates and comparisons of a clustering."""

    objective: float  # Exact within-cluster sum of squares in all prepared columns
    means: Floats  # shape (n_clusters, n_columns): Mean of each cluster in all prepared columns
    certificates: tuple[Certificate, ...] = ()  # Bounds on objective / optimum; empty where the job wants none
    agreement: Agreement | None = None  # With known labels
    # Objective of k-means on all columns, if the job compares with it
    objective_all_columns: float | None = None
    compared: tuple[ComparedClustering, ...] = ()  # All clusterings, if there are several
    # Of k-means itself: of its clustering, in the columns that it worked on
    selected_certificate: Certificate | None = None
    # The bound for the selected columns before they were clustered
    selection_bound: SelectionBound | None = None
    moved: Reassignment | None = None  # The reassignment in all columns, if the job makes one


@dataclass(frozen=True)
class Reassignment:
    """Changes by a reassignment."""

    n_rows: int  # Rows that went to another cluster
    objective_before: float  # In all prepared columns, before


@dataclass(frozen=True, eq=False)
class JobResults:
    """Results of the stages of a job."""

    summary: Summary[Any]  # Of the rows: column statistics, usually a sketch, and what the method needs
    selection: Selection  # The selected columns
    model: Model | None = None  # Of a method that learns from a target
    sample: dict[str, Any] | None = None  # Rows and points of the 2-D view
    clustering: Clustering | None = None  # The published one
    evaluation: Evaluation | None = None  # Its objective, certificates and agreement
    timeline: dict[str, Any] | None = None  # How the selection changed along the rows
    cluster_count: dict[str, Any] | None = None  # Figure of a range of numbers of clusters


def evaluate(
    session: Session, summary: Summary[Any], selection: Selection, features: Source, clusterings: Sequence[Clustering]
) -> tuple[Clustering, Evaluation]:
    """Compute the exact objective of each clustering in one pass, then all that follows; return the better one first.

    Of two clusterings (with the selection's weights and without) the one of the lower objective in all columns is
    published as the job's; a tie goes to the first.
    """
    settings = session.cluster_settings
    sums = []
    for clustering in clusterings:
        with session.stage("inertia" if len(clusterings) == 1 else f"inertia, {clustering.variant}") as entry:
            sums.append(cluster_sums(session, clustering, entry))
    # Objectives of equal partitions differ by rounding alone: the first one wins.
    best = next(i for i, each in enumerate(sums) if each.objective <= min(s.objective for s in sums) * (1 + _TIE))
    clustering, objective, means = clusterings[best], float(sums[best].objective), sums[best].cluster_means
    reassignment: Reassignment | None = None
    if settings.reassign:
        clustering, after = reassigned(session, features, selection, clustering, sums[best])
        reassignment = Reassignment(int(np.count_nonzero(after.labels != clusterings[best].labels)), objective)
        objective, means = float(after.objective), after.means
    elif len(clusterings) > 1:
        clustering = publish(session, clustering)
    proofs = prove(session, summary, selection, features, clusterings[best], clustering, sums[best], objective)
    candidates = [
        (_columns(clustering, False), clustering, float(sums[i].objective)) for i, clustering in enumerate(clusterings)
    ]
    candidates[best] = (_columns(clusterings[best], reassignment is not None), clustering, objective)
    on_all = None
    if settings.compare_all_columns:
        with session.stage("k-means on all columns") as entry:
            on_all = k_means(session, session.rows)
            entry.update(inertia=on_all.inertia, n_iter=on_all.n_iter)
        with session.stage("k-means on random columns") as entry:
            at_random = _on_random_columns(session, selection.support.size, entry)
        candidates += [("all columns", on_all, on_all.inertia), ("as many random columns", *at_random)]
    labels = session.vector("labels")
    agreements = [
        None if labels is None else agree(labels, clustering, on_all, session.note) for _, clustering, _ in candidates
    ]
    comparisons = [
        ComparedClustering(columns, cost, getattr(known, "nmi", None), getattr(known, "ari", None), i == best)
        for i, ((columns, _, cost), known) in enumerate(zip(candidates, agreements, strict=True))
    ]
    evaluation = Evaluation(
        objective,
        means,
        certificates=proofs.certificates,
        agreement=agreements[best],
        objective_all_columns=None if on_all is None else on_all.inertia,
        compared=tuple(comparisons) if len(comparisons) > 1 else (),
        selected_certificate=proofs.selected,
        selection_bound=proofs.selection,
        moved=reassignment,
    )
    return clustering, evaluation


def _columns(clustering: Clustering, was_reassigned: bool) -> str:
    columns = "selected columns" if clustering.variant == "unweighted" else f"selected columns, {clustering.variant}"
    return f"{columns}, reassigned" if was_reassigned else columns


def _on_random_columns(session: Session, n_columns: int, entry: dict[str, Any]) -> tuple[Clustering, float]:
    """Return the clustering on some random columns, and its objective in all columns."""
    settings = session.cluster_settings
    random_columns = np.random.default_rng(settings.random_state).choice(session.n_columns, n_columns, replace=False)
    columns = np.sort(random_columns)
    clustering = k_means(session, replace(session.rows, columns=tuple(columns.tolist())), columns)
    with_labels = replace(session.rows, target=ArrayVector(clustering.labels, "labels of random columns"))
    result = summarize_source(with_labels, CentroidSums(clustering.centers.shape[0]), session.pass_options)
    session.add_statistics(entry, result.stats)
    return clustering, float(result.value.objective)  # type: ignore[attr-defined]


def cluster_sums(session: Session, clustering: Clustering, entry: dict[str, Any]) -> CentroidSums:
    """Return the sums of a published clustering in all prepared columns: one fused pass."""
    source, description = session.labelled_rows(clustering.labels_file), CentroidSums(clustering.centers.shape[0])
    result = summarize_source(source, description, session.pass_options, stage="inertia")
    session.add_statistics(entry, result.stats)
    session.require_unchanged()
    return cast(CentroidSums, result.value)


@dataclass(frozen=True)
class Certificates:
    """Certificates of a clustering."""

    certificates: tuple[Certificate, ...] = ()  # Of the published labels, in all columns
    # Of k-means itself: of the clustering that it found, in the columns that it worked on
    selected: Certificate | None = None
    selection: SelectionBound | None = None  # The bound for the selected columns before they were clustered


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
    """Return every certificate that the job requests.

    `features` are the rows of the selected columns; `clustering` is that of k-means, with its `sums` in all prepared
    columns; `published` is the same or its reassignment, with its `objective` in all prepared columns.
    """
    settings = session.cluster_settings
    options = settings.certificate_settings
    if options is None:
        return Certificates()
    # If fewer clusters were found than requested, the bound is still for the requested number: the lower one.
    k = settings.n_clusters
    certificates = [certify(summary, objective, k, method="spectral")]
    scatter = certificates[0].scatter
    selected_certificate = None
    blocks = solved_blocks(session.config, session.rows, len(selection.support))
    if (closer := _of_rows(session, blocks, published, objective, sums)) is not None:
        certificates.append(replace(closer, scatter=scatter))
    # With all columns selected, it would be another draw of the certificate above.
    is_of_kmeans = published is clustering and clustering.weighted_inertia is None
    if options.method == "blocks" and not (is_of_kmeans and len(selection.support) == session.n_columns):
        norms = pick_spectrum(summary).centered_column_squared_norms[selection.support]
        selected_certificate = _of_selected(session, features, clustering, blocks, norms)
    certificates.append(dropped_columns_certificate(summary, published.inertia, selection.support, k))
    method_certificate = getattr(session.selector, "certificate_", None)
    is_weighted = published.variant == "weighted" and published.weighted_inertia is not None
    if method_certificate is not None and is_weighted and method_certificate.n_clusters == k:
        bound, began = method_certificate.bound(published.weighted_inertia), time.perf_counter()
        certificates.append(bounded_certificate(method_certificate.lower_bound, bound, k, began, scatter))
    if any(certificate.objective == 0 for certificate in certificates):
        same = _rows_are_same(session, session.rows, published)
        certificates = [with_row_check(certificate, same) for certificate in certificates]
    promise = certify_selection(summary, selection.support, k)
    for certificate in certificates:
        # The bound of the columns is for every clustering, so the best bound of the optimum applies to it too.
        if (
            certificate.method == "blocks"
            and certificate.confidence == 1
            and certificate.lower_bound > promise.lower_bound
        ):
            promise = promise.with_lower_bound(certificate.lower_bound, "blocks")
    return Certificates(tuple(certificates), selected_certificate, promise)


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
    all_blocks = config.select.tolerance_proved is not None
    return affordable_blocks(source, n_selected, k, n_starts(settings.n_init, k, n_selected), blocks, every=all_blocks)


def _of_rows(
    session: Session, blocks: Affordable, published: Clustering, objective: float, sums: CentroidSums
) -> Certificate | None:
    """Return the certificate by blocks of the rows in all columns; None if none are solved."""
    if blocks.is_automatic and blocks.n_solved < blocks.n_blocks:
        session.note(blocks.sentence())
    if blocks.description is None:
        return None
    try:
        # Any blocks give a valid bound; those that are balanced by the labels a closer one.
        labelled = session.labelled_rows(published.labels_file)
        bound = from_blocks(session, labelled, blocks, objective, "block certificate", sums)
    except WillNotFit as error:
        if not blocks.is_automatic:
            raise
        # The user did not request it: a job that fits in this memory without it must still run.
        session.note(f"certificate: from the spectrum alone; {error}")
        return None
    return replace(bound, details={**bound.details, "cost_share": blocks.cost_share}) if blocks.is_automatic else bound


def from_blocks(
    session: Session, source: Source, blocks: Affordable, objective: float, stage: str, sums: CentroidSums | None = None
) -> Certificate:
    """Return the certificate of a pass over rows in blocks; the pass resumes from its checkpoints.

    The source has the columns in which the objective was measured. A clustering (its `sums`) that is not one of all
    these rows is refused.
    """
    began = time.perf_counter()
    assert blocks.description is not None
    result = bound_of_blocks(session, source, blocks.description, stage)
    if sums is not None:
        require_all_rows(sums, result.value.n_rows)
    return blocks_certificate(result.value, objective, blocks.confidence, began, result.stats)


def bound_of_blocks(session: Session, source: Source, description: BlockBound, stage: str) -> Result[BlockBound]:
    """Return the bound of a pass over rows in blocks; that of all columns is made once in a run."""
    if source.columns is None and source.matrix is session.matrix and session.block_bound is not None:
        return session.block_bound
    with session.stage(stage) as entry:
        result = cast(Result[BlockBound], block_pass(source, description, session.pass_options, stage))
        session.add_statistics(entry, result.stats)
        session.require_unchanged()
    if source.matrix is session.matrix:
        session.block_bound = result
    return result


def _of_selected(
    session: Session, features: Source, clustering: Clustering, blocks: Affordable, squared_norms: Floats
) -> Certificate:
    """Return how far k-means can be from the best clustering of the columns it worked on, of these squared norms."""
    source, objective = features, clustering.inertia
    scatter = float(squared_norms.sum())
    if clustering.weighted_inertia is not None and clustering.weights is not None:
        source, objective = Source(WeightedColumns(features.matrix, clustering.weights)), clustering.weighted_inertia
        if clustering.weights.ndim == 2:
            n_rows, points = np.array(sizes(clustering)), weighted_points(clustering.centers, clustering.weights)
            scatter = objective + float(n_rows @ ((points - n_rows @ points / n_rows.sum()) ** 2).sum(axis=1))
        else:
            scatter = float((squared_norms * clustering.weights**2).sum())
    source = replace(source, target=open_vector(clustering.labels, source.n_rows, name="labels"))
    certificate = from_blocks(session, source, blocks, objective, "block certificate of the selected columns")
    if certificate.objective == 0:
        certificate = with_row_check(certificate, _rows_are_same(session, source, clustering))
    note = certificate.note
    if clustering.variant == "least-squares":
        note = f"{note} Distances are in the least-squares metric.".lstrip()
    return replace(certificate, columns="selected", scatter=scatter, note=note)


def _rows_are_same(session: Session, source: Source, clustering: Clustering) -> bool:
    """Return whether an objective of 0 is exact, or squares of small differences vanished."""
    labels = open_vector(clustering.labels, source.n_rows, name="labels")
    with session.stage("comparing the rows of each cluster"):
        return rows_are_same(replace(source, target=labels), clustering.centers.shape[0], session.pass_options)


def reassigned(
    session: Session, features: Source, selection: Selection, clustering: Clustering, sums: CentroidSums
) -> tuple[Clustering, Reassigned]:
    """Publish the labels after one step of k-means in all columns, and return them as a clustering."""
    source = session.labelled_rows(clustering.labels_file)
    with session.stage("reassign") as entry:
        reassigned_rows, stats = reassign_source(source, sums, session.pass_options)
        session.add_statistics(entry, stats)
        session.require_unchanged()
    means = reassigned_rows.means[:, selection.support]
    better = replace(clustering, labels=reassigned_rows.labels, centers=means, weighted_inertia=None)
    if not np.array_equal(reassigned_rows.labels, clustering.labels):
        better = replace(better, nearest=sums.cluster_means)
    published = publish(session, better)
    inner = sums_in_selected(session, features, published.labels_file, published.centers.shape[0])
    return replace(published, inertia=float(inner.objective)), reassigned_rows


STAGE = "proof"

STEP = 8
"""Share of the columns that is added if a proof fails, and left out if it holds, until the outcome changes."""


def set_target_bound(session: Session) -> None:
    """Compute the lower bound of all clusterings, and let the selector choose columns by it, if the job requests it."""
    tolerance, selector = session.config.select.tolerance_proved, session.selector
    if tolerance is None or session.has_preset:
        return
    assert isinstance(selector, AutoSelector)
    blocks = solved_blocks(session.config, session.rows, session.n_columns)
    assert blocks.description is not None  # `load_job` refuses a job without
    bound = bound_of_blocks(session, session.rows, blocks.description, "block certificate").value
    selector.largest_objective = (1.0 + tolerance) * bound.lower_bound(blocks.confidence)
    # A job that is run again continues its search.
    _use(selector, session.folder.finished(STAGE, _fingerprint(session)) or {})


def _fingerprint(session: Session) -> dict[str, Any]:
    config = session.config
    settings = [section.model_dump(mode="json") for section in (config.select, config.cluster) if section is not None]
    return {"version": VERSION, "summary": file_digest(session.folder.path / "summary.sks"), "settings": settings}


def _use(selector: AutoSelector, sizes: Mapping[str, Any]) -> None:
    if sizes.get("unproved") is not None:
        # No number of columns is proved, so that the estimate alone decides.
        selector.largest_objective = None
    selector.least_columns = sizes.get("least_columns", 1)
    selector.largest_columns = sizes.get("largest_columns")


def restore_target_bound(session: Session, selection: Selection) -> None:
    """Let the selector choose columns by the bound of an earlier selection, if it had one."""
    if isinstance(session.selector, AutoSelector) and "largest_objective" in selection.diagnostics:
        session.selector.largest_objective = selection.diagnostics["largest_objective"]
        _use(session.selector, selection.diagnostics)


def next_size(session: Session, evaluation: Evaluation | None) -> bool:
    """Set the number of columns that the selector tries next; return False where the search has ended.

    More where the proof failed, fewer where it holds, down to a number for which it failed; the last one that is tried
    is one for which it holds. Where it fails for the largest number too, the columns within `tolerance` by estimate are
    tried last, and a note says what is proved for them.
    """
    selector, tolerance = session.selector, session.config.select.tolerance_proved
    if tolerance is None or evaluation is None or session.has_preset:
        return False
    assert isinstance(selector, AutoSelector)
    state: dict[str, Any] = {"failed": 0, "proved": None, "unproved": None}
    state |= session.folder.finished(STAGE, _fingerprint(session)) or {}
    failed, proved, size = state["failed"], state["proved"], len(selector.support_)
    factor = min((certificate.factor for certificate in evaluation.certificates), default=float("inf"))
    sizes: tuple[int, int | None]
    text = f"{counted(size, 'column')}: proved within {_percent(factor)}"
    if (unproved := state["unproved"]) is not None:
        most, least_proved = unproved
        if factor > 1.0 + tolerance:
            session.note(
                f"no number of columns up to {most} is proved to be within {_percent(1.0 + tolerance)} of the optimum: "
                f"{most} are proved within {_percent(least_proved)}, and the {size} that `tolerance` chooses by "
                f"estimate within {_percent(factor)}; larger blocks, or reassign = true, may prove more"
            )
        return False
    if factor <= 1.0 + tolerance:
        proved, following = size, size - max(1, size // STEP)
        ends, word, sizes = following <= failed, "fewer", (following, following)
    elif proved is not None and size < proved:
        failed, ends, word, sizes = size, False, f"{proved} again", (proved, proved)
    elif size < selector.most_columns:
        failed, proved, ends, word = size, None, False, "more"
        sizes = size + max(1, size // STEP), None
    else:
        # JSON has no infinity, the factor where nothing is proved.
        unproved, sizes = (size, min(factor, 1e300)), (1, None)
        ends, word = False, "those within `tolerance` by estimate"
    if not ends:
        limit = _percent(1.0 + tolerance)
        verdict = "within" if factor <= 1.0 + tolerance else "above"
        give_detail(session.progress, f"{text}, {verdict} the limit of {limit}; trying {word}")
        _use(selector, {"least_columns": sizes[0], "largest_columns": sizes[1], "unproved": unproved})
    sought = {"least_columns": selector.least_columns, "largest_columns": selector.largest_columns}
    state = {"failed": failed, "proved": proved, "unproved": unproved, **sought}
    session.folder.finish(STAGE, _fingerprint(session), [], state)
    return not ends


def _percent(factor: float) -> str:
    return f"{100.0 * (factor - 1.0):.4g} %" if factor < 1e300 else "no factor at all"
