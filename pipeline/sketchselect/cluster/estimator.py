"""The scikit-learn estimator of k-means for matrices of any size."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, validate_data

from sketchselect import readers
from sketchselect.cluster.lloyd import KMeansParameters, Labelled, fit_kmeans, label_rows
from sketchselect.cluster.passes import open_passes
from sketchselect.errors import BadBlock
from sketchselect.execution.block import Block, Source
from sketchselect.execution.engines import as_engine
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.distances import distances_to
from sketchselect.readers.base import Matrix


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """k-means of the rows of a matrix that need not fit in memory.

    Labels and inertia are always those of the final centres; empty clusters are reseeded with the rows farthest from
    their centres; the result depends neither on the engine nor on the number of workers, to the bit.

    Parameters
    ----------
    n_clusters : int, default 8
        Number of clusters. With fewer distinct rows there are fewer clusters, and a warning.
    init : {"k-means||", "k-means++", "random"} or array of shape (n_clusters, n_features)
        Where to start. "k-means||": 5 rounds of oversampling by 2 k, then weighted k-means++. "k-means++": greedy, on
        all rows up to 65,536 of them (and 256 MiB), on a hashed sample of that many beyond. "random": distinct rows.
    n_init : int, default 1
        Starts, of which the one with the lowest inertia wins; given centres are one start.
    max_iter : int, default 300
        Most Lloyd iterations of one start.
    tol : float, default 1e-4
        Stop when the squared movement of all centres together is at most `tol` times the mean variance of the columns.
    random_state : int, RandomState or None, default 0
        Seed; every draw is hashed from it and the row's index. None draws a seed.

    Attributes
    ----------
    labels_ : int32 array of shape (n_rows,)
        The nearest centre of each row; -1 for rows dropped by a source's policy for non-finite values.
    cluster_centers_ : array of shape (n_clusters, n_features)
        float64.
    inertia_ : float
        (Weighted) sum of squared distances of the rows to their centre.
    n_iter_ : int
        Lloyd iterations.
    cluster_weights_ : array of shape (n_clusters,)
        Total weight of each cluster.
    n_features_in_, feature_names_in_
        As scikit-learn defines them.

    Notes
    -----
    Methods take what `open_matrix` takes: arrays, data frames, paths, URLs, Dask arrays. Cost: one pass to survey, six
    to seed, one an iteration and one for the labels; what fits a quarter of the memory is read once and held.
    Source: Lloyd 1982; Bahmani et al. 2012 (k-means||); Arthur and Vassilvitskii 2007 (k-means++).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0], [2.0], [10.0], [12.0]])
    >>> km = KMeans(n_clusters=2).fit(X)
    >>> sorted(km.cluster_centers_.ravel().tolist()), km.inertia_
    ([1.5, 11.0], 2.5)
    """

    # The client says where to compute, not what: pipelines need not route it.
    __metadata_request__fit: ClassVar[dict[str, str]] = {"client": UNUSED}

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | ArrayLike = "k-means||",
        n_init: int = 1,
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: Any = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, client: Any = None) -> Self:
        """Cluster the rows.

        Parameters
        ----------
        X : array, path, URL or Matrix of shape (n_rows, n_features)
            The data.
        y : ignored
            For scikit-learn's sake.
        sample_weight : array or path of shape (n_rows,), optional
            Row weights, not negative.
        client : Client, str, Engine or None
            What runs the passes: threads of this process by default; see `summarize`.

        Raises
        ------
        BadParameter
            For parameters out of range, or fewer rows than clusters.
        """
        source = self._source(X, sample_weight, reset=True)
        parameters = KMeansParameters(
            self.n_clusters, self.init, self.n_init, self.max_iter, self.tol, _seed(self.random_state)
        )
        with as_engine(client) as engine:
            result = fit_kmeans(source, parameters, engine=engine)
        self.labels_ = result.labels
        self.cluster_centers_ = result.centers
        self.inertia_ = result.inertia
        self.n_iter_ = result.n_iter
        self.cluster_weights_ = result.cluster_weights
        self._n_features_out = result.n_clusters
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> NDArray[np.int32]:
        """Cluster the rows and return `labels_`."""
        labels: NDArray[np.int32] = self.fit(X, sample_weight=sample_weight).labels_
        return labels

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> Floats:
        """Cluster the rows and return their distances to the centres."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def predict(self, X: Any) -> NDArray[np.int32]:
        """Return the index of the nearest centre of each row (ties to the lowest); -1 for rows dropped."""
        check_is_fitted(self)
        return self._labelled(self._source(X, None, reset=False)).labels

    def transform(self, X: Any) -> Floats:
        """Return the distances of the rows to every centre, shape (n_rows, n_clusters); rows dropped are left out."""
        check_is_fitted(self)
        source = self._source(X, None, reset=False)
        with as_engine() as engine:
            passes = open_passes(source, len(self.cluster_centers_), engine=engine)
            return passes.fold(
                _DistanceBlock(self.cluster_centers_), _stack, "k-means: distances", state_nbytes=0, working_nbytes=0
            )

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the (weighted) sum of squared distances of the rows to their nearest centre."""
        check_is_fitted(self)
        return -self._labelled(self._source(X, sample_weight, reset=False)).sums.inertia()

    def _labelled(self, source: Source) -> Labelled:
        with as_engine() as engine:
            return label_rows(open_passes(source, len(self.cluster_centers_), engine=engine), self.cluster_centers_)

    def _source(self, X: Any, sample_weight: Any, *, reset: bool) -> Source:
        if _is_lazy(X):
            matrix = readers.open_matrix(X)
            self._require_features(matrix, reset=reset)
        else:
            # In-memory data get scikit-learn's own checks and messages.
            values = validate_data(
                self, X, reset=reset, dtype=[np.float64, np.float32], accept_sparse="csr", accept_large_sparse=False
            )
            matrix = readers.open_matrix(values)
        weight = None
        if sample_weight is not None:
            if isinstance(sample_weight, (int, float)):
                sample_weight = np.full(matrix.shape[0], float(sample_weight))
            weight = readers.open_vector(
                sample_weight, matrix.shape[0], matrix_address=matrix.address, name="sample_weight"
            )
        return Source(matrix, weight=weight)

    def _require_features(self, matrix: Matrix, *, reset: bool) -> None:
        if reset:
            self.n_features_in_ = matrix.shape[1]
            if matrix.feature_names is not None:
                self.feature_names_in_ = np.array(matrix.feature_names, dtype=object)
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        elif matrix.shape[1] != self.n_features_in_:
            raise BadBlock(
                f"{matrix.address} has {matrix.shape[1]} columns, but KMeans was fitted on {self.n_features_in_}"
            )


class _DistanceBlock:
    """Leaf of `transform`: distances to every centre."""

    def __init__(self, centers: Floats) -> None:
        self.centers = centers

    def __call__(self, block: Block) -> Floats:
        return np.sqrt(distances_to(block.values, self.centers))


def _stack(above: Array, below: Array) -> Array:
    return np.concatenate([above, below])


def _is_lazy(X: Any) -> bool:
    return isinstance(X, (str, os.PathLike, Matrix)) or hasattr(X, "dask") or hasattr(X, "store")


def _seed(random_state: Any) -> int:
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
