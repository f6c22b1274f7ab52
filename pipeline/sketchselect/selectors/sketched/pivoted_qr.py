"""Pivoted QR of the sketch: columns that do not repeat each other."""

from __future__ import annotations

from typing import Any, ClassVar

from sketchselect.linalg.columns.pivoting import pivot_columns
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.selectors.selection import Selection
from sketchselect.selectors.sketched.directions import DirectionsSelector


class PivotedQRSelector(DirectionsSelector):
    """Select columns by QR with column pivoting of the top directions of the data.

    Each column chosen is the one farthest from the span of those before, in the space of the top m directions. When m
    columns span the directions, the columns with the largest norms outside of them follow, so any number can be chosen.
    A multiple of a column chosen before (``1 - r^2 <= 1e-13`` or what storing both in float32 makes of it, and the
    means; 2.4e-4 for moments of float32 rows) is chosen only when no other column is left. Deterministic: ties within
    rounding go to the lowest index.

    Parameters
    ----------
    n_components : int, optional
        Directions m. By default `n_features_to_select`, but at most half the rows of a sketch that is not exact. For
        texts and counts, whose weaker directions are single rows, the number of clusters is the better choice.

    Notes
    -----
    Guarantee: deterministic; no column is a multiple (to rounding) of one chosen before while another is left. No
    bound on a clustering: ask `certify`.

    `scores_` are ranks: n_features_to_select for the first column chosen down to 1 for the last; the others below 1/2,
    by their norms.

    Cost after the pass: 2 m p flops a column. Source: Businger and Golub 1965; on singular vectors, Drmac and Gugercin
    2016 (Q-DEIM).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.standard_normal((400, 2)) * [3.0, 1.0]
    >>> X = Z[:, [0, 0, 0, 1, 1]]
    >>> chosen = PivotedQRSelector(n_features_to_select=2, normalize=None).fit(X)
    >>> chosen.support_.tolist(), chosen.scores_.argsort()[::-1][:2].tolist()
    ([0, 3], [0, 3])
    """

    method: ClassVar[str] = "pivoted-qr"
    competes: ClassVar[int | None] = 2

    def __init__(
        self,
        n_features_to_select: float | None = None,
        n_components: int | None = None,
        sketch_size: int | None = None,
        normalize: str | None = "l2",
        half_life: float | None = None,
        window: int | None = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.normalize = normalize
        self.half_life = half_life
        self.window = window

    def _select(self, summary: Any, n_select: int) -> Selection:
        self.check_parameters()
        k = self._checked_components()
        if k is None:
            k = self._at_most_accurate(summary, n_select)
        factor = self._factor(summary, k)
        with one_blas_thread():
            pivots = pivot_columns(factor.columns, factor.unexplained, factor.copies.of, n_select)
        return self._result(summary, factor, pivots, n_select, n_components=k)
