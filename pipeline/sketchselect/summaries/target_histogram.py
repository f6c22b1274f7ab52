"""TargetHistogram: counts of the rows in each bin of every column and each class of the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from sketchselect._kernels import kernel
from sketchselect.errors import BadBlock, BadParameter, EmptyInput, Incompatible
from sketchselect.linalg.csr import arrays_of, as_csr, densify, require_ordinary, take_columns
from sketchselect.linalg.validation import (
    Array,
    Floats,
    as_block,
    as_targets,
    canonical,
    first_row,
    is_csr,
    read_only,
    require_finite,
    require_positive,
)
from sketchselect.summaries.base import Summary, as_classes, register
from sketchselect.summaries.partitioned import label_numbers

_TILE_NBYTES = 1 << 18
"""Bytes of the counts that one sweep over the rows adds to: a share of the cache of a core."""
_WHOLE = 2.0**52
"""Neighbours of whole numbers below this are whole numbers of float64 too."""
_DENSE_COLUMNS = 256
"""Columns of a sparse sample that are made dense at a time."""


@kernel()
def _bin_of(edges, j, x):  # type: ignore[no-untyped-def]
    """Return the last bin that begins at or below `x`, the first one for smaller values."""
    low, high = 1, edges.shape[1]
    while low < high:
        middle = (low + high) // 2
        if edges[j, middle] <= x:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel()
def _count_rows(block, edges, classes, weights, counts, at_edges):  # type: ignore[no-untyped-def]
    n, p = block.shape
    tile = max(1, _TILE_NBYTES // (8 * counts.shape[1] * counts.shape[2]))
    for first in range(0, p, tile):
        for i in range(n):
            c, w = classes[i], weights[i]
            if w > 0:
                for j in range(first, min(first + tile, p)):
                    x = np.float64(block[i, j])
                    e = j if edges.shape[0] > 1 else 0
                    b = _bin_of(edges, e, x)
                    counts[j, b, c] += w
                    at_edges[j] &= edges[e, b] == x


@kernel()
def _count_entries(data, indices, indptr, edges, classes, weights, counts, at_edges):  # type: ignore[no-untyped-def]
    p, n_classes = counts.shape[0], counts.shape[2]
    totals, stored = np.zeros(n_classes, np.int64), np.zeros((p, n_classes), np.int64)
    for i in range(indptr.shape[0] - 1):
        c, w = classes[i], weights[i]
        totals[c] += w
        if w > 0:
            for k in range(indptr[i], indptr[i + 1]):
                j = indices[k]
                x = np.float64(data[k])
                e = j if edges.shape[0] > 1 else 0
                b = _bin_of(edges, e, x)
                counts[j, b, c] += w
                stored[j, c] += w
                at_edges[j] &= edges[e, b] == x
    for j in range(p):
        e = j if edges.shape[0] > 1 else 0
        b = _bin_of(edges, e, 0.0)
        for c in range(n_classes):
            zeros = totals[c] - stored[j, c]
            if zeros > 0:
                counts[j, b, c] += zeros
                at_edges[j] &= edges[e, b] == 0.0


@kernel()
def _end_of_run(ascending, i):  # type: ignore[no-untyped-def]
    """Return the place after the last value that is equal to that at place `i`."""
    end = i + 1
    while end < ascending.shape[0] and ascending[end] == ascending[i]:
        end += 1
    return end


@kernel()
def _fill_edges(ascending, out):  # type: ignore[no-untyped-def]
    """Write the lower edges of at most ``out.size`` bins with about the same number of the ascending values."""
    n, n_bins = ascending.shape[0], out.shape[0]
    n_distinct, is_whole = 1, abs(ascending[0]) < _WHOLE and abs(ascending[n - 1]) < _WHOLE
    for i in range(n):
        n_distinct += i > 0 and ascending[i] != ascending[i - 1]
        is_whole = is_whole and ascending[i] == np.floor(ascending[i])
    if is_whole and ascending[n - 1] - ascending[0] < n_bins:
        first = 0.0 if ascending[0] >= 0.0 and ascending[n - 1] < n_bins else ascending[0]
        for b in range(n_bins):
            out[b] = first + b
        return
    n_frequent, light, i = 0, n, 0
    while i < n:
        end = _end_of_run(ascending, i)
        if (end - i) * n_bins >= n:
            n_frequent += 1
            light -= end - i
        i = end
    # A frequent value has a bin of its own; another one starts a bin if the bin before is then nearer to its share of
    # the others that are left.
    b, inside, after_frequent, i = 0, 0, False, 0
    out[0] = ascending[0]
    while i < n:
        end = _end_of_run(ascending, i)
        is_frequent = (end - i) * n_bins >= n
        n_free = n_bins - b - n_frequent
        if i > 0 and b + 1 < n_bins:
            is_full = 2.0 * inside + (end - i) > 2.0 * light / max(n_free, 1)
            if is_frequent or (n_free > 1 and (after_frequent or is_full or n_distinct <= n_bins)):
                b += 1
                out[b] = ascending[i]
                light -= inside
                inside = 0
        n_frequent -= is_frequent
        after_frequent = is_frequent
        inside += 0 if is_frequent else end - i
        i = end


@dataclass(frozen=True)
class HistogramRecord:
    """State of `TargetHistogram`: `counts` of shape (n_features, n_bins, n_classes).

    `at_edges`, shape (n_features,): Whether every value of a column is the lower edge of its bin.
    """

    n_rows: int
    counts: NDArray[np.int64]
    at_edges: NDArray[np.bool_]

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.counts.shape[0])


@register
class TargetHistogram(Summary[HistogramRecord]):
    """Number of rows in each bin of every column and each class of the target.

    The target is a class label of every row or, with `target_edges`, a number that is binned too. Counts are whole
    numbers, so that a summary is the same to the bit for any blocks, order and merge tree. Mutual information and rank
    sums follow from them, exactly for the binned values, and for the values themselves where every bin holds one value
    (`is_exact`).

    Parameters
    ----------
    edges : array of shape (n_bins,) or (n_features, n_bins)
        Lower edges of the bins, ascending, of all columns or of each; a column with fewer bins ends with infinity.
        Values below the first edge are in the first bin. ``range(64)`` is for counts: a bin for each whole number
        below 63, and one for 63 and more.
    classes : sequence, optional
        All possible labels, at least two; all text or all numbers.
    target_edges : array of shape (n_target_bins,), optional
        Lower edges of the bins of a numeric target, at least two. Either this or `classes` is needed.

    Raises
    ------
    BadParameter
        If the edges do not ascend, or not exactly one of `classes` and `target_edges` is there.

    Notes
    -----
    Missing values are refused, and so are weights that are not whole numbers: a row of weight w counts as w rows.
    Of sparse rows only the stored entries are read.
    Cost a row: ``log2(n_bins)`` comparisons a value. Bytes: ``8 n_bins n_classes + 1`` a column, besides the edges.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [1.0], [7.0]])
    >>> h = TargetHistogram(range(3), classes=["a", "b"]).from_block(X, np.array(["a", "a", "b", "b"]))
    >>> h.counts[0].tolist(), h.is_exact.tolist()
    ([[1, 0], [1, 1], [0, 1]], [False])
    """

    kind = "target-histogram"
    record_type = HistogramRecord
    accepts_sparse = True
    # Of any density, as every entry costs the same in both kernels.
    sparse_limit = 1.0

    def __init__(
        self, edges: ArrayLike, classes: Sequence[Any] | Array | None = None, target_edges: ArrayLike | None = None
    ) -> None:
        self.edges = _checked_edges("edges", edges, (1, 2))
        if (classes is None) == (target_edges is None):
            raise BadParameter("TargetHistogram needs classes, or target_edges for a numeric target, and not both")
        self.classes = as_classes(classes)
        self.target_edges = None if target_edges is None else _checked_edges("target_edges", target_edges, (1,))
        if self.target_edges is not None and self.target_edges.size < 2:
            raise BadParameter("target_edges must have at least two edges")

    @classmethod
    def of_sample(
        cls,
        rows: Any,
        n_bins: int = 64,
        *,
        classes: Sequence[Any] | Array | None = None,
        target_edges: ArrayLike | None = None,
    ) -> Self:
        """Return the description whose bins hold about the same number of the rows of a sample.

        Frequent values have a bin of their own. Columns of at most `n_bins` distinct values in the sample have a bin
        for each; those of whole numbers within such a range one for each whole number.

        Parameters
        ----------
        rows : array or sparse matrix of shape (n_rows, n_features)
            Such as ``RowSample(2048).rows``; of a numeric target, as a column, they give `target_edges`.
        n_bins : int
            Largest number of bins of a column.
        classes, target_edges
            As of the constructor.

        Raises
        ------
        EmptyInput
            For a sample without rows.

        Examples
        --------
        >>> import numpy as np
        >>> TargetHistogram.of_sample(np.arange(100.0)[:, None] / 3, 4, classes=[0, 1]).edges.round(2).tolist()
        [[0.0, 8.33, 16.67, 25.0]]
        """
        n_bins = require_positive("n_bins", n_bins, 2)
        sample = as_csr(rows) if issparse(rows) else as_block(rows)
        if not sample.shape[0]:
            raise EmptyInput("a sample without rows gives no bins: all weights are zero, or the input is empty")
        edges = np.full((sample.shape[1], n_bins), np.inf)
        for first in range(0, sample.shape[1], _DENSE_COLUMNS):
            columns = np.arange(first, min(first + _DENSE_COLUMNS, sample.shape[1]))
            values = densify(take_columns(sample, columns)) if is_csr(sample) else sample[:, columns]
            for j, ascending in zip(columns, np.sort(values.astype(np.float64), axis=0).T, strict=True):
                _fill_edges(np.ascontiguousarray(ascending), edges[j])
        return cls(edges, classes, target_edges)

    @property
    def n_bins(self) -> int:
        """Largest number of bins of a column."""
        return int(self.edges.shape[-1])

    @property
    def n_classes(self) -> int:
        """Number of classes, or of bins of the target."""
        return len(self.classes or ()) if self.target_edges is None else int(self.target_edges.size)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state and its edges."""
        return 8 * n_features * self.n_bins * (self.n_classes + 1) + n_features + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` (besides 24 a row) or `merge`."""
        return self.projected_nbytes(n_features) + 8 * n_features * self.n_classes + (1 << 16)

    def _targets(self, y: Any, n_rows: int, start: int | Array = 0) -> NDArray[np.intp]:
        """Return the number of the class of each row, or of the bin of its target."""
        if self.target_edges is None:
            assert self.classes is not None  # by the constructor
            return label_numbers(y, self.classes, n_rows, "classes", start)
        values = as_targets(y, n_rows, start)
        if values.shape[1] != 1:
            raise BadBlock(f"a histogram needs one target of every row as y, got {values.shape[1]}")
        return np.maximum(np.searchsorted(self.target_edges, values[:, 0], side="right") - 1, 0)

    def _empty(self, n_features: int, n_targets: int) -> HistogramRecord:
        self._require_width(n_features)
        counts = np.zeros((n_features, self.n_bins, self.n_classes), dtype=np.int64)
        return HistogramRecord(0, counts, np.ones(n_features, dtype=bool))

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> HistogramRecord:
        record = self._empty(block.shape[1], 0)
        counts, at_edges = np.zeros_like(record.counts), record.at_edges.copy()
        row_weights = _whole_weights(weights, block.shape[0], start)
        rest = (np.atleast_2d(self.edges), targets, row_weights, counts, at_edges)
        if is_csr(block):
            require_ordinary(block, start)
            _count_entries(*arrays_of(block), *map(read_only, rest[:3]), counts, at_edges)
        else:
            require_finite(block, first_row(start))
            _count_rows(read_only(block), *map(read_only, rest[:3]), counts, at_edges)
        return HistogramRecord(block.shape[0], counts, at_edges)

    def _combine(self, left: HistogramRecord, right: HistogramRecord) -> HistogramRecord:
        return HistogramRecord(left.n_rows + right.n_rows, left.counts + right.counts, left.at_edges & right.at_edges)

    def _require_width(self, n_features: int) -> None:
        if self.edges.ndim == 2 and self.edges.shape[0] != n_features:
            raise Incompatible(f"the bins are of {self.edges.shape[0]} columns, the block has {n_features}")

    def details(self) -> Iterator[str]:
        """Yield the numbers of bins and classes, and of columns whose bins hold one value each."""
        of_target = f"{self.n_classes} {'classes' if self.target_edges is None else 'bins of the target'}"
        yield f"at most {self.n_bins} bins a column, {of_target}"
        yield f"{int(self.is_exact.sum())} of {self.n_features} columns have one value in each bin"

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def counts(self) -> NDArray[np.int64]:
        """Rows in each bin and class of every column, shape (n_features, n_bins, n_classes)."""
        return self.record.counts

    @property
    def class_weights(self) -> NDArray[np.int64]:
        """Rows in each class, or bin of the target, shape (n_classes,)."""
        totals: NDArray[np.int64] = self.record.counts[:1].sum(axis=(0, 1))
        return totals

    @property
    def weight(self) -> float:
        """Total weight of the rows."""
        return float(self.class_weights.sum())

    @property
    def is_exact(self) -> NDArray[np.bool_]:
        """Whether all values of a column are lower edges of their bins, so that no bin holds different values."""
        return self.record.at_edges


def _checked_edges(name: str, edges: ArrayLike, dimensions: tuple[int, ...]) -> Floats:
    array = np.asarray(edges)
    if array.ndim not in dimensions or array.dtype.kind not in "fiub" or not array.size:
        raise BadParameter(f"{name} must be a real array of {' or '.join(map(str, dimensions))} dimensions")
    out: Floats = canonical(array, np.float64).copy()
    with np.errstate(invalid="ignore"):
        ascends = (out[..., 1:] > out[..., :-1]) | np.isposinf(out[..., 1:])
    if not (np.isfinite(out[..., 0]).all() and ascends.all()):
        raise BadParameter(f"{name} must be finite and ascend; a row with fewer bins ends with infinity")
    out.flags.writeable = False
    return out


def _whole_weights(weights: Floats | None, n_rows: int, start: int | Array) -> NDArray[np.int64]:
    if weights is None:
        return np.ones(n_rows, dtype=np.int64)
    fractions = np.flatnonzero((weights != np.floor(weights)) | (weights > _WHOLE))
    if fractions.size:
        raise BadBlock(
            f"sample_weight of row {first_row(start) + int(fractions[0])} is not a whole number, and a histogram "
            "counts rows; leave the weights out"
        )
    return weights.astype(np.int64)
