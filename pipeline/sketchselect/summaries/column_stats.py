"""ColumnStats: counts, range, mean and variance of every column, missing values allowed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect._kernels import kernel
from sketchselect.errors import BadBlock
from sketchselect.linalg.centering import check_squares
from sketchselect.linalg.csr import arrays_of, columns_dense, split_columns, without_columns
from sketchselect.linalg.validation import Array, Floats, first_row, is_csr, pieces
from sketchselect.summaries.base import Summary, register


@kernel(fastmath={"contract"})
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


@kernel()
def _range(data, indices, counts, low, high):  # type: ignore[no-untyped-def]
    for k in range(data.shape[0]):
        j = indices[k]
        x = np.float64(data[k])
        counts[j] += 1
        low[j] = min(low[j], x)
        high[j] = max(high[j], x)


# Beyond this ratio of raw to centred sum of squares a second sweep about the mean replaces the first one.
_CANCELLED = 1e3


@dataclass(frozen=True)
class ColumnRecord:
    """State of `ColumnStats`, one entry per column; `weight` is the total weight of the values present."""

    n_rows: int
    weight: Floats
    missing: NDArray[np.int64]
    nonzero: NDArray[np.int64]
    low: Floats
    high: Floats
    mean: Floats
    scatter: Floats

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.mean.shape[0])


@register
class ColumnStats(Summary[ColumnRecord]):
    """Non-zeros, range, mean, variance and missing values of every column; NaN is a missing value.

    Exact to rounding for any merge tree. Mean and scatter are centred and merged pairwise, because raw sums of squares
    lose the variance of columns whose mean is large relative to their standard deviation.

    Notes
    -----
    Cost a row: a few sweeps over the block. Bytes: 64 a column.

    Examples
    --------
    >>> import numpy as np
    >>> s = ColumnStats().from_block(np.array([[1.0, np.nan], [3.0, 0.0]]))
    >>> s.mean.tolist(), s.missing.tolist(), s.nonzero.tolist()
    ([2.0, 0.0], [0, 1], [2, 0])
    """

    kind = "column-stats"
    record_type = ColumnRecord
    accepts_missing = True
    accepts_sparse = True

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        return 64 * n_features + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`."""
        return 256 * n_features + 1024

    def _empty(self, n_features: int, n_targets: int) -> ColumnRecord:
        zeros = np.zeros(n_features)
        counts = np.zeros(n_features, dtype=np.int64)
        return ColumnRecord(
            0, zeros, counts, counts, np.full(n_features, np.inf), np.full(n_features, -np.inf), zeros, zeros
        )

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> ColumnRecord:
        if is_csr(block):
            return self._of_sparse(block, start, weights)
        n = block.shape[0]
        w = np.ones(n) if weights is None else weights
        shift = np.nan_to_num(block[0].astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        record = None
        for a, b in pieces(block):
            counts, stats = column_sweep(block[a:b], shift, w[a:b])
            if counts[2].any():
                raise BadBlock(
                    f"column {int(np.flatnonzero(counts[2])[0])} has infinite values in rows {first_row(start) + a} to "
                    f"{first_row(start) + b - 1}; clean the data"
                )
            piece = _piece(b - a, shift, counts, stats)
            # A value of the column is a good reference point unless it is far from the others, as that of a first row
            # that is missing or has no weight may be. Then the piece is swept again about its means.
            if (stats[2] > _CANCELLED * piece.scatter).any():
                shift = np.where(piece.weight > 0, piece.mean, shift)
                counts, stats = column_sweep(block[a:b], shift, w[a:b])
                piece = _piece(b - a, shift, counts, stats)
            check_squares(stats[2], block[a:b], first_row(start) + a)
            record = piece if record is None else self._combine(record, piece)
        assert record is not None  # `from_block` handles blocks without rows
        return record

    def _of_sparse(self, block: csr_array, start: int | Array, weights: Floats | None) -> ColumnRecord:
        """Return the record of CSR rows; full columns, and columns with missing values, are summarised dense."""
        n, p = block.shape
        gaps = np.zeros(p, dtype=bool)
        if block.data.dtype.kind == "f":
            gaps[block.indices[np.isnan(block.data)]] = True
        whole = without_columns(block, gaps) if gaps.any() else block
        split = split_columns(whole, weights, start)
        nonzero, low, high = entry_range(whole)
        statistics: dict[str, Any] = {
            "weight": np.full(p, split.weight),
            "missing": np.zeros(p, dtype=np.int64),
            "nonzero": nonzero,
            "low": low,
            "high": high,
            "mean": split.mean,
            "scatter": split.squares,
        }
        gaps[split.full] = True
        columns = np.flatnonzero(gaps)
        if columns.size:
            dense = self._summarise(columns_dense(block, columns), None, start, weights)
            for name, values in statistics.items():
                values[columns] = getattr(dense, name)
        return ColumnRecord(n, **statistics)

    def _combine(self, left: ColumnRecord, right: ColumnRecord) -> ColumnRecord:
        # In few arrays: of very many columns these are the memory of a merge.
        weight = left.weight + right.weight
        safe = np.where(weight > 0, weight, 1.0)
        difference = np.where((left.weight > 0) & (right.weight > 0), right.mean - left.mean, 0.0)
        between = right.weight / safe
        between *= left.weight
        scatter = difference * difference
        scatter *= between
        scatter += left.scatter + right.scatter
        del between
        # From the mean of the heavier side, as `merge_means`.
        from_right = right.weight > left.weight
        mean = np.where(from_right, -left.weight, right.weight)
        mean /= safe
        mean *= difference
        mean += np.where(from_right, right.mean, left.mean)
        del safe, difference
        return ColumnRecord(
            n_rows=left.n_rows + right.n_rows,
            weight=weight,
            missing=left.missing + right.missing,
            nonzero=left.nonzero + right.nonzero,
            low=np.minimum(left.low, right.low),
            high=np.maximum(left.high, right.high),
            mean=mean,
            scatter=scatter,
        )

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def weight(self) -> Floats:
        """Total weight of the values present in each column."""
        return self.record.weight

    @property
    def missing(self) -> NDArray[np.int64]:
        """Number of missing values in each column."""
        return self.record.missing

    @property
    def nonzero(self) -> NDArray[np.int64]:
        """Number of values other than zero and missing in each column."""
        return self.record.nonzero

    @property
    def minimum(self) -> Floats:
        """Smallest value of each column; infinity if all are missing."""
        return self.record.low

    @property
    def maximum(self) -> Floats:
        """Largest value of each column; minus infinity if all are missing."""
        return self.record.high

    @property
    def mean(self) -> Floats:
        """Mean of the values present in each column."""
        return self.record.mean

    @property
    def sum(self) -> Floats:
        """Weighted sum of each column."""
        return self.record.weight * self.record.mean

    @property
    def centered_column_squared_norms(self) -> Floats:
        """Weighted sum of squares of each column about its mean; exactly 0 if all values are equal."""
        return np.where(self.is_constant, 0.0, self.record.scatter)

    @property
    def variance(self) -> Floats:
        """Population variance of each column; 0 if all values are missing."""
        weight = self.record.weight
        scatter = self.centered_column_squared_norms
        out: Floats = np.divide(scatter, weight, out=np.zeros_like(weight), where=weight > 0)
        return out

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        """Whether all values of a column are equal; by range, as a merged variance of equal values need not be 0."""
        return ~(self.record.high > self.record.low)


def _piece(n_rows: int, shift: Floats, counts: NDArray[np.int64], stats: Floats) -> ColumnRecord:
    """Return the record of rows from their sums about `shift`."""
    weight, sums, squares, low, high = stats
    offset = np.divide(sums, weight, out=np.zeros_like(sums), where=weight > 0)
    scatter = np.maximum(squares - weight * offset * offset, 0.0)
    return ColumnRecord(n_rows, weight, counts[0], counts[1], low, high, shift + offset, scatter)
