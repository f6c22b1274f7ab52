"""The record of `Moments`, and its forms for complete rows: co-moment and triangular factor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sketchselect.errors import Incompatible
from sketchselect.linalg.arrays import PIECE_ROWS, Array, Floats
from sketchselect.linalg.moments.comoments import centered_gram, merge_means, unmerge_means
from sketchselect.linalg.moments.single_precision import single_gram, suits_single
from sketchselect.linalg.moments.sparse import sparse_gram
from sketchselect.linalg.moments.triangular import centered_factor, merge_factors
from sketchselect.linalg.sparse.csr import is_csr


@dataclass(frozen=True)
class MomentsRecord:
    """State of `Moments`; the last `n_targets` columns of mean and co-moment are the targets."""

    n_rows: int
    n_targets: int
    weight: float
    squared_weight: float
    # shape (d,); d = n_features + n_targets; with `shift` the products of columns are between features and targets
    mean: Floats
    comoment: Floats | None = None  # shape (d, d): Scatter about the mean; None in factored form
    factor: Floats | None = None  # shape (r, d): Upper-triangular R with R'R = scatter
    # pair_weight, pair_mean: shape (d, d): Weight and means of the rows with a value in both columns, for data with
    # missing values
    pair_weight: Floats | None = None
    pair_mean: Floats | None = None
    shift: Floats | None = None  # shape (n_features,): Subtracted from the columns before products are formed
    # Sum of squares, about the means of their blocks, of the columns whose products were computed in float32
    single_scatter: float = 0.0

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.mean.shape[0]) - self.n_targets if self.shift is None else int(self.shift.shape[0])


class Form(ABC):
    """A representation of the second moments: how to create, merge and subtract records."""

    accepts_sparse: ClassVar[bool] = False
    """Whether `summarise` takes CSR blocks."""

    @abstractmethod
    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows."""

    @abstractmethod
    def summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block."""

    @abstractmethod
    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both."""

    @abstractmethod
    def remove(self, total: MomentsRecord, part: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of `total` that are not in `part`."""

    @abstractmethod
    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y]."""

    def mean(self, record: MomentsRecord) -> Floats:
        """Return the mean of [x, y]."""
        return record.mean

    def nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes of a record."""
        d = p + q
        return 8 * (d * d + d) + 128

    def working_nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes for creating or merging records, beside these."""
        d = p + q
        return 8 * (2 * d * d + 2 * PIECE_ROWS * d + 8 * d)


class Comoment(Form):
    """The scatter matrix, merged with the pairwise update."""

    accepts_sparse = True

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows."""
        return MomentsRecord(0, q, 0.0, 0.0, np.zeros(p + q), np.zeros((p + q, p + q)))

    def summarise(self, block: Any, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block, dense or CSR; products of dense float32 columns are computed in float32."""
        single = not is_csr(block) and suits_single(block, weights)
        gram = sparse_gram if is_csr(block) else single_gram if single else centered_gram
        weight, mean, comoment, squares = gram(block, weights, start, targets)
        return MomentsRecord(
            block.shape[0],
            targets.shape[1],
            weight,
            squared_weight(block, weights),
            mean,
            comoment,
            single_scatter=float(squares[: block.shape[1]].sum()) if single else 0.0,
        )

    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both."""
        weight, mean, difference, factor = merge_means(left.weight, left.mean, right.weight, right.mean)
        comoment = np.outer(factor * difference, difference)
        comoment += present(left.comoment)
        comoment += present(right.comoment)
        return replace(added(left, right), weight=weight, mean=mean, comoment=comoment)

    def remove(self, total: MomentsRecord, part: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of `total` that are not in `part`."""
        weight, mean, difference, factor = unmerge_means(total.weight, total.mean, part.weight, part.mean)
        comoment = np.outer(-factor * difference, difference)
        comoment += present(total.comoment)
        comoment -= present(part.comoment)
        if weight <= 0:
            comoment[...] = 0.0
        require_part(present(total.comoment).diagonal(), comoment.diagonal())
        np.fill_diagonal(comoment, np.maximum(comoment.diagonal(), 0.0))
        return replace(added(total, part, -1), weight=weight, mean=mean, comoment=comoment)

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y]."""
        return present(record.comoment)


class Factor(Form):
    """A triangular factor of the scatter, which loses half as many digits to ill-conditioning."""

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows."""
        return MomentsRecord(0, q, 0.0, 0.0, np.zeros(p + q), factor=np.zeros((0, p + q)))

    def summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block."""
        weight, mean, factor = centered_factor(block, targets, weights, start)
        return MomentsRecord(
            block.shape[0], targets.shape[1], weight, squared_weight(block, weights), mean, factor=factor
        )

    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both."""
        weight, mean, difference, factor = merge_means(left.weight, left.mean, right.weight, right.mean)
        merged = merge_factors(present(left.factor), present(right.factor), difference, factor)
        return replace(added(left, right), weight=weight, mean=mean, factor=merged)

    def remove(self, total: MomentsRecord, part: MomentsRecord) -> MomentsRecord:
        """Raise `Incompatible`: subtracting rows from a factor loses the digits that it preserves."""
        raise Incompatible(
            'rows cannot be subtracted from moments with method="qr" without losing accuracy; use '
            'Folds(Moments(method="qr"), n) and its complement(i)'
        )

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y]."""
        factor = present(record.factor)
        return factor.T @ factor

    def working_nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes for creating or merging records, beside these."""
        # A piece of rows and three copies in LAPACK's QR: stacked rows, NumPy's copy, and the transpose of it.
        d = p + q
        return 8 * (4 * PIECE_ROWS * d + 10 * d * d)


def present(array: Floats | None) -> Floats:
    """Return an array that records of this form always have."""
    assert array is not None
    return array


def squared_weight(block: Array, weights: Floats | None) -> float:
    """Return the sum of squared weights."""
    return float(block.shape[0]) if weights is None else float(weights @ weights)


def added(left: MomentsRecord, right: MomentsRecord, sign: int = 1) -> MomentsRecord:
    """Return `left` with the rows and weights of `right` added or subtracted; its moments are those of `left`."""
    return replace(
        left,
        n_rows=left.n_rows + sign * right.n_rows,
        weight=max(left.weight + sign * right.weight, 0.0),
        squared_weight=max(left.squared_weight + sign * right.squared_weight, 0.0),
        # Rounding is not undone by subtracting rows.
        single_scatter=left.single_scatter + right.single_scatter,
    )


def require_part(total: Floats, remainder: Floats) -> None:
    """Raise `Incompatible` if subtracting rows left a negative sum of squares: they were not a part of the total."""
    negative = remainder < -1e-7 * total
    if negative.any():
        raise Incompatible(
            f"the rows to subtract are not a part of the others: column {int(negative.argmax())} would have a negative "
            "variance"
        )
