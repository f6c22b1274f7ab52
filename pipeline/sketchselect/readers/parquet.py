"""Matrices and vectors in Parquet files and folders of them, read a row group at a time.

Columns hold numbers, or lists of one length (embeddings).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sketchselect._text import did_you_mean, key_without, listed_names, unquoted
from sketchselect.errors import BadParameter, ChunkReadError, EmptyInput, SourceError
from sketchselect.linalg.hashing import MISSING_LEVEL, digest, level_codes
from sketchselect.linalg.validation import Array
from sketchselect.location import Location
from sketchselect.readers.arrays import entries_of
from sketchselect.readers.base import ALLOWED, PLAIN_FACTOR, Matrix, Nonfinite, Vector, as_entries, warn_of_rounding
from sketchselect.readers.parquet_files import (
    BATCH_ENTRIES,
    BATCH_ROWS,
    BUFFER_NBYTES,
    Footers,
    RowGroups,
    read_footers,
)
from sketchselect.readers.row_order import repeat_in_words, second_of_two
from sketchselect.readers.tables import (
    LEAST_COUNTED,
    LISTED_NAMES,
    StoredLevels,
    advice,
    as_others,
    days_of,
    different_columns,
    doubts_of,
    in_microseconds,
    may_be_identifier,
    rising_columns,
    text_of,
)

_ARROW_NBYTES = 48 << 20
"""Memory that Arrow's libraries take."""

_PAGE_NBYTES, _DICTIONARY_NBYTES = 3 << 20, 1 << 20
"""What decoding a column takes: a page and a dictionary of about a mebibyte each, as stored and decoded; and the size
of a dictionary above which it takes more, because who writes a file may allow larger ones, which are in memory as
stored, as uncompressed and as decoded."""

_ENTRIES_OF_TEXT = 64
"""Entries that a text counts as: one may be some hundred bytes long."""


@dataclass(frozen=True)
class Column:
    """A column of numbers, or one that is read as such."""

    name: str
    width: int | None = None  # Entries of each list; None for a column of scalars
    kind: str | None = None  # "text" or "dates", see `readers.tables`; None for numbers

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Its name, or one for each entry of its lists."""
        if self.width is None:
            return (self.name,)
        return tuple(f"{self.name}[{i}]" for i in range(self.width))

    def numbers(self, values: Any, dtype: np.dtype[Any], first_row: int, address: str) -> Array:
        """Return the entries of an Arrow column, shape (n_rows,) or (n_rows, width); nulls are NaN.

        `values`: A `pyarrow.ChunkedArray`; all must fit `dtype`.
        `first_row`, `address`: Row of the first entry, file and row group, for messages.
        Raises `ChunkReadError` if there are nulls where the footer has none, or a list has another length.
        """
        if self.kind == "text":
            return _codes(values)
        if self.kind == "dates":
            return days_of(_times(values, first_row, f"{address}: column {self.name!r:.80}"), address)
        if self.width is not None:
            values = self._entries(values, first_row, address)
        if values.null_count and dtype.kind != "f":
            raise ChunkReadError(
                f"{address}: column {self.name!r:.80} has nulls, but none by the footer; write the file again"
            )
        numbers: Array = values.to_numpy()
        if numbers.dtype.kind == "O":  # so come out booleans with nulls
            numbers = numbers.astype(dtype)
        return numbers if self.width is None else numbers.reshape(-1, self.width)

    def _entries(self, lists: Any, first_row: int, address: str) -> Any:
        """Return the entries of all lists, one behind the other."""
        import pyarrow as pa
        import pyarrow.compute as pc

        lengths = pc.fill_null(pc.list_value_length(lists), -1).to_numpy()
        wrong = np.flatnonzero(lengths != self.width)
        if wrong.size:
            length = int(lengths[wrong[0]])
            raise ChunkReadError(
                f"{address}: column {self.name!r:.80} has {'no list' if length < 0 else f'a list of {length} entries'} "
                f"in row {first_row + int(wrong[0])}, the first row has {self.width}; write lists of one length"
            )
        return pa.chunked_array([chunk.flatten() for chunk in lists.chunks], lists.type.value_type)


def _codes(values: Any) -> Array:
    """Return the codes of the levels of an Arrow column of text, truth values or categories."""
    codes = []
    for chunk in values.chunks:
        kinds = chunk.dictionary_encode() if not hasattr(chunk, "dictionary") else chunk
        levels = kinds.dictionary.to_pylist()
        table = np.append(level_codes(["" if level is None else text_of(level) for level in levels]), MISSING_LEVEL)
        table[:-1][[level is None for level in levels]] = MISSING_LEVEL
        codes.append(table[kinds.indices.fill_null(len(levels)).to_numpy(zero_copy_only=False)])
    return np.concatenate(codes) if codes else np.empty(0)


def _times(values: Any, first_row: int, place: str) -> Array:
    """Return an Arrow column of dates or times in microseconds, as NumPy has it; those with a zone in UTC.

    `first_row`, `place`: Row of the first entry, and what has the entries, for messages.
    Raises `SourceError` for a time that microseconds do not hold.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    # Parts of microseconds are cut off.
    options = pc.CastOptions(pa.timestamp("us"), allow_time_truncate=True)
    with contextlib.suppress(pa.ArrowInvalid):
        times: Array = values.cast(options=options).to_numpy()
        return times
    return in_microseconds(values.to_numpy(), place, first_row)


