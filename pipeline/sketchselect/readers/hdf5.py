"""Matrices in HDF5 files, AnnData's ``.h5ad`` among them: datasets and CSR groups, read in runs of rows.

Datasets of an HDF5 file as addresses: opened for each read, with errors that name the dataset.

Groups and datasets of an HDF5 file: which of them a key means, and the axes of AnnData.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect._text import did_you_mean
from sketchselect.errors import ChunkReadError, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.hashing import digest
from sketchselect.location import Location
from sketchselect.readers.base import (
    Matrix,
    Nonfinite,
    Vector,
    as_names,
    check_range,
    finish,
    modality_key,
    require_matrix,
)
from sketchselect.readers.stored import COLUMNS, StoredSparseMatrix, StoredVector, column_of


@contextlib.contextmanager
def opened(location: Location) -> Iterator[Any]:
    """Open the file at `location` for reading.

    Raises `SourceError` if h5py is not installed, or the file is no HDF5 file, damaged, or locked by a program that
    writes to it.
    """
    try:
        import h5py
    except ImportError as error:
        raise SourceError(
            f'{location.address}: reading HDF5 needs h5py; install it with: pip install "sketchselect[anndata]"'
        ) from error
    try:
        file = h5py.File(location.url, "r")
    except BlockingIOError as error:
        raise SourceError(f"{location.address}: another program has it open for writing; close it there") from error
    except OSError as error:
        raise SourceError(
            f"{location.address}: not an HDF5 file, or it is cut off or damaged; write it again"
        ) from error
    with file:
        yield file


@dataclass(frozen=True)
class Hdf5Array:
    """A dataset, as it was when it was opened. Small and picklable."""

    location: Location  # The file
    version: str  # Size and time of the file
    path: str  # The dataset in it
    shape: tuple[int, ...]  # Its shape
    dtype: np.dtype[Any]  # Type of the values; that of text where they are text
    chunks: tuple[int, ...] | None  # Shape of its chunks; None where it is contiguous

    @classmethod
    def of(cls, dataset: Any, location: Location, version: str) -> Hdf5Array:
        """Return the address of an open dataset.

        Raises `SourceError` if its values are in other files.
        """
        import h5py

        path = dataset.name.strip("/")
        if dataset.external or dataset.is_virtual:
            raise SourceError(
                f"{location.address}: the values of {path!r:.80} are in other files, which are not read; write them "
                "into this one"
            )
        text = h5py.check_string_dtype(dataset.dtype) is not None
        return cls(location, version, path, dataset.shape, np.dtype("U") if text else dataset.dtype, dataset.chunks)

    @property
    def address(self) -> str:
        """The file and the dataset in it, for messages."""
        return f"{self.location.address}: {self.path}"

    def read(self, start: int, stop: int, axis: int = 0) -> Array:
        """Return rows (`axis` 0) or columns (1) `start` to `stop`.

        Raises `SourceChanged` if the file was rewritten since it was opened, or `ChunkReadError` if the values cannot
        be read or decoded.
        """
        self.location.require_version(self.version)
        with opened(self.location) as file:
            try:
                dataset = file[self.path]
                if self.dtype.kind == "U":
                    dataset = dataset.asstr()
                out: Array = dataset[start:stop] if axis == 0 else dataset[:, start:stop]
            except MemoryError:
                raise
            except Exception as error:
                raise ChunkReadError(
                    f"{self.address}: {('rows', 'columns')[axis]} {start} to {stop - 1} cannot be read "
                    f"({type(error).__name__}: the file is cut off or damaged, or a filter is not installed); restore "
                    "it or write it again"
                ) from error
        return out

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the file and the range; a file that is rewritten longer is another one."""
        return f"{digest(f'hdf5 {self.address} {self.location.version()}')}:{start}:{stop}"


SPARSE = ("csr_matrix", "csc_matrix")
"""Encodings of the groups of AnnData that hold a sparse matrix."""

MUDATA = "MuData"
"""Encoding of a file of several AnnData."""

_LISTED = 12


def is_dataset(node: Any) -> bool:
    """Return whether this is a dataset, not a group."""
    return hasattr(node, "shape")


def encoding(node: Any) -> str:
    """Return the type that AnnData wrote; "" of other nodes."""
    # Before anndata 0.8 the attribute of sparse matrices had another name.
    text = node.attrs.get("encoding-type", node.attrs.get("h5sparse_format", ""))
    text = text.decode() if isinstance(text, bytes) else str(text)
    return {"csr": "csr_matrix", "csc": "csc_matrix"}.get(text, text)


