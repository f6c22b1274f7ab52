"""What speaks for a model: information criteria, and the exact error on rows that it has not seen."""

from __future__ import annotations

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats


def aic(n: float, rss: float, k: float) -> float:
    """Return Akaike's criterion, ``n log(rss) + 2 k``; smaller is better.

    Parameters
    ----------
    n : float
        Rows, the effective number where they have weights.
    rss : float
        Mean squared residual, positive.
    k : float
        Free coefficients, without the intercept.

    Notes
    -----
    Source: Akaike 1974, without constants that all models of the same data share.
    """
    return n * _log(rss) + 2.0 * k


def bic(n: float, rss: float, k: float) -> float:
    """Return Schwarz's criterion, ``n log(rss) + k log(n)``; parameters as in `aic`. Source: Schwarz 1978."""
    return n * _log(rss) + k * float(np.log(n))


def ebic(n: float, rss: float, k: float, p: int, gamma: float = 0.5) -> float:
    """Return the extended BIC, ``n log(rss) + k log(n) + 2 gamma log C(p, k)``: for many columns.

    Parameters
    ----------
    n, rss, k
        As in `aic`.
    p : int
        Columns there were to choose from.
    gamma : float
        Between 0 (`bic`) and 1.

    Notes
    -----
    Source: Chen and Chen 2008, eq. 1.

    Examples
    --------
    >>> ebic(100, 1.0, 0, 50) == bic(100, 1.0, 0) == 0.0
    True
    """
    if not 0 <= gamma <= 1:
        raise BadParameter(f"gamma must be between 0 and 1, got {gamma}")
    if not 0 <= k <= p:
        raise BadParameter(f"k must be between 0 and the {p} columns, got {k}")
    from scipy.special import gammaln

    choices = gammaln(p + 1.0) - gammaln(k + 1.0) - gammaln(p - k + 1.0)
    return bic(n, rss, k) + 2.0 * gamma * float(choices)


def validation_error(
    coef: Floats,
    intercept: Floats | float,
    covariance: Floats,
    xy: Floats,
    yy: Floats,
    mean: Floats,
    y_mean: Floats,
) -> Floats:
    """Return the mean squared error of a linear model on held-out rows, from their moments: one per target.

    Exact: ``mean (y - x'b - b0)^2 = (yy - 2 b'xy + b'C b) + (y_mean - mean'b - b0)^2``.

    Parameters
    ----------
    coef : array of shape (k, q)
        Coefficients in original units.
    intercept : float or array of shape (q,)
        Intercepts.
    covariance : array of shape (k, k)
        Population covariance C of the held-out rows' columns.
    xy : array of shape (k, q)
        Their covariances with the targets.
    yy : array of shape (q, q)
        Covariance of the held-out targets.
    mean : array of shape (k,)
        Means of the held-out columns.
    y_mean : array of shape (q,)
        Means of the held-out targets.

    Notes
    -----
    Cost: k^2 q. Rounding: of the size of eps times yy, so the error of a perfect fit is not exactly zero.
    """
    variance = yy.diagonal() + ((covariance @ coef - 2.0 * xy) * coef).sum(axis=0)
    bias = y_mean - mean @ coef - intercept
    out: Floats = np.maximum(variance, 0.0) + bias * bias
    return out


def _log(rss: float) -> float:
    if not rss > 0:
        raise BadParameter("the mean squared residual must be positive: a perfect fit has no criterion")
    return float(np.log(rss))
