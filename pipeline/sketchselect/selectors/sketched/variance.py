"""Selection by variance: the baseline to compare every other method with."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.selection import Selection, rank
from sketchselect.summaries import ColumnStats, Summary


class VarianceSelector(BaseSelector):
    """Select the columns of largest variance.

    Exact: variances come from merged centred sums, so a large mean costs no digits; a constant column scores exactly 0.

    Notes
    -----
    Guarantee: the exact order of variances; the objective of k-means in all columns is at most that in the selected
    ones plus the sums of squares, about their means, of those left out.
    Cost after the pass: a sort of p numbers.

    Examples
    --------
    >>> import numpy as np
    >>> X = 1e8 + np.array([[0.0, 3, 1], [0, -3, 2], [0, 3, 3]])
    >>> VarianceSelector(n_features_to_select=1).fit(X).support_.tolist()
    [1]
    """

    method: ClassVar[str] = "variance"
    competes: ClassVar[int | None] = 6
    is_nested: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("column-stats", "frequent-directions", "moments")

    def __init__(self, n_features_to_select: float | None = None, normalize: str | None = None) -> None:
        self.n_features_to_select = n_features_to_select
        self.normalize = normalize

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the column statistics."""
        return ColumnStats()

    def _select(self, summary: Any, n_select: int) -> Selection:
        if isinstance(summary, ColumnStats):
            scores = summary.variance
        else:
            scores = summary.centered_column_squared_norms / max(summary.weight, np.finfo(float).tiny)
        return Selection(
            method=self.method,
            support=np.sort(rank(scores)[:n_select]),
            scores=scores,
            feature_names=summary.feature_names,
            parameters={"n_features_to_select": n_select, "normalize": self._normalized(summary)},
        )
