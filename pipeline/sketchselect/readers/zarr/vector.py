"""The kinds of `Vector`: in memory, in NumPy files, in Zarr arrays, in Dask arrays."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.linalg.arrays import Array, canonical
from sketchselect.location import Location, locate
from sketchselect.readers.arrays.dask import is_dask, unwrapped
from sketchselect.readers.cache import PARTS
from sketchselect.readers.checks import check_range
from sketchselect.readers.files.npy import NpyArray
from sketchselect.readers.files.npz import Archive
from sketchselect.readers.files.parquet_files import ParquetVector, has_column, is_parquet, open_parquet_vector
from sketchselect.readers.vector import Vector
from sketchselect.readers.zarr.anndata import encoding, find_group
from sketchselect.readers.zarr.array import MissingPolicy, ZarrArray, read_document
from sketchselect.readers.zarr.matrix import find_array
from sketchselect.readers.zarr.metadata import parse_metadata
from sketchselect.readers.zarr.scan import scan

KEPT_WHOLE = 64 << 20
"""Vectors up to this size are read once per process, whatever their chunks."""


class ArrayVector(Vector):
    """Entries in memory."""

    in_memory = True

    def __init__(self, values: Array, address: str = "array") -> None:
        self._values = values
        self._first = 0
        self.shape = values.shape
        self.dtype = values.dtype
        self.address = address

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        first = self._first
        check_range(start - first, stop - first, self._values.shape[0], self.address)
        return self._values[start - first : stop - first]

    def identity(self) -> str | None:
        """Return a digest of the values."""
        digest = hashlib.blake2b(f"array {self.dtype.str} {self._values.shape}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(self._values).view(np.uint8).data if self._values.size else b"")
        return digest.hexdigest()

    def part(self, start: int, stop: int) -> Vector:
        """Return a vector that holds these entries only."""
        out = ArrayVector.__new__(ArrayVector)
        out.__dict__.update(self.__dict__, _values=self.read(start, stop), _first=start)
        return out


@dataclass(eq=False)
class NpyVector(Vector):
    """Entries in an ``.npy`` file."""

    source: NpyArray

    def __post_init__(self) -> None:
        self.shape, self.dtype, self.address = self.source.header.shape, self.source.header.dtype, self.source.path

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        return as_entries(self.source.read(start, stop), self.address)

    def identity(self) -> str | None:
        """Return the fingerprint of the file."""
        return self.source.identity()


@dataclass(eq=False)
class NpzVector(Vector):
    """Entries in an ``.npz`` archive, loaded once per process."""

    archive: Archive
    key: str

    def __post_init__(self) -> None:
        header = self.archive.headers[self.key]
        self.shape, self.dtype, self.address = header.shape, header.dtype, f"{self.archive.path}: array {self.key!r}"

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        where = ("archive", self.archive.path, self.archive.version, self.key)
        return PARTS.get(where, lambda: as_entries(self.archive.load(self.key)[0], self.address))[start:stop]

    def identity(self) -> str | None:
        """Return the fingerprint of the file and the name of the array."""
        return self.archive.identity(self.key)


@dataclass(eq=False)
class ZarrVector(Vector):
    """Entries in a Zarr array; a small one is read whole, once per process."""

    source: ZarrArray

    def __post_init__(self) -> None:
        metadata = self.source.metadata
        self.shape, self.address = metadata.shape, self.source.address
        self.dtype = metadata.dtype if metadata.dtype is not None else np.dtype("U")

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        if start == stop:
            return np.empty((0, *self.shape[1:]), self.dtype.newbyteorder("="))
        if int(np.prod(self.shape)) * max(8, self.dtype.itemsize) > KEPT_WHOLE:
            return as_entries(self.source.read(start, stop), self.address)
        where = ("array", self.address, self.identity())
        return PARTS.get(where, lambda: as_entries(self.source.read(0, self.n_rows), self.address))[start:stop]

    def identity(self) -> str | None:
        """Return a fingerprint from the metadata and the chunks' versions."""
        return self.source.identity(0, self.n_rows)


