"""Base class of selectors whose sketch can decay."""

from __future__ import annotations

from typing import Any, Self

from sketchselect.selectors.streams.forgetting import ForgettingSelector
from sketchselect.summaries import DecayedDirections, FrequentDirections, pick


class DecayingSelector(ForgettingSelector):
    """Base of the selectors from a sketch of all rows, of rows that fade, or of the last rows alone."""

    def _sketch(self, size: int) -> FrequentDirections:
        """Return the description of the sketch; raise `BadParameter` for its parameters."""
        self._check_forgetting()
        if self.half_life is None:
            return FrequentDirections(size=size)
        return DecayedDirections(size=size, half_life=self.half_life)

    def fit_summary(self, summary: Any) -> Self:
        """Select from a summary (or the fitting member of a mapping or `Bundle`); no data are needed.

        Raises
        ------
        Incompatible
            If there is no summary of the kind this selector needs, or its half-life is another one.
        """
        if self.half_life is None:
            return super().fit_summary(pick(summary, *self.requires))
        sketch = pick(summary, DecayedDirections.kind)
        self._require_half_life(sketch)
        return super().fit_summary(sketch)
