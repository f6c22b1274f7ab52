"""Matrices and vectors in NumPy files (``.npy``): read in runs of rows, never as a whole, never unpickled."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np

from sketchselect.errors import ChunkReadError, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.hashing import digest
from sketchselect.location import Location
from sketchselect.readers.base import Matrix
from sketchselect.readers.checks import Nonfinite, as_entries, check_range, finish, require_matrix
from sketchselect.readers.vector import Vector

_PAGE_NBYTES = 4096


@dataclass(frozen=True)
class NpyHeader:
    """The header of an ``.npy`` file: the array's shape, type and order, and the place of the first value."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], address: str) -> NpyHeader:
    """Return the header at the beginning of `file`, or raise `SourceError`."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"format version {version}")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read(file)
        offset = file.tell()
    except (ValueError, EOFError, OSError) as error:
        raise SourceError(
            f"{address}: not a NumPy file, or its header is damaged; write it again with numpy.save"
        ) from error
    return NpyHeader(tuple(map(int, shape)), dtype, bool(fortran_order), offset)


@dataclass(frozen=True)
class NpyArray:
    """An ``.npy`` file as an address. Small and picklable."""

    path: str
    header: NpyHeader
    version: str

    @classmethod
    def open(cls, location: Location) -> NpyArray:
        """Read the header, and check that the file is as long as it says."""
        address, version = location.address, location.existing_version()
        try:
            with open(location.url, "rb") as file:
                header = read_header(file, address)
        except OSError as error:
            raise location.failure(error) from error
        size = int(version.partition(":")[0])
        if header.dtype.kind not in "OV" and size < header.offset + header.nbytes:
            raise SourceError(
                f"{address}: the file is cut off: it has {size} bytes of {header.offset + header.nbytes}; copy it again"
            )
        return cls(location.url, header, version)

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop` of the first dimension; raise `ChunkReadError` where the file ends early."""
        header = self.header
        Location(self.path).require_version(self.version)
        if header.fortran_order and len(header.shape) > 1:
            mapped = np.memmap(self.path, header.dtype, "r", header.offset, header.shape, "F")
            return np.array(mapped[start:stop], order="C")
        width = math.prod(header.shape[1:])
        n_values = (stop - start) * width
        # Read, not mapped: mapped pages count as memory of the worker, and a file cut off under a map kills it.
        offset = header.offset + start * width * header.dtype.itemsize
        values: Array = np.fromfile(self.path, header.dtype, n_values, offset=offset)
        if values.size < n_values:
            raise ChunkReadError(f"{self.path}: the file ends within rows {start} to {stop - 1}; copy it again")
        return values.reshape(stop - start, *header.shape[1:])

    def identity(self) -> str:
        """Return a fingerprint of the file: address, size, modification time, and header."""
        header = self.header
        layout = f"{header.shape} {header.dtype.str} {header.fortran_order}"
        return digest(f"npy {self.path} {Location(self.path).version()} {layout}")


@dataclass(eq=False, repr=False)
class NpyMatrix(Matrix):
    """A matrix in an ``.npy`` file. Made by `open_matrix`; pickles as an address."""

    source: NpyArray
    nonfinite: Nonfinite
    axes: tuple[str, str] = ("row", "column")

    def __post_init__(self) -> None:
        header = self.source.header
        require_matrix(header.shape, header.dtype, self.source.path)
        self.shape = (header.shape[0], header.shape[1])
        self.dtype = header.dtype
        self.address = self.source.path
        if self.axes[0] == "column" and header.fortran_order:
            # The values of a column lie apart in the file, and the system reads whole pages.
            self.chunk_rows = min(self.shape[0], max(1, _PAGE_NBYTES // header.dtype.itemsize))

    def read_rows(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop`."""
        check_range(start, stop, self.shape[0], self.address, self.axes[0])
        try:
            return finish(self.source.read(start, stop), self.address)
        except OSError as error:
            raise ChunkReadError(
                f"{self.address}: {self.axes[0]}s {start} to {stop - 1} cannot be read ({error.strerror}); check "
                "the disk"
            ) from error

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop`."""
        return finish(self.transposed().read_rows(start, stop).T, self.address)

    def transposed(self) -> Matrix:
        """Return the same file read in the other order: what was C order is Fortran order of the transpose."""
        header = self.source.header
        transposed = replace(header, shape=header.shape[::-1], fortran_order=not header.fortran_order)
        return NpyMatrix(replace(self.source, header=transposed), self.nonfinite, self.axes[::-1])

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the file; a file that is rewritten longer is another one."""
        return f"{self.source.identity()}:{start}:{stop}"

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | {"format": "npy"}


@dataclass(eq=False)
class NpyVector(Vector):
    """Entries in an ``.npy`` file."""

    source: NpyArray

    def __post_init__(self) -> None:
        self.shape, self.dtype, self.address = self.source.header.shape, self.source.header.dtype, self.source.path

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        return as_entries(self.source.read(start, stop), self.address)

    def identity(self) -> str | None:
        """Return the fingerprint of the file."""
        return self.source.identity()


def open_npy_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> NpyMatrix:
    """Open the local file at `location`; there is no `key`, it holds one array."""
    return NpyMatrix(NpyArray.open(location), nonfinite)


def open_npy_vector(location: Location, n_rows: int | None, name: str) -> NpyVector:
    """Open the local file at `location`."""
    return NpyVector(NpyArray.open(location))
