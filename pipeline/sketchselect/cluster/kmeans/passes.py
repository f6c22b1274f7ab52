"""Passes of k-means over one source: its partitions, and where its blocks are cached between iterations."""

from __future__ import annotations

import hashlib
import operator
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect._memory import available_nbytes
from sketchselect._progress import Result, Statistics
from sketchselect.errors import BadParameter
from sketchselect.execution.engine import LocalEngine, PassOptions, make_plan, naming_interrupts, reduce_blocks
from sketchselect.execution.plan import Engine, Plan, library_nbytes, require_fit
from sketchselect.execution.source import Block, CachedBlock, CachedSource, Source, cache_block
from sketchselect.execution.summarize import summary_key, summary_reduction
from sketchselect.execution.tasks import Reduction, Span, Stopped, naming, run_leaf, run_merge
from sketchselect.execution.team import Team
from sketchselect.execution.tree import MergeTree, Node, families
from sketchselect.linalg.csr import densify
from sketchselect.linalg.kmeans.assignment import ClusterSums, merge_sums
from sketchselect.linalg.kmeans.lloyd import RowMemory, assign_and_sum, n_groups, worth_keeping
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import LARGEST, Array, Floats, as_weights, block_dtype, canonical, is_csr
from sketchselect.prepare.steps import with_stored
from sketchselect.readers.base import ENTRY_NBYTES, Matrix, MatrixView, accepted_size
from sketchselect.readers.dask import futures_client
from sketchselect.summaries import CentroidSums
from sketchselect.summaries.base import same_value

if TYPE_CHECKING:
    from sketchselect.execution.dask_engine import DaskEngine

T = TypeVar("T")
V = TypeVar("V")

# Target number of partitions: enough to balance a few workers, few enough that an iteration is tens of tasks.
N_PARTITIONS = 32

LEAST_PARTITION_NBYTES = 16 << 20
MOST_PARTITION_NBYTES = 128 << 20

# Minimum ratio of partition bytes to centre bytes: making and merging sums is work of the size of the centres.
CENTER_RATIO = 16

REMEMBERED_SHARE = 8  # Minimum ratio of the bytes of a block's rows to those of its sums, for the last sums to be kept

# Prepared, selected data up to this size are clustered in the client's process even if a cluster was given; data
# already in its memory are at any size that fits.
LOCAL_NBYTES = 512 << 20

# Share of this machine's memory (or of the engine's limit) that data cached between iterations may take.
CACHED_SHARE = 0.25

WORKER_SHARE = 0.35  # Share of its memory limit that blocks on a worker may take; a Dask worker begins to spill at 0.6


class BlockEngine(LocalEngine):
    """Passes over blocks in this process without a scheduler, whose millisecond a pass is long against the sums.

    The caller's thread works along with threads that live until `close`. Nodes are merged as soon as their children are
    ready, in the tree of the pass. Other sources are left to Dask.
    """

    _team: Team | None = None

    def run(self, plan: Plan[T]) -> Result[T]:
        """Run a plan."""
        if not isinstance(plan.source, CachedSource):
            return super().run(plan)
        stop = threading.Event()

        def on_task_end(span: Span | None) -> None:
            if stop.is_set():
                raise Stopped
            if span is not None:
                plan.progress.advance(span.nbytes)

        context = plan.task_context(on_task_end=on_task_end)
        root = self.reduce(
            plan.tree,
            lambda leaf: run_leaf(context, [plan.span(partition) for partition in plan.tree.partitions(leaf)]),
            lambda node, parts: run_merge(context, parts, plan.rows(node)),
            stop,
        )
        return Result(root.value, root.stats + Statistics(n_tasks=len(families(plan.tree)[0])))

    def reduce(
        self, tree: MergeTree, leaf: Callable[[Node], V], merge: Callable[[Node, list[V]], V], stop: threading.Event
    ) -> V:
        """Return the value of a tree's root; `stop` is set once a task has failed."""
        nodes, below, parent = families(tree)
        leaves = iter([node for node in nodes if node.level == 0])
        parts: dict[Node, V] = {}
        failures: list[BaseException] = []
        lock = threading.Lock()

        def compute(node: Node) -> None:
            part = leaf(node)
            while True:
                with lock:
                    parts[node] = part
                    children = below[parent[node]] if node in parent else []
                    if not children or any(child not in parts for child in children):
                        return
                    parts_below = [parts.pop(child) for child in children]
                node = parent[node]
                part = merge(node, parts_below)

        def compute_leaves() -> None:
            try:
                with one_blas_thread():
                    for node in leaves:
                        if stop.is_set():
                            return
                        compute(node)
            except BaseException as error:
                failures.append(error)
                stop.set()

        if self._team is None:
            self._team = Team(min(self.n_slots, tree.n_leaves) - 1)
        try:
            self._team.run(compute_leaves)
        finally:
            # Running tasks stop at their next partition; none should compute, or report, after this returns.
            stop.set()
            self._team.wait()
        if failures:
            raise failures[0]
        return parts[tree.root]

    def close(self) -> None:
        """End the threads."""
        team, self._team = self._team, None
        if team is not None:
            team.close()