def encoded_kind(kind: Any) -> str | None:
    """Return "text" or "dates" for Arrow types of such, None for all else."""
    import pyarrow.types as types

    if types.is_dictionary(kind) or types.is_boolean(kind):
        return "text"
    if any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view)):
        return "text"
    return "dates" if types.is_date(kind) or types.is_timestamp(kind) else None


def _unread_kind(kind: Any) -> str | None:
    """Return "text" or "dates" for Arrow types of such that are no numbers, as truth values are."""
    entry = numpy_type(kind)
    return None if entry is not None and entry.kind in "fiub" else encoded_kind(kind)


def column_of(
    footers: Footers, name: str, encode: Collection[str], names: Sequence[str]
) -> tuple[Column, np.dtype[Any]]:
    """Return the column `name` and the type of its entries; of lists the first is read for its length.

    `names`: The columns that are read, of which an error names the others of the same kind.

    Raises `SourceError` if its entries are no numbers; `EmptyInput` if its lists have no entries.
    """
    import pyarrow.types as types

    address, kind = footers.groups.location.address, footers.schema.field(name).type
    encoded = encoded_kind(kind)
    if encoded in encode:
        return Column(name, kind=encoded), np.dtype(np.float64)
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    entry = numpy_type(kind.value_type if is_list else kind)
    if entry is None or entry.kind not in "fiub":
        kinds = {other: _unread_kind(footers.schema.field(other).type) for other in names if other != name}
        others = [other for other in kinds if encoded is not None and kinds[other] == encoded]
        is_short = len(others) < LISTED_NAMES
        left_out = key_without([f"{each:.80}" for each in (name, *others)] if is_short else ["NAME", "NAME"])
        raise SourceError(
            f"{address}: column {name!r:.80} is of type {kind}{as_others(others, encoded)}; allowed are {ALLOWED}, "
            f"and lists of them: leave {'them' if others else 'it'} out with {left_out} (of open_matrix, a command or "
            "a job's [input]), or choose columns with "
            'key="NAME,NAME"'
            + ("" if encoded is None else f"; {advice(encoded, bool(others)).partition(', ')[2]}")
            + ("; or store dates as dates, if they are" if encoded == "text" and "dates" in encode else "")
        )
    if not is_list:
        return Column(name), entry
    width = kind.list_size if types.is_fixed_size_list(kind) else _first_length(footers, name)
    if not width:
        raise EmptyInput(f"{address}: the lists of column {name!r:.80} have no entries: the first is empty")
    return Column(name, width), entry


