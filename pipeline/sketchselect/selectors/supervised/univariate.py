"""Tests of single columns against a target, corrections for many tests, and the selector that goes by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import scipy

from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.execution import Source, summarize_source
from sketchselect.execution.engine import PassOptions
from sketchselect.linalg.independence import independence_tail
from sketchselect.linalg.parameters import Limits, Share, Size, whole
from sketchselect.linalg.validation import Floats
from sketchselect.readers import Vector
from sketchselect.selectors.base import BaseSelector, Selection, rank
from sketchselect.selectors.supervised.binned import (
    fourfold_log_pvalues,
    mutual_information,
    n_bins_for,
    rank_sums,
    sample_for,
    target_edges,
)
from sketchselect.selectors.supervised.effects import (
    Effects,
    best_of,
    correlation_effects,
    count_effects,
    difference_effects,
    information_effects,
    rank_effects,
    variance_effects,
)
from sketchselect.selectors.supervised.target import GuessedTaskMixin, Task, require_several, warn_of_untested
from sketchselect.summaries import ColumnStats, Groups, Moments, RowSample, Summary, TargetHistogram, load, pick

_SERIES_BELOW = 1e-290
_MAX_TERMS = 100_000

_ON_PRESENT_VALUES = (
    'is for classes with score="f", "t-test" or "chi2"; here fill missing values, with prepare=["impute"]'
)
_NO_TWO_CLASSES = (
    "no column has a value in two classes, in rows with a positive weight; check the missing values and the target"
)
_ANY_DEPENDENCE = "however the columns depend on each other"
_FALSE = "a false column is one without relation to the target by itself: neighbours of a true column count as true"
_BINS = ("sample", "counts")
Bins = Annotated[
    str,
    Limits('"sample", "counts" or the path of a .sks file', lambda value: value in _BINS or str(value)[-4:] == ".sks"),
]


class ColumnTests(NamedTuple):
    """A statistic of every column, its p-value and the logarithm of that; NaN for a column without a test."""

    statistics: Floats
    pvalues: Floats
    log_pvalues: Floats


def f_of_classes(weights: Floats, means: Floats, scatters: Floats) -> ColumnTests:
    """Return the analysis of variance of every column.

    `weights`, shape (n_classes,) or (n_classes, n_features): Number of rows of each class, or of those that have a
    value in the column; classes without rows do not count.
    `means`, `scatters`, shape (n_classes, n_features): Mean, and sum of squares about it, within each class.
    """
    pooled, n_classes = _pooled(weights, means, scatters), np.count_nonzero(weights, axis=0)
    between = (pooled.weights.reshape(len(pooled.weights), -1) * pooled.offsets**2).sum(axis=0)
    return _f_test(between, pooled.within, n_classes - 1.0, pooled.total - n_classes)


def f_of_moments(moments: Moments) -> ColumnTests:
    """Return the F test of every column from moments with a target: of classes, or of a regression."""
    if moments.classes is None:
        return f_of_regression(correlations_with_target(moments), float(moments.weight))
    weights, variances = moments.class_weights, moments.centered_column_squared_norms / moments.weight
    filled = weights > 0
    shares = weights / weights.sum()
    if len(weights) == 2:
        between = moments.xy[:, 0] ** 2 / max(4.0 * float(shares.prod()), np.finfo(float).tiny)
    else:
        between = (moments.xy[:, filled] ** 2 / shares[filled]).sum(axis=1)
    within = np.maximum(variances - between, 0.0)
    return _f_test(between, within, np.count_nonzero(filled) - 1.0, float(moments.weight) - np.count_nonzero(filled))


def correlations_with_target(moments: Moments) -> Floats:
    """Return the correlation of every column with the one numeric target; NaN for a constant column."""
    target = np.ravel(moments.yy)[0]
    scale = np.sqrt(moments.centered_column_squared_norms / moments.weight * target)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlations: Floats = np.clip(np.where(scale > 0, np.ravel(moments.xy) / scale, np.nan), -1.0, 1.0)
    return correlations


def f_of_regression(correlations: Floats, n_rows: float) -> ColumnTests:
    """Return the F test of a linear regression of the target on every column alone, from their correlations."""
    squares = correlations * correlations
    return _f_test(squares, (1.0 - correlations) * (1.0 + correlations), 1.0, n_rows - 2.0)


def welch(weights: Floats, means: Floats, scatters: Floats, *, as_many: bool = False) -> ColumnTests:
    """Return Welch's two-sided t-test of every column, of the first group against the second.

    Arguments are as in `f_of_classes`, for two groups. With `as_many` the second group counts as if it had as many rows
    as the first, which overestimates the variance if it has more (scanpy's ``t-test_overestim_var``).
    """
    weights = weights.reshape(2, -1)
    counts = np.array([weights[0], weights[0] if as_many else weights[1]])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = scatters / (weights - 1.0) / counts
        error = np.where(weights.min(axis=0) > 1, shares.sum(axis=0), np.nan)
        t = (means[0] - means[1]) / np.sqrt(error)
        freedom = error**2 / (shares**2 / (counts - 1.0)).sum(axis=0)
        log = _log_tail(t * t, np.ones_like(t), freedom)
        # Two constant groups that differ do so beyond doubt.
        p = np.where(np.isinf(t), 0.0, _two_sided(t * t, freedom))
    return ColumnTests(t, *_joined(p, log))


def _two_sided(squares: Floats, freedom: Floats) -> Floats:
    """Return the probability that Student's t has a larger square."""
    # Each from the smaller of two shares that add up to 1: the larger one is rounded to too few digits of the smaller.
    total = freedom + squares
    p: Floats = np.where(
        squares < freedom,
        scipy.special.betaincc(0.5, freedom / 2, squares / total),
        scipy.special.betainc(freedom / 2, 0.5, freedom / total),
    )
    return p


def others(group: int, weights: Floats, means: Floats, scatters: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the number of rows, means and scatters of all groups but one; arguments are as in `f_of_classes`."""
    rest = np.arange(len(weights)) != group
    pooled = _pooled(weights[rest], means[rest], scatters[rest])
    return pooled.total, pooled.mean, pooled.within + _sum(pooled.weights, pooled.offsets**2)


class _Pooled(NamedTuple):
    """Groups taken together, without those that have no rows in any column."""

    weights: Floats
    total: Floats
    mean: Floats
    offsets: Floats
    """Of the means of the groups from the mean of all rows, shape (n_groups, n_features)."""
    within: Floats
    """Sums of squares about the means of the groups."""


def _pooled(weights: Floats, means: Floats, scatters: Floats) -> _Pooled:
    """Return the groups taken together; arguments are as in `f_of_classes`."""
    filled = weights.reshape(len(weights), -1) > 0
    some = filled.any(axis=1)
    weights, means, scatters, filled = weights[some], means[some], scatters[some], filled[some]
    total: Floats = weights.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        # About the mean of the means, because columns can lie far from zero.
        centre = means.sum(axis=0, where=filled) / filled.sum(axis=0)
        offsets = np.where(filled, means - centre, 0.0)
        mean = _sum(weights, offsets) / total
    return _Pooled(weights, total, centre + mean, offsets - mean, scatters.sum(axis=0, where=filled))


def _sum(weights: Floats, values: Floats) -> Floats:
    """Return the sum of the values of each column over groups, times the groups' weights, or those in the column."""
    return weights @ values if weights.ndim == 1 else (weights * values).sum(axis=0)


def _f_test(explained: Floats, residual: Floats, numerator: float | Floats, denominator: float | Floats) -> ColumnTests:
    has_test = (np.asarray(numerator) > 0) & (np.asarray(denominator) > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        numerator = np.where(has_test, numerator, np.nan)
        f = (explained / numerator) / (residual / denominator)
    p = scipy.special.fdtrc(numerator, denominator, f)
    log = _log_tail(f, np.broadcast_to(numerator, f.shape), np.broadcast_to(denominator, f.shape))
    return ColumnTests(f, *_joined(p, log))


def _joined(p: Floats, log: Floats) -> tuple[Floats, Floats]:
    with np.errstate(divide="ignore"):
        return p, np.where(p < _SERIES_BELOW, log, np.log(p))


def _log_tail(f: Floats, numerator: Floats, denominator: Floats) -> Floats:
    """Return the logarithm of the probability beyond `f`, for values far in the tail; NaN elsewhere.

    It is ``log I_x(a, b)``, by the series of positive terms ``x^a (1 - x)^b / (a B(a, b)) 2F1(a + b, 1; a + 1; x)``.
    """
    out = np.where(np.isposinf(f), -np.inf, np.nan)
    with np.errstate(invalid="ignore"):
        far = np.isfinite(f) & (
            scipy.special.betainc(denominator / 2, numerator / 2, denominator / (denominator + numerator * f))
            < _SERIES_BELOW
        )
    a, b, ratio = denominator[far] / 2, numerator[far] / 2, numerator[far] * f[far] / denominator[far]
    if not a.size:
        return out
    x = 1.0 / (1.0 + ratio)
    term = np.ones_like(x)
    total = np.ones_like(x)
    for k in range(_MAX_TERMS):
        term *= (a + b + k) / (a + 1.0 + k) * x
        total += term
        if (term <= 1e-17 * total).all():
            break
    out[far] = (
        -a * np.log1p(ratio)
        + b * (np.log(ratio) - np.log1p(ratio))
        - np.log(a)
        - scipy.special.betaln(a, b)
        + np.log(total)
    )
    return out


def adjusted(log_pvalues: Floats, correction: str) -> Floats:
    """Return the logarithms of adjusted p-values; columns without a test (NaN) do not count.

    `correction`: "fdr" (Benjamini and Hochberg 1995), "fdr-by" (Benjamini and Yekutieli 2001) or "fwe" (Holm 1979).
    """
    out = np.full(log_pvalues.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(log_pvalues))
    m = tested.size
    order = tested[np.argsort(log_pvalues[tested], kind="stable")]
    ranks = np.arange(1.0, m + 1.0)
    if correction == "fwe":
        out[order] = np.maximum.accumulate(log_pvalues[order] + np.log(m + 1.0 - ranks))
    elif correction in ("fdr", "fdr-by"):
        factor = m * (1.0 if correction == "fdr" else (1.0 / ranks).sum())
        raised = log_pvalues[order] + np.log(factor / ranks)
        out[order] = np.minimum.accumulate(raised[::-1])[::-1]
    else:
        raise ValueError(f"unknown correction {correction!r}")
    capped: Floats = np.minimum(out, 0.0)
    return capped


def _best_class(weights: Floats, means: Floats, scatters: Floats) -> tuple[ColumnTests, Effects]:
    """Return Welch's test of the class that differs most from all others, and its standardised difference."""
    n_tests = 1 if len(weights) == 2 else len(weights)
    tests, effects = [], []
    for i in range(n_tests):
        count, mean, scatter = others(i, weights, means, scatters)
        groups = np.array([weights[i], count]), np.array([means[i], mean]), np.array([scatters[i], scatter])
        tests.append(welch(*groups))
        effects.append(difference_effects(*groups, n_tests))
    return _best_of(tests, effects)


def _best_of(tests: Sequence[ColumnTests], effects: Sequence[Effects]) -> tuple[ColumnTests, Effects]:
    """Return the test of the lowest p-value in each column, corrected for their number, and its effect."""
    logs = np.array([test.log_pvalues for test in tests])
    best = np.argmin(np.where(np.isnan(logs), np.inf, logs), axis=0)
    columns = np.arange(best.size)
    log = np.minimum(logs[best, columns] + np.log(len(tests)), 0.0)
    p = np.minimum(np.array([test.pvalues for test in tests])[best, columns] * len(tests), 1.0)
    statistics = np.array([test.statistics for test in tests])[best, columns]
    return ColumnTests(statistics, p, log), best_of(effects, best)


def chi_squared(observed: Floats, weights: Floats) -> ColumnTests:
    """Return Pearson's chi-squared test of every column of counts against classes.

    `observed`, shape (n_classes, n_features): Sums of the column in each class.
    `weights`: As in `f_of_classes`.
    """
    weights = weights.reshape(len(weights), -1)
    filled = weights > 0
    n_classes = np.count_nonzero(filled, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = weights / weights.sum(axis=0) * observed.sum(axis=0, where=filled)
        statistics = ((observed - expected) ** 2 / expected).sum(axis=0, where=filled)
    statistics = np.where(n_classes > 1, statistics, np.nan)
    freedom = np.where(n_classes > 1, n_classes - 1.0, np.nan)
    p = scipy.special.chdtrc(freedom, statistics)
    return ColumnTests(statistics, *_joined(p, _log_chi_squared_tail(statistics, freedom)))


def tests_of_histogram(histogram: TargetHistogram, score: str) -> tuple[ColumnTests, Effects]:
    """Return the G test of mutual information, or Wilcoxon's test, of every column, and the effects.

    The statistic of "mutual-information" is the corrected information in nats, its effect the share of the entropy of
    the target. "wilcoxon" is of two classes, or of the class that differs most from all others.
    """
    counts = histogram.counts
    if score == "mutual-information":
        information = mutual_information(counts)
        g = 2 * histogram.weight * information.plug_in
        x, freedom = independence_tail(g, information.of_chance)
        p, log = _joined(scipy.special.chdtrc(freedom, x), _log_chi_squared_tail(x, freedom))
        # Far out the probability goes with exp(-g / 2), however little the margins leave to chance.
        least, log_least = _joined(scipy.special.chdtrc(1.0, g), _log_chi_squared_tail(g, 1.0))
        # The tail of one rare cell alone is too long: two cells more than the table can fill freely bound it.
        most = np.maximum(information.freedom, information.of_chance.mean) + 2
        p_most, log_most = _joined(scipy.special.chdtrc(most, g), _log_chi_squared_tail(g, most))
        p, log = np.minimum(np.maximum(p, least), p_most), np.minimum(np.maximum(log, log_least), log_most)
        exact = fourfold_log_pvalues(counts)
        known = ~np.isnan(exact)
        p, log = np.where(known, np.exp(exact), p), np.where(known, exact, log)
        values = np.where(np.isnan(information.of_chance.mean), np.nan, information.corrected)
        return ColumnTests(values, p, log), information_effects(information, histogram.weight)
    classes = counts[:, :, histogram.class_weights > 0]
    of_bins = classes.sum(axis=2)
    n_tests = 1 if classes.shape[2] == 2 else classes.shape[2]
    sums = [rank_sums(classes[:, :, i], of_bins - classes[:, :, i]) for i in range(n_tests)]
    return _best_of([ColumnTests(*test[:3]) for test in sums], [rank_effects(test, n_tests) for test in sums])


def _log_chi_squared_tail(x: Floats, freedom: float | Floats) -> Floats:
    """Return the logarithm of the probability beyond `x` far in the tail, by the continued fraction of Gamma(a, x)."""
    a, half = freedom / 2, np.maximum(x / 2, freedom + 2)
    # Modified Lentz; from x > a + 1 on the fraction converges at once.
    b = half + 1 - a
    c, d = np.full_like(half, 1e300), 1 / b
    fraction = d.copy()
    for i in range(1, 500):
        factor = -i * (i - a)
        b = b + 2
        d = 1 / (factor * d + b)
        c = b + factor / c
        fraction = fraction * (c * d)
        if (np.abs(c * d - 1) < 1e-16).all():
            break
    logarithm: Floats = a * np.log(half) - half - scipy.special.gammaln(a) + np.log(fraction)
    return logarithm


def _no_tests(n_features: int) -> tuple[ColumnTests, Effects]:
    blank = np.full(n_features, np.nan)
    return ColumnTests(blank, blank, blank), Effects(blank, blank, blank)


def _is_constant_target(summary: Any) -> bool:
    """Return whether all rows have one number, or one class, as the target."""
    if isinstance(summary, Moments) and summary.classes is None:
        return not np.ravel(summary.yy)[0] > 0
    # Bins of a numeric target that are one are refused before.
    numeric = isinstance(summary, TargetHistogram) and summary.classes is None
    return not numeric and len(_classes_with_rows(summary)) < 2


def _classes_with_rows(summary: Any) -> list[Any]:
    if isinstance(summary, Groups):
        return [label for label, part in zip(summary.labels, summary, strict=True) if part.n_rows]
    classes = getattr(summary, "classes", None) or ()
    return [label for label, weight in zip(classes, summary.class_weights, strict=True) if weight] if classes else []


class UnivariateSelector(GuessedTaskMixin, BaseSelector):
    """Select the columns that a test of each column alone connects with the target; one pass.

    Every column is tested by itself: columns that matter only together are not seen, and of columns that say the same
    all are selected. With a `mode` that bounds an error, any number of columns can be selected, none too.

    Parameters
    ----------
    score : {"f", "t-test", "chi2", "correlation", "mutual-information", "wilcoxon"}
        The test. "f": analysis of variance of classes, or the regression of the target on the column. "t-test":
        Welch's, of two classes, or of each class against all others (then the p-value is that of the best class, times
        the number of classes). "chi2": of counts against classes. "correlation": with a numeric target. The last two
        are by bins of the values. "mutual-information", in nats: any relation with classes or a numeric target, which
        is binned too, also one without a trend. "wilcoxon": rank sums, of classes as for "t-test".
    mode : {"k", "percentile", "fpr", "fdr", "fdr-by", "fwe"}
        How columns are chosen: `n_features_to_select` of them, or that percentage of them; p-values below `alpha`
        ("fpr"); expected share of false ones at most `alpha`, for independent or positively dependent tests ("fdr",
        Benjamini and Hochberg) or any ("fdr-by", Benjamini and Yekutieli); probability of any false one at most
        `alpha` ("fwe", Holm).
    n_features_to_select : int or float, optional
        For mode "k" as in other selectors; for "percentile" a percentage, 10 by default.
    alpha : float, default 0.05
        Bound of the modes for errors.
    task : {"auto", "regression", "classification"}
        Whether the target is numbers or classes; by default classes if it is text, truth values, or whole numbers with
        at most 20 distinct values.
    n_bins : int, optional
        Largest number of bins of a column, and of a numeric target. By default 64 for "wilcoxon" and for counts, and
        for "mutual-information" as many, from 4 to 32, as leave five rows for each cell of bin and class.
    bins : "sample", "counts" or path
        "sample": about equally many rows a bin, by a sample of all rows in a pass of its own (of a stream: by the first
        rows); whole numbers and few distinct values have a bin each. "counts": a bin for each whole number, the last
        for all larger ones; no sample. The path of a summary (.sks) with a `TargetHistogram`: its bins, so that the
        summaries of several sites can be merged.
    missing : "pairwise", optional
        For classes with "f", "t-test" and "chi2": NaN in X are missing values, and every column is tested on the rows
        that have a value in it. A matrix that was opened before must have been opened with ``nonfinite="missing"``.

    Attributes
    ----------
    scores_ : array of shape (n_features,)
        Statistic of the test, its absolute value for "t-test", "correlation" and "wilcoxon"; the information for
        "mutual-information", without the bias of Miller and Madow. 0 where a column has no test, as a constant one.
    pvalues_, log_pvalues_ : array of shape (n_features,)
        p-values, and their logarithms, which do not underflow; NaN where a column has no test.
    qvalues_ : array of shape (n_features,)
        p-values adjusted for all columns: by Holm for "fwe", by Benjamini and Yekutieli for "fdr-by", else by Benjamini
        and Hochberg.
    effects_ : array of shape (n_features,)
        Correlation with a numeric target. For classes the share of the variance between them ("f"), the mean of the
        first class in ascending order less that of the second over the standard deviation within both ("t-test"),
        Cramer's V of the counts ("chi2"), or the rank-biserial correlation, 2 AUC - 1, positive where the first class
        has the larger values ("wilcoxon"); of more classes for the one that differs most, against all others. Of
        "mutual-information" the share of the target's entropy.
    confint_ : array of shape (n_features, 2)
        95 % confidence intervals of the effects in the population, of each column by itself: the effects of columns
        that are selected because theirs are large are smaller on average. "f": exact for values that are normal
        within classes, by the noncentral F; the rows overstate this share, which the interval corrects, so that it can
        lie below `effects_`. Correlations: Fisher's, for normal columns and target. All others are for many rows: by
        Welch's error ("t-test"), the noncentral chi-squared distribution ("chi2", for independent counts, and
        "mutual-information", of the binned values), and the variance of the area under the ROC curve ("wilcoxon").
        Of several classes, "t-test" and "wilcoxon" allow for the choice of the best one.

    Raises
    ------
    BadParameter
        For a score that does not go with the target, negative values with "chi2", or bins with a score without.

    Notes
    -----
    Columns without a test, as constant ones, are never selected, and no column is for a constant target: a warning
    says so.
    Guarantee: p-values are exact to rounding (to 1e-12 those of scikit-learn and SciPy) if the values are normal within
    classes ("f", "t-test") or about the regression line; then the modes keep their bound, in a sentence in
    ``selection_.diagnostics["choice"]``. A row of weight w counts as w
    rows. "wilcoxon" and "mutual-information" are exact for the binned values (`summary_.is_exact` says for which
    columns these are the values themselves). The p-values of "wilcoxon" are those of the normal distribution. Those of
    "mutual-information" are exact for two bins beside two classes, given how many rows each has (of more than 64
    million rows within some parts in a thousand). Others are by chi-squared with the mean, variance and skewness that
    independent columns with as many rows in each bin and class have: of 430 tables with uneven margins, 30 to 10,000
    rows, a true .05 was at most .053 in nine of ten, and .096 in the worst.
    Cost a row: for classes that of `ColumnStats`, and 64 bytes for each column and class; by bins that of
    `TargetHistogram`, after a pass for the sample; else that of `Moments`.
    Source: Fisher 1921, 1925, 1935; Welch 1947; Pearson 1900; Wilcoxon 1945; Miller 1955; Steiger 2004; Newcombe 2006;
    Holm 1979; Koehler 1986; Benjamini and Hochberg 1995; Benjamini and Yekutieli 2001.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = X[:, 4] - X[:, 11] + rng.standard_normal(500)
    >>> UnivariateSelector(mode="fdr", alpha=0.01).fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "univariate"
    requires: ClassVar[tuple[str, ...]] = ("groups", "moments", "target-histogram")
    automatic: ClassVar[dict[str, Any] | None] = {"mode": "fdr"}

    def __init__(
        self,
        score: Literal["f", "t-test", "chi2", "correlation", "mutual-information", "wilcoxon"] = "f",
        mode: Literal["k", "percentile", "fpr", "fdr", "fdr-by", "fwe"] = "k",
        n_features_to_select: Size | None = None,
        alpha: Share = 0.05,
        task: Literal["auto"] | Task = "auto",
        n_bins: Annotated[int, whole(2)] | None = None,
        bins: Bins = "sample",
        missing: Literal["pairwise"] | None = None,
    ) -> None:
        self.score = score
        self.mode = mode
        self.n_features_to_select = n_features_to_select
        self.alpha = alpha
        self.task = task
        self.n_bins = n_bins
        self.bins = bins
        self.missing = missing

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or a score that does not go with the task."""
        super().check_parameters()
        if self.task != "auto" and self._implied_task not in (None, self.task):
            raise BadParameter(f'score="{self.score}" is for task="{self._implied_task}", got {self.task!r}')
        size = self.n_features_to_select
        if self.mode not in ("k", "percentile") and size is not None:
            raise BadParameter(f'n_features_to_select goes with mode="k" or "percentile", not with "{self.mode}"')
        if self.mode == "percentile" and size is not None and size > 100:
            raise BadParameter(f"n_features_to_select is a percentage in this mode, at most 100, got {size}")
        if not self._is_binned and (self.n_bins is not None or self.bins != "sample"):
            name = "bins" if self.n_bins is None else "n_bins"
            raise BadParameter(f'{name} is for score="mutual-information" and "wilcoxon", not for "{self.score}"')
        if self.missing is not None and (self._is_binned or "regression" in (self.task, self._implied_task)):
            raise BadParameter(f'missing="pairwise" {_ON_PRESENT_VALUES}')
        if self.n_bins is not None and self.bins not in _BINS:
            raise BadParameter(f"n_bins: the bins are those of {self.bins}; leave one of the two out")

    @property
    def _implied_task(self) -> Task | None:
        """The task that the score is for; None for one that is for both."""
        tasks: dict[str, Task] = {
            "t-test": "classification",
            "chi2": "classification",
            "correlation": "regression",
            "wilcoxon": "classification",
        }
        return tasks.get(self.score)

    @property
    def numbers_advice(self) -> str:
        """What to do about numbers that are no classes, for messages."""
        if self._implied_task == "classification":
            return 'take score="f", "correlation" or "mutual-information"'
        return super().numbers_advice

    @property
    def _is_binned(self) -> bool:
        return self.score in ("mutual-information", "wilcoxon")

    @property
    def _in_bins_of_file(self) -> bool:
        return self._is_binned and self.bins not in _BINS

    def _histogram_of_file(self) -> Any:
        return pick(load(self.bins), TargetHistogram.kind).describe()

    def _guess(self, y: Vector) -> Task:
        if not self._in_bins_of_file or self._implied_task is not None:
            return super()._guess(y)
        return "classification" if self._histogram_of_file().classes is not None else "regression"

    def _classes_of(self, y: Vector) -> tuple[Any, ...]:
        # Of one site a class may be missing, or all but one.
        known: tuple[Any, ...] | None = self._histogram_of_file().classes if self._in_bins_of_file else None
        return super()._classes_of(y) if known is None else known

    @property
    def makes_passes(self) -> bool:
        """Whether a pass for the sample of the bins comes first."""
        return self._is_binned and self.bins == "sample"

    def summary_kinds(self) -> tuple[str, ...]:
        """Return the kinds of summary that the score is computed from."""
        return (TargetHistogram.kind,) if self._is_binned else (Groups.kind, Moments.kind)

    def inspect_target(self, y: Vector) -> None:
        """Learn the classes of the target, or of a numeric one the bins."""
        if self._implied_task == "regression" and y.dtype.kind == "U":
            raise BadParameter(f'target {y.address} is text, and score="{self.score}" is for numbers; take score="f"')
        super().inspect_target(y)
        if self.missing is not None and self.target_task == "regression":
            raise BadParameter(f'target {y.address} is numbers, missing="pairwise" {_ON_PRESENT_VALUES}')
        self._seen_rows = y.n_rows
        self._seen_target_edges = None
        if self._is_binned and self.target_task == "regression" and not self._in_bins_of_file:
            self._seen_target_edges = target_edges(y, self._n_target_bins(), y.n_rows)

    def _n_target_bins(self) -> int:
        return self.n_bins or n_bins_for(getattr(self, "_seen_rows", 0))

    def _n_bins(self) -> int:
        if self.n_bins is not None:
            return self.n_bins
        if self.score == "wilcoxon" or self.bins == "counts":
            return 64
        n_classes = self._n_target_bins() if self.seen_classes is None else len(self.seen_classes)
        return n_bins_for(getattr(self, "_seen_rows", 0), n_classes)

    def _target_of_histogram(self) -> dict[str, Any]:
        """Return what the target seen last says of a histogram; two classes before any was seen."""
        edges = getattr(self, "_seen_target_edges", None)
        return {"target_edges": edges} if edges is not None else {"classes": self.seen_classes or (0, 1)}

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the statistics of the columns in each class, or the moments with a numeric target; or a histogram.

        Bins of a sample are not known before its pass; then the bins are those of counts, which need the same memory.
        """
        if self._in_bins_of_file:
            of_file: Summary[Any] = self._histogram_of_file()
            return of_file
        if self._is_binned:
            return TargetHistogram(np.arange(self._n_bins()), **self._target_of_histogram())
        classes = self.seen_classes
        return Moments() if classes is None else Groups(ColumnStats(), classes)

    def _of_sample(self, sample: RowSample) -> TargetHistogram:
        return TargetHistogram.of_sample(sample.rows, self._n_bins(), **self._target_of_histogram())

    def single_pass(self, source: Source) -> tuple[Source, Summary[Any]] | None:
        """Return the pass over the rows; None where one for the sample of the bins comes first."""
        return None if self.makes_passes else super().single_pass(source)

    def collect_source(self, source: Source, options: PassOptions) -> Summary[Any]:
        """Return the summary of the rows, by the bins of a sample of all rows if the score needs bins."""
        if not self.makes_passes:
            return super().collect_source(source, options)
        sample: Any = summarize_source(source, sample_for(self._n_bins()), options, stage="bins").value
        return summarize_source(source, self._of_sample(sample), options, stage="counts").value

    def _updated(self, summary: Summary[Any], batches: Iterable[tuple[Any, Any, Any]]) -> Summary[Any]:
        """Return the summary of a stream after more batches; the first rows decide on the bins of a sample."""
        if self.makes_passes and not summary.n_rows:
            batches = iter(batches)
            first = list(islice(batches, 1))
            for rows, _, weights in first:
                sample = sample_for(self._n_bins()).from_block(rows, sample_weight=weights)
                described = self._of_sample(sample).empty(summary.n_features)
                summary = described.with_context(prepare=summary.prepare, feature_names=summary.feature_names)
            batches = chain(first, batches)
        return super()._updated(summary, batches)

    def _finish(self, names: tuple[str, ...] | None) -> Self:
        summary: Any = self.summary_
        if self.missing is not None and summary.n_rows and not np.max(summary.weight, initial=0) > 0:
            raise EmptyInput(_NO_TWO_CLASSES)
        return super()._finish(names)

    def _select(self, summary: Any, n_select: int) -> Selection:
        tests, effects = self._tests(summary)
        correction = self.mode if self.mode in ("fwe", "fdr-by") else "fdr"
        log_adjusted = adjusted(tests.log_pvalues, correction)
        scores = np.nan_to_num(np.abs(tests.statistics), nan=0.0, posinf=np.inf)
        tested = ~np.isnan(tests.log_pvalues)
        n_tested = int(np.count_nonzero(tested))
        asked = n_select if self.mode == "k" and self.n_features_to_select is not None else None
        warn_of_untested(n_tested, scores.size, asked, constant=_is_constant_target(summary))
        if self.mode in ("k", "percentile"):
            support = rank(np.where(tested, scores, -1.0))[: min(n_select, n_tested)]
        else:
            compared = tests.log_pvalues if self.mode == "fpr" else log_adjusted
            support = np.flatnonzero(compared <= np.log(self.alpha))
        columns = {
            "log_pvalues": tests.log_pvalues,
            "pvalues": tests.pvalues,
            "qvalues": np.exp(log_adjusted),
            "effects": effects.sizes,
        }
        for name, values in columns.items():
            setattr(self, name + "_", values)
        self.confint_ = np.column_stack([effects.low, effects.high])
        columns |= {"confint_low": effects.low, "confint_high": effects.high}
        sized: dict[str, Any] = {"n_features_to_select": n_select} if self.mode == "k" else {}
        task = "classification" if isinstance(summary, Groups) or summary.classes is not None else "regression"
        diagnostics: dict[str, Any] = {"effect": self._effect(task, _classes_with_rows(summary))}
        diagnostics["choice"] = self._proved(support.size, n_tested)
        if isinstance(summary, TargetHistogram):
            if self.bins in _BINS:
                sized["n_bins"] = summary.n_bins
            diagnostics["n_columns_with_one_value_a_bin"] = int(summary.is_exact.sum())
        return self._selection(
            summary, np.sort(support), scores, columns=columns, diagnostics=diagnostics, task=task, **sized
        )

    def _proved(self, n_selected: int, n_tests: int) -> str:
        """Return in one sentence what is proved of the selected columns."""
        if not n_tests:
            return "no column can be tested against the target, so that none is selected"
        these = "this column" if n_selected == 1 else f"these {n_selected} columns"
        if self.mode in ("k", "percentile"):
            score = "scores" if n_selected == 1 else "score"
            return (
                f"{these} {score} highest, and nothing is proved of how many are false (the modes fpr, fdr, fdr-by and "
                f"fwe have bounds); {_FALSE}"
            )
        share = f"{100 * self.alpha:g} %"
        if not n_selected:
            return f'no column is selected by mode = "{self.mode}" at alpha = {self.alpha:g}'
        expected = f"of {these} at most {share} are expected to be false"
        if n_selected == 1:
            expected = f"the expected share of false columns is at most {share}"
        proved = {
            "fpr": f"each false column is selected with probability at most {share}: up to {self.alpha * n_tests:.3g} "
            f"of the {n_tests} that were tested are expected to be selected by chance",
            "fdr": f"{expected}, if the tests are independent or positively dependent",
            "fdr-by": f"{expected}, {_ANY_DEPENDENCE}",
            "fwe": f"the probability of selecting one or more false columns is at most {share}, {_ANY_DEPENDENCE}",
        }[self.mode]
        return f"if the p-values are valid, {proved}; {_FALSE}"

    def _effect(self, task: str, classes: Sequence[Any]) -> str:
        """Return in words what an effect is."""
        if self.score == "mutual-information":
            return "share of the entropy of the target"
        if task == "regression":
            return "correlation with the target"
        two = len(classes) == 2
        # The classes first: a figure cuts long labels.
        means = f"{classes[0]} less {classes[1]}" if two else "the class that differs most less the others"
        ranks = f"{classes[0]} above {classes[1]}" if two else "the class that differs most above the others"
        return {
            "f": "share of the variance between classes",
            "t-test": f"{means}: difference of means in standard deviations",
            "chi2": "Cramer's V",
            "wilcoxon": f"{ranks}: rank-biserial correlation",
        }[self.score]

    def _n_select(self, n_features: int) -> int:
        if self.mode == "percentile":
            percentage = 10.0 if self.n_features_to_select is None else float(self.n_features_to_select)
            return max(int(n_features * percentage / 100), 1)
        return super()._n_select(n_features) if self.mode == "k" else 0

    def _tests(self, summary: Any) -> tuple[ColumnTests, Effects]:
        """Return the tests of all columns, and the sizes of the effects."""
        if isinstance(summary, TargetHistogram):
            if (summary.classes is None and self._is_for_classes) or (summary.classes and self.task == "regression"):
                raise Incompatible("this histogram has another kind of target, numbers or classes, than the score")
            n_filled = int(np.count_nonzero(summary.class_weights))
            if summary.classes is None and n_filled < 2:
                raise BadParameter(
                    "all entries of the target are in one bin, so that it says nothing of a column (in a stream, the "
                    "first batch decides on the bins); pass a target that varies"
                )
            if self._has_one_class(n_filled):
                return _no_tests(summary.n_features)
            return tests_of_histogram(summary, self.score)
        if isinstance(summary, Groups):
            if self._implied_task == "regression" or self.task == "regression":
                raise Incompatible('this summary is of groups; score="correlation" and regressions need Moments()')
            return self._tests_of_classes(summary)
        if summary.n_targets < 1:
            raise Incompatible("this summary has no target; collect it with one: summarize(X, Moments(), y=target)")
        if summary.n_targets > 1 or summary.classes is not None or self._is_for_classes:
            raise Incompatible(
                "moments with one numeric target are needed for a regression, and Groups(ColumnStats(), classes) for "
                "classes"
            )
        correlations, n_rows = correlations_with_target(summary), float(summary.weight)
        tests = f_of_regression(correlations, n_rows)
        tests = tests._replace(statistics=correlations) if self.score == "correlation" else tests
        return tests, correlation_effects(correlations, n_rows)

    @property
    def _is_for_classes(self) -> bool:
        """Whether score or task, as given, are for classes."""
        return "classification" in (self.task, self._implied_task)

    def _has_one_class(self, n_classes: int) -> bool:
        """Return whether all rows are of one class, where they may be; raise `BadParameter` where they must not."""
        if not self.takes_one_class:
            require_several(tuple(range(n_classes)))
        return n_classes < 2

    def _tests_of_classes(self, summary: Any) -> tuple[ColumnTests, Effects]:
        parts: list[Any] = [part for part in summary if part.n_rows]
        if self._has_one_class(len(parts)):
            return _no_tests(summary.n_features)
        if self.score == "chi2":
            negative = np.flatnonzero(summary.total.minimum < 0)
            if negative.size:
                names = summary.feature_names
                name = "" if names is None else f" ({names[negative[0]]})"
                raise BadParameter(f'score="chi2" is for counts, but column {negative[0]}{name} has negative values')
        weights, means, scatters, sums = (
            np.array([getattr(part, name) for part in parts])
            for name in ("weight", "mean", "centered_column_squared_norms", "sum")
        )
        n_classes = np.count_nonzero(weights, axis=0)
        if n_classes.max() < 2:
            raise EmptyInput(_NO_TWO_CLASSES)
        if (weights == weights[:, :1]).all():
            weights, n_classes = weights[:, 0], n_classes[0]  # No value is missing.
        if self.score == "chi2":
            tests = chi_squared(sums, weights)
            return tests, count_effects(tests.statistics, sums, weights)
        if self.score == "f":
            tests = f_of_classes(weights, means, scatters)
            effects = variance_effects(tests.statistics, n_classes, weights.sum(axis=0))
        else:
            tests, effects = _best_class(weights, means, scatters)
        constant = summary.total.is_constant
        blank = [np.where(constant, np.nan, values) for values in (*tests, *effects)]
        return ColumnTests(*blank[:3]), Effects(*blank[3:])
