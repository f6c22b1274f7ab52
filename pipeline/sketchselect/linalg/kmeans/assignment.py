"""Squared distances of dense and sparse rows to centres, greedy k-means++ seeding, and sums of clusters.

Of sparse rows, ||x - c||^2 = ||c||^2 + sum over entries x_j (x_j - 2 c_j) loses digits where a row is much closer to a
centre than both are to the origin. Such distances, and centres that tie to rounding, are compared by differences over
all columns, so labels are those of dense rows. Sums are merged pairwise per cluster, with means in more than float64
precision so that nothing cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from sketchselect._kernels import REASSOCIATED, kernel
from sketchselect.linalg.csr import arrays_of, refuse_huge, require_ordinary
from sketchselect.linalg.hashing import uniforms
from sketchselect.linalg.validation import LARGEST, Array, Floats, Labels, read_only


@kernel(fastmath=REASSOCIATED, error_model="numpy")
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


@kernel(error_model="numpy")
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
    n_trials = 2 + int(np.log(n_clusters))
    draws = uniforms(seed, np.arange(n_clusters * n_trials, dtype=np.uint64)).reshape(n_clusters, n_trials)
    chosen = np.empty(n_clusters, dtype=np.int64)
    count: int = _spread_out(read_only(rows), read_only(weights), draws, chosen)
    return chosen[:count]


# A row this much closer to its nearest choice than half the way from there to a candidate is not closer to that one.
_HALF_WAY = 4.0 * (1.0 + 1e-9)


@kernel()
def _number_up_to(ascending: Floats, value: float) -> int:
    """Return how many of the ascending values are at most `value`, as `numpy.searchsorted` does to the right."""
    low, high = 0, ascending.shape[0]
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


# NumPy's functions of whole arrays would take half of the time that this kernel needs to be compiled.
@kernel(error_model="numpy")
def _spread_out(rows: Array, weights: Floats, draws: Floats, chosen: NDArray[np.int64]) -> int:
    """Write the rows that are chosen, and return their number."""
    (n_clusters, n_trials), (n_rows, n_features) = draws.shape, rows.shape
    nearest, owner = np.full(n_rows, np.inf), np.zeros(n_rows, dtype=np.int32)
    out, closest = np.empty(n_rows), np.empty(n_rows)
    cumulative, center = np.empty(n_rows), np.empty(n_features)
    # Squared distances from a candidate to the rows chosen before.
    away = np.empty(n_clusters)
    picks = np.empty(n_trials, dtype=np.int64)
    for step in range(n_clusters):
        total, last = 0.0, -1
        for i in range(n_rows):
            pull = weights[i] * nearest[i] if step else weights[i]
            total += pull
            cumulative[i] = total
            if pull != 0.0:
                last = i
        if not total > 0:
            return step
        # The first row is drawn once, because there is no cost yet to lower.
        n_picks = 0
        for trial in range(n_trials if step else 1):
            # Rounding may carry a draw past the last row of positive weight.
            pick = min(_number_up_to(cumulative, draws[step, trial] * total), last)
            place = _number_up_to(picks[:n_picks], pick)
            if place == 0 or picks[place - 1] != pick:
                for other in range(n_picks, place, -1):
                    picks[other] = picks[other - 1]
                picks[place] = pick
                n_picks += 1
        best, winner = np.inf, -1
        for pick in picks[:n_picks]:
            for j in range(n_features):
                center[j] = rows[pick, j]
            for c in range(step):
                away[c] = squared_distance(rows[chosen[c]], center)
            cost = 0.0
            for i in range(n_rows):
                before = nearest[i]
                if step and away[owner[i]] > _HALF_WAY * before:
                    out[i] = before
                else:
                    out[i] = min(before, squared_distance(rows[i], center))
                cost += weights[i] * out[i]
            if cost < best:
                best, winner = cost, pick
                out, closest = closest, out
        if winner < 0:
            return step
        for i in range(n_rows):
            if closest[i] < nearest[i]:
                owner[i] = step
        nearest, closest = closest, nearest
        chosen[step] = winner
    return int(n_clusters)


_UNIT = 2.0**-53
# A distance below this share of the squared lengths is computed over all columns.
_CLOSE = 1e-4


@kernel(error_model="numpy")
def _apart(data: Array, indices: Array, lo: int, hi: int, center: Floats, dense: Floats) -> float:
    """Return the squared distance over all columns; `dense` is all zeros before and after."""
    for e in range(lo, hi):
        dense[indices[e]] = data[e]
    distance: float = squared_distance(dense, center)
    for e in range(lo, hi):
        dense[indices[e]] = 0.0
    return distance


@kernel(error_model="numpy")
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


@kernel(error_model="numpy")
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


@dataclass(frozen=True)
class ClusterSums:
    """Weight (k), mean (k x d), correction of the mean (k x d) and sum of squares about it (k) of each cluster.

    ``mean + correction`` is the mean in twice the precision: far from the origin, differences of float64 means would
    lose the digits that the sums of squares need. Clusters without rows have zeros.
    """

    weight: Floats
    mean: Floats
    correction: Floats
    within: Floats


def sums_about(references: Floats, weight: Floats, sums: Floats, squares: Floats) -> ClusterSums:
    """Return the cluster sums from the sums of weighted differences to one reference point for each cluster.

    `references`, `sums` of shape (n_clusters, n_features).
    `weight`, `squares` of shape (n_clusters,).
    """
    out = ClusterSums(weight, np.empty_like(sums), np.empty_like(sums), np.empty_like(squares))
    _about(read_only(references), weight, sums, squares, out.mean, out.correction, out.within)
    return out


def merge_sums(left: ClusterSums, right: ClusterSums) -> ClusterSums:
    """Return the cluster sums of the rows of both: the pairwise update of Chan, Golub and LeVeque, per cluster."""
    shape = left.mean.shape
    out = ClusterSums(left.weight + right.weight, np.empty(shape), np.empty(shape), np.empty(shape[0]))
    _merge(*map(read_only, _arrays(left)), *map(read_only, _arrays(right)), *_arrays(out))
    return out


def _arrays(sums: ClusterSums) -> tuple[Floats, Floats, Floats, Floats]:
    return sums.weight, sums.mean, sums.correction, sums.within


@kernel(error_model="numpy")
def two_sum(a: Any, b: Any) -> Any:
    """Return the rounded sum and its exact error (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


# One loop over the clusters each, where NumPy would sweep a dozen times over arrays of their size for every block.
@kernel(error_model="numpy")
def _about(
    references: Floats, weight: Floats, sums: Floats, squares: Floats, mean: Floats, correction: Floats, within: Floats
) -> None:
    for c in range(weight.shape[0]):
        w, spread = weight[c], 0.0
        if w == 0.0:
            mean[c] = 0.0
            correction[c] = 0.0
            within[c] = 0.0
            continue
        for j in range(mean.shape[1]):
            shift, reference = sums[c, j] / w, references[c, j]
            spread += shift * sums[c, j]
            mean[c, j], correction[c, j] = two_sum(reference, shift)
        # NaN, of values whose squares leave float64, is not below 0 and so is not hidden.
        within[c] = 0.0 if squares[c] - spread < 0.0 else squares[c] - spread


@kernel(error_model="numpy")
def _merge(
    weight_a: Floats,
    mean_a: Floats,
    correction_a: Floats,
    within_a: Floats,
    weight_b: Floats,
    mean_b: Floats,
    correction_b: Floats,
    within_b: Floats,
    weight: Floats,
    mean: Floats,
    correction: Floats,
    within: Floats,
) -> None:
    for c in range(weight.shape[0]):
        # A side without rows must not change the bits of the other.
        if weight_b[c] == 0.0:
            mean[c], correction[c], within[c] = mean_a[c], correction_a[c], within_a[c]
            continue
        if weight_a[c] == 0.0:
            mean[c], correction[c], within[c] = mean_b[c], correction_b[c], within_b[c]
            continue
        # From the mean of the heavier side, as `merge_means`.
        share_a, share_b, spread = weight_a[c] / weight[c], weight_b[c] / weight[c], 0.0
        from_b = share_b > share_a
        for j in range(mean.shape[1]):
            step = (mean_b[c, j] - mean_a[c, j]) + (correction_b[c, j] - correction_a[c, j])
            spread += step * step
            if from_b:
                mean[c, j], correction[c, j] = two_sum(mean_b[c, j], correction_b[c, j] - step * share_a)
            else:
                mean[c, j], correction[c, j] = two_sum(mean_a[c, j], correction_a[c, j] + step * share_b)
        within[c] = within_a[c] + within_b[c] + spread * weight_a[c] * share_b


def farthest(distances: Floats, rows: NDArray[np.int64] | None, count: int) -> NDArray[np.int64]:
    """Return the positions of the `count` largest positive distances, largest first, ties by row index.

    Without `rows` the positions are the rows.
    """
    places = _largest(read_only(distances), count)
    order = np.lexsort((places if rows is None else rows[places], -distances[places]))[:count]
    out: NDArray[np.int64] = places[order]
    return out


_STRETCH = 256  # Values that are compared at once; few stretches have one that matters


@kernel()
def _largest(values: Floats, count: int) -> NDArray[np.int64]:
    """Return the places of all values that are at least the `count`-th largest, and positive, in ascending order."""
    heap = np.full(count, np.nextafter(0.0, 1.0))
    # Starts of the stretches that had a candidate when it was their turn: no other stretch has one in the end.
    starts, n_starts = np.empty(values.shape[0] // _STRETCH + 1, dtype=np.int64), 0
    for first in range(0, values.shape[0], _STRETCH):
        stretch = values[first : first + _STRETCH]
        if _n_above(stretch, np.nextafter(heap[0], 0.0)) == 0:
            continue
        starts[n_starts] = first
        n_starts += 1
        for value in stretch:
            if not value > heap[0]:
                continue
            # The root is the smallest of the heap: replace it, and sift the new value down.
            place = 0
            while True:
                child = 2 * place + 1
                if child + 1 < count and heap[child + 1] < heap[child]:
                    child += 1
                if child >= count or heap[child] >= value:
                    break
                heap[place] = heap[child]
                place = child
            heap[place] = value
    before = np.nextafter(heap[0], 0.0)
    n_places = 0
    for first in starts[:n_starts]:
        n_places += _n_above(values[first : first + _STRETCH], before)
    places = np.empty(n_places, dtype=np.int64)
    filled = 0
    for first in starts[:n_starts]:
        for i in range(first, min(first + _STRETCH, values.shape[0])):
            if values[i] > before:
                places[filled] = i
                filled += 1
    return places


@kernel()
def _n_above(values: Floats, limit: float) -> int:
    above = 0
    for value in values:
        above += value > limit
    return above


def sparse_label_sums(
    block: csr_array, labels: NDArray[np.int32], n_clusters: int, weights: Floats | None, start: int | Array = 0
) -> ClusterSums:
    """Return the cluster sums of labelled rows; rows with a negative label are left out.

    Exact to rounding: with m the mean of a column in a cluster, its sum of squares is
    ``sum w (x - m)^2 + (weight of the zeros) m^2``, in which nothing cancels.

    Cost: two sweeps over the entries; five arrays of shape (n_clusters, n_columns).
    """
    require_ordinary(block, start)
    k, p = n_clusters, block.shape[1]
    w = np.ones(block.shape[0]) if weights is None else weights
    data, indices, indptr = arrays_of(block)
    inside = labels >= 0
    weight: Floats = np.bincount(labels[inside], w[inside], k).astype(np.float64, copy=False)
    # Rows of weight 0 are not counted: they have no zeros either.
    rows = np.bincount(labels[inside & (w > 0)], minlength=k)
    seen, sums, counts = np.zeros((k, p)), np.zeros((k, p)), np.zeros((k, p), dtype=np.int32)
    _first(data, indices, indptr, labels, w, seen, sums, counts)
    safe = np.where(weight > 0, weight, 1.0)[:, None]
    mean = np.divide(sums, safe, out=sums)
    # Where a cluster has no zeros in a column the difference would be rounding.
    zeros = np.where(counts < rows[:, None], np.maximum(weight[:, None] - seen, 0.0), 0.0)
    residual = -zeros * mean
    within = np.einsum("ij,ij,ij->i", zeros, mean, mean)
    _second(data, indices, indptr, labels, w, mean, residual, within)
    correction = residual / safe
    within = np.maximum(within - weight * np.einsum("ij,ij->i", correction, correction), 0.0)
    if not (within < LARGEST**2).all():
        refuse_huge(block, start)
    mean, correction = two_sum(mean, correction)
    return ClusterSums(weight, mean, correction, within)


def sparse_mean_products(
    columns: csc_array, labels: Array, n_clusters: int, weights: Floats, of: int = -1
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return what the means of the clusters of several labellings have to do with each other and with the rows.

    Column by column, so that no mean takes memory.

    `labels` of shape (n_rows, m): At least 0.
    `of`: The labelling of which products with the rows are returned; none of -1.

    Returns
    -------
    totals, norms : arrays of shape (m, n_clusters)
        Weight of each cluster, and squared norm of its mean; 0 for an empty one.
    paired : array of shape (m, n_clusters // 2)
        Product of the means of cluster c and cluster ``c + n_clusters // 2``.
    products : array of shape (n_rows,)
        Product of each row and the mean of its cluster.
    """
    m = labels.shape[1]
    cells = (labels + np.arange(m) * n_clusters).astype(np.int64)
    totals: Floats = np.bincount(cells.ravel(), np.repeat(weights, m), m * n_clusters).astype(np.float64, copy=False)
    norms, paired, products = np.zeros(totals.size), np.zeros(totals.size), np.zeros(labels.shape[0])
    data, indices, indptr = columns.data, columns.indices, columns.indptr
    _mean_products(data, indices, indptr, cells, n_clusters, weights, totals, of, norms, paired, products)
    shape = (m, n_clusters)
    return totals.reshape(shape), norms.reshape(shape), paired.reshape(shape)[:, : n_clusters // 2], products


@kernel(fastmath={"contract"})
def _mean_products(data, indices, indptr, cells, k, weights, totals, of, norms, paired, products):  # type: ignore[no-untyped-def]
    m, half = cells.shape[1], k // 2
    means, seen = np.zeros(totals.shape[0]), np.full(totals.shape[0], -1, np.int64)
    touched = np.empty(totals.shape[0], np.int64)
    for j in range(indptr.shape[0] - 1):
        count = 0
        for e in range(indptr[j], indptr[j + 1]):
            i = indices[e]
            share = weights[i] * np.float64(data[e])
            for a in range(m):
                cell = cells[i, a]
                if seen[cell] != j:
                    seen[cell], means[cell], touched[count] = j, 0.0, cell
                    count += 1
                means[cell] += share
        for t in range(count):
            cell = touched[t]
            means[cell] = means[cell] / totals[cell] if totals[cell] > 0.0 else 0.0
            norms[cell] += means[cell] * means[cell]
        for t in range(count):
            cell = touched[t]
            if cell % k < half and seen[cell + half] == j:
                paired[cell] += means[cell] * means[cell + half]
        if of >= 0:
            for e in range(indptr[j], indptr[j + 1]):
                i = indices[e]
                products[i] += np.float64(data[e]) * means[cells[i, of]]


@kernel(fastmath={"contract"})
def _first(data, indices, indptr, labels, weights, seen, sums, counts):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        c, w = labels[i], weights[i]
        if c < 0 or w == 0.0:
            continue
        for m in range(indptr[i], indptr[i + 1]):
            j = indices[m]
            seen[c, j] += w
            sums[c, j] += w * np.float64(data[m])
            counts[c, j] += 1


@kernel(fastmath={"contract"})
def _second(data, indices, indptr, labels, weights, mean, residual, within):  # type: ignore[no-untyped-def]
    for i in range(indptr.shape[0] - 1):
        c, w = labels[i], weights[i]
        if c < 0 or w == 0.0:
            continue
        for m in range(indptr[i], indptr[i + 1]):
            j = indices[m]
            d = np.float64(data[m]) - mean[c, j]
            residual[c, j] += w * d
            within[c] += w * d * d
