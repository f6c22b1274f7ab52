"""Tests of single columns against a target, from sums of squares, and corrections for many tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import betainc, betaln, fdtrc

from sketchselect.linalg.validation import Floats

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
