"""Targets of selectors: their checks, the classes of a classification, and the selectors that learn from one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np

from sketchselect._sklearn import BaseEstimator
from sketchselect._text import counted
from sketchselect.errors import BadParameter, NotFinite, warn
from sketchselect.execution.engine import PreparedKeywords
from sketchselect.execution.source import Source
from sketchselect.linalg.hashing import words_of
from sketchselect.linalg.validation import Array
from sketchselect.readers import Matrix, Vector
from sketchselect.readers.base import (
    GroupedTarget,
    are_missing,
    as_entries,
    is_absent,
    missing_in_words,
    require_no_nul,
)
from sketchselect.readers.opening import grouped
from sketchselect.readers.results import doubt_of_target, target_names
from sketchselect.readers.tables import is_missing_field
from sketchselect.readers.text import is_number
from sketchselect.summaries.partitioned import fold_numbers

Task = Literal["regression", "classification"]
MAX_AUTO_CLASSES = 20
"""A target of whole numbers with more distinct values is taken for a quantity, unless the task is given."""
MAX_CLASSES = 1000
"""More distinct values are numbers, not classes: their summary would not fit in memory either."""

_RUN = 1 << 20  # Rows of a vector that are read at a time
_MOST_READ = 1 << 24  # Rows whose groups are read to warn of folds without one
_FEW_TEXTS = 0.1  # Share of a target's values up to which text among numbers is a mistake
_MOST_WHOLE = 2.0**53
"""Beyond, floats are whole numbers, but not every whole number is one."""
_FEW_ROWS = 20
"""Up to this many rows nothing is said of the number of classes."""


class DoubtfulClasses(UserWarning):
    """Warning that a target may be no classes, or that a class has too few rows."""


class ConstantTarget(UserWarning):
    """Warning that the target does not vary, so that no column can explain it."""


class TargetAmongFeatures(UserWarning):
    """Warning that a feature has the target's name, and so may hold the target."""


class ConstantColumns(UserWarning):
    """Warning that no column varies, so that none can explain the target."""


class FewerColumns(UserWarning):
    """Warning that fewer columns vary than were asked for."""


def warn_of_untested(n_tested: int, n_features: int, asked: int | None, *, constant: bool) -> None:
    """Warn of a constant target, or if fewer columns can be tested against it than the `asked` number."""
    if constant:
        warn("the target is constant: no column is selected", ConstantTarget)
    elif asked is not None and n_tested < asked:
        warn(
            f"only {n_tested} of {counted(n_features, 'column')} can be tested: at most these are selected, not "
            f"{asked}; a constant column says nothing of a target",
            FewerColumns,
        )


def _runs(vector: Vector) -> Iterator[tuple[int, Array]]:
    """Yield the entries of a vector, flat, a run of rows at a time, and the first row of each run."""
    for start in range(0, vector.n_rows, _RUN):
        yield start, np.ravel(vector.read(start, min(start + _RUN, vector.n_rows)))


def check_target(y: Vector) -> None:
    """Raise unless the target of a regression is finite numbers; the pass checks a target that is not in memory."""
    if y.dtype.kind == "U":
        distinct = set[str]()
        for _, texts in _runs(y):
            distinct.update(np.unique(texts).tolist())
            if len(distinct) > MAX_CLASSES:
                raise _names_rows(y)
        raise _no_number(y) or BadParameter(
            f'target {y.address} is text; set task="classification" to use it as classes'
        )
    if y.in_memory and y.dtype.kind == "f":
        _require_finite(y, y.read(0, y.n_rows), 0)


def _no_number(y: Vector) -> BadParameter | None:
    """Return the error of a few values that are text among numbers; None of other text."""
    others: list[tuple[int, str]] = []
    for start, texts in _runs(y):
        others += [
            (start + i, text)
            for i, text in enumerate(texts.tolist())
            if not (is_number(text) or is_missing_field(text))
        ]
        if len(others) > _FEW_TEXTS * y.n_rows:
            return None
    if not others:
        return None
    row, text = others[0]
    return BadParameter(
        f"target {y.address}: {text!r:.40} of {y.row_in_words(row)} is no number ({len(others)} of {y.n_rows:,} "
        "values); correct it, or leave out its row"
    )


def _are_codes(levels: Array, n_rows: int) -> bool:
    """Return whether the numbers among some levels are whole and repeat, as those of chromosomes 1 to 22, X and Y."""
    numbers = [text for text in levels.tolist() if is_number(text)]
    return 2 * levels.size <= n_rows and all(text.strip().lstrip("+-").isdecimal() for text in numbers)


def _names_rows(y: Vector) -> BadParameter:
    """Return the error of a text with more distinct values than there are classes."""
    return _no_number(y) or BadParameter(
        f"target {y.address}: Unknown label type: it is text with more than {MAX_CLASSES} distinct values, as names of "
        "rows are, and neither numbers nor classes; give another target"
    )


