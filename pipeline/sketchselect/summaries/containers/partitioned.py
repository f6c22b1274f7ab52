"""What summaries have in common that keep one summary for each of several parts of the rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

from sketchselect.errors import BadParameter
from sketchselect.summaries.base import Summary


@dataclass(frozen=True)
class PartsRecord:
    """State of `PartitionedSummary`: the summary of each part, named by its number."""

    n_rows: int
    n_features: int
    members: Mapping[str, Summary[Any]]


class PartitionedSummary(Summary[PartsRecord]):
    """Base of the summaries that deal the rows to parts and keep the same inner summary of each.

    A subclass says how many parts there are (`__len__`) and which row goes where (`_summarise`).
    """

    record_type = PartsRecord
    summary: Summary[Any]

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of parts."""

    @staticmethod
    def _inner(summary: Any, holder: str) -> Summary[Any]:
        """Return the description of an inner summary, refusing what cannot be one."""
        if not isinstance(summary, Summary):
            raise BadParameter(f"{holder} needs the description of a summary, got {type(summary).__name__}")
        if isinstance(summary, PartitionedSummary) or summary.kind.startswith("decayed-"):
            reason = (
                "one level is enough"
                if isinstance(summary, PartitionedSummary)
                else "their rows are told apart by time"
            )
            raise BadParameter(f"{holder} cannot hold {summary.kind}: {reason}")
        return summary.describe()

    @property
    def accepts_sparse(self) -> bool:
        """Whether the inner summary does; it then decides about density for itself."""
        return self.summary.accepts_sparse

    @property
    def sparse_limit(self) -> float:
        """No limit of its own."""
        return 1.0

    @property
    def accepts_missing(self) -> bool:
        """Whether the inner summary does."""
        return self.summary.accepts_missing

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of all parts."""
        return len(self) * self.summary.projected_nbytes(n_features, n_targets)

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return that of the inner summary: parts are made one after the other."""
        return self.summary.working_nbytes(n_features, n_targets)

    def with_context(self, *, prepare: tuple[str, ...], feature_names: tuple[str, ...] | None) -> Self:
        """Return this summary and its parts labelled with prepare steps and feature names."""
        labelled = super().with_context(prepare=prepare, feature_names=feature_names)
        if self._record is None:
            return labelled
        members = {
            k: m.with_context(prepare=prepare, feature_names=feature_names) for k, m in self.record.members.items()
        }
        return labelled._with(PartsRecord(self.n_rows, self.n_features, members), labelled.context)

    @classmethod
    def of_members(cls, members: Mapping[str, Summary[Any]], parameters: Mapping[str, Any]) -> Self:
        """Return the summary whose parts, named "0", "1", ..., are given: how a file is read."""
        parts = [members[str(i)] for i in range(len(members))]
        whole = cls(parts[0], **parameters)  # type: ignore[call-arg]
        alike = all(p.describe() == whole.summary and p.n_features == parts[0].n_features for p in parts)
        if len(parts) != len(whole) or not alike:
            raise ValueError(f"{len(parts)} members do not make up {len(whole)} {cls.kind}")
        record = PartsRecord(sum(p.n_rows for p in parts), parts[0].n_features, dict(members))
        return whole._with(record, parts[0].context)

    def _targets(self, y: Any, n_rows: int) -> Any:
        return y

    def _empty(self, n_features: int, n_targets: int) -> PartsRecord:
        members = {str(i): self.summary.empty(n_features, n_targets) for i in range(len(self))}
        return PartsRecord(0, n_features, members)

    def _combine(self, left: PartsRecord, right: PartsRecord) -> PartsRecord:
        members = {k: left.members[k].merge(right.members[k]) for k in left.members}
        return PartsRecord(left.n_rows + right.n_rows, left.n_features, members)

    # --- answers -----------------------------------------------------------------------------------------------

    def __getitem__(self, index: int) -> Summary[Any]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"part {index} of {len(self)}")
        return self.record.members[str(index % len(self))]

    def __iter__(self) -> Iterator[Summary[Any]]:
        return (self[i] for i in range(len(self)))

    @property
    def total(self) -> Summary[Any]:
        """The summary of all rows."""
        return reduce(lambda a, b: a.merge(b), self)

    def complement(self, index: int) -> Summary[Any]:
        """Return the summary of all rows but those of one part, by merging the others."""
        left_out = range(len(self))[index]
        return reduce(lambda a, b: a.merge(b), (self[i] for i in range(len(self)) if i != left_out))

    @property
    def weight(self) -> Any:
        """Total weight of the rows, as the inner summary tells it."""
        return sum(part.weight for part in self)  # type: ignore[attr-defined]
