"""DecayedDirections: Frequent Directions in which rows lose weight with age."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.validation import require_positive
from sketchselect.summaries.decay import DecayingSummary
from sketchselect.summaries.registry import register
from sketchselect.summaries.sketch.frequent_directions import DirectionsRecord, FrequentDirections


@dataclass(frozen=True)
class DecayedDirectionsRecord(DirectionsRecord):
    """State of `DecayedDirections`: that of `FrequentDirections` at a point in time."""

    # Global index after the last row: the time at which the weights are valid
    end: int = field(kw_only=True)


@register
class DecayedDirections(DecayingSummary[DirectionsRecord], FrequentDirections):
    """A sketch in which the row with global index i weighs ``g^(end - 1 - i)``, times its sample weight.

    With A the rows times the roots of these weights, and A_c the same about their weighted mean, for any blocks and any
    merge tree::

        0 <= A_c'A_c - B_c'B_c <= shrinkage * I,      0 <= A'A - B'B <= shrinkage * I
        shrinkage <= ||A_c - (A_c)_k||_F^2 / (size - k)   for every k < size

    Rows of float32 have 5/4 of that norm and ``size - 5/4 k``, as in `FrequentDirections`.

    The shrinkage decays like the rows: `merge` scales both sides by ``g^age`` to the later `end`. The age of a row is
    known from its global index alone, so `from_block` needs `start`; `update` continues from `end`. Rounding is as in
    `FrequentDirections`.

    Parameters
    ----------
    size : int
        Rows l of the sketch, as in `FrequentDirections`.
    half_life : float
        Rows after which the weight of a row is halved: ``g = 2^(-1 / half_life)``. Either this or `decay`.
    decay : float
        The factor g, in (0, 1].

    Raises
    ------
    BadParameter
        For a half-life that is not positive, or a decay outside (0, 1].

    Notes
    -----
    The total weight approaches 1 / (1 - g). Cost and bytes are those of `FrequentDirections`.
    Source: Liberty 2013 for the sketch; the guarantee is linear in the weights of the rows, so it decays with them.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((500, 80))
    >>> s = DecayedDirections(size=4, half_life=100)
    >>> s = s.from_block(X[:300]).merge(s.from_block(X[300:], start=300))
    >>> A = X * 0.5 ** (np.arange(500)[::-1, None] / 200)
    >>> gap = np.linalg.eigvalsh(A.T @ A - s.sketch.T @ s.sketch)
    >>> bool(gap[0] > -1e-9 and gap[-1] <= s.shrinkage + 1e-9), s.end
    (True, 500)
    """

    kind = "decayed-directions"
    format_version = 2
    record_type = cast(type[DirectionsRecord], DecayedDirectionsRecord)

    def __init__(self, size: int, half_life: float | None = None, decay: float | None = None) -> None:
        self.size = require_positive("size", size, 2)
        self._set_decay(half_life, decay)

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`, with two rescaled states."""
        return super().working_nbytes(n_features, n_targets) + 2 * self.projected_nbytes(n_features, n_targets)

    def _empty(self, n_features: int, n_targets: int) -> DecayedDirectionsRecord:
        return _stamped(super()._empty(n_features, n_targets), 0)

    def _summarise(
        self, block: Array, targets: Any, start: int | Array, weights: Floats | None
    ) -> DecayedDirectionsRecord:
        end, decayed = self._row_weights(start, block.shape[0], weights)
        return _stamped(super()._summarise(block, targets, start, decayed), end)

    def _combine(self, left: DirectionsRecord, right: DirectionsRecord) -> DecayedDirectionsRecord:
        assert isinstance(left, DecayedDirectionsRecord)
        assert isinstance(right, DecayedDirectionsRecord)
        end = max(left.end, right.end)
        return _stamped(super()._combine(self._at(left, end), self._at(right, end)), end)

    def _at(self, record: DecayedDirectionsRecord, end: int) -> DirectionsRecord:
        """Return the record at a later time."""
        if end == record.end:
            return record
        factor = float(self._factors(end, record.end - 1))
        return replace(
            record,
            weight=record.weight * factor,
            column_squares=record.column_squares * factor,
            shrinkage=record.shrinkage * factor,
            single_rounding=record.single_rounding * factor,
            rows=record.rows * np.sqrt(factor),
            gram=record.gram * factor,
        )


def _stamped(record: DirectionsRecord, end: int) -> DecayedDirectionsRecord:
    return DecayedDirectionsRecord(**vars(record), end=end)
