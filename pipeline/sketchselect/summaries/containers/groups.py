"""Groups: one summary for each group of rows that a label names, such as the batches of an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadBlock, BadParameter
from sketchselect.linalg.arrays import Array, Floats, global_rows
from sketchselect.summaries.base import Summary
from sketchselect.summaries.containers.partitioned import PartitionedSummary, PartsRecord
from sketchselect.summaries.moments.classes import as_classes
from sketchselect.summaries.registry import register


@register
class Groups(PartitionedSummary):
    """One summary for each group of rows; the target holds the group of each row.

    ``groups[i]`` is the summary of the rows labelled ``labels[i]`` and `total` that of all rows: exact wherever the
    merge of the inner summaries is.

    Parameters
    ----------
    summary : Summary
        Description of the inner summary, such as ``TopValues()``.
    labels : sequence
        Every label there may be, at least two; all text or all numbers.

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
        self.summary = self._inner(summary, "Groups")
        found = as_classes(labels)
        if found is None:
            raise BadParameter("Groups needs the labels of the groups")
        self.labels = found

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"summary": self.summary, "labels": self.labels}

    def __len__(self) -> int:
        return len(self.labels)

    def group_of(self, y: Any, n_rows: int) -> NDArray[np.intp]:
        """Return the number of the group of each row.

        Raises
        ------
        BadBlock
            If rows have no label, or one that is not among the groups', naming the first such row.
        """
        if y is None:
            raise BadBlock("groups need a label for every row; pass y")
        given = np.asarray(y)
        given = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
        if given.shape != (n_rows,):
            raise BadBlock(f"the labels of the groups have shape {given.shape}, the block has {n_rows} rows")
        groups = np.full(n_rows, -1, dtype=np.intp)
        for i, label in enumerate(self.labels):
            groups[given == label] = i
        unknown = np.flatnonzero(groups < 0)
        if unknown.size:
            raise BadBlock(
                f"the label of row {int(unknown[0])} of the block is none of the {len(self)} groups' "
                f"({unknown.size} such rows); give every label that occurs"
            )
        return groups

    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> PartsRecord:
        rows, groups = global_rows(start, block.shape[0]), self.group_of(targets, block.shape[0])
        members: dict[str, Summary[Any]] = {}
        for i in range(len(self)):
            at = np.flatnonzero(groups == i)
            members[str(i)] = self.summary.from_block(
                block[at],
                start=rows[at].astype(np.int64),
                sample_weight=None if weights is None else weights[at],
            )
        return PartsRecord(block.shape[0], block.shape[1], members)
