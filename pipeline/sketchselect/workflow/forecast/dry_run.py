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
from sketchselect.execution.cached import CachedSource
from sketchselect.execution.engine import Engine, Ran
from sketchselect.execution.graph.inputs import Inputs
from sketchselect.execution.graph.passes import Pass
from sketchselect.execution.graph.tasks import Part, read_block
from sketchselect.execution.projection import PROCESS_NBYTES, Projection
from sketchselect.execution.source import Block
from sketchselect.linalg.threads import one_blas_thread

T = TypeVar("T")

LEAST_ROWS = 256
"""Rows of the first partition that every pass is tried on."""

FEWEST_MEASURED = 0.5
"""Share of a partition that has to be run for its memory to be taken for that of a whole one."""


@dataclass(frozen=True)
class DryPass:
    """What one pass would be, and what its first partition took."""

    # stage, name: Stage of the job, and name of the pass in it
    stage: str
    name: str

    n_rows: int
    n_partitions: int
    n_leaves: int
    n_merges: int
    n_tasks: int
    moves: int  # States that go from one node to another: a merge of m children has m - 1 of them brought to the first
    waiting: int  # Finished states that wait for their siblings, at most
    bytes_read: int
    amplification: float  # Bytes decoded per byte used
    partition_nbytes: int  # A full partition, decoded
    projected: Projection  # Upper bound of the memory of a process
    state_nbytes: int  # The state of the rows that were run
    # read_seconds, leaf_seconds, merge_seconds: Of one partition on one thread: reading and preparing, the leaf's own
    # work, and one merge. None: not timed.
    read_seconds: float | None = None
    leaf_seconds: float | None = None
    merge_seconds: float | None = None
    # By how much one partition, and a merge, raised this process's memory; None where that was not measured
    peak_nbytes: int | None = None
    cached: bool = False  # Whether the rows are in memory when the pass begins


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
    passes: list[DryPass] = field(default_factory=list)  # What was asked for so far
    memory_limit: int | None = None
    spent: float = 0.0
    last_rows: int = 0  # Rows of the last pass that were run

    def __post_init__(self) -> None:
        self.n_slots = self.n_workers * self.slots_per_process

    def peak_nbytes(self) -> int | None:
        """Return None: nothing is run."""
        return None

    def run(self, work: Pass[T]) -> Ran[T]:
        """Write the pass down, and return the state of its first rows as if it were that of all."""
        source, tree, partitions = work.spec.source, work.tree, work.partitions
        nodes = {node for node in tree.post_order() if node.level <= tree.depth}
        below = [len(tree.children(node)) for node in nodes]
        matrix = source.matrix
        nbytes = matrix.stored_nbytes(partitions.edges[0], partitions.edges[-1])
        tried = _Tried(self, work)
        value = tried.value()
        self.passes.append(
            DryPass(
                stage=self.stage or work.stage,
                name=work.stage,
                n_rows=partitions.edges[-1] - partitions.edges[0],
                n_partitions=len(partitions),
                n_leaves=below.count(0),
                n_merges=len(nodes) - below.count(0),
                n_tasks=len(work.graph(tree.root, Inputs(source), {})),
                moves=sum(n - 1 for n in below if n),
                waiting=min(tree.n_leaves, tree.depth * (tree.fan_in - 1)),
                bytes_read=0 if isinstance(source, CachedSource) else nbytes,
                amplification=partitions.read_amplification,
                partition_nbytes=max(matrix.stored_nbytes(*partitions[i]) for i in range(len(partitions))),
                projected=work.projected,
                state_nbytes=_nbytes(value),
                read_seconds=tried.read,
                leaf_seconds=tried.leaf,
                merge_seconds=tried.merge,
                peak_nbytes=tried.peak,
                cached=isinstance(source, CachedSource),
            )
        )
        self.spent += tried.spent
        self.last_rows = tried.rows
        return Ran(Part(value, partitions.edges[-1], 0, nbytes), len(nodes))


