"""Centred second moments of a block, and the pairwise (Chan) update that merges those of two sets of rows.

Sums of raw squares cancel once the mean is large against the spread (relative error 2e-3 at mean/sd = 1e6), so only
centred quantities are ever kept. Source: Chan, Golub and LeVeque 1983, eq. 2.1; Schubert and Gertz 2018.
"""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import Array, Floats, pieces
from sketchselect.linalg.centering import block_mean, center_into, check_squares


def centered_gram(
    block: Array, weights: Floats | None = None, start: int | Array = 0
) -> tuple[float, Floats, Floats, Floats]:
    """Return ``(W, mean, S, q)``: total weight, column means, ``S = sum w (x - mean)(x - mean)'`` and its diagonal.

    Cost: n p^2 multiply-adds (symmetric rank-k products) and two sweeps over the block; 2 p^2 + 2048 p numbers.
    """
    n, p = block.shape
    weight, shift = block_mean(block, weights, start)
    w = np.ones(n) if weights is None else weights
    sums, squares = np.zeros(p), np.zeros(p)
    gram: Floats | None = None
    buffer = np.empty((min(n, 2048), p))
    product = np.empty((p, p))
    for a, b in pieces(block):
        rows = buffer[: b - a]
        center_into(block[a:b], shift, w[a:b], rows, sums, squares)
        check_squares(squares, block, start)
        if gram is None:
            gram = rows.T @ rows
        else:
            np.matmul(rows.T, rows, out=product)
            gram += product
    if gram is None:
        gram = np.zeros((p, p))
    if weight > 0:
        # The rounding of the mean leaves a small sum behind; removing it costs one rank-one term.
        rest = sums / weight
        shift = shift + rest
        gram -= np.outer(weight * rest, rest)
        squares = np.maximum(squares - weight * rest * rest, 0.0)
    np.fill_diagonal(gram, squares)
    return weight, shift, gram, squares


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
    share = weight_b / weight
    return weight, mean_a + difference * share, difference, weight_a * share


def unmerge_means(weight: float, mean: Floats, weight_b: float, mean_b: Floats) -> tuple[float, Floats, Floats, float]:
    """Return ``(W_a, mean_a, difference, factor)`` of the rows that are in the total but not in part b."""
    weight_a = weight - weight_b
    if weight_a <= 0:
        return 0.0, np.zeros_like(mean), np.zeros_like(mean), 0.0
    mean_a = mean + (mean - mean_b) * (weight_b / weight_a)
    return weight_a, mean_a, mean_b - mean_a, weight_a * weight_b / weight
