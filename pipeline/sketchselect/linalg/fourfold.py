"""The exact tail of the G statistic of tables of two by two: hypergeometric, given the margins."""

from __future__ import annotations

import math

import numpy as np
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
