"""Centred triangular factors R with R'R = the scatter, for problems too ill-conditioned for R'R; merged by stacking.

A scatter matrix squares the condition number; its factor does not. Source: TSQR, Demmel, Grigori, Hoemmen and Langou
2012; the mean-difference row is Chan, Golub and LeVeque 1983, eq. 2.1, in factored form.
"""

from __future__ import annotations

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import PIECE_ROWS, Array, Floats, pieces
from sketchselect.linalg.centering import center_into, centered_moments, check_squares
from sketchselect.linalg.moments.comoments import joint_mean


def triangular_factor(rows: Floats) -> Floats:
    """Return the upper-triangular (trapezoidal, if there are few rows) R of ``rows = Q R``, with diagonal >= 0."""
    factor = np.asarray(np.linalg.qr(rows, mode="r"))
    return factor * np.where(factor.diagonal() < 0, -1.0, 1.0)[:, None]


def centered_factor(
    block: Array, targets: Floats, weights: Floats | None = None, start: int | Array = 0
) -> tuple[float, Floats, Floats]:
    """Return ``(W, mean, R)`` with ``R'R = sum w (z - mean)(z - mean)'``; R has min(n, p + q) rows.

    Cost: 2 n d^2 multiply-adds for d = p + q, twice that of the scatter; 2 (2 d + 2048) d numbers.
    """
    n, p = block.shape
    weight, shift = joint_mean(block, targets, weights, start)
    d = shift.shape[0]
    w = np.ones(n) if weights is None else weights
    # The mean in two parts: its rounding error is subtracted from the centred rows, not lost.
    sums, squares = np.zeros(d), np.zeros(d)
    buffer = np.empty((min(n, PIECE_ROWS), d))
    for a, b in pieces(block):
        _center(block, targets, shift, w, buffer, sums, squares, a, b)
        check_squares(squares[:p], block, start)
        check_squares(squares[p:], targets, start, "target")
    mean, residual, _ = centered_moments(weight, shift, sums, squares)
    factor = np.zeros((0, d))
    for a, b in pieces(block):
        rows = _center(block, targets, shift, w, buffer, sums, squares, a, b)
        rows -= np.sqrt(w[a:b])[:, None] * residual
        factor = triangular_factor(np.vstack([factor, rows]))
    return weight, mean, factor


def _center(
    block: Array,
    targets: Floats,
    shift: Floats,
    weights: Floats,
    buffer: Floats,
    sums: Floats,
    squares: Floats,
    a: int,
    b: int,
) -> Floats:
    p = block.shape[1]
    rows = buffer[: b - a]
    center_into(block[a:b], shift[:p], weights[a:b], rows, sums[:p], squares[:p])
    center_into(targets[a:b], shift[p:], weights[a:b], rows, sums[p:], squares[p:], offset=p)
    return rows


def merge_factors(left: Floats, right: Floats, difference: Floats, factor: float) -> Floats:
    """Return R of the union: ``R'R = R_a'R_a + R_b'R_b + factor * difference difference'``."""
    return triangular_factor(np.vstack([left, right, np.sqrt(factor) * difference]))


def factor_least_squares(factor: Floats, n_features: int, columns: Array | None = None) -> Floats:
    """Return the least-squares coefficients of the targets on some features, from the factor of [X y].

    `factor` of shape (r, n_features + n_targets): Centred factor of the features and targets.
    `columns`: Features of the model; all by default.
    Raises `BadParameter` if the columns are linearly dependent to working precision; the message names one.
    """
    chosen = np.arange(n_features) if columns is None else np.asarray(columns, dtype=np.intp)
    k = chosen.shape[0]
    both = np.hstack([factor[:, chosen], factor[:, n_features:]])
    norms = np.linalg.norm(both, axis=0)
    # Scaled first, so that the test for dependence does not depend on the units.
    scale = np.where(norms > 0, norms, 1.0)
    r = triangular_factor(both / scale)
    if r.shape[0] < k:
        raise BadParameter(f"least squares of {k} columns needs more than {k} rows of data; choose fewer columns")
    diagonal = r.diagonal()[:k]
    dependent = np.flatnonzero(diagonal <= k * np.finfo(float).eps)
    if dependent.size:
        raise BadParameter(
            f"column {int(chosen[dependent[0]])} is a linear combination of the columns before it (or constant); "
            "leave it out"
        )
    from scipy.linalg import solve_triangular

    coef: Floats = solve_triangular(r[:k, :k], r[:k, k:])
    return coef * scale[k:] / scale[:k, None]
