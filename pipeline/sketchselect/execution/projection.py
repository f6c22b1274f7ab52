"""The projected memory of a pass, stated before it starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sketchselect import prepare
from sketchselect._byte_sizes import format_bytes
from sketchselect.errors import WillNotFit
from sketchselect.execution.graph.tree import MergeTree
from sketchselect.execution.source import Source
from sketchselect.readers.base import Partitions
from sketchselect.readers.partitions import ENTRY_NBYTES

READ_FACTOR = 2.5
"""Peak of reading and decoding a block, as a multiple of its decoded bytes (measured on Zarr stores)."""

PROCESS_NBYTES = 320 * 2**20
"""An idle process with Python and the libraries loaded."""

SPLIT_FACTOR = 3.0
"""What kernels make of a sparse block, as a multiple of its entries x 16 bytes: columns that are at least a quarter
full become dense, the others are sorted by column."""

UNKNOWN_ENTRIES = 1 << 21
"""Entries that the largest block of a sparse Dask array is taken to have: 32 MiB, a partition of the default size."""

SENT_AHEAD = 4
"""Partitions per task whose rows, of a matrix in the client's memory, may be on a worker."""


class Slots:
    """What the projection has to know of an engine."""

    kind: str
    n_workers: int = 1  # Processes
    n_slots: int = 1  # Tasks at a time
    slots_per_process: int = 1  # Tasks at a time in one process, which share its memory


@dataclass(frozen=True)
class Projection:
    """Upper bound of the bytes of one process that runs tasks."""

    process: int
    reading: int  # Reading, decoding and preparing blocks, one per task at a time
    states: int  # States being made and waiting to be merged
    working: int  # Kernels' working memory
    caller: int = 0  # Results that the caller of the pass has in this process meanwhile, where tasks run in it

    @property
    def nbytes(self) -> int:
        """The sum."""
        return self.process + self.reading + self.states + self.working + self.caller

    def sentence(self) -> str:
        """Return the projection in words."""
        caller = f"{format_bytes(self.caller)} for the result, " if self.caller else ""
        return (
            f"projected peak {format_bytes(self.nbytes)} per process: {format_bytes(self.reading)} for reading blocks, "
            f"{format_bytes(self.states)} for states, {format_bytes(self.working)} for working memory, {caller}"
            f"{format_bytes(self.process)} for the process itself"
        )


def projection(
    source: Source,
    partitions: Partitions,
    tree: MergeTree,
    *,
    state_nbytes: int,
    working_nbytes: int,
    engine: Slots,
    caller_nbytes: int = 0,
    reads_ahead: bool = False,
) -> Projection:
    """Return what each process of `engine` will need at most for this pass."""
    # Beside each task that computes there is one that reads.
    slots, n_slots = ((1 + reads_ahead) * n for n in (engine.slots_per_process, engine.n_slots))
    reading = sparse_reading(source, partitions) if source.is_sparse else _dense_reading(source, partitions)
    if source.matrix.in_memory and engine.kind == "dask":
        # Rows are sent for a few partitions ahead.
        reading += SENT_AHEAD * max(source.matrix.stored_nbytes(*partitions[i]) for i in range(len(partitions)))
    # A task folds two states into a third; beside, the left siblings on every level wait.
    waiting = min(tree.n_leaves, tree.depth * (tree.fan_in - 1) + n_slots)
    # Statistics and random numbers of prepare steps are there once for all tasks of a process.
    widths = prepare.widths(source.prepare, source.matrix.shape[1])
    steps = sum(step.working_nbytes(width) for step, width in zip(source.prepare, widths, strict=False))
    return Projection(
        process=PROCESS_NBYTES + (source.matrix.remembered_nbytes if partitions.read_amplification > 1 else 0),
        reading=int(slots * reading),
        states=int((3 * slots + waiting) * state_nbytes),
        working=int(slots * working_nbytes) + steps,
        caller=caller_nbytes if engine.kind != "dask" else 0,
    )


def _dense_reading(source: Source, partitions: Partitions) -> float:
    """Return the bytes that one task needs for a block that is dense, or made so."""
    matrix = source.matrix
    n_columns = matrix.shape[1]
    rows = max(stop - start for start, stop in zip(partitions.edges, partitions.edges[1:], strict=False))
    # Whole chunks are decoded, whatever part of them a partition uses.
    decoded_rows = min(-(-rows // matrix.chunk_rows) * matrix.chunk_rows, matrix.shape[0])
    if rows % matrix.chunk_rows and rows > matrix.chunk_rows:
        decoded_rows = min(decoded_rows + matrix.chunk_rows, matrix.shape[0])
    reading = READ_FACTOR * decoded_rows * n_columns * matrix.dtype.itemsize
    prepared_itemsize = 4 if matrix.dtype.itemsize <= 4 and matrix.dtype.kind == "f" else 8
    if source.prepare:
        reading += 2 * rows * max(prepare.widths(source.prepare, n_columns)) * prepared_itemsize
    if source.columns is not None:
        reading += rows * len(source.columns) * prepared_itemsize
    if matrix.nonfinite == "drop_rows":
        reading += rows * n_columns * (matrix.dtype.itemsize + 1)
    if source.in_double and prepared_itemsize < 8:
        reading += 8 * rows * source.n_columns
    return reading


def sparse_reading(source: Source, partitions: Partitions) -> float:
    """Return the bytes that one task needs for a block that stays sparse."""
    offsets = source.matrix.entry_offsets
    rows = int(np.diff(partitions.edges).max())
    if offsets is None:
        entries = min(UNKNOWN_ENTRIES, rows * source.matrix.shape[1])
    else:
        entries = int(np.diff(offsets[list(partitions.edges)]).max())
    # As read and decoded, prepared, and taken apart by column (`linalg.sparse_columns`).
    nbytes = (READ_FACTOR + 1 + len(source.prepare) + SPLIT_FACTOR) * ENTRY_NBYTES * entries + 64.0 * rows
    if source.columns is not None:
        nbytes += 8 * rows * len(source.columns)
    return nbytes


def require_fit(projected: Projection, limit: int | None, address: str) -> None:
    """Raise `WillNotFit`, with the numbers and what to change, if the projection is above the limit."""
    if limit is None or projected.nbytes <= limit:
        return
    cure = (
        "lower partition_bytes, or where chunks are larger rechunk (`sketchselect convert --chunks`, `x.rechunk`)"
        if projected.reading >= projected.states + projected.working
        else "use a smaller sketch (size) or fewer columns"
    )
    raise WillNotFit(
        f"{address}: {projected.sentence()}; the limit is {format_bytes(limit)}. Raise memory_limit, run fewer threads "
        f"per worker, or {cure}"
    )
