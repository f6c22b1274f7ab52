"""Leverage scores of the edges of a graph by random projections and conjugate gradients, without a dense inverse.

An edge of weight w between two vertices is the column sqrt(w) (e_u - e_v), so that the scatter of the columns is the
Laplacian of the graph. Source: Spielman and Srivastava 2011; Koutis, Levin and Peng 2016 for the use in Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Edges:
    """Edges of a graph: both ends and the weight, in order of arrival."""

    n_vertices: int
    first: Any
    second: Any
    weight: Any

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, at: Any) -> Edges:
        return Edges(self.n_vertices, self.first[at], self.second[at], self.weight[at])

    def columns(self, values: Any) -> sp.csr_array:
        """Return `values` (e_u - e_v) as the columns of a sparse matrix."""
        at = np.arange(len(self))
        entries = (np.concatenate([values, -values]), (np.concatenate([self.first, self.second]), np.tile(at, 2)))
        return sp.csr_array(entries, shape=(self.n_vertices, len(self)))

    def laplacian(self, weight: Any) -> sp.csr_array:
        """Return the Laplacian with these weights."""
        incidence = self.columns(np.sqrt(weight))
        return sp.csr_array(incidence @ incidence.T)


def conjugate_gradients(matrix: Any, right: Any, tolerance: float = 1e-6, most: int = 2000) -> Any:
    """Return the solutions for all columns of `right` at once, with the diagonal as preconditioner."""
    diagonal = matrix.diagonal()[:, None]
    x, residual = np.zeros_like(right), right.copy()
    step = scaled = residual / diagonal
    product = (residual * scaled).sum(axis=0)
    limit = tolerance**2 * product
    for _ in range(most):
        if (product <= limit).all():
            break
        image = matrix @ step
        length = product / np.maximum((step * image).sum(axis=0), 1e-300)
        x += length * step
        residual -= length * image
        scaled = residual / diagonal
        before, product = product, (residual * scaled).sum(axis=0)
        step = scaled + product / np.maximum(before, 1e-300) * step
    return x


def edge_scores(edges: Edges, kept: Edges, p: Any, ridge: float, n_projections: int, seed: int) -> Any:
    """Estimate a'M^-1 a for the columns a of `edges`, with M the Laplacian of what was kept (weights w / p) + ridge.

    With a = sqrt(w) (e_u - e_v), ``a'M^-1 a = |[W^(1/2) B; ridge^(1/2) I] M^-1 a|^2``, whose random projection to
    `n_projections` numbers is unbiased: as many systems are solved, whatever the number of edges.
    """
    rng, n = np.random.default_rng(seed), edges.n_vertices
    matrix = sp.csr_array(kept.laplacian(kept.weight / p) + ridge * sp.eye_array(n))
    signs = rng.choice([-1.0, 1.0], (len(kept), n_projections)) / np.sqrt(n_projections)
    right = np.sqrt(ridge / n_projections) * rng.choice([-1.0, 1.0], (n, n_projections))
    right += kept.columns(np.sqrt(kept.weight / p)) @ signs
    z = conjugate_gradients(matrix, right)
    return edges.weight * ((z[edges.first] - z[edges.second]) ** 2).sum(axis=1)


def sample_edges(
    edges: Edges, eps: float, rate: float, ridge: float, block: int, n_projections: int, seed: int = 0
) -> tuple[Any, Any]:
    """Return (edges kept, their probabilities) of Algorithm 1: a block is scored by what was kept before it.

    Scores of an earlier matrix are larger, and so are over-estimates too; they are doubled for the error of the
    projection.
    """
    u = np.random.default_rng([1, seed]).random(len(edges))
    kept, probabilities = np.zeros(0, dtype=int), np.zeros(0)
    for start in range(0, len(edges), block):
        at = np.arange(start, min(start + block, len(edges)))
        scores = edge_scores(edges[at], edges[kept], probabilities, ridge, n_projections, seed + start)
        p = np.minimum(rate * np.minimum(2 * (1 + eps) * scores, 1), 1)
        drawn = u[at] < p
        kept, probabilities = np.concatenate([kept, at[drawn]]), np.concatenate([probabilities, p[drawn]])
    return kept, probabilities


def random_graph(n: int, n_edges: int, seed: int = 0) -> Edges:
    """Return communities of vertices with few edges between them, and weights spread over two orders."""
    rng = np.random.default_rng(seed)
    first = rng.integers(n, size=n_edges)
    near = (first // max(n // 4, 1)) * max(n // 4, 1) + rng.integers(max(n // 4, 1), size=n_edges)
    second = np.where(rng.random(n_edges) < 0.98, np.minimum(near, n - 1), rng.integers(n, size=n_edges))
    second = np.where(second == first, (first + 1) % n, second)
    return Edges(n, first, second, 10.0 ** rng.uniform(-1, 1, n_edges))
