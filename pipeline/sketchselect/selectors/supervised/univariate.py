"""Tests of single columns against a target, corrections for many tests, and the selector that goes by them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.special import betainc, betaln, chdtrc, fdtrc, gammaln

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.validation import Floats
from sketchselect.selectors.base import BaseSelector, Selection, rank
from sketchselect.selectors.parameters import Share, Size
from sketchselect.selectors.supervised.target import GuessedTaskMixin, Task, require_several
from sketchselect.summaries import ColumnStats, Groups, Moments, Summary

_SERIES_BELOW = 1e-290
_MAX_TERMS = 100_000


class ColumnTests(NamedTuple):
    """A statistic of every column, its p-value and the logarithm of that; NaN for a column without a test."""

    statistics: Floats
    pvalues: Floats
    log_pvalues: Floats


def f_of_classes(weights: Floats, means: Floats, scatters: Floats) -> ColumnTests:
    """Return the analysis of variance of every column.

    `weights`, shape (n_classes,): Number of rows of each class; classes without rows do not count.
    `means`, `scatters`, shape (n_classes, n_features): Mean, and sum of squares about it, within each class.
    """
    filled = weights > 0
    weights, means, scatters = weights[filled], means[filled], scatters[filled]
    total = float(weights.sum())
    # About the mean of the means, because columns can lie far from zero.
    offset = means - means.mean(axis=0)
    grand = weights @ offset / total
    between = (weights[:, None] * (offset - grand) ** 2).sum(axis=0)
    return _f_test(between, scatters.sum(axis=0), weights.size - 1.0, total - weights.size)


def f_of_moments(moments: Moments) -> ColumnTests:
    """Return the F test of every column from moments with a target: of classes, or of a regression."""
    if moments.classes is None:
        return f_of_regression(correlations_with_target(moments), float(moments.weight))
    weights, variances = moments.class_weights, moments.covariance().diagonal()
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
    scale = np.sqrt(np.maximum(moments.covariance().diagonal(), 0.0) * np.ravel(moments.yy)[0])
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
    counts = np.array([weights[0], weights[0] if as_many else weights[1]])
    if weights.min() <= 1 or counts.min() <= 1:
        none = np.full(means.shape[1], np.nan)
        return ColumnTests(none, none, none)
    shares = scatters / (weights - 1.0)[:, None] / counts[:, None]
    error = shares.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (means[0] - means[1]) / np.sqrt(error)
        freedom = error**2 / (shares**2 / (counts - 1.0)[:, None]).sum(axis=0)
        log = _log_tail(t * t, np.ones_like(t), freedom)
        # Two constant groups that differ do so beyond doubt.
        p = np.where(np.isinf(t), 0.0, betainc(freedom / 2, 0.5, freedom / (freedom + t * t)))
    return ColumnTests(t, *_joined(p, log))


def others(group: int, weights: Floats, means: Floats, scatters: Floats) -> tuple[float, Floats, Floats]:
    """Return the number of rows, means and scatters of all groups but one; arguments are as in `f_of_classes`."""
    rest = (np.arange(weights.size) != group) & (weights > 0)
    weights, means, scatters = weights[rest], means[rest], scatters[rest]
    total = float(weights.sum())
    # About the mean of the means, because columns can lie far from zero.
    centre = means.mean(axis=0)
    offset = means - centre
    mean = weights @ offset / total
    return total, centre + mean, scatters.sum(axis=0) + weights @ (offset - mean) ** 2


def _f_test(explained: Floats, residual: Floats, numerator: float, denominator: float) -> ColumnTests:
    if numerator <= 0 or denominator <= 0:
        none = np.full(explained.shape, np.nan)
        return ColumnTests(none, none, none)
    with np.errstate(divide="ignore", invalid="ignore"):
        f = (explained / numerator) / (residual / denominator)
    p = fdtrc(numerator, denominator, f)
    log = _log_tail(f, np.full(f.shape, numerator), np.full(f.shape, denominator))
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
            betainc(denominator / 2, numerator / 2, denominator / (denominator + numerator * f)) < _SERIES_BELOW
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
    out[far] = -a * np.log1p(ratio) + b * (np.log(ratio) - np.log1p(ratio)) - np.log(a) - betaln(a, b) + np.log(total)
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


def _best_class(weights: Floats, means: Floats, scatters: Floats) -> tuple[ColumnTests, Floats]:
    """Return Welch's test of the class that differs most from all others, and its standardised difference."""
    n_tests = 1 if weights.size == 2 else weights.size
    tests, effects = [], []
    for i in range(n_tests):
        count, mean, scatter = others(i, weights, means, scatters)
        groups = np.array([weights[i], count]), np.array([means[i], mean]), np.array([scatters[i], scatter])
        tests.append(welch(*groups))
        with np.errstate(divide="ignore", invalid="ignore"):
            within = np.sqrt(groups[2].sum(axis=0) / max(weights.sum() - 2, 1.0))
            effects.append((means[i] - mean) / within)
    logs = np.array([test.log_pvalues for test in tests])
    best = np.argmin(np.where(np.isnan(logs), np.inf, logs), axis=0)
    columns = np.arange(best.size)
    log = np.minimum(logs[best, columns] + np.log(n_tests), 0.0)
    p = np.minimum(np.array([test.pvalues for test in tests])[best, columns] * n_tests, 1.0)
    statistics = np.array([test.statistics for test in tests])[best, columns]
    return ColumnTests(statistics, p, log), np.array(effects)[best, columns]


