"""The passes of k-means and of a range of numbers of clusters in a dry run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from sketchselect.cluster import KMeansParameters, fit_kmeans
from sketchselect.cluster.kmeans import seeding
from sketchselect.cluster.kmeans.labels import label_rows
from sketchselect.cluster.kmeans.passes import LOAD_ROWS, Passes, partition_nbytes, placement, prepared_nbytes
from sketchselect.cluster.n_clusters import range_of_source
from sketchselect.errors import BadParameter
from sketchselect.execution import LocalEngine, PassOptions, Source, reduce_blocks
from sketchselect.execution.cached import CachedSource
from sketchselect.execution.dask.clusters import local_memory_limit
from sketchselect.execution.engine import Engine
from sketchselect.job.schema import ClusterSettings
from sketchselect.linalg.hashing import derive_seed
from sketchselect.readers import open_matrix
from sketchselect.summaries import CentroidSums
from sketchselect.workflow.forecast.dry_run import DryRun, timed
from sketchselect.workflow.stages.n_clusters import numbers
from sketchselect.workflow.stages.session import iterating_engine

TYPICAL_ITERATIONS = 20
"""Iterations that are reckoned with; how many there will be depends on the data, `max_iter` is the most."""


@dataclass(frozen=True)
class Iterated:
    """What the passes of k-means are planned with."""

    engine: DryRun  # What the passes are tried on
    settings: ClusterSettings  # The job's
    stage: Callable[..., AbstractContextManager[None]]  # Names the passes; see `planning`
    starts_cluster: bool  # Whether the job starts a cluster of its own
    memory_limit: int | None  # Bytes per worker, where a limit is known; a cluster of the job's own has one by default
    options: PassOptions  # Of every pass

    def place(self, source: Source) -> str:
        """Return where a run would hold these rows between iterations: "client", "workers" or nowhere ("source")."""
        limit = self.memory_limit
        if limit is None and self.starts_cluster:
            limit = local_memory_limit()
        sized = cast(Engine, replace(self.engine, memory_limit=limit))
        if self.starts_cluster:
            sized = iterating_engine(sized, source.n_rows * 8 * (source.n_columns + 1))
        return placement(source, self.settings.n_clusters, sized)


def forecast_kmeans(iterated: Iterated, source: Source, name: str) -> int:
    """Ask for every pass of k-means over a source; return the bytes that the client holds meanwhile."""
    settings = iterated.settings
    source = replace(source, takes_sparse=True)
    k = settings.n_clusters
    place, partition = iterated.place(source), partition_nbytes(source, k)
    where = "client" if place == "client" else "workers"
    options = iterated.options.but(partition_bytes=partition)
    rows: Source = source
    if place != "source":
        with iterated.stage(name, where=where):
            blocks = reduce_blocks(source, LOAD_ROWS, options).value
        rows = CachedSource.of(source, blocks)
    passes = Passes(rows, options)
    starts = seeding.n_starts(settings.n_init, k, source.n_columns)
    seed = derive_seed(settings.random_state, "k-means", 0)
    with iterated.stage(name, where=where):
        surveyed = seeding.survey(passes, settings.seeding, k, seed, starts)
        centers = seeding.initial_centers(passes, settings.seeding, k, seed, surveyed, starts)
    most = settings.max_iter
    with iterated.stage(name, where=where, repeats=min(TYPICAL_ITERATIONS, most), most=most):
        passes.sums(CentroidSums(centers=centers), "k-means: iterations")
        if isinstance(rows, CachedSource) and iterated.engine.seconds:
            _measure_iterations(iterated, rows, options)
    with iterated.stage(name, where=where):
        label_rows(passes, centers)
    return prepared_nbytes(source, k) if place == "client" else 0


def _measure_iterations(iterated: Iterated, rows: CachedSource, options: PassOptions) -> None:
    """Put number and time of iterations on the rows that were tried into the plan: bounds make most of them cheap."""
    settings, engine = iterated.settings, iterated.engine
    block = next(iter(rows.blocks.values()))
    parameters = KMeansParameters(
        settings.n_clusters, settings.seeding, 1, settings.max_iter, settings.tol, settings.random_state
    )
    tried, serial = Source(open_matrix(block.values)), options.but(engine=LocalEngine(kind="serial"), checkpoint=None)
    fit_kmeans(tried, replace(parameters, max_iter=1), serial)
    (_, once), (result, all_of_them) = (
        timed(partial(fit_kmeans, tried, one, serial)) for one in (replace(parameters, max_iter=1), parameters)
    )
    scale = rows.n_rows / (block.stop - block.start) / engine.last_tree.n_leaves
    pass_ = engine.simulated(0.0, scale * max(0.0, all_of_them - once) / max(1, result.n_iter - 1))
    engine.passes[-1] = replace(
        engine.passes[-1], repeats=result.n_iter, seconds=pass_.seconds, bottleneck=pass_.bottleneck
    )


def forecast_range(iterated: Iterated, features: Source) -> None:
    """Ask for the passes that a range of numbers of clusters takes, where the job wants one."""
    settings = iterated.settings
    if settings.range is None:
        return
    with iterated.stage("range of clusters"):
        try:
            range_of_source(features, numbers(settings.range), iterated.options, random_state=settings.random_state)
        except BadParameter:
            # Too few rows were tried for the largest number; the passes are the same for fewer.
            range_of_source(features, (2, 3), iterated.options, random_state=settings.random_state)
