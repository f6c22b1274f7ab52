"""Steps for counts: logarithms, and rows scaled to one library size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.sparse import csr_array

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats, pieces
from sketchselect.linalg.sparse.csr import is_csr
from sketchselect.prepare.rows import row_reduced
from sketchselect.prepare.steps import (
    Block,
    Need,
    Step,
    as_floats,
    dense,
    piece_rows,
    require_counts,
    require_number,
    stored,
    with_stored,
)

SAMPLED_TOTALS = 1 << 17
"""Rows whose totals decide the median library size: all of them, or this many drawn by hash."""


@dataclass(frozen=True, eq=False)
class Log1p(Step):
    """``log(1 + x)`` of counts, entry by entry."""

    name: ClassVar[str] = "log1p"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    of_counts: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True

    def apply(self, block: Block) -> Block:
        """Return the logarithms."""
        require_counts(block, self.name)
        return with_stored(block, np.log1p(as_floats(stored(block))))


def row_totals(block: Block) -> Floats:
    """Return the sum of every row, in float64, each from its own row alone."""
    if is_csr(block):
        return row_reduced(np.add, block, block.data)
    out = np.empty(block.shape[0])
    # Not cast while they are summed: NumPy's buffers would make a row's bits depend on the rows before.
    for a, b in pieces(block, piece_rows(block.shape[1])):
        np.sum(block[a:b].astype(np.float64), axis=1, out=out[a:b])
    return out


@dataclass(frozen=True, eq=False)
class RowTotals(Step):
    """One column, the sum of the row, from which the median library size is fitted."""

    name: ClassVar[str] = "row-totals"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    of_counts: ClassVar[bool] = True

    def apply(self, block: Block) -> Block:
        """Return the totals, shape (n_rows, 1)."""
        require_counts(block, LibrarySize.name)
        totals = row_totals(block)[:, None]
        return csr_array(totals) if is_csr(block) else totals

    def n_columns(self, n_columns: int) -> int:
        """Return 1."""
        return 1

    def column_names(self, names: tuple[str, ...] | None, n_columns: int) -> tuple[str, ...]:
        """Return the name of the one column."""
        return ("row total",)


@dataclass(frozen=True, eq=False)
class LibrarySize(Step):
    """``x target / sum(x)``: every row of counts scaled to the same sum; rows of zeros stay as they are.

    Parameters
    ----------
    target : float or "median"
        The sum; "median" is the median of the sums of the rows (of those above 0), from an earlier pass. It is exact up
        to 131,072 rows, and beyond that the median of that many rows drawn by hash.
    """

    name: ClassVar[str] = "library-size"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    of_counts: ClassVar[bool] = True

    target: float | str = 1e4

    def __post_init__(self) -> None:
        if self.target != "median":
            if isinstance(self.target, str):
                raise BadParameter(f'prepare step {self.name!r}: target must be a number or "median"')
            object.__setattr__(self, "target", require_number(self.name, "target", self.target, above=0))

    @property
    def needs(self) -> Need | None:
        """The rows' totals, for the median."""
        if self.target != "median":
            return None
        return Need("row-sample", {"size": SAMPLED_TOTALS}, weighted=False, before=(RowTotals(),))

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the median of the totals above 0; 1 where there is none."""
        totals = dense(summary.rows).reshape(-1)
        totals = totals[totals > 0]
        return {"target": np.asarray(np.median(totals) if totals.size else 1.0)}

    def apply(self, block: Block) -> Block:
        """Return the scaled rows."""
        require_counts(block, self.name)
        target = float(self.value("target")) if self.target == "median" else float(self.target)
        totals = row_totals(block)
        factors = np.divide(target, totals, out=np.ones_like(totals), where=totals > 0)
        if not is_csr(block):
            out = np.empty(block.shape, dtype=as_floats(block[:0]).dtype)
            for a, b in pieces(block, piece_rows(block.shape[1])):
                out[a:b] = block[a:b].astype(np.float64) * factors[a:b, None]
            return out
        values = as_floats(block.data)
        return with_stored(block, (values * np.repeat(factors, np.diff(block.indptr))).astype(values.dtype, copy=False))
