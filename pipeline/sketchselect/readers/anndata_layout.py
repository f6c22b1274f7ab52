"""The layout of AnnData and MuData in a store: sparse matrices, columns of data frames, and the names of both axes.

A store that may hold it implements `StoredNode`, and `stored.StoredArray` for its arrays: Zarr and HDF5 do.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np

from sketchselect._text import did_you_mean
from sketchselect.errors import SourceError
from sketchselect.linalg.validation import Array
from sketchselect.location import Location
from sketchselect.readers.base import MissingPolicy, Nonfinite, Vector, as_names, require_matrix
from sketchselect.readers.stored import StoredArray, StoredSparseMatrix, StoredVector

ANNDATA, MUDATA = "anndata", "MuData"
"""Encodings of the root of a store: of one AnnData, and of several."""

SPARSE = ("csr_matrix", "csc_matrix")
"""Encodings of the groups that hold a sparse matrix."""

COLUMNS = {"categorical": ("codes", "categories")} | dict.fromkeys(
    ("nullable-string-array", "nullable-integer", "nullable-boolean"), ("values", "mask")
)
"""Encodings of the columns of a data frame that are groups, and the two arrays in each."""


class StoredNode(Protocol):
    """An array or a group in a store."""

    @property
    def location(self) -> Location:
        """The file, or the folder of the node."""

    @property
    def address(self) -> str:
        """Path or URL of the node for messages."""

    @property
    def kind(self) -> Literal["array", "group", "table"]:
        """A table is an array of records."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Those of AnnData among the attributes, as texts, numbers and lists."""

    def child(self, key: str) -> Self | None:
        """Return the node at `key` below this one, or None; raise `SourceError` for a link out of the store."""

    def array(self, missing_chunks: MissingPolicy = "fill", *, scanned: bool = False) -> StoredArray:
        """Return this array, with its chunks listed and checked where it is to be `scanned`.

        Raises `SourceError` if its values are neither numbers nor text, or in another file.
        """


def encoding(node: StoredNode) -> str:
    """Return the type that AnnData gave a node; "" of other nodes."""
    value = node.attributes.get("encoding-type")
    return value if isinstance(value, str) else ""


def modalities(root: StoredNode) -> list[str] | None:
    """Return the names of the modalities of MuData; None of other stores."""
    if encoding(root) != MUDATA:
        return None
    group = root.child("mod")
    order = group.attributes.get("mod-order") if group is not None else None
    return order if isinstance(order, list) else []


def modality_key(names: Sequence[str], key: str | None, address: str) -> tuple[str, str]:
    """Return the modality of MuData that a key begins with, and the key of the matrix in it.

    `names`: All modalities.
    `key`: "rna" or "rna/layers/counts", also with "mod/" before it; None for the only modality.
    Raises `SourceError` if it names no modality.
    """
    there = f"its modalities are: {', '.join(names) or 'none'}"
    if key is None and len(names) != 1:
        raise SourceError(f"{address}: choose a modality with key= (or --key); {there}")
    words = (names[0] if key is None else key.strip("/").removeprefix("mod/")).split("/")
    for n in range(len(words), 0, -1):
        if (name := "/".join(words[:n])) in names:
            return name, "/".join(words[n:]) or "X"
    raise SourceError(f"{address}: no modality {key!r:.80}{did_you_mean(words[0], names, f'; {there}')}")


def in_modality(root: StoredNode, key: str | None) -> str | None:
    """Return the key of a matrix from the root of a store: of MuData that in its modality, else `key`."""
    names = modalities(root)
    return key if names is None else "mod/{}/{}".format(*modality_key(names, key, root.address))


def columns_of_rows(root: StoredNode, key: str | None) -> list[str]:
    """Return the columns of the data frame of a matrix's rows, as `open_vector` takes them: ``obs/NAME``."""
    names = modalities(root)
    path = "obs" if names is None else f"mod/{modality_key(names, key, root.address)[0]}/obs"
    frame = root.child(path)
    return [] if frame is None else [f"{path}/{name}" for name in frame.attributes.get("column-order", ())]


def open_sparse(node: StoredNode, missing_chunks: MissingPolicy, nonfinite: Nonfinite) -> StoredSparseMatrix:
    """Open and check the CSR matrix of a group, names aside.

    Raises `SourceError` if it is stored by column, a part is missing, or the parts do not fit together.
    """
    address = node.address
    if encoding(node) == "csc_matrix":
        raise SourceError(
            f"{address}: stored by column (csc_matrix), so runs of rows cannot be read from it; write it by row, "
            "adata.X = adata.X.tocsr()"
        )
    shape = node.attributes.get("shape")
    if not (isinstance(shape, list) and len(shape) == 2 and all(isinstance(n, int) and n >= 0 for n in shape)):
        raise SourceError(f"{address}: the group has no attribute shape; write it again")
    arrays = []
    for name in ("data", "indices", "indptr"):
        part = node.child(name)
        if part is None or part.kind != "array":
            raise SourceError(f"{address}: a CSR group without its array {name!r}; write it again")
        array = part.array(missing_chunks, scanned=True)
        kinds, numbers = ("fiub", "numbers") if name == "data" else ("iu", "whole numbers")
        if len(array.shape) != 1 or array.dtype.kind not in kinds:
            raise SourceError(
                f"{address}: array {name!r} must be one-dimensional and of {numbers}, it has shape {array.shape} and "
                f"type {array.dtype}; write it again"
            )
        arrays.append(array)
    data, indices, indptr = arrays
    n_rows, n_columns = shape
    require_matrix((n_rows, n_columns), data.dtype, address)
    if indptr.shape[0] < n_rows + 1:
        raise SourceError(
            f"{address}: not a valid CSR matrix: indptr has {indptr.shape[0]} entries for {n_rows} rows; restore it or "
            "write it again"
        )
    matrix = StoredSparseMatrix(node.location, (n_rows, n_columns), data, indices, indptr, None, None, nonfinite)
    _ = matrix.entry_offsets  # damaged row ends are an error now, not in the first task
    return matrix


