"""Sizes of the effects that tests of single columns measure, with intervals for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy

from sketchselect.linalg.validation import Array, Floats
from sketchselect.selectors.supervised.binned import Information, RankSums

LEVEL = 0.95
"""Probability with which an interval holds the effect in the population."""

_AS_CHI_SQUARED = 1e12
"""Degrees of freedom of the residuals from which F is chi-squared to eleven digits."""
_NORMAL_FROM = 1e4
"""Noncentrality from which a normal approximation is within 1 % of the width of an interval, and series are long."""
_STEPS = 60


class Effects(NamedTuple):
    """The effect of every column, and the limits of an interval of confidence `LEVEL`; NaN where there is none."""

    sizes: Floats
    low: Floats
    high: Floats


def correlation_effects(correlations: Floats, n_rows: float) -> Effects:
    """Return correlations with Fisher's interval, for columns and a target that are normal together (Fisher 1921)."""
    half = scipy.special.ndtri(0.5 + LEVEL / 2) / np.sqrt(n_rows - 3.0) if n_rows > 3 else np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.arctanh(correlations)
        low, high = np.tanh(middle - half), np.tanh(middle + half)
    certain = np.isinf(middle) & np.isfinite(half)
    return Effects(correlations, np.where(certain, correlations, low), np.where(certain, correlations, high))


def variance_effects(f: Floats, n_groups: int | Array, n_rows: float | Floats) -> Effects:
    """Return the share of the variance between groups, and the interval by the noncentral F (Steiger 2004).

    Numbers of groups and rows are those of all columns, or of each.
    """
    numerator, denominator = n_groups - 1.0, np.asarray(n_rows - n_groups, dtype=np.float64)
    f = np.where(denominator > 0, f, np.nan)
    low, high = noncentralities(f, numerator, denominator)
    return Effects(*(_share(x, n_rows) for x in (f * numerator / denominator * n_rows, low, high)))


