"""Nearest-neighbour graphs of a few thousand rows, and their spectral embedding."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.hashing import derive_seed, uniforms

# Up to this number of rows, a dense eigendecomposition is as fast as Lanczos steps for a few eigenvectors.
_DENSE_ROWS = 500


def neighbour_graph(rows: Any, n_neighbors: int, weight: str = "heat") -> Any:
    """Return the symmetric graph that joins two rows if either is among the nearest neighbours of the other.

    `rows` of shape (n_rows, n_features): At least two.
    `n_neighbors`: Neighbours of each row, without itself; at most n_rows - 1 are used.
    `weight`, "heat", "cosine" or "binary": ``exp(-||x - y||^2 / (2 m))`` with m the mean squared distance of
        neighbours; the cosine of the angle between the rows (0 where it is negative); or 1.

    Returns CSR array of shape (n_rows, n_rows): With an empty diagonal.
    Cost: all distances, n_rows^2 n_features (sparse rows: of their stored entries), some rows at a time.
    """
    from sklearn.neighbors import NearestNeighbors

    n = rows.shape[0]
    finder = NearestNeighbors(n_neighbors=min(n_neighbors, n - 1)).fit(rows)
    graph = sparse.csr_array(finder.kneighbors_graph(mode="distance"))
    if weight == "heat":
        squares = graph.data**2
        mean = float(squares.mean()) if squares.size else 0.0
        graph.data = np.exp(-squares / (2.0 * mean)) if mean > 0 else np.ones_like(squares)
    elif weight == "cosine":
        graph.data = _cosines(rows, graph)
    else:
        graph.data = np.ones_like(graph.data)
    return sparse.csr_array(graph.maximum(graph.T))


def _cosines(rows: Any, graph: Any) -> Floats:
    first = np.repeat(np.arange(rows.shape[0]), np.diff(graph.indptr))
    if sparse.issparse(rows):
        norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        inner = np.asarray(rows[first].multiply(rows[graph.indices]).sum(axis=1)).ravel()
    else:
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        inner = np.einsum("ij,ij->i", rows[first], rows[graph.indices])
    size = norms[first] * norms[graph.indices]
    return np.asarray(np.maximum(np.divide(inner, size, out=np.zeros(inner.size), where=size > 0), 0.0))


def degrees(graph: Any) -> Floats:
    """Return the sum of the weights at each row."""
    return np.asarray(graph.sum(axis=1), dtype=np.float64).ravel()


def spectral_embedding(graph: Any, n_components: int) -> Floats:
    """Return the eigenvectors of ``L y = lambda D y`` of smallest eigenvalue, without the constant one.

    L is the Laplacian and D the diagonal matrix of the degrees; ``y' D y = 1``, and y is orthogonal to the constant in
    this inner product. In a graph of several connected components the eigenvalue 0 is repeated; its eigenvectors are
    the indicators of the components without the largest, by descending size, made orthogonal to the constant.

    `graph` of shape (n_rows, n_rows): Symmetric, not negative.
    `n_components`: At most n_rows - 1 are returned.
    Deterministic: Lanczos starts from hashed numbers. Cost: some products with the graph per eigenvector; one dense
    eigendecomposition, 4 n_rows^3 / 3, for up to 500 rows and where Lanczos does not converge.
    """
    n, degree = graph.shape[0], degrees(graph)
    root = np.sqrt(degree)
    n_vectors = min(n_components, n - 1)
    inverse = np.divide(1.0, root, out=np.zeros(n), where=root > 0)
    n_parts, part = connected_components(graph, directed=False)
    mass = np.bincount(part, degree, n_parts)
    order = np.lexsort((np.arange(n_parts), -np.bincount(part, minlength=n_parts)))
    null = np.zeros((n, n_parts))
    heavy = mass[part] > 0
    null[np.flatnonzero(heavy), part[heavy]] = root[heavy] / np.sqrt(mass[part[heavy]])
    inside = order[1:][mass[order[1:]] > 0][:n_vectors]
    parts = null[:, inside]
    constant = root / np.sqrt(mass.sum()) if mass.sum() > 0 else root
    parts = parts - np.outer(constant, constant @ parts)
    norms = np.linalg.norm(parts, axis=0)
    parts = parts / np.where(norms > 0, norms, 1.0)
    vectors = _deflated(graph, inverse, null, n_vectors - parts.shape[1])
    return np.asarray(inverse[:, None] * np.hstack([parts, vectors]))


def _deflated(graph: Any, inverse: Floats, null: Floats, n_vectors: int) -> Floats:
    """Return the top eigenvectors of ``D^-1/2 W D^-1/2`` that are orthogonal to the columns of `null`."""
    n = graph.shape[0]
    n_vectors = min(n_vectors, n - null.shape[1])
    if n_vectors <= 0:
        return np.zeros((n, 0))
    scaled = sparse.csr_array(sparse.diags_array(inverse) @ graph @ sparse.diags_array(inverse))
    if n > _DENSE_ROWS and n_vectors < n // 4:
        # Shifted to the bottom of the spectrum, [-1, 1], the deflated vectors are not among the largest.
        operator = LinearOperator((n, n), matvec=lambda x: scaled @ x - 2.0 * (null @ (null.T @ x)), dtype=np.float64)
        start = uniforms(derive_seed(0, "spectral embedding"), np.arange(n, dtype=np.uint64)) - 0.5
        try:
            values, vectors = eigsh(operator, k=n_vectors, which="LA", v0=start, ncv=min(n, max(4 * n_vectors, 40)))
            return np.asarray(vectors[:, np.argsort(-values, kind="stable")])
        except ArpackNoConvergence:
            pass
    dense = scaled.toarray() - 2.0 * (null @ null.T)
    _, vectors = eigh(dense, subset_by_index=[n - n_vectors, n - 1])
    return np.asarray(vectors[:, ::-1])