def numpy_type(kind: Any) -> np.dtype[Any] | None:
    """Return the NumPy type of a column of numbers or text; None for all else."""
    import pyarrow.types as types

    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        numeric: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return numeric
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return np.dtype("U")
    return None


def _first_length(footers: Footers, name: str) -> int:
    """Return the length of the first list of a column; 0 where there is none."""
    for file in footers.groups.files:
        for group, rows in enumerate(file.groups):
            if rows:
                first = next(file.tables([(group, 0, 1)], (name,), BATCH_ENTRIES))[1].column(0)[0].as_py()
                _give_back()
                return len(first or ())
    return 0


def _give_back() -> None:
    """Let Arrow give memory back that it keeps for later: pages of lists may be hundreds of mebibytes."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


_SHOWN = 5
_TEXT = np.dtype("U")


@dataclass(eq=False, repr=False)
class ParquetMatrix(Matrix):
    """Numeric columns of Parquet files. Made by `open_matrix`; pickles as addresses."""

    groups: RowGroups  # Where the rows are
    dtype: np.dtype[Any]  # The type that holds all of the columns; float64 where some entry may be null
    columns: tuple[Column, ...]  # One of lists gives a feature for each entry
    nonfinite: Nonfinite  # Policy for NaN (nulls are) and infinity
    uniform: bool = False  # Whether all columns are scalars of this type, floats

    def __post_init__(self) -> None:
        heights = self.groups.heights
        self.feature_names = tuple(itertools.chain.from_iterable(column.feature_names for column in self.columns))
        self.shape = (sum(heights), len(self.feature_names))
        self.address = self.groups.location.address
        self.is_remote = not self.groups.location.is_local
        self.loaded_nbytes = _ARROW_NBYTES
        self.chunk_rows = max(heights, default=0)
        self.read_factor = PLAIN_FACTOR
        self.chunk_edges = (0, *itertools.accumulate(rows for rows in heights if rows))
        widths = (len(column.feature_names) for column in self.columns)
        kinds = [
            (place, c.kind, c.name)
            for place, c in zip(itertools.accumulate(widths, initial=0), self.columns, strict=False)
        ]
        text = {place: name for place, kind, name in kinds if kind == "text"}
        self.text_columns = tuple(text)
        self.date_columns = tuple(place for place, kind, _ in kinds if kind == "dates")
        self.levels = {j: StoredLevels(ParquetVector(self.groups, name, _TEXT)) for j, name in text.items()}

    def _rows(self, start: int, stop: int) -> Array:
        out = np.empty((stop - start, self.shape[1]), self.dtype)
        names = tuple(column.name for column in self.columns)
        for address, low, table in self.groups.tables(start, stop, names, self.shape[1]):
            rows = out[low - start : low - start + table.num_rows]
            if self.dtype.kind == "f":
                self._warn_of_rounding(table)
            if self.uniform:
                # Without an object for each of perhaps thousands of columns.
                tensors = (batch.to_tensor(null_to_nan=True).to_numpy() for batch in table.to_batches())
                np.concatenate(list(tensors), out=rows)
            else:
                parts = [
                    column.numbers(values, self.dtype, low, address)
                    for column, values in zip(self.columns, table.columns, strict=True)
                ]
                np.concatenate([part.reshape(len(rows), -1) for part in parts], axis=1, out=rows)
                del parts
            # Its memory is used for the next row group.
            del table
        if any(column.width is not None for column in self.columns):
            _give_back()
        return out

    def _warn_of_rounding(self, table: Any) -> None:
        """Warn where a column of whole numbers, which becomes one of float64 beside others, is rounded."""
        import pyarrow.compute as pc
        import pyarrow.types as types

        for column, values in zip(self.columns, table.columns, strict=True):
            entries = values if column.width is None else pc.list_flatten(values)
            if types.is_int64(entries.type) or types.is_uint64(entries.type):
                warn_of_rounding(pc.min_max(entries).as_py().values(), self.address)

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these rows: the versions of the files under them, the row groups and the columns."""
        below = list(self.groups.below(start, stop))
        versions = {
            file.location.url: file.location.version() for file in {id(file): file for file, *_ in below}.values()
        }
        if any(version is not None and version.endswith(":") for version in versions.values()):
            return None  # a web server without ETag and time
        groups = (
            f"\n{file.location.address} {versions[file.location.url]} {group} {start - first} {stop - first} {rows}"
            for file, group, first, rows in below
        )
        kinds = "".join(f" {column.kind} {column.name}" for column in self.columns if column.kind is not None)
        return digest(f"parquet {self.feature_names} {self.dtype.str}{kinds}", *groups)

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        sizes = {"files": len(self.groups.files), "row_groups": len(self.groups.heights)}
        return super().describe() | {"format": "parquet"} | sizes


