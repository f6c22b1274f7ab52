"""Base classes of selectors whose old rows can fade, or leave a window of the last ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from sketchselect.errors import BadParameter, Incompatible, NoData
from sketchselect.execution import Source
from sketchselect.linalg.validation import require_positive
from sketchselect.selectors.base import BaseSelector, SelectorPass
from sketchselect.summaries import BatchDirections, FrequentDirections, Summary, pick
from sketchselect.summaries.window import SlidingWindow

Sketch = FrequentDirections | BatchDirections


class ForgettingSelector(BaseSelector):
    """Base of the selectors whose rows can fade (`half_life`), or count only while among the last (`window`).

    With a window `fit` reads the last `window` rows of a source. `partial_fit` selects from the rows in a
    `SlidingWindow`: the last `window` ones, and those before in the same pane.

    Parameters
    ----------
    half_life : float, optional
        Rows after which a row counts half, so that the selection follows a drifting stream.
    window : int, optional
        Only this many of the last rows count, in `fit` too; not together with `half_life`. `partial_fit` rounds up to
        whole panes of a 32nd of them, and stores the states of the panes.

    Attributes
    ----------
    window_ : SlidingWindow
        After `partial_fit` with a window: the rows that count (`start`, `end`), and their states.
    """

    half_life: float | None
    window: int | None

    def _check_forgetting(self) -> None:
        """Raise `BadParameter` for a window that is no number of rows, or one together with a half-life."""
        if self.window is None:
            return
        require_positive("window", self.window)
        if self.half_life is not None:
            raise BadParameter("window and half_life exclude each other; leave one of them out")

    @property
    def makes_passes(self) -> bool:
        """Whether only the rows of a window are read."""
        return self.window is not None

    def single_pass(self, source: Source) -> SelectorPass | None:
        """Return the pass over all rows; with a window, over the last ones: no others are read."""
        self._check_forgetting()
        self.__dict__.pop("window_", None)
        first_row = 0 if self.window is None else max(source.n_rows - int(self.window), 0)
        return SelectorPass(source, self.summary_description(source.n_columns), first_row)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, *, sample_weight: Any = None) -> Self:
        """Add a batch of rows to the stream and select again; earlier rows fade, or leave the window.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`; the batch may have any number of rows.
        classes : sequence, optional
            Every class that a batch may hold, for classification; needed in the first call unless its batch has them
            all.

        Raises
        ------
        Incompatible
            If the rows seen so far are in another window, or have another half-life, than this selector's.
        """
        if hasattr(self, "summary_"):
            self._require_half_life(self.summary_)
            self._require_same_window()
        before = self.__dict__.get("window_")
        try:
            return super().partial_fit(X, y, classes, sample_weight=sample_weight)
        except BaseException:
            self.__dict__.pop("window_", None)
            if before is not None:
                self.window_ = before
            raise

    def _updated(self, summary: Summary[Any], batches: Iterable[tuple[Any, Any, Any]]) -> Summary[Any]:
        if self.window is None:
            return super()._updated(summary, batches)
        window: SlidingWindow[Any] | None = getattr(self, "window_", None)
        if window is None:
            window = SlidingWindow(self.summary_description(summary.n_features), rows=int(self.window))
        for rows, labels, weights in batches:
            window = window.update(rows, labels, sample_weight=weights)
        self.window_ = window
        try:
            last: Summary[Any] = window.summary()
        except NoData:
            return summary
        return last.with_context(prepare=summary.prepare, feature_names=summary.feature_names)

    def fit_summary(self, summary: Any) -> Self:
        """Select from a summary (or the fitting member of a mapping or `Bundle`); all its rows count.

        Raises
        ------
        Incompatible
            If there is no summary of the kind this selector needs.
        """
        self.__dict__.pop("window_", None)
        return super().fit_summary(summary)

    def _require_half_life(self, summary: Any) -> None:
        """Raise `Incompatible` if the summary of the rows seen so far has another half-life than this selector."""
        before = getattr(summary, "half_life", None)
        if before != self.half_life:
            were = "have no half_life" if before is None else f"have half_life {before:g}"
            raise Incompatible(
                f"the rows seen so far {were}, but half_life is {self.half_life}; set it to match, or start a new "
                "selector"
            )

    def _require_same_window(self) -> None:
        """Raise `Incompatible` unless the rows seen so far are in the window of this selector."""
        window: SlidingWindow[Any] | None = getattr(self, "window_", None)
        if self.window == (None if window is None else window.rows):
            return
        was = "are in one summary, which they cannot leave" if window is None else f"are in a window of {window.rows}"
        raise Incompatible(
            f"the rows seen so far {was}, but window is {self.window}; set it to match, or start a new selector with "
            "partial_fit"
        )


class DecayingSelector(ForgettingSelector):
    """Base of the selectors from a sketch of all rows, of rows that fade, or of the last rows alone."""

    def _sketch(self, size: int) -> Sketch:
        """Return the description of the sketch; raise `BadParameter` for its parameters."""
        self._check_forgetting()
        return FrequentDirections(size=size, half_life=self.half_life)

    def fit_summary(self, summary: Any) -> Self:
        """Select from a summary (or the fitting member of a mapping or `Bundle`); no data are needed.

        Raises
        ------
        Incompatible
            If there is no summary of the kind this selector needs, or its half-life is another one.
        """
        if self.half_life is None:
            return super().fit_summary(pick(summary, *self.requires))
        sketch = pick(summary, FrequentDirections.decayed_kind)
        self._require_half_life(sketch)
        return super().fit_summary(sketch)
