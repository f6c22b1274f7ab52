"""Panels: the co-moment of wide moments in several summaries, so that no task needs the whole of it.

Above `PANELS_ABOVE` columns a `Moments` in a description is replaced by `ComomentPanel`s, each of which is made by one
ordinary pass (same tree, same checkpoints, same bits on every engine). A panel is at most a sixteenth of the whole, so
the source is read at most ten times, whatever its width. Wide sketches of sparse rows are in panels as well, all of
which one pass makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.linalg.moments.panel import panel_edges
from sketchselect.summaries.base import Summary
from sketchselect.summaries.containers.bundle import Bundle
from sketchselect.summaries.moments.classes import n_class_targets
from sketchselect.summaries.moments.moments import Moments
from sketchselect.summaries.moments.panel import ComomentPanel, assembled, fill_triangle
from sketchselect.summaries.sketch.frequent_directions import FrequentDirections

PANELS_ABOVE = 5000
"""Columns (of features and targets together) above which the co-moment is computed in panels."""

PANEL_NBYTES = 128 * 2**20
"""Bytes of a panel, or a sixteenth of the co-moment where that is more."""

PANEL_PARTITION_NBYTES = 128 * 2**20
"""Partition where none is asked for: merging a panel costs as much as some hundred rows do."""


@dataclass(frozen=True)
class Panels:
    """A description computed in several passes: `wide` moments in one for each panel, each of `sketches`, which is in
    panels too, in one, and all `others` in one.

    Panel i holds rows ``edges[i]`` to ``edges[i + 1]`` of the co-moment; `names` are the members of a bundle in order.
    """

    wide: Mapping[str, Moments]
    sketches: Mapping[str, Summary[Any]]
    others: Summary[Any] | None
    edges: tuple[int, ...]
    names: tuple[str, ...] | None

    def of(self, moments: Moments) -> list[ComomentPanel]:
        """Return the descriptions of the panels of one member."""
        return [ComomentPanel(a, b, moments.classes) for a, b in zip(self.edges, self.edges[1:], strict=False)]

    def descriptions(self) -> list[Summary[Any]]:
        """Return what each pass summarises, in the order of `assemble`."""
        others = [] if self.others is None else [self.others]
        panels = (panel for moments in self.wide.values() for panel in self.of(moments))
        return [*others, *panels, *self.sketches.values()]


def is_wide_sketch(description: Summary[Any], n_features: int) -> bool:
    """Return whether a description is a sketch so wide that a pass over sparse rows keeps it in panels of columns."""
    return isinstance(description, FrequentDirections) and description.column_panels(n_features) is not None


def make_panels(description: Summary[Any], n_features: int, n_targets: int, *, sparse: bool = False) -> Panels | None:
    """Return how a description of `n_features` columns is computed in panels; None where one pass does.

    A pure function of the description, the number of columns and whether blocks are sparse.
    """
    bundled = isinstance(description, Bundle)
    members = dict(description) if isinstance(description, Bundle) else {description.kind: description}
    wide = {name: m for name, m in members.items() if isinstance(m, Moments) and m.has_panels}
    width = n_features + max((_n_encoded(m, n_targets) for m in wide.values()), default=0)
    if width <= PANELS_ABOVE:
        wide = {}
    sketches = {name: m for name, m in members.items() if sparse and bundled and is_wide_sketch(m, n_features)}
    if not wide and not sketches:
        return None
    others = {name: m for name, m in members.items() if name not in wide and name not in sketches}
    edges = panel_edges(width, max(PANEL_NBYTES, width * width // 2)) if wide else (0, width)
    return Panels(wide, sketches, Bundle(others) if others else None, edges, tuple(members) if bundled else None)


def assemble(
    panels: Panels, n_columns: int, n_targets: int, value: Callable[[Summary[Any], str, int], Summary[Any]]
) -> Summary[Any]:
    """Return the summary from those of its parts; ``value(description, part, bytes so far)`` gives them in order."""
    nbytes = 0
    members: dict[str, Summary[Any]] = {}
    if panels.others is not None:
        others = value(panels.others, "other members", 0)
        assert isinstance(others, Bundle)
        members.update(others)
    for name, moments in panels.wide.items():
        width = n_columns + _n_encoded(moments, n_targets)
        comoment = np.zeros((width, width))
        nbytes += comoment.nbytes
        descriptions = panels.of(moments)
        first: ComomentPanel | None = None
        for i, description in enumerate(descriptions, 1):
            panel = value(description, f"columns {i}/{len(descriptions)}", nbytes)
            assert isinstance(panel, ComomentPanel)
            fill_triangle(comoment, panel)
            first = panel if first is None else first
        assert first is not None  # there is at least one column
        members[name] = assembled(moments, first, comoment)
    for name, sketch in panels.sketches.items():
        members[name] = value(sketch, "the sketch, in panels of columns", nbytes)
        nbytes += members[name].nbytes
    if panels.names is None:
        return next(iter(members.values()))
    return Bundle.of({name: members[name] for name in panels.names})


def _n_encoded(moments: Moments, n_targets: int) -> int:
    """Return the number of target columns, labels encoded."""
    return n_targets if moments.classes is None else n_class_targets(moments.classes)
