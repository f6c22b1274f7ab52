"""Summaries that partition the rows and keep an inner summary of each part: `Folds` and `Groups`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import NDArray

from sketchselect._text import counted
from sketchselect.errors import BadBlock, BadParameter, Incompatible
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.validation import (
    MOST_TIMES,
    Array,
    Floats,
    as_labels,
    global_rows,
    number_of,
    require_positive,
    require_seed,
    without_groups,
)
from sketchselect.summaries.base import SparseRows, Summary, as_classes, register
from sketchselect.summaries.containers import Bundle, Container, MembersRecord

MOST_FOLDS = 10 * MOST_TIMES  # `auto` takes several blocks of rows a fold


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
    def divides_rows(self) -> bool:
        """Whether the rows of a block are summarised in parts."""
        return True

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

    def sparse_nbytes(self, n_features: int, n_targets: int, rows: SparseRows) -> tuple[int, int]:
        """Return the same for CSR blocks, of which each part has some rows."""
        state, working = self.summary.sparse_nbytes(n_features, n_targets, replace(rows, fewest_rows=0, density=1.0))
        return len(self) * state, working

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
        return _merged(self).with_rows(self.context.rows)

    def complement(self, index: int) -> Summary[Any]:
        """Return the summary of all rows without those of one part, by merging the others."""
        left_out = range(len(self))[index]
        return _merged(self[i] for i in range(len(self)) if i != left_out)

    @property
    def weight(self) -> Any:
        """Total weight of the rows."""
        return sum(part.weight for part in self)


def _merged(parts: Iterable[Summary[Any]]) -> Summary[Any]:
    """Return the summary of all rows of some parts, merged in order."""
    return reduce(lambda a, b: a.merge(b), parts)


def fold_numbers(seed: int, n_folds: int, rows: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the fold of each row, from the seed and the row's global index, or the word (`words_of`) of its group."""
    return np.floor(uniforms(derive_seed(seed, "fold"), rows) * n_folds).astype(np.intp)


