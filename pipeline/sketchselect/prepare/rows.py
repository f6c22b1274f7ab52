"""Unit length: every row divided by its Euclidean norm.

Euclidean norms of rows, the same bits in any block: NumPy's buffered sums depend on the rows before.

Steps for counts: logarithms, and rows scaled to one library size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numba import njit
from scipy.sparse import csr_array

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats, pieces, read_only
from sketchselect.linalg.csr import is_csr
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


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _sum_of_squares(row):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(row.shape[0]):
        value = np.float64(row[j])
        total += value * value
    return total


@njit(nogil=True, cache=True)
def _sums(rows, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        out[i] = _sum_of_squares(rows[i])


@njit(nogil=True, cache=True)
def _divide(rows, sums, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        sums[i] = _sum_of_squares(rows[i])
        norm = np.sqrt(sums[i])
        if norm > 0.0:
            for j in range(rows.shape[1]):
                out[i, j] = np.float64(rows[i, j]) / norm


def row_norms(rows: Array) -> Floats:
    """Return the norm of every row in float64; its bits depend on that row alone."""
    out = np.empty(rows.shape[0])
    _sums(read_only(rows), out)
    return np.sqrt(out)


def divide_by_norms(rows: Array, out: Array) -> Floats:
    """Write every row divided by its norm, in one sweep; return the squared norms. Rows of norm 0 are not written."""
    squares = np.empty(rows.shape[0])
    _divide(read_only(rows), squares, out)
    return squares


_LEAST = 2.0**-600
"""Squared norm below which, and above whose inverse, squares of a row may leave their range."""


def unit_l2(block: Array) -> Array:
    """Scale every row to unit Euclidean length; rows of zeros stay as they are.

    Rows of huge or tiny values are divided by their largest magnitude first, so that squares do not leave their range.
    float32 stays float32, all else becomes float64. Source: Huang 2015, section 3.1.
    """
    values = block if block.dtype in (np.float32, np.float64) else block.astype(np.float64)
    out: Array = np.empty_like(values, order="C")
    squares = divide_by_norms(values, out)
    others = ~((squares >= _LEAST) & (squares <= 1 / _LEAST))
    if others.any():
        out[others] = _scaled_first(values[others])
    return out


def _scaled_first(rows: Array) -> Array:
    """Scale rows of zeros, of huge or tiny values or of NaN."""
    if rows.shape[1] == 0:
        return rows
    top = np.maximum(rows.max(axis=1), -rows.min(axis=1)).astype(np.float64)
    # A power of two, so that scaling by it is exact.
    exponent = np.frexp(np.where(top > 0, top, 1.0))[1]
    scaled = np.ldexp(rows.astype(np.float64), -exponent[:, None])
    norms = row_norms(scaled)
    norms[norms == 0] = 1.0
    scaled /= norms[:, None]
    return scaled.astype(rows.dtype, copy=False)


def unit_l2_sparse(block: Block) -> Block:
    """Scale every row of a CSR block to unit Euclidean length, as `unit_l2` does, to rounding."""
    values = as_floats(stored(block))
    top = row_reduced(np.maximum, block, np.abs(values))
    exponent = np.frexp(np.where(top > 0, top, 1.0))[1]
    exponent = np.where(np.abs(exponent) < 40, 0, exponent)
    entries = np.diff(block.indptr)
    scaled = np.ldexp(values.astype(np.float64), -np.repeat(exponent, entries))
    norms = np.sqrt(row_reduced(np.add, block, scaled * scaled))
    norms[norms == 0] = 1.0
    return with_stored(block, (scaled / np.repeat(norms, entries)).astype(values.dtype, copy=False))


def row_reduced(reduce: np.ufunc, block: Block, entries: Array) -> Floats:
    """Return the reduction of the entries of every row of a CSR block, 0 of none; each from its row alone."""
    out = np.zeros(block.shape[0])
    there = np.flatnonzero(np.diff(block.indptr))
    if there.size:
        out[there] = reduce.reduceat(entries.astype(np.float64, copy=False), block.indptr[there])
    return out


@dataclass(frozen=True, eq=False)
class UnitRows(Step):
    """``x / ||x||``; rows of zeros stay as they are."""

    name: ClassVar[str] = "l2"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    keeps_units: ClassVar[bool] = True
    normalizes_rows: ClassVar[bool] = True

    def apply(self, block: Block) -> Block:
        """Return the block with rows of unit length."""
        return unit_l2_sparse(block) if is_csr(block) else unit_l2(block)


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
