"""Data frames as matrices: pandas, and those that narwhals knows (polars, pyarrow, modin)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.readers.arrays.numpy_scipy import ArrayMatrix
from sketchselect.readers.checks import ALLOWED, Nonfinite, as_names

_ADDRESS = "data frame"


def is_pandas(source: Any) -> bool:
    """Return whether this is a data frame of pandas, or of a library with its methods."""
    return all(hasattr(type(source), name) for name in ("iloc", "dtypes", "columns"))


def frame_matrix(source: Any, nonfinite: Nonfinite) -> ArrayMatrix | None:
    """Return the matrix of a data frame with its names: all columns numeric, missing values as NaN.

    Returns None for an object that is no data frame.
    Raises `SourceError` if a column is not numeric, or the frame is lazy.
    """
    if is_pandas(source):
        return _pandas_matrix(source, nonfinite)
    if isinstance(source, (np.ndarray, list, tuple)):
        return None
    frame = _narwhals_frame(source)
    return None if frame is None else _narwhals_matrix(frame, nonfinite)


def without_columns(source: Any, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Return a data frame without the columns of these names, and those columns; another object as it is."""
    if not names:
        return source, {}
    if is_pandas(source):
        there = [name for name in names if list(source.columns).count(name) == 1]
        return (source.drop(columns=there) if there else source), {name: source[name] for name in there}
    frame = None if isinstance(source, (np.ndarray, list, tuple)) else _narwhals_frame(source)
    if frame is None or not (there := [name for name in names if name in frame.columns]):
        return source, {}
    return frame.drop(there).to_native(), {name: frame[name].to_native() for name in there}


def _narwhals_frame(source: Any) -> Any | None:
    """Return a data frame as narwhals has it; None for every other object.

    Raises `SourceError` if the frame is lazy, or two columns have one name.
    """
    import narwhals
    import narwhals.exceptions

    try:
        frame = narwhals.from_native(source, pass_through=True)
    except narwhals.exceptions.DuplicateError:
        _require_distinct(source.column_names)
        raise
    if isinstance(frame, narwhals.LazyFrame):
        raise SourceError(f"lazy {_ADDRESS} of type {type(source).__name__}: compute it first, e.g. with .collect()")
    return frame if isinstance(frame, narwhals.DataFrame) else None


def _pandas_matrix(source: Any, nonfinite: Nonfinite) -> ArrayMatrix:
    dtypes = []
    extension = False
    for name, dtype in zip(source.columns, source.dtypes, strict=True):
        if getattr(dtype, "kind", "O") not in "fiub":
            raise not_numeric(name, dtype)
        extension |= not isinstance(dtype, np.dtype)
        dtypes.append(dtype if isinstance(dtype, np.dtype) else np.dtype(np.float64))
    target = np.dtype(np.float64) if extension or not dtypes else np.result_type(*dtypes)
    values = source.to_numpy(dtype=target, na_value=np.nan) if extension else source.to_numpy(dtype=target)
    return ArrayMatrix(values, as_names(source.columns, source.shape[1]), nonfinite, _ADDRESS)


def _narwhals_matrix(frame: Any, nonfinite: Nonfinite) -> ArrayMatrix:
    import narwhals

    columns = []
    # pyarrow has the index of a data frame of pandas among the columns; in a Parquet file it is no feature either.
    metadata = getattr(getattr(frame.to_native(), "schema", None), "pandas_metadata", None) or {}
    names = [name for name in frame.columns if name not in metadata.get("index_columns", ())]
    for name in names:
        column = frame[name]
        if column.null_count() and (column.dtype.is_integer() or column.dtype == narwhals.Boolean):
            column = column.cast(narwhals.Float64)
        values = column.to_numpy()
        if values.dtype.kind not in "fiub":
            raise not_numeric(name, column.dtype)
        columns.append(values)
    out = np.empty((frame.shape[0], len(names)), np.result_type(*columns) if columns else np.float64)
    for j, values in enumerate(columns):
        out[:, j] = values
    return ArrayMatrix(out, as_names(names, len(names)), nonfinite, _ADDRESS)


def require_numbers(frame: Any) -> None:
    """Raise the error of the first column of a data frame of pandas that has another's name, or holds no numbers."""
    _require_distinct(frame.columns)
    for place, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
        kind = getattr(dtype, "kind", "O")
        if kind in "mM":
            raise not_numeric(name, dtype)
        if kind == "O":
            try:
                frame.iloc[:, place].to_numpy(dtype=float, na_value=np.nan)
            except (TypeError, ValueError):
                raise not_numeric(name, dtype) from None


def _require_distinct(names: Iterable[Any]) -> None:
    """Raise `SourceError` if two columns have one name: what is selected would be ambiguous."""
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise SourceError(f"{_ADDRESS}: {count} columns are named {name!r:.80}; give each a name of its own")


def not_numeric(name: Any, dtype: Any) -> SourceError:
    """Return the error of a column that holds no numbers."""
    return SourceError(
        f"data frame: column {name!r:.80} is of type {dtype}; allowed are {ALLOWED}: "
        "leave it out or encode it as numbers"
    )
