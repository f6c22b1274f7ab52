"""Columns that are multiples of one another, as far as a Gram matrix or a sketch can tell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.columns.draws import gaussians

Indices = NDArray[np.int64]

COPY = 1e-10
"""Largest ``1 - cos^2`` of two columns that are copies: products of equal columns differ by rounding."""

SINGLE_COPY = 1e-6
"""The same where the products were computed in float32."""


class ColumnCopies:
    """The copies of any column: those whose residual after projection onto it is rounding.

    Columns i and j are copies if ``(b_i'b_j)^2 >= (1 - tolerance) ||b_i||^2 ||b_j||^2`` and the ratio of their squared
    norms is that of the b. So it is for all multiples, and for other columns only if a sketch cannot tell them apart. A
    column of zeros is no copy.

    Parameters
    ----------
    matrix : array of shape (m, p)
        The rows b of a sketch, or with `is_gram` the Gram matrix itself.
    is_gram : bool
    squared_norms : array of shape (p,)
        Exact squared norms of the columns.
    tolerance : float

    Notes
    -----
    Cost: one product with `matrix` at first; then log p a column, and m for each candidate. Copies have equal products
    with any one vector; only columns whose products with a random one are equal are compared.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[1.0, 0.0, -2.0, 1.0], [1.0, 1.0, -2.0, 0.0]])
    >>> ColumnCopies(A.T @ A, True, (A**2).sum(axis=0)).of(0).tolist()
    [0, 2]
    """

    def __init__(self, matrix: Floats, is_gram: bool, squared_norms: Floats, tolerance: float = COPY) -> None:
        self.matrix, self.is_gram, self.squared_norms, self.tolerance = matrix, is_gram, squared_norms, tolerance
        self._squares = matrix.diagonal() if is_gram else np.einsum("ij,ij->j", matrix, matrix)
        # Scaled, because a Gram matrix of large values has no room for another factor.
        scale = np.sqrt(float(self._squares.max(initial=0.0)) or 1.0)
        combination = gaussians(0, (1, matrix.shape[0]))[0] / scale
        products = combination @ matrix
        reach = np.sqrt(max(float(products @ combination), 0.0)) if is_gram else np.linalg.norm(combination)
        self._signature = np.full(products.size, np.inf)
        np.divide(np.abs(products), np.sqrt(self._squares), out=self._signature, where=self._squares > 0)
        self._order = np.argsort(self._signature, kind="stable")
        self._sorted = self._signature[self._order]
        # Unit columns that are copies differ by at most sqrt(tolerance), and their products by `reach` times that.
        self._width = 4.0 * float(np.sqrt(tolerance)) * float(reach)

    def of(self, j: int) -> Indices:
        """Return the copies of column j, itself included, ascending; none for a column of zeros."""
        if not self._squares[j] > 0:
            return np.zeros(0, dtype=np.int64)
        low, high = np.searchsorted(self._sorted, self._signature[j] + np.array([-self._width, self._width]))
        near = np.sort(self._order[low:high])
        products = self.matrix[near, j] if self.is_gram else self.matrix[:, near].T @ self.matrix[:, j]
        cosines = products / np.sqrt(self._squares[near]) / np.sqrt(self._squares[j])
        equal = cosines * cosines >= 1.0 - self.tolerance
        if not self.is_gram:
            shares, share = self._squares[near] / self.squared_norms[near], self._squares[j] / self.squared_norms[j]
            equal &= np.abs(shares - share) <= self.tolerance * np.maximum(shares, share)
        equal |= near == j
        copies: Indices = near[equal].astype(np.int64)
        return copies
