"""Compiled loops of Lloyd steps, called by `lloyd`, which states their guarantees."""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchselect._kernels import REASSOCIATED, kernel
from sketchselect.linalg.kmeans.assignment import squared_distance
from sketchselect.linalg.validation import Array, Floats, Labels

# Bounds are float32, rounded down by this factor when stored and up when compared; it covers the rounding of the few
# operations between.
_DOWN = np.float32(1.0 - 2.0**-20)
_UP = np.float32(1.0 + 2.0**-20)
# Below the first float32 loses relative precision; above the second it is infinite.
_SMALLEST, _LARGEST = np.float32(1e-30), np.float32(1e38)
_ZERO = np.float32(0.0)
_UNIT = 2.0**-24  # Rounding of float32


@kernel(error_model="numpy")
def least_of_others(products: Array, labels: Labels, least: Array) -> None:
    """Write the least product of each group of centres, those of equal index modulo the number of groups.

    The product of the label is left out, and overwritten.
    """
    n_groups = least.shape[0]
    for f in range(labels.shape[0]):
        products[labels[f], f] = np.inf
    least[:] = np.inf
    for c in range(products.shape[0]):
        product, low = products[c], least[c % n_groups]
        for f in range(product.shape[0]):
            value, before = product[f], low[f]
            low[f] = value if value < before else before


@kernel(error_model="numpy")
def store_bounds(
    least: Array, base: Array, unscale: np.float32, drift: Floats, where: Labels, a: int, lower: Array
) -> None:
    """Store, per row and group, a float32 that less the drift bounds the distance to any other centre of the group.

    The squared distance to a centre is at least `base` plus its value; the root of anything but a positive number is
    zero. `least` is overwritten.
    """
    n_groups, n_rows = least.shape
    for g in range(n_groups):
        low, away, stored = least[g], np.float32(drift[g]), lower[g]
        for f in range(n_rows):
            value = low[f]
            square = base[f] + value * unscale
            # Near its limits float32 loses squares: only a group without another centre is truly infinitely far.
            sound = (square > _SMALLEST) & ((square < _LARGEST) | (value == np.inf))
            bound = (np.sqrt(square if sound else _ZERO) + away) * _DOWN
            bound = bound if bound < _LARGEST else _LARGEST
            low[f] = bound if bound > _SMALLEST else _ZERO
        for f in range(n_rows):
            stored[np.uint64(a + where[f])] = low[np.uint64(f)]


