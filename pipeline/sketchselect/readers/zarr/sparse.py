"""A CSR matrix in a group of a Zarr store: as AnnData writes them, and `convert` of sparse files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.errors import BadBlock, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.sparse.csr import as_csr, densify, structure_fault, take_columns
from sketchselect.location import Location
from sketchselect.readers.base import Matrix, Nonfinite
from sketchselect.readers.cache import PARTS
from sketchselect.readers.checks import as_names, check_range, require_matrix, warn_beyond_double
from sketchselect.readers.zarr.anndata import Node, axis_names, column_names
from sketchselect.readers.zarr.array import MissingPolicy, ZarrArray, read_document
from sketchselect.readers.zarr.metadata import parse_metadata
from sketchselect.readers.zarr.names import ATTRIBUTE
from sketchselect.readers.zarr.scan import scan

SPARSE = frozenset(("csr_matrix", "csc_matrix"))
"""How AnnData names the groups that this module knows of."""

_PARTS = ("data", "indices", "indptr")
_PIECE_ENTRIES = 2 << 20


@dataclass(eq=False)
class ZarrSparseMatrix(Matrix):
    """A CSR matrix in three Zarr arrays. Made by `open_matrix`; pickles as an address.

    Parameters
    ----------
    location : Location
        The group.
    size : (n_rows, n_features)
        As the group says.
    data, indices, indptr : ZarrArray
        Its arrays.
    names : tuple of str or None
        Names of the columns.
    rows : ZarrArray or None
        Names of the rows.
    policy : {"error", "drop_rows", "missing"}
        For NaN and infinity.
    """

    location: Location
    size: tuple[int, int]
    data: ZarrArray
    indices: ZarrArray
    indptr: ZarrArray
    names: tuple[str, ...] | None
    rows: ZarrArray | None
    policy: Nonfinite

    is_sparse = True

    def __post_init__(self) -> None:
        self.shape = self.size
        self.dtype = np.dtype(self.data.metadata.type_name)
        self.address = self.location.address
        self.feature_names = self.names
        self.row_names = self.rows
        self.nonfinite = self.policy
        if not all(array.metadata.has_checksum for array in (self.data, self.indices)):
            self.notes = (
                f"{self.address} has no checksum codec: a flipped bit in a chunk would go unnoticed "
                "(sketchselect convert writes stores that have one)",
            )

    def __repr__(self) -> str:
        return f"<ZarrSparseMatrix {self.address}: {self.shape[0]} rows x {self.shape[1]} columns, {self.dtype}, CSR>"

    @property
    def entry_offsets(self) -> NDArray[np.int64]:  # type: ignore[override]
        """Stored entries before each row: read once in a process, so that this pickles as an address."""
        where = (
            "row ends",
            self.address,
            self.indptr.metadata,
            self.indptr.identity(0, self.shape[0] + 1),
        )
        return PARTS.get(where, self._row_ends)

    def read_rows(self, start: int, stop: int) -> csr_array:
        """Return rows `start` to `stop`; see `ZarrArray.read` for the errors of storage."""
        check_range(start, stop, self.shape[0], self.address)
        ends = self.entry_offsets[start : stop + 1]
        first, last = int(ends[0]), int(ends[-1])
        data, indices = self._entries(self.data, first, last), self._entries(self.indices, first, last)
        try:
            rows = as_csr(
                csr_array((data, indices, ends - first), shape=(stop - start, self.shape[1])), self.address, start
            )
        except (BadBlock, ValueError) as error:
            raise SourceError(f"{error}; restore it or write it again") from error
        warn_beyond_double(rows.data, self.address)
        return rows

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`, dense; every row is read for them."""
        check_range(start, stop, self.shape[1], self.address, "column")
        pieces, row, ends = [np.empty((0, stop - start), self.dtype)], 0, self.entry_offsets
        while row < self.shape[0]:
            end = int(np.searchsorted(ends, ends[row] + _PIECE_ENTRIES, side="right")) - 1
            end = min(max(end, row + 1), self.shape[0])
            pieces.append(densify(take_columns(self.read_rows(row, end), range(start, stop))))
            row = end
        return np.concatenate(pieces[1:] if len(pieces) > 1 else pieces)

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these rows: their ends, and the versions of the chunks that hold their entries."""
        ends = self.entry_offsets[start : stop + 1]
        parts = [array.identity(int(ends[0]), int(ends[-1])) for array in (self.data, self.indices)]
        if None in parts:
            return None
        digest = hashlib.blake2b(f"csr {self.address} {self.shape[1]} {parts}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(ends).data)
        return digest.hexdigest()

    def part(self, start: int, stop: int) -> Matrix:
        """Return the same matrix without names, which a task does not need."""
        if self.names is None and self.rows is None:
            return self
        arrays = (self.data, self.indices, self.indptr)
        return ZarrSparseMatrix(self.location, self.size, *arrays, None, None, self.policy)

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of this source."""
        metadata = self.data.metadata
        return super().describe() | {
            "format": f"zarr v{metadata.zarr_format}, CSR",
            "entries": int(self.entry_offsets[-1]),
            "chunks": list(metadata.chunks),
            "checksum": metadata.has_checksum,
            "missing_chunks": self.data.missing_chunks,
        }

    def _entries(self, array: ZarrArray, first: int, last: int) -> Array:
        if first == last:
            return np.empty(0, np.dtype(array.metadata.type_name).newbyteorder("="))
        return array.read(first, last)

    def _row_ends(self) -> NDArray[np.int64]:
        ends = np.asarray(self.indptr.read(0, self.shape[0] + 1))
        entries = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), self.data.metadata.shape, (0,))
        columns = np.lib.stride_tricks.as_strided(np.zeros(1, np.int32), self.indices.metadata.shape, (0,))
        fault = structure_fault(entries, columns, ends, self.shape)
        if fault is not None:
            raise SourceError(f"{self.address}: not a valid CSR matrix: {fault}; restore it or write it again")
        return ends.astype(np.int64)


