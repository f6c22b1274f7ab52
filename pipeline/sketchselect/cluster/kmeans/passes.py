"""Passes of k-means over one source: its partitions, and where its blocks are cached between iterations."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect._memory import available_nbytes
from sketchselect.execution.cached import CachedBlock, CachedSource, cache_block
from sketchselect.execution.engine import Engine, LocalEngine
from sketchselect.execution.graph.passes import Reduction
from sketchselect.execution.options import PassOptions
from sketchselect.execution.run import planned_pass, reduce_blocks
from sketchselect.execution.source import Block, Source
from sketchselect.execution.summarize import summary_key, summary_reduction
from sketchselect.linalg.kmeans.bounds import RowMemory, n_groups, worth_keeping
from sketchselect.linalg.sparse.csr import is_csr
from sketchselect.readers.arrays.dask import futures_client
from sketchselect.readers.partitions import ENTRY_NBYTES, accepted_size
from sketchselect.summaries import CentroidSums

if TYPE_CHECKING:
    from sketchselect.execution.dask.engine import DaskEngine

T = TypeVar("T")

N_PARTITIONS = 32
"""Partitions aimed at: enough to balance any few workers, few enough that an iteration is tens of tasks."""

LEAST_PARTITION_NBYTES = 16 << 20
MOST_PARTITION_NBYTES = 128 << 20

CENTER_RATIO = 16
"""Times the centres' bytes that a partition has at least: making and merging their sums is work of that size."""

REMEMBERED_SHARE = 8
"""Times the bytes of a block's sums that its rows take at least where the sums are remembered."""

LOCAL_NBYTES = 512 << 20
"""Prepared, selected data up to this size are clustered in the client's process even where a cluster was given; what is
in its memory already is so at any size that fits."""

CACHED_SHARE = 0.25
"""Share of this machine's memory (or of the engine's limit) that data cached between iterations may take."""

WORKER_SHARE = 0.35
"""Share of its memory limit that blocks on a worker may take; a Dask worker begins to spill at 0.6."""