@dataclass(frozen=True)
class Passes:
    """The passes of k-means over a source; a context manager that releases cached blocks at the end."""

    source: Source  # Rows, weights, preparation and columns
    options: PassOptions  # Of every pass; without a checkpoint where the blocks are cached
    rounds: Rounds | None = None  # Of iterations with this number of clusters, where dense blocks are in this process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if isinstance(self.source, CachedSource):
            for block in self.source.blocks.values():
                if not isinstance(block, CachedBlock):
                    block.release()
        if isinstance(self.options.engine, BlockEngine):
            self.options.engine.close()

    def reduce(self, reduction: Reduction[T]) -> T:
        """Return the result of one pass over the blocks."""
        return reduce_blocks(self.source, reduction, self.options).value

    def sums(self, description: CentroidSums, stage: str) -> CentroidSums:
        """Return a summary of all rows."""
        reduction = summary_reduction(self.source, description, stage, SumBlock(description))
        key = summary_key(description) if self.options.checkpoint is not None else None
        return cast(CentroidSums, self.reduce(replace(reduction, key=key)))

    def iterate(self, description: CentroidSums, stage: str) -> CentroidSums:
        """Return `sums`, without the farthest rows where no cluster is empty: only their centres move there."""
        sums = None if self.rounds is None else self.rounds.sums(description, stage)
        return self.sums(description, stage) if sums is None else sums


class Rounds:
    """Iterations over dense blocks in this process, without the plan, statistics and checkpoints of a pass."""

    def __init__(self, plan: Plan[CentroidSums], engine: BlockEngine) -> None:
        require_fit(plan.projected, engine.memory_limit, plan.source.matrix.address)
        self._plan, self._engine = plan, engine
        self._n_rows = sum(block.values.shape[0] for block in cast(CachedSource, plan.source).blocks.values())

    def sums(self, description: CentroidSums, stage: str) -> CentroidSums | None:
        """Return the sums without the farthest rows; None where a cluster is empty or sums are not finite."""
        plan, stop = self._plan, threading.Event()
        centers, k = description.centers, description.n_clusters
        assert centers is not None

        def leaf(node: Node) -> ClusterSums:
            return reduce(merge_sums, (self._block_sums(i, centers, k) for i in plan.tree.partitions(node)))

        with naming_interrupts(stage, len(plan.partitions)):
            sums = self._engine.reduce(plan.tree, leaf, lambda node, parts: reduce(merge_sums, parts), stop)
        is_usual = (sums.weight > 0).all() and (sums.within < LARGEST**2).all()
        return description.with_sums(self._n_rows, sums) if is_usual else None

    def _block_sums(self, partition: int, centers: Floats, n_clusters: int) -> ClusterSums:
        source, span = self._plan.source, self._plan.span(partition)
        with naming(source, f"partition {partition}", span.start, span.stop):
            block = source.block(span.start, span.stop)
            weights = as_weights(block.weight, block.values.shape[0], block.position)
            return assign_and_sum(block.values, centers, weights, memory=_row_memory(block, n_clusters))[2]


