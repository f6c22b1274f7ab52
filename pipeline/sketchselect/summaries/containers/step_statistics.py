"""StepStatistics: what the prepare steps of a run were fitted from, in one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sketchselect.errors import Incompatible
from sketchselect.summaries.base import Context, Summary
from sketchselect.summaries.containers.bundle import Bundle, BundleRecord
from sketchselect.summaries.registry import register


@register
class StepStatistics(Bundle):
    """The summaries that prepare steps were fitted from, by place and step, such as ``"0 tf-idf(sublinear=true)"``.

    Each member is of the rows as the steps before its own leave them, and is labelled with these; so members differ in
    their labels, and may differ in width (random features) and in rows (a pilot, a sample). Statistics of different
    rows merge member by member where the steps before agree: the first steps that need statistics always do.

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
    def of(cls, members: Mapping[str, Summary[Any]]) -> StepStatistics:
        """Return the statistics made of summaries that hold data."""
        # Names of columns are kept once, for the source: after random features a member's columns are others.
        held = {k: m.with_context(prepare=m.prepare, feature_names=None) for k, m in members.items()}
        first = next(iter(held.values()))
        record = BundleRecord(max(member.n_rows for member in held.values()), first.n_features, held)
        return cls(held)._with(record, Context())

    def with_context(self, *, prepare: tuple[str, ...], feature_names: tuple[str, ...] | None) -> StepStatistics:
        """Return these statistics with a label of their own; the members keep theirs, which differ."""
        return self._with(self._record, Context(tuple(prepare), feature_names))

    def require_mergeable(self, other: Any) -> None:
        """Raise `Incompatible` unless both are of the same steps, each after the same others."""
        if isinstance(other, StepStatistics) and list(self.members) != list(other.members):
            raise Incompatible(
                f"cannot merge {self.kind} of different steps: {list(self.members)} and {list(other.members)}"
            )
        super().require_mergeable(other)