def vector_of(node: StoredNode, missing_chunks: MissingPolicy = "fill", *, scanned: bool = False) -> Vector | None:
    """Return the vector of an array, or of a group that is a column of AnnData; None of other nodes."""
    if node.kind == "array":
        codes = StoredVector(node.array(missing_chunks, scanned=scanned))
        names = getattr(node, "categories", None)
        return codes if names is None else CategoricalVector(codes, StoredVector(names.array()), node.address)
    kind = encoding(node)
    if kind not in COLUMNS:
        return None
    parts = []
    for name in COLUMNS[kind]:
        part = node.child(name)
        if part is None or part.kind != "array":
            raise SourceError(f"{node.address}: this column lacks its array {name!r}; write it again")
        # AnnData writes no chunks of a mask that is false throughout.
        parts.append(StoredVector(part.array("fill" if name == "mask" else missing_chunks, scanned=scanned)))
    first, second = parts
    return (CategoricalVector if kind == "categorical" else NullableVector)(first, second, node.address)


@dataclass(eq=False)
class PairVector(Vector):
    """Base of entries in two arrays of a group."""

    # first, second: The arrays
    first: StoredVector
    second: StoredVector
    group: str  # Address of the group

    def __post_init__(self) -> None:
        self.shape, self.address = self.first.shape, self.group
        self.dtype = self.read(0, 0).dtype

    def identity(self) -> str | None:
        """Return a fingerprint of both arrays."""
        identities = self.first.identity(), self.second.identity()
        return None if None in identities else "/".join(map(str, identities))


class CategoricalVector(PairVector):
    """Entries that AnnData stores as codes of categories; an entry without a category is "nan"."""

    def _entries(self, start: int, stop: int) -> Array:
        codes = self.first.read(start, stop)
        names = self.second.read(0, self.second.n_rows)
        if codes.size and not (int(codes.min()) >= -1 and int(codes.max()) < names.shape[0]):
            raise SourceError(f"{self.address}: a code is outside the {names.shape[0]} categories; write it again")
        if names.dtype.kind == "U":
            return np.append(names, "nan")[codes]
        return np.append(names.astype(np.float64), np.nan)[codes]


class NullableVector(PairVector):
    """Entries that AnnData stores with a mask; masked ones are "nan", or NaN in numbers, which are then floats."""

    def _entries(self, start: int, stop: int) -> Array:
        values, mask = self.first.read(start, stop), self.second.read(start, stop)
        if values.dtype.kind == "U":
            return np.where(mask, "nan", values) if mask.any() else values
        # All runs of entries have one type, whichever of them are masked.
        return np.where(mask, np.nan, values) if self.second.read(0, self.n_rows).any() else values


def axis_names(
    root: StoredNode, path: Sequence[str], shape: tuple[int, ...]
) -> tuple[tuple[str, ...] | None, Vector | None]:
    """Return the names of the columns of a matrix, and the vector of those of its rows; None where there are none.

    `root`: The AnnData around it.
    `path`: Where the matrix is in it: ``X``, ``layers``, ``raw``, or ``obsm``, whose columns have no names.
    """
    in_place = list(path) == ["X"] or path[0] == "layers"
    columns = _index(root, "raw/var" if path[0] == "raw" else "var" if in_place else None)
    index = _index(root, "obs" if in_place or path[0] in ("raw", "obsm") else None)
    rows = None if index is None else vector_of(index)
    if rows is not None and index is not None:
        name = index.address.rpartition("/")[2]
        rows.name = None if name in ("_index", "index") else name
    return texts_of(columns, shape[1]), rows if rows is not None and rows.shape == shape[:1] else None


def _index(root: StoredNode, axis: str | None) -> StoredNode | None:
    """Return the index of a data frame: an array, or since anndata 0.13 a group."""
    frame = root.child(axis) if axis is not None else None
    name = frame.attributes.get("_index", "_index") if frame is not None and frame.kind == "group" else None
    return frame.child(name) if frame is not None and isinstance(name, str) else None


def texts_of(node: StoredNode | None, n: int) -> tuple[str, ...] | None:
    """Return the entries of a node as texts, or None where these are not `n`, or cannot be read."""
    if node is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr warns about text types that it may store in another way one day
            vector = vector_of(node)
            return as_names(map(str, vector.read(0, n)), n) if vector is not None and vector.shape == (n,) else None
    except SourceError:
        return None  # a run can do without names
