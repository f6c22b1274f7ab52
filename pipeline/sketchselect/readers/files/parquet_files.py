"""Parquet files and folders of them: footers, and row groups as Arrow tables."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from sketchselect.errors import ChunkReadError, SourceError
from sketchselect.location import Location
from sketchselect.readers.cache import LRUCache

ENDINGS = (".parquet", ".pq")

FOOTERS = LRUCache(16)
"""Parsed footers: of a file with many columns and row groups reading it takes longer than a row group."""


@dataclass(frozen=True)
class ParquetFile:
    """One file, as its footer described it when it was opened."""

    location: Location
    version: str  # Size and time of the file
    groups: tuple[int, ...]  # Rows of each row group
    keys: tuple[tuple[str, int | str], ...] = ()  # Names and values of the folders ``name=value`` around it

    def tables(self, groups: Iterable[int], columns: tuple[str, ...]) -> Iterator[Any]:
        """Yield some columns of row groups as Arrow tables; keys of its folders are columns of one value.

        Raises `SourceChanged` if the file was rewritten since it was opened; `ChunkReadError` if a row group cannot be
        decoded; file and row group are named.
        """
        import pyarrow as pa

        self.location.require_version(self.version)
        constants = dict(self.keys)
        stored = [name for name in columns if name not in constants]
        with contextlib.ExitStack() as stack:
            file = in_order = None
            for group in groups:
                try:
                    if file is None:
                        footer = FOOTERS.get((self.location.url, self.version), self._footer)
                        file = stack.enter_context(_opened(self.location, footer))
                        in_order = tuple(file.schema_arrow.names) == columns
                    # Looking up two thousand columns by name takes as long as reading them.
                    table = file.read_row_group(group, columns=None if in_order else stored, use_threads=False)
                except MemoryError:
                    raise
                except Exception as error:
                    raise ChunkReadError(
                        f"{self.location.address}: row group {group} cannot be read ({type(error).__name__}: it is cut "
                        "off or damaged); restore it or write it again"
                    ) from error
                for name in constants.keys() & columns:
                    table = table.append_column(name, pa.array([constants[name]] * table.num_rows))
                result = [table if in_order else table.select(list(columns))]
                # The memory of one table is used for the next.
                del table
                yield result.pop()

    def _footer(self) -> Any:
        with _opened(self.location) as file:
            return file.metadata


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

    def tables(self, start: int, stop: int, columns: tuple[str, ...]) -> Iterator[tuple[str, int, Any]]:
        """Yield (address, first row, table of some columns) of rows `start` to `stop`, in runs of one row group."""
        for file, run in itertools.groupby(self.below(start, stop), key=lambda item: item[0]):
            items = list(run)
            tables = file.tables((group for _, group, _, _ in items), columns)
            for _, group, first, rows in items:
                low, high = max(start, first), min(stop, first + rows)
                address = f"{file.location.address}: row group {group}"
                yield address, low, _rows(next(tables), low - first, high - first)


@dataclass(frozen=True)
class Footers:
    """The footers of one file or of the files of a folder."""

    groups: RowGroups  # Their row groups
    schema: Any  # The columns, the same in every file, and after them the keys of the folders
    nullable: frozenset[str]  # Columns that may have nulls

    @property
    def index(self) -> list[str]:
        """Columns that pandas stored the row index in."""
        metadata = self.schema.pandas_metadata or {}
        # A range is a mapping there, and no column.
        return [name for name in metadata.get("index_columns", ()) if name in self.schema.names]

    @property
    def keys(self) -> list[str]:
        """Names of the folders ``name=value``."""
        return [name for name, _ in self.groups.files[0].keys]


def _rows(table: Any, start: int, stop: int) -> Any:
    return table if stop - start == table.num_rows else table.slice(start, stop - start)


def holds_parquet(location: Location) -> bool:
    """Return whether there are Parquet files in a local folder, or in folders ``name=value`` of it."""
    entries = list(Path(location.url).iterdir())
    return any(_is_parquet(entry.name) for entry in entries) or any(
        "=" in entry.name and entry.is_dir() and holds_parquet(Location(str(entry))) for entry in entries
    )


def read_footers(location: Location) -> Footers:
    """Return the footers of the file or folder at `location`.

    Raises `SourceError` if there is no file, one is not Parquet, or two differ in their columns.
    """
    names = _inside(location)
    locations = [location] if names is None else [location.join(name) for name in names]
    keys = folder_keys(names or [""], location)
    files: list[ParquetFile] = []
    schema: Any = None
    nullable = set()
    for place, values in zip(locations, keys, strict=True):
        version = place.existing_version()
        try:
            with _opened(place) as file:
                footer, columns = file.metadata, file.schema_arrow
        except SourceError:
            raise
        except Exception as error:
            if "range requests" in str(error):
                raise SourceError(
                    f"{place.address}: the web server sends no parts of files (no Range requests), so row groups "
                    "cannot be read one by one; download the file"
                ) from error
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
                nullable.add(column.path_in_schema.partition(".")[0])
                nullable.add(column.path_in_schema)
        # A column of the file goes before the name of a folder.
        values = tuple((name, value) for name, value in values if name not in columns.names)
        files.append(ParquetFile(place, version, tuple(group.num_rows for group in groups), values))
    import pyarrow as pa

    for name, value in files[0].keys:
        schema = schema.append(pa.field(name, pa.string() if isinstance(value, str) else pa.int64()))
    return Footers(RowGroups(location, tuple(files)), schema, frozenset(nullable))


def folder_keys(names: list[str], location: Location) -> list[tuple[tuple[str, int | str], ...]]:
    """Return the keys of the folders ``name=value`` of every file: whole numbers where all values of a key are.

    Raises `SourceError` if two files have other keys.
    """
    folders = [[part.partition("=") for part in name.split("/")[:-1] if "=" in part] for name in names]
    first = [key for key, _, _ in folders[0]]
    for name, parts in zip(names, folders, strict=True):
        if [key for key, _, _ in parts] != first:
            raise SourceError(
                f"{location.address}: {name} is in folders of other keys than {names[0]}; files of one folder must "
                "have the same keys"
            )
    texts = [[unquote(value) for _, _, value in parts] for parts in folders]
    whole = [all(re.fullmatch(r"-?\d{1,18}", row[j]) for row in texts) for j in range(len(first))]
    return [tuple((first[j], int(row[j]) if whole[j] else row[j]) for j in range(len(first))) for row in texts]


def _inside(location: Location) -> list[str] | None:
    """Return the names of the Parquet files below a folder, sorted; None for a file."""
    if location.is_local:
        if not Path(location.url).is_dir():
            return None
    elif not location.has_listing:
        return None
    else:
        system, path = location.filesystem()
        if not system.isdir(path):
            return None
    names = sorted(name for name, _, _ in location.files() if all(map(_is_visible, name.split("/"))))
    names = [name for name in names if _is_parquet(name)]
    if not names:
        raise SourceError(f"{location.address}: there are no files {' or '.join(ENDINGS)} in this folder")
    return names


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


def _is_visible(part: str) -> bool:
    # So writers name what is not, or not yet, data.
    return not part.startswith((".", "_"))


@contextlib.contextmanager
def _opened(location: Location, footer: Any = None) -> Iterator[Any]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SourceError(
            f'{location.address}: reading Parquet needs pyarrow; install it with: pip install "sketchselect[parquet]"'
        ) from error
    if location.is_local:
        with pq.ParquetFile(location.url, metadata=footer, memory_map=False) as file:
            yield file
        return
    system, path = location.filesystem()
    with system.open(path, "rb") as raw, pq.ParquetFile(raw, metadata=footer) as file:
        yield file
