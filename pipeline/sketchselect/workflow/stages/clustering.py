"""K-means on the selected columns, unweighted, with the weights of the selection, both ways, or in another metric.

Also the stage that compares numbers of clusters: ``clusters.csv``, and the figure in the report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect._progress import ThrottledProgress, give_detail
from sketchselect.cluster import FewerClusters, KMeansParameters, fit_kmeans, least_squares_metric
from sketchselect.cluster.kmeans.passes import WeightedColumns, weighted_points
from sketchselect.cluster.n_clusters import INDICES, range_of_source
from sketchselect.errors import BadParameter, ConfigError
from sketchselect.execution import Source, summarize_source
from sketchselect.linalg.kmeans.sample import COST_TIE
from sketchselect.linalg.validation import Array, Floats
from sketchselect.readers import open_vector
from sketchselect.selectors import AutoSelector, Selection
from sketchselect.selectors.curve import cluster_means
from sketchselect.summaries import Bundle, CentroidSums, RowSample, Summary
from sketchselect.workflow import tables
from sketchselect.workflow.folder import file_digest, tree_digest
from sketchselect.workflow.session import VERSION, SampledStart, Session, noted_warnings

if TYPE_CHECKING:
    from sketchselect.cluster.n_clusters import ClusterRange

Variant = Literal["unweighted", "weighted", "least-squares"]


@dataclass(frozen=True)
class Clustering:
    """Result of k-means in the selected columns."""

    labels: NDArray[np.int32]  # shape (n_rows,): Cluster of each row; -1 where the row was dropped
    # shape (n_clusters, n_selected): Means of the clusters in the prepared, selected columns (without weights)
    centers: Floats
    inertia: float  # Within-cluster sum of squares in these columns (without weights)
    n_iter: int  # Iterations of the best start
    # Whether the columns were multiplied before clustering, by the selection's weights or into the least-squares metric
    variant: Variant = "unweighted"
    weighted_inertia: float | None = None  # The objective of k-means in the multiplied columns
    # Weight of each column, shape (n_selected,), or the matrix that they were multiplied by
    weights: Floats | None = None
    labels_file: str = "labels.zarr"  # Where the labels are published
    nearest: Floats | None = None  # Of a reassignment: the means in all columns to which rows moved


def cluster(
    session: Session, selection_summary: Summary[Any], summary: Any, features: Source | None, selection: Selection
) -> list[Clustering]:
    """Publish the clusterings that the job asks for: one as ``labels.zarr`` and ``centers.zarr``, two under own names.

    Labels to be reassigned are published under their own name too: a resumed job needs the result of k-means.

    `selection_summary`: What the columns were selected from, perhaps with a sample of rows that k-means starts from.
    `summary`: That of the rows, for the least-squares metric.

    Raises
    ------
    ConfigError
        If there is nothing to cluster.
    """
    settings = session.cluster_settings
    if features is None:
        choice = selection.diagnostics.get("choice")
        raise ConfigError(
            f"cluster: {selection.method} selected no column, so there is nothing to cluster"
            + (f" ({choice}): raise its bound" if choice else "; ask for more columns")
            + ", or leave [cluster] out"
        )
    apart = len(settings.variants) > 1 or settings.reassign
    _start_from(session, selection_summary)
    session.folder.discard(() if apart else (*_names("weighted"), *_names("unweighted")))
    return [
        _cluster(session, features, selection, variant, weights_of(variant, summary, selection), apart)
        for variant in settings.variants
    ]


def weights_of(variant: Variant, summary: Any, selection: Selection) -> Floats | None:
    """Return what the selected columns are multiplied by before clustering; None for columns as they are."""
    if variant == "least-squares":
        return least_squares_metric(summary, selection.support)
    return selection.weights if variant == "weighted" else None


def _start_from(session: Session, summary: Summary[Any]) -> None:
    """Let k-means start from the clusters of the summary's sample of rows in all columns too, if it has one.

    From there k-means on the selected columns often ends in clusters of a lower objective in all columns than from
    starts that are drawn and compared in the selected ones; but a sample can miss the rows that decide.
    """
    settings = session.cluster_settings
    members = {member.kind: member for member in (summary.values() if isinstance(summary, Bundle) else [summary])}
    sample = members.get(RowSample.kind)
    if not settings.starts_open or session.start is not None or not isinstance(sample, RowSample):
        return
    k, seed, selector = settings.n_clusters, settings.random_state, session.selector
    labels = selector.sampled_labels(sample, k, seed) if isinstance(selector, AutoSelector) else None
    centers = cluster_means(sample, k, seed, labels)
    if centers is not None:
        session.start = SampledStart(centers, sample)
        give_detail(
            session.progress,
            f"k-means starts from the clusters of {sample.n_kept} sampled rows in all columns, and from drawn starts",
        )


def discard(session: Session) -> None:
    """Delete the clusterings of earlier runs."""
    session.folder.discard(("labels.zarr", "labels.csv", "centers.zarr", *_names("weighted"), *_names("unweighted")))


def publish(session: Session, clustering: Clustering) -> Clustering:
    """Publish the better of two clusterings as ``labels.zarr`` and ``centers.zarr``."""
    tables.write_zarr(session.folder, "labels.zarr", clustering.labels, ("row",))
    tables.write_zarr(session.folder, "centers.zarr", clustering.centers, ("cluster", "column"))
    return replace(clustering, labels_file="labels.zarr")


def name_rows(session: Session, clustering: Clustering) -> None:
    """Publish ``labels.csv`` if the job or the source names the rows."""
    names, title = session.row_names()
    if names is None:
        session.folder.discard(("labels.csv",))
    else:
        tables.write_labels_csv(session.folder, names, title, clustering.labels)


def _names(variant: str) -> tuple[str, str]:
    return f"labels-{variant}.zarr", f"centers-{variant}.zarr"


def _cluster(
    session: Session, features: Source, selection: Selection, variant: Variant, weights: Floats | None, apart: bool
) -> Clustering:
    folder, settings = session.folder, session.cluster_settings
    labels_file, centers_file = _names(variant) if apart else ("labels.zarr", "centers.zarr")
    without = {"certificate", "compare_all_columns", "weighted", "reassign", "range"}
    fingerprint = {
        "version": VERSION,
        "files": [labels_file, centers_file],
        "features": tree_digest(folder.path / "features.zarr"),
        "settings": settings.model_dump(exclude=without),
        "weights": None if weights is None else [float(w).hex() for w in weights.ravel()],
        "start": None if session.start is None else ["best of two", file_digest(folder.path / "summary.sks")],
    }
    stage = stage_name(variant)
    with session.stage(stage) as entry:
        if session.reusable(stage, fingerprint, entry):
            labels, centers = tables.read_zarr(folder, labels_file), tables.read_zarr(folder, centers_file)
            result = Clustering(labels.astype(np.int32), centers, entry["inertia"], entry["n_iter"])
            result = replace(result, weighted_inertia=entry.get("weighted_inertia"))
        elif weights is None:
            result = k_means(session, features, selection.support)
            tables.write_zarr(folder, labels_file, result.labels, ("row",))
        else:
            weighted_rows = Source(WeightedColumns(features.matrix, weights))
            result = k_means(session, weighted_rows, selection.support, weights)
            tables.write_zarr(folder, labels_file, result.labels, ("row",))
            sums = sums_in_selected(session, features, labels_file, result.centers.shape[0])
            result = replace(
                result, centers=sums.cluster_means, inertia=float(sums.objective), weighted_inertia=result.inertia
            )
        if not entry["reused"]:
            tables.write_zarr(folder, centers_file, result.centers, ("cluster", "column"))
            entry.update(inertia=result.inertia, n_iter=result.n_iter)
            if result.weighted_inertia is not None:
                entry["weighted_inertia"] = result.weighted_inertia
            folder.finish(stage, fingerprint, [labels_file, centers_file], entry)
    return replace(result, variant=variant, labels_file=labels_file, weights=weights)


def stage_name(variant: Variant) -> str:
    """Return the name of the stage of a clustering.

    Examples
    --------
    >>> stage_name("unweighted"), stage_name("least-squares")
    ('k-means', 'k-means, least-squares')
    """
    return "k-means" if variant == "unweighted" else f"k-means, {variant}"


def sums_in_selected(session: Session, features: Source, labels_file: str, n_clusters: int) -> CentroidSums:
    """Return the sums of published clusters in the selected columns, without weights."""
    labels = open_vector(str(session.folder.path / labels_file), features.n_rows, name="labels")
    source = Source(features.matrix, labels)
    engine = session.iterating_engine(8 * source.n_rows * (source.n_columns + 1))
    options = session.pass_options.but(engine=engine, checkpoint=None)
    result = summarize_source(source, CentroidSums(n_clusters), options, stage="means of the clusters")
    return cast(CentroidSums, result.value)


def k_means(
    session: Session, source: Source, columns: Array | None = None, weights: Floats | float = 1.0
) -> Clustering:
    """Run k-means with the job's settings on a source of some columns (None: all), multiplied by weights.

    Drawn starts compete with the clusters of the job's sample of rows, if it has one, on a coreset of all rows. On some
    columns a second run begins with these clusters, and of both the one is returned that costs less in all columns, by
    the sample: few columns have several clusterings of about the same cost there.
    """
    settings, start = session.cluster_settings, session.start
    proposal = (
        None
        if start is None
        else weighted_points(start.centers[:, slice(None) if columns is None else columns], weights)
    )
    drawn = _run(session, source, settings.seeding, proposal)
    if start is None or proposal is None or columns is None:
        return drawn
    sampled = _run(session, source, proposal)
    is_lower = start.objective(sampled.labels) <= start.objective(drawn.labels) * (1.0 + COST_TIE)
    return sampled if is_lower else drawn


def _run(session: Session, source: Source, init: str | Floats, proposal: Floats | None = None) -> Clustering:
    settings = session.cluster_settings
    parameters = KMeansParameters(
        n_clusters=settings.n_clusters,
        init=init,
        n_init=settings.n_init,
        max_iter=settings.max_iter,
        tol=settings.tol,
        random_state=settings.random_state,
        proposal=proposal,
    )
    options = session.pass_options.but(
        engine=session.iterating_engine(source.n_rows * 8 * (source.n_columns + 1)),
        partition_bytes=None,
        progress=ThrottledProgress(session.progress),
    )
    with noted_warnings(session, "k-means", FewerClusters):
        result = fit_kmeans(source, parameters, options)
    return Clustering(np.asarray(result.labels, np.int32), np.asarray(result.centers), result.inertia, result.n_iter)


def sizes(clustering: Clustering) -> list[int]:
    """Return the number of rows in each cluster."""
    assigned = clustering.labels[clustering.labels >= 0]
    return [int(n) for n in np.bincount(assigned, minlength=clustering.centers.shape[0])]


def clustering_entry(clustering: Clustering) -> dict[str, Any]:
    """Return the manifest's entry on a clustering."""
    content: dict[str, Any] = {
        "n_clusters": int(clustering.centers.shape[0]),
        "inertia_selected_columns": clustering.inertia,
        "n_iter": clustering.n_iter,
        "cluster_sizes": sizes(clustering),
        "dropped_rows": int((clustering.labels < 0).sum()),
        "weighted": clustering.variant == "weighted",
    }
    if clustering.variant == "least-squares":
        content["metric"] = "least-squares"
    if clustering.weighted_inertia is not None:
        key = "inertia_weighted_columns" if clustering.variant == "weighted" else "inertia_in_metric"
        content[key] = clustering.weighted_inertia
    return content


