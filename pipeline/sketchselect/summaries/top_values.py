"""TopValues: column statistics and the largest values of every column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

import numpy as np

from sketchselect._kernels import kernel
from sketchselect.linalg.csr import arrays_of, densify, row_pieces, take_rows
from sketchselect.linalg.validation import (
    Array,
    Floats,
    first_row,
    is_csr,
    pieces,
    read_only,
    require_finite,
    require_positive,
)
from sketchselect.summaries.base import register
from sketchselect.summaries.column_stats import ColumnRecord, ColumnStats


@kernel()
def _insert(x, w, count, top, mass, weighted):  # type: ignore[no-untyped-def]
    """Insert one value into a descending run of `count` entries; a full run loses its last one."""
    size = top.shape[0]
    i = count if count < size else size - 1
    while i > 0 and (top[i - 1] < x or (weighted and top[i - 1] == x and mass[i - 1] < w)):
        top[i] = top[i - 1]
        if weighted:
            mass[i] = mass[i - 1]
        i -= 1
    top[i] = x
    if weighted:
        mass[i] = w


@kernel()
def _collect_rows(block, weights, top, mass, least, weighted):  # type: ignore[no-untyped-def]
    size = top.shape[1]
    for i in range(block.shape[0]):
        count = min(i, size)
        w = weights[i]
        for j in range(block.shape[1]):
            x = np.float64(block[i, j])
            enters = count < size or x > least[j] or (weighted and x == least[j] and w > mass[j, size - 1])
            if enters:
                _insert(x, w, count, top[j], mass[j], weighted)
                if count + 1 >= size:
                    least[j] = top[j, size - 1]


LEVELS = 16
"""Whole numbers below this are counted instead of sorted in: counts are mostly small."""


@kernel()
def _collect_entries(data, indices, indptr, top, least, levels, totals):  # type: ignore[no-untyped-def]
    """Collect the entries of each column and add them up; return whether all are whole numbers.

    ``levels[j, v]`` is the number of entries equal to v, and ``levels[j, 0]`` that of all others, whose largest go to
    `top`; `totals` are the sums and the sums of squares.
    """
    size = top.shape[1]
    whole = True
    for k in range(indptr[0], indptr[-1]):
        j = indices[k]
        x = np.float64(data[k])
        totals[j, 0] += x
        totals[j, 1] += x * x
        whole &= np.floor(x) == x
        level = np.int64(x) if np.abs(x) < levels.shape[1] else 0
        if level > 0 and level == x:
            levels[j, level] += 1
            continue
        count = np.int64(levels[j, 0])
        levels[j, 0] += 1
        if count < size or x > least[j]:
            _insert(x, 1.0, min(count, size), top[j], least, False)
            if count + 1 >= size:
                least[j] = top[j, size - 1]
    return whole


@kernel()
def _expand(n_rows, levels, top, out):  # type: ignore[no-untyped-def]
    """Write the largest values of each column, descending: sorted and counted ones, and the implicit zeros."""
    for j in range(top.shape[0]):
        stored, zeros, k = min(np.int64(levels[j, 0]), top.shape[1]), n_rows - levels[j].sum(), 0
        level = levels.shape[1] - 1
        left = levels[j, level]
        for i in range(out.shape[0]):
            while level > 0 and left == 0:
                level -= 1
                left = levels[j, level]
            if k < stored and (top[j, k] > level or (level == 0 and zeros == 0)):
                out[i, j] = top[j, k]
                k += 1
            elif level > 0:
                out[i, j] = level
                left -= 1
            else:
                out[i, j] = 0.0
                zeros -= 1


@kernel()
def _merge(left, right, left_mass, right_mass, out, out_mass, weighted):  # type: ignore[no-untyped-def]
    a = np.zeros(out.shape[1], dtype=np.int64)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            m = a[j]
            n = i - m
            first = n >= right.shape[0]
            if not first and m < left.shape[0]:
                first = left[m, j] > right[n, j] or (
                    left[m, j] == right[n, j] and (not weighted or left_mass[m, j] >= right_mass[n, j])
                )
            if first:
                out[i, j] = left[m, j]
                if weighted:
                    out_mass[i, j] = left_mass[m, j]
                a[j] = m + 1
            else:
                out[i, j] = right[n, j]
                if weighted:
                    out_mass[i, j] = right_mass[n, j]


def largest_of_rows(block: Floats, size: int, weights: Floats | None) -> tuple[Floats, Floats]:
    """Return the largest values of each column, descending, with the weights of their rows.

    `block` of shape (n_rows, p): Finite.
    `size`: Most values per column.
    `weights` of shape (n_rows,): Positive; of equal values those of the heavier rows are chosen.

    Returns
    -------
    values : array of shape (m, p)
        m is the smaller of `size` and n_rows.
    masses : array of shape (m, p), or (0, p) without weights
    """
    n, p = block.shape
    m = min(size, n)
    top, mass = np.zeros((p, m)), np.zeros((p, m if weights is not None else 0))
    row_weights = np.ones(n) if weights is None else weights
    _collect_rows(read_only(block), read_only(row_weights), top, mass, np.full(p, -np.inf), weights is not None)
    return np.ascontiguousarray(top.T), np.ascontiguousarray(mass.T)


def sums_of_entries(block: Any, size: int) -> tuple[tuple[Floats, Floats], Floats, Floats, bool]:
    """Return `largest_of_rows` of canonical sparse rows, the sums and squares, and whether all values are whole.

    The rows have no weights. Cost: one sweep over the stored entries.
    """
    n, p = block.shape
    top, least = np.zeros((p, min(size, n))), np.full(p, -np.inf)
    levels = np.zeros((p, LEVELS), dtype=np.int32 if n <= np.iinfo(np.int32).max else np.int64)
    totals = np.zeros((p, 2))
    whole = _collect_entries(*arrays_of(block), top, least, levels, totals)
    out = np.zeros(top.shape[::-1])
    _expand(n, levels, top, out)
    sums, squares = np.ascontiguousarray(totals.T)
    return (out, np.zeros((0, p))), sums, squares, bool(whole)


def merge_largest(left: tuple[Floats, Floats], right: tuple[Floats, Floats], size: int) -> tuple[Floats, Floats]:
    """Return the `size` largest values of two collections, equal values by descending row weight, then the left first.

    If only one collection has weights, those of the other are 1.
    """
    (a, a_mass), (b, b_mass) = left, right
    m = min(size, a.shape[0] + b.shape[0])
    weighted = bool(a_mass.shape[0] or b_mass.shape[0])
    if weighted:
        a_mass = a_mass if a_mass.shape[0] else np.ones(a.shape)
        b_mass = b_mass if b_mass.shape[0] else np.ones(b.shape)
    out = np.zeros((m, a.shape[1]))
    out_mass = np.zeros((m if weighted else 0, a.shape[1]))
    _merge(read_only(a), read_only(b), read_only(a_mass), read_only(b_mass), out, out_mass, weighted)
    return out, out_mass


_WHOLE = 2.0**53
"""Sums of whole numbers below this are exact in float64, in any order."""


@dataclass(frozen=True)
class TopRecord(ColumnRecord):
    """State of `TopValues`: that of `ColumnStats`; `top` and `masses` (values and row weights), descending.

    `sums` and `squares` are raw weighted sums; `is_whole` is true if every value and weight is a whole number.
    """

    is_whole: bool
    sums: Floats
    squares: Floats
    top: Floats
    masses: Floats


@register
class TopValues(ColumnStats):
    """Column statistics and the `size` largest values of every column.

    The largest values are exact in float64, which rounds whole numbers above 2^53, and the same to the bit for any
    blocks and merge tree. Mean and variance are those of
    `ColumnStats`; if all values are whole numbers (counts) and the sums of squares are below 2^53, they are the exact
    ones, rounded once: columns with the same counts in a different order have the same variance to the bit.

    Parameters
    ----------
    size : int
        Values per column.

    Notes
    -----
    Rows of weight 0 are left out. Missing values are refused. Of sparse rows only the stored entries are read.
    Cost a row: two sweeps over the block. Bytes: 8 size + 80 per column, 16 size + 80 with row weights.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[3.0, 0.0], [1.0, 5.0], [7.0, 2.0]])
    >>> s = TopValues(2).from_block(X[:1]).merge(TopValues(2).from_block(X[1:]))
    >>> s.top.tolist(), s.variance.round(12).tolist()
    ([[7.0, 5.0], [3.0, 2.0]], [6.222222222222, 4.222222222222])
    """

    kind = "top-values"
    record_type = TopRecord  # type: ignore[assignment]
    accepts_sparse = True
    # A missing value may be the largest.
    accepts_missing = False

    def __init__(self, size: int = 64) -> None:
        self.size = require_positive("size", size)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state, of rows with weights."""
        return (80 + 16 * self.size) * n_features + 128

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`."""
        return super().working_nbytes(n_features) + 2 * self.projected_nbytes(n_features)

    def _empty(self, n_features: int, n_targets: int) -> TopRecord:
        zeros, none = np.zeros(n_features), np.zeros((0, n_features))
        return _record(ColumnStats()._empty(n_features, n_targets), True, zeros, zeros, (none, none))

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> TopRecord:
        if not is_csr(block):
            # `ColumnStats` accepts NaN as missing values.
            require_finite(block, first_row(start))
        stats = ColumnStats()._summarise(block, targets, start, weights)
        p = block.shape[1]
        sums, squares, largest = np.zeros(p), np.zeros(p), (np.zeros((0, p)), np.zeros((0, p)))
        whole = weights is None or _are_whole(weights)
        if is_csr(block) and weights is None:
            largest, sums, squares, whole = sums_of_entries(block, self.size)
            return _record(stats, whole, sums, squares, largest)
        for rows, w in _dense_pieces(block, weights):
            scale = np.ones(rows.shape[0]) if w is None else w
            sums += scale @ rows
            squares += scale @ (rows * rows)
            whole = whole and _are_whole(rows)
            largest = merge_largest(largest, largest_of_rows(rows, self.size, w), self.size)
        return _record(stats, whole, sums, squares, largest)

    def _combine(self, left: ColumnRecord, right: ColumnRecord) -> TopRecord:
        assert isinstance(left, TopRecord)
        assert isinstance(right, TopRecord)
        stats = ColumnStats()._combine(left, right)
        largest = merge_largest((left.top, left.masses), (right.top, right.masses), self.size)
        whole = left.is_whole and right.is_whole
        return _record(stats, whole, left.sums + right.sums, left.squares + right.squares, largest)

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def _state(self) -> TopRecord:
        return cast(TopRecord, self.record)

    @property
    def top(self) -> Floats:
        """The largest values of each column, descending; shape (min(size, rows of positive weight), n_features)."""
        return self._state.top

    @property
    def top_weights(self) -> Floats:
        """Row weight of each of the largest values, of the same shape as `top`."""
        return self._state.masses if self._state.masses.shape[0] else np.ones(self._state.top.shape)

    @property
    def is_whole(self) -> bool:
        """Whether all values and weights are whole numbers."""
        return self._state.is_whole

    @property
    def is_exact(self) -> bool:
        """Whether mean and variance are exact, rounded once."""
        largest = max(float(self._state.squares.max(initial=0.0)), float(self.record.weight.max(initial=0.0)))
        return self._state.is_whole and largest < _WHOLE

    @cached_property
    def mean(self) -> Floats:
        """Mean of each column."""
        if not self.is_exact:
            return self.record.mean
        weight = self.record.weight
        return np.divide(self._state.sums, weight, out=np.zeros_like(weight), where=weight > 0)

    @cached_property
    def centered_column_squared_norms(self) -> Floats:
        """Weighted sum of squares of each column about its mean; exactly 0 if all values are equal."""
        if not self.is_exact:
            return np.where(self.is_constant, 0.0, self.record.scatter)
        # (W Q - S^2) / W in whole numbers of any size: Python rounds the quotient once.
        terms = zip(self.record.weight.tolist(), self._state.sums.tolist(), self._state.squares.tolist(), strict=True)
        return np.array([(int(w) * int(q) - int(s) ** 2) / int(w) if w else 0.0 for w, s, q in terms])


def _record(
    stats: ColumnRecord, is_whole: bool, sums: Floats, squares: Floats, largest: tuple[Floats, Floats]
) -> TopRecord:
    statistics = {field.name: getattr(stats, field.name) for field in fields(ColumnRecord)}
    top, masses = largest
    return TopRecord(**statistics, is_whole=bool(is_whole), sums=sums, squares=squares, top=top, masses=masses)


def _dense_pieces(block: Any, weights: Floats | None) -> Iterator[tuple[Floats, Floats | None]]:
    """Yield the rows of positive weight as float64, a piece at a time, and their weights."""
    for a, b in row_pieces(block) if is_csr(block) else pieces(block):
        rows = densify(take_rows(block, a, b), np.float64) if is_csr(block) else block[a:b].astype(np.float64)
        if weights is None:
            yield rows, None
        elif (weights[a:b] > 0).any():
            heavy = weights[a:b] > 0
            yield np.ascontiguousarray(rows[heavy]), weights[a:b][heavy]


def _are_whole(values: Array) -> bool:
    return bool((np.floor(values) == values).all())