@dataclass(frozen=True)
class Passes:
    """A source as k-means iterates over it; a context manager that releases cached blocks at the end."""

    source: Source  # Rows, weights, preparation and columns
    options: PassOptions  # Of every pass; without a checkpoint where the blocks are cached

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if isinstance(self.source, CachedSource):
            for block in self.source.blocks.values():
                if not isinstance(block, CachedBlock):
                    block.release()

    def reduce(self, reduction: Reduction[T]) -> T:
        """Return what one pass over the blocks gives."""
        return reduce_blocks(self.source, reduction, self.options).value

    def sums(self, description: CentroidSums, stage: str) -> CentroidSums:
        """Return a summary of all rows."""
        reduction = summary_reduction(self.source, description, stage, SumBlock(description))
        key = summary_key(description) if self.options.checkpoint is not None else None
        return cast(CentroidSums, self.reduce(replace(reduction, key=key)))


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

    A cached block remembers its last answer, if that is small against the rows, and which comparisons it can do without
    next time.
    """
    n_rows, n_features = block.values.shape
    remembered = block.memory if isinstance(block, CachedBlock) else {}
    labelled: tuple[NDArray[np.int32], CentroidSums] | None = remembered.get("labelled")
    if labelled is not None and np.array_equal(np.asarray(labelled[1].centers), np.asarray(description.centers)):
        return labelled
    memory: RowMemory | None = remembered.get("rows")
    if memory is None and n_rows and isinstance(block, CachedBlock) and not is_csr(block.values):
        memory = remembered["rows"] = RowMemory(n_rows, worth_keeping(n_features, description.n_clusters))
    labelled = description.label_block(block.values, start=block.position, sample_weight=block.weight, memory=memory)
    stored = [block.values.data, block.values.indices] if is_csr(block.values) else [block.values]
    if REMEMBERED_SHARE * description.projected_nbytes(n_features) <= sum(array.nbytes for array in stored):
        remembered["labelled"] = labelled
    return labelled


def open_passes(source: Source, n_clusters: int, options: PassOptions) -> Passes:
    """Return the passes over `source`: partitions by size alone, blocks cached in memory where that is fair.

    Small data are cached in this process; larger ones by the workers of a Dask cluster, where they fit in
    `WORKER_SHARE` of their memory; what fits nowhere is read in every pass. The partitions, and so the bits of every
    result, depend neither on the engine nor on where the data are.
    """
    engine, progress = options.engine, options.progress
    source = replace(source, takes_sparse=True)
    options = options.but(partition_bytes=partition_size(source, n_clusters, options))
    remote = engine.kind == "dask"
    local = LocalEngine() if remote else engine
    place = placement(source, n_clusters, engine)
    if place == "client":
        if remote and source.matrix.in_memory and prepared_nbytes(source, n_clusters) > LOCAL_NBYTES:
            progress.note("k-means: the rows are in this process's memory and are clustered here, not on the cluster")
        # Results that only the cluster can reach must be fetched by it.
        reading = options.but(
            engine=engine if remote and futures_client(source.matrix.dask_rows()) else local, checkpoint=None
        )
        blocks = reduce_blocks(source, LOAD_ROWS, reading).value
        return Passes(CachedSource.of(source, blocks), PassOptions(local, options.partition_bytes))
    if place == "workers":
        work = planned_pass(source, LOAD_ROWS, options)
        persisted = cast("DaskEngine", engine).persist_blocks(work)
        progress.note(f"k-means: the rows stay in the workers' memory between iterations, in {len(persisted)} blocks")
        return Passes(CachedSource.of(source, persisted), options.but(checkpoint=None))
    return Passes(source, options)


def placement(source: Source, n_clusters: int, engine: Engine) -> Literal["client", "workers", "source"]:
    """Return where the rows of a source that takes sparse blocks stay between iterations: "source" if nowhere."""
    nbytes = prepared_nbytes(source, n_clusters)
    if engine.kind != "dask":
        return "client" if nbytes <= CACHED_SHARE * (engine.memory_limit or available_nbytes()) else "source"
    here = CACHED_SHARE * available_nbytes()
    # Rows that are in our memory already would be sent in every pass, which takes longer than a sweep over them.
    if nbytes <= (here if source.matrix.in_memory else min(here, LOCAL_NBYTES)):
        return "client"
    return "workers" if _fits_workers(source, cast("DaskEngine", engine), nbytes) else "source"


def _fits_workers(source: Source, engine: DaskEngine, nbytes: int) -> bool:
    """Return whether workers can read the rows themselves, again should they lose them, and have room for them."""
    if engine.memory_limit is None or source.matrix.in_memory:
        return False
    return nbytes <= WORKER_SHARE * engine.memory_limit * engine.n_workers


def partition_size(source: Source, n_clusters: int, options: PassOptions) -> int | str:
    """Return the partition size that was asked for, or that which suits k-means."""
    return partition_nbytes(source, n_clusters) if options.partition_bytes is None else options.partition_bytes


def partition_nbytes(source: Source, n_clusters: int) -> int:
    """Return the partition size for iterating over the chosen columns, in the measure of `row_partitions`.

    A pure function of shape, chunks, chosen columns and clusters: about `N_PARTITIONS` partitions of 16 to 128 MiB of
    chosen data, never less than a chunk is high, and large against the centres. Of sparse rows, their stored entries.
    """
    row = 8 * max(1, source.n_columns)
    if source.is_sparse and source.matrix.entry_offsets is not None:
        entries = ENTRY_NBYTES * int(source.matrix.entry_offsets[-1])
        return min(max(entries // N_PARTITIONS, LEAST_PARTITION_NBYTES), MOST_PARTITION_NBYTES)
    least = max(LEAST_PARTITION_NBYTES, CENTER_RATIO * n_clusters * row)
    nbytes = min(max(source.n_rows * row // N_PARTITIONS, least), MOST_PARTITION_NBYTES)
    full_row = 8 * max(1, source.matrix.shape[1])
    rows = max(nbytes // row, source.matrix.chunk_rows)
    return accepted_size(source.matrix, max(min(rows * full_row, MOST_PARTITION_NBYTES), full_row))


def prepared_nbytes(source: Source, n_clusters: int) -> int:
    """Return the bytes that the prepared, chosen rows take in memory, with weights and what is remembered of them."""
    offsets = source.matrix.entry_offsets
    if source.is_sparse and offsets is not None:
        # Steps may make float64 of them; indices take 4 or 8 bytes.
        nbytes = ENTRY_NBYTES * int(offsets[-1])
        return nbytes + nbytes // REMEMBERED_SHARE + 16 * source.n_rows
    remembered = 20 + (4 * n_groups(n_clusters) if worth_keeping(source.n_columns, n_clusters) else 0)
    dtype = source.matrix.dtype
    itemsize = dtype.itemsize if dtype.kind == "f" and dtype.itemsize >= 4 else 8 if source.prepare else dtype.itemsize
    nbytes = source.n_columns * itemsize
    return source.n_rows * (nbytes + nbytes // REMEMBERED_SHARE + 8 + remembered)
