"""Column bands: the columns of a matrix handed out as rows, so that every pass over rows is a pass over columns too."""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array
from sketchselect.readers.base import Matrix
from sketchselect.readers.checks import check_range, finish


def transposed(matrix: Matrix) -> Matrix:
    """Return the matrix whose rows are the columns of `matrix`: row i is column i, all rows of it.

    Partitions, engines, checkpoints and summaries work on it as on any matrix; a block then holds a run of columns, and
    its `start` is the index of the first one. A run of columns has an identity of its own, so that columns appended
    behind whole chunks leave the checkpoints of the others valid. Messages speak of columns where they are meant.

    Parameters
    ----------
    matrix : Matrix
        From `open_matrix`. Zarr stores are read chunk by chunk in any chunking; bands narrower than the chunks decode
        some values more than once, and `row_partitions` refuses more than four times.

    Raises
    ------
    BadParameter
        If the matrix drops rows that are not finite: which rows those are is not known from a few columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.readers import open_matrix
    >>> turned = transposed(open_matrix(np.arange(6.0).reshape(2, 3)))
    >>> turned.shape, turned.read_rows(1, 3).tolist()
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


class ColumnsAsRows(Matrix):
    """The columns of a matrix that can read runs of columns.

    Parameters
    ----------
    matrix : Matrix
        Its `read_columns`, `column_identity` and `chunk_columns` are used.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self.shape = (matrix.shape[1], matrix.shape[0])
        self.dtype = matrix.dtype
        self.address = matrix.address
        self.nonfinite = matrix.nonfinite
        self.chunk_rows = min(matrix.chunk_columns or matrix.shape[1], matrix.shape[1])
        self.chunk_columns = matrix.chunk_rows
        self.in_memory = matrix.in_memory
        self.notes = matrix.notes
        self.axes = (matrix.axes[1], matrix.axes[0])

    def read_rows(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop` of the matrix as rows."""
        check_range(start, stop, self.shape[0], self.address, self.axes[0])
        return finish(self._matrix.read_columns(start, stop).T, self.address)

    def identity(self, start: int, stop: int) -> str | None:
        """Return the fingerprint of these columns."""
        return self._matrix.column_identity(start, stop)

    def transposed(self) -> Matrix:
        """Return the matrix itself."""
        return self._matrix

    def part(self, start: int, stop: int) -> Matrix:
        """Return the same without what a task does not need."""
        return ColumnsAsRows(self._matrix.part(0, self.shape[1]))

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of this source."""
        return self._matrix.describe() | super().describe()


class InDouble(Matrix):
    """A matrix read as float64."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self.shape = matrix.shape
        self.dtype = matrix.dtype  # as stored: bytes read are counted by it
        self.is_sparse = matrix.is_sparse
        self.entry_offsets = matrix.entry_offsets
        self.feature_names = matrix.feature_names
        self.address = matrix.address
        self.nonfinite = matrix.nonfinite
        self.chunk_rows = matrix.chunk_rows
        self.chunk_edges = matrix.chunk_edges
        self.chunk_columns = matrix.chunk_columns
        self.in_memory = matrix.in_memory
        self.notes = matrix.notes
        self.axes = matrix.axes

    def read_rows(self, start: int, stop: int) -> Any:
        """Return these rows as float64."""
        rows = self._matrix.read_rows(start, stop).astype(np.float64)
        return rows

    def identity(self, start: int, stop: int) -> str | None:
        """Return the fingerprint of these rows; another than that of the values as they are stored."""
        stored = self._matrix.identity(start, stop)
        return None if stored is None else f"{stored}:float64"

    def part(self, start: int, stop: int) -> Matrix:
        """Return the same without what a task does not need."""
        return InDouble(self._matrix.part(start, stop))

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of the source as it is stored."""
        return self._matrix.describe()
