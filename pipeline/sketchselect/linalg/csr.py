"""Compressed sparse rows: the canonical form, its split for centring, and products column by column.

Rows about their mean are dense, so kernels subtract the mean of a sparse column afterwards, as a rank-one term. That
cancels where a column is nearly constant and far from zero. It cannot where at most a quarter of the weight is on
entries that are not zero: then ``sum w x^2 - W mean^2 >= 3/4 sum w x^2`` (Cauchy and Schwarz), whatever the values. All
other columns, the full ones, are few; they are stored dense and centred entry by entry, as in a dense block.
In products column by column the part of memory that is accessed at random fits in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, csr_matrix, issparse, isspmatrix

from sketchselect._kernels import kernel
from sketchselect.errors import BadBlock
from sketchselect.linalg.centering import centered
from sketchselect.linalg.validation import (
    LARGEST,
    Array,
    Floats,
    canonical,
    first_row,
    magnitude_error,
    nonfinite_error,
    read_only,
)

# Values of a dense piece, where a kernel takes dense rows only and a sparse block is converted piece by piece.
PIECE_VALUES = 1 << 22

_INT32 = np.iinfo(np.int32).max


def as_csr(values: Any, name: str = "sparse block", first_row: int = 0) -> csr_array:
    """Return a sparse matrix as a canonical `scipy.sparse.csr_array`, sharing memory where it is one already.

    Canonical: column indices ascending in each row, duplicate entries added up, no stored zeros, native byte order,
    a real dtype that NumPy computes with, 32-bit indices where they suffice. The input is not changed. Integers that
    have to be added up become float64, so that none wraps around.

    `values` of shape (n_rows, n_columns): In any format.
    `name`: Name of the matrix in messages.
    `first_row`: Global index of its first row, for messages.
    Raises `BadBlock` if it is not two-dimensional or not of real numbers, or its index arrays do not describe a matrix;
    the message names the row.
    Cost: one sweep over the indices and one over the values of a canonical matrix.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> unsorted = csr_array(([1, 2, 3], [2, 0, 2], [0, 3, 3]), shape=(2, 3))
    >>> as_csr(unsorted).indices.tolist(), as_csr(unsorted).toarray().tolist()
    ([0, 2], [[2.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    """
    if not issparse(values) or values.ndim != 2:
        raise BadBlock(f"{name}: a sparse block must be a two-dimensional SciPy sparse matrix")
    if values.dtype.kind not in "fiub":
        raise BadBlock(f"{name}: a sparse block must be of real numeric type (float, int or bool), got {values.dtype}")
    rows = values if values.format == "csr" else converted(values, name)
    fault = structure_fault(rows.data, rows.indices, rows.indptr, rows.shape)
    if fault is not None:
        raise BadBlock(f"{name}: not a valid CSR matrix: {fault}")
    nnz = int(rows.indptr[-1])
    index = np.int32 if max(*rows.shape, nnz) <= _INT32 else np.int64
    indptr = canonical(rows.indptr, index)
    indices = canonical(rows.indices[:nnz], rows.indices.dtype.newbyteorder("="))
    data = canonical(rows.data[:nnz], rows.data.dtype.newbyteorder("="))
    code, row, column = _survey(read_only(indices), read_only(indptr), rows.shape[1])
    if code == _OUTSIDE:
        raise BadBlock(
            f"{name}: row {first_row + row} has an entry in column {column}, and there are {rows.shape[1]} columns"
        )
    out = csr_array((data, canonical(indices, index), indptr), shape=rows.shape)
    if code == _UNORDERED:
        out = out.copy()
        out.eliminate_zeros()
        out.sort_indices()
        if data.dtype.kind in "iu" and _survey(read_only(out.indices), read_only(out.indptr), out.shape[1])[0] != _OK:
            out = out.astype(np.float64)
        out.has_canonical_format = False
        out.sum_duplicates()
    if out.dtype in (np.float16, np.bool_) or out.dtype.itemsize > 8:
        out = out.astype(np.float64)
    if out.nnz and not out.data.all():
        out = out.copy() if np.may_share_memory(out.data, data) else out  # SciPy wraps `data` in a view
        out.eliminate_zeros()
    out.has_canonical_format = True
    return out


def structure_fault(data: Array, indices: Array, indptr: Array, shape: tuple[int, ...]) -> str | None:
    """Return why these arrays are not a CSR matrix, or None if they are one; column indices are not checked."""
    if any(a.ndim != 1 for a in (data, indices, indptr)) or any(a.dtype.kind not in "iu" for a in (indices, indptr)):
        return "data, indices and indptr must be one-dimensional, indices and indptr of integer type"
    if indptr.shape[0] != shape[0] + 1:
        return f"indptr has {indptr.shape[0]} entries for {shape[0]} rows"
    steps = np.diff(indptr.astype(np.int64))
    if int(indptr[0]) != 0:
        return f"indptr must begin with 0, got {int(indptr[0])}"
    if (steps < 0).any():
        return f"indptr decreases after row {int((steps < 0).argmax())}"
    if int(indptr[-1]) > min(len(data), len(indices)):
        return f"indptr ends at {int(indptr[-1])}, there are {len(data)} values and {len(indices)} indices"
    return None


def canonical_csr(data: Array, indices: Array, indptr: Array, n_columns: int) -> csr_array:
    """Return a CSR array of arrays that are known to be in the canonical form, which is not checked again."""
    out = csr_array((data, indices, indptr), shape=(indptr.size - 1, n_columns))
    out.has_canonical_format = True
    return out


def ends_of(keep: NDArray[np.bool_], indptr: Array) -> Array:
    """Return `indptr` for the entries that stay."""
    ends = np.zeros_like(indptr)
    _count_kept(read_only(keep), read_only(indptr), ends)
    return ends


def density(block: csr_array) -> float:
    """Return the share of the entries that are stored; 0 for a matrix without entries."""
    return float(block.nnz) / float(max(block.shape[0] * block.shape[1], 1))


def densify(block: csr_array, dtype: Any = None) -> Array:
    """Return the block as a canonical dense array, in the dtype of the block by default."""
    out = np.zeros(block.shape, dtype=block.dtype if dtype is None else dtype)
    _scatter(*arrays_of(block), out)
    return out


def varying_columns(rows: Any) -> NDArray[np.bool_]:
    """Return which columns of an array, or of a CSR array, which is not made dense, have two values at least."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    if issparse(low):
        low, high = low.toarray(), high.toarray()
    return np.ravel(high) > np.ravel(low)


def take_rows(block: csr_array, start: int, stop: int) -> csr_array:
    """Return rows `start` to `stop` of a canonical block."""
    lo, hi = int(block.indptr[start]), int(block.indptr[stop])
    indptr = block.indptr[start : stop + 1] - block.indptr[start]
    return canonical_csr(block.data[lo:hi], block.indices[lo:hi], indptr, block.shape[1])


def take_columns(block: csr_array, columns: Any) -> csr_array:
    """Return these columns (ascending, without duplicates) of a canonical block."""
    chosen = np.asarray(columns, dtype=np.int64)
    place = np.full(block.shape[1], -1, dtype=np.int64)
    place[chosen] = np.arange(chosen.size)
    to = place[block.indices]
    keep = to >= 0
    indices = to[keep].astype(block.indices.dtype)
    return canonical_csr(block.data[keep], indices, ends_of(keep, block.indptr), chosen.size)


def row_pieces(block: csr_array, n_values: int = PIECE_VALUES) -> Iterator[tuple[int, int]]:
    """Yield ``(start, stop)`` of consecutive rows with at most `n_values` values when dense, at least one row."""
    step = max(1, n_values // max(1, block.shape[1]))
    for start in range(0, block.shape[0], step):
        yield start, min(start + step, block.shape[0])


def entry_runs(offsets: Array, n_entries: int, n_rows: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield ``(start, stop)`` of runs of at most `n_entries` entries and `n_rows` rows, greedily; at least a row each.

    `offsets` are the stored entries before each row, and in all.
    """
    start, last = 0, offsets.shape[0] - 1
    while start < last:
        stop = int(np.searchsorted(offsets, offsets[start] + n_entries, side="right")) - 1
        stop = min(max(stop, start + 1), start + (n_rows or last), last)
        yield start, stop
        start = stop


def first_nonfinite_entry(block: csr_array) -> tuple[int, int, int, int] | None:
    """Return ``(row, column, n_nan, n_inf)`` of the first NaN or infinity in `block`, or None if all is finite."""
    data = block.data
    if data.dtype.kind != "f" or data.size == 0:
        return None
    bad = ~np.isfinite(data)
    if not bad.any():
        return None
    place = int(bad.argmax())
    n_nan = int(np.isnan(data).sum())
    return row_of(block.indptr, place), int(block.indices[place]), n_nan, int(bad.sum()) - n_nan


def finite_rows(block: csr_array) -> NDArray[np.bool_]:
    """Return a mask of the rows without NaN and infinity, shape (n_rows,)."""
    good = np.ones(block.shape[0], dtype=bool)
    if block.data.dtype.kind == "f":
        rows = np.repeat(np.arange(block.shape[0], dtype=np.int64), np.diff(block.indptr))
        good[rows[~np.isfinite(block.data)]] = False
    return good


def row_of(indptr: Array, place: int) -> int:
    """Return the row of the stored entry at `place`."""
    return int(np.searchsorted(indptr, place, side="right")) - 1


def arrays_of(block: csr_array) -> tuple[Array, Array, Array]:
    """Return data, indices and indptr as read-only views, the one array type that kernels are compiled for."""
    return read_only(block.data), read_only(block.indices), read_only(block.indptr)


def converted(values: Any, name: str) -> Any:
    """Return another sparse format as CSR; invalid index arrays are refused before compiled code follows them."""
    try:
        if values.format in ("csc", "bsr"):
            # Checks cut what is superfluous off the arrays of the object that they are asked of.
            values = type(values)((values.data, values.indices, values.indptr), shape=values.shape)
        if hasattr(values, "check_format"):
            values.check_format(full_check=True)
        if values.format == "lil" and list(map(len, values.rows)) != list(map(len, values.data)):
            raise ValueError("a row has other numbers of indices and values")  # it would take what is in memory
        if values.format == "coo":
            # Made anew, which checks all places; and entries stored twice are not added up before their type is wide.
            values = coo_array((values.data, values.coords), shape=values.shape)
            values.has_canonical_format = True
        return values.tocsr()
    except ValueError as error:
        raise BadBlock(f"{name}: not a valid {values.format.upper()} matrix: {error}") from error


def with_wide_sums(values: Any) -> Any:
    """Return sparse integers, where some are stored twice, as CSR of their sums in float64; else as they are."""
    if values.dtype.kind not in "iu" or values.ndim != 2:
        return values
    rows = as_csr(values, "X")
    return values if rows.dtype.kind in "iu" else csr_matrix(rows) if isspmatrix(values) else rows


_OK, _UNORDERED, _OUTSIDE = 0, 1, 2


@kernel()
def _survey(indices, indptr, n_columns):  # type: ignore[no-untyped-def]
    code = _OK
    for i in range(indptr.shape[0] - 1):
        last = np.int64(-1)
        for k in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[k])
            if j < 0 or j >= n_columns:
                return _OUTSIDE, np.int64(i), j
            if j <= last:
                code = _UNORDERED
            last = j
    return code, np.int64(0), np.int64(0)


@kernel()
def _scatter(data, indices, indptr, out):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            out[i, indices[k]] = data[k]


@kernel()
def _count_kept(keep, indptr, ends):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        n_kept = ends[i]
        for k in range(indptr[i], indptr[i + 1]):
            n_kept += keep[k]
        ends[i + 1] = n_kept


FULL_SHARE = 0.25  # Share of the weight above which a column counts as full
MOST_DENSE = 8
"""Dense numbers per stored entry that full columns may take; with equal weights they take at most four."""


@dataclass(frozen=True)
class SplitBlock:
    """A block of rows, its full columns dense and all others sparse."""

    block: csr_array
    weight: float  # Total weight of the rows
    full: NDArray[np.int64]  # The full columns, ascending
    # mean, squares: shape (n_columns,): Means of the other columns and sums of squares about them; 0 for the full ones
    mean: Floats
    squares: Floats

    @property
    def dense(self) -> Array:
        """The values of the full columns, made anew; shape (n_rows, len(full))."""
        return columns_dense(self.block, self.full)

    @cached_property
    def sparse(self) -> csr_array:
        """The values of all other columns, in float64, under their own column numbers; shape (n_rows, n_columns)."""
        left_out = np.zeros(self.block.shape[1], dtype=bool)
        left_out[self.full] = True
        return without_columns(self.block, left_out)

    def centered(self, weights: Floats, start: int | Array = 0) -> tuple[Floats, Floats, Floats]:
        """Return ``sqrt(w) (x - mean)`` of the full columns, and means and squares about them of all columns."""
        mean, squares = self.mean.copy(), self.squares.copy()
        if not self.full.size:
            return np.empty((self.block.shape[0], 0)), mean, squares
        rows, mean[self.full], squares[self.full] = centered(self.dense, weights, start)
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
    return SplitBlock(block, weight, full, mean, squares)


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
    return bool(n_full * block.shape[0] <= MOST_DENSE * block.nnz)


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
    keep = (~left_out)[block.indices]
    data = block.data[keep].astype(np.float64, copy=False)
    return canonical_csr(data, block.indices[keep], ends_of(keep, block.indptr), block.shape[1])


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


@kernel(fastmath={"contract"})
def _first_sums(data, indices, indptr, weights, seen, sums):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        w = weights[i]
        for k in range(indptr[i], indptr[i + 1]):
            seen[indices[k]] += w
            sums[indices[k]] += w * np.float64(data[k])


@kernel(fastmath={"contract"})
def _second_sums(data, indices, indptr, weights, mean, squares):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        w = weights[i]
        for k in range(indptr[i], indptr[i + 1]):
            d = np.float64(data[k]) - mean[indices[k]]
            squares[indices[k]] += w * d * d


@kernel()
def _scatter_columns(data, indices, indptr, place, out):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            j = place[indices[k]]
            if j >= 0:
                out[i, j] = data[k]


@kernel()
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


@kernel(fastmath={"contract"})
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


@kernel(fastmath={"contract"})
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


@kernel()
def _fill(values, ends, rows, chosen, out):  # type: ignore[no-untyped-def]
    for c in range(chosen.shape[0]):
        for k in range(ends[chosen[c]], ends[chosen[c] + 1]):
            out[rows[k], c] = values[k]


@kernel(fastmath={"contract"})
def _times(values, ends, rows, matrix, out):  # type: ignore[no-untyped-def]
    for j in range(ends.shape[0] - 1):
        for k in range(ends[j], ends[j + 1]):
            v = values[k]
            i = rows[k]
            for c in range(matrix.shape[1]):
                out[i, c] += v * matrix[j, c]


@kernel(fastmath={"contract"})
def _transposed_times(values, ends, rows, matrix, out):  # type: ignore[no-untyped-def]
    for j in range(ends.shape[0] - 1):
        for k in range(ends[j], ends[j + 1]):
            v = values[k]
            i = rows[k]
            for c in range(matrix.shape[1]):
                out[j, c] += v * matrix[i, c]


@kernel(fastmath={"contract"})
def _pair_columns(data, indices, indptr, ends, rows, places, first, out):  # type: ignore[no-untyped-def]
    for c in range(out.shape[0]):
        line = out[c]
        for k in range(ends[first + c], ends[first + c + 1]):
            here = places[k]
            v = data[here]
            for m in range(here, indptr[rows[k] + 1]):
                line[indices[m] - first] += v * data[m]
