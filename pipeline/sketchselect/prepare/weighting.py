"""Tf-idf: columns weighted by their rarity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.csr import is_csr
from sketchselect.prepare.steps import (
    Block,
    Need,
    Step,
    as_floats,
    in_pieces,
    require_bool,
    require_counts,
    with_stored,
)


@dataclass(frozen=True, eq=False)
class TfIdf(Step):
    """``tf(x_ij) idf_j`` with ``idf_j = ln((1 + n) / (1 + df_j)) + 1``, as scikit-learn's `TfidfTransformer` has it.

    df_j is the number of rows in which column j is not zero, n the number of rows. Unit length is a step of its own.
    A column that is zero in every row has df = 0 and a finite weight; it stays zero.

    Parameters
    ----------
    sublinear : bool
        Take ``1 + ln(x)`` of every count above 0 instead of the count.
    smooth : bool
        False: ``idf_j = ln(n / max(df_j, 1)) + 1``.
    """

    name: ClassVar[str] = "tf-idf"
    acts_on: ClassVar[Literal["rows", "columns"]] = "columns"
    of_counts: ClassVar[bool] = True

    sublinear: bool = False
    smooth: bool = True

    def __post_init__(self) -> None:
        require_bool(self.name, "sublinear", self.sublinear)
        require_bool(self.name, "smooth", self.smooth)

    def may_be_negative(self, before: bool) -> bool:
        """Return whether logarithms are taken: those of values below 1/e are below -1."""
        return self.sublinear

    @property
    def needs(self) -> Need:
        """The counts of non-zeros."""
        return Need("column-stats")

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the weights, and the number of columns that are zero throughout."""
        df = np.asarray(summary.nonzero, dtype=np.float64)
        n = float(summary.n_rows)
        if self.smooth:
            idf = np.log((1.0 + n) / (1.0 + df)) + 1.0
        else:
            idf = np.log(max(n, 1.0) / np.maximum(df, 1.0)) + 1.0
        return {"idf": idf, "empty": np.asarray(np.count_nonzero(df == 0))}

    def notes(self) -> list[str]:
        """Return how many columns are zero in all rows."""
        empty = int(self.value("empty"))
        columns, stay = ("column is", "stays") if empty == 1 else ("columns are", "stay")
        return [f"prepare, tf-idf: {empty} {columns} zero in every row and {stay} zero"] if empty else []

    def apply(self, block: Block) -> Block:
        """Return the weighted counts."""
        idf = self.value("idf")
        self.require_width(block, idf.size)
        require_counts(block, self.name)
        if not is_csr(block):
            return in_pieces(block, lambda counts: np.multiply(self._tf(counts), idf, out=counts))
        values = as_floats(block.data)
        weighted = self._tf(values.astype(np.float64)) * idf[block.indices]
        return with_stored(block, weighted.astype(values.dtype, copy=False))

    def _tf(self, counts: Floats) -> Floats:
        """Return the term frequencies; may change `counts`."""
        if self.sublinear:
            there = counts > 0
            np.log(counts, out=counts, where=there)
            np.add(counts, 1.0, out=counts, where=there)
        return counts
