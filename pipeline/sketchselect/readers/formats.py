"""File formats by the endings of their names: the readers of matrices and vectors in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sketchselect._plugins import Plugins
from sketchselect.errors import BadParameter, SourceError
from sketchselect.location import Location
from sketchselect.readers.base import Matrix, Nonfinite, Vector
from sketchselect.readers.hdf5 import hdf5_vector, open_hdf5_matrix
from sketchselect.readers.npy import open_npy_matrix, open_npy_vector, open_npz_matrix, open_npz_vector
from sketchselect.readers.parquet import ENDINGS as PARQUET_ENDINGS
from sketchselect.readers.parquet import open_parquet_matrix, open_parquet_vector, parquet_column
from sketchselect.readers.text import (
    open_market_matrix,
    open_svmlight_matrix,
    open_svmlight_vector,
    open_text_vector,
    svmlight_vector,
)


@dataclass(frozen=True)
class FileFormat:
    """A file format, and what opens it."""

    name: str  # What messages call such files
    endings: tuple[str, ...]  # Endings of their names, in lower case
    # ``matrix(location, key, nonfinite)`` opens a matrix; None where it is not read in place, see `cure`
    matrix: Callable[[Location, str | None, Nonfinite], Matrix] | None = None
    # ``vector(location, n_rows, name)`` opens a vector
    vector: Callable[[Location, int | None, str], Vector] | None = None
    # ``vector_inside(location, key)`` returns the vector of this name in the file of a matrix, or None
    vector_inside: Callable[[Location, str], Vector | None] | None = None
    takes_key: bool = False  # Whether one file can hold several matrices
    remote: bool = False  # Whether it is read from URLs too
    cure: str = ""  # What to do with a file that is not read in place; ``{name}`` is the name of the file

    def open_matrix(self, location: Location, key: str | None, nonfinite: Nonfinite) -> Matrix:
        """Open the matrix in a file, or raise `SourceError` naming what to do instead."""
        if key is not None and not self.takes_key:
            raise BadParameter(f"{location.address}: {self.name} hold one matrix, which has no key; leave key out")
        if location.is_local:
            location.existing_version()
        if self.matrix is None:
            cure = self.cure.format(name=location.name)
            raise SourceError(f"{location.address}: {self.name} are not read in place; {cure}")
        self._require_local(location)
        return self.matrix(location, key, nonfinite)

    def open_vector(self, location: Location, n_rows: int | None, name: str) -> Vector:
        """Open the vector in a file, or raise `SourceError` naming what to do instead."""
        self._require_local(location)
        if self.vector is None:
            hint = (
                'give its name in the file alone, such as "obs/cell_type"'
                if self.vector_inside is not None
                else "use a .npy file"
            )
            raise SourceError(f"{name}: {location.address}: no vectors are read from {self.name}; {hint}")
        return self.vector(location, n_rows, name)

    def _require_local(self, location: Location) -> None:
        if location.is_local:
            location.existing_version()
        if not (location.is_local or self.remote):
            raise SourceError(
                f"{location.address}: {self.name} are read from local disks only; copy it, or convert it to Zarr"
            )


PARQUET = FileFormat(
    "Parquet files",
    PARQUET_ENDINGS,
    open_parquet_matrix,
    open_parquet_vector,
    parquet_column,
    takes_key=True,
    remote=True,
)
TEXT = FileFormat(
    "text files",
    (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz"),
    vector=open_text_vector,
    cure="first: sketchselect convert {name} OUT.zarr",
)

FORMATS = (
    FileFormat("NumPy files", (".npy",), open_npy_matrix, open_npy_vector),
    FileFormat("NumPy archives", (".npz",), open_npz_matrix, open_npz_vector, takes_key=True),
    FileFormat("Matrix Market files", (".mtx", ".mtx.gz"), open_market_matrix),
    FileFormat(
        "svmlight files",
        tuple(f".{name}{packed}" for name in ("svm", "svmlight", "libsvm") for packed in ("", ".gz", ".bz2")),
        open_svmlight_matrix,
        open_svmlight_vector,
        vector_inside=svmlight_vector,
        takes_key=True,
    ),
    PARQUET,
    TEXT,
    FileFormat(
        "Zip files",
        (".zip",),
        cure="unpack it, or in Python: zarr.open_array(zarr.storage.ZipStore({name!r}, mode='r'))",
    ),
    FileFormat(
        "HDF5 files", (".h5ad", ".h5mu", ".h5", ".hdf5"), open_hdf5_matrix, vector_inside=hdf5_vector, takes_key=True
    ),
)
"""All formats but Zarr, which is what a folder without Parquet files, or a name without one of these endings, is."""

PLUGINS: Plugins[FileFormat] = Plugins(
    "readers",
    "a FileFormat of files that end in",
    lambda part, name: isinstance(part, FileFormat) and f".{name}" in part.endings,
)
"""Formats of other packages, by an ending without its first dot."""


def format_by_ending(name: str) -> FileFormat | None:
    """Return the format of a file of this name in lower case; None where it may be Zarr."""
    known = next((known for known in FORMATS if name.endswith(known.endings)), None)
    if known is not None or name.endswith(".zarr"):
        return known
    _, *words = name.rpartition("/")[2].split(".")
    endings = (".".join(words[i:]) for i in range(len(words)))
    return next((plugin for ending in endings if (plugin := PLUGINS.find(ending)) is not None), None)
