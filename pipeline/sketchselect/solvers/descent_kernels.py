"""Compiled loops of coordinate descent, and of Newton's method for several targets with one support.

A penalty comes in as an array, in the form of `Penalty.pieces`; the loops know no penalty by name.
"""

from __future__ import annotations

import numba
import numpy as np

from sketchselect.linalg.validation import Array, Floats


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _shrink(size: float, pieces: Floats) -> float:
    """Return the proximal step of length one at `size` > 0."""
    if size <= pieces[0, 2]:
        return 0.0
    last = pieces.shape[0] - 1
    k = 0
    while k < last and size > pieces[k, 0] + pieces[k, 2] + pieces[k, 1] * pieces[k, 0]:
        k += 1
    out: float = (size - pieces[k, 2]) / (1.0 + pieces[k, 1])
    return out


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _piece(size: float, pieces: Floats) -> int:
    k = 0
    while k < pieces.shape[0] - 1 and size > pieces[k, 0]:
        k += 1
    return k


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def residual_covariances(gram: Floats, xy: Floats, columns: Array, values: Floats, out: Floats) -> None:
    """Set ``out = xy - gram[:, columns] values``; all of shape (., q)."""
    out[:] = xy
    q = xy.shape[1]
    if q == 1:
        flat = out[:, 0]
        i = 0
        # Four rows at a time, so that each entry of the result is read and written once for four products.
        while i + 4 <= columns.shape[0]:
            r0, r1, r2, r3 = gram[columns[i]], gram[columns[i + 1]], gram[columns[i + 2]], gram[columns[i + 3]]
            v0, v1, v2, v3 = values[i, 0], values[i + 1, 0], values[i + 2, 0], values[i + 3, 0]
            for j in range(flat.shape[0]):
                flat[j] -= v0 * r0[j] + v1 * r1[j] + v2 * r2[j] + v3 * r3[j]
            i += 4
        while i < columns.shape[0]:
            row = gram[columns[i]]
            v0 = values[i, 0]
            for j in range(flat.shape[0]):
                flat[j] -= v0 * row[j]
            i += 1
        return
    for i in range(columns.shape[0]):
        row = gram[columns[i]]
        for j in range(out.shape[0]):
            for t in range(q):
                out[j, t] -= row[j] * values[i, t]


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def violations(residual: Floats, coef: Floats, pieces: Floats, allowed: Array, out: Floats) -> float:
    """Set the distance of the residual covariances to the subdifferential, column by column; return the largest."""
    worst = 0.0
    q = coef.shape[1]
    for j in range(coef.shape[0]):
        out[j] = 0.0
        if not allowed[j]:
            continue
        size = 0.0
        for t in range(q):
            size += coef[j, t] * coef[j, t]
        size = np.sqrt(size)
        if size == 0.0:
            norm = 0.0
            for t in range(q):
                norm += residual[j, t] * residual[j, t]
            distance = max(np.sqrt(norm) - pieces[j, 0, 2], 0.0)
        else:
            k = _piece(size, pieces[j])
            ratio = (pieces[j, k, 2] + pieces[j, k, 1] * size) / size
            distance = 0.0
            for t in range(q):
                difference = residual[j, t] - ratio * coef[j, t]
                distance += difference * difference
            distance = np.sqrt(distance)
        out[j] = distance
        worst = max(worst, distance)
    return worst


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def sweep(
    gram: Floats, residual: Floats, coef: Floats, pieces: Floats, tol: float, max_sweeps: int
) -> tuple[int, bool]:
    """Minimise over one coefficient after the other; return the sweeps made, and whether no step exceeded `tol`.

    `residual` is kept equal to ``xy - gram coef``; all arrays are those of the working set, for one target.
    """
    for n in range(max_sweeps):
        largest = 0.0
        for i in range(coef.shape[0]):
            old = coef[i]
            z = residual[i] + old
            new = np.copysign(_shrink(abs(z), pieces[i]), z)
            step = new - old
            if step != 0.0:
                coef[i] = new
                row = gram[i]
                for j in range(residual.shape[0]):
                    residual[j] -= step * row[j]
                largest = max(largest, abs(step))
        if largest <= tol:
            return n + 1, True
    return max_sweeps, False


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def sweep_groups(
    gram: Floats, residual: Floats, coef: Floats, pieces: Floats, tol: float, max_sweeps: int
) -> tuple[int, bool]:
    """Minimise over the coefficients of one column after the other, like `sweep`; arrays of shape (w, q)."""
    q = coef.shape[1]
    z = np.empty(q)
    for n in range(max_sweeps):
        largest = 0.0
        for i in range(coef.shape[0]):
            norm = 0.0
            for t in range(q):
                z[t] = residual[i, t] + coef[i, t]
                norm += z[t] * z[t]
            norm = np.sqrt(norm)
            # The column has unit variance, so the minimiser is the proximal step of z: along z, of shrunk length.
            ratio = _shrink(norm, pieces[i]) / norm if norm > 0.0 else 0.0
            length = 0.0
            for t in range(q):
                step = ratio * z[t] - coef[i, t]
                coef[i, t] += step
                z[t] = step
                length += step * step
            if length > 0.0:
                for j in range(residual.shape[0]):
                    for t in range(q):
                        residual[j, t] -= gram[i, j] * z[t]
                largest = max(largest, np.sqrt(length))
        if largest <= tol:
            return n + 1, True
    return max_sweeps, False


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def pattern(coef: Floats, pieces: Floats, out: Array) -> None:
    """Set the signed number of the piece of each coefficient, from 1; 0 for zero."""
    for i in range(coef.shape[0]):
        value = coef[i]
        k = 0 if value == 0.0 else _piece(abs(value), pieces[i]) + 1
        out[i] = -k if value < 0.0 else k


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def objective(coef: Floats, residual: Floats, xy: Floats, pieces: Floats) -> float:
    """Return ``b'S b / 2 - s'b + P(b)`` for one target, from the residual covariances s - S b."""
    total = 0.0
    for i in range(coef.shape[0]):
        value = coef[i]
        if value == 0.0:
            continue
        total -= 0.5 * value * (xy[i] + residual[i])
        start, size = 0.0, abs(value)
        for k in range(pieces.shape[1]):
            end = min(size, pieces[i, k, 0])
            total += (end - start) * (pieces[i, k, 2] + 0.5 * pieces[i, k, 1] * (end + start))
            start = end
            if size <= end:
                break
    return total


