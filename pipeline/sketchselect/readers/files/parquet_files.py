"""Columns of Parquet files, a row group at a time: one file, or a folder of them in the order of their names."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter, ChunkReadError, EmptyInput, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.location import Location, locate
from sketchselect.readers.base import Matrix, Nonfinite
from sketchselect.readers.checks import ALLOWED, check_range, finish
from sketchselect.readers.vector import Vector

ENDINGS = (".parquet", ".pq")

_SHOWN = 5


@dataclass(frozen=True)
class ParquetFile:
    """One file, and what its footer said when it was opened.

    Parameters
    ----------
    location : Location
        Where it is.
    version : str
        Size and time of the file.
    groups : tuple of int
        Rows of each row group.
    """

    location: Location
    version: str
    groups: tuple[int, ...]

    def read(self, group: int, columns: tuple[str, ...]) -> Any:
        """Return some columns of a row group as an Arrow table.

        Raises
        ------
        SourceChanged
            If the file was rewritten since it was opened.
        ChunkReadError
            If the row group cannot be decoded; file and row group are named.
        """
        self.location.require_version(self.version)
        try:
            with _opened(self.location) as file:
                return file.read_row_group(group, columns=list(columns), use_threads=False)
        except MemoryError:
            raise
        except Exception as error:
            raise ChunkReadError(
                f"{self.location.address}: row group {group} cannot be read ({type(error).__name__}: it is cut off or "
                "damaged); restore it or write it again"
            ) from error


@dataclass(eq=False)
class ParquetMatrix(Matrix):
    """Numeric columns of Parquet files. Made by `open_matrix`; pickles as addresses.

    Parameters
    ----------
    location : Location
        The file or folder.
    files : tuple of ParquetFile
        In the order of their rows.
    names : tuple of str
        The columns.
    kind : numpy.dtype
        The type that holds all of them; float64 where some entry may be null.
    policy : {"error", "drop_rows", "missing"}
        For NaN (nulls are) and infinity.
    """

    location: Location
    files: tuple[ParquetFile, ...]
    names: tuple[str, ...]
    kind: np.dtype[Any]
    policy: Nonfinite

    def __post_init__(self) -> None:
        heights = [rows for file in self.files for rows in file.groups]
        self.shape = (sum(heights), len(self.names))
        self.dtype = self.kind
        self.address = self.location.address
        self.feature_names = self.names
        self.nonfinite = self.policy
        self.chunk_rows = max(heights)
        self.chunk_edges = (0, *itertools.accumulate(rows for rows in heights if rows))

    def read_rows(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop`; nulls are NaN."""
        check_range(start, stop, self.shape[0], self.address)
        out = np.empty((stop - start, self.shape[1]), self.kind)
        for file, group, first, rows in _groups(self.files, start, stop):
            table = file.read(group, self.names)
            low, high = max(start, first), min(stop, first + rows)
            for j, column in enumerate(table.columns):
                values = column.slice(low - first, high - low)
                if values.null_count and self.kind.kind != "f":
                    raise ChunkReadError(
                        f"{file.location.address}: column {self.names[j]!r:.80} has nulls in row group {group}, and "
                        "the footer says that it has none; write the file again"
                    )
                out[low - start : high - start, j] = values.to_numpy()
        return finish(out, self.address)

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these rows: the versions of the files under them, the row groups and the columns."""
        digest = hashlib.blake2b(f"parquet {self.names} {self.kind.str}".encode(), digest_size=16)
        for file, group, first, rows in _groups(self.files, start, stop):
            version = file.location.version()
            digest.update(f"\n{file.location.address} {version} {group} {start - first} {stop - first} {rows}".encode())
        return digest.hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return what the manifest says of this source."""
        n_groups = sum(len(file.groups) for file in self.files)
        return super().describe() | {"format": "parquet", "files": len(self.files), "row_groups": n_groups}


@dataclass(eq=False)
class ParquetVector(Vector):
    """One column of Parquet files: targets, labels or weights.

    Parameters
    ----------
    location : Location
        The file or folder.
    files : tuple of ParquetFile
        In the order of their rows.
    column : str
        Its name.
    """

    location: Location
    files: tuple[ParquetFile, ...]
    column: str

    def __post_init__(self) -> None:
        self.shape = (sum(sum(file.groups) for file in self.files),)
        self.address = f"{self.location.address}: column {self.column!r}"
        self.dtype = self.read(0, min(1, self.shape[0])).dtype

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        from sketchselect.readers.zarr.vector import as_entries

        check_range(start, stop, self.n_rows, self.address)
        parts = [np.empty(0)] if start == stop else []
        for file, group, first, rows in _groups(self.files, start, stop):
            column = file.read(group, (self.column,)).column(0)
            values = column.slice(max(start, first) - first, min(stop, first + rows) - max(start, first))
            parts.append(as_entries(np.asarray(values.to_pylist()), self.address))
        return np.concatenate(parts)

    def identity(self) -> str | None:
        """Return a fingerprint of the files and the name of the column."""
        versions = [f"{file.location.address} {file.location.version()}" for file in self.files]
        return hashlib.blake2b(f"parquet {self.column} {versions}".encode(), digest_size=16).hexdigest()


