"""Text and dates in the columns of tables, as numbers: codes of levels, and days.

The code of a level is a hash of its text, so that it is the same in any file, order and process, and needs no pass;
what a code stands for is looked up where the level first occurs.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sketchselect._text import first_names, key_without
from sketchselect.errors import BadParameter, SourceChanged, SourceError
from sketchselect.linalg.hashing import MISSING_LEVEL, fingerprint, level_codes
from sketchselect.linalg.validation import Array, Floats
from sketchselect.readers.base import Matrix, MatrixView, Vector, is_absent

ENCODINGS = {"text": "one-hot", "dates": "dates"}
"""What columns may hold besides numbers -> the prepare step that they are read for."""

DAY = 86_400e6
"""Microseconds of a day."""
_RUN = 1 << 16
_ABSENT = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "null", "none"))
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?Z?")


def require_encodings(encode: Collection[str]) -> Collection[str]:
    """Return the kinds of columns that are to be read as numbers, or raise `BadParameter`."""
    if isinstance(encode, str) or (unknown := sorted(set(encode) - ENCODINGS.keys())):
        raise BadParameter(f"encode must list {' and '.join(map(repr, ENCODINGS))}, got {encode or unknown!r:.60}")
    return {kind: tuple(names) for kind, names in encode.items()} if isinstance(encode, Mapping) else frozenset(encode)


def kind_in_fit(name: Any, encode: Collection[str]) -> str | None:
    """Return what a column held in a fit: "text" or "dates"; None where it is not known."""
    names = encode.items() if isinstance(encode, Mapping) else ()
    return next((kind for kind, columns in names if name in columns), None)


LEAST_COUNTED = 20
"""Rows from which on rising whole numbers are taken for identifiers."""


_ROWS_AT_ONCE = 1 << 14


def rising_columns(rows: Array) -> Array:
    """Return the columns whose values rise by whole numbers from row to row, as identifiers do.

    Large floating-point numbers, which are all whole, say nothing.
    """
    limit = 2.0 ** np.finfo(rows.dtype).nmant if rows.dtype.kind == "f" else np.inf
    rising = np.arange(0 if rows.dtype.kind == "b" else rows.shape[1])
    # Few columns outlast the first rows.
    ends = [LEAST_COUNTED, *range(_ROWS_AT_ONCE, rows.shape[0] + _ROWS_AT_ONCE, _ROWS_AT_ONCE)]
    for end in ends:
        if rising.size:
            columns = rows[max(end - _ROWS_AT_ONCE, 0) : end + 1, rising]
            with np.errstate(invalid="ignore"):  # infinity less infinity
                steps = columns[1:] - columns[:-1]
            is_rising = (
                (columns[1:] > columns[:-1]) & (steps % 1 == 0) & (np.abs(columns[:-1]) < limit) & (columns[1:] < limit)
            )
            rising = rising[is_rising.all(axis=0)]
    return rising


_NAMED_AS_IDENTIFIER = re.compile(r"(?i:(?:^|[\W_])(?:id|nr|no|number|key|uid)\.?$)|[a-z](?:ID|Id|Nr|NR|No|Key|UID)$")


def may_be_identifier(name: str) -> bool:
    """Return whether a column has the name of an identifier: "id", "customer_id", "orderNr", but not "humid".

    Examples
    --------
    >>> list(filter(may_be_identifier, ("id", "customer_id", "PassengerId", "plot no.", "humid", "acid", "keys")))
    ['id', 'customer_id', 'PassengerId', 'plot no.']
    """
    return _NAMED_AS_IDENTIFIER.search(name) is not None


def different_columns(rows: Array, names: Sequence[str]) -> list[str]:
    """Return the columns named as identifiers are, with a different whole number in each of some rows, in any order.

    Whole numbers alone say little: measurements may be whole, and all different in few rows.
    """
    if len(rows) < LEAST_COUNTED:
        return []
    return [name for j, name in enumerate(names) if may_be_identifier(name) and numbers_rows(rows[:, j])]


def numbers_rows(column: Array) -> bool:
    """Return whether the first rows of a column have each a whole number of their own."""
    values = column[:_ROWS_AT_ONCE]
    with np.errstate(invalid="ignore"):
        are_whole = values.dtype.kind in "iuf" and bool((values % 1 == 0).all())
    return are_whole and np.unique(values).size == values.size


_BY_KEY = "{key} (--key=-NAME) leaves {them} out"


def doubts_of(
    address: str, rising: Sequence[str], different: Sequence[str] = (), cure: str = _BY_KEY
) -> tuple[str, ...]:
    """Return the warnings of columns that are as identifiers are, for `Matrix.doubts`; none where there are none.

    `rising`: Columns that rise by whole numbers.
    `different`: Columns that `different_columns` returns; those that rise too are named once.
    """
    texts = []
    for names, one, several in (
        (rising, "rises by whole numbers, as identifiers do,", "rise by whole numbers, as identifiers do,"),
        (
            [name for name in different if name not in rising],
            "has a different whole number in every row seen, as identifiers do,",
            "have a different whole number in every row seen, as identifiers do,",
        ),
    ):
        if not names:
            continue
        column, does, are, they, number, them = "column", one, "is a feature", "it", "numbers", "it"
        if len(names) > 1:
            column, does, are, they, number, them = "columns", several, "are features", "they", "number", "them"
        key = key_without(f"{name:.80}" for name in names[:8])
        texts.append(
            f"{address}: {column} {first_names(names, 8)} {does} and {are}; if {they} only {number} the rows, "
            f"{cure.format(key=key, them=them)}"
        )
    return tuple(texts)


def doubts_of_frame(rows: Array, names: Sequence[str], encoded: Collection[int] = ()) -> tuple[str, ...]:
    """Return the warnings of a data frame's columns that are as identifiers are.

    `rows` of shape (n_rows, n_features): Its values.
    `names`: Those of its columns; empty where they have none.
    `encoded`: Columns of dates, which may rise, and of codes of text.
    """
    if len(rows) < LEAST_COUNTED or not names:
        return ()
    numbers = [name for j, name in enumerate(names) if j not in encoded]
    rising = [names[j] for j in rising_columns(rows).tolist() if j not in encoded]
    different = [name for name in different_columns(rows, names) if name in numbers]
    return doubts_of("data frame", rising, different, OF_FRAMES)


OF_FRAMES = "leave {them} out, or make {them} the index (of pandas)"
"""What to do about an identifier in a data frame."""


def advice(kind: str, several: bool = False) -> str:
    """Return what to do with a column, or several, of text or dates, for messages."""
    it, its = ("them", "their") if several else ("it", "its")
    what = {"text": f"encode {its} levels as columns of 0 and 1", "dates": f"read {it} as days since 1970-01-01"}[kind]
    return f'leave {it} out, or {what} with the prepare step "{ENCODINGS[kind]}"'


LISTED_NAMES = 20
"""Columns that an error lists by name."""


def as_others(names: Sequence[Any], kind: str | None) -> str:
    """Return what an error about a column of text or dates says of others of this kind.

    Examples
    --------
    >>> as_others(["ward", "sex"], "text"), as_others(["end"], "dates"), as_others([], "text")
    (", and 'ward', 'sex' are text too", ", and 'end' holds dates too", '')
    """
    verb = ("holds dates", "hold dates") if kind == "dates" else ("is text", "are text")
    return f", and {first_names(names, LISTED_NAMES)} {verb[len(names) > 1]} too" if names else ""


def is_missing_field(field: str) -> bool:
    """Return whether a field of a text file stands for a missing value."""
    return field.strip().lower() in _ABSENT


class Labels(Vector):
    """Fields of a text file as labels of rows: those that stand for a missing value are empty.

    "None" may be the name of a class, such as a degree of illness, and stays.

    `fields`: A vector whose `holds_fields` is true.
    """

    def __init__(self, fields: Vector) -> None:
        self.fields = fields
        self.shape, self.dtype, self.address, self.name = fields.shape, fields.dtype, fields.address, fields.name
        self.in_memory, self.ordered_by, self.ordered_names = fields.in_memory, fields.ordered_by, fields.ordered_names

    def _entries(self, start: int, stop: int) -> Array:
        entries = self.fields.read(start, stop)
        absent = [text for text in set(entries.tolist()) if is_missing_field(text) and text.strip().lower() != "none"]
        return np.where(np.isin(entries, absent), "", entries) if absent else entries

    def identity(self) -> str | None:
        """Return the fingerprint of the fields as labels."""
        inner = self.fields.identity()
        return None if inner is None else f"{inner}/labels"


_TRUTH = {spelt: str(truth) for truth in (False, True) for spelt in (str(truth).lower(), str(truth).upper())}


def text_of(value: Any) -> str:
    """Return the name of a level: True and False for truth values, also where they are spelt true or TRUE."""
    text = value if type(value) is str else str(value)
    return _TRUTH.get(text, text)


def codes_of(values: Iterable[Any]) -> tuple[Floats, dict[float, str]]:
    """Return the codes of entries, and what they stand for."""
    texts: list[str | None] = list(values)
    if not set(map(type, texts)) <= {str, type(None)}:
        texts = [None if is_absent(value) else text_of(value) for value in texts]
    distinct = {text: text_of(text) for text in texts if text is not None}
    try:
        codes: dict[str | None, float] = dict(zip(distinct, level_codes(list(distinct.values())).tolist(), strict=True))
    except UnicodeEncodeError as error:
        raise SourceError(f"text column: the entry {error.object!r:.80} is no valid Unicode; correct it") from error
    names = {code: distinct[text] for text, code in codes.items() if text is not None}
    codes[None] = MISSING_LEVEL
    return np.fromiter((codes[text] for text in texts), dtype=np.float64, count=len(texts)), names


_FIRST, _END = np.datetime64("-290000", "Y"), np.datetime64("294000", "Y")
"""Years between which microseconds hold every time."""
_COARSER = frozenset(("Y", "M", "W", "D", "h", "m", "s", "ms"))


def beyond_microseconds(place: str) -> SourceError:
    """Return the error of a time, at some place, that microseconds do not hold."""
    return SourceError(
        f"{place} has a time before the year {_FIRST} or after {_END}, which microseconds do not hold (such are the "
        "infinite dates of some databases); replace it, or leave it missing"
    )


def in_microseconds(times: Array, place: str, first_row: int = 0) -> Array:
    """Return times of NumPy in microseconds; of finer units parts of one are cut off.

    `place`, `first_row`: What has the times, and the row of the first, for messages.
    Raises `SourceError` naming the first row of a time that microseconds do not hold.
    """
    if np.datetime_data(times.dtype)[0] in _COARSER:
        outside = (times < _FIRST.astype(times.dtype)) | (times >= _END.astype(times.dtype))
        if outside.any():
            raise beyond_microseconds(f"{place}: row {first_row + int(outside.argmax())}")
    return times.astype("datetime64[us]")


def days_of(values: Array, place: str) -> Floats:
    """Return times as days since 1970-01-01, parts of days included; NaN where there is none.

    `place`: What has the times, for messages.
    Raises `SourceError` for times that microseconds do not hold.
    """
    times = in_microseconds(np.asarray(values), place)
    days: Floats = times.astype(np.int64) / DAY
    return np.where(np.isnat(times), np.nan, days)


def times_from(days: Floats) -> Array:
    """Return days since 1970-01-01 as times, to a microsecond or the rounding of the days; NaN as none."""
    times = np.full(days.shape, np.datetime64("NaT", "us"))
    finite = np.isfinite(days)
    times[finite] = np.rint(days[finite] * DAY).astype(np.int64).astype("datetime64[us]")
    return times


def times_of(values: Array, address: str, start: int = 0) -> Array:
    """Return entries as times: times as they are, or text such as 2024-03-31.

    `start`: Index of the first row, for messages.
    Raises `SourceError` for numbers, which may be days, seconds or years, and naming the first row that has no date.
    """
    if values.dtype.kind == "M":
        times = in_microseconds(values, address, start)
    elif values.dtype.kind == "U":
        times = parsed_times(values.tolist())
    else:
        raise SourceError(
            f"{address}: numbers are no dates; give dates, such as pd.to_datetime(x, unit='s') of seconds since 1970"
        )
    _require_dates(~np.isnat(times), values, address, start)
    return times


def parsed_times(texts: Sequence[str | None]) -> Array:
    """Return texts such as 2024-03-31 as times; others as none."""
    times = np.full(len(texts), np.datetime64("NaT", "us"))
    for i, text in enumerate(texts):
        if text is not None and _DATE.fullmatch(text.strip()):
            with contextlib.suppress(ValueError):  # such as the 30th of February
                times[i] = np.datetime64(text.strip().rstrip("Z"), "us")
    return times


def _require_dates(there: Array, entries: Any, address: str, start: int) -> None:
    if not there.all():
        i = int(there.argmin())
        raise SourceError(
            f"{address}: row {start + i}, {str(entries[i])!r:.80}, is no date such as 2024-03-31 or 2024-03-31 18:05; "
            "correct it"
        )


def noted_index(schema: Any, address: str) -> list[str | dict[str, Any]]:
    """Return what pandas noted of the row index in the schema of an Arrow table: names of columns, and ranges.

    Raises `SourceError` where that is no such note: an index would become a feature, or a column none.
    """
    try:
        noted = (schema.pandas_metadata or {}).get("index_columns", [])
        for entry in noted:
            if not isinstance(entry, str) and entry.get("kind", "range") == "range":
                range(entry["start"], entry["stop"], entry["step"])
        if isinstance(noted, list):
            return noted
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise SourceError(
        f"{address}: what pandas noted of its row index (metadata 'pandas') is damaged; write it again, or without: "
        "table.replace_schema_metadata(None)"
    )


@dataclass(frozen=True)
class KnownLevels:
    """The levels of a column in memory, by their codes."""

    by_code: Mapping[float, str]

    def names(self, codes: Sequence[float], rows: Sequence[int]) -> list[str]:
        """Return the levels of these codes."""
        return [self.by_code[code] for code in codes]


@dataclass(frozen=True)
class StoredLevels:
    """The levels of a column of a store, looked up in rows that have them."""

    column: Any  # Has ``texts(start, stop)``, `n_rows` and `address`

    def names(self, codes: Sequence[float], rows: Sequence[int]) -> list[str]:
        """Return the levels of these codes, each read from its row; raise `SourceChanged` if it is another one now."""
        out = [""] * len(codes)
        start = stop = 0
        texts: list[str | None] = []
        for i in np.argsort(rows, kind="stable").tolist():
            if not start <= rows[i] < stop:
                start, stop = rows[i], min(rows[i] + _RUN, self.column.n_rows)
                texts = self.column.texts(start, stop)
            text = None if (entry := texts[rows[i] - start]) is None else text_of(entry)
            if text is None or level_codes([text])[0] != codes[i]:
                raise SourceChanged(f"{self.column.address}: row {rows[i]} was rewritten while it was read; run again")
            out[i] = text
        return out


@dataclass(frozen=True)
class EncodedFrame:
    """A data frame whose columns of text and dates are numbers."""

    frame: Any
    levels: Mapping[Any, Any] = field(default_factory=dict)  # By the name of the column
    dates: Collection[Any] = ()  # Names of the columns of dates

    def name_levels(self, matrix: Matrix, names: Sequence[Any]) -> None:
        """Tell the matrix of the frame, with these columns, which are text and which are dates."""
        matrix.levels = {place: self.levels[name] for place, name in enumerate(names) if name in self.levels}
        matrix.text_columns = tuple(matrix.levels)
        matrix.date_columns = tuple(place for place, name in enumerate(names) if name in self.dates)


def encoded_pandas(frame: Any, encode: Collection[str]) -> EncodedFrame:
    """Return a data frame of pandas (or with its methods) with the columns of these kinds as numbers."""
    out, levels, dates = frame, dict[Any, Any](), list[Any]()
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        kind, before = kind_of(dtype, frame[name]), kind_in_fit(name, encode)
        if before is not None and kind != before and all(map(is_absent, frame[name])):
            kind = before  # no entry tells
        if kind not in encode:
            continue
        if out is frame:
            out = frame.copy(deep=False)
        if kind == "dates":
            out[name] = _days(frame[name], f"column {name!r:.80}")
            dates.append(name)
        else:
            codes, names = _pandas_codes(frame[name])
            out[name], levels[name] = codes, KnownLevels(names)
    return EncodedFrame(out, levels, dates)


def _pandas_codes(column: Any) -> tuple[Floats, dict[float, str]]:
    """Return the codes of a column of pandas and what they stand for, without an object for each row where it can."""
    if getattr(column.dtype, "kind", "O") == "O" and type(column.dtype).__name__ not in _PLAIN_TEXT:
        return codes_of(column.tolist())  # 1, True and "1" are equal to pandas
    places, distinct = column.factorize()
    codes, names = codes_of([*distinct.tolist(), None])
    return codes[places], names  # -1, a missing entry, is the last


_PLAIN_TEXT = ("CategoricalDtype", "StringDtype")


def _days(column: Any, place: str) -> Floats:
    """Return a column of times of pandas as days; those with a zone in UTC."""
    if getattr(column.dtype, "kind", "O") == "M":
        zone = getattr(column.dtype, "tz", None)
        plain = column if zone is None else column.dt.tz_convert(None)
        try:
            # Of some columns of Arrow pandas makes objects; and in another unit than theirs it may overflow.
            given = {}
            if not isinstance(plain.dtype, np.dtype):
                given["dtype"] = f"datetime64[{getattr(plain.dtype.pyarrow_dtype, 'unit', 'us')}]"
            return days_of(plain.to_numpy(**given), place)
        except OverflowError:
            raise beyond_microseconds(place) from None
    return days_of(column_of_times(column), place)


def column_of_times(values: Iterable[Any]) -> Array:
    """Return objects as times where they are dates (those with a zone in UTC), as they are where some are not."""
    import datetime

    entries = [None if is_absent(value) else value for value in values]
    if not all(entry is None or isinstance(entry, datetime.date) for entry in entries):
        return np.array(entries, dtype=object)
    plain = [
        entry if entry is None or getattr(entry, "tzinfo", None) is None else entry.astimezone(datetime.UTC)
        for entry in entries
    ]
    plain = [entry if not isinstance(entry, datetime.datetime) else entry.replace(tzinfo=None) for entry in plain]
    return np.array(plain, dtype="datetime64[us]")


def kind_of(dtype: Any, column: Any) -> str | None:
    """Return "text" or "dates" for a column of pandas that holds such, None for all else.

    Truth values are text: their levels are False and True, in a text file too.
    """
    kind = getattr(dtype, "kind", "O")
    if kind == "M":
        return "dates"
    if kind == "b" or type(dtype).__name__ in ("CategoricalDtype", "StringDtype") or kind == "U":
        return "text"
    if kind != "O":
        return None
    import datetime

    values = [value for value in column if not is_absent(value)]
    if values and all(isinstance(value, datetime.date) for value in values):
        return "dates"
    if any(isinstance(value, (Sequence, Mapping, np.ndarray)) and not isinstance(value, str) for value in values):
        return None  # such as embeddings
    return "text" if any(isinstance(value, (str, bool)) for value in values) else None


def encoded_narwhals(frame: Any, encode: Collection[str]) -> EncodedFrame:
    """Return a data frame of narwhals with the columns of these kinds as numbers."""
    import narwhals

    columns, levels, dates = {}, {}, []
    text = (narwhals.String, narwhals.Categorical, narwhals.Enum, narwhals.Boolean)
    for name in frame.columns:
        column, before = frame[name], kind_in_fit(name, encode)
        is_date = column.dtype == narwhals.Date or column.dtype == narwhals.Datetime
        is_text = any(column.dtype == kind for kind in text)
        if (
            not (is_text if before == "text" else is_date)
            and before is not None
            and all(map(is_absent, column.to_list()))
        ):
            empty = np.full(len(column), MISSING_LEVEL if before == "text" else np.nan)
            columns[name] = narwhals.new_series(name, empty, narwhals.Float64, backend=frame.implementation)
            if before == "text":
                levels[name] = KnownLevels({})
            else:
                dates.append(name)
        elif is_date:
            if "dates" in encode:
                # Not by a cast of narwhals: pyarrow's refuses whole numbers beyond 2^53, dates from 2255 on.
                days = days_of(column.to_numpy(), f"column {name!r:.80}")
                columns[name] = narwhals.new_series(name, days, narwhals.Float64, backend=frame.implementation)
                dates.append(name)
        elif is_text and "text" in encode:
            codes, names = codes_of(column.to_list())
            columns[name] = narwhals.new_series(name, codes, narwhals.Float64, backend=frame.implementation)
            levels[name] = KnownLevels(names)
    return EncodedFrame(frame.with_columns(**columns) if columns else frame, levels, dates)


@dataclass(frozen=True)
class FieldColumn:
    """A text column of a table that was converted from a text file: fields as they were, of levels or of dates."""

    name: str
    fields: Vector
    is_date: bool = False

    @property
    def n_rows(self) -> int:
        """Number of fields."""
        return self.fields.n_rows

    @property
    def address(self) -> str:
        """Where the fields are."""
        return self.fields.address

    @classmethod
    def of(cls, name: str, fields: Vector, encode: Collection[str]) -> FieldColumn | None:
        """Return the column if it is of one of these kinds: of dates if its first field that is there is one."""
        column = cls(name, fields)
        entries = (text for start in range(0, fields.n_rows, _RUN) for text in column.texts(start, start + _RUN))
        first = next((text for text in entries if text is not None), "")
        before = kind_in_fit(name, encode)
        if before == "dates" or (before is None and "dates" in encode and _DATE.fullmatch(first.strip())):
            return cls(name, fields, is_date=True)
        return column if "text" in encode else None

    def texts(self, start: int, stop: int) -> list[str | None]:
        """Return fields as text, None where one is missing."""
        entries = self.fields.read(start, min(stop, self.n_rows)).tolist()
        return [None if is_missing_field(entry) else entry for entry in entries]

    def numbers(self, start: int, stop: int) -> Floats:
        """Return codes of levels, or days; raise `SourceError` naming a row that holds no date."""
        texts = self.texts(start, stop)
        if not self.is_date:
            return codes_of(texts)[0]
        times = parsed_times(texts)
        missing = np.array([text is None for text in texts], dtype=bool)
        _require_dates(~np.isnat(times) | missing, texts, self.address, start)
        return days_of(times, self.address)


class WithFields(MatrixView):
    """A matrix and, after its columns, text columns of the same table.

    `columns`: At least one.
    """

    is_sparse = False
    chunk_columns = None

    def __init__(self, matrix: Matrix, columns: Sequence[FieldColumn]) -> None:
        super().__init__(matrix)
        n_rows, n_columns = matrix.shape
        self.columns = tuple(columns)
        self.shape = (n_rows, n_columns + len(self.columns))
        self.dtype = np.dtype(np.float64)
        names = matrix.feature_names or tuple(f"x{j}" for j in range(n_columns))
        self.feature_names = (*names, *(column.name for column in self.columns))
        text = {n_columns + i: column for i, column in enumerate(self.columns) if not column.is_date}
        self.text_columns, self.levels = tuple(text), {j: StoredLevels(column) for j, column in text.items()}
        self.date_columns = tuple(n_columns + i for i, column in enumerate(self.columns) if column.is_date)

    def _rows(self, start: int, stop: int) -> Array:
        numbers = self.matrix.read_rows(start, stop)
        return np.column_stack([numbers, *(column.numbers(start, stop) for column in self.columns)])

    def dask_rows(self) -> None:
        """Return nothing: fields are files, and come from no graph."""

    def identity(self, start: int, stop: int) -> str | None:
        """Return the fingerprint of the numbers of these rows, and of the text columns."""
        parts = (self.matrix.identity(start, stop), *(column.fields.identity() for column in self.columns))
        kinds = [column.is_date for column in self.columns]
        return None if None in parts else f"{fingerprint('fields', kinds, *parts)}:{start}:{stop}"
