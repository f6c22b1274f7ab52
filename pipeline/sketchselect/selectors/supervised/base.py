"""Base class of all supervised selectors: from moments of columns and target to a sparse linear model.

Targets of supervised selectors: checks, and the classes of a classification.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect.errors import BadParameter, Incompatible, NotFinite
from sketchselect.execution.engine import FitKeywords
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.validation import require_seed
from sketchselect.readers import Matrix, Vector
from sketchselect.readers.base import GroupedTarget
from sketchselect.readers.opening import grouped
from sketchselect.selectors.selection import Selection
from sketchselect.selectors.supervised import models
from sketchselect.selectors.supervised.fit import (
    MOST_FOLDS_NBYTES,
    ConstantColumns,
    ConstantTarget,
    FewerColumns,
    Interpolation,
    ModelFitter,
    NoFolds,
)
from sketchselect.selectors.supervised.moments import coefficient_error, design_of, warn_of
from sketchselect.summaries import Folds, Moments, Summary, pick

Task = Literal["regression", "classification"]
MAX_CLASSES = 1000
"""More distinct values are numbers, not classes: their summary would not fit in memory either."""

_RUN = 1 << 20


def check_target(y: Vector) -> None:
    """Raise unless the target of a regression is finite numbers; the pass checks a target that is not in memory."""
    if y.dtype.kind == "U":
        raise BadParameter(f'target {y.address} is text; set task="classification" to use it as classes')
    if y.in_memory and y.dtype.kind == "f":
        _require_finite(y, y.read(0, y.n_rows), 0)


def classes_of(y: Vector) -> tuple[Any, ...]:
    """Return the distinct labels of a target, ascending, as Python values.

    Raises `BadParameter` for a table of targets, or more than 1,000 labels; `NotFinite` naming the first row without a
    label.
    """
    if len(y.shape) == 2 and y.shape[1] != 1:
        raise BadParameter(f"target {y.address}: {y.shape[1]} columns; a classification needs one label per row")
    distinct: Array = np.empty(0, dtype=y.dtype)
    for start in range(0, y.n_rows, _RUN):
        labels = np.ravel(y.read(start, min(start + _RUN, y.n_rows)))
        if labels.dtype.kind == "f":
            _require_finite(y, labels, start)
        distinct = np.unique(np.concatenate([distinct.astype(labels.dtype), labels]) if distinct.size else labels)
        if distinct.size > MAX_CLASSES:
            raise BadParameter(
                f"target {y.address}: more than {MAX_CLASSES} distinct values, Unknown label type: continuous numbers "
                'are no classes; set task="regression"'
            )
    if distinct.dtype.kind == "f" and (distinct != np.round(distinct)).any():
        raise BadParameter(
            f"target {y.address}: Unknown label type: continuous numbers are no classes; "
            'set task="regression", or use whole numbers or text'
        )
    return tuple(distinct.tolist())


def checked_classes(classes: Any) -> tuple[Any, ...]:
    """Return the argument `classes` of `partial_fit`, ascending, as Python values."""
    array = np.asarray(classes)
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array.ravel().tolist()):
        array = array.astype(str)
    if array.ndim != 1 or array.dtype.kind not in "fiubU":
        raise BadParameter("classes must be a one-dimensional sequence of labels, all numbers or all text")
    return tuple(np.unique(array).tolist())


def require_several(classes: tuple[Any, ...]) -> None:
    """Raise unless there are at least two classes."""
    if len(classes) < 2:
        raise BadParameter(
            "the target has only one class; a classification needs at least two (in a stream, pass all classes in the "
            "first call: partial_fit(X, y, classes=...))"
        )


def _require_finite(y: Vector, values: Array, start: int) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        row = start + int(np.argwhere(bad)[0, 0])
        raise NotFinite(
            f"target {y.address}: NaN or infinity in {int(bad.sum())} entries, the first at row {row}; "
            "leave these rows out of matrix and target"
        )


def one_column(y: Any, task: str) -> Any:
    """Return labels in a table of one column as a vector, with scikit-learn's warning."""
    if isinstance(y, np.ndarray) and y.dtype.kind == "O":
        kinds = {isinstance(entry, str) for entry in y.ravel().tolist()}
        if len(kinds) > 1 or not all(isinstance(e, (str, float, int, bool, np.generic)) for e in y.ravel().tolist()):
            raise BadParameter("target: Unknown label type: its entries are neither all numbers nor all text")
        y = y if True in kinds else np.array(y.tolist())
    if task == "classification" and not isinstance(y, Vector) and len(getattr(y, "shape", ())) == 2 and y.shape[1] == 1:
        from sklearn.utils.validation import column_or_1d

        return column_or_1d(y, warn=True) if not hasattr(y, "__dask_graph__") else y[:, 0]
    return y


