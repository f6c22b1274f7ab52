"""The form of `Moments` for polynomial features of degree 2: moments of the columns and of their products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sketchselect.linalg.arrays import PIECE_ROWS, Array, Floats, pieces, start_of_piece
from sketchselect.linalg.moments.comoments import joint_mean
from sketchselect.summaries.moments.forms import Comoment, Form, MomentsRecord, present
from sketchselect.summaries.moments.polynomial import expand, n_polynomial, recentre, require_products


class Products(Form):
    """The scatter of the shifted columns and of all their products."""

    _inner = Comoment()

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows."""
        return replace(self._inner.empty(n_polynomial(p), q), shift=np.zeros(p))

    def summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block; its rows are expanded a piece at a time."""
        _, means = joint_mean(block, targets, weights, start)
        shift = means[: block.shape[1]]
        require_products(block, shift, start)
        record: MomentsRecord | None = None
        for a, b in pieces(block):
            part_w = None if weights is None else weights[a:b]
            rows = expand(block[a:b], shift)
            part = self._inner.summarise(rows, targets[a:b], start_of_piece(start, a, b), part_w)
            record = part if record is None else self._inner.combine(record, part)
        assert record is not None  # `from_block` handles blocks without rows
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
        out: Floats = present(record.comoment)[np.ix_(keep, keep)]
        return out

    def mean(self, record: MomentsRecord) -> Floats:
        """Return the mean of [x, y]."""
        mean = record.mean[self._linear(record)]
        mean[: record.n_features] += present(record.shift)
        return mean

    @staticmethod
    def _linear(record: MomentsRecord) -> Array:
        d = record.mean.shape[0]
        keep: Array = np.r_[: record.n_features, d - record.n_targets : d]
        return keep

    def nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes of a record."""
        return self._inner.nbytes(n_polynomial(p), q) + 8 * p

    def working_nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes for creating or merging records, beside these."""
        # Beside the product of a piece, the sum so far and the expanded piece.
        d = n_polynomial(p) + q
        return self._inner.working_nbytes(n_polynomial(p), q) + 8 * (2 * d * d + 2 * PIECE_ROWS * d)


def _about(record: MomentsRecord, other: MomentsRecord) -> MomentsRecord:
    """Return the record with its products formed about the shift of the other record."""
    offset = present(other.shift) - present(record.shift)
    if not offset.any():
        return replace(record, shift=other.shift)
    mean, comoment = recentre(record.mean, present(record.comoment), offset)
    return replace(record, mean=mean, comoment=comoment, shift=other.shift)
