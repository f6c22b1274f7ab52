"""ComomentPanel: some rows of the co-moment of `Moments`, for matrices too wide for the whole co-moment in a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.moments.comoments import merge_means
from sketchselect.linalg.moments.panel import comoment_panel, piece_rows
from sketchselect.linalg.moments.sparse import sparse_panel
from sketchselect.linalg.sparse.csr import is_csr
from sketchselect.linalg.validation import require_positive
from sketchselect.summaries.moments.base import ClassTargets
from sketchselect.summaries.moments.classes import as_classes
from sketchselect.summaries.moments.forms import MomentsRecord
from sketchselect.summaries.moments.moments import Moments
from sketchselect.summaries.registry import register


@dataclass(frozen=True)
class ComomentPanelRecord:
    """State of `ComomentPanel`; the last `n_targets` entries of the mean are those of the targets."""

    n_rows: int
    n_targets: int
    weight: float
    squared_weight: float
    mean: Floats
    comoment: Floats

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.mean.shape[0]) - self.n_targets


@register
class ComomentPanel(ClassTargets[ComomentPanelRecord]):
    """Rows `first` to `stop` of the centred co-moment of z = [x, y], from the diagonal to the right.

    The state is ``C_ij = sum w (z_i - mean_i)(z_j - mean_j)`` for ``first <= i < stop`` and ``j >= first``, and all
    means. The panels of consecutive columns are the upper triangle of the co-moment of `Moments`; a pass over a wide
    matrix computes them one after the other. Merged like `Moments`, with the same error.

    Parameters
    ----------
    first, stop : int
        Range of columns of [x, y], targets last; columns beyond the last are empty.
    classes : sequence of str, int, bool or float, optional
        The labels in y, as in `Moments`.

    Notes
    -----
    Cost a row: (stop - first) (d - first) multiply-adds, d = p + q. Bytes: 8 (stop - first) (d - first).
    Source: Chan, Golub and LeVeque 1983, eq. 2.1.

    Examples
    --------
    >>> import numpy as np
    >>> s = ComomentPanel(1, 2).from_block(np.arange(9.0).reshape(3, 3) ** 2)
    >>> s.comoment.round(6).tolist()
    [[1206.0, 1494.0]]
    """

    kind = "comoment-panel"
    record_type = ComomentPanelRecord
    accepts_sparse = True

    def __init__(self, first: int, stop: int, classes: Sequence[Any] | Array | None = None) -> None:
        self.first = require_positive("first", first, least=0)
        self.stop = require_positive("stop", stop)
        if self.stop <= self.first:
            raise BadParameter(f"stop must be above first, got {first} and {stop}")
        self.classes = as_classes(classes)

    def _rows(self, width: int) -> slice:
        return slice(min(self.first, width), min(self.stop, width))

    def _shape(self, width: int) -> tuple[int, int]:
        rows = self._rows(width)
        return rows.stop - rows.start, width - rows.start

    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the bytes of one state."""
        d = sum(self._n_joint(n_features, n_targets))
        height, length = self._shape(d)
        return 8 * (height * length + d) + 64

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return the extra bytes of one `from_block` or `merge`: a panel and a piece of centred rows."""
        d = sum(self._n_joint(n_features, n_targets))
        height, length = self._shape(d)
        return 8 * (height * length + piece_rows(length) * length + 4 * d)

    def _empty(self, n_features: int, n_targets: int) -> ComomentPanelRecord:
        d = sum(self._n_joint(n_features, n_targets))
        return ComomentPanelRecord(0, d - n_features, 0.0, 0.0, np.zeros(d), np.zeros(self._shape(d)))

    def _summarise(
        self, block: Any, targets: Floats, start: int | Array, weights: Floats | None
    ) -> ComomentPanelRecord:
        rows = self._rows(block.shape[1] + targets.shape[1])
        if is_csr(block):
            weight, mean, _, comoment = sparse_panel(block, weights, start, targets, rows.start, rows.stop)
            square = comoment[:, : comoment.shape[0]]
            square[...] = np.triu(square) + np.triu(square, 1).T
        else:
            weight, mean, comoment = comoment_panel(block, targets, rows, weights, start)
        squared = float(block.shape[0]) if weights is None else float(weights @ weights)
        return ComomentPanelRecord(block.shape[0], targets.shape[1], weight, squared, mean, comoment)

    def _combine(self, left: ComomentPanelRecord, right: ComomentPanelRecord) -> ComomentPanelRecord:
        weight, mean, difference, factor = merge_means(left.weight, left.mean, right.weight, right.mean)
        rows = self._rows(len(mean))
        comoment = np.outer(factor * difference[rows], difference[rows.start :])
        comoment += left.comoment
        comoment += right.comoment
        squared = left.squared_weight + right.squared_weight
        return ComomentPanelRecord(left.n_rows + right.n_rows, left.n_targets, weight, squared, mean, comoment)

    # --- answers -----------------------------------------------------------------------------------------------

    @property
    def weight(self) -> float:
        """Total weight of the rows."""
        return self.record.weight

    @property
    def mean(self) -> Floats:
        """Means of the features, shape (n_features,)."""
        return self.record.mean[: self.n_features]

    @property
    def comoment(self) -> Floats:
        """The rows of the co-moment, shape (stop - first, d - first)."""
        return self.record.comoment


def assembled(moments: Moments, first: ComomentPanel, comoment: Floats) -> Moments:
    """Return `moments` of the rows of the panel `first`, with the co-moment assembled from all panels (not copied)."""
    panel = first.record
    record = MomentsRecord(
        panel.n_rows, panel.n_targets, panel.weight, panel.squared_weight, panel.mean, comoment=comoment
    )
    return moments._with(record, first.context)


def fill_triangle(comoment: Floats, panel: ComomentPanel) -> None:
    """Write a panel into its rows of `comoment` (d, d), in place, and mirror it below the diagonal."""
    a, b = panel.first, panel.first + panel.comoment.shape[0]
    comoment[a:b, a:] = panel.comoment
    comoment[b:, a:b] = panel.comoment[:, b - a :].T
    for i in range(a, b - 1):
        comoment[i + 1 : b, i] = comoment[i, i + 1 : b]
