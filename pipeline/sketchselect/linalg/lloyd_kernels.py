"""Compiled loops of one Lloyd step; `lloyd` prepares what they take and says what they guarantee."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.distances import squared_distance

Labels = NDArray[np.int32]


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")  # type: ignore[untyped-decorator]
def _squared_length(row: Array) -> np.float32:
    total = np.float32(0.0)
    for j in range(row.shape[0]):
        total += row[j] * row[j]
    return total


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _assign(
    rows: Array,
    shifted: Array,
    products: Array,
    norms: Array,
    slope: float,
    floor: float,
    centers: Floats,
    limit: Array,
    count: Labels,
    labels: Labels,
    distances: Floats,
) -> None:
    n_clusters, n_rows = products.shape
    limit[:] = np.inf
    for c in range(n_clusters):
        norm = norms[c]
        for i in range(n_rows):
            value = products[c, i] + norm
            products[c, i] = value
            limit[i] = value if value < limit[i] else limit[i]
    for i in range(n_rows):
        length = _squared_length(shifted[i])
        # A row that float32 cannot hold has no limit: all centres are compared.
        limit[i] = limit[i] + np.float32(slope * np.sqrt(length) + floor) if length < np.float32(1e36) else np.inf
        count[i] = 0
        labels[i] = 0
    for c in range(n_clusters):
        for i in range(n_rows):
            inside = np.int32(products[c, i] <= limit[i])
            count[i] += inside
            labels[i] += np.int32(c) * inside
    for i in range(n_rows):
        if count[i] == 1 and limit[i] < np.inf:
            distances[i] = squared_distance(rows[i], centers[labels[i]])
            continue
        label, best = 0, np.inf
        for c in range(n_clusters):
            if limit[i] == np.inf or products[c, i] <= limit[i]:
                distance = squared_distance(rows[i], centers[c])
                if distance < best:
                    label, best = c, distance
        labels[i] = label
        distances[i] = best


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")  # type: ignore[untyped-decorator]
def accumulate(
    rows: Array,
    labels: Labels,
    weights: Floats,
    references: Floats,
    has_reference: NDArray[np.bool_],
    weight: Floats,
    sums: Floats,
    squares: Floats,
) -> None:
    """Add the rows to the sums of their clusters, about the first row of each; a negative label leaves a row out."""
    for i in range(rows.shape[0]):
        label = labels[i]
        w = weights[i]
        if label < 0 or w == 0.0:
            continue
        if not has_reference[label]:
            has_reference[label] = True
            for j in range(rows.shape[1]):
                references[label, j] = rows[i, j]
        total = 0.0
        for j in range(rows.shape[1]):
            difference = np.float64(rows[i, j]) - references[label, j]
            sums[label, j] += w * difference
            total += difference * difference
        weight[label] += w
        squares[label] += w * total


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
    references: Floats,
    has_reference: NDArray[np.bool_],
    weight: Floats,
    sums: Floats,
    squares: Floats,
) -> None:
    """Assign the rows to their nearest centres, a piece at a time, and add them to the sums if `summing`."""
    n_rows, n_features = rows.shape
    n_clusters = centers.shape[0]
    step = min(step, n_rows)
    shifted = np.empty((step, n_features), dtype=np.float32)
    buffer = np.empty(n_clusters * step, dtype=np.float32)
    limit = np.empty(step, dtype=np.float32)
    count = np.empty(step, dtype=np.int32)
    for a in range(0, n_rows, step):
        b = min(a + step, n_rows)
        m = b - a
        for i in range(m):
            for j in range(n_features):
                # In the source's own precision: a cast first would lose what an offset leaves.
                shifted[i, j] = (rows[a + i, j] - pilot[j]) * scale
        products = buffer[: n_clusters * m].reshape((n_clusters, m))
        np.dot(factors, shifted[:m].T, products)
        _assign(
            rows[a:b],
            shifted,
            products,
            norms,
            slope,
            floor,
            centers,
            limit[:m],
            count[:m],
            labels[a:b],
            distances[a:b],
        )
        if summing:
            accumulate(rows[a:b], labels[a:b], weights[a:b], references, has_reference, weight, sums, squares)
