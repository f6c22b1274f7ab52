"""Base class of summaries made of other summaries, their members."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from sketchselect.summaries.base import Summary


@dataclass(frozen=True)
class MembersRecord:
    """State of a `Container`: its members by name, each with its own record."""

    n_rows: int
    n_features: int
    members: Mapping[str, Summary[Any]]


class Container(Summary[MembersRecord]):
    """A summary whose state is that of named members, merged member by member."""

    record_type = MembersRecord
    # Members decide about the density of a block for themselves.
    sparse_limit = 1.0

    @classmethod
    @abstractmethod
    def of_members(cls, members: Mapping[str, Summary[Any]], parameters: Mapping[str, Any]) -> Self:
        """Return the container of summaries with data; `parameters` are those that the members do not imply."""

    def with_context(self, *, prepare: tuple[str, ...], feature_names: tuple[str, ...] | None) -> Self:
        """Return this summary and its members labelled with prepare steps and feature names."""
        labelled = super().with_context(prepare=prepare, feature_names=feature_names)
        if not self.has_data:
            return labelled
        members = {
            k: m.with_context(prepare=prepare, feature_names=feature_names) for k, m in self.record.members.items()
        }
        return labelled._with(replace(self.record, members=members), labelled.context)

    def releasing(self) -> Self:
        """Return this summary, of whose members the next `merge` may use up the memory."""
        for member in self.record.members.values():
            member.releasing()
        return self

    def _targets(self, y: Any, n_rows: int) -> Any:
        return y

    def _combine(self, left: MembersRecord, right: MembersRecord) -> MembersRecord:
        members = {k: left.members[k].merge(right.members[k]) for k in left.members}
        return MembersRecord(left.n_rows + right.n_rows, left.n_features, members)