def chi_squared(observed: Floats, weights: Floats) -> ColumnTests:
    """Return Pearson's chi-squared test of every column of counts against classes.

    `observed`, shape (n_classes, n_features): Sums of the column in each class.
    `weights`, shape (n_classes,): Number of rows of each class.
    """
    filled = weights > 0
    observed, share = observed[filled], weights[filled] / weights.sum()
    expected = share[:, None] * observed.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistics = ((observed - expected) ** 2 / expected).sum(axis=0)
    if len(share) < 2:
        statistics = np.full(observed.shape[1], np.nan)
    freedom = len(share) - 1.0
    p = chdtrc(freedom, statistics)
    return ColumnTests(statistics, *_joined(p, _log_chi_squared_tail(statistics, freedom)))


def _log_chi_squared_tail(x: Floats, freedom: float) -> Floats:
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
    logarithm: Floats = a * np.log(half) - half - gammaln(a) + np.log(fraction)
    return logarithm


class UnivariateSelector(GuessedTaskMixin, BaseSelector):
    """Select the columns that a test of each column alone connects with the target; one pass.

    Every column is tested by itself: columns that matter only together are not seen, and of columns that say the same
    all are selected. With a `mode` that bounds an error, any number of columns can be selected, none too.

    Parameters
    ----------
    score : {"f", "t-test", "chi2", "correlation"}
        The test. "f": analysis of variance of classes, or the regression of the target on the column. "t-test":
        Welch's, of two classes, or of each class against all others (then the p-value is that of the best class, times
        the number of classes). "chi2": of counts against classes. "correlation": with a numeric target.
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

    Attributes
    ----------
    scores_ : array of shape (n_features,)
        Statistic of the test, its absolute value for "t-test" and "correlation"; 0 where a column has no test, as a
        constant one.
    pvalues_, log_pvalues_ : array of shape (n_features,)
        p-values, and their logarithms, which do not underflow; NaN where a column has no test.
    qvalues_ : array of shape (n_features,)
        p-values adjusted for all columns: by Holm for "fwe", by Benjamini and Yekutieli for "fdr-by", else by Benjamini
        and Hochberg.
    effects_ : array of shape (n_features,)
        Correlation with a numeric target. For classes the share of the variance between them ("f"), the difference of
        the means over the standard deviation within both groups ("t-test"), or Cramer's V of the counts ("chi2").

    Raises
    ------
    BadParameter
        For a score that does not go with the target, or negative values with "chi2".

    Notes
    -----
    Guarantee: p-values are exact to rounding (to 1e-12 those of scikit-learn and SciPy) if the values are normal within
    classes ("f", "t-test") or about the regression line; then the modes keep their bound. A row of weight w counts as w
    rows.
    Cost a row: for classes that of `ColumnStats`, and 64 bytes for each column and class; else that of `Moments`.
    Source: Fisher 1925; Welch 1947; Pearson 1900; Holm 1979; Benjamini and Hochberg 1995; Benjamini and Yekutieli 2001.

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
    requires: ClassVar[tuple[str, ...]] = ("groups", "moments")
    automatic: ClassVar[dict[str, Any] | None] = {"mode": "fdr"}

    def __init__(
        self,
        score: Literal["f", "t-test", "chi2", "correlation"] = "f",
        mode: Literal["k", "percentile", "fpr", "fdr", "fdr-by", "fwe"] = "k",
        n_features_to_select: Size | None = None,
        alpha: Share = 0.05,
        task: Literal["auto"] | Task = "auto",
    ) -> None:
        self.score = score
        self.mode = mode
        self.n_features_to_select = n_features_to_select
        self.alpha = alpha
        self.task = task

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

    @property
    def _implied_task(self) -> Task | None:
        """The task that the score is for; None for "f", which is for both."""
        tasks: dict[str, Task] = {
            "t-test": "classification",
            "chi2": "classification",
            "correlation": "regression",
        }
        return tasks.get(self.score)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the statistics of the columns in each class, or the moments with a numeric target."""
        self.check_parameters()
        classes = self.seen_classes
        return Moments() if classes is None else Groups(ColumnStats(), classes)

    def _select(self, summary: Any, n_select: int) -> Selection:
        tests, effects = self._tests(summary)
        correction = self.mode if self.mode in ("fwe", "fdr-by") else "fdr"
        log_adjusted = adjusted(tests.log_pvalues, correction)
        scores = np.nan_to_num(np.abs(tests.statistics), nan=0.0, posinf=np.inf)
        if self.mode in ("k", "percentile"):
            support = rank(scores)[:n_select]
        else:
            compared = tests.log_pvalues if self.mode == "fpr" else log_adjusted
            support = np.flatnonzero(compared <= np.log(self.alpha))
        columns = {
            "log_pvalues": tests.log_pvalues,
            "pvalues": tests.pvalues,
            "qvalues": np.exp(log_adjusted),
            "effects": effects,
        }
        for name, values in columns.items():
            setattr(self, name + "_", values)
        sized: dict[str, Any] = {"n_features_to_select": n_select} if self.mode == "k" else {}
        task = "classification" if isinstance(summary, Groups) or summary.classes is not None else "regression"
        return self._selection(summary, np.sort(support), scores, columns=columns, task=task, **sized)

    def _n_select(self, n_features: int) -> int:
        if self.mode == "percentile":
            percentage = 10.0 if self.n_features_to_select is None else float(self.n_features_to_select)
            return max(int(n_features * percentage / 100), 1)
        return super()._n_select(n_features) if self.mode == "k" else 0

    def _tests(self, summary: Any) -> tuple[ColumnTests, Floats]:
        """Return the tests of all columns, and the sizes of the effects."""
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
        correlations = correlations_with_target(summary)
        tests = f_of_regression(correlations, float(summary.weight))
        return (tests._replace(statistics=correlations) if self.score == "correlation" else tests), correlations

    @property
    def _is_for_classes(self) -> bool:
        """Whether score or task, as given, are for classes."""
        return "classification" in (self.task, self._implied_task)

    def _tests_of_classes(self, summary: Any) -> tuple[ColumnTests, Floats]:
        parts: list[Any] = [part for part in summary if part.n_rows]
        require_several(tuple(range(len(parts))))
        means = np.array([part.mean for part in parts])
        scatters = np.array([part.centered_column_squared_norms for part in parts])
        weights = np.array([float(np.max(part.weight)) for part in parts])
        is_constant = summary.total.is_constant
        if self.score == "chi2":
            negative = np.flatnonzero(summary.total.minimum < 0)
            if negative.size:
                raise BadParameter(f'score="chi2" is for counts, but column {negative[0]} has negative values')
            tests = chi_squared(np.array([part.sum for part in parts]), weights)
            counts = summary.total.sum
            with np.errstate(divide="ignore", invalid="ignore"):
                return tests, np.sqrt(tests.statistics / counts / max(len(parts) - 1, 1))
        if self.score == "f":
            tests = f_of_classes(weights, means, scatters)
            ratio = tests.statistics * (len(parts) - 1) / max(weights.sum() - len(parts), 1.0)
            with np.errstate(invalid="ignore"):
                effects = np.where(np.isinf(ratio), 1.0, ratio / (1 + ratio))
        else:
            tests, effects = _best_class(weights, means, scatters)
        blank = np.where(is_constant, np.nan, 0.0)
        return ColumnTests(*(values + blank for values in tests)), effects + blank
