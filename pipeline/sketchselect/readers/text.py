"""Text files: tables (read in runs of lines), one column of a table as a vector, svmlight and Matrix Market.

Tables are converted, not read in place. Files of svmlight and Matrix Market are loaded once per process.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import inspect
import itertools
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect._memory import available_nbytes
from sketchselect._text import counted, did_you_mean, unquoted
from sketchselect.errors import BadParameter, EmptyInput, SourceError
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.validation import Array
from sketchselect.location import Location
from sketchselect.readers.arrays import ArrayMatrix, ArrayVector, SparseMatrix
from sketchselect.readers.base import Matrix, Nonfinite, Vector, as_entries, require_no_nul, require_numeric
from sketchselect.readers.row_order import repeat_in_words, second_of_two
from sketchselect.readers.stored import MATRICES, LoadedMatrix
from sketchselect.readers.tables import is_missing_field

_COUNTED = 1 << 22
_OTHER_NOTATION = re.compile(r"[-+]?\d[\d.,' ]*\s?[^\d\s:/-]{0,8}")
_SEPARATED_DIGITS = re.compile(r"[-+]?\d[\d.' ]*[,.' ][\d.,' ]*")
_LOCAL_DATE = re.compile(r"(0?[1-9]|[12]\d|3[01])([./-])(0?[1-9]|[12]\d|3[01])\2(\d{4}|\d\d)(?![\d.,/-])")
_DECIMAL_COMMA = re.compile(r"[-+]?\d+(,\d+)?([eE][-+]?\d+)?")
_MANY_DIGITS = re.compile(r"(?<![\w.])\d{16,300}(?![\w.])")
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_NO_NAME = re.compile(r"[/\x00-\x1f\x7f]")  # What the name of a folder in a store does not have
_WORD = re.compile(r'"([^"]*)"(?!\S)|(\S+)')
_SEPARATORS = ",;\t|"
_SPACES = " "
_LINES_OF_HEAD = 20
_NAME_NBYTES = 200  # File systems take 255
_ROWS_TRIED = 1000
_NEARLY_ALL = 0.9
_MOST_FIELDS = 1 << 19  # Fields that are split at once: as text each takes some ten times what it does as a number
_END = "\0end of the file\0"
_MARK = "\ufeff"


@contextlib.contextmanager
def _opened(location: Location, mode: str = "rt") -> Iterator[IO[Any]]:
    """Open a local file, decompressed where it is packed; text that is not UTF-8 or cut off is a `SourceError`."""
    opener: Any = gzip.open if location.name.lower().endswith(".gz") else open
    try:
        with opener(location.url, mode, encoding="utf-8-sig" if mode == "rt" else None) as file:
            if mode == "rt" and (encoding := _other_encoding(file.buffer.peek(64)[:64])):
                raise SourceError(
                    f"{location.address}: the text is in {encoding}, and is read in UTF-8; save it again in UTF-8 "
                    f"(iconv -f {encoding} -t UTF-8)"
                )
            yield file
    except UnicodeDecodeError as error:
        with opener(location.url, "rb") as file:
            number, byte = next(((i, byte) for i, line in enumerate(file, 1) if (byte := _not_utf8(line))), (1, "0x00"))
        raise SourceError(
            f"{location.address}: line {number} is not in UTF-8 (byte {byte}), as of text in Latin-1 or Windows-1252, "
            "or one that is cut off; save it again in UTF-8 (iconv -f WINDOWS-1252 -t UTF-8)"
        ) from error
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise SourceError(f"{location.address}: not a text file in UTF-8, or it is cut off; save it again") from error


def _other_encoding(head: bytes) -> str | None:
    """Return the encoding that the first bytes of a text show: by a mark, or by the zeros beside plain letters."""
    if head.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "UTF-32"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16"
    for encoding, zeros, others in (("UTF-16LE", head[1::2], head[::2]), ("UTF-16BE", head[::2], head[1::2])):
        if len(head) >= 8 and 4 * zeros.count(0) >= 3 * len(zeros) and not others.count(0):
            return encoding
    return None


def _refuse_marks(lines: Iterable[str], address: str, before: int = 0) -> None:
    """Raise `SourceError` if a line begins with a byte order mark; that of the whole file is no part of its text.

    `before`: The number of lines before these.
    """
    number = next((i for i, line in enumerate(lines, start=before + 1) if line.startswith(_MARK)), None)
    if number is not None:
        raise SourceError(
            f"{address}: line {number} begins, in column 1, with a byte order mark (U+FEFF), as where two files were "
            "joined; remove it, and the second file's line of column names if there is one"
        )


def _not_utf8(line: bytes) -> str | None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return f"0x{line[error.start]:02x}"
    return None


csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))  # by default 131,072 characters, and there is only one


def _separator(lines: list[str]) -> str:
    """Return the separator of fields that the first lines, with text, have most of outside quotation marks."""
    # Not by `splitlines`, for which a name may end a line; a field in quotation marks counts as text.
    bare = [line for line in _QUOTED.sub("x", "".join(lines)).split("\n") if line.strip()][:2] or [""]
    counts = {sign: min(line.count(sign) for line in bare) for sign in _SEPARATORS}
    best = max(_SEPARATORS, key=counts.__getitem__)
    # 1,5;2,5 is two numbers, and has as many commas as semicolons or more.
    commas = best == "," and counts[";"] and (field.strip() for line in bare for field in line.split(";"))
    return ";" if commas and all(map(_DECIMAL_COMMA.fullmatch, commas)) else best


def _separator_beside_commas(lines: list[str]) -> str:
    """Return the separator of fields whose numbers have decimal commas: a comma only where no other sign will do."""
    bare = [line for line in _QUOTED.sub("x", "".join(lines)).split("\n") if line.strip()][:2] or [""]
    counts = {sign: min(line.count(sign) for line in bare) for sign in _SEPARATORS if sign != ","}
    best = max(counts, key=counts.__getitem__)
    # 1,5 in every line is one column of numbers; fields in quotation marks may be separated by commas.
    is_column = _DECIMAL_COMMA.fullmatch(bare[-1].strip()) and (
        "," not in bare[0] or _DECIMAL_COMMA.fullmatch(bare[0].strip())
    )
    return best if counts[best] or is_column else ","


def _is_spaced(lines: list[str], are_numbers: Callable[[str], bool]) -> bool:
    """Return whether fields are separated by spaces: as many in both of the first lines, numbers in the second."""
    words = [_words(line) for line in lines if line.strip()][:2]
    is_even = len({len(line) for line in words}) == 1 and len(words[0]) > 1
    # A comma at the end of a name is a separator before a space.
    return is_even and not words[0][0].endswith(",") and all(map(are_numbers, words[-1][1:]))


def _words(line: str) -> list[str]:
    """Return the fields of a line that are separated by spaces, without quotation marks around them."""
    return [quoted or bare for quoted, bare in _WORD.findall(line)] if '"' in line else line.split()


def is_number(field: str) -> bool:
    """Return whether a text is written as a number."""
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field


@dataclass
class NumberCount:
    """The numbers among the fields of a column of text, and the first other field."""

    n_numbers: int = 0
    n_others: int = 0
    line: int = 0
    field: str = ""
    differ: bool = False  # Whether other fields differ from the first

    @property
    def is_nearly_all(self) -> bool:
        """Whether the others are few, or no more than half and all the same, as signs for missing values are."""
        least = _NEARLY_ALL if self.differ else 0.5
        return self.n_numbers > 0 and self.n_numbers >= least * (self.n_numbers + self.n_others)

    def add(self, fields: Iterable[tuple[int, str]], are_numbers: Callable[[str], bool]) -> None:
        """Count some fields, each with its line."""
        for line, field in fields:
            if are_numbers(field):
                self.n_numbers += 1
            elif not is_missing_field(field):
                if not self.n_others:
                    self.line, self.field = line, field.strip()
                self.differ |= field.strip() != self.field
                self.n_others += 1


class CsvRows:
    """The rows of a text file, and perhaps a first line of column names.

    A column is text if its first entry that is not missing is no number, or if it comes first and has no name (an index
    that pandas wrote); other columns are numbers. Missing are empty fields, NA, N/A, NaN, null and None.

    `location`: A local file; ``.gz`` is decompressed on the way. Fields are separated by comma, semicolon, tab or |,
        whichever is most frequent in the first two lines; where there is none, by spaces.
    `left_out`: Names of columns that are kept apart as text columns are; beside the first one, numbers stay numbers.
    `decimal`: "." or ",", the sign before the decimals of numbers.

    Attributes
    ----------
    decimal : str
        As given.
    n_rows : int
        Upper bound: the number of lines. Blank lines are skipped when read.
    n_columns : int
        Columns of numbers.
    names : tuple of str or None
        Their names: the first line, if it is not all numbers or missing, or numbers the columns of a table of pandas.
    may_be_names : bool
        Whether the first line, read as a row, rises by whole numbers, as names may.
    texts : dict of str to int
        Name -> place of each column of text, or left out.
    left_out : set of str
        Those among them that were to be left out.
    measured : list of int
        Places of those among them that are numbers.
    like_numbers : list of str
        Columns of text whose first entry looks like a number in another notation: a decimal comma, a unit.
    like_dates : list of str
        Columns of text whose first entry is like 31.12.2024 or 12/31/2024.
    has_row_names : bool
        Whether the first column is text, or left out: names of the rows.
    largest_whole : int
        The largest whole number, without its sign, of those read so far that may be too large for float64; 0 without.
    n_missing : int
        Missing fields of number columns that were read so far.
    nearly_numbers : dict of str to NumberCount
        Columns of text of which, so far, nearly all fields that were read are numbers.
    """

    dtype = np.dtype(np.float64)
    chunk_rows = 1

    def __init__(self, location: Location, left_out: Collection[str] = (), decimal: str = ".") -> None:
        if decimal not in (".", ","):
            raise BadParameter(f'decimal must be "." or ",", got {decimal!r:.40}')
        if not location.is_local:
            raise SourceError(f"{location.address}: text files are converted from local disks only; copy it first")
        self._version = location.existing_version()
        self.address = location.address
        self._location, self.decimal = location, decimal
        with _opened(location) as file:
            lines = list(itertools.islice(file, _LINES_OF_HEAD))
        if not lines or not lines[0].strip():
            raise EmptyInput(f"{self.address}: the first line is empty; begin the file with column names or numbers")
        self._separator = _separator(lines) if decimal == "." else _separator_beside_commas(lines)
        others = _SEPARATORS.replace(decimal, "")
        if not any(sign in lines[0] for sign in others) and _is_spaced(lines, self._is_number):
            self._separator = _SPACES
        _, first, self._n_lines_of_names = next(self._records(lines, [], 0))
        fields = [field.strip() for field in first]
        self._width = len(fields)
        in_order = [str(j) for j in range(self._width - 1)]
        if all(self._is_number(field) or is_missing_field(field) for field in fields) and fields != ["", *in_order]:
            self._header, self._n_lines_of_names = None, 0
        else:
            self._header = fields
        whole = [int(field) for field in fields if field.isdecimal()]
        self.may_be_names = self._header is None and 2 < len(whole) == self._width and whole == sorted(set(whole))
        self.n_rows = self._count_lines() - self._n_lines_of_names
        if self.n_rows < 1:
            raise EmptyInput(f"{self.address}: no rows under the line of column names")
        self._look_like_numbers: set[int] = set()
        self._look_like_dates: set[int] = set()
        text, empty = self._text_columns()
        # A separator at the end of every line.
        no_column = {self._width - 1} if self._header and not self._header[-1] and self._width - 1 in empty else set()
        # The sign may stand before each name too.
        left_out = {name if name in (self._header or ()) else name.removeprefix("-") for name in left_out}
        if unknown := sorted(left_out - set(self._header or ())):
            header = self._header or ()
            hint = unquoted(unknown[0], header) or did_you_mean(unknown[0], header, "; the first line has the names")
            raise BadParameter(f"{self.address}: no column is named {unknown[0]!r:.80}{hint}")
        apart = {j for j, name in enumerate(self._header or ()) if name in left_out}
        self.measured = sorted(apart - {0, *text})
        text = sorted(apart.union(text))
        self._numbers = [j for j in range(self._width) if j not in (*text, *no_column)]
        has_preamble = lines[0].startswith(("#", "sep="))
        if not has_preamble:
            self._refuse_units()
        if not self._numbers:
            cure = "encode the columns as numbers first"
            if has_preamble:
                cure = "remove the lines before that of the column names"
            elif self._look_like_numbers and decimal == ",":
                cure = "leave decimal out for decimal points; write numbers without separators and units"
            elif self._look_like_numbers:
                cure = 'give decimal="," (--decimal ,) for decimal commas; write numbers without separators and units'
            raise SourceError(f"{self.address}: no column holds numbers (separated by {self._separator!r}); {cure}")
        self._refuse_commas(apart)
        self.n_columns, self.has_row_names = len(self._numbers), 0 in text
        self.n_missing = self.largest_whole = 0
        self.names = None if self._header is None else tuple(self._header[j] for j in self._numbers)
        self.texts: dict[str, int] = {}
        for j in text:
            # Each is a folder of the store.
            name = "" if self._header is None else _NO_NAME.sub("_", self._header[j])
            usable = name.strip(".") and not name.startswith("__") and name not in (*self.texts, "zarr.json")
            usable = usable and len(name.encode()) <= _NAME_NBYTES
            self.texts[name if usable else f"column {j + 1}"] = j
        self.left_out = {name for name, j in self.texts.items() if j in apart}
        self.like_numbers = [name for name, j in self.texts.items() if j in self._look_like_numbers]
        self.like_dates = [name for name, j in self.texts.items() if j in self._look_like_dates]
        is_index = self._header is not None and not self._header[0]
        self.nearly_numbers = {
            name: NumberCount() for name, j in self.texts.items() if j not in apart and not (is_index and j == 0)
        }

    def _refuse_units(self) -> None:
        """Raise `SourceError` if the first line under the names has text where the next has numbers, and no number."""
        if self._header is None or self.n_rows < 2:
            return
        with _opened(self._location) as file:
            rest = itertools.islice(file, self._n_lines_of_names, None)
            lines = list(itertools.islice(rest, _LINES_OF_HEAD))
            records = [fields for _, fields, _ in self._records(lines, rest, self._n_lines_of_names)][:2]
        if len(records) < 2 or any(map(self._is_number, records[0])):
            return
        units = [field.strip() for field in records[0]]
        numbers = [j for j, field in enumerate(records[1]) if self._is_number(field)]
        # Of missing values, with which tables of differences begin, the line may be one of the table.
        texts = [j for j in numbers if j < len(units) and not is_missing_field(units[j])]
        if 2 * len(numbers) > self._width and 2 * len(texts) > len(numbers):
            field, name = units[texts[0]], self._header[texts[0]]
            raise SourceError(
                f"{self.address}: line {self._n_lines_of_names + 1} has no number, as {field!r:.40} in {name!r:.80}, "
                f"and line {self._n_lines_of_names + 2} has {len(numbers)}; if it has the units, remove it: "
                "pandas.read_csv(..., skiprows=[1])"
            )

    def _refuse_commas(self, apart: Collection[int]) -> None:
        """Raise `SourceError` if most of the columns that are read begin with a number with a comma.

        `apart`: Columns that are left out.
        """
        if "," in (self._separator, self.decimal):
            return
        with _opened(self._location) as file:
            rest = itertools.islice(file, self._n_lines_of_names, None)
            lines = list(itertools.islice(rest, _LINES_OF_HEAD))
            first = next(self._records(lines, rest, self._n_lines_of_names), None)
        fields = [] if first is None else [field.strip() for j, field in enumerate(first[1]) if j not in apart]
        commas = sum("," in field and bool(_DECIMAL_COMMA.fullmatch(field)) for field in fields)
        if 2 * commas > len(fields):
            raise SourceError(
                f"{self.address}: {commas} of {len(fields)} columns begin with a number with a comma; convert it "
                'with decimal="," (--decimal ,) if these are decimal commas, or write decimal points: '
                f'pandas.read_csv(..., sep={self._separator!r}, thousands=",") reads thousands'
            )

    def partitions(self, n_lines: int) -> Iterator[tuple[Array, ...]]:
        """Yield blocks of at most `n_lines` rows, in order: the numbers, and then each column of text.

        They have fewer rows where as many would take much memory as text.

        Raises `SourceError` naming line and column of the first field that is not a number, or the first line of
        another length; `SourceChanged` if the file was rewritten since it was opened.
        """
        n_lines = max(min(n_lines, _MOST_FIELDS // self._width), 1)
        with _opened(self._location) as file:
            line = 1 + len(list(itertools.islice(file, self._n_lines_of_names)))
            while lines := list(itertools.islice(file, n_lines)):
                self.require_unchanged()  # before a line that is half old and half new is called wrong
                block, n_read = self._parse(lines, file, line)
                if len(block[0]):
                    yield block
                line += n_read

    def require_unchanged(self) -> None:
        """Raise `SourceChanged` if the file was rewritten since it was opened."""
        self._location.require_version(self._version)

    def _records(self, lines: list[str], rest: Iterable[str], before: int) -> Iterator[tuple[int, list[str], int]]:
        """Yield line, fields and last line of every row that begins in some lines, all counted from `before` on.

        `rest`: The lines after them, for a row with a line break within quotation marks.
        Raises `SourceError` if quotation marks are not closed before the end of the file.
        """
        _refuse_marks(lines, self.address, before)
        if self._separator == _SPACES:
            yield from ((before + i, _words(line), before + i) for i, line in enumerate(lines, start=1) if line.strip())
            return
        first = 1
        reader = csv.reader(itertools.chain(lines, rest, [_END]), delimiter=self._separator, skipinitialspace=True)
        for fields in reader:
            if fields and fields[-1].endswith(_END):
                raise SourceError(
                    f"{self.address}: quotation marks that open in line {before + first} are not closed; correct it"
                )
            # An empty entry of a single column is written as "", and is no blank line.
            if len(fields) > 1 or any(map(str.strip, fields)) or (fields and '"' in lines[first - 1]):
                yield before + first, fields, before + reader.line_num
            if reader.line_num >= len(lines):
                return
            first = reader.line_num + 1

    def _count_lines(self) -> int:
        count, last = 0, b""
        with _opened(self._location, "rb") as file:
            while piece := file.read(_COUNTED):
                # Lines end as in text that is read: by a line feed, a carriage return, or both.
                count += piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n")
                count -= last == b"\r" and piece[:1] == b"\n"
                last = piece[-1:]
        return count + (last not in b"\r\n")

    def _text_columns(self) -> tuple[list[int], set[int]]:
        """Return the columns of text, and those without an entry."""
        undecided = set(range(self._width))
        text = {0} if self._header is not None and not self._header[0] else set()
        with _opened(self._location) as file:
            lines = itertools.islice(file, self._n_lines_of_names, None)
            last = self._n_lines_of_names
            while undecided and (some := list(itertools.islice(lines, _LINES_OF_HEAD))):
                before, last = last, last + len(some)
                for _, fields, end in self._records(some, lines, before):
                    last = max(last, end)
                    seen = {j for j in undecided if j < len(fields) and not is_missing_field(fields[j])}
                    text |= {j for j in seen if not self._is_number(fields[j])}
                    dates = {j for j in seen & text if _LOCAL_DATE.match(fields[j].strip())}
                    self._look_like_dates |= dates
                    notations = {j: _OTHER_NOTATION if j else _SEPARATED_DIGITS for j in seen & text - dates}
                    self._look_like_numbers |= {
                        j for j, notation in notations.items() if notation.fullmatch(fields[j].strip())
                    }
                    undecided -= seen
        return sorted(text), undecided

    def _parse(self, lines: list[str], rest: Iterable[str], first_line: int) -> tuple[tuple[Array, ...], int]:
        """Return a block of the rows that begin in some lines, and the number of lines that they end in."""
        # With an odd number of quotation marks a field goes on in the lines after these.
        whole = sum(line.count('"') for line in lines) % 2 == 0
        is_plain = self.decimal == "." or self._separator != ","
        if whole and is_plain and not self.texts and len(self._numbers) == self._width and any(map(str.strip, lines)):
            written = lines if self.decimal == "." else list(map(self._with_point, lines))
            separator = None if self._separator == _SPACES else self._separator
            with contextlib.suppress(ValueError):
                block: Array = np.loadtxt(
                    written, self.dtype, comments=None, delimiter=separator, quotechar='"', ndmin=2
                )
                if block.shape[1] == self.n_columns:
                    self._note_whole([block], written)
                    return (block,), len(lines)
        records = list(self._records(lines, rest, first_line - 1))
        rows = [fields for _, fields, _ in records]
        for number, fields, _ in records:
            if len(fields) != self._width:
                raise SourceError(
                    f"{self.address}: line {number} has {counted(len(fields), 'field')}, the first line has "
                    f"{self._width}; correct the line"
                )
            for j in (*self._numbers, *self.measured):
                if not (self._is_number(fields[j]) or is_missing_field(fields[j])):
                    name = f" ({self._header[j]!r:.80})" if self._header is not None else ""
                    raise SourceError(
                        f"{self.address}: line {number}, column {j + 1}{name} is not a number, as it is above; "
                        "correct it, or leave the field empty where the value is missing"
                    )
        values = np.empty((len(rows), self.n_columns))
        for place, j in enumerate(self._numbers):
            values[:, place] = self._values(rows, j)
            self.n_missing += int(np.isnan(values[:, place]).sum())
        for name, count in list(self.nearly_numbers.items()):
            count.add(((number, fields[self.texts[name]]) for number, fields, _ in records), self._is_number)
            # Columns of words are not looked at for long.
            if not count.is_nearly_all and count.n_numbers + count.n_others >= _ROWS_TRIED:
                del self.nearly_numbers[name]
        texts = [
            self._values(rows, j) if j in self.measured else np.array([fields[j].strip() for fields in rows], object)
            for j in self.texts.values()
        ]
        measured = [entries for entries in texts if entries.dtype == self.dtype]
        self._note_whole([values, *measured], (fields[j] for fields in rows for j in (*self._numbers, *self.measured)))
        return (values, *texts), max(len(lines), records[-1][2] - first_line + 1 if records else 0)

    def _values(self, rows: list[list[str]], j: int) -> Array:
        """Return a column of fields as numbers, NaN where one is missing."""
        fields = (row[j] for row in rows)
        return np.array([np.nan if is_missing_field(f) else float(self._with_point(f)) for f in fields], np.float64)

    def _is_number(self, field: str) -> bool:
        return is_number(self._with_point(field))

    def _with_point(self, field: str) -> str:
        """Return a field with a decimal point; where numbers have a decimal comma, one with a point is none."""
        return field if self.decimal == "." else field.replace(".", "_").replace(",", ".")

    def _note_whole(self, blocks: Iterable[Array], written: Iterable[str]) -> None:
        """Note the largest whole number in text that is read as these blocks, where one may be beyond float64."""
        if any(max(np.fmax.reduce(b, None, initial=0), -np.fmin.reduce(b, None, initial=0)) >= 2**53 for b in blocks):
            whole = (int(digits) for text in written for digits in _MANY_DIGITS.findall(text))
            self.largest_whole = max(self.largest_whole, *whole, 0)


TARGET = "target"
"""Name of the first entries of all rows."""

_SVMLIGHT_NBYTES, _ENTRY_OF_SVMLIGHT = 96 << 20, 18
"""What scikit-learn's loader takes with the modules beside it, and an entry: a float64, an int64, and room to grow."""


