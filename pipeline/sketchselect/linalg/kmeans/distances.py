"""Squared distances in float64, and greedy k-means++ seeding."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Array, Floats, read_only
from sketchselect.linalg.hashing import uniforms


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")  # type: ignore[untyped-decorator]
def squared_distance(row: Array, center: Floats) -> float:
    """Return the squared distance of two points; differences are taken in float64."""
    total = 0.0
    for j in range(row.shape[0]):
        difference = np.float64(row[j]) - center[j]
        total += difference * difference
    return total


def as_float_rows(block: Array) -> Array:
    """Return a read-only view of the block in float32 or float64, the types that kernels are compiled for."""
    return read_only(block if block.dtype in (np.float32, np.float64) else block.astype(np.float64))


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _closer(rows: Array, center: Floats, weights: Floats, nearest: Floats, out: Floats) -> float:
    total = 0.0
    for i in range(rows.shape[0]):
        out[i] = min(nearest[i], squared_distance(rows[i], center))
        total += weights[i] * out[i]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _distances(rows: Array, centers: Floats, out: Floats) -> None:
    for i in range(rows.shape[0]):
        for c in range(centers.shape[0]):
            out[i, c] = squared_distance(rows[i], centers[c])


def distances_to(block: Array, centers: Floats) -> Floats:
    """Return the squared distance of every row to every centre, shape (n_rows, n_clusters), in float64."""
    rows = as_float_rows(block)
    out = np.empty((rows.shape[0], centers.shape[0]))
    _distances(rows, read_only(centers), out)
    return out


def spread_out(rows: Floats, weights: Floats, n_clusters: int, seed: int) -> NDArray[np.int64]:
    """Return the rows that greedy k-means++ chooses: the first by weight, each next by weight times squared distance.

    For each choice 2 + log k rows are drawn, and the one that lowers the cost most is taken. If there are fewer than
    `n_clusters` distinct rows, fewer are returned.

    `rows` of shape (n_rows, n_features).
    `weights` of shape (n_rows,): Not negative, at least one positive.
    `seed`: Draws are hashed from (seed, step, trial).
    Cost: n k (2 + log k) distances.
    Source: Arthur and Vassilvitskii 2007, section 5; the greedy form as in scikit-learn.
    """
    rows, weights = read_only(rows), read_only(weights)
    n_rows = rows.shape[0]
    n_trials = 2 + int(np.log(n_clusters))
    draws = uniforms(seed, np.arange(n_clusters * n_trials, dtype=np.uint64)).reshape(n_clusters, n_trials)
    nearest = np.full(n_rows, np.inf)
    chosen: list[int] = []
    pull = weights
    for step in range(n_clusters):
        cumulative = np.cumsum(pull)
        if not cumulative[-1] > 0:
            break
        # The first row is drawn once, because there is no cost yet to lower.
        picks = np.searchsorted(cumulative, draws[step, : n_trials if step else 1] * cumulative[-1], side="right")
        # Rounding may carry a draw past the last row of positive weight.
        picks = np.unique(np.minimum(picks, np.flatnonzero(pull)[-1]))
        best, closest = np.inf, nearest
        for pick in picks:
            out = np.empty(n_rows)
            cost = _closer(rows, rows[pick].astype(np.float64), weights, nearest, out)
            if cost < best:
                best, closest, winner = cost, out, int(pick)
        chosen.append(winner)
        nearest = closest
        pull = weights * nearest
    return np.array(chosen, dtype=np.int64)
