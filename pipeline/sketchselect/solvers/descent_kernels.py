"""Compiled loops of coordinate descent, and of Newton's method for several targets with one support.

A penalty comes in as an array, in the form of `Penalty.pieces`; the loops know no penalty by name.
"""

from __future__ import annotations

import numpy as np

from sketchselect._kernels import kernel
from sketchselect.linalg.validation import Array, Floats


@kernel(error_model="numpy")
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


@kernel(error_model="numpy")
def _piece(size: float, pieces: Floats) -> int:
    k = 0
    while k < pieces.shape[0] - 1 and size > pieces[k, 0]:
        k += 1
    return k


@kernel(error_model="numpy")
def residual_covariances(gram: Floats, xy: Floats, columns: Array, values: Floats, out: Floats) -> None:
    """Set ``out = xy - gram[:, columns] values``; all of shape (., q)."""
    q = xy.shape[1]
    # By hand, as everywhere in kernels: to compile an assignment of arrays takes seconds.
    for j in range(out.shape[0]):
        for t in range(q):
            out[j, t] = xy[j, t]
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


@kernel(error_model="numpy")
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


@kernel(error_model="numpy")
def sweep(
    gram: Floats, residual: Floats, coef: Floats, pieces: Floats, tol: float, max_sweeps: int
) -> tuple[int, bool]:
    """Minimise over one coefficient after the other; return the sweeps made, and whether no step exceeded `tol`.

    `residual` is kept equal to ``xy - gram coef``; all arrays are those of the working set, for one target. `gram` may
    be larger: a whole array, unlike its corner, is contiguous, so that the loop over a row runs in vector registers.
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


@kernel(error_model="numpy")
def sweep_groups(
    gram: Floats, residual: Floats, coef: Floats, pieces: Floats, tol: float, max_sweeps: int
) -> tuple[int, bool]:
    """Minimise over the coefficients of one column after the other, like `sweep`; arrays of shape (w, q)."""
    q = coef.shape[1]
    z = np.empty(q)
    # A target's residuals lie together, so that each step is q runs over contiguous memory.
    by_target = residual.T.copy()
    n, done = 0, False
    while n < max_sweeps and not done:
        n += 1
        largest = 0.0
        for i in range(coef.shape[0]):
            norm = 0.0
            for t in range(q):
                z[t] = by_target[t, i] + coef[i, t]
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
                row = gram[i]
                for t in range(q):
                    step, left = z[t], by_target[t]
                    for j in range(left.shape[0]):
                        left[j] -= row[j] * step
                largest = max(largest, np.sqrt(length))
        done = largest <= tol
    for t in range(q):
        for i in range(coef.shape[0]):
            residual[i, t] = by_target[t, i]
    return n, done


@kernel(error_model="numpy")
def pattern(coef: Floats, pieces: Floats, out: Array) -> None:
    """Set the signed number of the piece of each coefficient, from 1; 0 for zero."""
    for i in range(coef.shape[0]):
        value = coef[i]
        k = 0 if value == 0.0 else _piece(abs(value), pieces[i]) + 1
        out[i] = -k if value < 0.0 else k


@kernel(error_model="numpy")
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


_NEWTON_STEPS = 10
"""Steps between two rounds of sweeps: convergence is quadratic, and a wrong set of rows is left to the sweeps."""


def newton_groups(gram: Floats, xy: Floats, coef: Floats, residual: Floats, pieces: Floats, tol: float) -> None:
    """Move `coef` (and `residual`) towards a stationary point while the violation decreases, down to `tol`.

    Unlike coordinate descent, these steps are not slowed by collinear columns. Rows that a step turns round become
    zero, and rows at zero stay there.

    The Hessian of k rows and q targets is ``M x I - U D U'``: M the block of the Gram matrix with the penalty's
    derivative over the norm on its diagonal, the same for all targets, and row i of U the unit vector of row i. The
    matrix inversion lemma makes two systems of k unknowns of one of k q: 2 k^3 instead of (k q)^3 operations.
    """
    used = np.flatnonzero((coef != 0).any(axis=1))
    k = used.size
    if k == 0:
        return
    block, parts = gram[np.ix_(used, used)], pieces[used]
    distance, allowed = np.empty(k), np.ones(k, dtype=bool)
    b, r = coef[used].copy(), residual[used].copy()
    worst, moved, inside = violations(r, b, parts, allowed, distance), False, np.arange(k)
    for _ in range(_NEWTON_STEPS):
        if worst <= tol or inside.size == 0:
            break
        old = b[inside]
        size = np.sqrt((old * old).sum(axis=1))
        at = (size[:, None] > parts[inside, :, 0]).sum(axis=1)
        slope, level = parts[inside, at, 1], parts[inside, at, 2]
        around = slope + level / size
        square = block if inside.size == k else block[np.ix_(inside, inside)]
        step = _newton_step(square, around, level / size, old / size[:, None], r[inside] - around[:, None] * old)
        if step is None:
            break
        for length in (1.0, 0.5, 0.25):
            new = b.copy()
            new[inside] += length * step
            new[(new * b).sum(axis=1) <= 0.0] = 0.0
            left = xy[used] - block @ new
            nearer = violations(left, new, parts, allowed, distance)
            if nearer < worst:
                break
        else:
            break
        b, r, worst, moved = new, left, nearer, True
        inside = np.flatnonzero((b != 0).any(axis=1))
    if moved:
        coef[used] = b
        residual[:] = xy - gram[:, used] @ b


def _newton_step(block: Floats, around: Floats, across: Floats, unit: Floats, gradient: Floats) -> Floats | None:
    """Solve ``(block + diag around) step_i - across_i unit_i (unit_i . step_i) = gradient``.

    None if a matrix is singular, or the first one not positive definite.
    """
    from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dsysv

    matrix = block.copy()
    matrix[np.diag_indices_from(matrix)] += around
    factor, info = dpotrf(matrix.T, lower=1, overwrite_a=1)
    if info != 0:
        return None
    root = np.sqrt(across)
    # Since entries of `across` may be 0 (beyond the pieces of a concave penalty), the lemma stands in its symmetric
    # form. The lower triangles are all that is read.
    small = np.asfortranarray((root[:, None] * unit) @ (unit.T * -root))
    small *= dpotri(factor, lower=1)[0]
    small[np.diag_indices_from(small)] += 1.0
    turned, definite = dpotrf(small, lower=1)
    step = np.zeros_like(gradient)
    left = gradient
    # The second round takes back the rounding of the first: the inverse of an ill-conditioned M is not exact.
    for _ in range(2):
        base = dpotrs(factor, left, lower=1)[0]
        along = root * (unit * base).sum(axis=1)
        if definite == 0:
            along = dpotrs(turned, along, lower=1)[0]
        else:
            *_, along, info = dsysv(small, along, lower=1)
            if info != 0:
                return None
        step += base + dpotrs(factor, (root * along)[:, None] * unit, lower=1)[0]
        bent = around[:, None] * step - (across * (unit * step).sum(axis=1))[:, None] * unit
        left = gradient - block @ step - bent
    return step if np.isfinite(step).all() else None
