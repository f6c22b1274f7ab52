"""The forecast of a job: its own stages in a dry run, one measured partition of every pass, and a formula for the rest.

These belong together: the stages ask the dry run for passes, and it puts the formula's answer into the plan.
"""

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
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect import _kernel_cache
from sketchselect._byte_sizes import format_bytes
from sketchselect._memory import can_reset, peak_nbytes, resident_nbytes
from sketchselect._progress import Progress, Result, Statistics, reporting_tasks
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
from sketchselect.execution.plan import COMPILING_NBYTES, PROCESS_NBYTES, Engine, Plan, projection, reading_nbytes
from sketchselect.execution.source import Block, CachedSource
from sketchselect.execution.summarize import plan_summary, summary_projection
from sketchselect.execution.tasks import read_block
from sketchselect.execution.tree import FAN_IN, MergeTree
from sketchselect.job.load import load_job
from sketchselect.job.schema import ClusterSettings, JobConfig
from sketchselect.linalg.csr import take_columns
from sketchselect.linalg.hashing import derive_seed
from sketchselect.linalg.panel_columns import ROWS_NBYTES
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats
from sketchselect.readers import Vector, open_matrix
from sketchselect.readers.base import Matrix, Partitions
from sketchselect.selectors.timelines import scan_plan
from sketchselect.summaries import BlockBound, Bundle, CentroidSums, RowSample, Summary
from sketchselect.summaries.frequent_directions import PANEL_NBYTES
from sketchselect.summaries.moment_panels import ComomentPanel, is_wide_sketch
from sketchselect.workflow.folder import open_folder
from sketchselect.workflow.plan.report import ClusterSpec, ForecastPass, JobForecast, limit_for, warnings_of
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

T = TypeVar("T")

VECTORS = 48
"""Vectors of all columns that the process which selects on the panels of a sketch has at most, with its text files."""

TASK_SECONDS = 0.002
"""Time of a Dask scheduler and client for a task, one after the other; measured values are around 1 to 2 ms."""

NETWORK_BYTES = 500e6
"""Bytes a second from worker to worker: about half of 10 Gbit/s, packing included."""


@dataclass(frozen=True)
class PassCosts:
    """Seconds of a pass on one slot."""

    n_leaves: int
    read: float  # Reading and decoding the rows of one leaf
    compute: float  # Preparing and summarising them
    merge: float = 0.0  # Merging two states
    state_nbytes: int = 0
    leaf_nbytes: int = 0  # Of a leaf as read, for a store that all workers share
    fan_in: int = FAN_IN


@dataclass(frozen=True)
class ClusterCosts:
    """What a pass runs on."""

    slots: int  # Tasks at a time
    task: float = TASK_SECONDS  # Seconds of the scheduler for a task; 0 on threads
    network: float = NETWORK_BYTES  # Bytes a second of one worker, for states
    store: float = float("inf")  # Bytes a second of the store, for all workers
    cores: int | None = None  # Processors that all slots and the scheduler share, where they are on one machine


@dataclass(frozen=True)
class PassEstimate:
    """Estimated seconds of a pass, and their largest part.

    `bottleneck`: "reading", "computing" or "merging", whichever has most of the slots' time; "scheduler" where its time
    alone is more than the slots need; "partitions" where they are too few to have all slots at work.
    """

    seconds: float
    bottleneck: str


