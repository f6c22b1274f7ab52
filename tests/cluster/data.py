"""Data and oracles shared by the tests of this folder."""

from typing import Any

import numpy as np


def blobs(seed: int, n_rows: int = 400, n_features: int = 5, n_blobs: int = 4, separation: float = 6.0) -> Any:
    """Return Gaussian blobs, rows in random order."""
    rng = np.random.default_rng(seed)
    centers = separation * rng.standard_normal((n_blobs, n_features))
    return centers[rng.integers(n_blobs, size=n_rows)] + rng.standard_normal((n_rows, n_features))


def documents(n_rows: int = 600, n_topics: int = 6, n_columns: int = 400, seed: int = 0) -> Any:
    """Return counts of documents of very different lengths, of one topic each and many common words, and the topics."""
    rng = np.random.default_rng(seed)
    topics, common = rng.dirichlet(np.full(n_columns, 0.05), n_topics), rng.dirichlet(np.full(n_columns, 0.1))
    labels = rng.integers(n_topics, size=n_rows)
    lengths = rng.lognormal(4.0, 1.0, n_rows).astype(int) + 5
    rows = [rng.multinomial(n, 0.5 * common + 0.5 * topics[t]) for n, t in zip(lengths, labels, strict=True)]
    return np.stack(rows), labels


def exact_sums(X: Any, labels: Any, n_clusters: int, weights: Any = None) -> tuple[Any, Any, Any]:
    """Return weight, mean and within-cluster sum of squares per cluster, in extended precision."""
    Y = np.asarray(X).astype(np.longdouble)
    w = np.ones(len(Y), np.longdouble) if weights is None else np.asarray(weights).astype(np.longdouble)
    weight = np.zeros(n_clusters, np.longdouble)
    mean = np.zeros((n_clusters, Y.shape[1]), np.longdouble)
    within = np.zeros(n_clusters, np.longdouble)
    for j in range(n_clusters):
        rows, v = Y[labels == j], w[labels == j]
        weight[j] = v.sum()
        if weight[j] > 0:
            mean[j] = (v[:, None] * rows).sum(axis=0) / weight[j]
            within[j] = (v[:, None] * (rows - mean[j]) ** 2).sum()
    return weight, mean, within


def exact_distances(X: Any, centers: Any) -> Any:
    """Return squared distances of every row to every centre, in extended precision."""
    Y, C = np.asarray(X).astype(np.longdouble), np.asarray(centers).astype(np.longdouble)
    return ((Y[:, None, :] - C[None, :, :]) ** 2).sum(axis=2)
