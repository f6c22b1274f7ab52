"""Bounds of ridge leverage scores from a sketch, and the spectral error of a weighted sample."""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.columns.leverage import floored
from sketchselect.linalg.sketch.spectrum import Directions

BAND = 2048
"""Columns whose squares are made at a time."""


def tail_ridge(
    directions: Directions, squared_norm: float, shrinkage: float, n_components: int, gained: float = 0.0
) -> float:
    """Return a lower bound of ``||A - A_k||_F^2 / k``, equal to it for an exact sketch.

    With the ridge ``||A - A_k||_F^2 / k`` the scores sum to at most 2 k; a smaller ridge only raises them.
    ``(||A||_F^2 - ||B_k||_F^2 - min(k Delta, T)) / k`` with ``T = ||A||_F^2 - ||B||_F^2 + gained``.

    `gained`: Bound of the trace of what B'B exceeds A'A by.
    """
    k = n_components
    lost = squared_norm - float(directions.squares.sum()) + gained
    tail = squared_norm - float(directions.squares[:k].sum()) - max(0.0, min(k * shrinkage, lost))
    return floored(tail / k, squared_norm)


def sketched_leverage(directions: Directions, ridge: float) -> Floats:
    """Return the ridge leverage of every column of a sketch B, from its singular values and vectors."""
    s2 = directions.squares
    out: Floats = np.minimum((directions.vectors**2).T @ (s2 / (s2 + ridge)), 1.0)
    return out