_NUMBERS = 'set task="regression"'


def rows_of_classes(y: Vector, numbers: str = _NUMBERS) -> dict[Any, int]:
    """Return the distinct labels of a target, ascending, as Python values, and the number of rows that have each.

    `numbers` is the advice for those who pass numbers.
    Raises `BadParameter` for a table of targets, more than 1,000 labels, floats that are no labels, or a few texts
    among more than 20 numbers that are no codes; `NotFinite` naming the first row without a label.
    """
    if len(y.shape) == 2 and y.shape[1] != 1:
        raise BadParameter(f"target {y.address}: {y.shape[1]} columns; a classification needs one label per row")
    distinct: Array = np.empty(0, dtype=y.dtype)
    n_rows: Array = np.empty(0, dtype=np.int64)
    for start, labels in _runs(y):
        if labels.dtype.kind == "f":
            _require_finite(y, labels, start)
        elif (missing := are_missing(labels)).any():
            n_missing = sum(int(are_missing(entries).sum()) for _, entries in _runs(y))
            raise NotFinite(f"target {y.address}: {missing_in_words(n_missing, start + int(np.argmax(missing)))}")
        labels, n_labels = np.unique(labels, return_counts=True)
        if distinct.size:
            both = np.concatenate([distinct, labels])
            labels, places = np.unique(both, return_inverse=True)
            n_labels = np.bincount(places, np.concatenate([n_rows, n_labels])).astype(np.int64)
        distinct, n_rows = labels, n_labels
        if distinct.size > MAX_CLASSES and distinct.dtype.kind == "U":
            raise _names_rows(y)
        if distinct.size > MAX_CLASSES:
            raise BadParameter(
                f"target {y.address}: Unknown label type: it has more than {MAX_CLASSES} distinct values, and "
                f"continuous numbers are no classes; {numbers}"
            )
    may_be_numbers = distinct.dtype.kind == "U" and distinct.size > MAX_AUTO_CLASSES
    if may_be_numbers and not _are_codes(distinct, y.n_rows) and (error := _no_number(y)) is not None:
        raise error
    if distinct.dtype.kind == "f":
        if (distinct != np.round(distinct)).any():
            raise BadParameter(
                f"target {y.address}: Unknown label type: continuous numbers are no classes; "
                f"{numbers}, or use whole numbers or text"
            )
        if np.abs(distinct).max(initial=0.0) > _MOST_WHOLE:
            raise BadParameter(
                f"target {y.address}: Unknown label type: floats beyond 2^53 are no classes, as not every whole number "
                f"is one; {numbers}, or use integers or text"
            )
    return dict(zip(distinct.tolist(), n_rows.tolist(), strict=True))


def classes_of(y: Vector) -> tuple[Any, ...]:
    """Return the distinct labels of a target, as `rows_of_classes` says."""
    return tuple(rows_of_classes(y))


def checked_classes(classes: Any) -> tuple[Any, ...]:
    """Return the argument `classes` of `partial_fit`, ascending, as Python values."""
    array = np.asarray(classes)
    if array.ndim == 1 and array.dtype.kind in "OU":
        require_no_nul(list(classes), "classes")
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
            f"target {y.address}: NaN or infinity in {int(bad.sum())} entries, the first at {y.row_in_words(row)}; "
            "leave these rows out of matrix and target"
        )


def _require_folds(groups: Vector, seed: int, n_folds: int) -> None:
    """Raise `BadParameter` if all groups are in one fold, and warn of folds without one.

    Of many rows with a group in two folds no more are read to tell whether the other folds have one.
    """
    words: Array = np.empty(0, dtype=np.uint64)
    n_filled = 0
    for start, of_rows in _runs(groups):
        words = np.union1d(words, words_of(of_rows))
        n_filled = np.unique(fold_numbers(seed, n_folds, words)).size
        if n_filled == n_folds or (n_filled > 1 and start + _RUN >= _MOST_READ < groups.n_rows):
            return
    if n_filled > 1:
        warn(
            f"groups {groups.address}: {words.size} groups fill {n_filled} of the {n_folds} folds, to which they are "
            f"drawn at random, so errors are of {n_filled}-fold cross-validation; another random_state draws them anew"
        )
        return
    if words.size == 1:
        raise BadParameter(
            f"groups {groups.address}: all rows are in one group, and cross-validation needs at least two; leave "
            "groups out, or name others"
        )
    raise BadParameter(
        f"groups {groups.address}: the {words.size} groups are all in one of the {n_folds} folds, which are drawn at "
        "random; take more folds (cv), or another random_state"
    )


