"""Text files of numbers (``.csv``, ``.tsv``), read in runs of lines."""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from sketchselect.errors import EmptyInput, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.location import Location

_DELIMITERS = ",;\t"
_COUNTED = 1 << 22


class CsvRows:
    """The rows of a text file with one number per field, and perhaps a first line of column names.

    `location`: A local file; ``.gz`` is decompressed on the way. Fields are separated by comma, semicolon or tab,
        whichever is most frequent in the first line.

    Attributes
    ----------
    n_rows : int
        Upper bound: the number of lines. Blank lines are skipped when read.
    n_columns : int
        Fields of the first line.
    names : tuple of str or None
        The first line, if it is not all numbers.
    """

    dtype = np.dtype(np.float64)
    chunk_rows = 1

    def __init__(self, location: Location) -> None:
        if not location.is_local:
            raise SourceError(f"{location.address}: text files are converted from local disks only; copy it first")
        location.existing_version()
        self.address = location.address
        self._path = Path(location.url)
        with self._open() as file:
            first = self._line(file)
        if not first.strip():
            raise EmptyInput(f"{self.address}: the first line is empty; begin the file with column names or numbers")
        self._delimiter = max(_DELIMITERS, key=first.count)
        fields = next(csv.reader([first], delimiter=self._delimiter))
        self.n_columns = len(fields)
        self.names = None if all(map(_is_number, fields)) else tuple(field.strip() for field in fields)
        self.n_rows = self._count_lines() - (self.names is not None)
        if self.n_rows < 1:
            raise EmptyInput(f"{self.address}: no rows under the line of column names")

    def partitions(self, n_lines: int) -> Iterator[Array]:
        """Yield blocks of at most `n_lines` rows, in order.

        Raises `SourceError` naming line and column of the first field that is not a number, or the first line of
        another length.
        """
        with self._open() as file:
            line = 1
            if self.names is not None:
                self._line(file)
                line = 2
            while lines := self._lines(file, n_lines):
                if any(map(str.strip, lines)):
                    yield self._parse(lines, line)
                line += len(lines)

    def _open(self) -> IO[str]:
        if self._path.name.lower().endswith(".gz"):
            return gzip.open(self._path, "rt", encoding="utf-8-sig", newline=None)
        return open(self._path, encoding="utf-8-sig")

    def _line(self, file: IO[str]) -> str:
        return "".join(self._lines(file, 1))

    def _lines(self, file: IO[str], n_lines: int) -> list[str]:
        try:
            return list(itertools.islice(file, n_lines))
        except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
            raise SourceError(f"{self.address}: not a text file in UTF-8, or it is cut off; save it again") from error

    def _count_lines(self) -> int:
        opener = gzip.open if self._path.name.lower().endswith(".gz") else open
        count = 0
        last = b"\n"
        with opener(self._path, "rb") as file:
            while piece := file.read(_COUNTED):
                count += piece.count(b"\n")
                last = piece[-1:]
        return count + (last != b"\n")

    def _parse(self, lines: list[str], first_line: int) -> Array:
        try:
            block: Array = np.loadtxt(
                lines, self.dtype, comments=None, delimiter=self._delimiter, quotechar='"', ndmin=2
            )
        except ValueError as error:
            raise self._fault(lines, first_line) from error
        if block.shape[1] != self.n_columns:
            raise self._fault(lines, first_line)
        return block

    def _fault(self, lines: list[str], first_line: int) -> SourceError:
        """Return the error for the first line that is wrong, without its content."""
        for number, line in enumerate(lines, start=first_line):
            if not line.strip():
                continue
            fields = next(csv.reader([line], delimiter=self._delimiter))
            if len(fields) != self.n_columns:
                return SourceError(
                    f"{self.address}: line {number} has {len(fields)} fields, the first line has {self.n_columns}; "
                    "correct the line"
                )
            for column, field in enumerate(fields):
                if not _is_number(field):
                    name = f" ({self.names[column]!r:.80})" if self.names is not None else ""
                    fault = "is not a number" if field.strip() else "is empty"
                    return SourceError(
                        f"{self.address}: line {number}, column {column + 1}{name} {fault}; "
                        "write missing values as nan, and leave text columns out"
                    )
        last_line = first_line + len(lines) - 1
        return SourceError(f"{self.address}: lines {first_line} to {last_line} are not all numbers; correct them")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field
