"""Batch methods on a sample of the rows: multi-cluster feature selection (MCFS) and the Laplacian score."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np

from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.graph import neighbour_graph, spectral_embedding
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import require_positive
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.graphs.scores import laplacian_scores, mcfs_coefficients
from sketchselect.selectors.selection import Selection, rank
from sketchselect.selectors.sketched.sparse_regressions import resolved_nonzero, with_marginal_order
from sketchselect.solvers.factored import Design
from sketchselect.summaries import RowSample, Summary

Weight = Literal["heat", "cosine", "binary"]


class SampledGraphSelector(BaseSelector):
    """Base of the selectors on a graph of nearest neighbours: it is made of a uniform sample of the rows.

    The same rows are sampled whatever the chunks, the order and the batches are. Sparse rows stay sparse.
    """

    requires: ClassVar[tuple[str, ...]] = ("row-sample",)

    n_features_to_select: int | None
    n_rows: int
    n_neighbors: int
    weight: Weight
    random_state: int

    @abstractmethod
    def _scores(self, rows: Any, graph: Any, n_select: int) -> tuple[Floats, dict[str, Any]]:
        """Return the scores of the columns and the method's own parameters, resolved."""

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range."""
        for name in ("n_rows", "n_neighbors"):
            require_positive(name, getattr(self, name))
        if self.weight not in ("heat", "cosine", "binary"):
            raise BadParameter(f'weight must be "heat", "cosine" or "binary", got {self.weight!r:.40}')
        seed = self.random_state
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
            raise BadParameter(f"random_state must be a whole number of at least 0, got {seed!r:.40}")

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sample of rows."""
        self.check_parameters()
        return RowSample(int(self.n_rows), seed=int(self.random_state))

    def _select(self, summary: RowSample, n_select: int) -> Selection:
        self.check_parameters()
        if summary.center is not None:
            raise Incompatible("the graph needs a uniform sample of the rows, this one favours far rows; make another")
        rows = summary.rows
        if rows.shape[0] == 0:
            raise EmptyInput("no rows with a positive weight: all sample weights are zero, or the input is empty")
        scores, graph = np.zeros(summary.n_features), None
        own: dict[str, Any] = {}
        if rows.shape[0] > 1:
            with one_blas_thread():
                graph = neighbour_graph(rows, int(self.n_neighbors), self.weight)
                scores, own = self._scores(rows, graph, n_select)
        return Selection(
            method=self.method,
            support=np.sort(rank(scores)[:n_select]),
            scores=scores,
            feature_names=summary.feature_names,
            parameters={
                "n_features_to_select": n_select,
                "n_rows": summary.size,
                "n_neighbors": int(self.n_neighbors),
                "weight": self.weight,
                "random_state": summary.seed,
                "normalize": self._normalized(summary),
                **own,
            },
            diagnostics={
                "n_sampled_rows": int(rows.shape[0]),
                "n_edges": 0 if graph is None else int(graph.nnz) // 2,
                "n_scored": int(np.count_nonzero(scores)),
            },
        )


class LaplacianScoreSelector(SampledGraphSelector):
    """Select the columns that change least between neighbouring rows (Laplacian score), on a sample of the rows.

    `scores_` are ``1 - L_j / 2``, where ``L_j`` in [0, 2] is the published score (the smaller the better): larger is
    better, and constant columns have 0. Scores ignore redundancy.

    Parameters
    ----------
    n_features_to_select : int, optional
        Half of the columns by default.
    n_rows : int, default 4000
        Rows sampled.
    n_neighbors : int, default 5
        Neighbours of each row in the graph.
    weight : "heat", "cosine" or "binary", default "heat"
        Weight of the edges; heat with the mean squared distance of neighbours as its scale.
    normalize : "l2" or None, default "l2"
        Scale every row to unit length first.
    random_state : int, default 0
        Decides which rows are sampled.

    Notes
    -----
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

    def __init__(
        self,
        n_features_to_select: int | None = None,
        n_rows: int = 4000,
        n_neighbors: int = 5,
        weight: Weight = "heat",
        normalize: str | None = "l2",
        random_state: int = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_rows = n_rows
        self.n_neighbors = n_neighbors
        self.weight = weight
        self.normalize = normalize
        self.random_state = random_state

    def _scores(self, rows: Any, graph: Any, n_select: int) -> tuple[Floats, dict[str, Any]]:
        found = laplacian_scores(rows, graph)
        return np.where(np.isnan(found), 0.0, 1.0 - found / 2.0), {}


class MCFSSelector(SampledGraphSelector):
    """Select the columns that explain the clusters of a neighbour graph by sparse regressions (MCFS), on a sample.

    The slowest functions on the graph of a sample of the rows stand for the clusters. Each is regressed on the columns
    by the lasso with `n_nonzero` columns, and a column scores its largest coefficient. Columns that no regression uses
    come after all others, in the order of their correlation with these functions.

    Parameters
    ----------
    n_features_to_select : int, optional
        Half of the columns by default.
    n_clusters : int, optional
        Functions; min(8, n_features) by default. A job that clusters takes the number of its clusters.
    n_nonzero : int, optional
        Columns in each regression; min(n_features_to_select, 200) by default (as published, as many as are wanted).
    n_rows : int, default 4000
        Rows sampled.
    n_neighbors : int, default 5
        Neighbours of each row in the graph.
    weight : "heat", "cosine" or "binary", default "heat"
        Weight of the edges; heat with the mean squared distance of neighbours as its scale.
    signed : bool, default False
        Score by the largest coefficient and not the largest magnitude: what a public implementation does.
    scale_columns : bool, default False
        Divide columns by their standard deviation before the regressions.
    normalize : "l2" or None, default "l2"
        Scale every row to unit length first.
    random_state : int, default 0
        Decides which rows are sampled.

    Notes
    -----
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
        n_features_to_select: int | None = None,
        n_clusters: int | None = None,
        n_nonzero: int | None = None,
        n_rows: int = 4000,
        n_neighbors: int = 5,
        weight: Weight = "heat",
        signed: bool = False,
        scale_columns: bool = False,
        normalize: str | None = "l2",
        random_state: int = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_clusters = n_clusters
        self.n_nonzero = n_nonzero
        self.n_rows = n_rows
        self.n_neighbors = n_neighbors
        self.weight = weight
        self.signed = signed
        self.scale_columns = scale_columns
        self.normalize = normalize
        self.random_state = random_state

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range."""
        super().check_parameters()
        for name in ("n_clusters", "n_nonzero"):
            value = getattr(self, name)
            if value is not None:
                require_positive(name, value)

    def _scores(self, rows: Any, graph: Any, n_select: int) -> tuple[Floats, dict[str, Any]]:
        k = min(8, rows.shape[1]) if self.n_clusters is None else int(self.n_clusters)
        n_nonzero = resolved_nonzero(self.n_nonzero, n_select)
        embedding = spectral_embedding(graph, k)
        found = mcfs_coefficients(rows, embedding, n_nonzero, scale_columns=bool(self.scale_columns))
        scores = np.maximum((found if self.signed else np.abs(found)).max(axis=1, initial=0.0), 0.0)
        marginal = np.abs(Design(rows, center=True).products(embedding - embedding.mean(axis=0)))
        own = {
            "n_clusters": k,
            "n_nonzero": n_nonzero,
            "signed": bool(self.signed),
            "scale_columns": bool(self.scale_columns),
        }
        return with_marginal_order(scores, marginal.max(axis=1, initial=0.0)), own
