"""Arrays in memory with names: AnnData objects and xarray arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.readers.arrays.numpy_scipy import ArrayVector
from sketchselect.readers.checks import as_names
from sketchselect.readers.vector import Vector


def is_anndata(source: Any) -> bool:
    """Return whether this is an AnnData object."""
    return type(source).__module__.partition(".")[0] == "anndata" and hasattr(source, "obs_names")


def anndata_matrix(source: Any, key: str | None) -> tuple[Any, tuple[str, ...] | None, Vector | None]:
    """Return ``X``, or the layer `key`, of an AnnData object, and the names of its columns and rows.

    Raises
    ------
    SourceError
        If there is no such matrix, or it is on disk only: a store is opened by its path.
    """
    layer = None if key is None or key == "X" else key.removeprefix("layers/")
    # Since anndata 0.13 X is among the layers too, without a name.
    layers = [name for name in source.layers if name is not None]
    if layer is not None and layer not in layers:
        raise SourceError(f"AnnData: no layer {layer!r:.80}; there are: {', '.join(layers) or 'none'}")
    values = source.X if layer is None else source.layers[layer]
    if values is None:
        raise SourceError("AnnData: X is empty; name a layer with key=")
    if source.isbacked:
        raise SourceError("AnnData: this object is backed by a file; give the path of a Zarr store of it instead")
    rows = as_names(source.obs_names, values.shape[0])
    return values, as_names(source.var_names, values.shape[1]), None if rows is None else ArrayVector(np.array(rows))


def is_xarray(source: Any) -> bool:
    """Return whether this is an object of xarray."""
    return type(source).__module__.partition(".")[0] == "xarray"


def unwrapped(source: Any) -> Any:
    """Return the array inside an xarray DataArray, lazy as it is; anything else unchanged."""
    return source.data if is_xarray(source) and hasattr(source, "data") else source


def xarray_matrix(source: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Return the array inside a DataArray, lazy as it is, and the names of its columns: a text coordinate of them.

    Raises
    ------
    SourceError
        For a Dataset, which holds several.
    """
    if not hasattr(source, "data"):
        variables = ", ".join([repr(name) for name in getattr(source, "data_vars", ())][:5]) or "none"
        raise SourceError(
            f"xarray {type(source).__name__}: give one of its variables, ds[NAME]; there are: {variables}"
        )
    names: tuple[str, ...] | None = None
    if source.ndim == 2:
        coordinate = source.coords.get(source.dims[1])
        if coordinate is not None and coordinate.dtype.kind in "UOT":
            names = as_names(map(str, coordinate.values.tolist()), source.shape[1])
    return source.data, names
