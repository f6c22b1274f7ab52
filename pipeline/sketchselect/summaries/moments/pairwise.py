"""The form of `Moments` for rows with missing values: pairwise moments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sketchselect.linalg.arrays import PIECE_ROWS, Array, Floats
from sketchselect.linalg.moments.pairwise import PairMoments, merge_pairs, pair_moments
from sketchselect.summaries.moments.forms import Form, MomentsRecord, added, present, require_part, squared_weight


class Pairwise(Form):
    """For each pair of columns the moments of the rows with a value in both."""

    def empty(self, p: int, q: int) -> MomentsRecord:
        """Return the record of zero rows."""
        d = p + q
        zeros = np.zeros((d, d))
        return MomentsRecord(0, q, 0.0, 0.0, np.zeros(d), zeros, pair_weight=zeros, pair_mean=zeros)

    def summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> MomentsRecord:
        """Return the record of a block."""
        w = np.ones(block.shape[0]) if weights is None else weights
        pairs = pair_moments(block, targets, w, start)
        base = MomentsRecord(
            block.shape[0], targets.shape[1], float(w.sum()), squared_weight(block, weights), pairs.mean
        )
        return _with_pairs(base, pairs)

    def combine(self, left: MomentsRecord, right: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of both."""
        return _with_pairs(added(left, right), merge_pairs(pairs_of(left), pairs_of(right)))

    def remove(self, total: MomentsRecord, part: MomentsRecord) -> MomentsRecord:
        """Return the record of the rows of `total` that are not in `part`."""
        remainder = merge_pairs(pairs_of(total), pairs_of(part), -1.0)
        require_part(pairs_of(total).scatter.diagonal(), remainder.scatter.diagonal())
        return _with_pairs(added(total, part, -1), remainder)

    def scatter(self, record: MomentsRecord) -> Floats:
        """Return the pairwise covariances, times the total weight."""
        pairs = pairs_of(record)
        out: Floats = np.divide(pairs.scatter, pairs.weight, out=np.zeros_like(pairs.scatter), where=pairs.weight > 0)
        return out * record.weight

    def nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes of a record."""
        d = p + q
        return 8 * (3 * d * d + d) + 128

    def working_nbytes(self, p: int, q: int) -> int:
        """Return an upper bound of the bytes for creating or merging records, beside these."""
        d = p + q
        return 8 * (8 * d * d + 6 * PIECE_ROWS * d)


def pairs_of(record: MomentsRecord) -> PairMoments:
    """Return the pairwise moments of a record."""
    return PairMoments(present(record.pair_weight), present(record.pair_mean), present(record.comoment))


def _with_pairs(record: MomentsRecord, pairs: PairMoments) -> MomentsRecord:
    return replace(
        record,
        mean=pairs.mean.diagonal().copy(),
        comoment=pairs.scatter,
        pair_weight=pairs.weight,
        pair_mean=pairs.mean,
    )
