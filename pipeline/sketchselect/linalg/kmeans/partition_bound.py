"""A lower bound of the k-means objective of a few hundred rows, from the dual of a semidefinite relaxation.

Its multipliers are found by an ascent in single precision. They need not be exact: any give a valid bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numba
import numpy as np
from scipy.linalg import eigh

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.hashing import uniforms

OVER_RELAXATION = 1.6

STIFFNESS = 2.0  # Penalty of the method, in units of ||K||_F / sqrt(k)
SPARE = 8  # Directions followed beside those in use, so that others can replace them
_TINY = 1e-10  # Relative square below which a direction of the search space is rounding


class DualAscent:
    """The alternating direction method on the dual; each round improves the multipliers N >= 0 (entry by entry).

    The rounds project in turn onto {spectrum in [0, 1], trace k, Z u = u} and {entries >= 0}. The first needs the
    largest eigenvalues of a matrix that changes little from round to round: a Rayleigh-Ritz step on the directions of
    the round before and their images finds them with two products.

    `gram` of shape (n, n): K, with K u = 0.
    `unit` of shape (n,): u.
    `n_clusters`: k, at least 2 and less than n.
    """

    def __init__(self, gram: Floats, unit: Floats, n_clusters: int) -> None:
        n = gram.shape[0]
        self._trace = float(n_clusters - 1)
        self._penalty = STIFFNESS * float(np.linalg.norm(gram)) / np.sqrt(n_clusters)
        self._unit = unit.astype(np.float32)
        self._scaled = (gram / self._penalty).astype(np.float32)
        self._entries: Array = np.outer(self._unit, self._unit)
        self._dual: Array = np.zeros_like(self._scaled)
        self._matrix: Array = self._entries + self._scaled
        n_directions = min(n_clusters + SPARE, n)
        draws = uniforms(n, np.arange(n * n_directions, dtype=np.uint64)).reshape(n, n_directions)
        self._directions: Array = (draws - 0.5).astype(np.float32)

    def multipliers(self, rounds: int, every: int) -> Iterator[Floats]:
        """Yield N after each `every` rounds, `rounds` in all; symmetric and not negative, in float64."""
        for done in range(1, rounds + 1):
            self._round()
            if done % every == 0 or done == rounds:
                multipliers = self._dual.astype(np.float64)
                multipliers += multipliers.T
                multipliers *= -0.5 * self._penalty
                yield multipliers

    def _round(self) -> None:
        spectral = self._projection()
        _relax(spectral, self._entries, self._dual, self._matrix, self._scaled, self._unit, np.float32(OVER_RELAXATION))

    def _projection(self) -> Array:
        """Return the nearest matrix with spectrum in [0, 1] and trace k - 1 outside u."""
        n = self._matrix.shape[0]
        if 4 * self._directions.shape[1] >= n:
            outside = self._matrix.astype(np.float64)
            image = outside @ self._unit
            image -= 0.5 * float(self._unit @ image) * self._unit
            outside -= np.outer(image, self._unit) + np.outer(self._unit, image)
            values, vectors = np.linalg.eigh(outside)
        else:
            values, vectors = self._ritz()
        capped = capped_simplex(values, self._trace)
        used = int(np.count_nonzero(capped))
        first = vectors.shape[1] - used
        self._directions = np.ascontiguousarray(vectors[:, max(first - SPARE, 0) :], np.float32)
        mine = np.ascontiguousarray(vectors[:, first:], np.float32)
        projected: Array = (mine * capped[first:].astype(np.float32)) @ mine.T
        return projected

    def _ritz(self) -> tuple[Floats, Array]:
        """Return Ritz values (ascending) and vectors of the matrix outside u, from the directions and their images."""
        v = self._outside(self._directions)
        image = self._outside(self._matrix @ v)
        lengths = np.linalg.norm(image, axis=0)
        w = image / np.where(lengths > 0, lengths, np.float32(1))
        basis = np.hstack([v, w]).astype(np.float64)
        images = np.hstack([image, self._outside(self._matrix @ w)]).astype(np.float64)
        squares, turn = np.linalg.eigh(basis.T @ basis)
        there = squares > _TINY * squares[-1]
        turn = turn[:, there] / np.sqrt(squares[there])
        small = turn.T @ (basis.T @ images) @ turn
        values, vectors = np.linalg.eigh((small + small.T) / 2)
        return values, (basis @ (turn @ vectors)).astype(np.float32)

    def _outside(self, columns: Array) -> Array:
        projected: Array = columns - np.outer(self._unit, self._unit @ columns)
        return projected


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def capped_simplex(values: Floats, total: float) -> Floats:
    """Return the nearest point of {0 <= x <= 1, sum x = total}, by bisection on its threshold.

    Examples
    --------
    >>> capped_simplex(np.array([-1.0, 0.25, 0.5, 3.0]), 2.0).round(9).tolist()
    [0.0, 0.375, 0.625, 1.0]
    """
    low, high = values.min() - 1.0, values.max()
    for _ in range(64):
        middle = (low + high) / 2
        capped = 0.0
        for value in values:
            capped += min(max(value - middle, 0.0), 1.0)
        if capped > total:
            low = middle
        else:
            high = middle
    out = np.empty_like(values)
    for i in range(values.shape[0]):
        out[i] = min(max(values[i] - high, 0.0), 1.0)
    return out


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")  # type: ignore[untyped-decorator]
def _relax(
    spectral: Array, entries: Array, dual: Array, matrix: Array, scaled: Array, unit: Array, relaxation: np.float32
) -> None:
    """Project onto the entries >= 0, add the difference to the multipliers, and write the next matrix, in one sweep."""
    n = spectral.shape[0]
    for i in range(n):
        for j in range(n):
            projected = spectral[i, j] + unit[i] * unit[j]
            total = relaxation * projected + (np.float32(1.0) - relaxation) * entries[i, j] + dual[i, j]
            entry = max(total, np.float32(0.0))
            entries[i, j] = entry
            dual[i, j] = total - entry
            matrix[i, j] = entry - dual[i, j] + scaled[i, j]


ITERATIONS = 100  # Most rounds of the dual method; further rounds gain about a thousandth
EVALUATE_EVERY = 20  # Rounds between two evaluations of the bound, each of which costs as much as some twenty rounds
LEAST_GAIN = 4e-4  # Relative gain between two evaluations below which the method stops

_EPS = float(np.finfo(np.float64).eps)
_LAST = 2.0**-1072  # Some units of the smallest subnormal numbers, without effect on larger ones


class PartitionBound(NamedTuple):
    """Bounds of the objective of the best clustering of some rows."""

    lower: float  # No clustering has a smaller objective
    spectral: float  # The weaker bound from the spectrum alone
    scatter: float  # Objective of one cluster


def partition_bound(
    rows: Array, n_clusters: int, weights: Floats | None = None, iterations: int = ITERATIONS
) -> PartitionBound:
    """Return a lower bound of the k-means objective of these rows, valid after any number of iterations.

    With r the roots of the weights, u = r / ||r||, K the Gram matrix of the rows about their weighted mean, row i times
    r_i, P = I - uu' and any matrix N >= 0 (entry by entry), every partition into at most k clusters has a weighted
    objective of at least ``tr K - u'(K + N)u - sum_{i<k} max(lambda_i(P (K + N) P), 0)``. For that objective is
    tr K - tr K Z, where Z is the sum, over the clusters c, of r_c r_c' / ||r_c||^2 (r_c is r on the rows of c, 0
    elsewhere): Z >= 0, so tr K Z <= tr (K + N) Z; and Z = uu' + PZP, where PZP is a projection of rank at most k - 1.
    The iteration only improves N; N = 0 is the spectral bound. Rounding is subtracted.

    `rows` of shape (n_rows, n_features): Finite numbers.
    `weights` of shape (n_rows,): Row weights, not negative.
    `iterations`: Most rounds of the dual method; with 0 the result is the spectral bound.
    Cost: n^2 p flops, 4/3 n^3 for each of the few evaluations, and about 6 n^2 k in single precision a round.
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
    if n <= n_clusters:
        return PartitionBound(0.0, 0.0, 0.0)
    roots = np.ones(n) if weights is None else np.sqrt(weights / weights.max())
    unit = roots / np.linalg.norm(roots)
    # Twice: the rounding of the first mean is relative to the mean, which far from the origin exceeds the differences.
    for _ in range(2):
        x = x - np.average(x, axis=0, weights=roots * roots)
    x *= roots[:, None]
    largest = float(np.abs(x).max(initial=0.0))
    if largest == 0.0:
        return PartitionBound(0.0, 0.0, 0.0)
    # Scaled so that no product overflows or vanishes, by a power of two, which is exact; undone in the results.
    power = 2.0 ** math.floor(math.log2(largest))
    heaviest = 1.0 if weights is None else float(weights.max())
    x /= power
    gram = _outside(x @ x.T, unit)
    gram = (gram + gram.T) / 2
    scatter = float(np.trace(gram))
    # Rounding of the Gram matrix in Frobenius norm, times the square root of k, as it affects k eigenvalues.
    rounding = 8.0 * _EPS * (n + x.shape[1]) * math.sqrt(n_clusters) * scatter
    if scatter <= 0.0:
        return PartitionBound(0.0, 0.0, 0.0)
    spectral = _dual_value(gram, np.zeros_like(gram), unit, n_clusters, scatter)
    lower = spectral
    if n_clusters > 1 and iterations > 0:
        lower = _climbed(gram, unit, n_clusters, scatter, iterations, spectral)
    # The scale is applied twice, and the bounds are lowered a little: its square may vanish or be rounded up.
    lower, spectral, scatter = (
        value * heaviest * power * power for value in (lower - rounding, spectral - rounding, scatter + rounding)
    )
    return PartitionBound(max(lower - _LAST, 0.0), max(spectral - _LAST, 0.0), scatter + _LAST)


def _climbed(gram: Floats, unit: Floats, k: int, scatter: float, iterations: int, best: float) -> float:
    """Return the best dual value of the iteration."""
    last = best
    for multipliers in DualAscent(gram, unit, k).multipliers(iterations, EVALUATE_EVERY):
        value = _dual_value(gram, multipliers, unit, k, scatter)
        best = max(best, value)
        if value - last <= LEAST_GAIN * max(value, 0.0):
            break
        last = value
    return best


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
