"""Matrices and vectors in Zarr stores, v2 and v3, local and remote: which node a key means, opened and checked."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from sketchselect._text import counted, did_you_mean, first_few
from sketchselect.errors import SourceError
from sketchselect.location import Location, locate, status_of
from sketchselect.readers.anndata_layout import (
    ANNDATA,
    COLUMNS,
    MUDATA,
    SPARSE,
    axis_names,
    columns_of_rows,
    encoding,
    in_modality,
    open_sparse,
    texts_of,
    vector_of,
)
from sketchselect.readers.base import Matrix, MissingPolicy, Nonfinite, Vector, as_names, require_matrix
from sketchselect.readers.stored import StoredMatrix
from sketchselect.readers.zarr.array import ZarrArray, scan
from sketchselect.readers.zarr.metadata import MARKER, ArrayMetadata, parse_metadata, read_document

ATTRIBUTE = "feature_names"
"""Attribute with the names of the columns."""

_DEEPEST = 4


@dataclass(frozen=True)
class ZarrNode:
    """An array or a group, as its metadata document describes it; see `StoredNode`."""

    location: Location  # The folder that holds the document
    kind: Literal["array", "group"]
    document: dict[str, Any]  # See `read_document`
    top: str = ""  # Real path of the local store that it was read from; no link below leads out of it

    @property
    def address(self) -> str:
        """Path or URL for messages."""
        return self.location.address

    @property
    def attributes(self) -> dict[str, Any]:
        """The user's attributes."""
        return self.document.get("attributes") or {}

    def child(self, key: str) -> ZarrNode | None:
        """Return the node at `key` below this one, or None."""
        return read_node(self.location.join(key), self.top)

    def array(self, missing_chunks: MissingPolicy = "fill", *, scanned: bool = False) -> ZarrArray:
        """Return the array as an address, with the notes of `scan` where it is `scanned`."""
        source = ZarrArray.of(self.location, self.document, missing_chunks)
        metadata = source.metadata
        if metadata.dtype is None and not _is_text(metadata.type_name):
            raise SourceError(f"{self.address}: values of type {metadata.type_name} are neither numbers nor text")
        metadata.check_limits(self.address)
        if scanned:
            notes, missing_share = scan(source, self.attributes)
            return replace(source, notes=notes, missing_share=missing_share)
        if self.location.is_local:
            for _ in source.files():
                pass  # raises for links that lead out of the array
        return source


def read_node(location: Location, top: str = "") -> ZarrNode | None:
    """Return the node at `location`, or None; see `read_document`."""
    if location.is_local and not top:
        top = os.path.realpath(location.url)
    document = read_document(location, top)
    return None if document is None else ZarrNode(location, *document, top)


def _text_files(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith((".csv", ".tsv", ".csv.gz", ".tsv.gz")))


def find_node(root: ZarrNode | None, location: Location, key: str | None, groups: Collection[str]) -> ZarrNode:
    """Return the array at `key` below `root` (or `root` itself), or a group of an encoding that is one of `groups`.

    Raises `SourceError` if there is neither; the message says what is at `location` instead.
    """
    if root is None:
        if location.is_local:
            location.existing_version()
        if (missing := location.missing_bucket() or location.page_instead("zarr.json")) is not None:
            raise missing
        if location.is_local and os.path.isdir(location.url) and (texts := _text_files(location.url)):
            raise SourceError(
                f"{location.address}: a folder of {counted(len(texts), 'text file')}, such as {texts[0]!r:.80}; write "
                "each as Parquet into one folder, by pandas.read_csv(...).to_parquet(...), and give that folder"
            )
        if location.is_local and not os.path.isdir(location.url):
            what = "and no format is known by this ending; write it as .parquet, .npy or .csv"
        else:
            what = "nor a Parquet file; give a file such as .parquet or .npy, or a Zarr store"
        raise SourceError(f"{location.address}: not a Zarr array: there is no zarr.json, .zarray or .zgroup, {what}")
    node = root
    if key is not None:
        if root.kind == "array":
            raise SourceError(
                f"{location.address}: this is an array, not a group, so it has no key {key!r:.80}; leave key out"
            )
        below = root.child(key)
        if below is None:
            arrays = list_arrays(root)
            hint = did_you_mean(key, arrays, f"; arrays there: {_listed(arrays) or 'none'}")
            raise SourceError(f"{location.address}: no array {key!r:.80} in this group{hint}")
        node = below
    if node.kind == "array" or encoding(node) in groups:
        return node
    arrays = list_arrays(root)
    if key is not None:
        arrays = {name: text for name, text in arrays.items() if name.startswith(f"{key.strip('/')}/")}
    raise SourceError(
        f"{node.location.address}: this is a group, not an array; choose one with key= (or --key): {_listed(arrays)}"
        if arrays
        else f"{node.location.address}: this is a Zarr group without arrays in it"
    )


