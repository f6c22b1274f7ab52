"""Targets of supervised selectors: what they must be, and the classes they hold."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from sketchselect.errors import BadParameter, NotFinite
from sketchselect.linalg.arrays import Array
from sketchselect.readers import Vector

Task = Literal["regression", "classification"]
MAX_CLASSES = 1000
"""More than these are a number taken for a class: their summary would not fit either."""

_RUN = 1 << 20


def check_target(y: Vector) -> None:
    """Raise unless the target of a regression is finite numbers; a target that is computed is left to the pass."""
    if y.dtype.kind == "U":
        raise BadParameter(f'target {y.address}: holds text; set task="classification" to take it for classes')
    if y.in_memory and y.dtype.kind == "f":
        _require_finite(y, y.read(0, y.n_rows), 0)


def classes_of(y: Vector) -> tuple[Any, ...]:
    """Return the distinct labels of a target, ascending, as Python values.

    Raises
    ------
    BadParameter
        For a table of targets, or more than 1,000 labels.
    NotFinite
        Naming the first row without a label.
    """
    if len(y.shape) == 2 and y.shape[1] != 1:
        raise BadParameter(f"target {y.address}: has {y.shape[1]} columns; give one label per row for a classification")
    found: Array = np.empty(0, dtype=y.dtype)
    for start in range(0, y.n_rows, _RUN):
        labels = np.ravel(y.read(start, min(start + _RUN, y.n_rows)))
        if labels.dtype.kind == "f":
            _require_finite(y, labels, start)
        found = np.unique(np.concatenate([found.astype(labels.dtype), labels]) if found.size else labels)
        if found.size > MAX_CLASSES:
            raise BadParameter(
                f"target {y.address}: more than {MAX_CLASSES} distinct values, Unknown label type: continuous numbers "
                'are no classes; set task="regression"'
            )
    if found.dtype.kind == "f" and (found != np.round(found)).any():
        raise BadParameter(
            f"target {y.address}: Unknown label type: continuous numbers are no classes; "
            'set task="regression", or give whole numbers or text'
        )
    return tuple(found.tolist())


def given_classes(classes: Any) -> tuple[Any, ...]:
    """Return the classes that the caller of `partial_fit` named, ascending, as Python values."""
    array = np.asarray(classes)
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array.ravel().tolist()):
        array = array.astype(str)
    if array.ndim != 1 or array.dtype.kind not in "fiubU":
        raise BadParameter("classes must be a one-dimensional sequence of labels, all numbers or all text")
    return tuple(np.unique(array).tolist())


def require_several(classes: tuple[Any, ...]) -> None:
    """Raise unless there are two classes at least."""
    if len(classes) < 2:
        raise BadParameter(
            "the target holds one class only; a classification needs two at least (in a stream, name all classes in "
            "the first call: partial_fit(X, y, classes=...))"
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
    """Return labels given as a table of one column as a vector, with scikit-learn's warning."""
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

    tags.target_tags.required = True
    if task == "classification":
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
    else:
        tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        tags.target_tags.multi_output = True
    return tags
