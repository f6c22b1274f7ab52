"""Criteria of model choice: information criteria, and the exact validation error from moments."""

from __future__ import annotations

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_number


def aic(n: float, rss: float, k: float) -> float:
    """Return Akaike's criterion, ``n log(rss) + 2 k``; smaller is better.

    `n`: Number of rows; the effective number for weighted rows.
    `rss`: Mean squared residual, positive.
    `k`: Free coefficients, without the intercept.
    Source: Akaike 1974, without constants common to all models of the same data.
    """
    return n * _log(rss) + 2.0 * k


def bic(n: float, rss: float, k: float) -> float:
    """Return Schwarz's criterion, ``n log(rss) + k log(n)``; parameters as in `aic`. Source: Schwarz 1978."""
    return n * _log(rss) + k * float(np.log(n))


def ebic(n: float, rss: float, k: float, p: int, gamma: float = 0.5) -> float:
    """Return the extended BIC for many columns, ``n log(rss) + k log(n) + 2 gamma log C(p, k)``.

    `n`, `rss`, `k`: As in `aic`.
    `p`: Number of candidate columns.
    `gamma`: Between 0 (`bic`) and 1.
    Source: Chen and Chen 2008, eq. 1.

    Examples
    --------
    >>> ebic(100, 1.0, 0, 50) == bic(100, 1.0, 0) == 0.0
    True
    """
    require_number("gamma", gamma, least=0, most=1)
    require_number("k", k, least=0, most=p)
    from scipy.special import gammaln

    choices = gammaln(p + 1.0) - gammaln(k + 1.0) - gammaln(p - k + 1.0)
    return bic(n, rss, k) + 2.0 * gamma * float(choices)


def effective_size(correlation: Floats, shift: Floats) -> float:
    """Return ``tr S (S + D)^-1``, the degrees of freedom of a ridge fit; between 0 and the number of columns.

    `correlation` of shape (k, k): S.
    `shift` of shape (k,): The diagonal of D, positive.
    Cost: 2 k^3 / 3. Source: Zou 2005, eq. 3.5, of the elastic net given its columns.
    """
    from scipy.linalg.lapack import dpotrf, dtrtri

    if not shift.size:
        return 0.0
    factor = dpotrf(correlation + np.diag(shift), lower=1, clean=1)[0]
    inverse = dtrtri(factor, lower=1)[0]
    return float(shift.size - (inverse * inverse).sum(axis=0) @ shift)


def validation_error(
    coef: Floats,
    intercept: Floats | float,
    covariance: Floats,
    xy: Floats,
    yy: Floats,
    mean: Floats,
    y_mean: Floats,
) -> Floats:
    """Return the mean squared error of a linear model on validation rows, from their moments: one per target.

    Exact: ``mean (y - x'b - b0)^2 = (yy - 2 b'xy + b'C b) + (y_mean - mean'b - b0)^2``.

    `coef` of shape (k, q): Coefficients in original units.
    `intercept` of shape (q,): Intercepts.
    `covariance` of shape (k, k): Population covariance C of the columns on the validation rows.
    `xy` of shape (k, q): Their covariances with the targets.
    `yy` of shape (q, q): Covariance of the targets.
    `mean` of shape (k,): Means of the columns.
    `y_mean` of shape (q,): Means of the targets.
    Cost: k^2 q. Rounding is about eps times yy, so the error of a perfect fit is not exactly zero.
    """
    variance = yy.diagonal() + ((covariance @ coef - 2.0 * xy) * coef).sum(axis=0)
    bias = y_mean - mean @ coef - intercept
    out: Floats = np.maximum(variance, 0.0) + bias * bias
    return out


def _log(rss: float) -> float:
    if not rss > 0:
        raise BadParameter("the criterion of a perfect fit, with mean squared residual 0, is undefined")
    return float(np.log(rss))
