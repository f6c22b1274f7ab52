"""The forms that the state of `Moments` can take: how to make, merge and take apart a record.

Here the record, and the forms for complete rows and their columns as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

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
    """State of `Moments`; the last `n_targets` columns of mean and co-moment are the targets.

    Parameters
    ----------
    mean : array of shape (d,)
        d = n_features + n_targets; with `shift` the products of columns stand between them.
    comoment : array of shape (d, d) or None
        Scatter about the mean; None in factored form.
    factor : array of shape (r, d) or None
        Upper-triangular R with R'R = scatter.
    pair_weight, pair_mean : arrays of shape (d, d) or None
        Weight and means of the rows that have both columns, where values are missing.
    shift : array of shape (n_features,) or None
        What is subtracted from the columns before products are formed.
    single_scatter : float
        Sum of squares of the columns, about their blocks' means, whose products were made in float32.
    """

    n_rows: int
    n_targets: int
    weight: float
    squared_weight: float
    mean: Floats
    comoment: Floats | None = None
    factor: Floats | None = None
    pair_weight: Floats | None = None
    pair_mean: Floats | None = None
    shift: Floats | None = None
    single_scatter: float = 0.0

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.mean.shape[0]) - self.n_targets if self.shift is None else int(self.shift.shape[0])


class Form(ABC):
    """How the second moments are kept."""

    @abstractmethod
    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of no rows."""

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
        """Return a bound of the bytes of one record."""
        d = p + q
        return 8 * (d * d + d) + 128

    def working_nbytes(self, p: int, q: int) -> int:
        """Return a bound of the bytes that making or merging records needs beside them."""
        d = p + q
        return 8 * (2 * d * d + 2 * PIECE_ROWS * d + 8 * d)


class Comoment(Form):
    """The scatter matrix itself, merged with the pairwise update."""

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of no rows."""
        return MomentsRecord(0, q, 0.0, 0.0, np.zeros(p + q), np.zeros((p + q, p + q)))

    def summarise(self, block: Any, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block, dense or CSR; products of dense float32 columns are made in float32."""
        single = not is_csr(block) and suits_single(block)
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
        comoment += held(left.comoment)
        comoment += held(right.comoment)
        return replace(added(left, right), weight=weight, mean=mean, comoment=comoment)

    def remove(self, total: MomentsRecord, part: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of `total` that are not in `part`."""
        weight, mean, difference, factor = unmerge_means(total.weight, total.mean, part.weight, part.mean)
        comoment = np.outer(-factor * difference, difference)
        comoment += held(total.comoment)
        comoment -= held(part.comoment)
        if weight <= 0:
            comoment[...] = 0.0
        require_part(held(total.comoment).diagonal(), comoment.diagonal())
        np.fill_diagonal(comoment, np.maximum(comoment.diagonal(), 0.0))
        return replace(added(total, part, -1), weight=weight, mean=mean, comoment=comoment)

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y]."""
        return held(record.comoment)


class Factor(Form):
    """A triangular factor of the scatter: half the digits lost to ill-conditioning."""

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of no rows."""
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
        merged = merge_factors(held(left.factor), held(right.factor), difference, factor)
        return replace(added(left, right), weight=weight, mean=mean, factor=merged)

    def remove(self, total: MomentsRecord, part: MomentsRecord) -> MomentsRecord:
        """Refuse: taking rows out of a factor loses the digits that it is kept for."""
        raise Incompatible(
            'moments with method="qr" cannot be taken apart without losing accuracy; keep the parts: '
            'Folds(Moments(method="qr"), n) and its complement(i)'
        )

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y]."""
        factor = held(record.factor)
        return factor.T @ factor

    def working_nbytes(self, p: int, q: int) -> int:
        """Return a bound of the bytes that making or merging records needs beside them: LAPACK's copies."""
        d = p + q
        return 8 * (3 * (2 * d + PIECE_ROWS) * d + 2 * d * d)


def held(array: Floats | None) -> Floats:
    """Return an array that a record of this form always has."""
    assert array is not None
    return array


def squared_weight(block: Array, weights: Floats | None) -> float:
    """Return the sum of squared weights."""
    return float(block.shape[0]) if weights is None else float(weights @ weights)


def added(left: MomentsRecord, right: MomentsRecord, sign: int = 1) -> MomentsRecord:
    """Return `left` with rows and weights of `right` added, or taken away; the moments are yet to be replaced."""
    return replace(
        left,
        n_rows=left.n_rows + sign * right.n_rows,
        weight=max(left.weight + sign * right.weight, 0.0),
        squared_weight=max(left.squared_weight + sign * right.squared_weight, 0.0),
        # What was rounded stays so when rows are taken away.
        single_scatter=left.single_scatter + right.single_scatter,
    )


def require_part(total: Floats, rest: Floats) -> None:
    """Raise `Incompatible` if taking rows away left a negative sum of squares: they were not among the others."""
    if (rest < -1e-7 * total).any():
        column = int((rest < -1e-7 * total).argmax())
        raise Incompatible(
            f"the rows to take away are not a part of the others: column {column} would have a negative variance"
        )
