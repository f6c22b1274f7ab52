"""Unit length: every row divided by its Euclidean norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.row_norms import divide_by_norms, row_norms
from sketchselect.linalg.sparse.csr import is_csr
from sketchselect.prepare.steps import Block, Step, as_floats, stored, with_stored

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
