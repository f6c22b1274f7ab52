"""A dry run: an engine that runs the first rows of every pass, and notes what the whole of it would be."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sketchselect._memory import can_reset, peak_nbytes, resident_nbytes
from sketchselect._progress import Result, Statistics
from sketchselect.execution.engine import Engine
from sketchselect.execution.plan import PROCESS_NBYTES, Inputs, Plan
from sketchselect.execution.source import Block, CachedSource
from sketchselect.execution.tasks import read_block
from sketchselect.execution.tree import MergeTree
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.workflow.plan.report import ForecastPass
from sketchselect.workflow.plan.simulation import ClusterCosts, PassCosts, SimulatedPass, simulate_pass

T = TypeVar("T")

LEAST_ROWS = 256
"""Rows of the first partition that every pass is tried on."""

MANY = 8
"""Times as many rows in a partition from which a second few of them are tried."""

FEWEST_MEASURED = 0.5
"""Share of a partition that has to be run for its memory to be taken for that of a whole one."""


@dataclass
class DryRun(Engine):
    """Runs a few rows of every pass in this thread; the result of a pass is that of those rows.

    What reads, prepares, summarises and merges is what a run does it with, and so is what plans the pass: numbers
    of partitions and tasks, bytes and the projection are those that a run will have.
    """

    kind: str  # "dask", "threads", "serial"; Of the engine that the passes are planned for
    # n_workers, slots_per_process: Its processes, and tasks at a time in each
    n_workers: int
    slots_per_process: int = 1
    seconds: float = 0.0  # What may be spent on timing; 0 tries `rows` rows of every pass and times nothing
    rows: int = LEAST_ROWS  # Rows that are tried at least
    stage: str = ""  # Stage of the job that passes belong to from now on
    # Rows that there are, where a pass would read what an earlier one has written only the beginning of
    most_rows: int | None = None
    where: str = "workers"  # "workers" or "client": what would run the tasks of passes from now on
    repeats: tuple[int, int] = (1, 1)  # Typical and largest number of times that passes would be run from now on
    passes: list[ForecastPass] = field(default_factory=list)  # What was asked for so far
    memory_limit: int | None = None
    spent: float = 0.0
    last_rows: int = 0  # Rows of the last pass that were run
    # Processors that slots and scheduler share, where all are on this machine
    cores: int | None = None
    # Of the last pass
    last_tree: MergeTree = field(default_factory=lambda: MergeTree(1))
    last_state_nbytes: int = 0

    def __post_init__(self) -> None:
        self.n_slots = self.n_workers * self.slots_per_process

    def peak_nbytes(self) -> int | None:
        """Return None: nothing is run."""
        return None

    def run(self, work: Plan[T]) -> Result[T]:
        """Write the pass down, and return the state of its first rows as if it were that of all."""
        source, tree, partitions = work.source, work.tree, work.partitions
        nodes = {node for node in tree.post_order() if node.level <= tree.depth}
        below = [len(tree.children(node)) for node in nodes]
        matrix, is_cached, remote = source.matrix, isinstance(source, CachedSource), self._is_remote
        nbytes = matrix.stored_nbytes(partitions.edges[0], partitions.edges[-1])
        tried = _Tried(self, work)
        value = tried.value()
        # On a cluster, a leaf of a pass that reads ahead is a task for each of its partitions.
        inputs = Inputs(source, (lambda span: None) if remote and work.context.reads_ahead else None)
        state, n_tasks = _nbytes(value), len(work.graph(tree.root, inputs, {}))
        slots = self.slots_per_process * (1 + work.context.reads_ahead)
        chain = len(partitions) / tree.n_leaves
        self.last_tree, self.last_state_nbytes = tree, state
        read = None if tried.read is None else chain * tried.read
        leaf = None if tried.leaf is None or read is None else read + chain * tried.leaf
        simulated = None
        if leaf is not None and read is not None:
            at_once = min(work.leaf_tasks, self.n_slots)
            simulated = self.simulated(read / at_once, (leaf - read) / at_once, tried.merge or 0.0)
        # A merge of m children has the states of m - 1 of them brought to the first.
        moved = sum(n - 1 for n in below if n) * (1 - 1 / self.n_workers) + 1 if remote else 0
        waiting = min(tree.n_leaves, tree.depth * (tree.fan_in - 1))
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
                network_bytes=int(moved * state),
                state_bytes=state,
                partition_bytes=max(matrix.stored_nbytes(*partitions[i]) for i in range(len(partitions))),
                projected_bytes=work.projected.nbytes,
                rise_bytes=None if tried.peak is None else slots * tried.peak,
                waiting_bytes=waiting * state // self.n_workers,
                leaf_seconds=leaf,
                seconds=None if simulated is None else simulated.seconds,
                bottleneck=None if simulated is None else simulated.bottleneck,
                amplification=partitions.read_amplification,
                cached=is_cached,
                leaf_tasks=work.leaf_tasks,
            )
        )
        self.spent += tried.spent
        self.last_rows = tried.rows
        return Result(value, Statistics(rows_read=partitions.edges[-1], bytes_read=nbytes, n_tasks=len(nodes)))

    @property
    def _is_remote(self) -> bool:
        return self.kind == "dask" and self.where == "workers"

    def simulated(self, read: float, compute: float, merge: float = 0.0) -> SimulatedPass:
        """Return the last pass on the cluster that is planned for, from the seconds of a leaf and of a merge of two."""
        tree, remote = self.last_tree, self._is_remote
        sent = self.last_state_nbytes if remote and self.n_workers > 1 else 0
        costs = PassCosts(tree.n_leaves, read, compute, merge, sent, fan_in=tree.fan_in)
        task = {} if remote else {"task": 0.0}
        return simulate_pass(costs, ClusterCosts(self.n_slots, cores=self.cores, **task))


class _Tried:
    """The trial of one pass: a few rows first, to warm up, then the rest of the partition if that may be afforded."""

    def __init__(self, engine: DryRun, work: Plan[Any]) -> None:
        self.engine, self.work = engine, work
        self.read: float | None = None
        self.leaf: float | None = None
        self.merge: float | None = None
        self.peak: int | None = None
        self.spent = 0.0
        self.rows = 0

    def value(self) -> Any:
        """Run it, and return the state."""
        began = time.perf_counter()
        source = self.work.source
        first, last = self.work.partitions[0]
        if self.engine.most_rows is not None:
            last = min(last, self.engine.most_rows)
        few = min(first + max(self.engine.rows, self.work.step_rows), last)
        with one_blas_thread():
            if isinstance(source, CachedSource):
                block, _ = timed(lambda: source.blocks[next(iter(source.blocks))])
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
        # Again, or of more rows where that leaves most of the partition: the first time compiles kernels and loads
        # modules, and would make all that follows look too slow.
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
        # Two merges where there are three states: every second merge of two sketches shrinks, and the first does not.
        others = [] if start == first else [second, more] if begin > first else [more]
        if others:
            value, merging = timed(lambda: functools.reduce(reduction.merge, others, value))
            self.merge = merging / len(others)
        peak = peak_nbytes()
        rows, self.rows = stop - start, stop - first
        full = self.work.partitions[0][1] - self.work.partitions[0][0]
        if can_reset() and rows >= FEWEST_MEASURED * full:
            self.peak = int(max(0, peak - before) * min(full / rows, 1 / FEWEST_MEASURED))
        self.leaf = seconds * self._scale(rows)
        self.read = read * self._decoded(0, full) / self._decoded(start, stop)
        return value

    def _block(self, start: int, stop: int) -> Block:
        return read_block(self.work.source, start, stop, self.work.context.retries)

    def _scale(self, rows: int) -> float:
        first, last = self.work.partitions[0]
        return (last - first) / max(rows, 1)

    def _decoded(self, start: int, stop: int) -> int:
        """Return the rows that are decoded for some rows: whole chunks."""
        height = self.work.source.matrix.chunk_rows
        return max(1, -(-stop // height) * height - start // height * height)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call, and its seconds."""
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def idle_worker_nbytes() -> int:
    """Return the memory of a process that has loaded what a worker loads, kernels too; `PROCESS_NBYTES` if it fails."""
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
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=120, check=True
        )
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return PROCESS_NBYTES


def _nbytes(value: Any) -> int:
    nbytes = getattr(value, "nbytes", None)
    return int(nbytes) if isinstance(nbytes, int) else sys.getsizeof(value)
