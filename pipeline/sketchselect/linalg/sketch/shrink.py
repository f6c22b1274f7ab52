"""The shrink step of Frequent Directions, through the small Gram matrix of the rows.

With K = C C' = U diag(lam) U' the shrunk rows are ``B = diag(f) U' C``, ``f_i^2 = max(lam_i - delta, 0) / lam_i`` and
``delta = lam_l``. For *any* orthonormal U and 0 <= f <= 1, ``C'C - B'B = C'(I - U f^2 U')C >= 0``: that the sketch
never exceeds the data does not depend on the accuracy of the eigenvectors. About five times faster than an SVD of C.
Source: Liberty 2013; Ghashami, Liberty, Phillips and Woodruff 2016, full-shrink variant.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from sketchselect.linalg.arrays import Floats

RESIDUALS = 1.16
"""An error E in ``K U = U diag(lam) + E`` moves eigenvalues of K by at most 2 / sqrt(3) ||E||: the largest norm of
[[X, Y'], [Y, 0]] with [X; Y] of norm 1."""

_BAND = 4096


def shrink_factors(gram: Floats, size: int) -> tuple[Floats, Floats, float]:
    """Return ``(M, squares, lost)``: the matrix M = diag(f) U' of at most `size` - 1 rows, the diagonal of M K M', and
    the increase of Delta, lam_l and what rounding may add to it.
    """
    # A file that nothing reads before the first block.
    from sketchselect.linalg.sketch.leading import leading_eigenpairs

    eps = float(np.finfo(np.float64).eps)
    pairs = leading_eigenpairs(gram, size - 1)
    if pairs is not None and pairs[0][-2] - pairs[0][-1] > RESIDUALS * pairs[2]:
        # The gap shows that no eigenvector was missed: what is orthogonal to those there are has at most lam_l, and
        # RESIDUALS times the residual.
        lam, vectors, residual = pairs
    else:
        lam, vectors = np.linalg.eigh(gram)
        lam, vectors, residual = lam[::-1][:size], vectors[:, ::-1][:, : size - 1], 0.0
    top = max(float(lam[0]), 0.0)
    delta = max(float(lam[-1]), 0.0) if lam.shape[0] == size else 0.0
    # Products and eigenvalues are known to some units of the largest one. Were that left out of Delta, many shrinks
    # would lose more than Delta bounds.
    lost = delta + eps * gram.shape[0] * top + 2.0 * RESIDUALS * residual
    lam = lam[: size - 1]
    # Eigenvalues at rounding level carry no direction; they stay out of B.
    keep = lam - delta > eps * top
    n = len(keep) if keep.all() else int(keep.argmin())
    squares = lam[:n] - delta
    f = np.sqrt(squares / lam[:n])
    matrix = f[:, None] * vectors[:, :n].T
    return matrix, squares, lost


def shrink(rows: Floats, size: int) -> tuple[Floats, float]:
    """Return ``(B, delta)`` with at most `size` - 1 rows and ``0 <= C'C - B'B <= delta I`` for C = `rows`.

    Also ``size * delta <= ||C||_F^2 - ||B||_F^2``, from which ``Delta <= ||A - A_k||_F^2 / (size - k)`` follows, up
    to the ``m eps ||C||_2^2`` for rounding that `delta` includes.

    Cost: 2 m^2 p + 2 (size - 1) m p flops and an eigenproblem of order m, for m rows of p columns.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.diag([3.0, 2.0, 1.0])
    >>> B, delta = shrink(C, 3)
    >>> B.shape, round(delta, 12)
    ((2, 3), 1.0)
    """
    if rows.shape[0] < size:
        return rows, 0.0
    matrix, _, lost = shrink_factors(rows @ rows.T, size)
    return matrix @ rows, lost


def shrink_parts(parts: Sequence[Floats], size: int, out: Floats | None = None) -> tuple[Floats, float]:
    """Return `shrink` of the rows of several matrices, which are not copied into one.

    `out` of shape (at least size - 1, n_columns): Memory of the result, which may be that of the first matrix.
    """
    edges = np.cumsum([0, *(len(part) for part in parts)])
    runs = [slice(a, b) for a, b in pairwise(edges)]
    gram = np.empty((edges[-1], edges[-1]))
    for i, part in enumerate(parts):
        for j in range(i + 1):
            # eigh reads the lower triangle only.
            gram[runs[i], runs[j]] = part @ parts[j].T
    matrix, _, lost = shrink_factors(gram, size)
    k = matrix.shape[0]
    out = np.empty((k, parts[0].shape[1])) if out is None or len(out) < k else out[:k]
    for a in range(0, out.shape[1], _BAND):
        band = slice(a, a + _BAND)
        total = matrix[:, runs[0]] @ parts[0][:, band]
        for run, part in zip(runs[1:], parts[1:], strict=True):
            total += matrix[:, run] @ part[:, band]
        out[:, band] = total
    return out, lost
