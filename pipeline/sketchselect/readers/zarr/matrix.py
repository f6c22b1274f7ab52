"""A matrix in a Zarr store, v2 or v3, local or remote."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.location import Location
from sketchselect.readers.base import Matrix, Nonfinite
from sketchselect.readers.checks import check_range, finish, require_matrix
from sketchselect.readers.zarr.anndata import axis_names, column_names, encoding, find_group
from sketchselect.readers.zarr.array import MissingPolicy, ZarrArray, read_document
from sketchselect.readers.zarr.metadata import ArrayMetadata, parse_metadata
from sketchselect.readers.zarr.names import feature_names
from sketchselect.readers.zarr.scan import scan
from sketchselect.readers.zarr.sparse import SPARSE, open_zarr_sparse

_HDF5 = (".h5ad", ".h5", ".hdf5")
_LISTED = 12


@dataclass(eq=False)
class ZarrMatrix(Matrix):
    """A two-dimensional Zarr array. Made by `open_matrix`; pickles as an address.

    Parameters
    ----------
    source : ZarrArray
        The array.
    names : tuple of str or None
        Names of the columns.
    policy : {"error", "drop_rows"}
        For NaN and infinity.
    """

    source: ZarrArray
    names: tuple[str, ...] | None
    policy: Nonfinite

    def __post_init__(self) -> None:
        metadata = self.source.metadata
        self.shape = (metadata.shape[0], metadata.shape[1])
        self.dtype = np.dtype(metadata.type_name)
        self.address = self.source.address
        self.feature_names = self.names
        self.nonfinite = self.policy
        self.chunk_rows, self.chunk_columns = metadata.chunks
        if not metadata.has_checksum:
            self.notes = (
                f"{self.address} has no checksum codec: a flipped bit in a chunk would go unnoticed "
                "(sketchselect convert writes stores that have one)",
            )

    def __repr__(self) -> str:
        return f"<ZarrMatrix {self.address}: {self.shape[0]} rows x {self.shape[1]} columns, {self.dtype}>"

    def read_rows(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop`; see `ZarrArray.read` for the errors."""
        check_range(start, stop, self.shape[0], self.address)
        if start == stop:
            return finish(np.empty((0, self.shape[1]), self.dtype), self.address)
        return finish(self.source.read(start, stop), self.address)

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these rows from the metadata (without the row count) and their chunks' versions."""
        return self.source.identity(start, stop)

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`; only the chunks below them are read."""
        check_range(start, stop, self.shape[1], self.address, "column")
        if start == stop:
            return finish(np.empty((self.shape[0], 0), self.dtype), self.address)
        return finish(self.source.read(start, stop, axis=1), self.address)

    def column_identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these columns; columns appended behind their chunks leave it as it is."""
        return self.source.identity(start, stop, axis=1)

    def part(self, start: int, stop: int) -> Matrix:
        """Return the same matrix without the names of its columns, which a task does not need."""
        return self if self.names is None else ZarrMatrix(self.source, None, self.policy)

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of this source."""
        metadata = self.source.metadata
        return super().describe() | {
            "format": f"zarr v{metadata.zarr_format}",
            "chunks": list(metadata.chunks),
            "shards": list(metadata.grid) if metadata.grid != metadata.chunks else None,
            "checksum": metadata.has_checksum,
            "missing_chunks": self.source.missing_chunks,
        }


def open_zarr_matrix(
    location: Location, key: str | None, missing_chunks: MissingPolicy, nonfinite: Nonfinite
) -> Matrix:
    """Open, check and scan the array, or the group of a CSR matrix, at `location` (at `key` in it).

    Of a store that AnnData wrote, ``X`` is opened where no key is given; its names are those of ``var`` and ``obs``.
    """
    group = find_group(location, key, SPARSE)
    if group is not None:
        return open_zarr_sparse(group, missing_chunks, nonfinite)
    if key is None and (found := read_document(location)) is not None and encoding(found[1]) == "anndata":
        key = "X"
    place, document = find_array(location, key)
    metadata = parse_metadata(document, place.address)
    require_readable(metadata, place.address)
    source = ZarrArray(place, metadata, missing_chunks)
    attributes = document.get("attributes") or {}
    notes = scan(source, attributes)
    source.open()
    names = feature_names(place, document, metadata.shape[1]) or column_names(place, metadata.shape[1])
    matrix = ZarrMatrix(source, names, nonfinite)
    matrix.notes += notes
    rows = axis_names(place, "obs")
    matrix.row_names = rows if rows is not None and rows.metadata.shape == metadata.shape[:1] else None
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
    """Return a NumPy type of the same kind as a Zarr type that is refused, so that one place words the refusal."""
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


def find_array(location: Location, key: str | None) -> tuple[Location, dict[str, Any]]:
    """Return the location and metadata document of an array, or raise `SourceError` saying what is there instead."""
    found = read_document(location)
    if found is None:
        if location.is_local and location.version() is None:
            raise location.not_found()
        what = "nothing that Zarr can read there (no zarr.json, .zarray or .zgroup)"
        cure = "convert it with: sketchselect convert IN OUT.zarr"
        if location.address.endswith(_HDF5):
            what = "it is an HDF5 file"
            cure = 'AnnData writes it as Zarr: anndata.read_h5ad("IN.h5ad").write_zarr("OUT.zarr")'
        raise SourceError(f"{location.address}: not a Zarr array: {what}; {cure}")
    kind, document = found
    if key is None:
        if kind == "array":
            return location, document
        arrays = list_arrays(location)
        raise SourceError(
            f"{location.address}: this is a group, not an array; choose one with key=: {_listed(arrays)}"
            if arrays
            else f"{location.address}: this is a Zarr group without arrays in it"
        )
    if kind == "array":
        raise SourceError(
            f"{location.address}: this is an array, not a group, so key {key!r:.80} names nothing; leave key out"
        )
    place = location.join(key)
    inside = read_document(place)
    if inside is not None and inside[0] == "array":
        return place, inside[1]
    arrays = list_arrays(location)
    below = {name: text for name, text in arrays.items() if name.startswith(f"{key.strip('/')}/")}
    if inside is not None:
        raise SourceError(
            f"{place.address}: this is a group, not an array; choose one with key=: {_listed(below) or 'none'}"
        )
    close = difflib.get_close_matches(key, arrays, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"arrays there: {_listed(arrays) or 'none'}"
    raise SourceError(f"{location.address}: no array {key!r:.80} in this group; {hint}")


def list_arrays(location: Location) -> dict[str, str]:
    """Return the keys of the arrays in a group, each with a description such as ``"100 x 5 float32"``."""
    arrays = {}
    for key, _, _ in sorted(location.files()):
        folder, _, name = key.rpartition("/")
        if not folder or name not in ("zarr.json", ".zarray"):
            continue
        found = read_document(location.join(folder))
        if found is not None and found[0] == "array":
            metadata = parse_metadata(found[1], folder)
            arrays[folder] = f"{' x '.join(map(str, metadata.shape))} {metadata.type_name}"
    return arrays


def _listed(arrays: dict[str, str]) -> str:
    shown = ", ".join(f"{key} ({text})" for key, text in list(arrays.items())[:_LISTED])
    return shown + (", ..." if len(arrays) > _LISTED else "")
