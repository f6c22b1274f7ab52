"""Highly variable genes: the columns of counts that vary more than their mean explains, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadBlock, BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.trend import mean_variance_trend
from sketchselect.readers import Vector
from sketchselect.selectors import supervised_target
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.selection import Selection
from sketchselect.summaries import Groups, Summary, TopValues


@dataclass(frozen=True)
class NormalizedVariances:
    """The variances of one batch after standardising by the trend and clipping; arrays of shape (n_features,).

    `n_clipped` is the weight of the values that were clipped, at most, in any column.
    """

    values: Floats
    n_clipped: float


def normalized_variances(summary: TopValues, trend: str = "loess", span: float = 0.3) -> NormalizedVariances:
    """Return the variance of ``min((x - mean) / sigma, sqrt(N))`` of each column, about zero, with divisor N - 1.

    sigma^2 is the variance that the trend expects at the column's mean, N the number of rows. The few clipped values
    are among the largest ones that the summary holds, so that no second pass is needed.

    Parameters
    ----------
    summary : TopValues
        Of one batch.
    trend, span
        As in `HighlyVariableGenes`.

    Raises
    ------
    BadBlock
        For negative values.
    BadParameter
        If more values of a column are clipped than the summary holds; says how many it has to hold.

    Notes
    -----
    Source: Stuart et al. 2019 (Seurat v3), STAR Methods, "Feature selection for individual datasets".
    """
    n_rows = float(summary.weight.max(initial=0.0))
    negative = np.flatnonzero(summary.minimum < 0)
    if negative.size:
        raise BadBlock(
            f"Negative values in data passed to HighlyVariableGenes: column {int(negative[0])} has some; it takes "
            "counts"
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
    # What clipping takes away from the sum of squares: (x - mean)^2 - reach^2 for each clipped value.
    excess = (clipped * (beyond - reach) * (beyond + reach)).sum(axis=0)
    out[varying] = (spread - excess) / ((n_rows - 1.0) * expected)
    return NormalizedVariances(out, float(clipped.sum(axis=0).max(initial=0.0)))


def _require_enough(summary: TopValues, is_clipped: NDArray[np.bool_], ratios: Floats, n_rows: float) -> None:
    held = summary.top.shape[0]
    if held < summary.size or summary.n_rows == held:
        return
    short = is_clipped[-1]
    if short.any():
        # At most this share of the rows can lie so far above the mean (Cantelli).
        share = ratios[short] / (ratios[short] + n_rows * n_rows)
        needed = int(min(np.ceil(n_rows * share.max()), summary.n_rows))
        raise BadParameter(
            f"{int(short.sum())} columns have {held} or more values that must be clipped, and top_values = "
            f"{summary.size} are kept of each; read the rows again with top_values = {max(needed + 1, held + 1)}"
        )


def combined_order(values: Floats, n_select: int, ties: str) -> tuple[NDArray[np.intp], Floats, NDArray[np.int64]]:
    """Return the columns in order of selection, their median rank and the number of batches that would select them.

    Parameters
    ----------
    values : array of shape (n_batches, n_features)
        Normalised variances.
    n_select : int
        A column that is not among so many first ones of a batch has no rank there; one that has a rank nowhere comes
        last, with the median rank NaN.
    ties : "index" or "numpy"
        Which of equal values comes first.

    Notes
    -----
    The lowest median rank comes first, then the one in more batches, then the lowest index.
    Source: Stuart et al. 2019, "Feature selection for integrated analysis of multiple datasets".
    """
    kind: Literal["stable"] | None = "stable" if ties == "index" else None
    ranks = np.argsort(np.argsort(-values, axis=1, kind=kind), axis=1, kind="stable").astype(np.float64)
    ranks[ranks >= n_select] = np.nan
    n_batches = np.asarray((~np.isnan(ranks)).sum(axis=0), dtype=np.int64)
    found = np.flatnonzero(n_batches)
    median = np.full(values.shape[1], np.nan)
    median[found] = np.nanmedian(ranks[:, found], axis=0)
    order = np.lexsort((-n_batches, np.where(n_batches > 0, median, np.inf)))
    return order, median, n_batches


class HighlyVariableGenes(BaseSelector):
    """Select the columns of counts whose variance exceeds what their mean explains (Seurat v3), in one pass.

    The result is that of the usual two passes, to rounding: the sum over clipped values needs only the values above
    the clipping point, of which there are few, and these are kept exactly. Where a column has more than `top_values` of
    them an error says how many are needed; nothing is approximated.

    Parameters
    ----------
    n_features_to_select : int, optional
        Half of the columns by default.
    batches : bool, default False
        The target names the batch of every row: variances are normalised in each batch, and columns chosen by the
        median of their ranks. All batches are summarised in the same pass.
    top_values : int, default 64
        Largest values kept of each column (and batch).
    trend : "loess" or "quadratic", default "loess"
        What log10(variance) is expected at a log10(mean): local regression, which needs scikit-misc (the extra
        ``anndata``), or one parabola.
    span : float, default 0.3
        Share of the columns in each local regression.
    ties : "numpy" or "index", default "numpy"
        Which of columns with equal values comes first (rare genes with the same counts in other cells are equal):
        the order that NumPy's sort leaves them in, which is that of scanpy on the same machine, or the lowest index.

    Attributes
    ----------
    variances_norm_ : array of shape (n_features,)
        Normalised variances, averaged over the batches.
    ranks_ : array of shape (n_features,)
        Rank from 0 on (with batches: the median of the ranks); NaN for columns not among the first in any batch.
    n_batches_ : array of int, shape (n_features,)
        Number of batches in which a column is among the first.
    means_, variances_ : array of shape (n_features,)
        Of all rows; the variance with divisor N - 1.

    Notes
    -----
    Rows are raw counts: not normalised, no logarithm. `scores_` are the normalised variances; with batches the place in
    the order of selection, counted from the end.

    Source: Stuart, Butler, Hoffman et al., Cell 177, 2019. One pass: a column has at most var / sigma^2 clipped values.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(np.linspace(0.5, 5.0, 40), (500, 40))
    >>> X[:100, [7, 21]] *= 4
    >>> HighlyVariableGenes(n_features_to_select=2, trend="quadratic").fit(X).support_.tolist()
    [7, 21]
    """

    method: ClassVar[str] = "hvg"
    requires: ClassVar[tuple[str, ...]] = ("groups", "top-values")

    def __init__(
        self,
        n_features_to_select: int | None = None,
        batches: bool = False,
        top_values: int = 64,
        trend: Literal["loess", "quadratic"] = "loess",
        span: float = 0.3,
        ties: Literal["numpy", "index"] = "numpy",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.batches = batches
        self.top_values = top_values
        self.trend = trend
        self.span = span
        self.ties = ties

    @property
    def uses_target(self) -> bool:
        """Whether the target names batches."""
        return self.batches is True

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range."""
        if not isinstance(self.batches, bool):
            raise BadParameter("batches must be true or false; the batches themselves are given as the target y")
        TopValues(self.top_values)
        if self.trend not in ("loess", "quadratic"):
            raise BadParameter(f'trend must be "loess" or "quadratic", got {self.trend!r}')
        if self.ties not in ("numpy", "index"):
            raise BadParameter(f'ties must be "numpy" or "index", got {self.ties!r}')
        span = self.span
        if isinstance(span, bool) or not isinstance(span, (int, float, np.number)) or not 0 < span <= 1:
            raise BadParameter(f"span must be a number above 0, at most 1, got {span!r:.40}")

    def look_at_target(self, y: Vector) -> None:
        """Learn the batches."""
        self._seen_batches = supervised_target.classes_of(y)

    def _start_stream(self, target: Vector | None, classes: Any) -> None:
        if classes is not None and self.batches:
            self._seen_batches = supervised_target.given_classes(classes)
        else:
            super()._start_stream(target, classes)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the largest values of each column; those of each batch where there are several."""
        self.check_parameters()
        inner = TopValues(self.top_values)
        labels = getattr(self, "_seen_batches", ()) if self.batches else ()
        return Groups(inner, labels) if len(labels) > 1 else inner

    def _select(self, summary: Any, n_select: int) -> Selection:
        self.check_parameters()
        groups: list[Any] = list(summary) if isinstance(summary, Groups) else [summary]
        for i, group in enumerate(groups):
            if len(groups) > 1 and float(group.weight.max(initial=0.0)) <= 1:
                raise BadParameter(
                    f"batch {i} (of {len(groups)}, counted from 0) has fewer than two rows; merge it with another"
                )
        parts = [normalized_variances(group, self.trend, float(self.span)) for group in groups]
        values = np.array([part.values for part in parts])
        order, self.ranks_, self.n_batches_ = combined_order(values, n_select, self.ties)
        self.variances_norm_ = values.mean(axis=0)
        total: Any = summary.total if isinstance(summary, Groups) else summary
        self.means_ = total.mean
        n_rows = float(total.weight.max(initial=0.0))
        self.variances_ = total.centered_column_squared_norms / max(n_rows - 1.0, 1.0)
        scores = self.variances_norm_
        if len(groups) > 1:
            scores = np.zeros(order.size)
            ranked = order[self.n_batches_[order] > 0]
            scores[ranked] = np.arange(ranked.size, 0, -1)
        return Selection(
            method=self.method,
            support=np.sort(order[:n_select]).astype(np.int64),
            scores=scores,
            feature_names=summary.feature_names,
            parameters={
                "n_features_to_select": n_select,
                "batches": len(groups) > 1,
                "top_values": groups[0].size,
                "trend": self.trend,
                "span": float(self.span),
                "ties": self.ties,
            },
            diagnostics={
                "n_batches": len(groups),
                "n_constant": int(np.count_nonzero(values.max(axis=0) == 0)),
                "most_clipped_values": max(part.n_clipped for part in parts),
                "whole_numbers": all(group.is_whole for group in groups),
            },
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags
