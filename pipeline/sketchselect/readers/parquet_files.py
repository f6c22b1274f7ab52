"""Parquet files and folders of them: footers, refused where they are damaged, and their row groups."""

from __future__ import annotations

import base64
import contextlib
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from sketchselect.errors import ChunkReadError, SourceError
from sketchselect.linalg.validation import Array
from sketchselect.location import Location, persistent, refusal, refused_chunk
from sketchselect.readers.base import Vector
from sketchselect.readers.stored import LRUCache
from sketchselect.readers.tables import noted_index

ENDINGS = (".parquet", ".pq")

FOOTERS = LRUCache(16)
"""Parsed footers: of a file with many columns and row groups reading it takes longer than a row group."""


_FOOTER_FACTOR = 2
"""Bytes of a parsed footer per byte of it in the file: 1.4 to 1.8 with 90,000 and 180,000 column chunks, measured."""

_SIGNATURE_NBYTES = 28
"""Nonce and tag behind a footer that is signed."""

BUFFER_NBYTES = 1 << 16
"""Bytes of a column that are read at once."""

BATCH_ENTRIES, BATCH_ROWS = 1 << 20, 1024
"""Entries of a batch of rows that is decoded at once, and its least number of rows."""


@dataclass(frozen=True)
class ParquetFile:
    """One file, as its footer described it when it was opened."""

    location: Location
    version: str  # Size and time of the file
    groups: tuple[int, ...]  # Rows of each row group
    keys: tuple[tuple[str, int | str], ...] = ()  # Names and values of the folders ``name=value`` around it

    def tables(
        self, group_rows: Iterable[tuple[int, int, int]], columns: tuple[str, ...], n_entries: int = 0
    ) -> Iterator[tuple[int, Any]]:
        """Yield (row group, Arrow table of some columns) of runs of rows; keys of its folders are columns.

        A row group is decoded in batches, so that its height costs no memory.

        `group_rows`: Row groups, each with its first row and the row after the last, counted in the group.
        `n_entries`: Entries of a row, where columns hold lists.
        Raises `SourceChanged` if the file was rewritten since it was opened; `ChunkReadError` if a row group cannot be
        decoded; file and row group are named.
        """
        import pyarrow as pa

        self.location.require_version(self.version)
        constants = dict(self.keys)
        stored = [name for name in columns if name not in constants]
        height = max(BATCH_ENTRIES // max(len(stored), n_entries, 1), BATCH_ROWS)
        with contextlib.ExitStack() as stack:
            file = in_order = None
            for group, start, stop in group_rows:
                batches = None
                at = 0
                while at < stop:
                    try:
                        if file is None:
                            footer = FOOTERS.get((self.location.url, self.version), self._footer)
                            file = stack.enter_context(_opened(self.location, footer))
                            in_order = tuple(file.schema_arrow.names) == columns
                        if batches is None:
                            # Looking up two thousand columns by name takes as long as reading them.
                            chosen = None if in_order else stored
                            batches = file.iter_batches(height, [group], columns=chosen, use_threads=False)
                        table = pa.Table.from_batches([next(batches)])
                    except MemoryError:
                        raise
                    except Exception as error:
                        if "range requests" in str(error):
                            raise _no_parts(self.location) from error
                        place = f"{self.location.address}: row group {group}"
                        if (refused := refused_chunk(place, error)) is not None:
                            raise refused from error
                        fails = "checksum" in str(error).lower()
                        fault = "it fails its checksum" if fails else "it is cut off or damaged"
                        raise ChunkReadError(
                            f"{place} cannot be read ({type(error).__name__}: {fault}); restore it or write it again"
                        ) from error
                    first, at = at, at + table.num_rows
                    if at <= start:
                        continue
                    table = _rows(table, max(start - first, 0), min(stop - first, table.num_rows))
                    for name in constants.keys() & columns:
                        table = table.append_column(name, pa.array([constants[name]] * table.num_rows))
                    result = [table if in_order else table.select(list(columns))]
                    # The memory of one table is used for the next.
                    del table
                    yield group, result.pop()

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

    def tables(
        self, start: int, stop: int, columns: tuple[str, ...], n_entries: int = 0
    ) -> Iterator[tuple[str, int, Any]]:
        """Yield (address, first row, table of some columns) of rows `start` to `stop`, in runs below a row group."""
        for file, run in itertools.groupby(self.below(start, stop), key=lambda item: item[0]):
            items = [(group, max(start - first, 0), min(stop - first, rows)) for _, group, first, rows in run]
            for group, table in file.tables(items, columns, n_entries):
                yield f"{file.location.address}: row group {group}", start, table
                start += table.num_rows


class RangeNames(Vector):
    """Ranges of whole numbers, one after the other, that name the rows."""

    def __init__(self, ranges: Sequence[range], address: str, name: str) -> None:
        self.ranges, self.address, self.name = ranges, address, name
        self.shape, self.dtype = (sum(map(len, ranges)),), np.dtype(np.int64)

    def _entries(self, start: int, stop: int) -> Array:
        parts, first = [np.empty(0, self.dtype)], 0
        for numbers in self.ranges:
            part = numbers[max(start - first, 0) : max(stop - first, 0)]
            parts.append(np.arange(part.start, part.stop, part.step))
            first += len(numbers)
        return np.concatenate(parts)

    def identity(self) -> str:
        """Return the ranges."""
        return repr(self.ranges)


@dataclass(frozen=True)
class Footers:
    """The footers of one file or of the files of a folder."""

    groups: RowGroups  # Their row groups
    schema: Any  # The columns, the same in every file, and after them the keys of the folders
    nullable: frozenset[str]  # Columns that may have nulls
    # The largest column chunks, by column: bytes as stored, without compression, and of a dictionary
    chunk_nbytes: Mapping[str, tuple[int, ...]]
    nbytes: int = 0  # Of those that a process keeps, parsed
    rising: tuple[str, ...] = ()  # Columns of numbers of which every row group may rise by whole numbers
    ranges: tuple[
        tuple[str, range], ...
    ] = ()  # Name and numbers of the row indexes that pandas kept as ranges, by file

    @property
    def index(self) -> list[str]:
        """Columns that pandas stored the row index in."""
        noted = noted_index(self.schema, self.groups.location.address)
        # A range is a mapping there, and no column.
        return [name for name in noted if isinstance(name, str) and name in self.schema.names]

    @property
    def numbered(self) -> RangeNames | None:
        """The row index that pandas kept as a range, if it has a name; one without only counts the rows."""
        heights = [sum(file.groups) for file in self.groups.files]
        names = {name for name, _ in self.ranges}
        # A table that Arrow wrote in several files has the range of all rows in each, wherever its rows are.
        if len(names) != 1 or [len(numbers) for _, numbers in self.ranges] != heights:
            return None
        return RangeNames([numbers for _, numbers in self.ranges], self.groups.location.address, names.pop())

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
    chunk_nbytes: dict[str, tuple[int, ...]] = {}
    sizes: list[int] = []
    ranges: list[tuple[str, range]] = []
    largest: dict[str, float] = {}  # Of columns that may rise; infinity for others
    for place, values in zip(locations, keys, strict=True):
        version = place.existing_version()
        with _naming_damage(place), _opened(place) as file:
            footer, columns = file.metadata, _with_categories(file)
        schema = schema or columns
        for i, (mine, first) in enumerate(itertools.zip_longest(columns, schema)):
            if mine is None or first is None or (mine.name, mine.type) != (first.name, first.type):
                here, there = (
                    "nothing" if column is None else f"{column.name!r:.80} of type {column.type}"
                    for column in (mine, first)
                )
                raise SourceError(
                    f"{place.address}: its columns are not those of {locations[0].name}: column {i} is {here}, there "
                    f"it is {there}; files of one folder must have the same columns, in type and order"
                )
        ranges.extend(
            (str(entry["name"]), range(entry["start"], entry["stop"], entry["step"]))
            for entry in noted_index(columns, place.address)
            if isinstance(entry, Mapping) and "start" in entry and entry.get("name") is not None
        )
        sizes.append(footer.serialized_size)
        groups, titles = [footer.row_group(i) for i in range(footer.num_row_groups)], set(columns.names)
        with _naming_damage(place):
            for column in _column_chunks(footer, groups):
                name = _column_at(column.path_in_schema, titles)
                nbytes = column.total_compressed_size, column.total_uncompressed_size, _dictionary_nbytes(column)
                chunk_nbytes[name] = tuple(map(max, chunk_nbytes.get(name, (0, 0, 0)), nbytes))
                statistics = column.statistics if column.is_stats_set else None
                if statistics is None or not statistics.has_null_count or statistics.null_count:
                    nullable.add(name)
                    nullable.add(column.path_in_schema)
                before = largest.get(column.path_in_schema, -math.inf)
                largest[column.path_in_schema] = _risen_to(statistics, column.num_values, before)
        # A column of the file goes before the name of a folder.
        values = tuple((name, value) for name, value in values if name not in columns.names)
        files.append(ParquetFile(place, version, tuple(group.num_rows for group in groups), values))
    import pyarrow as pa

    for name, value in files[0].keys:
        schema = schema.append(pa.field(name, pa.string() if isinstance(value, str) else pa.int64()))
    rising = tuple(name for name, last in largest.items() if last < math.inf)
    parsed = _FOOTER_FACTOR * sum(sorted(sizes)[-FOOTERS.maxsize :])
    row_groups = RowGroups(location, tuple(files))
    return Footers(row_groups, schema, frozenset(nullable), chunk_nbytes, parsed, rising, tuple(ranges))


@contextlib.contextmanager
def _naming_damage(place: Location) -> Iterator[None]:
    """Turn an error of Arrow about a footer into one that names the file."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        if "range requests" in str(error):
            raise _no_parts(place) from error
        if refusal(error) is not None:
            raise place.failure(error) from error
        if (page := place.page_instead()) is not None:
            raise page from error
        if "encrypted" in str(error):
            raise _encrypted(place) from error
        raise SourceError(
            f"{place.address}: not a Parquet file, or it is damaged ({type(error).__name__}); write it again"
        ) from error


def _column_chunks(footer: Any, groups: Sequence[Any]) -> Iterator[Any]:
    """Yield the columns of row groups; raise `ValueError` where the type of one is not that of the schema.

    Asked for such a one's statistics, Arrow ends the process.
    """
    types = [footer.schema.column(j).physical_type for j in range(footer.num_columns)]
    for group in groups:
        for j, stated in enumerate(types):
            column = group.column(j)
            if column.physical_type != stated:
                raise ValueError(f"column {j} of a row group is of another type than in the schema")
            yield column


def _is_narrowed(before: Any, after: Any) -> bool:
    """Return whether a column, or what it consists of, has lost its missing values, as in no file that Arrow writes.

    Asked for the sizes of such a one, Arrow ends the process.
    """
    if before.nullable and not after.nullable:
        return True
    n_fields = before.type.num_fields
    return n_fields == after.type.num_fields and any(
        _is_narrowed(before.type.field(i), after.type.field(i)) for i in range(n_fields)
    )


def _no_parts(location: Location) -> SourceError:
    return SourceError(
        f"{location.address}: the web server sends no parts of files (no Range requests), so row groups cannot be read "
        "one by one; download the file"
    )


def _with_categories(file: Any) -> Any:
    """Return the schema of a file, with columns that its writer had as categories of that type again.

    Arrow does so by itself where the categories are text. Of numbers it gives the numbers, which alone do not tell.
    """
    import pyarrow as pa
    import pyarrow.types as types

    columns = file.schema_arrow
    written = (file.metadata.metadata or {}).get(b"ARROW:schema")
    if written is None:
        return columns
    by_arrow = file.metadata.created_by.startswith("parquet-cpp-arrow")
    for before in pa.ipc.read_schema(pa.py_buffer(base64.b64decode(written))):
        place = columns.get_field_index(before.name)  # -1 where there is none, or two
        if by_arrow and place >= 0 and _is_narrowed(before, columns.field(place)):
            raise ValueError("a column may have missing values in one of two schemas only")
        if types.is_dictionary(before.type) and place >= 0 and not types.is_dictionary(columns.types[place]):
            values = columns.field(place)
            columns = columns.set(place, values.with_type(pa.dictionary(pa.int32(), values.type)))
    return columns


def _column_at(path: str, titles: Set[str]) -> str:
    """Return which of the columns has the values at a path of the footer: all of it, or its beginning for lists."""
    while path not in titles and "." in path:
        path = path.rpartition(".")[0]
    return path


def _dictionary_nbytes(column: Any) -> int:
    """Return the size of the dictionary of a column chunk, taken to be compressed as the whole chunk is."""
    if not column.has_dictionary_page or not column.total_compressed_size:
        return 0
    stored = max(column.data_page_offset - column.dictionary_page_offset, 0)
    return int(stored * max(column.total_uncompressed_size / column.total_compressed_size, 1.0))


def _risen_to(statistics: Any, n_values: int, before: float) -> float:
    """Return the largest value of a column chunk that may rise by whole numbers from above `before`; else infinity.

    A chunk without values changes nothing.
    """
    if not n_values:
        return before
    if before == math.inf or statistics is None or not statistics.has_min_max or statistics.null_count:
        return math.inf
    try:
        least, most = statistics.min, statistics.max
    except (OverflowError, ValueError):
        return math.inf  # dates beyond those of Python, the year 9999
    rises = type(least) in (int, float) and least > before and most - least >= n_values - 1 and (most - least) % 1 == 0
    return most if rises else math.inf


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
    if not (location.is_local or location.has_listing) or not location.is_folder():
        return None
    names = sorted(name for name, _, _ in location.files() if _is_parquet(name))
    # So writers name what is not, or not yet, data.
    names = [name for name in names if not any(part.startswith((".", "_")) for part in name.split("/"))]
    if not names:
        raise SourceError(f"{location.address}: there are no files {' or '.join(ENDINGS)} in this folder")
    return names


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


_CHECKED = {"page_checksum_verification": True}  # of pages that have one; Arrow passes over them by default


@contextlib.contextmanager
def _opened(location: Location, footer: Any = None) -> Iterator[Any]:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SourceError(
            f'{location.address}: reading Parquet needs pyarrow; install it with: pip install "sketchselect[parquet]"'
        ) from error
    if location.is_local:
        # As they are decoded: all bytes of a row group, which Arrow would otherwise hold, may be more than its rows.
        given = {"pre_buffer": False, "buffer_size": BUFFER_NBYTES, **_CHECKED}
        with pq.ParquetFile(location.url, metadata=footer, memory_map=False, **given) as file:
            if footer is None:
                with open(location.url, "rb") as raw:
                    _require_unsigned(file.metadata, raw, location)
            yield file
        return
    system, path = location.filesystem()

    def opened() -> tuple[Any, contextlib.ExitStack]:
        with contextlib.ExitStack() as stack:
            raw = stack.enter_context(system.open(path, "rb"))
            file = stack.enter_context(pq.ParquetFile(raw, metadata=footer, **_CHECKED))
            if footer is None:
                _require_unsigned(file.metadata, raw, location)
            return file, stack.pop_all()

    file, stack = persistent(opened)
    with stack:
        yield file


def _require_unsigned(footer: Any, file: Any, location: Location) -> None:
    """Raise `SourceError` for a footer that is signed, as is one in plain text of a file with encrypted columns.

    Asked for such a column's statistics, Arrow ends the process.
    """
    file.seek(-8, os.SEEK_END)
    if int.from_bytes(file.read(4), "little") - footer.serialized_size == _SIGNATURE_NBYTES:
        raise _encrypted(location)


def _encrypted(location: Location) -> SourceError:
    return SourceError(f"{location.address}: it is encrypted, which is not read; write it without encryption")
