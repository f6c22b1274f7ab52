"""The base of all selectors: a scikit-learn transformer around one pure function ``summary -> Selection``."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from sketchselect import prepare
from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.execution import Engine, PassStats, Source, as_engine, summarize_source
from sketchselect.linalg.sparse.csr import take_columns
from sketchselect.linalg.validation import require_positive
from sketchselect.readers import DEFAULT_PARTITION_BYTES, Matrix, Vector, open_matrix, open_vector, row_partitions
from sketchselect.readers.base import Nonfinite
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
    needs_target: ClassVar[bool] = False
    """Whether the selector looks at y; others ignore it."""
    axis: ClassVar[Literal["rows", "columns"]] = "rows"
    """What a stream brings (`partial_fit`), and what a pass reads at a time."""

    # --- what a new selector implements ------------------------------------------------------------------------

    @abstractmethod
    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the description of the summary that this selector needs for data of this width."""

    @abstractmethod
    def _select(self, summary: Any, n_select: int) -> Selection:
        """Return the selection of `n_select` columns; pure."""

    # --- derived -----------------------------------------------------------------------------------------------

    @property
    def uses_target(self) -> bool:
        """Whether this selector, with its parameters, looks at y."""
        return type(self).needs_target

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter that is wrong whatever the data are."""

    def inspect_target(self, y: Vector) -> None:
        """Learn from the whole target what the description of the summary depends on, such as the classes.

        Called before `summary_description`, by `fit` and by the job.
        """

    @property
    def has_own_passes(self) -> bool:
        """Whether `collect` reads the source in its own way, and not in the one pass of `summary_description`.

        A job adds the description to the summaries that it makes anyway, or else calls `collect`.
        """
        return type(self).collect is not BaseSelector.collect

    def collect(
        self, source: Source, engine: Engine, *, account: Callable[[PassStats], object] | None = None, **options: Any
    ) -> Summary[Any]:
        """Return the summary that `_select` sees: one pass over the source; override where it takes another way.

        Parameters
        ----------
        source : Source
            The rows and their target.
        engine : Engine
            What runs the tasks.
        account : callable, optional
            Told what each pass did.
        **options
            Further arguments of `summarize_source`: partition_bytes, checkpoint, progress, stage, ...
        """
        reduced = summarize_source(source, self.summary_description(source.n_columns), engine=engine, **options)
        if account is not None:
            account(reduced.stats)
        return reduced.value

    def further_description(self, summary: Summary[Any]) -> Summary[Any] | None:
        """Return what one more pass has to summarise, as the first summary shows; None where that one is enough."""
        return None

    def complete(
        self,
        summary: Summary[Any],
        source: Source,
        engine: Engine,
        *,
        account: Callable[[PassStats], object] | None = None,
        **options: Any,
    ) -> Summary[Any]:
        """Return the summary to select from, after what `collect` found: with `further_description`, of another pass.

        Parameters are those of `collect`.
        """
        return summary

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
        y : array, path or anything `open_vector` takes, optional
            Target of each row; ignored by selectors without `needs_target`, for which it is there for pipelines.
        sample_weight : array or path of shape (n_rows,), optional
        client : optional
            Where the pass runs; as in `sketchselect.summarize`. None: threads of this process.
        """
        matrix = self._open(X, reset=True)
        target = self._open_target(y, matrix)
        if target is not None:
            self.inspect_target(target)
        weight = None
        if sample_weight is not None:
            weight = open_vector(sample_weight, matrix.shape[0], matrix_address=matrix.address, name="sample_weight")
        source = Source(matrix, target, weight, prepare.resolve(self.prepare_steps()))
        with as_engine(client) as engine:
            self.summary_ = self.complete(self.collect(source, engine), source, engine)
        return self._finish(matrix.feature_names)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, *, sample_weight: Any = None) -> Self:
        """Add a batch of rows to what was seen and select again; the same guarantees as one pass over all rows.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        classes : sequence, optional
            Every class that a later batch may hold, for classification; only the first call uses it. None: those of
            the first batch.
        """
        before: Summary[Any] | None = getattr(self, "summary_", None)
        matrix = self._open(X, reset=before is None)
        target = self._open_target(y, matrix)
        steps = self.prepare_steps()
        if before is None:
            self._start_stream(target, classes)
            n_targets = 0 if target is None or len(target.shape) == 1 else target.shape[1]
            empty = self.summary_description(matrix.shape[1]).empty(matrix.shape[1], n_targets)
            summary = empty.with_context(prepare=steps, feature_names=matrix.feature_names)
        elif before.prepare != steps:
            raise Incompatible(
                f"the rows seen so far were prepared by {list(before.prepare)}, this selector prepares by "
                f"{list(steps)}; set `normalize` to match"
            )
        else:
            summary = before
            _require_names(before.feature_names, matrix)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        partitions = row_partitions(matrix, DEFAULT_PARTITION_BYTES, sparse=matrix.is_sparse and summary.accepts_sparse)
        batches = (
            (
                prepare.apply(steps, matrix.read_rows(a, b)),
                None if target is None else target.read(a, b),
                None if weights is None else weights[a:b],
            )
            for a, b in zip(partitions.edges, partitions.edges[1:], strict=False)
        )
        summary = self._updated(summary, batches)
        # A batch that is refused leaves the stream as it was, so that it can be given again.
        self.summary_ = summary
        try:
            return self._finish(summary.feature_names)
        except BaseException:
            if before is None:
                del self.summary_
            else:
                self.summary_ = before
            raise

    def _updated(self, summary: Summary[Any], batches: Iterable[tuple[Any, Any, Any]]) -> Summary[Any]:
        """Return the summary of a stream after more of its rows, given with their targets and weights."""
        for rows, labels, weights in batches:
            summary = summary.update(rows, labels, sample_weight=weights, prepare=summary.prepare)
        return summary

    def _start_stream(self, target: Vector | None, classes: Any) -> None:
        """Learn from the first batch of a stream what the description of the summary depends on."""
        if classes is not None:
            raise BadParameter(f"{type(self).__name__} knows no classes; leave the argument out")
        if target is not None:
            self.inspect_target(target)

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
        missing = getattr(self, "missing", None) is not None
        policy: Nonfinite = "missing" if missing and not isinstance(X, Matrix) else "error"
        if _is_array_like(X):
            finite = "allow-nan" if missing else True
            X = validate_data(self, X, reset=reset, dtype="numeric", accept_sparse="csr", ensure_all_finite=finite)
            return open_matrix(X, nonfinite=policy)
        matrix = open_matrix(X, nonfinite=policy)
        if reset:
            self.n_features_in_ = matrix.shape[1]
            self._forget_names()
        else:
            self._require_width(matrix.shape[1])
        return matrix

    def _require_width(self, n_columns: int) -> None:
        if n_columns != self.n_features_in_:
            raise BadParameter(
                f"X has {n_columns} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )

    def _open_target(self, y: Any, matrix: Matrix) -> Vector | None:
        """Open the target of a selector that uses one."""
        if not self.uses_target:
            return None
        if y is None:
            raise BadParameter(f"{type(self).__name__} requires y to be passed, but the target y is None")
        return open_vector(y, matrix.shape[0], matrix_address=matrix.address, name="target")

    def _forget_names(self) -> None:
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _finish(self, names: tuple[str, ...] | None) -> Self:
        summary: Any = self.summary_
        if not np.max(summary.weight, initial=0) > 0:
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
        wanted = require_positive("n_features_to_select", wanted)
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
        """Return the selected columns: of the same type for arrays and data frames, an array (or CSR) for stores.

        A store's bands are read one after the other and only the selected columns are kept. A Dask array stays lazy.
        """
        check_is_fitted(self, "support_")
        if _is_array_like(X):
            return super().transform(X)
        if hasattr(X, "__dask_graph__"):
            self._require_width(X.shape[-1])
            return X[:, self.support_]
        matrix = self._open(X, reset=False)
        partitions = row_partitions(matrix, DEFAULT_PARTITION_BYTES, sparse=matrix.is_sparse)
        blocks = (matrix.read_rows(a, b) for a, b in zip(partitions.edges, partitions.edges[1:], strict=False))
        if matrix.is_sparse:
            return vstack([take_columns(rows, self.support_) for rows in blocks], format="csr")
        return np.concatenate([rows[:, self.support_] for rows in blocks])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = getattr(self, "missing", None) is not None
        return tags


def _require_names(seen: tuple[str, ...] | None, matrix: Matrix) -> None:
    """Raise `Incompatible`, naming the column, where a batch's columns are named otherwise than those seen so far."""
    names = matrix.feature_names
    if seen is None or names is None or seen == names:
        return
    j = next(i for i, (a, b) in enumerate(zip(seen, names, strict=True)) if a != b)
    raise Incompatible(
        f"{matrix.address}: column {j} is named {names[j]!r}, in the rows seen so far it is {seen[j]!r}; bring the "
        "columns into the same order"
    )


def _is_array_like(X: Any) -> bool:
    """Return whether scikit-learn should look at X first: arrays, sparse matrices, lists and frames in memory."""
    if isinstance(X, (str, bytes, Matrix)) or hasattr(X, "__fspath__") or hasattr(X, "__dask_graph__"):
        return False
    return not (hasattr(X, "store") and hasattr(X, "chunks"))
