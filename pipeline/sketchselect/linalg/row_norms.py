"""Euclidean norms of rows, the same bits in any block: NumPy's buffered sums depend on the rows before."""

from __future__ import annotations

import numpy as np
from numba import njit

from sketchselect.linalg.arrays import Array, Floats, read_only


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _sum_of_squares(row):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(row.shape[0]):
        value = np.float64(row[j])
        total += value * value
    return total


@njit(nogil=True, cache=True)
def _sums(rows, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        out[i] = _sum_of_squares(rows[i])


@njit(nogil=True, cache=True)
def _divide(rows, sums, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        sums[i] = _sum_of_squares(rows[i])
        norm = np.sqrt(sums[i])
        if norm > 0.0:
            for j in range(rows.shape[1]):
                out[i, j] = np.float64(rows[i, j]) / norm


def row_norms(rows: Array) -> Floats:
    """Return the norm of every row in float64; its bits depend on that row alone."""
    out = np.empty(rows.shape[0])
    _sums(read_only(rows), out)
    return np.sqrt(out)


def divide_by_norms(rows: Array, out: Array) -> Floats:
    """Write every row divided by its norm, in one sweep; return the squared norms. Rows of norm 0 are not written."""
    squares = np.empty(rows.shape[0])
    _divide(read_only(rows), squares, out)
    return squares
