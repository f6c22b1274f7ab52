"""Columns of Parquet files as numbers: scalars, and lists of one length (embeddings)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.errors import ChunkReadError, EmptyInput, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.readers.checks import ALLOWED
from sketchselect.readers.files.parquet_files import Footers


@dataclass(frozen=True)
class Column:
    """A column of numbers."""

    name: str
    width: int | None = None  # Entries of each list; None for a column of scalars

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


def column_of(footers: Footers, name: str) -> tuple[Column, np.dtype[Any]]:
    """Return the column `name` and the type of its entries; of lists the first is read for its length.

    Raises `SourceError` if its entries are no numbers; `EmptyInput` if its lists have no entries.
    """
    import pyarrow.types as types

    address, kind = footers.groups.location.address, footers.schema.field(name).type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    entry = numpy_type(kind.value_type if is_list else kind)
    if entry is None or entry.kind not in "fiub":
        raise SourceError(
            f"{address}: column {name!r:.80} is of type {kind}; allowed are {ALLOWED}, and lists of them: "
            f'leave it out with key="-{name:.80}", or choose columns with key="NAME,NAME"'
        )
    if not is_list:
        return Column(name), entry
    width = kind.list_size if types.is_fixed_size_list(kind) else _first_length(footers, name)
    if not width:
        raise EmptyInput(f"{address}: the lists of column {name!r:.80} have no entries")
    return Column(name, width), entry


def numpy_type(kind: Any) -> np.dtype[Any] | None:
    """Return the NumPy type of a column of numbers or text; None for all else."""
    import pyarrow.types as types

    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        numeric: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return numeric
    if types.is_string(kind) or types.is_large_string(kind):
        return np.dtype("U")
    return None


def _first_length(footers: Footers, name: str) -> int:
    """Return the length of the first list of a column; 0 where there is none."""
    for file in footers.groups.files:
        for group, rows in enumerate(file.groups):
            if rows:
                first = next(file.tables([group], (name,))).column(0)[0].as_py()
                return len(first or ())
    return 0
