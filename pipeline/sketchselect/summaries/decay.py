"""Exponential decay of row weights by global row index."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats, global_rows
from sketchselect.linalg.validation import require_number, require_positive
from sketchselect.summaries.base import Summary

R = TypeVar("R")


class DecayingSummary(Summary[R]):
    """Mixin of the summaries in which the row with global index i weighs ``g^(end - 1 - i)``.

    The record has the field `end`, the global index after the last row: the time at which the weights are valid.
    """

    decays: ClassVar[bool] = True

    def _set_decay(self, half_life: Any, decay: Any) -> None:
        """Set `half_life` (in rows) and `decay` (the factor g of a row), of which exactly one is not None.

        Raises `BadParameter` if both or neither are None, or a number is out of range.
        """
        if (half_life is None) == (decay is None):
            raise BadParameter(
                f"{type(self).__name__} needs either half_life (in rows) or decay (a factor for each row)"
            )
        self.half_life = None if half_life is None else require_number("half_life", half_life, above=0)
        self.decay = None if decay is None else require_number("decay", decay, above=0, most=1)

    def _factors(self, ages: Any) -> Any:
        """Return g to the power of these ages in rows."""
        ages = np.asarray(ages, dtype=np.float64)
        return np.exp2(-ages / self.half_life) if self.decay is None else np.power(self.decay, ages)

    def _row_weights(self, start: int | Array, n_rows: int, weights: Floats | None) -> tuple[int, Floats]:
        """Return ``(end, w)`` of a block: the index after its last row, and the weight of each row at that time."""
        rows = global_rows(start, n_rows).astype(np.int64)
        end = int(rows.max()) + 1
        decayed: Floats = self._factors(end - 1 - rows)
        return end, decayed if weights is None else decayed * weights

    @property
    def end(self) -> int:
        """Global index after the last row."""
        return int(cast(Any, self.record).end)

    def later(self, rows: int) -> Self:
        """Return the same rows with indices larger by `rows`, as for a second file whose rows are numbered from 0."""
        end = self.end + require_positive("rows", rows, 0)
        return self._with(cast(R, replace(cast(Any, self.record), end=end)), self.context)

    def _next_start(self) -> int:
        return self.end