@dataclass(eq=False, repr=False)
class SvmlightMatrix(LoadedMatrix):
    """Rows of an svmlight file, without their targets. Made by `open_matrix`; pickles as an address."""

    path: str
    version: str
    n_columns: int | None  # None: as many as the largest index says
    nonfinite: Nonfinite

    def __post_init__(self) -> None:
        super().__post_init__()
        ends = self.entry_offsets
        self.loaded_nbytes = _SVMLIGHT_NBYTES + _ENTRY_OF_SVMLIGHT * (0 if ends is None else int(ends[-1]))

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the file and the number of columns."""
        return f"{digest(f'svmlight {self.path} {Location(self.path).version()} {self.shape[1]}')}:{start}:{stop}"

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | {"format": "svmlight"}

    def _read(self) -> Matrix:
        rows, _ = _content(self.path, self.version, self.n_columns)
        return SparseMatrix(rows, None, self.nonfinite, self.path)


@dataclass(eq=False)
class SvmlightVector(Vector):
    """The targets in an svmlight file."""

    path: str
    version: str

    def __post_init__(self) -> None:
        values = self._values()
        self.shape, self.dtype, self.address = values.shape, values.dtype, f"{self.path}: {TARGET}"

    def _entries(self, start: int, stop: int) -> Array:
        return self._values()[start:stop]

    def identity(self) -> str | None:
        """Return a fingerprint of the file."""
        return digest(f"svmlight targets {self.path} {Location(self.path).version()}")

    def _values(self) -> Array:
        return as_entries(_content(self.path, self.version, None)[1], self.path)


def open_svmlight_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> SvmlightMatrix:
    """Open the local file at `location`; the `key` is the number of its columns, for when the last are all zero."""
    if key is not None and not (key.isdecimal() and int(key) > 0):
        raise BadParameter(f"{location.address}: the key of an svmlight file is its number of columns, got {key!r:.80}")
    return SvmlightMatrix(location.url, location.existing_version(), None if key is None else int(key), nonfinite)


def open_svmlight_vector(location: Location, n_rows: int | None, name: str) -> SvmlightVector:
    """Open the targets of the local file at `location`."""
    return SvmlightVector(location.url, location.existing_version())


def svmlight_vector(location: Location, key: str) -> SvmlightVector | None:
    """Return the targets of the file of a matrix if they are named, else None."""
    return open_svmlight_vector(location, None, key) if key == TARGET else None


def _content(path: str, version: str, n_columns: int | None) -> tuple[Any, Array]:
    """Return the rows as CSR, and the targets. Columns count from 0 where an index is 0, else from 1."""

    def load() -> tuple[Any, Array]:
        from sklearn.datasets import load_svmlight_file

        Location(path).require_version(version)
        try:
            rows, targets = load_svmlight_file(path, n_features=n_columns, dtype=np.float64)
        except (ValueError, OverflowError, EOFError, OSError, zlib.error) as error:
            raise _damaged(path, "an svmlight", error) from error
        return rows, targets

    return MATRICES.get(("svmlight", path, version, n_columns), load)


def _damaged(path: str, kind: str, error: Exception) -> SourceError:
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    return SourceError(f"{path}: not {kind} file, or damaged ({reason}); write it again")


@dataclass(eq=False, repr=False)
class MarketMatrix(LoadedMatrix):
    """A matrix in a Matrix Market file. Made by `open_matrix`; pickles as an address."""

    path: str
    version: str
    nonfinite: Nonfinite

    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the file; a file that is rewritten longer is another one."""
        return f"{digest(f'mtx {self.path} {Location(self.path).version()}')}:{start}:{stop}"

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return super().describe() | {"format": "Matrix Market"}

    def _read(self) -> Matrix:
        import scipy.io

        Location(self.path).require_version(self.version)
        try:
            # Releases that have the parameter warn about its default; either kind of result will do.
            has_parameter = "spmatrix" in inspect.signature(scipy.io.mmread).parameters
            n_rows, _, n_entries, layout, kind, _ = scipy.io.mminfo(self.path)
            needed = 8 * n_entries if layout == "array" else 16 * n_rows + _ENTRY_OF_MARKET * n_entries
            if needed > available_nbytes():
                raise SourceError(
                    f"{self.path}: {n_rows:,} rows of {n_entries:,} entries take {format_bytes(needed)}, more than "
                    "this machine's memory; write it in parts, or correct its second line"
                )
            if kind.lower() == "complex":
                require_numeric(np.dtype(complex), self.path)
            # First: SciPy's parser reads beyond a damaged line.
            _require_numbers(self.path, layout, kind)
            values = scipy.io.mmread(self.path, **({"spmatrix": False} if has_parameter else {}))
        except SourceError:
            raise
        except (ValueError, OverflowError, EOFError, OSError, IndexError, zlib.error) as error:
            raise _damaged(self.path, "a Matrix Market", error) from error
        if isinstance(values, np.ndarray):
            return ArrayMatrix(values, None, self.nonfinite, self.path)
        return SparseMatrix(values, None, self.nonfinite, self.path)


