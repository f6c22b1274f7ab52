"""Compiled loops of one Lloyd step; `lloyd` prepares what they take and says what they guarantee."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from sketchselect.linalg.arrays import Array, Floats, Labels
from sketchselect.linalg.kmeans.bound_kernels import doubtful, keep_bounds, least_of_others
from sketchselect.linalg.kmeans.distances import squared_distance

_TILE = 16


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")  # type: ignore[untyped-decorator]
def _squared_length(row: Array) -> np.float32:
    total = np.float32(0.0)
    for j in range(row.shape[0]):
        total += row[j] * row[j]
    return total


# The one place where distances that are handed out are computed, so that their bits have one origin.
@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")  # type: ignore[untyped-decorator]
def settle(
    rows: Array,
    labels: Labels,
    centers: Floats,
    distances: Floats,
    summing: bool,
    weights: Floats,
    weight: Floats,
    sums: Floats,
    squares: Floats,
) -> None:
    """Write each row's distance to its centre; if `summing`, add rows and squares about the centres, row after row.

    A negative label leaves a row out. Where nothing is summed, `sums` has one row, which stays zero.
    """
    for i in range(rows.shape[0]):
        label = labels[i]
        if label < 0:
            continue
        w = weights[i] if summing else 0.0
        row, center, into = rows[i], centers[label], sums[label if summing else 0]
        total = 0.0
        for j in range(row.shape[0]):
            step = np.float64(row[j]) - center[j]
            total += step * step
            into[j] += w * step
        distances[i] = total
        if summing:
            weight[label] += w
            squares[label] += w * total


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _turn(matrix: Array, turned: Array) -> None:
    """Write the transpose, some rows at a time: what is read then stays in the cache."""
    n_rows, n_columns = matrix.shape
    even = n_rows - n_rows % _TILE
    for a in range(0, even, _TILE):
        for c in range(n_columns):
            line = turned[c]
            # A fixed number of steps, and indices that cannot be negative: the compiler unrolls it.
            for f in range(_TILE):
                line[np.uint64(a + f)] = matrix[np.uint64(a + f), np.uint64(c)]
    for a in range(even, n_rows):
        for c in range(n_columns):
            turned[c, a] = matrix[a, c]


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _multiply(piece: Array, factors: Array, turned: Array, turning: Array, products: Array) -> None:
    """Write the products of centres and rows, shape (n_clusters, n_rows)."""
    n_clusters, n_features = factors.shape
    # With few centres rows times centres, turned over afterwards, is faster in BLAS than centres times rows; with many,
    # turning the products costs more than that.
    if n_clusters <= n_features:
        across = turning[: products.size].reshape((piece.shape[0], n_clusters))
        np.dot(piece, turned, across)
        _turn(across, products)
    else:
        np.dot(factors, piece.T, products)


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _two_least(products: Array, norms: Array, best: Array, runner: Array, chosen: Labels) -> None:
    """Add the norms; per row the least value, the second least, and the index of the least where only one has it."""
    best[:] = np.inf
    runner[:] = np.inf
    for c in range(products.shape[0]):
        norm, product = norms[c], products[c]
        for i in range(product.shape[0]):
            value = product[i] + norm
            product[i] = value
            before = best[i]
            higher = value if value > before else before
            runner[i] = higher if higher < runner[i] else runner[i]
            best[i] = value if value < before else before
    chosen[:] = 0
    for c in range(products.shape[0]):
        product = products[c]
        for i in range(product.shape[0]):
            chosen[i] += np.int32(c) * np.int32(product[i] <= best[i])


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _resolve(row: Array, products: Array, f: int, limit: float, centers: Floats) -> int:
    """Return the nearest of the centres within the limit, by float64 distances; the lowest of equals."""
    label, least = 0, np.inf
    for c in range(centers.shape[0]):
        # No limit at all where it is infinite or not a number.
        if not limit < np.inf or products[c, f] <= limit:
            distance = squared_distance(row, centers[c])
            if distance < least:
                label, least = c, distance
    return label


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def first_rows(rows: Array, labels: Labels, weights: Floats, found: Floats) -> None:
    """Copy the first row of positive weight of each cluster to `found`; a negative label leaves a row out."""
    missing = np.ones(found.shape[0], dtype=np.bool_)
    left = found.shape[0]
    for i in range(rows.shape[0]):
        label = labels[i]
        if label >= 0 and weights[i] != 0.0 and missing[label]:
            missing[label] = False
            left -= 1
            for j in range(rows.shape[1]):
                found[label, j] = rows[i, j]
            if left == 0:
                break


# One call for all pieces of a block: threads that came back to Python for each piece would queue for its lock.
@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def sweep(
    rows: Array,
    operand: Array,
    pilot: Array,
    scale: Any,
    factors: Array,
    norms: Array,
    slope: float,
    floor: float,
    centers: Floats,
    step: int,
    labels: Labels,
    distances: Floats,
    summing: bool,
    weights: Floats,
    weight: Floats,
    sums: Floats,
    squares: Floats,
    known: bool,
    lower: Array,
    moved: Array,
    drift: Floats,
) -> int:
    """Assign the rows to their nearest centres, a piece at a time, and add them to the sums if `summing`.

    Where `operand` has rows, these are the rows as the products want them, and no copies are made. Where `lower` has
    columns, one per row, bounds are kept there; where `known`, labels and distances are those of the sweep before and
    only rows that the bounds leave in doubt are compared with the centres. Rows are added in their order either way.
    Returns how many rows were compared.
    """
    n_rows, n_features = rows.shape
    n_clusters, n_groups = centers.shape[0], lower.shape[0]
    keeping = lower.shape[1] > 0
    copying = known or operand.shape[0] == 0
    step = min(step, n_rows)
    window = min(4 * step, n_rows) if known else step
    shifted = np.empty((step if copying else 0, n_features), dtype=np.float32)
    buffer = np.empty(n_clusters * step, dtype=np.float32)
    turning = np.empty(n_clusters * step, dtype=np.float32)
    turned = np.ascontiguousarray(factors.T)
    least = np.empty(n_groups * step if keeping else 0, dtype=np.float32)
    best = np.empty(step, dtype=np.float32)
    runner = np.empty(step, dtype=np.float32)
    reach = np.empty(window, dtype=np.float32)
    chosen = np.empty(step, dtype=np.int32)
    base = np.empty(step, dtype=np.float32)
    unscale = 1.0 / (np.float64(scale) * np.float64(scale))
    # Beyond, float32 does not hold the factor that bounds are scaled back by.
    plain = 1e-30 < unscale < 1e30
    where = np.arange(window + 1).astype(np.int32)
    compared = 0
    for a in range(0, n_rows, window):
        b = min(a + window, n_rows)
        count = b - a
        if known:
            count = doubtful(labels[a:b], distances[a:b], moved, drift, lower, a, reach[:count], where)
        compared += count
        for first in range(0, count, step):
            m = min(step, count - first)
            products = buffer[: n_clusters * m].reshape((n_clusters, m))
            if copying:
                for f in range(m):
                    row = rows[a + where[first + f]]
                    for j in range(n_features):
                        # In the source's own precision: a cast first would lose what an offset leaves.
                        shifted[f, j] = (row[j] - pilot[j]) * scale
            if copying:
                _multiply(shifted[:m], factors, turned, turning, products)
            else:
                _multiply(operand[a : a + m], factors, turned, turning, products)
            _two_least(products, norms, best[:m], runner[:m], chosen[:m])
            for f in range(m):
                i = a + where[first + f]
                length = _squared_length(shifted[f]) if copying else _squared_length(operand[i])
                # A row that float32 cannot hold has no limit: all centres are compared.
                error = np.float32(slope * np.sqrt(length) + floor) if length < np.float32(1e36) else np.float32(np.inf)
                clear = runner[f] > best[f] + error
                labels[i] = chosen[f] if clear else _resolve(rows[i], products, f, best[f] + error, centers)
                chosen[f] = labels[i]
                # Products tell differences of squared distances, to the error; the nearest one is known exactly.
                best[f] = best[f] + error if clear and plain else np.float32(np.inf)
            if not known:
                # Now that the rows are in the cache; the window is one piece, and its distances are what bounds need.
                settle(rows[a:b], labels[a:b], centers, distances[a:b], summing, weights[a:b], weight, sums, squares)
            if keeping:
                for f in range(m):
                    i = a + where[first + f]
                    square = squared_distance(rows[i], centers[labels[i]]) if known else distances[i]
                    rest = square - np.float64(best[f]) * unscale
                    base[f] = rest - np.abs(rest) * 2.0**-22
                others = least[: n_groups * m].reshape((n_groups, m))
                least_of_others(products, chosen[:m], others)
                keep_bounds(others, base, np.float32(unscale), drift, where[first:], a, lower)
        if known:
            settle(rows[a:b], labels[a:b], centers, distances[a:b], summing, weights[a:b], weight, sums, squares)
    return compared
