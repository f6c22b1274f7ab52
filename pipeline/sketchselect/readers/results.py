"""Values computed for the rows of a source, in its own container: Series, DataArray, Dask array or Dask Series."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sketchselect.linalg.validation import Array
from sketchselect.readers.arrays import (
    eager_frame,
    is_anndata,
    is_dask,
    is_dask_frame,
    is_mudata,
    is_pandas,
    is_xarray,
    unwrapped,
    variable_of,
)
from sketchselect.readers.dask import as_dask, as_dask_rows
from sketchselect.readers.opening import local_names


def lazy_rows(source: Any, matrix: Any) -> Any | None:
    """Return the rows of an opened source as a Dask array if the user gave a Dask collection, else None."""
    return matrix.dask_rows() if is_dask(unwrapped(source)) or is_dask_frame(source) else None


def like_rows(
    source: Any,
    values: Any,
    *,
    names: Sequence[Any] | None = None,
    dimension: str | None = None,
    lazy: Any | None = None,
) -> Any:
    """Return values that belong to the rows of a source in the container of the source.

    A data frame of pandas or polars (or their relatives) gives a Series with its index; a Dask data frame a Dask Series
    with its partitions and divisions; a Dask array a Dask array in its chunks; xarray a DataArray with the coordinates
    of the rows; AnnData a Series for ``obs``; everything else the values unchanged. Two-dimensional values of a data
    frame become a data frame if they have names.

    Parameters
    ----------
    source : object
        What the user gave.
    values : array of shape (n_rows,) or (n_rows, n)
        NumPy or Dask.
    names : sequence, optional
        Name of the Series, or of the columns of two-dimensional values. Without names values of a data frame in memory
        stay an array: scikit-learn's meta-estimators reshape what `transform` and `decision_function` return.
    dimension : str, optional
        Name of the second dimension in xarray.
    lazy : Dask array, optional
        The rows of a lazy source; `values` in memory are cut as they are.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"x": [1.0, 2.0]}, index=["ann", "bob"])
    >>> like_rows(frame, np.array([1, 0]), names=["cluster"]).to_dict()
    {'ann': 1, 'bob': 0}
    >>> like_rows([[1.0], [2.0]], np.array([1, 0]), names=["cluster"])
    array([1, 0])
    """
    if is_dask_frame(source):
        return values if lazy is None else as_dask_rows(source, values, names, lazy.chunks[0])
    if is_anndata(source) or is_mudata(source):
        data = next(iter(source.mod.values())) if is_mudata(source) else source  # of MuData the only modality
        return _frame_like(data.obs, values, names or ((None,) if values.ndim == 1 else None))
    if lazy is not None and isinstance(values, np.ndarray):
        values = as_dask(values, lazy)
    if is_xarray(source):
        return _data_array(variable_of(source), values, names, dimension)
    return _frame_like(source, values, names)


def target_names(y: Any, title: str | None = None) -> tuple[Any, ...] | None:
    """Return the names of the columns of a target; None for bare numbers or labels, such as an array.

    A target in a file, or by the name of a column, has a name of its own: None where that is not known.

    `title`: The name of the column that a text stands for, which may have a slash, as in t/ha.
    """
    if isinstance(y, (str, os.PathLike)):
        names = local_names([y])
        return (title or names[0].rpartition("/")[2],) if names else (None,)
    if y is None or is_dask(y) or isinstance(y, np.ndarray):
        return None
    if hasattr(y, "columns"):
        return tuple(y.columns)
    return (y.name,) if hasattr(y, "name") else None


def doubt_of_target(names: Iterable[Any], features: Iterable[Any], cure: str) -> str | None:
    """Return the warning of a target that was also left among the features; None where no feature has its name.

    `cure`: How to name the column as the target, with ``{name}`` in it.

    Examples
    --------
    >>> doubt_of_target(["y"], ["x", "y"], "fit(X, {name})")
    "target: column 'y' has the target's name and is a feature; if it holds the target, fit(X, 'y'), or leave it out"
    """
    both = next((name for name in names if name is not None and name in set(features)), None)
    if both is None:
        return None
    name = f"{both!r:.80}"
    return (
        f"target: column {name} has the target's name and is a feature; if it holds the target, "
        f"{cure.format(name=name)}, or leave it out"
    )


def _frame_like(source: Any, values: Any, names: Sequence[Any] | None) -> Any:
    """Return values as a Series or data frame of the library of a data frame; as they are if it is none."""
    if names is None or isinstance(source, (np.ndarray, list, tuple)):
        return values
    # No column of pandas is needed, and narwhals would refuse two of one name.
    frame = eager_frame(source.iloc[:, :0] if is_pandas(source) else source)
    if frame is None:
        return values
    import narwhals

    texts = ["" if name is None else str(name) for name in names]
    if values.ndim == 2:
        out = narwhals.from_numpy(values, texts, backend=frame.implementation).to_native()
    else:
        out = narwhals.new_series(texts[0], values, backend=frame.implementation).to_native()
    if is_pandas(source):
        out.index = source.index
        if values.ndim == 1:
            out.name = names[0]
        else:
            out.columns = list(names)
    return out


def _data_array(array: Any, values: Array, names: Sequence[Any] | None, dimension: str | None) -> Any:
    """Return values as a DataArray with the coordinates of the rows of another one."""
    rows = array.dims[0]
    coordinates = {name: entry for name, entry in array.coords.items() if entry.dims in ((), (rows,))}
    dims = (rows,) if dimension is None else (rows, dimension)
    # Without a name xarray takes the key of a lazy array.
    name = names[0] if names is not None and dimension is None else None
    return type(array)(values, dims=dims, coords=coordinates).rename(name)
