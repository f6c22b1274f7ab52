"""Folds: one summary for each fold of the rows, so that cross-validation needs no further pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats, global_rows
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.summaries.base import Summary, require_positive
from sketchselect.summaries.registry import register


@dataclass(frozen=True)
class FoldsRecord:
    """State of `Folds`: the summary of each fold, named by its number."""

    n_rows: int
    n_features: int
    members: Mapping[str, Summary[Any]]


@register
class Folds(Summary[FoldsRecord]):
    """One summary for each of n random folds of the rows; a row's fold depends on its global index and the seed alone.

    ``folds[i]`` is the summary of fold i, `total` that of all rows, and ``complement(i)`` that of all other folds (what
    to train on when fold i validates): all exact to rounding, for the merge of the inner summaries is.

    Parameters
    ----------
    summary : Summary
        Description of the inner summary, such as ``Moments()``.
    n_folds : int
        At least 2. A fold may turn out empty where there are few rows.
    seed : int
        Row i goes to fold ``floor(u n_folds)``, u being the uniform number keyed by seed and i.

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
    record_type = FoldsRecord

    def __init__(self, summary: Summary[Any], n_folds: int = 5, seed: int = 0) -> None:
        if not isinstance(summary, Summary):
            raise BadParameter(f"Folds needs the description of a summary, got {type(summary).__name__}")
        if summary.kind in ("folds", "decayed-moments"):
            reason = "their rows are told apart by time" if summary.kind == "decayed-moments" else "one level is enough"
            raise BadParameter(f"Folds cannot hold {summary.kind}: {reason}")
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise BadParameter(f"seed must be a whole number, got {type(seed).__name__}")
        self.summary = summary.describe()
        self.n_folds = require_positive("n_folds", n_folds, 2)
        self.seed = int(seed)

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"summary": self.summary, "n_folds": self.n_folds, "seed": self.seed}

    @property
    def accepts_missing(self) -> bool:
        """Whether the inner summary does."""
        return self.summary.accepts_missing

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of all folds."""
        return self.n_folds * self.summary.projected_nbytes(n_features, n_targets)

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return that of the inner summary: folds are made one after the other."""
        return self.summary.working_nbytes(n_features, n_targets)

    def with_context(self, *, prepare: tuple[str, ...], feature_names: tuple[str, ...] | None) -> Folds:
        """Return this summary and its folds labelled with prepare steps and feature names."""
        labelled = super().with_context(prepare=prepare, feature_names=feature_names)
        if self._record is None:
            return labelled
        members = {
            k: m.with_context(prepare=prepare, feature_names=feature_names) for k, m in self.record.members.items()
        }
        return labelled._with(FoldsRecord(self.n_rows, self.n_features, members), labelled.context)

    @classmethod
    def of_members(cls, members: Mapping[str, Summary[Any]], parameters: Mapping[str, Any]) -> Folds:
        """Return the folds whose members, named "0", "1", ..., are given: how a file is read."""
        parts = [members[str(i)] for i in range(len(members))]
        folds = cls(parts[0], **parameters)
        alike = all(p.describe() == folds.summary and p.n_features == parts[0].n_features for p in parts)
        if len(parts) != folds.n_folds or not alike:
            raise ValueError(f"{len(parts)} members do not make up {folds.n_folds} folds")
        record = FoldsRecord(sum(p.n_rows for p in parts), parts[0].n_features, dict(members))
        return folds._with(record, parts[0].context)

    def fold_of(self, rows: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the fold of each row, from its global index."""
        drawn = uniforms(derive_seed(self.seed, "fold"), rows)
        return np.floor(drawn * self.n_folds).astype(np.intp)

    def _targets(self, y: Any, n_rows: int) -> Any:
        return y

    def _empty(self, n_features: int, n_targets: int) -> FoldsRecord:
        members = {str(i): self.summary.empty(n_features, n_targets) for i in range(self.n_folds)}
        return FoldsRecord(0, n_features, members)

    def _summarise(self, block: Array, targets: Any, start: int | Array, weights: Floats | None) -> FoldsRecord:
        # Checked as a whole first, so that a message names the row of the block and not of a fold.
        self.summary._targets(targets, block.shape[0])
        labels = None if targets is None else np.asarray(targets)
        rows = global_rows(start, block.shape[0])
        folds = self.fold_of(rows)
        members: dict[str, Summary[Any]] = {}
        for i in range(self.n_folds):
            at = np.flatnonzero(folds == i)
            members[str(i)] = self.summary.from_block(
                block[at],
                None if labels is None else labels[at],
                start=rows[at].astype(np.int64),
                sample_weight=None if weights is None else weights[at],
            )
        return FoldsRecord(block.shape[0], block.shape[1], members)

    def _combine(self, left: FoldsRecord, right: FoldsRecord) -> FoldsRecord:
        members = {k: left.members[k].merge(right.members[k]) for k in left.members}
        return FoldsRecord(left.n_rows + right.n_rows, left.n_features, members)

    # --- answers -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.n_folds

    def __getitem__(self, index: int) -> Summary[Any]:
        if not -self.n_folds <= index < self.n_folds:
            raise IndexError(f"fold {index} of {self.n_folds}")
        return self.record.members[str(index % self.n_folds)]

    def __iter__(self) -> Iterator[Summary[Any]]:
        return (self[i] for i in range(self.n_folds))

    @property
    def total(self) -> Summary[Any]:
        """The summary of all rows."""
        return reduce(lambda a, b: a.merge(b), self)

    def complement(self, index: int) -> Summary[Any]:
        """Return the summary of all rows but those of one fold, by merging the others."""
        left_out = range(self.n_folds)[index]
        return reduce(lambda a, b: a.merge(b), (self[i] for i in range(self.n_folds) if i != left_out))

    @property
    def weight(self) -> Any:
        """Total weight of the rows, as the inner summary tells it."""
        return sum(fold.weight for fold in self)  # type: ignore[attr-defined]
