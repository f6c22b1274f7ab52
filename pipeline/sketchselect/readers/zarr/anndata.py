"""The layout that AnnData gives to groups of a Zarr store: what is a matrix there, and where its names are."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.location import Location
from sketchselect.readers.zarr.array import ZarrArray, read_document
from sketchselect.readers.zarr.metadata import parse_metadata

Node = tuple[Location, dict[str, Any]]

_DEEPEST = 4


def encoding(document: dict[str, Any]) -> str | None:
    """Return what AnnData wrote a node as: "anndata", "csr_matrix", "categorical" and so on; None for others."""
    found = (document.get("attributes") or {}).get("encoding-type")
    return found if isinstance(found, str) else None


def find_group(location: Location, key: str | None, wanted: frozenset[str]) -> Node | None:
    """Return the group at `location` (at `key` in it, or ``X`` of AnnData) if it is encoded as one of `wanted`."""
    found = read_document(location)
    if found is None or found[0] != "group":
        return None
    place = location
    if key is None and encoding(found[1]) == "anndata":
        key = "X"
    if key is not None:
        place = location.join(key)
        found = read_document(place)
    return (place, found[1]) if found is not None and found[0] == "group" and encoding(found[1]) in wanted else None


def enclosing(place: Location) -> Location | None:
    """Return the AnnData store that holds a node; None outside of one."""
    above = place.parent()
    for _ in range(_DEEPEST):
        if above is None:
            return None
        found = read_document(above)
        if found is None:
            return None
        if found[0] == "group" and encoding(found[1]) == "anndata":
            return above
        above = above.parent()
    return None


def axis_names(place: Location, axis: str) -> ZarrArray | None:
    """Return the array of the names along "obs" or "var" of the store that holds a matrix; None where there is none.

    Only ``X`` and what is in ``layers`` has these rows and columns.
    """
    root = enclosing(place)
    if root is None:
        return None
    inside = place.url.removeprefix(root.url).strip("/").split("/")
    if inside != ["X"] and not (len(inside) == 2 and inside[0] == "layers"):
        return None
    frame = read_document(root.join(axis))
    if frame is None or frame[0] != "group":
        return None
    index = (frame[1].get("attributes") or {}).get("_index", "_index")
    if not isinstance(index, str):
        return None
    node = read_document(root.join(axis).join(index))
    if node is None or node[0] != "array":
        return None
    where = root.join(axis).join(index)
    return ZarrArray(where, parse_metadata(node[1], where.address), "fill")


def column_names(place: Location, n_columns: int) -> tuple[str, ...] | None:
    """Return the names of the columns of a matrix in an AnnData store, or None."""
    try:
        found = axis_names(place, "var")
        if found is None or found.metadata.shape != (n_columns,):
            return None
        return texts(found)
    except SourceError:
        return None  # names that cannot be read cost the names, not the run


def texts(array: ZarrArray) -> tuple[str, ...]:
    """Return all entries of a one-dimensional array as text."""
    array.metadata.check_limits(array.address)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zarr warns about text types that it may store in another way one day
        values = array.read(0, array.metadata.shape[0])
    return tuple(str(value) for value in np.asarray(values).tolist())
