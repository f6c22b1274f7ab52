"""A sliding window over a stream, for any summary: the states of runs of rows, kept in a dyadic tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.errors import BadParameter, NoData
from sketchselect.summaries.base import Summary, require_positive

S = TypeVar("S", bound=Summary[Any])

PANES = 32
"""Panes in a window, unless asked for otherwise."""


@dataclass(frozen=True, eq=False)
class SlidingWindow(Generic[S]):
    """The summary of the last rows of a stream, fed with batches of any size; a value, like a summary.

    Rows are cut into panes of `pane_rows` rows by their index in the stream, whatever the batches were; two full panes
    side by side are merged into a node, two such nodes into one above, and so on. The summary of any run of panes in
    the window is the merge of at most 2 log2(n_panes) + 1 nodes: exact for moments, within its guarantee for a sketch,
    of exactly the rows from `start` to `end`.

    Which rows those are is exact to a pane: the last `rows` of them, and those before in the same pane (fewer than
    `pane_rows`). ``pane_rows=1`` makes it exact to the row, at one state for each row.

    Parameters
    ----------
    description : Summary
        What to summarise.
    rows : int
        Rows that count, at least.
    pane_rows : int, optional
        Rows of a pane; a 32nd of `rows` by default.

    Notes
    -----
    Cost a pane: its summary and one merge, on average; a query, O(log n_panes) merges. Bytes: at most 2 n_panes + 4
    states. Source: the dyadic intervals of Datar, Gionis, Indyk and Motwani 2002, here with nothing approximated.

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
            raise BadParameter("a window needs the description of a summary (for example Moments()), not one of data")
        rows = require_positive("rows", self.rows)
        pane = max(1, rows // PANES) if self.pane_rows is None else require_positive("pane_rows", self.pane_rows)
        if pane > rows:
            raise BadParameter(f"pane_rows ({pane}) must be at most rows ({rows}), the length of the window")
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "pane_rows", pane)

    @property
    def _pane(self) -> int:
        return cast(int, self.pane_rows)

    @property
    def start(self) -> int:
        """Index in the stream of the first row that counts."""
        return max(self.end - self.rows, 0) // self._pane * self._pane

    @property
    def n_states(self) -> int:
        """Number of states held."""
        return len(self._nodes) + (self._open is not None)

    def update(self, X: ArrayLike, y: Any = None, *, sample_weight: ArrayLike | None = None) -> SlidingWindow[S]:
        """Return the window after a batch of rows more; the batch may have any number of rows.

        Raises
        ------
        BadBlock, NotFinite, Incompatible
            As in `Summary.update`; the window is as it was.
        """
        values: Any = X if hasattr(X, "shape") else np.asarray(X)
        targets = None if y is None else np.asarray(y)
        weights = None if sample_weight is None else np.asarray(sample_weight)
        nodes, state, end = dict(self._nodes), self._open, self.end
        n = values.shape[0]
        # Rows that would be out of the window at once are looked at only as far as the first pane that counts.
        at = max(0, (max(end + n - self.rows, 0) // self._pane * self._pane) - end)
        if at:
            nodes, state = {}, None
        while at < n:
            stop = min(n, at + self._pane - (end + at) % self._pane)
            part = self.description.from_block(
                values[at:stop],
                None if targets is None else targets[at:stop],
                start=end + at,
                sample_weight=None if weights is None else weights[at:stop],
            )
            state = part if state is None else state.merge(part)
            at = stop
            if (end + at) % self._pane == 0:
                _settle(nodes, (0, (end + at) // self._pane - 1), state)
                state = None
        done = replace(self)
        first = max(end + n - self.rows, 0) // self._pane
        kept = {node: s for node, s in nodes.items() if node[1] << node[0] >= first}
        for name, value in (("end", end + n), ("_nodes", kept), ("_open", state)):
            object.__setattr__(done, name, value)
        return done

    def summary(self, rows: int | None = None) -> S:
        """Return the summary of the window, or of the last `rows` of it (rounded up to whole panes).

        Raises
        ------
        NoData
            If there are no rows yet.
        BadParameter
            For more rows than the window has.
        """
        if self.end == 0:
            raise NoData("the window has seen no rows yet; use update")
        wanted = self.rows if rows is None else require_positive("rows", rows)
        if wanted > self.rows:
            raise BadParameter(f"the window holds {self.rows} rows, {wanted} were asked for")
        place, stop = max(self.end - wanted, 0) // self._pane, self.end // self._pane
        found: S | None = None
        while place < stop:
            level = 0
            while (
                place % (2 << level) == 0
                and place + (2 << level) <= stop
                and (level + 1, place >> level + 1) in self._nodes
            ):
                level += 1
            node = self._nodes[level, place >> level]
            found = node if found is None else found.merge(node)
            place += 1 << level
        if self._open is not None:
            found = self._open if found is None else found.merge(self._open)
        assert found is not None
        return found


def _settle(nodes: dict[tuple[int, int], S], node: tuple[int, int], state: S) -> None:
    """Put a full pane into the tree, and every node above that is full with it."""
    nodes[node] = state
    level, place = node
    while place % 2 and (level, place - 1) in nodes:
        state = nodes[level, place - 1].merge(state)
        level, place = level + 1, place // 2
        nodes[level, place] = state
