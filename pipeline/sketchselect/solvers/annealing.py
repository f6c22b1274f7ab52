"""Feature selection with annealing: gradient descent in which the weakest columns are dropped on a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.validation import Floats, require_number, require_positive
from sketchselect.solvers.linear import (
    LeadingEigenvalue,
    ShrinkingSubmatrix,
    blas_threads,
    fold_copies,
    leading_eigenvalue,
    least_squares,
    shifted_solve,
    updated_eigenvalue,
)
from sketchselect.solvers.path import Fit, check_count, scaled_row_norms, strongest
from sketchselect.solvers.problem import Problem

_JITTER = 1e-8
_TINY = float(np.finfo(np.float64).tiny)
_GRADIENT_STEPS, _NEWTON_STEPS = 500, 40
MOST_STEPS = 1_000_000
# Longer steps find more of strong signals; shorter ones, which regularise more, find more of weak ones. Below some 1000
# columns of correlation 1/2 no step changes by this: there the plain step finds all of one and most of the other.
_CONDITION = 500.0
_LENGTH = 1.9  # Of a step, in units of 1 / lambda_max
_ACCURACY = 0.02  # With an eigenvalue too small by twice this share such a step does not diverge


def schedule(n_features: int, n_select: int, n_iter: int, mu: float = 1.0) -> NDArray[np.int64]:
    """Return the number of columns after each iteration: ``k + (p - k) max(0, (N - 2e) / (2 e mu + N))``.

    For e = 1..N; it decreases from below p to k, which it reaches at e = N / 2.
    Source: Barbu, She, Ding and Gramajo 2017, eq. 4.

    Examples
    --------
    >>> schedule(100, 10, 8).tolist()
    [64, 40, 22, 10, 10, 10, 10, 10]
    """
    e = np.arange(1, n_iter + 1)
    sizes = n_select + (n_features - n_select) * np.maximum(0.0, (n_iter - 2.0 * e) / (2.0 * e * mu + n_iter))
    out: NDArray[np.int64] = np.maximum(np.floor(sizes), n_select).astype(np.int64)
    return out


def anneal(problem: Problem, n_select: int, *, n_iter: int | None = None, mu: float = 1.0, newton: bool = False) -> Fit:
    """Return the columns that remain after gradient descent on f with dropped columns, and the refit on them.

    The step is ``1.9 / lambda_max`` of the correlations of the remaining columns, recomputed after every drop, because
    the step for all columns would be too short for the last ones. If a factor common to the columns makes lambda_max
    more than 500 times the second eigenvalue, the step is that long along the first eigenvector alone, and
    ``1.9 / (500 lambda_2)`` in all other directions; and then columns left out that correlate with the residual beyond
    chance are exchanged for weaker ones, as long as the residual falls. With several targets the weight of a column is
    the norm of its coefficients. Of equal columns the lowest index remains.

    Parameters
    ----------
    problem : Problem
        The moments.
    n_select : int
        Number of columns.
    n_iter : int, optional
        Iterations N; default 500, with `newton` 40. Columns are dropped in the first half of them.
    mu : float
        How early columns are dropped; larger is earlier.
    newton : bool
        Solve the least-squares problem of the remaining columns instead of a gradient step: faster, better for strong
        signals and collinear columns, worse for weak signals.

    Raises
    ------
    BadParameter
        If a parameter is outside its range.

    Notes
    -----
    Cost: about one sweep over the matrix of the remaining columns per iteration, a second one if its largest eigenvalue
    is not well separated; with `newton` one Cholesky factorisation of it.
    Source: Sun, Guo and Barbu 2019, Algorithm 2 (OFSA); Barbu et al. 2017.
    """
    n_select = check_count(problem, n_select)
    n_iter = _n_iter(n_iter, newton)
    mu = require_number("mu", mu, least=0)

    active = np.flatnonzero(problem.active)
    size = min(n_select, active.size)
    steps = schedule(active.size, size, n_iter, mu)
    remaining, coef = _models(problem, active, steps, newton, [size])[size]
    scores = np.zeros(problem.n_features)
    scores[remaining] = scaled_row_norms(coef)
    # With fewer columns that vary, constant columns complete the selection.
    others = np.setdiff1d(np.arange(problem.n_features), remaining)[: n_select - remaining.size]
    support = np.sort(np.concatenate([remaining, others])).astype(np.int64)
    return Fit(support, scores, least_squares(problem, support))


def anneal_path(
    problem: Problem, sizes: Sequence[int], *, n_iter: int | None = None, mu: float = 1.0, newton: bool = False
) -> list[Fit]:
    """Return a model of each of these numbers of columns, from one descent that drops columns down to the smallest.

    The descent takes twice the steps of `anneal`, so that a model of up to a third of the columns (with mu = 1) has had
    at least as many steps as in a descent of its own. Supports are nested, unless columns are exchanged.

    `sizes`: Each from 1 to the number of columns that vary.
    `n_iter`, `mu`, `newton`: As in `anneal`.
    Cost: that of one `anneal`, and a least-squares fit of each size.
    """
    active = np.flatnonzero(problem.active)
    n_iter = 2 * _n_iter(n_iter, newton)
    steps = schedule(active.size, min(sizes), n_iter, mu)[: n_iter // 2 + 1]
    models = _models(problem, active, steps, newton, sizes)
    out = []
    for remaining, coef in (models[size] for size in sizes):
        scores = np.zeros(problem.n_features)
        scores[remaining] = scaled_row_norms(coef)
        out.append(Fit(np.sort(remaining).astype(np.int64), scores, least_squares(problem, remaining)))
    return out


def _n_iter(n_iter: int | None, newton: bool) -> int:
    default = _NEWTON_STEPS if newton else _GRADIENT_STEPS
    return default if n_iter is None else require_positive("n_iter", n_iter, most=MOST_STEPS)


def _models(
    problem: Problem, active: Any, steps: Any, newton: bool, sizes: Sequence[int]
) -> dict[int, tuple[Any, Floats]]:
    """Return the columns and coefficients of these sizes, from a descent with these numbers after its steps."""
    models: dict[int, tuple[Any, Floats]] = {0: (active[:0], np.zeros((0, problem.n_targets)))}
    if not active.size:
        return models
    with blas_threads(active.size):
        if newton:
            _newton(problem, active, steps, sizes, models)
        elif _gradient(problem, active, steps, sizes, models):
            for size, (columns, coef) in models.items():
                if 0 < size < problem.n - 1:
                    models[size] = _exchanged(problem, active, columns, coef)
    return models


def _record(models: Any, sizes: Sequence[int], size: int, alive: Any, coef: Floats) -> None:
    """Add the models of more than `size` of the remaining columns, those of largest coefficients."""
    for most in sizes:
        if size < most <= alive.size:
            keep = strongest(scaled_row_norms(coef), most)
            models[most] = alive[keep], coef[keep]


def _gradient(problem: Problem, columns: Any, steps: Any, sizes: Sequence[int], models: Any) -> bool:
    """Add models of these sizes by gradient steps; return whether one factor dominates the columns."""
    right, unit = _scaled_targets(problem)
    # One row per target: the product takes rows.
    right = np.ascontiguousarray(right[columns].T)
    coef = np.zeros(right.shape)
    alive = columns
    block = ShrinkingSubmatrix(problem.correlation, columns)
    largest, guess = leading_eigenvalue(block, _ACCURACY), None
    has_factor = largest.value > _CONDITION * largest.second
    for size in steps:
        if guess is None:
            image = block.times(coef)
        else:
            # One sweep over the matrix gives the gradient and the eigenvalue.
            image = block.times(np.vstack([coef, guess]))
            largest = updated_eigenvalue(largest, guess, image[-1], _ACCURACY) or leading_eigenvalue(
                block, _ACCURACY, guess
            )
            image, guess = image[:-1], None
        coef += _step(right - image, largest)
        if size < alive.size:
            _record(models, sizes, size, alive, coef.T * unit)
            keep = strongest(scaled_row_norms(coef.T), int(size))
            block.keep(keep)
            alive, coef, right, guess = alive[keep], coef[:, keep], right[:, keep], largest.vector[keep]
            guess = guess / max(float(np.linalg.norm(guess)), _TINY)
    _record(models, sizes, 0, alive, np.ascontiguousarray(coef.T) * unit)
    return has_factor


def _step(descent: Floats, largest: LeadingEigenvalue) -> Floats:
    """Return the step for a direction of descent, given as rows, one per target.

    With v the first eigenvector the preconditioner is ``short v v' + long (I - v v')``; its product with the
    correlations has no eigenvalue above ``short lambda_1 + long lambda_2 < 2``.
    """
    long = _LENGTH / (_CONDITION * largest.second)
    if long * largest.value <= _LENGTH:
        return min(_LENGTH / largest.value, 2.0 / largest.bound) * descent
    short = min(_LENGTH / largest.value, (2.0 - 2.0 * _LENGTH / _CONDITION) / largest.bound)
    return long * descent + np.outer((short - long) * (descent @ largest.vector), largest.vector)


def _exchanged(problem: Problem, active: Any, columns: Any, coef: Floats) -> tuple[Any, Floats]:
    """Return the columns and their coefficients after exchanges with columns that explain the residual beyond chance.

    The steps stop long before least squares, and can lose a column of a strong signal. Of p columns of noise at most
    one is expected to lower the squared residual, in units of its variance, by more than the limit (Laurent and Massart
    2000, Lemma 1). At most as many columns as are selected enter at a time.
    """
    q, x = problem.n_targets, np.log(active.size)
    limit = q + 2.0 * np.sqrt(q * x) + 2.0 * x
    fit = least_squares(problem, columns)
    losses = problem.rss(fit)
    while True:
        variances = np.maximum(losses / (problem.n - columns.size - 1), _TINY)
        squares = ((problem.xy - problem.correlation @ fit) ** 2 / variances).sum(axis=1)
        squares[columns] = 0.0
        others = active[np.argsort(-squares[active], kind="stable")[: columns.size]]
        # The part of each column that the chosen ones do not explain.
        block = problem.correlation[np.ix_(columns, others)]
        shifted = problem.correlation[np.ix_(columns, columns)] + _JITTER * np.eye(columns.size)
        parts = np.maximum(1.0 - (block * np.linalg.solve(shifted, block)).sum(axis=0), _JITTER)
        union = np.union1d(columns, others[squares[others] > limit * parts])
        best = union[strongest(scaled_row_norms(least_squares(problem, union)[union]), columns.size)]
        better = least_squares(problem, best)
        left = problem.rss(better)
        if not left.sum() < losses.sum():
            return columns, coef
        columns, fit, losses, coef = best, better, left, better[best]


def _newton(problem: Problem, columns: Any, steps: Any, sizes: Sequence[int], models: Any) -> None:
    right, unit = _scaled_targets(problem)
    alive = columns
    coef = np.zeros((alive.size, right.shape[1]))
    memory = np.empty(alive.size**2)
    solved = False
    for size in steps:
        if not solved:
            coef, pivots = shifted_solve(problem.correlation, alive, right[alive], _JITTER, memory)
            fold_copies(problem.correlation, coef, pivots, alive)
            solved = True
        if size < alive.size:
            _record(models, sizes, size, alive, coef * unit)
            keep = strongest(scaled_row_norms(coef), int(size))
            alive, coef = alive[keep], coef[keep]
            solved = False
    _record(models, sizes, 0, alive, coef * unit)


def _scaled_targets(problem: Problem) -> tuple[Floats, float]:
    """Return covariances with the targets in units of about their standard deviation, and the unit."""
    unit = float(np.sqrt(problem.yy.diagonal()).max()) or 1.0
    return problem.xy / unit, unit
