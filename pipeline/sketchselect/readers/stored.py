"""Arrays in stores, as readers see them, and CSR matrices in three of them.

Least recently used caches of one process: whole vectors, row ends, whole matrices.

Vectors in stored arrays, and the columns of data frames that AnnData stores as two arrays of a group.

Base class of matrices in files that can only be loaded whole: once in each process that reads them.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.errors import BadBlock, SourceError
from sketchselect.linalg.arrays import Array, canonical
from sketchselect.linalg.csr import as_csr, structure_fault
from sketchselect.linalg.hashing import digest
from sketchselect.location import Location
from sketchselect.readers.base import Matrix, Nonfinite, Vector, as_entries, check_range, warn_beyond_double
from sketchselect.readers.views import copy_metadata

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


class StoredArray(Protocol):
    """An array in a store: small and picklable, read in runs along the first axis."""

    @property
    def address(self) -> str:
        """Path or URL for messages."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values that are read."""

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`; raise `ChunkReadError` where they cannot be read."""

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the content of these entries."""


@dataclass(eq=False, repr=False)
class StoredSparseMatrix(Matrix):
    """Base of CSR matrices in three stored arrays; they pickle as addresses."""

    location: Location  # The group or file
    shape: tuple[int, int]  # As in the attributes of the group
    # data, indices, indptr: Its arrays
    data: Any
    indices: Any
    indptr: Any
    feature_names: tuple[str, ...] | None  # Names of the columns
    row_names: Vector | None  # Names of the rows
    nonfinite: Nonfinite  # Policy for NaN and infinity

    is_sparse = True

    def __post_init__(self) -> None:
        self.dtype = self.data.dtype
        self.address = self.location.address
        self.is_remote = not self.location.is_local

    @property
    def entry_offsets(self) -> NDArray[np.int64]:  # type: ignore[override]
        """Stored entries before each row: read once in a process, so that this pickles as an address."""
        version = self.indptr.identity(0, self.shape[0] + 1)
        return PARTS.get(("row ends", self.indptr.address, self.indptr.shape, version), self._row_ends)

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

_NULLABLE = {"nullable-string-array", "nullable-integer", "nullable-boolean"}
COLUMNS = {"categorical": ("codes", "categories")} | dict.fromkeys(_NULLABLE, ("values", "mask"))
"""How AnnData encodes the columns of a data frame that are groups, and their two arrays."""


@dataclass(eq=False)
class StoredVector(Vector):
    """Entries in a stored array; a small one is read whole, once per process."""

    source: StoredArray

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

    # first, second: The arrays
    first: StoredVector
    second: StoredVector
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


def column_of(encoding: str, first: StoredVector, second: StoredVector, group: str) -> Vector:
    """Return the vector of a group whose encoding is one of `COLUMNS`."""
    kind = CategoricalVector if encoding == "categorical" else NullableVector
    return kind(first, second, group)


class LoadedMatrix(Matrix):
    """Base of dataclasses that pickle as an address and load the matrix behind it when it is asked for."""

    def __post_init__(self) -> None:
        copy_metadata(self._load(), self)

    @abstractmethod
    def _key(self) -> tuple[Any, ...]:
        """Return a name of the content: another one when the file is another."""

    @abstractmethod
    def _read(self) -> Matrix:
        """Return the file's content as a matrix in memory; raise `SourceChanged` if it was rewritten."""

    @property
    def entry_offsets(self) -> NDArray[np.int64] | None:  # type: ignore[override]
        """Stored entries before each row, of sparse files; they stay with the loaded matrix."""
        return self._load().entry_offsets

    def read_rows(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`, CSR where the file is sparse."""
        return self._load().read_rows(start, stop)

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`, dense."""
        return self._load().read_columns(start, stop)

    def _load(self) -> Matrix:
        return MATRICES.get((type(self).__name__, *self._key()), self._read)