class _Tried:
    """The trial of one pass: a few rows first, to warm up, then the rest of the partition if that may be afforded."""

    def __init__(self, engine: DryRun, work: Pass[Any]) -> None:
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
        source = self.work.spec.source
        first, last = self.work.partitions[0]
        if self.engine.most_rows is not None:
            last = min(last, self.engine.most_rows)
        few = min(first + self.engine.rows, last)
        with one_blas_thread():
            if isinstance(source, CachedSource):
                block, _ = timed(lambda: source.blocks[next(iter(source.blocks))])
                value, _ = timed(lambda: self.work.spec.leaf(block))
                if self.engine.seconds:
                    # Again, now that everything is compiled and loaded.
                    value, seconds = timed(lambda: self.work.spec.leaf(block))
                    self.leaf = seconds * self._scale(block.stop - block.start)
                    self.read = 0.0
            else:
                value = self._from_rows(first, few, last)
        self.spent = time.perf_counter() - began
        return value

    def _from_rows(self, first: int, few: int, last: int) -> Any:
        spec = self.work.spec
        block = self._block(first, few)
        value = spec.leaf(block)
        self.rows = few - first
        if not self.engine.seconds:
            return value
        # Again: the first time compiles kernels and loads modules, and would make all that follows look too slow.
        _, warm = timed(lambda: spec.leaf(self._block(first, few)))
        left = self.engine.seconds - self.engine.spent
        del block
        if few < last and warm * (last - few) / max(few - first, 1) > 0.5 * left:
            # Too slow for a whole partition: as many rows again.
            last = min(last, few + max(1, few - first))
        start, stop = (few, last) if few < last else (first, last)
        before = resident_nbytes(reset_peak=True)
        again, read = timed(lambda: self._block(start, stop))
        more, seconds = timed(functools.partial(spec.leaf, again))
        del again
        if start != first:
            value, self.merge = timed(lambda: spec.merge(value, more))
        peak = peak_nbytes()
        rows, self.rows = stop - start, stop - first
        full = self.work.partitions[0][1] - self.work.partitions[0][0]
        if can_reset() and rows >= FEWEST_MEASURED * full:
            self.peak = int(max(0, peak - before) * min(full / rows, 1 / FEWEST_MEASURED))
        self.leaf = seconds * self._scale(rows)
        self.read = read * self._decoded(0, full) / self._decoded(start, stop)
        return value

    def _block(self, start: int, stop: int) -> Block:
        return read_block(self.work.spec.source, start, stop, self.work.spec.retries)

    def _scale(self, rows: int) -> float:
        first, last = self.work.partitions[0]
        return (last - first) / max(rows, 1)

    def _decoded(self, start: int, stop: int) -> int:
        """Return the rows that are decoded for some rows: whole chunks."""
        height = self.work.spec.source.matrix.chunk_rows
        return max(1, -(-stop // height) * height - start // height * height)


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call, and its seconds."""
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def idle_worker_nbytes() -> int:
    """Return the memory of a process that has loaded what a worker loads, kernels too; `PROCESS_NBYTES` if it fails."""
    code = (
        "import distributed.worker, distributed.nanny, sketchselect.execution.graph.tasks, zarr, numpy\n"
        "import sketchselect as sks\n"
        "from sketchselect._memory import peak_nbytes\n"
        "rows = numpy.random.default_rng(0).random((64, 8))\n"
        "kinds = {'a': sks.ColumnStats(), 'b': sks.FrequentDirections(4), 'c': sks.Moments()}\n"
        "sks.summarize(rows, kinds, prepare=['l2'], client='serial')\n"
        "print(peak_nbytes())"
    )
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
        return int(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return PROCESS_NBYTES


def _nbytes(value: Any) -> int:
    nbytes = getattr(value, "nbytes", None)
    return int(nbytes) if isinstance(nbytes, int) else sys.getsizeof(value)
