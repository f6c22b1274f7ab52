"""The passes of k-means over one source: how it is cut, and where it is held between iterations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect.execution.cached import HeldBlock, WorkerSource, hold_block, hold_source, join_held
from sketchselect.execution.checkpoints.index import Checkpoint
from sketchselect.execution.engine import Engine
from sketchselect.execution.memory.process import available_nbytes
from sketchselect.execution.progress import Progress, Silent
from sketchselect.execution.run import reduce_blocks, source_partitions
from sketchselect.execution.shipping import lives_on_cluster
from sketchselect.execution.source import Block, Source
from sketchselect.execution.summarize import merge_summaries, summary_key
from sketchselect.execution.threads_engine import ThreadEngine
from sketchselect.linalg.kmeans.bounds import RowMemory, n_groups, worth_keeping
from sketchselect.linalg.sparse.csr import is_csr
from sketchselect.readers.partitions import ENTRY_NBYTES
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

LOCAL_NBYTES = 512 << 20
"""Prepared, selected data up to this size are clustered in the client's process even where a cluster was given; what is
in its memory already is so at any size that fits."""

HELD_SHARE = 0.25
"""Share of this machine's memory (or of the engine's limit) that data held between iterations may take."""

WORKER_SHARE = 0.35
"""Share of its memory limit that a worker may be given to hold; a Dask worker begins to spill at 0.6."""


@dataclass(frozen=True)
class Passes:
    """A source as k-means iterates over it; a context manager that lets go of what is held at the end.

    Parameters
    ----------
    source : Source
        Rows, weights, preparation and columns.
    engine : Engine
        What runs the passes.
    partition_bytes : int
        Size of a partition in the measure of `row_partitions`.
    checkpoint : Checkpoint or None
        Where finished nodes are kept; None where the blocks are held.
    progress : Progress
        Told of every pass that reads the source again.
    retries, stall_timeout : int, float
        As in `reduce_blocks`.
    """

    source: Source
    engine: Engine
    partition_bytes: int
    checkpoint: Checkpoint | None = None
    progress: Progress = field(default_factory=Silent)
    retries: int = 2
    stall_timeout: float = 300.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if isinstance(self.source, WorkerSource):
            for future in self.source.futures.values():
                future.release()

    def fold(
        self,
        leaf: Callable[[Block], T],
        merge: Callable[[T, T], T],
        stage: str,
        *,
        state_nbytes: int,
        working_nbytes: int,
        leaf_key: str | None = None,
    ) -> T:
        """Return the fold of `leaf` over the blocks; nodes are kept where `leaf_key` tells the leaf from others."""
        return reduce_blocks(
            self.source,
            leaf,
            merge,
            engine=self.engine,
            partition_bytes=self.partition_bytes,
            stage=stage,
            state_nbytes=state_nbytes,
            working_nbytes=working_nbytes,
            checkpoint=None if leaf_key is None else self.checkpoint,
            leaf_key=leaf_key,
            progress=self.progress,
            retries=self.retries,
            stall_timeout=self.stall_timeout,
        ).value

    def sums(self, description: CentroidSums, stage: str) -> CentroidSums:
        """Return a summary of all rows."""
        width = self.source.n_columns
        return cast(
            CentroidSums,
            self.fold(
                SumBlock(description),
                merge_summaries,
                stage,
                state_nbytes=description.projected_nbytes(width),
                working_nbytes=description.working_nbytes(width),
                leaf_key=summary_key(description) if self.checkpoint is not None else None,
            ),
        )


@dataclass(frozen=True)
class SumBlock:
    """Leaf of an iteration: the sums of one block."""

    description: CentroidSums

    def __call__(self, block: Block) -> CentroidSums:
        """Return the summary of one block."""
        return assign_block(self.description, block)[1]


def assign_block(description: CentroidSums, block: Block) -> tuple[NDArray[np.int32], CentroidSums]:
    """Return each row's nearest centre, and the sums of one block.

    What is held remembers which comparisons it can do without next time.
    """
    n_rows, n_features = block.values.shape
    memory = None
    worth = n_rows > 0 and worth_keeping(n_features, description.n_clusters)
    if worth and isinstance(block, HeldBlock) and not is_csr(block.values):
        memory = block.memory.setdefault("bounds", RowMemory(n_rows))
    return description.label_block(block.values, start=block.position, sample_weight=block.weight, memory=memory)


def open_passes(
    source: Source,
    n_clusters: int,
    *,
    engine: Engine,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    retries: int = 2,
    stall_timeout: float = 300.0,
) -> Passes:
    """Return the passes over `source`: partitions by size alone, held in memory where that is fair.

    Small data are held in this process; larger ones by the workers of a Dask cluster, where they fit in
    `WORKER_SHARE` of their memory; what fits nowhere is read in every pass. The partitions, and so the bits of every
    result, depend neither on the engine nor on where the data are.
    """
    told = progress or Silent()
    source = replace(source, takes_sparse=True)
    partition = partition_nbytes(source, n_clusters)
    remote = engine.kind == "dask"
    local = ThreadEngine() if remote else engine
    place = placement(source, n_clusters, engine)
    if place == "client":
        if remote and source.matrix.in_memory and prepared_nbytes(source, n_clusters) > LOCAL_NBYTES:
            told.note("k-means: the rows are in this process's memory and are clustered here, not on the cluster")
        blocks = reduce_blocks(
            source,
            hold_block,
            join_held,
            # Results that only the cluster can reach must be fetched by it.
            engine=engine if remote and lives_on_cluster(source.matrix) else local,
            partition_bytes=partition,
            stage="load rows for k-means",
            progress=progress,
            retries=retries,
            stall_timeout=stall_timeout,
        ).value
        return Passes(hold_source(source, blocks), local, partition)
    if place == "workers":
        from sketchselect.execution.resident import load_onto_workers

        partitions = source_partitions(source, partition)
        resident = load_onto_workers(source, partitions, cast("DaskEngine", engine), retries=retries)
        told.note(f"k-means: the rows stay in the workers' memory between iterations, in {len(partitions)} blocks")
        return Passes(resident, engine, partition, None, told, retries, stall_timeout)
    return Passes(source, engine, partition, checkpoint, told, retries, stall_timeout)


def placement(source: Source, n_clusters: int, engine: Engine) -> Literal["client", "workers", "source"]:
    """Return where the rows of a source that takes sparse blocks stay between iterations: "source" if nowhere."""
    nbytes = prepared_nbytes(source, n_clusters)
    if engine.kind != "dask":
        return "client" if nbytes <= HELD_SHARE * (engine.memory_limit or available_nbytes()) else "source"
    here = HELD_SHARE * available_nbytes()
    # Rows that are in our memory already would be sent in every pass, which takes longer than a sweep over them.
    if nbytes <= (here if source.matrix.in_memory else min(here, LOCAL_NBYTES)):
        return "client"
    return "workers" if _fits_workers(source, cast("DaskEngine", engine), nbytes) else "source"


def _fits_workers(source: Source, engine: DaskEngine, nbytes: int) -> bool:
    from sketchselect.execution.resident import can_reside

    if engine.memory_limit is None or not can_reside(source):
        return False
    return nbytes <= WORKER_SHARE * engine.memory_limit * engine.n_workers


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
    wanted = min(max(source.n_rows * row // N_PARTITIONS, least), MOST_PARTITION_NBYTES)
    full_row = 8 * max(1, source.matrix.shape[1])
    rows = max(wanted // row, source.matrix.chunk_rows)
    return max(min(rows * full_row, MOST_PARTITION_NBYTES), full_row)


def prepared_nbytes(source: Source, n_clusters: int) -> int:
    """Return the bytes that the prepared, chosen rows take in memory, with weights and what is remembered of them."""
    if source.is_sparse:
        # Steps may make float64 of them; indices take 4 or 8 bytes.
        offsets = source.matrix.entry_offsets
        return ENTRY_NBYTES * (0 if offsets is None else int(offsets[-1])) + 16 * source.n_rows
    remembered = 12 + 4 * n_groups(n_clusters) if worth_keeping(source.n_columns, n_clusters) else 0
    dtype = source.matrix.dtype
    itemsize = dtype.itemsize if dtype.kind == "f" and dtype.itemsize >= 4 else 8 if source.prepare else dtype.itemsize
    return source.n_rows * (source.n_columns * itemsize + 8 + remembered)