LOAD_ROWS: Reduction[Any] = Reduction(cache_block, operator.or_, "load rows for k-means")


@dataclass(frozen=True)
class SumBlock:
    """Leaf of an iteration: the sums of one block."""

    description: CentroidSums

    def __call__(self, block: Block) -> CentroidSums:
        """Return the summary of one block."""
        return assign_block(self.description, block)[1]


def assign_block(description: CentroidSums, block: Block) -> tuple[NDArray[np.int32], CentroidSums]:
    """Return each row's nearest centre, and the sums of one block.

    A cached block keeps its last assignment, if that is small against the rows, and the comparisons that the next call
    can omit; the labels are then an array that the next call overwrites.
    """
    sparse = is_csr(block.values)
    cache = block.memory if isinstance(block, CachedBlock) and sparse else {}
    assignment: tuple[NDArray[np.int32], CentroidSums] | None = cache.get("assignment")
    if assignment is not None and same_value(assignment[1].centers, description.centers):
        return assignment
    cache.pop("assignment", None)
    assignment = description.label_block(
        block.values,
        start=block.position,
        sample_weight=block.weight,
        memory=None if sparse else _row_memory(block, description.n_clusters),
        copy=False,
    )
    if _remembers_sums(block, description.n_clusters):
        cache["assignment"] = assignment
    return assignment


def _row_memory(block: Block, n_clusters: int) -> RowMemory | None:
    """Return the memory of the rows of a cached dense block."""
    if not isinstance(block, CachedBlock) or not block.values.shape[0]:
        return None
    memory: RowMemory | None = block.memory.get("rows")
    if memory is None:
        n_rows, n_features = block.values.shape
        keeps_sums = _remembers_sums(block, n_clusters)
        memory = block.memory["rows"] = RowMemory(n_rows, worth_keeping(n_features, n_clusters), keeps_sums)
    return memory


def _remembers_sums(block: Block, n_clusters: int) -> bool:
    """Return whether the sums of a block are small against its rows."""
    values, width = block.values, block.values.shape[1]
    stored = [values.data, values.indices] if is_csr(values) else [values]
    state_nbytes = CentroidSums(n_clusters).projected_nbytes(width)
    return REMEMBERED_SHARE * state_nbytes <= sum(int(array.nbytes) for array in stored)


def open_passes(source: Source, n_clusters: int, options: PassOptions) -> Passes:
    """Return the passes over `source`: partitions by size alone, blocks cached where memory allows.

    Small data are cached in this process; larger ones by the workers of a Dask cluster, where they fit in
    `WORKER_SHARE` of their memory; rows that fit nowhere are read in every pass. The partitions, and so the bits of
    every result, depend neither on the engine nor on where the data are.
    """
    engine, progress = options.engine, options.progress
    source = replace(source, takes_sparse=True)
    options = options.but(partition_bytes=partition_size(source, n_clusters, options))
    remote = engine.kind == "dask"
    local = LocalEngine() if remote else engine
    location = placement(source, n_clusters, engine)
    held_nbytes = kept_nbytes(source, n_clusters, engine, location)
    if location == "client":
        if remote and source.matrix.in_memory and prepared_nbytes(source, n_clusters) > LOCAL_NBYTES:
            progress.note("k-means: the rows are in this process's memory and are clustered here, not on the cluster")
        # The cluster must fetch results that only it can reach.
        reading = options.but(
            engine=engine if remote and futures_client(source.matrix.dask_rows()) else local, checkpoint=None
        )
        blocks = reduce_blocks(source, replace(LOAD_ROWS, caller_nbytes=held_nbytes), reading).value
        local_engine = BlockEngine(local.n_slots, memory_limit=local.memory_limit)
        rows = CachedSource.of(source, blocks, held_nbytes)
        own = PassOptions(local_engine, options.partition_bytes)
        if source.is_sparse:
            return Passes(rows, own)
        reduction = summary_reduction(rows, CentroidSums(n_clusters), "k-means: iterations")
        return Passes(rows, own, Rounds(make_plan(rows, reduction, own), local_engine))
    if location == "workers":
        work = make_plan(source, LOAD_ROWS, options)
        persistent = cast("DaskEngine", engine).persist_blocks(work)
        progress.note(f"k-means: the rows stay in the workers' memory between iterations, in {len(persistent)} blocks")
        return Passes(CachedSource.of(source, persistent, held_nbytes), options.but(checkpoint=None))
    return Passes(source, options)


