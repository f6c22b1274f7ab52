"""Exponential decay of row weights by global row index."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.arrays import Array, Floats, global_rows
from sketchselect.linalg.validation import require_number, require_positive
from sketchselect.summaries.base import Context, Summary

R = TypeVar("R")


class DecayingSummary(Summary[R]):
    """Base of the summaries that can let rows lose weight: row i weighs ``g^(end - 1 - i)``, or as `rates` say.

    With a decay, `kind` is `decayed_kind`, and the field `end` of the record is the global index after the last row:
    the time at which the weights are valid. Without one, `end` is None.
    """

    decayed_kind: ClassVar[str]
    half_life: float | None = None
    decay: float | None = None
    rates: Floats | None = None

    def _set_decay(self, half_life: Any, decay: Any, rates: Any = None) -> None:
        """Set `half_life` (in rows), `decay` (the factor g of a row) or `rates`, of which at most one is not None."""
        if [half_life is None, decay is None, rates is None].count(False) > 1:
            raise BadParameter(
                f"{type(self).__name__} takes either half_life (in rows) or decay (a factor for each row), not both"
            )
        self.rates = None if rates is None else _checked_rates(rates)
        self.half_life = None if half_life is None else require_number("half_life", half_life, above=0)
        self.decay = None if decay is None else require_number("decay", decay, above=0, most=1)
        self._name_kind()

    def _require_decay(self) -> None:
        """Raise `BadParameter` without a decay, which the former names of decaying summaries need."""
        if not self.decays:
            raise BadParameter(
                f"{type(self).__name__} needs either half_life (in rows) or decay (a factor for each row)"
            )

    def _name_kind(self) -> None:
        if self.decays:
            vars(self)["kind"] = self.decayed_kind

    def _with(self, record: R | None, context: Context) -> Self:
        new = super()._with(record, context)
        new._name_kind()
        return new

    @property
    def decays(self) -> bool:
        """Whether rows lose weight with age; then their global indices are times."""
        return self.half_life is not None or self.decay is not None or self.rates is not None

    @abstractmethod
    def _scaled(self, record: R, factor: float, end: int) -> R:
        """Return the record at a later time, when all weights have fallen by this factor."""

    def _at(self, record: R, end: int) -> R:
        before = cast(Any, record).end
        return record if before == end else self._scaled(record, float(self._factors(end, before - 1)), end)

    def _aligned(self, left: R, right: R) -> tuple[R, R]:
        """Return two records at the later of their times."""
        if not self.decays:
            return left, right
        end = max(cast(Any, left).end, cast(Any, right).end)
        return self._at(left, end), self._at(right, end)

    def _factors(self, end: int, rows: Any) -> Any:
        """Return the weights that rows with these indices have at time `end`."""
        if self.rates is not None:
            return _scheduled(self.rates, end, rows)
        ages = np.asarray(end - 1 - rows, dtype=np.float64)
        if self.half_life is not None:
            return np.exp2(-ages / self.half_life)
        assert self.decay is not None
        return np.power(self.decay, ages)

    def _row_weights(self, start: int | Array, n_rows: int, weights: Floats | None) -> tuple[int | None, Floats | None]:
        """Return ``(end, w)`` of a block: the index after its last row, and the weight of each row at that time."""
        if not self.decays:
            return None, weights
        rows = global_rows(start, n_rows).astype(np.int64)
        end = int(rows.max()) + 1
        decayed: Floats = self._factors(end, rows)
        return end, decayed if weights is None else decayed * weights

    @property
    def end(self) -> int:
        """Global index after the last row, for rows that lose weight with age."""
        if not self.decays:
            raise AttributeError(f"the rows of this {self.kind} summary do not lose weight, so it has no end")
        return int(cast(Any, self.record).end)

    def later(self, rows: int) -> Self:
        """Return the same rows with indices larger by `rows`, as for a second file whose rows are numbered from 0."""
        if self.rates is not None:
            raise Incompatible("rates are those of row indices: summarise the rows with their own indices (start)")
        end = self.end + require_positive("rows", rows, 0)
        return self._with(cast(R, replace(cast(Any, self.record), end=end)), self.context)

    def _next_start(self) -> int:
        return self.end if self.decays else super()._next_start()


def _checked_rates(rates: Any) -> Floats:
    """Return rates as an array; raise `BadParameter` unless they lie between 0 and 1; the first of several may be 1."""
    try:
        values = np.array(rates, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.zeros(0)
    inside = (values > 0) & (values < 1)
    if (
        values.ndim != 1
        or not values.size
        or not inside[1:].all()
        or not (inside[:1].all() or (values.size > 1 and values[0] == 1))
    ):
        raise BadParameter("rates must be numbers above 0 and below 1, of which the first of several may be 1")
    return values


def _scheduled(rates: Floats, end: int, rows: Any) -> Any:
    """Return ``(alpha_i / alpha_e) prod_{i < j <= e} (1 - alpha_j)`` for each row i, with e the row before `end`."""
    last, logs = rates.size - 1, np.log(rates)
    logs[1:] -= np.cumsum(np.log1p(-rates[1:]))
    tail = np.log1p(-rates[-1])
    listed, newest = np.minimum(rows, last), min(end - 1, last)
    # Beyond the list the last rate repeats; the difference of whole numbers is exact.
    return np.exp(logs[listed] - logs[newest] + ((end - 1 - newest) - (rows - listed)) * tail)
