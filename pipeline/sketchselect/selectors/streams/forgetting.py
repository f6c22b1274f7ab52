"""What selectors share whose streams may forget: a window that old rows leave, where they do not fade."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

from sketchselect.errors import BadParameter, Incompatible, NoData
from sketchselect.execution import Engine, PassStats, Source
from sketchselect.linalg.validation import require_positive
from sketchselect.selectors.base import BaseSelector
from sketchselect.summaries import Summary
from sketchselect.summaries.window import SlidingWindow


class ForgettingSelector(BaseSelector):
    """Base of the selectors that fade rows (`half_life`), or leave out all but the last ones (`window`).

    With a window `fit` reads the last `window` rows of a source. `partial_fit` keeps the states of a `SlidingWindow`,
    and selects from the rows that it holds: the last `window` ones, and those before in the same pane.

    Attributes
    ----------
    window_ : SlidingWindow
        After `partial_fit` with a window: which rows count (`start`, `end`), and their states.
    """

    half_life: float | None
    window: int | None

    def _check_forgetting(self) -> None:
        """Raise `BadParameter` for a window that is no number of rows, or one beside a half-life."""
        if self.window is None:
            return
        require_positive("window", self.window)
        if self.half_life is not None:
            raise BadParameter(
                "window and half_life are two ways to forget the same rows; give one of them (the other None)"
            )

    @property
    def has_own_passes(self) -> bool:
        """Whether the rows that count are not all rows."""
        return self.window is not None

    def collect(
        self, source: Source, engine: Engine, *, account: Callable[[PassStats], object] | None = None, **options: Any
    ) -> Summary[Any]:
        """Return the summary of all rows, or of the last ones with a window: no others are read."""
        self._check_forgetting()
        self.__dict__.pop("window_", None)
        if self.window is not None:
            options["first_row"] = max(source.n_rows - int(self.window), 0)
        return super().collect(source, engine, account=account, **options)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, *, sample_weight: Any = None) -> Self:
        """Add a batch of rows to what was seen and select again; rows before them fade, or leave the window.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`; the batch may have any number of rows.
        classes : sequence, optional
            Every class that a later batch may hold, for classification; needed in the first call unless its batch
            holds them all.

        Raises
        ------
        Incompatible
            If what was seen so far forgets in another way than this selector.
        """
        if hasattr(self, "summary_"):
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
            found: Summary[Any] = window.summary()
        except NoData:
            return summary
        return found.with_context(prepare=summary.prepare, feature_names=summary.feature_names)

    def fit_summary(self, summary: Any) -> Self:
        """Select from a summary (or the fitting member of a mapping or `Bundle`); all its rows count.

        Raises
        ------
        Incompatible
            If there is no summary of the kind this selector needs.
        """
        self.__dict__.pop("window_", None)
        return super().fit_summary(summary)

    def _require_same_window(self) -> None:
        """Raise `Incompatible` where the rows seen so far are in no window, or in another one, or in one unasked."""
        held: SlidingWindow[Any] | None = getattr(self, "window_", None)
        if self.window == (None if held is None else held.rows):
            return
        was = "are in one summary, which none of them can leave" if held is None else f"are in a window of {held.rows}"
        raise Incompatible(
            f"the rows seen so far {was}, this selector has window {self.window}; set it to match, or start a new "
            "selector with partial_fit"
        )
