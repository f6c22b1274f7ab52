"""Column pivots of a short, wide factor: QR with column pivoting, and greedy column selection under noise.

Both work on a factor C of few rows and many columns (the top directions of a sketch, s_i v_i), and both discount each
column by what the selected columns already explain of it; copies of selected columns come last. Ties within rounding go
to the lowest index, so equal columns give the same answer on every machine.

Exclusion sets: most gains of the greedy selection are known to be too small and are not computed. Half of 1,000,000
columns of a sketch are selected in about two minutes, where computing all gains took hours. With M the posterior, S =
CC' and W = M S M, the gain of column c with noise n is ``c'Wc / (n + c'Mc)``. Selecting a column changes all gains, not
always down, but by one change of W and M, which a matrix inequality bounds. Let all columns of a set have had ``c'(W0 +
e M0)c <= b (n + c'M0c)`` at an earlier step. If now, for a gain g and ``a = g / b``,

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

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sketchselect._kernels import REASSOCIATED, kernel
from sketchselect.linalg.validation import Floats

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

TIE = 1e-10  # Relative difference below which two gains are equal: products of equal columns may differ by rounding

# Relative difference of gains below which the larger column is selected. When one direction is left and there is no
# noise, all gains are equal, and rounding would decide.
CLOSE = 1e-6

# Share of the largest squared norm below which the residual of a column is rounding (of the singular vectors).
EXHAUSTED = 1e-14

Copies = Callable[[int], Indices]  # The columns that repeat a column, itself included


@dataclass(frozen=True)
class Pivots:
    """Selected columns in order; the last `n_copies` of those that are not zero repeat columns before them."""

    order: Indices
    n_copies: int


def pivot_columns(factor: Floats, unseen: Floats, copies: Copies, n_select: int) -> Pivots:
    """Return `n_select` columns by pivoted QR of the factor, and then by the squared norms that the factor leaves out.

    Columns that neither the factor nor these norms can tell apart follow in further rounds of QR; then copies, in the
    same way, and columns of zeros by index.

    `factor` of shape (m, p).
    `unseen` of shape (p,): Squared norms of the columns outside the factor, not negative.
    `n_select`: At most p.
    Cost: at most 2 m p flops a pivot, usually far less: distances only shrink, so an older distance excludes most
    columns. Source: Businger and Golub 1965; the rule is that of LAPACK's ``geqp3``.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.array([[2.0, 2.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
    >>> pivots = pivot_columns(C, np.array([0.0, 0.0, 0.0, 0.5]), lambda j: np.flatnonzero(C[0] == C[0, j]), 4)
    >>> pivots.order.tolist(), pivots.n_copies
    ([0, 2, 3, 1], 1)
    """
    columns = np.ascontiguousarray(factor.T)

    def directions(alive: Mask, n: int) -> list[int]:
        picked = np.empty(min(n, *factor.shape), dtype=np.int64)
        count = pivots(columns, alive.copy(), picked.size, TIE, EXHAUSTED, picked)
        return [int(j) for j in picked[:count]]

    return without_copies(directions, np.einsum("ij,ij->j", factor, factor), unseen, copies, n_select)


def greedy_columns(factor: Floats, noise: Floats, unseen: Floats, copies: Copies, n_select: int) -> Pivots:
    """Return `n_select` columns, each the one that most lowers the error of predicting *all* columns.

    The model is ``a_j = c_j + e_j``: signal c_j (column of `factor`) and noise of squared norm ``noise[j]``. With the
    posterior covariance ``M = (I + sum_S c c' / noise)^-1`` of the directions, selecting j lowers the total squared
    error of the signal, ``tr(C' M C)``, by exactly ``||C' M c_j||^2 / (noise_j + c_j' M c_j)``.

    Without noise this is greedy column subset selection of `factor`. Then, and wherever the noise is negligible, all
    gains are zero once the columns span it; the selection continues as that of `pivot_columns`. A copy of a column
    selected before is not selected while another column is left.

    `factor` of shape (m, p).
    `noise` of shape (p,): Squared norms, not negative.
    `unseen`, `copies`, `n_select`: As in `pivot_columns`.

    Notes
    -----
    Cost: 4 m p flops a column for the first 128 columns, then usually far less (see `greedy_gains`). Source: greedy
    column subset selection, Farahat, Ghodsi and Kamel 2013; the noise, as in Bayesian experimental design
    (A-optimality), keeps columns unlike all others from being selected first, and lets several noisy columns represent
    one direction.

    Examples
    --------
    Two equal columns are worth more than one larger column, but the second repeats the first:

    >>> import numpy as np
    >>> C, noise = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.2]]), np.full(3, 0.01)
    >>> greedy_columns(C, noise, noise, lambda j: np.flatnonzero(C[0] == C[0, j]), 3).order.tolist()
    [0, 2, 1]
    """
    squares = np.einsum("ij,ij->j", factor, factor)
    top = float(squares.max(initial=0.0))
    columns = np.array(factor.T, order="C")
    if top > 0:  # The gains hold fourth powers.
        columns /= np.sqrt(top)
        noise, squares = noise / top, squares / top
    return by_gain(GreedyGains(columns, noise, CLOSE, TIE, EXHAUSTED), squares, unseen, copies, n_select)


class Gains(Protocol):
    """Gains of columns, of which the largest is taken again and again."""

    def start(self, alive: Mask) -> None:
        """Begin again, with the columns of `alive`."""

    def take(self) -> int:
        """Return the column of the largest gain and add it; -1 if all gains are rounding."""

    def exclude(self, columns: Indices) -> None:
        """Leave columns out from now on."""


def by_gain(gains: Gains, squares: Floats, unseen: Floats, copies: Copies, n_select: int) -> Pivots:
    """Return `n_select` columns, each the one of the largest gain; see `greedy_columns`.

    `squares` of shape (p,): Squared norms of the columns in the units of the gains.
    """

    def best(alive: Mask, n: int) -> Iterator[int]:
        gains.start(alive)
        for _ in range(n):
            j = gains.take()
            if j < 0:
                return
            gains.exclude(copies(j))
            yield j

    # A column's copies are asked for twice in a row.
    copies = lru_cache(maxsize=1)(copies)
    return without_copies(best, squares, unseen, copies, n_select)


def without_copies(
    choose: Callable[[Mask, int], Iterable[int]], squares: Floats, unseen: Floats, copies: Copies, n_select: int
) -> Pivots:
    """Return the columns that `choose` takes of those left, then those of the largest `unseen`, and copies last."""
    order: list[int] = []
    n_first = -1
    waiting = (squares > 0) | (unseen > 0)
    while len(order) < n_select and waiting.any():
        alive = waiting.copy()
        while len(order) < n_select and alive.any():
            before = len(order)
            for j in choose(alive & (squares > 0), n_select - before) if (alive & (squares > 0)).any() else []:
                if alive[j]:  # Rounding may leave a residual to a copy of a column chosen in the same round.
                    waiting[j] = alive[j] = alive[copies(j)] = False
                    order.append(j)
            for j in _descending(unseen, alive, copies, n_select - len(order)):
                waiting[j] = alive[j] = False
                order.append(j)
            if len(order) == before:  # All columns that are left are below rounding.
                for j in _descending(squares, alive, copies, n_select - len(order)):
                    waiting[j] = alive[j] = False
                    order.append(j)
                break
        n_first = len(order) if n_first < 0 else n_first
    n_copies = len(order) - max(n_first, 0)
    zeros = np.flatnonzero(~((squares > 0) | (unseen > 0)))[: max(n_select - len(order), 0)]
    return Pivots(np.array([*order, *zeros], dtype=np.int64), n_copies)


def _descending(values: Floats, alive: Mask, copies: Copies, n: int) -> Iterator[int]:
    """Yield up to n columns by descending positive value, without copies, which are cleared in `alive`."""
    if n <= 0:
        return
    left = alive & (values > 0)
    order = np.flatnonzero(left)
    order = order[np.argsort(-values[order], kind="stable")]
    tied: list[int] = []  # A heap of the columns within rounding of the largest value left
    first = end = 0
    for _ in range(n):
        while first < order.size and not left[order[first]]:
            first += 1
        if first == order.size:
            return
        least = values[order[first]] * (1.0 - TIE)
        while end < order.size and values[order[end]] >= least:
            heappush(tied, int(order[end]))
            end += 1
        j = heappop(tied)
        while not left[j]:
            j = heappop(tied)
        repeated = copies(j)
        left[repeated] = left[j] = False
        alive[repeated] = False
        yield j


@kernel(fastmath=REASSOCIATED, error_model="numpy")
def _dot(a: Floats, b: Floats) -> float:
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@kernel(error_model="numpy")
def _refresh(residual: Floats, basis: Floats, seen: int, n_basis: int) -> float:
    """Subtract the projection onto the newer basis vectors from a column; return the squared norm of its residual."""
    for t in range(seen, n_basis):
        along = _dot(residual, basis[t])
        for i in range(residual.shape[0]):
            residual[i] -= along * basis[t, i]
    return float(_dot(residual, residual))


@kernel(error_model="numpy")
def pivots(columns: Floats, alive: Mask, n_pivots: int, tie: float, exhausted: float, order: Indices) -> int:
    """Write the pivots among the columns `alive` to `order`, clear them in `alive`, and return their number.

    Distances only shrink as the basis grows, so an old distance bounds the present one, and only columns whose bound
    reaches the best distance are recomputed: the result is the same as if all were.
    """
    p, m = columns.shape
    residual = np.empty((p, m))
    seen = np.full(p, -1, dtype=np.int64)  # -1: its row of `residual` is not filled yet
    bound = np.full(p, -1.0)
    basis = np.zeros((min(m, n_pivots), m))
    largest = 0.0
    for j in range(p):
        if alive[j]:
            bound[j] = _dot(columns[j], columns[j])
            largest = max(largest, bound[j])
    count = 0
    while count < basis.shape[0]:
        best = -1.0
        # First the column of the largest bound, so that the scan has a distance to compare with.
        start = 0
        for j in range(1, p):
            if bound[j] > bound[start]:
                start = j
        for step in range(-1, p):
            j = start if step < 0 else step
            if bound[j] < best * (1.0 - tie) or bound[j] < 0.0:
                continue
            if seen[j] < count:
                if seen[j] < 0:
                    for i in range(m):
                        residual[j, i] = columns[j, i]
                    seen[j] = 0
                bound[j] = _refresh(residual[j], basis, seen[j], count)
                seen[j] = count
            best = max(best, bound[j])
        if not best > exhausted * largest:
            break
        chosen = 0
        while not bound[chosen] >= best * (1.0 - tie):
            chosen += 1
        # Once more: the residual of a column that is nearly in the span is not orthogonal to it to full precision.
        _refresh(residual[chosen], basis, 0, count)
        length = np.sqrt(_dot(residual[chosen], residual[chosen]))
        for i in range(m):
            basis[count, i] = residual[chosen, i] / length
        order[count] = chosen
        alive[chosen] = False
        bound[chosen] = -1.0
        count += 1
    return count


@kernel(error_model="numpy")
def add_observation(
    columns: Floats, u: Floats, moved: Floats, scale: float, curvature: float, variance: Floats, reach: Floats
) -> None:
    """Update ``c' M c`` and ``||C' M c||^2`` of every column for the rank-one change ``M -= u u' / scale``."""
    for j in range(columns.shape[0]):
        along = _dot(columns[j], u)
        share = along / scale
        variance[j] -= share * along
        reach[j] += share * (share * curvature - 2.0 * _dot(columns[j], moved))


