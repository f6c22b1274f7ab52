"""Batch methods on a graph of sampled rows: multi-cluster feature selection (MCFS) and the Laplacian score."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from sketchselect.errors import EmptyInput, Incompatible
from sketchselect.execution import Source
from sketchselect.linalg.csr import varying_columns
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.parameters import Count, SeedNumber, Size
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats
from sketchselect.selectors.base import BaseSelector, Selection, rank
from sketchselect.selectors.sketched import resolved_nonzero, with_marginal_order
from sketchselect.solvers.homotopy import Design, lasso_coefficients
from sketchselect.summaries import RowSample, Summary

# Up to this number of rows, a dense eigendecomposition is as fast as Lanczos steps for a few eigenvectors.
_DENSE_ROWS = 500

_DISTANCE_ROWS = 512  # Sparse rows whose distances to all others are in memory at a time


def neighbour_graph(rows: Any, n_neighbors: int, weight: str = "heat") -> Any:
    """Return the symmetric graph that joins two rows if either is among the nearest neighbours of the other.

    `rows` of shape (n_rows, n_features): At least two.
    `n_neighbors`: Neighbours of each row, without itself; at most n_rows - 1 are used.
    `weight`, "heat", "cosine" or "binary": ``exp(-||x - y||^2 / (2 m))`` with m the mean squared distance of
        neighbours; the cosine of the angle between the rows (0 where it is negative); or 1.

    Returns CSR array of shape (n_rows, n_rows): With an empty diagonal.
    Cost: all distances, n_rows^2 n_features (sparse rows: of their stored entries), some rows at a time.
    """
    from sklearn import config_context
    from sklearn.neighbors import NearestNeighbors

    n = rows.shape[0]
    finder = NearestNeighbors(n_neighbors=min(n_neighbors, n - 1)).fit(rows)
    # Distances of sparse rows are in memory, some rows at a time; those of dense rows never are.
    with config_context(working_memory=8 * _DISTANCE_ROWS * n / 2**20):
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
    normalized = sparse.csr_array(sparse.diags_array(inverse) @ graph @ sparse.diags_array(inverse))
    if n > _DENSE_ROWS and n_vectors < n // 4:
        # Shifted to the bottom of the spectrum, [-1, 1], the deflated vectors are not among the largest.
        operator = LinearOperator(
            (n, n), matvec=lambda x: normalized @ x - 2.0 * (null @ (null.T @ x)), dtype=np.float64
        )
        start = uniforms(derive_seed(0, "spectral embedding"), np.arange(n, dtype=np.uint64)) - 0.5
        try:
            values, vectors = eigsh(operator, k=n_vectors, which="LA", v0=start, ncv=min(n, max(4 * n_vectors, 40)))
            return np.asarray(vectors[:, np.argsort(-values, kind="stable")])
        except ArpackNoConvergence:
            pass
    dense = normalized.toarray() - 2.0 * (null @ null.T)
    _, vectors = eigh(dense, subset_by_index=[n - n_vectors, n - 1])
    return np.asarray(vectors[:, ::-1])


_EPS = float(np.finfo(np.float64).eps)


def laplacian_scores(rows: Any, graph: Any) -> Floats:
    """Return the Laplacian score of every column, ``L_j = f'Lf / f'Df`` with f the column less its D-weighted mean.

    Between 0 (constant on connected rows) and 2; NaN for constant columns.

    `rows` of shape (n_rows, n_features).
    `graph` of shape (n_rows, n_rows): Symmetric; D are its degrees and ``L = D - W``.
    Cost: one product of the graph with the rows. Source: He, Cai and Niyogi 2005, equation (6).
    """
    degree = degrees(graph)
    total = float(degree.sum())
    if total <= 0:
        return np.full(rows.shape[1], np.nan)
    mean = np.asarray(rows.T @ degree).ravel() / total
    if not sparse.issparse(rows):
        # Columns far from zero would cancel in the products below.
        rows, mean = rows - mean, np.zeros(mean.size)
    squares = np.asarray((rows.multiply(rows) if sparse.issparse(rows) else rows * rows).T @ degree).ravel()
    products = graph @ rows
    joint = np.asarray((rows.multiply(products) if sparse.issparse(rows) else rows * products).sum(axis=0)).ravel()
    variances, smooth = squares - total * mean**2, joint - total * mean**2
    varies = varying_columns(rows) & (variances > 8.0 * _EPS * squares) & (variances > 0)
    out = np.full(mean.size, np.nan)
    out[varies] = np.clip(1.0 - smooth[varies] / variances[varies], 0.0, 2.0)
    return out


def mcfs_coefficients(rows: Any, embedding: Floats, n_nonzero: int, *, scale_columns: bool = False) -> Floats:
    """Return the sparse regressions of the embedding on the columns, shape (n_features, n_components).

    `rows` of shape (n_rows, n_features).
    `embedding` of shape (n_rows, n_components): Targets of the regressions; centred first, so that there is an
        intercept.
    `n_nonzero`: Columns in each regression.
    `scale_columns`: Whether columns are divided by their standard deviation first (constant columns are left
        unchanged).
    Source: Cai, Zhang and He 2010, equation (6) and Table 1, by the lasso path.
    """
    if scale_columns:
        design = Design(_scaled(rows), center=True)
    else:
        design = Design(rows, center=True)
    targets = embedding - embedding.mean(axis=0)
    return (
        np.array([lasso_coefficients(design, target, n_nonzero) for target in targets.T]).reshape(-1, rows.shape[1]).T
    )


def _scaled(rows: Any) -> Any:
    n = rows.shape[0]
    mean = np.asarray(rows.mean(axis=0)).ravel()
    raw = np.asarray((rows.multiply(rows) if sparse.issparse(rows) else rows * rows).sum(axis=0)).ravel()
    squares = np.maximum(raw / n - mean**2, 0.0)
    varies = squares > 8.0 * _EPS * raw / n
    factor = np.divide(1.0, np.sqrt(squares), out=np.ones(mean.size), where=varies)
    return sparse.csr_array(rows @ sparse.diags_array(factor)) if sparse.issparse(rows) else rows * factor


Weight = Literal["heat", "cosine", "binary"]


class SampledGraphSelector(BaseSelector):
    """Base of the selectors on a graph of nearest neighbours among a uniform sample of the rows.

    The sample does not depend on chunks, order or batches. Sparse rows stay sparse.

    Parameters
    ----------
    n_rows : int
        Number of rows in the sample.
    n_neighbors : int
        Neighbours of each row in the graph.
    weight : "heat", "cosine" or "binary"
        Weight of the edges; heat with the mean squared distance of neighbours as its scale.
    random_state : int
        Seed of the sample.
    """

    requires: ClassVar[tuple[str, ...]] = ("row-sample",)
    about = "mean"

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        n_rows: Count = 4000,
        n_neighbors: Count = 5,
        weight: Weight = "heat",
        normalize: str | None = "l2",
        random_state: SeedNumber = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_rows = n_rows
        self.n_neighbors = n_neighbors
        self.weight: Weight = weight
        self.normalize = normalize
        self.random_state = random_state

    @abstractmethod
    def _scores(self, rows: Any, graph: Any, n_select: int) -> tuple[Floats, dict[str, Any]]:
        """Return the scores of the columns, and the resolved parameters that only this method has."""

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sample of rows."""
        return RowSample(int(self.n_rows), seed=int(self.random_state))

    def selecting_nbytes(self, source: Source) -> int:
        """Return the bytes of the distances of some sparse rows, as products, squares and an order: five arrays."""
        return 5 * 8 * _DISTANCE_ROWS * min(int(self.n_rows), source.n_rows) if source.matrix.is_sparse else 0

    def _select(self, summary: RowSample, n_select: int) -> Selection:
        if summary.center is not None:
            raise Incompatible(
                "the graph needs a uniform sample of the rows, but this RowSample has a center; make one without"
            )
        rows = summary.rows
        if rows.shape[0] == 0:
            raise EmptyInput(
                "no rows with a positive weight: all sample weights are zero (or below 2.2e-308), or the input is empty"
            )
        scores, graph = np.zeros(summary.n_features), None
        parameters: dict[str, Any] = {}
        if rows.shape[0] > 1:
            with one_blas_thread():
                graph = neighbour_graph(rows, int(self.n_neighbors), self.weight)
                scores, parameters = self._scores(rows, graph, n_select)
        return self._selection(
            summary,
            np.sort(rank(scores)[:n_select]),
            scores,
            diagnostics={
                "n_sampled_rows": int(rows.shape[0]),
                "n_edges": 0 if graph is None else int(graph.nnz) // 2,
                "n_scored": int(np.count_nonzero(scores)),
            },
            n_features_to_select=n_select,
            n_rows=summary.size,
            random_state=summary.seed,
            **parameters,
        )


