"""Sums of clusters: merged pairwise per cluster, with means kept beyond float64 so that nothing cancels."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.distances import read_only


@dataclass(frozen=True)
class ClusterSums:
    """Per cluster the weight (k), the mean (k x d), what rounding cut off it, and the sum of squares about it (k).

    ``mean + rest`` is the mean beyond float64: far from the origin, differences of means would otherwise lose the
    digits that the sums of squares need. Clusters without rows have zeros.
    """

    weight: Floats
    mean: Floats
    rest: Floats
    within: Floats


def merge_sums(left: ClusterSums, right: ClusterSums) -> ClusterSums:
    """Return the cluster sums of the rows of both: the pairwise update of Chan, Golub and LeVeque, per cluster."""
    weight = left.weight + right.weight
    share = right.weight / np.where(weight > 0, weight, 1.0)
    step = (right.mean - left.mean) + (right.rest - left.rest)
    mean, rest = two_sum(left.mean, left.rest + step * share[:, None])
    within = left.within + right.within + np.einsum("ij,ij->i", step, step) * left.weight * share
    # A side without rows must leave the other one's bits alone.
    only_left, only_right = right.weight == 0, left.weight == 0
    for side, only in ((left, only_left), (right, only_right)):
        mean[only], rest[only], within[only] = side.mean[only], side.rest[only], side.within[only]
    return ClusterSums(weight, mean, rest, within)


def two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded sum and its exact error (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def farthest(distances: Floats, rows: NDArray[np.int64] | None, count: int) -> NDArray[np.int64]:
    """Return the positions of the `count` largest positive distances, largest first, ties by lowest row index.

    Without `rows` the positions are the rows.
    """
    found = np.flatnonzero(distances >= _cut(read_only(distances), count))
    order = np.lexsort((found if rows is None else rows[found], -distances[found]))[:count]
    out: NDArray[np.int64] = found[order].astype(np.int64)
    return out


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _cut(values: Floats, count: int) -> float:
    """Return the largest value of which `count` are at least as large, or the least positive number."""
    heap = np.full(count, np.nextafter(0.0, 1.0))
    for value in values:
        if not value > heap[0]:
            continue
        # The smallest of those kept is at the root: let it go, and sift the new one down.
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
    return heap[0]  # type: ignore[no-any-return]
