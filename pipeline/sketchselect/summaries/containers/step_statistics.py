"""StepStatistics: the summaries that the prepare steps of a run were fitted from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from sketchselect.errors import Incompatible
from sketchselect.summaries.base import Context, Summary
from sketchselect.summaries.containers.base import MembersRecord
from sketchselect.summaries.containers.bundle import Bundle
from sketchselect.summaries.registry import register


@register
class StepStatistics(Bundle):
    """The summaries that prepare steps were fitted from, by position and step, such as ``"0 tf-idf(sublinear=true)"``.

    Each member summarises the output of the steps before its own and is labelled with these; so members differ in their
    labels, and may differ in width (random features) and in rows (a pilot, a sample). Statistics of different rows
    merge member by member if the earlier steps agree, as they always do for the first step that needs statistics.

    Parameters
    ----------
    *members, **named : Summary
        As for `Bundle`.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.summaries import ColumnStats
    >>> a, b = (ColumnStats().from_block(np.full((2, 1), v)) for v in (1.0, 3.0))
    >>> both = StepStatistics.of({"0 standardise": a}).merge(StepStatistics.of({"0 standardise": b}))
    >>> both["0 standardise"].mean.tolist()
    [2.0]
    """

    kind = "step-statistics"

    @classmethod
    def of(cls, members: Mapping[str, Summary[Any]]) -> Self:
        """Return the statistics of summaries with data."""
        # Column names belong to the source: after random features the columns of a member are others.
        # Nor do row indices: a sample that gives a bandwidth need not be independent of that of another source.
        unnamed = {k: m.with_context(prepare=m.prepare, feature_names=None).with_rows(None) for k, m in members.items()}
        first = next(iter(unnamed.values()))
        record = MembersRecord(max(member.n_rows for member in unnamed.values()), first.n_features, unnamed)
        return cls(unnamed)._with(record, Context())

    def with_context(self, *, prepare: tuple[str, ...], feature_names: tuple[str, ...] | None) -> Self:
        """Return these statistics with this label; the members keep theirs, which differ."""
        return self._with(self._record, Context(tuple(prepare), feature_names))

    def require_mergeable(self, other: Any) -> None:
        """Raise `Incompatible` unless both are of the same steps in the same order."""
        if isinstance(other, StepStatistics) and list(self.members) != list(other.members):
            raise Incompatible(
                f"cannot merge {self.kind} of different steps: {list(self.members)} and {list(other.members)}"
            )
        super().require_mergeable(other)
