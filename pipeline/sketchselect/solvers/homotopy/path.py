"""The exact lasso path: every strength at which a column enters or leaves, from the Gram matrix."""

from __future__ import annotations

import warnings

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.solvers.gap import duality_gap
from sketchselect.solvers.homotopy.state import HomotopyState
from sketchselect.solvers.path import Path, PathBuilder
from sketchselect.solvers.problem import Problem


def homotopy_path(problem: Problem, max_features: int | None = None, l2: float = 0.0, target: int = 0) -> Path:
    """Return the breakpoints of the minimisers of ``f(b) + alpha ||b||_1 + (l2 / 2) ||b||^2``, alpha descending.

    Between two breakpoints the minimiser is linear in alpha. The last model has exactly `max_features` columns (just
    before the next one enters), or as many as can be told apart: fewer where several columns enter at the same alpha,
    or where all others depend linearly on those inside. Without a limit it is the one of alpha = 0.

    Of columns that enter at the same alpha the directions are found by non-negative least squares, starting with the
    lowest index; a column that equals one inside never enters.

    Parameters
    ----------
    problem : Problem
        The moments.
    max_features : int, optional
        Number of columns to stop at; default all.
    l2 : float
        A fixed ridge part (the elastic net with this one), at least 0.
    target : int
        Which target.

    Raises
    ------
    BadParameter
        If a parameter is outside its range.

    Warns
    -----
    RuntimeWarning
        If rounding kept the path from going on.

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
        raise BadParameter(f"there is no target {target}: there are {problem.n_targets}, counted from 0")
    if not (np.isfinite(l2) and l2 >= 0):
        raise BadParameter(f"l2 must be a number not below zero, got {l2}")
    most = problem.n_features if max_features is None else max_features
    if isinstance(most, bool) or not isinstance(most, (int, np.integer)) or most < 1:
        raise BadParameter(f"max_features must be a positive integer, got {max_features!r}")
    unit = float(np.sqrt(problem.yy[target, target])) or 1.0
    xy = problem.xy[:, target] / unit
    total = float(problem.yy[target, target] / unit / unit)
    state = HomotopyState(problem.correlation, xy, problem.active, float(l2))
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
        out.add(state.alpha * unit, columns, values * unit, rss * unit * unit, gap, n_breaks)
        if state.alpha <= 0.0:
            break
        state.enter()
        if columns.size == most and state.size > most:
            break
        state.advance()
    else:
        warnings.warn(f"the path was left after {limit} breakpoints; add an l2 part", RuntimeWarning, stacklevel=2)
    return out.build()
