"""Arrays in memory with names: AnnData objects and xarray arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchselect._text import did_you_mean
from sketchselect.errors import SourceError
from sketchselect.readers.arrays import ArrayVector
from sketchselect.readers.base import Vector, as_names


def is_anndata(source: Any) -> bool:
    """Return whether this is an AnnData object."""
    return type(source).__module__.partition(".")[0] == "anndata" and hasattr(source, "obs_names")


def is_mudata(source: Any) -> bool:
    """Return whether this is a MuData object."""
    return type(source).__module__.partition(".")[0] == "mudata" and hasattr(source, "mod")


def anndata_matrix(source: Any, key: str | None) -> tuple[Any, tuple[str, ...] | None, Vector | None]:
    """Return ``X``, or the layer `key`, of an AnnData object, and the names of its columns and rows.

    Raises `SourceError` if there is no such matrix.
    """
    layer = None if key is None or key == "X" else key.removeprefix("layers/")
    # Since anndata 0.13 X is among the layers too, without a name.
    layers = [name for name in source.layers if name is not None]
    if layer is not None and layer not in layers:
        raise SourceError(f"AnnData: no layer {layer!r:.80}; there are: {', '.join(layers) or 'none'}")
    values = source.X if layer is None else source.layers[layer]
    if values is None:
        raise SourceError("AnnData: X is empty; name a layer with key=")
    return values, *anndata_names(source)


def anndata_names(source: Any) -> tuple[tuple[str, ...] | None, Vector | None]:
    """Return the names of the columns and of the rows of an AnnData object."""
    rows = as_names(source.obs_names, source.n_obs)
    return as_names(source.var_names, source.n_vars), None if rows is None else ArrayVector(np.array(rows))


def backing_file(source: Any) -> str:
    """Return the path of the file that a backed AnnData object reads from.

    Raises `SourceError` for a view, whose rows or columns are not those of the file.
    """
    if source.is_view:
        raise SourceError("AnnData: this is a view of an object backed by a file; load it first, adata.to_memory()")
    return str(source.filename)


def is_xarray(source: Any) -> bool:
    """Return whether this is an object of xarray."""
    return type(source).__module__.partition(".")[0] == "xarray"


def unwrapped(source: Any) -> Any:
    """Return the array inside an object of xarray, lazy as it is; anything else unchanged."""
    return variable_of(source).data if is_xarray(source) else source


def variable_of(source: Any, key: str | None = None) -> Any:
    """Return a DataArray as it is, of a Dataset the variable `key`, or the only one of two dimensions.

    Raises `SourceError` if that is no single variable; the message lists them.
    """
    if hasattr(source, "data"):
        if key is not None:
            raise SourceError(f"xarray DataArray: it is one matrix, which has no key {key!r:.80}; leave key out")
        return source
    variables = [str(name) for name in getattr(source, "data_vars", ())]
    matrices = [name for name in variables if source[name].ndim == 2]
    name = matrices[0] if key is None and len(matrices) == 1 else key
    if name is not None and name in variables:
        return source[name]
    there = f"there are: {', '.join(map(repr, (matrices or variables)[:5])) or 'none'}"
    if name is not None:
        hint = did_you_mean(name, variables, f"; {there}")
        raise SourceError(f"xarray {type(source).__name__}: no variable {name!r:.80}{hint}")
    raise SourceError(f"xarray {type(source).__name__}: give one of its variables, ds[NAME]; {there}")


def xarray_matrix(source: Any, key: str | None) -> tuple[Any, tuple[str, ...] | None, Vector | None]:
    """Return the array inside, lazy as it is, and the names of its columns and rows: text coordinates of them.

    Raises `SourceError` for a Dataset without the variable `key`, or of several variables where there is no key.
    """
    array = variable_of(source, key)
    if array.ndim != 2:
        return array.data, None, None
    rows, columns = (_coordinate(array, axis) for axis in (0, 1))
    return array.data, columns, None if rows is None else ArrayVector(np.array(rows))


def like_rows(source: Any, values: Any, dimension: str | None = None) -> Any:
    """Return entries that belong to the rows of a source: of xarray as a DataArray with the coordinates of the rows.

    `source`: What the user gave; for anything but xarray `values` come back as they are.
    `values` of shape (n_rows,) or (n_rows, n): NumPy or Dask.
    `dimension`: Name of the second dimension.
    """
    if not is_xarray(source):
        return values
    array = variable_of(source)
    rows = array.dims[0]
    coordinates = {name: entry for name, entry in array.coords.items() if entry.dims in ((), (rows,))}
    dims = (rows,) if dimension is None else (rows, dimension)
    made = type(array)(values, dims=dims, coords=coordinates)
    return made.rename(None)  # xarray names it by the key of a lazy array


def _coordinate(array: Any, axis: int) -> tuple[str, ...] | None:
    coordinate = array.coords.get(array.dims[axis])
    if coordinate is None or coordinate.dtype.kind not in "UOT":
        return None
    return as_names(map(str, coordinate.values.tolist()), array.shape[axis])
