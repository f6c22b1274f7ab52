"""Streaming k-means by merge and reduce of coresets, as in StreamKM++ (Ackermann et al. 2012): a plain, small version.

Buckets of m weighted points; two of one level are reduced to one of the next, as in a binary counter, so log2(n / m)
buckets are held. A reduction draws m points by squared distance (the seeding of k-means++) and moves each point's
weight to its nearest drawn point. K-means on the points that are left stands for k-means on all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def _squares(X):
    return np.asarray(X.multiply(X).sum(axis=1)).ravel() if sp.issparse(X) else np.einsum("ij,ij->i", X, X)


def _row(X, i):
    return X[[i]].toarray().ravel() if sp.issparse(X) else X[i]


def reduce_points(X, weights, size: int, rng):
    """Return `size` of the points and the weight that each now stands for."""
    if X.shape[0] <= size:
        return X, weights
    squares = _squares(X)
    chosen = [int(rng.choice(X.shape[0], p=weights / weights.sum()))]
    nearest = np.zeros(X.shape[0], dtype=np.int64)
    distance = np.full(X.shape[0], np.inf)
    while True:
        new = chosen[-1]
        d = np.maximum(squares + squares[new] - 2 * np.asarray(X @ _row(X, new)).ravel(), 0)
        d[new] = 0
        closer = d < distance
        distance[closer], nearest[closer] = d[closer], len(chosen) - 1
        total = float((weights * distance).sum())
        if len(chosen) == size or total <= 0:
            break
        chosen.append(int(rng.choice(X.shape[0], p=weights * distance / total)))
    return X[chosen], np.bincount(nearest, weights=weights, minlength=len(chosen))


def _stacked(a, b):
    return sp.csr_array(sp.vstack([a, b])) if sp.issparse(a) else np.vstack([a, b])


class StreamKMeans:
    """One pass over batches of rows, then k-means on the coreset.

    Parameters
    ----------
    n_clusters : int
    size : int
        Points of a bucket, m; 20 n_clusters by default (StreamKM++ uses 200, of far longer streams).
    seed : int
    """

    def __init__(self, n_clusters: int, size: int | None = None, seed: int = 0) -> None:
        self.n_clusters, self.size = n_clusters, 20 * n_clusters if size is None else size
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.buckets: list[Any] = []

    def partial_fit(self, X) -> StreamKMeans:
        """Add a batch of rows."""
        for start in range(0, X.shape[0], self.size):
            rows = X[start : start + self.size]
            held, level = (rows, np.ones(rows.shape[0])), 0
            while level < len(self.buckets) and self.buckets[level] is not None:
                below, self.buckets[level] = self.buckets[level], None
                joined = _stacked(below[0], held[0]), np.concatenate([below[1], held[1]])
                held, level = reduce_points(*joined, self.size, self.rng), level + 1
            self.buckets.extend([None] * (level + 1 - len(self.buckets)))
            self.buckets[level] = held
        return self

    @property
    def coreset(self):
        """Points and weights that stand for all rows seen."""
        points = weights = None
        for bucket in self.buckets:
            if bucket is not None:
                points = bucket[0] if points is None else _stacked(points, bucket[0])
                weights = bucket[1] if weights is None else np.concatenate([weights, bucket[1]])
        return points, weights

    def predict(self, X, n_init: int = 5):
        """Return the nearest centre of every row; centres are k-means' on the coreset."""
        from sklearn.cluster import KMeans

        points, weights = self.coreset
        fitted = KMeans(self.n_clusters, n_init=n_init, random_state=self.seed).fit(points, sample_weight=weights)
        return fitted.predict(X)
