"""The plan of a pass: its projected memory, stated before it starts, its Dask graph, and the engine that runs it.

``{("summarize-3f2a", 0, 17): read and summarise, ("merge-3f2a", 1, 4): merge, ...}``: a pure function of partitions,
tree, reduction and what a checkpoint holds, which any Dask scheduler computes.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import platform
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar
from uuid import uuid4

import numpy as np
from dask.task_spec import List, Task, TaskRef

from sketchselect import _kernel_cache, prepare
from sketchselect._byte_sizes import format_bytes
from sketchselect._memory import peak_nbytes, trim
from sketchselect._progress import Progress, Result
from sketchselect._version import KERNEL_VERSION, __version__
from sketchselect.errors import ChunkReadError, PartitionFailed, SketchSelectError, WillNotFit
from sketchselect.execution.checkpoints import SavedNodes
from sketchselect.execution.full_columns import FullColumns, RowWeights, are_known, are_weighted, full_columns
from sketchselect.execution.source import Block, CachedSource, Source
from sketchselect.execution.tasks import Reduction, Span, TaskContext, place_in_words, run_leaf, run_merge
from sketchselect.execution.tree import MergeTree, Node, partition_of
from sketchselect.linalg.csr import FULL_SHARE
from sketchselect.linalg.threads import blas_builds
from sketchselect.linalg.validation import block_dtype
from sketchselect.readers.base import ENTRY_NBYTES, READ_FACTOR, Matrix, Partitions, Vector
from sketchselect.readers.dask import cut_arrays
from sketchselect.readers.stored import LoadedMatrix, MatrixMetadata, StoredMatrix

if TYPE_CHECKING:
    from sketchselect.linalg.panel_columns import Panels
    from sketchselect.linalg.sparse_shrink import SketchPanel

PROCESS_NBYTES = 226 * 2**20
"""Bytes of a worker: Python, the libraries and compiled kernels, and what its allocator does not give back."""

MAIN_NBYTES = 288 * 2**20
"""Bytes of the process that a job is started in, which also selects and writes the results."""

SCHEDULER_NBYTES = 80 * 2**20
"""Bytes that Dask's scheduler, its client and the states that they pass on add to that process if they run in it."""

COMPILING_NBYTES = 192 * 2**20
"""Bytes that compiling the kernels adds to a process: about 5 MiB for each, and LLVM."""

LLVM_LOADED_NBYTES = 36 * 2**20
"""Bytes of LLVM's library, among those of a process, once it is loaded."""

LLVM_USED_NBYTES = 70 * 2**20
"""The same when kernels run. A process maps more at once where the library's file lies in large blocks in the system's
cache, as after an installation."""

SPLIT_FACTOR = 3.0
"""Bytes of the copies that kernels make of a sparse block, divided by its entries x 16: columns that are at least a
quarter full become dense, the others are sorted by column."""

UNKNOWN_ENTRIES = 1 << 21
"""Assumed entries of the largest block of a sparse Dask array: 32 MiB, a partition of the default size."""

MAPPED_NBYTES = 32 << 20
"""Bytes from which glibc has no array in its heap, whatever it has freed before."""

SENT_AHEAD = 4
"""Partitions per task whose rows, of a matrix in the client's memory, may be on a worker."""


T = TypeVar("T")