_LARGEST = 2000


def newton_groups(gram: Floats, xy: Floats, coef: Floats, residual: Floats, pieces: Floats) -> None:
    """Move `coef` (and `residual`) towards the stationary point on the non-zero rows while the violation decreases.

    Unlike coordinate descent, these steps are not slowed by collinear columns. Columns at zero stay there. Systems of
    more than 2,000 unknowns are left unchanged.
    """
    used = np.flatnonzero((coef != 0).any(axis=1))
    k, q = used.size, coef.shape[1]
    if k * q > _LARGEST or k == 0:
        return
    block, parts = gram[np.ix_(used, used)], pieces[used]
    distance, allowed = np.empty(k), np.ones(k, dtype=bool)
    b, r = coef[used].copy(), residual[used].copy()
    worst = violations(r, b, parts, allowed, distance)
    moved = False
    for _ in range(10):
        size = np.sqrt((b * b).sum(axis=1))
        unit = b / size[:, None]
        at = (size[:, None] > parts[:, :, 0]).sum(axis=1)
        slope, level = parts[np.arange(k), at, 1], parts[np.arange(k), at, 2]
        around = (level + slope * size) / size
        # The Hessian of the penalty: its curvature along the direction of a row, derivative over norm across it.
        curve = around[:, None, None] * np.eye(q) + (slope - around)[:, None, None] * unit[:, :, None] * unit[:, None]
        hessian = np.einsum("ij,ab->iajb", block, np.eye(q))
        hessian[np.arange(k), :, np.arange(k), :] += curve
        gradient = r - around[:, None] * b
        try:
            step = np.linalg.solve(hessian.reshape(k * q, k * q), gradient.ravel()).reshape(k, q)
        except np.linalg.LinAlgError:
            break
        new = b + step
        left = xy[used] - block @ new
        nearer = violations(left, new, parts, allowed, distance) if new.any(axis=1).all() else np.inf
        if not nearer < worst:
            break
        b, r, worst, moved = new, left, nearer, True
    if moved:
        coef[used] = b
        residual[:] = xy - gram[:, used] @ b
