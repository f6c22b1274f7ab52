"""Cluster sums of sparse rows."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.linalg.arrays import LARGEST, Array, Floats
from sketchselect.linalg.kmeans.cluster_sums import ClusterSums, two_sum
from sketchselect.linalg.sparse.csr import arrays_of
from sketchselect.linalg.sparse.split import refuse_huge, require_ordinary


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


@njit(nogil=True, cache=True, fastmath={"contract"})
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


@njit(nogil=True, cache=True, fastmath={"contract"})
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
