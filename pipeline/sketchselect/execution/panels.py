"""Moments of wide matrices: the co-moment is computed in panels, so that no task holds the whole of it.

Above `TILED_ABOVE` columns a `Moments` in a description is replaced by `ComomentPanel`s, each of which is one ordinary
pass (same tree, same checkpoints, same bits on every engine). A panel is at most a sixteenth of the whole, so the
source is read at most ten times, whatever its width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sketchselect.errors import SourceChanged
from sketchselect.execution.run import PassStats, Reduced, source_identities
from sketchselect.execution.source import Source
from sketchselect.linalg.moments.panel import panel_edges
from sketchselect.summaries import Bundle, ComomentPanel, Moments, Summary
from sketchselect.summaries.moments.classes import n_class_targets
from sketchselect.summaries.moments.panel import assembled, fill_triangle

TILED_ABOVE = 5000
"""Columns (of features and targets together) above which the co-moment is computed in panels."""

PANEL_NBYTES = 128 * 2**20
"""Bytes of a panel, or a sixteenth of the co-moment where that is more."""

TILED_PARTITION_NBYTES = 128 * 2**20
"""Partition where none is asked for: merging a panel costs as much as some hundred rows do."""

Pass = Callable[..., Reduced[Any]]
"""``(description, part=, held=) -> reduced``: one ordinary pass; `part` names it, `held` are bytes held meanwhile."""


@dataclass(frozen=True)
class Tiling:
    """How a description is computed in several passes.

    Parameters
    ----------
    wide : mapping of str to Moments
        What is computed in panels, by member name.
    others : Summary or None
        What is computed in one pass of its own.
    edges : tuple of int
        Panel i holds rows ``edges[i]`` to ``edges[i + 1]`` of the co-moment.
    names : tuple of str or None
        The members of a bundle in order; None for a description that is no bundle.
    """

    wide: Mapping[str, Moments]
    others: Summary[Any] | None
    edges: tuple[int, ...]
    names: tuple[str, ...] | None

    def panels(self, of: Moments) -> list[ComomentPanel]:
        """Return the descriptions of the panels of one member."""
        return [ComomentPanel(a, b, of.classes) for a, b in zip(self.edges, self.edges[1:], strict=False)]


def tiling(description: Summary[Any], n_features: int, n_targets: int) -> Tiling | None:
    """Return how a description of so many columns is computed in panels; None where one pass does.

    A pure function of the description and the number of columns.
    """
    bundled = isinstance(description, Bundle)
    members = dict(description) if isinstance(description, Bundle) else {description.kind: description}
    wide = {name: m for name, m in members.items() if isinstance(m, Moments) and _is_plain(m)}
    width = n_features + max((_n_encoded(m, n_targets) for m in wide.values()), default=0)
    if not wide or width <= TILED_ABOVE:
        return None
    rest = {name: m for name, m in members.items() if name not in wide}
    edges = panel_edges(width, max(PANEL_NBYTES, width * width // 2))
    return Tiling(wide, Bundle(rest) if rest else None, edges, tuple(members) if bundled else None)


def summarize_in_panels(source: Source, plan: Tiling, n_targets: int, run: Pass) -> Reduced[Summary[Any]]:
    """Return what the description would be of one pass, to rounding, and the account of all passes together."""
    before = source_identities(source)
    held = 0
    done: dict[str, Summary[Any]] = {}
    accounts: list[PassStats] = []
    if plan.others is not None:
        reduced = run(plan.others, part="other members")
        accounts.append(reduced.stats)
        assert isinstance(reduced.value, Bundle)
        done.update(reduced.value)
    for name, moments in plan.wide.items():
        width = source.n_columns + _n_encoded(moments, n_targets)
        comoment = np.zeros((width, width))
        held += comoment.nbytes
        panels = plan.panels(moments)
        first: ComomentPanel | None = None
        for i, panel in enumerate(panels, 1):
            part = run(panel, part=f"columns {i}/{len(panels)}", held=held)
            accounts.append(part.stats)
            assert isinstance(part.value, ComomentPanel)
            fill_triangle(comoment, part.value)
            first = part.value if first is None else first
        assert first is not None  # there is at least one column
        done[name] = assembled(moments, first, comoment)
    if before != source_identities(source):
        raise SourceChanged(
            f"{source.matrix.address}: it was rewritten while it was read; run again when nobody writes to it"
        )
    account = _together(accounts)
    if plan.names is None:
        return Reduced(next(iter(done.values())), account)
    return Reduced(Bundle.of({name: done[name] for name in plan.names}), account)


def _is_plain(moments: Moments) -> bool:
    """Return whether the state is one co-moment of the columns as they are."""
    return (moments.method, moments.degree, moments.missing) == ("comoment", 1, None)


def _n_encoded(moments: Moments, n_targets: int) -> int:
    """Return the number of target columns, labels encoded."""
    return n_targets if moments.classes is None else n_class_targets(moments.classes)


def _together(accounts: list[PassStats]) -> PassStats:
    """Return the account of several passes over the same rows."""
    return replace(
        accounts[0],
        rows_read=max(a.rows_read for a in accounts),
        bytes_read=sum(a.bytes_read for a in accounts),
        seconds=sum(a.seconds for a in accounts),
        n_tasks=sum(a.n_tasks for a in accounts),
        n_resumed=sum(a.n_resumed for a in accounts),
        n_saved=sum(a.n_saved for a in accounts),
        worker_deaths=sum(a.worker_deaths for a in accounts),
        projected_nbytes=max(a.projected_nbytes for a in accounts),
    )
