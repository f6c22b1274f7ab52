"""Variances of counts about a trend, the largest values clipped, from summaries, and their order over batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadBlock, BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.columns.trend import mean_variance_trend
from sketchselect.summaries import TopValues


class MoreValuesNeeded(BadParameter):
    """A column has more clipped values than the summary's largest values; `needed` of them are enough.

    `message`: For the user.
    `needed`: Number of largest values of a column that are enough.
    """

    def __init__(self, message: str, needed: int = 0) -> None:
        super().__init__(message)
        self.needed = needed


@dataclass(frozen=True)
class NormalizedVariances:
    """Variances of one batch after standardising by the trend and clipping; array of shape (n_features,).

    `n_clipped` is the largest weight of clipped values in a column.
    """

    values: Floats
    n_clipped: float


def normalized_variances(summary: TopValues, trend: str = "loess", span: float = 0.3) -> NormalizedVariances:
    """Return the variance of ``min((x - mean) / sigma, sqrt(N))`` of each column, about zero, with divisor N - 1.

    sigma^2 is the variance that the trend expects at the column's mean, N the number of rows. The few clipped values
    are among the largest ones in the summary, so that no second pass is needed.

    `summary`: Of one batch.
    `trend`, `span`: As in `HighlyVariableGenes`.
    Raises `BadBlock` for negative values; `MoreValuesNeeded` if more values of a column are clipped than the summary
    has; names the number that it needs.
    Source: Stuart et al. 2019 (Seurat v3), STAR Methods, "Feature selection for individual datasets".
    """
    n_rows = float(summary.weight.max(initial=0.0))
    negative = np.flatnonzero(summary.minimum < 0)
    if negative.size:
        raise BadBlock(
            f"Negative values in data passed to HighlyVariableGenes: column {int(negative[0])} has some; counts are "
            "needed"
        )
    scatter = summary.centered_column_squared_norms
    out = np.zeros(scatter.size)
    varying = np.flatnonzero(scatter > 0)
    if varying.size == 0 or n_rows <= 1:
        return NormalizedVariances(out, 0.0)
    mean, spread = summary.mean[varying], scatter[varying]
    expected = mean_variance_trend(mean, spread / (n_rows - 1.0), trend, span)
    reach = np.sqrt(expected * n_rows)
    beyond = summary.top[:, varying] - mean
    is_clipped = beyond > reach
    _require_enough(summary, is_clipped, spread / expected, n_rows)
    clipped = np.where(is_clipped, summary.top_weights[:, varying], 0.0)
    # Clipping takes (x - mean)^2 - reach^2 from the sum of squares, for each clipped value.
    excess = (clipped * (beyond - reach) * (beyond + reach)).sum(axis=0)
    out[varying] = (spread - excess) / ((n_rows - 1.0) * expected)
    return NormalizedVariances(out, float(clipped.sum(axis=0).max(initial=0.0)))


def _require_enough(summary: TopValues, is_clipped: NDArray[np.bool_], ratios: Floats, n_rows: float) -> None:
    n_top = summary.top.shape[0]
    if n_top < summary.size or summary.n_rows == n_top:
        return
    short = is_clipped[-1]
    if short.any():
        # At most this share of the rows can lie so far above the mean (Cantelli).
        share = ratios[short] / (ratios[short] + n_rows * n_rows)
        needed = max(int(min(np.ceil(n_rows * share.max()), summary.n_rows)) + 1, n_top + 1)
        raise MoreValuesNeeded(
            f"{int(short.sum())} columns have {n_top} or more values to clip, but the summary has only the top_values "
            f"= {summary.size} of each; read the rows again with top_values = {needed}",
            needed,
        )


def combined_order(values: Floats, n_select: int, ties: str) -> tuple[NDArray[np.intp], Floats, NDArray[np.int64]]:
    """Return the columns in order of selection, their median ranks and the numbers of batches that select them.

    `values` of shape (n_batches, n_features): Normalised variances.
    `n_select`: A column has a rank in the batches where it is among this many first ones; one without ranks comes last,
        with the median rank NaN.
    `ties`, "index" or "numpy": The order of equal values.
    The lowest median rank comes first, then the one in more batches, then the lowest index.
    Source: Stuart et al. 2019, "Feature selection for integrated analysis of multiple datasets".
    """
    kind: Literal["stable"] | None = "stable" if ties == "index" else None
    ranks = np.argsort(np.argsort(-values, axis=1, kind=kind), axis=1, kind="stable").astype(np.float64)
    ranks[ranks >= n_select] = np.nan
    n_batches = np.asarray((~np.isnan(ranks)).sum(axis=0), dtype=np.int64)
    ranked = np.flatnonzero(n_batches)
    median = np.full(values.shape[1], np.nan)
    median[ranked] = np.nanmedian(ranks[:, ranked], axis=0)
    order = np.lexsort((-n_batches, np.where(n_batches > 0, median, np.inf)))
    return order, median, n_batches
