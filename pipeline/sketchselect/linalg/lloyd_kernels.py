"""Compiled loops of one Lloyd step; `lloyd` prepares what they take and says what they guarantee."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.distances import squared_distance

Labels = NDArray[np.int32]

# Bounds are float32, rounded down by this factor where they are stored and up where they are compared: it covers the
# roundings of the few operations between.
_DOWN = np.float32(1.0 - 2.0**-20)
_UP = np.float32(1.0 + 2.0**-20)
# Below it float32 loses relative precision; above the other it is infinite.
_SMALLEST, _LARGEST = np.float32(1e-30), np.float32(1e38)
_ZERO = np.float32(0.0)
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
def _two_least(products: Array, norms: Array, least: Array, second: Array) -> None:
    """Add the norms; per row and group of centres (those of equal index modulo the number of groups) the two least."""
    n_clusters, n_rows = products.shape
    n_groups = least.shape[0]
    least[:] = np.inf
    second[:] = np.inf
    for c in range(n_clusters):
        norm = norms[c]
        product, low, next_low = products[c], least[c % n_groups], second[c % n_groups]
        for i in range(n_rows):
            value = product[i] + norm
            product[i] = value
            before = low[i]
            higher = value if value > before else before
            next_low[i] = higher if higher < next_low[i] else next_low[i]
            low[i] = value if value < before else before


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _choose(products: Array, least: Array, second: Array, best: Array, runner: Array, chosen: Labels) -> None:
    """Per row the least value of all, the second least, and the index of the least where only one has it."""
    n_groups, n_rows = least.shape
    best[:] = np.inf
    runner[:] = np.inf
    for g in range(n_groups):
        low, next_low = least[g], second[g]
        for i in range(n_rows):
            before = best[i]
            higher = low[i] if low[i] > before else before
            higher = higher if higher < next_low[i] else next_low[i]
            runner[i] = higher if higher < runner[i] else runner[i]
            best[i] = low[i] if low[i] < before else before
    chosen[:] = 0
    for c in range(products.shape[0]):
        product = products[c]
        for i in range(n_rows):
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
def _bound(
    least: Array,
    second: Array,
    group: Labels,
    base: Array,
    unscale: np.float32,
    drift: Floats,
    where: Labels,
    a: int,
    lower: Array,
) -> None:
    """Keep, per row and group, a float32 of which, less the drift, no other centre of the group is closer.

    A centre's squared distance is at least `base` plus its value; the root of a negative number counts as zero.
    """
    n_groups, n_rows = least.shape
    for g in range(n_groups):
        low, next_low, away, kept = least[g], second[g], np.float32(drift[g]), lower[g]
        for f in range(n_rows):
            value = next_low[f] if group[f] == g else low[f]
            square = base[f] + value * unscale
            bound = (np.sqrt(square if square > _ZERO else _ZERO) + away) * _DOWN
            bound = bound if bound < _LARGEST else _LARGEST
            low[f] = bound if bound > _SMALLEST else _ZERO
        for f in range(n_rows):
            kept[a + where[f]] = low[f]


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _doubtful(
    labels: Labels, distances: Floats, moved: Array, drift: Floats, lower: Array, a: int, reach: Array, where: Labels
) -> int:
    """Fill `where` with the rows whose nearest centre may be another than before; return how many.

    A row's centre stays the nearest where its distance, plus what the centre moved, is below every group's bound less
    what any centre of the group has moved since the bound was taken.
    """
    n_rows = labels.shape[0]
    certain = np.ones(n_rows, dtype=np.int8)
    for i in range(n_rows):
        reach[i] = np.float32(np.sqrt(distances[i])) + moved[labels[i]]
    for g in range(lower.shape[0]):
        away, bound = np.float32(drift[g]), lower[g, a : a + n_rows]
        for i in range(n_rows):
            certain[i] &= np.int8(bound[i] > (reach[i] + away) * _UP)
    count = 0
    for i in range(n_rows):
        where[count] = i
        count += 1 - certain[i]
    return count


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

    Where `lower` has columns, one per row, bounds are kept there; where `known`, labels and distances are those of the
    sweep before and only rows that the bounds leave in doubt are compared with the centres. Rows are added in their
    order either way. Returns how many rows were compared.
    """
    n_rows, n_features = rows.shape
    n_clusters, n_groups = centers.shape[0], lower.shape[0]
    keeping = lower.shape[1] > 0
    step = min(step, n_rows)
    window = min(4 * step, n_rows) if known else step
    shifted = np.empty((step, n_features), dtype=np.float32)
    buffer = np.empty(n_clusters * step, dtype=np.float32)
    # With few centres rows times centres, turned over afterwards, is two to three times faster in BLAS than centres
    # times rows; with many, turning the products costs more than that.
    turning = np.empty(n_clusters * step if 2 * n_clusters <= n_features else 0, dtype=np.float32)
    turned = np.ascontiguousarray(factors.T)
    pairs = np.empty(2 * n_groups * step, dtype=np.float32)
    best = np.empty(step, dtype=np.float32)
    runner = np.empty(step, dtype=np.float32)
    reach = np.empty(window, dtype=np.float32)
    chosen = np.empty(step, dtype=np.int32)
    base = np.empty(step, dtype=np.float32)
    unscale = 1.0 / (np.float64(scale) * np.float64(scale))
    where = np.arange(window + 1).astype(np.int32)
    compared = 0
    for a in range(0, n_rows, window):
        b = min(a + window, n_rows)
        count = b - a
        if known:
            count = _doubtful(labels[a:b], distances[a:b], moved, drift, lower, a, reach[:count], where)
        compared += count
        for first in range(0, count, step):
            m = min(step, count - first)
            for f in range(m):
                row = rows[a + where[first + f]]
                for j in range(n_features):
                    # In the source's own precision: a cast first would lose what an offset leaves.
                    shifted[f, j] = (row[j] - pilot[j]) * scale
            products = buffer[: n_clusters * m].reshape((n_clusters, m))
            least = pairs[: n_groups * m].reshape((n_groups, m))
            second = pairs[n_groups * m : 2 * n_groups * m].reshape((n_groups, m))
            if turning.size:
                across = turning[: n_clusters * m].reshape((m, n_clusters))
                np.dot(shifted[:m], turned, across)
                _turn(across, products)
            else:
                np.dot(factors, shifted[:m].T, products)
            _two_least(products, norms, least, second)
            _choose(products, least, second, best[:m], runner[:m], chosen[:m])
            for f in range(m):
                i = a + where[first + f]
                length = _squared_length(shifted[f])
                # A row that float32 cannot hold has no limit: all centres are compared.
                error = np.float32(slope * np.sqrt(length) + floor) if length < np.float32(1e36) else np.float32(np.inf)
                clear = runner[f] > best[f] + error
                label = chosen[f] if clear else _resolve(rows[i], products, f, best[f] + error, centers)
                labels[i] = label
                if keeping:
                    # Products tell differences of squared distances, to the error; the nearest one is known exactly.
                    square = squared_distance(rows[i], centers[label])
                    rest = square - (np.float64(best[f]) + np.float64(error)) * unscale if clear else -np.inf
                    base[f] = rest - np.abs(rest) * 2.0**-22
                    chosen[f] = label % n_groups
            if keeping:
                _bound(least, second, chosen, base, np.float32(unscale), drift, where[first:], a, lower)
        settle(rows[a:b], labels[a:b], centers, distances[a:b], summing, weights[a:b], weight, sums, squares)
    return compared
