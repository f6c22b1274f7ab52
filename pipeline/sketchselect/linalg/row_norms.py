"""Euclidean norms of rows, the same bits in any block: NumPy's buffered sums depend on the rows before."""

from __future__ import annotations

import numpy as np
from numba import njit

from sketchselect.linalg.arrays import Array, Floats, read_only


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _sums(rows, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            value = np.float64(rows[i, j])
            total += value * value
        out[i] = total


def row_norms(rows: Array) -> Floats:
    """Return the norm of every row in float64; its bits depend on that row alone."""
    out = np.empty(rows.shape[0])
    _sums(read_only(rows), out)
    return np.sqrt(out)
