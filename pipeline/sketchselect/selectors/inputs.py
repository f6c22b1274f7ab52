"""Inputs of selectors: which of them scikit-learn checks, and the names of the columns of a stream."""

from __future__ import annotations

from typing import Any

from sketchselect.errors import Incompatible
from sketchselect.readers import Matrix


def require_names(seen: tuple[str, ...] | None, matrix: Matrix) -> None:
    """Raise `Incompatible`, naming the column, if a batch's columns have other names than those of the stream."""
    names = matrix.feature_names
    if seen is None or names is None or seen == names:
        return
    j = next(i for i, (a, b) in enumerate(zip(seen, names, strict=True)) if a != b)
    raise Incompatible(
        f"{matrix.address}: column {j} is named {names[j]!r}, but {seen[j]!r} in the rows seen so far; bring the "
        "columns into the same order"
    )


def is_array_like(X: Any) -> bool:
    """Return whether scikit-learn should check X first: arrays, sparse matrices, lists and data frames in memory."""
    if isinstance(X, (str, bytes, Matrix)) or hasattr(X, "__fspath__") or hasattr(X, "__dask_graph__"):
        return False
    return not (hasattr(X, "store") and hasattr(X, "chunks"))
