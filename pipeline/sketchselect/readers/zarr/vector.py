"""Vectors in Zarr stores: arrays, and the columns of data frames that AnnData writes as groups."""

from __future__ import annotations

from sketchselect.errors import SourceError
from sketchselect.location import Location
from sketchselect.readers.checks import MissingPolicy
from sketchselect.readers.columns import COLUMNS, StoredVector, column_of
from sketchselect.readers.vector import Vector
from sketchselect.readers.zarr.array import ZarrArray
from sketchselect.readers.zarr.node import Node, find_node, read_node
from sketchselect.readers.zarr.scan import scan


def open_zarr_vector(location: Location, missing_chunks: MissingPolicy) -> Vector:
    """Open, check and scan the vector at `location`: an array, or a group of AnnData.

    Raises `SourceError` if there is neither, or its entries are neither numbers nor text.
    """
    return node_vector(find_node(read_node(location), location, None, COLUMNS), missing_chunks, scanned=True)


def node_vector(node: Node, missing_chunks: MissingPolicy, scanned: bool = False) -> Vector:
    """Return the vector of an array, or of a group whose encoding is one of `COLUMNS`."""
    if node.kind == "array":
        return _array(node, missing_chunks, scanned)
    first, second = (find_node(node, node.location, key, ()) for key in COLUMNS[node.encoding or ""])
    entries = _array(first, missing_chunks, scanned)
    # AnnData writes no chunks of a mask that is false throughout.
    policy = missing_chunks if node.encoding == "categorical" else "fill"
    return column_of(node.encoding or "", entries, _array(second, policy, scanned), node.location.address)


def vector_beside(matrix: Location, key: str, missing_chunks: MissingPolicy) -> Vector | None:
    """Return the vector `key` in the innermost group with such a node that holds the matrix, near or far; or None."""
    if key.startswith(("/", ".")):
        return None
    place: Location | None = matrix
    while place is not None:
        node = read_node(place)
        if node is None:
            return None
        inside = node.child(key) if node.kind == "group" else None
        if inside is not None and (inside.kind == "array" or inside.encoding in COLUMNS):
            return node_vector(inside, missing_chunks, scanned=True)
        place = place.parent()
    return None


def _array(node: Node, missing_chunks: MissingPolicy, scanned: bool) -> StoredVector:
    array = ZarrArray.of(node, missing_chunks)
    if array.metadata.dtype is None and not _is_text(array.metadata.type_name):
        raise SourceError(f"{array.address}: values of type {array.metadata.type_name} are neither numbers nor text")
    array.metadata.check_limits(array.address)
    if scanned:
        scan(array, node.attributes)
    elif node.location.is_local:
        for _ in array.files():
            pass  # raises for links that lead out of the array
    return StoredVector(array)


def _is_text(type_name: str) -> bool:
    # "object" is how Zarr v2 stores text of variable length; other objects are refused when they are read.
    return type_name in ("string", "object") or "utf" in type_name or type_name.startswith(("<U", "|S", ">U"))
