"""Bounds, before anything is read, of the columns of sparse blocks that the weights of few rows make full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sketchselect.execution.source import Source
from sketchselect.linalg.csr import FULL_SHARE, MOST_DENSE
from sketchselect.linalg.validation import Floats
from sketchselect.readers.base import Partitions

RowWeights = Callable[[int, int, Floats | None], Iterable[Floats | None]]
"""``(start, n_rows, weights)`` -> the weights that kernels give these rows: one array, or None, for each summary."""


class FullColumns(NamedTuple):
    """Bounds of the full columns of one block."""

    n_entries: int  # Of the whole block
    n_values: float  # Most numbers of the full columns, made dense; kernels get at most `MOST_DENSE` an entry
    share: float  # Smallest share of rows that have an entry in a full column

    @property
    def stays_sparse(self) -> bool:
        """Whether the weights leave the block sparse for certain."""
        return self.n_values <= MOST_DENSE * self.n_entries

    def nbytes(self, per_value: float, per_entry: float) -> float:
        """Return the bytes of full columns, `per_value` while they are centred, and of all others sorted by column."""
        dense = min(self.n_values, MOST_DENSE * self.n_entries)
        left = self.n_entries - self.share * dense
        return max(per_entry * self.n_entries, per_value * dense, per_entry * left + 8.0 * dense)


def are_weighted(source: Source, row_weights: RowWeights | None) -> bool:
    """Return whether kernels get rows with weights."""
    return source.weight is not None or (
        row_weights is not None and any(w is not None for w in row_weights(0, 1, None))
    )


def are_known(source: Source, row_weights: RowWeights | None) -> bool:
    """Return whether the weights of the rows of each block are known before they are read."""
    keeps_rows = source.matrix.nonfinite != "drop_rows" and source.matrix.entry_offsets is not None
    weight = source.weight
    in_memory = weight is None or (weight.in_memory and len(weight.shape) == 1 and weight.dtype.kind in "fiub")
    return row_weights is not None and keeps_rows and in_memory


def full_columns(source: Source, partitions: Partitions, row_weights: RowWeights | None) -> Iterator[FullColumns]:
    """Yield the bounds of each partition, for each weighting of its rows; those of any weights where none are known.

    A column is full where the rows with an entry in it have more than `FULL_SHARE` of the weight W. With n_i entries in
    row i at most ``sum_i w_i n_i / (FULL_SHARE W)`` columns are, each with an entry in ``FULL_SHARE W / max w`` rows.
    """
    offsets = source.matrix.entry_offsets
    assert offsets is not None
    known = are_known(source, row_weights)
    for a, b in pairwise(partitions.edges):
        n_rows, n_entries = b - a, int(offsets[b] - offsets[a])
        if not known or row_weights is None:
            yield FullColumns(n_entries, np.inf, 0.0)
            continue
        given = None if source.weight is None else np.asarray(source.weight.read(a, b), dtype=np.float64)
        per_row = np.diff(offsets[a : b + 1])
        for weights in row_weights(a, n_rows, given):
            if weights is None:
                yield FullColumns(n_entries, n_entries / FULL_SHARE, FULL_SHARE)
                continue
            largest = float(weights.max(initial=0.0))
            if not (np.isfinite(largest) and weights.min(initial=0.0) >= 0.0):
                yield FullColumns(n_entries, np.inf, 0.0)  # They are refused when they are read
            elif largest == 0.0:
                yield FullColumns(n_entries, 0.0, 1.0)
            else:
                parts = weights / largest
                share = FULL_SHARE * float(parts.sum()) / n_rows
                n_values = min(float(parts @ per_row) / share, n_entries / share)
                yield FullColumns(n_entries, n_values, share)
