"""TopValues: column statistics and the largest values of every column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

import numpy as np

from sketchselect.linalg.arrays import Array, Floats, first_row, pieces, require_finite
from sketchselect.linalg.columns.largest import largest_of_entries, largest_of_rows, merge_largest
from sketchselect.linalg.sparse.csr import densify, is_csr, row_pieces, take_rows
from sketchselect.linalg.validation import require_positive
from sketchselect.summaries.column_stats import ColumnRecord, ColumnStats
from sketchselect.summaries.registry import register

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
            values = block.data.astype(np.float64)
            sums += np.bincount(block.indices, values, p)
            squares += np.bincount(block.indices, values * values, p)
            largest = largest_of_entries(block, self.size)
            return _record(stats, whole and _are_whole(values), sums, squares, largest)
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
