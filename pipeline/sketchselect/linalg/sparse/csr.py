"""Compressed sparse rows: the canonical form, and the operations on it that readers and kernels need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from sketchselect.errors import BadBlock
from sketchselect.linalg.arrays import Array, canonical, read_only

PIECE_VALUES = 1 << 22
"""Values of a dense piece, where a kernel takes dense rows only and a sparse block is converted piece by piece."""

_INT32 = np.iinfo(np.int32).max


def is_csr(values: Any) -> TypeGuard[csr_array]:
    """Return whether `values` is a SciPy matrix or array in CSR form."""
    return not isinstance(values, np.ndarray) and getattr(values, "format", None) == "csr" and issparse(values)


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
    rows = values if values.format == "csr" else _converted(values, name)
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
        out = out if out.data is not data else out.copy()
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


def density(block: csr_array) -> float:
    """Return the share of the entries that are stored; 0 for a matrix without entries."""
    return float(block.nnz) / float(max(block.shape[0] * block.shape[1], 1))


def densify(block: csr_array, dtype: Any = None) -> Array:
    """Return the block as a canonical dense array, in the dtype of the block by default."""
    out = np.zeros(block.shape, dtype=block.dtype if dtype is None else dtype)
    _scatter(*arrays_of(block), out)
    return out


def take_rows(block: csr_array, start: int, stop: int) -> csr_array:
    """Return rows `start` to `stop` of a canonical block."""
    lo, hi = int(block.indptr[start]), int(block.indptr[stop])
    out = csr_array(
        (block.data[lo:hi], block.indices[lo:hi], block.indptr[start : stop + 1] - block.indptr[start]),
        shape=(stop - start, block.shape[1]),
    )
    out.has_canonical_format = True
    return out


def take_columns(block: csr_array, columns: Any) -> csr_array:
    """Return these columns (ascending, without duplicates) of a canonical block."""
    chosen = np.asarray(columns, dtype=np.int64)
    place = np.full(block.shape[1], -1, dtype=np.int64)
    place[chosen] = np.arange(chosen.size)
    to = place[block.indices]
    keep = to >= 0
    ends = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])[block.indptr]
    out = csr_array(
        (block.data[keep], to[keep].astype(block.indices.dtype), ends.astype(block.indptr.dtype)),
        shape=(block.shape[0], chosen.size),
    )
    out.has_canonical_format = True
    return out


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
        good[row_numbers(block)[~np.isfinite(block.data)]] = False
    return good


def row_numbers(block: csr_array) -> NDArray[np.int64]:
    """Return the row of every stored entry."""
    return np.repeat(np.arange(block.shape[0], dtype=np.int64), np.diff(block.indptr))


def row_of(indptr: Array, place: int) -> int:
    """Return the row of the stored entry at `place`."""
    return int(np.searchsorted(indptr, place, side="right")) - 1


def arrays_of(block: csr_array) -> tuple[Array, Array, Array]:
    """Return data, indices and indptr as read-only views, the one array type that kernels are compiled for."""
    return read_only(block.data), read_only(block.indices), read_only(block.indptr)


def _converted(values: Any, name: str) -> Any:
    """Return another sparse format as CSR; invalid index arrays are refused before compiled code follows them."""
    try:
        if hasattr(values, "check_format"):
            values.check_format(full_check=True)
        return values.tocsr()
    except ValueError as error:
        raise BadBlock(f"{name}: not a valid {values.format.upper()} matrix: {error}") from error


_OK, _UNORDERED, _OUTSIDE = 0, 1, 2


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True)
def _scatter(data, indices, indptr, out):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        for k in range(indptr[i], indptr[i + 1]):
            out[i, indices[k]] = data[k]
