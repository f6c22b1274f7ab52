"""Greedy column subset selection on a sketch, with a model of the noise of the columns.

Pivoted QR of the sketch: columns that do not repeat each other.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.pivoting import greedy_columns, pivot_columns
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.selectors.directions import DirectionsSelector
from sketchselect.selectors.selection import Selection

COMPONENTS = 40
"""Directions by default: enough for the structure of images, few enough to leave out the noise of texts and counts."""


class GreedySelector(DirectionsSelector):
    """Select, one by one, the columns from which all columns can be predicted best.

    The top m directions of the sketch are each column's signal, and the remainder of its (exact) norm is its noise.
    Each column chosen lowers the expected squared error of predicting the signal of *all* columns from the chosen ones
    the most. A column that nothing else resembles, or that is mostly noise, comes late. A multiple of a column chosen
    before (``1 - r^2 <= 1e-13`` or what storing both in float32 makes of it, and the means; 2.4e-4 for moments of
    float32 rows) is chosen only when no other column is left. The best, or near it, on images, texts and counts, with
    the same defaults (`tests/benchmarks/papers/selection_comparison.py`). Deterministic: ties go to the larger column,
    then to the lowest index.

    Parameters
    ----------
    n_components : int, optional
        Directions m; min(40, n_features // 2) by default, but at most half the rows of a sketch that is not exact.
    noise : "residual" or None, default "residual"
        "residual": the noise of a column is its squared norm outside the directions, plus the mean of that over all
        columns. None: no noise, which is greedy column subset selection of the sketch; once its columns span the
        directions, the columns with the largest norms outside of them follow.

    Notes
    -----
    Guarantee: deterministic; no column is a multiple (to rounding) of one chosen before while another is left. No
    bound on a clustering: ask `certify`.

    `scores_` are ranks: n_features_to_select for the first column chosen down to 1 for the last; the others below 1/2,
    by their norms. The selection of fewer columns is the beginning of that of more.

    Cost after the pass: 4 m p flops a column for the first 128 columns, then usually far less: most gains are known to
    be too small without being computed, by a bound that includes rounding. Source: Farahat, Ghodsi and Kamel 2013
    (greedy column subset selection); the noise makes the choice that of Bayesian A-optimal design in the factor model
    ``A'A = C'C + diag(noise)``.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.standard_normal((400, 2))
    >>> X = Z[:, [0, 0, 0, 1, 1]] + 0.1 * rng.standard_normal((400, 5))
    >>> chosen = GreedySelector(n_features_to_select=2, n_components=2, normalize=None).fit(X)
    >>> [int(j) // 3 for j in chosen.support_]
    [0, 1]
    """

    method: ClassVar[str] = "greedy"
    competes: ClassVar[int | None] = 1
    is_nested: ClassVar[bool] = True

    def __init__(
        self,
        n_features_to_select: float | None = None,
        n_components: int | None = None,
        sketch_size: int | None = None,
        noise: Literal["residual"] | None = "residual",
        normalize: str | None = "l2",
        half_life: float | None = None,
        window: int | None = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.noise = noise
        self.normalize = normalize
        self.half_life = half_life
        self.window = window

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range."""
        super().check_parameters()
        if self.noise not in ("residual", None):
            raise BadParameter(f'noise must be "residual" or None, got {self.noise!r}')

    @classmethod
    def for_clusters(cls, n_clusters: int) -> GreedySelector:
        """Return the method on as many directions as there are clusters, the most that their means can span."""
        return cls(n_components=n_clusters)

    def _select(self, summary: Any, n_select: int) -> Selection:
        self.check_parameters()
        k = self._checked_components()
        if k is None:
            # With as many directions as columns there would be no noise left to estimate.
            k = self._at_most_accurate(summary, max(min(COMPONENTS, summary.n_features // 2), 1))
        factor = self._factor(summary, k)
        noise = np.zeros(summary.n_features)
        if self.noise == "residual":
            noise = factor.unexplained
            noise += noise.mean()
        with one_blas_thread():
            pivots = greedy_columns(factor.columns, noise, factor.unexplained, factor.copies.of, n_select)
        return self._result(summary, factor, pivots, n_select, n_components=k, noise=self.noise)


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
