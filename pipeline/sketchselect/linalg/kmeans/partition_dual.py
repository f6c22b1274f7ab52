"""Multipliers for the dual of the semidefinite relaxation of k-means, by an ascent in single precision.

They need not be exact: `partition_bound` derives a valid bound from any multipliers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.hashing import uniforms

OVER_RELAXATION = 1.6

STIFFNESS = 2.0
"""Penalty of the method, in units of ||K||_F / sqrt(k)."""

SPARE = 8
"""Directions followed beside those in use, so that others can replace them."""

_TINY = 1e-10
"""Relative square below which a direction of the search space is rounding."""


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
