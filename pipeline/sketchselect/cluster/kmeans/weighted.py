"""Columns multiplied by the weights of a selection: what the theory of sampled columns clusters."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats, canonical
from sketchselect.linalg.sparse.csr import is_csr
from sketchselect.prepare.steps import with_stored
from sketchselect.readers.base import Matrix, MatrixView


class WeightedColumns(MatrixView):
    """A matrix whose column j is multiplied by ``weights[j]`` as it is read, in the matrix's own precision.

    `matrix`: Of floating-point numbers, such as the selected columns of a job.
    `weights` of shape (n_features,): Finite and not negative; a column of weight 0 plays no part.
    Raises `BadParameter` for weights of another length, negative ones, or none above 0.
    """

    def __init__(self, matrix: Matrix, weights: ArrayLike) -> None:
        factors: Floats = np.asarray(weights, dtype=np.float64)
        if factors.shape != (matrix.shape[1],):
            raise BadParameter(f"{factors.shape} column weights for {matrix.shape[1]} columns")
        if not (np.isfinite(factors).all() and (factors >= 0).all() and factors.any()):
            raise BadParameter("column weights must be finite, not negative and not all 0")
        super().__init__(matrix)
        self.weights = factors
        self.dtype = np.dtype(matrix.dtype if matrix.dtype.kind == "f" else np.float64)

    def read_rows(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`, every column times its weight."""
        rows, weights = self.matrix.read_rows(start, stop), self.weights.astype(self.dtype)
        if is_csr(rows):
            return with_stored(rows, rows.data * weights[rows.indices])
        return canonical(rows * weights, self.dtype)

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the rows and the weights."""
        rows = self.matrix.identity(start, stop)
        if rows is None:
            return None
        return hashlib.sha256(rows.encode() + self.weights.tobytes()).hexdigest()

    def dask_rows(self) -> Any | None:
        """Return the rows as a Dask array, every column times its weight."""
        rows = self.matrix.dask_rows()
        if rows is None:
            return None
        rows, weights = rows.astype(self.dtype), self.weights.astype(self.dtype)
        if not self.is_sparse:
            return rows * weights
        # A block may be a `scipy.sparse.csr_matrix`, whose product with a vector would be that of matrices.
        return rows.rechunk({1: -1}).map_blocks(lambda block: block.multiply(weights).tocsr(), meta=rows._meta)