_ENTRY_OF_MARKET = 28
"""Bytes of an entry while it is loaded: row, column and value, and column and value in CSR."""


_REAL = rb"-?+(?:(?:\d++\.?+\d*+|\.\d++)(?:[eE][-+]?+\d++)?+|(?i:nan|inf(?:inity)?+))"
_WHOLE = rb"-?+\d++"
_MARKET_ENTRIES = {"real": _REAL, "double": _REAL, "integer": _WHOLE, "unsigned-integer": _WHOLE, "pattern": b""}


def _require_numbers(path: str, layout: str, kind: str) -> None:
    """Raise `SourceError` naming the first line of a Matrix Market file that is not what it should be.

    SciPy takes what a field begins with: 1 of 1D5, 1,5 and 0x10, and of 1e5 where the first line says integer. It
    refuses a plus before a number.
    """
    entry = _MARKET_ENTRIES[kind.lower()]
    fields = ([rb"\d++"] * 2 if layout == "coordinate" else []) + ([entry] if entry else [])
    lines = re.compile(rb"(?:[ \t]*+(?:" + rb"[ \t]++".join(fields) + rb")?+[ \t\r]*+(?:\n|\Z))*+")
    with _opened(Location(path), "rb") as file:
        number = 2 + sum(1 for _ in itertools.takewhile(lambda line: line.startswith(b"%") or not line.strip(), file))
        while text := b"".join(file.readlines(_COUNTED)):
            match = lines.match(text)
            if match is not None and match.end() < len(text):
                names = ["row", "column", "a number such as 1.5e3"][-len(fields) :] if entry else ["row", "column"]
                cure = "correct it"
                if entry == _WHOLE:
                    names[-1], cure = "a whole number", "correct it, or write real for integer in the first line"
                number += text.count(b"\n", 0, match.end())
                if re.match(rb"[^\n]*?(?<![eE])\+", text[match.end() :]):
                    cure = "remove the plus before the number"
                raise SourceError(f"{path}: line {number} must be {', '.join(names)}, and nothing else; {cure}")
            number += text.count(b"\n")


