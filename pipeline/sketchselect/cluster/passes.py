"""The passes of k-means over one source: how it is cut, and where it is held between iterations."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from sketchselect.execution.block import Block, Source
from sketchselect.execution.checkpoint import Checkpoint
from sketchselect.execution.engine import Engine
from sketchselect.execution.progress import Progress, Silent
from sketchselect.execution.reduce import reduce_blocks
from sketchselect.execution.shipping import lives_on_cluster
from sketchselect.execution.summarize import SummariseBlock, merge_summaries, summary_key
from sketchselect.execution.threads_engine import ThreadEngine
from sketchselect.linalg.arrays import Array
from sketchselect.readers.base import Matrix
from sketchselect.summaries import CentroidSums

T = TypeVar("T")

N_PARTITIONS = 32
"""Partitions aimed at: enough to balance any few workers, few enough that an iteration is tens of tasks."""

LEAST_PARTITION_NBYTES = 16 << 20
MOST_PARTITION_NBYTES = 128 << 20

CENTER_RATIO = 16
"""Times the centres' bytes that a partition has at least: making and merging their sums is work of that size."""

LOCAL_NBYTES = 512 << 20
"""Prepared, selected data up to this size are clustered in the client's process even where a cluster was given."""

HELD_SHARE = 0.25
"""Share of this machine's memory (or of the engine's limit) that data held between iterations may take."""


@dataclass(frozen=True)
class Passes:
    """A source as k-means iterates over it.

    Parameters
    ----------
    source : Source
        Rows, weights, preparation and columns.
    engine : Engine
        What runs the passes.
    partition_bytes : int
        Size of a partition in the measure of `row_bands`.
    checkpoint : Checkpoint or None
        Where finished nodes are kept.
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

    @property
    def held(self) -> bool:
        """Whether the rows are held in this process, so that something may be remembered for each of them."""
        return isinstance(self.source, HeldSource)

    def fold(
        self,
        leaf: Callable[[Block], T],
        merge: Callable[[T, T], T],
        stage: str,
        *,
        state_nbytes: int,
        working_nbytes: int,
    ) -> T:
        """Return the fold of `leaf` over the blocks."""
        return reduce_blocks(
            self.source,
            leaf,
            merge,
            engine=self.engine,
            partition_bytes=self.partition_bytes,
            stage=stage,
            state_nbytes=state_nbytes,
            working_nbytes=working_nbytes,
            progress=self.progress,
            retries=self.retries,
            stall_timeout=self.stall_timeout,
        ).value

    def sums(self, description: CentroidSums, stage: str) -> CentroidSums:
        """Return a summary of all rows."""
        width = self.source.n_columns
        return cast(
            CentroidSums,
            reduce_blocks(
                self.source,
                SummariseBlock(description),
                merge_summaries,
                engine=self.engine,
                partition_bytes=self.partition_bytes,
                stage=stage,
                state_nbytes=description.projected_nbytes(width),
                working_nbytes=description.working_nbytes(width),
                checkpoint=self.checkpoint,
                leaf_key=summary_key(description) if self.checkpoint is not None else None,
                progress=self.progress,
                retries=self.retries,
                stall_timeout=self.stall_timeout,
            ).value,
        )


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
    """Return the passes over `source`: partitions by size alone, held in this process's memory where that is fair.

    The partitions, and so the bits of every result, depend neither on the engine nor on whether the data are held.
    """
    nbytes = _prepared_nbytes(source)
    partition = partition_nbytes(source, n_clusters)
    remote = engine.kind == "dask"
    local = ThreadEngine() if remote else engine
    most = HELD_SHARE * (local.memory_limit or _memory_nbytes())
    if nbytes > (min(most, LOCAL_NBYTES) if remote else most):
        return Passes(source, engine, partition, checkpoint, progress or Silent(), retries, stall_timeout)
    blocks = reduce_blocks(
        source,
        _hold,
        _merge_held,
        # Results that only the cluster can reach must be fetched by it.
        engine=engine if remote and lives_on_cluster(source.matrix) else local,
        partition_bytes=partition,
        stage="load rows for k-means",
        progress=progress,
        retries=retries,
        stall_timeout=stall_timeout,
    ).value
    held = HeldSource(
        HeldMatrix(source.matrix), weight=source.weight, prepare=source.prepare, columns=source.columns, blocks=blocks
    )
    return Passes(held, local, partition)


def partition_nbytes(source: Source, n_clusters: int) -> int:
    """Return the partition size for iterating over the chosen columns, in the measure of `row_bands` (all columns).

    A pure function of shape, chunks, chosen columns and clusters: about `N_PARTITIONS` partitions of 16 to 128 MiB of
    chosen data, never less than a chunk is high, and large against the centres.
    """
    row = 8 * max(1, source.n_columns)
    least = max(LEAST_PARTITION_NBYTES, CENTER_RATIO * n_clusters * row)
    wanted = min(max(source.n_rows * row // N_PARTITIONS, least), MOST_PARTITION_NBYTES)
    full_row = 8 * max(1, source.matrix.shape[1])
    rows = max(wanted // row, source.matrix.chunk_rows)
    return max(min(rows * full_row, MOST_PARTITION_NBYTES), full_row)


class HeldMatrix(Matrix):
    """Stands in for a matrix whose prepared blocks are held: same shape and chunks, nothing to read."""

    in_memory = True

    def __init__(self, matrix: Matrix) -> None:
        for name in (
            "shape",
            "dtype",
            "is_sparse",
            "feature_names",
            "address",
            "nonfinite",
            "chunk_rows",
            "chunk_edges",
        ):
            setattr(self, name, getattr(matrix, name, None))

    def read_rows(self, start: int, stop: int) -> Array:
        """Refuse: blocks come from the source that holds them."""
        raise NotImplementedError("held blocks are read through their source")

    def identity(self, start: int, stop: int) -> str | None:
        """Return None: what is held is not checkpointed."""
        return None

    def part(self, start: int, stop: int) -> Matrix:
        """Return itself: it holds no rows."""
        return self


@dataclass(frozen=True)
class HeldSource(Source):
    """A source whose blocks have been read, screened and prepared.

    Parameters
    ----------
    blocks : mapping of (start, stop) to Block
        One per partition.
    """

    blocks: Mapping[tuple[int, int], Block] = field(default_factory=dict)

    def block(self, start: int, stop: int) -> Block:
        """Return the block of a partition."""
        return self.blocks[start, stop]


def _hold(block: Block) -> dict[tuple[int, int], Block]:
    return {(block.start, block.stop): block}


def _merge_held(left: Mapping[tuple[int, int], Block], right: Mapping[tuple[int, int], Block]) -> dict[Any, Block]:
    return {**left, **right}


def _prepared_nbytes(source: Source) -> int:
    dtype = source.matrix.dtype
    itemsize = dtype.itemsize if dtype.kind == "f" and dtype.itemsize >= 4 else 8 if source.prepare else dtype.itemsize
    return source.n_rows * (source.n_columns * itemsize + 8)


def _memory_nbytes() -> float:
    """Return this machine's memory, or what the container allows of it; infinite where neither can be told."""
    try:
        memory: float = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = float("inf")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(Path(name).read_text()))
    return memory
