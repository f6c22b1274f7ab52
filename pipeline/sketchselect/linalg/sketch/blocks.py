"""The sketch of a block of rows, shrunk as a buffer fills."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.centering import center_into, check_squares
from sketchselect.linalg.sketch.shrink import shrink, shrink_factors, shrink_parts

BUFFER_FACTOR = 2.5
"""Rows of the streaming buffer per sketch row. The cost of a row, products and eigenproblem, is flat from 1.9 to 2.7
(the products alone are cheapest at 1 + sqrt(2)); within that, fewer and larger shrinks lose less."""

STEP_UNIT = 8
"""Divisor of the new rows of a shrink: BLAS multiplies whole tiles of them, 3 to 6 % faster than 141 rows, say."""

SINGLE_SHRINK_FACTOR = 4
"""A block of at most this multiple of the sketch size is shrunk once: fewer shrinks lose less."""


def shrink_block(
    block: Array, size: int, shift: Floats, weights: Floats, start: int | Array = 0
) -> tuple[Floats, float, float, Floats, Floats]:
    """Return ``(B, Delta, gained, sums, squares)`` of a block of rows about `shift`.

    ``-F <= D'D - B'B <= Delta I`` for the rows ``D = sqrt(w) (x - shift)`` and some F >= 0 of trace `gained`, which is
    0 but for long blocks of float32; `sums` and `squares` are the column sums of ``w (x - shift)`` and
    ``w (x - shift)^2``. B has at most ``2 size`` rows (nothing is lost while the block is small).

    Cost: for long blocks about 6.8 l p flops a row: the rows of B after a shrink are orthogonal with known norms, so
    the next Gram matrix needs only their products with the new rows. They are in float32 for rows of float32, as long
    as the bounds of their rounding are at most a 16th of what is lost.
    """
    n, p = block.shape
    moments = np.zeros((2, p))
    if n <= max(SINGLE_SHRINK_FACTOR, BUFFER_FACTOR) * size:
        rows = np.empty((n, p))
        center_into(block, shift, weights, rows, *moments)
        check_squares(moments[1], block, start)
        sketch, delta = (rows, 0.0) if n <= 2 * size else shrink(rows, size)
        return sketch, delta, 0.0, *moments
    units, most = -(-n // STEP_UNIT), -(-(int(BUFFER_FACTOR * size) - (size - 1)) // STEP_UNIT)
    n_steps = -(-units // most)
    edges = np.minimum(STEP_UNIT * (np.arange(n_steps + 1) * units // n_steps), n)
    parts: list[Floats] = []
    lost, gained, done = 0.0, 0.0, 0
    if block.dtype == np.float32:
        # A file that nothing reads before the first long block of float32.
        from sketchselect.linalg.sketch.single_products import shrink_single

        done, parts, lost, gained = shrink_single(block, edges, size, shift, weights, moments)
    if done < n:
        edges = edges[np.searchsorted(edges, done) :]
        rows, delta = _shrink_double(block, edges, size, shift, weights, start, moments)
        parts, lost = [*parts, rows], lost + delta
    if len(parts) > 1:
        parts[0], delta = shrink_parts(parts, size)
        lost += delta
    return parts[0], lost, gained, *moments


def _shrink_double(
    block: Array, edges: Array, size: int, shift: Floats, weights: Floats, start: int | Array, moments: Floats
) -> tuple[Floats, float]:
    """Return the sketch of the rows from the first of `edges` to the last, and what its shrinks lose, in float64."""
    height = size - 1 + int(np.diff(edges).max())
    # Two buffers in turn: each shrink writes its rows where the next one reads them, and nothing is allocated inside.
    buffer, other = np.empty((2, height, block.shape[1]))
    gram = np.empty((height, height))
    norms = np.empty(0)
    delta = 0.0
    for a, b in pairwise(edges):
        old, m = len(norms), len(norms) + int(b - a)
        new = buffer[old:m]
        center_into(block[a:b], shift, weights[a:b], new, *moments)
        check_squares(moments[1], block, start)
        k = gram[:m, :m]
        k[:old, :old] = np.diag(norms)
        k[old:, old:] = new @ new.T
        # eigh reads the lower triangle only.
        np.matmul(new, buffer[:old].T, out=k[old:, :old])
        matrix, norms, lost = shrink_factors(k, size)
        np.matmul(matrix, buffer[:m], out=other[: len(norms)])
        buffer, other = other, buffer
        delta += lost
    return buffer[: len(norms)].copy(), delta
