"""The best of all partitions of a few (weighted) rows, by trying them all: the oracle of certificates."""

from typing import Any

import numba
import numpy as np


@numba.njit(cache=True)
def _search(X: Any, w: Any, k: int, best: float, labels: Any, result: Any) -> float:
    """Try the restricted growth strings depth first; a row never lowers the cost, so dearer beginnings are left."""
    n, p = X.shape
    count, mass, sums, cost = np.zeros(k), np.zeros((n + 1, k)), np.zeros((n + 1, k, p)), np.zeros(n + 1)
    row = 0
    labels[:] = -1
    while row >= 0:
        if labels[row] >= 0:
            count[labels[row]] -= 1
        labels[row] += 1
        used = 0
        for c in range(k):
            used += count[c] > 0
        j = labels[row]
        if j >= k or j > used:
            labels[row] = -1
            row -= 1
            continue
        before, after = mass[row, j], mass[row, j] + w[row]
        added = 0.0
        for c in range(k):
            mass[row + 1, c] = mass[row, c]
            for q in range(p):
                sums[row + 1, c, q] = sums[row, c, q]
        mass[row + 1, j] = after
        for q in range(p):
            if before > 0:
                added += (X[row, q] - sums[row, j, q] / before) ** 2
            sums[row + 1, j, q] += w[row] * X[row, q]
        cost[row + 1] = cost[row] + (added * before * (w[row] / after) if after > 0 else 0.0)
        count[j] += 1
        if cost[row + 1] < best or row == 0:
            if row == n - 1:
                best = cost[row + 1]
                result[:] = labels
            else:
                row += 1
    return best


def solved(X: Any, k: int, weights: Any = None) -> tuple[float, Any]:
    """Return the optimum over all partitions into at most k clusters, and one that reaches it."""
    # Differences of these rows are exact, also far from the origin.
    near = X - X[0]
    result = np.zeros(len(X), np.int64)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    return _search(near, w, k, np.inf, np.zeros(len(X), np.int64), result), result


def cost(X: Any, labels: Any, weights: Any = None) -> float:
    """Return the objective of these labels, about the weighted mean of each cluster."""
    near, total = X - X[0], 0.0
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=float)
    for c in np.unique(labels):
        mine = labels == c
        if w[mine].sum() > 0:
            mean = w[mine] @ near[mine] / w[mine].sum()
            total += float(w[mine] @ ((near[mine] - mean) ** 2).sum(axis=1))
    return total
