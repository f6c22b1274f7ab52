"""LevelCounts: the distinct values of every column, how many rows have each, and the first of these rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.validation import Array, Floats, global_rows, require_positive
from sketchselect.summaries.base import Summary, register


@dataclass(frozen=True)
class LevelRecord:
    """State of `LevelCounts`: an entry for each distinct value of each column, by column and then by value.

    `is_crowded` and `missing`, shape (n_features,): Whether there are more values than are listed (then none is), and
    rows without a value. `text` and `ends` are set by `named` alone, as are `places`, shape (n_features,).
    """

    n_rows: int
    columns: NDArray[np.int64]
    values: Floats
    counts: NDArray[np.int64]
    first_rows: NDArray[np.int64]
    is_crowded: NDArray[np.bool_]
    missing: NDArray[np.int64]
    text: NDArray[np.uint8]  # The names of all entries in UTF-8, one behind the other
    ends: NDArray[np.int64]  # End of each name
    places: NDArray[np.int64]  # Columns of the source

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.missing.shape[0])


@register
class LevelCounts(Summary[LevelRecord]):
    """Distinct values of every column, the number of rows that have each, and the first such row.

    Counts are whole numbers and values are listed in ascending order, so that a summary is the same to the bit for any
    blocks, order and merge tree. NaN is a missing value.

    Parameters
    ----------
    limit : int
        Most distinct values of a column; of a column with more, none is listed (`is_crowded`).

    Notes
    -----
    Rows of weight 0 are left out; other weights make no difference.
    Cost a row: a sort of every column of a block. Bytes: 32 for each distinct value.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[3.0, 1.0], [5.0, 1.0], [3.0, np.nan]])
    >>> s = LevelCounts().from_block(X[:1]).merge(LevelCounts().from_block(X[1:], start=1))
    >>> [(values.tolist(), counts.tolist()) for values, counts in map(s.levels, range(2))]
    [([3.0, 5.0], [2, 1]), ([1.0], [2])]
    """

    kind = "level-counts"
    record_type = LevelRecord
    accepts_missing = True

    def __init__(self, limit: int = 1 << 14) -> None:
        self.limit = require_positive("limit", limit)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state of columns that are all as long as they may be."""
        return n_features * (32 * self.limit + 16) + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` (besides 32 a row) or `merge`."""
        return 3 * self.projected_nbytes(n_features)

    def _empty(self, n_features: int, n_targets: int) -> LevelRecord:
        whole = np.zeros(0, dtype=np.int64)
        none = np.zeros(n_features, dtype=np.int64)
        text = np.zeros(0, dtype=np.uint8)
        return LevelRecord(0, whole, np.zeros(0), whole, whole, none.astype(bool), none, text, whole, whole)

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> LevelRecord:
        n_rows, n_features = block.shape
        rows = global_rows(start, n_rows).astype(np.int64)
        counted = np.ones(n_rows, dtype=bool) if weights is None else weights > 0
        columns, values, counts, firsts = [], [], [], []
        missing = np.zeros(n_features, dtype=np.int64)
        for j in range(n_features):
            column = block[:, j].astype(np.float64) + 0.0  # -0 becomes 0
            present = counted & ~np.isnan(column)
            missing[j] = np.count_nonzero(counted) - np.count_nonzero(present)
            distinct, first, count = np.unique(column[present], return_index=True, return_counts=True)
            columns.append(np.full(distinct.size, j, dtype=np.int64))
            values.append(distinct)
            counts.append(count)
            firsts.append(rows[present][first])
        empty = self._empty(n_features, 0)
        if not n_features:
            return replace(empty, n_rows=n_rows)
        lists = (np.concatenate(part) for part in (columns, values, counts, firsts))
        return self._limited(replace(empty, n_rows=n_rows, missing=missing), *lists)

    def _combine(self, left: LevelRecord, right: LevelRecord) -> LevelRecord:
        columns, values, counts, firsts = (
            np.concatenate([getattr(left, name), getattr(right, name)])
            for name in ("columns", "values", "counts", "first_rows")
        )
        order = np.lexsort((values, columns))
        columns, values = columns[order], values[order]
        is_new = np.ones(columns.size, dtype=bool)
        is_new[1:] = (columns[1:] != columns[:-1]) | (values[1:] != values[:-1])
        starts = np.flatnonzero(is_new)
        if starts.size:
            counts, firsts = np.add.reduceat(counts[order], starts), np.minimum.reduceat(firsts[order], starts)
        both = replace(
            self._empty(left.n_features, 0),
            n_rows=left.n_rows + right.n_rows,
            missing=left.missing + right.missing,
            is_crowded=left.is_crowded | right.is_crowded,
        )
        out = self._limited(both, columns[starts], values[starts], counts, firsts)
        parts = [part for part in (left, right) if part.n_rows or part.places.size]
        if not parts or not all(part.places.size for part in parts):
            return out
        places = parts[0].places
        if not all(np.array_equal(part.places, places) for part in parts):
            others = " and ".join(str(part.places.tolist()) for part in parts)
            raise Incompatible(f"the text columns of two tables differ: columns {others}; give both the same columns")
        names = [*_names(left), *_names(right)]
        listed = zip(order[starts].tolist(), ~out.is_crowded[columns[starts]], strict=True)
        return _named(out, [names[i] for i, is_listed in listed if is_listed], places)

    def _limited(self, record: LevelRecord, columns: Array, values: Array, counts: Array, firsts: Array) -> LevelRecord:
        """Return the record with these entries, but for columns that have too many."""
        crowded = record.is_crowded | (np.bincount(columns, minlength=record.n_features) > self.limit)
        listed = ~crowded[columns]
        return replace(
            record,
            is_crowded=crowded,
            columns=columns[listed],
            values=values[listed],
            counts=counts[listed],
            first_rows=firsts[listed],
        )

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def is_crowded(self) -> NDArray[np.bool_]:
        """Whether a column has more than `limit` distinct values, of which none is listed."""
        return self.record.is_crowded

    @property
    def missing(self) -> NDArray[np.int64]:
        """Number of missing values in each column."""
        return self.record.missing

    @property
    def places(self) -> NDArray[np.int64]:
        """Columns of the source that these are, of a summary that was `named`; else 0, 1, ..."""
        places = self.record.places
        return places if places.size else np.arange(self.n_features)

    def levels(self, column: int) -> tuple[Floats, NDArray[np.int64]]:
        """Return the distinct values of a column, ascending, and the number of rows of each."""
        entries = self._entries(column)
        return self.record.values[entries], self.record.counts[entries]

    def first_rows(self, column: int) -> NDArray[np.int64]:
        """Return the global index of the first row of each distinct value of a column."""
        return self.record.first_rows[self._entries(column)]

    def names(self, column: int) -> list[str]:
        """Return the names of the distinct values of a column, of a summary that was `named`."""
        if not self.record.places.size:
            raise BadParameter("the values of this summary have no names; fit the prepare step to the rows again")
        return [name.decode() for name in _names(self.record)[self._entries(column)]]

    def named(self, names: Sequence[Sequence[str]], places: Sequence[int]) -> Self:
        """Return the summary with a name for each distinct value of each column, and the columns of the source.

        Two summaries merge with their names, if both have any.
        """
        raw = [name.encode() for of_column in names for name in of_column]
        return self._with(_named(self.record, raw, np.asarray(places, dtype=np.int64)), self.context)

    def _entries(self, column: int) -> slice:
        start, stop = np.searchsorted(self.record.columns, [column, column + 1])
        return slice(int(start), int(stop))


def _names(record: LevelRecord) -> list[bytes]:
    """Return the names of all entries."""
    ends, raw = record.ends.tolist(), record.text.tobytes()
    return [raw[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def _named(record: LevelRecord, names: Sequence[bytes], places: NDArray[np.int64]) -> LevelRecord:
    text = np.frombuffer(b"".join(names), dtype=np.uint8).copy()
    return replace(record, text=text, ends=np.cumsum([len(name) for name in names], dtype=np.int64), places=places)