def placement(source: Source, n_clusters: int, engine: Engine) -> Literal["client", "workers", "source"]:
    """Return where the rows of a source that takes sparse blocks stay between iterations: "source" if nowhere."""
    nbytes = prepared_nbytes(source, n_clusters)
    if engine.kind != "dask":
        room = CACHED_SHARE * available_nbytes()
        if engine.memory_limit is not None:
            room = _room(CACHED_SHARE, engine.memory_limit, library_nbytes(engine.kind))
        return "client" if nbytes <= room else "source"
    room_here = CACHED_SHARE * available_nbytes()
    # Rows in our memory would be sent in every pass, which takes longer than a sweep over them.
    if nbytes <= (room_here if source.matrix.in_memory else min(room_here, LOCAL_NBYTES)):
        return "client"
    # Workers must have room for the rows, and be able to read them themselves, again if they lose them.
    if engine.memory_limit is None or source.matrix.in_memory:
        return "source"
    room = _room(WORKER_SHARE, engine.memory_limit, library_nbytes(engine.kind)) * cast("DaskEngine", engine).n_workers
    return "workers" if nbytes <= room else "source"


def _room(share: float, limit: int, process: int) -> float:
    """Return the bytes that rows may take of a memory limit; passes need the other half of what the process leaves."""
    return min(share * limit, (limit - process) / 2)


