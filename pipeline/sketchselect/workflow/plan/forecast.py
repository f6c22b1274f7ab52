"""The forecast of a job: its own stages in a dry run."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect import _kernel_cache
from sketchselect._byte_sizes import format_bytes
from sketchselect._memory import resident_nbytes
from sketchselect._progress import Progress, reporting_tasks
from sketchselect.cluster import KMeansParameters, fit_kmeans, reassign_source
from sketchselect.cluster.certificates.block import block_partition_bytes
from sketchselect.cluster.kmeans import seeding
from sketchselect.cluster.kmeans.lloyd import label_rows
from sketchselect.cluster.kmeans.passes import (
    LOAD_ROWS,
    Passes,
    kept_nbytes,
    partition_nbytes,
    placement,
    prepared_nbytes,
)
from sketchselect.cluster.n_clusters import range_of_source
from sketchselect.cluster.preparation import comparing_nbytes, costliest
from sketchselect.errors import BadParameter, EmptyInput, SketchSelectError
from sketchselect.execution import LocalEngine, PassOptions, Source, reduce_blocks, summarize_source
from sketchselect.execution.clusters import local_memory_limit
from sketchselect.execution.engine import available_cores, compute_plan, source_identities
from sketchselect.execution.plan import COMPILING_NBYTES, PROCESS_NBYTES, Engine
from sketchselect.execution.source import CachedSource
from sketchselect.execution.summarize import plan_summary, summary_projection
from sketchselect.job.load import load_job
from sketchselect.job.schema import ClusterSettings, JobConfig
from sketchselect.linalg.hashing import derive_seed
from sketchselect.linalg.panel_columns import ROWS_NBYTES
from sketchselect.linalg.validation import Floats
from sketchselect.readers import Vector, open_matrix
from sketchselect.readers.base import Matrix
from sketchselect.selectors.timelines import scan_plan
from sketchselect.summaries import BlockBound, Bundle, CentroidSums, RowSample, Summary
from sketchselect.summaries.frequent_directions import PANEL_NBYTES
from sketchselect.summaries.moment_panels import ComomentPanel, is_wide_sketch
from sketchselect.workflow.folder import open_folder
from sketchselect.workflow.plan.dry_run import DryRun, TrialStopped, largest_block, timed
from sketchselect.workflow.plan.report import ClusterSpec, JobForecast, limit_for, warnings_of
from sketchselect.workflow.session import (
    ON_THREADS,
    Session,
    check_session,
    identifiers,
    iterating_engine,
    require_weights,
    unused_columns,
)
from sketchselect.workflow.stages import columns as column_stage
from sketchselect.workflow.stages.clustering import numbers, stage_name
from sketchselect.workflow.stages.columns import choose_preparation, prepare
from sketchselect.workflow.stages.evaluation import solved_blocks
from sketchselect.workflow.stages.features import feature_pass

VECTORS = 48
"""Vectors of all columns that the process which selects on the panels of a sketch has at most, with its text files."""

LEVEL_ROWS, LEVEL_ENTRIES = 1 << 14, 1 << 22
"""Rows that levels of text are looked up in, and their entries, at most: a level that is not seen is not stated."""


def idle_worker_nbytes() -> int:
    """Return the memory of a process with a worker's libraries and kernels; `PROCESS_NBYTES` if it fails."""
    code = (
        "import distributed.worker, distributed.nanny, sketchselect.execution.tasks, zarr, numpy\n"
        "import sketchselect as sks\n"
        "from sketchselect._memory import peak_nbytes\n"
        "rows = numpy.random.default_rng(0).random((64, 8))\n"
        "kinds = {'a': sks.ColumnStats(), 'b': sks.FrequentDirections(4), 'c': sks.Moments()}\n"
        "sks.summarize(rows, kinds, prepare=['l2'], client='serial')\n"
        "print(peak_nbytes())"
    )
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120, check=True
        )
        return int(process.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return PROCESS_NBYTES


TYPICAL_ITERATIONS = 20
"""Iterations that are planned for; how many there will be depends on the data, `max_iter` is the most."""


@dataclass(frozen=True)
class Iterated:
    """Options for planning the passes of k-means."""

    engine: DryRun  # The engine that tries the passes
    settings: ClusterSettings  # The job's
    stage: Callable[..., AbstractContextManager[None]]  # Names the passes; see `_Walk.stage`
    starts_cluster: bool  # Whether the job starts a cluster of its own
    memory_limit: int | None  # Bytes per worker, where a limit is known; a cluster of the job's own has one by default
    options: PassOptions  # Of every pass

    def place(self, source: Source) -> str:
        """Return where a run would keep these rows between iterations: "client", "workers" or nowhere ("source")."""
        limit = self.memory_limit
        if limit is None and self.starts_cluster:
            limit = local_memory_limit()
        limited_engine = cast(Engine, replace(self.engine, memory_limit=limit))
        if self.starts_cluster:
            limited_engine = iterating_engine(limited_engine, source.n_rows * 8 * (source.n_columns + 1))
        return placement(source, self.settings.n_clusters, limited_engine)


def forecast_kmeans(iterated: Iterated, source: Source, name: str, *, from_sample: bool = False) -> int:
    """Plan every pass of k-means over a source; return the bytes that the client holds meanwhile.

    `from_sample`: Whether a second run begins with the clusters of the summary's sample of rows.
    """
    client_nbytes, centers = _forecast_run(iterated, source, name)
    if from_sample:
        _forecast_run(iterated, source, name, centers)
    return client_nbytes


def _forecast_run(iterated: Iterated, source: Source, name: str, given: Floats | None = None) -> tuple[int, Floats]:
    """Plan every pass of one run; return the bytes that the client holds meanwhile, and centres.

    `given`: Centres, of which the first iteration takes the place of a survey.
    """
    settings = iterated.settings
    source = replace(source, takes_sparse=True)
    k = settings.n_clusters
    location, partition = iterated.place(source), partition_nbytes(source, k)
    where = "client" if location == "client" else "workers"
    options = iterated.options.but(partition_bytes=partition)
    rows: Source = source
    if location != "source":
        held_nbytes = kept_nbytes(source, k, iterated.engine, location)
        with iterated.stage(name, where=where):
            blocks = reduce_blocks(source, replace(LOAD_ROWS, caller_nbytes=held_nbytes), options).value
        if location == "workers":
            # Each keeps the blocks that it has read while it reads more.
            last = iterated.engine.passes[-1]
            iterated.engine.passes[-1] = replace(last, projected_bytes=last.projected_bytes + held_nbytes)
        rows = CachedSource.of(source, blocks, held_nbytes)
    passes = Passes(rows, options)
    starts = seeding.n_starts(settings.n_init, k, source.n_columns)
    seed = derive_seed(settings.random_state, "k-means", 0)
    centers = given
    if centers is None or source.weight is not None:
        init = settings.seeding if given is None else given
        with iterated.stage(name, where=where):
            survey = seeding.survey(passes, init, k, seed, starts)
            centers = seeding.initial_centers(passes, init, k, seed, survey, starts)
    most = settings.max_iter
    with iterated.stage(name, where=where, repeats=min(TYPICAL_ITERATIONS, most), most=most):
        passes.sums(CentroidSums(centers=centers), "k-means: iterations")
        if isinstance(rows, CachedSource) and iterated.engine.seconds:
            _measure_iterations(iterated, rows, options)
    with iterated.stage(name, where=where):
        label_rows(passes, centers)
    return prepared_nbytes(source, k) if location == "client" else 0, centers


def _measure_iterations(iterated: Iterated, rows: CachedSource, options: PassOptions) -> None:
    """Put number and time of iterations, measured on some rows, into the plan: bounds make most iterations cheap."""
    settings, engine = iterated.settings, iterated.engine
    block = largest_block(rows)
    parameters = KMeansParameters(
        settings.n_clusters, settings.seeding, 1, settings.max_iter, settings.tol, settings.random_state
    )
    sample, serial = Source(open_matrix(block.values)), options.but(engine=LocalEngine(kind="serial"), checkpoint=None)
    fit_kmeans(sample, replace(parameters, max_iter=1), serial)
    (_, once), (result, all_of_them) = (
        timed(functools.partial(fit_kmeans, sample, settings_of_run, serial))
        for settings_of_run in (replace(parameters, max_iter=1), parameters)
    )
    scale = rows.n_rows / (block.stop - block.start) / engine.last_tree.n_leaves
    pass_ = engine.estimate(0.0, scale * max(0.0, all_of_them - once) / max(1, result.n_iter - 1))
    engine.passes[-1] = replace(
        engine.passes[-1], repeats=result.n_iter, seconds=pass_.seconds, bottleneck=pass_.bottleneck
    )


def forecast_range(iterated: Iterated, features: Source) -> None:
    """Plan the passes of a range of numbers of clusters, if the job has one."""
    settings = iterated.settings
    if settings.range is None:
        return
    with iterated.stage("range of clusters"):
        try:
            range_of_source(features, numbers(settings.range), iterated.options, random_state=settings.random_state)
        except BadParameter:
            # Too few rows were tried for the largest number; the passes are the same for fewer.
            range_of_source(features, (2, 3), iterated.options, random_state=settings.random_state)


CALIBRATION_SECONDS = 10.0
"""Seconds that the calibration may take; the first rows of every pass are tried in any case."""

MOST_SELECTING_NBYTES = 2**28
"""Memory beyond which columns are not selected for a plan: knockoffs of 2,500 columns take minutes."""

NOT_TRIED = "selecting takes too long, or too much memory, to be tried here: the estimated time is without it"


class TimedSteps(Progress):
    """Stops a selection that takes longer than a calibration may, and estimates how long it would take.

    Of nested steps the outermost tell how much is left; their first one is waited for a while.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._nested: list[tuple[int, int]] = []  # Number of steps, and of those done

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        """Steps begin."""
        self._nested.append((n_partitions, 0))

    def advance(self, nbytes: int) -> None:
        """Count a step; raise `TrialStopped` when it is late."""
        total, done = self._nested[-1]
        self._nested[-1] = (total, done + 1)
        seconds, (total, done) = time.monotonic() - self._began, self._nested[0]
        if seconds > CALIBRATION_SECONDS * (1 if done else 3):
            raise TrialStopped(seconds * total / max(done, 1))

    def finish(self, stage: str) -> None:
        """Steps end."""
        self._nested.pop()


ASSUMED_SHARE = 10
"""One in this number of columns is assumed to be selected if neither the job nor a few rows tell."""


class CyclicLabels(Vector):
    """Labels 0, 1, ..., k - 1, 0, 1, ...: stand in for the labels of k-means.

    `n_rows`, `n_clusters`: Entries, and different ones.
    """

    address = "labels to be found"

    def __init__(self, n_rows: int, n_clusters: int) -> None:
        self.shape, self.dtype, self.n_clusters = (n_rows,), np.dtype(np.int32), n_clusters

    def read(self, start: int, stop: int) -> NDArray[np.int32]:
        """Return entries `start` to `stop`."""
        return (np.arange(start, stop) % self.n_clusters).astype(np.int32)

    def identity(self) -> str | None:
        """Return None: it is not data."""
        return None


def forecast_job(
    job: str | os.PathLike[str] | Mapping[str, Any] | JobConfig,
    *,
    overrides: Sequence[str] = (),
    n_workers: int | None = None,
    calibrate: bool = True,
    price: float | None = None,
) -> JobForecast:
    """Return the reading, computing, memory and traffic of a run of this job from its beginning.

    Passes, partitions, tasks, bytes and the projection of memory come from the code that a run goes through; the first
    rows of every pass are really read, summarised and merged. Nothing is written outside a temporary folder, and no
    cluster is started or connected to.

    `job`: A TOML or YAML file, or its content.
    `overrides`: Settings ``section.key=value`` that win over the job's.
    `n_workers`: Workers to plan for (threads, where the job runs on threads); what the job says, or one per core, by
        default.
    `calibrate`: Whether to time about one partition of every pass on one thread, for at most about
        `CALIBRATION_SECONDS`, and to measure memory, that of workers where there are several partitions; without,
        there are no estimates of either.

    `price`: Of a worker for an hour, in any currency; with it the plan has a cost.

    Raises `ConfigError` or `SourceError` or `NotFinite` as `run` does, for the same mistakes; mistakes after the
    first rows are not found here.
    """
    config = job if isinstance(job, JobConfig) else load_job(job, overrides)
    require_weights(config)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="sketchselect-plan-") as folder, warnings.catch_warnings():
        # Warnings on a few rows say nothing about all rows.
        warnings.simplefilter("ignore")
        walk = _Walk(config, Path(folder), n_workers, calibrate, price)
        walk.all_stages()
        return walk.report(time.perf_counter() - began)


class _Walk:
    """The stages of a job, one after the other, on the engine of a dry run."""

    def __init__(
        self, config: JobConfig, folder: Path, n_workers: int | None, calibrate: bool, price: float | None
    ) -> None:
        self.config, self.calibrate, self.price = config, calibrate, price
        execution = config.execution
        self.n_given, self.n_asked = n_workers or execution.n_workers, n_workers
        self.engine = self._dry_run()
        # A temporary folder: no files of an earlier run, none left by this one.
        quiet = execution.model_copy(update={"checkpoint": False})
        if n_workers is not None:
            # Whoever gives a number plans for workers.
            quiet = quiet.model_copy(update={"cluster": execution.cluster})
        output = config.output.model_copy(update={"dir": str(folder / "out")})
        self.tried = config.model_copy(update={"execution": quiet, "output": output})
        self.folder = folder
        self.notes: list[str] = []
        self.client_nbytes = 0
        self.output_nbytes = 0
        self.select_seconds: float | None = None
        self.base_nbytes = resident_nbytes()
        if _kernel_cache.is_empty():
            self.notes.append(f"{format_bytes(COMPILING_NBYTES)} of the memory are for compiling kernels, once")

    def _dry_run(self) -> DryRun:
        """Return a dry run on the engine of the job."""
        config, where = self.config, self.config.execution.cluster
        count = 1 if where == "serial" else self.n_given or available_cores()
        threads = where == "threads"
        clusters = config.cluster.n_clusters if config.cluster else 0
        return DryRun(
            where if where in ("threads", "serial") else "dask",
            1 if threads else count,
            count if threads else 1,
            CALIBRATION_SECONDS if self.calibrate else 0.0,
            max(256, 4 * clusters),
            # For a job's own processes or threads; a given number may be meant for a larger machine.
            cores=available_cores() if where == "local" and self.n_asked is None else None,
        )

    def all_stages(self) -> None:
        """Go through the job as `workflow.job.run` does."""
        with open_folder(str(self.folder / "out"), fresh=False) as folder:
            session = self.session = Session(self.tried, folder, Progress())
            check_session(session)
            self.notes += (*unused_columns(session), *identifiers(session))
            if session.on_threads:
                execution = self.config.execution.model_copy(update={"cluster": "threads"})
                self.config = self.config.model_copy(update={"execution": execution})
                self.engine = self._dry_run()
                self.notes.append(ON_THREADS)
            session.client = self.engine
            if self.tried.prepare.steps == "auto":
                # Too few rows for the clusters; all of them may do.
                with self.stage("choose preparation"), contextlib.suppress(BadParameter, EmptyInput):
                    choose_preparation(session)
                assert self.config.cluster is not None
                self.client_nbytes = comparing_nbytes(session.rows, self.config.cluster.n_clusters)
                # The few rows that are tried here decide nothing: the most that a choice may need.
                steps = [step.description for step in costliest(session.rows)]
                session.prepare_with(steps)
                self.config = self.config.model_copy(update={"prepare": session.config.prepare})
                self.notes.append(f'prepare.steps = "auto" is decided in the run; {", ".join(steps)} is assumed here')
            with self.stage("prepare"), self._rows_for_levels(session.matrix):
                prepare(session)
            summary = self._summarize()
            support, plane = self._select(summary)
            self._timeline()
            if support.size and self.config.output.features:
                features = self._write_features(support, plane)
                if self.config.cluster is not None:
                    self._clusters(features, support)
            if self.config.output.anndata:
                from sketchselect.workflow.assignment import annotations_nbytes

                self.client_nbytes += annotations_nbytes(session)  # beside the summary

    @contextlib.contextmanager
    def _rows_for_levels(self, matrix: Matrix) -> Iterator[None]:
        """Try as many rows as it takes to see nearly all levels of text that become columns."""
        engine, before = self.engine, (self.engine.rows, self.engine.least_rows)
        if matrix.text_columns:
            rows = max(engine.rows, min(LEVEL_ROWS, LEVEL_ENTRIES // matrix.shape[1]))
            engine.rows, engine.least_rows = rows, max(rows, engine.least_rows)
        yield
        engine.rows, engine.least_rows = before

    @contextlib.contextmanager
    def stage(self, name: str, *, repeats: int = 1, most: int | None = None, where: str = "workers") -> Iterator[None]:
        """Name the passes planned in this context."""
        engine = self.engine
        engine.stage, engine.where, engine.repeats = name, where, (repeats, most or repeats)
        yield

    def _summarize(self) -> Summary[Any] | None:
        session = self.session
        session.selector.inspect_rows(session.source)
        bundle = column_stage.description(self.config, session.selector, session.n_columns)
        # A summary is there as it is received, too, and methods derive others of about its size from it.
        columns, in_panels = session.n_columns, column_stage.selects_in_panels(session)
        panels = [member for member in bundle.values() if in_panels and is_wide_sketch(member, columns)]
        whole = sum(member.projected_nbytes(columns) for member in panels)
        summarized = 4 * (bundle.projected_nbytes(columns, session.source.n_targets) - whole)
        passes, plans = plan_summary(session.source, bundle, session.pass_options)
        if [*passes] == [None] and (sparse := plans[0].context.reduction.sparse_state_nbytes) is not None:
            # From a worker it comes as a message, of which its arrays are copies.
            received = 2 if self.engine.kind == "dask" else 0
            summarized = (session.selector.selecting_copies + received) * sparse
        if panels:
            summarized += 8 * columns * VECTORS + 4 * ROWS_NBYTES
            if self.engine.kind != "dask":
                # All panels, and one that is read from the file.
                summarized += sum(8 * (member.size + 2) * columns + 2 * PANEL_NBYTES for member in panels)
        self.client_nbytes = max(self.client_nbytes, summarized, session.selector.selecting_nbytes(session.source))
        with self.stage("summarize"):
            if [*passes] == [None]:
                return column_stage.summarize(session)
            # The whole is too much for a forecast; its panels are passes like any other.
            rest = iter(plans)
            for member, parts in passes.items():
                last = parts[-1]
                label = "a panel" if isinstance(last, ComomentPanel) else "the sketch"
                label = "other members" if member is None else label
                for plan in islice(rest, len(parts)):
                    reduction = replace(plan.context.reduction, stage=f"summarize, {label}")
                    plan = replace(plan, context=replace(plan.context, reduction=reduction))
                    compute_plan(plan, session.pass_options, source_identities(plan.source))
                if member is not None and last not in panels:
                    whole = 8 * last.stop**2 if isinstance(last, ComomentPanel) else last.projected_nbytes(columns)
                    self.client_nbytes = max(self.client_nbytes, 2 * whole)
        return None

    def _select(self, summary: Summary[Any] | None) -> tuple[NDArray[np.int64], Any]:
        """Return the columns that the first rows select, or as many as there may be, and the plane of the view."""
        session = self.session
        n_columns, asked = session.n_columns, self.config.select.n_features
        n_features = asked if isinstance(asked, int) else None
        support: NDArray[np.int64] | None = None
        if summary is not None and session.selector.selecting_nbytes(session.source) > MOST_SELECTING_NBYTES:
            self.notes.append(NOT_TRIED)
        elif summary is not None:
            selection_summary = self._collect(summary)
            began = time.perf_counter()
            try:
                if selection_summary is not None:
                    with reporting_tasks(TimedSteps()):
                        selection, _ = column_stage.select(session, selection_summary, summary)
                    support = np.asarray(selection.support, dtype=np.int64)
                    self.select_seconds = time.perf_counter() - began
            except TrialStopped as stopped:
                self.select_seconds = stopped.seconds
            except (SketchSelectError, ValueError, ArithmeticError, np.linalg.LinAlgError):
                # Too few rows for the method; all of them may do.
                support = None
        if n_features is not None and (support is None or support.size != n_features) and n_features <= n_columns:
            support = np.arange(n_features, dtype=np.int64)
        elif support is None or support.size == 0:
            support = np.arange(max(1, n_columns // ASSUMED_SHARE), dtype=np.int64)
            self.notes.append(f"how many columns will be selected is unknown; {support.size} are assumed")
        elif n_features is None:
            self.notes.append(f"{support.size} columns are assumed to be selected, as by the first rows")
        plane = None if summary is None else column_stage.view_of(summary)
        return support, plane

    def _collect(self, summary: Summary[Any]) -> Summary[Any] | None:
        """Return what the method's own passes collect from the first rows; None if that takes too long."""
        engine, n_before, columns = self.engine, len(self.engine.passes), None
        with self.stage("collect"):
            # The first pass, and one of those that repeat.
            engine.due, engine.enough = time.monotonic() + CALIBRATION_SECONDS, n_before + 2
            try:
                columns = column_stage.collect(self.session, summary)
            except TrialStopped:
                self.notes.append(NOT_TRIED)
            finally:
                engine.due = math.inf
            self._repeat_last(n_before)
            self._enlarge_last(n_before)
        return columns

    def _repeat_last(self, n_before: int) -> None:
        """Put the number of passes that the rows decide on into the plan: a few rows need fewer."""
        source, passes = self.session.selection_source, self.engine.passes
        numbers = self.session.selector.n_passes(source.n_rows, source.n_columns)
        if numbers is not None and len(passes) > n_before:
            # The groups of models of the last step are repeated together.
            step = [one.name.partition(",")[0] for one in passes[n_before:]].count(passes[-1].name.partition(",")[0])
            usual, most = (max(n - (len(passes) - n_before) + step, 1) for n in numbers)
            passes[-step:] = [replace(one, repeats=usual, repeats_most=most) for one in passes[-step:]]

    def _enlarge_last(self, n_before: int) -> None:
        """Put the memory that all rows may take into the plan, where a few rows do not tell it."""
        session, passes = self.session, self.engine.passes
        source = session.selection_source
        self.client_nbytes = max(self.client_nbytes, session.selector.collecting_nbytes(source))
        description = session.selector.largest_pass(source)
        if description is not None and len(passes) > n_before:
            projected, *_ = summary_projection(source, description, session.pass_options)
            most = max(projected.nbytes, passes[-1].projected_bytes)
            passes[-1] = replace(passes[-1], projected_bytes=most)

    def _timeline(self) -> None:
        settings, session = self.config.timeline, self.session
        if settings is None:
            return
        from sketchselect.selectors.timelines import window_of

        description = session.selector.summary_description(session.n_columns)
        work = scan_plan(
            session.selection_source,
            description,
            repr,
            session.pass_options,
            points=settings.points,
            window=window_of(session.selector, settings.window, by_date=session.periods is not None),
            periods=session.periods,
            stage="timeline",
        )
        with self.stage("timeline"):
            self.engine.run(work)

    def _write_features(self, support: NDArray[np.int64], plane: Any) -> Source:
        session, path = self.session, self.folder / "features.zarr"
        source = session.written_rows
        if self.config.cluster is not None:
            self.engine.least_rows = self.config.cluster.n_clusters
        with self.stage("write features"):
            array, _ = feature_pass(source, support, path, plane, 0, session.pass_options)
        self.output_nbytes = array.nbytes + 4 * source.n_rows * (self.config.cluster is not None)
        return Source(open_matrix(str(path), nonfinite=self.config.input.nonfinite, missing_chunks="fill"))

    def _clusters(self, features: Source, support: NDArray[np.int64]) -> None:
        session, settings = self.session, self.session.cluster_settings
        rows, k = self.engine.last_rows, settings.n_clusters
        everything = session.rows
        with_labels = replace(everything, target=CyclicLabels(everything.n_rows, k))
        variants = settings.variants
        described = column_stage.description(self.config, session.selector, session.n_columns)
        kinds = {member.kind for member in described.values()} if isinstance(described, Bundle) else {described.kind}
        from_sample = settings.starts_open and RowSample.kind in kinds
        starts_cluster = self.config.execution.cluster == "local"
        limit = self.config.execution.memory_limit
        if limit is None and self.engine.kind == "dask" and not starts_cluster:
            # As if its workers had the memory limit that this plan will recommend.
            limit = limit_for(max(one.projected_bytes for one in self.engine.passes))
        iterated = Iterated(self.engine, settings, self.stage, starts_cluster, limit, session.pass_options)
        self.engine.most_rows = rows
        try:
            forecast_range(iterated, features)
            for variant in variants:
                nbytes = forecast_kmeans(iterated, features, stage_name(variant), from_sample=from_sample)
                self.client_nbytes = max(self.client_nbytes, nbytes)
        finally:
            self.engine.most_rows = None
        sums: Any = None
        for variant in variants:
            name = "inertia" if len(variants) == 1 else f"inertia, {variant}"
            with self.stage(name):
                sums = summarize_source(with_labels, CentroidSums(k), session.pass_options, stage="inertia").value
        if settings.reassign:
            with self.stage("reassign"):
                reassign_source(with_labels, cast(CentroidSums, sums), session.pass_options)
        self._certificate(features, support.size, rows)
        if settings.compare_all_columns:
            some = replace(everything, columns=tuple(range(support.size)))
            # Of all columns the clusters of the sample are one of the starts of the only run.
            for source, name, again in (
                (everything, "k-means on all columns", False),
                (some, "k-means on random columns", from_sample),
            ):
                nbytes = forecast_kmeans(iterated, source, name, from_sample=again)
                self.client_nbytes = max(self.client_nbytes, nbytes)
            with self.stage("k-means on random columns"):
                summarize_source(with_labels, CentroidSums(k), session.pass_options, stage="inertia")

    def _certificate(self, features: Source, n_selected: int, rows: int) -> None:
        session, engine = self.session, self.engine
        blocks = solved_blocks(self.config, session.rows, n_selected)
        if blocks.is_automatic:
            self.notes.append(blocks.sentence())
        if blocks.description is None:
            return
        # The block that is tried is solved, also of a sample.
        description = blocks.description
        if blocks.is_automatic:
            description = BlockBound(
                description.n_clusters, description.block_rows, seed=description.seed, triangles=description.triangles
            )
        passes: list[tuple[Source, str, int | None]] = [(session.rows, "block certificate", None)]
        if not blocks.is_automatic:
            passes.append((features, "block certificate of the selected columns", rows))
        for source, name, most in passes:
            engine.most_rows = most
            options = session.pass_options.but(partition_bytes=block_partition_bytes(description, source))
            with self.stage(name):
                summarize_source(source, description, options, stage=name)
        engine.most_rows = None
        last, share = engine.passes[-1], blocks.n_solved / max(blocks.n_blocks, 1)
        if blocks.is_automatic and last.leaf_seconds is not None and last.seconds is not None:
            engine.passes[-1] = replace(last, leaf_seconds=share * last.leaf_seconds, seconds=share * last.seconds)

    def report(self, seconds: float) -> JobForecast:
        """Return the plan."""
        execution = self.config.execution
        idle: int | None = None
        if self.calibrate and self.engine.kind != "dask":
            idle = self.base_nbytes
        elif self.calibrate and any(one.partitions > 1 for one in self.engine.passes):
            # Of one partition a worker is seldom asked for, and to start one takes longer than all passes.
            idle = idle_worker_nbytes()
        cluster = ClusterSpec(
            address=execution.cluster,
            kind=self.engine.kind,
            n_workers=self.engine.n_workers,
            slots=self.engine.slots_per_process,
            is_explicit=self.n_given is not None,
            memory_limit=execution.memory_limit,
            output=self.config.output.dir,
            price=self.price,
        )
        plan = JobForecast(
            source=self.session.matrix.describe(),
            method=self.config.select.method,
            prepared_columns=self.session.n_columns,
            reads_columns=self.session.selector.reads_columns,
            cluster=cluster,
            passes=tuple(self.engine.passes),
            idle_nbytes=idle,
            client_nbytes=max(self.client_nbytes, self.engine.trial_nbytes),
            loaded_nbytes=self.session.matrix.loaded_nbytes,
            output_nbytes=self.output_nbytes,
            select_seconds=self.select_seconds if self.calibrate else None,
            calibration_seconds=seconds if self.calibrate else None,
            missing_share=self.session.matrix.missing_share,
            notes=tuple(dict.fromkeys((*self.session.notes, *self.notes))),
        )
        return replace(plan, warnings=tuple(warnings_of(plan)))
