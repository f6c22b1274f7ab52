"""Order of the entries of targets, labels and weights that name their rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from sketchselect.errors import SourceError, warn
from sketchselect.readers.arrays import ArrayVector
from sketchselect.readers.base import Vector, row_texts

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SPACE = re.compile(r"[\x00-\x20\x7f]+")
_DISARMED = re.compile(r"'(?=[=+\-@|\uff5c\uff1d\uff0b\uff0d\uff20])")


def in_row_order(vector: Vector, row_names: Any, name: str) -> Vector:
    """Return the entries of a file in the order of the rows, where one of its other columns names these.

    That is the column with the title of the names, else one of text that has the same names in another order. Names are
    compared as a reader would, see `_compared`.

    Raises `SourceError` if the column with the title of the names has other names, or if those in another order occur
    more than once.
    """
    title: Any = getattr(row_names, "name", None)
    beside, n_rows = vector.beside, vector.n_rows
    is_titled = title is not None and title in beside
    # Numbers under another title may be anything.
    if not is_titled and _NUMBER.fullmatch(row_texts(row_names, 0, 1)[0]):
        return vector
    # Columns of large files are not read to compare them with names of another title.
    columns = [title] if is_titled else list(beside) if vector.in_memory else []
    if any(np.array_equal(row_names.read(0, n_rows), beside[other].read(0, n_rows)) for other in columns):
        return vector
    names = row_texts(row_names, 0, n_rows)
    for other in columns:
        column = beside[other]
        if not is_titled and _NUMBER.fullmatch(row_texts(column, 0, 1)[0]):
            continue
        ours, theirs = _compared(names, row_texts(column, 0, n_rows))
        if ours == theirs:
            return vector
        if Counter(ours) != Counter(theirs):
            if not is_titled:
                continue
            lacking = Counter(ours) - Counter(theirs)
            absent = next(i for i, text in enumerate(ours) if text in lacking)
            raise SourceError(
                f"{name} {vector.address}: its column {other!r:.80} names other rows than the source, whose row "
                f"{names[absent]!r:.80} is missing; give the file of these rows"
            )
        places = {text: place for place, text in enumerate(theirs)}
        if len(places) < n_rows:
            twice = next(text for text, count in Counter(theirs).items() if count > 1)
            raise SourceError(
                f"{name} {vector.address}: its rows are in another order than those of the source, and its column "
                f"{other!r:.80} has {twice!r:.80} more than once; write them in the order of the source"
            )
        ordered = ArrayVector(vector.read(0, n_rows)[[places[text] for text in ours]], vector.address)
        ordered.name, ordered.holds_fields, ordered.ordered_by = vector.name, vector.holds_fields, other
        return ordered
    return vector


def require_row_order(source: Any, vectors: Any) -> None:
    """Raise `SourceError` for a Series whose index has the rows of a data frame, or of AnnData, in another order.

    Entries belong to rows by place, as in scikit-learn. An index that pandas numbered from 0 names no rows: there is a
    warning if the Series has its numbers in another order.

    `vectors`: The Series and others by name.
    """
    index: Any = getattr(source, "obs_names" if hasattr(source, "obs_names") else "index", None)
    for name, values in vectors.items() if isinstance(vectors, Mapping) else ():
        other: Any = getattr(values, "index", None)
        if not (hasattr(index, "equals") and hasattr(other, "equals")) or len(index) != len(other):
            continue
        if type(other).__name__ == "RangeIndex" or index.equals(other):
            continue
        if index.is_unique and not index.difference(other).size:
            if type(index).__name__ == "RangeIndex":
                warn(
                    f"{name}: its index has the numbers of X's rows in another order, and entries belong to rows by "
                    f"place; if the places are right, give {name}.to_numpy(), else {name}.loc[X.index]"
                )
                continue
            raise SourceError(
                f"{name}: its index has the rows in another order than that of X, and entries belong to rows by place; "
                f"give {name}.loc[X.index], or {name}.to_numpy() if the places are right"
            )


def _compared(first: list[str], second: list[str]) -> tuple[list[str], list[str]]:
    """Return names as they are compared: 1 and 1.0 are equal, as are runs of blanks, and what `tables.disarmed` adds.

    Where names that differ would be equal, they are compared as they stand.
    """

    def plain(names: list[str]) -> list[str]:
        return [
            str(float(text)) if _NUMBER.fullmatch(text) else text
            for text in (_DISARMED.sub("", _SPACE.sub(" ", name).strip()) for name in names)
        ]

    if Counter(first) == Counter(second):
        return first, second
    changed = plain(first), plain(second)
    if any(len(set(now)) < len(set(before)) for now, before in zip(changed, (first, second), strict=True)):
        return first, second
    return changed