@dataclass(eq=False)
class ParquetVector(Vector):
    """One column of Parquet files: targets, labels, weights or names of rows."""

    groups: RowGroups  # Where the rows are
    column: str
    dtype: np.dtype[Any]  # Type of the entries

    def __post_init__(self) -> None:
        self.shape = (sum(self.groups.heights),)
        self.address = f"{self.groups.location.address}: column {self.column!r}"
        self.name = None if self.column.startswith("__index_level_") else self.column
        self._n_entries = _ENTRIES_OF_TEXT if self.dtype.kind == "U" else 1

    def _entries(self, start: int, stop: int) -> Array:
        parts, row = [np.empty(0, self.dtype)] if start == stop else [], start
        for _, _, table in self.groups.tables(start, stop, (self.column,), self._n_entries):
            entries = table.column(0)
            if self.dtype.kind == "M":
                parts.append(_times(entries, row, self.address))
                row += len(entries)
                continue
            numbers = self.dtype.kind in "fiub" and not entries.null_count
            if hasattr(entries.type, "index_type") and not numbers:
                values = entries_of(entries)
            else:
                values = entries.to_numpy() if numbers else entries.to_pylist()
            parts.append(as_entries(values, self.address, row))
            row += len(entries)
        return np.concatenate(parts)

    def texts(self, start: int, stop: int) -> list[str | None]:
        """Return entries as text, None where there is none."""
        tables = self.groups.tables(start, stop, (self.column,), self._n_entries)
        values = itertools.chain.from_iterable(table.column(0).to_pylist() for _, _, table in tables)
        return [None if value is None else text_of(value) for value in values]

    def identity(self) -> str | None:
        """Return a fingerprint of the files and the name of the column."""
        versions = [f"{file.location.address} {file.location.version()}" for file in self.groups.files]
        return digest(f"parquet {self.column} {versions}")


