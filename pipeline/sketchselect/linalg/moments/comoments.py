"""Centred second moments of a block, and the pairwise (Chan) update that merges those of two sets of rows.

Sums of raw squares cancel once the mean is large against the spread (relative error 2e-3 at mean/sd = 1e6), so only
centred quantities are stored. Source: Chan, Golub and LeVeque 1983, eq. 2.1; Schubert and Gertz 2018.
"""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import PIECE_ROWS, Array, Floats, pieces
from sketchselect.linalg.centering import block_mean, center_into, centered_moments, check_squares


def centered_gram(
    block: Array, weights: Floats | None = None, start: int | Array = 0, targets: Floats | None = None
) -> tuple[float, Floats, Floats, Floats]:
    """Return ``(W, mean, S, q)``: total weight, column means, ``S = sum w (z - mean)(z - mean)'`` and its diagonal.

    The columns of z are those of the block, then those of the targets. All in float64, for any type of block.

    Cost: n p^2 multiply-adds (symmetric rank-k products) and two sweeps over the block; 2 p^2 + 2048 p numbers.
    """
    n, p = block.shape
    weight, shift = joint_mean(block, targets, weights, start)
    d = shift.shape[0]
    w = np.ones(n) if weights is None else weights
    sums, squares = np.zeros(d), np.zeros(d)
    gram: Floats | None = None
    buffer = np.empty((min(n, PIECE_ROWS), d))
    product = np.empty((d, d))
    for a, b in pieces(block):
        rows = buffer[: b - a]
        center_into(block[a:b], shift[:p], w[a:b], rows, sums[:p], squares[:p])
        check_squares(squares[:p], block, start)
        if targets is not None:
            center_into(targets[a:b], shift[p:], w[a:b], rows, sums[p:], squares[p:], offset=p)
            check_squares(squares[p:], targets, start, "target")
        if gram is None:
            gram = rows.T @ rows
        else:
            np.matmul(rows.T, rows, out=product)
            gram += product
    if gram is None:
        gram = np.zeros((d, d))
    return weight, *remove_residual(weight, shift, sums, gram, squares)


def joint_mean(
    block: Array, targets: Floats | None, weights: Floats | None, start: int | Array
) -> tuple[float, Floats]:
    """Return the total weight and the means of the columns of a block and its targets, as `block_mean`."""
    weight, shift = block_mean(block, weights, start)
    if targets is None:
        return weight, shift
    return weight, np.concatenate([shift, block_mean(targets, weights, start, "target")[1]])


def remove_residual(
    weight: float, shift: Floats, sums: Floats, gram: Floats, squares: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return mean, scatter and its diagonal about the mean, from sums about `shift`; changes `gram` in place."""
    mean, residual, squares = centered_moments(weight, shift, sums, squares)
    for a in range(0, residual.shape[0], 256):
        gram[a : a + 256] -= np.outer(weight * residual[a : a + 256], residual)
    np.fill_diagonal(gram, squares)
    return mean, gram, squares


def merge_means(
    weight_a: float, mean_a: Floats, weight_b: float, mean_b: Floats
) -> tuple[float, Floats, Floats, float]:
    """Return ``(W, mean, difference, factor)`` of the union; `factor` is ``W_a W_b / W``.

    Second moments of the union are ``S_a + S_b + factor * difference difference'``. Weights are floats, so products of
    counts cannot overflow.
    """
    weight = weight_a + weight_b
    difference = mean_b - mean_a
    if weight <= 0:
        return 0.0, mean_a, difference, 0.0
    factor = weight_a * (weight_b / weight)
    # From the mean of the heavier side. A light side far away would otherwise leave its rounding in the mean of all.
    if weight_b > weight_a:
        return weight, mean_b - difference * (weight_a / weight), difference, factor
    return weight, mean_a + difference * (weight_b / weight), difference, factor


MEAN_UNITS = 4.0 * float(np.finfo(np.float64).eps)
"""Rounding of a mean as a share of its norm. Each merge adds up to half a unit in the last place, at random."""


def mean_rounding(norms: float, difference: float, factor: float) -> float:
    """Return what the rounding of two means may hide of ``factor difference difference'``, in any direction.

    Far from zero it is more than that of the rows. `norms` is the sum of the norms of the means, `difference` the norm
    of ``factor^1/2 difference``.
    """
    off = MEAN_UNITS * norms
    return off * (2.0 * float(np.sqrt(factor)) * difference + factor * off)


def unmerge_means(weight: float, mean: Floats, weight_b: float, mean_b: Floats) -> tuple[float, Floats, Floats, float]:
    """Return ``(W_a, mean_a, difference, factor)`` of the rows of the total that are not in part b."""
    weight_a = weight - weight_b
    if weight_a <= 0:
        return 0.0, np.zeros_like(mean), np.zeros_like(mean), 0.0
    mean_a = mean + (mean - mean_b) * (weight_b / weight_a)
    return weight_a, mean_a, mean_b - mean_a, weight_a * weight_b / weight
