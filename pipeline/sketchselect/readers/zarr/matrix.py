"""A matrix in a Zarr store, v2 or v3, local or remote, and the names of its rows and columns.

CSR matrices in groups of a Zarr store: those that AnnData writes, and `convert`.

Vectors in Zarr stores: arrays, and the columns of data frames that AnnData writes as groups.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.location import Location
from sketchselect.readers.base import (
    Matrix,
    MissingPolicy,
    Nonfinite,
    Vector,
    as_names,
    check_range,
    finish,
    modality_key,
    require_matrix,
)
from sketchselect.readers.stored import COLUMNS, StoredSparseMatrix, StoredVector, column_of
from sketchselect.readers.zarr.array import ZarrArray, checksum_notes, scan
from sketchselect.readers.zarr.store import ArrayMetadata, Node, find_node, parse_metadata, read_node

SPARSE = frozenset(("csr_matrix", "csc_matrix"))
"""Encodings of the groups of AnnData that hold a sparse matrix."""

_PARTS = ("data", "indices", "indptr")


@dataclass(eq=False, repr=False)
class ZarrSparseMatrix(StoredSparseMatrix):
    """A CSR matrix in three Zarr arrays. Made by `open_matrix`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.notes = checksum_notes(self.address, self.data, self.indices)

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        metadata = self.data.metadata
        return super().describe() | {
            "format": f"zarr v{metadata.zarr_format}, CSR",
            "entries": int(self.entry_offsets[-1]),
            "chunks": list(metadata.chunks),
            "checksum": metadata.has_checksum,
            "missing_chunks": self.data.missing_chunks,
        }


def open_zarr_sparse(node: Node, missing_chunks: MissingPolicy, nonfinite: Nonfinite) -> ZarrSparseMatrix:
    """Open, check and scan a CSR group, names aside.

    Raises `SourceError` if it is stored by column, a part is missing, or the parts do not fit together.
    """
    address, attributes = node.location.address, node.attributes
    if node.encoding == "csc_matrix":
        raise SourceError(
            f"{address}: stored by column (csc_matrix), so runs of rows cannot be read from it; write it by row, "
            "adata.X = adata.X.tocsr()"
        )
    shape = attributes.get("shape")
    if not (isinstance(shape, list) and len(shape) == 2 and all(isinstance(n, int) and n >= 0 for n in shape)):
        raise SourceError(f"{address}: the group has no attribute shape; restore its attributes")
    arrays: list[ZarrArray] = []
    notes: list[str] = []
    for name in _PARTS:
        part = node.child(name)
        if part is None or part.kind != "array":
            raise SourceError(f"{address}: a CSR group without its array {name!r}; write it again")
        array = ZarrArray.of(part, missing_chunks)
        metadata = array.metadata
        if len(metadata.shape) != 1 or metadata.dtype is None:
            raise SourceError(
                f"{address}: array {name!r} must be one-dimensional and of numbers, it has shape "
                f"{metadata.shape} and type {metadata.type_name}"
            )
        metadata.check_limits(array.address)
        notes += scan(array, attributes)
        arrays.append(array)
    data, indices, indptr = arrays
    size = (shape[0], shape[1])
    require_matrix(size, data.dtype, address)
    if indptr.metadata.shape[0] < size[0] + 1:
        raise SourceError(
            f"{address}: not a valid CSR matrix: indptr has {indptr.metadata.shape[0]} entries for {size[0]} "
            "rows; restore it or write it again"
        )
    matrix = ZarrSparseMatrix(node.location, size, data, indices, indptr, None, None, nonfinite)
    matrix.notes += tuple(notes)
    _ = matrix.entry_offsets  # damaged row ends are an error now, not in the first task
    return matrix


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


ATTRIBUTE = "feature_names"
"""Attribute with the names of the columns."""

_DEEPEST = 4


@dataclass(eq=False, repr=False)
class ZarrMatrix(Matrix):
    """A two-dimensional Zarr array. Made by `open_matrix`; pickles as an address."""

    source: ZarrArray
    feature_names: tuple[str, ...] | None  # Names of the columns
    nonfinite: Nonfinite  # Policy for NaN and infinity

    def __post_init__(self) -> None:
        metadata = self.source.metadata
        self.shape = (metadata.shape[0], metadata.shape[1])
        self.dtype = self.source.dtype
        self.address = self.source.address
        self.chunk_rows, self.chunk_columns = metadata.chunks
        self.notes = checksum_notes(self.address, self.source)
        self.is_remote = not self.source.location.is_local
        if self.is_remote:
            from sketchselect.readers.zarr.store import RECENT_NBYTES

            self.remembered_nbytes = RECENT_NBYTES

    def read_rows(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop`; see `ZarrArray.read` for the errors."""
        check_range(start, stop, self.shape[0], self.address)
        return finish(self.source.read(start, stop), self.address)

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these rows from the metadata (without the row count) and their chunks' versions."""
        return self.source.identity(start, stop)

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`; only the chunks below them are read."""
        check_range(start, stop, self.shape[1], self.address, "column")
        return finish(self.source.read(start, stop, axis=1), self.address)

    def column_identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these columns; columns appended behind their chunks leave it as it is."""
        return self.source.identity(start, stop, axis=1)

    def stored_nbytes(self, start: int, stop: int) -> int:
        """Return the bytes of these rows as stored, packed where they are."""
        return (stop - start) * self.shape[1] * np.dtype(self.source.metadata.type_name).itemsize

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        metadata = self.source.metadata
        packing = self.source.packing
        packed = {} if packing is None else {"packing": asdict(packing) | {"dtype": metadata.type_name}}
        return (
            super().describe()
            | packed
            | {
                "format": f"zarr v{metadata.zarr_format}",
                "chunks": list(metadata.chunks),
                "shards": list(metadata.grid) if metadata.grid != metadata.chunks else None,
                "checksum": metadata.has_checksum,
                "missing_chunks": self.source.missing_chunks,
            }
        )


def open_zarr_matrix(
    location: Location, key: str | None, missing_chunks: MissingPolicy, nonfinite: Nonfinite
) -> Matrix:
    """Open, check and scan the array, or the group of a CSR matrix, at `location` (at `key` in it).

    Of a store that AnnData wrote, ``X`` is the default; its names are those of ``var`` and ``obs``.
    """
    root = read_node(location)
    if root is not None and root.encoding == "MuData":
        above = root.child("mod")
        order = above.attributes.get("mod-order") if above is not None else None
        key = "mod/{}/{}".format(*modality_key(order if isinstance(order, list) else (), key, location.address))
    elif key is None and root is not None and root.encoding == "anndata":
        key = "X"
    node = find_node(root, location, key, SPARSE)
    if node.kind == "group":
        sparse = open_zarr_sparse(node, missing_chunks, nonfinite)
        sparse.feature_names, sparse.row_names = names_of(node, sparse.shape)
        return sparse
    metadata = parse_metadata(node.document, node.location.address)
    require_readable(metadata, node.location.address)
    source = ZarrArray.of(node, missing_chunks)
    notes = scan(source, node.attributes)
    source.open(metadata)
    names, rows = names_of(node, metadata.shape)
    matrix = ZarrMatrix(source, names, nonfinite)
    matrix.notes += notes
    matrix.row_names = rows
    return matrix


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
        return read_node(parent.join(dimensions[1]), os.path.realpath(parent.url) if parent.is_local else "")
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
