"""Partitions of the rows of a matrix: runs of whole chunks, sized in bytes."""

from __future__ import annotations

import numpy as np

from sketchselect._byte_sizes import format_bytes, parse_bytes
from sketchselect.errors import BadParameter
from sketchselect.linalg.csr import entry_runs
from sketchselect.readers.base import Matrix, Partitions

DEFAULT_PARTITION_BYTES = 32 << 20
"""Default size of a partition, counted as rows x columns x 8 bytes."""

MAX_READ_AMPLIFICATION = 4.0
"""Bytes decoded per byte used, beyond which a run is refused."""

WHOLE_CHUNKS = 32
"""Largest chunk, in partitions of the default size, that is one partition rather than decoded by several."""

WHOLE_CHUNK_MEMORY = 8
"""About what a task takes in all that reads a chunk whole, in such chunks."""

_LEAST_CHUNK_VALUES = 2**15

ENTRY_NBYTES = 16
"""Bytes that a stored entry of a sparse matrix counts as: a value and an index, both of 8."""


def row_partitions(
    matrix: Matrix, partition_bytes: int | str | None = None, *, sparse: bool = False, dense_columns: int = 1
) -> Partitions:
    """Cut the rows of a matrix into partitions of at most `partition_bytes`, each a run of whole chunks.

    All partitions have the same number of rows except the last; where chunks differ in height (Dask arrays) every
    edge is a chunk edge. With `sparse` a partition is as many rows as fit by their stored entries, taken greedily from
    the first row, so that rows appended behind never move an earlier edge; each chunk is one where entries are not
    known before they are read. A pure function of shape, chunk heights, entries in each row and size: the same for any
    number of workers.

    Parameters
    ----------
    matrix : Matrix
        The source.
    partition_bytes : int or str, default 32 MiB
        Size, as rows x columns x 8 bytes, whatever the type as stored; with `sparse`, as stored entries x 16. By
        default a chunk of up to 1 GiB stays whole.
    sparse : bool
        Whether blocks stay sparse.
    dense_columns : int
        With `sparse`, dense numbers that come with each row (chosen columns, say): they, too, fit in a partition.

    Returns
    -------
    Partitions
        With `read_amplification` > 1 where one row of chunks is larger than a partition and had to be split.

    Raises
    ------
    BadParameter
        If more than four times the bytes used would be decoded; the message has a command for better chunks.
    """
    size = DEFAULT_PARTITION_BYTES if partition_bytes is None else parse_bytes(partition_bytes)
    n_rows, n_columns = matrix.shape
    if sparse:
        if matrix.entry_offsets is None:
            return Partitions(matrix.chunk_edges or (*range(0, n_rows, matrix.chunk_rows), n_rows))
        runs = entry_runs(matrix.entry_offsets, size // ENTRY_NBYTES, max(1, size // (8 * max(1, dense_columns))))
        return Partitions((0, *(stop for _, stop in runs)))
    fitting = max(1, size // (8 * max(1, n_columns)))
    highest = _highest_chunk(matrix)
    if partition_bytes is None and highest <= WHOLE_CHUNKS * fitting:
        fitting = max(fitting, highest)
    partitions = _cut(matrix, fitting)
    if partitions.read_amplification > MAX_READ_AMPLIFICATION:
        needed = matrix.chunk_rows * n_columns * 8
        rows, height = ("rows", "high") if matrix.axes[0] == "row" else ("columns", "wide")
        raise BadParameter(
            f"{matrix.address}: chunks are {matrix.chunk_rows} {rows} {height} ({format_bytes(needed)} counted as 8 "
            f"bytes a value), so partitions of {format_bytes(size)} would decode everything "
            f"{partitions.read_amplification:.1f} times; set partition_bytes to {needed}, with "
            f"some {format_bytes(WHOLE_CHUNK_MEMORY * needed)} of memory for each thread, or "
            f"{_advice(matrix, fitting, size)}"
        )
    return partitions


def accepted_size(matrix: Matrix, partition_bytes: int) -> int:
    """Return the least size that `row_partitions` does not refuse, from one on that nobody asked for."""
    row, highest = 8 * max(1, matrix.shape[1]), _highest_chunk(matrix)
    fitting = max(1, partition_bytes // row)
    heights = (fitting, *(-(-highest // pieces) for pieces in (4, 3, 2, 1)))
    height = next(h for h in heights if h >= fitting and _cut(matrix, h).read_amplification <= MAX_READ_AMPLIFICATION)
    return partition_bytes if height == fitting else row * height


def even_partitions(matrix: Matrix, partition_bytes: int | str | None, dense_columns: int) -> Partitions:
    """Cut the rows of a sparse matrix into partitions of one height, as chunks of a dense array beside it need.

    The height is the largest that fits by `dense_columns` numbers a row, halved until the entries of every partition
    fit too, as far as they are known.
    """
    size = DEFAULT_PARTITION_BYTES if partition_bytes is None else parse_bytes(partition_bytes)
    offsets = matrix.entry_offsets
    n_rows = matrix.shape[0]
    step = min(n_rows, max(1, size // (8 * max(1, dense_columns))))
    while (
        offsets is not None
        and step > 1
        and np.diff(offsets[[*range(0, n_rows, step), n_rows]]).max() > size // ENTRY_NBYTES
    ):
        step = -(-step // 2)
    return Partitions((*range(0, n_rows, step), n_rows))


def _cut(matrix: Matrix, fitting: int) -> Partitions:
    """Cut dense rows into partitions of at most `fitting` rows."""
    if matrix.chunk_edges:
        return _irregular(matrix.chunk_edges, fitting)
    return _regular(matrix.shape[0], matrix.chunk_rows, fitting)


def _highest_chunk(matrix: Matrix) -> int:
    return int(max(np.diff(matrix.chunk_edges))) if matrix.chunk_edges else min(matrix.chunk_rows, matrix.shape[0])


def _advice(matrix: Matrix, fitting: int, size: int) -> str:
    """Return the call or command that makes fitting chunks; of columns such that runs of rows can be read too."""
    n_rows, n_columns = matrix.shape
    by_row = matrix.axes[0] == "row"
    if matrix.describe().get("format") == "dask":
        return f"rechunk it first, x.rechunk({(fitting, -1) if by_row else (-1, fitting)})"
    height, width = fitting, n_columns
    if not by_row:
        # Chunks that fit both ways would be tiny where a partition holds few columns of many rows.
        height, width = max(1, size // (8 * n_rows)), fitting
        factor = int(min(3, max(1, (_LEAST_CHUNK_VALUES / (height * width)) ** 0.5)))
        height, width = min(n_columns, factor * height), min(n_rows, factor * width)
    return f"rewrite it with: sketchselect convert IN OUT.zarr --chunks {height}x{width}"


def _regular(n_rows: int, chunk_rows: int, fitting: int) -> Partitions:
    if chunk_rows <= fitting:
        step = fitting // chunk_rows * chunk_rows
    else:
        n_pieces = -(-chunk_rows // fitting)
        even = next((chunk_rows // n for n in range(n_pieces, 2 * n_pieces) if chunk_rows % n == 0), fitting)
        candidates = {even, -(-chunk_rows // n_pieces), fitting}
        step = min(sorted(candidates, reverse=True), key=lambda rows: _amplification(n_rows, chunk_rows, rows))
    edges = (*range(0, n_rows, step), n_rows)
    return Partitions(edges, _amplification(n_rows, chunk_rows, step))


def _amplification(n_rows: int, chunk_rows: int, step: int) -> float:
    """Return rows decoded per row used when runs of `step` rows are read from chunks of `chunk_rows`."""
    if step % chunk_rows == 0:
        return 1.0
    decoded = 0
    for start in range(0, n_rows, step):
        stop = min(start + step, n_rows)
        decoded += min(-(-stop // chunk_rows) * chunk_rows, n_rows) - start // chunk_rows * chunk_rows
    return decoded / n_rows


def _irregular(edges: tuple[int, ...], fitting: int) -> Partitions:
    """Group whole chunks greedily; a chunk taller than a partition is split evenly."""
    cuts = [0]
    decoded = 0
    for i in range(len(edges) - 1):
        first, last = edges[i], edges[i + 1]
        if last - first > fitting:
            if cuts[-1] != first:
                cuts.append(first)
            n_pieces = -(-(last - first) // fitting)
            cuts += [first + (last - first) * piece // n_pieces for piece in range(1, n_pieces + 1)]
            decoded += (last - first) * n_pieces
        else:
            decoded += last - first
            if last - cuts[-1] > fitting:
                cuts.append(first)
    if cuts[-1] != edges[-1]:
        cuts.append(edges[-1])
    return Partitions(tuple(cuts), decoded / edges[-1])
