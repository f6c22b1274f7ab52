"""The G statistic of tables of counts whose rows and columns are independent: cumulants, and exact tails of 2x2."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from sketchselect._kernels import kernel
from sketchselect.linalg.validation import Floats

_LARGEST_VARIANCE = 2000.0**2
"""Variance of a cell up to which the tails are summed, each in at most some 17,000 terms."""
_TIE = 1e-12
"""Relative difference up to which two values of G are equal."""
_SMALLEST_TERM = 1e-17
_IN_SERIES = 16.0
"""Counts from which on four terms of Stirling's series are exact to rounding."""
_MANY_ROWS = 100.0
"""Expected rows of a cell from which on the terms of G are those of chi-squared, within a 600th."""
_TERMS = 241
"""Counts of a smaller cell that have a probability: 14 standard deviations above the largest expected count."""
_STEP = 1 / 32
"""Steps of the table of bin sizes above `_EACH`, in powers of two: linear between them within 1e-4 of a cell's mean."""
_EACH = 256


class Cumulants(NamedTuple):
    """Mean, variance and third central moment, of shape (n_features,)."""

    mean: Floats
    variance: Floats
    third: Floats


class _Cells(NamedTuple):
    """Moments of the terms of one class by the size of the bin, less their linear part, whose slope is `slope`.

    `square`, `cross`: Of the squared count and the rest, and of the count and the squared rest.
    """

    mean: Floats
    slope: Floats
    variance: Floats
    third: Floats
    square: Floats
    cross: Floats


def independence_cumulants(of_bins: Floats, of_classes: Floats) -> Cumulants:
    """Return the cumulants of the G statistic given the margins, if bins and classes are independent.

    G is the sum of ``f(k) = 2 (k log(k / e) - k + e)`` of all cells, whose counts k are hypergeometric with mean e.
    The mean, that of every f added up, is exact. For the others f is a linear part, ``k cov(f, k) / var(k)``, and a
    rest. The linear parts of all cells are a linear statistic of a permutation, whose variance is exact. The rests are
    taken as independent, each with the moments of its cell over ``w = (1 - share of bin) (1 - share of class)``, and
    over w squared for the third: with many rows in every cell that is the chi-squared distribution. The third moments
    of linear parts and rests together are those within each cell.

    Parameters
    ----------
    of_bins : array of shape (n_features, n_bins)
        Rows by bin; bins without rows do not count.
    of_classes : array of shape (n_classes,)
        Rows by class, at least one each.

    Notes
    -----
    Cost: for each class 241 terms for each size of a bin (few for many rows), and a look-up for each bin.
    Source: Koehler 1986 (moments of G in sparse tables), for cells given both margins in the place of Poisson cells.

    Examples
    --------
    >>> independence_cumulants(np.array([[1e6, 1e6, 1e6]]), np.array([1e6, 2e6])).mean.round(6)
    array([2.])
    """
    n = float(of_classes.sum())
    shares, class_shares = of_bins / n, of_classes / n
    sizes = _table_sizes(of_bins[of_bins > 0])
    right = np.searchsorted(sizes, of_bins).clip(min(1, sizes.size - 1), sizes.size - 1)
    left = np.maximum(right - 1, 0)
    weight = ((of_bins - sizes[left]) / np.maximum(sizes[right] - sizes[left], 1.0)).clip(0.0, 1.0)

    def of_each_bin(values: Floats) -> Floats:
        return np.where(of_bins > 0, values[left] + weight * (values[right] - values[left]), 0.0)

    cells = [_cells_of(n, sizes, size) for size in of_classes]
    mean, variance, third = (
        of_each_bin(np.sum(moments, axis=0)).sum(axis=1)
        for moments in zip(*((cell.mean, cell.variance, cell.third) for cell in cells), strict=True)
    )
    # Slopes less their means by bin and by class: what the margins fix has no variance.
    slopes = np.array([cell.slope for cell in cells])
    for cell, slope, share in zip(cells, slopes - class_shares @ slopes, class_shares, strict=True):
        if slope.any():
            of_bin = of_each_bin(slope)
            centred = np.where(of_bins > 0, of_bin - (shares * of_bin).sum(axis=1, keepdims=True), 0.0)
            variance += n**2 / (n - 1) * share * (shares * centred**2).sum(axis=1)
            third += n * share * (shares * centred**3).sum(axis=1)
            third += 3 * (centred * (centred * of_each_bin(cell.square) + of_each_bin(cell.cross))).sum(axis=1)
    return Cumulants(mean, variance, third)


