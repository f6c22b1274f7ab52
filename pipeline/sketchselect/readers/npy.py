"""NumPy files (``.npy``), read in runs of rows, and archives (``.npz``, SciPy's too), loaded once per process.

Nothing is unpickled.
"""

from __future__ import annotations

import math
import tokenize
import zipfile
from dataclasses import dataclass, field, replace
from typing import IO, Any

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect.errors import ChunkReadError, SourceError
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.validation import Array
from sketchselect.location import Location
from sketchselect.readers.arrays import ArrayMatrix, SparseMatrix, require_valid_csr
from sketchselect.readers.base import PLAIN_FACTOR, Matrix, Nonfinite, Vector, as_entries, as_names, require_matrix
from sketchselect.readers.stored import PARTS, LoadedMatrix

_PAGE_NBYTES, _PIECE_NBYTES = 4096, 4 << 20
_NEAR = 4  # Runs are read whole, with what lies between them, where that is at most so many times as much


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
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"format version {version}")
        # Version 3 differs in how it spells the names of fields, which are not read.
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran_order, dtype = read(file)
        if min(shape, default=0) < 0:
            raise ValueError("negative shape")
        offset = file.tell()
    except (ValueError, TypeError, EOFError, OSError, MemoryError, SyntaxError, tokenize.TokenError) as error:
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
        # Read, not mapped: mapped pages count as memory of the worker, and a file cut off under a map kills it.
        if header.fortran_order and len(header.shape) > 1:
            values = self._read_across(start, stop)
        else:
            width = math.prod(header.shape[1:])
            values = np.empty((stop - start) * width, header.dtype)
            # Not by `numpy.fromfile`, in which Ctrl-C may become a SystemError.
            with open(self.path, "rb") as file:
                file.seek(header.offset + start * width * header.dtype.itemsize)
                if file.readinto(values.view(np.uint8).data) < values.nbytes:
                    raise self._ends_early(start, stop)
        return values.reshape(stop - start, *header.shape[1:])

    def _read_across(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop` of the first dimension, of which each column in the file has a run.

        Short runs that are near each other are read with what lies between them.
        """
        header = self.header
        height, width = header.shape[0], math.prod(header.shape[1:])
        itemsize = header.dtype.itemsize
        run = stop - start
        whole = height * itemsize <= _NEAR * max(run * itemsize, _PAGE_NBYTES)
        first, n_read = (0, height) if whole else (start, run)
        values = np.empty((run, width), header.dtype)
        n_columns = min(width, max(1, _PIECE_NBYTES // (n_read * itemsize)))
        piece = np.empty((n_columns, n_read), header.dtype)
        with open(self.path, "rb") as file:
            for low in range(0, width, n_columns):
                columns = piece[: min(n_columns, width - low)]
                for j, part in [(low, columns)] if whole else enumerate(columns, start=low):
                    file.seek(header.offset + (j * height + first) * itemsize)
                    if file.readinto(part.reshape(-1).view(np.uint8).data) < part.nbytes:
                        raise self._ends_early(start, stop)
                values[:, low : low + len(columns)] = columns[:, start - first : stop - first].T
        return values

    def _ends_early(self, start: int, stop: int) -> ChunkReadError:
        return ChunkReadError(f"{self.path}: the file ends within rows {start} to {stop - 1}; copy it again")

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
        if not header.fortran_order:
            self.read_factor = PLAIN_FACTOR
        elif self.axes[0] == "column":
            # The values of a column lie apart in the file, and the system reads whole pages.
            self.chunk_rows = min(self.shape[0], max(1, _PAGE_NBYTES // header.dtype.itemsize))

    def _rows(self, start: int, stop: int) -> Array:
        try:
            return self.source.read(start, stop)
        except OSError as error:
            raise ChunkReadError(
                f"{self.address}: {self.axes[0]}s {start} to {stop - 1} cannot be read ({error.strerror}); check "
                "the disk"
            ) from error

    def _columns(self, start: int, stop: int) -> Any:
        return self.transposed().read_rows(start, stop).T

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

    def _entries(self, start: int, stop: int) -> Array:
        return self.source.read(start, stop)

    def identity(self) -> str | None:
        """Return the fingerprint of the file."""
        return self.source.identity()


def open_npy_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> NpyMatrix:
    """Open the local file at `location`; there is no `key`, it holds one array."""
    return NpyMatrix(NpyArray.open(location), nonfinite)


def open_npy_vector(location: Location, n_rows: int | None, name: str) -> NpyVector:
    """Open the local file at `location`."""
    return NpyVector(NpyArray.open(location))


MAX_BYTES = 4 << 30
"""Largest array that is loaded out of an archive."""

_CSR = frozenset({"data", "indices", "indptr", "shape"})


@dataclass(frozen=True)
class Archive:
    """An ``.npz`` file as an address, with the headers of its arrays. Small and picklable."""

    path: str
    headers: dict[str, NpyHeader] = field(hash=False)
    version: str

    @classmethod
    def open(cls, location: Location) -> Archive:
        """Read the headers of all arrays in the archive."""
        address, version = location.address, location.existing_version()
        headers = {}
        try:
            with zipfile.ZipFile(location.url) as archive:
                for name in archive.namelist():
                    if name.endswith(".npy"):
                        with archive.open(name) as file:
                            headers[name[:-4]] = read_header(file, f"{address}: array {name[:-4]!r:.80}")
        except RuntimeError as error:
            raise SourceError(f"{address}: the archive is encrypted; write it again without a password") from error
        except (zipfile.BadZipFile, EOFError, zipfile.zlib.error) as error:  # type: ignore[attr-defined]
            raise SourceError(
                f"{address}: not a NumPy archive, or it is damaged; write it again with numpy.savez"
            ) from error
        except OSError as error:
            raise location.failure(error) from error
        return cls(location.url, headers, version)

    def load(self, *names: str) -> list[Array]:
        """Return the named arrays.

        Raises `SourceError` if one is larger than `MAX_BYTES` or holds objects, or the archive is damaged;
        `SourceChanged` if the file was rewritten since it was opened.
        """
        for name in names:
            header = self.headers[name]
            if header.nbytes > MAX_BYTES:
                raise SourceError(
                    f"{self.path}: array {name!r} takes {format_bytes(header.nbytes)}, archives are read up to "
                    f"{format_bytes(MAX_BYTES)}: write it with numpy.save and convert that file to Zarr"
                )
            if header.dtype.hasobject:
                raise SourceError(f"{self.path}: array {name!r} holds Python objects, which are never unpickled")
        Location(self.path).require_version(self.version)
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                return [archive[name] for name in names]
        except (zipfile.BadZipFile, ValueError, EOFError, OSError, zipfile.zlib.error) as error:  # type: ignore[attr-defined]
            raise SourceError(
                f"{self.path}: the archive is damaged ({type(error).__name__}); write it again"
            ) from error

    def identity(self, name: str) -> str:
        """Return a fingerprint of one array: address, size and modification time of the file, and the name."""
        return digest(f"npz {self.path} {Location(self.path).version()} {name}")

    def listed(self) -> str:
        """Return the arrays and their shapes, for messages."""
        return ", ".join(
            f"{name} ({' x '.join(map(str, h.shape)) or 'one number'} {h.dtype})" for name, h in self.headers.items()
        )


@dataclass(eq=False, repr=False)
class NpzMatrix(LoadedMatrix):
    """A matrix in an ``.npz`` archive. Made by `open_matrix`; pickles as an address."""

    archive: Archive
    key: str | None
    nonfinite: Nonfinite
    axes: tuple[str, str] = ("row", "column")

    def transposed(self) -> Matrix:
        """Return the same archive, transposed when it is loaded."""
        return NpzMatrix(self.archive, self.key, self.nonfinite, self.axes[::-1])

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the file; a file that is rewritten longer is another one."""
        by = "" if self.axes[0] == "row" else "columns:"
        return f"{self.archive.identity(self.key or 'csr')}:{by}{start}:{stop}"

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | {"format": "npz" if self.key is not None else "npz, CSR", "key": self.key}

    def _read(self) -> Matrix:
        matrix = _read(self.archive, self.key, self.nonfinite)
        return matrix if self.axes[0] == "row" else matrix.transposed()


@dataclass(eq=False)
class NpzVector(Vector):
    """Entries in an ``.npz`` archive, loaded once per process."""

    archive: Archive
    key: str

    def __post_init__(self) -> None:
        header = self.archive.headers[self.key]
        self.shape, self.dtype, self.address = header.shape, header.dtype, f"{self.archive.path}: array {self.key!r}"

    def _entries(self, start: int, stop: int) -> Array:
        content = ("archive", self.archive.path, self.archive.version, self.key)
        return PARTS.get(content, lambda: as_entries(self.archive.load(self.key)[0], self.address))[start:stop]

    def identity(self) -> str | None:
        """Return the fingerprint of the file and the name of the array."""
        return self.archive.identity(self.key)


def open_npz_vector(location: Location, n_rows: int | None, name: str) -> NpzVector:
    """Open the archive at `location`: its array `name`, else ``y``, else the only one of `n_rows` entries."""
    archive = Archive.open(location)
    for key in (name, "y"):
        if key in archive.headers:
            return NpzVector(archive, key)
    shapes = {key: header.shape for key, header in archive.headers.items()}
    fitting = [key for key, shape in shapes.items() if len(shape) == 1 and n_rows in (None, shape[0])]
    if len(fitting) != 1:
        entries = "one-dimensional" if n_rows is None else f"of {n_rows} entries"
        raise SourceError(
            f"{name}: {archive.path} has no array {name!r} or 'y', and not exactly one {entries}; "
            f"there are: {archive.listed()}"
        )
    return NpzVector(archive, fitting[0])


def open_npz_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> NpzMatrix:
    """Open the archive at `location`: `key`, else ``X``, else a SciPy matrix, else the only two-dimensional array."""
    archive = Archive.open(location)
    headers = archive.headers
    if key is None:
        two_d = [name for name, header in headers.items() if len(header.shape) == 2]
        if "X" in headers:
            key = "X"
        elif headers.keys() >= _CSR or "format" in headers:
            return NpzMatrix(archive, None, nonfinite)
        elif len(two_d) == 1:
            key = two_d[0]
        else:
            raise SourceError(
                f"{location.address}: {'several arrays' if two_d else 'no array'} in this archive could be the matrix; "
                f"choose one with key= (or --key): {archive.listed()}"
            )
    elif key not in headers:
        raise SourceError(f"{location.address}: no array {key!r:.80} in this archive; there are: {archive.listed()}")
    return NpzMatrix(archive, key, nonfinite)


def _read(archive: Archive, key: str | None, nonfinite: Nonfinite) -> Matrix:
    names = None
    if key is None:
        matrix = _read_sparse(archive)
        n_columns = int(matrix.shape[1])
    else:
        (matrix,) = archive.load(key)
        n_columns = matrix.shape[-1] if matrix.ndim else 0
    if "feature_names" in archive.headers and not archive.headers["feature_names"].dtype.hasobject:
        (values,) = archive.load("feature_names")
        names = as_names(values.tolist(), n_columns)
    if key is None:
        return SparseMatrix(matrix, names, nonfinite, archive.path)
    return ArrayMatrix(matrix, names, nonfinite, f"{archive.path}: array {key!r}")


def _read_sparse(archive: Archive) -> Any:
    import scipy.sparse as sp

    form = "csr"
    if "format" in archive.headers:
        (text,) = archive.load("format")
        if text.size != 1:
            raise SourceError(f"{archive.path}: 'format' is not one word; write it again")
        form = text.item().decode() if isinstance(text.item(), bytes) else str(text.item())
    if form == "csr":
        if not archive.headers.keys() >= _CSR:
            raise SourceError(
                f"{archive.path}: a CSR archive needs data, indices, indptr and shape; there are: {archive.listed()}"
            )
        data, indices, indptr, shape = archive.load("data", "indices", "indptr", "shape")
        if shape.shape != (2,) or shape.dtype.kind not in "iu":
            raise SourceError(f"{archive.path}: 'shape' is not two whole numbers; write it again")
        size = (int(shape[0]), int(shape[1]))
        require_valid_csr(data, indices, indptr, size, archive.path)
        return sp.csr_matrix((data, indices, indptr), shape=size)
    try:
        return sp.load_npz(archive.path)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise SourceError(
            f"{archive.path}: not a SciPy sparse matrix ({type(error).__name__}); write it again"
        ) from error
