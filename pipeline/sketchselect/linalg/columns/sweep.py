"""Statistics of every column of a block in one sweep, missing values left out."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Array, Floats


@njit(nogil=True, cache=True, fastmath={"contract"})
def _sweep(block, shift, weights, counts, stats):  # type: ignore[no-untyped-def]
    for i in range(block.shape[0]):
        w = weights[i]
        for j in range(block.shape[1]):
            x = np.float64(block[i, j])
            d = x - shift[j]
            # Branch-free, so that it runs in vector registers: NaN is the only value that differs from itself.
            present = x == x
            v = d if present else 0.0
            u = w if present else 0.0
            counts[0, j] += 0 if present else 1
            counts[1, j] += 1 if (present and x != 0.0) else 0
            counts[2, j] += 1 if (present and np.abs(x) == np.inf) else 0
            stats[0, j] += u
            stats[1, j] += u * v
            stats[2, j] += u * v * v
            stats[3, j] = x if x < stats[3, j] else stats[3, j]
            stats[4, j] = x if x > stats[4, j] else stats[4, j]


def column_sweep(block: Array, shift: Floats, weights: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return ``(counts, stats)`` of the columns of a block.

    `counts` has the rows missing, non-zero, infinite; `stats` the rows weight of the values present, weighted sum and
    weighted sum of squares about `shift`, minimum, maximum.
    """
    p = block.shape[1]
    counts = np.zeros((3, p), dtype=np.int64)
    stats = np.zeros((5, p))
    stats[3] = np.inf
    stats[4] = -np.inf
    _sweep(block, shift, weights, counts, stats)
    return counts, stats