@kernel(error_model="numpy")
def doubtful(
    labels: Labels, distances: Floats, moved: Array, drift: Floats, lower: Array, a: int, reach: Array, where: Labels
) -> int:
    """Fill `where` with the rows whose nearest centre may have changed; return their number.

    The nearest centre of a row stays the same if its distance, plus the step of the centre, is below the bound of every
    group, less the largest steps of the group since the bound was computed.
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


_TILE = 16
_ROWS = 6
# As measured; with more centres, or shorter rows, BLAS is as fast.
_LEAST_FEATURES, _MOST_CLUSTERS = 128, 32
_SHORT = 16  # Columns up to which a transpose costs more than it saves, as measured with 3 to 50 centres


@kernel()
def takes_dots(n_features: int, n_clusters: int) -> bool:
    """Return whether sums in registers are faster than BLAS, which packs its operands: few centres, long rows."""
    return n_features >= _LEAST_FEATURES and 2 <= n_clusters <= _MOST_CLUSTERS


@kernel(fastmath=REASSOCIATED, error_model="numpy")
def _dots(piece: Array, factors: Array, products: Array) -> None:
    """Write the products of two centres at a time and six rows: as many sums as fit the registers of a processor.

    The last rows and centres are taken again with those before where they are fewer.
    """
    n_rows, n_clusters = piece.shape[0], factors.shape[0]
    zero = np.float32(0.0)
    for f in range(0, n_rows, _ROWS):
        f = min(f, n_rows - _ROWS)
        x0, x1, x2, x3, x4, x5 = piece[f], piece[f + 1], piece[f + 2], piece[f + 3], piece[f + 4], piece[f + 5]
        for c in range(0, n_clusters, 2):
            c = min(c, n_clusters - 2)
            y, z = factors[c], factors[c + 1]
            s0 = s1 = s2 = s3 = s4 = s5 = t0 = t1 = t2 = t3 = t4 = t5 = zero
            # Row by row: in another order the compiler runs out of registers, and takes twice as long.
            for j in range(y.shape[0]):
                s0 += x0[j] * y[j]
                t0 += x0[j] * z[j]
                s1 += x1[j] * y[j]
                t1 += x1[j] * z[j]
                s2 += x2[j] * y[j]
                t2 += x2[j] * z[j]
                s3 += x3[j] * y[j]
                t3 += x3[j] * z[j]
                s4 += x4[j] * y[j]
                t4 += x4[j] * z[j]
                s5 += x5[j] * y[j]
                t5 += x5[j] * z[j]
            first, second = products[c], products[c + 1]
            first[f], first[f + 1], first[f + 2], first[f + 3], first[f + 4], first[f + 5] = s0, s1, s2, s3, s4, s5
            second[f], second[f + 1], second[f + 2], second[f + 3], second[f + 4], second[f + 5] = (
                t0,
                t1,
                t2,
                t3,
                t4,
                t5,
            )


@kernel(error_model="numpy")
def _turn(matrix: Array, turned: Array) -> None:
    """Write the transpose, tile by tile, so that the values read stay in the cache."""
    n_rows, n_columns = matrix.shape
    even = n_rows - n_rows % _TILE
    for a in range(0, even, _TILE):
        for c in range(n_columns):
            line = turned[c]
            # The compiler unrolls a fixed number of steps with indices that cannot be negative.
            for f in range(_TILE):
                line[np.uint64(a + f)] = matrix[np.uint64(a + f), np.uint64(c)]
    for a in range(even, n_rows):
        for c in range(n_columns):
            turned[c, a] = matrix[a, c]


@kernel(error_model="numpy")
def multiply(piece: Array, factors: Array, turned: Array, turning: Array, products: Array) -> None:
    """Write the products of centres and rows, shape (n_clusters, n_rows)."""
    n_clusters, n_features = factors.shape
    if takes_dots(n_features, n_clusters) and piece.shape[0] >= _ROWS:
        _dots(piece, factors, products)
        return
    # With few centres, rows times centres and a transpose is faster in BLAS than centres times rows; with many, or with
    # short rows, the transpose costs more than it saves.
    if n_clusters <= n_features and n_features > _SHORT:
        across = turning[: products.size].reshape((piece.shape[0], n_clusters))
        np.dot(piece, turned, across)
        _turn(across, products)
    else:
        np.dot(factors, piece.T, products)


@kernel(fastmath=REASSOCIATED, error_model="numpy")
def _squared_length(row: Array) -> np.float32:
    total = np.float32(0.0)
    for j in range(row.shape[0]):
        total += row[j] * row[j]
    return total


# All distances that are returned are computed here, so that their bits have one origin.
@kernel(fastmath=REASSOCIATED, error_model="numpy")
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

    Rows with a negative label are left out. Without `weights` all are 1. Without `summing`, `sums` has one row, which
    stays zero.
    """
    unit = 1.0 if summing else 0.0
    for i in range(rows.shape[0]):
        label = labels[i]
        if label < 0:
            continue
        w = weights[i] if summing and weights.shape[0] else unit
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


@kernel(error_model="numpy")
def _two_least(products: Array, norms: Array, best: Array, runner: Array, chosen: Labels) -> None:
    """Add the norms; write the two least values of each row, and the index of the least if it is unique."""
    best[:] = np.inf
    runner[:] = np.inf
    for c in range(products.shape[0]):
        norm, product = norms[c], products[c]
        for i in range(product.shape[0]):
            value = product[i] + norm
            product[i] = value
            before, second = best[i], runner[i]
            # The middle one of the three. As the lesser of `second` and the greater of the others it would be written
            # through a mask, and the loop took four times as long (AVX2).
            least = second if value > second else value
            runner[i] = least if least > before else before
            best[i] = value if value < before else before
    chosen[:] = 0
    for c in range(products.shape[0]):
        product = products[c]
        for i in range(product.shape[0]):
            chosen[i] += np.int32(c) * np.int32(product[i] <= best[i])


