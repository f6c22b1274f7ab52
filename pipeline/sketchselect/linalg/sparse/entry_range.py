"""Number of entries and range of the columns of a sparse block."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.sparse.csr import arrays_of


def entry_range(block: csr_array) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Return the number of stored entries, the minimum and the maximum of every column; implicit zeros count as values.

    The block has at least one row, no stored zeros and no NaN.
    """
    p = block.shape[1]
    counts, low, high = np.zeros(p, dtype=np.int64), np.full(p, np.inf), np.full(p, -np.inf)
    data, indices, _ = arrays_of(block)
    _range(data, indices, counts, low, high)
    partly = counts < block.shape[0]
    low[partly] = np.minimum(low[partly], 0.0)
    high[partly] = np.maximum(high[partly], 0.0)
    return counts, low, high


@njit(nogil=True, cache=True)
def _range(data, indices, counts, low, high):  # type: ignore[no-untyped-def]
    for k in range(data.shape[0]):
        j = indices[k]
        x = np.float64(data[k])
        counts[j] += 1
        low[j] = min(low[j], x)
        high[j] = max(high[j], x)
