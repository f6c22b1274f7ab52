"""Names of the rows and columns of a matrix in a Zarr store: attributes, coordinates, and the axes of AnnData."""

from __future__ import annotations

import warnings
from typing import Any

from sketchselect.errors import SourceError
from sketchselect.readers.checks import as_names
from sketchselect.readers.columns import COLUMNS
from sketchselect.readers.vector import Vector
from sketchselect.readers.zarr.node import Node, read_node
from sketchselect.readers.zarr.vector import node_vector

ATTRIBUTE = "feature_names"

_DEEPEST = 4


def names_of(node: Node, shape: tuple[int, ...]) -> tuple[tuple[str, ...] | None, Vector | None]:
    """Return the names of the columns of a matrix, and the vector of the names of its rows; None where there are none.

    Columns, in this order: the attribute ``feature_names``; a one-dimensional array beside the matrix that has the name
    of its second dimension (``dimension_names`` in v3, xarray's ``_ARRAY_DIMENSIONS`` in v2); ``var`` of the AnnData
    store around it. Rows: ``obs`` of that store.
    """
    n_rows, n_columns = shape
    store = _anndata_around(node)
    columns = as_names(node.attributes.get(ATTRIBUTE), n_columns)
    if columns is None:
        columns = _texts(_coordinate(node), n_columns) or _texts(_axis(store, "var"), n_columns)
    rows = None
    index = _axis(store, "obs")
    if index is not None:
        vector = node_vector(index, "fill")
        rows = vector if vector.shape == (n_rows,) else None
    return columns, rows


def _coordinate(node: Node) -> Node | None:
    """Return the array that has the name of the second dimension."""
    dimensions: Any = node.document.get("dimension_names") or node.attributes.get("_ARRAY_DIMENSIONS") or ()
    parent = node.location.parent()
    if len(dimensions) != 2 or not isinstance(dimensions[1], str) or parent is None:
        return None
    try:
        return read_node(parent.join(dimensions[1]))
    except SourceError:
        return None


def _anndata_around(node: Node) -> Node | None:
    """Return the AnnData store that holds a matrix with its rows and columns: ``X``, or one of ``layers``."""
    above = node.location.parent()
    for _ in range(_DEEPEST):
        root = read_node(above) if above is not None else None
        if above is None or root is None:
            return None
        if root.kind == "group" and root.encoding == "anndata":
            inside = node.location.url.removeprefix(above.url).strip("/").split("/")
            return root if inside == ["X"] or (len(inside) == 2 and inside[0] == "layers") else None
        above = above.parent()
    return None


def _axis(store: Node | None, axis: str) -> Node | None:
    """Return the index of "obs" or "var" of an AnnData store: an array, or since anndata 0.13 a group."""
    frame = store.child(axis) if store is not None else None
    if frame is None or frame.kind != "group":
        return None
    name = frame.attributes.get("_index", "_index")
    node = frame.child(name) if isinstance(name, str) else None
    return node if node is not None and (node.kind == "array" or node.encoding in COLUMNS) else None


def _texts(node: Node | None, n: int) -> tuple[str, ...] | None:
    """Return the entries of a node as texts, or None where these are not `n`."""
    if node is None or (node.kind == "group" and node.encoding not in COLUMNS):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr warns about text types that it may store in another way one day
            vector = node_vector(node, "fill")
            return tuple(map(str, vector.read(0, n).tolist())) if vector.shape == (n,) else None
    except SourceError:
        return None  # a run can do without names
