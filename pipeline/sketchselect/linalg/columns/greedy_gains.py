"""Gains of the greedy selection under noise, of which most are known to be too small and are not computed.

With M the posterior, S = CC' and W = M S M, the gain of column c with noise n is ``c'Wc / (n + c'Mc)``. Selecting a
column changes all gains, not always down, but by one change of W and M, which a matrix inequality bounds. Let all
columns of a set have had ``c'(W0 + e M0)c <= b (n + c'M0c)`` at an earlier step. If now, for a gain g and
``a = g / b``,

    a (W0 + e M0) - W - g (M0 - M)  is positive semidefinite,

then ``c'Wc <= a b (n + c'M0c) - g c'(M0 - M)c = g (n + c'Mc)``: no gain of the set is above g. One Cholesky
factorisation of a small matrix thus replaces the gains of all columns of the set. A positive e helps where a direction
was little explored at the earlier step: columns along it have a large c'M0c.

The columns are in nested sets. The gains of the innermost, the batch, are up to date; those of the columns between two
sets are excluded by an inequality, and computed again when it fails. Where inequalities fail too soon to pay, there are
fewer sets, and at first there is only one, all columns. The choice is the same to the last bit: gains are computed by
the same operations wherever a column stands, and the rounding of all of them is part of the inequality.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.columns.pivoting_kernels import (
    Indices,
    Mask,
    add_observation,
    best_gain,
    is_excluded,
    quadratic_forms,
)

REFRESH = 64
"""Rank-one updates before the running sums are computed again."""

ALONE = 128
"""Steps before there is more than one set: the first columns change all gains so much that no inequality lasts."""

SMALLEST, RATIO = 512, 8
"""Fewest columns of an inner set, whose updates cost what its inequality costs; and the size of the set around it."""

_WEIGHTS = np.array([0.25, 0.0, 2.0, 16.0, 128.0])
"""The values of e, in units of the largest gain that is excluded."""

_BAND = 4096

_LARGEST = float(np.finfo(np.float64).max)


@dataclass
class _Exclusion:
    """The inequality of the columns that a set has and the next one inside lacks."""

    step: int
    weights: Floats  # e
    bounds: Floats  # b, one of each e
    weighted: Floats  # W0
    posterior: Floats  # M0
    norms: tuple[float, float]  # Of W0 and M0, see `GreedyGains`
    latest: int = 0  # The e that was enough the last time

    def holds(self, gain: float, weighted: Floats, posterior: Floats, norms: tuple[float, float], unit: float) -> bool:
        """Return whether no gain of the columns is above `gain`; False where that is not certain."""
        before, now = (self.weighted, self.posterior), (weighted, posterior)
        slack = norms[0] + gain * (norms[1] + self.norms[1])
        for trial in range(self.weights.size):
            i = (self.latest + trial) % self.weights.size
            e, bound = float(self.weights[i]), float(self.bounds[i])
            if not (gain > 0 and gain / _LARGEST < bound < np.inf):
                continue
            ratio = gain / bound
            rounding = unit * (slack + ratio * (self.norms[0] + e * self.norms[1]))
            if is_excluded(gain, ratio, e, before, now, rounding):
                self.latest = i
                return True
        return False


class GreedyGains:
    """Gains of columns, of which the largest is taken again and again.

    `columns` of shape (p, m).
    `noise` of shape (p,): Squared norms, not negative.
    `close`, `tie`, `exhausted`: As in `best_gain`.
    """

    def __init__(self, columns: Floats, noise: Floats, close: float, tie: float, exhausted: float) -> None:
        p, m = columns.shape
        self.columns, self.noise = columns, noise
        self._rule = close, tie, exhausted
        self.second = columns.T @ columns
        self._absolute = np.abs(self.second)
        self._doubled = 2.0 * np.tril(self.second, -1) + np.diag(self.second.diagonal())
        self._first = np.empty((2, p))  # The forms of all columns where M is the identity
        for a in range(0, p, _BAND):
            band = columns[a : a + _BAND]
            self._first[0, a : a + _BAND] = np.einsum("ij,ij->i", band, band)
            self._first[1, a : a + _BAND] = np.einsum("ij,ij->i", band @ self.second, band)
        # Dot products of length m, sums of that many updates, and a Cholesky factorisation, with room to spare.
        self._unit = 16.0 * float(np.finfo(np.float64).eps) * (m + REFRESH) * float(np.sqrt(m))
        self._position = np.full(p, -1, dtype=np.int64)
        self._sets: list[Indices] = [np.zeros(0, dtype=np.int64)]

    def start(self, alive: Mask) -> None:
        """Begin again, with the columns of `alive`."""
        self.alive = alive.copy()
        self.step = 0
        self.posterior: Floats = np.eye(self.columns.shape[1])
        self._start_sums()
        self._exclusions: list[_Exclusion] = []  # One less than sets
        self._next = [ALONE] * 64  # For each number of sets the step from which on there may be one more
        self._position[self._sets[-1]] = -1
        self._sets = [np.flatnonzero(alive)]
        self._set_batch()

    def take(self) -> int:
        """Return the column of the largest gain and add it; -1 if all gains are rounding.

        Of gains within `close` the column of the largest variance is taken, of these (within `tie`) the lowest index.
        """
        while True:
            i, best = best_gain(self._alive, self._noise, self._variance, self._reach, *self._rule)
            failed = self._failed(best if i >= 0 else 0.0)
            if failed is None:
                break
            self._renew(failed)
        if i < 0:
            return -1
        chosen = int(self._sets[-1][i])
        self.alive[chosen] = self._alive[i] = False
        self._add(self.columns[chosen], float(self.noise[chosen]))
        return chosen

    def exclude(self, columns: Indices) -> None:
        """Leave columns out from now on."""
        self.alive[columns] = False
        positions = self._position[columns]
        self._alive[positions[positions >= 0]] = False

    def _add(self, column: Floats, noise: float) -> None:
        u = self.posterior @ column
        scale = noise + float(column @ u)
        moved = self.second @ u
        away = self.posterior @ moved
        if self._exclusions:
            self._grow_norms(np.abs(u), scale)
        self.posterior = self.posterior - np.outer(u, u / scale)
        self.step += 1
        if self.step % REFRESH:
            self._updates.append((u, away, scale, float(u @ moved)))
            add_observation(self._rows, *self._updates[-1], self._variance, self._reach)
        else:
            self._start_sums()
            self._compute_batch()
            self._narrow_batch()

    def _start_sums(self) -> None:
        """Let the running sums begin from the present posterior, and measure their rounding by it.

        The norms are ``|| |M||S||M| ||`` and ``|| |M| ||``, with upper bounds for the posteriors that follow.
        """
        self._base = self.posterior
        self._updates: list[tuple[Floats, Floats, float, float]] = []
        absolute = np.abs(self.posterior)
        product = absolute @ self._absolute @ absolute
        self._norms = float(np.linalg.norm(product)), float(np.linalg.norm(absolute))

    def _grow_norms(self, u: Floats, scale: float) -> None:
        length, moved = float(np.sqrt(u @ u)), self._absolute @ u
        away = np.abs(self.posterior) @ moved
        growth = 2.0 * length * float(np.sqrt(away @ away)) / scale + (length / scale) ** 2 * float(u @ moved)
        self._norms = self._norms[0] + growth, self._norms[1] + length * length / scale

    def _set_batch(self) -> None:
        """Make the innermost set the batch."""
        p = len(self.columns)
        if 2 * self._sets[-1].size > p:  # All columns, which are not copied.
            self._sets[-1] = np.arange(p)
        members = self._sets[-1]
        self._position[members] = np.arange(members.size)
        self._rows = self.columns if members.size == p else self.columns[members]
        self._noise, self._alive = self.noise[members], self.alive[members]
        self._compute_batch()

    def _compute_batch(self) -> None:
        members = self._sets[-1]
        if self.step < REFRESH:
            self._variance, self._reach = np.take(self._first, members, axis=1)
        else:
            self._variance, self._reach = self._forms(members, self._base)
        for update in self._updates:
            add_observation(self._rows, *update, self._variance, self._reach)

    def _forms(self, members: Indices, posterior: Floats) -> Floats:
        """Return ``c'Mc`` and ``c'Wc`` of some columns, as rows."""
        out = np.empty((2, members.size))
        quadratic_forms(self.columns, members, posterior, self._doubled, *out)
        return out

    def _narrow_batch(self) -> None:
        """Put a smaller set into the batch if that may pay; leave out the columns not alive if they are most of it."""
        alive, n_sets = self._alive, len(self._sets)
        if self.step >= self._next[n_sets]:
            self._position[self._sets[-1]] = -1
            if not self._narrow(self._sets[-1][alive], self._variance[alive], self._reach[alive]).size:
                self._next[n_sets] = self.step + self.step // 2
            self._set_batch()
        elif 2 * np.count_nonzero(alive) < alive.size:
            self._position[self._sets[-1]] = -1
            self._sets[-1] = self._sets[-1][alive]
            self._set_batch()

    def _failed(self, best: float) -> int | None:
        """Return the outermost exclusion that does not hold for gains close to `best`; None if all hold."""
        if not self._exclusions:
            return None
        gain = best * (1.0 - self._rule[0]) * (1.0 - 1e-12)
        weighted = self.posterior @ self.second @ self.posterior
        for i, exclusion in enumerate(self._exclusions):
            if not exclusion.holds(gain, weighted, self.posterior, self._norms, self._unit):
                return i
        return None

    def _renew(self, i: int) -> None:
        """Choose the sets inside of the i-th again; without the next one, if it lasted too short to pay."""
        n_sets = len(self._sets)
        self._position[self._sets[-1]] = -1
        # Computing a set costs about as much as m / 2 updates of it.
        if 2 * (self.step - self._exclusions[i].step) < self.columns.shape[1]:
            n_sets = i + 1
            self._next[n_sets] = self.step + self.step // 2
        del self._sets[i + 1 :], self._exclusions[i:]
        members = self._sets[i] = self._sets[i][self.alive[self._sets[i]]]
        if n_sets > i + 1:
            variance, reach = self._forms(members, self.posterior)
            while len(self._sets) < n_sets and members.size:
                inside = self._narrow(members, variance, reach)
                members, variance, reach = members[inside], variance[inside], reach[inside]
        self._set_batch()

    def _narrow(self, members: Indices, variance: Floats, reach: Floats) -> Indices:
        """Add a set of the members of the largest gains; return their places, none if the set is of no use."""
        size = max(members.size // RATIO, SMALLEST)
        error = self.noise[members] + variance
        if 2 * size > members.size or not error.min() > 0:
            return np.zeros(0, dtype=np.int64)
        gains = reach / error
        order = np.argpartition(-gains, size)
        inside, outside = np.sort(order[:size]), order[size:]
        weights = _WEIGHTS * float(gains[outside].max())
        bounds = [((reach[outside] + e * variance[outside]) / error[outside]).max() for e in weights]
        weighted = self.posterior @ self.second @ self.posterior
        self._sets.append(members[inside])
        self._exclusions.append(_Exclusion(self.step, weights, np.array(bounds), weighted, self.posterior, self._norms))
        return inside
