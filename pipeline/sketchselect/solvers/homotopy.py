"""The exact lasso path by homotopy: all breakpoints, from the Gram matrix or from a design of few rows.

scikit-learn's `lars_path_gram` follows the same path where no two columns tie: on 50 of 50 cases the coefficients
differ by at most 3e-15, on none are they equal to the bit. With ties it does not. Paths that violate the optimality
conditions by more than 1e-7 somewhere: 32 of 200 on small integers (9 x 12), 27 of 100 where every column has a copy,
12 of 100 on sparse 0/1 columns (60 x 30); of this solver, none. `lars_path_gram` also takes 1.7 times as long (500
columns, 50 of them selected) to 3.5 times (2,000 columns, 100 selected), and always needs the Gram matrix.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from sketchselect._kernels import REASSOCIATED, kernel
from sketchselect.errors import warn
from sketchselect.linalg.validation import Array, Floats, require_number, require_positive
from sketchselect.solvers.path import Ints, Path, PathBuilder, duality_gap
from sketchselect.solvers.problem import Problem


@kernel(fastmath=REASSOCIATED, error_model="numpy")
def append_row(factor: Floats, k: int, column: Floats, diagonal: float, smallest: float) -> bool:
    """Extend the lower factor of a k x k matrix by one row; return False if the squared pivot is at most `smallest`."""
    left = diagonal
    for i in range(k):
        total = column[i]
        for j in range(i):
            total -= factor[i, j] * factor[k, j]
        factor[k, i] = total / factor[i, i]
        left -= factor[k, i] * factor[k, i]
    if left <= smallest:
        return False
    factor[k, k] = np.sqrt(left)
    return True


@kernel(error_model="numpy")
def remove_row(factor: Floats, k: int, at: int) -> None:
    """Delete row and column `at` of the factored k x k matrix, with Givens rotations."""
    for i in range(at, k - 1):
        for j in range(i + 2):
            factor[i, j] = factor[i + 1, j]
    # Row by row, as they lie in memory: the rotations of the rows above, then the one that ends this row.
    cosines, sines = np.empty(k), np.empty(k)
    for row in range(at, k - 1):
        left = factor[row, at]
        for i in range(at, row):
            right = factor[row, i + 1]
            factor[row, i] = cosines[i] * left + sines[i] * right
            left = cosines[i] * right - sines[i] * left
        right = factor[row, row + 1]
        r = np.hypot(left, right)
        c, s = left / r, right / r
        cosines[row], sines[row] = c, s
        factor[row, row], factor[row, row + 1] = c * left + s * right, c * right - s * left


@kernel(fastmath=REASSOCIATED, error_model="numpy")
def solve_two(factor: Floats, k: int, right: Floats) -> None:
    """Solve in place for two right-hand sides, the rows of `right`."""
    for i in range(k):
        x, y = right[0, i], right[1, i]
        for j in range(i):
            x -= factor[i, j] * right[0, j]
            y -= factor[i, j] * right[1, j]
        right[0, i], right[1, i] = x / factor[i, i], y / factor[i, i]
    for i in range(k - 1, -1, -1):
        x, y = right[0, i] / factor[i, i], right[1, i] / factor[i, i]
        right[0, i], right[1, i] = x, y
        for j in range(i):
            right[0, j] -= factor[i, j] * x
            right[1, j] -= factor[i, j] * y


@kernel(error_model="numpy")
def lines(gram: Floats, xy: Floats, columns: Array, pair: Floats, offset: Floats, slope: Floats) -> None:
    """Set ``offset = xy - G u`` and ``slope = G w`` for (u, w) the rows of `pair`, on `columns`."""
    for j in range(offset.shape[0]):
        offset[j], slope[j] = xy[j], 0.0
    n, i = columns.shape[0], 0
    while i + 2 <= n:
        a, b = gram[columns[i]], gram[columns[i + 1]]
        u0, u1, w0, w1 = pair[0, i], pair[0, i + 1], pair[1, i], pair[1, i + 1]
        for j in range(offset.shape[0]):
            offset[j] -= u0 * a[j] + u1 * b[j]
            slope[j] += w0 * a[j] + w1 * b[j]
        i += 2
    if i < n:
        a = gram[columns[i]]
        u0, w0 = pair[0, i], pair[1, i]
        for j in range(offset.shape[0]):
            offset[j] -= u0 * a[j]
            slope[j] += w0 * a[j]


@kernel(error_model="numpy")
def next_entry(offset: Floats, slope: Floats, outside: Array, alpha: float, tol: float) -> float:
    """Return the largest strength below `alpha` at which an outside column reaches the bound; 0 if none does."""
    best = 0.0
    for j in range(offset.shape[0]):
        if not outside[j]:
            continue
        at = offset[j] + alpha * slope[j]
        # A column that is on the bound and did not enter leaves it.
        if alpha - at > tol and 1.0 - slope[j] > 0.0:
            best = max(best, min(offset[j] / (1.0 - slope[j]), alpha))
        if alpha + at > tol and 1.0 + slope[j] > 0.0:
            best = max(best, min(-offset[j] / (1.0 + slope[j]), alpha))
    return best


# Residual covariances are in units of the target's standard deviation; strengths closer than this are one breakpoint.
_TIE = 1e-11
# Least variance of a column (of 1) after regression on the columns inside.
DEPENDENT = 1e-11
_FALLING = 1e-9


class HomotopyState:
    """Minimiser of ``b'S b / 2 - s'b + (l2 / 2) ||b||^2 + alpha ||b||_1``, followed from the largest alpha to zero.

    With the columns A inside and their signs z, ``b_A = u - alpha w`` for ``u = (S_AA + l2)^-1 s_A`` and
    ``w = (S_AA + l2)^-1 z``: solved for at every
    breakpoint, so that rounding does not accumulate.
    """

    def __init__(self, gram: Floats, xy: Floats, active: NDArray[np.bool_], l2: float) -> None:
        p = xy.size
        self._gram, self._xy, self._l2 = gram, np.ascontiguousarray(xy), l2
        self._inside = np.zeros(0, dtype=np.int64)
        self._signs = np.zeros(0)
        # Columns that entered at this strength have coefficients of zero, which may only move along their signs.
        self._fresh = np.zeros(0, dtype=bool)
        self._factor = np.zeros((16, 16))
        self._pair = np.zeros((2, 0))
        self._offset, self._slope = self._xy.copy(), np.zeros(p)
        self._outside = active.copy()
        self._dependent = np.zeros(p, dtype=bool)
        self._left: int | None = None
        self.alpha = float(np.abs(self._xy[active]).max(initial=0.0))

    @property
    def size(self) -> int:
        """Number of columns inside."""
        return self._inside.size

    def residual(self) -> Floats:
        """Return ``s - S b`` for all columns."""
        return self._offset + self.alpha * self._slope

    def solution(self) -> tuple[Ints, Floats]:
        """Return the columns with non-zero coefficients, ascending, and these coefficients."""
        values = self._pair[0] - self.alpha * self._pair[1]
        order = np.argsort(self._inside)
        order = order[values[order] != 0]
        return self._inside[order], values[order]

    def enter(self) -> None:
        """Add the columns on the bound that would otherwise cross it, and compute the line from here."""
        refused = self._dependent.copy()
        if self._left is not None:
            # It has just left, and moves away from the bound.
            refused[self._left] = True
            self._left = None
        residual = self.residual()
        bound = self.alpha - _TIE
        while True:
            sign = np.sign(residual)
            open_ = self._outside & ~refused & (np.abs(residual) >= bound) & (sign != 0)
            crossing = np.where(open_, 1.0 - sign * self._slope, 0.0)
            worst = float(crossing.max(initial=0.0))
            if worst <= _FALLING:
                return
            j = int(np.flatnonzero(crossing >= worst - _FALLING)[0])
            refused[j] = True
            if not self._append(j, float(sign[j])):
                self._dependent[j] = True
                continue
            self._settle()

    def advance(self) -> None:
        """Lower the strength to the next breakpoint, where a column whose coefficient becomes zero leaves."""
        entry = float(next_entry(self._offset, self._slope, self._outside & ~self._dependent, self.alpha, _TIE))
        u, w = self._pair
        falling = self._signs * w < 0
        zeros = np.divide(u, w, out=np.full(u.size, -1.0), where=falling)
        zeros = np.where(falling, np.minimum(zeros, self.alpha), -1.0)
        exit_ = float(zeros.max(initial=-1.0))
        self.alpha = max(entry, exit_)
        if self.alpha <= _TIE:
            self.alpha = 0.0
        self._fresh[:] = False
        if exit_ > 0.0 and exit_ >= entry:
            i = int(zeros.argmax())
            self._left = int(self._inside[i])
            self._remove(i)
            self._solve()

    def _append(self, j: int, sign: float) -> bool:
        """Take a column inside; return False if it depends on the others there."""
        k = self.size
        if k == self._factor.shape[0]:
            larger = np.zeros((2 * k, 2 * k))
            larger[:k, :k] = self._factor
            self._factor = larger
        if not append_row(self._factor, k, *self._products_of(j), DEPENDENT):
            return False
        self._inside = np.append(self._inside, j)
        self._signs = np.append(self._signs, sign)
        self._fresh = np.append(self._fresh, True)
        self._outside[j] = False
        self._pair = np.hstack([self._pair, np.zeros((2, 1))])
        return True

    def _products_of(self, j: int) -> tuple[Floats, float]:
        """Return the products of a column with those inside, and with itself."""
        return self._gram[j][self._inside], float(self._gram[j, j] + self._l2)

    def _remove(self, i: int) -> None:
        remove_row(self._factor, self.size, i)
        self._outside[self._inside[i]] = True
        self._inside = np.delete(self._inside, i)
        self._signs = np.delete(self._signs, i)
        self._fresh = np.delete(self._fresh, i)
        self._pair = np.delete(self._pair, i, axis=1)
        # Columns that depended on it may be independent now.
        self._dependent[:] = False

    def _settle(self) -> None:
        """Move to the line of the columns inside; those at zero that would take the wrong sign leave again."""
        while True:
            before = self._pair[1].copy()
            self._solve()
            signs = self._signs
            wrong = self._fresh & (signs * self._pair[1] < 0)
            if not wrong.any():
                return
            # Move from the old direction towards the new one as long as all signs hold.
            old, new = (signs * before)[wrong], (signs * self._pair[1])[wrong]
            step = old / (old - new)
            i = int(np.flatnonzero(wrong)[int(step.argmin())])
            self._pair[1] = before + float(step.min()) * (self._pair[1] - before)
            self._remove(i)

    def _solve(self) -> None:
        self._pair = np.vstack([self._xy[self._inside], self._signs])
        solve_two(self._factor, self.size, self._pair)
        self._set_lines()

    def _set_lines(self) -> None:
        """Set offset and slope of the residual covariances from the coefficients' line."""
        lines(self._gram, self._xy, self._inside, self._pair, self._offset, self._slope)