def with_task(tags: Any, task: str) -> Any:
    """Return scikit-learn's tags of a transformer that also predicts."""
    from sklearn.utils import ClassifierTags, RegressorTags

    if task == "classification":
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
    else:
        tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        tags.target_tags.multi_output = True
    return tags


class SupervisedSelector(ModelFitter):
    """Base of the selectors that fit a sparse linear model from moments.

    Rows of float32 are summarised as float64, because coefficients multiply the rounding of products by the condition
    number of the columns. Of moments with products in float32 (`Moments` of float32 rows) the error to expect is in
    ``selection_.diagnostics["coefficient_error"]``, and above 1e-4 a warning says so.

    A subclass implements `_models`: the models of a standardised problem, from the sparsest on. Choice of the model,
    classification, several targets, polynomial terms, streams and original units are derived here, once.

    Attributes
    ----------
    coef_ : array of shape (n_columns,) or (n_outputs, n_columns)
        In the data's own units. Regression: one row per target if there are several. Classification: one row (the log
        odds of the second class) or one per class.
    intercept_ : float or array of shape (n_outputs,)
    classes_ : array
        Labels, ascending; classification only.
    path_ : ModelPath
        All models compared: ``alphas``, ``coefs``, ``n_nonzero``, ``criteria``, ``cv_errors``, ``gaps``,
        ``plot_path()``.
    converged_ : bool
        Whether no solver stopped before its `tol`: ``path_.converged`` of every model. ``path_.gaps`` says how far off.
    support_, scores_, selection_, summary_
        As for every selector; with degree=2 `support_` and `scores_` are of polynomial terms.
    """

    automatic: ClassVar[dict[str, Any] | None] = {"cv": 5, "cv_rule": "1se"}
    needs_target: ClassVar[bool] = True
    needs_double: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("moments", "folds", "decayed-moments")

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or parameters that exclude each other."""
        if self.task not in ("regression", "classification"):
            raise BadParameter(f'task must be "regression" or "classification", got {self.task!r}')
        if self.degree not in (1, 2) or isinstance(self.degree, bool):
            raise BadParameter(f"degree must be 1 or 2, got {self.degree!r}")
        if self.n_features_to_select is not None:
            super()._n_select(int(np.iinfo(np.int64).max))
            if self.cv is not None:
                raise BadParameter("n_features_to_select and cv both choose the model; leave one of them out")
        models.check_choice(self.criterion, self.cv, self.cv_rule, self.ebic_gamma)
        require_seed(self.random_state, "random_state")
        if self.half_life is not None:
            if self.cv is not None:
                raise BadParameter("cv needs moments that do not decay: leave half_life or cv out")
            if self.degree == 2 or self.missing is not None:
                raise BadParameter("half_life needs degree=1 and missing=None")
        self._check_forgetting()

    def inspect_target(self, y: Vector) -> None:
        """Learn the classes, or check that the target is numeric; and whether rows have groups."""
        self._has_groups = isinstance(y, GroupedTarget)
        y = getattr(y, "target", y)
        if self.task == "classification":
            self._seen_classes = classes_of(y)
            require_several(self._seen_classes)
        else:
            check_target(y)

    def _start_stream(self, target: Vector | None, classes: Any) -> None:
        if classes is None:
            super()._start_stream(target, None)
        elif self.task != "classification":
            raise BadParameter('classes are for task="classification"; leave the argument out')
        else:
            self._has_groups = isinstance(target, GroupedTarget)
            self._seen_classes = checked_classes(classes)
            require_several(self._seen_classes)

    def _open_target(self, y: Any, matrix: Matrix) -> Vector | None:
        target = super()._open_target(one_column(y, self.task), matrix)
        groups = getattr(self, "_groups", None)
        return target if groups is None or target is None else grouped(target, groups, matrix)

    def fit(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None, **run: Unpack[FitKeywords]
    ) -> Self:
        """Make one pass over X and fit.

        Parameters
        ----------
        X, y, sample_weight, **run
            As in `BaseSelector.fit`.
        groups : array, path or anything `open_vector` takes, optional
            Group of each row, a number or text, for the folds of cross-validation: all rows of a group are in the same
            one (`Folds`).
        """
        with self._grouped(groups):
            return super().fit(X, y, sample_weight=sample_weight, **run)

    @contextmanager
    def _grouped(self, groups: Any) -> Iterator[None]:
        self._groups = groups
        try:
            yield
        finally:
            del self._groups

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the moments of columns and target: in folds for cross-validation, decayed with `half_life`."""
        self.check_parameters()
        classes = getattr(self, "_seen_classes", None) if self.task == "classification" else None
        groups = getattr(self, "_has_groups", False)
        if groups and self.n_folds is None:
            raise BadParameter("groups are for the folds of cross-validation, and another parameter chooses the model")
        if self.half_life is not None:
            return Moments(classes=classes, half_life=self.half_life)
        moments = Moments(degree=self.degree, missing=self.missing, classes=classes)
        if self.n_folds is None:
            return moments
        folds = Folds(moments, self.n_folds, self.random_state, groups)
        by_default = self.cv is None and not groups
        return moments if by_default and folds.projected_nbytes(n_features, 1) > MOST_FOLDS_NBYTES else folds

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, *, groups: Any = None, sample_weight: Any = None
    ) -> Any:
        """Add a batch of rows to the stream and fit again, from all its rows, decayed, or those in the window.

        Parameters
        ----------
        X, y, groups, sample_weight
            As in `fit`; all batches have groups, or none.
        classes : sequence, optional
            Every class that a batch may hold; needed in the first call unless its batch has them all.
        """
        with self._grouped(groups), warnings.catch_warnings():
            # A stream may begin with rows of one value, or with few.
            for early in (ConstantTarget, ConstantColumns, FewerColumns, Interpolation):
                warnings.simplefilter("ignore", early)
            return super().partial_fit(X, y, classes, sample_weight=sample_weight)

    def fit_summary(self, summary: Any) -> Any:
        """Fit from moments: `Moments`, `Folds` of them, or a mapping or `Bundle` with one of these.

        Raises
        ------
        Incompatible
            If there are none, they have no target, they are not in folds although `cv` needs them, or the target's
            kind (numbers, classes) is not that of the task.
        """
        self.check_parameters()
        kinds = self.requires
        if self.cv is not None:
            kinds = ("folds",)
        elif self.half_life is not None:
            kinds = ("decayed-moments",)
        elif self.n_folds is not None:
            kinds = ("folds", *kinds)
        moments = pick(summary, *kinds)
        if self.half_life is not None:
            self._require_half_life(moments)
        return super().fit_summary(moments)

    def _n_select(self, n_features: int) -> int:
        # 0 leaves the number to cross-validation, or a criterion.
        return 0 if self.n_features_to_select is None else super()._n_select(n_columns(n_features, self.degree))

    def _select(self, summary: Any, n_select: int) -> Selection:
        if self.cv is not None and getattr(summary, "n_folds", None) != self.cv:
            were = f"are in {summary.n_folds} folds" if isinstance(summary, Folds) else "are not in folds"
            raise Incompatible(f"the moments of the rows seen so far {were}, but cv is {self.cv}; set it to match")
        with_folds = self.cv is not None or (self.n_folds is not None and _can_validate(summary))
        if self.n_folds is not None and summary.kind == Moments.kind:
            self._warn_if_wide(Folds(summary.describe(), self.n_folds).projected_nbytes(summary.n_features, 1))
        design = design_of(summary, self.task, self.degree, with_folds=with_folds)
        fitted = self._fit_design(design, n_select or None)
        self.path_ = fitted.path
        self.converged_ = bool(fitted.path.converged.all())
        single = fitted.coef.shape[1] == 1 and self.task == "regression"
        self.coef_ = fitted.coef[:, 0] if single else fitted.coef.T.copy()
        self.intercept_ = float(fitted.intercept[0]) if single else fitted.intercept
        self._terms, self._term_scores, self._expansion = fitted.path.model.support, fitted.scores, design.expansion
        self._term_names = design.names
        if design.classes is not None:
            self.classes_ = np.array(design.classes)
        elif hasattr(self, "classes_"):
            del self.classes_  # of an earlier fit with another task
        error = coefficient_error(design, self._terms)
        if error is None:
            return fitted.selection
        warn_of(error)
        return replace(fitted.selection, diagnostics={**fitted.selection.diagnostics, "coefficient_error": error})

    def _warn_if_wide(self, nbytes: int) -> None:
        if nbytes > MOST_FOLDS_NBYTES:
            warnings.warn(
                f"moments in {self.n_folds} folds would take {format_bytes(nbytes)}: the model is chosen by "
                f"{self.default_criterion.upper()} instead; set cv={self.n_folds} to cross-validate all the same",
                NoFolds,
                stacklevel=5,
            )

    def _finish(self, names: tuple[str, ...] | None) -> Any:
        super()._finish(names)
        # The selection, which the job uses, is of columns; the estimator's attributes are of the terms it fitted.
        self.support_, self.scores_ = self._terms, self._term_scores
        return self

    def __sklearn_tags__(self) -> Any:
        return with_task(super().__sklearn_tags__(), self.task)


def _can_validate(summary: Any) -> bool:
    """Return whether a summary has at least two folds with rows."""
    return isinstance(summary, Folds) and sum(np.max(fold.weight, initial=0.0) > 0 for fold in summary) >= 2


def n_columns(n_features: int, degree: int) -> int:
    """Return the number of columns of the design: with degree 2 also every square and product."""
    return n_features if degree == 1 else n_features + n_features * (n_features + 1) // 2
