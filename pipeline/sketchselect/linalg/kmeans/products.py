"""Products of rows and centres in float32, in any order of summation: what they exclude allows for their rounding."""

from __future__ import annotations

import numba
import numpy as np

from sketchselect.linalg.arrays import Array

_TILE = 16
_ROWS = 6
# As measured; with more centres, or shorter rows, BLAS is as fast.
_LEAST_FEATURES, _MOST_CLUSTERS = 128, 32


@numba.njit(nogil=True, cache=True)  # type: ignore[untyped-decorator]
def takes_dots(n_features: int, n_clusters: int) -> bool:
    """Return whether sums in registers are faster than BLAS, which packs its operands: few centres, long rows."""
    return n_features >= _LEAST_FEATURES and 2 <= n_clusters <= _MOST_CLUSTERS


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")  # type: ignore[untyped-decorator]
def _dots(piece: Array, factors: Array, products: Array) -> None:
    """Write the products of two centres at a time and six rows: as many sums as fit the registers of a processor.

    The last rows and centres are taken again with those before where they are fewer.
    """
    n_rows, n_clusters = piece.shape[0], factors.shape[0]
    zero = np.float32(0.0)
    for f in range(0, n_rows, _ROWS):
        f = min(f, n_rows - _ROWS)
        x0, x1, x2, x3, x4, x5 = piece[f], piece[f + 1], piece[f + 2], piece[f + 3], piece[f + 4], piece[f + 5]
        for c in range(0, n_clusters, 2):
            c = min(c, n_clusters - 2)
            y, z = factors[c], factors[c + 1]
            s0 = s1 = s2 = s3 = s4 = s5 = t0 = t1 = t2 = t3 = t4 = t5 = zero
            for j in range(y.shape[0]):
                s0 += x0[j] * y[j]
                s1 += x1[j] * y[j]
                s2 += x2[j] * y[j]
                s3 += x3[j] * y[j]
                s4 += x4[j] * y[j]
                s5 += x5[j] * y[j]
                t0 += x0[j] * z[j]
                t1 += x1[j] * z[j]
                t2 += x2[j] * z[j]
                t3 += x3[j] * z[j]
                t4 += x4[j] * z[j]
                t5 += x5[j] * z[j]
            first, second = products[c], products[c + 1]
            first[f], first[f + 1], first[f + 2], first[f + 3], first[f + 4], first[f + 5] = s0, s1, s2, s3, s4, s5
            second[f], second[f + 1], second[f + 2], second[f + 3], second[f + 4], second[f + 5] = (
                t0,
                t1,
                t2,
                t3,
                t4,
                t5,
            )


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _turn(matrix: Array, turned: Array) -> None:
    """Write the transpose, tile by tile, so that the values read stay in the cache."""
    n_rows, n_columns = matrix.shape
    even = n_rows - n_rows % _TILE
    for a in range(0, even, _TILE):
        for c in range(n_columns):
            line = turned[c]
            # The compiler unrolls a fixed number of steps with indices that cannot be negative.
            for f in range(_TILE):
                line[np.uint64(a + f)] = matrix[np.uint64(a + f), np.uint64(c)]
    for a in range(even, n_rows):
        for c in range(n_columns):
            turned[c, a] = matrix[a, c]


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def multiply(piece: Array, factors: Array, turned: Array, turning: Array, products: Array) -> None:
    """Write the products of centres and rows, shape (n_clusters, n_rows)."""
    n_clusters, n_features = factors.shape
    if takes_dots(n_features, n_clusters) and piece.shape[0] >= _ROWS:
        _dots(piece, factors, products)
        return
    # With few centres, rows times centres and a transpose is faster in BLAS than centres times rows; with many, the
    # transpose costs more than it saves.
    if n_clusters <= n_features:
        across = turning[: products.size].reshape((piece.shape[0], n_clusters))
        np.dot(piece, turned, across)
        _turn(across, products)
    else:
        np.dot(factors, piece.T, products)