CLUSTERS_FILE = "clusters.csv"


def numbers(limits: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of clusters of ``[cluster] range``: two are the ends of a range.

    Examples
    --------
    >>> numbers((2, 5)), numbers((2, 4, 8))
    ((2, 3, 4, 5), (2, 4, 8))
    """
    return tuple(range(limits[0], limits[1] + 1)) if len(limits) == 2 else limits


def cluster_count(session: Session, features: Source | None) -> dict[str, Any] | None:
    """Publish ``clusters.csv`` for the selected columns; return the report's figure, or None if the job sets no range.

    The job's own `n_clusters` stays.
    """
    folder, settings = session.folder, session.config.cluster
    if settings is None or settings.range is None or features is None:
        folder.discard((CLUSTERS_FILE,))
        return None
    ks = numbers(settings.range)
    fingerprint: dict[str, Any] = {
        "version": VERSION,
        "files": [CLUSTERS_FILE],
        "features": tree_digest(folder.path / "features.zarr"),
        "numbers": list(ks),
        "indices": list(INDICES),
        "random_state": settings.random_state,
    }
    with session.stage("range of clusters") as entry:
        if not session.reusable("range of clusters", fingerprint, entry):
            try:
                result = range_of_source(
                    features,
                    ks,
                    session.pass_options.but(progress=ThrottledProgress(session.progress)),
                    random_state=settings.random_state,
                )
            except BadParameter as error:
                raise ConfigError(f"cluster.range: {error}") from None
            entry["record"] = tables.plain_value(figure_of(result))
            folder.write(CLUSTERS_FILE, clusters_csv(result))
            folder.finish("range of clusters", fingerprint, [CLUSTERS_FILE], entry)
        figure: dict[str, Any] = entry.pop("record")
        entry["recommended"] = figure["recommended"]
    return figure


def figure_of(result: ClusterRange) -> dict[str, Any]:
    """Return the content of the report's figure: the measures of each number of clusters."""
    return {
        "n_clusters": [count.n_clusters for count in result.counts],
        "objectives": [count.best_objective for count in result.counts],
        "lower_bounds": [count.lower_bound or 0.0 for count in result.counts],
        "stability": [count.stability for count in result.counts],
        **{name: [getattr(count, name) for count in result.counts] for name in INDICES},
        "sentence": result.sentence(),
        "n_seeds": result.n_seeds,
        "n_sampled": result.n_sampled,
        "recommended": result.recommended,
    }


def clusters_csv(result: ClusterRange) -> str:
    """Return the table: one line for each number of clusters.

    `objective` is exact, over all rows and the selected columns; `coreset_objective` the estimate that the starts were
    compared by; `factor` is objective / lower_bound, empty where nothing is proved; indices and `valley` are empty for
    one cluster, `elbow` for the last.
    """
    measures = ("objective", "coreset_objective", "lower_bound", "factor", "stability", *INDICES, "valley")
    lines: list[list[Any]] = [["n_clusters", *measures, "elbow", "recommended"]]
    elbows, best = result.elbows, result.recommended
    for count in result.counts:
        values = [getattr(count, name) for name in measures] + [elbows.get(count.n_clusters)]
        values_text = ["" if v is None or v == float("inf") else repr(float(v)) for v in values]
        lines.append([count.n_clusters, *values_text, int(count.n_clusters == best)])
    return tables.csv_text(lines)