def open_market_matrix(location: Location, key: str | None, nonfinite: Nonfinite) -> MarketMatrix:
    """Open the local file at `location`; there is no `key`, it holds one matrix."""
    return MarketMatrix(location.url, location.existing_version(), nonfinite)


def read_names(location: Location, n_columns: int, source: str) -> tuple[str, ...]:
    """Return the names of columns in a text file, one a line; ``.gz`` is decompressed on the way.

    Raises `SourceError` naming the line that is empty or holds the name of an earlier one, or both files where there
    are more or fewer names than the `source` has columns.
    """
    if not location.is_local:
        raise SourceError(f"{location.address}: names of columns are read from local disks only; copy the file first")
    location.existing_version()
    if os.path.isdir(location.url):
        raise SourceError(f"{location.address}: a folder; give the text file with the names of columns")
    with _opened(location) as file:
        # Not by `splitlines`, which ends lines at other characters too, such as a form feed within a name.
        names = [line.strip() for line in file.read().rstrip().split("\n")]
    _refuse_marks(names, location.address)
    names = names if any(names) else []
    lines: dict[str, int] = {}
    for line, name in enumerate(names, start=1):
        if not name:
            raise SourceError(f"{location.address}: line {line} is empty; write the name of column {line - 1} there")
        if (first := lines.setdefault(name, line)) != line:
            raise SourceError(
                f"{location.address}: lines {first} and {line} are both {name!r:.80}; give each column its own name"
            )
    if len(names) != n_columns:
        raise SourceError(
            f"{location.address}: {counted(len(names), 'name')} for the {counted(n_columns, 'column')} of {source}; "
            "write one a line, without a heading"
        )
    return tuple(names)