@kernel(error_model="numpy")
def _squared_lengths(rows: Array, lengths: Array) -> None:
    """Write the squared lengths of rows, in float32."""
    for i in range(rows.shape[0]):
        lengths[i] = _squared_length(rows[i])


@kernel(error_model="numpy")
def _exclude(lengths: Array, slope: float, floor: float, best: Array, runner: Array, chosen: Labels) -> int:
    """Add the error of the products to the least values; choose -1 where the next value is not above that.

    Returns the number of these rows.
    """
    unclear = 0
    for f in range(lengths.shape[0]):
        # A row beyond float32 has no limit: all centres are compared.
        length = lengths[f] if lengths[f] < np.float32(1e36) else np.float32(np.inf)
        best[f] += np.float32(slope * np.sqrt(length) + floor)
        clear = runner[f] > best[f]
        chosen[f] = chosen[f] if clear else -1
        unclear += 1 - clear
    return unclear


@kernel(error_model="numpy")
def _resolve(row: Array, products: Array, f: int, limit: float, centers: Floats) -> int:
    """Return the nearest of the centres within the limit by float64 distances; ties go to the lowest index."""
    label, least = 0, np.inf
    for c in range(centers.shape[0]):
        # An infinite limit, or NaN, is no limit.
        if not limit < np.inf or products[c, f] <= limit:
            distance = squared_distance(row, centers[c])
            if distance < least:
                label, least = c, distance
    return label


@kernel(error_model="numpy")
def heaviest_rows(rows: Array, labels: Labels, weights: Floats, top: float, points: Floats) -> None:
    """Copy the heaviest row of each cluster, the first of them, to `points`; rows with a negative label are left out.

    No weight is above `top`: once all clusters have a row of it, the search ends.
    """
    most = np.zeros(points.shape[0])
    left = points.shape[0]
    for i in range(rows.shape[0]):
        label = labels[i]
        if label >= 0 and weights[i] > most[label]:
            most[label] = weights[i]
            for j in range(rows.shape[1]):
                points[label, j] = rows[i, j]
            if weights[i] == top:
                left -= 1
                if left == 0:
                    break


