"""Cluster sums of sparse rows."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

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


@njit(nogil=True, cache=True, fastmath={"contract"})
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
