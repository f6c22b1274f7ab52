"""Bundle: several summaries of the same rows, collected in one pass."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.summaries.base import Summary
from sketchselect.summaries.containers.base import Container, MembersRecord
from sketchselect.summaries.registry import register
from sketchselect.summaries.row_ranges import Ranges


@register
class Bundle(Container, Mapping[str, Summary[Any]]):
    """A mapping of names to summaries, merged member by member.

    Parameters
    ----------
    *members : Summary
        Members named by their kind.
    **named : Summary
        Members with other names. A mapping of names to members is accepted too.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.summaries import ColumnStats, Moments
    >>> b = Bundle(stats=ColumnStats(), moments=Moments()).from_block(np.eye(3))
    >>> b["moments"].mean.round(3).tolist()
    [0.333, 0.333, 0.333]
    """

    kind = "bundle"
    takes_groups = True

    def __init__(self, *members: Summary[Any] | Mapping[str, Summary[Any]], **named: Summary[Any]) -> None:
        by_name: dict[str, Summary[Any]] = {}
        for member in members:
            items = [(member.kind, member)] if isinstance(member, Summary) else list(member.items())
            for name, value in items:
                if name in by_name:
                    raise BadParameter(f"two members of a bundle are named {name!r}; give them different names")
                by_name[name] = value
        by_name.update(named)
        if not by_name:
            raise BadParameter("a bundle needs at least one summary")
        for name, value in by_name.items():
            if not isinstance(value, Summary):
                raise BadParameter(f"member {name!r} of a bundle must be a summary, got {type(value).__name__}")
            if "/" in name:
                raise BadParameter(f"a member's name may not contain '/': {name!r}")
        self.members = {name: value.describe() for name, value in by_name.items()}

    @classmethod
    def of(cls, members: Mapping[str, Summary[Any]]) -> Self:
        """Return the bundle of summaries of the same rows."""
        bundle = cls(members)
        first = next(iter(members.values()))
        for name, member in members.items():
            if (member.n_rows, member.n_features) != (first.n_rows, first.n_features):
                raise Incompatible(
                    f"member {name!r} summarises {member.n_rows} rows x {member.n_features} columns, the first member "
                    f"{first.n_rows} x {first.n_features}"
                )
        context = replace(first.context, rows=None)
        return bundle._with(MembersRecord(first.n_rows, first.n_features, dict(members)), context)

    @classmethod
    def of_members(cls, members: Mapping[str, Summary[Any]], parameters: Mapping[str, Any]) -> Self:
        """Return the bundle of these summaries; it has no other parameters."""
        return cls.of(members, **parameters)

    def parameters(self) -> dict[str, Any]:
        """Return the descriptions of the members."""
        return {"members": self.members}

    @property
    def accepts_sparse(self) -> bool:
        """Whether every member accepts CSR blocks."""
        return all(m.accepts_sparse for m in self.members.values())

    @property
    def accepts_missing(self) -> bool:
        """Whether every member accepts missing values."""
        return all(m.accepts_missing for m in self.members.values())

    @property
    def has_panels(self) -> bool:
        """Whether a member can be computed in panels."""
        return any(m.has_panels for m in self.members.values())

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the sum over the members."""
        return sum(m.projected_nbytes(n_features, n_targets) for m in self.members.values())

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the maximum over the members, which are built one after the other."""
        return max(m.working_nbytes(n_features, n_targets) for m in self.members.values())

    @property
    def weight(self) -> Any:
        """Total weight of the rows, from the first member."""
        return next(iter(self.values())).weight

    def _empty(self, n_features: int, n_targets: int) -> MembersRecord:
        return MembersRecord(0, n_features, {k: m.empty(n_features, n_targets) for k, m in self.members.items()})

    def _summarise(self, block: Array, targets: Any, start: int | Array, weights: Floats | None) -> MembersRecord:
        members = {k: m.from_block(block, targets, start=start, sample_weight=weights) for k, m in self.members.items()}
        return MembersRecord(block.shape[0], block.shape[1], members)

    def _next_start(self) -> int:
        return max(member._next_start() for member in self.record.members.values())

    def with_rows(self, rows: Ranges | None) -> Self:
        """Return this bundle with its members labelled with the global indices of the rows."""
        members = {k: m.with_rows(rows) for k, m in self.record.members.items()}
        return self._with(replace(self.record, members=members), self.context)

    def __getitem__(self, name: str) -> Summary[Any]:
        members = self.record.members if self.has_data else self.members
        if name not in members:
            raise KeyError(f"no member {name!r}; this bundle has {', '.join(map(repr, members))}")
        return members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"<Bundle {{{', '.join(f'{k!r}: {m!r}' for k, m in self.items())}}}>"


def pick(source: Any, *kinds: str) -> Summary[Any]:
    """Return the summary of the first of these kinds that a summary, mapping or bundle contains.

    Raises
    ------
    Incompatible
        If there is none, naming the kinds needed and those present.
    """
    if isinstance(source, Summary) and not isinstance(source, Mapping):
        candidates: list[Summary[Any]] = [source]
    elif isinstance(source, Mapping):
        candidates = [m for m in source.values() if isinstance(m, Summary)]
    else:
        hint = "; read a file with sketchselect.load" if isinstance(source, (str, os.PathLike)) else ""
        raise Incompatible(f"expected a summary, a mapping of summaries or a Bundle, got {type(source).__name__}{hint}")
    for kind in kinds:
        for candidate in candidates:
            if candidate.kind == kind:
                return candidate
    present = ", ".join(sorted({c.kind for c in candidates})) or "none"
    raise Incompatible(f"this needs a summary of kind {' or '.join(kinds)}; given: {present}")
