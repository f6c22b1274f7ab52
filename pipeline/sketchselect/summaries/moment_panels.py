"""Wide moments: the co-moment in several summaries, so that no task needs the whole.

Above `PANELS_ABOVE` columns a `Moments` in a description is replaced by `ComomentPanel`s, each computed by one
ordinary pass (same tree, same checkpoints, same bits on every engine). A panel is at most a sixteenth of the whole,
so the source is read at most ten times, whatever its width. Wide sketches of sparse rows are in panels too, all
computed by one pass.

Gain, measured on 4,000 x 6,000 rows in memory, two threads, against one pass with the whole co-moment: 0.66 times the
memory above the rows (492 MiB, of which 275 are the result, against 741) and 0.75 times the time (9.2 s against
12.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, TypeGuard

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.comoments import comoment_panel, merge_means, panel_edges, piece_rows, sparse_panel
from sketchselect.linalg.validation import Array, Floats, is_csr, require_positive
from sketchselect.summaries.base import Summary, as_classes, register
from sketchselect.summaries.containers import Bundle
from sketchselect.summaries.frequent_directions import FrequentDirections
from sketchselect.summaries.moment_forms import MomentsRecord, count_weightless
from sketchselect.summaries.moments import ClassTargets, Moments, n_class_targets


@dataclass(frozen=True)
class ComomentPanelRecord:
    """State of `ComomentPanel`; the last `n_targets` entries of the mean are those of the targets."""

    n_rows: int
    n_targets: int
    weight: float
    squared_weight: float
    mean: Floats
    comoment: Floats
    n_weightless: int = 0  # Rows of weight 0, which `n_rows` counts

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
    format_version = 2
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
        weightless = count_weightless(weights) or 0
        return ComomentPanelRecord(block.shape[0], targets.shape[1], weight, squared, mean, comoment, weightless)

    def _combine(self, left: ComomentPanelRecord, right: ComomentPanelRecord) -> ComomentPanelRecord:
        weight, mean, difference, factor = merge_means(left.weight, left.mean, right.weight, right.mean)
        rows = self._rows(len(mean))
        comoment = np.outer(factor * difference[rows], difference[rows.start :])
        comoment += left.comoment
        comoment += right.comoment
        squared = left.squared_weight + right.squared_weight
        weightless = left.n_weightless + right.n_weightless
        n_rows = left.n_rows + right.n_rows
        return ComomentPanelRecord(n_rows, left.n_targets, weight, squared, mean, comoment, weightless)

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


def moments_of_panels(moments: Moments, first: ComomentPanel, comoment: Floats) -> Moments:
    """Return `moments` of the rows of the panel `first`, with the co-moment assembled from all panels (not copied)."""
    panel = first.record
    record = MomentsRecord(
        panel.n_rows,
        panel.n_targets,
        panel.weight,
        panel.squared_weight,
        panel.mean,
        comoment=comoment,
        n_weightless=panel.n_weightless or None,
    )
    return moments._with(record, first.context)


def fill_triangle(comoment: Floats, panel: ComomentPanel) -> None:
    """Write a panel into its rows of `comoment` (d, d), in place, and mirror it below the diagonal."""
    a, b = panel.first, panel.first + panel.comoment.shape[0]
    comoment[a:b, a:] = panel.comoment
    comoment[b:, a:b] = panel.comoment[:, b - a :].T
    for i in range(a, b - 1):
        comoment[i + 1 : b, i] = comoment[i, i + 1 : b]


PANELS_ABOVE = 5000
"""Columns (of features and targets together) above which the co-moment is computed in panels."""

PANEL_NBYTES = 128 * 2**20
"""Bytes of a panel, or a sixteenth of the co-moment where that is more."""

PANEL_PARTITION_NBYTES = 128 * 2**20
"""Partition where none is asked for: merging a panel costs as much as some hundred rows do."""


def is_wide_sketch(description: Summary[Any], n_features: int) -> TypeGuard[FrequentDirections]:
    """Return whether a description is a sketch so wide that a pass over sparse rows keeps it in panels of columns."""
    return isinstance(description, FrequentDirections) and description.column_panels(n_features) is not None


def _members(description: Summary[Any]) -> dict[str, Summary[Any]]:
    return dict(description) if isinstance(description, Bundle) else {description.kind: description}


def split_in_passes(
    description: Summary[Any], n_features: int, n_targets: int, *, sparse: bool = False
) -> dict[str | None, list[Summary[Any]]]:
    """Return what each pass of a description of `n_features` columns summarises, by the member that it is for.

    A wide `Moments` takes a pass for each panel, a wide sketch of `sparse` rows in a bundle one; None stands for all
    other members, which take one together. ``{None: [description]}`` where one pass does all.
    """
    members = _members(description)
    wide = {name: m for name, m in members.items() if isinstance(m, Moments) and m.has_panels}
    width = n_features + max((_n_encoded(m, n_targets) for m in wide.values()), default=0)
    if width <= PANELS_ABOVE:
        wide = {}
    bundled = isinstance(description, Bundle)
    sketches = {name: m for name, m in members.items() if sparse and bundled and is_wide_sketch(m, n_features)}
    if not wide and not sketches:
        return {None: [description]}
    others = {name: m for name, m in members.items() if name not in wide and name not in sketches}
    edges = panel_edges(width, max(PANEL_NBYTES, width * width // 2)) if wide else ()
    passes: dict[str | None, list[Summary[Any]]] = {None: [Bundle(others)]} if others else {}
    for name, moments in wide.items():
        passes[name] = [ComomentPanel(a, b, moments.classes) for a, b in pairwise(edges)]
    return passes | {name: [sketch] for name, sketch in sketches.items()}


def assemble(
    description: Summary[Any],
    passes: Mapping[str | None, Sequence[Summary[Any]]],
    n_columns: int,
    n_targets: int,
    values: Iterable[Summary[Any]],
) -> Summary[Any]:
    """Return the summary from those of its passes (`split_in_passes`), which `values` yields in order."""
    values, described = iter(values), _members(description)
    if [*passes] == [None]:
        return next(values)
    members: dict[str, Summary[Any]] = {}
    for name, descriptions in passes.items():
        if name is None:
            others = next(values)
            assert isinstance(others, Bundle)
            members.update(others)
            continue
        moments = described[name]
        if not isinstance(moments, Moments):
            members[name] = next(values)
            continue
        width = n_columns + _n_encoded(moments, n_targets)
        comoment = np.zeros((width, width))
        first: ComomentPanel | None = None
        for panel in islice(values, len(descriptions)):
            assert isinstance(panel, ComomentPanel)
            fill_triangle(comoment, panel)
            first = panel if first is None else first
        assert first is not None  # there is at least one column
        members[name] = moments_of_panels(moments, first, comoment)
    if not isinstance(description, Bundle):
        return members[description.kind]
    return Bundle.of({name: members[name] for name in described})


def _n_encoded(moments: Moments, n_targets: int) -> int:
    """Return the number of target columns, labels encoded."""
    return n_targets if moments.classes is None else n_class_targets(moments.classes)
