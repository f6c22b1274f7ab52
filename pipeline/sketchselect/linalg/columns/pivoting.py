"""Column pivots of a short, wide factor: QR with column pivoting, and greedy column selection under noise.

Both work on a factor C of few rows and many columns (the top directions of a sketch, s_i v_i), and both discount each
column by what the selected columns already explain of it; copies of selected columns come last. Ties within rounding go
to the lowest index, so equal columns give the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

TIE = 1e-10
"""Relative difference below which two gains are equal: products of equal columns may differ by rounding."""

CLOSE = 1e-6
"""Relative difference of gains below which the larger column is selected. When one direction is left and there is no
noise, all gains are equal, and rounding would decide."""

EXHAUSTED = 1e-14
"""Share of the largest squared norm below which the residual of a column is rounding (of the singular vectors)."""

Copies = Callable[[int], Indices]
"""The columns that repeat a column, itself included."""


@dataclass(frozen=True)
class Pivots:
    """Selected columns in order; the last `n_copies` of those that are not zero repeat columns before them."""

    order: Indices
    n_copies: int


def pivoted_qr(factor: Floats, n_pivots: int) -> Indices:
    """Return the first pivots of QR with column pivoting: each the column farthest from the span of those before.

    Fewer than `n_pivots` are returned if the residuals of all other columns are rounding.

    `factor` of shape (m, p).
    `n_pivots`: At most this many.
    Cost: at most 2 m p flops a pivot, usually far less: distances only shrink, so an older distance excludes most
    columns. Source: Businger and Golub 1965; the rule is that of LAPACK's ``geqp3``.

    Examples
    --------
    >>> import numpy as np
    >>> pivoted_qr(np.array([[3.0, 3.0, 0.0], [0.0, 0.1, 2.0]]), 3).tolist()
    [1, 2]
    """
    from sketchselect.linalg.columns.pivoting_kernels import pivots

    order = np.empty(min(n_pivots, *factor.shape), dtype=np.int64)
    alive = np.ones(factor.shape[1], dtype=np.bool_)
    return order[: pivots(np.ascontiguousarray(factor.T), alive, order.size, TIE, EXHAUSTED, order)]


def pivot_columns(factor: Floats, unseen: Floats, copies: Copies, n_select: int) -> Pivots:
    """Return `n_select` columns by pivoted QR of the factor, and then by the squared norms that the factor leaves out.

    Columns that neither the factor nor these norms can tell apart follow in further rounds of QR; then copies, in the
    same way, and columns of zeros by index.

    `factor` of shape (m, p).
    `unseen` of shape (p,): Squared norms of the columns outside the factor, not negative.
    `n_select`: At most p.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.array([[2.0, 2.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
    >>> pivots = pivot_columns(C, np.array([0.0, 0.0, 0.0, 0.5]), lambda j: np.flatnonzero(C[0] == C[0, j]), 4)
    >>> pivots.order.tolist(), pivots.n_copies
    ([0, 2, 3, 1], 1)
    """
    from sketchselect.linalg.columns.pivoting_kernels import pivots

    columns = np.ascontiguousarray(factor.T)

    def directions(alive: Mask, n: int) -> list[int]:
        picked = np.empty(min(n, *factor.shape), dtype=np.int64)
        count = pivots(columns, alive.copy(), picked.size, TIE, EXHAUSTED, picked)
        return [int(j) for j in picked[:count]]

    return _without_copies(directions, np.einsum("ij,ij->j", factor, factor), unseen, copies, n_select)


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
    # Here, so that importing the selectors does not import the compiler.
    from sketchselect.linalg.columns.greedy_gains import GreedyGains

    squares = np.einsum("ij,ij->j", factor, factor)
    top = float(squares.max(initial=0.0))
    columns = np.array(factor.T, order="C")
    if top > 0:  # The gains hold fourth powers.
        columns /= np.sqrt(top)
        noise, squares = noise / top, squares / top
    gains = GreedyGains(columns, noise, CLOSE, TIE, EXHAUSTED)

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
    return _without_copies(best, squares, unseen, copies, n_select)


def _without_copies(
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
