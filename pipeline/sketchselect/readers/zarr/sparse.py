"""CSR matrices in groups of a Zarr store: those that AnnData writes, and `convert`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.errors import BadBlock, SourceError
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.sparse.csr import as_csr, structure_fault
from sketchselect.location import Location
from sketchselect.readers.base import Matrix
from sketchselect.readers.cache import PARTS
from sketchselect.readers.checks import MissingPolicy, Nonfinite, check_range, require_matrix, warn_beyond_double
from sketchselect.readers.vector import Vector
from sketchselect.readers.zarr.array import ZarrArray, checksum_notes
from sketchselect.readers.zarr.names import names_of
from sketchselect.readers.zarr.node import Node
from sketchselect.readers.zarr.scan import scan

SPARSE = frozenset(("csr_matrix", "csc_matrix"))
"""Encodings of the groups of AnnData that hold a sparse matrix."""

_PARTS = ("data", "indices", "indptr")


@dataclass(eq=False)
class ZarrSparseMatrix(Matrix):
    """A CSR matrix in three Zarr arrays. Made by `open_matrix`; pickles as an address."""

    location: Location
    shape: tuple[int, int]  # As in the attributes of the group

    data: ZarrArray
    indices: ZarrArray
    indptr: ZarrArray
    feature_names: tuple[str, ...] | None  # Names of the columns
    row_names: Vector | None  # Names of the rows
    nonfinite: Nonfinite  # Policy for NaN and infinity

    is_sparse = True

    def __post_init__(self) -> None:
        self.dtype = self.data.dtype
        self.address = self.location.address
        self.notes = checksum_notes(self.address, self.data, self.indices)

    def __repr__(self) -> str:
        return f"<ZarrSparseMatrix {self.address}: {self.shape[0]} rows x {self.shape[1]} columns, {self.dtype}, CSR>"

    @property
    def entry_offsets(self) -> NDArray[np.int64]:  # type: ignore[override]
        """Stored entries before each row: read once in a process, so that this pickles as an address."""
        version = self.indptr.identity(0, self.shape[0] + 1)
        return PARTS.get(("row ends", self.address, self.indptr.metadata, version), self._row_ends)

    def read_rows(self, start: int, stop: int) -> csr_array:
        """Return rows `start` to `stop`; see `ZarrArray.read` for the errors of storage."""
        check_range(start, stop, self.shape[0], self.address)
        ends = self.entry_offsets[start : stop + 1]
        first, last = int(ends[0]), int(ends[-1])
        data, indices = self.data.read(first, last), self.indices.read(first, last)
        try:
            rows = as_csr(
                csr_array((data, indices, ends - first), shape=(stop - start, self.shape[1])), self.address, start
            )
        except (BadBlock, ValueError) as error:
            raise SourceError(f"{error}; restore it or write it again") from error
        warn_beyond_double(rows.data, self.address)
        return rows

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these rows: their ends, and the versions of the chunks that hold their entries."""
        ends = self.entry_offsets[start : stop + 1]
        parts = [array.identity(int(ends[0]), int(ends[-1])) for array in (self.data, self.indices)]
        if None in parts:
            return None
        return digest(f"csr {self.address} {self.shape[1]} {parts}", ends)

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
    names, rows = names_of(node, size)
    matrix = ZarrSparseMatrix(node.location, size, data, indices, indptr, names, rows, nonfinite)
    matrix.notes += tuple(notes)
    _ = matrix.entry_offsets  # damaged row ends are an error now, not in the first task
    return matrix
