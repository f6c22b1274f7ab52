"""Parquet files and folders of them: footers, and row groups as Arrow tables."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sketchselect.errors import ChunkReadError, SourceError
from sketchselect.location import Location, locate

ENDINGS = (".parquet", ".pq")


@dataclass(frozen=True)
class ParquetFile:
    """One file, as its footer described it when it was opened."""

    location: Location
    version: str  # Size and time of the file
    groups: tuple[int, ...]  # Rows of each row group

    def read(self, group: int, columns: tuple[str, ...]) -> Any:
        """Return some columns of a row group as an Arrow table.

        Raises `SourceChanged` if the file was rewritten since it was opened; `ChunkReadError` if the row group cannot
        be decoded; file and row group are named.
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


@dataclass(frozen=True)
class RowGroups:
    """The row groups of one file, or of the files of a folder in the order of their names."""

    location: Location  # The file or folder
    files: tuple[ParquetFile, ...]  # In the order of their rows

    @property
    def heights(self) -> list[int]:
        """Rows of each row group."""
        return [rows for file in self.files for rows in file.groups]

    def below(self, start: int, stop: int) -> Iterator[tuple[ParquetFile, int, int, int]]:
        """Yield (file, row group, its first row, its rows) for every row group under rows `start` to `stop`."""
        first = 0
        for file in self.files:
            for group, rows in enumerate(file.groups):
                if first < stop and first + rows > start:
                    yield file, group, first, rows
                first += rows


@dataclass(frozen=True)
class Footers:
    """The footers of one file or of the files of a folder."""

    groups: RowGroups  # Their row groups
    schema: Any  # The columns, the same in every file
    nullable: frozenset[str]  # Columns that may have nulls

    @property
    def index(self) -> list[str]:
        """Columns that pandas stored the row index in."""
        metadata = self.schema.pandas_metadata or {}
        # A range is a mapping there, and no column.
        return [name for name in metadata.get("index_columns", ()) if name in self.schema.names]


def read_footers(location: Location) -> Footers:
    """Return the footers of the file or folder at `location`.

    Raises `SourceError` if there is no file, one is not Parquet, or two differ in their columns.
    """
    locations = [location]
    if location.is_local and Path(location.url).is_dir():
        inside = sorted(path for path in Path(location.url).iterdir() if path.name.lower().endswith(ENDINGS))
        locations = [locate(str(path)) for path in inside if path.is_file()]
        if not locations:
            raise SourceError(f"{location.address}: there are no files {' or '.join(ENDINGS)} in this folder")
    files, schema, nullable = [], None, set()
    for place in locations:
        version = place.existing_version()
        try:
            with _opened(place) as file:
                footer, columns = file.metadata, file.schema_arrow
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(
                f"{place.address}: not a Parquet file, or it is damaged ({type(error).__name__}); write it again"
            ) from error
        schema = schema or columns
        for i, (mine, first) in enumerate(itertools.zip_longest(columns, schema)):
            if mine is None or first is None or (mine.name, mine.type) != (first.name, first.type):
                raise SourceError(
                    f"{place.address}: its columns are not those of {locations[0].name}, the first to differ is column "
                    f"{i}; files of one folder must have the same columns"
                )
        groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
        for column in (group.column(j) for group in groups for j in range(footer.num_columns)):
            statistics = column.statistics if column.is_stats_set else None
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                nullable.add(column.path_in_schema)
        files.append(ParquetFile(place, version, tuple(group.num_rows for group in groups)))
    return Footers(RowGroups(location, tuple(files)), schema, frozenset(nullable))


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
