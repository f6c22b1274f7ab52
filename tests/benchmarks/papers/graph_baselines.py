"""Selectors of the literature that the comparisons need and the package does not offer: plain, small versions."""

import numpy as np
import scipy.sparse as sp


def sample_graph(X, n_rows: int = 2000, n_neighbors: int = 5):
    """Return random rows and their symmetric heat-kernel graph of nearest neighbours."""
    from sklearn.neighbors import kneighbors_graph

    rows = X[np.sort(np.random.default_rng(0).permutation(X.shape[0])[:n_rows])]
    graph = kneighbors_graph(rows, n_neighbors, mode="distance")
    graph.data = np.exp(-(graph.data**2) / max(2 * np.mean(graph.data**2), 1e-300))
    return rows, sp.csr_array(graph.maximum(graph.T))


def laplacian_scores(X):
    """Return minus the Laplacian score of every column (He, Cai and Niyogi 2005), so that larger is better."""
    rows, graph = sample_graph(X)
    degree = np.asarray(graph.sum(axis=1)).ravel()
    mean = (rows.T @ degree) / degree.sum()
    squares = rows.multiply(rows) if sp.issparse(rows) else rows * rows
    spread = squares.T @ degree - degree.sum() * mean**2
    moved = graph @ rows
    product = rows.multiply(moved) if sp.issparse(rows) else rows * moved
    smooth = np.asarray(product.sum(axis=0)).ravel() - degree.sum() * mean**2
    return np.where(spread > 1e-12, smooth / np.maximum(spread, 1e-12) - 1.0, -np.inf)


def mcfs_scores(X, n_clusters: int, n_features: int):
    """Return MCFS scores: largest coefficient of sparse fits to the graph's eigenvectors (Cai, Zhang and He 2010)."""
    from scipy.sparse.linalg import eigsh
    from sklearn.linear_model import lars_path

    rows, graph = sample_graph(X)
    rows = rows.toarray() if sp.issparse(rows) else rows
    root = sp.diags_array(1 / np.sqrt(np.asarray(graph.sum(axis=1)).ravel()))
    start = np.random.default_rng(0).standard_normal(graph.shape[0])
    vectors = eigsh(root @ graph @ root, k=n_clusters + 1, v0=start)[1][:, :-1]
    centred = rows - rows.mean(axis=0)
    scores = np.zeros(X.shape[1])
    for vector in (root @ vectors).T:
        coefficients = lars_path(centred, vector - vector.mean(), max_iter=n_features)[2][:, -1]
        scores = np.maximum(scores, np.abs(coefficients))
    return scores


def alpha_investing(X, y, wealth: float = 0.5, reward: float = 0.5):
    """Return columns in order of acceptance (Zhou et al. 2005): a regression on the classes, so it is supervised."""
    from scipy.stats import f as f_distribution

    target = np.eye(int(y.max()) + 1)[y]
    target = target - target.mean(axis=0)
    n, q = target.shape
    basis: list[np.ndarray] = []
    chosen = []
    for j in range(X.shape[1]):
        threshold = wealth / (2 * (j + 1))
        column = X[:, j] - X[:, j].mean()
        size = np.linalg.norm(column)
        for _ in range(2):
            for vector in basis:
                column = column - vector * (vector @ column)
        left = np.linalg.norm(column)
        free = n - len(basis) - 2
        if free > q and left > 1e-8 * size:
            gain = ((column / left) @ target) ** 2
            ratio = gain.sum() / max((target**2).sum() - gain.sum(), 1e-300) * free
            if f_distribution.sf(ratio / (q - 1), q - 1, free * (q - 1)) < threshold:
                chosen.append(j)
                basis.append(column / left)
                target = target - np.outer(column / left, (column / left) @ target)
                wealth += reward
        wealth -= threshold
    return np.array(chosen, dtype=int)
