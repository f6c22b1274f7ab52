"""Frequent Directions that forget: the weight of a row falls with the number of rows since."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.summaries.base import require_positive
from sketchselect.summaries.decay import check_decay, decay_factors, row_weights
from sketchselect.summaries.registry import register
from sketchselect.summaries.sketch.frequent_directions import DirectionsRecord, FrequentDirections


@dataclass(frozen=True)
class DecayedDirectionsRecord(DirectionsRecord):
    """State of `DecayedDirections`: that of `FrequentDirections` at a point of time.

    Parameters
    ----------
    end : int
        Global index after the last row: the time at which the weights are what they are.
    """

    end: int


@register
class DecayedDirections(FrequentDirections):
    """A sketch in which the row with global index i weighs ``g^(end - 1 - i)``, times its sample weight.

    With A the rows times the roots of these weights, and A_c the same about their weighted mean, for any blocks and any
    merge tree::

        0 <= A_c'A_c - B_c'B_c <= shrinkage * I,      0 <= A'A - B'B <= shrinkage * I
        shrinkage <= ||A_c - (A_c)_k||_F^2 / (size - k)   for every k < size

    What was lost fades like the rows that it was lost from: `merge` brings both sides to the later `end`, where rows
    weigh ``g^age`` of what they did and so does the shrinkage. Rows are told apart by their global index alone, so
    blocks must be given theirs (`start`); `update` counts on by itself. Rounding counts as in `FrequentDirections`.

    Parameters
    ----------
    size : int
        Rows l of the sketch, as in `FrequentDirections`.
    half_life : float
        Rows after which a row counts half: ``g = 2^(-1 / half_life)``. Give this or `decay`.
    decay : float
        The factor g itself, in (0, 1].

    Raises
    ------
    BadParameter
        For a half-life that is not positive, or a decay outside (0, 1].

    Notes
    -----
    In the long run the rows weigh 1 / (1 - g) in all. Cost and bytes are those of `FrequentDirections`.
    Source: Liberty 2013 for the sketch; the guarantee is linear in the rows' weights, so it decays with them.

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
    record_type = cast(type[DirectionsRecord], DecayedDirectionsRecord)

    def __init__(self, size: int, half_life: float | None = None, decay: float | None = None) -> None:
        self.size = require_positive("size", size, 2)
        self.half_life, self.decay = check_decay("DecayedDirections", half_life, decay)

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"size": self.size, "half_life": self.half_life, "decay": self.decay}

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`; those of the two rescaled states among them."""
        return super().working_nbytes(n_features, n_targets) + 2 * self.projected_nbytes(n_features, n_targets)

    @property
    def end(self) -> int:
        """Global index after the last row."""
        return cast(DecayedDirectionsRecord, self.record).end

    def later(self, rows: int) -> Self:
        """Return the same rows numbered so many later: those of a second file, whose own numbers begin at 0 again."""
        record = cast(DecayedDirectionsRecord, self.record)
        return self._with(replace(record, end=record.end + require_positive("rows", rows, 0)), self.context)

    def _next_start(self) -> int:
        return self.end

    def _empty(self, n_features: int, n_targets: int) -> DecayedDirectionsRecord:
        return _stamped(super()._empty(n_features, n_targets), 0)

    def _summarise(
        self, block: Array, targets: Any, start: int | Array, weights: Floats | None
    ) -> DecayedDirectionsRecord:
        end, decayed = row_weights(start, block.shape[0], weights, self.half_life, self.decay)
        return _stamped(super()._summarise(block, targets, start, decayed), end)

    def _combine(self, left: DirectionsRecord, right: DirectionsRecord) -> DecayedDirectionsRecord:
        assert isinstance(left, DecayedDirectionsRecord)
        assert isinstance(right, DecayedDirectionsRecord)
        end = max(left.end, right.end)
        return _stamped(super()._combine(self._at(left, end), self._at(right, end)), end)

    def _at(self, record: DecayedDirectionsRecord, end: int) -> DirectionsRecord:
        """Return the sketch as it is at a later time."""
        if end == record.end:
            return record
        factor = float(decay_factors(end - record.end, self.half_life, self.decay))
        return DirectionsRecord(
            n_rows=record.n_rows,
            weight=record.weight * factor,
            mean=record.mean,
            column_squares=record.column_squares * factor,
            shrinkage=record.shrinkage * factor,
            rows=record.rows * np.sqrt(factor),
            gram=record.gram * factor,
        )


def _stamped(record: DirectionsRecord, end: int) -> DecayedDirectionsRecord:
    return DecayedDirectionsRecord(
        n_rows=record.n_rows,
        weight=record.weight,
        mean=record.mean,
        column_squares=record.column_squares,
        shrinkage=record.shrinkage,
        rows=record.rows,
        gram=record.gram,
        end=end,
    )