@kernel(error_model="numpy")
def best_gain(
    alive: Mask, noise: Floats, variance: Floats, reach: Floats, close: float, tie: float, exhausted: float
) -> tuple[int, float]:
    """Return the column of the largest gain, -1 if all gains are zero, and the largest gain.

    Of gains closer than `close` the larger variance wins, then (closer than `tie`) the lower index.
    """
    best = 0.0
    for j in range(alive.shape[0]):
        if alive[j] and variance[j] > exhausted:
            best = max(best, reach[j] / (noise[j] + variance[j]))
    chosen = -1
    if best > exhausted:
        largest = 0.0
        for j in range(alive.shape[0]):
            larger = alive[j] and variance[j] > max(exhausted, largest * (1.0 + tie))
            if larger and reach[j] / (noise[j] + variance[j]) >= best * (1.0 - close):
                chosen, largest = j, variance[j]
    return chosen, best


@kernel(fastmath=REASSOCIATED, error_model="numpy")
def _combine(weights: Floats, n: int, rows: Floats, out: Floats) -> None:
    """Write ``sum_b weights[b] rows[b]`` over the first n rows to `out`."""
    width = out.shape[0]
    out[:] = 0.0
    b = 0
    while b + 4 <= n:  # Four rows at once: `out` is read and written a quarter as often.
        w0, w1, w2, w3 = weights[b], weights[b + 1], weights[b + 2], weights[b + 3]
        r0, r1, r2, r3 = rows[b], rows[b + 1], rows[b + 2], rows[b + 3]
        for c in range(width):
            out[c] += w0 * r0[c] + w1 * r1[c] + w2 * r2[c] + w3 * r3[c]
        b += 4
    while b < n:
        w0, r0 = weights[b], rows[b]
        for c in range(width):
            out[c] += w0 * r0[c]
        b += 1


