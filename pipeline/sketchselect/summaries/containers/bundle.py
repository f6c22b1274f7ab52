"""Bundle: several summaries built in one pass over the same rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.summaries.base import Summary
from sketchselect.summaries.registry import register


@dataclass(frozen=True)
class BundleRecord:
    """State of `Bundle`: the members, each with its own record."""

    n_rows: int
    n_features: int
    members: Mapping[str, Summary[Any]]


@register
class Bundle(Summary[BundleRecord], Mapping[str, Summary[Any]]):
    """A mapping of names to summaries, merged member by member.

    Parameters
    ----------
    *members : Summary
        Members named by their kind.
    **named : Summary
        Members with names of their own. A single mapping may be given instead.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.summaries import ColumnStats, Moments
    >>> b = Bundle(stats=ColumnStats(), moments=Moments()).from_block(np.eye(3))
    >>> b["moments"].mean.round(3).tolist()
    [0.333, 0.333, 0.333]
    """

    kind = "bundle"
    record_type = BundleRecord

    def __init__(self, *members: Summary[Any] | Mapping[str, Summary[Any]], **named: Summary[Any]) -> None:
        found: dict[str, Summary[Any]] = {}
        for member in members:
            items = [(member.kind, member)] if isinstance(member, Summary) else list(member.items())
            for name, value in items:
                if name in found:
                    raise BadParameter(f"two members of a bundle are named {name!r}; give them names of their own")
                found[name] = value
        found.update(named)
        if not found:
            raise BadParameter("a bundle needs at least one summary")
        for name, value in found.items():
            if not isinstance(value, Summary):
                raise BadParameter(f"member {name!r} of a bundle must be a summary, got {type(value).__name__}")
            if "/" in name:
                raise BadParameter(f"a member's name may not contain '/': {name!r}")
        self.members = {name: value.describe() for name, value in found.items()}

    @classmethod
    def of(cls, members: Mapping[str, Summary[Any]]) -> Bundle:
        """Return a bundle of summaries that already hold data of the same rows."""
        bundle = cls(members)
        first = next(iter(members.values()))
        for name, member in members.items():
            if (member.n_rows, member.n_features) != (first.n_rows, first.n_features):
                raise Incompatible(
                    f"member {name!r} summarises {member.n_rows} rows x {member.n_features} columns, others "
                    f"{first.n_rows} x {first.n_features}"
                )
        return bundle._with(BundleRecord(first.n_rows, first.n_features, dict(members)), first.context)

    def parameters(self) -> dict[str, Any]:
        """Return the descriptions of the members."""
        return {"members": self.members}

    @property
    def accepts_sparse(self) -> bool:
        """Whether every member does; each then decides about density for itself."""
        return all(m.accepts_sparse for m in self.members.values())

    @property
    def sparse_limit(self) -> float:
        """No limit of its own."""
        return 1.0

    @property
    def accepts_missing(self) -> bool:
        """Whether every member does."""
        return all(m.accepts_missing for m in self.members.values())

    def with_context(self, *, prepare: tuple[str, ...], feature_names: tuple[str, ...] | None) -> Bundle:
        """Return this bundle and its members labelled with prepare steps and feature names."""
        labelled = super().with_context(prepare=prepare, feature_names=feature_names)
        if self._record is None:
            return labelled
        members = {k: m.with_context(prepare=prepare, feature_names=feature_names) for k, m in self.items()}
        return labelled._with(BundleRecord(self.n_rows, self.n_features, members), labelled.context)

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the sum over the members."""
        return sum(m.projected_nbytes(n_features, n_targets) for m in self.members.values())

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the most of any member: they are built one after the other."""
        return max(m.working_nbytes(n_features, n_targets) for m in self.members.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of all members."""
        return sum(m.nbytes for m in self.values())

    @property
    def weight(self) -> Any:
        """Total weight of the rows, as the first member that keeps it tells it."""
        return next((m.weight for m in self.values() if hasattr(m, "weight")), float(self.n_rows))

    def _targets(self, y: Any, n_rows: int) -> Any:
        return y

    def _empty(self, n_features: int, n_targets: int) -> BundleRecord:
        return BundleRecord(0, n_features, {k: m.empty(n_features, n_targets) for k, m in self.members.items()})

    def _summarise(self, block: Array, targets: Any, start: int | Array, weights: Floats | None) -> BundleRecord:
        members = {k: m.from_block(block, targets, start=start, sample_weight=weights) for k, m in self.members.items()}
        return BundleRecord(block.shape[0], block.shape[1], members)

    def _combine(self, left: BundleRecord, right: BundleRecord) -> BundleRecord:
        members = {k: left.members[k].merge(right.members[k]) for k in self.members}
        return BundleRecord(left.n_rows + right.n_rows, left.n_features, members)

    def __getitem__(self, name: str) -> Summary[Any]:
        members = self.record.members if self._record is not None else self.members
        if name not in members:
            raise KeyError(f"no member {name!r}; this bundle has {', '.join(map(repr, members))}")
        return members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"<Bundle {{{', '.join(f'{k!r}: {m!r}' for k, m in self.items())}}}>"


def pick(found: Any, *kinds: str) -> Summary[Any]:
    """Return the first summary of one of these kinds from a summary, a mapping or a bundle.

    Raises
    ------
    Incompatible
        Naming the kinds wanted and those there are.
    """
    if isinstance(found, Summary) and not isinstance(found, Bundle):
        candidates: list[Summary[Any]] = [found]
    elif isinstance(found, Mapping):
        candidates = [m for m in found.values() if isinstance(m, Summary)]
    else:
        hint = "; read a file with sketchselect.load" if isinstance(found, (str, os.PathLike)) else ""
        raise Incompatible(f"expected a summary, a mapping of summaries or a Bundle, got {type(found).__name__}{hint}")
    for kind in kinds:
        for candidate in candidates:
            if candidate.kind == kind:
                return candidate
    have = ", ".join(sorted({c.kind for c in candidates})) or "none"
    raise Incompatible(f"this needs a summary of kind {' or '.join(kinds)}; given: {have}")
