"""The contract of a data source, a matrix that hands out runs of rows, and the base of matrices around a matrix."""

from __future__ import annotations

from abc import ABC, abstractmethod, update_abstractmethods
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Array
from sketchselect.linalg.sparse.csr import densify, entry_runs, is_csr, take_columns
from sketchselect.readers.checks import Nonfinite, check_range, finish

_PIECE_VALUES = 4 << 20
_INDEX_NBYTES = 4


@dataclass(frozen=True)
class Partitions:
    """Runs of rows that a matrix is cut into.

    Parameters
    ----------
    edges : tuple of int
        Row indices ``0 = e_0 < e_1 < ... = n_rows``; partition i is rows e_i to e_{i+1}. A pass over the last rows
        alone begins at a later e_0.
    read_amplification : float
        Bytes decoded per byte used: 1 where partitions are runs of whole chunks.
    """

    edges: tuple[int, ...]
    read_amplification: float = 1.0

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self.edges[index], self.edges[index + 1]


class Matrix(ABC):
    """A numeric matrix that may not fit in memory. Small and picklable unless `in_memory`.

    Attributes
    ----------
    shape : tuple of int
        (n_rows, n_features).
    dtype : numpy.dtype
        Type of the values as stored.
    is_sparse : bool
        Whether `read_rows` hands out CSR blocks: canonical `scipy.sparse.csr_array` (see `linalg.csr.as_csr`).
    entry_offsets : array of int64, shape (n_rows + 1,), or None
        Stored entries before each row, and in all, where `is_sparse`; partitions are cut by them. None where they are
        not known before rows are read.
    feature_names : tuple of str or None
        Names of the columns, where the store has them.
    address : str
        Path, URL or description, for messages and manifests; never holds credentials.
    nonfinite : {"error", "drop_rows", "missing"}
        The policy for NaN and infinity; the engine applies it. "missing" hands NaN to summaries that take
        them as missing values; for all others, and for infinity, it is "error".
    chunk_rows : int
        Rows that one read decodes at least; 1 where any run of rows is equally cheap.
    chunk_edges : tuple of int or None
        Where the chunks begin and end, for sources whose chunks differ in height; `chunk_rows` is then the tallest.
    in_memory : bool
        True where the object holds the data itself, so that it should not be sent to other processes.
    notes : tuple of str
        What the user should know about this source (no checksum, say); the command line prints each once.
    axes : tuple of str
        What messages call its rows and columns: the other way round where columns are handed out as rows.
    chunk_columns : int or None
        Columns that one read of columns decodes at least; None where it reads whole rows.
    is_remote : bool
        Whether reads wait for a store behind a network, so that it pays to read ahead of computing.
    remembered_nbytes : int
        Bytes of chunks, as stored, that a process may remember where partitions are parts of chunks.
    row_names : object with ``read(start, stop)``, or None
        Names of the rows, where the store has them.
    columns_beside : mapping of str to vector
        What targets, labels and weights of these rows may be named by, where they come from an object in memory.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    is_sparse: bool = False
    entry_offsets: NDArray[np.int64] | None = None
    feature_names: tuple[str, ...] | None = None
    address: str = "array"
    nonfinite: Nonfinite = "error"
    chunk_rows: int = 1
    chunk_edges: tuple[int, ...] | None = None
    in_memory: bool = False
    notes: tuple[str, ...] = ()
    axes: tuple[str, str] = ("row", "column")
    chunk_columns: int | None = None
    is_remote: bool = False
    remembered_nbytes: int = 0
    row_names: Any = None
    columns_beside: Mapping[str, Any] = MappingProxyType({})

    def __repr__(self) -> str:
        n_rows, n_columns = self.shape
        kind = f"{'sparse ' if self.is_sparse else ''}{self.dtype}"
        return f"<{type(self).__name__} {self.address}: {n_rows} rows x {n_columns} columns, {kind}>"

    @abstractmethod
    def read_rows(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop` (all columns) as a canonical block; raise `ChunkReadError` naming the chunk.

        An array, or a `scipy.sparse.csr_array` where `is_sparse`.
        """

    @abstractmethod
    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the content of these rows, from chunk versions; None where there is none.

        It changes when a chunk under these rows is rewritten, and does not when rows are appended behind them.
        """

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop` (all rows), shape (n_rows, stop - start); as `read_rows` in all else."""
        n_rows, n_columns = self.shape
        check_range(start, stop, n_columns, self.address, "column")
        step = max(1, _PIECE_VALUES // (n_columns * self.chunk_rows)) * self.chunk_rows
        runs: Iterable[tuple[int, int]] = ((a, min(a + step, n_rows)) for a in range(0, n_rows, step))
        if self.entry_offsets is not None:
            runs = entry_runs(self.entry_offsets, _PIECE_VALUES // 2)
        pieces = []
        for run in runs:
            rows = self.read_rows(*run)
            pieces.append(densify(take_columns(rows, range(start, stop))) if is_csr(rows) else rows[:, start:stop])
        return np.concatenate(pieces)

    def column_identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the content of these columns; that of the whole source where no better is known."""
        whole = self.identity(0, self.shape[0])
        return None if whole is None else f"{whole}:columns:{start}:{stop}"

    def dask_rows(self) -> Any | None:
        """Return all rows as a Dask array, in the types that `read_rows` gives, where they come from a Dask graph."""
        return None

    def transposed(self) -> Matrix:
        """Return the matrix whose rows are the columns of this one."""
        return ColumnsAsRows(self)

    def stored_nbytes(self, start: int, stop: int) -> int:
        """Return the bytes of these rows as stored: values, and the column indices of sparse ones."""
        if self.entry_offsets is not None:
            return int(self.entry_offsets[stop] - self.entry_offsets[start]) * (self.dtype.itemsize + _INDEX_NBYTES)
        return (stop - start) * self.shape[1] * self.dtype.itemsize

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return {
            "address": self.address,
            "shape": list(self.shape),
            "dtype": str(self.dtype),
            "sparse": self.is_sparse,
        }


class MatrixView(Matrix):
    """Base of matrices around a matrix: attributes and methods are those of `matrix`, but for what a subclass changes.

    A subclass that overrides `read_rows` must override `identity` too. The other methods for rows and columns that it
    does not override are then those of `Matrix`, which follow from these two; `stored_nbytes` stays that of the store.

    Parameters
    ----------
    matrix : Matrix
        The matrix inside.
    """

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "read_rows" in vars(cls):
            # What the matrix inside does with rows would go past the rows that the subclass makes of them.
            for name in _METHODS - vars(cls).keys() - {"describe", "stored_nbytes"}:
                setattr(cls, name, vars(Matrix)[name])

    def describe(self) -> dict[str, Any]:
        """Return the description of the matrix inside, with the shape and type of this one."""
        return self.matrix.describe() | Matrix.describe(self)


class _Delegated:
    """An attribute or method of the matrix inside a view, unless the view sets its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, view: MatrixView | None, owner: type) -> Any:
        return self if view is None else getattr(view.matrix, self.name)


_METHODS = {name for name, value in vars(Matrix).items() if callable(value) and not name.startswith("_")}

for _name in (Matrix.__annotations__.keys() | _METHODS) - vars(MatrixView).keys():
    setattr(MatrixView, _name, _Delegated(_name))
update_abstractmethods(MatrixView)  # type: ignore[type-abstract]


class ColumnsAsRows(MatrixView):
    """The columns of a matrix that can read runs of columns, as rows."""

    is_sparse = False
    entry_offsets = None
    feature_names = None
    chunk_edges = None
    row_names = None
    stored_nbytes = Matrix.stored_nbytes

    def __init__(self, matrix: Matrix) -> None:
        super().__init__(matrix)
        self.shape = matrix.shape[::-1]
        self.chunk_rows = min(matrix.chunk_columns or matrix.shape[1], matrix.shape[1])
        self.chunk_columns = matrix.chunk_rows
        self.axes = matrix.axes[::-1]

    def read_rows(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop` of the matrix as rows."""
        check_range(start, stop, self.shape[0], self.address, self.axes[0])
        return finish(self.matrix.read_columns(start, stop).T, self.address)

    def identity(self, start: int, stop: int) -> str | None:
        """Return the fingerprint of these columns."""
        return self.matrix.column_identity(start, stop)

    def dask_rows(self) -> Any | None:
        """Return the columns as rows of a Dask array, where there is one."""
        rows = self.matrix.dask_rows()
        return None if rows is None else rows.T

    def transposed(self) -> Matrix:
        """Return the matrix inside."""
        return self.matrix
