"""Ridge leverage scores of rows: exact, of a weighted sample, and online over blocks of arriving rows.

The ridge leverage of a row a of A is ``tau = a'(A'A + ridge I)^-1 a``, between 0 and 1: the larger, the less of a is in
the span of the other rows, and 1 (as the ridge goes to zero) for a direction that only a has.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from sketchselect.linalg.arrays import Floats

RIDGE_FLOOR = 1e-12
"""Least ridge as a share of the squared norm of the data: below it, rounding decides what is in the span."""


def floored(ridge: float, squared_norm: float) -> float:
    """Return the ridge, raised to `RIDGE_FLOOR` of the squared norm of the data; always positive."""
    return max(float(ridge), RIDGE_FLOOR * squared_norm, float(np.finfo(np.float64).tiny))


class GrowingFactor:
    """``(C'C + ridge I)^-1`` for rows C that are appended block by block.

    While C has fewer rows than columns, the state is C and the growing Cholesky factor of ``C C' + ridge I``; later it
    is the factor of ``C'C + ridge I``. No inverse and no pseudo-inverse is computed.
    Cost of b vectors of length n against m rows: ``4 m n b + 2 m^2 b`` flops, or ``n^2 b`` once m >= n; of appending b
    rows ``2 m n b + m^2 b``, or ``n^3 / 3 + n^2 b``.
    """

    def __init__(self, n: int, ridge: float) -> None:
        self._n = n
        self._ridge = ridge
        self._rows: list[Floats] = []
        self._lower: Floats = np.zeros((0, 0))
        self._scatter: Floats | None = None

    def inner(self, block: Floats) -> Floats:
        """Return ``X (C'C + ridge I)^-1 X'`` for the rows X of a block, shape (b, b); no term cancels."""
        from scipy.linalg import solve_triangular

        if self._scatter is not None:
            z = solve_triangular(self._lower, block.T, lower=True, check_finite=False)
            return cast(Floats, z.T @ z)
        outside = block
        inside: Floats = np.zeros((block.shape[0], block.shape[0]))
        if self._rows:
            rows = self._stacked()
            z = solve_triangular(self._lower, rows @ block.T, lower=True, check_finite=False)
            u = solve_triangular(self._lower, z, lower=True, trans=1, check_finite=False)
            # (C'C + ridge)^-1 x = (x - C'u) / ridge with u = (CC' + ridge)^-1 C x; x - C'u is outside the span.
            outside = block - u.T @ rows
            inside = u.T @ u
        return inside + (outside @ outside.T) / self._ridge

    def append(self, rows: Floats) -> None:
        """Add rows to C."""
        from scipy.linalg import solve_triangular

        if self._scatter is None and self._lower.shape[0] + rows.shape[0] >= self._n:
            self._scatter = self._ridge * np.eye(self._n)
            for part in self._rows:
                self._scatter += part.T @ part
            self._rows = []
        if self._scatter is not None:
            self._scatter += rows.T @ rows
            self._lower = cast(Floats, np.linalg.cholesky(self._scatter))
            return
        products = rows @ rows.T
        products[np.diag_indices_from(products)] += self._ridge
        m, k = self._lower.shape[0], rows.shape[0]
        lower = np.zeros((m + k, m + k))
        lower[:m, :m] = self._lower
        if m:
            edge = solve_triangular(self._lower, self._stacked() @ rows.T, lower=True, check_finite=False)
            lower[m:, :m] = edge.T
            products -= edge.T @ edge
        lower[m:, m:] = np.linalg.cholesky(products)
        self._lower = lower
        self._rows.append(rows)

    def _stacked(self) -> Floats:
        if len(self._rows) > 1:
            self._rows = [np.concatenate(self._rows)]
        return self._rows[0]


_BLOCK_NBYTES = 32 << 20
_BLOCK_ROWS = 256


def online_sample(
    rows: Floats, draws: Floats, factor: GrowingFactor, *, inflation: float, rate: float
) -> tuple[Floats, Floats]:
    """Return ``(scores, intensities)`` of rows that arrive one after the other; rows with draw < intensity are sampled.

    Row a is scored against the rows sampled before it, ``s = a'M^-1 a``; its intensity is ``c min((1 + eps) s, 1)``,
    and if it is sampled ``a a' / min(intensity, 1)`` is added to M: exactly Algorithm 1 of Wang, Shen and Li 2018 in
    ridge form, with one solve per block. Inside the block, its inner products are updated instead of M^-1.

    `rows` of shape (m, n): In the order of arrival.
    `draws` of shape (m,): The uniform number of each row.
    `factor`: The rows sampled so far; those sampled here are appended.
    `inflation`: 1 + eps.
    `rate`: c.
    """
    m, n = rows.shape
    scores, intensities = np.zeros(m), np.zeros(m)
    step = max(1, min(_BLOCK_ROWS, max(32, n // 4), _BLOCK_NBYTES // (8 * max(n, 1))))
    for a in range(0, m, step):
        b = min(a + step, m)
        inner = factor.inner(rows[a:b])
        scores[a:b], intensities[a:b], sampled = _sample_block(inner, draws[a:b], inflation, rate)
        if sampled:
            factor.append(rows[a:b][sampled] / np.sqrt(np.minimum(intensities[a:b][sampled], 1.0))[:, None])
    return scores, intensities


def _sample_block(inner: Floats, draws: Floats, inflation: float, rate: float) -> tuple[Floats, Floats, list[int]]:
    """Return scores, intensities and positions of the sampled rows of one block, from its inner products under M^-1.

    A sampled row i subtracts ``g g' / (p + g_i)`` from the inner products, g being their current row i. Only the
    diagonal and the g of each sampled row are computed (as in a left-looking Cholesky factorisation).
    """
    size = inner.shape[0]
    left = inner.diagonal().copy()
    intensities = rate * np.minimum(inflation * np.maximum(left, 0.0), 1.0)
    taken: Floats = np.empty((size, size))
    sampled: list[int] = []
    at = 0
    while True:
        ahead = draws[at:] < intensities[at:]
        i = at + int(ahead.argmax()) if ahead.any() else size
        if i == size:
            break
        p = min(float(intensities[i]), 1.0)
        k = len(sampled)
        edge = inner[i, i + 1 :] - taken[:k, i] @ taken[:k, i + 1 :]
        taken[k, i + 1 :] = edge / np.sqrt(p + max(float(left[i]), 0.0))
        left[i + 1 :] -= taken[k, i + 1 :] ** 2
        intensities[i + 1 :] = rate * np.minimum(inflation * np.maximum(left[i + 1 :], 0.0), 1.0)
        sampled.append(i)
        at = i + 1
    return np.clip(left, 0.0, 1.0), intensities, sampled


def sample_scores(rows: Floats, probabilities: Floats, ridge: float) -> Floats:
    """Return ``a_i'(sum_j a_j a_j' / p_j + ridge I)^-1 a_i`` of every row of a weighted sample.

    Cost of m rows of length n: ``m^2 n + 7/3 m^3`` flops, or ``2 m n^2 + n^3 / 3`` where m > n.
    """
    from scipy.linalg import cho_factor, cho_solve

    m, n = rows.shape
    scaled = rows / np.sqrt(probabilities)[:, None]
    if m <= n:
        products = scaled @ scaled.T
        ridged = products.copy()
        ridged[np.diag_indices(m)] += ridge
        solved = cho_solve(cho_factor(ridged, lower=True, check_finite=False), products, check_finite=False)
        out: Floats = probabilities * np.clip(solved.diagonal(), 0.0, 1.0)
        return out
    return scatter_scores(rows, ridge_factor(scaled.T @ scaled, ridge))


def ridge_factor(scatter: Floats, ridge: float) -> Floats:
    """Return the lower Cholesky factor of ``scatter + ridge I``."""
    ridged = scatter.copy()
    ridged[np.diag_indices_from(ridged)] += ridge
    return cast(Floats, np.linalg.cholesky(ridged))


def scatter_scores(rows: Floats, lower: Floats) -> Floats:
    """Return ``a'(L L')^-1 a`` of every row, at most 1, for a lower Cholesky factor L; n^2 flops a row."""
    from scipy.linalg import solve_triangular

    z = solve_triangular(lower, rows.T, lower=True, check_finite=False)
    out: Floats = np.minimum(np.einsum("ij,ij->j", z, z), 1.0)
    return out
