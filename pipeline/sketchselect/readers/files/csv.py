"""Text files of tables (``.csv``, ``.tsv``), read in runs of lines."""

from __future__ import annotations

import contextlib
import csv
import gzip
import itertools
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from sketchselect.errors import BadParameter, EmptyInput, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.location import Location

_DELIMITERS = ",;\t"
_COUNTED = 1 << 22
_OTHER_NOTATION = re.compile(r"[-+]?\d[\d.,' ]*\s?[^\d\s:/-]{0,8}")
_MISSING = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"))


class CsvRows:
    """The rows of a text file, and perhaps a first line of column names.

    A column is text if its first entry that is not missing is no number, or if it comes first and has no name (an index
    that pandas wrote); other columns are numbers. Missing are empty fields, NA, N/A, NaN, null and None.

    `location`: A local file; ``.gz`` is decompressed on the way. Fields are separated by comma, semicolon or tab,
        whichever is most frequent in the first line.
    `left_out`: Names of columns that are kept apart as text columns are; beside the first one, numbers stay numbers.

    Attributes
    ----------
    n_rows : int
        Upper bound: the number of lines. Blank lines are skipped when read.
    n_columns : int
        Columns of numbers.
    names : tuple of str or None
        Their names: the first line, if it is not all numbers or missing.
    texts : dict of str to int
        Name -> place of each column of text, or left out.
    measured : list of int
        Places of those among them that are numbers.
    like_numbers : list of str
        Columns of text whose first entry looks like a number in another notation: a decimal comma, a unit.
    has_row_names : bool
        Whether the first column is text, or left out: names of the rows.
    n_missing : int
        Missing fields of number columns that were read so far.
    """

    dtype = np.dtype(np.float64)
    chunk_rows = 1

    def __init__(self, location: Location, left_out: Collection[str] = ()) -> None:
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
        fields = [field.strip() for field in next(csv.reader([first], delimiter=self._delimiter))]
        self._width = len(fields)
        self._header = None if all(_is_number(field) or _is_missing(field) for field in fields) else fields
        self.n_rows = self._count_lines() - (self._header is not None)
        if self.n_rows < 1:
            raise EmptyInput(f"{self.address}: no rows under the line of column names")
        self._look_like_numbers: set[int] = set()
        text = self._text_columns()
        if unknown := sorted(set(left_out) - set(self._header or ())):
            raise BadParameter(f"{self.address}: no column is named {unknown[0]!r:.80}; the first line has the names")
        apart = {j for j, name in enumerate(self._header or ()) if name in left_out}
        self.measured = sorted(apart - {0, *text})
        text = sorted(apart.union(text))
        self._numbers = [j for j in range(self._width) if j not in text]
        if not self._numbers:
            raise SourceError(f"{self.address}: no column holds numbers; encode the columns as numbers first")
        self.n_columns, self.has_row_names, self.n_missing = len(self._numbers), 0 in text, 0
        self.names = None if self._header is None else tuple(self._header[j] for j in self._numbers)
        self.texts: dict[str, int] = {}
        for j in text:
            name = "" if self._header is None else self._header[j].replace("/", "_")
            usable = name.strip(".") and not name.startswith("__") and name not in self.texts
            self.texts[name if usable else f"column {j + 1}"] = j
        self.like_numbers = [name for name, j in self.texts.items() if j and j in self._look_like_numbers]

    def partitions(self, n_lines: int) -> Iterator[tuple[Array, ...]]:
        """Yield blocks of at most `n_lines` rows, in order: the numbers, and then each column of text.

        Raises `SourceError` naming line and column of the first field that is not a number, or the first line of
        another length.
        """
        with self._open() as file:
            line = 1
            if self._header is not None:
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

    def _text_columns(self) -> list[int]:
        undecided = set(range(self._width))
        text = {0} if self._header is not None and not self._header[0] else set()
        with self._open() as file:
            for fields in csv.reader(itertools.islice(file, self._header is not None, None), delimiter=self._delimiter):
                seen = {j for j in undecided if j < len(fields) and not _is_missing(fields[j])}
                text |= {j for j in seen if not _is_number(fields[j])}
                self._look_like_numbers |= {j for j in seen & text if _OTHER_NOTATION.fullmatch(fields[j].strip())}
                undecided -= seen
                if not undecided:
                    break
        return sorted(text)

    def _parse(self, lines: list[str], first_line: int) -> tuple[Array, ...]:
        if not self.texts:
            with contextlib.suppress(ValueError):
                block: Array = np.loadtxt(
                    lines, self.dtype, comments=None, delimiter=self._delimiter, quotechar='"', ndmin=2
                )
                if block.shape[1] == self.n_columns:
                    return (block,)
        rows = list(csv.reader(filter(str.strip, lines), delimiter=self._delimiter))
        if any(len(fields) != self._width for fields in rows):
            raise self._fault(lines, first_line)
        values = np.empty((len(rows), self.n_columns))
        for place, j in enumerate(self._numbers):
            values[:, place] = self._entries(rows, j, lines, first_line)
            self.n_missing += int(np.isnan(values[:, place]).sum())
        return values, *(
            self._entries(rows, j, lines, first_line)
            if j in self.measured
            else np.array([fields[j].strip() for fields in rows], object)
            for j in self.texts.values()
        )

    def _entries(self, rows: list[list[str]], j: int, lines: list[str], first_line: int) -> Array:
        """Return a column of numbers, NaN where a field is missing."""
        missing = [_is_missing(fields[j]) for fields in rows]
        if not all(absent or _is_number(fields[j]) for absent, fields in zip(missing, rows, strict=True)):
            raise self._fault(lines, first_line)
        return np.array([np.nan if absent else float(fields[j]) for absent, fields in zip(missing, rows, strict=True)])

    def _fault(self, lines: list[str], first_line: int) -> SourceError:
        """Return the error for the first line that is wrong, without its content."""
        for number, line in enumerate(lines, start=first_line):
            if not line.strip():
                continue
            fields = next(csv.reader([line], delimiter=self._delimiter))
            if len(fields) != self._width:
                return SourceError(
                    f"{self.address}: line {number} has {len(fields)} fields, the first line has {self._width}; "
                    "correct the line"
                )
            for column in self._numbers:
                if not (_is_number(fields[column]) or _is_missing(fields[column])):
                    name = f" ({self._header[column]!r:.80})" if self._header is not None else ""
                    return SourceError(
                        f"{self.address}: line {number}, column {column + 1}{name} is not a number, as it is above; "
                        "correct it, or leave the field empty where the value is missing"
                    )
        last_line = first_line + len(lines) - 1
        return SourceError(f"{self.address}: lines {first_line} to {last_line} are not all numbers; correct them")


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field


def _is_missing(field: str) -> bool:
    return field.strip().lower() in _MISSING
