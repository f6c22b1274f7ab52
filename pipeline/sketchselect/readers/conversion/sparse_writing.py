"""Writing of CSR groups: the layout of AnnData, with checksums, put in place as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sketchselect.linalg.arrays import Array
from sketchselect.location import Location
from sketchselect.readers.base import Matrix
from sketchselect.readers.conversion.writing import aligned, create_array
from sketchselect.readers.partitions import ENTRY_NBYTES, row_partitions
from sketchselect.readers.zarr.matrix import ATTRIBUTE
from sketchselect.readers.zarr.scan import MARKER

CHUNK_ENTRIES = 1 << 20
"""Entries in a chunk: 8 MiB of float64 values, 4 MiB of indices."""

_BLOCK_ENTRIES = 4 << 20


def write_csr(
    folder: Location, matrix: Matrix, names: Sequence[str] | None, progress: Callable[[int, int], None] | None
) -> None:
    """Write a sparse matrix as a group of ``data``, ``indices`` and ``indptr``, a few chunks in memory at a time."""
    import zarr

    from sketchselect.readers.zarr.store import make_store

    n_rows, n_columns = matrix.shape
    offsets = matrix.entry_offsets
    dtype = matrix.dtype.newbyteorder("=")
    attributes: dict[str, Any] = {
        MARKER: {"empty_chunks": "written"},
        "encoding-type": "csr_matrix",
        "encoding-version": "0.1.0",
        "shape": [n_rows, n_columns],
    }
    if names is not None:
        attributes[ATTRIBUTE] = list(names)
    zarr.create_group(make_store(folder, read_only=False), attributes=attributes)
    index = np.dtype(np.int32 if n_columns <= np.iinfo(np.int32).max else np.int64)
    n_entries = CHUNK_ENTRIES if offsets is None else max(int(offsets[-1]), 1)
    chunk = (min(CHUNK_ENTRIES, n_entries),)
    data = create_array(folder.join("data"), (n_entries,), chunk, dtype)
    indices = create_array(folder.join("indices"), (n_entries,), chunk, index)
    ends = np.zeros(n_rows + 1, np.int64)
    done = 0
    for values, columns in aligned(_blocks(matrix, ends, progress), max(1, _BLOCK_ENTRIES // chunk[0]) * chunk[0]):
        if done + values.size > n_entries:
            n_entries = done + values.size
            data.resize((n_entries,))
            indices.resize((n_entries,))
        data[done : done + values.size] = values.astype(dtype, copy=False)
        indices[done : done + values.size] = columns.astype(index, copy=False)
        done += values.size
    # Entries stored twice, and stored zeros, are gone from what is written.
    data.resize((done,))
    indices.resize((done,))
    indptr = create_array(folder.join("indptr"), ends.shape, (min(CHUNK_ENTRIES, n_rows + 1),), np.int64)
    indptr[:] = ends


def _blocks(matrix: Matrix, ends: Array, progress: Callable[[int, int], None] | None) -> Iterator[tuple[Array, Array]]:
    edges = row_partitions(matrix, ENTRY_NBYTES * _BLOCK_ENTRIES, sparse=True).edges
    for start, stop in pairwise(edges):
        block = matrix.read_rows(start, stop)
        ends[start + 1 : stop + 1] = ends[start] + block.indptr[1:]
        yield block.data, block.indices
        if progress is not None:
            progress(stop, matrix.shape[0])
