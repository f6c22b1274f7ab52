"""Views of a matrix: columns as rows or chosen, double precision, the first rows, one column, the metadata alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.csr import as_csr, densify, take_columns
from sketchselect.linalg.hashing import MISSING_LEVEL, digest
from sketchselect.linalg.validation import Array, is_csr
from sketchselect.readers.base import Matrix, MatrixView, Vector, check_range
from sketchselect.readers.tables import ENCODINGS, KnownLevels, times_from


def transposed(matrix: Matrix) -> Matrix:
    """Return the matrix whose rows are the columns of `matrix`: row i is column i, all rows of it.

    Partitions, engines, checkpoints and summaries work on it as on any matrix; a block then holds a run of columns, and
    its `start` is the index of the first one. A run of columns has an identity of its own, so that columns appended
    behind whole chunks leave the checkpoints of the others valid. Messages then speak of columns.

    Parameters
    ----------
    matrix : Matrix
        From `open_matrix`. Zarr stores are read chunk by chunk in any chunking; partitions narrower than the chunks
        decode some values more than once, and `row_partitions` refuses more than four times.

    Raises
    ------
    BadParameter
        If the matrix drops rows that are not finite: which rows those are is not known from a few columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.readers import open_matrix
    >>> columns = transposed(open_matrix(np.arange(6.0).reshape(2, 3)))
    >>> columns.shape, columns.read_rows(1, 3).tolist()
    ((3, 2), [[1.0, 4.0], [2.0, 5.0]])
    """
    if matrix.nonfinite == "drop_rows":
        raise BadParameter(
            f'{matrix.address}: nonfinite = "drop_rows" needs whole rows, and columns are read here; clean the data, '
            "or use a method that reads rows"
        )
    return matrix.transposed()


def in_double(matrix: Matrix) -> Matrix:
    """Return the matrix with float32 values handed out as float64, so that nothing is summed in float32."""
    return InDouble(matrix) if matrix.dtype.kind == "f" and matrix.dtype.itemsize == 4 else matrix


class InDouble(MatrixView):
    """A matrix read as float64; its `dtype` is still the type as stored, by which bytes read are counted."""

    def _rows(self, start: int, stop: int) -> Any:
        return self.matrix.read_rows(start, stop).astype(np.float64)

    def _columns(self, start: int, stop: int) -> Array:
        return self.matrix.read_columns(start, stop).astype(np.float64)

    def identity(self, start: int, stop: int) -> str | None:
        """Return the fingerprint of these rows; another than that of the values as they are stored."""
        stored = self.matrix.identity(start, stop)
        return None if stored is None else f"{stored}:float64"

    def dask_rows(self) -> Any | None:
        """Return the rows as a Dask array of float64."""
        rows = self.matrix.dask_rows()
        return None if rows is None else rows.astype(np.float64)

    def transposed(self) -> Matrix:
        """Return the columns as rows, read as float64."""
        return InDouble(self.matrix.transposed())


class FirstRows(MatrixView):
    """The first rows of a matrix, as a matrix of its own.

    Parameters
    ----------
    matrix : Matrix
        The whole.
    n_rows : int
        How many rows; at least 1, at most all.
    """

    def __init__(self, matrix: Matrix, n_rows: int) -> None:
        super().__init__(matrix)
        check_range(1, n_rows, matrix.shape[0], matrix.address, matrix.axes[0])
        self.shape = (n_rows, matrix.shape[1])
        if matrix.entry_offsets is not None:
            self.entry_offsets = matrix.entry_offsets[: n_rows + 1]
        if matrix.chunk_edges is not None:
            self.chunk_edges = (*(edge for edge in matrix.chunk_edges if edge < n_rows), n_rows)

    def _rows(self, start: int, stop: int) -> Any:
        return self.matrix.read_rows(start, stop)

    def identity(self, start: int, stop: int) -> str | None:
        """Return the identity of these rows in the whole matrix."""
        return self.matrix.identity(start, stop)

    def dask_rows(self) -> Any | None:
        """Return the first rows of the Dask array."""
        rows = self.matrix.dask_rows()
        return None if rows is None else rows[: self.shape[0]]


class ChosenColumns(MatrixView):
    """Some columns of a matrix, in any order, as a matrix of their own; all are read from the store.

    `columns`: Which ones, without repetition.
    """

    chunk_columns = None

    def __init__(self, matrix: Matrix, columns: Sequence[int]) -> None:
        super().__init__(matrix)
        self.columns = np.array(columns, dtype=np.int64)
        self.shape = (matrix.shape[0], len(columns))
        names = matrix.feature_names
        self.feature_names = None if names is None else tuple(names[j] for j in columns)
        self.text_columns = tuple(i for i, j in enumerate(columns) if j in matrix.text_columns)
        self.date_columns = tuple(i for i, j in enumerate(columns) if j in matrix.date_columns)
        self.levels = {i: matrix.levels[columns[i]] for i in self.text_columns if columns[i] in matrix.levels}

    def _rows(self, start: int, stop: int) -> Any:
        rows = self.matrix.read_rows(start, stop)[:, self.columns]
        return as_csr(rows, self.address, start) if is_csr(rows) else rows

    def identity(self, start: int, stop: int) -> str | None:
        """Return the fingerprint of all columns of these rows, and of the choice."""
        stored = self.matrix.identity(start, stop)
        return None if stored is None else f"{stored}:{digest('columns', self.columns)}"

    def dask_rows(self) -> Any | None:
        """Return the chosen columns of the Dask array."""
        rows = self.matrix.dask_rows()
        return None if rows is None else rows[:, self.columns]


class WithConstants(MatrixView):
    """A dense matrix and, after its columns, columns of one value each, for what has to have them and uses none.

    `columns`: Name -> what it holds: "text" (missing), "dates" or "numbers".
    """

    is_sparse = False
    chunk_columns = None

    def __init__(self, matrix: Matrix, columns: Mapping[str, str]) -> None:
        super().__init__(matrix)
        n_rows, n_columns = matrix.shape
        self.constants = np.array([MISSING_LEVEL if kind == "text" else 0.0 for kind in columns.values()])
        self.shape = (n_rows, n_columns + len(columns))
        self.dtype = matrix.dtype if matrix.dtype.kind == "f" else np.dtype(np.float64)
        self.feature_names = (*(matrix.feature_names or ()), *columns)
        places = {kind: [n_columns + i for i, of in enumerate(columns.values()) if of == kind] for kind in ENCODINGS}
        self.text_columns = (*matrix.text_columns, *places["text"])
        self.date_columns = (*matrix.date_columns, *places["dates"])
        self.levels = {**matrix.levels, **dict.fromkeys(places["text"], KnownLevels({}))}

    def _rows(self, start: int, stop: int) -> Array:
        rows = self.matrix.read_rows(start, stop)
        constants = np.broadcast_to(self.constants, (len(rows), self.constants.size))
        return np.hstack([rows, constants]).astype(self.dtype)

    def identity(self, start: int, stop: int) -> str | None:
        """Return the fingerprint of these rows, and of the values."""
        stored = self.matrix.identity(start, stop)
        return None if stored is None else f"{stored}:{digest('constants', self.constants)}"

    def dask_rows(self) -> None:
        """Return nothing: the columns come from no graph."""
        return


class NamedColumn(Vector):
    """A column of a matrix as targets, labels or weights."""

    def __init__(self, matrix: Matrix, name: str) -> None:
        assert matrix.feature_names is not None
        self.matrix, self.column = matrix, matrix.feature_names.index(name)
        self.shape, self.dtype = (matrix.shape[0],), matrix.dtype
        self.address, self.in_memory = f"{matrix.address}, column {name!r:.80}", matrix.in_memory
        if self.column in matrix.date_columns:
            self.dtype = np.dtype("datetime64[us]")

    def _entries(self, start: int, stop: int) -> Array:
        rows = self.matrix.read_rows(start, stop)
        entries: Array = densify(take_columns(rows, [self.column])).ravel() if is_csr(rows) else rows[:, self.column]
        return times_from(entries) if self.dtype.kind == "M" else entries

    def identity(self) -> str | None:
        """Return the fingerprint of the column."""
        return self.matrix.column_identity(self.column, self.column + 1)


def missing_allowed(matrix: Matrix) -> Matrix:
    """Return the matrix with NaN as missing values, for summaries that take such; rows that it drops stay dropped."""
    if matrix.nonfinite != "error":
        return matrix
    view = copy.copy(matrix)
    object.__setattr__(view, "nonfinite", "missing")  # some matrices are frozen
    return view