def open_parquet_matrix(
    location: Location, key: str | None, nonfinite: Nonfinite, encode: Collection[str] = ()
) -> ParquetMatrix:
    """Open the file or folder at `location`.

    A row index that pandas stored, and the keys of folders ``name=value``, are no features unless `key` names them; an
    index of one column of text or whole numbers gives the rows their names. A column of lists of one length (an
    embedding) gives the features ``name[0]``, ``name[1]``, ...

    `location`: A ``.parquet`` file, or a folder of such files with the same columns.
    `key`: The columns, separated by commas (a name with a comma in quotation marks); with "-" before the first (or
        before each) those to leave out. None: all, which must be numeric, or of a kind in `encode` (see
        `readers.tables`).
    `nonfinite`, "error", "drop_rows", "missing": Policy for NaN and infinity.
    Raises `SourceError` if a file is not Parquet, a column is not there or not numeric, or the files differ in their
    columns.
    """
    footers = read_footers(location)
    names = _chosen(footers, key, location)
    columns, kinds = zip(*(column_of(footers, name, encode, names) for name in names), strict=True)
    dtype = np.result_type(
        *(
            np.float64 if name in footers.nullable and kind.kind != "f" else kind
            for name, kind in zip(names, kinds, strict=True)
        )
    )
    uniform = set(kinds) == {dtype} and dtype in (np.float32, np.float64)
    uniform = uniform and all(c.width is None and c.kind is None for c in columns)
    matrix = ParquetMatrix(footers.groups, dtype, columns, nonfinite, uniform)
    matrix.loaded_nbytes += footers.nbytes
    chunks = [footers.chunk_nbytes.get(column.name, (0, 0, 0)) for column in columns]
    # A batch has at least `BATCH_ROWS` rows where there are so many, and so has a page of lists.
    height = min(BATCH_ROWS, matrix.chunk_rows)
    entries = [height if column.width is None else BATCH_ROWS * column.width for column in columns]
    pages = [max(_PAGE_NBYTES, 2 * dtype.itemsize * n) for n in entries]
    matrix.piece_nbytes = 3 * 8 * max(BATCH_ENTRIES, sum(entries)) + sum(
        BUFFER_NBYTES + min(2 * plain + dictionary, page + 3 * max(dictionary - _DICTIONARY_NBYTES, 0))
        for (_, plain, dictionary), page in zip(chunks, pages, strict=True)
    )
    if matrix.is_remote:
        # Row groups are fetched whole, in few requests.
        matrix.piece_nbytes += sum(stored for stored, *_ in chunks)
    if not matrix.shape[0]:
        raise EmptyInput(f"{location.address}: there are no rows")
    matrix.unread_columns = _UnreadColumns(footers, names)
    if len(footers.index) == 1:
        entry = _entry_type(footers, footers.index[0])
        if entry is not None and entry.kind in "iuU":
            matrix.row_names = ParquetVector(footers.groups, footers.index[0], entry)
    elif (numbers := footers.numbered) is not None:
        matrix.row_names = numbers
    elif footers.ranges:
        matrix.doubts = (
            f"{location.address}: pandas kept the row names {footers.ranges[0][0]!r:.80} as a range, but the files do "
            "not say which part belongs to which, and rows have no names; write them with frame.reset_index()",
        )
    # Columns that are named are meant; and nothing is fetched for a warning.
    if (key is None or key.startswith("-")) and not matrix.is_remote:
        matrix.doubts += doubts_of(location.address, *_identifiers(footers, matrix))
    matrix.notes = matrix.doubts
    return matrix


def _identifiers(footers: Footers, matrix: ParquetMatrix) -> tuple[list[str], list[str]]:
    """Return the columns that are as identifiers are: that rise by whole numbers, and that have others in every row.

    They do so in the first rows, and those that rise also in all others by what the footers state.
    """
    n_rows = min(matrix.shape[0], BATCH_ROWS)
    plain = [c for c in matrix.columns if c.width is None and c.kind is None]
    columns = [c for c in plain if c.name in footers.rising or may_be_identifier(c.name)]
    if n_rows < LEAST_COUNTED or not columns:
        return [], []
    try:
        rows = replace(matrix, columns=tuple(columns))._rows(0, n_rows)
    except ChunkReadError:
        return [], []  # the pass over the rows says so
    names = [column.name for column in columns]
    rising = [names[j] for j in rising_columns(rows) if names[j] in footers.rising]
    return rising, different_columns(rows, names)


def open_parquet_vector(location: Location, n_rows: int | None, name: str) -> ParquetVector:
    """Open the column `name`, or the only column, of the file or folder at `location`."""
    footers = read_footers(location)
    columns = footers.schema.names
    column = name if name in columns else _only_column(footers, name)
    vector = _vector(footers, column)
    # That of a data frame is the index, by a name that no one gave.
    vector.beside = _vectors(footers, set(columns) - {column})
    if (numbers := footers.numbered) is not None:
        vector.beside = {str(numbers.name): numbers, **vector.beside}
    return vector


