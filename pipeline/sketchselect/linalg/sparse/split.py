"""A sparse block split into dense ("full") and sparse columns, so that centring loses no digits.

Rows about their mean are dense, so kernels subtract the mean of a sparse column afterwards, as a rank-one term. That
cancels where a column is nearly constant and far from zero. It cannot where at most a quarter of the weight is on
entries that are not zero: then ``sum w x^2 - W mean^2 >= 3/4 sum w x^2`` (Cauchy and Schwarz), whatever the values. All
other columns, the full ones, are few; they are stored dense and centred entry by entry, as in a dense block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.linalg.arrays import LARGEST, Array, Floats, first_row, magnitude_error, nonfinite_error
from sketchselect.linalg.centering import block_mean, center_into, centered_moments, check_squares
from sketchselect.linalg.sparse.csr import arrays_of, density, first_nonfinite_entry, row_of

FULL_SHARE = 0.25
"""Share of the weight above which a column counts as full."""

_MOST_DENSE = 8
"""Dense numbers per stored entry that full columns may take; with equal weights they take at most four."""


@dataclass(frozen=True)
class SplitBlock:
    """A block of rows, its full columns dense and all others sparse."""

    weight: float  # Total weight of the rows
    full: NDArray[np.int64]  # The full columns, ascending
    dense: Array  # shape (n_rows, len(full)): Their values
    # shape (n_rows, n_columns): The values of all other columns, in float64, under their own column numbers
    sparse: csr_array
    # mean, squares: shape (n_columns,): Means of the other columns and sums of squares about them; 0 for the full ones
    mean: Floats
    squares: Floats

    def centered(self, weights: Floats, start: int | Array = 0) -> tuple[Floats, Floats, Floats]:
        """Return ``sqrt(w) (x - mean)`` of the full columns, and means and squares about them of all columns."""
        mean, squares = self.mean.copy(), self.squares.copy()
        full = self.full
        rows = np.empty(self.dense.shape)
        if full.size:
            _, shift = block_mean(self.dense, weights, start)
            sums, about = np.zeros(full.size), np.zeros(full.size)
            center_into(self.dense, shift, weights, rows, sums, about)
            check_squares(about, self.dense, start)
            mean[full], _, squares[full] = centered_moments(self.weight, shift, sums, about)
        return rows, mean, squares


def split_columns(block: csr_array, weights: Floats | None = None, start: int | Array = 0) -> SplitBlock:
    """Return the block with its full columns separated; means and squares are exact to rounding.

    Raises `NotFinite` or `BadBlock` for NaN, infinity, and magnitudes of 1e150 and more, naming row and column.
    """
    require_ordinary(block, start)
    n, p = block.shape
    w = np.ones(n) if weights is None else weights
    weight = float(w.sum())
    data, indices, indptr = arrays_of(block)
    seen, sums = np.zeros(p), np.zeros(p)
    _first_sums(data, indices, indptr, w, seen, sums)
    is_full = seen > FULL_SHARE * weight
    full = np.flatnonzero(is_full).astype(np.int64)
    mean = np.where(is_full, 0.0, sums / weight if weight > 0 else 0.0)
    # Both terms are sums of squares: nothing cancels.
    squares = np.zeros(p)
    _second_sums(data, indices, indptr, w, mean, squares)
    squares = np.where(is_full, 0.0, squares + (weight - seen) * mean * mean)
    if not (squares < LARGEST**2).all():
        refuse_huge(block, start)
    return SplitBlock(weight, full, columns_dense(block, full), without_columns(block, is_full), mean, squares)


def stays_sparse(block: csr_array, weights: Floats | None, limit: float) -> bool:
    """Return whether a block suits the sparse kernels: its density is at most `limit`, and its full columns are few.

    With a limit of 1 or more every block does. A row that outweighs all others makes every column full in which it has
    an entry.
    """
    if limit >= 1.0:
        return True
    if limit <= 0.0 or density(block) > limit:
        return False
    if weights is None:
        return True
    seen, sums = np.zeros(block.shape[1]), np.zeros(block.shape[1])
    _first_sums(*arrays_of(block), weights, seen, sums)
    n_full = int((seen > FULL_SHARE * weights.sum()).sum())
    return bool(n_full * block.shape[0] <= _MOST_DENSE * block.nnz)


def require_ordinary(block: csr_array, start: int | Array = 0) -> None:
    """Raise `NotFinite` or `BadBlock`, naming row and column, for values that cannot be squared in float64."""
    data = block.data
    if data.size and not (float(data.min()) > -LARGEST and float(data.max()) < LARGEST):
        refuse_huge(block, start)


def refuse_huge(block: csr_array, start: int | Array) -> None:
    """Raise `NotFinite` for a block with NaN or infinity, otherwise `BadBlock` for the largest value."""
    bad = first_nonfinite_entry(block)
    if bad is not None:
        raise nonfinite_error(*bad, first_row(start))
    place = int(np.abs(block.data.astype(np.float64)).argmax())
    raise magnitude_error(first_row(start) + row_of(block.indptr, place), int(block.indices[place]))


def columns_dense(block: csr_array, columns: NDArray[np.int64]) -> Array:
    """Return these columns (ascending) as a dense array, in the dtype of the block."""
    out = np.zeros((block.shape[0], columns.size), dtype=block.dtype)
    if columns.size:
        place = np.full(block.shape[1], -1, dtype=np.int64)
        place[columns] = np.arange(columns.size)
        _scatter_columns(*arrays_of(block), place, out)
    return out


def without_columns(block: csr_array, left_out: NDArray[np.bool_]) -> csr_array:
    """Return the block in float64, without the entries of some columns."""
    keep = ~left_out[block.indices]
    ends = np.zeros(keep.size + 1, dtype=np.int64)
    np.cumsum(keep, out=ends[1:])
    data = block.data[keep].astype(np.float64, copy=False)
    out = csr_array((data, block.indices[keep], ends[block.indptr].astype(block.indptr.dtype)), shape=block.shape)
    out.has_canonical_format = True
    return out


@dataclass(frozen=True)
class ByColumn:
    """The entries of some rows in column order, rows ascending in each column."""

    ends: NDArray[np.int64]  # shape (n_columns + 1,): Number of entries before each column, and of all entries
    # rows, places: The row of each entry, and its position in the row-wise arrays
    rows: NDArray[np.int64]
    places: NDArray[np.int64]


def by_column(block: csr_array) -> ByColumn:
    """Return the entries of a block in column order, by a counting sort: one sweep and one scatter."""
    ends = np.zeros(block.shape[1] + 1, dtype=np.int64)
    rows, places = np.empty(block.nnz, dtype=np.int64), np.empty(block.nnz, dtype=np.int64)
    _, indices, indptr = arrays_of(block)
    _sort_by_column(indices, indptr, ends, rows, places)
    return ByColumn(ends, rows, places)


@njit(nogil=True, cache=True, fastmath={"contract"})
def _first_sums(data, indices, indptr, weights, seen, sums):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        w = weights[i]
        for k in range(indptr[i], indptr[i + 1]):
            seen[indices[k]] += w
            sums[indices[k]] += w * np.float64(data[k])


@njit(nogil=True, cache=True, fastmath={"contract"})
def _second_sums(data, indices, indptr, weights, mean, squares):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        w = weights[i]
        for k in range(indptr[i], indptr[i + 1]):
            d = np.float64(data[k]) - mean[indices[k]]
            squares[indices[k]] += w * d * d


@njit(nogil=True, cache=True)
def _scatter_columns(data, indices, indptr, place, out):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = place[indices[k]]
            if j >= 0:
                out[i, j] = data[k]


@njit(nogil=True, cache=True)
def _sort_by_column(indices, indptr, ends, rows, places):  # type: ignore[no-untyped-def]
    for k in range(indices.shape[0]):
        ends[indices[k] + 1] += 1
    for j in range(ends.shape[0] - 1):
        ends[j + 1] += ends[j]
    heads = ends.copy()
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            at = heads[indices[k]]
            rows[at] = i
            places[at] = k
            heads[indices[k]] = at + 1
