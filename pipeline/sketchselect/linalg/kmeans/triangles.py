"""Triangle inequalities of clusterings: those that a matrix violates, and their multipliers."""

from __future__ import annotations

import numpy as np

from sketchselect._kernels import kernel
from sketchselect.linalg.validation import Array, Floats

LEAST_VIOLATION = 0.05  # Of an inequality that is added, in units of the mean of Y_ii
MOST_PER_ROW = 20  # Inequalities added with the same i at a time, those violated most

_EPS = float(np.finfo(np.float64).eps)


class Triangles:
    """Inequalities ``Y_ij + Y_ik <= Y_ii + Y_jk`` of clusterings, with multipliers of at least 0.

    Y_ij is 1 over the weight of the cluster that has both rows, and 0 if none has: a row i that shares a cluster with
    both j and k makes these share it too. In terms of ``Z_ij = r_i Y_ij r_j``, with r the roots of the weights, an
    inequality says that ``tr A Z >= 0`` for a symmetric matrix A of seven entries; each A here is scaled such that
    no coefficient of an entry of Z is above 1. Summed over k, they imply the pair inequalities ``Y_ij <= Y_ii``.

    `roots` of shape (n,): r, positive, at most 1.
    Source: Piccialli, Sudoso and Wiegele 2022 for the inequalities in the relaxation; Hildreth 1957 for the projection.

    Examples
    --------
    >>> from sketchselect.linalg.kmeans.triangles import Triangles
    >>> triangles = Triangles(np.ones(3))
    >>> Z = np.array([[0.5, 0.4, 0.4], [0.4, 0.5, 0.0], [0.4, 0.0, 0.5]])
    >>> triangles.separate(Z)
    1
    >>> triangles.project(Z)
    >>> Z.round(2).tolist()
    [[0.62, 0.34, 0.34], [0.34, 0.5, 0.06], [0.34, 0.06, 0.5]]
    """

    def __init__(self, roots: Floats) -> None:
        self._roots = roots
        self._corners: Array = np.empty((0, 3), dtype=np.int64)
        self._multipliers: Floats = np.empty(0)

    def __len__(self) -> int:
        return self._multipliers.size

    def separate(self, entries: Array) -> int:
        """Add inequalities that Z violates, drop those whose multiplier is 0, and return how many are new.

        `entries` of shape (n, n): Z, symmetric up to rounding.
        Cost: n^3 flops where all entries are positive, a small part of them near a clustering.
        """
        n = self._roots.size
        # Rows whose weights differ by more than any float32 holds are left out: comparisons with nan are false.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            inverse = (1.0 / self._roots).astype(np.float32)
            y = entries.astype(np.float32) * inverse[:, None] * inverse
        least = LEAST_VIOLATION * float(np.trace(entries)) / float(self._roots @ self._roots)
        corners = _most_violated(y, np.float32(least), MOST_PER_ROW)
        active = self._multipliers > 0
        mine = self._corners[active]
        places = np.array([n * n, n, 1])
        corners = corners[~np.isin(corners @ places, mine @ places)]
        self._corners = np.concatenate([mine, corners])
        self._multipliers = np.concatenate([self._multipliers[active], np.zeros(len(corners))])
        return len(corners)

    def project(self, matrix: Array) -> None:
        """Move a matrix T + `adjoint()`, so that its positive part nearly obeys the inequalities.

        One sweep of coordinate ascent on the multipliers, which it changes; `matrix` is T + `adjoint()` again.
        """
        _sweep(matrix, self._corners, self._multipliers, self._roots)

    def adjoint(self) -> Floats:
        """Return the sum of the matrices A times their multipliers: M with ``tr M Z >= 0`` for every clustering."""
        matrix: Floats = _adjoint(self._corners, self._multipliers, self._roots)
        return matrix

    @property
    def rounding(self) -> float:
        """Bound of how far below 0 ``tr M Z`` may be, as M is rounded: entries of Z are at most 1."""
        return 4.0 * _EPS * (len(self) + 16) * float(self._multipliers.sum())


@kernel(error_model="numpy")
def _most_violated(y: Array, least: np.float32, most: int) -> Array:
    """Return i, j < k of the inequalities violated by more than `least`; of each i those violated most."""
    n = y.shape[0]
    corners = np.empty((n * most, 3), dtype=np.int64)
    violations = np.empty(most, dtype=np.float32)
    total = 0
    for i in range(n):
        mine = y[i]
        count, smallest, bar = 0, 0, least
        for j in range(n):
            if not mine[j] > least or j == i:
                continue
            base, others = mine[j] - mine[i], y[j]
            for k in range(j + 1, n):
                violation = base + mine[k] - others[k]
                if not violation > bar or k == i:
                    continue
                place = count if count < most else smallest
                violations[place] = violation
                corner = corners[total + place]
                corner[0], corner[1], corner[2] = i, j, k
                count = min(count + 1, most)
                if count == most:
                    smallest = int(np.argmin(violations))
                    bar = max(violations[smallest], least)
        total += count
    return corners[:total]


@kernel(error_model="numpy")
def _coefficients(a: float, b: float, c: float) -> tuple[float, float, float, float]:
    """Return the coefficients of Z_ii, Z_jk, Z_ij and Z_ik, where a, b, c are the roots of the weights of i, j, k."""
    largest = max(a, b, c)
    a, b, c = a / largest, b / largest, c / largest
    return b * c, a * a, a * c, a * b


@kernel(error_model="numpy")
def _sweep(matrix: Array, corners: Array, multipliers: Floats, roots: Floats) -> None:
    for t in range(corners.shape[0]):
        i, j, k = corners[t]
        ii, jk, ij, ik = _coefficients(roots[i], roots[j], roots[k])
        violation = ij * max(matrix[i, j], 0.0) + ik * max(matrix[i, k], 0.0)
        violation -= ii * max(matrix[i, i], 0.0) + jk * max(matrix[j, k], 0.0)
        # Entries outside the diagonal count twice in a norm, and each has half of the coefficient.
        square = ii * ii + 0.5 * (jk * jk + ij * ij + ik * ik)
        after = max(multipliers[t] + violation / square, 0.0)
        if after != multipliers[t]:
            _add(matrix, i, j, k, after - multipliers[t], ii, jk, ij, ik)
            multipliers[t] = after


@kernel(error_model="numpy")
def _adjoint(corners: Array, multipliers: Floats, roots: Floats) -> Floats:
    matrix = np.zeros((roots.shape[0], roots.shape[0]))
    for t in range(corners.shape[0]):
        i, j, k = corners[t]
        ii, jk, ij, ik = _coefficients(roots[i], roots[j], roots[k])
        _add(matrix, i, j, k, multipliers[t], ii, jk, ij, ik)
    return matrix


@kernel(error_model="numpy")
def _add(matrix: Array, i: int, j: int, k: int, multiple: float, ii: float, jk: float, ij: float, ik: float) -> None:
    """Add a multiple of the matrix of an inequality."""
    half = 0.5 * multiple
    matrix[i, i] += multiple * ii
    matrix[j, k] += half * jk
    matrix[k, j] += half * jk
    matrix[i, j] -= half * ij
    matrix[j, i] -= half * ij
    matrix[i, k] -= half * ik
    matrix[k, i] -= half * ik