def _only_column(footers: Footers, name: str) -> str:
    """Return the one column beside an index, or the second of two, where the first names the rows."""
    columns = [str(column) for column in footers.schema.names if column not in footers.index] or footers.schema.names
    vectors = _vectors(footers, set(columns)) if len(columns) == 2 else {}

    def entries(column: ParquetVector) -> Array:
        try:
            return column.read(0, column.n_rows)
        except SourceError:  # entries are missing, and no names of rows
            return np.empty(0)

    both = [entries(column) for column in vectors.values()] if len(vectors) == 2 else []
    if both and second_of_two(name, columns, both):
        return columns[1]
    if len(columns) == 1:
        return columns[0]
    raise SourceError(
        f"{name}: {footers.groups.location.address} has no column {name!r:.80}{repeat_in_words(name, columns, both)}; "
        f"there are {_listed(footers.schema.names)}"
    )


class _UnreadColumns(Mapping[str, ParquetVector]):
    """The columns that are no features, each made when it is asked for; tasks need none, and get none."""

    def __init__(self, footers: Footers, features: Collection[str]) -> None:
        self._footers, self._names = footers, set(footers.schema.names) - set(features)

    def __getitem__(self, title: str) -> ParquetVector:
        return self._vectors({title})[title]

    def __iter__(self) -> Iterator[str]:
        return iter(self._vectors(self._names))

    def __len__(self) -> int:
        return len(self._vectors(self._names))

    @property
    def index(self) -> list[str]:
        """Columns of the row index of pandas that are no features."""
        return [name for name in self._footers.index if name in self._names]

    def _vectors(self, titles: Set[str]) -> dict[str, ParquetVector]:
        return _vectors(self._footers, titles & self._names)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return dict, ()


def _vectors(footers: Footers, columns: Set[str]) -> dict[str, ParquetVector]:
    """Return those of some columns that are numbers, text or dates, in the order of the file."""
    kinds = {name: _entry_type(footers, name) for name in footers.schema.names if name in columns}
    return {name: _vector(footers, name) for name, kind in kinds.items() if kind and kind.kind in "biufUM"}


def parquet_column(location: Location, column: str) -> ParquetVector | None:
    """Return a column of the file or folder at `location`, or None if there is none of this name."""
    footers = read_footers(location)
    return _vector(footers, column) if column in footers.schema.names else None


def parquet_names(location: Location) -> list[str]:
    """Return the names of the columns of the file or folder at `location`."""
    return list(read_footers(location).schema.names)


def _vector(footers: Footers, column: str) -> ParquetVector:
    kind = _entry_type(footers, column)
    if kind is None:
        raise SourceError(
            f"{footers.groups.location.address}: column {column!r:.80} is of type {footers.schema.field(column).type}, "
            "neither numbers nor text; convert it first"
        )
    return ParquetVector(footers.groups, column, kind)


def _entry_type(footers: Footers, column: str) -> np.dtype[Any] | None:
    """Return the type of the entries of a column, of a dictionary those it stands for; None if not numbers or text."""
    import pyarrow.types as types

    kind = footers.schema.field(column).type
    if encoded_kind(kind) == "dates":
        return np.dtype("datetime64[us]")
    return numpy_type(kind.value_type if types.is_dictionary(kind) else kind)


def _chosen(footers: Footers, key: str | None, location: Location) -> list[str]:
    columns = footers.schema.names
    if len(set(columns)) != len(columns):
        raise SourceError(f"{location.address}: two columns have the same name; rename one")
    words = listed_names((key or "").removeprefix("-"))
    without = key is None or key.startswith("-")
    if without:
        # The sign may stand before each name too.
        words = [word if word in columns else word.removeprefix("-") for word in words]
    unknown = [word for word in words if word not in columns]
    if unknown:
        hint = unquoted(unknown[0], columns) or did_you_mean(unknown[0], columns, f"; there are {_listed(columns)}")
        raise SourceError(f"{location.address}: no column {unknown[0]!r:.80}{hint}")
    names = [name for name in columns if name not in (*words, *footers.index, *footers.keys)] if without else words
    if not columns:
        raise EmptyInput(f"{location.address}: there are no columns")
    if not names or len(set(names)) != len(names):
        raise BadParameter(f"{location.address}: key must name at least one column, and none twice")
    return names


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN])) + (f", ... ({len(names)})" if len(names) > _SHOWN else "")
