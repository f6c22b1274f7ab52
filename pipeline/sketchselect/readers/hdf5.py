"""Matrices and vectors in HDF5 files, AnnData's ``.h5ad`` and MuData's ``.h5mu`` among them: read in runs of rows."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sketchselect._text import did_you_mean, first_few
from sketchselect.errors import ChunkReadError, SketchSelectError, SourceError
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.validation import Array
from sketchselect.location import Location
from sketchselect.readers.anndata_layout import (
    ANNDATA,
    MUDATA,
    SPARSE,
    axis_names,
    columns_of_rows,
    encoding,
    in_modality,
    open_sparse,
    vector_of,
)
from sketchselect.readers.base import Matrix, MissingPolicy, Nonfinite, Vector, require_matrix
from sketchselect.readers.stored import StoredMatrix


@contextlib.contextmanager
def _opened(location: Location) -> Iterator[Any]:
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
        raise _refused(location, error) or SourceError(
            f"{location.address}: not an HDF5 file, or it is cut off or damaged; write it again"
        ) from error
    with file:
        yield file


@functools.lru_cache(maxsize=64)
def _require_heaps(path: str, version: str) -> None:
    """Raise `SourceError` for a heap of texts without an end, which the library of HDF5 reads for ever.

    Of a large file the first and the last part are looked at, where the attributes of AnnData usually are.
    """
    size = os.path.getsize(path)
    places = set(range(0, min(size, _SEARCHED), _PIECE)) | set(range(max(size - _SEARCHED, 0), size, _PIECE))
    with open(path, "rb") as file:
        for start in sorted(places):
            file.seek(start)
            piece = file.read(_PIECE + len(_HEAP) - 1)
            for found in re.finditer(_HEAP, piece):
                file.seek(start + found.start() + len(_HEAP))
                nbytes = int.from_bytes(file.read(8), "little")
                if nbytes <= _PIECE and _is_endless(file.read(max(nbytes - 16, 0))):
                    raise SourceError(
                        f"{path}: the file is damaged (the texts at byte {start + found.start()} have no "
                        "end); restore it or write it again"
                    )


_HEAP = b"GCOL\1\0\0\0"
_SEARCHED, _PIECE = 32 << 20, 1 << 20


def _is_endless(heap: bytes) -> bool:
    """Return whether a heap of HDF5 has free space of no bytes, which is read again and again."""
    place = 0
    while place + 16 <= len(heap):
        number, _, _, nbytes = struct.unpack_from("<HHLQ", heap, place)
        if number == nbytes == 0:
            return True
        place += nbytes if number == 0 else 16 + -(-nbytes // 8) * 8
    return False


def _refused(location: Location, error: BaseException) -> SourceError | None:
    """Return the error for a file that the system does not open or read; None where it is the file's fault."""
    code = getattr(error, "errno", None)
    if code not in _OF_THE_SYSTEM:
        return None
    return SourceError(
        f"{location.address}: cannot be read ({os.strerror(code)}); check its permissions and the disk, and how many "
        "files are open"
    )


_OF_THE_SYSTEM = (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM, errno.ESTALE)


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

    has_checksum = None
    notes = ()

    @property
    def address(self) -> str:
        """The file and the dataset in it, for messages."""
        return f"{self.location.address}: {self.path}"

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return self.dtype.itemsize

    def read(self, start: int, stop: int, axis: int = 0) -> Array:
        """Return rows (`axis` 0) or columns (1) `start` to `stop`.

        Raises `SourceChanged` if the file was rewritten since it was opened, or `ChunkReadError` if the values cannot
        be read or decoded.
        """
        self.location.require_version(self.version)
        with _opened(self.location) as file:
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

    def require_same(self) -> None:
        """Do nothing: every fingerprint has the version of the whole file."""

    def identity(self, start: int, stop: int, axis: int = 0) -> str | None:
        """Return a fingerprint of the file and the range; a file that is rewritten longer is another one."""
        if axis == 1:
            return f"{self.identity(0, self.shape[0])}:columns:{start}:{stop}"
        return f"{digest(f'hdf5 {self.address} {self.location.version()}')}:{start}:{stop}"

    def describe(self, sparse: bool) -> dict[str, Any]:
        """Return the description for the manifest."""
        return {"format": "hdf5", "path": self.path, "chunks": list(self.chunks) if self.chunks else None}


