"""Folds: one summary for each fold of the rows, for cross-validation without a further pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import Incompatible
from sketchselect.linalg.arrays import Array, Floats, global_rows, without_groups
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.validation import require_positive, require_seed
from sketchselect.summaries.base import Summary
from sketchselect.summaries.containers.base import MembersRecord
from sketchselect.summaries.containers.partitioned import PartitionedSummary
from sketchselect.summaries.registry import register


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
        Whether every row has a group, a number or text, beside its target (`readers.grouped`). Folds are as large as
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
        self.n_folds = require_positive("n_folds", n_folds, 2)
        self.seed = require_seed(seed)
        self.groups = bool(groups)

    def fold_of(self, rows: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the fold of each row, from its global index, or the word (`words_of`) of its group."""
        return np.floor(uniforms(derive_seed(self.seed, "fold"), rows) * self.n_folds).astype(np.intp)

    def _summarise(self, block: Array, targets: Any, start: int | Array, weights: Floats | None) -> MembersRecord:
        targets, groups = without_groups(targets)
        if self.groups != (groups is not None):
            cure = "need every row's group, as of readers.grouped" if self.groups else "are of rows; leave out groups"
            raise Incompatible(f"these folds {cure}")
        # Checked as a whole first, so that a message names the row of the block and not of a fold.
        self.summary._targets(targets, block.shape[0])
        y = None if targets is None else np.asarray(targets)
        rows = global_rows(start, block.shape[0]) if groups is None else groups
        return self._summarise_parts(block, y, start, weights, self.fold_of(rows))

    def details(self) -> Iterator[str]:
        """Yield the sizes of the folds, and the details of all rows."""
        sizes = [fold.n_rows for fold in self]
        yield f"{len(sizes)} folds of {min(sizes)} to {max(sizes)} rows"
        yield from self.total.details()

    def __len__(self) -> int:
        return self.n_folds
