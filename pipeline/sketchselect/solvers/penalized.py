"""Paths of penalised models by working-set coordinate descent, each warm-started from the last solution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect._progress import track
from sketchselect.errors import BadParameter
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import MOST_TIMES, Floats, require_number, require_positive
from sketchselect.solvers.descent_kernels import (
    newton_groups,
    objective,
    pattern,
    residual_covariances,
    sweep,
    sweep_groups,
    violations,
)
from sketchselect.solvers.path import Ints, Path, PathBuilder, duality_gap, scaled_row_norms
from sketchselect.solvers.penalties import Penalty
from sketchselect.solvers.problem import FewRows, Problem


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
    the global minimum, for lasso and elastic net with a duality gap below `tol`; for others a local minimum along each
    coefficient.

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
        state = WorkingSet(problem.gram, xy, allowed)
        strengths = (
            _grid(problem, penalty, state, weights, n_alphas, alpha_ratio, tol) * unit
            if alphas is None
            else _checked_alphas(alphas)
        )
        out = PathBuilder(problem.n_features)
        for alpha in track("path: models", strengths, len(strengths)):
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


def adaptive_factors(coef: ArrayLike) -> Floats:
    """Return the penalty factors of the adaptive lasso, ``1 / |b_j|``, of mean 1 over the finite ones.

    Parameters
    ----------
    coef : array of shape (p,) or (p, q)
        Coefficients of a first fit, for standardised columns (`ridge`, `least_squares`), or their
        norms for several targets. The factor of a zero is infinite: the column is left out.

    Notes
    -----
    Source: Zou 2006.
    """
    b = np.asarray(coef, dtype=np.float64)
    size = scaled_row_norms(b[:, None] if b.ndim == 1 else b)
    largest = size.max(initial=0.0)
    if largest == 0.0:
        raise BadParameter("all coefficients of the first fit are zero, so the adaptive penalty is undefined")
    with np.errstate(divide="ignore", over="ignore"):
        out = 1.0 / (size / largest)
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
    require_positive("n_alphas", n_alphas, most=MOST_TIMES)
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
    return largest * np.geomspace(1.0, last, n_alphas)


@dataclass(frozen=True)
class _Model:
    """One solution, in units of the standard deviation of the targets."""

    columns: NDArray[np.int64]
    rss: float
    optimality: float
    n_sweeps: int


def _next_model(state: WorkingSet, pieces: Floats, total: float, tol: float) -> _Model:
    """Solve for these pieces from the current state; until the duality gap, if one is defined, is below `tol` too."""
    # The gap has a formula for one piece of non-negative slope; other penalties are held to their stationarity.
    has_gap = pieces.shape[1] == 1 and bool((pieces[..., 1] >= 0).all())
    n_sweeps, gap = 0, np.inf
    # Many small violations add up in the gap, which may need a second round.
    for precision in (tol, 0.01 * tol) if has_gap else (tol,):
        violation, made = state.solve(pieces, precision)
        n_sweeps += made
        used = np.flatnonzero((state.coef != 0).any(axis=1)).astype(np.int64)
        rss = _rss(state, used, total)
        gap = _gap(state, used, pieces, total, rss) if has_gap else violation
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


_EPS = float(np.finfo(np.float64).eps)
_MAX_ROUNDS = 200
_MAX_SWEEPS = 20_000
_EQUAL = 1e-11


class WorkingSet:
    """Coordinate descent on a working set of columns, with their block of the Gram matrix contiguous in memory.

    The state is the solution of the last problem, from which the next one, with other `pieces`, starts. Columns enter
    by the violation of their optimality condition, and stay. For one target the sweeps find the piece of the penalty of
    each coefficient; one linear system then gives the stationary point on these pieces to rounding. Of columns that are
    equal up to sign and unit only the lowest enters, unless a ridge penalty distributes their coefficients.

    `gram` of shape (p, p), or `FewRows`: Correlations, unit diagonal where `allowed`.
    `xy` of shape (p, q): Covariances with the targets, of unit total variance.
    `allowed` of shape (p,): Columns that may enter.
    """

    def __init__(self, gram: Floats | FewRows, xy: Floats, allowed: np.ndarray) -> None:
        p, q = xy.shape
        self._gram, self.xy, self.allowed = gram, np.ascontiguousarray(xy), allowed
        self.coef = np.zeros((p, q))
        self.residual = self.xy.copy()
        self._distance = np.zeros(p)
        self._columns: Ints = np.zeros(0, dtype=np.int64)
        self._inside = np.zeros(p, dtype=bool)
        self._block = np.zeros((0, 0))

    @property
    def rounding(self) -> float:
        """Rounding error of the residual covariances, the smallest violation that can be reached."""
        return 16.0 * _EPS * (1.0 + float(np.abs(self.coef).sum()))

    def start_at(self, coef: Floats) -> None:
        """Set the coefficients, shape (p, q), from which the next solution starts."""
        self.coef[:] = coef
        self._extend(np.flatnonzero((coef != 0).any(axis=1)).astype(np.int64))

    def solve(self, pieces: Floats, tol: float) -> tuple[float, int]:
        """Make `coef` stationary for the penalty with these pieces, shape (p, K, 3).

        Returns
        -------
        violation : float
            Largest distance to the subdifferential; above `tol` only because of rounding or the number of rounds.
        n_sweeps : int
            Sweeps over the working set.
        """
        n_sweeps, worst = 0, np.inf
        for n_rounds in range(_MAX_ROUNDS + 1):
            worst = self._violation(pieces)
            reachable = max(tol, self.rounding)
            if worst <= reachable or n_sweeps >= _MAX_SWEEPS or n_rounds == _MAX_ROUNDS:
                break
            self._grow(pieces, reachable)
            n_sweeps += self._descend(pieces[self._columns], reachable)
        return worst, n_sweeps

    def _violation(self, pieces: Floats) -> float:
        used = self._columns[(self.coef[self._columns] != 0).any(axis=1)]
        if isinstance(self._gram, FewRows):
            np.subtract(self.xy, self._gram.rows.T @ (self._gram.rows[:, used] @ self.coef[used]), out=self.residual)
        else:
            residual_covariances(self._gram, self.xy, used, self.coef[used], self.residual)
        return float(violations(self.residual, self.coef, pieces, self.allowed, self._distance))

    def _grow(self, pieces: Floats, tol: float) -> None:
        """Add the columns of largest violation: as many as are non-zero, at least ten."""
        outside = np.where(self._inside, 0.0, self._distance)
        n_used = int(np.count_nonzero((self.coef[self._columns] != 0).any(axis=1)))
        if self._columns.size > 2 * n_used + 100:
            self._reset()
            outside = np.where(self._inside, 0.0, self._distance)
        size = min(max(10, n_used), int(np.count_nonzero(outside > tol)))
        if size == 0:
            return
        new = np.sort(np.argsort(-outside, kind="stable")[:size]).astype(np.int64)
        if not (pieces[:, 0, 1] > 0).any():
            new = self._without_copies(new, pieces[:, 0, 2])
        self._extend(new)

    def _without_copies(self, new: Ints, levels: Floats) -> Ints:
        """Return these columns; a copy of a lower column of no larger penalty is replaced by it and barred for good."""
        alike = (np.abs(self._gram[new]) >= 1.0 - _EQUAL) & self.allowed
        first = alike.argmax(axis=1)
        copies = np.flatnonzero(first < new)
        if not copies.size:
            return new
        for at in copies:
            i, j = int(first[at]), int(new[at])
            sign = np.sign(self._gram[i, j])
            apart = max(
                float(np.abs(self._gram[i] - sign * self._gram[j]).max()),
                float(np.abs(self.xy[i] - sign * self.xy[j]).max()),
            )
            # A stationary point without the copy is stationary with it too: their residual covariances are equal.
            if apart <= _EQUAL and levels[i] <= levels[j] * (1.0 + 1e-6):
                self.allowed[j] = False
                new[at] = i
        new = np.unique(new)
        return new[~self._inside[new]]

    def _reset(self) -> None:
        """Remove the columns at zero."""
        used = np.sort(self._columns[(self.coef[self._columns] != 0).any(axis=1)])
        self._columns = np.zeros(0, dtype=np.int64)
        self._inside[:] = False
        self._extend(used)

    def _extend(self, new: Ints) -> None:
        w, total = self._columns.size, self._columns.size + new.size
        columns = np.concatenate([self._columns, new])
        if total > self._block.shape[0]:
            block = np.empty((min(2 * total, self._gram.shape[0]),) * 2)
            block[:w, :w] = self._block[:w, :w]
            self._block = block
        rows = self._gram[np.ix_(new, columns)]
        self._block[w:total, :total] = rows
        self._block[:w, w:total] = rows[:, :w].T
        self._columns = columns
        self._inside[new] = True

    def _descend(self, pieces: Floats, tol: float) -> int:
        """Solve on the working set; return the number of sweeps."""
        w = self._columns.size
        gram = self._block[:w, :w]
        coef, residual = self.coef[self._columns], self.residual[self._columns]
        n_sweeps = 0
        if coef.shape[1] > 1:
            xy, done = self.xy[self._columns], False
            while not done and n_sweeps < _MAX_SWEEPS:
                made, done = sweep_groups(self._block, residual, coef, pieces, 0.1 * tol, 50)
                n_sweeps += int(made)
                if not done:
                    newton_groups(gram, xy, coef, residual, pieces, 0.01 * tol)
            self.coef[self._columns] = coef
            return n_sweeps
        b, r, xy = coef[:, 0].copy(), residual[:, 0].copy(), self.xy[self._columns, 0]
        before, after = np.empty(w, dtype=np.int64), np.empty(w, dtype=np.int64)
        block, done = 3, False
        while not done and n_sweeps < _MAX_SWEEPS:
            pattern(b, pieces, before)
            made, done = sweep(self._block, r, b, pieces, 0.1 * tol, block)
            n_sweeps += made
            pattern(b, pieces, after)
            if not done and (block > 20 or np.array_equal(before, after)):
                done = _jump(gram, xy, b, r, pieces, after, tol)
                block = min(2 * block, 100)
        self.coef[self._columns, 0] = b
        return n_sweeps


def _jump(gram: Floats, xy: Floats, b: Floats, r: Floats, pieces: Floats, where: Ints, tol: float) -> bool:
    """Move to the stationary point on the current pieces of the coefficients, if it is on these pieces too.

    Otherwise move towards it as far as the objective decreases, with zero for coefficients that would change sign.
    Return whether the result is optimal on the working set.
    """
    used = np.flatnonzero(where)
    if used.size == 0:
        return False
    signed = where[used]
    k = np.abs(signed) - 1
    sign = np.sign(signed)
    across = gram[:, used]
    block = across[used]
    slope, level = pieces[used, k, 1], pieces[used, k, 2]
    solution = _solved(block, slope, xy[used] - sign * level)
    if solution is not None:
        moved = np.zeros(b.size)
        moved[used] = solution
        landed = np.empty_like(where)
        pattern(moved, pieces, landed)
        if np.array_equal(landed, where):
            b[:] = moved
            r[:] = xy - across @ solution
            distance = np.empty(b.size)
            allowed = np.ones(b.size, dtype=bool)
            return bool(violations(r[:, None], b[:, None], pieces, allowed, distance) <= tol)
    else:
        # Concave on these pieces: the linear penalty with the slopes of this point is above it and touches it.
        solution = _solved(block, np.zeros_like(slope), xy[used] - sign * (level + slope * np.abs(b[used])))
    if solution is not None:
        _approach(across, xy, b, r, pieces, used, solution)
    return False


def _solved(block: Floats, slope: Floats, right: Floats) -> Floats | None:
    """Solve with the slopes added to the diagonal; None if the matrix is not positive definite."""
    from scipy.linalg.lapack import dposv

    matrix = block.copy()
    matrix.flat[:: len(matrix) + 1] += slope
    _, solution, info = dposv(matrix.T, right, lower=1, overwrite_a=1)
    return solution if info == 0 else None


def _approach(across: Floats, xy: Floats, b: Floats, r: Floats, pieces: Floats, used: Ints, solution: Floats) -> None:
    """Move towards a solution on the non-zero columns, by the longest of a few steps that lowers the objective.

    `across` of shape (w, k): Columns of the Gram matrix of the non-zero coefficients.
    """
    old = b[used]
    best = objective(b, r, xy, pieces)
    turning = old * solution < 0.0
    # Up to the first coefficient that reaches zero nothing stands in the way of the solution.
    first = float((old[turning] / (old - solution)[turning]).min(initial=1.0))
    for step in (1.0, 0.5, 0.25, 0.1, 0.02, first):
        new = old + step * (solution - old)
        new[new * old < 0.0] = 0.0
        left = r - across @ (new - old)
        moved = b.copy()
        moved[used] = new
        if objective(moved, left, xy, pieces) < best:
            b[:], r[:] = moved, left
            return