def estimate_pass(costs: PassCosts, cluster: ClusterCosts) -> PassEstimate:
    """Return the estimated seconds of a pass of L leaves on S slots, from the seconds of one leaf and of one merge.

    ``T = max(ceil(L / S) leaf + last task, L task + leaf) + max((L - 1) merge / S, chain)``: waves of leaves, the last
    with `last` leaves, or the scheduler sending L tasks one by one, then one leaf; and the merges, shared by
    the slots, or one level of the tree after the other (`chain`, fan_in - 1 merges a level). No less than the scheduler
    takes for all tasks, nor than all work takes the processors of one machine. A merge includes bringing a state to
    another worker, and the store bounds how fast S slots read. Each summand is a lower bound of any schedule, so T is
    at most three times the best. O(depth of the tree).

    Examples
    --------
    >>> costs = PassCosts(n_leaves=1_000_000, read=0.1, compute=0.3, merge=0.01)
    >>> ten, many = (estimate_pass(costs, ClusterCosts(slots)) for slots in (10, 10_000))
    >>> round(ten.seconds), ten.bottleneck, many.bottleneck  # (10^6 * 0.4 + 10^6 * 0.01) / 10
    (41000, 'computing', 'scheduler')
    """
    n, slots = costs.n_leaves, cluster.slots
    leaf = max(costs.read, slots * costs.leaf_nbytes / cluster.store) + costs.compute
    merge = costs.merge + (costs.state_nbytes / cluster.network if slots > 1 else 0.0)
    n_tasks, chain, above = n, 0.0, n
    while above > 1:
        chain += (min(costs.fan_in, above) - 1) * merge
        n_tasks += above // costs.fan_in + (above % costs.fan_in > 1)
        above = -(-above // costs.fan_in)
    work, waves, scheduler = n * leaf + (n - 1) * merge, -(-n // slots), n_tasks * cluster.task
    merging = max((n - 1) * merge / slots, chain)
    leaves = max(waves * leaf + (n - (waves - 1) * slots) * cluster.task, n * cluster.task + leaf)
    seconds = max(leaves + merging, scheduler, (work + scheduler) / (cluster.cores or math.inf))
    bounds = {
        "reading": n / slots * (leaf - costs.compute),
        "computing": n / slots * costs.compute,
        "merging": merging,
        # The rest of a leaf that several slots share, and the last wave if it is not full.
        "partitions": (waves - n / slots) * leaf,
    }
    if scheduler > work / slots:
        bounds["scheduler"] = scheduler
    return PassEstimate(seconds, max(bounds, key=lambda name: bounds[name]))


LEAST_ROWS = 256
"""Rows of the first partition that every pass is tried on."""

LEVEL_ROWS, LEVEL_ENTRIES = 1 << 14, 1 << 22
"""Rows that levels of text are looked up in, and their entries, at most: a level that is not seen is not stated."""

MANY = 8
"""Times as many rows in a partition from which a second few of them are tried."""

FEWEST_MEASURED = 0.5
"""Share of a partition that has to be run for its memory to be taken for that of a whole one."""


@dataclass
class DryRun(Engine):
    """Runs a few rows of every pass in this thread; the result of a pass is that of those rows.

    Reading, preparing, summarising and merging use the code of a run, and so does planning the pass: numbers of
    partitions and tasks, bytes and the projection are those of a run.
    """

    kind: str  # "dask", "threads", "serial"; Of the engine that the passes are planned for
    # n_workers, slots_per_process: Its processes, and tasks at a time in each
    n_workers: int
    slots_per_process: int = 1
    seconds: float = 0.0  # Seconds for timing; 0 tries `rows` rows of every pass and times nothing
    rows: int = LEAST_ROWS  # Fewest rows that are tried
    least_rows: int = 0  # Rows that are tried although a partition has fewer: k-means needs one for each cluster
    stage: str = ""  # Stage of the job that passes belong to from now on
    # Rows of a file that an earlier pass has written only the beginning of
    most_rows: int | None = None
    where: str = "workers"  # "workers" or "client": would run the tasks of passes from now on
    repeats: tuple[int, int] = (1, 1)  # Typical and largest number of times that passes would be run from now on
    passes: list[ForecastPass] = field(default_factory=list)  # The passes so far
    memory_limit: int | None = None
    due: float = math.inf  # Time of `time.monotonic` from which there are no more passes than `enough`
    enough: int = 0
    spent: float = 0.0
    last_rows: int = 0  # Rows of the last pass that were run
    # Processors that slots and scheduler share, where all are on this machine
    cores: int | None = None
    # Of the last pass
    last_tree: MergeTree = field(default_factory=lambda: MergeTree(1))
    last_state_nbytes: int = 0
    trial_nbytes: int = 0  # Bytes that the trials of the first rows took in this process, at most

    def __post_init__(self) -> None:
        self.n_slots = self.n_workers * self.slots_per_process

    def peak_nbytes(self) -> int | None:
        """Return None: nothing is run."""
        return None

    def run(self, work: Plan[T]) -> Result[T]:
        """Record the pass, and return the state of its first rows in place of that of all rows.

        Raises `TrialStopped` if it is too late for another one.
        """
        if len(self.passes) >= self.enough and time.monotonic() > self.due:
            raise TrialStopped(0.0)
        source, tree, partitions = work.source, work.tree, work.partitions
        nodes = {node for node in tree.post_order() if node.level <= tree.depth}
        n_children = [len(tree.children(node)) for node in nodes]
        matrix, is_cached, remote = source.matrix, isinstance(source, CachedSource), self._is_remote
        projected = work.projected
        if self.kind == "dask" and not remote:
            # In threads of the process that the job is started in.
            ahead = work.context.reads_ahead
            projected = projection(source, partitions, tree, work.context.reduction, LocalEngine(), reads_ahead=ahead)
        nbytes = matrix.stored_nbytes(partitions.edges[0], partitions.edges[-1])
        trial = _Trial(self, work)
        value = trial.value()
        if not is_cached:
            few = Partitions((partitions.edges[0], trial.last_of_few))
            self.trial_nbytes = max(self.trial_nbytes, int(reading_nbytes(source, few)))
        # On a cluster, a leaf of a pass that reads ahead is a task for each of its partitions.
        if remote and work.context.reads_ahead:
            work = replace(work, prefetched=lambda span: None)
        state, n_tasks = int(_nbytes(value) / trial.columns_tried), len(work.graph(tree.root, {}))
        slots = self.slots_per_process * (1 + work.context.reads_ahead)
        chain = len(partitions) / tree.n_leaves
        self.last_tree, self.last_state_nbytes = tree, state
        read = None if trial.read is None else chain * trial.read
        leaf = None if trial.leaf is None or read is None else read + chain * trial.leaf
        estimate = None
        if leaf is not None and read is not None:
            at_once = min(work.leaf_tasks, self.n_slots)
            estimate = self.estimate(read / at_once, (leaf - read) / at_once, trial.merge or 0.0)
        # A merge of m children has the states of m - 1 of them brought to the first.
        n_transfers = sum(n - 1 for n in n_children if n) * (1 - 1 / self.n_workers) + 1 if remote else 0
        waiting = tree.most_waiting
        self.passes.append(
            ForecastPass(
                stage=self.stage or work.stage,
                name=work.stage,
                where=self.where,
                repeats=self.repeats[0],
                repeats_most=self.repeats[1],
                rows=partitions.edges[-1] - partitions.edges[0],
                partitions=len(partitions),
                tasks=n_tasks,
                bytes_read=0 if is_cached else nbytes,
                network_bytes=int(n_transfers * state),
                state_bytes=state,
                partition_bytes=max(matrix.stored_nbytes(*partitions[i]) for i in range(len(partitions))),
                projected_bytes=projected.nbytes,
                rise_bytes=None if trial.peak is None else slots * trial.peak,
                waiting_bytes=waiting * state // self.n_workers,
                leaf_seconds=leaf,
                seconds=None if estimate is None else estimate.seconds,
                bottleneck=None if estimate is None else estimate.bottleneck,
                amplification=partitions.read_amplification,
                cached=is_cached,
                leaf_tasks=work.leaf_tasks,
            )
        )
        self.spent += trial.spent
        self.last_rows = trial.rows
        return Result(value, Statistics(rows_read=partitions.edges[-1], bytes_read=nbytes, n_tasks=len(nodes)))

    @property
    def _is_remote(self) -> bool:
        return self.kind == "dask" and self.where == "workers"

    def estimate(self, read: float, compute: float, merge: float = 0.0) -> PassEstimate:
        """Return the time of the last pass on the planned cluster, from the seconds of a leaf and of a merge."""
        tree, remote = self.last_tree, self._is_remote
        sent = self.last_state_nbytes if remote and self.n_workers > 1 else 0
        costs = PassCosts(tree.n_leaves, read, compute, merge, sent, fan_in=tree.fan_in)
        task = TASK_SECONDS if remote else 0.0
        return estimate_pass(costs, ClusterCosts(self.n_slots, task, cores=self.cores))


class _Trial:
    """The trial of one pass: a few rows first, to warm up, then the rest of the partition if time allows."""

    def __init__(self, engine: DryRun, work: Plan[Any]) -> None:
        self.engine, self.work = engine, work
        self.read: float | None = None
        self.leaf: float | None = None
        self.merge: float | None = None
        self.peak: int | None = None
        self.spent = 0.0
        self.rows = 0
        # A sketch in panels of columns is tried on as many columns as a panel has, from all over the matrix: the whole
        # state may be more than this machine has.
        self.step = 1
        sketch, n_columns = work.context.reduction.in_panels, work.source.n_columns
        if sketch is not None:
            self.step = len(sketch.column_panels(n_columns)) - 1
        self.columns_tried = len(range(0, n_columns, self.step)) / n_columns

    @property
    def _last(self) -> int:
        """End of the rows that may be tried."""
        first, last = self.work.partitions[0]
        last = max(last, min(first + self.engine.least_rows, self.work.partitions.edges[-1]))
        return last if self.engine.most_rows is None else min(last, self.engine.most_rows)

    @property
    def last_of_few(self) -> int:
        """End of the rows that are tried first."""
        first = self.work.partitions[0][0]
        return min(first + max(self.engine.rows, self.work.step_rows), self._last)

    def value(self) -> Any:
        """Run it, and return the state."""
        began = time.perf_counter()
        source = self.work.source
        first, last = self.work.partitions[0][0], self._last
        few = self.last_of_few
        with one_blas_thread():
            if isinstance(source, CachedSource):
                block = _largest(source)
                value, _ = timed(lambda: self.work.context.reduction.leaf(block))
                if self.engine.seconds:
                    # Again, now that everything is compiled and loaded.
                    value, seconds = timed(lambda: self.work.context.reduction.leaf(block))
                    self.leaf = seconds * self._scale(block.stop - block.start)
                    self.read = 0.0
            else:
                value = self._from_rows(first, few, last)
        self.spent = time.perf_counter() - began
        return value

    def _from_rows(self, first: int, few: int, last: int) -> Any:
        reduction = self.work.context.reduction
        block = self._block(first, few)
        value = reduction.leaf(block)
        self.rows = few - first
        if not self.engine.seconds:
            return value
        # Again, with more rows if most of the partition is left: the first trial compiles kernels and loads modules,
        # and would make the rest look too slow.
        begin, end = (few, 2 * few - first) if MANY * (few - first) <= last - first else (first, few)
        second, warm = timed(lambda: reduction.leaf(self._block(begin, end)))
        left = self.engine.seconds - self.engine.spent
        del block
        if end < last and warm * (last - end) / max(end - begin, 1) > 0.5 * left:
            # Too slow for a whole partition: as many rows again.
            last = min(last, end + max(1, few - first))
        start, stop = (end, last) if end < last else (begin, end)
        before = resident_nbytes(reset_peak=True)
        again, read = timed(lambda: self._block(start, stop))
        more, seconds = timed(functools.partial(reduction.leaf, again))
        del again
        # Two merges of three states: every second merge of two sketches shrinks, and the first does not.
        others = [] if start == first else [second, more] if begin > first else [more]
        unmerged = value
        if others:
            value, merging = timed(lambda: functools.reduce(reduction.merge, others, unmerged))
            self.merge = merging / len(others) / self.columns_tried
        peak = peak_nbytes()
        if self.merge is not None and self.merge > max(seconds, SLOW_MERGE):
            # Longer than a leaf, which is rare: again, now that the kernels of a merge are compiled.
            _, merging = timed(lambda: functools.reduce(reduction.merge, others, unmerged))
            self.merge = min(self.merge, merging / len(others) / self.columns_tried)
        rows, self.rows = stop - start, stop - first
        full = self.work.partitions[0][1] - self.work.partitions[0][0]
        if can_reset() and rows >= FEWEST_MEASURED * full and self.step == 1:
            self.peak = int(max(0, peak - before) * min(full / rows, 1 / FEWEST_MEASURED))
        self.leaf = seconds * self._scale(rows)
        self.read = read * self._decoded(0, full) / self._decoded(start, stop)
        return value

    def _block(self, start: int, stop: int) -> Block:
        block = read_block(self.work.source, start, stop, self.work.context.retries)
        if self.step == 1:
            return block
        return replace(block, values=take_columns(block.values, np.arange(0, self.work.source.n_columns, self.step)))

    def _scale(self, rows: int) -> float:
        first, last = self.work.partitions[0]
        return (last - first) / max(rows, 1) / self.columns_tried

    def _decoded(self, start: int, stop: int) -> int:
        """Return the rows that are decoded for some rows: whole chunks."""
        height = self.work.source.matrix.chunk_rows
        return max(1, -(-stop // height) * height - start // height * height)


def _largest(source: CachedSource) -> Block:
    """Return the block of most rows: what a call takes whatever its rows, counted for every few, would look slow."""
    blocks: list[Block] = list(source.blocks.values())
    return max(blocks, key=lambda block: block.stop - block.start)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call, and its seconds."""
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


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


def _nbytes(value: Any) -> int:
    nbytes = getattr(value, "nbytes", None)
    return int(nbytes) if isinstance(nbytes, int) else sys.getsizeof(value)


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
    block = _largest(rows)
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

SLOW_MERGE = 0.1
"""Seconds above which a merge that takes longer than a leaf is timed again."""

MOST_SELECTING_NBYTES = 2**28
"""Memory beyond which columns are not selected for a plan: knockoffs of 2,500 columns take minutes."""

NOT_TRIED = "selecting takes too long, or too much memory, to be tried here: the estimated time is without it"


class TrialStopped(Exception):
    """What is tried for a plan takes too long: `seconds` in all, as far as that can be told."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


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
