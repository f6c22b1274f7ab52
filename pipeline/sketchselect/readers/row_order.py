"""Order of the entries of targets, labels and weights that name their rows."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unicodedata import normalize

import numpy as np

from sketchselect._text import counted, key_without
from sketchselect.errors import SourceError, warn
from sketchselect.linalg.validation import Array
from sketchselect.readers.arrays import ArrayVector
from sketchselect.readers.base import Matrix, Vector, row_texts
from sketchselect.readers.tables import LEAST_COUNTED, is_missing_field, may_be_identifier, numbers_rows

_FIRST_ROWS = 2048
"""Rows that tell most columns which name no rows from those that do."""

_FIRST_ENTRIES = 1 << 20
_PIECE_ROWS = 1 << 18
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d+")
_SPACE = re.compile(r"[\x00-\x20\x7f]+")
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d(?:\.\d+)?))?)?")
_NAMING = "iufUM"  # Types of columns that may name rows: a table with a missing entry once has whole numbers as floats
_KINDS_OF_TEXT = ("string", "mixed", "mixed-integer", "date", "datetime", "datetime64")  # of an index of pandas
_KINDS_OF_NUMBERS = ("integer", "floating")
_BESIDE_NAMES = ("labels", "target", "clusters", "groups", "cv_groups")
_DISARMED = re.compile(r"'(?=[=+\-@|\uff5c\uff1d\uff0b\uff0d\uff20])")


def in_row_order(vector: Vector, row_names: Any, name: str) -> Vector:
    """Return the entries of a file in the order of the rows, where its column with the title of their names says it.

    Names are compared as a reader would, see `_compared`. A column that has none of them is written in another way: the
    entries stay in their places, with a warning.

    Raises `SourceError` if the column has some of the names, or if those in another order occur more than once.
    """
    title: Any = getattr(row_names, "name", None)
    if title is None or title not in vector.beside:
        return vector
    return _ordered(vector, vector.beside[title], f"column {title!r:.80}", row_names, name, title)


def series_in_row_order(vector: Vector, index: Any, row_names: Any, name: str) -> Vector:
    """Return the entries of a pandas Series in the order of the rows, where its index names them, as `in_row_order`.

    An index of whole numbers, which pandas sets too, does if it has those of all rows, or most of them in another order
    under the title of the names.
    """
    if index.inferred_type == "categorical":
        index = index.astype(index.categories.dtype)
    kind = index.inferred_type
    if kind not in (*_KINDS_OF_TEXT, *_KINDS_OF_NUMBERS) or is_count(index):
        return vector
    column = ArrayVector(np.asarray(index, dtype=str))
    if kind in _KINDS_OF_NUMBERS:
        texts = _compared(*(row_texts(names, 0, vector.n_rows) for names in (row_names, column)))
        has_title = index.name is not None and str(index.name) == getattr(row_names, "name", None)
        if not (_have_same(*texts) or (has_title and _name_rows(*texts, are_text=False))):
            return vector
    return _ordered(vector, column, "index", row_names, name, "index")


def _ordered(vector: Vector, column: Vector, which: str, row_names: Any, name: str, title: str) -> Vector:
    n_rows = vector.n_rows
    if np.array_equal(row_names.read(0, n_rows), column.read(0, n_rows)):
        return vector
    names = row_texts(row_names, 0, n_rows)
    ours, theirs = _compared(names, row_texts(column, 0, n_rows))
    if ours == theirs:
        return vector
    lacking = Counter() if _have_same(ours, theirs) else Counter(ours) - Counter(theirs)
    if not set(ours) & set(theirs):
        _warn_of_others(vector, which, names, name)
        return vector
    if lacking:
        absent = next(i for i, text in enumerate(ours) if text in lacking)
        raise SourceError(
            f"{name} {vector.address}: its {which} names other rows than the source, whose row "
            f"{names[absent]!r:.80} is missing; give the file of these rows"
        )
    places = {text: place for place, text in enumerate(theirs)}
    if len(places) < n_rows:
        twice = next(text for text, count in Counter(theirs).items() if count > 1)
        raise SourceError(
            f"{name} {vector.address}: its rows are in another order than those of the source, and its {which} "
            f"has {twice!r:.80} more than once; write them in the order of the source"
        )
    ordered = ArrayVector(vector.read(0, n_rows)[[places[text] for text in ours]], vector.address)
    ordered.name, ordered.holds_fields, ordered.ordered_by = vector.name, vector.holds_fields, title
    ordered.ordered_names = names
    return ordered


def _warn_of_others(vector: Vector, which: str, names: Sequence[str], name: str) -> None:
    warn(
        f"{name} {vector.address}: its {which} has none of the names of the source's rows, such as {names[0]!r:.80}; "
        "entries are taken by place"
    )


def names_of_rows(matrix: Any, vector: Vector) -> Any:
    """Return the names of the rows of a matrix: those of its source, else a column of both files.

    That column is no feature of the matrix, has the same title in both files, and in the source no entry twice. It is
    text or dates, of which half are in both, or whole numbers: the same ones in both, or half of them in another order,
    unless they count the rows.
    """
    names = getattr(matrix, "row_names", None)
    if names is not None and getattr(names, "name", None) in vector.beside:
        return names
    columns = getattr(matrix, "unread_columns", {})
    shared = {title: column for title in vector.beside if (column := columns.get(title)) is not None}
    for title, column in sorted(shared.items(), key=lambda pair: pair[1].dtype.kind != "U"):
        if column.dtype.kind not in _NAMING:
            continue
        with missing_entries():
            ours, theirs = _compared(row_texts(column, 0, column.n_rows), _with_missing(vector.beside[title]))
            if column.dtype.kind == "f" and not all(map(_WHOLE.fullmatch, ours)):
                continue
            if _name_rows(ours, theirs, are_text=column.dtype.kind in "UM"):
                named = ArrayVector(column.read(0, column.n_rows), column.address)
                named.name = title
                return named
    return names


def _name_rows(ours: Sequence[str], theirs: Sequence[str], *, are_text: bool) -> bool:
    """Return whether the entries of a source, as they are compared, are names, by those of a file with the same title.

    Of a file some entries may be there twice, by mistake.
    """
    known, others = set(ours), set(theirs)
    if len(known) < len(ours) or 4 * len(others) < 3 * len(theirs):
        return False
    share = len(known & others) / max(min(len(ours), len(theirs)), 1)
    in_order = not any(a != b and b in known for a, b in zip(ours, theirs, strict=False))
    may_count = in_order or (_fill_a_range(ours) and _fill_a_range(theirs))
    return share == 1 or (share >= 0.5 and (are_text or not may_count))


def _are_same_numbers(ours: list[str], theirs: list[str]) -> bool:
    """Return whether two columns have the same whole numbers, each once, and not those of a range."""
    is_each_once = len(set(ours)) == len(ours) and all(map(_WHOLE.fullmatch, ours))
    return is_each_once and _have_same(ours, theirs) and not _fill_a_range(ours)


def _with_missing(column: Any) -> list[str]:
    """Return the entries of a column as text, empty where one is missing."""
    with missing_entries():
        return row_texts(column, 0, column.n_rows)
    # Where an entry is missing, which the columns of text and Parquet files alone refuse.
    return [text or "" for text in column.texts(0, column.n_rows)]


def names_in_unread(matrix: Any, index: Any = None) -> Vector | None:
    """Return the column of a file that is no feature and names the rows; None where there is none.

    `index`: Of a pandas Series: the column has its entries or most of them; where they are numbers it has its title, or
        all of them, and they count nothing. Without it, the first with no entry twice in the first rows: text, or whole
        numbers under the title of an identifier.
    """
    for title, column in getattr(matrix, "unread_columns", {}).items():
        is_text, n_rows = column.dtype.kind == "U", column.n_rows
        if index is None and not (is_text or column.dtype.kind in "iu"):
            continue
        is_text |= column.dtype.kind == "M"
        if column.dtype.kind not in _NAMING:
            continue
        with missing_entries():
            if index is not None:
                named = ArrayVector(column.read(0, n_rows), column.address)
                named.name = title
                texts = _compared(row_texts(named, 0, n_rows), np.asarray(index, dtype=str).tolist())
                is_titled = is_text or title == index.name
                if _name_rows(*texts, are_text=is_text) if is_titled else _are_same_numbers(*texts):
                    return named
            elif are_names(title, column.read(0, min(_FIRST_ROWS, n_rows))):
                for start in range(_FIRST_ROWS, n_rows, _PIECE_ROWS):
                    column.read(start, min(start + _PIECE_ROWS, n_rows))
                naming: Vector = column
                return naming
    return None


def require_titled(vector: Vector, matrix: Any, row_names: Any, name: str) -> None:
    """Raise `SourceError` if a file has the names of the rows, in another order, under another title than the source.

    By place the entries would be wrong if that column names its rows, and by name if it is something else of them.
    Names are half of those of the source, or all where they are whole numbers, each once. Where the source only counts
    its rows, such numbers may be ranks: there is a warning, as where names of other rows stand in the only such column.
    """
    own: Any = getattr(row_names, "name", None)
    sources = {own: row_names} if row_names is not None else getattr(matrix, "unread_columns", {})
    if own in vector.beside:
        return
    columns = {title: column for title, column in vector.beside.items() if column.dtype.kind in _NAMING}
    others: list[tuple[str, list[str]]] = []
    is_in_order = False
    for own, names in sources.items() if columns else ():
        ours = _different_texts(names)
        known = set(ours)
        for title, column in columns.items():
            theirs = _different_texts(column, known) if known else []
            is_in_order |= bool(theirs)
            if not any(a != b and b in known for a, b in zip(ours, theirs, strict=False)):
                is_same = title == own
                may_be_numbers = is_same and may_be_identifier(title)
                if known and (len(vector.beside) == 1 or is_same) and _names_others(column, known, may_be_numbers):
                    others.append((title, ours))
                continue
            cure = "write the file in their order" if own is None else f"call it {own!r:.80}, to go by it"
            which = f"{name} {vector.address}: its column {title!r:.80} has the names of the source's rows"
            refuse_order(which, ours, cure)
    if others and not is_in_order:
        title, ours = others[0]
        _warn_of_others(vector, f"column {title!r:.80}", ours, name)


def require_no_identifier(vector: Vector, matrix: Any, name: str) -> None:
    """Raise `SourceError` if a feature numbers the rows, and a file has its numbers in another order under its title.

    The first rows of the feature decide: a different whole number in each, all of them in the file.
    """
    if not isinstance(matrix, Matrix) or matrix.is_sparse or matrix.feature_names is None:
        return
    rows = None
    for title in vector.beside:
        if title not in matrix.feature_names:
            continue
        theirs = _different_texts(vector.beside[title])
        if not theirs or not all(map(_WHOLE.fullmatch, theirs)):
            continue
        if rows is None:
            # Of a wide matrix fewer: they are read beside what a job states.
            n_rows = min(_FIRST_ROWS, max(LEAST_COUNTED, _FIRST_ENTRIES // matrix.shape[1]), matrix.shape[0])
            rows = matrix.read_rows(0, n_rows)
        column = rows[:, matrix.feature_names.index(title)]
        if len(column) < LEAST_COUNTED or not numbers_rows(column):
            continue
        ours = [str(int(number)) for number in column.tolist()]
        if set(ours) <= set(theirs) and ours != theirs[: len(ours)]:
            raise SourceError(
                f"{name} {vector.address}: its column {title!r:.80} is a feature of the source, in another order; if "
                f"it names the rows, leave it out of the features with {key_without([title])} (of open_matrix, a "
                "command or a job's [input]), to go by it, else out of this file"
            )


def _fill_a_range(texts: Sequence[str]) -> bool:
    """Return whether texts are the whole numbers of a range."""
    if not all(map(_WHOLE.fullmatch, texts)):
        return False
    numbers = set(map(int, texts))
    return max(numbers) - min(numbers) + 1 == len(numbers)


def counts_rows(texts: Sequence[str]) -> bool:
    """Return whether names only count the rows, from 0 or 1."""
    return list(texts) in ([str(i + first) for i in range(len(texts))] for first in (0, 1))


def refuse_order(which: str, ours: Sequence[str], cure: str) -> None:
    """Raise `SourceError` for names of rows in another order; warn where these only count them, as ranks do too."""
    if counts_rows(ours):
        warn(f"{which} in another order; entries are taken by place: if it names its rows, {cure}")
        return
    raise SourceError(f"{which} in another order; {cure}, or leave it out if the entries are in place")


def _names_others(column: Any, known: set[str], may_be_numbers: bool) -> bool:
    """Return whether the first entries of a column are text, or perhaps numbers, each once, and none is known."""
    texts, size = set[str](), min(_FIRST_ROWS, column.n_rows)
    with missing_entries():
        texts = set(map(_plain, row_texts(column, 0, size)))
    if not len(texts) == size > 1 or known & texts:
        return False
    return may_be_numbers or not any(map(_NUMBER.fullmatch, (min(texts), min(known))))


def _different_texts(column: Any, known: set[str] | None = None) -> list[str]:
    """Return the entries of a column as text; none where entries are missing, or some occur twice.

    None, too, where less than half of them are `known`, or of whole numbers and dates not all. What the first rows tell
    is not looked for in all.
    """
    texts: list[str] = []
    for stop in (min(_FIRST_ROWS, column.n_rows), column.n_rows):
        texts = []
        with missing_entries():
            texts = row_texts(column, 0, stop)
        texts = [_plain(text) for text in texts]
        are_numbers = all(map(_NUMBER.fullmatch, texts))
        if len(set(texts)) < len(texts) or any(map(is_missing_field, texts)):
            return []
        if are_numbers and not all(map(_WHOLE.fullmatch, texts)):
            return []
        # Dates of another kind, such as those a week later, have many of the same days.
        are_many = are_numbers or all(map(_DAY.fullmatch, texts))
        if known is not None and len(known & set(texts)) < len(texts) / (1 if are_many else 2):
            return []
    return texts


@contextlib.contextmanager
def missing_entries() -> Iterator[None]:
    """Leave the block where entries are missing, as names of rows never are; what cannot be read stays an error."""
    try:
        yield
    except SourceError as error:
        if type(error) is not SourceError:
            raise


def lacking_in_words(vector: Vector, row_names: Any) -> str:
    """Return how many rows a file of other length has no entry for, and the first; empty where it names no rows."""
    title: Any = getattr(row_names, "name", None)
    if title is None or title not in vector.beside:
        return ""
    ours, theirs = _compared(
        row_texts(row_names, 0, row_names.n_rows), row_texts(vector.beside[title], 0, vector.n_rows)
    )
    known = set(theirs)
    lacking = [text for text in ours if text not in known]
    if not lacking or len(lacking) == len(ours):
        return ""
    verb = "has" if len(lacking) == 1 else "have"
    return f"; {counted(len(lacking), 'row')} of the source {verb} no entry, such as {lacking[0]!r:.80}"


def are_names(title: str, entries: Array) -> bool:
    """Return whether a column has names of rows: text, each once, or whole numbers under the title of an identifier."""
    if entries.ndim != 1 or entries.dtype.kind not in "iuU":
        return False
    texts = entries.astype(str).tolist()
    if not 1 < len(texts) == len(set(texts)):
        return False
    is_text = entries.dtype.kind == "U" and not any(map(_NUMBER.fullmatch, texts))
    # A table with a missing entry once has whole numbers as 12.0.
    return is_text or (may_be_identifier(title) and all(_WHOLE.fullmatch(text.removesuffix(".0")) for text in texts))


def second_of_two(name: str, titles: Sequence[str], entries: Sequence[Array]) -> bool:
    """Return whether of two columns the first names the rows, and the second has the labels, groups or the target.

    Labels and groups repeat, so that whole numbers without repeats name the rows, whatever their title.

    `name`: What is sought; weights have to be named.
    """
    if name not in _BESIDE_NAMES or len(titles) != 2 or _NUMBER.fullmatch(titles[1]):
        return False
    first, second = titles if name == "target" else ("id", "id")
    return are_names(first, entries[0]) and not are_names(second, entries[1])


def repeat_in_words(name: str, titles: Sequence[str], entries: Sequence[Array]) -> str:
    """Return which repeated entry keeps the first of two columns from naming the rows; empty where none does so."""
    if name not in _BESIDE_NAMES or len(titles) != 2 or not entries:
        return ""
    texts = entries[0].astype(str).tolist()
    places: dict[str, int] = {}
    for row, text in enumerate(texts):
        if (first := places.setdefault(text, row)) == row:
            continue
        only = np.array([text for text, count in Counter(texts).items() if count == 1], dtype=entries[0].dtype)
        # A column of which half is there once is meant to name the rows.
        if 2 * only.size < len(texts) or not second_of_two(name, titles, [only, entries[1]]):
            return ""
        return f"; {titles[0]!r:.80} does not name the rows, as it has {text!r:.80} in rows {first} and {row}"
    return ""


def same_names(ours: Array, theirs: Array) -> bool:
    """Return whether two columns have the same text or whole numbers, each once, in any order."""
    # Under the title of an identifier whole numbers are names: here both columns have the same ones.
    return all(are_names("id", entries) for entries in (ours, theirs)) and _have_same(
        *_compared(ours.astype(str).tolist(), theirs.astype(str).tolist())
    )


def require_row_order(source: Any, vectors: Mapping[str, Any]) -> None:
    """Raise `SourceError` for a Series whose index has the rows of a data frame, or of AnnData, in another order.

    Entries belong to rows by place, as in scikit-learn. A Series and a data frame of Dask with the same divisions, or
    both without, are taken to be in the same order. An index that pandas numbered names no rows: there is a
    warning if the Series has its numbers in another order.

    `vectors`: The Series and others by name.
    """
    index: Any = getattr(source, "obs_names" if hasattr(source, "obs_names") else "index", None)
    for name, values in vectors.items():
        other: Any = getattr(values, "index", None)
        if hasattr(other, "compute"):  # of a Series of Dask
            if getattr(source, "divisions", None) == values.divisions:
                continue
            other = other.compute()
        if hasattr(index, "compute") and hasattr(other, "equals") and not is_count(other):
            index = index.compute()  # of a data frame of Dask
        if not (hasattr(index, "equals") and hasattr(other, "equals")) or len(index) != len(other):
            continue
        if is_count(other) or index.equals(other):
            continue
        if _moved(index, other):
            if is_count(index):
                warn(
                    f"{name}: its index has the numbers of X's rows in another order, and entries belong to rows by "
                    f"place; if the places are right, give {name}.to_numpy(), else {name}.loc[X.index]"
                )
                continue
            raise SourceError(
                f"{name}: its index has the rows in another order than that of X, and entries belong to rows by place; "
                f"give {name}.loc[X.index], or {name}.to_numpy() if the places are right"
            )


def is_count(index: Any) -> bool:
    """Return whether pandas numbered the rows; a range with a name is one that somebody set."""
    return type(index).__name__ == "RangeIndex" and index.name is None


def _moved(index: Any, other: Any) -> bool:
    """Return whether an index has the names of another in other places: half of them, or all where pandas made them."""
    if not index.is_unique:
        return False
    if is_count(index):
        return not index.difference(other).size
    ours, theirs = (list(map(str, each.tolist())) for each in (index, other))
    known = set(ours)
    is_half = 2 * len(known & set(theirs)) >= len(ours)
    return is_half and any(a != b and b in known for a, b in zip(ours, theirs, strict=True))


def _number(text: str) -> str:
    """Return a number without leading zeros, and whole ones without a decimal point."""
    try:
        return str(int(text))
    except ValueError:
        return str(float(text)).removesuffix(".0")


def _plain(name: str) -> str:
    """Return a name as it is compared, see `_compared`."""
    text = normalize("NFC", _DISARMED.sub("", _SPACE.sub(" ", name).strip()))
    if _NUMBER.fullmatch(text):
        return _number(text)
    if (day := _DAY.fullmatch(text)) is None:
        return text
    date, minute, second = day.groups(default="00")
    if "." in second:
        second = second.rstrip("0").rstrip(".")
    return date if (minute, second) in (("00", "00"), ("00:00", "00")) else f"{date} {minute}:{second}"


def _have_same(first: list[str], second: list[str]) -> bool:
    """Return whether two lists have the same texts as often."""
    return dict(Counter(first)) == dict(Counter(second))  # counters are compared text by text, ten times as slowly


def _compared(first: list[str], second: list[str]) -> tuple[list[str], list[str]]:
    """Return names as they are compared: 1 and 1.0 are equal, as are runs of blanks, and what `tables.disarmed` adds.

    So are a day with and without midnight, and an accent in one character or two. Where names that differ would be
    equal, they are compared as they stand.
    """
    if _have_same(first, second):
        return first, second
    changed = list(map(_plain, first)), list(map(_plain, second))
    if any(len(set(now)) < len(set(before)) for now, before in zip(changed, (first, second), strict=True)):
        return first, second
    return changed
