"""CSR matrices in groups of a Zarr store: those that AnnData writes, and `convert`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sketchselect.errors import SourceError
from sketchselect.readers.checks import MissingPolicy, Nonfinite, require_matrix
from sketchselect.readers.stored import StoredSparseMatrix
from sketchselect.readers.zarr.array import ZarrArray, checksum_notes
from sketchselect.readers.zarr.node import Node
from sketchselect.readers.zarr.scan import scan

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
