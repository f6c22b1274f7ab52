"""Highly variable genes: columns of counts that vary more than their means explain, in one pass or two."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect._memory import available_nbytes
from sketchselect.errors import BadParameter, SketchSelectError
from sketchselect.execution import Source, summarize_source
from sketchselect.execution.options import PassOptions
from sketchselect.execution.summarize import summary_projection
from sketchselect.linalg.validation import require_number
from sketchselect.readers import Vector
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.counts.clipped_variances import MoreValuesNeeded, combined_order, normalized_variances
from sketchselect.selectors.selection import Selection
from sketchselect.selectors.supervised import target as supervised_target
from sketchselect.summaries import Groups, Summary, TopValues, pick


class HighlyVariableGenes(BaseSelector):
    """Select the columns of counts that vary more than their means explain (Seurat v3), in one pass.

    The result is that of the usual two passes, to rounding: the sum over clipped values needs only the values above
    the clipping point, of which there are few, and the summary has these exactly. If a column has more than
    `top_values` of them, `fit` (and a job) reads the rows a second time for as many as needed; from a summary alone, or
    if those would not fit in memory, an error names the number. Nothing is approximated.

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
        n_features_to_select: float | None = None,
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
        """Whether the target is the batches."""
        return self.batches is True

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range."""
        if not isinstance(self.batches, bool):
            raise BadParameter("batches must be true or false; pass the batches themselves as the target y")
        TopValues(self.top_values)
        if self.trend not in ("loess", "quadratic"):
            raise BadParameter(f'trend must be "loess" or "quadratic", got {self.trend!r}')
        if self.ties not in ("numpy", "index"):
            raise BadParameter(f'ties must be "numpy" or "index", got {self.ties!r}')
        require_number("span", self.span, above=0, most=1)

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
        self.check_parameters()
        inner = TopValues(self.top_values)
        labels = getattr(self, "_seen_batches", ()) if self.batches else ()
        return Groups(inner, labels) if len(labels) > 1 else inner

    def further_description(self, summary: Summary[Any]) -> Summary[Any] | None:
        """Return the description with enough values of each column; None if the summary has them, or is refused."""
        summary = pick(summary, *self.requires)
        needed = 0
        for group in _groups(summary):
            try:
                normalized_variances(group, self.trend, float(self.span))
            except MoreValuesNeeded as short:
                # With fractional weights a second summary can have too few values as well; a third is unlikely to.
                needed = max(needed, short.needed, 2 * group.size)
            except SketchSelectError:
                return None
        if not needed:
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
            projected = summary_projection(source, further, options)[0]
            limit = options.engine.memory_limit or available_nbytes() // 2
            if projected.nbytes > limit:
                raise BadParameter(
                    f"{self.method}: columns have more values to clip than top_values = {self.top_values}; read the "
                    f"rows again with top_values = {inner.size}, which takes {format_bytes(projected.nbytes)} per "
                    f"process; the limit is {format_bytes(limit)}"
                )
            options.progress.note(
                f"{self.method}: columns have more values to clip than top_values = {self.top_values}; reading the "
                f"rows again with top_values = {inner.size}"
            )
            summary = summarize_source(source, further, options).value
        return summary

    def _select(self, summary: Any, n_select: int) -> Selection:
        self.check_parameters()
        groups = _groups(summary)
        if not all(np.array_equal(group.top, np.rint(group.top)) for group in groups):
            warnings.warn(
                "values are not whole numbers: raw counts are needed, and of normalised or logged ones other columns "
                "are selected",
                stacklevel=4,
            )
        for i, group in enumerate(groups):
            if len(groups) > 1 and float(group.weight.max(initial=0.0)) <= 1:
                raise BadParameter(
                    f"batch {i} (of {len(groups)}, counted from 0) has fewer than two rows; merge it with another one"
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


def _groups(summary: Any) -> list[Any]:
    """Return the summaries of the batches; that of all rows if there are none."""
    return list(summary) if isinstance(summary, Groups) else [summary]