def independence_tail(g: Floats, cumulants: Cumulants) -> tuple[Floats, Floats]:
    """Return `x` and `freedom` of which the tail of chi-squared is that of the G statistic: three cumulants are equal.

    The skewness is at least that of the gamma distribution of this mean and variance. Where one cell makes it large, it
    is at most 4, and further out 1.7 times the distance from the mean in standard deviations, at which the tail is
    heaviest. The standard deviation is at least a thousandth of the mean: rounding is no evidence where the margins
    leave nothing to chance.

    Examples
    --------
    >>> x, freedom = independence_tail(np.array([9.0]), Cumulants(np.array([4.0]), np.array([8.0]), np.array([32.0])))
    >>> x, freedom
    (array([9.]), array([4.]))
    """
    deviation = np.maximum(np.sqrt(cumulants.variance), 1e-3 * cumulants.mean)
    least = 2 * deviation / cumulants.mean
    distance = (g - cumulants.mean) / deviation
    skewness = np.maximum(np.minimum(cumulants.third / deviation**3, np.maximum(4.0, 1.7 * distance)), least)
    freedom = 8 / skewness**2
    x = np.maximum(freedom + distance * np.sqrt(2 * freedom), 0.0)
    return x, freedom


def _table_sizes(of_bins: Floats) -> Floats:
    """Return sizes of bins, ascending, that hold all of these between them: few, for many distinct ones."""
    sizes: Floats = np.unique(of_bins)
    if sizes.size > _EACH:
        low, high = max(float(sizes[0]), _EACH), float(sizes[-1])
        steps = np.ceil(low * 2.0 ** np.arange(0.0, max(np.log2(high / low), 0.0) + _STEP, _STEP))
        sizes = np.union1d(sizes[sizes <= _EACH], steps)
    return sizes


def _cells_of(n: float, of_bins: Floats, of_class: float) -> _Cells:
    """Return the moments of the cells of a class with bins of these sizes; the higher ones divided as G needs them."""
    expected = of_bins * of_class / n
    w = (1 - of_bins / n) * (1 - of_class / n)
    mean, slope, variance, third = w.copy(), np.zeros_like(w), 2 * w, 8 * w
    square, cross = np.zeros_like(w), np.zeros_like(w)
    few = np.flatnonzero((expected < _MANY_ROWS) & (w > 0))
    a, e = of_bins[few, None], expected[few, None]
    low = np.maximum(a + of_class - n, 0.0)
    k: NDArray[np.float64] = low + np.arange(_TERMS)
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = (a - k) * (of_class - k) / ((k + 1) * (n - a - of_class + k + 1))
        # Probabilities over that of the first count.
        log = np.cumsum(np.log(np.where(k < np.minimum(a, of_class), odds, 0.0)), axis=1)[:, :-1]
    log = np.hstack([np.zeros((few.size, 1)), log])
    p = np.exp(log - log.max(axis=1, keepdims=True, initial=-np.inf))
    p /= p.sum(axis=1, keepdims=True)
    f = 2 * (scipy.special.xlogy(k, k / e) - k + e)

    def average(values: Floats) -> Floats:
        of_cells: Floats = (p * values).sum(axis=1)
        return of_cells

    mean[few] = average(f)
    f, k = f - mean[few, None], k - average(k)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        slope[few] = np.nan_to_num(average(f * k) / average(k**2))
    rest = f - slope[few, None] * k
    variance[few], third[few] = average(rest**2) / w[few], average(rest**3) / w[few] ** 2
    square[few], cross[few] = average(k**2 * rest) / w[few] ** 2, average(k * rest**2) / w[few] ** 2
    return _Cells(mean, slope, variance, third, square, cross)


@kernel()
def _rest_of_factorial(x):  # type: ignore[no-untyped-def]
    """Return ``log(x!) - x log(x) + x``."""
    if x == 0.0:
        return 0.0
    if x < _IN_SERIES:
        return math.lgamma(x + 1.0) - x * math.log(x) + x
    square = x * x
    return 0.5 * math.log(2 * math.pi * x) + (1 - (1 / 30 - (1 / 105 - 1 / (140 * square)) / square) / square) / (
        12 * x
    )


@kernel()
def _deviance(x, e, difference):  # type: ignore[no-untyped-def]
    """Return ``x log(x / e) - x + e`` for ``x = e + difference``."""
    if x == 0.0:
        return e
    if abs(difference) >= 0.1 * (x + e):
        return x * math.log(x / e) - difference
    v = difference / (x + e)
    total, term, i = difference * v, 2 * x * v, 1
    while True:
        term *= v * v
        i += 2
        before = total
        total += term / i
        if total == before:
            return total


