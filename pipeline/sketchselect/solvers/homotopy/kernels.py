"""Compiled steps of the homotopy: rows added to and removed from a Cholesky factor, products with the Gram matrix."""

from __future__ import annotations

import numba
import numpy as np

from sketchselect.linalg.arrays import Array, Floats

# Sums may be reordered, so that they use vector registers.
_SUMS = {"reassoc", "contract", "nsz"}


@numba.njit(nogil=True, cache=True, fastmath=_SUMS, error_model="numpy")  # type: ignore[untyped-decorator]
def append_row(factor: Floats, k: int, column: Floats, diagonal: float, smallest: float) -> bool:
    """Extend the lower factor of a k x k matrix by one row; return False if the squared pivot is at most `smallest`."""
    left = diagonal
    for i in range(k):
        total = column[i]
        for j in range(i):
            total -= factor[i, j] * factor[k, j]
        factor[k, i] = total / factor[i, i]
        left -= factor[k, i] * factor[k, i]
    if left <= smallest:
        return False
    factor[k, k] = np.sqrt(left)
    return True


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def remove_row(factor: Floats, k: int, at: int) -> None:
    """Delete row and column `at` of the factored k x k matrix, with Givens rotations."""
    for i in range(at, k - 1):
        for j in range(i + 2):
            factor[i, j] = factor[i + 1, j]
    for i in range(at, k - 1):
        a, b = factor[i, i], factor[i, i + 1]
        r = np.hypot(a, b)
        c, s = a / r, b / r
        for row in range(i, k - 1):
            x, y = factor[row, i], factor[row, i + 1]
            factor[row, i] = c * x + s * y
            factor[row, i + 1] = c * y - s * x


@numba.njit(nogil=True, cache=True, fastmath=_SUMS, error_model="numpy")  # type: ignore[untyped-decorator]
def solve_two(factor: Floats, k: int, right: Floats) -> None:
    """Solve in place for two right-hand sides, the rows of `right`."""
    for i in range(k):
        x, y = right[0, i], right[1, i]
        for j in range(i):
            x -= factor[i, j] * right[0, j]
            y -= factor[i, j] * right[1, j]
        right[0, i], right[1, i] = x / factor[i, i], y / factor[i, i]
    for i in range(k - 1, -1, -1):
        x, y = right[0, i] / factor[i, i], right[1, i] / factor[i, i]
        right[0, i], right[1, i] = x, y
        for j in range(i):
            right[0, j] -= factor[i, j] * x
            right[1, j] -= factor[i, j] * y


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def lines(gram: Floats, xy: Floats, columns: Array, pair: Floats, offset: Floats, slope: Floats) -> None:
    """Set ``offset = xy - G u`` and ``slope = G w`` for (u, w) the rows of `pair`, on `columns`."""
    offset[:] = xy
    slope[:] = 0.0
    n, i = columns.shape[0], 0
    while i + 2 <= n:
        a, b = gram[columns[i]], gram[columns[i + 1]]
        u0, u1, w0, w1 = pair[0, i], pair[0, i + 1], pair[1, i], pair[1, i + 1]
        for j in range(offset.shape[0]):
            offset[j] -= u0 * a[j] + u1 * b[j]
            slope[j] += w0 * a[j] + w1 * b[j]
        i += 2
    if i < n:
        a = gram[columns[i]]
        u0, w0 = pair[0, i], pair[1, i]
        for j in range(offset.shape[0]):
            offset[j] -= u0 * a[j]
            slope[j] += w0 * a[j]


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def next_entry(offset: Floats, slope: Floats, outside: Array, alpha: float, tol: float) -> float:
    """Return the largest strength below `alpha` at which an outside column reaches the bound; 0 if none does."""
    best = 0.0
    for j in range(offset.shape[0]):
        if not outside[j]:
            continue
        at = offset[j] + alpha * slope[j]
        # A column that is on the bound and did not enter leaves it.
        if alpha - at > tol and 1.0 - slope[j] > 0.0:
            best = max(best, min(offset[j] / (1.0 - slope[j]), alpha))
        if alpha + at > tol and 1.0 + slope[j] > 0.0:
            best = max(best, min(-offset[j] / (1.0 + slope[j]), alpha))
    return best
