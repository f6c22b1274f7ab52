"""Column pivots of a short, wide factor: QR with column pivoting, and greedy column selection under noise.

Both work on a factor C of few rows and many columns (the top directions of a sketch, s_i v_i), and both discount each
column by what the selected columns already explain of it. Ties within rounding go to the lowest index, so equal columns
give the same answer on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats

Indices = NDArray[np.int64]

TIE = 1e-10
"""Relative difference below which two gains are equal: products of equal columns may differ by rounding."""

CLOSE = 1e-6
"""Relative difference of gains below which the larger column is selected. When one direction is left and there is no
noise, all gains are equal, and rounding would decide."""

EXHAUSTED = 1e-14
"""Share of the largest squared norm below which the residual of a column is rounding (of the singular vectors)."""

REFRESH = 64
"""Rank-one updates of the greedy selection before its running sums are recomputed."""


@dataclass(frozen=True)
class Pivots:
    """Selected columns in order, and the round in which each was selected (from 0; -1 for a column of zeros)."""

    order: Indices
    rounds: Indices


def pivoted_qr(factor: Floats, n_pivots: int) -> Indices:
    """Return the first pivots of QR with column pivoting: each the column farthest from the span of those before.

    Fewer than `n_pivots` are returned if the residuals of all other columns are rounding.

    Parameters
    ----------
    factor : array of shape (m, p)
    n_pivots : int
        At most this many.

    Notes
    -----
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


def pivot_rounds(factor: Floats, n_select: int) -> Pivots:
    """Return `n_select` columns by pivoted QR in rounds: when all residuals are zero, the next round begins.

    A round has as many pivots as the rank of the remaining columns, so each direction is covered once in a round before
    any is covered again, and duplicated columns are in different rounds. Columns of zeros come last, by index.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.array([[2.0, 2.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]])
    >>> pivot_rounds(C, 4).order.tolist(), pivot_rounds(C, 4).rounds.tolist()
    ([0, 2, 1, 3], [0, 0, 1, 2])
    """
    from sketchselect.linalg.columns.pivoting_kernels import pivots

    squares = np.einsum("ij,ij->j", factor, factor)
    columns = np.ascontiguousarray(factor.T)
    alive = squares > 0
    order: list[Indices] = []
    rounds: list[Indices] = []
    done = 0
    while done < n_select and alive.any():
        picked = np.empty(min(n_select - done, *factor.shape), dtype=np.int64)
        picked = picked[: pivots(columns, alive, picked.size, TIE, EXHAUSTED, picked)]
        rounds.append(np.full(picked.size, len(order), dtype=np.int64))
        order.append(picked)
        done += picked.size
    zeros = np.flatnonzero(~(squares > 0))[: max(n_select - done, 0)]
    order.append(zeros)
    rounds.append(np.full(zeros.size, -1, dtype=np.int64))
    return Pivots(np.concatenate(order), np.concatenate(rounds))


def greedy_columns(factor: Floats, noise: Floats, n_select: int) -> Pivots:
    """Return `n_select` columns, each the one that most lowers the error of predicting *all* columns.

    The model is ``a_j = c_j + e_j``: signal c_j (column of `factor`) and noise of squared norm ``noise[j]``. With the
    posterior covariance ``M = (I + sum_S c c' / noise)^-1`` of the directions, selecting j lowers the total squared
    error of the signal, ``tr(C' M C)``, by exactly ``||C' M c_j||^2 / (noise_j + c_j' M c_j)``.

    Without noise this is greedy column subset selection of `factor`. Then, and wherever the noise is negligible, all
    gains are zero once the columns span it; the selection continues with a new round on the remaining columns.

    Parameters
    ----------
    factor : array of shape (m, p)
    noise : array of shape (p,)
        Squared norms, not negative.
    n_select : int
        At most p.

    Notes
    -----
    Cost: 4 m p flops a column. Source: greedy column subset selection, Farahat, Ghodsi and Kamel 2013; the noise, as in
    Bayesian experimental design (A-optimality), keeps columns unlike all others from being selected first, and lets
    several noisy columns represent one direction.

    Examples
    --------
    Two equal columns are worth more than one larger column, until the second would add only noise:

    >>> import numpy as np
    >>> C = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.2]])
    >>> greedy_columns(C, np.full(3, 0.01), 3).order.tolist()
    [0, 2, 1]
    """
    # Here, so that importing the selectors does not import the compiler.
    from sketchselect.linalg.columns.pivoting_kernels import add_observation, best_gain

    m = factor.shape[0]
    squares = np.einsum("ij,ij->j", factor, factor)
    top = float(squares.max(initial=0.0))
    if top > 0:  # The sums below hold fourth powers.
        factor, noise, squares = factor / np.sqrt(top), noise / top, squares / top
    columns = np.ascontiguousarray(factor.T)
    second = columns.T @ columns
    alive = squares > 0
    order: list[int] = []
    rounds: list[int] = []
    index = 0
    posterior = np.eye(m)
    since = 0
    variance, reach = _sums(columns, posterior, second)
    while len(order) < n_select and alive.any():
        j = best_gain(alive, noise, variance, reach, CLOSE, TIE, EXHAUSTED)
        if j < 0:
            if since == 0:  # Even in a new round all columns are below rounding.
                break
            posterior, since, index = np.eye(m), 0, index + 1
            variance, reach = _sums(columns, posterior, second)
            continue
        order.append(j)
        rounds.append(index)
        alive[j] = False
        u = posterior @ columns[j]
        scale = noise[j] + float(columns[j] @ u)
        moved = second @ u
        away = posterior @ moved
        posterior -= np.outer(u, u / scale)
        since += 1
        if since % REFRESH:
            add_observation(columns, u, away, scale, float(u @ moved), variance, reach)
        else:
            variance, reach = _sums(columns, posterior, second)
    others = np.flatnonzero(alive)
    others = others[np.argsort(-squares[others], kind="stable")]
    others = np.concatenate([others, np.flatnonzero(~(squares > 0))])[: n_select - len(order)]
    level = np.where(squares[others] > 0, index, -1)
    return Pivots(np.array([*order, *others], dtype=np.int64), np.array([*rounds, *level], dtype=np.int64))


def _sums(columns: Floats, posterior: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Return ``c_j' M c_j`` and ``||C' M c_j||^2`` of every column."""
    u = columns @ posterior
    return np.einsum("ij,ij->i", columns, u), np.einsum("ij,ij->i", u @ second, u)