def child(node: Any, key: str, location: Location) -> Any | None:
    """Return the node at `key` below a group, or None; a link that leaves the file is refused."""
    import h5py

    for part in key.strip("/").split("/"):
        link = None if is_dataset(node) else node.get(part, getlink=True)
        if link is None or part in ("", ".", ".."):
            return None
        if isinstance(link, h5py.ExternalLink):
            raise SourceError(f"{location.address}: {key!r:.80} is a link to another file, which is not followed")
        node = node.get(part)
        # AnnData writes None as a dataset without a shape.
        if node is None or (is_dataset(node) and node.shape is None):
            return None
    return node


def find_matrix(file: Any, key: str | None, location: Location) -> Any:
    """Return the dataset, or group of a sparse matrix, at `key`: by default ``X``, or the only one of two dimensions.

    Of MuData a key begins with the name of a modality.
    Raises `SourceError` if there is none; the message lists what there is.
    """
    if encoding(file) == MUDATA and (modalities := child(file, "mod", location)) is not None:
        key = "mod/{}/{}".format(*modality_key(list(modalities), key, location.address))
    matrices = _matrices(file)
    if key is None and "X" in matrices:
        key = "X"
    elif key is None and len(matrices) == 1:
        (key,) = matrices
    there = ", ".join(matrices[:_LISTED]) + (", ..." if len(matrices) > _LISTED else "") or "none"
    if key is None:
        raise SourceError(f"{location.address}: choose one of its matrices with key= (or --key): {there}")
    node = child(file, key, location)
    if node is None:
        hint = did_you_mean(key, matrices, f"; matrices there: {there}")
        raise SourceError(f"{location.address}: no matrix {key!r:.80} in this file{hint}")
    if not is_dataset(node) and encoding(node) not in SPARSE:
        raise SourceError(f"{location.address}: {key!r:.80} is a group, not a matrix; matrices there: {there}")
    return node


def names_of(
    file: Any, path: str, shape: tuple[int, int], location: Location, version: str
) -> tuple[tuple[str, ...] | None, Vector | None]:
    """Return the names of the columns and the rows of a matrix of AnnData; None where there are none."""
    parts = path.strip("/").split("/")
    if encoding(file) == MUDATA and parts[0] == "mod":
        # The names of a modality may have a "/" in them.
        inner = next((i for i in range(2, len(parts)) if encoding(file["/".join(parts[:i])]) == "anndata"), 2)
        file, parts = file["/".join(parts[:inner])], parts[inner:]
    in_place = parts == ["X"] or parts[0] == "layers"
    columns = _index(file, "raw/var" if parts[0] == "raw" else "var" if in_place else "", location, version)
    rows = _index(file, "obs" if in_place or parts[0] in ("raw", "obsm") else "", location, version)
    names = None
    if columns is not None and columns.shape == (shape[1],):
        names = as_names(map(str, columns.read(0, shape[1]).tolist()), shape[1])
    return names, rows if rows is not None and rows.shape == (shape[0],) else None


def vector_at(file: Any, key: str, location: Location, version: str) -> Vector | None:
    """Return the vector of a dataset, or of a column of AnnData; None where there is neither."""
    node = child(file, key, location)
    if node is None:
        return None
    if is_dataset(node):
        return None if node.dtype.names else StoredVector(Hdf5Array.of(node, location, version))
    kind = encoding(node)
    if kind not in COLUMNS:
        return None
    parts = [child(node, name, location) for name in COLUMNS[kind]]
    if not all(part is not None and is_dataset(part) for part in parts):
        raise SourceError(f"{location.address}: column {key!r:.80} lacks one of its two arrays; write it again")
    first, second = (StoredVector(Hdf5Array.of(part, location, version)) for part in parts)
    return column_of(kind, first, second, f"{location.address}: {key}")


def _index(file: Any, axis: str, location: Location, version: str) -> Vector | None:
    frame = child(file, axis, location) if axis else None
    if frame is None or is_dataset(frame):
        return None
    name = frame.attrs.get("_index", "_index")
    return vector_at(
        file.file, f"{frame.name.strip('/')}/{name.decode() if isinstance(name, bytes) else name}", location, version
    )


def _matrices(file: Any) -> list[str]:
    """Return the paths of all datasets of two dimensions and of the groups that hold a sparse matrix."""
    paths: list[str] = []

    def visit(path: str, node: Any) -> None:
        if is_dataset(node):
            if len(node.shape or ()) == 2:
                paths.append(path)
        elif encoding(node) in SPARSE:
            paths.append(path)

    file.visititems(visit)
    return paths


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
