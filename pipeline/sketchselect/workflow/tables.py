"""The files of an output folder that other tools read: selection, scores, and small Zarr arrays."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect._text import counted, first_few, printable
from sketchselect.errors import DamagedFile, SourceError
from sketchselect.linalg.validation import Array
from sketchselect.location import is_url
from sketchselect.readers.base import row_texts
from sketchselect.selectors import Selection, rank
from sketchselect.workflow.folder import OutputFolder, parsed

MOST_NAMED = 10
"""Selected columns that are printed; all are in the selection file."""

# A semicolon begins a cell too where the comma is the decimal sign; the fullwidth signs compute in some programs.
_FORMULA = re.compile(r'((?:^|[;\t])["\s\x00-\x1f\x7f]*)(?=[=+\-@|\uff5c\uff1d\uff0b\uff0d\uff20])')
_NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?|[+-](inf|nan)")
_ROWS_PER_CHUNK = 1 << 20
_NAMES_AT_ONCE = 1 << 16


PART_ROWS = 1 << 16
"""Rows or columns whose lines of text are in memory at a time."""


def selection_json(selection: Selection) -> Iterator[str]:
    """Yield a selection as JSON, in parts; a function of the selection alone: the same answer gives the same bytes."""
    tokens = json.JSONEncoder(indent=1, allow_nan=False).iterencode(plain_value(selection.to_dict()))
    while part := "".join(islice(tokens, PART_ROWS)):
        yield part
    yield "\n"


def read_selection(path: Path) -> Selection:
    """Read a ``selection.json``.

    Raises `SourceError` or `DamagedFile` if there is none, or it is not one.
    """
    try:
        return Selection.from_dict(parsed(path.read_text()))
    except FileNotFoundError:
        raise SourceError(f"{path}: no such file; `sketchselect select` makes one") from None
    except IsADirectoryError:
        raise SourceError(f"{path}: a folder; give the selection.json in it") from None
    except DamagedFile as error:
        raise DamagedFile(f"{path}: {error}") from None
    except (ValueError, TypeError, OverflowError):
        raise DamagedFile(f"{path}: not a selection file; `sketchselect select` makes one") from None


def scores_csv(selection: Selection) -> Iterator[str]:
    """Yield all columns, best first, as CSV: rank, column, name, score, selected, and further numbers of the method.

    The text comes in parts, because that of millions of columns is larger than the scores.
    Ties are in column order, columns without a score (NaN) last. Names that a spreadsheet would run are disarmed.
    """
    scores = np.asarray(selection.scores, dtype=np.float64)
    selected = {int(j) for j in selection.support}
    names, order = selection.feature_names, rank(scores)
    yield csv_text([["rank", "column", "name", "score", "selected", *sorted(selection.columns)]])
    for first in range(0, order.size, PART_ROWS):
        rows = []
        for position, j in enumerate(order[first : first + PART_ROWS].tolist(), first + 1):
            name = "" if names is None else disarmed(names[j])
            numbers = [scores[j], *(selection.columns[key][j] for key in sorted(selection.columns))]
            score, *more = ("" if np.isnan(number) else repr(float(number)) for number in numbers)
            rows.append([position, j, name, score, int(j in selected), *more])
        yield csv_text(rows)


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows of values, the header first, as the text of a CSV file."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()


def column_name(address: str | None) -> str | None:
    """Return the name of the column of the source that a job names as a target or row names; None for a file.

    Examples
    --------
    >>> column_name("obs/patient"), column_name("price"), column_name("/data/y.npy")
    ('patient', 'price', None)
    """
    return None if address is None or os.path.isabs(address) or is_url(address) else address.rpartition("/")[2]


def column_title(vector: Any, address: str | None) -> str | None:
    """Return the title of an opened column of the source, which may have a slash, as in t/ha; None for a file."""
    name = column_name(address)
    return name if name is None else vector.name or name


def write_labels_csv(folder: OutputFolder, row_names: Any, title: str | None, labels: Array) -> None:
    """Publish ``labels.csv``: the name of every row, under the `title` of the names, and its cluster, -1 if dropped.

    Names that a spreadsheet would run are disarmed.
    """
    path = folder.staging("labels.csv")
    with path.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow([row_title(title, ["cluster"]), "cluster"])
        for start in range(0, labels.size, _NAMES_AT_ONCE):
            part = labels[start : start + _NAMES_AT_ONCE].tolist()
            names = row_texts(row_names, start, start + len(part))
            rows.writerows((disarmed(name), cluster) for name, cluster in zip(names, part, strict=True))
    folder.publish("labels.csv")


def row_title(title: str | None, others: Sequence[str]) -> str:
    """Return the heading of the column of row names: their own title, "row" where that is unknown or taken."""
    name = disarmed(title or "row")
    return "row" if name in others else name


def disarmed(name: str) -> str:
    """Return a name that a spreadsheet shows instead of computing, without control characters; a number is itself.

    Examples
    --------
    >>> disarmed("=1+1"), disarmed("age;=1+1"), disarmed("age-1"), disarmed("-1.5")
    ("'=1+1", "age;'=1+1", 'age-1', '-1.5')
    """
    if _NUMBER.fullmatch(name):
        return name
    return re.sub(r"[\x00-\x1f\x7f]", " ", _FORMULA.sub(r"\1'", name))


def write_zarr(folder: OutputFolder, name: str, values: Array, dimensions: Sequence[str]) -> None:
    """Publish an array as a Zarr store with checksums."""
    import zarr
    from zarr.codecs import ZstdCodec

    # As text, zarr would take what stands behind a # or ? for parts of a URL.
    array = zarr.create_array(
        folder.staging(name),
        shape=values.shape,
        chunks=(max(1, min(values.shape[0], _ROWS_PER_CHUNK)), *(max(1, n) for n in values.shape[1:])),
        dtype=values.dtype,
        compressors=ZstdCodec(level=1, checksum=True),
        fill_value=0,
        dimension_names=tuple(dimensions),
        config={"write_empty_chunks": True},
    )
    array[...] = values
    folder.publish(name)


def read_zarr(folder: OutputFolder, name: str) -> Array:
    """Read what `write_zarr` published."""
    import zarr

    array: Any = zarr.open_array(folder.path / name, mode="r")
    return np.asarray(array[...])


def plain_value(value: Any) -> Any:
    """Return a value as plain data for JSON; NaN and infinity become null."""
    if isinstance(value, dict):
        return {str(k): plain_value(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain_value(v) for v in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def selection_lines(selection: Selection, file: str = "selection.json") -> Iterator[str]:
    """Yield how many columns were selected, the first of them by rank, and what is known of the choice.

    `file`: Where all of them are listed.
    """
    support, names = selection.support, selection.feature_names
    yield f"selected {support.size} of {counted(selection.scores.size, 'column')} with {selection.method}"
    if support.size:
        order = support[rank(selection.scores[support])[: MOST_NAMED + 1]].tolist()
        first = first_few(order, MOST_NAMED, str if names is None else lambda j: clean_name(names[j]))
        rest = f" (all are in {file})" if support.size > MOST_NAMED else ""
        yield f"columns by rank: {first}{rest}"
    if (choice := selection.diagnostics.get("choice")) is not None:
        yield printable(str(choice))


def clean_name(name: str) -> str:
    """Return a name that is safe to show in a terminal."""
    text = printable(name)
    return text if len(text) <= 40 else text[:37] + "..."
