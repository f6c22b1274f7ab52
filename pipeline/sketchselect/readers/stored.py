"""Matrices and vectors in stored arrays, whatever the store, and matrices in files that can only be loaded whole.

A store implements `StoredArray` (and, where it may hold AnnData, `anndata_layout.StoredNode`). Matrices and vectors
pickle as addresses; what a process loads whole (vectors, row ends, matrices) stays in least recently used caches.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.errors import BadBlock, SourceError
from sketchselect.linalg.csr import as_csr, structure_fault
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.validation import Array
from sketchselect.location import Location
from sketchselect.readers.base import READ_FACTOR, SHARD_FACTOR, Matrix, Nonfinite, Vector, as_entries

T = TypeVar("T")


class LRUCache:
    """The values that were asked for last.

    `maxsize`: How many values stay in memory.
    """

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self._values: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, key: tuple[Any, ...], load: Callable[[], T], *, renew: bool = False) -> T:
        """Return the value that this process loaded under the same key before, else that of `load`.

        The key must change when the content does, unless the caller asks to `renew` it.
        """
        # A fork shares memory, and not the files that are open in it.
        key = (os.getpid(), *key)
        with self._lock:
            if renew or key not in self._values:
                self._values[key] = load()
                while len(self._values) > self.maxsize:
                    self._values.popitem(last=False)
            self._values.move_to_end(key)
            value: T = self._values[key]
            return value

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()


PARTS = LRUCache(16)
"""Vectors, and row ends of sparse matrices."""

MATRICES = LRUCache(4)
"""Whole matrices, from files that cannot be read in parts."""


RECENT_NBYTES = 256 << 20
"""Bytes, as stored, of the chunks of remote stores that a process remembers."""


class StoredArray(Protocol):
    """An array in a store: small and picklable, read in runs along the first axis, or the second."""

    @property
    def location(self) -> Location:
        """The file or folder."""

    @property
    def address(self) -> str:
        """Path or URL for messages, with the place of the array in it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values that are read; that of text where they are text."""

    @property
    def itemsize(self) -> int:
        """Bytes of a number as stored."""

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Shape of the chunks; None where there are none."""

    @property
    def has_checksum(self) -> bool | None:
        """Whether a flipped bit is detected; None where that is not known."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found when its chunks were listed, for the user."""

    def read(self, start: int, stop: int, axis: int = 0) -> Array:
        """Return rows (`axis` 0) or columns (1); raise `ChunkReadError` where they cannot be read."""

    def require_same(self) -> None:
        """Raise `SourceChanged` if what describes the array was written anew; takes a read, so once a pass."""

    def identity(self, start: int, stop: int, axis: int = 0) -> str | None:
        """Return a fingerprint of the content of these rows or columns."""

    def describe(self, sparse: bool) -> dict[str, Any]:
        """Return the description for the manifest, of a matrix or of the entries of a sparse one."""


def checksum_notes(address: str, *arrays: StoredArray) -> tuple[str, ...]:
    """Return the note that not all of the arrays have checksums, or none."""
    if all(array.has_checksum is not False for array in arrays):
        return ()
    return (
        f"{address} has no checksum codec: a flipped bit in a chunk would go unnoticed (sketchselect convert writes "
        "stores that have one)",
    )


@dataclass(eq=False, repr=False)
class StoredMatrix(Matrix):
    """A two-dimensional stored array. Made by `open_matrix`; pickles as an address."""

    source: StoredArray
    feature_names: tuple[str, ...] | None  # Names of the columns
    row_names: Vector | None  # Names of the rows
    nonfinite: Nonfinite  # Policy for NaN and infinity

    def __post_init__(self) -> None:
        source = self.source
        self.shape, self.dtype, self.address = (source.shape[0], source.shape[1]), source.dtype, source.location.address
        if source.chunks is not None:
            self.chunk_rows, self.chunk_columns = source.chunks
        self.notes = checksum_notes(self.address, source) + source.notes
        self.missing_share = getattr(source, "missing_share", 0.0)
        self.read_factor = SHARD_FACTOR if getattr(source, "is_sharded", False) else READ_FACTOR
        self.packed_itemsize = source.itemsize if source.itemsize < self.dtype.itemsize else 0
        self.is_remote = not source.location.is_local
        self.remembered_nbytes = RECENT_NBYTES if self.is_remote else 0

    def _rows(self, start: int, stop: int) -> Array:
        return self.source.read(start, stop)

    def _columns(self, start: int, stop: int) -> Array:
        return self.source.read(start, stop, axis=1)

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these rows: of a Zarr array from their chunks' versions, else of the whole file."""
        if start == 0 and stop >= self.shape[0]:
            self.source.require_same()
        return self.source.identity(start, stop)

    def column_identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these columns; of a Zarr array columns appended behind their chunks leave it."""
        if start == 0 and stop >= self.shape[1]:
            self.source.require_same()
        return self.source.identity(start, stop, axis=1)

    def stored_nbytes(self, start: int, stop: int) -> int:
        """Return the bytes of these rows as stored, packed where they are."""
        return (stop - start) * self.shape[1] * self.source.itemsize

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | self.source.describe(sparse=False)


@dataclass(eq=False, repr=False)
class StoredSparseMatrix(Matrix):
    """A CSR matrix in three stored arrays. Made by `open_matrix`; pickles as addresses."""

    location: Location  # The group or file
    shape: tuple[int, int]  # As in the attributes of the group
    # data, indices, indptr: Its arrays
    data: StoredArray
    indices: StoredArray
    indptr: StoredArray
    feature_names: tuple[str, ...] | None  # Names of the columns
    row_names: Vector | None  # Names of the rows
    nonfinite: Nonfinite  # Policy for NaN and infinity

    is_sparse = True

    def __post_init__(self) -> None:
        self.dtype = self.data.dtype
        self.address = self.location.address
        self.is_remote = not self.location.is_local
        self.read_factor = SHARD_FACTOR if getattr(self.data, "is_sharded", False) else READ_FACTOR
        self.chunk_entries = 0 if self.data.chunks is None else min(self.data.chunks[0], self.data.shape[0])
        self.notes = checksum_notes(self.address, self.data, self.indices)
        self.notes += self.data.notes + self.indices.notes + self.indptr.notes

    @property
    def entry_offsets(self) -> NDArray[np.int64]:  # type: ignore[override]
        """Stored entries before each row: read once in a process, so that this pickles as an address."""
        version = self.indptr.identity(0, self.shape[0] + 1)
        return PARTS.get(("row ends", self.indptr.address, self.indptr.shape, version), self._row_ends)

    def _rows(self, start: int, stop: int) -> csr_array:
        ends = self.entry_offsets[start : stop + 1]
        first, last = int(ends[0]), int(ends[-1])
        data, indices = self.data.read(first, last), self.indices.read(first, last)
        try:
            rows = csr_array((data, indices, ends - first), shape=(stop - start, self.shape[1]))
            return as_csr(rows, self.address, start)
        except (BadBlock, ValueError) as error:
            raise SourceError(f"{error}; restore it or write it again") from error

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these rows: their ends, and the versions of the chunks that hold their entries."""
        if start == 0 and stop >= self.shape[0]:
            for array in (self.data, self.indices, self.indptr):
                array.require_same()
        ends = self.entry_offsets[start : stop + 1]
        parts = [array.identity(int(ends[0]), int(ends[-1])) for array in (self.data, self.indices)]
        if None in parts:
            return None
        return digest(f"csr {self.address} {self.shape[1]} {parts}", ends)

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | self.data.describe(sparse=True) | {"entries": int(self.entry_offsets[-1])}

    def _row_ends(self) -> NDArray[np.int64]:
        ends = np.asarray(self.indptr.read(0, self.shape[0] + 1))
        entries = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), self.data.shape, (0,))
        columns = np.lib.stride_tricks.as_strided(np.zeros(1, np.int32), self.indices.shape, (0,))
        fault = structure_fault(entries, columns, ends, self.shape)
        if fault is not None:
            raise SourceError(f"{self.address}: not a valid CSR matrix: {fault}; restore it or write it again")
        return ends.astype(np.int64)


