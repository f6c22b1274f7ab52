"""X of scikit-learn estimators: opened, and compared in width and names with the X of `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from sketchselect.errors import BadParameter
from sketchselect.readers.arrays import is_pandas, require_numbers, without_columns
from sketchselect.readers.base import Matrix, Nonfinite
from sketchselect.readers.opening import local_names, open_matrix


def open_features(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    nonfinite: Nonfinite = "error",
    vectors: Sequence[Any] = (),
    **checks: Any,
) -> Matrix:
    """Open what a user gave an estimator as X.

    Arrays, sequences, SciPy sparse matrices and pandas data frames get scikit-learn's checks and messages; everything
    else goes to `open_matrix`.

    `estimator`: Gets ``n_features_in_`` and ``feature_names_in_`` with `reset`.
    `X`: The rows.
    `reset`: Whether this is the first X; otherwise it must have the width of that, and its names where both have some.
    `nonfinite`, "error", "drop_rows", "missing": Policy for NaN and infinity.
    `vectors`: Targets and weights of the same rows, as in `open_matrix`.
    `**checks`: For `sklearn.utils.validation.validate_data`.

    Raises `BadParameter` if width or names are others than in `fit`, naming the first such column, or `SourceError` if
    X cannot be opened.
    """
    if is_array_like(X):
        rows, beside = X, dict[str, Any]()
        if is_pandas(X):
            rows, beside = without_columns(X, local_names(vectors))
            require_numbers(rows)
        values = validate_data(estimator, rows, reset=reset, accept_sparse="csr", **checks)
        matrix = open_matrix(values, nonfinite=nonfinite)
        matrix.columns_beside = beside
        return matrix
    matrix = open_matrix(X, nonfinite=nonfinite, vectors=vectors)
    name = type(estimator).__name__
    if reset:
        estimator.n_features_in_ = matrix.shape[1]
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
        if matrix.feature_names is not None:
            estimator.feature_names_in_ = np.array(matrix.feature_names, dtype=object)
        return matrix
    require_width(estimator, matrix.shape[1])
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is not None and matrix.feature_names is not None:
        for j, (mine, first) in enumerate(zip(matrix.feature_names, fitted, strict=True)):
            if mine != first:
                raise BadParameter(
                    f"{matrix.address}: column {j} is named {mine!r:.80}, but {first!r:.80} when {name} was fitted; "
                    "bring the columns into that order"
                )
    return matrix


def require_width(estimator: Any, n_columns: int) -> None:
    """Raise `BadParameter`, in scikit-learn's words, if X has another number of columns than in `fit`."""
    if n_columns != estimator.n_features_in_:
        raise BadParameter(
            f"X has {n_columns} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
            "features as input"
        )


def is_array_like(X: Any) -> bool:
    """Return whether scikit-learn checks X: arrays, sequences, SciPy sparse matrices and pandas data frames."""
    if isinstance(X, (str, bytes)):
        return False
    kind = type(X)
    if isinstance(X, (np.ndarray, Sequence)) or issparse(X):
        return True
    if hasattr(kind, "__dask_graph__") or kind.__module__.partition(".")[0] in ("anndata", "xarray", "zarr"):
        return False
    # Other data frames go to `open_matrix`, also those that are arrays to NumPy.
    return is_pandas(X) or (hasattr(kind, "__array__") and not hasattr(kind, "columns"))