@kernel()
def _half_g(k, of_bin, of_class, n):  # type: ignore[no-untyped-def]
    difference = (k * n - of_bin * of_class) / n
    other_bin, other_class = n - of_bin, n - of_class
    return (
        _deviance(k, of_bin * of_class / n, difference)
        + _deviance(of_bin - k, of_bin * other_class / n, -difference)
        + _deviance(of_class - k, other_bin * of_class / n, -difference)
        + _deviance(other_bin - of_class + k, other_bin * other_class / n, difference)
    )


@kernel()
def _log_tail(k, step, of_bin, of_class, n):  # type: ignore[no-untyped-def]
    """Return the logarithm of the probability of count `k` and those beyond, by steps of 1 or -1."""
    rest = n - of_bin - of_class
    log = -_half_g(k, of_bin, of_class, n) - _rest_of_factorial(n)
    for margin in (of_bin, n - of_bin, of_class, n - of_class):
        log += _rest_of_factorial(margin)
    for cell in (k, of_bin - k, of_class - k, rest + k):
        log -= _rest_of_factorial(cell)
    total, term = 0.0, 1.0
    while term > _SMALLEST_TERM * total:
        total += term
        if step > 0:
            term *= (of_bin - k) * (of_class - k) / ((k + 1.0) * (rest + k + 1.0))
        else:
            term *= k * (rest + k) / ((of_bin - k + 1.0) * (of_class - k + 1.0))
        k += step
    return log + math.log(total)


@kernel()
def _fill(counts, of_bins, of_classes, n, out):  # type: ignore[no-untyped-def]
    for j in range(counts.shape[0]):
        k, b, c = counts[j], of_bins[j], of_classes[j]
        # The cell of the smaller margins, whose counts begin at 0.
        if 2 * b > n:
            k, b = c - k, n - b
        if 2 * c > n:
            k, c = b - k, n - c
        if k * n == b * c:
            out[j] = 0.0
            continue
        step = 1.0 if k * n > b * c else -1.0
        out[j] = _log_tail(k, step, b, c, n)
        # G grows to both sides of the expected count: from the nearest count on the other side to the furthest.
        least = _half_g(k, b, c, n) * (1 - _TIE)
        near, end = (math.floor(b * c / n), 0.0) if step > 0 else (math.ceil(b * c / n), min(b, c))
        if _half_g(end, b, c, n) < least:
            continue
        while near != end:
            middle = near - step * math.floor(abs(near - end) / 2)
            if _half_g(middle, b, c, n) >= least:
                end = middle
            else:
                near = middle - step
        other = _log_tail(end, -step, b, c, n)
        larger = max(out[j], other)
        out[j] = min(larger + math.log1p(math.exp(min(out[j], other) - larger)), 0.0)


def fourfold_log_tail(counts: NDArray[np.int64], of_bins: Floats, of_classes: Floats, n: float) -> Floats:
    """Return the logarithm of the probability that a table of these margins has a G statistic at least as large.

    Exact to rounding for columns and classes that are independent, given how many rows each has. NaN where the variance
    of a cell is above 4,000,000 (64 million rows in halves): there the chi-squared distribution of one degree of
    freedom is within some parts in a thousand.

    Parameters
    ----------
    counts, of_bins, of_classes : arrays of shape (n_features,)
        Rows of one cell of each table, of its bin and of its class.
    n : float
        Rows.

    Notes
    -----
    Tables of equal G, within 1e-12, count as such. The probability of a table is ``exp(-G / 2)`` times what Stirling's
    formula leaves out of its factorials, which keeps its digits (Loader 2000); those of the next tables are multiples.
    Cost: at most ``17 sqrt(variance of a cell)`` terms a column.
    Source: Fisher 1935, with tables in the order of G in place of that of their probabilities.

    Examples
    --------
    >>> np.exp(fourfold_log_tail(np.array([4]), np.array([4.0]), np.array([4.0]), 8.0)) * 70
    array([2.])
    """
    log = np.full(counts.shape, np.nan)
    variance = of_bins * (1 - of_bins / n) * of_classes * (1 - of_classes / n) / n
    summed = variance <= _LARGEST_VARIANCE
    tails = np.empty(np.count_nonzero(summed))
    _fill(counts[summed].astype(np.float64), of_bins[summed], of_classes[summed], float(n), tails)
    log[summed] = tails
    return log
