"""Products with sparse rows, column by column: the part of memory that is accessed at random then fits in the cache."""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.sparse.split import ByColumn

_DENSE_SHARE = 6
_SLAB = 256
_TILE = 32


def add_row_gram(values: Floats, columns: ByColumn, out: Floats) -> None:
    """Add the lower triangle of ``S S'`` to `out`, for rows S whose entries in column order are `values`.

    Cost: half the sum of the squared column counts; columns that have an entry in every sixth row go through dense
    products, which are faster for them, and fill the upper triangle as well.
    """
    n_rows = out.shape[0]
    counts = np.diff(columns.ends)
    is_dense = counts * _DENSE_SHARE > n_rows
    _pair_rows(values, columns.ends, columns.rows, is_dense, out)
    dense = np.flatnonzero(is_dense)
    for a in range(0, dense.size, _SLAB):
        slab = np.zeros((n_rows, min(_SLAB, dense.size - a)))
        _fill(values, columns.ends, columns.rows, dense[a : a + _SLAB], slab)
        out += slab @ slab.T


def times_dense(values: Floats, columns: ByColumn, n_rows: int, matrix: Floats) -> Floats:
    """Return ``S M``, shape (n_rows, r), for M of shape (n_columns, r)."""
    out = np.zeros((n_rows, matrix.shape[1]))
    _times(values, columns.ends, columns.rows, matrix, out)
    return out


def add_transposed_times(values: Floats, columns: ByColumn, matrix: Floats, out: Floats) -> None:
    """Add ``S' M`` to the first r columns of `out`, an array of n_columns rows, for M of shape (n_rows, r)."""
    _transposed_times(values, columns.ends, columns.rows, matrix, out)


def scatter_rows(block: csr_array, columns: ByColumn, first: int, out: Floats) -> None:
    """Add ``(X'X)[first + i, first + j]``, j >= i, to ``out[i, j]`` for the rows of `out`.

    X are the rows of the block, scaled by the roots of their weights.
    """
    _pair_columns(block.data, block.indices, block.indptr, columns.ends, columns.rows, columns.places, first, out)


@njit(nogil=True, cache=True, fastmath={"contract"})
def _pair_rows(values, ends, rows, skip, out):  # type: ignore[no-untyped-def]
    for j in range(ends.shape[0] - 1):
        if skip[j]:
            continue
        for k in range(ends[j], ends[j + 1]):
            v = values[k]
            line = out[rows[k]]
            for m in range(ends[j], k):
                line[rows[m]] += v * values[m]
            line[rows[k]] += v * v


@njit(nogil=True, cache=True, fastmath={"contract"})
def complete(out, first, t, v):  # type: ignore[no-untyped-def]
    """Subtract ``t v' + v t'`` from a symmetric matrix from row and column `first` on; mirror the lower triangle."""
    n = out.shape[0]
    for i in range(first, n):
        line, a, b = out[i, first:], t[i - first], v[i - first]
        for m in range(i - first + 1):
            line[m] -= a * v[m] + b * t[m]
    # Tile by tile, because one of the two sides is traversed down its columns.
    for i in range(0, n, _TILE):
        for j in range(0, i + 1, _TILE):
            for a in range(i, min(i + _TILE, n)):
                for b in range(j, min(j + _TILE, a)):
                    out[b, a] = out[a, b]


@njit(nogil=True, cache=True)
def _fill(values, ends, rows, chosen, out):  # type: ignore[no-untyped-def]
    for c in range(chosen.shape[0]):
        for k in range(ends[chosen[c]], ends[chosen[c] + 1]):
            out[rows[k], c] = values[k]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _times(values, ends, rows, matrix, out):  # type: ignore[no-untyped-def]
    for j in range(ends.shape[0] - 1):
        for k in range(ends[j], ends[j + 1]):
            v = values[k]
            i = rows[k]
            for c in range(matrix.shape[1]):
                out[i, c] += v * matrix[j, c]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _transposed_times(values, ends, rows, matrix, out):  # type: ignore[no-untyped-def]
    for j in range(ends.shape[0] - 1):
        for k in range(ends[j], ends[j + 1]):
            v = values[k]
            i = rows[k]
            for c in range(matrix.shape[1]):
                out[j, c] += v * matrix[i, c]


@njit(nogil=True, cache=True, fastmath={"contract"})
def _pair_columns(data, indices, indptr, ends, rows, places, first, out):  # type: ignore[no-untyped-def]
    for c in range(out.shape[0]):
        line = out[c]
        for k in range(ends[first + c], ends[first + c + 1]):
            here = places[k]
            v = data[here]
            for m in range(here, indptr[rows[k] + 1]):
                line[indices[m] - first] += v * data[m]
