"""Bins of a `TargetHistogram`, and mutual information and rank sums from its counts."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from sketchselect.linalg.independence import Cumulants, fourfold_log_tail, independence_cumulants
from sketchselect.linalg.validation import Floats
from sketchselect.readers import Vector
from sketchselect.summaries import RowSample, TargetHistogram

_CELL_ROWS = 5
"""Average rows of a cell from which on the chi-squared distribution is good for a table of counts (Cochran 1954)."""
_SAMPLED_ROWS = 32
"""Sampled rows for each bin, so that the share of all rows in a bin is known within about a fifth."""
_RUN = 1 << 20

_PIECE_VALUES = 1 << 21
"""Counts that are made numbers of float64 at a time."""


def n_bins_for(n_rows: int, n_classes: int | None = None) -> int:
    """Return the number of bins of a column, or (without classes) of a numeric target: 4 to 32, five rows a cell."""
    n_bins = isqrt(n_rows // _CELL_ROWS) if n_classes is None else n_rows // (_CELL_ROWS * n_classes)
    return min(max(n_bins, 4), 32)


def sample_for(n_bins: int) -> RowSample:
    """Return the description of the sample of rows that gives the edges of so many bins."""
    return RowSample(_SAMPLED_ROWS * n_bins)


def target_edges(y: Vector, n_bins: int, n_rows: int) -> Floats:
    """Return the lower edges of the bins of a numeric target, by a sample of its first `n_rows`."""
    sample = sample_for(n_bins).empty(1)
    for start in range(0, n_rows, _RUN):
        values = y.read(start, min(start + _RUN, n_rows)).reshape(-1, 1).astype(np.float64)
        # The pass refuses others, and names their rows.
        sample = sample.update(np.where(np.isfinite(values), values, 0.0), start=start)
    edges: Floats = TargetHistogram.of_sample(sample.rows, n_bins, classes=(0, 1)).edges[0]
    return edges


class Information(NamedTuple):
    """Mutual information of every column with the target in nats, and what its test needs.

    `plug_in`: That of the shares of rows. `corrected`: Without the bias of Miller and Madow, at least 0.
    `variance`: Of the logarithm of a cell's share over that expected, the mean of which is `plug_in`, over the rows.
    `of_chance`: Cumulants of the G statistic, twice the rows times `plug_in`, of columns without a relation to the
    target; NaN where all rows are in one bin, or of one class.
    `freedom`: Degrees of freedom of the G statistic if every cell has many rows.
    `entropy`: That of the target, a number.
    """

    plug_in: Floats
    corrected: Floats
    variance: Floats
    of_chance: Cumulants
    freedom: Floats
    entropy: float


def mutual_information(counts: NDArray[np.int64]) -> Information:
    """Return the mutual information of bins and classes of every column; `counts` as of `TargetHistogram`.

    Bins and classes without rows do not count. Source: Miller 1955 (the bias: the number of filled cells, less those of
    the margins, over twice the rows); Woolf 1957 (the G statistic).
    """
    n_features = counts.shape[0]
    plug_in, bias, variance, freedom = (np.zeros(n_features) for _ in range(4))
    of_chance = Cumulants(*np.full((3, n_features), np.nan))
    of_classes = counts[:1].sum(axis=(0, 1)).astype(np.float64)
    n = max(float(of_classes.sum()), 1.0)
    n_classes = np.count_nonzero(of_classes)
    for piece, cells in _pieces(counts):
        of_bins = cells.sum(axis=2)
        expected = of_bins[:, :, None] * of_classes / n
        ratio = np.divide(cells, expected, out=np.ones_like(cells), where=cells > 0)
        terms = scipy.special.xlogy(cells, ratio)
        plug_in[piece] = np.maximum(terms.sum(axis=(1, 2)) / n, 0.0)
        variance[piece] = scipy.special.xlogy(terms, ratio).sum(axis=(1, 2)) / n - plug_in[piece] ** 2
        n_bins, n_cells = np.count_nonzero(of_bins, axis=1), np.count_nonzero(cells, axis=(1, 2))
        bias[piece] = (n_cells - n_bins - n_classes + 1) / (2 * n)
        freedom[piece] = (n_bins - 1) * (n_classes - 1)
    # Many columns at a time: each time costs a table for every class.
    width = max(1, _PIECE_VALUES // (4 * max(counts.shape[1], 1)))
    for start in range(0, n_features if n_classes > 1 else 0, width):
        columns = slice(start, start + width)
        varies = freedom[columns] > 0
        if varies.any():
            of_bins = counts[columns].sum(axis=2)[varies].astype(np.float64)
            cumulants = independence_cumulants(of_bins, of_classes[of_classes > 0])
            for all_columns, values in zip(of_chance, cumulants, strict=True):
                all_columns[columns][varies] = values
    entropy = float(-scipy.special.xlogy(of_classes / n, of_classes / n).sum())
    return Information(plug_in, np.maximum(plug_in - bias, 0.0), np.maximum(variance, 0.0), of_chance, freedom, entropy)


def fourfold_log_pvalues(counts: NDArray[np.int64]) -> Floats:
    """Return the logarithm of the exact p-value of the information of every column that fills two bins.

    `counts` as of `TargetHistogram`. NaN for other columns, where other than two classes have rows, and as of
    `fourfold_log_tail`.
    """
    log = np.full(counts.shape[0], np.nan)
    of_classes = counts[:1].sum(axis=(0, 1))
    filled = np.flatnonzero(of_classes)
    if filled.size != 2:
        return log
    of_bins = counts.sum(axis=2)
    tables = np.flatnonzero(np.count_nonzero(of_bins, axis=1) == 2)
    bins = np.argmax(of_bins[tables] > 0, axis=1)
    margins = of_bins[tables, bins].astype(np.float64), np.full(tables.size, float(of_classes[filled[0]]))
    log[tables] = fourfold_log_tail(counts[tables, bins, filled[0]], *margins, float(of_classes.sum()))
    return log


class RankSums(NamedTuple):
    """Wilcoxon's test of every column: normal statistics, p-values and their logarithms, and rank-biserial effects.

    The effect is 2 AUC - 1, the probability that a row of the first group has the larger value less that of the second.
    `variances`: Of the AUC (DeLong, DeLong and Clarke-Pearson 1988).
    `untied`: Factor by which ties lower the variance of ranks.
    `sizes`: Rows of the two groups, each an array.
    """

    statistics: Floats
    pvalues: Floats
    log_pvalues: Floats
    effects: Floats
    variances: Floats
    untied: Floats
    sizes: tuple[Floats, Floats]


def rank_sums(first: NDArray[np.int64], second: NDArray[np.int64], *, tie_correct: bool = True) -> RankSums:
    """Return the two-sided rank sum test of every column, by the normal approximation without continuity correction.

    `first`, `second`, shape (n_features, n_bins): Rows of each group by bin; rows in the same bin are ties.
    `tie_correct`: Whether the variance is that of ranks with ties, or that without.
    NaN where a group has no rows or all rows are in one bin.
    Source: Wilcoxon 1945; Mann and Whitney 1947; Lehmann 1975 (ties).
    """
    statistics, effects, variances, untied, n_first, n_second = (np.empty(first.shape[0]) for _ in range(6))
    for piece, a in _pieces(first):
        b = second[piece].astype(np.float64)
        of_bins = a + b
        n_first[piece], n_second[piece] = a.sum(axis=1), b.sum(axis=1)
        sizes = n_first[piece] * n_second[piece]
        n = of_bins.sum(axis=1)
        # Twice the mean rank of a bin, less that of all rows.
        centred = 2 * np.cumsum(of_bins, axis=1) - of_bins - n[:, None]
        twice = (a * centred).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            of_ties = (n**3 - (of_bins**3).sum(axis=1)) / (n * (n - 1))
            untied[piece] = of_ties / (n + 1)
            spread = of_ties if tie_correct else n + 1
            has_test = (np.count_nonzero(of_bins, axis=1) > 1) & (sizes > 0)
            statistics[piece] = np.where(has_test, twice / np.sqrt(sizes * spread / 3), np.nan)
            effects[piece] = np.where(has_test, twice / sizes, np.nan)
            variances[piece] = _placements(a, b) + _placements(b, a)
    below = -np.abs(statistics)
    p, log = 2 * scipy.special.ndtr(below), np.log(2) + scipy.special.log_ndtr(below)
    return RankSums(statistics, p, log, effects, variances, untied, (n_first, n_second))


def _placements(of: Floats, among: Floats) -> Floats:
    """Return the variance of the mean of the shares of `among` below the rows `of`, over those rows."""
    n, n_among = of.sum(axis=1, keepdims=True), among.sum(axis=1, keepdims=True)
    shares = (np.cumsum(among, axis=1) - among / 2) / n_among
    centred = shares - (of * shares).sum(axis=1, keepdims=True) / n
    variance: Floats = (of * centred**2).sum(axis=1) / (n * (n - 1))[:, 0]
    return variance


def _pieces(counts: NDArray[np.int64]) -> Iterator[tuple[slice, Any]]:
    """Yield runs of columns and their counts as float64."""
    width = max(1, _PIECE_VALUES // max(int(np.prod(counts.shape[1:])), 1))
    for start in range(0, counts.shape[0], width):
        piece = slice(start, start + width)
        yield piece, counts[piece].astype(np.float64)