def open_text_vector(location: Location, n_rows: int | None, name: str) -> Vector:
    """Read a vector from a text file: one entry a line, or the column `name` of a table.

    `location`: A local file; ``.gz`` is decompressed on the way.
    `n_rows`: Entries expected: one more line holds the column's name.
    `name`: Column of a table with several; its singular ("label") and "cluster" are tried too, and of two columns the
        second, where the first names the rows and `name` is "labels", "target" or "clusters".
    Missing entries of numbers, as `CsvRows` has them, are NaN; those of text stand as they are, see `tables.Labels`.
    Raises `SourceError` if the file is no text, a line is cut off or empty, or no column of a table has the name.
    """
    with _opened(location) as file:
        every = list(file)
    _refuse_marks(every, f"{name} {location.address}")
    lines = [line for line in every if line.strip()]
    if not lines:
        raise EmptyInput(f"{name} {location.address}: the file is empty")
    table = list(csv.reader(lines, delimiter=_separator(lines[:1])))
    width = len(table[0])
    if width == 1 and len(table) == len(lines):
        while not every[-1].strip():
            every.pop()
        if len(every) > len(lines):
            # Passed over, it could make room for the column's name as the first entry, and all others would be of the
            # row after theirs.
            line = next(number for number, line in enumerate(every, start=1) if not line.strip())
            raise SourceError(
                f"{name} {location.address}: line {line} is empty; remove it, or write NA if the entry is missing"
            )
    for number, row in enumerate(table, start=1):
        if len(row) != width:
            raise SourceError(
                f"{name} {location.address}: entry {number} has {len(row)} fields, the first has {width}; correct it"
            )
    header = [field.strip() for field in table[0]]
    column = 0 if width == 1 else _column(header, name, location, table[1:])
    entries = [row[column].strip() for row in table]
    numbers = [is_number(entry) or is_missing_field(entry) for entry in entries]
    has_heading = (
        not numbers[0]
        and all(numbers[1:])
        and any(is_number(entry) and not is_missing_field(entry) for entry in entries[1:])
    )
    if width > 1 or len(entries) - 1 == n_rows or has_heading:
        entries, numbers = entries[1:], numbers[1:]
    if not entries:
        raise EmptyInput(f"{name} {location.address}: no entries under the line of column names")
    if not all(numbers) or all(map(is_missing_field, entries)):
        require_no_nul(entries, f"{name} {location.address}")
        vector = ArrayVector(np.array(entries), location.address)
        vector.holds_fields = True
    else:
        values = np.array([np.nan if is_missing_field(entry) else float(entry) for entry in entries])
        vector = ArrayVector(_whole(entries, values), location.address)
    if width > 1:
        vector.name, vector.beside = header[column], _OtherColumns(table, column, location.address)
    return vector


