"""Newton's method on the active columns, for penalties on norms of the coefficients of several targets."""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.solvers.descent_kernels import violations

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