@kernel(error_model="numpy")
def quadratic_forms(
    columns: Floats, members: Indices, posterior: Floats, doubled: Floats, variance: Floats, reach: Floats
) -> None:
    """Write ``c' M c`` and ``||C' M c||^2`` of the columns `members`.

    `doubled` is the lower triangle of CC' with its part below the diagonal doubled. The result of a column has the same
    bits wherever it stands among the members: 64 columns are computed side by side, and a piece that is not full too.
    """
    m = columns.shape[1]
    piece, moved, weighted = np.zeros((m, 64)), np.empty((m, 64)), np.empty(64)
    v, r = np.empty(64), np.empty(64)
    for first in range(0, members.shape[0], 64):
        count = min(64, members.shape[0] - first)
        for c in range(count):
            column = columns[members[first + c]]
            for b in range(m):
                piece[b, c] = column[b]
        v[:] = 0.0
        r[:] = 0.0
        for a in range(m):
            _combine(posterior[a], m, piece, moved[a])
            _combine(doubled[a], a + 1, moved, weighted)
            for c in range(64):
                v[c] += piece[a, c] * moved[a, c]
                r[c] += weighted[c] * moved[a, c]
        for c in range(count):
            variance[first + c], reach[first + c] = v[c], r[c]


@kernel(error_model="numpy")
def is_positive(matrix: Floats) -> bool:
    """Return whether the factorisation LDL' of a symmetric matrix, which is overwritten, has a positive D.

    The lower triangle is read; rounding is that of a Cholesky factorisation.
    """
    m = matrix.shape[0]
    column = np.empty(m)
    for k in range(m):
        if not matrix[k, k] > 0.0:
            return False
        for a in range(k + 1, m):
            column[a] = matrix[a, k]
            share = column[a] / matrix[k, k]
            for b in range(k + 1, a + 1):
                matrix[a, b] -= share * column[b]
    return True


