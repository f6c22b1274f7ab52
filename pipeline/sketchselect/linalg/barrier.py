"""Deterministic column sampling with two barriers (decompositions of the identity): Algorithms 1 and 2.

Columns are picked one at a time, with repetition, so that the smallest eigenvalue of ``A = sum t v v'`` stays above a
barrier that rises by one a step, while the other matrix stays below a second barrier. The weights of a column picked
several times are added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats

# Relative difference from the best below which columns are equal and the lowest index wins: copies of a column differ
# by rounding only.
_TIE = 1e-9

_PIECE = 8192  # Columns in one product, so that it stays in the processor's cache
MOST_ITERATIONS = 8  # Most steps of a run, as a multiple of the number of columns

_PROBES = 6


@dataclass(frozen=True)
class BarrierRun:
    """Column weights of a run of barrier sampling."""

    squares: Floats  # shape (n,): s_i^2 of every column; 0 for a column that was not picked
    n_iterations: int  # Steps R; the lemmas hold with R in place of r
    complete: bool = True  # False if the run stopped because it picked more distinct columns than allowed

    @property
    def n_columns(self) -> int:
        """Distinct columns picked."""
        return int(np.count_nonzero(self.squares))


def sample_frobenius(vectors: Floats, norms: Floats, n_iterations: int, most: int | None = None) -> BarrierRun:
    """Return column weights that keep ``V`` well conditioned and the Frobenius norm of ``B`` (Algorithm 1).

    ``sigma_k(V' Omega S) >= 1 - sqrt(k / R)`` and ``||B Omega S||_F <= ||B||_F``, for R = `n_iterations`.

    `vectors` of shape (n, k): V, with orthonormal columns.
    `norms` of shape (n,): Squared norms ``||b_i||^2`` of the columns of B.
    `n_iterations`: R > k.
    `most`: Stop as soon as more distinct columns than this are picked.
    Raises `BadParameter` if R <= k.
    Cost: 2 n k^2 flops and one k x k eigendecomposition a step. The theory leaves the choice of the column free: the
    largest L / U is taken, and 1 / t = (L + U) / 2.
    Source: Boutsidis and Magdon-Ismail 2012, Algorithm 1 and Lemma 7.

    Examples
    --------
    >>> import numpy as np
    >>> V = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 2)))[0]
    >>> b = np.arange(1.0, 31.0)
    >>> s2 = sample_frobenius(V, b, 8).squares
    >>> bool(np.linalg.svd(V.T * np.sqrt(s2))[1][-1] >= 1 - np.sqrt(2 / 8)), bool(s2 @ b <= b.sum())
    (True, True)
    """
    total = float(norms.sum())
    shrink = 1.0 - np.sqrt(_width(vectors, n_iterations) / n_iterations)
    upper = norms * (shrink / total) if total > 0 else np.zeros(norms.size)

    free = upper <= 1e-15 * float(upper.max(initial=0.0))

    def choose(lower: Floats) -> int:
        costless = free & (lower > 0) & (lower >= upper)
        if costless.any():
            # Their cost is negligible, so the best conditioned one is taken.
            return _best(np.where(costless, lower, -np.inf))
        return _best(np.divide(lower, upper, out=np.full(upper.size, -np.inf), where=~free))

    return _run(vectors, n_iterations, most, lambda step: upper, choose, lambda i, t: None)


def sample_spectral(
    vectors: Floats, n_iterations: int, others: Floats | None = None, most: int | None = None
) -> BarrierRun:
    """Return column weights that keep ``V`` well conditioned and the spectral norm of ``Q`` small (Algorithm 2).

    ``sigma_k(V' Omega S) >= 1 - sqrt(k / R)`` and ``||Q Omega S||_2 <= 1 + sqrt(l / R)``, for R = `n_iterations`.

    `vectors` of shape (n, k): V, with orthonormal columns.
    `n_iterations`: R > k.
    `others` of shape (n, l): Q', with orthonormal columns. None is the identity (l = n), in closed form: O(n) a step.
    `most`: Stop as soon as more distinct columns than this are picked.
    Raises `BadParameter` if R <= k.
    The step of the upper barrier is ``(1 + sqrt(l / R)) / (1 - sqrt(k / R))``; the paper prints it without the square
    root, and then the second inequality can fail. The column of largest L - U is taken, and 1 / t = (L + U) / 2.
    Cost: 2 n (k^2 + l^2) flops a step.
    Source: Boutsidis and Magdon-Ismail 2012, Algorithm 2 and Lemma 8; Batson, Spielman and Srivastava 2009.

    Examples
    --------
    >>> import numpy as np
    >>> V = np.linalg.qr(np.random.default_rng(0).standard_normal((30, 2)))[0]
    >>> s2 = sample_spectral(V, 8).squares
    >>> bool(np.linalg.svd(V.T * np.sqrt(s2))[1][-1] >= 1 - np.sqrt(2 / 8)), bool(s2.max() ** .5 <= 1 + np.sqrt(30 / 8))
    (True, True)
    """
    n = vectors.shape[0]
    size = n if others is None else others.shape[1]
    rise = (1.0 + np.sqrt(size / n_iterations)) / (1.0 - np.sqrt(_width(vectors, n_iterations) / n_iterations))
    start = rise * np.sqrt(size * n_iterations)
    rows = None if others is None else np.ascontiguousarray(others.T)
    gathered = np.zeros((0, 0)) if rows is None else np.zeros((size, size))
    # Of B as a diagonal matrix: columns picked, in their order, and its entries: 0 first, then theirs.
    places, columns, entries, counts = np.full(n, -1), np.empty(n, dtype=np.int64), np.zeros(n + 1), np.ones(n + 1)
    n_picked = 0
    latest = np.empty(n)

    def upper(step: int) -> Floats:
        level = start + rise * step
        if rows is None:
            counts[0] = n - n_picked
            coefficients = _upper_coefficients(entries[: n_picked + 1], counts[: n_picked + 1], level, rise)
            latest.fill(coefficients[0])
            latest[columns[:n_picked]] = coefficients[1:]
        else:
            values, basis = np.linalg.eigh(gathered)
            latest[:] = _quadratic_forms(rows, basis, _upper_coefficients(values, np.ones(size), level, rise))
        return latest

    def update(i: int, t: float) -> None:
        nonlocal n_picked
        if rows is None:
            if places[i] < 0:
                columns[n_picked] = i
                n_picked += 1
                places[i] = n_picked
            entries[places[i]] += t
        else:
            gathered[:] += np.outer(t * rows[:, i], rows[:, i])

    def choose(lower: Floats) -> int:
        return _best(np.where(lower > 0, lower - latest, -np.inf))

    return _run(vectors, n_iterations, most, upper, choose, update)


def longest_run(run: Callable[[int], BarrierRun], n_columns: int) -> BarrierRun:
    """Return the longest run, by bisection, that picks at most `n_columns` distinct columns.

    A run of r steps picks far fewer than r distinct columns, and the guarantees improve with the number of steps.

    `run`: Number of steps -> run, which is not `complete` if it picks more than `n_columns` columns.
    `n_columns`: Number of columns r; runs of r to 8 r steps are tried.
    """
    low, high = n_columns, MOST_ITERATIONS * n_columns
    best = run(high)
    if best.complete:
        return best
    best = run(low)
    for _ in range(_PROBES):
        middle = round(float(np.sqrt(low * high)))
        if not low < middle < high or high <= 1.02 * low:
            break
        attempt = run(middle)
        if attempt.complete:
            low, best = middle, attempt
        else:
            high = middle
    return best


def top_up(
    squares: Floats, order: NDArray[np.int64], n_columns: int, costs: Floats | None = None, budget: float = np.inf
) -> Floats:
    """Return the weights of `n_columns` columns, further columns added to those picked.

    Adding columns cannot lower sigma_k. Each added column has ``s^2 = min(median of the picked s^2, 1)``, so the
    largest weight stays within Lemma 8's bound, or less if ``sum s_i^2 costs_i <= budget`` (Lemma 7) requires it.

    `squares` of shape (n,): s_i^2, 0 for columns not picked.
    `order` of shape (n,): Columns, in the order in which they are added.
    `costs` of shape (n,): ``||b_i||^2``.
    `budget`: ``||B||_F^2``.
    """
    picked = squares > 0
    added = order[~picked[order]][: max(n_columns - int(picked.sum()), 0)]
    if not added.size:
        return squares
    size = min(float(np.median(squares[picked])), 1.0) if picked.any() else 1.0
    if costs is not None:
        price = float(costs[added].sum())
        spare = max(budget * (1 - 1e-12) - float(squares @ costs), 0.0)
        if size * price > spare:
            # A column of weight zero would count as not selected.
            size = max(spare / price, float(np.finfo(np.float64).tiny))
    out = squares.copy()
    out[added] = size
    return out


def _width(vectors: Floats, n_iterations: int) -> int:
    k = int(vectors.shape[1])
    if n_iterations <= k:
        raise BadParameter(f"barrier sampling of {k} directions needs more than {k} steps, got {n_iterations}")
    return k


def _run(
    vectors: Floats,
    n_iterations: int,
    most: int | None,
    upper: Callable[[int], Floats],
    choose: Callable[[Floats], int],
    update: Callable[[int, float], None],
) -> BarrierRun:
    n, k = vectors.shape
    rows = np.ascontiguousarray(vectors.T)
    gathered = np.zeros((k, k))
    times = np.zeros(n)
    distinct = 0
    # Small products in small pieces: a second thread costs more than it saves, and may give other bits.
    with one_blas_thread():
        for step in range(n_iterations):
            values, basis = np.linalg.eigh(gathered)
            above = upper(step)
            below = _quadratic_forms(rows, basis, _lower_coefficients(values, step - np.sqrt(n_iterations * k)))
            i = choose(below)
            t = 2.0 / float(below[i] + min(above[i], below[i]))
            distinct += times[i] == 0
            if most is not None and distinct > most:
                return BarrierRun(times, n_iterations, complete=False)
            times[i] += t
            gathered += np.outer(t * rows[:, i], rows[:, i])
            update(i, t)
    return BarrierRun(times * ((1.0 - np.sqrt(k / n_iterations)) / n_iterations), n_iterations)


def _lower_coefficients(values: Floats, level: float) -> Floats:
    """Return c with L(v) = sum_j c_j (w_j'v)^2, w_j the eigenvectors of A; the barrier moves up by one."""
    near, far = 1.0 / (values - (level + 1.0)), 1.0 / (values - level)
    # phi(L + 1, A) - phi(L, A), without taking the difference.
    return near * near / float(near @ far) - near


def _upper_coefficients(values: Floats, counts: Floats, level: float, rise: float) -> Floats:
    """Return c with U(q) = sum_j c_j (w_j'q)^2, w_j the eigenvectors of B; the barrier moves up by `rise`.

    `counts` is the multiplicity of each eigenvalue.
    """
    near, far = 1.0 / (level - values), 1.0 / (level + rise - values)
    return far * far / (rise * float((counts * near) @ far)) + far


def _quadratic_forms(rows: Floats, basis: Floats, coefficients: Floats) -> Floats:
    """Return ``v_i' W diag(c) W' v_i`` for every column v_i of `rows`."""
    out = np.empty(rows.shape[1])
    turned = np.ascontiguousarray(basis.T)
    for a in range(0, rows.shape[1], _PIECE):
        products = turned @ rows[:, a : a + _PIECE]
        np.multiply(products, products, out=products)
        np.dot(coefficients, products, out=out[a : a + _PIECE])
    return out


def _best(values: Floats) -> int:
    """Return the lowest index within rounding of the largest value."""
    top = float(values.max())
    return int(np.argmax(values >= top - _TIE * abs(top)))
