"""Ridge leverage scores of rows: exact, bounded from a sketch, and online; the spectral error of a weighted sample.

The ridge leverage of a row a of A is ``tau = a'(A'A + ridge I)^-1 a``, between 0 and 1: the larger, the less of a is in
the span of the other rows, and 1 (as the ridge goes to zero) for a direction that only a has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from sketchselect.linalg.spectrum import Directions
from sketchselect.linalg.validation import Floats

if TYPE_CHECKING:
    from sketchselect.linalg.panel_columns import PanelDirections

# Least ridge as a share of the squared norm of the data: below it, rounding decides what is in the span.
RIDGE_FLOOR = 1e-12


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
    downdates: Floats = np.empty((size, size))
    sampled: list[int] = []
    at = 0
    while True:
        ahead = draws[at:] < intensities[at:]
        i = at + int(ahead.argmax()) if ahead.any() else size
        if i == size:
            break
        p = min(float(intensities[i]), 1.0)
        k = len(sampled)
        edge = inner[i, i + 1 :] - downdates[:k, i] @ downdates[:k, i + 1 :]
        downdates[k, i + 1 :] = edge / np.sqrt(p + max(float(left[i]), 0.0))
        left[i + 1 :] -= downdates[k, i + 1 :] ** 2
        intensities[i + 1 :] = rate * np.minimum(inflation * np.maximum(left[i + 1 :], 0.0), 1.0)
        sampled.append(i)
        at = i + 1
    return np.clip(left, 0.0, 1.0), intensities, sampled


def sample_scores(rows: Floats, probabilities: Floats, ridge: float) -> Floats:
    """Return ``a_i'(sum_j a_j a_j' / p_j + ridge I)^-1 a_i`` of every row of a weighted sample.

    Cost of m rows of length n: ``m^2 n + 7/3 m^3`` flops, or ``2 m n^2 + n^3 / 3`` where m > n.
    """
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
    z = solve_triangular(lower, rows.T, lower=True, check_finite=False)
    out: Floats = np.minimum(np.einsum("ij,ij->j", z, z), 1.0)
    return out


BAND = 2048  # Columns whose squares are made at a time


def tail_ridge(
    directions: Directions | PanelDirections,
    squared_norm: float,
    shrinkage: float,
    n_components: int,
    gained: float = 0.0,
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
    return np.minimum((directions.vectors**2).T @ (s2 / (s2 + ridge)), 1.0)


def leverage_bounds(
    directions: Directions,
    column_squares: Floats,
    shrinkage: float,
    ridge: float,
    error: float = 0.0,
    n_columns: int | None = None,
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
    `n_columns`: Of A, where these are some of its columns.

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
        lower, upper = leverage_bounds(directions, column_squares + error, shrinkage + error, less, 0.0, n_columns)
        upper = np.minimum(upper, column_squares * (1 + 1e-12) / ridge)
        return np.clip(1.0 - (ridge / less) * (1.0 - lower), 0.0, upper), upper
    shares = s2 / (s2 + ridge)
    inner, outer, curved, seen = _weighted(directions, np.stack([shares, s2 / (s2 + ridge + shrinkage), shares**2, s2]))
    inner = np.minimum(inner, 1.0)
    residual = np.maximum(column_squares - seen, 0.0)
    # Eigenvalues are known to within rounding of the largest; both bounds are relaxed by that much.
    slack = (n_columns or column_squares.size) * float(np.finfo(np.float64).eps) * float(s2.max(initial=0.0)) / ridge
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
    # Directions that the factor lacks, because their eigenvalues are 0, have their share too.
    others = np.maximum(1.0 - squared.sum(axis=0), 0.0)
    upper = squared.T @ ((squares + error) / (squares + error + ridge)) + others * (error / (error + ridge))
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
