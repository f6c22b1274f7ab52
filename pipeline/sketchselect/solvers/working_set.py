"""Working-set coordinate descent for penalised problems, warm-started from the last solution."""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.solvers.descent_kernels import (
    objective,
    pattern,
    residual_covariances,
    sweep,
    sweep_groups,
    violations,
)
from sketchselect.solvers.group_newton import newton_groups
from sketchselect.solvers.path import Ints

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

    `gram` of shape (p, p): Correlations, unit diagonal where `allowed`.
    `xy` of shape (p, q): Covariances with the targets, of unit total variance.
    `allowed` of shape (p,): Columns that may enter.
    """

    def __init__(self, gram: Floats, xy: Floats, allowed: np.ndarray) -> None:
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
        for at in np.flatnonzero(first < new):
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
        rows = self._gram[new][:, columns]
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
                made, done = sweep_groups(gram, residual, coef, pieces, 0.1 * tol, 50)
                n_sweeps += int(made)
                if not done:
                    newton_groups(gram, xy, coef, residual, pieces)
            self.coef[self._columns] = coef
            return n_sweeps
        b, r, xy = coef[:, 0].copy(), residual[:, 0].copy(), self.xy[self._columns, 0]
        before, after = np.empty(w, dtype=np.int64), np.empty(w, dtype=np.int64)
        block, done = 3, False
        while not done and n_sweeps < _MAX_SWEEPS:
            pattern(b, pieces, before)
            made, done = sweep(gram, r, b, pieces, 0.1 * tol, block)
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
    block = gram[np.ix_(used, used)]
    slope, level = pieces[used, k, 1], pieces[used, k, 2]
    solution = _solved(block, slope, xy[used] - sign * level)
    if solution is not None:
        moved = np.zeros(b.size)
        moved[used] = solution
        landed = np.empty_like(where)
        pattern(moved, pieces, landed)
        if np.array_equal(landed, where):
            b[:] = moved
            r[:] = xy - gram[:, used] @ solution
            distance = np.empty(b.size)
            allowed = np.ones(b.size, dtype=bool)
            return bool(violations(r[:, None], b[:, None], pieces, allowed, distance) <= tol)
    else:
        # Concave on these pieces: the linear penalty with the slopes of this point is above it and touches it.
        solution = _solved(block, np.zeros_like(slope), xy[used] - sign * (level + slope * np.abs(b[used])))
    if solution is not None:
        _approach(gram, xy, b, r, pieces, used, solution)
    return False


def _solved(block: Floats, slope: Floats, right: Floats) -> Floats | None:
    """Solve with the slopes added to the diagonal; None if the matrix is not positive definite."""
    from scipy.linalg.lapack import dposv

    matrix = block.copy()
    matrix[np.diag_indices_from(matrix)] += slope
    _, solution, info = dposv(matrix.T, right, lower=1, overwrite_a=1)
    return solution if info == 0 else None


def _approach(gram: Floats, xy: Floats, b: Floats, r: Floats, pieces: Floats, used: Ints, solution: Floats) -> None:
    """Move towards a solution on the non-zero columns, by the longest of a few steps that lowers the objective."""
    old = b[used]
    best = objective(b, r, xy, pieces)
    turning = old * solution < 0.0
    # Up to the first coefficient that reaches zero nothing stands in the way of the solution.
    first = float((old[turning] / (old - solution)[turning]).min(initial=1.0))
    for step in (1.0, 0.5, 0.25, 0.1, 0.02, first):
        new = old + step * (solution - old)
        new[new * old < 0.0] = 0.0
        left = r - gram[:, used] @ (new - old)
        moved = b.copy()
        moved[used] = new
        if objective(moved, left, xy, pieces) < best:
            b[:], r[:] = moved, left
            return
