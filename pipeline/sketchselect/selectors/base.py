"""The base of all selectors: a scikit-learn transformer around one pure function ``summary -> Selection``."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from sketchselect import prepare
from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.execution import summarize
from sketchselect.readers import DEFAULT_PARTITION_BYTES, Matrix, open_matrix, row_bands
from sketchselect.selectors.selection import Selection
from sketchselect.summaries import Summary, pick


class BaseSelector(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of all selectors.

    A subclass names its `method`, says which summary it `requires`, describes it (`summary_description`), and
    implements `_select`, which sees the summary alone. Everything else is derived: one pass over any source, fitting
    from a saved summary without data, streaming, transforming.

    Attributes
    ----------
    support_ : array of int, shape (n_selected,)
        Selected columns, ascending.
    scores_ : array of float, shape (n_features_in_,)
        One score per column, larger is better.
    selection_ : Selection
        The same with parameters and diagnostics, as written to ``selection.json``.
    summary_ : Summary
        What it was computed from; can be saved and merged.
    """

    method: ClassVar[str]
    requires: ClassVar[tuple[str, ...]]

    # --- what a new selector implements ------------------------------------------------------------------------

    @abstractmethod
    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the description of the summary that this selector needs for data of this width."""

    @abstractmethod
    def _select(self, summary: Any, n_select: int) -> Selection:
        """Return the selection of `n_select` columns; pure."""

    # --- derived -----------------------------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter that is wrong whatever the data are."""

    def prepare_steps(self) -> tuple[str, ...]:
        """Return the row steps the selector asks for: those of its `normalize` parameter."""
        normalize = getattr(self, "normalize", None)
        return () if normalize is None else prepare.check_steps([normalize])

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, client: Any = None) -> Self:
        """Make one pass over X and select columns.

        Parameters
        ----------
        X : anything `open_matrix` takes
            Path or URL of a Zarr array, ndarray, Dask array, ...
        y : ignored
            There for pipelines.
        sample_weight : array of shape (n_rows,), optional
        client : optional
            Where the pass runs; as in `sketchselect.summarize`. None: threads of this process.
        """
        matrix = self._open(X, reset=True)
        self.summary_ = summarize(
            matrix,
            self.summary_description(matrix.shape[1]),
            prepare=self.prepare_steps(),
            sample_weight=sample_weight,
            client=client,
        )
        return self._finish(matrix.feature_names)

    def partial_fit(self, X: Any, y: Any = None, *, sample_weight: Any = None) -> Self:
        """Add a batch of rows to what was seen and select again; the same guarantees as one pass over all rows."""
        first = not hasattr(self, "summary_")
        matrix = self._open(X, reset=first)
        steps = self.prepare_steps()
        if first:
            empty = self.summary_description(matrix.shape[1]).empty(matrix.shape[1])
            self.summary_ = empty.with_context(prepare=steps, feature_names=matrix.feature_names)
        elif self.summary_.prepare != steps:
            raise Incompatible(
                f"the rows seen so far were prepared by {list(self.summary_.prepare)}, this selector prepares by "
                f"{list(steps)}; set `normalize` to match"
            )
        weights = None if sample_weight is None else np.asarray(sample_weight)
        bands = row_bands(matrix, DEFAULT_PARTITION_BYTES)
        for a, b in zip(bands.edges, bands.edges[1:], strict=False):
            rows = prepare.apply(steps, matrix.read_rows(a, b))
            self.summary_ = self.summary_.update(rows, sample_weight=None if weights is None else weights[a:b])
        return self._finish(self.summary_.feature_names)

    def fit_summary(self, summary: Any) -> Self:
        """Select from a summary (or the fitting member of a mapping or `Bundle`); no data are needed.

        Raises
        ------
        Incompatible
            If there is no summary of the kind this selector needs.
        """
        self.summary_ = pick(summary, *self.requires)
        self.n_features_in_ = self.summary_.n_features
        self._forget_names()
        return self._finish(self.summary_.feature_names)

    def _open(self, X: Any, *, reset: bool) -> Matrix:
        """Open a source, letting scikit-learn check and record what is an array or data frame in memory."""
        if _is_array_like(X):
            X = validate_data(self, X, reset=reset, dtype="numeric", accept_sparse="csr", ensure_all_finite=True)
            return open_matrix(X)
        matrix = open_matrix(X)
        if reset:
            self.n_features_in_ = matrix.shape[1]
            self._forget_names()
        elif matrix.shape[1] != self.n_features_in_:
            raise BadParameter(
                f"X has {matrix.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        return matrix

    def _forget_names(self) -> None:
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _finish(self, names: tuple[str, ...] | None) -> Self:
        if not np.max(self.summary_.weight, initial=0) > 0:
            raise EmptyInput("no rows with a positive weight: all sample weights are zero, or the input is empty")
        if names is not None and not hasattr(self, "feature_names_in_"):
            self.feature_names_in_ = np.array(names, dtype=object)
        if names is None and hasattr(self, "feature_names_in_"):
            names = tuple(map(str, self.feature_names_in_))
            self.summary_ = self.summary_.with_context(prepare=self.summary_.prepare, feature_names=names)
        selection = self._select(self.summary_, self._n_select(self.n_features_in_))
        self.selection_ = replace(selection, prepare=self.summary_.prepare)
        self.support_ = self.selection_.support
        self.scores_ = self.selection_.scores
        if self.selection_.weights is not None:
            self.weights_ = self.selection_.weights
        return self

    def _n_select(self, n_features: int) -> int:
        wanted = getattr(self, "n_features_to_select", None)
        if wanted is None:
            return max(n_features // 2, 1)
        if isinstance(wanted, bool) or not isinstance(wanted, (int, np.integer)) or wanted < 1:
            raise BadParameter(f"n_features_to_select must be a whole number of at least 1, got {wanted!r}")
        if wanted > n_features:
            warnings.warn(
                f"n_features_to_select = {wanted} but there are {n_features} columns; all are selected", stacklevel=4
            )
            return n_features
        return int(wanted)

    @staticmethod
    def _normalized(summary: Summary[Any]) -> str | None:
        """Return how the rows of a summary were normalised, whatever this selector would have done."""
        return next((step for step in summary.prepare if step == "l2"), None)

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self, "support_")
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[self.support_] = True
        return mask

    def transform(self, X: Any) -> Any:
        """Return the selected columns: of the same type for arrays and data frames, an array for stores.

        A store's bands are read one after the other and only the selected columns are kept. A Dask array stays lazy.
        """
        check_is_fitted(self, "support_")
        if _is_array_like(X):
            return super().transform(X)
        if hasattr(X, "__dask_graph__"):
            return X[:, self.support_]
        matrix = self._open(X, reset=False)
        bands = row_bands(matrix, DEFAULT_PARTITION_BYTES)
        parts = [matrix.read_rows(a, b)[:, self.support_] for a, b in zip(bands.edges, bands.edges[1:], strict=False)]
        return np.concatenate(parts)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _is_array_like(X: Any) -> bool:
    """Return whether scikit-learn should look at X first: arrays, sparse matrices, lists and frames in memory."""
    if isinstance(X, (str, bytes, Matrix)) or hasattr(X, "__fspath__") or hasattr(X, "__dask_graph__"):
        return False
    return not (hasattr(X, "store") and hasattr(X, "chunks"))
