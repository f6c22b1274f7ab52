"""Arrays in stores, as readers see them, and CSR matrices in three of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.errors import BadBlock, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.sparse.csr import as_csr, structure_fault
from sketchselect.location import Location
from sketchselect.readers.base import Matrix
from sketchselect.readers.cache import PARTS
from sketchselect.readers.checks import Nonfinite, check_range, warn_beyond_double
from sketchselect.readers.vector import Vector


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
