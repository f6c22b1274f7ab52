"""The principal submatrix of a symmetric matrix on a shrinking set of columns, and its largest eigenvalue."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Array, Floats

# The submatrix is copied to a contiguous array when at most this share of its columns is left: from p to p / 10 columns
# in 250 steps, copies and products with dropped columns then cost about a third of the necessary products.
_SHARE = 0.85
_MOST_STEPS = 60


class ShrinkingSubmatrix:
    """A symmetric matrix on the remaining columns, for products with a few vectors in one sweep over it.

    `matrix` of shape (p, p): Symmetric; never changed, and copied only after a sufficient share of the columns has been
        dropped.
    `columns`: The initial columns, ascending.
    Cost of a product: one sweep over the remaining rows, of whose entries at least `_SHARE` are needed.
    """

    def __init__(self, matrix: Floats, columns: NDArray[np.int64]) -> None:
        self._matrix = np.ascontiguousarray(matrix)
        self._at = columns
        self._compact()

    @property
    def size(self) -> int:
        """Number of remaining columns."""
        return int(self._at.size)

    def times(self, vectors: Floats) -> Floats:
        """Return the products with the rows of `vectors`, shape (t, size), as rows."""
        width = self._matrix.shape[0]
        out = np.empty((vectors.shape[0], width))
        products(self._matrix, self._at, vectors, out)
        return out if self._at.size == width else out[:, self._at]

    def keep(self, places: NDArray[np.int64]) -> None:
        """Drop all remaining columns except those at these ascending positions among them."""
        self._at = self._at[places]
        self._compact()

    def _compact(self) -> None:
        size = self._at.size
        if size <= _SHARE * self._matrix.shape[0]:
            block = np.empty((size, size))
            gather(self._matrix, self._at, block)
            self._matrix, self._at = block, np.arange(size)


@dataclass(frozen=True)
class LeadingEigenvalue:
    """Bounds of the largest eigenvalue of a submatrix, and its eigenvector."""

    value: float  # Lower bound
    bound: float  # Upper bound, unless the Krylov space misses the eigenvector
    second: float  # At least 0.8 of the second largest eigenvalue; if that is not known, `bound`
    vector: Floats  # shape (size,): Of length one, close to the eigenvector


def leading_eigenvalue(block: ShrinkingSubmatrix, accuracy: float, guess: Floats | None = None) -> LeadingEigenvalue:
    """Return the largest eigenvalue to a relative accuracy by Lanczos steps, from a guess of the eigenvector.

    Some noise is added to the guess, so that it is not orthogonal to the eigenvector.
    Cost: a product per step, at most 60; some 10 if the largest eigenvalue is well separated.
    """
    noise = np.random.default_rng(0).standard_normal(block.size)
    noise /= np.linalg.norm(noise)
    start = noise if guess is None else guess + 0.05 * noise
    most = min(_MOST_STEPS, block.size)
    basis = np.empty((most, block.size))
    basis[0] = start / np.linalg.norm(start)
    small = np.zeros((most, most))
    for m in range(most):
        image = block.times(basis[m : m + 1])[0]
        small[m, m] = image @ basis[m]
        known = basis[: m + 1]
        for _ in range(2):
            image -= (known @ image) @ known
        residual = float(np.linalg.norm(image))
        values, vectors = np.linalg.eigh(small[: m + 1, : m + 1])
        errors = residual * np.abs(vectors[-1])
        top = max(float(values[-1]), np.finfo(np.float64).tiny)
        if m + 1 == most or residual <= 1e-12 * top:
            break
        # A second eigenvalue that is nearly as large does not help `updated_eigenvalue`, so it need not be known.
        if (
            m >= 2
            and errors[-1] <= 0.5 * accuracy * top
            and (errors[-2] <= 0.1 * values[-2] or values[-2] >= 0.5 * top)
        ):
            break
        small[m, m + 1] = small[m + 1, m] = residual
        basis[m + 1] = image / residual
    vector = vectors[:, -1] @ known
    # Some eigenvalue is within the error; among several of about this size the largest may be a little further off.
    bound = top + max(2.0 * float(errors[-1]), accuracy * top)
    # The error of the vector leaves error^2 / top of the largest eigenvalue in the directions orthogonal to it.
    second = float(values[-2] + errors[-2] + errors[-1] ** 2 / top) if m and errors[-2] <= 0.1 * values[-2] else bound
    return LeadingEigenvalue(top, bound, second, vector / np.linalg.norm(vector))


def updated_eigenvalue(
    before: LeadingEigenvalue, vector: Floats, image: Floats, accuracy: float
) -> LeadingEigenvalue | None:
    """Return the largest eigenvalue after columns were dropped, from one product; None if it is uncertain.

    `before`: That of the larger submatrix. No eigenvalue of a submatrix exceeds that of the same rank of the whole
        (Cauchy).
    `vector`, `image` of shape (size,): A vector of length one, and its product with the submatrix.
    `accuracy`: Relative; the upper bound must be within twice this of the value.
    Source: the inequality of Kato and Temple, ``lambda_1 <= theta + residual^2 / (theta - lambda_2)`` for the
    quotient theta of any vector.
    """
    norm, quotient = float(np.linalg.norm(image)), float(vector @ image)
    bound = before.bound
    # Twice as large, and 0.8 of the gap, because the second eigenvalue is not known well.
    if quotient >= 2.0 * before.second:
        bound = min(bound, quotient + max(norm * norm - quotient * quotient, 0.0) / (0.8 * quotient - before.second))
    # If the vector is almost exact, the bound may be too small by rounding.
    bound = max(bound, norm)
    return (
        None if bound > (1.0 + 2.0 * accuracy) * norm else LeadingEigenvalue(norm, bound, before.second, image / norm)
    )


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def products(matrix: Floats, rows: Array, vectors: Floats, out: Floats) -> None:
    """Set row t of `out` to the sum of these rows of a matrix times the entries of row t of `vectors`."""
    out[:] = 0.0
    n_vectors, n_rows = vectors.shape
    i = 0
    # Four rows and two vectors at a time: the matrix is read from memory once, and each sum is updated once for four.
    while i + 4 <= n_rows:
        r0, r1, r2, r3 = matrix[rows[i]], matrix[rows[i + 1]], matrix[rows[i + 2]], matrix[rows[i + 3]]
        t = 0
        while t + 2 <= n_vectors:
            a, b = out[t], out[t + 1]
            a0, a1, a2, a3 = vectors[t, i], vectors[t, i + 1], vectors[t, i + 2], vectors[t, i + 3]
            b0, b1, b2, b3 = vectors[t + 1, i], vectors[t + 1, i + 1], vectors[t + 1, i + 2], vectors[t + 1, i + 3]
            for j in range(a.shape[0]):
                a[j] += a0 * r0[j] + a1 * r1[j] + a2 * r2[j] + a3 * r3[j]
                b[j] += b0 * r0[j] + b1 * r1[j] + b2 * r2[j] + b3 * r3[j]
            t += 2
        if t < n_vectors:
            a = out[t]
            a0, a1, a2, a3 = vectors[t, i], vectors[t, i + 1], vectors[t, i + 2], vectors[t, i + 3]
            for j in range(a.shape[0]):
                a[j] += a0 * r0[j] + a1 * r1[j] + a2 * r2[j] + a3 * r3[j]
        i += 4
    while i < n_rows:
        r0 = matrix[rows[i]]
        for t in range(n_vectors):
            a, a0 = out[t], vectors[t, i]
            for j in range(a.shape[0]):
                a[j] += a0 * r0[j]
        i += 1


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def gather(matrix: Floats, columns: Array, out: Floats) -> None:
    """Set `out` to the block of these rows and columns."""
    for i in range(columns.shape[0]):
        row, target = matrix[columns[i]], out[i]
        for j in range(columns.shape[0]):
            target[j] = row[columns[j]]
