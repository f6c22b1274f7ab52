"""Vectors in Zarr stores: arrays, and the columns of data frames that AnnData writes as groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.linalg.arrays import Array, canonical
from sketchselect.location import Location
from sketchselect.readers.cache import PARTS
from sketchselect.readers.checks import MissingPolicy, as_entries, check_range
from sketchselect.readers.vector import Vector
from sketchselect.readers.zarr.array import ZarrArray
from sketchselect.readers.zarr.node import Node, find_node, read_node
from sketchselect.readers.zarr.scan import scan

WHOLE_NBYTES = 64 << 20
"""Vectors up to this size are read once per process, whatever their chunks."""

_NULLABLE = {"nullable-string-array", "nullable-integer", "nullable-boolean"}
COLUMNS = {"categorical": ("codes", "categories")} | dict.fromkeys(_NULLABLE, ("values", "mask"))
"""How AnnData encodes the columns of a data frame that are groups, and their two arrays."""


@dataclass(eq=False)
class ZarrVector(Vector):
    """Entries in a Zarr array; a small one is read whole, once per process."""

    source: ZarrArray

    def __post_init__(self) -> None:
        self.shape, self.address, self.dtype = self.source.shape, self.source.address, self.source.dtype

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        if start == stop or int(np.prod(self.shape)) * max(8, self.dtype.itemsize) > WHOLE_NBYTES:
            return as_entries(self.source.read(start, stop), self.address)
        content = ("array", self.address, self.identity())
        return PARTS.get(content, lambda: as_entries(self.source.read(0, self.n_rows), self.address))[start:stop]

    def identity(self) -> str | None:
        """Return a fingerprint from the metadata and the chunks' versions."""
        return self.source.identity(0, self.n_rows)


@dataclass(eq=False)
class PairVector(Vector):
    """Base of entries in two arrays of a group."""

    first: ZarrVector
    second: ZarrVector
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

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        codes = self.first.read(start, stop)
        names = self.second.read(0, self.second.n_rows)
        if codes.size and not (int(codes.min()) >= -1 and int(codes.max()) < names.shape[0]):
            raise SourceError(f"{self.address}: a code is outside the {names.shape[0]} categories; write it again")
        if names.dtype.kind == "U":
            return canonical(np.append(names, "nan")[codes])
        return canonical(np.append(names.astype(np.float64), np.nan)[codes])


class NullableVector(PairVector):
    """Entries that AnnData stores beside a mask; masked ones are "nan", or NaN in numbers, which are then floats."""

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        values, mask = self.first.read(start, stop), self.second.read(start, stop)
        if values.dtype.kind == "U":
            return canonical(np.where(mask, "nan", values)) if mask.any() else values
        # All runs of entries have one type, whichever of them are masked.
        return canonical(np.where(mask, np.nan, values)) if self.second.read(0, self.n_rows).any() else values


def open_zarr_vector(location: Location, missing_chunks: MissingPolicy) -> Vector:
    """Open, check and scan the vector at `location`: an array, or a group of AnnData.

    Raises
    ------
    SourceError
        If there is neither, or its entries are neither numbers nor text.
    """
    return node_vector(find_node(read_node(location), location, None, COLUMNS), missing_chunks, scanned=True)


def node_vector(node: Node, missing_chunks: MissingPolicy, scanned: bool = False) -> Vector:
    """Return the vector of an array, or of a group whose encoding is one of `COLUMNS`."""
    if node.kind == "array":
        return _array(node, missing_chunks, scanned)
    first, second = (find_node(node, node.location, key, ()) for key in COLUMNS[node.encoding or ""])
    entries = _array(first, missing_chunks, scanned)
    if node.encoding == "categorical":
        return CategoricalVector(entries, _array(second, missing_chunks, scanned), node.location.address)
    # AnnData writes no chunks of a mask that is false throughout.
    return NullableVector(entries, _array(second, "fill", scanned), node.location.address)


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


def _array(node: Node, missing_chunks: MissingPolicy, scanned: bool) -> ZarrVector:
    array = ZarrArray.of(node, missing_chunks)
    if array.metadata.dtype is None and not _is_text(array.metadata.type_name):
        raise SourceError(f"{array.address}: values of type {array.metadata.type_name} are neither numbers nor text")
    array.metadata.check_limits(array.address)
    if scanned:
        scan(array, node.attributes)
    return ZarrVector(array)


def _is_text(type_name: str) -> bool:
    # "object" is how Zarr v2 stores text of variable length; other objects are refused when they are read.
    return type_name in ("string", "object") or "utf" in type_name or type_name.startswith(("<U", "|S", ">U"))
