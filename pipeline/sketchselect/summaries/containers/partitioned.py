"""Base class of summaries that partition the rows and keep the same inner summary of each part."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats, global_rows
from sketchselect.summaries.base import Summary
from sketchselect.summaries.containers.base import Container, MembersRecord


class PartitionedSummary(Container):
    """A container of one summary for each part of the rows, named by the number of the part.

    A subclass gives the number of parts (`__len__`) and the part of each row (`_summarise`).
    """

    summary: Summary[Any]

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of parts."""

    @classmethod
    def _inner(cls, summary: Any) -> Summary[Any]:
        """Return the description of an inner summary, or raise `BadParameter`."""
        if not isinstance(summary, Summary):
            raise BadParameter(f"{cls.__name__} needs the description of a summary, got {type(summary).__name__}")
        if isinstance(summary, PartitionedSummary):
            raise BadParameter(f"{cls.__name__} cannot contain {summary.kind}: parts of parts are not supported")
        if summary.decays:
            raise BadParameter(f"{cls.__name__} cannot contain {summary.kind}: the weight of its rows depends on time")
        return summary.describe()

    @property
    def accepts_sparse(self) -> bool:
        """Whether the inner summary accepts CSR blocks."""
        return self.summary.accepts_sparse

    @property
    def accepts_missing(self) -> bool:
        """Whether the inner summary accepts missing values."""
        return self.summary.accepts_missing

    @property
    def keyed_by_rows(self) -> bool:
        """Whether random draws of the inner summary depend on the global indices of rows."""
        return self.summary.keyed_by_rows

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of all parts."""
        return len(self) * self.summary.projected_nbytes(n_features, n_targets)

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes for the inner summary: parts are built one after the other."""
        return self.summary.working_nbytes(n_features, n_targets)

    @classmethod
    def of_members(cls, members: Mapping[str, Summary[Any]], parameters: Mapping[str, Any]) -> Self:
        """Return the summary of these parts, named "0", "1", ...; `parameters` without the inner summary."""
        parts = [members[str(i)] for i in range(len(members))]
        whole = cls(parts[0], **parameters)  # type: ignore[call-arg]
        alike = all(p.describe() == whole.summary and p.n_features == parts[0].n_features for p in parts)
        if len(parts) != len(whole) or not alike:
            raise ValueError(f"{len(parts)} members do not make up {len(whole)} {cls.kind}")
        record = MembersRecord(sum(p.n_rows for p in parts), parts[0].n_features, dict(members))
        return whole._with(record, replace(parts[0].context, rows=None))

    def _empty(self, n_features: int, n_targets: int) -> MembersRecord:
        members = {str(i): self.summary.empty(n_features, n_targets) for i in range(len(self))}
        return MembersRecord(0, n_features, members)

    def _summarise_parts(
        self, block: Any, targets: Array | None, start: int | Array, weights: Floats | None, part_of: NDArray[np.intp]
    ) -> MembersRecord:
        """Return the record of a block whose row i is in part ``part_of[i]``."""
        rows = global_rows(start, block.shape[0]).astype(np.int64)
        members: dict[str, Summary[Any]] = {}
        for i in range(len(self)):
            at = np.flatnonzero(part_of == i)
            part_y, part_w = (None if values is None else values[at] for values in (targets, weights))
            members[str(i)] = self.summary.from_block(block[at], part_y, start=rows[at], sample_weight=part_w)
        return MembersRecord(block.shape[0], block.shape[1], members)

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
        return reduce(lambda a, b: a.merge(b), self).with_rows(self.context.rows)

    def complement(self, index: int) -> Summary[Any]:
        """Return the summary of all rows without those of one part, by merging the others."""
        left_out = range(len(self))[index]
        return reduce(lambda a, b: a.merge(b), (self[i] for i in range(len(self)) if i != left_out))

    @property
    def weight(self) -> Any:
        """Total weight of the rows."""
        return sum(part.weight for part in self)