@register
class Folds(PartitionedSummary):
    """One summary for each of n random folds of the rows; a row's fold depends on its global index and the seed alone.

    With `groups` it depends on the row's group and the seed alone: rows of one group are always in the same fold, in
    every partition and every source that is merged, and no group is in two folds.

    ``folds[i]`` is the summary of fold i, `total` that of all rows, and ``complement(i)`` that of all other folds, the
    training set when fold i is the validation set. All are exact to rounding if the merge of the inner summaries is.

    Parameters
    ----------
    summary : Summary
        Description of the inner summary, such as ``Moments()``.
    n_folds : int
        At least 2. With few rows a fold may be empty.
    seed : int
        From 0 to 2^64 - 1. Row i is in fold ``floor(u n_folds)``, u hashed from seed and i, or its group.
    groups : bool
        Whether every row has a group, a number or text, with its target (`readers.grouped`). Folds are as large as
        their groups make them: of g groups a fold has ``g / n_folds`` on average, and of few groups it may have none.

    Notes
    -----
    Cost a row: that of the inner summary, and a copy of the row. Bytes: n_folds inner summaries.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.summaries import Moments
    >>> f = Folds(Moments(), n_folds=3).from_block(np.eye(9))
    >>> len(f), sum(fold.n_rows for fold in f), f.complement(0).n_rows + f[0].n_rows, f.total.n_rows
    (3, 9, 9, 9)
    """

    kind = "folds"
    takes_groups = True
    later_parameters: ClassVar[Mapping[str, Any]] = {"groups": False}

    def __init__(self, summary: Summary[Any], n_folds: int = 5, seed: int = 0, groups: bool = False) -> None:
        self.summary = self._inner(summary)
        self.n_folds = require_positive("n_folds", n_folds, 2, MOST_FOLDS)
        self.seed = require_seed(seed)
        self.groups = bool(groups)

    @property
    def goes_by_row_numbers(self) -> bool:
        """Whether rows are in folds by their global indices; those of groups are not."""
        return not self.groups or super().goes_by_row_numbers

    def fold_of(self, rows: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the fold of each row; see `fold_numbers`."""
        return fold_numbers(self.seed, self.n_folds, rows)

    def _summarise(self, block: Array, targets: Any, start: int | Array, weights: Floats | None) -> MembersRecord:
        targets, groups = without_groups(targets)
        if self.groups != (groups is not None):
            cure = "need every row's group, as of readers.grouped" if self.groups else "are of rows; leave out groups"
            raise Incompatible(f"these folds {cure}")
        # Checked as a whole first, so that a message counts the rows of all folds.
        for inner in self.summary.members.values() if isinstance(self.summary, Bundle) else (self.summary,):
            inner._targets(targets, block.shape[0], start)
        y = None if targets is None else np.asarray(targets)
        rows = global_rows(start, block.shape[0]) if groups is None else groups
        return self._summarise_parts(block, y, start, weights, self.fold_of(rows))

    def of_member(self, name: str) -> Folds:
        """Return the folds of one member of a `Bundle` in each of these folds.

        Raises `Incompatible`, naming the members, if there is none of that name.

        Examples
        --------
        >>> import numpy as np
        >>> from sketchselect.summaries import ColumnStats, Moments
        >>> folds = Folds(Bundle(moments=Moments(), stats=ColumnStats()), n_folds=2).from_block(np.eye(6))
        >>> folds.of_member("moments") == Folds(Moments(), n_folds=2).from_block(np.eye(6))
        True
        """
        members = self.summary.members if isinstance(self.summary, Bundle) else {}
        if name not in members:
            there = f"they are {', '.join(members)}" if members else f"they are of one {self.summary.kind} summary"
            raise Incompatible(f"these folds have no member {name!r:.40}; {there}")
        return self._with_parts([fold[name] for fold in cast(Any, self)])

    def merge(self, other: Self) -> Self:
        """Return the folds of both, as `Summary.merge` says; of numbers of which one divides the other, the smaller."""
        if isinstance(other, Folds) and self.n_folds != other.n_folds and self.has_data and other.has_data:
            fewer, more = sorted((self, other), key=len)
            if len(more) % len(fewer) == 0:
                united = cast(Self, more.united(np.arange(len(more)).reshape(len(fewer), -1).tolist()))
                return self.merge(united) if more is other else united.merge(other)
        return super().merge(other)

    def united(self, folds: Sequence[Sequence[int]]) -> Folds:
        """Return fewer folds, each the union of some of these, which are named by their numbers.

        Folds ``4 i`` to ``4 i + 3`` of 4 n are together exactly fold i of n with the same seed.

        Examples
        --------
        >>> import numpy as np
        >>> from sketchselect.summaries import ColumnStats
        >>> eight = Folds(ColumnStats(), n_folds=8).from_block(np.eye(40))
        >>> two = Folds(ColumnStats(), n_folds=2).from_block(np.eye(40))
        >>> eight.united([range(4), range(4, 8)])[0].n_rows == two[0].n_rows
        True
        """
        if sorted(i for fold in folds for i in fold) != list(range(len(self))):
            raise BadParameter(f"each of the {len(self)} folds must be in one of the unions")
        return self._with_parts([_merged(self[i] for i in fold) for fold in folds])

    def _with_parts(self, parts: Sequence[Summary[Any]]) -> Folds:
        """Return folds of the same rows with these summaries."""
        folds = Folds(parts[0], len(parts), self.seed, self.groups)
        record = replace(self.record, members={str(i): part for i, part in enumerate(parts)})
        return folds._with(record, self.context)

    def details(self) -> Iterator[str]:
        """Yield the sizes of the folds, and the details of all rows."""
        sizes = [fold.n_rows for fold in self]
        yield f"{len(sizes)} folds of {min(sizes)} to {max(sizes)} rows"
        yield from self.total.details()

    def __len__(self) -> int:
        return self.n_folds


@register
class Groups(PartitionedSummary):
    """One summary for each group of rows; the target is the group label of each row.

    ``groups[i]`` is the summary of the rows labelled ``labels[i]`` and `total` that of all rows, exact if the merge of
    the inner summaries is.

    Parameters
    ----------
    summary : Summary
        Description of the inner summary, such as ``TopValues()``.
    labels : sequence
        All possible labels, at least two; all text or all numbers.

    Notes
    -----
    Cost a row: that of the inner summary, and a copy of the row. Bytes: one inner summary a group.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.summaries import ColumnStats
    >>> batches = np.array(["b", "a", "b"])
    >>> g = Groups(ColumnStats(), ["a", "b"]).from_block(np.array([[1.0], [5.0], [3.0]]), batches)
    >>> [part.mean.tolist() for part in g], g.total.mean.tolist()
    ([[5.0], [2.0]], [3.0])
    """

    kind = "groups"

    def __init__(self, summary: Summary[Any], labels: Sequence[Any] | Array) -> None:
        self.summary = self._inner(summary)
        classes = as_classes(labels)
        if classes is None:
            raise BadParameter("Groups needs the labels of the groups")
        self.labels = classes

    def __len__(self) -> int:
        return len(self.labels)

    def group_of(self, y: Any, n_rows: int, start: int | Array = 0) -> NDArray[np.intp]:
        """Return the number of the group of each row.

        Raises
        ------
        BadBlock
            If a row has no label or an unknown one, naming the first such row; `start` as in `from_block`.
        """
        return label_numbers(y, self.labels, n_rows, "groups", start)

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> MembersRecord:
        return self._summarise_parts(block, None, start, weights, self.group_of(targets, block.shape[0], start))


def label_numbers(y: Any, labels: Sequence[Any], n_rows: int, name: str, start: int | Array = 0) -> NDArray[np.intp]:
    """Return the place among `labels` of the label of each row.

    Raises `BadBlock` if a row has no label or an unknown one, naming the first such row.
    `start`: Global index of the first row, or of every row, for messages.
    """
    if y is None:
        raise BadBlock(f"{name} need a label for every row; pass y")
    row_labels = as_labels(y, n_rows)
    numbers = np.full(n_rows, -1, dtype=np.intp)
    for i, label in enumerate(labels):
        numbers[row_labels == label] = i
    unknown = np.flatnonzero(numbers < 0)
    if unknown.size:
        raise BadBlock(
            f"the label of row {number_of(int(unknown[0]), start)} is none of the {len(labels)} {name} "
            f"({counted(unknown.size, 'such row')} in its block); list every label that occurs"
        )
    return numbers
