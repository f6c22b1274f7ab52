"""Principal components from a Frequent Directions sketch, with intervals of their variances."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Self, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from sketchselect._sklearn import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    check_array,
    check_is_fitted,
)
from sketchselect._text import counted
from sketchselect.errors import BadParameter, EmptyInput, Incompatible, warn
from sketchselect.execution import Block, Source, summarize_source
from sketchselect.execution.client import check_batch, check_run, fit_options, run_options
from sketchselect.execution.engine import FitKeywords, RunKeywords, map_blocks
from sketchselect.execution.estimators import UserEstimator, with_callbacks
from sketchselect.linalg.parameters import Count, SketchSize, check_declared
from sketchselect.linalg.spectrum import gram_rounding, subspace_angle
from sketchselect.linalg.validation import Floats
from sketchselect.readers import open_vector
from sketchselect.readers.arrays import is_dask, unwrapped
from sketchselect.readers.opening import open_features
from sketchselect.readers.results import like_rows
from sketchselect.selectors.base import require_more_rows, sketch_size
from sketchselect.selectors.sketched import n_significant
from sketchselect.summaries import FrequentDirections, Summary, pick

_EPS = float(np.finfo(np.float64).eps)


class SketchedPCA(UserEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal components of a matrix of any size, in one pass, with proven intervals of their variances.

    With lambda_i the variances along the exact components, s_i^2 and Delta (`shrinkage`) those of the sketch about the
    mean, and W the (total weight of the) rows::

        s_i^2 / (W - 1) <= lambda_i <= (s_i^2 + Delta) / (W - 1)

    up to rounding, which `explained_variance_bounds_` include: that of sums in float64 (a share of the whole scatter,
    2e-8 for ten million rows, more for means far from zero), and of float32 rows the `single_rounding` of the sketch.
    So components far smaller than the largest, as columns in unlike units give, have wide intervals.
    Column i of `transform` of the fitted rows has a variance in the same interval, so that the components leave at most
    ``1 - sum(explained_variance_ratio_)`` of all variance. With at most min(15 sketch_size, 2048) columns Delta is
    0, and this is the PCA of scikit-learn.

    Parameters
    ----------
    n_components : int, optional
        Directions k; min(10, n_features) by default. Where fewer have a variance above the rounding of the largest,
        there are fewer; a warning says so if k was given.
    sketch_size : int, optional
        Rows l of the sketch, above k; min(n_features, max(8 k, 64)) by default, at least k + 1.

    Attributes
    ----------
    components_ : array of shape (k, n_features)
        Orthonormal rows, by descending variance; the largest entry of each is positive.
    explained_variance_, explained_variance_ratio_ : arrays of shape (k,)
        ``s_i^2 / (W - 1)``, and their shares of the variance of all columns, which is exact.
    singular_values_ : array of shape (k,)
        Singular values s_i of the sketch about the mean.
    explained_variance_bounds_ : array of shape (k, 2)
        The intervals, with rounding.
    subspace_angle_ : float or None
        Bound of the sine of the angle between these components together and the exact ones; None if no bound follows.
    mean_ : array of shape (n_features,)
        Exact means of the columns.
    n_components_ : int
        Number of components.
    summary_ : FrequentDirections
        The sketch; can be saved and merged.
    n_features_in_, feature_names_in_
        As scikit-learn defines them.

    Notes
    -----
    Cost: one pass (`FrequentDirections`), then O(l^2 n_features), or O(n_features^3) where Delta is 0.
    Source: Weyl's inequality, and Davis and Kahan 1970, for the sketch of Ghashami et al. 2016.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[3.0, 0, 1], [-3, 0, 1], [0, 1, 1], [0, -1, 1]])
    >>> pca = SketchedPCA(n_components=1).fit(X)
    >>> pca.components_.round(9).tolist(), pca.explained_variance_bounds_.round(9).tolist()
    ([[1.0, 0.0, 0.0]], [[6.0, 6.0]])
    """

    def __init__(self, n_components: Count | None = None, *, sketch_size: SketchSize | None = None) -> None:
        self.n_components = n_components
        self.sketch_size = sketch_size

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **run: Unpack[FitKeywords]) -> Self:
        """Sketch the rows in one pass and take the components of the sketch.

        Parameters
        ----------
        X : array, path, URL or Matrix of shape (n_rows, n_features)
            Whatever `open_matrix` takes.
        y : ignored
            For scikit-learn's sake.
        sample_weight : array or path of shape (n_rows,), optional
            Row weights, not negative; a weight of 2 is a row twice.
        **run : client, partition_bytes, checkpoint, progress
            As in `summarize`.

        Raises
        ------
        BadParameter
            For more components than columns, or a sketch of too few rows.
        EmptyInput
            For rows of a total weight of at most 1.
        """
        return self._finish(self._sketch(X, sample_weight, run, reset=True))

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, **unknown: Any) -> Self:
        """Add a batch of rows, of any size, with the guarantees of one pass over all rows; arguments as in `fit`.

        While all rows have a total weight of at most 1, there are no components.
        """
        check_batch(unknown)
        before: Summary[Any] | None = getattr(self, "summary_", None)
        batch = self._sketch(X, sample_weight, {}, reset=before is None)
        return self._finish(batch if before is None else before.merge(batch), may_go_on=True)

    def fit_summary(self, summary: Any) -> Self:
        """Take the components of a sketch (or of that in a mapping or `Bundle`); no data are needed.

        Raises `Incompatible` if there is none, or its rows were prepared by steps, which `transform` would leave out.
        """
        sketch = pick(summary, FrequentDirections.kind)
        if sketch.prepare:
            raise Incompatible(f"the rows of this sketch were prepared by {list(sketch.prepare)}; sketch the raw rows")
        self.n_features_in_ = sketch.n_features
        self.__dict__.pop("feature_names_in_", None)
        if sketch.feature_names is not None:
            self.feature_names_in_ = np.array(sketch.feature_names, dtype=object)
        return self._finish(sketch)

    def transform(self, X: Any, **run: Unpack[RunKeywords]) -> Any:
        """Return the rows about `mean_` in the directions of the components, shape (n_rows, k).

        Of a Dask array a Dask array is returned, of an xarray DataArray a DataArray; rows dropped by a source's policy
        are left out.

        Parameters
        ----------
        X : array, path, URL or Matrix of shape (n_rows, n_features)
            The rows.
        **run : client, partition_bytes, progress
            As in `summarize`; without effect for a Dask array, which needs no pass.
        """
        check_is_fitted(self)
        source = replace(self._source(X, None, reset=False), takes_sparse=True)
        rows, fitted = unwrapped(X), (self.components_, self.mean_)
        if is_dask(rows):
            check_run(run)
            whole = rows.rechunk({1: -1})
            width = (whole.chunks[0], (self.n_components_,))
            scores = whole.map_blocks(_scores, *fitted, chunks=width, dtype=np.float64, meta=np.empty((0, 0)))
        else:
            with run_options(source.matrix, **run) as options:
                scores = map_blocks(source, partial(_block_scores, *fitted), "principal components", options)
        return like_rows(X, scores, dimension="component")

    def inverse_transform(self, X: ArrayLike) -> Floats:
        """Return the rows, shape (n_rows, n_features), that have these scores and lie in the span of the components."""
        check_is_fitted(self)
        return cast(Floats, check_array(X, dtype=np.float64, ensure_min_features=0) @ self.components_ + self.mean_)

    def _sketch(self, X: Any, sample_weight: Any, run: FitKeywords, *, reset: bool) -> Summary[Any]:
        source = self._source(X, sample_weight, reset=reset)
        k = self._most_components(source.n_columns)
        size = self.sketch_size or sketch_size(source.n_columns, k)
        with fit_options(source.matrix, source.weight, **run) as options:
            summary = summarize_source(source, FrequentDirections(size), options).value
        # Rows of a data frame, or of a batch without names, come without those of `fit`.
        names = getattr(self, "feature_names_in_", None)
        return summary.with_context(prepare=(), feature_names=None if names is None else tuple(map(str, names)))

    def _source(self, X: Any, sample_weight: Any, *, reset: bool) -> Source:
        matrix = open_features(
            self, X, reset=reset, vectors={"sample_weight": sample_weight}, dtype=[np.float64, np.float32]
        )
        weight = None
        if sample_weight is not None:
            weight = open_vector(sample_weight, matrix.shape[0], matrix=matrix, name="sample_weight")
        return Source(matrix, weight=weight)

    def _most_components(self, n_features: int) -> int:
        check_declared(self)
        k = min(10, n_features) if self.n_components is None else int(self.n_components)
        if k > n_features:
            raise BadParameter(f"n_components = {k}, but there are {n_features} columns")
        return k

    def _finish(self, summary: Any, *, may_go_on: bool = False) -> Self:
        """Take the components; refuse too few rows and warn of too few components, unless a stream `may_go_on`."""
        k = self._most_components(summary.n_features)
        require_more_rows(summary.size, k)
        freedom = summary.weight - 1.0
        if not freedom > 0 and not may_go_on:
            raise EmptyInput(
                f"a variance needs rows of a total weight above 1, not {summary.weight:g} (n_samples = "
                f"{summary.n_rows}); rows of weight zero do not count"
            )
        directions = summary.centered_directions
        k = n_significant(directions.squares, summary.n_features, k) if freedom > 0 else 0
        squares, vectors = directions.squares[:k], directions.vectors[:k]
        largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)
        self.summary_ = summary
        self.components_ = vectors * np.where(largest < 0, -1.0, 1.0)
        self.n_components_ = k
        self.mean_ = summary.mean
        self.singular_values_ = np.sqrt(squares)
        self.explained_variance_ = squares / freedom
        rounding = gram_rounding(summary) + summary.n_features * _EPS * float(directions.squares.max(initial=0.0))
        least = np.maximum(squares - summary.single_rounding - rounding, 0.0)
        # Products in float32 may have made a Gram matrix smaller, but no sketch.
        most = squares + summary.shrinkage + rounding + (summary.single_rounding if summary.is_exact else 0.0)
        self.explained_variance_bounds_ = np.column_stack([least, most]) / freedom
        total = summary.centered_squared_norm
        self.explained_variance_ratio_ = squares / total if total > 0 else np.zeros(k)
        error = summary.shrinkage + summary.single_rounding
        self.subspace_angle_ = subspace_angle(directions.squares, k, error, summary.n_features)
        if self.n_components is not None and k < self.n_components and not may_go_on:
            warn(
                f"n_components = {self.n_components}, but the rows vary in {counted(k, 'direction')} by more than the "
                "rounding of the largest, and there are no more components; columns in unlike units can be "
                "standardised first"
            )
        return self


def _block_scores(components: Floats, mean: Floats, block: Block) -> Floats:
    return _scores(block.values, components, mean)


def _scores(rows: Any, components: Floats, mean: Floats) -> Floats:
    if hasattr(rows, "tocsr"):
        return cast(Floats, rows @ components.T - mean @ components.T)
    return cast(Floats, (rows - mean) @ components.T)
