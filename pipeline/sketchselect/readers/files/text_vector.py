"""One column of a text file (``.csv``, ``.tsv``, ``.txt``) as a vector: numbers, or text such as class labels."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np

from sketchselect.errors import EmptyInput, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.location import Location
from sketchselect.readers.arrays.numpy_scipy import ArrayVector
from sketchselect.readers.vector import Vector

_DELIMITERS = ",;\t"


def open_text_vector(location: Location, n_rows: int | None, name: str) -> Vector:
    """Read a vector from a text file: one entry a line, or the column `name` of a table.

    `location`: A local file; ``.gz`` is decompressed on the way.
    `n_rows`: Entries expected: one more line holds the column's name.
    `name`: Column of a table with several; its singular ("label") and "cluster" are tried too.
    Raises `SourceError` if the file is no text, a line is cut off, or no column of a table has the name.
    """
    lines = _lines(location)
    if not lines:
        raise EmptyInput(f"{name} {location.address}: the file is empty")
    table = list(csv.reader(lines, delimiter=max(_DELIMITERS, key=lines[0].count)))
    width = len(table[0])
    for number, row in enumerate(table, start=1):
        if len(row) != width:
            raise SourceError(
                f"{name} {location.address}: entry {number} has {len(row)} fields, the first has {width}; correct it"
            )
    header = [field.strip() for field in table[0]]
    column = 0 if width == 1 else _column(header, name, location)
    entries = [row[column].strip() for row in table]
    has_header = width > 1 or (len(entries) == n_rows + 1 if n_rows is not None else False)
    if has_header or (len(entries) > 1 and not _is_number(entries[0]) and all(map(_is_number, entries[1:]))):
        entries = entries[1:]
    if not entries:
        raise EmptyInput(f"{name} {location.address}: no entries under the line of column names")
    return ArrayVector(_values(entries), location.address)


def _lines(location: Location) -> list[str]:
    path = Path(location.url)
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig")
            if path.name.lower().endswith(".gz")
            else open(path, encoding="utf-8-sig") as file
        ):
            return [line for line in file.read().splitlines() if line.strip()]
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise SourceError(f"{location.address}: not a text file in UTF-8, or it is cut off; save it again") from error


def _column(header: list[str], name: str, location: Location) -> int:
    for candidate in (name, name.removesuffix("s"), "cluster"):
        if candidate in header:
            return header.index(candidate)
    listed = ", ".join(repr(one) for one in header[:8])
    raise SourceError(
        f"{name} {location.address}: has {len(header)} columns ({listed:.200}), none of them called {name!r}; keep one "
        "column, or name it so"
    )


def _values(entries: list[str]) -> Array:
    """Return entries as whole numbers or numbers where all are, otherwise as text."""
    if not all(map(_is_number, entries)):
        return np.array(entries)
    values = np.array(entries, dtype=np.float64)
    return values.astype(np.int64) if np.isfinite(values).all() and (values == np.trunc(values)).all() else values


def _is_number(entry: str) -> bool:
    try:
        float(entry)
    except ValueError:
        return False
    return "_" not in entry