def leverage_bounds(
    directions: Directions, column_squares: Floats, shrinkage: float, ridge: float, error: float = 0.0
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds of the ridge leverage of every column of A, from a sketch B of its rows.

    Rigorous for ``-error <= A'A - B'B <= Delta I``; equal up to rounding where both are 0. The upper bounds sum to O(k)
    for the ridge of `tail_ridge`, for any number of columns.

    `directions`: Squared singular values s_j^2 and right singular vectors of B.
    `column_squares` of shape (n_columns,): Exact squared norms of the columns of A.
    `shrinkage`: Delta.
    `ridge`: Of the scores ``tau_i = a_i'(A A' + ridge I)^-1 a_i``.
    `error`: Bound of what B'B may exceed A'A by in any direction. Where Delta is 0, with all directions: of the error
        of the Gram matrix that was decomposed, in the spectral norm.

    ``tau = 1 - ridge e'(G + ridge)^-1 e`` and ``B'B <= G <= B'B + Delta`` give the lower bound and the second upper
    bound; convexity of the inverse at B'B and the residual of each column, ``r_i = ||a_i||^2 - ||B e_i||^2``, the last.
    Cost: one sweep over the directions.
    """
    s2 = directions.squares
    if error > 0 and shrinkage == 0:
        # Twice, since negative eigenvalues were cut off.
        return _perturbed_bounds(s2, directions.vectors**2, column_squares, ridge, 2.0 * error)
    if error > 0:
        # For A'A + error I, which B'B does not exceed, and a ridge that makes up for it.
        if ridge <= 2.0 * error:
            return np.zeros(column_squares.size), np.minimum(column_squares / ridge, 1.0)
        less = ridge - error
        lower, upper = leverage_bounds(directions, column_squares + error, shrinkage + error, less)
        upper = np.minimum(upper, column_squares * (1 + 1e-12) / ridge)
        return np.clip(1.0 - (ridge / less) * (1.0 - lower), 0.0, upper), upper
    shares = s2 / (s2 + ridge)
    inner, outer, curved, seen = _weighted(directions, np.stack([shares, s2 / (s2 + ridge + shrinkage), shares**2, s2]))
    inner = np.minimum(inner, 1.0)
    residual = np.maximum(column_squares - seen, 0.0)
    # Eigenvalues are known to within rounding of the largest; both bounds are relaxed by that much.
    slack = column_squares.size * float(np.finfo(np.float64).eps) * float(s2.max(initial=0.0)) / ridge
    upper = np.minimum.reduce(
        [
            np.ones_like(inner),
            shrinkage / (ridge + shrinkage) + ridge / (ridge + shrinkage) * outer + slack,
            inner + (np.sqrt(residual) + np.sqrt(shrinkage * curved)) ** 2 / ridge + slack,
        ]
    )
    # Last, without slack: a column of zeros scores exactly 0.
    upper = np.minimum(upper, column_squares * (1 + 8 * float(np.finfo(np.float64).eps)) / ridge)
    return np.minimum(np.maximum(inner - slack, 0.0), upper), upper


def _weighted(directions: Directions, weights: Floats) -> Floats:
    """Return sums over the directions of their squared entries, shape (number of weightings, n_columns)."""
    out = np.empty((len(weights), directions.vectors.shape[1]))
    for a in range(0, out.shape[1], BAND):
        out[:, a : a + BAND] = weights @ directions.vectors[:, a : a + BAND] ** 2
    return out


def _perturbed_bounds(
    squares: Floats, squared: Floats, column_squares: Floats, ridge: float, error: float
) -> tuple[Floats, Floats]:
    """Return the bounds if ``|A'A - G| <= error`` for the Gram matrix G of these eigenpairs; tau increases with A'A."""
    upper = squared.T @ ((squares + error) / (squares + error + ridge))
    upper = np.minimum(np.minimum(upper * (1 + 1e-12), 1.0), column_squares * (1 + 1e-12) / ridge)
    if ridge <= error:
        return np.zeros_like(upper), upper
    lower = squared.T @ ((squares - error) / (squares - error + ridge))
    return np.clip(lower - 1e-12, 0.0, upper), upper


def spectral_error(
    sample: Floats, directions: Directions, shrinkage: float, ridge: float, gained: float = 0.0
) -> float:
    """Return the least e with ``|C'C - A'A| <= e (A'A + ridge I)`` (as quadratic forms), or an upper bound of e.

    `sample` of shape (m, n): C: the weighted rows of the sample.
    `directions`: Of a sketch B of all rows A.
    `shrinkage`: Delta with ``-gained <= A'A - B'B <= Delta I``; the result is exact if it is 0, otherwise an upper
        bound.
    `ridge`: Positive.
    Cost: an eigendecomposition of min(n, m + size of B) rows.
    """
    m, n = sample.shape
    vectors, squares = directions.vectors, directions.squares
    exact = shrinkage == 0
    if vectors.shape[0] + m < n:
        basis = np.linalg.qr(np.concatenate([vectors, sample]).T)[0]
        sample, vectors = sample @ basis, vectors @ basis
    gram = vectors.T @ (squares[:, None] * vectors)
    size = gram.shape[0]
    lam, w = np.linalg.eigh(gram)
    # A'A + gained, which B'B does not exceed, and a ridge that makes up for it.
    less = max(ridge - gained, 0.5 * ridge)
    whitener = w / np.sqrt(np.maximum(lam, 0.0) + less)
    gap = whitener.T @ (sample.T @ sample - gram + gained * np.eye(size)) @ whitener
    above = float(np.linalg.eigvalsh(gap)[-1])
    if gained > 0:
        largest = float(np.linalg.eigvalsh(sample @ sample.T)[-1])
        above = largest / ridge if less > ridge - gained else max(above, gained / less)
    gap[np.diag_indices(size)] -= (shrinkage + gained) / (np.maximum(lam, 0.0) + less)
    # C'C is not negative, so 1 is always enough below; outside the span of C and B, A'A is at most Delta.
    below = min(-float(np.linalg.eigvalsh(gap)[0]), 1.0)
    outside = 0.0 if exact or size == n else shrinkage / (ridge + shrinkage)
    return max(above, below, outside, 0.0)


def column_error(weights: Floats, directions: Directions, ridge: float) -> float:
    """Return the least e of `spectral_error` for weighted columns of A, from the exact Gram matrix A'A.

    `weights` of shape (n_columns,): ``1 / p`` for the columns of the sample, 0 for the others.
    `directions`: Of A'A.
    `ridge`: Positive.
    ``A (W - I) A'`` seen through ``(A A' + ridge)^-1/2`` has the eigenvalues of ``K^1/2 (W - I) K^1/2`` with
    ``K = G (G + ridge)^-1``.
    """
    s2 = directions.squares
    root = directions.vectors * np.sqrt(s2 / (s2 + ridge))[:, None]
    lam = np.linalg.eigvalsh((root * (weights - 1.0)) @ root.T)
    return float(max(-lam[0], lam[-1], 0.0))