def open_parquet_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> ParquetMatrix:
    """Open the file or folder at `location`.

    Parameters
    ----------
    location : Location
        A ``.parquet`` file, or a folder of such files with the same columns.
    key : str or None
        The columns, separated by commas; with "-" before the first (or before each) those to leave out. None: all,
        which must be numeric.
    nonfinite : {"error", "drop_rows", "missing"}
        Policy for NaN and infinity.

    Raises
    ------
    SourceError
        If a file is no Parquet, a column is not there or not numeric, or the files differ in their columns.
    """
    files, schema, nulls = _open_files(location)
    there = [field.name for field in schema]
    names = _chosen(there, key, location)
    types = []
    for name in names:
        kind = _numpy_type(schema.field(name).type)
        if kind is None:
            raise SourceError(
                f"{location.address}: column {name!r:.80} is of type {schema.field(name).type}; allowed are {ALLOWED}: "
                f'leave it out with key="-{name:.80}", or choose columns with key="NAME,NAME"'
            )
        types.append(np.dtype(np.float64) if nulls(name) and kind.kind != "f" else kind)
    matrix = ParquetMatrix(location, files, tuple(names), np.result_type(*types), nonfinite)
    if not matrix.shape[0]:
        raise EmptyInput(f"{location.address}: there are no rows")
    return matrix


def open_parquet_vector(location: Location, column: str | None, name: str) -> ParquetVector:
    """Open one column (the only one, where no name is given) of the file or folder at `location`."""
    files, schema, _ = _open_files(location)
    there = [field.name for field in schema]
    column = name if column is None and name in there else column
    if column is None and len(there) == 1:
        column = there[0]
    if column is None or column not in there:
        raise SourceError(
            f"{name}: {location.address} has no column {column or name!r:.80}; there are {_listed(there)}"
        )
    return ParquetVector(location, files, column)


def is_parquet(location: Location) -> bool:
    """Return whether a location is a Parquet file, or a local folder with such files in it."""
    if location.url.lower().rstrip("/").endswith(ENDINGS):
        return True
    folder = Path(location.url)
    return location.is_local and folder.is_dir() and bool(_inside(folder))


def has_column(location: Location, column: str) -> bool:
    """Return whether a Parquet source has a column of this name."""
    return column in _open_files(location)[1].names


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.lower().endswith(ENDINGS) and path.is_file())


def _open_files(location: Location) -> tuple[tuple[ParquetFile, ...], Any, Any]:
    """Return the files, their common schema, and a function that says whether a column may have nulls."""
    places = [location]
    if location.is_local and Path(location.url).is_dir():
        places = [locate(str(path)) for path in _inside(Path(location.url))]
    files, schema, nullable = [], None, set()
    for place in places:
        version = place.version()
        if version is None:
            raise place.not_found()
        try:
            with _opened(place) as file:
                footer, found = file.metadata, file.schema_arrow
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(
                f"{place.address}: not a Parquet file, or it is damaged ({type(error).__name__}); write it again"
            ) from error
        if schema is not None and (found.names, found.types) != (schema.names, schema.types):
            at = next(
                (
                    i
                    for i, (a, b) in enumerate(zip(found, schema, strict=False))
                    if (a.name, a.type) != (b.name, b.type)
                ),
                -1,
            )
            raise SourceError(
                f"{place.address}: its columns are not those of {places[0].name}, the first to differ is column "
                f"{at if at >= 0 else min(len(found), len(schema))}; files of one folder must have the same columns"
            )
        schema = found
        for group in range(footer.num_row_groups):
            for j in range(footer.num_columns):
                part = footer.row_group(group).column(j)
                told = part.statistics.null_count if part.is_stats_set and part.statistics.has_null_count else None
                if told != 0:
                    nullable.add(part.path_in_schema)
        files.append(
            ParquetFile(place, version, tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups)))
        )
    return tuple(files), schema, nullable.__contains__


@contextlib.contextmanager
def _opened(location: Location) -> Iterator[Any]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SourceError(
            f'{location.address}: reading Parquet needs pyarrow; install it with: pip install "sketchselect[parquet]"'
        ) from error
    if location.is_local:
        with pq.ParquetFile(location.url, memory_map=False) as file:
            yield file
        return
    system, path = location.filesystem()
    with system.open(path, "rb") as raw, pq.ParquetFile(raw) as file:
        yield file


def _groups(files: tuple[ParquetFile, ...], start: int, stop: int) -> Iterator[tuple[ParquetFile, int, int, int]]:
    """Yield (file, row group, its first row, its rows) for every row group under rows `start` to `stop`."""
    first = 0
    for file in files:
        for group, rows in enumerate(file.groups):
            if first < stop and first + rows > start:
                yield file, group, first, rows
            first += rows


def _chosen(there: list[str], key: str | None, location: Location) -> list[str]:
    if len(set(there)) != len(there):
        raise SourceError(f"{location.address}: two columns have the same name; rename one")
    if key is None:
        return there
    without = key.startswith("-")
    words = [word.strip() for word in key.removeprefix("-").split(",") if word.strip()]
    if without:
        # The sign may stand before each name too.
        words = [word if word in there else word.removeprefix("-") for word in words]
    unknown = [word for word in words if word not in there]
    if unknown:
        raise SourceError(f"{location.address}: no column {unknown[0]!r:.80}; there are {_listed(there)}")
    names = [name for name in there if name not in words] if without else words
    if not names or len(set(names)) != len(names):
        raise BadParameter(f"{location.address}: key must name at least one column, and none twice")
    return names


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN])) + (f", ... ({len(names)})" if len(names) > _SHOWN else "")


def _numpy_type(kind: Any) -> np.dtype[Any] | None:
    import pyarrow.types as types

    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        out: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return out
    return None
