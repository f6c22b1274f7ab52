"""Names of the columns of a Zarr array: its own attribute, or the coordinate of its second dimension."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.location import Location
from sketchselect.readers.checks import as_names
from sketchselect.readers.zarr.array import ZarrArray, read_document
from sketchselect.readers.zarr.metadata import parse_metadata

ATTRIBUTE = "feature_names"


def feature_names(location: Location, document: dict[str, Any], n_columns: int) -> tuple[str, ...] | None:
    """Return the names of the columns, or None.

    Looked for in this order: the attribute ``feature_names``; a one-dimensional array of `n_columns` entries beside the
    array that has the name of its second dimension (``dimension_names`` in v3, xarray's ``_ARRAY_DIMENSIONS`` in v2).
    """
    attributes = document.get("attributes") or {}
    names = as_names(attributes.get(ATTRIBUTE), n_columns)
    if names is not None:
        return names
    dimensions: Any = document.get("dimension_names") or attributes.get("_ARRAY_DIMENSIONS") or ()
    parent = location.parent()
    if len(dimensions) != 2 or not isinstance(dimensions[1], str) or parent is None:
        return None
    try:
        return _coordinate(parent.join(dimensions[1]), n_columns)
    except SourceError:
        return None  # a coordinate that cannot be read costs the names, not the run


def _coordinate(location: Location, n_columns: int) -> tuple[str, ...] | None:
    found = read_document(location)
    if found is None or found[0] != "array":
        return None
    metadata = parse_metadata(found[1], location.address)
    if metadata.shape != (n_columns,):
        return None
    metadata.check_limits(location.address)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns about text types that it may store in another way one day
        values = ZarrArray(location, metadata, "fill").read(0, n_columns)
    return tuple(str(value) for value in np.asarray(values).tolist())
