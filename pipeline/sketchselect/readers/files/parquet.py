"""Matrices and vectors in Parquet files: numeric columns, or one column, a row group at a time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter, EmptyInput, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.hashing import digest
from sketchselect.location import Location
from sketchselect.readers.base import Matrix
from sketchselect.readers.checks import Nonfinite, as_entries, check_range, finish
from sketchselect.readers.files.parquet_columns import Column, column_of, numpy_type
from sketchselect.readers.files.parquet_files import Footers, RowGroups, read_footers
from sketchselect.readers.vector import Vector

_SHOWN = 5


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
        self.chunk_rows = max(heights, default=0)
        self.chunk_edges = (0, *itertools.accumulate(rows for rows in heights if rows))

    def read_rows(self, start: int, stop: int) -> Array:
        """Return rows `start` to `stop`; nulls are NaN."""
        check_range(start, stop, self.shape[0], self.address)
        out = np.empty((stop - start, self.shape[1]), self.dtype)
        names = tuple(column.name for column in self.columns)
        for address, low, table in self.groups.tables(start, stop, names):
            rows = out[low - start : low - start + table.num_rows]
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
        return finish(out, self.address)

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of these rows: the versions of the files under them, the row groups and the columns."""
        groups = (
            f"\n{file.location.address} {file.location.version()} {group} {start - first} {stop - first} {rows}"
            for file, group, first, rows in self.groups.below(start, stop)
        )
        return digest(f"parquet {self.feature_names} {self.dtype.str}", *groups)

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

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`."""
        check_range(start, stop, self.n_rows, self.address)
        parts = [np.empty(0, self.dtype)] if start == stop else []
        for _, _, table in self.groups.tables(start, stop, (self.column,)):
            entries = table.column(0)
            numbers = self.dtype.kind in "fiub" and not entries.null_count
            parts.append(as_entries(entries.to_numpy() if numbers else entries.to_pylist(), self.address))
        return np.concatenate(parts)

    def identity(self) -> str | None:
        """Return a fingerprint of the files and the name of the column."""
        versions = [f"{file.location.address} {file.location.version()}" for file in self.groups.files]
        return digest(f"parquet {self.column} {versions}")


def open_parquet_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> ParquetMatrix:
    """Open the file or folder at `location`.

    A row index that pandas stored, and the keys of folders ``name=value``, are no features unless `key` names them; an
    index of one column of text or whole numbers gives the rows their names. A column of lists of one length (an
    embedding) gives the features ``name[0]``, ``name[1]``, ...

    `location`: A ``.parquet`` file, or a folder of such files with the same columns.
    `key`: The columns, separated by commas; with "-" before the first (or before each) those to leave out. None: all,
        which must be numeric.
    `nonfinite`, "error", "drop_rows", "missing": Policy for NaN and infinity.
    Raises `SourceError` if a file is not Parquet, a column is not there or not numeric, or the files differ in their
    columns.
    """
    footers = read_footers(location)
    names = _chosen(footers, key, location)
    columns, kinds = zip(*(column_of(footers, name) for name in names), strict=True)
    dtype = np.result_type(
        *(
            np.float64 if name in footers.nullable and kind.kind != "f" else kind
            for name, kind in zip(names, kinds, strict=True)
        )
    )
    uniform = set(kinds) == {dtype} and dtype in (np.float32, np.float64) and {c.width for c in columns} == {None}
    matrix = ParquetMatrix(footers.groups, dtype, columns, nonfinite, uniform)
    if not matrix.shape[0]:
        raise EmptyInput(f"{location.address}: there are no rows")
    if len(footers.index) == 1:
        entry = _entry_type(footers, footers.index[0])
        if entry is not None and entry.kind in "iuU":
            matrix.row_names = ParquetVector(footers.groups, footers.index[0], entry)
    return matrix


def open_parquet_vector(location: Location, n_rows: int | None, name: str) -> ParquetVector:
    """Open the column `name`, or the only column, of the file or folder at `location`."""
    footers = read_footers(location)
    columns = footers.schema.names
    if name not in columns and len(columns) != 1:
        raise SourceError(f"{name}: {location.address} has no column {name!r:.80}; there are {_listed(columns)}")
    return _vector(footers, name if name in columns else columns[0])


def parquet_column(location: Location, column: str) -> ParquetVector | None:
    """Return a column of the file or folder at `location`, or None if there is none of this name."""
    footers = read_footers(location)
    return _vector(footers, column) if column in footers.schema.names else None


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
    return numpy_type(kind.value_type if types.is_dictionary(kind) else kind)


def _chosen(footers: Footers, key: str | None, location: Location) -> list[str]:
    columns = footers.schema.names
    if len(set(columns)) != len(columns):
        raise SourceError(f"{location.address}: two columns have the same name; rename one")
    words = [word.strip() for word in (key or "").removeprefix("-").split(",") if word.strip()]
    without = key is None or key.startswith("-")
    if without:
        # The sign may stand before each name too.
        words = [word if word in columns else word.removeprefix("-") for word in words]
    unknown = [word for word in words if word not in columns]
    if unknown:
        raise SourceError(f"{location.address}: no column {unknown[0]!r:.80}; there are {_listed(columns)}")
    names = [name for name in columns if name not in (*words, *footers.index, *footers.keys)] if without else words
    if not names or len(set(names)) != len(names):
        raise BadParameter(f"{location.address}: key must name at least one column, and none twice")
    return names


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names[:_SHOWN])) + (f", ... ({len(names)})" if len(names) > _SHOWN else "")