class Engine(ABC):
    """Runs plans; all engines give the same bits. The defaults are those of this process."""

    kind: str
    n_workers: int = 1  # Processes
    n_slots: int = 1  # Tasks at a time
    slots_per_process: int = 1  # Tasks at a time in one process, which share its memory
    memory_limit: int | None = None  # Bytes per process, where a limit is known
    most_ahead: int = 1  # Tasks that may read ahead for each that computes
    stays_open: bool = True  # Whether the caller has it, so that what it leaves on workers can still be used

    @abstractmethod
    def run(self, plan: Plan[T]) -> Result[T]:
        """Run a plan; the statistics are those of its tasks."""

    def describe(self) -> dict[str, Any]:
        """Return kind, workers and settings in effect, for the manifest."""
        return {
            "kind": self.kind,
            "n_workers": self.n_workers,
            "threads_per_worker": self.slots_per_process,
            "memory_limit": self.memory_limit,
        }

    def can_write(self, directory: str | os.PathLike[str]) -> bool:
        """Return whether the processes that run tasks can write files there that this process can read."""
        return True

    def build(self) -> tuple[str, ...]:
        """Return the versions that decide the bits: of the libraries, BLAS builds and CPU kernels."""
        return local_build()

    def hold(self, panels: Iterator[SketchPanel], edges: Sequence[int]) -> Panels:
        """Return panels in the memory of the processes that run tasks."""
        from sketchselect.linalg.panel_columns import LocalPanels

        return LocalPanels(list(panels), edges)

    def trim(self) -> None:
        """Let all processes give back to the system what they have freed."""
        trim()

    def peak_nbytes(self) -> int | None:
        """Return the largest resident memory that a process which runs tasks ever had; None where it is unknown."""
        return peak_nbytes()


@functools.cache
def local_build() -> tuple[str, ...]:
    """Return versions of the numeric libraries, BLAS builds with the CPU kernel they chose, and the machine type."""
    versions = (f"{name} {metadata.version(name)}" for name in ("numpy", "scipy", "numba"))
    ours = f"sketchselect {__version__} kernels {KERNEL_VERSION}"
    return tuple(sorted((ours, *versions, *blas_builds(), platform.machine())))


@dataclass(frozen=True)
class Projection:
    """Upper bound of the bytes of one process that runs tasks."""

    process: int
    reading: int  # Reading, decoding and preparing blocks, one per task at a time
    states: int  # States being made and waiting to be merged
    working: int  # Kernels' working memory
    held: int = 0  # Rows cached by this process, and results that the caller holds where tasks run in its process
    assumes_weights: bool = False  # Whether `reading` is for the most unequal weights, because theirs are not known

    @property
    def nbytes(self) -> int:
        """The sum."""
        return self.process + self.reading + self.states + self.working + self.held

    def sentence(self) -> str:
        """Return the projection in words."""
        held = f"{format_bytes(self.held)} for cached rows and for results, " if self.held else ""
        why = " (assuming the most unequal weights: they are known only in the pass)" if self.assumes_weights else ""
        return (
            f"projected peak {format_bytes(self.nbytes)} per process: {format_bytes(self.reading)} for reading blocks"
            f"{why}, {format_bytes(self.states)} for states, {format_bytes(self.working)} for working memory, {held}"
            f"{format_bytes(self.process)} for the process itself"
        )


def process_nbytes(matrix: Matrix, kind: str) -> int:
    """Return the bytes that a process of an engine of this kind needs, with the source open, before its first task."""
    return library_nbytes(kind) + matrix.loaded_nbytes


def library_nbytes(kind: str) -> int:
    """Return the bytes that a process that runs tasks needs before it opens a source.

    Engines of kind "dask" have worker processes; others run in that of the job. Kernels not compiled yet take more.
    """
    compiling = COMPILING_NBYTES if _kernel_cache.is_empty() else 0
    return (PROCESS_NBYTES if kind == "dask" else MAIN_NBYTES) + compiling + _mapped_in_large_blocks()


@functools.cache
def _mapped_in_large_blocks() -> int:
    """Return the bytes of LLVM's library that this process, and so a worker, has mapped beyond the usual (Linux)."""
    import numba  # noqa: F401  # which loads it, as every pass does

    n_kib, inside = 0, False
    with contextlib.suppress(OSError, ValueError), open("/proc/self/smaps") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if "-" in name:  # "7f0c-7f0d r-xp 00000000 fd:00 12 /usr/lib/..."
                inside = "libllvmlite" in value
            elif inside and name == "Rss":
                n_kib += int(value.split()[0])
    mapped = n_kib * 1024
    return mapped - LLVM_LOADED_NBYTES if mapped > LLVM_USED_NBYTES else 0


