"""Targets, labels and weights: one entry per row of a matrix, read in the same runs of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from sketchselect.linalg.arrays import Array


class Vector(ABC):
    """One entry (or one row of several targets) per row of a matrix. Small and picklable unless `in_memory`.

    Attributes
    ----------
    shape : tuple of int
        (n_rows,) or (n_rows, n_targets).
    dtype : numpy.dtype
        Type of the entries as stored: numbers or text (class labels).
    address : str
        Path, URL or description, for messages; never holds credentials.
    in_memory : bool
        True where the object holds the data itself.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    address: str = "array"
    in_memory: bool = False

    @property
    def n_rows(self) -> int:
        """Entries."""
        return self.shape[0]

    @abstractmethod
    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`, one- or two-dimensional, canonical."""

    @abstractmethod
    def identity(self) -> str | None:
        """Return a fingerprint of the whole content; None if it cannot be told."""

    def part(self, start: int, stop: int) -> Vector:
        """Return the smallest vector that can still read entries `start` to `stop` under their own numbers."""
        return self


def open_vector(
    source: Any,
    n_rows: int | None,
    *,
    matrix_address: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    missing_chunks: str = "error",
    name: str = "target",
) -> Vector:
    """Open targets, labels or weights: one entry for each of the `n_rows` rows of a matrix.

    Parameters
    ----------
    source : path, URL, array or Vector
        An ``.npy`` file; an ``.npz`` archive (its array `name`, else ``y``, else the only one of `n_rows` entries);
        a Zarr array; the name of an array in the store of the matrix; a NumPy array, pandas Series or Dask array.
    n_rows : int or None
        Rows of the matrix; None where there is no matrix to compare with.
    matrix_address : str or None
        Where the matrix is; arrays in the same store can then be named alone.
    storage_options : mapping or None
        Arguments of the remote file system.
    missing_chunks : {"error", "fill"}
        What a Zarr chunk without a file means, as for `open_matrix`.
    name : str
        What messages call it.

    Raises
    ------
    SourceError
        If it cannot be opened, has another length than the matrix (naming both), or holds neither numbers nor text.
    """
    from sketchselect.readers.zarr.array import require_missing_policy
    from sketchselect.readers.zarr.vector import make_vector

    return make_vector(source, n_rows, matrix_address, storage_options, require_missing_policy(missing_chunks), name)