def kept_nbytes(source: Source, n_clusters: int, engine: Engine, location: str) -> int:
    """Return the bytes of rows that each process at a location keeps between iterations; see `placement`."""
    if location == "source":
        return 0
    nbytes = prepared_nbytes(source, n_clusters)
    return nbytes if location == "client" else -(-nbytes // engine.n_workers)


def partition_size(source: Source, n_clusters: int, options: PassOptions) -> int | str:
    """Return the given partition size, or else one that suits k-means."""
    return partition_nbytes(source, n_clusters) if options.partition_bytes is None else options.partition_bytes


def partition_nbytes(source: Source, n_clusters: int) -> int:
    """Return the partition size for iterating over the chosen columns, in the measure of `row_partitions`.

    A pure function of shape, chunks, chosen columns and clusters: about `N_PARTITIONS` partitions of at most 128 MiB of
    chosen data, or fewer of at least 8 MiB; never less than a chunk is high, and large against the centres. Of sparse
    rows, their stored entries.
    """
    row = 8 * max(1, source.n_columns)
    if source.is_sparse and source.matrix.entry_offsets is not None:
        entries = ENTRY_NBYTES * int(source.matrix.entry_offsets[-1])
        return min(max(entries // N_PARTITIONS, LEAST_PARTITION_NBYTES), MOST_PARTITION_NBYTES)
    least = max(LEAST_PARTITION_NBYTES, CENTER_RATIO * n_clusters * row)
    nbytes = min(max(source.n_rows * row // N_PARTITIONS, least), MOST_PARTITION_NBYTES)
    full_row, chunk_rows = 8 * max(1, source.matrix.shape[1]), source.matrix.chunk_rows
    rows = max(1, min(max(nbytes // row, chunk_rows), MOST_PARTITION_NBYTES // full_row))
    return accepted_size(source.matrix, full_row * _even_height(source.n_rows, rows, chunk_rows))


def _even_height(n_rows: int, most: int, chunk_rows: int) -> int:
    """Return a height of at most `most` rows, of whole chunks if one fits, that leaves few workers idle at the end.

    A last partition of few rows, or an odd number of partitions on two workers, would.
    """
    if most < chunk_rows:
        return most
    n_chunks = -(-n_rows // chunk_rows)
    n_pieces = max(1, -(-n_chunks // (most // chunk_rows)))
    if n_pieces > 1:
        multiple = 2 if n_pieces <= 4 else 4 if n_pieces <= 16 else 8
        n_pieces = -(-n_pieces // multiple) * multiple
    return -(-n_chunks // n_pieces) * chunk_rows


def prepared_nbytes(source: Source, n_clusters: int) -> int:
    """Return the bytes that the prepared, chosen rows take in memory, with weights and per-row memory."""
    offsets = source.matrix.entry_offsets
    if source.is_sparse and offsets is not None:
        # Steps may convert entries to float64; indices take 4 or 8 bytes.
        nbytes = ENTRY_NBYTES * int(offsets[-1])
        return nbytes + nbytes // REMEMBERED_SHARE + 16 * source.n_rows
    remembered = 16 + (4 * n_groups(n_clusters) if worth_keeping(source.n_columns, n_clusters) else 0)
    dtype = block_dtype(source.matrix.dtype)
    itemsize = 8 if source.prepare and dtype.kind != "f" else dtype.itemsize
    nbytes = source.n_columns * itemsize
    return source.n_rows * (nbytes + nbytes // REMEMBERED_SHARE + 8 + remembered)


def weighted_points(points: Floats, weights: Floats | float) -> Floats:
    """Return points with each column times its weight, or times a square matrix of weights."""
    return points @ weights if np.ndim(weights) == 2 else points * weights


class WeightedColumns(MatrixView):
    """A matrix whose columns are multiplied on reading: by a weight each, or by a square matrix.

    Weights are what theorems on sampled columns require; a matrix brings the columns into another metric.

    `matrix`: Of floating-point numbers, such as the selected columns of a job.
    `weights` of shape (n_features,) or (n_features, n_features): Finite. Single ones are not negative, and a column of
        weight 0 plays no part; the product is in the matrix's own precision. That with a matrix is in double precision,
        and dense.
    Raises `BadParameter` for weights of another shape, negative ones, or none above 0.
    """

    def __init__(self, matrix: Matrix, weights: ArrayLike) -> None:
        factors: Floats = np.asarray(weights, dtype=np.float64)
        if factors.shape not in ((matrix.shape[1],), (matrix.shape[1],) * 2):
            raise BadParameter(f"{factors.shape} column weights for {matrix.shape[1]} columns")
        if not (np.isfinite(factors).all() and (factors.ndim == 2 or (factors >= 0).all()) and factors.any()):
            raise BadParameter("column weights must be finite, not negative and not all 0")
        super().__init__(matrix)
        self.weights = factors
        self.dtype = np.dtype(matrix.dtype if matrix.dtype.kind == "f" and factors.ndim == 1 else np.float64)
        if factors.ndim == 2:
            self.is_sparse, self.entry_offsets, self.chunk_columns = False, None, None

    def read_rows(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`, their columns times the weights."""
        rows, weights = self.matrix.read_rows(start, stop), self.weights.astype(self.dtype)
        if weights.ndim == 2:
            return self._product(rows)
        if is_csr(rows):
            return with_stored(rows, rows.data * weights[rows.indices])
        return canonical(rows * weights, self.dtype)

    def _product(self, rows: Any) -> Array:
        with one_blas_thread():
            dense = densify(rows) if is_csr(rows) else np.asarray(rows)
            return canonical(dense.astype(np.float64) @ self.weights, self.dtype)

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the rows and the weights."""
        rows = self.matrix.identity(start, stop)
        if rows is None:
            return None
        return hashlib.sha256(rows.encode() + self.weights.tobytes()).hexdigest()

    def dask_rows(self) -> Any | None:
        """Return the rows as a Dask array, their columns times the weights."""
        rows = self.matrix.dask_rows()
        if rows is None:
            return None
        if self.weights.ndim == 2:
            return rows.rechunk({1: -1}).map_blocks(self._product, dtype=self.dtype, meta=np.empty((0, 0)))
        rows, weights = rows.astype(self.dtype), self.weights.astype(self.dtype)
        if not self.is_sparse:
            return rows * weights
        # A block may be a `scipy.sparse.csr_matrix`, whose product with a vector would be that of matrices.
        return rows.rechunk({1: -1}).map_blocks(lambda block: block.multiply(weights).tocsr(), meta=rows._meta)