def homotopy_path(problem: Problem, max_features: int | None = None, l2: float = 0.0, tol: float = 1e-10) -> Path:
    """Return the breakpoints of the minimisers of ``f(b) + alpha ||b||_1 + (l2 / 2) ||b||^2``, alpha descending.

    Between two breakpoints the minimiser is linear in alpha. The last model has exactly `max_features` columns (just
    before the next one enters), or fewer if several columns enter at the same alpha or all others depend linearly on
    those inside. Without a limit it is the model of alpha = 0.

    For columns that enter at the same alpha the directions are computed by non-negative least squares, starting with
    the lowest index; a column equal to one inside never enters.

    Parameters
    ----------
    problem : Problem
        The moments, of which the first target counts.
    max_features : int, optional
        Number of columns of the last model; default all.
    l2 : float
        A fixed ridge penalty (elastic net), at least 0.
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
    l2 = require_number("l2", l2, least=0)
    most = problem.n_features if max_features is None else require_positive("max_features", max_features)
    unit = float(np.sqrt(problem.yy[0, 0])) or 1.0
    xy = problem.xy[:, 0] / unit
    total = float(problem.yy[0, 0] / unit / unit)
    out = PathBuilder(problem.n_features)
    for n_breaks, (state, columns, values) in enumerate(_breakpoints(problem, xy, most, l2)):
        residual = state.residual()
        size = np.abs(values)
        rss = max(total - float(values @ (xy[columns] + residual[columns])), 0.0)
        norms = np.where(problem.active, np.abs(residual), 0.0)
        norms[columns] -= l2 * size
        level = np.full(norms.size, state.alpha)
        explained, quadratic = float(values @ xy[columns]), l2 * float(size @ size)
        gap = duality_gap(rss, total, explained, quadratic, state.alpha * float(size.sum()), norms, level)
        out.add(state.alpha * unit, columns, values * unit, rss * unit * unit, gap, gap <= tol, n_breaks)
    return out.build(tol)


def entry_penalties(problem: Problem) -> Floats:
    """Return the largest penalty at which each column enters the lasso path of the first target; 0 if it never does.

    Nothing is held of the path, whose models of many columns would take more memory than the problem.
    """
    unit = float(np.sqrt(problem.yy[0, 0])) or 1.0
    entered, before = np.zeros(problem.n_features), 0.0
    for state, columns, _ in _breakpoints(problem, problem.xy[:, 0] / unit, problem.n_features, 0.0):
        # A column enters at the breakpoint before the first model that has it.
        entered[columns] = np.maximum(entered[columns], before)
        before = state.alpha * unit
    return entered


def _breakpoints(problem: Problem, xy: Floats, most: int, l2: float) -> Iterator[tuple[HomotopyState, Ints, Floats]]:
    """Yield the state at every breakpoint, and its solution: columns and their coefficients."""
    state = HomotopyState(problem.correlation, xy, problem.active, l2)
    limit = 20 * problem.n_features + 100
    ended = yield from _followed(state, most, limit)
    if not ended:
        warn(f"the path ended after {limit} breakpoints, from rounding; set l2 above 0", RuntimeWarning)


def _followed(state: HomotopyState, most: int, limit: int) -> Generator[tuple[HomotopyState, Ints, Floats], None, bool]:
    """Yield the state and its solution at every breakpoint; return whether `limit` of them were enough."""
    for _ in range(limit):
        columns, values = state.solution()
        if columns.size > most:
            return True
        yield state, columns, values
        if state.alpha <= 0.0:
            return True
        state.enter()
        if columns.size == most and state.size > most:
            return True
        state.advance()
    return False


class Design:
    """Design matrix for `lasso_coefficients`: dense or sparse, centred or not, divided by its largest column norm.

    `rows` of shape (n_rows, n_features): Sparse rows are not made dense, but centred in the products.
    `center`: Whether the columns are centred.
    """

    def __init__(self, rows: Any, *, center: bool) -> None:
        self._sparse = sparse.issparse(rows)
        means = np.asarray(rows.mean(axis=0), dtype=np.float64).ravel() if center else np.zeros(rows.shape[1])
        if self._sparse:
            self._by_row, self._by_column, self._means = rows, rows.tocsc(), means
            squares = np.asarray(rows.multiply(rows).sum(axis=0)).ravel() - rows.shape[0] * means * means
        else:
            self._by_row = rows - means if center else np.asarray(rows, dtype=np.float64)
            squares = np.einsum("ij,ij->j", self._by_row, self._by_row)
        self.shape: tuple[int, int] = rows.shape
        self.scale = float(np.sqrt(max(squares.max(initial=0.0), 0.0)))

    def column(self, j: int) -> Floats:
        """Return column j, shape (n_rows,)."""
        scale = self.scale or 1.0
        if not self._sparse:
            return np.asarray(self._by_row[:, j]) / scale
        column = self._by_column
        out = np.full(self.shape[0], -self._means[j])
        inside = slice(column.indptr[j], column.indptr[j + 1])
        out[column.indices[inside]] += column.data[inside]
        return out / scale

    def products(self, vectors: Floats) -> Floats:
        """Return the products of all columns with `vectors` of shape (n_rows, m), as an array (n_features, m)."""
        out = np.asarray(self._by_row.T @ vectors)
        if self._sparse:
            out = out - np.outer(self._means, vectors.sum(axis=0))
        return out / (self.scale or 1.0)


def lasso_coefficients(design: Design, target: Floats, n_nonzero: int) -> Floats:
    """Return the lasso solution with `n_nonzero` columns, at the smallest alpha before another column enters.

    The minimiser of ``(1/2) ||target - D b||^2 + alpha ||b||_1``, followed from the largest alpha down. It has fewer
    columns if the design has fewer that are independent to rounding (1e-11 of the largest squared norm).

    `design`: D.
    `target` of shape (n_rows,): Of zero mean if the design is centred.
    `n_nonzero`: At least 1.
    Cost: per breakpoint one product with the design, 4 n_rows n_features flops (or 4 per stored entry), and 2 k^2.
    Memory: k columns. Source: Efron, Hastie, Johnstone and Tibshirani 2004; see `homotopy_path`.
    """
    n_nonzero = require_positive("n_nonzero", n_nonzero)
    out, unit = np.zeros(design.shape[1]), float(np.linalg.norm(target))
    if unit == 0.0 or design.scale == 0.0:
        return out
    state = _FactoredState(design, target / unit)
    limit = 20 * min(n_nonzero, *design.shape) + 100
    _, columns, values = deque(_followed(state, n_nonzero, limit), maxlen=1).pop()
    out[columns] = values * (unit / design.scale)
    return out


class _FactoredState(HomotopyState):
    """State of the homotopy with columns instead of the Gram matrix."""

    def __init__(self, design: Design, target: Floats) -> None:
        self._design = design
        self._active_columns: list[Floats] = []
        xy = np.ascontiguousarray(design.products(target[:, None])[:, 0])
        super().__init__(np.zeros((0, 0)), xy, np.ones(xy.size, dtype=bool), 0.0)

    def _append(self, j: int, sign: float) -> bool:
        self._column = self._design.column(j)
        independent = super()._append(j, sign)
        if independent:
            self._active_columns.append(self._column)
        return independent

    def _products_of(self, j: int) -> tuple[Floats, float]:
        inner = np.array([active @ self._column for active in self._active_columns]) if self.size else np.zeros(0)
        return inner, float(self._column @ self._column)

    def _remove(self, i: int) -> None:
        del self._active_columns[i]
        super()._remove(i)

    def _set_lines(self) -> None:
        if not self._active_columns:
            self._offset, self._slope = self._xy.copy(), np.zeros(self._xy.size)
            return
        moved = self._design.products(np.array(self._active_columns).T @ self._pair.T)
        self._offset, self._slope = self._xy - moved[:, 0], np.ascontiguousarray(moved[:, 1])
