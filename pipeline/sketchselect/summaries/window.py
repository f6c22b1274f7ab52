"""SlidingWindow: the summary of the last rows of a stream, from a dyadic tree of summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.errors import BadParameter, NoData
from sketchselect.linalg.validation import require_positive
from sketchselect.summaries.base import Summary

S = TypeVar("S", bound=Summary[Any])

PANES = 32
"""Default number of panes in a window."""


@dataclass(frozen=True, eq=False)
class SlidingWindow(Generic[S]):
    """The summary of the last rows of a stream, updated by batches of any size; an immutable value, like a summary.

    The stream is divided into panes of `pane_rows` rows, for any batches; two adjacent full panes are merged into a
    node, two such nodes into one above, and so on. The summary of consecutive panes is the merge of at most
    2 log2(n_panes) + 1 nodes: exact for moments, within its guarantee for a sketch, of exactly the rows from `start` to
    `end`.

    These are the last `rows` rows and the earlier ones of the same pane (fewer than `pane_rows`). With ``pane_rows=1``
    the window is exact to the row, at one state for each row.

    Parameters
    ----------
    description : Summary
        The summary to collect.
    rows : int
        Least number of rows in the window.
    pane_rows : int, optional
        Rows of a pane; a 32nd of `rows` by default.

    Notes
    -----
    Cost per pane: its summary and one merge, on average; per query, O(log n_panes) merges. Bytes: at most 2 n_panes + 4
    states. Source: the dyadic intervals of Datar, Gionis, Indyk and Motwani 2002, without their approximation.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.summaries import Moments
    >>> window = SlidingWindow(Moments(), rows=4, pane_rows=2)
    >>> for x in np.arange(9.0):
    ...     window = window.update([[x]])
    >>> window.start, window.end, window.summary().mean.tolist()
    (4, 9, [6.0])
    """

    description: S
    rows: int
    pane_rows: int | None = None
    end: int = field(default=0, init=False)
    _nodes: Mapping[tuple[int, int], S] = field(default_factory=dict, init=False, repr=False)
    _open: S | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.description, Summary) or self.description.has_data:
            raise BadParameter("a window needs the description of a summary, for example Moments(), without data")
        rows = require_positive("rows", self.rows)
        pane = max(1, rows // PANES) if self.pane_rows is None else require_positive("pane_rows", self.pane_rows)
        if pane > rows:
            raise BadParameter(f"pane_rows ({pane}) must be at most rows ({rows})")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "pane_rows", pane)

    @property
    def _pane(self) -> int:
        return cast(int, self.pane_rows)

    @property
    def start(self) -> int:
        """Index in the stream of the first row of the window."""
        return max(self.end - self.rows, 0) // self._pane * self._pane

    def update(self, X: ArrayLike, y: Any = None, *, sample_weight: ArrayLike | None = None) -> SlidingWindow[S]:
        """Return the window after a further batch of any number of rows.

        Raises
        ------
        BadBlock, NotFinite, Incompatible
            As in `Summary.update`; the window does not change.
        """
        values: Any = X if hasattr(X, "shape") else np.asarray(X)
        targets = None if y is None else np.asarray(y)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        nodes, state, end = dict(self._nodes), self._open, self.end
        n = values.shape[0]
        # Rows before the first pane of the new window are not summarised.
        at = max(0, (max(end + n - self.rows, 0) // self._pane * self._pane) - end)
        if at:
            nodes, state = {}, None
        while at < n:
            stop = min(n, at + self._pane - (end + at) % self._pane)
            part_y, part_w = (None if array is None else array[at:stop] for array in (targets, weights))
            part = self.description.from_block(values[at:stop], part_y, start=end + at, sample_weight=part_w)
            state = part if state is None else state.merge(part)
            at = stop
            if (end + at) % self._pane == 0:
                _settle(nodes, (0, (end + at) // self._pane - 1), state)
                state = None
        done = replace(self)
        first = max(end + n - self.rows, 0) // self._pane
        current = {node: s for node, s in nodes.items() if node[1] << node[0] >= first}
        for name, value in (("end", end + n), ("_nodes", current), ("_open", state)):
            object.__setattr__(done, name, value)
        return done

    def summary(self, rows: int | None = None) -> S:
        """Return the summary of the window, or of its last `rows` rows (rounded up to whole panes).

        Raises
        ------
        NoData
            Before the first row.
        BadParameter
            If `rows` exceeds the length of the window.
        """
        if self.end == 0:
            raise NoData("the window has seen no rows yet; use update")
        length = self.rows if rows is None else require_positive("rows", rows)
        if length > self.rows:
            raise BadParameter(f"rows ({length}) must be at most {self.rows}, the length of the window")
        place, stop = max(self.end - length, 0) // self._pane, self.end // self._pane
        merged: S | None = None
        while place < stop:
            level = 0
            while (
                place % (2 << level) == 0
                and place + (2 << level) <= stop
                and (level + 1, place >> level + 1) in self._nodes
            ):
                level += 1
            node = self._nodes[level, place >> level]
            merged = node if merged is None else merged.merge(node)
            place += 1 << level
        if self._open is not None:
            merged = self._open if merged is None else merged.merge(self._open)
        assert merged is not None
        return merged


def _settle(nodes: dict[tuple[int, int], S], node: tuple[int, int], state: S) -> None:
    """Add a full pane to the tree, and the nodes above that it completes."""
    nodes[node] = state
    level, place = node
    while place % 2 and (level, place - 1) in nodes:
        state = nodes[level, place - 1].merge(state)
        level, place = level + 1, place // 2
        nodes[level, place] = state
