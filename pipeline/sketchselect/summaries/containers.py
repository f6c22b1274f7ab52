"""Summaries made of other summaries: `Bundle`, and `StepStatistics` for the prepare steps of a run."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.spectrum import Spectrum
from sketchselect.linalg.validation import Array, Floats
from sketchselect.summaries.base import Context, Ranges, SparseRows, Summary, register, same_value
from sketchselect.summaries.frequent_directions import FrequentDirections
from sketchselect.summaries.moments import Moments


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
        """Return the container of summaries with data; `parameters` are the ones that the members do not imply."""

    def with_context(self, *, prepare: tuple[str, ...], feature_names: tuple[str, ...] | None) -> Self:
        """Return this summary and its members with these prepare steps and feature names."""
        renamed = super().with_context(prepare=prepare, feature_names=feature_names)
        if not self.has_data:
            return renamed
        members = {
            k: m.with_context(prepare=prepare, feature_names=feature_names) for k, m in self.record.members.items()
        }
        return renamed._with(replace(self.record, members=members), renamed.context)

    def into_mutable(self) -> Self:
        """Return this summary, of whose members the next `merge` may use up the memory."""
        for member in self.record.members.values():
            member.into_mutable()
        return self

    def _targets(self, y: Any, n_rows: int, start: int | Array = 0) -> Any:
        return y

    def _combine(self, left: MembersRecord, right: MembersRecord) -> MembersRecord:
        members = {k: left.members[k].merge(right.members[k]) for k in left.members}
        return MembersRecord(left.n_rows + right.n_rows, left.n_features, members)


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

    def require_mergeable(self, other: Any) -> None:
        """Raise `Incompatible`, which says how the members differ, unless `other` can be merged with `self`."""
        if isinstance(other, Bundle) and not same_value(self.members, other.members):
            if self.members.keys() != other.members.keys():
                raise Incompatible(
                    f"cannot merge a {self.kind} of {', '.join(self.members)} with one of {', '.join(other.members)}"
                )
            for name in self.members:
                self[name].require_mergeable(other[name])
        super().require_mergeable(other)

    @property
    def accepts_sparse(self) -> bool:
        """Whether every member accepts CSR blocks."""
        return all(m.accepts_sparse for m in self.members.values())

    @property
    def keeps_filled(self) -> bool:
        """Whether a member keeps the number of filled missing values."""
        return any(member.keeps_filled for member in self.members.values())

    @property
    def accepts_missing(self) -> bool:
        """Whether every member accepts missing values."""
        return all(m.accepts_missing for m in self.members.values())

    @property
    def goes_by_row_numbers(self) -> bool:
        """Whether folds, random draws or ages of a member depend on the global indices of rows."""
        return any(m.goes_by_row_numbers for m in self.members.values())

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

    def sparse_nbytes(self, n_features: int, n_targets: int, rows: SparseRows) -> tuple[int, int]:
        """Return the same for CSR blocks."""
        states, working = zip(
            *(m.sparse_nbytes(n_features, n_targets, rows) for m in self.members.values()), strict=True
        )
        return sum(states), max(working)

    @property
    def divides_rows(self) -> bool:
        """Whether a member does."""
        return any(m.divides_rows for m in self.members.values())

    def kernel_weights(self, start: int | Array, n_rows: int, weights: Floats | None) -> Iterator[Floats | None]:
        """Yield the weights of every member."""
        for member in self.members.values():
            yield from member.kernel_weights(start, n_rows, weights)

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
        """Return this bundle, its members with the global indices of the rows."""
        members = {k: m.with_rows(rows) for k, m in self.record.members.items()}
        return self._with(replace(self.record, members=members), self.context)

    def with_filled(self, filled: Sequence[int]) -> Self:
        """Return this bundle, whose members have the number of values of every column that a step filled."""
        members = {k: m.with_filled(filled) for k, m in self.record.members.items()}
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
    raise Incompatible(f"this needs a summary of kind {' or '.join(dict.fromkeys(kinds))}; given: {present}")


SPECTRAL_KINDS = (FrequentDirections.kind, Moments.kind)
"""Kinds of summary that are a `Spectrum`, the first of which is preferred."""


def pick_spectrum(source: Any) -> Spectrum:
    """Return the summary with a spectrum that a summary, mapping or bundle contains; see `pick`."""
    return cast(Spectrum, pick(source, *SPECTRAL_KINDS))


@register
class StepStatistics(Bundle):
    """The summaries that prepare steps were fitted from, by position and step, such as ``"0 tf-idf(sublinear=true)"``.

    Each member summarises the output of the steps before its own and is labelled with these; so members differ in their
    labels, and may differ in width (random features) and in rows (a pilot, a sample). Statistics of different rows
    merge member by member if the earlier steps agree, as they always do for the first step that needs statistics.
    A member that both have, since the later ones rest on it in both, stays as it is.

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
            raise Incompatible(
                f"the statistics given have none for prepare step {name!r}; they are of {members}; if those are "
                "all the steps before it, `sketchselect summarize --fitted FILE --write-fitted FILE` fits it too"
            )
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
        for name in self.members:
            for mine, theirs in zip(self[name].prepare, other[name].prepare, strict=False):
                step = _description(mine)
                if mine != theirs and step == _description(theirs):
                    raise Incompatible(
                        f"cannot merge the statistics of prepare step {name!r}: each are of rows that a {step!r} of "
                        f"their own had prepared, {mine} and {theirs}; go step by step: write (--write-fitted) and "
                        f"merge those of the steps up to {step!r} alone, then write these with --fitted MERGED and "
                        "merge them (in Python: fit_prepare with fitted=)"
                    )

    def _combine(self, left: MembersRecord, right: MembersRecord) -> MembersRecord:
        members = dict[str, Summary[Any]]()
        for name, mine in left.members.items():
            theirs = right.members[name]
            members[name] = mine if mine == theirs and _is_rested_on(name, left) else mine.merge(theirs)
        return MembersRecord(max(member.n_rows for member in members.values()), left.n_features, members)


def _description(label: str) -> str:
    """Return the step of a label, without the mark of its statistics."""
    return label.partition("#")[0]


def _is_rested_on(name: str, record: MembersRecord) -> bool:
    """Return whether another of the statistics is of rows that the step of this name, once fitted, had prepared."""
    fitted = name.partition(" ")[2] + "#"
    return any(label.startswith(fitted) for member in record.members.values() for label in member.prepare)
