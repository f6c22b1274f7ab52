"""Moments that forget: the weight of a row falls with the number of rows since, so they follow changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from sketchselect.errors import Incompatible
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.summaries.base import require_positive
from sketchselect.summaries.decay import check_decay, decay_factors, row_weights
from sketchselect.summaries.moments.base import JointMoments
from sketchselect.summaries.moments.classes import as_classes
from sketchselect.summaries.moments.forms import Comoment, MomentsRecord
from sketchselect.summaries.registry import register

_FORM = Comoment()


@dataclass(frozen=True)
class DecayedRecord:
    """State of `DecayedMoments`: that of `Moments` at a point of time.

    Parameters
    ----------
    end : int
        Global index after the last row: the time at which the weights are what they are.
    """

    n_rows: int
    n_targets: int
    weight: float
    squared_weight: float
    mean: Floats
    comoment: Floats
    end: int
    single_scatter: float = 0.0

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.mean.shape[0]) - self.n_targets


@register
class DecayedMoments(JointMoments[DecayedRecord]):
    """Moments in which the row with global index i weighs ``g^(end - 1 - i)``, times its sample weight.

    Normalised by the total weight W, so that they are unbiased from the first row on. `merge` brings both sides to the
    later `end` and then is that of `Moments`: exact, for any tree, and across gaps in the rows. Rows are told apart
    by their global index alone, so blocks must be given theirs (`start`); `update` counts on by itself.

    Parameters
    ----------
    half_life : float
        Rows after which a row counts half: ``g = 2^(-1 / half_life)``. Give this or `decay`.
    decay : float
        The factor g itself, in (0, 1]; 1 - g is the rate alpha of the papers.
    classes : sequence of str, int, bool or float, optional
        As in `Moments`.

    Notes
    -----
    In the long run they are worth (1 + g) / (1 - g) rows (`n_effective`), and lag 1 / (1 - g) rows behind.
    Cost a row: (p + q)^2 flops. Bytes: 8 (p + q)^2.
    Source: Sun, Guo and Barbu 2019, eq. 13, a rate for each observation, normalised.

    Examples
    --------
    >>> import numpy as np
    >>> d = DecayedMoments(half_life=1).from_block(np.array([[0.0], [3.0]]))
    >>> d.weight, d.mean.tolist()
    (1.5, [2.0])
    >>> d.update(np.array([[3.0]])).weight
    1.75
    """

    kind = "decayed-moments"
    record_type = DecayedRecord

    def __init__(
        self,
        half_life: float | None = None,
        decay: float | None = None,
        classes: Sequence[Any] | Array | None = None,
    ) -> None:
        self.half_life, self.decay = check_decay("DecayedMoments", half_life, decay)
        self.classes = as_classes(classes)

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"half_life": self.half_life, "decay": self.decay, "classes": self.classes}

    @property
    def accepts_sparse(self) -> bool:
        """CSR blocks are summarised as they are."""
        return True

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        return _FORM.nbytes(*self._n_joint(n_features, n_targets))

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`; those of the two rescaled states among them."""
        p, q = self._n_joint(n_features, n_targets)
        return _FORM.working_nbytes(p, q) + 2 * _FORM.nbytes(p, q)

    @property
    def end(self) -> int:
        """Global index after the last row."""
        return self.record.end

    def later(self, rows: int) -> Self:
        """Return the same rows numbered so many later: those of a second file, whose own numbers begin at 0 again."""
        return self._with(replace(self.record, end=self.end + require_positive("rows", rows, 0)), self.context)

    def _next_start(self) -> int:
        return self.end

    def _empty(self, n_features: int, n_targets: int) -> DecayedRecord:
        return _stamped(_FORM.empty(*self._n_joint(n_features, n_targets)), 0)

    def _summarise(self, block: Array, targets: Floats, start: int | Array, weights: Floats | None) -> DecayedRecord:
        end, decayed = row_weights(start, block.shape[0], weights, self.half_life, self.decay)
        return _stamped(_FORM.summarise(block, targets, start, decayed), end)

    def _combine(self, left: DecayedRecord, right: DecayedRecord) -> DecayedRecord:
        end = max(left.end, right.end)
        return _stamped(_FORM.combine(self._at(left, end), self._at(right, end)), end)

    def _at(self, record: DecayedRecord, end: int) -> MomentsRecord:
        """Return the moments as they are at a later time."""
        factor = float(decay_factors(end - record.end, self.half_life, self.decay))
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
        """Return the moments of the rows that are here but not in `part`, at the same `end`: a sliding window.

        Raises
        ------
        Incompatible
            If `part` has more rows, ends later, or has other columns or parameters, or cannot be a part.
        """
        self.require_mergeable(part)
        if part.n_rows > self.n_rows or (part.n_rows and part.end > self.end):
            raise Incompatible(
                f"{part.n_rows} rows that end at row {part.end} cannot be taken away from {self.n_rows} that end at "
                f"row {self.end}"
            )
        if part.n_rows == 0:
            return self
        rest = _FORM.remove(self._at(self.record, self.end), self._at(part.record, self.end))
        if rest.n_rows == 0:
            return self.empty(self.n_features, self.n_targets)
        return self._with(_stamped(rest, self.end), self.context)

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