# One call for all pieces of a block: threads that returned to Python after each piece would wait for its lock.
@kernel(error_model="numpy")
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

    If `operand` has rows, the products take them without a copy. If `lower` has columns, one per row, bounds are stored
    there; if `known`, labels and distances are those of the previous sweep, and only rows that the bounds do not decide
    are compared with the centres. Rows are added in their order in any case. Returns the number of rows compared.
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
    long = np.empty(step, dtype=np.float32)
    best = np.empty(step, dtype=np.float32)
    runner = np.empty(step, dtype=np.float32)
    reach = np.empty(window, dtype=np.float32)
    chosen = np.empty(step, dtype=np.int32)
    base = np.empty(step, dtype=np.float32)
    unscale = 1.0 / (np.float64(scale) * np.float64(scale))
    # Beyond these limits float32 cannot represent the factor by which bounds are scaled back.
    plain = 1e-30 < unscale < 1e30
    where = np.empty(window + 1, dtype=np.int32)
    for f in range(window + 1):
        where[f] = f
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
                        # In the precision of the source: a cast first would lose the digits that an offset leaves.
                        shifted[f, j] = (row[j] - pilot[j]) * scale
            piece = shifted[:m] if copying else operand[a : a + m]
            # Before the products, which read several rows at once: in their order rows come into the cache much faster.
            _squared_lengths(piece, long)
            multiply(piece, factors, turned, turning, products)
            _two_least(products, norms, best[:m], runner[:m], chosen[:m])
            if _exclude(long[:m], slope, floor, best[:m], runner[:m], chosen[:m]):
                for f in range(m):
                    if chosen[f] < 0:
                        chosen[f] = _resolve(rows[a + where[first + f]], products, f, best[f], centers)
                        best[f] = np.inf
            if known:
                for f in range(m):
                    labels[a + where[first + f]] = chosen[f]
            else:
                labels[a:b] = chosen[:m]
                # Here, while the rows are in the cache; the window is one piece, and bounds need its distances.
                settle(rows[a:b], labels[a:b], centers, distances[a:b], summing, weights[a:b], weight, sums, squares)
            if keeping:
                for f in range(m):
                    i = a + where[first + f]
                    square = squared_distance(rows[i], centers[labels[i]]) if known else distances[i]
                    # Products give differences of squared distances up to the error; the nearest distance is exact.
                    offset = square - np.float64(best[f] if plain else np.float32(np.inf)) * unscale
                    base[f] = offset - np.abs(offset) * 2.0**-22
                others = least[: n_groups * m].reshape((n_groups, m))
                least_of_others(products, chosen[:m], others)
                store_bounds(others, base, np.float32(unscale), drift, where[first:], a, lower)
        if known:
            # Brought into the cache once more, in their order.
            for lo in range(a, b, step):
                hi = min(lo + step, b)
                _squared_lengths(rows[lo:hi], long)
                settle(
                    rows[lo:hi],
                    labels[lo:hi],
                    centers,
                    distances[lo:hi],
                    summing,
                    weights[lo:hi],
                    weight,
                    sums,
                    squares,
                )
    return compared


_SIDE = 64  # Rows that are compared with a centre side by side


