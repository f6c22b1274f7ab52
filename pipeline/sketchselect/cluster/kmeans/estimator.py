"""The scikit-learn estimator of k-means for matrices of any size, and for streams: a sample, clustered on demand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from sketchselect import prepare, readers
from sketchselect._sklearn import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    check_is_fitted,
)
from sketchselect.cluster.kmeans.lloyd import (
    DistanceBlock,
    KMeansParameters,
    RowLabels,
    fit_kmeans,
    label_rows,
    lazy_distances,
    lazy_labels,
    write_labels,
)
from sketchselect.cluster.kmeans.passes import Passes, open_passes, partition_size
from sketchselect.cluster.kmeans.seeding import Seeding, coreset
from sketchselect.errors import BadBlock, BadParameter, warn
from sketchselect.execution.client import check_batch, check_run, fit_options, run_options
from sketchselect.execution.engine import (
    PreparedKeywords,
    RunKeywords,
    require_unchanged,
    source_identities,
    source_partitions,
)
from sketchselect.execution.estimators import UserEstimator, fit_tasks, with_callbacks
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import fitted_source, summarize_source
from sketchselect.execution.tasks import Reduction
from sketchselect.linalg.hashing import derive_seed
from sketchselect.linalg.kmeans.sample import WeightedRows, lift_of, principal_plane
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats, Labels, as_weights, require_positive, seed_of, stacked
from sketchselect.prepare.units import outweighing
from sketchselect.readers.arrays import is_dask, unwrapped
from sketchselect.readers.opening import open_features
from sketchselect.readers.results import lazy_rows, like_rows
from sketchselect.readers.writing import destination_of
from sketchselect.summaries import CentroidSums, RowSample

LEAST_ROWS, ROWS_PER_CLUSTER = 5000, 50  # Rows kept of a stream
FIRST_ROWS = 256  # Rows seen before far rows are preferred: fewer do not show how far apart rows are

SEEN_ROWS, SEEN_PLACES = 1000, 8
"""Rows of a matrix in memory, of as many columns at most, that show whether columns are of unlike units; and places
where they are read."""

STARTS = 10
LABELS = ("cluster",)  # Name of the labels of a data frame


class UnlikeUnits(UserWarning):
    """Warning that few columns have nearly all of the variance, as raw columns of different units do."""


def _warn_of_units(source: Source, names: Any) -> None:
    """Warn of columns of unlike units, where looking at some rows costs nothing.

    `names`: Those of the columns before the steps, where the source does not know them.
    """
    if not source.matrix.in_memory or source.n_columns > SEEN_ROWS:
        return
    places = SEEN_PLACES if source.n_rows > SEEN_ROWS else 1
    length = min(SEEN_ROWS, source.n_rows) // places
    starts = (place * (source.n_rows // places) for place in range(places))
    blocks = [source.block(start, start + length) for start in starts]
    rows = [block.values for block in blocks]
    if any(not isinstance(values, np.ndarray) for values in rows):
        return  # sparse rows are mostly counts, of one unit
    known = source.feature_names
    if known is None and names is not None and len(names) == source.n_columns:
        known = tuple(names)
    weights: list[Floats] = []
    for block in blocks:
        weight = as_weights(block.weight, len(block.values), block.position)
        weights.append(np.ones(len(block.values)) if weight is None else weight)
    if remark := outweighing(np.concatenate(rows, dtype=np.float64), known, np.concatenate(weights)):
        warn(f"k-means: {remark}", UnlikeUnits)


@dataclass(frozen=True)
class StreamSample:
    """The rows kept of a stream: the first rows, later a `RowSample` about their mean.

    Rows are numbered as they arrive, and which are kept depends on their numbers and values alone: the same
    stream gives the same bits whatever batches it comes in.
    """

    n_clusters: int  # Decides how many rows are kept
    seed: int  # Of all draws
    n_rows: int = 0  # Rows seen
    first: RowSample | None = None  # The first `FIRST_ROWS` rows, until there are as many
    sample: RowSample | None = None  # All rows, once there are

    def add(self, rows: Any, weights: Floats | None = None) -> StreamSample:
        """Return the sample after more rows, with their weights, have arrived."""
        if self.sample is not None:
            more = self.sample.describe().from_block(rows, start=self.n_rows, sample_weight=weights)
            if more.n_features != self.sample.n_features:
                raise BadBlock(f"the batch has {more.n_features} columns, those before had {self.sample.n_features}")
            return replace(self, n_rows=self.n_rows + more.n_rows, sample=self.sample.merge(more))
        n_early = min(FIRST_ROWS - self.n_rows, rows.shape[0])
        early = RowSample(FIRST_ROWS, self.seed).from_block(
            rows[:n_early], start=self.n_rows, sample_weight=None if weights is None else weights[:n_early]
        )
        first = early if self.first is None else self.first.merge(early)
        state = replace(self, n_rows=self.n_rows + n_early, first=first)
        if state.n_rows < FIRST_ROWS:
            return state
        state = replace(state, sample=state.restarted(), first=None)
        if n_early == rows.shape[0]:
            return state
        return state.add(rows[n_early:], None if weights is None else weights[n_early:])

    def restarted(self) -> RowSample:
        """Return the first rows as a sample of the full size, about their own mean."""
        assert self.first is not None
        first = WeightedRows(self.first.rows, self.first.weights).dense()
        survey = CentroidSums(1).from_block(first.rows, np.zeros(self.first.n_kept, dtype=np.int32))
        size = max(LEAST_ROWS, ROWS_PER_CLUSTER * self.n_clusters)
        sample = coreset(survey, size, derive_seed(self.seed, "coreset"))
        return sample.from_block(first.rows, start=self.first.indices, sample_weight=first.weights)

    def centers(self, n_init: int | str = "auto") -> Floats:
        """Return centres: the best of several k-means++ starts on the sample, refined there.

        Raises `BadParameter` if fewer rows (of positive weight) than clusters have been seen.
        """
        sample = self.sample if self.sample is not None else self.first
        if sample is None or sample.n_kept < self.n_clusters:
            n_seen = 0 if sample is None else sample.n_kept
            raise BadParameter(
                f"n_clusters={self.n_clusters} but n_samples={n_seen} so far; go on with partial_fit before asking"
            )
        points = WeightedRows(sample.rows, sample.weights).dense()
        n_starts = STARTS if isinstance(n_init, str) else n_init
        seeds = [derive_seed(self.seed, "stream", i) for i in range(n_starts)]
        return points.best(points.starts(self.n_clusters, seeds), most=100)


class KMeans(UserEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """k-means of the rows of a matrix that need not fit in memory.

    Labels and inertia are always those of the final centres. Clusters left empty are reseeded with the rows farthest
    from their centres, also after the last iteration (`max_iter`), where scikit-learn may return them empty. The result
    depends neither on the engine nor on the number of workers, to the bit.

    Parameters
    ----------
    n_clusters : int, default 8
        Number of clusters. With fewer distinct rows there are fewer clusters, and a warning.
    init : {"k-means||", "k-means++", "random"}, function or array of shape (n_clusters, n_features)
        Where to start. "k-means||": 5 rounds of oversampling by 2 k, then weighted k-means++ on the candidates, and on
        the coreset for every second start. "k-means++": greedy, on the coreset; a single start on all rows up to
        65,536 of them (and 256 MiB), on a hashed sample of that many beyond. "random": distinct rows. A function is
        called as scikit-learn does, ``init(rows, n_clusters, random_state)``, once for each start, and returns centres;
        its rows, dense, are all with a positive weight up to the bounds of "k-means++", a hashed sample by weight of
        that many beyond.
    n_init : int or "auto", default "auto"
        Starts. They are refined and compared on a coreset, ``max(2000, 20 n_clusters)`` rows drawn by weight and
        distance from the mean (of wide rows as many as take 512 MiB, but 20 n_clusters), and only the best is run on
        all rows; given centres are one start. Where that would take more than 4e10 operations they are compared in a
        projection on the coreset's top ``max(64, 2 n_clusters)`` directions. "auto": 10, and fewer, but at least 4,
        where even that would be more; 1 where 20 n_clusters rows take more than 512 MiB. A single start is run
        without a coreset.
    max_iter : int, default 300
        Most Lloyd iterations.
    tol : float, default 1e-4
        Stop when the squared movement of all centres together is at most `tol` times the mean variance of the columns
        (as in scikit-learn), or when no label changes any more.
    random_state : int, RandomState or None, default 0
        Seed; every draw is hashed from it and the row's index. None draws a seed.

    Attributes
    ----------
    labels_ : int32 array or Series of shape (n_rows,)
        The nearest centre of each row; -1 for rows dropped by a source's policy for non-finite values. In the container
        of the rows: of a data frame of pandas, polars or Dask a Series "cluster" with its index and divisions, so that
        ``ddf.assign(cluster=km.labels_)`` works; of a Dask array a Dask array in its chunks; of xarray a DataArray; of
        AnnData a Series for ``obs``; else a NumPy array.
    cluster_centers_ : array of shape (n_clusters, n_features)
        float64.
    inertia_ : float
        (Weighted) sum of squared distances of the rows to their centre.
    n_iter_ : int
        Lloyd iterations.
    cluster_weights_ : array of shape (n_clusters,)
        Total weight of each cluster.
    n_rows_seen_ : int
        Rows of all batches, after `partial_fit`, which sets this, `cluster_centers_` and no more.
    n_features_in_, feature_names_in_
        As scikit-learn defines them.

    Notes
    -----
    Methods take whatever `open_matrix` takes: arrays, data frames, sparse matrices, paths, URLs, Dask arrays. Cost: one
    pass to survey, six to seed, one an iteration and one for the labels; data that fit in a quarter of the memory are
    read once and cached, by the workers of a Dask cluster if they are too large for this process.
    Source: Lloyd 1982; Bahmani et al. 2012 (k-means||); Arthur and Vassilvitskii 2007 (k-means++).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0], [2.0], [10.0], [12.0]])
    >>> km = KMeans(n_clusters=2).fit(X)
    >>> sorted(km.cluster_centers_.ravel().tolist()), km.inertia_
    ([1.5, 11.0], 2.5)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | Seeding | ArrayLike = "k-means||",
        n_init: int | str = "auto",
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

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **run: Unpack[PreparedKeywords]) -> Self:
        """Cluster the rows.

        Parameters
        ----------
        X : array, path, URL or Matrix of shape (n_rows, n_features)
            The data.
        y : ignored
            For scikit-learn's sake.
        sample_weight : array or path of shape (n_rows,), optional
            Row weights, not negative.
        **run : prepare, client, partition_bytes, checkpoint, progress
            As in `summarize`. Steps of `prepare`, such as ``["impute", "standardise"]``, are applied to the rows of
            `predict`, `transform` and `score` too; centres are of prepared rows. With "impute" NaN are missing values.
            Partitions of about a 32nd of the data, of 8 to 128 MiB, by default; a checkpoint also
            has the last iteration.

        Raises
        ------
        BadParameter
            For parameters out of range, or fewer rows than clusters.
        """
        steps = prepare.resolve(run.pop("prepare", None))
        # Threads of BLAS turn idly for a tenth of a second after a product, on the processors of the first iterations.
        with one_blas_thread():
            source = self._source(X, sample_weight, reset=True, steps=steps)
        with fit_options(source.matrix, source.weight, **run) as options:
            source = fitted_source(source, options)
            with one_blas_thread():
                _warn_of_units(source, getattr(self, "feature_names_in_", None))
            result = fit_kmeans(source, self._parameters(), options, self._iteration(source))
        self._forget()
        self._steps = source.prepare
        self.labels_ = like_rows(X, result.labels, names=LABELS, lazy=lazy_rows(X, source.matrix))
        self._centers = result.centers
        self.inertia_ = result.inertia
        self.n_iter_ = result.n_iter
        self.cluster_weights_ = result.cluster_weights
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, **unknown: Any) -> Self:
        """Take in one more batch of a stream, of any size; only a sample of all rows seen is kept.

        ``max(5000, 50 n_clusters)`` rows are kept: the rows of the smallest keys, hashed from `random_state` and the
        number of the row in the stream, far rows with higher probability (`RowSample`). When `cluster_centers_` is
        asked for, `n_init` k-means++ starts (10 by default) are refined on them and the best is taken. So the centres
        do not depend, to the bit, on how the stream was cut into batches, nor, beyond chance, on its order; and no
        centre can die. After `fit` a new stream begins. The method of `init`, `max_iter` and `tol` make no difference.

        Parameters
        ----------
        X : array, path, URL or Matrix of shape (n_rows, n_features)
            The batch.
        y : ignored
            For scikit-learn's sake.
        sample_weight : array of shape (n_rows,), optional
            Row weights, not negative.

        Notes
        -----
        Cost: a hash and 3 n_features flops a row; the sample is clustered once, when it is asked for after a batch.
        """
        check_batch(unknown)
        stream = getattr(self, "_stream", None)
        source = replace(self._source(X, sample_weight, reset=stream is None, steps=()), takes_sparse=True)
        if not isinstance(self.init, str):
            raise BadParameter("partial_fit finds its own centres: init must be the name of one of the methods")
        self._parameters().checked(source.n_columns)
        if stream is None:
            stream = StreamSample(self.n_clusters, derive_seed(seed_of(self.random_state), "k-means", 0))
        if stream.n_clusters != self.n_clusters:
            raise BadParameter(
                f"n_clusters is {self.n_clusters}, but this stream was begun with {stream.n_clusters}; use another "
                "KMeans for another number"
            )
        partitions, at_first = source_partitions(source), source_identities(source)
        for index in range(len(partitions)):
            block = source.block(*partitions[index])
            stream = stream.add(block.values, as_weights(block.weight, block.values.shape[0], block.position))
        require_unchanged(at_first, source)
        self._forget()
        self._stream = stream
        self.n_rows_seen_ = stream.n_rows
        return self

    @property
    def cluster_centers_(self) -> Floats:
        """Centres; of a stream they are found when they are first asked for after a batch."""
        known: Floats | None = getattr(self, "_centers", None)
        if known is None:
            stream: StreamSample | None = getattr(self, "_stream", None)
            if stream is None:
                raise AttributeError("cluster_centers_ exists after fit or partial_fit")
            known = self._centers = stream.centers(self.n_init)
        return known

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[0])

    def _iteration(self, source: Source) -> Callable[[Floats], bool] | None:
        """Return what is called with the centres after an iteration, which says whether to stop; None if nothing is."""
        tasks = fit_tasks()
        if tasks is None:
            return None
        return lambda centers: tasks.end_part(lambda: {"_centers": centers, "_steps": source.prepare})

    def _parameters(self) -> KMeansParameters:
        return KMeansParameters(
            self.n_clusters, self.init, self.n_init, self.max_iter, self.tol, seed_of(self.random_state)
        )

    def _forget(self) -> None:
        """Drop the state of an earlier fit or stream."""
        for name in (
            "labels_",
            "inertia_",
            "n_iter_",
            "cluster_weights_",
            "n_rows_seen_",
            "_centers",
            "_stream",
            "_steps",
        ):
            if name in self.__dict__:
                delattr(self, name)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None, **run: Unpack[PreparedKeywords]) -> Any:
        """Cluster the rows and return `labels_`."""
        return self.fit(X, sample_weight=sample_weight, **run).labels_

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None, **run: Unpack[PreparedKeywords]) -> Any:
        """Cluster the rows (`run` is for that) and return their distances to the centres; see `transform`."""
        return self.fit(X, sample_weight=sample_weight, **run).transform(X)

    def predict(
        self,
        X: Any,
        *,
        out: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **run: Unpack[RunKeywords],
    ) -> Any:
        """Return the index of the nearest centre of each row (ties to the lowest); -1 for rows dropped.

        Parameters
        ----------
        X : array, path, URL or Matrix of shape (n_rows, n_features)
            The rows.
        out : path or URL, optional
            Write the labels there as a Zarr array, chunk by chunk, so that they need not fit in memory. Endings of
            other formats, such as .npy, are refused.
        storage_options : mapping, optional
            Arguments of the file system of a URL `out`.
        **run : client, partition_bytes, progress
            As in `summarize`; without effect for a Dask array, which needs no pass.

        Returns
        -------
        int32 array or Series of shape (n_rows,), or str
            In the container of the rows, as `labels_`; of a Dask array computed when they are asked for. `out` where it
            is given.
        """
        check_is_fitted(self)
        source = self._source(X, None, reset=False)
        if out is None:
            graph = unwrapped(X)
            if is_dask(graph) and not source.prepare:
                check_run(run)
                return like_rows(X, lazy_labels(graph, self.cluster_centers_), names=LABELS)
            labels = self._label(source, run).labels
            return like_rows(X, labels, names=LABELS, lazy=lazy_rows(X, source.matrix))
        destination = destination_of(out, storage_options)
        with run_options(source.matrix, **run) as options:
            size = partition_size(source, len(self.cluster_centers_), options)
            write_labels(source, self.cluster_centers_, destination, options.but(partition_bytes=size))
            return str(out)

    def transform(self, X: Any, **run: Unpack[RunKeywords]) -> Any:
        """Return the distances of the rows to every centre, shape (n_rows, n_clusters); rows dropped are left out.

        Of a Dask array a Dask array is returned, of an xarray DataArray a DataArray; `run` as in `predict`.
        """
        check_is_fitted(self)
        source = self._source(X, None, reset=False)
        graph = unwrapped(X)
        if is_dask(graph) and not source.prepare:
            check_run(run)
            return like_rows(X, lazy_distances(graph, self.cluster_centers_), dimension="cluster")
        with self._passes(source, run) as passes:
            distances = passes.reduce(Reduction(DistanceBlock(self.cluster_centers_), stacked, "k-means: distances"))
        return like_rows(X, distances, dimension="cluster")

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, **run: Unpack[RunKeywords]) -> float:
        """Return minus the (weighted) sum of squared distances to the nearest centre; `run` as in `predict`."""
        check_is_fitted(self)
        return -self._label(self._source(X, sample_weight, reset=False), run).sums.inertia()

    def top_features(self, n: int = 10) -> list[list[tuple[Any, float]]]:
        """Return for each cluster the columns that distinguish it most, the first most of all: (name or index, lift).

        The lift of a column is its mean in the cluster over that of all rows; lifts of 1 or less are left out. The
        order is that of the chi-square statistic of the column for the cluster against the other rows (scikit-learn's
        `chi2`), so that a word of one row alone does not come before those of the whole cluster. Where a centre has a
        negative entry, as in standardised rows, there is no lift, and the differences from the mean of all rows stand
        for it, those of largest absolute value first: the larger, the more the column contributes to the distance of
        the centre from the mean of all rows. A negative one says that the column is low in the cluster; with
        "standardise" they are standard deviations. Columns have the names of the rows' container: those of a sparse
        matrix are given as in ``fit(open_matrix(X, feature_names=words))``.

        Parameters
        ----------
        n : int, default 10
            Most columns of a cluster.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.array([[4.0, 0.0, 1.0], [4.0, 0.0, 1.0], [0.0, 2.0, 1.0], [0.0, 2.0, 1.0]])
        >>> KMeans(2, init=X[[0, 2]]).fit(X).top_features()
        [[(0, 2.0)], [(1, 2.0)]]
        >>> KMeans(2, init=X[[0, 2]] - 3.0).fit(X - 3.0).top_features(1)
        [[(0, 2.0)], [(0, -2.0)]]
        """
        check_is_fitted(self)
        require_positive("n", n)
        centers, weights = self.cluster_centers_, getattr(self, "cluster_weights_", None)
        if weights is None:
            raise BadParameter("top_features needs the weights of the clusters, which a stream does not have; use fit")
        of_means, least = lift_of(centers, weights), 1.0
        if of_means is None:
            lift = centers - weights @ centers / weights.sum()
            score, least = np.abs(lift), 0.0
        else:
            lift, score = of_means
        equal = np.round(score / max(float(score.max()), 1e-300), 12)  # of equal columns the first, whatever rounding
        order = np.argsort(-equal, axis=1, kind="stable")
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            names = prepare.names_after(getattr(self, "_steps", ()), tuple(names.tolist()), self.n_features_in_)
        return [
            [(j if names is None else str(names[j]), float(row[j])) for j in first[:n].tolist() if abs(row[j]) > least]
            for row, first in zip(lift, order, strict=True)
        ]

    def project(self, X: Any, n_rows: int = 1000, **run: Unpack[RunKeywords]) -> tuple[Floats, Labels, Floats]:
        """Return a sample of the rows, in order, with clusters and centres, on the sample's two principal components.

        Parameters
        ----------
        X : array, path, URL or Matrix of shape (n, n_features)
            The rows; one pass is made.
        n_rows : int, default 1000
            Rows that are sampled, each with the same probability.
        **run : client, partition_bytes, progress
            As in `summarize`.

        Returns
        -------
        points : array of shape (n_sampled, 2)
        labels : array of int, shape (n_sampled,)
        centres : array of shape (n_clusters, 2)
        """
        check_is_fitted(self)
        source = self._source(X, None, reset=False)
        with run_options(source.matrix, **run) as options:
            sample = cast(
                RowSample, summarize_source(source, RowSample(require_positive("n_rows", n_rows)), options).value
            )
        points, centres = principal_plane(sample.rows, self.cluster_centers_)
        labels, order = (
            WeightedRows(sample.rows, sample.weights).assign(self.cluster_centers_),
            np.argsort(sample.indices),
        )
        return points[order], labels[order], centres

    def _label(self, source: Source, run: RunKeywords) -> RowLabels:
        with self._passes(source, run) as passes:
            return label_rows(passes, self.cluster_centers_)

    @contextmanager
    def _passes(self, source: Source, run: RunKeywords) -> Iterator[Passes]:
        with (
            run_options(source.matrix, source.weight, **run) as options,
            open_passes(source, len(self.cluster_centers_), options) as passes,
        ):
            yield passes

    def _source(
        self, X: Any, sample_weight: Any, *, reset: bool, steps: tuple[prepare.Step, ...] | None = None
    ) -> Source:
        if steps is None:
            steps = getattr(self, "_steps", ())
        checks: dict[str, Any] = {"dtype": [np.float64, np.float32], "accept_large_sparse": True}
        if any(step.fills_missing for step in steps) and not isinstance(X, readers.Matrix):
            checks |= {"nonfinite": "missing", "ensure_all_finite": "allow-nan"}
        encode = prepare.encodings(steps, None if reset else getattr(self, "feature_names_in_", None))
        matrix = open_features(self, X, reset=reset, vectors={"sample_weight": sample_weight}, encode=encode, **checks)
        weight = None
        if sample_weight is not None:
            if isinstance(sample_weight, (int, float, np.number)):
                sample_weight = np.full(matrix.shape[0], float(sample_weight))
            weight = readers.open_vector(sample_weight, matrix.shape[0], matrix=matrix, name="sample_weight")
        return Source(matrix, weight=weight, prepare=steps)
