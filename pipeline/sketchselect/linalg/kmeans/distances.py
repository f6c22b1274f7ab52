"""Squared distances in float64 of dense and sparse rows, and greedy k-means++ seeding.

Of sparse rows, ||x - c||^2 = ||c||^2 + sum over entries x_j (x_j - 2 c_j) loses digits where a row is much closer to a
centre than both are to the origin. Such distances, and centres that tie to rounding, are compared by differences over
all columns, so labels are those of dense rows.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.linalg.arrays import Array, Floats, Labels, read_only
from sketchselect.linalg.csr import arrays_of
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


_UNIT = 2.0**-53
# A distance below this share of the squared lengths is computed over all columns.
_CLOSE = 1e-4


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _apart(data: Array, indices: Array, lo: int, hi: int, center: Floats, dense: Floats) -> float:
    """Return the squared distance over all columns; `dense` is all zeros before and after."""
    for e in range(lo, hi):
        dense[indices[e]] = data[e]
    distance: float = squared_distance(dense, center)
    for e in range(lo, hi):
        dense[indices[e]] = 0.0
    return distance


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _nearest(
    data: Array, indices: Array, indptr: Array, centers: Floats, by_column: Floats, norms: Floats, labels: Labels
) -> None:
    n_clusters, n_features = centers.shape
    values = np.empty(n_clusters)
    dense = np.zeros(n_features)
    longest = np.sqrt(norms.max())
    for i in range(labels.shape[0]):
        lo, hi = indptr[i], indptr[i + 1]
        values[:] = 0.0
        length = 0.0
        for e in range(lo, hi):
            x = np.float64(data[e])
            length += x * x
            column = by_column[indices[e]]
            for c in range(n_clusters):
                values[c] += x * column[c]
        label, least, next_least = 0, np.inf, np.inf
        for c in range(n_clusters):
            value = norms[c] - 2.0 * values[c]
            values[c] = value
            if value < least:
                label, least, next_least = c, value, least
            elif value < next_least:
                next_least = value
        # Twice the error of one value: of the products, and of the norms of the centres, summed pairwise.
        limit = least + 4.0 * _UNIT * (hi - lo + 64) * (np.sqrt(length) + longest) ** 2
        # Negated, so that NaN compares all centres.
        if not next_least > limit:
            least = np.inf
            for c in range(n_clusters):
                if not values[c] > limit:
                    distance = _apart(data, indices, lo, hi, centers[c], dense)
                    if distance < least:
                        label, least = c, distance
        labels[i] = label


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _sparse_distances(
    data: Array, indices: Array, indptr: Array, labels: Labels, centers: Floats, norms: Floats, distances: Floats
) -> None:
    dense = np.zeros(centers.shape[1])
    for i in range(labels.shape[0]):
        lo, hi, center = indptr[i], indptr[i + 1], centers[labels[i]]
        total, length = norms[labels[i]], 0.0
        for e in range(lo, hi):
            x = np.float64(data[e])
            length += x * x
            total += x * (x - 2.0 * center[indices[e]])
        if not total > _CLOSE * (length + norms[labels[i]]):
            total = _apart(data, indices, lo, hi, center, dense)
        distances[i] = total


def assign_rows(block: csr_array, centers: Floats) -> tuple[Labels, Floats]:
    """Return the nearest centre of every row of a canonical CSR block (ties to the lowest), and the squared distance.

    Labels are those of float64 distances over all columns, as for dense rows; distances are within 1e4 (entries of the
    row + 64) units of rounding of exact ones, relatively.
    Cost: 2 k flops an entry, and 3 d for each row and centre that are close or tie.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> rows = csr_array(np.array([[0.0, 3.0], [1.0, 0.0]]))
    >>> labels, distances = assign_rows(rows, np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> labels.tolist(), distances.tolist()
    ([0, 1], [4.0, 0.0])
    """
    labels, distances = np.empty(block.shape[0], dtype=np.int32), np.empty(block.shape[0])
    data, *places = arrays_of(block)
    # Like dense rows, in one of the two types that kernels are compiled for.
    parts = (as_float_rows(data), *places)
    fixed, by_column = read_only(centers), read_only(np.ascontiguousarray(centers.T))
    # NumPy sums contiguous rows pairwise: the error grows with the logarithm of their length.
    norms = np.square(fixed).sum(axis=1)
    _nearest(*parts, fixed, by_column, norms, labels)
    _sparse_distances(*parts, labels, fixed, norms, distances)
    return labels, distances
