"""Base class of selectors whose sketch can decay."""

from __future__ import annotations

from typing import Any, Self

from sketchselect.errors import Incompatible
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

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, *, sample_weight: Any = None) -> Self:
        """Add a batch of rows to the stream and select again; earlier rows fade, or leave the window.

        Parameters
        ----------
        X, y, classes, sample_weight
            As in `fit`; the batch may have any number of rows.
        """
        if hasattr(self, "summary_"):
            self._require_half_life(self.summary_)
        return super().partial_fit(X, y, classes, sample_weight=sample_weight)

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

    def _require_half_life(self, seen: Any) -> None:
        """Raise `Incompatible` if a sketch has another half-life than this selector."""
        before = getattr(seen, "half_life", None)
        if before != self.half_life:
            was = "does not decay" if before is None else f"has half_life {before:g}"
            raise Incompatible(
                f"the sketch of the rows seen so far {was}, but half_life is {self.half_life}; set it to match, or "
                "start with a new selector"
            )
