"""Feature selection with annealing: descend, and drop the weakest columns on a schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.solvers.linear import blas_threads, fold_copies, least_squares
from sketchselect.solvers.problem import Problem
from sketchselect.solvers.ranking import Fit, check_count, row_norms, strongest

_JITTER = 1e-8
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
    Cost: about two products of the matrix of remaining columns with a vector per iteration; with `newton` one
    Cholesky factorisation of it. Source: Sun, Guo and Barbu 2019, Algorithm 2 (OFSA); Barbu et al. 2017.
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
    right, unit = _scaled_targets(problem)
    matrix, right = problem.correlation[np.ix_(columns, columns)], right[columns]
    coef = np.zeros(right.shape)
    alive = np.arange(columns.size)
    if columns.size:
        # The longest column leans towards the leading eigenvector, and cannot be orthogonal to all of the large ones.
        start = matrix[int(row_norms(matrix).argmax())]
        largest, vector = _largest_eigenvalue(matrix, start, 0.0)
    for size in sizes:
        coef += (length / largest) * (right - matrix @ coef)
        if size < alive.size:
            keep = strongest(row_norms(coef), int(size))
            alive, coef, right, vector = alive[keep], coef[keep], right[keep], vector[keep]
            matrix = matrix[np.ix_(keep, keep)]
            largest, vector = _largest_eigenvalue(matrix, vector, largest)
    return columns[alive], coef * unit


def _newton(problem: Problem, columns: Any, sizes: Any, length: float) -> tuple[Any, Floats]:
    from scipy.linalg import cho_factor, cho_solve

    right, unit = _scaled_targets(problem)
    matrix, right = problem.correlation[np.ix_(columns, columns)], right[columns]
    alive = np.arange(columns.size)
    coef = np.zeros(right.shape)
    solved = False
    for size in sizes:
        if not solved:
            shifted = matrix + _JITTER * np.eye(alive.size)
            factor, lower = cho_factor(shifted, overwrite_a=True, check_finite=False)
            coef = np.ascontiguousarray(cho_solve((factor, lower), right, check_finite=False))
            fold_copies(matrix, coef, factor.diagonal() ** 2)
            solved = True
        if size < alive.size:
            keep = strongest(row_norms(coef), int(size))
            alive, coef, right, matrix = alive[keep], coef[keep], right[keep], matrix[np.ix_(keep, keep)]
            solved = False
    return columns[alive], coef * unit


def _scaled_targets(problem: Problem) -> tuple[Floats, float]:
    """Return covariances with the targets in a unit of about their spread, and the unit: squares stay in float64."""
    unit = float(np.sqrt(problem.yy.diagonal()).max()) or 1.0
    return problem.xy / unit, unit


def _largest_eigenvalue(matrix: Floats, vector: Floats, before: float) -> tuple[float, Floats]:
    """Return the largest eigenvalue to about 1 % by power iteration, and its vector, from a guess.

    `before` is that of a matrix of which this one is a block, or 0: it bounds the answer, so a quotient close to it
    needs no second look.
    """
    length = float(np.linalg.norm(vector))
    # What is left of the eigenvector after a drop may be nothing.
    vector = vector / length if length > 0.1 else np.full(vector.size, vector.size**-0.5)
    rounds, tolerance = (30, 1e-3) if before > 0 else (100, 1e-4)
    norm = 0.0
    for _ in range(rounds):
        image = matrix @ vector
        last, norm = norm, float(np.linalg.norm(image))
        if norm == 0.0:
            break
        vector = image / norm
        if norm >= 0.99 * before > 0 or norm - last <= tolerance * norm:
            break
    # The diagonal is one, so no eigenvalue bound below it can be right.
    return max(norm, 1.0), vector
