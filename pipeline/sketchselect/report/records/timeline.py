"""Record of a timeline: ranks of columns along the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sketchselect.errors import BadParameter
from sketchselect.report.records.shapes import require_shape


@dataclass(frozen=True, eq=False, kw_only=True)
class TimelineRecord:
    """The columns that rose and fell the most.

    Parameters
    ----------
    rows : array (n_points,) of int
        Index after the last row that counts at each point, ascending.
    n_selected : array (n_points,) of int
        Columns selected at each point.
    n_ever : int
        Columns selected at any point.
    n_always : int
        Columns selected at every point.
    names : sequence of str
        The columns shown: those that rose, farthest first, then those that fell, farthest first.
    n_risen : int
        How many of them rose.
    ranks : array (n_points, n_shown)
        Their ranks, 1 for the best score; NaN where a point has no scores.
    window : int or None
        Rows that count at each point; None for all since the first.
    half_life : float or None
        Rows after which a row counts half.

    Raises
    ------
    BadParameter
        Two fields contradict each other.
    """

    rows: ArrayLike
    n_selected: ArrayLike
    n_ever: int
    n_always: int
    names: Sequence[str]
    n_risen: int
    ranks: ArrayLike
    window: int | None = None
    half_life: float | None = None

    def __post_init__(self) -> None:
        """Refuse records whose parts do not fit together."""
        t, m = len(np.asarray(self.rows)), len(self.names)
        if t == 0:
            raise BadParameter("report: timeline has no points")
        require_shape("timeline.n_selected", self.n_selected, (t,))
        require_shape("timeline.ranks", self.ranks, (t, m))
        if not 0 <= self.n_risen <= m:
            raise BadParameter(f"report: timeline.n_risen is {self.n_risen} of {m} columns shown")
