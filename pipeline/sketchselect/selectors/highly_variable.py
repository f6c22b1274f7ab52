"""Highly variable genes: columns of counts that vary more than their means explain, in one pass or two."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sketchselect._byte_sizes import format_bytes
from sketchselect._memory import available_nbytes
from sketchselect.errors import BadBlock, BadParameter, SketchSelectError, warn
from sketchselect.execution import Source, summarize_source
from sketchselect.execution.engine import PassOptions
from sketchselect.execution.summarize import summary_projection
from sketchselect.linalg.loess import mean_variance_trend
from sketchselect.linalg.parameters import Count, Limits, Size, allows, number
from sketchselect.linalg.validation import Floats
from sketchselect.readers import Vector
from sketchselect.selectors.base import BaseSelector, Selection
from sketchselect.selectors.supervised import target as supervised_target
from sketchselect.summaries import Groups, Summary, TopValues, pick


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
        j = int(negative[0])
        name = "" if summary.feature_names is None else f" ({summary.feature_names[j]})"
        raise BadBlock(
            f"Negative values in data passed to HighlyVariableGenes: column {j}{name} has some; counts are needed"
        )
    scatter = summary.centered_column_squared_norms
    out = np.zeros(scatter.size)
    varying = np.flatnonzero(scatter > 0)
    if varying.size == 0 or n_rows <= 1:
        return NormalizedVariances(out, 0.0)
    mean, column_scatter = summary.mean[varying], scatter[varying]
    expected = mean_variance_trend(mean, column_scatter / (n_rows - 1.0), trend, span)
    reach = np.sqrt(expected * n_rows)
    # Clipping takes (x - mean)^2 - reach^2 from the sum of squares, for each clipped value. Values descend, so that a
    # column has none below its first one that is not clipped.
    excess, clipped_weight = np.zeros(varying.size), np.zeros(varying.size)
    clipped = np.arange(varying.size)
    for values, weights in zip(summary.top, summary.top_weights, strict=True):
        beyond = values[varying[clipped]] - mean[clipped]
        is_clipped = beyond > reach[clipped]
        clipped, beyond = clipped[is_clipped], beyond[is_clipped]
        if clipped.size == 0:
            break
        weight = weights[varying[clipped]]
        excess[clipped] += weight * (beyond - reach[clipped]) * (beyond + reach[clipped])
        clipped_weight[clipped] += weight
    _require_enough(summary, clipped, column_scatter / expected, n_rows)
    out[varying] = (column_scatter - excess) / ((n_rows - 1.0) * expected)
    return NormalizedVariances(out, float(clipped_weight.max(initial=0.0)))


def _require_enough(summary: TopValues, short: NDArray[np.intp], ratios: Floats, n_rows: float) -> None:
    """Raise `MoreValuesNeeded` if columns, `short`, may have more clipped values than the summary has of each."""
    n_top = summary.top.shape[0]
    if n_top < summary.size or summary.n_rows == n_top:
        return
    if short.size:
        # At most this share of the rows can lie so far above the mean (Cantelli).
        share = ratios[short] / (ratios[short] + n_rows * n_rows)
        needed = max(int(min(np.ceil(n_rows * share.max()), summary.n_rows)) + 1, n_top + 1)
        raise MoreValuesNeeded(
            f"{short.size} columns have {n_top} or more values to clip, but the summary has only the top_values "
            f"= {summary.size} of each; read the rows again with top_values = {needed}",
            needed,
        )


def combined_order(
    values: Floats, n_select: int, ties: str, *, by_batches: bool = False
) -> tuple[NDArray[np.intp], Floats, NDArray[np.int64]]:
    """Return the columns in order of selection, their median ranks and the numbers of batches that select them.

    `values` of shape (n_batches, n_features): Normalised variances.
    `n_select`: A column has a rank in the batches where it is among this many first ones; one without ranks comes last,
        with the median rank NaN.
    `ties`, "index" or "numpy": The order of equal values.
    `by_batches`: Whether the columns in more batches come first, and then the lowest median rank, as in the paper.

    Else the lowest median rank comes first, then the one in more batches; at last the lowest index.
    Source: Stuart et al. 2019, "Feature selection for integrated analysis of multiple datasets".
    """
    kind: Literal["stable"] | None = "stable" if ties == "index" else None
    ranks = np.argsort(np.argsort(-values, axis=1, kind=kind), axis=1, kind="stable").astype(np.float64)
    ranks[ranks >= n_select] = np.nan
    n_batches = np.asarray((~np.isnan(ranks)).sum(axis=0), dtype=np.int64)
    is_ranked = np.flatnonzero(n_batches)
    median = np.full(values.shape[1], np.nan)
    median[is_ranked] = np.nanmedian(ranks[:, is_ranked], axis=0)
    keys = (-n_batches, np.where(n_batches > 0, median, np.inf))
    order = np.lexsort(keys[::-1] if by_batches else keys)
    return order, median, n_batches


_BATCHES = Limits("true or false", partial(allows, bool), "pass the batches themselves as the target y")
Batches = Annotated[bool, _BATCHES]


class HighlyVariableGenes(BaseSelector):
    """Select the columns of counts that vary more than their means explain (Seurat v3), in one pass.

    The result is that of the usual two passes, to rounding: the sum over clipped values needs only the values above
    the clipping point, of which there are few, and the summary has these exactly. If a column has more
    clipped values than `top_values`, `fit` (and a job) reads the rows a second time for as many as needed; from a
    summary alone, or if those would not fit in memory, an error names the number. Nothing is approximated.

    Parameters
    ----------
    batches : bool, default False
        The target is the batch of every row: variances are normalised in each batch, and columns chosen by the
        median of their ranks. All batches are summarised in the same pass.
    top_values : int, default 64
        Number of largest values of each column (and batch) in the summary of the first pass.
    trend : "loess" or "quadratic", default "loess"
        Fit of log10(variance) to log10(mean): local quadratic regression, or a parabola.
    span : float, default 0.3
        Share of the columns in each local regression.
    ties : "numpy" or "index", default "numpy"
        Order of columns with equal values (rare genes with the same counts in other cells are equal): that of NumPy's
        sort, which is that of scanpy on the same machine, or the lowest index first.

    Attributes
    ----------
    variances_norm_ : array of shape (n_features,)
        Normalised variances, averaged over the batches.
    ranks_ : array of shape (n_features,)
        Rank from 0 on (with batches: the median of the ranks); NaN for columns that no batch selects.
    n_batches_ : array of int, shape (n_features,)
        Number of batches that select a column.
    means_, variances_ : array of shape (n_features,)
        Of all rows; the variance with divisor N - 1.

    Notes
    -----
    Guarantee: the genes, ranks and normalised variances (within 1e-9) of scanpy's ``seurat_v3``, batches included,
    unless means are equal but for rounding.
    Cost after the pass: a local regression of p variances on p means.

    Rows are raw counts: not normalised, no logarithm; a warning says where they are not. A job selects on the source's
    rows, before its prepare steps, and clusters on the prepared ones. `scores_` are the normalised variances; with
    batches the place in the order of selection, counted from the end.

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
    needs_counts: ClassVar[bool] = True

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        batches: Batches = False,
        top_values: Count = 64,
        trend: Literal["loess", "quadratic"] = "loess",
        span: Annotated[float, number(above=0, most=1)] = 0.3,
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
        """Whether the target is the batches."""
        return self.batches is True

    def inspect_target(self, y: Vector) -> None:
        """Learn the names of the batches."""
        self._seen_batches = supervised_target.classes_of(y)

    def _start_stream(self, target: Vector | None, classes: Any) -> None:
        if classes is not None and self.batches:
            self._seen_batches = supervised_target.checked_classes(classes)
        else:
            super()._start_stream(target, classes)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the largest values of each column; of each batch if there are several."""
        inner = TopValues(self.top_values)
        labels = getattr(self, "_seen_batches", ()) if self.batches else ()
        return Groups(inner, labels) if len(labels) > 1 else inner

    def further_description(self, summary: Summary[Any]) -> Summary[Any] | None:
        """Return the description with enough values of each column; None if the summary has them, or is refused."""
        summary = pick(summary, *self.requires)
        needed = 0
        parts = []
        for group in _groups(summary):
            try:
                parts.append(normalized_variances(group, self.trend, float(self.span)))
            except MoreValuesNeeded as short:
                # With fractional weights a second summary can have too few values as well; a third is unlikely to.
                needed = max(needed, short.needed, 2 * group.size)
            except SketchSelectError:
                return None
        if not needed:
            self._checked = (summary.record, self.trend, float(self.span), parts)
            return None
        inner = TopValues(needed)
        return Groups(inner, summary.labels) if isinstance(summary, Groups) else inner

    def complete(self, summary: Summary[Any], source: Source, options: PassOptions) -> Summary[Any]:
        """Return a summary with enough values of each column: this one, or that of another pass.

        Raises
        ------
        BadParameter
            If the values would not fit in memory: the limit of a process, or half of this machine's without a limit.
        """
        while (further := self.further_description(summary)) is not None:
            inner: Any = further.summary if isinstance(further, Groups) else further
            memory = summary_projection(source, further, options)[0]
            limit = options.engine.memory_limit or available_nbytes() // 2
            if memory.nbytes > limit:
                raise BadParameter(
                    f"{self.method}: columns have more values to clip than top_values = {self.top_values}; read the "
                    f"rows again with top_values = {inner.size}, which takes {format_bytes(memory.nbytes)} per "
                    f"process; the limit is {format_bytes(limit)}"
                )
            options.progress.note(
                f"{self.method}: columns have more values to clip than top_values = {self.top_values}; reading the "
                f"rows again with top_values = {inner.size}"
            )
            summary = summarize_source(source, further, options).value
        return summary

    def _variances_of_batches(self, summary: Any) -> list[NormalizedVariances]:
        """Return the normalised variances of the batches; those of `further_description` if it was of this summary."""
        trend, span = self.trend, float(self.span)
        parts: list[NormalizedVariances]
        of, *settings, parts = self.__dict__.pop("_checked", (None, []))
        if of is summary.record and settings == [trend, span]:
            return parts
        return [normalized_variances(group, trend, span) for group in _groups(summary)]

    def _select(self, summary: Any, n_select: int) -> Selection:
        groups = _groups(summary)
        if not all(np.array_equal(group.top, np.rint(group.top)) for group in groups):
            warn(
                "values are not whole numbers: raw counts are needed, and of normalised or logged ones other columns "
                "are selected"
            )
        for i, group in enumerate(groups):
            if len(groups) > 1 and float(group.weight.max(initial=0.0)) <= 1:
                raise BadParameter(
                    f"batch {i} (of {len(groups)}, counted from 0) has fewer than two rows; merge it with another one"
                )
        parts = self._variances_of_batches(summary)
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
            ranked_columns = order[self.n_batches_[order] > 0]
            scores[ranked_columns] = np.arange(ranked_columns.size, 0, -1)
        return self._selection(
            summary,
            np.sort(order[:n_select]).astype(np.int64),
            scores,
            diagnostics={
                "n_batches": len(groups),
                "n_constant": int(np.count_nonzero(values.max(axis=0) == 0)),
                "most_clipped_values": max(part.n_clipped for part in parts),
                "whole_numbers": all(group.is_whole for group in groups),
            },
            n_features_to_select=n_select,
            batches=len(groups) > 1,
            top_values=groups[0].size,
            span=float(self.span),
        )


def _groups(summary: Any) -> list[Any]:
    """Return the summaries of the batches; that of all rows if there are none."""
    return list(summary) if isinstance(summary, Groups) else [summary]
