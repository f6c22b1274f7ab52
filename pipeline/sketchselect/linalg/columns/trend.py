"""Trend of the variance of counts with their mean: a smooth curve on logarithmic axes."""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.columns.loess import loess


def mean_variance_trend(means: Floats, variances: Floats, trend: str, span: float) -> Floats:
    """Return the variance of the trend at each mean: a fit of log10(variance) on log10(mean).

    `means`, `variances` of shape (m,): Positive.
    `trend`: "loess", a local regression of degree 2, or "quadratic", one parabola by least squares.
    `span`: Share of the points in each local regression.
    """
    if means.size == 0:
        return np.zeros(0)
    x, y = np.log10(means), np.log10(variances)
    fitted = loess(x, y, span) if trend == "loess" else _parabola(x, y)
    return np.asarray(10.0**fitted)


def _parabola(x: Floats, y: Floats) -> Floats:
    center = x - x.mean()
    design = np.stack([np.ones(x.size), center, center * center], axis=1)
    # The least-norm solution is defined for one or two points too.
    coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
    return np.asarray(design @ coefficients)
