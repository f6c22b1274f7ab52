"""Columns that are multiples of one another, as far as moments or a sketch can tell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.columns.draws import gaussians
from sketchselect.linalg.moments.single_precision import SINGLE_ROUNDING

Indices = NDArray[np.int64]

COPY = 1e-13
"""Largest ``1 - r^2`` of two columns that are copies: products of equal columns differ by rounding."""

SINGLE_COPY = 2.0 * SINGLE_ROUNDING
"""The same where the products were computed in float32: the error of a correlation is at most half of it."""

_STORED, _MOST_STORED = 1e-14, 1e-9
"""What rounding values to float32 may make of it, over the squares about zero in units of the variance; and its limit,
beyond which columns differ by little else."""

_EPS = float(np.finfo(np.float64).eps)


class ColumnCopies:
    """The copies of any column: its multiples, to rounding.

    Columns i and j are copies if their correlation r has ``1 - r^2 <= tolerance``, or what storing copies in float32
    may make of that (below 1e-9), and their means have the ratio of their standard deviations, to the same rounding.
    In a sketch, the ratio of the exact standard deviations is also that of the sketched ones; so it is for all
    multiples, and for other columns only if the sketch cannot tell them apart. Columns that never vary are copies of
    each other, and a column of zeros is no copy.

    `matrix` of shape (m, p): The rows B of a sketch about the means, or with `is_gram` the scatter ``B'B`` itself.
    `scatter` of shape (p,): Exact squared norms of the columns about their means.
    `means` of shape (p,).
    `weight`: Of all rows.

    Notes
    -----
    Cost: one product with `matrix` at first; then log p a column, and m for each candidate. Copies have equal products
    with any one vector, so that only columns with equal products with a random one are compared.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[1.0, 0.0, -2.0, 1.0], [-1.0, 1.0, 2.0, 0.0]])
    >>> C = A - A.mean(axis=0)
    >>> ColumnCopies(C.T @ C, True, (C**2).sum(axis=0), A.mean(axis=0), 2.0).of(0).tolist()
    [0, 2]
    """

    def __init__(
        self, matrix: Floats, is_gram: bool, scatter: Floats, means: Floats, weight: float, tolerance: float = COPY
    ) -> None:
        self.matrix, self.is_gram, self.scatter, self.means = matrix, is_gram, scatter, means
        self._deviations = np.sqrt(scatter / weight) if weight > 0 else np.zeros(scatter.size)
        self._squares = matrix.diagonal() if is_gram else np.einsum("ij,ij->j", matrix, matrix)
        self._constant = (self._deviations <= 4.0 * _EPS * np.abs(means)) | ~(self._squares > 0)
        ratios = np.divide(means, self._deviations, out=np.zeros(scatter.size), where=~self._constant)
        stored = _STORED * (1.0 + ratios**2)
        self._stored = np.where(stored <= _MOST_STORED, stored, 0.0)
        self.tolerance = np.maximum(self._stored, tolerance)
        # Scaled, because a scatter of large values has no room for another factor.
        scale = np.sqrt(float(self._squares.max(initial=0.0)) or 1.0)
        combination = gaussians(0, (1, matrix.shape[0]))[0] / scale
        products = combination @ matrix
        reach = np.sqrt(max(float(products @ combination), 0.0)) if is_gram else np.linalg.norm(combination)
        self._signature = np.full(products.size, np.inf)
        np.divide(np.abs(products), np.sqrt(self._squares), out=self._signature, where=~self._constant)
        self._order = np.argsort(self._signature, kind="stable")
        self._sorted = self._signature[self._order]
        # Unit columns that are copies differ by at most sqrt(tolerance), and their products by `reach` times that.
        self._width = 4.0 * np.sqrt(self.tolerance) * float(reach)

    def of(self, j: int) -> Indices:
        """Return the copies of column j, itself included, ascending; none for a column of zeros."""
        if self._constant[j]:
            return np.flatnonzero(self._constant & (self.means != 0)) if self.means[j] != 0 else np.zeros(0, np.int64)
        tolerance, width = self.tolerance[j], self._width[j]
        low, high = np.searchsorted(self._sorted, self._signature[j] + np.array([-width, width]))
        if high - low == 1:
            return np.array([j], dtype=np.int64)
        near = np.sort(self._order[low:high])
        products = self.matrix[near, j] if self.is_gram else self.matrix[:, near].T @ self.matrix[:, j]
        correlations = products / np.sqrt(self._squares[near]) / np.sqrt(self._squares[j])
        equal = correlations * correlations >= 1.0 - tolerance
        if not self.is_gram:
            shares, share = self._squares[near] / self.scatter[near], self._squares[j] / self.scatter[j]
            equal &= np.abs(shares - share) <= np.sqrt(tolerance) * np.maximum(shares, share)
        means, deviations = self.means[near], self._deviations[near]
        expected = np.sign(correlations) * (deviations / self._deviations[j]) * self.means[j]
        # The rounding of a mean is one of the deviation too, and so of the ratio.
        rounding = (100.0 * tolerance + np.sqrt(self._stored[j])) * np.abs(means)
        rounding += 16.0 * _EPS * means * (means / deviations)
        equal &= np.abs(means - expected) <= rounding + np.sqrt(tolerance) * deviations
        equal |= near == j
        copies: Indices = near[equal].astype(np.int64)
        return copies
