"""The form of `Moments` that keeps the products of columns too: what polynomial features of degree 2 need."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sketchselect.linalg.arrays import PIECE_ROWS, Array, Floats, pieces
from sketchselect.linalg.moments.comoments import joint_mean
from sketchselect.summaries.moments.forms import Comoment, Form, MomentsRecord, held
from sketchselect.summaries.moments.polynomial import expand, n_polynomial, recentre, require_products


class Products(Form):
    """The scatter of the columns less a shift, and of all their products."""

    _inner = Comoment()

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of no rows."""
        return replace(self._inner.empty(n_polynomial(p), q), shift=np.zeros(p))

    def summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block; its rows are expanded a piece at a time."""
        _, means = joint_mean(block, targets, weights, start)
        shift = means[: block.shape[1]]
        require_products(block, shift, start)
        record: MomentsRecord | None = None
        for a, b in pieces(block):
            at = start[a:b] if isinstance(start, np.ndarray) else start + a
            part = self._inner.summarise(
                expand(block[a:b], shift), targets[a:b], at, None if weights is None else weights[a:b]
            )
            record = part if record is None else self._inner.combine(record, part)
        assert record is not None  # a block has rows
        return replace(record, shift=shift)

    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both, about the shift of the heavier one."""
        heavier = left if left.weight >= right.weight else right
        left, right = (_about(record, heavier) for record in (left, right))
        return self._inner.combine(left, right)

    def remove(self, total: MomentsRecord, part: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of `total` that are not in `part`."""
        return self._inner.remove(total, _about(part, total))

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the scatter of [x, y], without the products."""
        keep = self._linear(record)
        out: Floats = held(record.comoment)[np.ix_(keep, keep)]
        return out

    def mean(self, record: MomentsRecord) -> Floats:
        """Return the mean of [x, y]."""
        mean = record.mean[self._linear(record)]
        mean[: record.n_features] += held(record.shift)
        return mean

    @staticmethod
    def _linear(record: MomentsRecord) -> Array:
        d = record.mean.shape[0]
        keep: Array = np.r_[: record.n_features, d - record.n_targets : d]
        return keep

    def nbytes(self, p: int, q: int) -> int:
        """Return a bound of the bytes of one record."""
        return self._inner.nbytes(n_polynomial(p), q) + 8 * p

    def working_nbytes(self, p: int, q: int) -> int:
        """Return a bound of the bytes that making or merging records needs beside them."""
        # Beside a product of a piece: the sum so far, and the piece expanded.
        d = n_polynomial(p) + q
        return self._inner.working_nbytes(n_polynomial(p), q) + 8 * (2 * d * d + 2 * PIECE_ROWS * d)


def _about(record: MomentsRecord, other: MomentsRecord) -> MomentsRecord:
    """Return the record with its products formed about the other one's shift."""
    offset = held(other.shift) - held(record.shift)
    if not offset.any():
        return replace(record, shift=other.shift)
    mean, comoment = recentre(record.mean, held(record.comoment), offset)
    return replace(record, mean=mean, comoment=comoment, shift=other.shift)
