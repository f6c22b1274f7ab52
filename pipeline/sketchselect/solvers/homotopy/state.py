"""The state of the homotopy at one strength: the columns inside, and the line of their coefficients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats
from sketchselect.solvers.homotopy.kernels import append_row, lines, next_entry, remove_row, solve_two
from sketchselect.solvers.path import Ints

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
        self._inside: list[int] = []
        self._signs: list[float] = []
        # Columns that entered at this strength have coefficients of zero, which may only move along their signs.
        self._fresh: list[bool] = []
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
        return len(self._inside)

    def residual(self) -> Floats:
        """Return ``s - S b`` for all columns."""
        out: Floats = self._offset + self.alpha * self._slope
        return out

    def solution(self) -> tuple[Ints, Floats]:
        """Return the columns with non-zero coefficients, ascending, and these coefficients."""
        columns = np.array(self._inside, dtype=np.int64)
        values = self._pair[0] - self.alpha * self._pair[1]
        order = np.argsort(columns)
        order = order[values[order] != 0]
        return columns[order], values[order]

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
        signs = np.array(self._signs)
        u, w = self._pair
        falling = signs * w < 0
        zeros = np.divide(u, w, out=np.full(u.size, -1.0), where=falling)
        zeros = np.where(falling, np.minimum(zeros, self.alpha), -1.0)
        exit_ = float(zeros.max(initial=-1.0))
        self.alpha = max(entry, exit_)
        if self.alpha <= _TIE:
            self.alpha = 0.0
        self._fresh = [False] * self.size
        if exit_ > 0.0 and exit_ >= entry:
            i = int(zeros.argmax())
            self._left = self._inside[i]
            self._remove(i)
            self._solve()

    def _append(self, j: int, sign: float) -> bool:
        k = self.size
        self._make_room(k)
        column = self._gram[j][np.array(self._inside, dtype=np.int64)]
        if not append_row(self._factor, k, column, self._gram[j, j] + self._l2, DEPENDENT):
            return False
        self._take_in(j, sign)
        return True

    def _make_room(self, k: int) -> None:
        """Double the factor if k rows fill it."""
        if k == self._factor.shape[0]:
            larger = np.zeros((2 * k, 2 * k))
            larger[:k, :k] = self._factor
            self._factor = larger

    def _take_in(self, j: int, sign: float) -> None:
        self._inside.append(j)
        self._signs.append(sign)
        self._fresh.append(True)
        self._outside[j] = False
        self._pair = np.hstack([self._pair, np.zeros((2, 1))])

    def _remove(self, i: int) -> None:
        remove_row(self._factor, self.size, i)
        self._outside[self._inside[i]] = True
        del self._inside[i], self._signs[i], self._fresh[i]
        self._pair = np.delete(self._pair, i, axis=1)
        # Columns that depended on it may be independent now.
        self._dependent[:] = False

    def _settle(self) -> None:
        """Move to the line of the columns inside; those at zero that would take the wrong sign leave again."""
        while True:
            before = self._pair[1].copy()
            self._solve()
            signs, fresh = np.array(self._signs), np.array(self._fresh)
            wrong = fresh & (signs * self._pair[1] < 0)
            if not wrong.any():
                return
            # Move from the old direction towards the new one as long as all signs hold.
            old, new = (signs * before)[wrong], (signs * self._pair[1])[wrong]
            step = old / (old - new)
            i = int(np.flatnonzero(wrong)[int(step.argmin())])
            self._pair[1] = before + float(step.min()) * (self._pair[1] - before)
            self._remove(i)

    def _solve(self) -> None:
        columns = np.array(self._inside, dtype=np.int64)
        self._pair = np.vstack([self._xy[columns], np.array(self._signs)])
        solve_two(self._factor, columns.size, self._pair)
        lines(self._gram, self._xy, columns, self._pair, self._offset, self._slope)
