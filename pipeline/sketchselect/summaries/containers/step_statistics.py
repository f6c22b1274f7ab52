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

    @classmethod
    def as_statistics(cls, statistics: Summary[Any], names: tuple[str, ...] | None) -> StepStatistics:
        """Return statistics of steps of these columns, with the same names where both have any; else `Incompatible`."""
        if not isinstance(statistics, StepStatistics):
            raise Incompatible(
                f"expected the statistics of prepare steps (prepare.sks), got a {statistics.kind} summary"
            )
        theirs = statistics.feature_names
        if theirs is None or names is None or theirs == names:
            return statistics
        if len(theirs) != len(names):
            raise Incompatible(f"the statistics given are of {len(theirs)} columns, the source has {len(names)}")
        j = next(i for i, (a, b) in enumerate(zip(theirs, names, strict=True)) if a != b)
        raise Incompatible(
            f"the statistics given are of a column {j} named {theirs[j]!r}, here it is named {names[j]!r}"
        )

    def of_step(self, name: str, kind: str, labels: tuple[str, ...]) -> Summary[Any]:
        """Return the member of a step, of this kind and of rows with these labels; else `Incompatible`."""
        if name not in self:
            members = ", ".join(map(repr, self))
            raise Incompatible(f"the statistics given have none for prepare step {name!r}; they are of {members}")
        summary = self[name]
        if summary.kind != kind or summary.prepare != labels:
            raise Incompatible(
                f"the statistics given for prepare step {name!r} are of rows prepared by {list(summary.prepare)}, the "
                f"steps before it here are {list(labels)}"
            )
        return summary

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
