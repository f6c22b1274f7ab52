"""DecayedMoments: moments in which rows lose weight with age, so that they follow changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from sketchselect.errors import Incompatible
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.summaries.decay import DecayingSummary
from sketchselect.summaries.moments.base import JointMoments
from sketchselect.summaries.moments.classes import as_classes
from sketchselect.summaries.moments.forms import Comoment, MomentsRecord
from sketchselect.summaries.registry import register

_FORM = Comoment()


@dataclass(frozen=True)
class DecayedRecord:
    """State of `DecayedMoments`: that of `Moments` at a point in time."""

    n_rows: int
    n_targets: int
    weight: float
    squared_weight: float
    mean: Floats
    comoment: Floats
    end: int  # Global index after the last row: the time at which the weights are valid
    single_scatter: float = 0.0

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.mean.shape[0]) - self.n_targets


@register
class DecayedMoments(DecayingSummary[DecayedRecord], JointMoments[DecayedRecord]):
    """Moments in which the row with global index i weighs ``g^(end - 1 - i)``, times its sample weight.

    Normalised by the total weight W, so unbiased from the first row on. `merge` scales both sides to the later `end`
    and then is that of `Moments`: exact, for any merge tree, and across gaps in the rows. The age of a row is known
    from its global index alone, so `from_block` needs `start`; `update` continues from `end`.

    Parameters
    ----------
    half_life : float
        Rows after which the weight of a row is halved: ``g = 2^(-1 / half_life)``. Either this, `decay` or `rates`.
    decay : float
        The factor g, in (0, 1]; 1 - g is the rate alpha of the papers.
    classes : sequence of str, int, bool or float, optional
        As in `Moments`.
    rates : sequence of float, optional
        The rates alpha_n of rows 0, 1, ..., of which the last is that of all later rows: the mean after row n is
        ``(1 - alpha_n)`` times the one before plus alpha_n times row n. Between 0 and 1; the first may be 1.

    Notes
    -----
    The effective number of rows (`n_effective`) approaches (1 + g) / (1 - g), their mean age g / (1 - g).
    Cost a row: (p + q)^2 flops. Bytes: 8 (p + q)^2.
    With rates, row i weighs ``(alpha_i / alpha_e) prod_{i < j <= e} (1 - alpha_j)`` beside the last row e.
    Source: Sun, Guo and Barbu 2019, eq. 13, a rate for each observation, normalised.

    Examples
    --------
    >>> import numpy as np
    >>> d = DecayedMoments(half_life=1).from_block(np.array([[0.0], [3.0]]))
    >>> d.weight, d.mean.tolist()
    (1.5, [2.0])
    >>> d.update(np.array([[3.0]])).weight
    1.75
    >>> DecayedMoments(rates=[1, 0.5, 0.25]).from_block(np.array([[0.0], [4.0], [6.0], [1.0]])).mean.tolist()
    [2.5]
    """

    kind = "decayed-moments"
    format_version = 2
    record_type = DecayedRecord
    accepts_sparse = True

    def __init__(
        self,
        half_life: float | None = None,
        decay: float | None = None,
        classes: Sequence[Any] | Array | None = None,
        rates: Sequence[float] | Floats | None = None,
    ) -> None:
        self._set_decay(half_life, decay, rates)
        self.classes = as_classes(classes)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        return _FORM.nbytes(*self._n_joint(n_features, n_targets))

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`, with two rescaled states."""
        p, q = self._n_joint(n_features, n_targets)
        return _FORM.working_nbytes(p, q) + 2 * _FORM.nbytes(p, q)

    def details(self) -> Iterator[str]:
        """Yield the effective number of rows, and the kind of target."""
        yield f"{self.n_effective:.6g} effective rows, weights decaying with age before row {self.end}"
        yield from super().details()

    def _empty(self, n_features: int, n_targets: int) -> DecayedRecord:
        return _stamped(_FORM.empty(*self._n_joint(n_features, n_targets)), 0)

    def _summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> DecayedRecord:
        end, decayed = self._row_weights(start, block.shape[0], weights)
        return _stamped(_FORM.summarise(block, targets, start, decayed), end)

    def _combine(self, left: DecayedRecord, right: DecayedRecord) -> DecayedRecord:
        end = max(left.end, right.end)
        return _stamped(_FORM.combine(self._at(left, end), self._at(right, end)), end)

    def _at(self, record: DecayedRecord, end: int) -> MomentsRecord:
        """Return the moments at a later time."""
        factor = float(self._factors(end, record.end - 1))
        return MomentsRecord(
            record.n_rows,
            record.n_targets,
            record.weight * factor,
            record.squared_weight * factor * factor,
            record.mean,
            record.comoment if factor == 1.0 else record.comoment * factor,
            single_scatter=record.single_scatter * factor,
        )

    def unmerge(self, part: Self) -> Self:
        """Return the moments of the rows that are not in `part`, at the same `end`, as for a sliding window.

        Raises
        ------
        Incompatible
            If `part` has more rows, ends later, has other columns or parameters, or is not a part of these rows.
        """
        self.require_mergeable(part)
        if part.n_rows > self.n_rows or (part.n_rows and part.end > self.end):
            raise Incompatible(
                f"{part.n_rows} rows that end at row {part.end} are not a part of {self.n_rows} rows that end at row "
                f"{self.end}"
            )
        if part.n_rows == 0:
            return self
        remainder = _FORM.remove(self._at(self.record, self.end), self._at(part.record, self.end))
        if remainder.n_rows == 0:
            return self.empty(self.n_features, self.n_targets)
        return self._with(_stamped(remainder, self.end), self.context)

    def _joint_mean(self) -> Floats:
        return self.record.mean

    def _scatter(self) -> Floats:
        return self.record.comoment


def _stamped(record: MomentsRecord, end: int) -> DecayedRecord:
    assert record.comoment is not None
    return DecayedRecord(
        record.n_rows,
        record.n_targets,
        record.weight,
        record.squared_weight,
        record.mean,
        record.comoment,
        end,
        record.single_scatter,
    )
