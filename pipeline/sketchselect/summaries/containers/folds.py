"""Folds: one summary for each fold of the rows, so that cross-validation needs no further pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats, global_rows
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.summaries.base import Summary, require_positive
from sketchselect.summaries.containers.partitioned import PartitionedSummary, PartsRecord
from sketchselect.summaries.registry import register


@register
class Folds(PartitionedSummary):
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

    def __init__(self, summary: Summary[Any], n_folds: int = 5, seed: int = 0) -> None:
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise BadParameter(f"seed must be a whole number, got {type(seed).__name__}")
        self.summary = self._inner(summary, "Folds")
        self.n_folds = require_positive("n_folds", n_folds, 2)
        self.seed = int(seed)

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"summary": self.summary, "n_folds": self.n_folds, "seed": self.seed}

    def fold_of(self, rows: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the fold of each row, from its global index."""
        drawn = uniforms(derive_seed(self.seed, "fold"), rows)
        return np.floor(drawn * self.n_folds).astype(np.intp)

    def _summarise(self, block: Array, targets: Any, start: int | Array, weights: Floats | None) -> PartsRecord:
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
        return PartsRecord(block.shape[0], block.shape[1], members)

    def __len__(self) -> int:
        return self.n_folds