@kernel(error_model="numpy")
def is_excluded(
    gain: float, ratio: float, e: float, before: tuple[Floats, Floats], now: tuple[Floats, Floats], rounding: float
) -> bool:
    """Return whether ``ratio (W0 + e M0) - W - gain (M0 - M) - rounding I`` is positive definite.

    `before` and `now` are (W0, M0) and (W, M).
    """
    m = now[0].shape[0]
    matrix = np.empty((m, m))
    for a in range(m):
        for b in range(a + 1):
            start = ratio * (before[0][a, b] + e * before[1][a, b])
            matrix[a, b] = start - now[0][a, b] - gain * (before[1][a, b] - now[1][a, b])
        matrix[a, a] -= rounding
    return bool(is_positive(matrix))


REFRESH = 64  # Rank-one updates before the running sums are computed again

# Steps before there is more than one set: the first columns change all gains so much that no inequality lasts.
FIRST_SPLIT = 128

# Fewest columns of an inner set, whose updates cost what its inequality costs; and the size of the set around it.
SMALLEST, RATIO = 512, 8

_WEIGHTS = np.array([0.25, 0.0, 2.0, 16.0, 128.0])  # The values of e, in units of the largest gain that is excluded

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
        self._next = [FIRST_SPLIT] * 64  # For each number of sets the step from which on there may be one more
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
        # Computing a set costs about as much as m / 2 updates.
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
