"""Conformance suite of readers: one call tests a matrix against the array that it should return."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from sketchselect.errors import BadParameter
from sketchselect.linalg.csr import arrays_of, as_csr, densify
from sketchselect.linalg.validation import Array, as_block, is_csr
from sketchselect.readers import Matrix, row_partitions


class MatrixConformance:
    """The contract of `Matrix`.

    Parameters
    ----------
    matrix : Matrix
        The reader to test.
    expected : array of shape (n_rows, n_features)
        The values, in the type as stored.
    feature_names : tuple of str or None
        The names it should have.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.readers import open_matrix
    >>> values = np.arange(12.0).reshape(4, 3)
    >>> MatrixConformance(open_matrix(values), values).verify()
    """

    def __init__(self, matrix: Matrix, expected: Array, feature_names: tuple[str, ...] | None = None) -> None:
        self.matrix = matrix
        self.expected = expected
        self.feature_names = feature_names

    def verify(self, seed: int = 0) -> None:
        """Check everything; raises AssertionError naming the promise."""
        self.description()
        for start, stop in self._ranges(np.random.default_rng(seed)):
            self.rows(self.matrix, start, stop)
        self.outside()
        self.partitions()
        self.pickles()
        self.identities()

    def description(self) -> None:
        """Shape, type and names are those of the data."""
        matrix = self.matrix
        assert matrix.shape == self.expected.shape, "shape"
        assert matrix.dtype.newbyteorder("=") == self.expected.dtype.newbyteorder("="), "dtype"
        assert matrix.feature_names == self.feature_names, "feature names"
        assert matrix.describe()["shape"] == list(self.expected.shape), "description"
        assert matrix.chunk_rows >= 1, "chunk_rows"

    def rows(self, matrix: Matrix, start: int, stop: int) -> None:
        """A run of rows has the values of the data in the canonical layout, and the same bits when read again."""
        block = matrix.read_rows(start, stop)
        expected = as_block(self.expected[start:stop])
        if matrix.is_sparse:
            self.sparse_rows(matrix, block, start, stop)
            return
        assert type(block) is np.ndarray, "a block is a plain array"
        assert block.flags.c_contiguous and block.flags.aligned and block.dtype.isnative, "layout"
        assert block.dtype == expected.dtype, "the reader must not change the type"
        assert np.array_equal(block, expected, equal_nan=True), f"values of rows {start} to {stop}"
        assert matrix.read_rows(start, stop).tobytes() == block.tobytes(), "the same rows twice"

    def sparse_rows(self, matrix: Matrix, block: Any, start: int, stop: int) -> None:
        """A run of sparse rows is canonical CSR, with the values of the data, and as long as the offsets say."""
        expected = as_block(self.expected[start:stop])
        assert isinstance(block, csr_array), "a sparse block is a csr_array"
        again = as_csr(block)
        assert block.dtype == expected.dtype, "the reader must not change the type"
        assert np.array_equal(block.toarray(), expected, equal_nan=True), f"values of rows {start} to {stop}"
        for copy in (again, as_csr(matrix.read_rows(start, stop))):
            for mine, other in zip(arrays_of(block), arrays_of(copy), strict=True):
                assert mine.dtype == other.dtype and np.array_equal(mine, other), "not canonical, or not the same twice"
        offsets = self.matrix.entry_offsets
        if offsets is None:
            return
        assert offsets.dtype == np.int64, "row lengths are whole numbers"
        assert offsets.shape == (self.matrix.shape[0] + 1,), "one offset for each row, and the end"
        assert block.nnz <= offsets[stop] - offsets[start], "more entries than the offsets say"

    def outside(self) -> None:
        """Rows that do not exist are refused."""
        n_rows = self.expected.shape[0]
        for start, stop in ((-1, 1), (0, n_rows + 1), (n_rows, 0)):
            try:
                self.matrix.read_rows(start, stop)
            except BadParameter:
                continue
            raise AssertionError(f"rows {start} to {stop} do not exist and were not refused")

    def partitions(self) -> None:
        """Partitions cover every row once, whatever their size."""
        row_bytes = 8 * self.expected.shape[1]
        for size in (self.matrix.chunk_rows * row_bytes, 3 * self.matrix.chunk_rows * row_bytes + 1, None):
            partitions = row_partitions(self.matrix, size)
            assert partitions.edges[0] == 0 and partitions.edges[-1] == self.expected.shape[0], (
                "partitions reach from end to end"
            )
            assert all(a < b for a, b in (partitions[i] for i in range(len(partitions)))), "partitions are not empty"
            parts = [self.matrix.read_rows(*partitions[i]) for i in range(len(partitions))]
            whole = np.concatenate([densify(part) if is_csr(part) else part for part in parts])
            assert np.array_equal(whole, as_block(self.expected), equal_nan=True), "partitions together are the data"

    def pickles(self) -> None:
        """A copy sent to another process reads the same; small unless the matrix is in memory."""
        data = pickle.dumps(self.matrix)
        copy = pickle.loads(data)
        self.rows(copy, 0, self.expected.shape[0])
        assert copy.address == self.matrix.address, "address"
        assert copy.identity(0, 1) == self.matrix.identity(0, 1), "identity of a copy"

    def identities(self) -> None:
        """The identity of rows at rest does not change; other rows have another one."""
        matrix, n_rows = self.matrix, self.expected.shape[0]
        first = matrix.identity(0, n_rows)
        assert first is None or isinstance(first, str), "identity is text or None"
        assert matrix.identity(0, n_rows) == first, "identity at rest"

    def _ranges(self, rng: np.random.Generator) -> list[tuple[int, int]]:
        n_rows = self.expected.shape[0]
        step = self.matrix.chunk_rows
        edges = {0, 1, step - 1, step, step + 1, n_rows - 1, n_rows} | set(rng.integers(0, n_rows + 1, 2).tolist())
        cuts = sorted(edge for edge in edges if 0 <= edge <= n_rows)
        around = [(0, n_rows), (0, 0), (n_rows, n_rows), (cuts[1], cuts[-2])]
        return [pair for pair in around + list(pairwise(cuts)) if pair[0] <= pair[1]]
