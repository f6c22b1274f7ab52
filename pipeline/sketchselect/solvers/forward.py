"""Forward selection: columns added one at a time, each the one that lowers the residual most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketchselect.solvers.linear import least_squares
from sketchselect.solvers.problem import Problem
from sketchselect.solvers.ranking import Fit, check_count

# Least variance of a column (of 1) after regression on the columns before it.
_DEPENDENT = 1e-10
_TIE = 1e-10


def forward_selection(problem: Problem, n_select: int) -> Fit:
    """Return columns selected greedily, each the one that lowers the mean squared residual of the refit most.

    The score of a selected column is the share of the targets' variance that it explained when it entered, summed over
    targets; of columns that explain equal shares the lowest index enters. Columns that depend linearly on those before
    them enter last, with score zero.

    Parameters
    ----------
    problem : Problem
        The moments.
    n_select : int
        Number of columns.

    Raises
    ------
    BadParameter
        If `n_select` is not between 1 and p.

    Notes
    -----
    Cost: p k^2 (a pivoted partial Cholesky factorisation); p k numbers. Source: Efroymson 1960; as orthogonal least
    squares, Chen, Billings and Luo 1989.
    """
    n_select = check_count(problem, n_select)
    p = problem.n_features
    spread = np.sqrt(problem.yy.diagonal())
    residual = problem.xy / np.where(spread > 0, spread, 1.0)
    left = np.where(problem.active, 1.0, 0.0)
    factor = np.empty((n_select, p))
    scores = np.zeros(p)
    chosen: list[int] = []
    free = problem.active.copy()
    for step in range(n_select):
        free &= left > _DEPENDENT
        if not free.any():
            break
        gain = np.where(free, (residual * residual).sum(axis=1) / np.where(free, left, 1.0), -1.0)
        j = int(np.flatnonzero(gain >= gain.max() * (1.0 - _TIE))[0])
        row = (problem.correlation[j] - factor[:step, j] @ factor[:step]) / np.sqrt(left[j])
        scores[j] = gain[j]
        chosen.append(j)
        residual = residual - np.outer(row, residual[j] / np.sqrt(left[j]))
        left = left - row * row
        free[j] = False
        factor[step] = row
    support = _completed(np.array(chosen, dtype=np.int64), n_select, problem)
    return Fit(support, scores, least_squares(problem, support))


def _completed(chosen: NDArray[np.int64], n_select: int, problem: Problem) -> NDArray[np.int64]:
    """Return the chosen columns, completed by the lowest others, those that vary first."""
    others = np.setdiff1d(np.arange(problem.n_features), chosen)
    others = others[np.argsort(~problem.active[others], kind="stable")]
    return np.sort(np.concatenate([chosen, others[: n_select - chosen.size]])).astype(np.int64)
