"""Minimum redundancy and maximum relevance: columns that say much of a target and little of one another."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.parameters import Size
from sketchselect.linalg.validation import Floats
from sketchselect.selectors.base import BaseSelector, Selection
from sketchselect.selectors.supervised.target import GuessedTaskMixin, Task, warn_of_untested
from sketchselect.selectors.supervised.univariate import f_of_moments
from sketchselect.summaries import Moments, Summary

Scheme = Literal["quotient", "difference"]


def mrmr_order(
    relevance: Floats, correlation: Floats, n_select: int, scheme: Scheme
) -> tuple[NDArray[np.int64], Floats]:
    """Return columns in the order of choice, and each one's mean absolute correlation with those chosen before it.

    The first is the most relevant; then the one of largest ``relevance - redundancy``, or ``relevance / redundancy``.
    Columns whose relevance is NaN are left out, ties go to the lowest index.
    """
    left = ~np.isnan(relevance)
    n_select = min(n_select, int(left.sum()))
    order: list[int] = []
    redundancies = np.zeros(n_select)
    total = np.zeros(relevance.size)
    for i in range(n_select):
        redundancy = total / max(i, 1)
        if i == 0:
            value = relevance
        elif scheme == "difference":
            value = relevance - redundancy
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                value = relevance / redundancy
        # NaN here is 0 / 0 or inf / inf: a column without relevance, and one beyond doubt.
        value = np.where(np.isnan(value), np.where(relevance > 0, np.inf, 0.0), value)
        j = int(np.argmax(np.where(left, value, -np.inf)))
        order.append(j)
        redundancies[i] = redundancy[j]
        left[j] = False
        total += np.abs(correlation[j])
    return np.array(order, dtype=np.int64), redundancies


class MRMRSelector(GuessedTaskMixin, BaseSelector):
    """Select columns of maximum relevance to a target and minimum redundancy with one another; one pass.

    Relevance is the F statistic of a column alone: analysis of variance for classes, else the regression of the target
    on the column. Redundancy is the mean absolute correlation with the columns chosen before.

    Parameters
    ----------
    scheme : {"quotient", "difference"}
        Whether a column's relevance is divided by its redundancy (FCQ), or its redundancy is subtracted (FCD). F and
        correlations have different scales: with "difference" relevance decides, unless F is of the size of 1.
    task : {"auto", "regression", "classification"}
        Whether the target is numbers or classes; by default classes if it is text, truth values, or whole numbers with
        at most 20 distinct values.

    Attributes
    ----------
    ranking_ : array of int, shape (n_selected,)
        Selected columns in the order of choice.
    scores_ : array of shape (n_features,)
        ``1 / i`` for the i-th column chosen, 0 for the others.

    Notes
    -----
    Guarantee: the columns that the method chooses from the rows, by moments exact to rounding. The first k of a longer
    choice are the choice of k. Constant columns are never chosen, and no column is for a constant target: a warning
    says so.
    Cost a row: that of `Moments`; after the pass p k, and p^2 numbers for the correlations, of few rows too.
    Source: Ding and Peng 2005; Zhao, Anand and Wang 2019.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 6))
    >>> X[:, 1] = X[:, 0] + 0.01 * rng.standard_normal(500)
    >>> y = X[:, 0] + X[:, 4] + rng.standard_normal(500)
    >>> MRMRSelector(2).fit(X, y).support_.tolist()
    [0, 4]
    """

    method: ClassVar[str] = "mrmr"
    requires: ClassVar[tuple[str, ...]] = ("moments",)

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        scheme: Scheme = "quotient",
        task: Literal["auto"] | Task = "auto",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.scheme = scheme
        self.task = task

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the moments of columns and target."""
        return Moments(classes=self.seen_classes)

    def _select(self, summary: Any, n_select: int) -> Selection:
        moments = one_target(summary, one_class=self.takes_one_class)
        constant = not (moments.yy.diagonal() > 0).any()
        relevance = np.full(moments.n_features, np.nan) if constant else f_of_moments(moments).statistics
        n_tested = int(np.count_nonzero(~np.isnan(relevance)))
        asked = None if self.n_features_to_select is None else n_select
        warn_of_untested(n_tested, moments.n_features, asked, constant=constant)
        covariance = moments.covariance()
        scale = np.sqrt(np.maximum(covariance.diagonal(), 0.0))
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
        order, redundancies = mrmr_order(relevance, covariance * inverse * inverse[:, None], n_select, self.scheme)
        self.ranking_ = order
        scores = np.zeros(relevance.size)
        scores[order] = 1.0 / np.arange(1.0, order.size + 1.0)
        redundancy = np.full(relevance.size, np.nan)
        redundancy[order] = redundancies
        return self._selection(
            summary,
            np.sort(order),
            scores,
            columns={"relevance": relevance, "redundancy": redundancy},
            task="regression" if moments.classes is None else "classification",
            n_features_to_select=n_select,
        )


def one_target(summary: Any, *, one_class: bool = False) -> Moments:
    """Return the moments, if they are of complete rows and one target; raise `Incompatible` otherwise.

    `one_class`: Whether all rows may be of one class.
    """
    moments: Moments = summary
    if moments.n_targets < 1:
        raise Incompatible("this summary has no target; collect it with one: summarize(X, Moments(), y=target)")
    if moments.n_targets > 1 and moments.classes is None:
        raise Incompatible(f"this summary has {moments.n_targets} targets, one is needed")
    if moments.missing is not None:
        raise Incompatible("these moments are of pairs of columns with values missing; impute first: prepare = impute")
    if not one_class and moments.classes is not None and np.count_nonzero(moments.class_weights > 0) < 2:
        raise BadParameter("the target has only one class; a classification needs at least two")
    return moments
