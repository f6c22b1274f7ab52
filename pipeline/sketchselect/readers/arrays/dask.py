"""Dask arrays as sources: their blocks are computed in the task that needs them, by Dask's synchronous scheduler."""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any

import numpy as np

from sketchselect.errors import ChunkReadError, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.readers.base import Matrix, Nonfinite
from sketchselect.readers.checks import check_range, finish, require_matrix


def is_dask(source: Any) -> bool:
    """Whether this is a Dask array, of dask.array or of a package that follows its protocol."""
    return hasattr(source, "__dask_graph__") and hasattr(source, "map_blocks") and hasattr(source, "chunks")


def unwrapped(source: Any) -> Any:
    """Return the array inside an xarray object, lazy as it is; anything else unchanged."""
    return source.data if type(source).__module__.partition(".")[0] == "xarray" else source


class DaskMatrix(Matrix):
    """A two-dimensional Dask array with known chunks. Made by `open_matrix`.

    Parameters
    ----------
    array : dask array of shape (n_rows, n_features)
        Any number of column chunks.
    source_id : str or None
        The user's name for the content; without it the rows cannot be told from others and nothing is checkpointed.
    nonfinite : {"error", "drop_rows", "missing"}
        Policy for NaN and infinity.
    """

    def __init__(self, array: Any, source_id: str | None = None, nonfinite: Nonfinite = "error") -> None:
        if any(math.isnan(size) for size in itertools.chain(*array.chunks)):
            raise SourceError("Dask array: the sizes of its chunks are unknown; call x.compute_chunk_sizes() first")
        require_matrix(array.shape, np.dtype(array.dtype), "Dask array")
        heights = [int(rows) for rows in array.chunks[0] if rows]
        self.array = array
        self.source_id = source_id
        self._first = 0
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.dtype = np.dtype(array.dtype)
        self.address = "Dask array" if source_id is None else f"Dask array {source_id!r:.80}"
        self.nonfinite = nonfinite
        self.chunk_rows = max(heights)
        if len(set(heights[:-1])) > 1 or heights[-1] > heights[0]:
            self.chunk_edges = (0, *itertools.accumulate(heights))

    def read_rows(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop`; an error of the user's graph comes back naming the rows."""
        check_range(start, stop, self.shape[0], self.address, self.axes[0])
        rows = self.array[start - self._first : stop - self._first]
        try:
            block = rows.compute(scheduler="synchronous")
        except MemoryError:
            raise
        except Exception as error:
            raise ChunkReadError(
                f"{self.address}: {self.axes[0]}s {start} to {stop - 1} could not be computed "
                f"({type(error).__name__}); see the error of your own graph above this one, or x.persist() it first"
            ) from error
        return finish(block.toarray() if hasattr(block, "toarray") else block, self.address)

    def dask_rows(self) -> Any:
        """Temporary"""
        return self.array

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`."""
        return finish(self.transposed().read_rows(start, stop).T, self.address)

    def transposed(self) -> Matrix:
        """Return the matrix of the transposed graph."""
        out = DaskMatrix(self.array.T, self.source_id, self.nonfinite)
        out.axes = (self.axes[1], self.axes[0])
        return out

    def identity(self, start: int, stop: int) -> str | None:
        """Return a digest of `source_id` and the range, or None without one."""
        if self.source_id is None:
            return None
        by = "" if self.axes[0] == "row" else " by column"
        text = f"dask{by} {self.source_id} {self.shape[1]} {self.dtype.str} {start} {stop}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def part(self, start: int, stop: int) -> Matrix:
        """Return a matrix whose graph makes these rows only."""
        import dask

        check_range(start, stop, self.shape[0], self.address)
        (rows,) = dask.optimize(self.array[start - self._first : stop - self._first])
        out = DaskMatrix.__new__(DaskMatrix)
        out.__dict__.update(self.__dict__, array=rows, _first=start, chunk_edges=None)
        return out

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of this source."""
        return super().describe() | {"format": "dask", "source_id": self.source_id}