def _share(noncentrality: Floats, n_rows: float | Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        share: Floats = np.where(np.isinf(noncentrality), 1.0, noncentrality / (noncentrality + n_rows))
    return share


def difference_effects(weights: Floats, means: Floats, scatters: Floats, n_tests: int) -> Effects:
    """Return the difference of two means over the standard deviation within both groups, and its interval.

    Arguments are as in `f_of_classes`, for two groups. The error is Welch's for the means, with that of the standard
    deviation by the delta method, so that it holds for groups of different variances (Welch 1938; Bonett 2008).
    `n_tests`: Number of differences of which this one may be the largest; intervals then hold for all at once.
    """
    weights = weights.reshape(2, -1)
    freedom = np.where(weights.min(axis=0) > 1, weights - 1.0, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        variances = scatters / freedom
        shares = variances / weights
        within = scatters.sum(axis=0) / freedom.sum(axis=0)
        size = (means[0] - means[1]) / np.sqrt(within)
        spread = size**2 * (freedom * variances**2).sum(axis=0) / (2 * (freedom.sum(axis=0) * within) ** 2)
        of_welch = shares.sum(axis=0) ** 2 / (shares**2 / freedom).sum(axis=0)
        half = scipy.special.stdtrit(of_welch, 1 - _tail(n_tests)) * np.sqrt(shares.sum(axis=0) / within + spread)
    return Effects(size, size - half, size + half)


def count_effects(statistics: Floats, observed: Floats, weights: Floats) -> Effects:
    """Return Cramer's V of counts by class, and its interval by the noncentral chi-squared distribution.

    `statistics`: Of the chi-squared test. `observed`, shape (n_classes, n_features): Sums of the column in each class.
    `weights`: As in `f_of_classes`.
    """
    weights = weights.reshape(len(weights), -1)
    totals, n_classes = observed.sum(axis=0), np.count_nonzero(weights, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = weights / weights.sum(axis=0)
        ratios = np.where(weights > 0, observed / totals / shares, 0.0)
        mean = (shares * ratios**2).sum(axis=0)
        variance = (shares * ratios * (ratios - mean) ** 2).sum(axis=0)
        unit = totals * np.maximum(n_classes - 1.0, 1.0)
        freedom = np.broadcast_to(n_classes - 1.0, statistics.shape)
        limits = _of_chi_squared(statistics, freedom, variance / (statistics / totals))
        return Effects(*(np.sqrt(x / unit) for x in (statistics, *limits)))


def information_effects(information: Information, n_rows: float) -> Effects:
    """Return the share of the target's entropy, and its interval by the noncentral chi-squared distribution.

    The share is that of the binned values. Its interval is of the information before it is corrected for bias.
    """
    # With less than one degree of freedom the noncentral distribution has nearly all of its probability at 0.
    freedom = np.maximum(information.of_chance.mean, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        wider = information.variance / (2 * information.plug_in)
        limits = _of_chi_squared(2 * n_rows * information.plug_in, freedom, wider)
        scale = 1 / (information.entropy or np.nan)
        size = np.where(np.isnan(freedom), np.nan, np.minimum(information.corrected * scale, 1.0))
        return Effects(size, *(np.minimum(x / (2 * n_rows) * scale, 1.0) for x in limits))


def rank_effects(sums: RankSums, n_tests: int) -> Effects:
    """Return rank-biserial correlations, and intervals by the variance of the area under the ROC curve.

    The variance at hand is that of DeLong, DeLong and Clarke-Pearson 1988. It is 0 for groups that do not overlap, so
    that the form of Hanley and McNeil 1982 says how it goes with the area; the interval holds all areas from which that
    of the rows is not further than the quantile allows (Newcombe 2006, method 5).
    `n_tests`: As in `difference_effects`.
    """
    area = (1 + sums.effects) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        # fmax: where groups do not overlap, or one is of a single row, the rows say nothing of the variance.
        scale = np.fmax(sums.variances / _area_variance(area, *sums.sizes), sums.untied)
    limits = []
    for end in (0.0, 1.0):
        inside, outside = area.copy(), np.full(area.shape, end)
        for _ in range(_STEPS):
            middle = (inside + outside) / 2
            deviation = scipy.special.ndtri(1 - _tail(n_tests)) * np.sqrt(scale * _area_variance(middle, *sums.sizes))
            far = np.abs(middle - area) > deviation
            inside, outside = np.where(far, inside, middle), np.where(far, middle, outside)
        limits.append(2 * inside - 1)
    return Effects(sums.effects, *limits)


def _area_variance(area: Floats, first: Floats, second: Floats) -> Floats:
    middle = (first + second) / 2 - 1
    variance: Floats = area * (1 - area) * (1 + middle * ((1 - area) / (2 - area) + area / (1 + area)))
    return variance / (first * second)


def best_of(effects: Sequence[Effects], best: Any) -> Effects:
    """Return for each column the effect of the test with this number."""
    columns = np.arange(best.size)
    return Effects(*(np.array(values)[best, columns] for values in zip(*effects, strict=True)))


def _tail(n_tests: int) -> float:
    return (1 - LEVEL) / (2 * n_tests)


def _of_chi_squared(statistics: Floats, freedom: Floats, wider: Floats) -> tuple[Floats, Floats]:
    """Return the limits of what a statistic of about chi-squared law is without chance.

    `wider`: Its variance, where that is large, as a multiple of the noncentral chi-squared's.
    """
    wider = np.maximum(np.nan_to_num(wider, nan=1.0, posinf=1.0), 1.0)
    low, high = noncentralities(statistics / wider / freedom, freedom, _AS_CHI_SQUARED)
    return wider * low, wider * high


def noncentralities(f: Floats, numerator: float | Floats, denominator: float | Floats) -> tuple[Floats, Floats]:
    """Return the limits of the noncentrality of F statistics: those of which `f` is the quantile of either tail.

    0 where the central distribution is already beyond; NaN and infinite values stay.
    """
    numerator = np.broadcast_to(np.asarray(numerator, dtype=np.float64), f.shape)
    denominator = np.broadcast_to(np.asarray(denominator, dtype=np.float64), f.shape)
    solvable = np.isfinite(f) & (f > 0) & np.isfinite(numerator) & np.isfinite(denominator)
    limits = []
    for tail in (1 - _tail(1), _tail(1)):
        limit = f.copy()
        limit[solvable] = _noncentrality(f[solvable], numerator[solvable], denominator[solvable], tail)
        limits.append(limit)
    return limits[0], limits[1]


def _noncentrality(f: Floats, numerator: Floats, denominator: Floats, tail: float) -> Floats:
    """Return the noncentrality at which the probability of smaller values is `tail`, by secants within a bracket."""

    def excess(roots: Floats, which: Any) -> Floats:
        below = _probability(f[which], numerator[which], denominator[which], roots**2)
        values: Floats = scipy.special.ndtri(below) - scipy.special.ndtri(tail)
        return values

    everywhere = np.full(f.size, True)
    low, at_low = np.zeros_like(f), excess(np.zeros_like(f), everywhere)
    explained = numerator * f
    # Beyond six standard deviations: of the statistic, and of the residuals that it is divided by.
    high = (np.sqrt(explained) + 6.0) * (1 + 6 / np.sqrt(2 * denominator)) + 6.0
    at_high = excess(high, everywhere)
    root = np.zeros_like(f)
    active = np.flatnonzero(at_low > 0)
    side = np.zeros(f.size, dtype=np.int64)
    for _ in range(_STEPS):
        a, b = low[active], high[active]
        above, below = at_low[active], at_high[active]
        with np.errstate(invalid="ignore"):
            secant = a + (b - a) * above / (above - below)
        # Where the tail has no digits left there is no secant.
        x = np.where(np.isfinite(secant), np.clip(secant, a, b), (a + b) / 2)
        value = excess(x, active)
        root[active] = x
        up = value > 0
        low[active], at_low[active] = np.where(up, x, a), np.where(up, value, above)
        high[active], at_high[active] = np.where(up, b, x), np.where(up, below, value)
        # An end that stays twice gets half its weight (Illinois), so that the other one moves too.
        again = side[active] == np.where(up, 1, -1)
        at_high[active] = np.where(again & up, at_high[active] / 2, at_high[active])
        at_low[active] = np.where(again & ~up, at_low[active] / 2, at_low[active])
        side[active] = np.where(up, 1, -1)
        active = active[(np.abs(value) > 1e-9) & (high[active] - low[active] > 1e-12 * high[active])]
        if not active.size:
            break
    return root**2


def _probability(f: Floats, numerator: Floats, denominator: Floats, noncentrality: Floats) -> Floats:
    """Return the distribution function of the noncentral F; by Severo and Zelen 1960 for large noncentralities."""
    out = np.empty_like(f)
    far = noncentrality > _NORMAL_FROM
    out[~far] = scipy.special.ncfdtr(numerator[~far], denominator[~far], noncentrality[~far], f[~far])
    m, total = numerator[far], numerator[far] + noncentrality[far]
    root = np.cbrt(m * f[far] / total)
    of_first, of_second = 2 * (total + noncentrality[far]) / (9 * total**2), 2 / (9 * denominator[far])
    out[far] = scipy.special.ndtr(((1 - of_second) * root - (1 - of_first)) / np.sqrt(of_first + of_second * root**2))
    return out