def one_column(y: Any, task: str) -> Any:
    """Return labels in a table of one column as a vector, with scikit-learn's warning."""
    if isinstance(y, np.ndarray) and y.dtype.kind == "O":
        entries = [entry for entry in y.ravel().tolist() if not is_absent(entry)]
        kinds = {isinstance(entry, str) for entry in entries}
        if len(kinds) > 1 or not all(isinstance(entry, (str, float, int, bool, np.generic)) for entry in entries):
            raise BadParameter("target: Unknown label type: its entries are neither all numbers nor all text")
        y = as_entries(y, "target")
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


class TargetMixin(BaseEstimator):  # type: ignore[misc]
    """Mixin of the selectors that learn from a target, numbers or classes, and from groups of its rows.

    It precedes `BaseSelector` among the bases of a class, which has a parameter `task`.
    """

    needs_target: ClassVar[bool] = True
    needs_double: ClassVar[bool] = True
    task: Any

    @property
    def numbers_advice(self) -> str:
        """What to do about numbers that are no classes, for messages."""
        return _NUMBERS

    @property
    def target_task(self) -> Task:
        """Whether the target is numbers or classes."""
        task: Task = self.task
        return task

    @property
    def n_folds(self) -> int | None:
        """Number of folds that choose the model; None, or 0, where none do."""
        return None

    @property
    def has_groups(self) -> bool:
        """Whether the target inspected last came with groups."""
        return getattr(self, "_has_groups", False)

    @property
    def takes_one_class(self) -> bool:
        """Whether all rows may be of one class: those of a stream so far, whose others were named."""
        return getattr(self, "_streams", False)

    @property
    def seen_classes(self) -> tuple[Any, ...] | None:
        """The classes of the target inspected last; None for a regression."""
        return getattr(self, "_seen_classes", None) if self.target_task == "classification" else None

    def inspect_target(self, y: Vector) -> None:
        """Learn the classes, or check that the target is numeric; and whether rows have groups."""
        self._has_groups = isinstance(y, GroupedTarget)
        y = getattr(y, "target", y)
        if self.target_task == "classification":
            self._seen_classes = self._classes_of(y)
            require_several(self._seen_classes)
        else:
            check_target(y)

    def check_source(self, source: Source) -> None:
        """Raise `BadParameter` for more folds than rows, or groups that are all in one fold."""
        super().check_source(source)
        n_folds = self.n_folds
        if not n_folds:
            return
        if getattr(self, "cv", None) is not None and n_folds > source.n_rows:
            rows = f"{source.matrix.address} has {counted(source.n_rows, 'row')}"
            raise BadParameter(f"cv must be at most the number of rows, got {n_folds}, and {rows}; take fewer folds")
        if isinstance(source.target, GroupedTarget):
            _require_folds(source.target.groups, int(getattr(self, "random_state", 0)), n_folds)

    def _classes_of(self, y: Vector) -> tuple[Any, ...]:
        """Return the classes that rows of the target's source can have."""
        rows = rows_of_classes(y, self.numbers_advice)
        if y.n_rows > _FEW_ROWS and len(rows) > round(0.5 * y.n_rows):  # as scikit-learn warns
            cure = "" if y.dtype.kind == "U" else f"; if it is numbers, {self.numbers_advice}"
            warn(
                f"target {y.address}: the number of unique classes, {len(rows)}, is greater than 50% of the number of "
                f"rows, {y.n_rows}: it may be a quantity, or a name for each row{cure}",
                DoubtfulClasses,
            )
        elif len(rows) > 1:
            self._warn_of_small_classes(y, rows)
        return tuple(rows)

    def _warn_of_small_classes(self, y: Vector, rows: dict[Any, int]) -> None:
        """Warn if a class has fewer rows than there are folds."""
        n_folds = self.n_folds or 0
        n_small = sum(n < n_folds for n in rows.values())
        if not n_small:
            return
        smallest = min(rows, key=rows.__getitem__)
        others = "" if n_small == 1 else f" ({n_small} such classes)"
        n_rows = counted(rows[smallest], "row")
        cure = "" if y.dtype.kind in "Ub" else f"; if the target is a quantity, {self.numbers_advice}"
        warn(
            f"target {y.address}: class {smallest!r:.40} has {n_rows}, fewer than the {n_folds} folds{others}: folds "
            "without rows of a class do not test it, and a model made without the fold that has all of them does not "
            f"know it; take fewer folds (cv), unite classes, or leave their rows out{cure}",
            DoubtfulClasses,
        )

    def _start_stream(self, target: Vector | None, classes: Any) -> None:
        if classes is None:
            with warnings.catch_warnings():
                # Of a stream the first batch may have few rows.
                warnings.simplefilter("ignore", DoubtfulClasses)
                super()._start_stream(target, None)
        elif self.target_task != "classification":
            raise BadParameter('classes are for task="classification"; leave the argument out')
        else:
            self._has_groups = isinstance(target, GroupedTarget)
            self._seen_classes = checked_classes(classes)
            require_several(self._seen_classes)

    def _open(self, X: Any, *, reset: bool, vectors: Mapping[str, Any] | None = None) -> Matrix:
        """Return the opened source; new rows may have the column of the target beside those of the fit."""
        features = getattr(self, "feature_names_in_", None)
        if not reset and features is not None and hasattr(X, "columns"):
            others = set(getattr(X, "column_names", X.columns)) - set(features)  # pyarrow's columns are their values
            names = [name for name in getattr(self, "_target_names", None) or () if name in others]
            vectors = {**dict(zip(names, names, strict=True)), **(vectors or {})}
        matrix: Matrix = super()._open(X, reset=reset, vectors=vectors)
        return matrix

    def _open_target(self, y: Any, matrix: Matrix) -> Vector | None:
        target = super()._open_target(one_column(y, self.target_task), matrix)
        is_column = isinstance(y, str) and y in matrix.columns_beside
        self._target_names = target_names(y, y.removeprefix("obs/") if is_column else getattr(target, "name", None))
        if not is_column:
            names, features = self._target_names or (), getattr(self, "feature_names_in_", ())
            if (doubt := doubt_of_target(names, features, "name it, as in fit(X, {name})")) is not None:
                warn(doubt, TargetAmongFeatures)
        groups = getattr(self, "_groups", None)
        return target if groups is None or target is None else grouped(target, groups, matrix)

    def _forget_names(self) -> None:
        super()._forget_names()
        self.__dict__.pop("_target_names", None)

    def fit(
        self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None, **run: Unpack[PreparedKeywords]
    ) -> Self:
        """Make one pass over X and fit.

        Parameters
        ----------
        X, y, sample_weight, **run
            As in `BaseSelector.fit`.
        groups : array, path or anything `open_vector` takes, optional
            Group of each row, a number or text, for the folds of cross-validation: all rows of a group are in the same
            one (`Folds`), drawn at random: few groups may leave folds empty, with a warning (of up to
            16 million rows).
        """
        with self._grouped(groups):
            selector: Self = super().fit(X, y, sample_weight=sample_weight, **run)
            return selector

    @contextmanager
    def _grouped(self, groups: Any) -> Iterator[None]:
        self._groups = groups
        try:
            yield
        finally:
            del self._groups

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        **unknown: Any,
    ) -> Any:
        """Add a batch of rows to the stream and fit again, from all its rows, decayed, or those in the window.

        Parameters
        ----------
        X, y, groups, sample_weight
            As in `fit`; all batches have groups, or none.
        classes : sequence, optional
            Every class that a batch may hold; needed in the first call unless its batch has them all. Of rows of one
            class no column is selected.
        """
        with self._grouped(groups), warnings.catch_warnings():
            # A stream may begin with rows of one value.
            for early in (ConstantTarget, ConstantColumns, FewerColumns):
                warnings.simplefilter("ignore", early)
            self._streams = True
            try:
                return super().partial_fit(X, y, classes, sample_weight=sample_weight, **unknown)
            finally:
                del self._streams


