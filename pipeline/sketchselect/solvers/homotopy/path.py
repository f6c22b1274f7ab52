"""The exact lasso path by homotopy: all breakpoints, from the Gram matrix."""

from __future__ import annotations

import warnings

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.validation import require_number, require_positive
from sketchselect.solvers.gap import duality_gap
from sketchselect.solvers.homotopy.state import HomotopyState
from sketchselect.solvers.path import Path, PathBuilder
from sketchselect.solvers.problem import Problem


def homotopy_path(
    problem: Problem, max_features: int | None = None, l2: float = 0.0, target: int = 0, tol: float = 1e-10
) -> Path:
    """Return the breakpoints of the minimisers of ``f(b) + alpha ||b||_1 + (l2 / 2) ||b||^2``, alpha descending.

    Between two breakpoints the minimiser is linear in alpha. The last model has exactly `max_features` columns (just
    before the next one enters), or fewer if several columns enter at the same alpha or all others depend linearly on
    those inside. Without a limit it is the model of alpha = 0.

    For columns that enter at the same alpha the directions are computed by non-negative least squares, starting with
    the lowest index; a column equal to one inside never enters.

    Parameters
    ----------
    problem : Problem
        The moments.
    max_features : int, optional
        Number of columns of the last model; default all.
    l2 : float
        A fixed ridge penalty (elastic net), at least 0.
    target : int
        Index of the target.
    tol : float
        Largest duality gap, relative to the variance of the target, of a model that counts as converged.

    Raises
    ------
    BadParameter
        If a parameter is outside its range.

    Warns
    -----
    RuntimeWarning
        If the path ended early because of rounding, or a model did not reach `tol`.

    Notes
    -----
    Cost: a breakpoint with k columns inside takes 4 p k + 2 k^2. Memory beyond the problem: k^2 numbers.
    Source: Osborne, Presnell and Turlach 2000; Efron, Hastie, Johnstone and Tibshirani 2004 (the lasso modification);
    for ties Tibshirani 2013, section 3, with the active sets of Lawson and Hanson 1974, chapter 23.

    Examples
    --------
    >>> from sketchselect.solvers import standardize
    >>> problem = standardize(np.eye(2), [3.0, 1.0], 10.0, mean=[0, 0], y_mean=0, n=100)
    >>> path = homotopy_path(problem, max_features=1)
    >>> path.alphas.round(12).tolist(), path.coef(-1).round(12).tolist()
    ([3.0, 1.0], [2.0, 0.0])
    """
    if not 0 <= target < problem.n_targets:
        raise BadParameter(f"target {target} does not exist: there are {problem.n_targets}, counted from 0")
    l2 = require_number("l2", l2, least=0)
    most = problem.n_features if max_features is None else require_positive("max_features", max_features)
    unit = float(np.sqrt(problem.yy[target, target])) or 1.0
    xy = problem.xy[:, target] / unit
    total = float(problem.yy[target, target] / unit / unit)
    state = HomotopyState(problem.correlation, xy, problem.active, l2)
    out = PathBuilder(problem.n_features)
    limit = 20 * problem.n_features + 100
    for n_breaks in range(limit):
        columns, values = state.solution()
        if columns.size > most:
            break
        residual = state.residual()
        size = np.abs(values)
        rss = max(total - float(values @ (xy[columns] + residual[columns])), 0.0)
        norms = np.where(problem.active, np.abs(residual), 0.0)
        norms[columns] -= l2 * size
        level = np.full(norms.size, state.alpha)
        explained, quadratic = float(values @ xy[columns]), l2 * float(size @ size)
        gap = duality_gap(rss, total, explained, quadratic, state.alpha * float(size.sum()), norms, level)
        out.add(state.alpha * unit, columns, values * unit, rss * unit * unit, gap, gap <= tol, n_breaks)
        if state.alpha <= 0.0:
            break
        state.enter()
        if columns.size == most and state.size > most:
            break
        state.advance()
    else:
        warnings.warn(
            f"the path ended after {limit} breakpoints, from rounding; set l2 above 0",
            RuntimeWarning,
            stacklevel=2,
        )
    return out.build(tol)
