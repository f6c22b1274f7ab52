"""Paths of penalised models: lasso, elastic net, MCP, SCAD, for one target or for several with one support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import require_number, require_positive
from sketchselect.solvers.gap import duality_gap
from sketchselect.solvers.path import Path, PathBuilder
from sketchselect.solvers.penalties import Penalty
from sketchselect.solvers.problem import Problem

if TYPE_CHECKING:
    from sketchselect.solvers.working_set import WorkingSet


def solve_path(
    problem: Problem,
    penalty: Penalty,
    alphas: ArrayLike | None = None,
    *,
    n_alphas: int = 100,
    alpha_ratio: float | None = None,
    max_features: int | None = None,
    penalty_factor: ArrayLike | None = None,
    tol: float = 1e-10,
    target: int | None = 0,
) -> Path:
    """Return the minimisers of ``f(b) + sum_j P(b_j; alpha f_j)`` for descending alphas, each started from the last.

    Every model satisfies its stationarity conditions to the larger of `tol` and rounding: for a convex penalty it is
    the global minimum, with a duality gap below `tol`; for others a local minimum along each coefficient.

    Parameters
    ----------
    problem : Problem
        The moments.
    penalty : Penalty
        One of `PENALTIES`.
    alphas : array, optional
        Strengths, as scikit-learn scales them. By default `n_alphas` of them, equally spaced in logarithm from the
        smallest one without columns to `alpha_ratio` times it.
    n_alphas : int
        Number of strengths.
    alpha_ratio : float, optional
        Default 1e-3, or 0.05 if there are at most as many rows as columns.
    max_features : int, optional
        Stop before the first model with more columns.
    penalty_factor : array of shape (p,), optional
        Factors f_j of alpha, at least 0: 0 for columns without penalty, infinity for columns to leave out;
        ``1 / |b_j|`` of a first fit is the adaptive lasso (`adaptive_factors`).
    tol : float
        Largest violation of a stationarity condition, in units of the standard deviation of the target.
    target : int or None
        Index of the target; None for all targets with one support (a penalty on the norms of the coefficients).

    Raises
    ------
    BadParameter
        If a parameter is outside its range, or the first model has more than `max_features` columns.

    Warns
    -----
    RuntimeWarning
        If `tol` was not reached.

    Notes
    -----
    Cost: per alpha some products of p x k, sweeps of w^2 for a working set of w columns, and a few Cholesky
    factorisations of k x k. Memory beyond the problem: the block of the working set.
    Source: Friedman, Hastie and Tibshirani 2010 (covariance updates, warm starts); Breheny and Huang 2011 (MCP, SCAD);
    Massias, Gramfort and Salmon 2018 (working sets); Zou 2006 (adaptive lasso).

    Examples
    --------
    >>> from sketchselect.solvers import Lasso, standardize
    >>> problem = standardize(np.eye(2), [3.0, 1.0], 10.0, mean=[0, 0], y_mean=0, n=100)
    >>> path = solve_path(problem, Lasso(), alphas=[2.0, 0.5])
    >>> path.coef(0).round(12).tolist(), path.coef(1).round(12).tolist()
    ([1.0, 0.0], [2.5, 0.5])
    """
    from sketchselect.solvers.working_set import WorkingSet

    columns = _targets(problem, target)
    factors = _factors(problem, penalty_factor)
    tol = require_number("tol", tol, above=0)
    if max_features is not None:
        require_positive("max_features", max_features)
    yy = problem.yy[np.ix_(columns, columns)]
    # In units of the standard deviation of the targets no square leaves float64, and one tolerance fits all.
    unit = float(np.sqrt(yy.diagonal().max())) or 1.0
    xy, total = problem.xy[:, columns] / unit, float(np.trace(yy / unit / unit))
    allowed = problem.active & np.isfinite(factors)
    weights = np.where(allowed, factors, 0.0)
    # The matrices are small, and several BLAS threads are slower.
    with one_blas_thread():
        state = WorkingSet(problem.correlation, xy, allowed)
        strengths = (
            _grid(problem, penalty, state, weights, n_alphas, alpha_ratio, tol) * unit
            if alphas is None
            else _checked_alphas(alphas)
        )
        out = PathBuilder(problem.n_features)
        for alpha in strengths:
            model = _next_model(state, _pieces(penalty, alpha * weights, unit), total, tol)
            if max_features is not None and model.columns.size > max_features:
                break
            values = state.coef[model.columns] * unit
            out.add(
                float(alpha),
                model.columns,
                values[:, 0] if target is not None else values,
                model.rss * unit * unit,
                model.optimality,
                model.optimality <= max(tol, state.rounding),
                model.n_sweeps,
            )
    if out.empty:
        raise BadParameter(f"the model of the largest alpha has more than max_features = {max_features} columns")
    return out.build(tol)


def adaptive_factors(coef: ArrayLike, power: float = 1.0) -> Floats:
    """Return the penalty factors of the adaptive lasso, ``|b_j|^-power``, of mean 1 over the finite ones.

    Parameters
    ----------
    coef : array of shape (p,) or (p, q)
        Coefficients of a first fit, for standardised columns (`ridge`, `least_squares`), or their
        norms for several targets. The factor of a zero is infinite: the column is left out.
    power : float
        Positive.

    Notes
    -----
    Source: Zou 2006.
    """
    from sketchselect.solvers.ranking import scaled_row_norms

    b = np.asarray(coef, dtype=np.float64)
    size = scaled_row_norms(b[:, None] if b.ndim == 1 else b)
    largest = size.max(initial=0.0)
    if largest == 0.0:
        raise BadParameter("all coefficients of the first fit are zero, so the adaptive penalty is undefined")
    with np.errstate(divide="ignore", over="ignore"):
        out = (size / largest) ** -power
    finite = np.isfinite(out)
    out[finite] /= out[finite].mean()
    factors: Floats = out
    return factors


def _targets(problem: Problem, target: int | None) -> NDArray[np.int64]:
    if target is None:
        return np.arange(problem.n_targets)
    if not 0 <= target < problem.n_targets:
        raise BadParameter(f"target {target} does not exist: there are {problem.n_targets}, counted from 0")
    return np.array([target])


def _factors(problem: Problem, penalty_factor: ArrayLike | None) -> Floats:
    if penalty_factor is None:
        return np.ones(problem.n_features)
    factors = np.asarray(penalty_factor, dtype=np.float64)
    if factors.shape != (problem.n_features,):
        raise BadParameter(f"penalty_factor has shape {factors.shape}, there are {problem.n_features} columns")
    if not (factors >= 0).all():
        raise BadParameter(f"penalty_factor of column {int((~(factors >= 0)).argmax())} must be at least 0")
    return factors


def _checked_alphas(alphas: ArrayLike) -> Floats:
    strengths = np.sort(np.asarray(alphas, dtype=np.float64).ravel())[::-1]
    if strengths.size == 0 or not np.isfinite(strengths).all() or strengths[-1] < 0:
        raise BadParameter("alphas must be one or more finite numbers of at least 0")
    return strengths


def _pieces(penalty: Penalty, alphas: Floats, unit: float) -> Floats:
    """Return the pieces of the penalty of every column for a target in this unit, which slopes do not depend on."""
    pieces = penalty.pieces(alphas)
    pieces[..., 0] /= unit
    pieces[..., 2] /= unit
    return pieces


def _grid(
    problem: Problem,
    penalty: Penalty,
    state: WorkingSet,
    weights: Floats,
    n_alphas: int,
    ratio: float | None,
    tol: float,
) -> Floats:
    """Return alphas in units of the standard deviation of the targets."""
    require_positive("n_alphas", n_alphas)
    default = 1e-3 if problem.n > problem.n_features else 5e-2
    last = default if ratio is None else require_number("alpha_ratio", ratio, above=0, below=1)
    penalized = weights > 0
    if (state.allowed & ~penalized).any():
        # Columns without a penalty are fitted first: alpha is relative to the residual that they leave.
        blocked = np.zeros((weights.size, 1, 3))
        blocked[:, 0, 0] = np.inf
        blocked[penalized, 0, 2] = np.inf
        state.solve(blocked, tol)
    level = float(penalty.pieces(np.ones(1))[0, 0, 2])
    norms = np.sqrt((state.residual * state.residual).sum(axis=1))
    needed = np.divide(norms, level * weights, out=np.zeros_like(norms), where=penalized & state.allowed)
    largest = float(needed.max(initial=0.0))
    if largest <= tol:
        # Nothing to explain: one model, of arbitrary strength.
        return np.ones(1)
    out: Floats = largest * np.geomspace(1.0, last, n_alphas)
    return out


@dataclass(frozen=True)
class _Model:
    """One solution, in units of the standard deviation of the targets."""

    columns: NDArray[np.int64]
    rss: float
    optimality: float
    n_sweeps: int


def _next_model(state: WorkingSet, pieces: Floats, total: float, tol: float) -> _Model:
    """Solve for these pieces from the current state; for a convex penalty until the gap is below `tol` too."""
    convex = bool((pieces[..., 1] >= 0).all())
    n_sweeps, gap = 0, np.inf
    # Many small violations add up in the gap, which may need a second round.
    for precision in (tol, 0.01 * tol) if convex else (tol,):
        violation, made = state.solve(pieces, precision)
        n_sweeps += made
        used = np.flatnonzero((state.coef != 0).any(axis=1)).astype(np.int64)
        rss = _rss(state, used, total)
        gap = _gap(state, used, pieces, total, rss) if convex else violation
        if gap <= tol:
            break
    return _Model(used, rss, gap, n_sweeps)


def _rss(state: WorkingSet, used: NDArray[np.int64], total: float) -> float:
    # yy - 2 b's + b'S b, from the residual covariances s - S b.
    b, residual = state.coef[used], state.residual[used]
    return max(total - float((b * (state.xy[used] + residual)).sum()), 0.0)


def _gap(state: WorkingSet, used: NDArray[np.int64], pieces: Floats, total: float, rss: float) -> float:
    slope, level = pieces[:, 0, 1], pieces[:, 0, 2]
    b = state.coef[used]
    size = np.sqrt((b * b).sum(axis=1))
    bound = state.residual - slope[:, None] * state.coef
    norms = np.where(state.allowed, np.sqrt((bound * bound).sum(axis=1)), 0.0)
    quadratic, level_sum = float((slope[used] * size * size).sum()), float((level[used] * size).sum())
    return duality_gap(rss, total, float((b * state.xy[used]).sum()), quadratic, level_sum, norms, level)
