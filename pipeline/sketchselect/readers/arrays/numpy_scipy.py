"""Matrices and vectors in memory: arrays and SciPy sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from sketchselect.errors import BadBlock, SourceError
from sketchselect.linalg.arrays import Array, canonical
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.sparse.csr import as_csr, densify, row_of, structure_fault, take_columns, take_rows
from sketchselect.readers.base import Matrix
from sketchselect.readers.checks import (
    Nonfinite,
    check_range,
    finish,
    require_matrix,
    warn_beyond_double,
)
from sketchselect.readers.vector import Vector

_PROTOCOLS = ("__array__", "__array_interface__", "__dlpack__")


class ArrayMatrix(Matrix):
    """A NumPy array. Blocks are views of it where it is canonical.

    `values` of shape (n_rows, n_features): Real numbers.
    `feature_names`: Names of the columns.
    `nonfinite`, "error", "drop_rows", "missing": Policy for NaN and infinity.
    `address`: Its name in messages.
    """

    in_memory = True

    def __init__(
        self,
        values: Array,
        feature_names: tuple[str, ...] | None = None,
        nonfinite: Nonfinite = "error",
        address: str = "array",
    ) -> None:
        require_matrix(values.shape, values.dtype, address)
        self._values = values
        self.shape = (values.shape[0], values.shape[1])
        self.dtype = values.dtype
        self.feature_names = feature_names
        self.nonfinite = nonfinite
        self.address = address

    def read_rows(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop`."""
        return finish(self._rows(start, stop), self.address)

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`."""
        check_range(start, stop, self.shape[1], self.address, self.axes[1])
        return finish(self._rows(0, self.shape[0])[:, start:stop], self.address)

    def transposed(self) -> Matrix:
        """Return a view of the same memory whose rows are the columns."""
        out = ArrayMatrix(self._rows(0, self.shape[0]).T, None, self.nonfinite, self.address)
        out.axes = self.axes[::-1]
        return out

    def identity(self, start: int, stop: int) -> str | None:
        """Return a digest of the values of these rows."""
        rows = canonical(self._rows(start, stop), self.dtype.newbyteorder("="))
        return digest(f"array {rows.dtype.str} {rows.shape}", rows)

    def _rows(self, start: int, stop: int) -> Array:
        check_range(start, stop, self.shape[0], self.address, self.axes[0])
        return self._values[start:stop]


class SparseMatrix(Matrix):
    """A SciPy sparse matrix in memory, handed out as CSR blocks.

    `values` of shape (n_rows, n_features): In any format; stored as canonical CSR, sharing memory where it is that
        already.
    `feature_names`, `nonfinite`, `address`: As for `ArrayMatrix`.
    Raises `SourceError` if its index arrays do not describe a matrix; the message names the row.
    """

    in_memory = True
    is_sparse = True

    def __init__(
        self,
        values: Any,
        feature_names: tuple[str, ...] | None = None,
        nonfinite: Nonfinite = "error",
        address: str = "sparse matrix",
    ) -> None:
        require_matrix(values.shape, values.dtype, address)
        try:
            rows = as_csr(values, address)
        except BadBlock as error:
            raise SourceError(f"{error}; write it again") from error
        warn_beyond_double(rows.data, address)
        self._rows = rows
        self.entry_offsets = rows.indptr.astype(np.int64)
        self.shape = (int(rows.shape[0]), int(rows.shape[1]))
        self.dtype = np.dtype(values.dtype)
        self.feature_names = feature_names
        self.nonfinite = nonfinite
        self.address = address

    def read_rows(self, start: int, stop: int) -> csr_array:
        """Return rows `start` to `stop`."""
        check_range(start, stop, self.shape[0], self.address, self.axes[0])
        return take_rows(self._rows, start, stop)

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`, dense."""
        check_range(start, stop, self.shape[1], self.address, self.axes[1])
        return densify(take_columns(self.read_rows(0, self.shape[0]), range(start, stop)))

    def transposed(self) -> Matrix:
        """Return a copy, in CSR again, whose rows are the columns."""
        out = SparseMatrix(self.read_rows(0, self.shape[0]).T, None, self.nonfinite, self.address)
        out.axes = self.axes[::-1]
        return out

    def identity(self, start: int, stop: int) -> str | None:
        """Return a digest of the stored entries of these rows."""
        rows = self.read_rows(start, stop)
        places = rows.indptr.astype(np.int64), rows.indices.astype(np.int64)
        return digest(f"csr {rows.dtype.str} {rows.shape}", *places, rows.data)

    def stored_nbytes(self, start: int, stop: int) -> int:
        """Return the bytes of these rows: values and column indices."""
        ends = self._rows.indptr
        n_entries = int(ends[stop]) - int(ends[start])
        return n_entries * int(self._rows.data.itemsize + self._rows.indices.itemsize)


class ArrayVector(Vector):
    """Entries in memory."""

    in_memory = True

    def __init__(self, values: Array, address: str = "array") -> None:
        self._values = values
        self.shape = values.shape
        self.dtype = values.dtype
        self.address = address

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        return self._values[start:stop]

    def identity(self) -> str | None:
        """Return a digest of the values."""
        return digest(f"array {self.dtype.str} {self._values.shape}", self._values)


def require_valid_csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, ...], address: str) -> None:
    """Raise `SourceError` unless these arrays are a CSR matrix: reading a damaged one would reach beyond them."""
    wrong = structure_fault(data, indices, indptr, shape)
    if wrong is None and len(indices):
        outside = (indices[: int(indptr[-1])] < 0) | (indices[: int(indptr[-1])] >= shape[1])
        if outside.any():
            place = int(outside.argmax())
            wrong = (
                f"row {row_of(indptr, place)} has an entry in column {int(indices[place])}, and there are {shape[1]} "
                "columns"
            )
    if wrong is not None:
        raise SourceError(f"{address}: not a valid CSR matrix: {wrong}; write it again")


def as_array(source: Any, name: str = "array") -> Array:
    """Return an object with an array protocol, or a sequence of numbers, as a NumPy array.

    Raises `SourceError` for every other object, before NumPy sees it: of some, NumPy would ask for one entry after the
    other for ever.
    """
    kind = type(source)
    if isinstance(source, np.ma.MaskedArray):
        raise SourceError(f"{name}: masked arrays are not read; fill the masked entries first, e.g. with NaN")
    if not (any(hasattr(kind, protocol) for protocol in _PROTOCOLS) or isinstance(source, Sequence)):
        full_name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise SourceError(
            f"{name}: an object of type {full_name} is not a source; give a path, a URL, an array, a data frame, a "
            "SciPy sparse matrix, or an AnnData, xarray or Dask array"
        )
    try:
        return np.asarray(source)
    except (ValueError, TypeError) as error:
        raise SourceError(f"{name}: this {kind.__name__} is not an array; give rows of equal length") from error
