"""Trend of the variance of counts with their mean: a smooth curve on logarithmic axes."""

from __future__ import annotations

import numpy as np

from sketchselect.errors import BadParameter, ConfigError
from sketchselect.linalg.arrays import Floats


def mean_variance_trend(means: Floats, variances: Floats, trend: str, span: float) -> Floats:
    """Return the variance of the trend at each mean: a fit of log10(variance) on log10(mean).

    `means`, `variances` of shape (m,): Positive.
    `trend`, "loess" or "quadratic": Local regression of degree 2, or one parabola by least squares.
    `span`: Share of the points in each local regression.
    Raises `ConfigError` for loess without its library (scikit-misc) installed; `BadParameter` if there are too few
    points for loess.
    """
    if means.size == 0:
        return np.zeros(0)
    x, y = np.log10(means), np.log10(variances)
    fitted = _loess(x, y, span) if trend == "loess" else _parabola(x, y)
    return np.asarray(10.0**fitted)


def _loess(x: Floats, y: Floats, span: float) -> Floats:
    try:
        from skmisc.loess import loess
    except ImportError:
        raise ConfigError(
            'the loess trend needs scikit-misc: pip install "sketchselect[anndata]", or use trend="quadratic"'
        ) from None
    try:
        model = loess(x, y, span=span, degree=2)
        model.fit()
        fitted = np.array(model.outputs.fitted_values, dtype=np.float64)
    except ValueError:
        fitted = np.full(x.size, np.nan)
    if not np.isfinite(fitted).all():
        raise BadParameter(
            f"loess with span={span:g} cannot be fitted to the means and variances of {x.size} columns that are not "
            'constant; raise span, or use trend="quadratic"'
        )
    return fitted


def _parabola(x: Floats, y: Floats) -> Floats:
    center = x - x.mean()
    design = np.stack([np.ones(x.size), center, center * center], axis=1)
    # The least-norm solution is defined for one or two points too.
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
    return np.asarray(design @ coefficients)