class LaplacianScoreSelector(SampledGraphSelector):
    """Select the columns that change least between neighbouring rows of a sample (Laplacian score).

    `scores_` are ``1 - L_j / 2``, where ``L_j`` in [0, 2] is the published score (the smaller the better): larger is
    better, and constant columns have 0. Scores ignore redundancy.

    Notes
    -----
    Guarantee: none; a baseline, on a sample of the rows.
    Cost after the pass: all distances of the sampled rows. Sample weights count when rows are drawn; the rows drawn
    count alike. Source: He, Cai and Niyogi 2005.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 6))
    >>> X[:, [1, 4]] += 8.0 * (np.arange(300) % 3)[:, None]
    >>> LaplacianScoreSelector(n_features_to_select=2, normalize=None).fit(X).support_.tolist()
    [1, 4]
    """

    method: ClassVar[str] = "laplacian-score"

    def _scores(self, rows: Any, graph: Any, n_select: int) -> tuple[Floats, dict[str, Any]]:
        laplacian = laplacian_scores(rows, graph)
        return np.where(np.isnan(laplacian), 0.0, 1.0 - laplacian / 2.0), {}


class MCFSSelector(SampledGraphSelector):
    """Select the columns that explain the clusters of a graph of sampled rows by sparse regressions (MCFS).

    The graph's first eigenvectors represent the clusters. Each is regressed on the columns by the lasso with
    `n_nonzero` columns, and a column scores its largest coefficient. Columns that no regression uses rank last, in the
    order of their correlation with the eigenvectors.

    Parameters
    ----------
    n_clusters : int, optional
        Number of eigenvectors; min(8, n_features) by default. A job that clusters takes the number of its clusters.
    n_nonzero : int, optional
        Columns in each regression; min(n_features_to_select, 200) by default (published: n_features_to_select).
    signed : bool, default False
        Score by the largest coefficient and not the largest magnitude, as a public implementation does.
    scale_columns : bool, default False
        Divide columns by their standard deviation before the regressions.

    Notes
    -----
    Guarantee: none; a baseline, on a sample of the rows.
    Cost after the pass: all distances of the sampled rows, and for each of n_clusters n_nonzero coefficients one
    product with them. Sample weights count when rows are drawn; the rows drawn count alike.
    Source: Cai, Zhang and He 2010.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 6))
    >>> X[:, 1] += 8.0 * (np.arange(300) % 3)
    >>> X[:, 4] += 8.0 * (np.arange(300) % 2)
    >>> MCFSSelector(n_features_to_select=2, n_clusters=5, n_nonzero=2, normalize=None).fit(X).support_.tolist()
    [1, 4]
    """

    method: ClassVar[str] = "mcfs"

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        n_clusters: Count | None = None,
        n_nonzero: Count | None = None,
        n_rows: Count = 4000,
        n_neighbors: Count = 5,
        weight: Weight = "heat",
        signed: bool = False,
        scale_columns: bool = False,
        normalize: str | None = "l2",
        random_state: SeedNumber = 0,
    ) -> None:
        super().__init__(n_features_to_select, n_rows, n_neighbors, weight, normalize, random_state)
        self.n_clusters = n_clusters
        self.n_nonzero = n_nonzero
        self.signed = signed
        self.scale_columns = scale_columns

    def _scores(self, rows: Any, graph: Any, n_select: int) -> tuple[Floats, dict[str, Any]]:
        k = min(8, rows.shape[1]) if self.n_clusters is None else int(self.n_clusters)
        n_nonzero = resolved_nonzero(self.n_nonzero, n_select)
        embedding = spectral_embedding(graph, k)
        coefs = mcfs_coefficients(rows, embedding, n_nonzero, scale_columns=bool(self.scale_columns))
        scores = np.maximum((coefs if self.signed else np.abs(coefs)).max(axis=1, initial=0.0), 0.0)
        marginal = np.abs(Design(rows, center=True).products(embedding - embedding.mean(axis=0)))
        resolved = {"n_clusters": k, "n_nonzero": n_nonzero}
        return with_marginal_order(scores, marginal.max(axis=1, initial=0.0)), resolved
