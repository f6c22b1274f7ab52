"""Linear discriminant of a regression on class indicators, which makes it a classifier."""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.selectors.supervised.model_path import Candidate
from sketchselect.solvers import Problem

_LEAST_SPREAD = 1e-12


def class_statistics(problem: Problem, n_classes: int) -> tuple[Floats, Floats]:
    """Return ``(priors, differences)``: class frequencies and class means minus the overall mean, standardised columns.

    Follows from the regression's own moments: with an indicator z_k of class k, ``cov(x, z_k) = prior_k (mean_k -
    mean)``; one target of +-1 stands for the indicators ``(1 -+ y) / 2``.

    `problem`: With one target per class, or one of +-1 for two classes (the second is +1).

    Returns
    -------
    priors : array of shape (n_classes,)
    differences : array of shape (p, n_classes)
        Zero for a class without rows.
    """
    if problem.xy.shape[1] == 1 and n_classes == 2:
        positive = float(np.clip((1.0 + problem.y_mean[0]) / 2.0, 0.0, 1.0))
        priors = np.array([1.0 - positive, positive])
        covariance = np.hstack([-problem.xy, problem.xy]) / 2.0
    else:
        priors = np.clip(problem.y_mean, 0.0, 1.0)
        covariance = problem.xy
    present = priors > 0
    return priors, np.where(present, covariance / np.where(present, priors, 1.0), 0.0)


def discriminant(problem: Problem, model: Candidate, n_classes: int) -> tuple[Floats, Floats]:
    """Return coefficients and intercepts of the log posterior odds of a selected model.

    The regression's scores ``t = B'x`` have class means m_k and a common covariance V within the classes, both known
    from the moments; the discriminant is ``log prior_k + t'V^-1 m_k - m_k'V^-1 m_k / 2``. For a model that is the
    least-squares fit of its support this equals linear discriminant analysis of the selected columns; for a shrunken
    one it keeps the direction and sets slope and threshold right, which the regression's own intercept does not do
    unless the classes are equally frequent.

    `problem`: The standardised problem with class targets.
    `model`: The selected model.

    Returns
    -------
    coef : array of shape (k, n_outputs)
        In original units, for the columns of the support; n_outputs is 1 (the odds of the second class) for two
        classes, else n_classes.
    intercept : array of shape (n_outputs,)
        Minus infinity for a class without rows, which is never predicted.

    Notes
    -----
    Source: Hastie, Tibshirani and Friedman, Elements of Statistical Learning, sections 4.3 and 12.5 (optimal scoring).
    """
    priors, differences = class_statistics(problem, n_classes)
    s, b = model.support, model.coef
    d = differences[s]
    correlation = problem.correlation[np.ix_(s, s)]
    means = b.T @ d
    total = b.T @ correlation @ b
    within = total - (means * priors) @ means.T
    # Classes that the scores separate without error would have infinite odds: their spread is set to 1e-6 sd.
    spread = max(float(np.trace(total)), np.finfo(np.float64).tiny)
    squares, axes = np.linalg.eigh((within + within.T) / 2.0)
    squares = np.maximum(squares, _LEAST_SPREAD * spread)
    # Along the axes: a full inverse would drown the others in the rounding of the smallest one.
    along = axes.T @ means
    slopes = (b @ axes) @ (along / squares[:, None])
    with np.errstate(divide="ignore"):
        offsets = np.log(priors) - 0.5 * (along * along / squares[:, None]).sum(axis=0)
    if n_classes == 2:
        slopes, offsets = slopes[:, 1:] - slopes[:, :1], offsets[1:] - offsets[:1]
    coef: Floats = slopes / problem.scale[s, None]
    intercept: Floats = offsets - problem.mean[s] @ coef
    return coef, intercept