def projection(
    source: Source,
    partitions: Partitions,
    tree: MergeTree,
    reduction: Reduction[Any],
    engine: Engine,
    *,
    reads_ahead: int = 0,
) -> Projection:
    """Return what each process of `engine` will need at most for this pass."""
    # For each task that computes so many others read ahead. Without these a leaf reads its partitions one by one.
    slots, n_slots = ((1 + reads_ahead) * n for n in (engine.slots_per_process, engine.n_slots))
    slots = min(slots, len(partitions) if reads_ahead else tree.n_leaves)
    reading = reading_nbytes(source, partitions, reduction.row_weights)
    assumes_weights = source.is_sparse and are_weighted(source, reduction.row_weights)
    are_sent = source.matrix.in_memory and engine.kind == "dask"
    are_computed = source.matrix.dask_rows() is not None
    n_ahead = SENT_AHEAD if are_sent else 0
    if (are_sent and not isinstance(source, CachedSource)) or (are_computed and n_slots > 1):
        # A worker keeps the rows that were sent for a leaf until its end; idle threads compute those of all its steps.
        n_ahead = max(n_ahead, min(tree.chain, len(partitions)) - 1)
    if n_ahead:
        reading += n_ahead * max(source.matrix.stored_nbytes(*partitions[i]) for i in range(len(partitions)))
    waiting = min(tree.n_leaves, tree.most_waiting + n_slots - 1)
    # Of few leaves there are at most their own, and more for each task that merges.
    merging = min(slots, tree.n_leaves // 2 if tree.n_leaves == len(partitions) else tree.n_leaves)
    state_nbytes = reduction.state_nbytes if reduction.sparse_state_nbytes is None else reduction.sparse_state_nbytes

    def states(each: int) -> int:
        """Return the bytes of states with `each` in every task: those, and the ones that wait for their siblings."""
        return int(min(each * slots + waiting, tree.n_leaves + (each - 1) * merging) * state_nbytes)

    blocks = int(slots * reading)
    # Statistics and random numbers of prepare steps are there once for all tasks of a process.
    widths = prepare.widths(source.prepare, source.matrix.shape[1])
    steps = sum(step.working_nbytes(width) for step, width in zip(source.prepare, widths, strict=False))
    return Projection(
        process=process_nbytes(source.matrix, engine.kind)
        + (source.matrix.remembered_nbytes if partitions.read_amplification > 1 else 0),
        reading=blocks,
        # A task holds the state of the rows before and makes that of its block; then it frees the block, unless the
        # rows came from elsewhere, and merges both into a third state.
        states=states(3) if are_sent or are_computed else max(states(2), states(3) - blocks),
        working=int(slots * reduction.working_nbytes) + steps,
        assumes_weights=assumes_weights and not are_known(source, reduction.row_weights),
        held=(source.held_nbytes if isinstance(source, CachedSource) else 0)
        + (reduction.caller_nbytes if engine.kind != "dask" else 0),
    )


def reading_nbytes(source: Source, partitions: Partitions, row_weights: RowWeights | None = None) -> float:
    """Return the bytes that one task needs to read and prepare its block; `row_weights` are those of kernels."""
    if source.is_sparse:
        return sparse_reading(source, partitions, row_weights)
    return _dense_reading(source, partitions)


def _dense_reading(source: Source, partitions: Partitions) -> float:
    """Return the bytes that one task needs for a block that is dense, or made so."""
    matrix = source.matrix
    n_columns = matrix.shape[1]
    rows = max(stop - start for start, stop in zip(partitions.edges, partitions.edges[1:], strict=False))
    decoded_rows = rows
    if not matrix.piece_nbytes:
        # Whole chunks are decoded, whatever part of them a partition uses.
        decoded_rows = min(-(-rows // matrix.chunk_rows) * matrix.chunk_rows, matrix.shape[0])
        if rows % matrix.chunk_rows and rows > matrix.chunk_rows:
            decoded_rows = min(decoded_rows + matrix.chunk_rows, matrix.shape[0])
    stored = matrix.packed_itemsize or matrix.dtype.itemsize
    reading = matrix.read_factor * decoded_rows * n_columns * stored + matrix.piece_nbytes
    itemsize = block_dtype(matrix.dtype).itemsize
    prepared_itemsize = 4 if itemsize <= 4 and matrix.dtype.kind == "f" else 8
    # Widened values are in memory together with those as stored, which are freed before the steps run.
    widened = rows * n_columns * itemsize if itemsize > stored else 0
    if matrix.packed_itemsize:
        widened += 2 * rows * n_columns  # where values are missing
    prepared = 0
    if source.prepare:
        prepared += 2 * rows * max(prepare.widths(source.prepare, n_columns)) * prepared_itemsize
    if source.columns is not None:
        prepared += rows * len(source.columns) * prepared_itemsize
    if source.in_double and prepared_itemsize < 8:
        prepared += 8 * rows * source.n_columns
    if matrix.piece_nbytes:
        # The memory of the pieces is free by then.
        reading = max(reading, rows * n_columns * matrix.dtype.itemsize + widened + prepared)
    elif widened:
        reading = widened + max(reading, prepared)
    elif _is_given_back(matrix):
        # When the steps run there are the block, and what compressed chunks may have left.
        reading = max(reading, 1.5 * decoded_rows * n_columns * stored + prepared)
    else:
        reading += prepared
    if matrix.nonfinite == "drop_rows":
        reading += rows * n_columns * (itemsize + 1)
    return reading


def _is_given_back(matrix: Matrix) -> bool:
    """Return whether decoded chunks are so large that their memory goes back to the system when they are freed."""
    chunk = matrix.chunk_rows * (matrix.chunk_columns or matrix.shape[1]) * matrix.dtype.itemsize
    return isinstance(matrix, StoredMatrix) and matrix.read_factor == READ_FACTOR and chunk >= MAPPED_NBYTES


def sparse_reading(source: Source, partitions: Partitions, row_weights: RowWeights | None = None) -> float:
    """Return the bytes that one task needs for a block that stays sparse."""
    entries, rows = largest_partition(source, partitions)
    # Decoded, or copied where all of it is in memory; prepared, and split by column. An entry has a value and an index.
    matrix = source.matrix
    reads = 1 if matrix.in_memory or matrix.loaded_nbytes else matrix.read_factor
    stored = _stored_entry(matrix)
    prepared, per_entry = (1 + len(source.prepare)) * entry_nbytes(source), SPLIT_FACTOR * ENTRY_NBYTES
    # Columns that are just full become dense in their own type, and once more in float64 about their means.
    itemsize = 4 if block_dtype(matrix.dtype).kind == "f" and matrix.dtype.itemsize <= 4 and not source.in_double else 8
    weighted = are_weighted(source, row_weights)
    if _stays_as_loaded(source):
        prepared = 0
        if not weighted:
            per_entry = max(per_entry, (matrix.dtype.itemsize + 8) / FULL_SHARE)
    split = per_entry * entries
    if weighted and matrix.entry_offsets is None:
        split = FullColumns(entries, math.inf, 0.0).nbytes(16.0, per_entry)
    elif weighted:
        # Targets are put beside the full columns, in a copy.
        per_value = 16.0 if source.target is not None else itemsize + 8.0
        blocks = full_columns(source, partitions, row_weights)
        split = max(block.nbytes(per_value, per_entry) for block in blocks)
    # Whole chunks are decoded, the first and the last for a few of their entries.
    nbytes = reads * stored * (entries + matrix.chunk_entries) + prepared * entries + split + 64.0 * rows
    if source.columns is not None:
        nbytes += 8 * rows * len(source.columns)
    return nbytes


def _stays_as_loaded(source: Source) -> bool:
    """Return whether blocks are the rows of a file that was loaded whole, as it has them, and weigh the same."""
    is_changed = bool(source.prepare) or source.columns is not None or source.in_double
    keeps_rows = source.weight is None and source.matrix.nonfinite != "drop_rows"
    return isinstance(source.matrix, LoadedMatrix) and not is_changed and keeps_rows


def largest_partition(source: Source, partitions: Partitions) -> tuple[int, int]:
    """Return the most entries, assumed where they are unknown, and the most rows of a partition of sparse rows."""
    offsets = source.matrix.entry_offsets
    rows = int(np.diff(partitions.edges).max())
    if offsets is None:
        return min(UNKNOWN_ENTRIES, rows * source.matrix.shape[1]), rows
    return int(np.diff(offsets[list(partitions.edges)]).max()), rows


def entry_nbytes(source: Source) -> int:
    """Return the bytes of a prepared entry of sparse rows, with its index."""
    stored = _stored_entry(source.matrix)
    return stored if source.matrix.dtype.kind == "f" and stored >= 8 else max(stored, 12)


def _stored_entry(matrix: Matrix) -> int:
    return int(matrix.dtype.itemsize) + (4 if matrix.shape[1] < 1 << 31 else 8)


def require_fit(projected: Projection, limit: int | None, address: str) -> None:
    """Raise `WillNotFit`, with the numbers and what to change, if the projection is above the limit."""
    if limit is None or projected.nbytes <= limit:
        return
    cure = (
        "lower partition_bytes, or where chunks or row groups are larger write smaller ones (`sketchselect convert "
        "--chunks`, `x.rechunk`, `row_group_size` of Parquet)"
        if projected.reading >= projected.states + projected.working
        else "use a smaller sketch (size) or fewer columns"
    )
    raise WillNotFit(
        f"{address}: {projected.sentence()}; the limit is {format_bytes(limit)}. Raise memory_limit, run fewer threads "
        f"per worker, or {cure}"
    )


Graph = dict[Any, Any]


class Pieces(Protocol):
    """What a node sends with its result; in this process, or on workers."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the pieces and release each, because together they may fill the memory."""

    def in_place(self, edges: Sequence[int], value: Callable[[Any], SketchPanel]) -> Panels:
        """Return the panels that they hold, which stay where they are."""


class LocalPieces:
    """Pieces in this process."""

    def __init__(self, pieces: list[Any]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[Any]:
        """Yield the pieces and release each."""
        while self._pieces:
            yield self._pieces.pop(0)

    def in_place(self, edges: Sequence[int], value: Callable[[Any], SketchPanel]) -> Panels:
        """Return the panels."""
        from sketchselect.linalg.panel_columns import LocalPanels

        return LocalPanels([value(piece) for piece in self], edges)


@dataclass(frozen=True)
class Plan(Generic[T]):
    """One pass over a source, ready for any engine, which computes the node at the tree's root."""

    saved_as: ClassVar[type[SavedNodes]] = SavedNodes

    context: TaskContext[T]
    tree: MergeTree
    partitions: Partitions
    progress: Progress
    projected: Projection
    # Nodes that need not be computed: a `Result`, a future of one, or a task that loads one
    ready: Mapping[Node, Any] = field(default_factory=dict)
    nodes: SavedNodes | None = None  # The nodes in the checkpoint; tasks save theirs by `context.saving`
    stall_timeout: float = 300.0
    token: str = field(default_factory=lambda: uuid4().hex)
    join: Callable[[Result[Any], Pieces], Result[T]] | None = None  # Of a result and the pieces sent with it
    # Set by `bound`: the source as tasks know it, and the `sent` of `run_leaf` for a partition: an object, or a node
    # that refers to tasks of `inputs`
    task_source: Source | None = None
    prefetched: Callable[[Span], Any] | None = None
    inputs: Graph = field(default_factory=dict)  # Tasks of the user's Dask arrays
    input_keys: list[list[Any]] = field(default_factory=list)  # Of `inputs`, for each array and partition
    sends_rows: bool = False  # Whether rows of this process's memory are among those prefetched
    is_remote: bool = False  # Whether tasks may run in other processes, which may have files of their own

    @property
    def source(self) -> Source:
        """The rows."""
        return self.context.source

    @property
    def stage(self) -> str:
        """The name of the pass."""
        return self.context.reduction.stage

    def resumed(self, *, shared: bool, remote: bool) -> Self:
        """Return the plan that goes on from its checkpoint.

        Tasks load what they need where they are `remote`, in other processes, and these have the folder `shared`.
        """
        assert self.nodes is not None
        return replace(self, ready=self.nodes.resume(by_tasks=shared and remote))

    @property
    def n_resumed(self) -> int:
        """States that are taken from the checkpoint."""
        return len(self.ready)

    @property
    def done(self) -> set[int]:
        """The partitions below the states that are taken from the checkpoint."""
        return {i for node in self.ready for i in self.tree.partitions(node)}

    def saving(self) -> Self:
        """Return the plan whose tasks save nodes by the rules of its checkpoint."""
        assert self.nodes is not None
        return replace(self, context=replace(self.context, saving=self.nodes.rules))

    def bound(self, *, remote: bool) -> Self:
        """Return the plan with the rows that tasks do not read themselves: cached blocks, and those of Dask arrays.

        With `remote`, tasks may run in other processes, and rows in this process's memory travel inside the graph.
        """
        source = self.source
        if isinstance(source, CachedSource):
            blocks = source.blocks
            known = Source(MatrixMetadata(source.matrix))
            return replace(self, task_source=known, prefetched=lambda span: blocks[span.start, span.stop])
        parts = (source.matrix, source.target, source.weight)
        arrays = [None if part is None else part.dask_rows() for part in parts]
        is_sent = [
            array is None and part is not None and remote and part.in_memory
            for part, array in zip(parts, arrays, strict=True)
        ]
        elsewhere = [array is not None or sent for array, sent in zip(arrays, is_sent, strict=True)]
        if not any(elsewhere):
            return replace(self, is_remote=remote)
        inputs, keys = cut_arrays([array for array in arrays if array is not None], self.partitions.edges)
        following = iter(keys)
        keys_of = [None if array is None else next(following) for array in arrays]

        def entries(i: int, span: Span) -> Any:
            part, pieces = parts[i], keys_of[i]
            if pieces is not None:
                return TaskRef(pieces[span.partition])
            if not is_sent[i] or part is None:
                return None
            return (part.read if isinstance(part, Vector) else part.read_rows)(span.start, span.stop)

        known = replace(
            source,
            matrix=MatrixMetadata(source.matrix) if elsewhere[0] else source.matrix,
            target=None if elsewhere[1] else source.target,
            weight=None if elsewhere[2] else source.weight,
        )
        return replace(
            self,
            task_source=known,
            prefetched=lambda span: Task(None, Block, *(entries(i, span) for i in range(3)), span.start, span.stop),
            inputs=inputs,
            input_keys=keys,
            sends_rows=any(is_sent),
            is_remote=remote,
        )

    def rows_identity(self, start: int, stop: int) -> str | None:
        """Return the identity of rows that other processes read from file systems of theirs; None for all others."""
        matrix = self.source.matrix
        if not self.is_remote or matrix.in_memory or matrix.is_remote or matrix.dask_rows() is not None:
            return None
        return matrix.identity(start, stop)

    def task_context(self, **changes: Any) -> TaskContext[T]:
        """Return what the tasks share, with changes."""
        return replace(self.context, source=self.task_source or self.source, **changes)

    def with_inputs(self, graph: Graph) -> Graph:
        """Return a graph with the tasks of the user's arrays that it needs."""
        from dask.optimization import cull

        return cull({**self.inputs, **graph}, list(graph))[0] if self.inputs else graph

    @property
    def leaf_tasks(self) -> int:
        """Tasks that may work on one leaf at a time."""
        return 1

    @property
    def step_rows(self) -> int:
        """Rows by which the cost of a block grows in steps; 1 where it grows evenly."""
        return 1

    @property
    def context_key(self) -> str:
        """The key of what all tasks share."""
        return f"context-{self.token}"

    def key(self, node: Node) -> tuple[str, int, int]:
        """Return the key of a node: stage, level and place, so that dashboards and errors can say which it is."""
        name = "merge" if node.level else re.sub(r"\W+", "-", self.stage)
        return (f"{name}-{self.token}", *node)

    def keys(self, node: Node) -> list[Any]:
        """Return the keys of what a node sends to the caller; the last is that of its result."""
        return [self.key(node)]

    def cuts(self, most_leaves: int) -> list[Node]:
        """Return the nodes to be computed one graph after the other, the last of them the root."""
        if self.tree.n_leaves <= most_leaves:
            return [self.tree.root]
        missing = set(self.tree.post_order(skip=self.ready))
        return [*(node for node in self.tree.subtrees(most_leaves) if node in missing), self.tree.root]

    def places(self, graph: Graph, workers: Sequence[str]) -> dict[str, list[Any]]:
        """Return which tasks of a graph are to run on which workers; others run on any."""
        return {}

    def span(self, partition: int) -> Span:
        """Return a partition."""
        start, stop = self.partitions[partition]
        return Span(partition, start, stop, self.source.matrix.stored_nbytes(start, stop))

    def rows(self, node: Node) -> tuple[int, int]:
        """Return the rows below a node."""
        below = self.tree.partitions(node)
        return self.partitions.edges[below.start], self.partitions.edges[below.stop]

    def where(self, node: Node) -> str:
        """Return a node in words."""
        below = self.tree.partitions(node)
        what = f"partition {below.start}" if len(below) == 1 else f"partitions {below.start} to {below.stop - 1}"
        return place_in_words(self.source, f"merging {what}" if node.level else what, *self.rows(node))

    def user_error(self, failed: Any, error: BaseException) -> SketchSelectError:
        """Return the error for a task of the user's graph, by its key: which partition needs it, and no value."""
        partition = partition_of(failed, self.inputs, self.input_keys)
        if partition is None:
            where = place_in_words(self.source, "some partition", *self.rows(self.tree.root))
        else:
            start, stop = self.partitions[partition]
            where = place_in_words(self.source, f"partition {partition}", start, stop)
        if isinstance(error, ChunkReadError):  # our own, of a chunk that is not as stated
            return ChunkReadError(f"{where}: {error}")
        kind = type(error).__name__
        return PartitionFailed(f"{where}: an error in the graph of a Dask array ({kind}); compute these rows to see it")

    def node_of(self, key: Any) -> Node | None:
        """Return the node that has a key; None for keys of other tasks."""
        if isinstance(key, tuple) and len(key) == 3 and str(key[0]).endswith(self.token):
            level, place = int(key[1]), int(key[2])
            # Level -1 is a step of a leaf, named by its partition.
            return Node(level, place) if level >= 0 else Node(0, place // self.tree.chain)
        return None

    def graph(self, output: Node, ready: Mapping[Node, Any]) -> Graph:
        """Return the tasks of a node and of all below it that is not ready; `context_key` is not one of them."""
        tasks: Graph = {}
        done = set(ready)
        for node in self.tree.post_order(output, skip=done):
            self.add_node(tasks, node, ready)
            done.add(node)
        if output in ready:
            tasks[self.key(output)] = Task(self.key(output), copy, ready[output])
        return tasks

    def add_node(self, tasks: Graph, node: Node, ready: Mapping[Node, Any]) -> None:
        """Add the tasks of one node."""
        key, context = self.key(node), TaskRef(self.context_key)
        nodes = None if self.context.saving is None else self.nodes
        name = None if nodes is None else nodes.name(node)
        children = self.tree.children(node)
        if children:
            parts = List(*(ready[child] if child in ready else TaskRef(self.key(child)) for child in children))
            tasks[key] = Task(key, run_merge, context, parts, self.rows(node), name)
            return
        saved = name, self.rows_identity(*self.rows(node)) if nodes is None else nodes.identity(node)
        spans = [self.span(i) for i in self.tree.partitions(node)]
        if self.prefetched is None:
            tasks[key] = Task(key, run_leaf, context, spans, None, None, *saved)
            return
        # One task a partition, so that no more than one of them has to be in memory.
        before = None
        for span in spans[:-1]:
            step = (f"step-{self.token}", -1, span.partition)
            tasks[step] = Task(step, run_leaf, context, [span], self.prefetched(span), before)
            before = TaskRef(step)
        tasks[key] = Task(key, run_leaf, context, spans[-1:], self.prefetched(spans[-1]), before, *saved)