class GuessedTaskMixin(TargetMixin):
    """Mixin of the selectors whose `task` is "auto" by default, and whose target is one column."""

    validates: ClassVar[bool] = False
    """Whether the selector cross-validates, and so takes groups of rows."""

    @property
    def _implied_task(self) -> Task | None:
        """The task that other parameters imply; None where they go with both."""
        return None

    @property
    def target_task(self) -> Task:
        """The task: as given, as other parameters imply, or as the target inspected last shows."""
        if self.task != "auto":
            task: Task = self.task
            return task
        seen: Task = getattr(self, "_seen_task", "classification")
        return self._implied_task or seen

    def inspect_target(self, y: Vector) -> None:
        """Learn whether the target is classes, and which."""
        if isinstance(y, GroupedTarget) and not self.validates:
            raise BadParameter(
                f"groups are for cross-validation, which {type(self).__name__} does not use; leave them out"
            )
        target = getattr(y, "target", y)
        if len(target.shape) == 2 and target.shape[1] != 1:
            raise BadParameter(f"target {target.address}: {target.shape[1]} columns; {type(self).__name__} takes one")
        self._seen_task = self._guess(target)
        super().inspect_target(y)

    def _guess(self, y: Vector) -> Task:
        if y.dtype.kind in "Ub":
            return "classification"
        if self.task != "auto" or self._implied_task is not None:
            return self.target_task
        check_target(y)
        try:
            classes = classes_of(y)
        except BadParameter:
            return "regression"
        return "classification" if len(classes) <= MAX_AUTO_CLASSES else "regression"

    def _start_stream(self, target: Vector | None, classes: Any) -> None:
        if classes is not None and self.task == "auto":
            self._seen_task = "classification"
        super()._start_stream(target, classes)
