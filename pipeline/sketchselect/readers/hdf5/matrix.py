"""Matrices in HDF5 files, AnnData's ``.h5ad`` among them: datasets and CSR groups, read in runs of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sketchselect.errors import SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.location import Location
from sketchselect.readers.base import Matrix
from sketchselect.readers.checks import Nonfinite, check_range, finish, require_matrix
from sketchselect.readers.hdf5.array import Hdf5Array, opened
from sketchselect.readers.hdf5.nodes import child, encoding, find_matrix, is_dataset, names_of, vector_at
from sketchselect.readers.stored import StoredSparseMatrix
from sketchselect.readers.vector import Vector

_PARTS = ("data", "indices", "indptr")


@dataclass(eq=False, repr=False)
class Hdf5Matrix(Matrix):
    """A two-dimensional dataset. Made by `open_matrix`; pickles as an address."""

    source: Hdf5Array  # The dataset
    feature_names: tuple[str, ...] | None  # Names of the columns
    row_names: Vector | None  # Names of the rows
    nonfinite: Nonfinite  # Policy for NaN and infinity

    def __post_init__(self) -> None:
        self.shape = (self.source.shape[0], self.source.shape[1])
        self.dtype = self.source.dtype
        self.address = self.source.location.address
        if self.source.chunks is not None:
            self.chunk_rows, self.chunk_columns = self.source.chunks

    def read_rows(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop`; see `Hdf5Array.read` for the errors."""
        check_range(start, stop, self.shape[0], self.address)
        return finish(self.source.read(start, stop), self.address)

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`."""
        check_range(start, stop, self.shape[1], self.address, "column")
        return finish(self.source.read(start, stop, axis=1), self.address)

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the file and the range."""
        return self.source.identity(start, stop)

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | _description(self.source)


@dataclass(eq=False, repr=False)
class Hdf5SparseMatrix(StoredSparseMatrix):
    """A CSR matrix in three datasets of a group. Made by `open_matrix`."""

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | _description(self.data) | {"entries": int(self.entry_offsets[-1])}


def open_hdf5_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> Matrix:
    """Open the matrix at `key` of a local file: by default ``X``, or the only one of two dimensions.

    Raises `SourceError` if there is no such matrix, or it is not stored by rows.
    """
    version = location.existing_version()
    with opened(location) as file:
        node = find_matrix(file, key, location)
        if not is_dataset(node):
            return _sparse(file, node, location, version, nonfinite)
        if node.dtype.names:
            raise SourceError(f"{location.address}: {node.name!r:.80} is a table of records; choose a matrix with key=")
        source = Hdf5Array.of(node, location, version)
        require_matrix(source.shape, source.dtype, source.address)
        names, rows = names_of(file, source.path, (source.shape[0], source.shape[1]), location, version)
        return Hdf5Matrix(source, names, rows, nonfinite)


def hdf5_vector(location: Location, key: str) -> Vector | None:
    """Return the vector at `key` of a local file, a column of AnnData ("obs/cell_type") or a dataset; or None."""
    version = location.existing_version()
    with opened(location) as file:
        return vector_at(file, key, location, version)


def _sparse(file: Any, group: Any, location: Location, version: str, nonfinite: Nonfinite) -> Hdf5SparseMatrix:
    path = group.name.strip("/")
    address = f"{location.address}: {path}"
    if encoding(group) == "csc_matrix":
        raise SourceError(
            f"{address}: stored by column (csc_matrix), so runs of rows cannot be read from it; write it by row, "
            "adata.X = adata.X.tocsr()"
        )
    shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
    if shape is None or len(shape) != 2:
        raise SourceError(f"{address}: the group has no attribute shape; write it again")
    arrays = []
    for name in _PARTS:
        part = child(group, name, location)
        if part is None or not is_dataset(part) or len(part.shape) != 1 or part.dtype.kind not in "fiub":
            raise SourceError(f"{address}: a CSR group without its array {name!r} of numbers; write it again")
        arrays.append(Hdf5Array.of(part, location, version))
    size = (int(shape[0]), int(shape[1]))
    data, indices, indptr = arrays
    require_matrix(size, data.dtype, address)
    if indptr.shape[0] < size[0] + 1:
        raise SourceError(f"{address}: indptr has {indptr.shape[0]} entries for {size[0]} rows; write it again")
    names, rows = names_of(file, path, size, location, version)
    matrix = Hdf5SparseMatrix(location, size, data, indices, indptr, names, rows, nonfinite)
    _ = matrix.entry_offsets  # damaged row ends are an error now, not in the first task
    return matrix


def _description(array: Hdf5Array) -> dict[str, Any]:
    return {"format": "hdf5", "path": array.path, "chunks": list(array.chunks) if array.chunks else None}
