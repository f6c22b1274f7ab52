"""The dimension reductions for k-means in Table 1 of Wang et al. (2018), each in a few lines.

Boutsidis et al. 2009 is the package's `RandomizedSelector`.
"""

from typing import Any

import numpy as np
from scipy.fft import dct


def random_signs(X: Any, n_columns: int, seed: int) -> Any:
    """Return X times a matrix of random signs (Boutsidis et al. 2015): factor 2 + eps for O(k / eps^2) columns."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (X.shape[1], n_columns))
    return X @ signs / np.sqrt(n_columns)


def sparse_embedding(X: Any, n_columns: int, seed: int) -> Any:
    """Add every column, with a random sign, to a random one of the new columns (Liu et al. 2017): factor 1 + eps."""
    rng = np.random.default_rng(seed)
    place, sign = rng.integers(n_columns, size=X.shape[1]), rng.choice([-1.0, 1.0], X.shape[1])
    out = np.zeros((X.shape[0], n_columns))
    np.add.at(out.T, place, (X * sign).T)
    return out


def embedding_columns(k: int, eps: float, delta: float) -> int:
    """Return the number of columns that Table 1 states for the sparse embedding, with its constants as printed."""
    return int(np.ceil(max((k + np.log(1 / delta)) / eps**2, 6 / (eps**2 * delta))))


def sparsified(X: Any, n_entries: int, seed: int) -> tuple[Any, Any]:
    """Return (values, mask): a random rotation of the rows, of which `n_entries` random numbers a row are kept.

    Source: Pourkamali-Anaraki and Becker 2017, with the discrete cosine transform.
    """
    rng = np.random.default_rng(seed)
    turned = dct(X * rng.choice([-1.0, 1.0], X.shape[1]), axis=1, norm="ortho")
    order = rng.random(X.shape).argpartition(n_entries - 1, axis=1)[:, :n_entries]
    mask = np.zeros(X.shape, dtype=bool)
    np.put_along_axis(mask, order, True, axis=1)
    return np.where(mask, turned, 0.0), mask


def sparsified_kmeans(X: Any, k: int, n_entries: int, seed: int, n_init: int = 3, n_iter: int = 50) -> Any:
    """Return the labels of k-means in which distances and means are over the numbers kept of each row alone."""
    values, mask = sparsified(X, n_entries, seed)
    rng, best = np.random.default_rng([1, seed]), (np.inf, np.zeros(len(X), dtype=int))
    for _ in range(n_init):
        centers = np.where(mask, values, values.sum(axis=0) / np.maximum(mask.sum(axis=0), 1))[
            rng.permutation(len(X))[:k]
        ]
        labels = None
        for _ in range(n_iter):
            distances = (values**2).sum(axis=1)[:, None] - 2 * values @ centers.T + mask @ (centers**2).T
            new = distances.argmin(axis=1)
            if labels is not None and (new == labels).all():
                break
            labels = new
            for c in range(k):
                counts = mask[labels == c].sum(axis=0)
                means = values[labels == c].sum(axis=0) / np.maximum(counts, 1)
                centers[c] = np.where(counts > 0, means, centers[c])
        cost = float(distances.min(axis=1).sum())
        if cost < best[0]:
            best = (cost, new)
    return best[1]