def open_zarr_sparse(node: Node, missing_chunks: MissingPolicy, nonfinite: Nonfinite) -> ZarrSparseMatrix:
    """Open, check and scan a CSR group.

    Raises
    ------
    SourceError
        If it is stored by column, a part is missing, or the parts do not fit together.
    """
    place, document = node
    attributes = document.get("attributes") or {}
    if attributes.get("encoding-type") == "csc_matrix":
        raise SourceError(
            f"{place.address}: stored by column (csc_matrix), so runs of rows cannot be read from it; write it with "
            "rows first, adata.X = adata.X.tocsr(), or: sketchselect convert IN OUT.zarr"
        )
    shape = attributes.get("shape")
    if not (isinstance(shape, list) and len(shape) == 2 and all(isinstance(n, int) and n >= 0 for n in shape)):
        raise SourceError(f"{place.address}: the group does not say its shape; restore its attributes")
    arrays: list[ZarrArray] = []
    notes: list[str] = []
    for name in _PARTS:
        found = read_document(place.join(name))
        if found is None or found[0] != "array":
            raise SourceError(f"{place.address}: a CSR group without its array {name!r}; write it again")
        metadata = parse_metadata(found[1], f"{place.address}/{name}")
        if len(metadata.shape) != 1 or metadata.dtype is None:
            raise SourceError(
                f"{place.address}: array {name!r} must be one-dimensional and of numbers, it has shape "
                f"{metadata.shape} and type {metadata.type_name}"
            )
        metadata.check_limits(f"{place.address}/{name}")
        array = ZarrArray(place.join(name), metadata, missing_chunks)
        notes += scan(array, attributes)
        arrays.append(array)
    data, indices, indptr = arrays
    size = (shape[0], shape[1])
    require_matrix(size, np.dtype(data.metadata.type_name), place.address)
    if indptr.metadata.shape[0] < size[0] + 1:
        raise SourceError(
            f"{place.address}: not a valid CSR matrix: indptr has {indptr.metadata.shape[0]} entries for {size[0]} "
            "rows; restore it or write it again"
        )
    names = as_names(attributes.get(ATTRIBUTE), size[1]) or column_names(place, size[1])
    rows = axis_names(place, "obs")
    if rows is not None and rows.metadata.shape != (size[0],):
        rows = None
    matrix = ZarrSparseMatrix(place, size, data, indices, indptr, names, rows, nonfinite)
    matrix.notes += tuple(notes)
    _ = matrix.entry_offsets  # damaged row ends are found now, not in the first task
    return matrix