WHOLE_NBYTES = 64 << 20
"""Vectors up to this size are read once per process, whatever their chunks."""


@dataclass(eq=False)
class StoredVector(Vector):
    """Entries in a stored array; a small one is read whole, once per process."""

    source: StoredArray

    def __post_init__(self) -> None:
        self.shape, self.address, self.dtype = self.source.shape, self.source.address, self.source.dtype

    def _entries(self, start: int, stop: int) -> Array:
        if start == stop or int(np.prod(self.shape)) * max(8, self.dtype.itemsize) > WHOLE_NBYTES:
            return self.source.read(start, stop)
        content = ("array", self.address, self.source.identity(0, self.n_rows))
        return PARTS.get(content, lambda: as_entries(self.source.read(0, self.n_rows), self.address))[start:stop]

    def identity(self) -> str | None:
        """Return a fingerprint from the metadata and the chunks' versions."""
        self.source.require_same()
        return self.source.identity(0, self.n_rows)


class LoadedMatrix(Matrix):
    """Base of dataclasses that pickle as an address and load the matrix behind it when it is asked for."""

    def __post_init__(self) -> None:
        loaded = self._load()
        copy_metadata(loaded, self)
        if loaded.entry_offsets is None:
            self.loaded_nbytes = loaded.stored_nbytes(0, loaded.shape[0])
        else:
            entry = loaded.dtype.itemsize + (4 if loaded.shape[1] < 1 << 31 else 8)
            self.loaded_nbytes = int(loaded.entry_offsets[-1]) * entry

    @abstractmethod
    def _read(self) -> Matrix:
        """Return the file's content as a matrix in memory; raise `SourceChanged` if it was rewritten."""

    @property
    def entry_offsets(self) -> NDArray[np.int64] | None:  # type: ignore[override]
        """Stored entries before each row, of sparse files; they stay with the loaded matrix."""
        return self._load().entry_offsets

    def _rows(self, start: int, stop: int) -> Any:
        return self._load().read_rows(start, stop)

    def _columns(self, start: int, stop: int) -> Array:
        return self._load().read_columns(start, stop)

    def _load(self) -> Matrix:
        address = (getattr(self, field.name) for field in fields(cast(Any, self)))
        return MATRICES.get((type(self).__name__, *address), self._read)


class MatrixMetadata(Matrix):
    """The attributes of a matrix without its rows, small when pickled: what a task knows whose rows are sent apart.

    All attributes but `entry_offsets`, `row_names`, `columns_beside` and `levels`, which may be as long as the matrix.
    """

    def __init__(self, matrix: Matrix) -> None:
        copy_metadata(matrix, self)

    def _rows(self, start: int, stop: int) -> Any:
        raise LookupError(f"{self.axes[0]}s {start} to {stop - 1} of {self.address} were not sent to this task")

    def identity(self, start: int, stop: int) -> str | None:
        """Return None: there are no rows to know."""
        return None


_LONG = {"entry_offsets", "row_names", "columns_beside", "unread_columns", "levels", "in_memory"}


def copy_metadata(matrix: Matrix, target: Matrix) -> None:
    """Give `target`, which does not hold the rows, the attributes of a matrix that are not as long as its rows."""
    for name in Matrix.__annotations__.keys() - _LONG:
        setattr(target, name, getattr(matrix, name))
