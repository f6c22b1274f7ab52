"""A lower bound of the k-means objective of a few hundred rows, from the dual of a semidefinite relaxation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from sketchselect.linalg.arrays import Array, Floats

ITERATIONS = 80
"""Most rounds of the dual method; more gain less than a thousandth."""

EVALUATE_EVERY = 20
"""Rounds between two evaluations of the bound, each as dear as a round."""

LEAST_GAIN = 2e-4
"""Relative gain between two evaluations below which the method stops."""

OVER_RELAXATION = 1.6

_EPS = float(np.finfo(np.float64).eps)


class PartitionBound(NamedTuple):
    """What is known of the objective of the best clustering of some rows."""

    lower: float
    """No clustering has a smaller objective."""
    spectral: float
    """The weaker bound from the spectrum alone."""
    scatter: float
    """Objective of one cluster."""


def partition_bound(
    rows: Array, n_clusters: int, weights: Floats | None = None, iterations: int = ITERATIONS
) -> PartitionBound:
    """Return a lower bound of the k-means objective of these rows, valid whatever the iteration reached.

    With K the Gram matrix of the (weighted, centred) rows, u the unit vector along the roots of the weights,
    P = I - uu' and any matrix N >= 0 (entry by entry), every partition into at most k clusters has an objective of at
    least ``tr K - u'(K + N)u - sum_{i<k} max(lambda_i(P (K + N) P), 0)``. The iteration only looks for a good N; N = 0
    is the spectral bound. Rounding is subtracted.

    Parameters
    ----------
    rows : array of shape (n_rows, n_features)
        Finite numbers.
    n_clusters : int
        Number of clusters k.
    weights : array of shape (n_rows,), optional
        Row weights, not negative.
    iterations : int
        Most rounds of the dual method; 0 leaves the spectral bound.

    Notes
    -----
    Cost: n^2 p flops, and a round about 4/3 n^3 (one partial eigendecomposition).
    Source: Peng and Wei 2007 for the relaxation; the alternating direction method with over-relaxation on its dual;
    weak duality for the bound.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [9.0], [10.0]])
    >>> round(partition_bound(X, 2).lower, 6)
    1.0
    """
    x = np.asarray(rows, dtype=np.float64)
    if weights is not None:
        x, weights = x[weights > 0], weights[weights > 0]
    n = x.shape[0]
    largest = float(np.abs(x).max(initial=0.0))
    if n <= n_clusters or largest == 0.0:
        return PartitionBound(0.0, 0.0, 0.0)
    roots = np.ones(n) if weights is None else np.sqrt(weights / weights.max())
    unit = roots / np.linalg.norm(roots)
    # Scaled so that no product overflows, by a power of two, which rounds nothing; undone in the results.
    power = 2.0 ** np.floor(np.log2(largest))
    scale = float(power) * (1.0 if weights is None else float(np.sqrt(weights.max())))
    x = x / power
    # Twice: the first mean is rounded to a unit of its own size, which far from the origin is more than of the rest.
    for _ in range(2):
        x = x - np.average(x, axis=0, weights=roots * roots)
    x *= roots[:, None]
    gram = _outside(x @ x.T, unit)
    gram = (gram + gram.T) / 2
    scatter = float(np.trace(gram))
    rounding = 8.0 * _EPS * (n + x.shape[1]) * scatter
    if scatter <= 0.0:
        return PartitionBound(0.0, 0.0, 0.0)
    spectral = _dual_value(gram, np.zeros_like(gram), unit, n_clusters, scatter) - rounding
    lower = _ascend(gram, unit, n_clusters, scatter, iterations, spectral + rounding) - rounding
    square = scale * scale
    return PartitionBound(max(lower, 0.0) * square, max(spectral, 0.0) * square, (scatter + rounding) * square)


def _ascend(gram: Floats, unit: Floats, k: int, scatter: float, iterations: int, best: float) -> float:
    """Return the best dual value seen, projecting in turn onto {spectrum in [0, 1], trace k} and {entries >= 0}."""
    if k == 1:
        return best
    n = gram.shape[0]
    rho = float(np.linalg.norm(gram)) / np.sqrt(k)
    scaled = gram / rho
    along = np.outer(unit, unit)
    positive = along.copy()
    dual = np.zeros_like(gram)
    wanted, last = min(n, 3 * k), best
    for step in range(1, iterations + 1):
        spectral, wanted = _nearest_projection(_outside(positive - dual + scaled, unit), k - 1, wanted)
        spectral += along
        total = OVER_RELAXATION * spectral + (1.0 - OVER_RELAXATION) * positive + dual
        positive = np.maximum(total, 0.0)
        dual = np.minimum(total, 0.0)
        if step % EVALUATE_EVERY == 0 or step == iterations:
            value = _dual_value(gram, -rho * dual, unit, k, scatter)
            best = max(best, value)
            if value - last <= LEAST_GAIN * max(value, 0.0):
                break
            last = value
    return best


def _nearest_projection(matrix: Floats, trace: int, wanted: int) -> tuple[Floats, int]:
    """Return the nearest symmetric matrix with spectrum in [0, 1] and this trace, and how many eigenvalues it took."""
    n = matrix.shape[0]
    while True:
        values, vectors = eigh(matrix, subset_by_index=[n - wanted, n - 1], driver="evr", check_finite=False)
        kept = _capped_simplex(values, float(trace))
        if wanted == n or kept[0] == 0.0:
            break
        wanted = min(n, 2 * wanted)
    used = kept > 0.0
    nearest: Floats = (vectors[:, used] * kept[used]) @ vectors[:, used].T
    return nearest, min(n, max(int(used.sum()) + 4, trace + 1))


def _capped_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest point of {0 <= x <= 1, sum x = total}, by bisection on its threshold."""
    low, high = float(values.min()) - 1.0, float(values.max())
    for _ in range(64):
        middle = (low + high) / 2
        if np.clip(values - middle, 0.0, 1.0).sum() > total:
            low = middle
        else:
            high = middle
    clipped: Floats = np.clip(values - high, 0.0, 1.0)
    return clipped


def _dual_value(gram: Floats, dual: Floats, unit: Floats, k: int, scatter: float) -> float:
    """Return ``tr K - u'(K + N)u - sum of the k - 1 largest positive eigenvalues of P(K + N)P``, less rounding."""
    n = gram.shape[0]
    raised = gram + dual
    along = float(unit @ raised @ unit)
    top = 0.0
    if k > 1:
        values = eigh(
            _outside(raised, unit),
            eigvals_only=True,
            subset_by_index=[max(n - k + 1, 0), n - 1],
            driver="evr",
            check_finite=False,
        )
        top = float(np.maximum(values, 0.0).sum())
    rounding = 8.0 * _EPS * n * k * float(np.linalg.norm(raised))
    return float(scatter - along - top - rounding)


def _outside(matrix: Floats, unit: Floats) -> Floats:
    """Return P M P with P = I - uu', for a symmetric M."""
    image = matrix @ unit
    image -= 0.5 * float(unit @ image) * unit
    outer = np.outer(image, unit)
    projected: Floats = matrix - outer - outer.T
    return projected
