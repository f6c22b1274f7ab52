"""Files of svmlight and libsvm: sparse rows with a target each, loaded once per process that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.hashing import digest
from sketchselect.location import Location
from sketchselect.readers.arrays.numpy_scipy import SparseMatrix
from sketchselect.readers.base import Matrix
from sketchselect.readers.cache import MATRICES
from sketchselect.readers.checks import Nonfinite, as_entries, check_range
from sketchselect.readers.files.loaded import LoadedMatrix
from sketchselect.readers.vector import Vector

TARGET = "target"
"""Name of the first entries of all rows."""


@dataclass(eq=False, repr=False)
class SvmlightMatrix(LoadedMatrix):
    """Rows of an svmlight file, without their targets. Made by `open_matrix`; pickles as an address."""

    path: str
    version: str
    n_columns: int | None  # None: as many as the largest index says
    nonfinite: Nonfinite

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the file and the number of columns."""
        return f"{digest(f'svmlight {self.path} {Location(self.path).version()} {self.shape[1]}')}:{start}:{stop}"

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | {"format": "svmlight"}

    def _key(self) -> tuple[Any, ...]:
        return self.path, self.version, self.n_columns, self.nonfinite

    def _read(self) -> Matrix:
        rows, _ = _content(self.path, self.version, self.n_columns)
        return SparseMatrix(rows, None, self.nonfinite, self.path)


@dataclass(eq=False)
class SvmlightVector(Vector):
    """The targets in an svmlight file."""

    path: str
    version: str

    def __post_init__(self) -> None:
        values = self._values()
        self.shape, self.dtype, self.address = values.shape, values.dtype, f"{self.path}: {TARGET}"

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        return self._values()[start:stop]

    def identity(self) -> str | None:
        """Return a fingerprint of the file."""
        return digest(f"svmlight targets {self.path} {Location(self.path).version()}")

    def _values(self) -> Array:
        return as_entries(_content(self.path, self.version, None)[1], self.path)


def open_svmlight_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> SvmlightMatrix:
    """Open the local file at `location`; the `key` is the number of its columns, for when the last are all zero."""
    if key is not None and not (key.isdecimal() and int(key) > 0):
        raise BadParameter(f"{location.address}: the key of an svmlight file is its number of columns, got {key!r:.80}")
    return SvmlightMatrix(location.url, location.existing_version(), None if key is None else int(key), nonfinite)


def open_svmlight_vector(location: Location, n_rows: int | None, name: str) -> SvmlightVector:
    """Open the targets of the local file at `location`."""
    return SvmlightVector(location.url, location.existing_version())


def svmlight_vector(location: Location, key: str) -> SvmlightVector | None:
    """Return the targets of the file of a matrix if they are named, else None."""
    return open_svmlight_vector(location, None, key) if key == TARGET else None


def _content(path: str, version: str, n_columns: int | None) -> tuple[Any, Array]:
    """Return the rows as CSR, and the targets. Columns count from 0 where an index is 0, else from 1."""

    def load() -> tuple[Any, Array]:
        from sklearn.datasets import load_svmlight_file

        Location(path).require_version(version)
        try:
            rows, targets = load_svmlight_file(path, n_features=n_columns, dtype=np.float64)
        except (ValueError, OverflowError, EOFError, OSError) as error:
            reason = " ".join(str(error).split())[:160] or type(error).__name__
            raise SourceError(f"{path}: not an svmlight file, or damaged ({reason}); write it again") from error
        return rows, targets

    return MATRICES.get(("svmlight", path, version, n_columns), load)
