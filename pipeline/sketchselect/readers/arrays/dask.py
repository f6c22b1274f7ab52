"""Dask arrays as matrices and vectors: a task computes the blocks it needs, with Dask's synchronous scheduler."""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

import numpy as np
from scipy.sparse import issparse

from sketchselect.errors import ChunkReadError, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.sparse.csr import as_csr, densify
from sketchselect.readers.base import Matrix
from sketchselect.readers.checks import MissingPolicy, Nonfinite, as_entries, check_range, finish, require_matrix
from sketchselect.readers.vector import Vector


def is_dask(source: Any) -> bool:
    """Return whether this is a Dask array, of dask.array or of a package that follows its protocol."""
    # Asked of the class: a Delayed has every attribute.
    return all(hasattr(type(source), name) for name in ("__dask_graph__", "map_blocks", "chunks"))


def require_known_chunks(array: Any, name: str) -> None:
    """Raise `SourceError` if the sizes of some chunks are not known."""
    if any(math.isnan(size) for size in itertools.chain(*array.chunks)):
        raise SourceError(f"{name}: the sizes of its chunks are unknown; call x.compute_chunk_sizes() first")


class DaskMatrix(Matrix):
    """A two-dimensional Dask array with known chunks. Made by `open_matrix`.

    Blocks of SciPy sparse matrices stay sparse. How many entries their rows have is not known before they are computed,
    so `entry_offsets` is None.

    `array` of shape (n_rows, n_features): Any number of column chunks.
    `source_id`: The user's name for the content; without it the rows have no identity and nothing is checkpointed.
    `nonfinite`, "error", "drop_rows", "missing": Policy for NaN and infinity.
    """

    def __init__(self, array: Any, source_id: str | None = None, nonfinite: Nonfinite = "error") -> None:
        require_known_chunks(array, "Dask array")
        require_matrix(array.shape, np.dtype(array.dtype), "Dask array")
        heights = [int(rows) for rows in array.chunks[0] if rows]
        self.array = array
        self.source_id = source_id
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.dtype = np.dtype(array.dtype)
        self.address = "Dask array" if source_id is None else f"Dask array {source_id!r:.80}"
        self.nonfinite = nonfinite
        self.is_sparse = issparse(array._meta)
        self.chunk_rows = max(heights)
        if len(set(heights[:-1])) > 1 or heights[-1] > heights[0]:
            self.chunk_edges = (0, *itertools.accumulate(heights))

    def read_rows(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`; an error of the user's graph comes back naming the rows."""
        check_range(start, stop, self.shape[0], self.address, self.axes[0])
        rows = self.array[start:stop]
        try:
            block = rows.compute(scheduler="synchronous")
        except MemoryError:
            raise
        except Exception as error:
            raise ChunkReadError(
                f"{self.address}: {self.axes[0]}s {start} to {stop - 1} could not be computed "
                f"({type(error).__name__}); see the error of your graph above, or call x.persist() first"
            ) from error
        return as_csr(block, self.address, start) if self.is_sparse else finish(block, self.address)

    def dask_rows(self) -> Any | None:
        """Return the array; None for a part of it."""
        return self.array if self.array.shape == self.shape else None

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`."""
        columns = self.transposed().read_rows(start, stop).T
        return densify(columns.tocsr()) if self.is_sparse else finish(columns, self.address)

    def transposed(self) -> Matrix:
        """Return the matrix of the transposed graph."""
        out = DaskMatrix(self.array.T, self.source_id, self.nonfinite)
        out.axes = self.axes[::-1]
        return out

    def identity(self, start: int, stop: int) -> str | None:
        """Return a digest of `source_id` and the range, or None without one."""
        if self.source_id is None:
            return None
        by = "" if self.axes[0] == "row" else " by column"
        return digest(f"dask{by} {self.source_id} {self.shape[1]} {self.dtype.str} {start} {stop}")

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | {"format": "dask", "source_id": self.source_id}


class DaskVector(Vector):
    """Entries of a Dask array with known chunks, computed in the task that needs them."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)
        self.address = "Dask array"

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        rows = self.array[start:stop]
        return as_entries(rows.compute(scheduler="synchronous"), self.address)

    def identity(self) -> str | None:
        """Return None: a graph does not say what it computes."""
        return None

    def dask_rows(self) -> Any | None:
        """Return the array; None for a part of it."""
        return self.array if self.array.shape == self.shape else None


def zarr_as_dask(array: Any, missing_chunks: MissingPolicy) -> Any:
    """Return an open `zarr.Array` as a Dask array of its chunks, or its shards."""
    import dask.array as da

    if missing_chunks == "error":
        with contextlib.suppress(TypeError, ValueError):  # zarr before 3.2 has no such setting
            array = array.with_config({"read_missing_chunks": False})
    return da.from_array(array, chunks=array.shards or array.chunks)


def as_dask(values: Any, rows: Any) -> Any:
    """Return values that belong to the rows of a Dask array as a Dask array that is cut as those are."""
    import dask.array as da

    return da.from_array(values, chunks=(rows.chunks[0],))
