"""A dry run of passes: a few rows of each, measured, and a formula for the time of all of them."""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from sketchselect._memory import can_reset, peak_nbytes, resident_nbytes
from sketchselect._progress import Result, Statistics
from sketchselect.execution import LocalEngine
from sketchselect.execution.plan import Engine, Plan, projection, reading_nbytes
from sketchselect.execution.source import Block, CachedSource
from sketchselect.execution.tasks import read_block
from sketchselect.execution.tree import FAN_IN, MergeTree
from sketchselect.linalg.csr import take_columns
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.readers.base import Partitions
from sketchselect.workflow.plan.report import ForecastPass

T = TypeVar("T")

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

MANY = 8
"""Times as many rows in a partition from which a second few of them are tried."""

FEWEST_MEASURED = 0.5
"""Share of a partition that has to be run for its memory to be taken for that of a whole one."""

SLOW_MERGE = 0.1
"""Seconds above which a merge that takes longer than a leaf is timed again."""


class TrialStopped(Exception):
    """What is tried for a plan takes too long: `seconds` in all, as far as that can be told."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


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
            self.trial_nbytes = max(
                self.trial_nbytes, int(reading_nbytes(source, few, work.context.reduction.row_weights))
            )
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
                block = largest_block(source)
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


def largest_block(source: CachedSource) -> Block:
    """Return the block of most rows: what a call takes whatever its rows, counted for every few, would look slow."""
    blocks: list[Block] = list(source.blocks.values())
    return max(blocks, key=lambda block: block.stop - block.start)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call, and its seconds."""
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def _nbytes(value: Any) -> int:
    nbytes = getattr(value, "nbytes", None)
    return int(nbytes) if isinstance(nbytes, int) else sys.getsizeof(value)
