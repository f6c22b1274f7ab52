"""The shrink step of Frequent Directions, through the small Gram matrix of the rows.

With K = C C' = U diag(lam) U' the shrunk rows are ``B = diag(f) U' C``, ``f_i^2 = max(lam_i - delta, 0) / lam_i`` and
``delta = lam_l``. For *any* orthonormal U and 0 <= f <= 1, ``C'C - B'B = C'(I - U f^2 U')C >= 0``: that the sketch
never exceeds the data does not depend on the accuracy of the eigenvectors. About five times faster than an SVD of C.
Source: Liberty 2013; Ghashami, Liberty, Phillips and Woodruff 2016, full-shrink variant.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.centering import center_into, check_squares

if TYPE_CHECKING:
    from sketchselect.linalg.sketch.single_products import SingleProducts

BUFFER_FACTOR = 2.4
"""Rows of the streaming buffer per sketch row. The cost of a row, products and eigenproblem, is flat from 1.9 to 2.7
(the products alone are cheapest at 1 + sqrt(2)); within that, fewer and larger shrinks lose less."""

SINGLE_SHRINK_FACTOR = 4
"""A block of at most this multiple of the sketch size is shrunk once: fewer shrinks lose less."""

RESIDUALS = 1.16
"""An error E in ``K U = U diag(lam) + E`` moves eigenvalues of K by at most 2 / sqrt(3) ||E||: the largest norm of
[[X, Y'], [Y, 0]] with [X; Y] of norm 1."""

_BAND = 4096


def _single_products(block: Array, height: int, squares: Floats, lost: float) -> SingleProducts | None:
    """Return what multiplies new rows in float32, for blocks of float32."""
    if block.dtype != np.float32:
        return None
    from sketchselect.linalg.sketch.single_products import SingleProducts

    return SingleProducts(np.empty((height, block.shape[1]), np.float32), float(squares.sum()), lost)


def _single_factors(
    single: SingleProducts, gram: Floats, rows: Floats, norms: Floats, squares: Floats, size: int
) -> tuple[Floats, Floats, float] | None:
    """Return `shrink_factors` with the error of products in float32 in what is lost; None where that is too much."""
    error = single.fill(gram, rows, norms, squares)
    if error is None:
        return None
    matrix, norms, lost = shrink_factors(gram, size)
    return (matrix, norms, lost + error) if single.accepts(error, lost) else None


def shrink_factors(gram: Floats, size: int) -> tuple[Floats, Floats, float]:
    """Return ``(M, squares, lost)``: the matrix M = diag(f) U' of at most `size` - 1 rows, the diagonal of M K M', and
    the increase of Delta, lam_l and what rounding may add to it.
    """
    # A file that nothing reads before the first block.
    from sketchselect.linalg.sketch.leading import leading_eigenpairs

    eps = float(np.finfo(np.float64).eps)
    pairs = leading_eigenpairs(gram, size - 1)
    if pairs is not None and pairs[0][1 - size] - pairs[0][-size] > RESIDUALS * pairs[2]:
        # The gap shows that no eigenvector was missed: what is orthogonal to those there are has at most lam_l, and
        # RESIDUALS times the residual.
        lam, vectors, residual = pairs
    else:
        lam, vectors = np.linalg.eigh(gram)
        vectors, residual = vectors[:, ::-1][:, : size - 1], 0.0
    top = max(float(lam[-1]), 0.0)
    delta = max(float(lam[-size]), 0.0) if lam.shape[0] >= size else 0.0
    # Products and eigenvalues are known to some units of the largest one. Were that left out of Delta, many shrinks
    # would lose more than Delta bounds.
    lost = delta + eps * lam.shape[0] * top + 2.0 * RESIDUALS * residual
    lam = lam[::-1][: size - 1]
    # Eigenvalues at rounding level carry no direction; they stay out of B.
    keep = lam - delta > eps * top
    squares = lam[keep] - delta
    f = np.sqrt(squares / lam[keep])
    matrix = f[:, None] * vectors[:, keep].T
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
        out[:, band] = sum(matrix[:, run] @ part[:, band] for run, part in zip(runs, parts, strict=True))
    return out, lost


def shrink_block(
    block: Array, size: int, shift: Floats, weights: Floats, start: int | Array = 0
) -> tuple[Floats, float, Floats, Floats]:
    """Return ``(B, Delta, sums, squares)`` of a block of rows about `shift`.

    ``0 <= D'D - B'B <= Delta I`` for the rows ``D = sqrt(w) (x - shift)``; `sums` and `squares` are the column sums of
    ``w (x - shift)`` and ``w (x - shift)^2``. B has at most ``2 size`` rows (nothing is lost while the block is small).

    Cost: for long blocks about 6.8 l p flops a row: the rows of B after a shrink are orthogonal with known norms, so
    the next Gram matrix needs only their products with the new rows. Half of these flops are in float32 for rows of
    float32, where the bound of their rounding, which Delta includes, is at most a 16th of it.
    """
    n, p = block.shape
    sums, squares = np.zeros(p), np.zeros(p)
    if n <= max(SINGLE_SHRINK_FACTOR, BUFFER_FACTOR) * size:
        rows = np.empty((n, p))
        center_into(block, shift, weights, rows, sums, squares)
        check_squares(squares, block, start)
        if n <= 2 * size:
            return rows, 0.0, sums, squares
        sketch, delta = shrink(rows, size)
        return sketch, delta, sums, squares
    capacity = int(BUFFER_FACTOR * size)
    n_steps = -(-(n - (size - 1)) // (capacity - (size - 1)))
    edges = np.linspace(0, n, n_steps + 1).astype(int)
    height = size - 1 + int(np.diff(edges).max())
    # Two buffers in turn: each shrink writes its rows where the next one reads them, and nothing is allocated inside.
    buffer, other = np.empty((height, p)), np.empty((height, p))
    gram = np.empty((height, height))
    norms = np.empty(0)
    delta = 0.0
    single: SingleProducts | None = None
    for a, b in pairwise(edges):
        old, m = norms.shape[0], norms.shape[0] + int(b - a)
        new = buffer[old:m]
        center_into(block[a:b], shift, weights[a:b], new, sums, squares)
        check_squares(squares, block, start)
        k = gram[:m, :m]
        factors = None if single is None else _single_factors(single, k, buffer[:m], norms, squares, size)
        if factors is None:
            drifted = single is not None and single.drift > 0
            k[:old, :old] = buffer[:old] @ buffer[:old].T if drifted else np.diag(norms)
            k[old:, old:] = new @ new.T
            # eigh reads the lower triangle only.
            np.matmul(new, buffer[:old].T, out=k[old:, :old])
            factors = shrink_factors(k, size)
            # What the first shrink loses shows whether float32 may do; a block in which it once may not has none of it.
            single = _single_products(block, height, squares, factors[2]) if old == 0 and a == 0 else None
        matrix, norms, lost = factors
        np.matmul(matrix, buffer[:m], out=other[: norms.shape[0]])
        buffer, other = other, buffer
        delta += lost
    return buffer[: norms.shape[0]].copy(), delta, sums, squares