@kernel(error_model="numpy")
def _turned(rows: Array, tiles: Array, errors: Array) -> None:
    """Write the rows in float32, `_SIDE` of them side by side, and the length of what that rounds off each row."""
    for i in range(rows.shape[0]):
        tile, place, square = tiles[i // _SIDE], i % _SIDE, 0.0
        for j in range(rows.shape[1]):
            tile[j, place] = rows[i, j]
            away = np.float64(rows[i, j]) - np.float64(tile[j, place])
            square += away * away
        errors[i] = np.sqrt(square)


@kernel(error_model="numpy")
def _two_nearest(tile: Array, centers: Array, squares: Array, best: Array, runner: Array, chosen: Labels) -> None:
    """Write the two least squared distances of each row of a tile, and the index of the least, all in float32."""
    d = tile.shape[0]
    best[:] = np.inf
    runner[:] = np.inf
    chosen[:] = 0
    for c in range(centers.shape[0]):
        center = centers[c]
        squares[:] = 0.0
        j = 0
        while j + 4 <= d:  # Four columns at once: `squares` is read and written a quarter as often.
            c0, c1, c2, c3 = center[j], center[j + 1], center[j + 2], center[j + 3]
            x0, x1, x2, x3 = tile[j], tile[j + 1], tile[j + 2], tile[j + 3]
            for f in range(_SIDE):
                s0, s1, s2, s3 = x0[f] - c0, x1[f] - c1, x2[f] - c2, x3[f] - c3
                squares[f] += (s0 * s0 + s1 * s1) + (s2 * s2 + s3 * s3)
            j += 4
        while j < d:
            c0, x0 = center[j], tile[j]
            for f in range(_SIDE):
                s0 = x0[f] - c0
                squares[f] += s0 * s0
            j += 1
        for f in range(_SIDE):
            value, before = squares[f], best[f]
            higher = value if value > before else before
            runner[f] = higher if higher < runner[f] else runner[f]
            chosen[f] = c if value < before else chosen[f]
            best[f] = value if value < before else before


@kernel(error_model="numpy")
def _added(row: Array, center: Floats, weight: float, sums: Floats) -> float:
    """Add the row, with its weight, to the sums; return its squared distance to the centre, added up in one order."""
    d = row.shape[0]
    s0 = s1 = s2 = s3 = 0.0
    j = 0
    while j + 4 <= d:  # Four sums: each addition would wait for the one before.
        x0, x1, x2, x3 = np.float64(row[j]), np.float64(row[j + 1]), np.float64(row[j + 2]), np.float64(row[j + 3])
        y0, y1, y2, y3 = x0 - center[j], x1 - center[j + 1], x2 - center[j + 2], x3 - center[j + 3]
        s0 += y0 * y0
        s1 += y1 * y1
        s2 += y2 * y2
        s3 += y3 * y3
        sums[j] += weight * x0
        sums[j + 1] += weight * x1
        sums[j + 2] += weight * x2
        sums[j + 3] += weight * x3
        j += 4
    while j < d:
        x0 = np.float64(row[j])
        s0 += (x0 - center[j]) * (x0 - center[j])
        sums[j] += weight * x0
        j += 1
    return (s0 + s1) + (s2 + s3)


@kernel(error_model="numpy")
def _settled(row: Array, centers: Floats) -> int:
    """Return the nearest centre by float64 distances, each added up in one order; ties go to the lowest index."""
    label, least = 0, np.inf
    for c in range(centers.shape[0]):
        square = 0.0
        for j in range(row.shape[0]):
            away = np.float64(row[j]) - centers[c, j]
            square += away * away
        if square < least:
            label, least = c, square
    return label


@kernel(error_model="numpy")
def lloyd_of_short_rows(rows: Array, weights: Floats, centers: Floats, most: int, tol: float, labels: Labels) -> float:
    """Make at most some Lloyd iterations, change centres and labels in place, and return the cost of the last labels.

    Without BLAS, whose calls take longer than the products of few columns. Distances in float32 only exclude centres
    that cannot be the nearest, by the error of these distances: labels, which are those of the centres, and costs are
    those of float64, and have the same bits on any processor.
    """
    (n_rows, d), k = rows.shape, centers.shape[0]
    n_tiles = (n_rows + _SIDE - 1) // _SIDE
    tiles, errors, single = np.zeros((n_tiles, d, _SIDE), np.float32), np.empty(n_rows), np.empty((k, d), np.float32)
    squares, best, runner = np.empty(_SIDE, np.float32), np.empty(_SIDE, np.float32), np.empty(_SIDE, np.float32)
    chosen, sums, totals = np.empty(_SIDE, np.int32), np.empty((k, d)), np.empty(k)
    _turned(rows, tiles, errors)
    # Of the sums of two distances, of d terms each.
    slope = 2.0 * _UNIT * (d + 8)
    before, cost = np.inf, np.inf
    for step in range(most + 1):
        longest = 0.0
        for c in range(k):
            square = 0.0
            for j in range(d):
                single[c, j] = centers[c, j]
                square += centers[c, j] * centers[c, j]
            longest = max(longest, square)
        longest = _UNIT * np.sqrt(longest)
        sums[:], totals[:], cost = 0.0, 0.0, 0.0
        for a in range(0, n_rows, _SIDE):
            _two_nearest(tiles[a // _SIDE], single, squares, best, runner, chosen)
            for f in range(min(_SIDE, n_rows - a)):
                # Row and centre are rounded to float32; below 1e-30 squares lose digits.
                shift, square = longest + errors[a + f], np.float64(runner[f])
                error = slope * square + 8.0 * shift * (np.sqrt(square) + shift) + 1e-30
                # An infinite distance, or NaN, decides nothing.
                clear = square - best[f] > error
                label = chosen[f] if clear else _settled(rows[a + f], centers)
                labels[a + f] = label
                weight = weights[a + f]
                totals[label] += weight
                cost += weight * _added(rows[a + f], centers[label], weight, sums[label])
        if step == most or cost >= before * (1.0 - tol):
            break
        before = cost
        for c in range(k):
            if totals[c] > 0:
                for j in range(d):
                    centers[c, j] = sums[c, j] / totals[c]
    return cost