@dataclass(eq=False)
class CategoricalVector(Vector):
    """Entries that AnnData stores as codes of categories; an entry without a category is "nan"."""

    codes: ZarrVector
    categories: ZarrVector
    place: str

    def __post_init__(self) -> None:
        self.shape, self.address = self.codes.shape, self.place
        self.dtype = self.read(0, 0).dtype

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        codes = self.codes.read(start, stop)
        names = self.categories.read(0, self.categories.n_rows)
        if codes.size and not (int(codes.min()) >= -1 and int(codes.max()) < names.shape[0]):
            raise SourceError(f"{self.address}: a code is outside the {names.shape[0]} categories; write it again")
        if names.dtype.kind == "U":
            return canonical(np.append(names, "nan")[codes])
        return canonical(np.append(names.astype(np.float64), np.nan)[codes])

    def identity(self) -> str | None:
        """Return a fingerprint of codes and categories."""
        parts = self.codes.identity(), self.categories.identity()
        return None if None in parts else "/".join(map(str, parts))


class DaskVector(Vector):
    """Entries of a Dask array, computed in the task that needs them."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self._first = 0
        self.shape = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)
        self.address = "Dask array"

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        rows = self.array[start - self._first : stop - self._first]
        return as_entries(rows.compute(scheduler="synchronous"), self.address)

    def identity(self) -> str | None:
        """Return None: a graph does not say what it computes."""
        return None

    def part(self, start: int, stop: int) -> Vector:
        """Return a vector whose graph makes these entries only."""
        import dask

        (rows,) = dask.optimize(self.array[start - self._first : stop - self._first])
        out = DaskVector.__new__(DaskVector)
        out.__dict__.update(self.__dict__, array=rows, _first=start)
        return out


def make_vector(
    source: Any,
    n_rows: int | None,
    matrix_address: str | None,
    storage_options: Mapping[str, Any] | None,
    missing_chunks: MissingPolicy,
    name: str,
) -> Vector:
    """Return the vector of any source; see `open_vector`."""
    vector = _make(source, n_rows, matrix_address, storage_options, missing_chunks, name)
    if len(vector.shape) not in (1, 2):
        raise SourceError(
            f"{name} {vector.address}: has {len(vector.shape)} dimensions; give one entry (or one row) per row"
        )
    if n_rows is not None and vector.shape[0] != n_rows:
        raise SourceError(
            f"{name} {vector.address}: has shape {vector.shape}, the matrix has {n_rows} rows; "
            "both must have the same number of rows"
        )
    if vector.dtype.kind not in "fiubU":
        raise SourceError(f"{name} {vector.address}: values of type {vector.dtype} are neither numbers nor text")
    return vector


def as_entries(values: Any, address: str) -> Array:
    """Return entries as a canonical array of numbers in native byte order, or of text."""
    array = np.asarray(values)
    if array.dtype.kind in "OT":
        entries = array.ravel().tolist()
        if all(isinstance(entry, str) for entry in entries):
            array = np.array(entries, dtype=str).reshape(array.shape)
        elif all(isinstance(entry, (bool, int, float, np.number, np.bool_)) for entry in entries):
            array = np.array(entries).reshape(array.shape)
        else:
            raise SourceError(f"{address}: entries are neither all numbers nor all text; convert them first")
    elif array.dtype.kind == "S":
        array = array.astype(str)
    return canonical(array, array.dtype.newbyteorder("="))


def _make(
    source: Any,
    n_rows: int | None,
    matrix_address: str | None,
    storage_options: Mapping[str, Any] | None,
    missing_chunks: MissingPolicy,
    name: str,
) -> Vector:
    if isinstance(source, Vector):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _from_path(source, n_rows, matrix_address, storage_options, missing_chunks, name)
    source = unwrapped(source)
    if is_dask(source):
        if any(size != size for sizes in source.chunks for size in sizes):
            raise SourceError(
                f"{name} Dask array: the sizes of its chunks are unknown; call compute_chunk_sizes() first"
            )
        return DaskVector(source)
    if isinstance(source, np.ma.MaskedArray):
        raise SourceError(f"{name}: masked arrays are not read; fill the masked entries first")
    values = source.to_numpy() if hasattr(source, "to_numpy") else np.asarray(source)
    return ArrayVector(as_entries(values, name), "array")


def _from_path(
    source: str | os.PathLike[str],
    n_rows: int | None,
    matrix_address: str | None,
    storage_options: Mapping[str, Any] | None,
    missing_chunks: MissingPolicy,
    name: str,
) -> Vector:
    text = os.fspath(source)
    remote = "://" in text
    place = locate(text, storage_options if remote else None)
    lower = place.url.lower()
    exists = remote or place.version() is not None
    if exists and lower.endswith(".npy"):
        vector: Vector = NpyVector(NpyArray.open(place))
    elif exists and lower.endswith(".npz"):
        vector = _from_archive(Archive.open(place), n_rows, name)
    elif exists:
        vector = _from_store(place, missing_chunks) if not is_parquet(place) else open_parquet_vector(place, None, name)
    else:
        column = _parquet_beside(text, matrix_address, storage_options)
        if column is not None:
            return column
        inside = _beside(text, matrix_address, storage_options)
        if inside is None:
            error = place.not_found()
            where = f"; nor is there such an array in the store of {matrix_address}" if matrix_address else ""
            raise SourceError(f"{name}: {error}{where}")
        vector = _from_store(inside, missing_chunks)
    return vector


def _from_archive(archive: Archive, n_rows: int | None, name: str) -> NpzVector:
    for key in (name, "y"):
        if key in archive.headers:
            return NpzVector(archive, key)
    shapes = {key: header.shape for key, header in archive.headers.items()}
    fitting = [key for key, shape in shapes.items() if len(shape) == 1 and n_rows in (None, shape[0])]
    if len(fitting) != 1:
        entries = "one-dimensional" if n_rows is None else f"of {n_rows} entries"
        raise SourceError(
            f"{name}: {archive.path} has no array {name!r} or 'y', and not exactly one {entries}; "
            f"there are: {archive.listed()}"
        )
    return NpzVector(archive, fitting[0])


def _from_store(place: Location, missing_chunks: MissingPolicy) -> Vector:
    group = find_group(place, None, frozenset(("categorical",)))
    if group is None:
        return _from_zarr(find_array(place, None), missing_chunks)
    codes = _from_zarr(find_array(place, "codes"), missing_chunks)
    categories = _from_zarr(find_array(place, "categories"), missing_chunks)
    return CategoricalVector(codes, categories, place.address)


def _parquet_beside(
    column: str, matrix_address: str | None, storage_options: Mapping[str, Any] | None
) -> ParquetVector | None:
    """Return the column of this name in the Parquet files that hold the matrix."""
    if matrix_address is None:
        return None
    try:
        place = locate(matrix_address, storage_options if "://" in matrix_address else None)
    except SourceError:
        return None  # the matrix is no file, its address only a description
    if not is_parquet(place) or not has_column(place, column):
        return None
    return open_parquet_vector(place, column, column)


def _from_zarr(found: tuple[Location, dict[str, Any]], missing_chunks: MissingPolicy) -> ZarrVector:
    place, document = found
    metadata = parse_metadata(document, place.address)
    if metadata.dtype is None and not _is_text(metadata.type_name):
        raise SourceError(f"{place.address}: values of type {metadata.type_name} are neither numbers nor text")
    metadata.check_limits(place.address)
    array = ZarrArray(place, metadata, missing_chunks)
    scan(array, document.get("attributes") or {})
    return ZarrVector(array)


def _is_text(type_name: str) -> bool:
    # "object" is how Zarr v2 stores text of variable length; what is not text is refused when it is read
    return type_name in ("string", "object") or "utf" in type_name or type_name.startswith(("<U", "|S", ">U"))


def _beside(key: str, matrix_address: str | None, storage_options: Mapping[str, Any] | None) -> Location | None:
    """Return where the array (or AnnData's categories) `key` is: in a group that holds the matrix, near or far."""
    if matrix_address is None or key.startswith(("/", ".")):
        return None
    try:
        place: Location | None = locate(matrix_address, storage_options if "://" in matrix_address else None)
    except SourceError:
        return None  # the matrix is no file, its address only a description
    while place is not None:
        found = read_document(place)
        if found is None:
            return None
        if found[0] == "group":
            inside = read_document(place.join(key))
            if inside is not None and (inside[0] == "array" or encoding(inside[1]) == "categorical"):
                return place.join(key)
        place = place.parent()
    return None