def _whole(entries: list[str], values: Array) -> Array:
    """Return numbers as int64 where all are whole and it holds them, digit by digit; else as they are."""
    if not (np.isfinite(values).all() and (values == np.trunc(values)).all()):
        return values
    if np.abs(values).max() < 2**53:
        return values.astype(np.int64)
    with contextlib.suppress(ValueError, OverflowError):  # other notations, such as 1e19; more digits
        return np.array([int(entry) for entry in entries], dtype=np.int64)
    return values


class _OtherColumns(Mapping[str, Vector]):
    """The columns of a table but one, each made when it is read."""

    def __init__(self, table: list[list[str]], column: int, address: str) -> None:
        self._table, self._address = table, address
        titles = [title.strip() for title in table[0]]
        self._places = {title: j for j, title in enumerate(titles) if j != column and titles.count(title) == 1}

    def __getitem__(self, title: str) -> Vector:
        place = self._places[title]
        return ArrayVector(np.array([row[place].strip() for row in self._table[1:]]), self._address)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _column(header: list[str], name: str, location: Location, rows: list[list[str]]) -> int:
    for candidate in (name, name.removesuffix("s"), "cluster"):
        if candidate in header:
            return header.index(candidate)
    columns = [np.array([row[j].strip() for row in rows]) for j in range(len(header) if len(header) == 2 else 0)]
    if second_of_two(name, header, columns):
        return 1
    listed = ", ".join(map(repr, header[:8]))
    raise SourceError(
        f"{name} {location.address}: has {len(header)} columns ({listed:.200}), none of them called {name!r}"
        f"{repeat_in_words(name, header, columns)}; keep one column, or name it so"
    )