def list_arrays(group: ZarrNode) -> dict[str, str]:
    """Return the keys of the arrays in a group, each with a description such as ``"100 x 5 float32"``.

    Of a web server's group they are known by consolidated metadata alone.
    """
    arrays = {}
    if group.location.has_listing:
        paths = (key.rpartition("/") for key, _, _ in group.location.files())
        folders = [folder for folder, _, name in paths if folder and name in ("zarr.json", ".zarray")]
    else:
        folders = list((group.document.get("consolidated_metadata") or {}).get("metadata", {}))
    for folder in sorted(folders):
        node = group.child(folder)
        if node is not None and node.kind == "array":
            metadata = parse_metadata(node.document, folder)
            arrays[folder] = f"{' x '.join(map(str, metadata.shape))} {metadata.type_name}"
    return arrays


def _listed(arrays: dict[str, str]) -> str:
    return first_few(list(arrays.items()), 12, lambda item: f"{item[0]} ({item[1]})")


def folder_of(source: Any) -> Location | None:
    """Return where an open `zarr.Array` or group is on a local disk; None for an array in another store."""
    from zarr.storage import LocalStore

    store = source.store
    if not isinstance(store, LocalStore):
        if hasattr(source, "shape"):
            return None
        raise SourceError(f"{type(store).__name__}: give an array of this Zarr group")
    location = locate(str(store.root))
    path = getattr(source, "path", "")
    return location.join(path) if path else location


def open_zarr_matrix(
    location: Location, key: str | None, missing_chunks: MissingPolicy, nonfinite: Nonfinite
) -> Matrix:
    """Open, check and scan the array, or the group of a CSR matrix, at `location` (at `key` in it).

    Of a store that AnnData wrote, ``X`` is the default; its names are those of ``var`` and ``obs``.
    """
    root = read_node(location)
    if root is not None:
        key = "X" if key is None and encoding(root) == ANNDATA else in_modality(root, key)
    node = find_node(root, location, key, SPARSE)
    if node.kind == "group":
        matrix: Matrix = open_sparse(node, missing_chunks, nonfinite)
    else:
        metadata = parse_metadata(node.document, node.address)
        require_readable(metadata, node.address)
        source = node.array(missing_chunks, scanned=True)
        source.open(metadata)
        matrix = StoredMatrix(source, None, None, nonfinite)
    matrix.feature_names, matrix.row_names = names_of(node, matrix.shape)
    return matrix


def open_zarr_vector(location: Location, missing_chunks: MissingPolicy) -> Vector:
    """Open, check and scan the vector at `location`: an array, or a group of AnnData.

    Raises `SourceError` if there is neither, or its entries are neither numbers nor text.
    """
    vector = _vector_at(find_node(read_node(location), location, None, COLUMNS), missing_chunks)
    assert vector is not None
    return vector


def _vector_at(node: ZarrNode, missing_chunks: MissingPolicy) -> Vector | None:
    """Return the vector of a node, scanned; None where it is none."""
    vector = vector_of(node, missing_chunks, scanned=True)
    if vector is not None and vector.dtype.kind == "U":
        # Of the text columns with our marker all are from `convert`, which writes none but those of text files.
        vector.holds_fields = node.kind == "array" and MARKER in node.attributes
    return vector


