"""Least-squares prediction of all columns from selected ones: its error, and the metric in which to cluster them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.spectrum import Spectrum
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats

_EPS = float(np.finfo(np.float64).eps)

# Ridge of an exact summary, relative to the largest square: its rounding is then far below what it adds to the error.
LEAST_RIDGE = 1e-9

RIDGES = (1 / 64, 1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # Multiples of the shrinkage that are tried: the error is flat in it


@dataclass(frozen=True)
class Prediction:
    """Prediction of all columns of centred rows A from the columns J, by a matrix X with X_J = I.

    `residual`: Upper bound of ``||A - A_J X||_F^2``.
    `metric` of shape (n_selected, n_selected): W = XX', of eigenvalues of at least 1.
    `largest`: Upper bound of the largest eigenvalue of W.
    `distortion`: Bound d of the rounding: ``(1 - d) W <= metric <= (1 + d) W``.
    """

    residual: float
    metric: Floats
    largest: float
    distortion: float

    def root(self) -> Floats:
        """Return the symmetric root C of the metric: distances of rows of ``A_J C`` are those of ``A_J X``."""
        with one_blas_thread():
            values, vectors = np.linalg.eigh(self.metric)
        root: Floats = (vectors * np.sqrt(np.maximum(values, 1.0))) @ vectors.T
        return (root + root.T) / 2


def least_squares_factor(
    gamma: float, residual: float, largest: float, distortion: float, dropped: float, lower: float
) -> float:
    """Return F/F* of a clustering whose objective in the least-squares metric is within `gamma` of the best.

    With G(P) = F(A_J X, P) the objective in the metric, a partition P has F = a + c and G = a + b, where a, b and c
    are its objectives in A_J, in the predicted and in the actual other columns. ``b <= t G`` for
    ``t = 1 - 1 / largest``, and ``|sqrt b - sqrt c| <= rho``, the root of the residual; so, with ``c <= dropped``,
    ``F <= G + min(2 rho sqrt(t G) + rho^2, dropped)``, and for the best partition in all columns, in units of
    ``F* = 1``, ``G <= y`` with y the larger of ``(rho sqrt t + sqrt(1 - rho^2 (1 - t)))^2`` and
    ``min(rho^2 / t, largest)``; also ``y <= (1 + rho)^2``. The plain triangle inequality is the case t = 1:
    ``(sqrt gamma + (1 + sqrt gamma) rho / sqrt F*)^2``.

    `residual`, `largest`, `distortion`: Of a `Prediction`.
    `dropped`: Scatter of the columns that are not selected.
    `lower`: Lower bound of F*.
    """
    if distortion >= 0.5 or (lower <= 0 and residual > 0):
        return math.inf
    square = residual / lower if residual > 0 else 0.0
    share, rho = 1.0 - 1.0 / largest, math.sqrt(square)
    inside = 1.0 - square * (1.0 - share)
    growth = (rho * math.sqrt(share) + math.sqrt(inside)) ** 2 if inside >= 0 else 0.0
    growth = max(growth, min(square / share if share > 0 else math.inf, largest))
    growth = min(growth, (1.0 + rho) ** 2) * gamma * (1.0 + distortion) / (1.0 - distortion)
    others = 2.0 * rho * math.sqrt(share * growth) + square
    if dropped > 0:
        others = min(others, dropped / lower)
    # Some units of rounding in this formula.
    return max((growth + others) * (1.0 + 16.0 * _EPS), gamma)


def predict_columns(summary: Spectrum, columns: NDArray[np.integer], rounding: float) -> Prediction:
    """Return the ridge prediction of all columns from some of them, by the ridge of the least bound of its error.

    With B the sketch about the mean, N the other columns, ``Z = B_J' (B_J B_J' + ridge I)^-1`` and ``X_N = Z B_N``, any
    Z has ``||A - A_J X||_F^2 = ||B_N - B_J X_N||_F^2 + tr(M' E M)``, M = I - S_J X (S_J the columns J of the identity)
    and E = A'A - B'B. The p - r positive eigenvalues mu_i of MM' are ``1 + s_i^2``, s_i the singular values of X_N, and
    1; those of E are between 0 and Delta (but for `single_rounding`) and sum to ``||A||^2 - ||B||^2``. So the last term
    is at most the largest ``sum w_i mu_i`` of such w; or, by the triangle inequality and the squared norms that single
    columns lost, ``(sqrt(tr E_NN) + sqrt(tr X_N' E_JJ X_N))^2``. No matrix of p x p entries is formed: all follows from
    BB', which is diagonal, B_J and Z.

    `summary`: Of rows without missing values.
    `columns` of shape (r,): Different column indices.
    `rounding`: Bound, in the Frobenius norm, of the rounding of the Gram matrix of the summary.
    Cost: ``m r^2 + r^3`` flops for each of seven ridges (one for an exact summary), m directions of the sketch.
    Source: von Neumann's trace inequality; the rest is above.
    """
    p, r = summary.n_features, columns.size
    scatter = float(summary.centered_squared_norm)
    if r == p or scatter == 0:
        return Prediction(0.0 if r == p else rounding, np.eye(r), 1.0, 0.0)
    # In units of the scatter, so that no product overflows or vanishes.
    directions, delta, single = summary.centered_directions, summary.shrinkage, summary.single_rounding / scatter
    squares, delta = directions.squares / scatter, delta / scatter
    chosen = np.sqrt(squares)[:, None] * directions.vectors[:, columns]
    # What the sketch lost in all, and of each column; products in float32 may also have added that much to all.
    total, lost = max(1.0 - float(squares.sum()), 0.0), np.zeros(p)
    if delta > 0:
        seen_norms = np.einsum("i,ij,ij->j", squares, directions.vectors, directions.vectors)
        lost = np.maximum(summary.centered_column_squared_norms / scatter - seen_norms, 0.0)
    lost_chosen = float(lost[columns].sum())
    # The directions are orthonormal to some units a column, and so is what follows from that.
    unit = 16.0 * _EPS * (p + squares.size)
    best: Prediction | None = None
    with one_blas_thread():
        gram = chosen.T @ chosen
        across = squares[:, None] * chosen - chosen @ gram  # (B_N B_N') B_J
        others = float(squares.sum()) - float(gram.trace())
        u, s, vt = np.linalg.svd(chosen, full_matrices=False)
        least = LEAST_RIDGE * float(squares.max(initial=0.0))
        for ridge in (least, *(delta * multiple for multiple in RIDGES if delta > 0)):
            solve = (vt.T * np.divide(s, s * s + ridge, out=np.zeros_like(s), where=s > 0)) @ u.T
            onto = solve @ chosen
            spread = (solve * squares) @ solve.T - onto @ onto.T  # X_N X_N'
            spread = (spread + spread.T) / 2
            seen = others - 2.0 * float(np.sum(solve * across.T)) + float(np.sum(gram * spread))
            error = unit * float(np.sum(solve * solve)) + unit * math.sqrt(r + float(np.sum(spread * spread)))
            more = np.maximum(np.linalg.eigvalsh(spread)[::-1], 0.0)[: p - r] + error
            mu, n_ones = 1.0 + more, p - r - more.size
            noise = rounding / scatter * math.sqrt(float(mu @ mu) + n_ones) + 4.0 * unit
            unseen = single * (float(mu.sum()) + n_ones)
            if delta > 0:
                apart = math.sqrt(float(lost.sum()) - lost_chosen + single)
                apart += math.sqrt(_filled(more, 0, delta + single, lost_chosen + single))
                unseen = min(_filled(mu, n_ones, delta, total + single), apart * apart)
            bound = scatter * (max(seen, 0.0) + unseen + noise)
            if best is None or bound < best.residual:
                best = Prediction(bound, np.eye(r) + spread, float(mu.max(initial=1.0)), error)
    assert best is not None
    return best


def _filled(weights: Floats, n_ones: int, height: float, total: float) -> float:
    """Return the largest sum of w_i mu_i, 0 <= w_i <= `height`, sum w_i <= `total`: mu descending, then ones."""
    if not (height > 0 and total > 0):
        return 0.0
    amounts = np.clip(total - height * np.arange(weights.size), 0.0, height)
    left = min(max(total - height * weights.size, 0.0), height * n_ones)
    return float(amounts @ weights) + left
