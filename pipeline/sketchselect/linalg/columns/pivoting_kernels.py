"""Compiled loops of `pivoting`; a column of the factor is a row here."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")  # type: ignore[untyped-decorator]
def _dot(a: Floats, b: Floats) -> float:
    total = 0.0
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _refresh(residual: Floats, basis: Floats, seen: int, n_basis: int) -> float:
    """Subtract the projection onto the newer basis vectors from a column; return the squared norm of its residual."""
    for t in range(seen, n_basis):
        along = _dot(residual, basis[t])
        for i in range(residual.shape[0]):
            residual[i] -= along * basis[t, i]
    return float(_dot(residual, residual))


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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
        start = int(np.argmax(bound))
        for step in range(-1, p):
            j = start if step < 0 else step
            if bound[j] < best * (1.0 - tie) or bound[j] < 0.0:
                continue
            if seen[j] < count:
                if seen[j] < 0:
                    residual[j] = columns[j]
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
        basis[count] = residual[chosen] / np.sqrt(_dot(residual[chosen], residual[chosen]))
        order[count] = chosen
        alive[chosen] = False
        bound[chosen] = -1.0
        count += 1
    return count


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def add_observation(
    columns: Floats, u: Floats, moved: Floats, scale: float, curvature: float, variance: Floats, reach: Floats
) -> None:
    """Update ``c' M c`` and ``||C' M c||^2`` of every column for the rank-one change ``M -= u u' / scale``."""
    for j in range(columns.shape[0]):
        along = _dot(columns[j], u)
        share = along / scale
        variance[j] -= share * along
        reach[j] += share * (share * curvature - 2.0 * _dot(columns[j], moved))


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
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
