"""Feature selection with annealing: descend, and drop the weakest columns on a schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.solvers.linear import blas_threads, fold_copies, least_squares, shifted_solve
from sketchselect.solvers.problem import Problem
from sketchselect.solvers.ranking import Fit, check_count, row_norms, strongest

_JITTER = 1e-8
_TINY = float(np.finfo(np.float64).tiny)
_GRADIENT_STEPS, _NEWTON_STEPS = 500, 40


def schedule(n_features: int, n_select: int, n_iter: int, mu: float = 1.0) -> NDArray[np.int64]:
    """Return how many columns are kept after each iteration: ``k + (p - k) max(0, (N - 2e) / (2 e mu + N))``.

    For e = 1..N; it falls from below p and is k from e = N / 2 on.

    Notes
    -----
    Source: Barbu, She, Ding and Gramajo 2017, eq. 4.

    Examples
    --------
    >>> schedule(100, 10, 8).tolist()
    [64, 40, 22, 10, 10, 10, 10, 10]
    """
    e = np.arange(1, n_iter + 1)
    kept = n_select + (n_features - n_select) * np.maximum(0.0, (n_iter - 2.0 * e) / (2.0 * e * mu + n_iter))
    out: NDArray[np.int64] = np.maximum(np.floor(kept), n_select).astype(np.int64)
    return out


def anneal(
    problem: Problem,
    n_select: int,
    *,
    n_iter: int | None = None,
    mu: float = 1.0,
    step: float | None = None,
    newton: bool = False,
) -> Fit:
    """Return the columns that survive gradient descent on f while the weakest are dropped, and the refit on them.

    The step is ``1.9 / lambda_max`` of the correlations of the columns still there, found anew after every drop:
    with the step of all columns the last ones would hardly move. With several targets a column's weight is the norm
    of its coefficients. Equal columns: the lowest index survives.

    Parameters
    ----------
    problem : Problem
        The moments.
    n_select : int
        Number of columns to keep.
    n_iter : int, optional
        Iterations N; default 500, with `newton` 40. Half of them drop, the others converge.
    mu : float
        How early columns are dropped; larger is earlier.
    step : float, optional
        Step in units of ``1 / lambda_max``, between 0 and 2; default 1.9. Not used, and refused, with `newton`.
    newton : bool
        Solve the least-squares problem of the columns still there instead of a gradient step: faster, better for
        strong signals and collinear columns, worse for weak signals.

    Raises
    ------
    BadParameter
        If a parameter is outside its range.

    Notes
    -----
    Cost: about one sweep over the matrix of the remaining columns per iteration, a second one where its largest
    eigenvalue does not stand out; with `newton` one Cholesky factorisation of it.
    Where thousands of columns share a factor, the largest eigenvalue keeps the steps small, and 500 of them may drop
    some true columns even of strong signals; more iterations lose fewer, `newton` fewest.
    Source: Sun, Guo and Barbu 2019, Algorithm 2 (OFSA); Barbu et al. 2017.
    """
    n_select = check_count(problem, n_select)
    rounds = (_NEWTON_STEPS if newton else _GRADIENT_STEPS) if n_iter is None else n_iter
    if isinstance(rounds, bool) or not isinstance(rounds, (int, np.integer)) or rounds < 1:
        raise BadParameter(f"n_iter must be a positive integer, got {n_iter!r}")
    if not (np.isfinite(mu) and mu >= 0):
        raise BadParameter(f"mu must be a number not below zero, got {mu}")
    if step is not None and newton:
        raise BadParameter("step has no meaning with newton=True; leave it out")
    length = 1.9 if step is None else float(step)
    if not 0 < length < 2:
        raise BadParameter(f"step must be between 0 and 2 (in units of 1 / lambda_max), got {step}")

    active = np.flatnonzero(problem.active)
    sizes = schedule(active.size, min(n_select, active.size), int(rounds), mu) if active.size else np.zeros(0, int)
    with blas_threads(active.size):
        kept, coef = (_newton if newton else _gradient)(problem, active, sizes, length)
    scores = np.zeros(problem.n_features)
    scores[kept] = row_norms(coef)
    # Constant columns fill up a selection that asks for more columns than vary.
    rest = np.setdiff1d(np.arange(problem.n_features), kept)[: n_select - kept.size]
    support = np.sort(np.concatenate([kept, rest])).astype(np.int64)
    return Fit(support, scores, least_squares(problem, support))


def _gradient(problem: Problem, columns: Any, sizes: Any, length: float) -> tuple[Any, Floats]:
    from sketchselect.solvers.submatrix import ShrinkingBlock, follow, leading

    right, unit = _scaled_targets(problem)
    # One row per target: the product takes rows.
    right = np.ascontiguousarray(right[columns].T)
    coef = np.zeros(right.shape)
    if not columns.size:
        return columns, coef.T
    alive = columns
    # An eigenvalue that is too small by twice this still gives a step that does not diverge.
    accuracy = min(0.02, 0.45 * (2.0 / length - 1.0))
    block = ShrinkingBlock(problem.correlation, columns)
    largest, guess = leading(block, accuracy), None
    for size in sizes:
        if guess is None:
            image = block.times(coef)
        else:
            # One sweep over the matrix gives the gradient and the eigenvalue.
            image = block.times(np.vstack([coef, guess]))
            largest = follow(largest, guess, image[-1], accuracy) or leading(block, accuracy, guess)
            image, guess = image[:-1], None
        coef += min(length / largest.value, 2.0 / largest.bound) * (right - image)
        if size < alive.size:
            keep = strongest(row_norms(coef.T), int(size))
            block.keep(keep)
            alive, coef, right, guess = alive[keep], coef[:, keep], right[:, keep], largest.vector[keep]
            guess = guess / max(float(np.linalg.norm(guess)), _TINY)
    return alive, np.ascontiguousarray(coef.T) * unit


def _newton(problem: Problem, columns: Any, sizes: Any, length: float) -> tuple[Any, Floats]:
    right, unit = _scaled_targets(problem)
    alive = columns
    coef = np.zeros((alive.size, right.shape[1]))
    memory = np.empty(alive.size**2)
    solved = False
    for size in sizes:
        if not solved:
            coef, pivots = shifted_solve(problem.correlation, alive, right[alive], _JITTER, memory)
            fold_copies(problem.correlation, coef, pivots, alive)
            solved = True
        if size < alive.size:
            keep = strongest(row_norms(coef), int(size))
            alive, coef = alive[keep], coef[keep]
            solved = False
    return alive, coef * unit


def _scaled_targets(problem: Problem) -> tuple[Floats, float]:
    """Return covariances with the targets in a unit of about their spread, and the unit: squares stay in float64."""
    unit = float(np.sqrt(problem.yy.diagonal()).max()) or 1.0
    return problem.xy / unit, unit