def zarr_vector_beside(matrix: Location, key: str, missing_chunks: MissingPolicy) -> Vector | None:
    """Return the vector `key` in the innermost group with such a node that holds the matrix, near or far; or None."""
    if key.startswith(("/", ".")):
        return None
    place: Location | None = matrix
    while place is not None and (node := read_node(place)) is not None:
        inside = node.child(key) if node.kind == "group" else None
        if inside is not None and (vector := _vector_at(inside, missing_chunks)) is not None:
            return vector
        place = place.parent()
    return None


def zarr_columns_of_rows(location: Location, key: str | None) -> list[str] | None:
    """Return the columns of ``obs`` of a store of AnnData or MuData; None of other stores."""
    root = read_node(location)
    return columns_of_rows(root, key) if root is not None and encoding(root) in (ANNDATA, MUDATA) else None


def require_readable(metadata: ArrayMetadata, address: str) -> None:
    """Raise unless the array is two-dimensional, numeric, not empty and within the limits."""
    dtype = metadata.dtype
    if dtype is None:
        dtype = _stand_in(metadata.type_name)
    require_matrix(metadata.shape, dtype, address, metadata.type_name)
    if metadata.dtype is None:
        raise SourceError(f"{address}: values of type {metadata.type_name} are not read")
    metadata.check_limits(address)


def _stand_in(type_name: str) -> np.dtype[Any]:
    """Return a NumPy type of the same kind as a Zarr type that is refused, for the message of `require_matrix`."""
    for part, dtype in (
        ("complex", "c16"),
        ("datetime", "M8[ns]"),
        ("timedelta", "m8[ns]"),
        ("string", "U1"),
        ("utf", "U1"),
        ("bytes", "S1"),
        ("struct", "O"),
    ):
        if part in type_name:
            return np.dtype(dtype)
    try:
        return np.dtype(type_name)
    except TypeError:
        return np.dtype(object)


def names_of(node: ZarrNode, shape: tuple[int, ...]) -> tuple[tuple[str, ...] | None, Vector | None]:
    """Return the names of the columns of a matrix, and the vector of the names of its rows; None where there are none.

    Columns, in this order: the attribute ``feature_names``; a one-dimensional array in its group that has the name
    of its second dimension (``dimension_names`` in v3, xarray's ``_ARRAY_DIMENSIONS`` in v2); ``var`` of the AnnData
    store around it. Rows: ``obs`` of that store.
    """
    columns, rows = None, None
    if (around := _anndata_around(node)) is not None:
        columns, rows = axis_names(*around, shape)
    own = as_names(node.attributes.get(ATTRIBUTE), shape[1])
    return own or texts_of(_coordinate(node), shape[1]) or columns, rows


def _coordinate(node: ZarrNode) -> ZarrNode | None:
    """Return the array that has the name of the second dimension."""
    dimensions: Any = node.document.get("dimension_names") or node.attributes.get("_ARRAY_DIMENSIONS") or ()
    parent = node.location.parent()
    if len(dimensions) != 2 or not isinstance(dimensions[1], str) or parent is None:
        return None
    try:
        return read_node(parent.join(dimensions[1]), os.path.realpath(parent.url) if parent.is_local else "")
    except SourceError:
        return None


def _anndata_around(node: ZarrNode) -> tuple[ZarrNode, list[str]] | None:
    """Return the AnnData store that holds a matrix, and the path of the matrix in it."""
    above = node.location.parent()
    for _ in range(_DEEPEST):
        try:
            root = read_node(above) if above is not None else None
        except SourceError as error:
            if status_of(error) not in (401, 403):  # what is above the store may be closed
                raise
            return None
        if above is None or root is None:
            return None
        if root.kind == "group" and encoding(root) == ANNDATA:
            return root, node.location.url.removeprefix(above.url).strip("/").split("/")
        above = above.parent()
    return None


def _is_text(type_name: str) -> bool:
    # "object" is how Zarr v2 stores text of variable length; other objects are refused when they are read.
    return type_name in ("string", "object") or "utf" in type_name or type_name.startswith(("<U", "|S", ">U"))