_ATTRIBUTES = ("encoding-type", "shape", "_index", "column-order", "mod-order", "h5sparse_format", "h5sparse_shape")


@dataclass(frozen=True)
class Hdf5Node:
    """A group or dataset of an open file; see `StoredNode`."""

    item: Any  # Of h5py
    location: Location  # The file
    version: str  # Size and time of the file

    @property
    def path(self) -> str:
        """Place in the file; "" of its root."""
        return str(self.item.name).strip("/")

    @property
    def address(self) -> str:
        """The file, and the place in it, for messages."""
        return f"{self.location.address}: {self.path}" if self.path else self.location.address

    @property
    def kind(self) -> Literal["array", "group", "table"]:
        """Group, or dataset of values or of records."""
        if not hasattr(self.item, "shape"):
            return "group"
        return "table" if self.item.dtype.names else "array"

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes that AnnData writes."""
        written = {name: _plain(self.item.attrs[name]) for name in _ATTRIBUTES if name in self.item.attrs}
        # Before anndata 0.8 the attributes of sparse matrices had other names.
        if "h5sparse_format" in written:
            form, shape = written["h5sparse_format"], written.get("h5sparse_shape")
            written = {"encoding-type": f"{form}_matrix", "shape": shape} | written
        # mudata before 0.2 did not write the order.
        return {"mod-order": list(self.item)} | written if self.path == "mod" else written

    def child(self, key: str) -> Hdf5Node | None:
        """Return the node at `key` below a group, or None; a link that leaves the file is refused."""
        import h5py

        item = self.item
        for part in key.strip("/").split("/"):
            link = None if hasattr(item, "shape") else item.get(part, getlink=True)
            if link is None or part in ("", ".", ".."):
                return None
            if isinstance(link, h5py.ExternalLink):
                raise SourceError(
                    f"{self.location.address}: {key!r:.80} is a link to another file, which is not followed"
                )
            try:
                item = item.get(part)
            except RuntimeError as error:
                raise SourceError(
                    f"{self.location.address}: {key!r:.80} is a link to itself; write it again"
                ) from error
            if item is not None and item.file != self.item.file:
                raise SourceError(
                    f"{self.location.address}: {key!r:.80} is a link to another file, which is not followed"
                )
            # AnnData writes None as a dataset without a shape.
            if item is None or getattr(item, "shape", ()) is None:
                return None
        return Hdf5Node(item, self.location, self.version)

    @property
    def categories(self) -> Hdf5Node | None:
        """What the codes of a dataset stand for, as anndata wrote it before 0.8."""
        place = self.item.attrs.get("categories")
        return Hdf5Node(self.item.file[place], self.location, self.version) if place else None

    def array(self, missing_chunks: MissingPolicy = "fill", *, scanned: bool = False) -> Hdf5Array:
        """Return the dataset as an address; a chunk that is missing in the file holds the fill value."""
        return Hdf5Array.of(self.item, self.location, self.version)


def _plain(value: Any) -> Any:
    """Return an attribute as text, number or list."""
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    return value.decode() if isinstance(value, bytes) else value


@contextlib.contextmanager
def _root(location: Location) -> Iterator[Hdf5Node]:
    version = location.existing_version()
    with _opened(location) as file:
        try:
            _require_heaps(location.url, version)
            yield Hdf5Node(file, location, version)
        except SketchSelectError:
            raise
        except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split())[:160]
            raise _refused(location, error) or SourceError(
                f"{location.address}: the file is damaged ({reason}); restore it or write it again"
            ) from error


def open_hdf5_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> Matrix:
    """Open the matrix at `key` of a local file: by default ``X``, or the only one of two dimensions.

    Raises `SourceError` if there is no such matrix, or it is not stored by rows.
    """
    with _root(location) as root:
        node = _find_matrix(root, key)
        if node.kind == "group":
            matrix: Matrix = open_sparse(node, "fill", nonfinite)
        else:
            source = node.array()
            require_matrix(source.shape, source.dtype, source.address)
            matrix = StoredMatrix(source, None, None, nonfinite)
        matrix.feature_names, matrix.row_names = axis_names(*_anndata_around(root, node.path), matrix.shape)
        return matrix


def hdf5_vector(location: Location, key: str) -> Vector | None:
    """Return the vector at `key` of a local file, a column of AnnData ("obs/cell_type") or a dataset; or None."""
    with _root(location) as root:
        node = root.child(key)
        return None if node is None else vector_of(node)


def hdf5_columns_of_rows(location: Location, key: str | None) -> list[str]:
    """Return the columns of ``obs`` of a local file of AnnData or MuData."""
    with _root(location) as root:
        return columns_of_rows(root, key)


_A_MATRIX = "write a dataset of numbers, rows x columns"


def _find_matrix(root: Hdf5Node, key: str | None) -> Hdf5Node:
    """Return the dataset, or group of a sparse matrix, at `key`: by default ``X``, or the only one of two dimensions.

    Raises `SourceError` if there is none; the message lists what there is.
    """
    address = root.address
    key = in_modality(root, key)
    matrices = _matrices(root)
    if key is None and "X" in matrices:
        key = "X"
    elif key is None and len(matrices) == 1:
        (key,) = matrices
    there = first_few(matrices, 12) or "none"
    if key is None and not matrices:
        cure = f"{_A_MATRIX}, or convert a file of 10x Genomics by scanpy.read_10x_h5(...).write_h5ad(...)"
        raise SourceError(f"{address}: there is no matrix of rows in this file; {cure}")
    if key is None:
        raise SourceError(f"{address}: choose one of its matrices with key= (or --key): {there}")
    node = root.child(key)
    if node is None:
        hint = did_you_mean(key, matrices, f"; matrices there: {there}")
        raise SourceError(f"{address}: no matrix {key!r:.80} in this file{hint}")
    if node.kind == "table" or (node.kind == "group" and encoding(node) not in SPARSE):
        kind = "a group" if node.kind == "group" else "a table of records"
        cure = f"matrices there: {there}" if matrices else _A_MATRIX
        raise SourceError(f"{address}: {key!r:.80} is {kind}, not a matrix; {cure}")
    return node


def _matrices(root: Hdf5Node) -> list[str]:
    """Return the paths of all datasets of two dimensions and of the groups that hold a sparse matrix."""
    paths: list[str] = []

    def visit(path: str, item: Any) -> None:
        node = Hdf5Node(item, root.location, root.version)
        is_array = node.kind == "array" and len(node.item.shape or ()) == 2
        if is_array or (node.kind == "group" and encoding(node) in SPARSE):
            paths.append(path)

    root.item.visititems(visit)
    return paths


def _anndata_around(root: Hdf5Node, path: str) -> tuple[Hdf5Node, list[str]]:
    """Return the AnnData that holds the matrix at `path`, the file or a modality in it, and the path from there."""
    parts = path.split("/")
    if encoding(root) != MUDATA or parts[0] != "mod":
        return root, parts
    # The names of a modality may have a "/" in them.
    inner = {i: root.child("/".join(parts[:i])) for i in range(2, len(parts))}
    n = next((i for i, node in inner.items() if node is not None and encoding(node) == ANNDATA), 2)
    return inner.get(n) or root, parts[n:]
