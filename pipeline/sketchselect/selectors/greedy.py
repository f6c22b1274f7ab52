"""Greedy column subset selection and pivoted QR: columns chosen one by one on the top directions of a sketch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.hashing import gaussians
from sketchselect.linalg.panel_columns import Factored, PanelColumns, PanelDirections, PanelGains, panel_pivots
from sketchselect.linalg.parameters import Count, HalfLife, Size, SketchSize
from sketchselect.linalg.pivoting import Pivots, by_gain, greedy_columns, pivot_columns, without_copies
from sketchselect.linalg.spectrum import (
    About,
    Directions,
    Spectrum,
    column_directions,
    single_noise,
    squares_about,
    subspace_angle,
)
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats
from sketchselect.selectors.base import BaseSelector, Selection, require_directions, require_more_rows
from sketchselect.summaries import FrequentDirections, Summary

Indices = NDArray[np.int64]

COPY = 1e-13
"""Largest ``1 - r^2`` of two columns that are copies: products of equal columns differ by rounding.

Of products in float32 it is twice their rounding, because the error of a correlation is at most half of that."""

_STORED, _MOST_STORED = 1e-14, 1e-9
"""The same for values stored in float32, times the squares about zero in units of the variance; and its upper limit,
beyond which columns differ by little else."""

_EPS = float(np.finfo(np.float64).eps)


class ColumnCopies:
    """The copies of any column: its multiples plus any number, to rounding; about zero its multiples.

    Columns i and j are copies if their correlation r has ``1 - r^2 <= tolerance``, or up to the error
    of storing copies in float32 (below 1e-9). In a sketch, the ratio of the exact standard deviations is also that of
    the sketched ones; so it is for all multiples, and for other columns only if the sketch cannot tell them apart.
    About zero their means also have the ratio of their standard deviations, to the same rounding, and columns that
    never vary are copies of each other. A column of zeros, and about the mean one that never varies, is no copy.

    `matrix` of shape (m, p): The rows B of a sketch about the means, or their columns in panels, or with `is_gram` the
        scatter ``B'B`` itself.
    `scatter` of shape (p,): Exact squared norms of the columns about their means.
    `means` of shape (p,).
    `weight`: Of all rows.
    `tolerance`: As above.
    `about`, "mean" or "zero".

    Notes
    -----
    Cost: one product with `matrix` at first; then log p a column, and m for each candidate. Copies have equal products
    with any one vector, so that only columns with equal products with a random one are compared.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[1.0, 0.0, -2.0, 1.0], [-1.0, 1.0, 2.0, 0.0], [0.0, 2.0, 0.0, 5.0]])
    >>> C = A - A.mean(axis=0)
    >>> ColumnCopies(C.T @ C, True, (C**2).sum(axis=0), A.mean(axis=0), 3.0).of(0).tolist()
    [0, 2]
    """

    def __init__(
        self,
        matrix: Floats | PanelColumns,
        is_gram: bool,
        scatter: Floats,
        means: Floats,
        weight: float,
        tolerance: float = COPY,
        about: About = "mean",
    ) -> None:
        self.matrix, self.is_gram, self.scatter, self.means, self.about = matrix, is_gram, scatter, means, about
        self._deviations = np.sqrt(scatter / weight) if weight > 0 else np.zeros(scatter.size)
        if isinstance(matrix, PanelColumns):
            height, self._squares = matrix.height, matrix.squares()
        else:
            height = matrix.shape[0]
            self._squares = matrix.diagonal() if is_gram else np.einsum("ij,ij->j", matrix, matrix)
        self._constant = (self._deviations <= 4.0 * _EPS * np.abs(means)) | ~(self._squares > 0)
        ratios = np.divide(means, self._deviations, out=np.zeros(scatter.size), where=~self._constant)
        storage_rounding = _STORED * (1.0 + ratios**2)
        self._stored = np.where(storage_rounding <= _MOST_STORED, storage_rounding, 0.0)
        self.tolerance = np.maximum(self._stored, tolerance)
        # Scaled, because a scatter of large values has no room for another factor.
        scale = np.sqrt(float(self._squares.max(initial=0.0)) or 1.0)
        combination = gaussians(0, (1, height))[0] / scale
        products = matrix.times(combination) if isinstance(matrix, PanelColumns) else combination @ matrix
        reach = np.sqrt(max(float(products @ combination), 0.0)) if is_gram else np.linalg.norm(combination)
        self._signature = np.full(products.size, np.inf)
        np.divide(np.abs(products), np.sqrt(self._squares), out=self._signature, where=~self._constant)
        self._order = np.argsort(self._signature, kind="stable")
        self._sorted = self._signature[self._order]
        # Unit columns that are copies differ by at most sqrt(tolerance), and their products by `reach` times that.
        self._width = 4.0 * np.sqrt(self.tolerance) * float(reach)

    def of(self, j: int) -> Indices:
        """Return the copies of column j, itself included, ascending; none for a column that is no copy."""
        if self._constant[j]:
            is_zero = self.about == "mean" or self.means[j] == 0
            return np.zeros(0, np.int64) if is_zero else np.flatnonzero(self._constant & (self.means != 0))
        tolerance, width = self.tolerance[j], self._width[j]
        low, high = np.searchsorted(self._sorted, self._signature[j] + np.array([-width, width]))
        if high - low == 1:
            return np.array([j], dtype=np.int64)
        near = np.sort(self._order[low:high])
        if isinstance(self.matrix, PanelColumns):
            products = self.matrix.products(near, j)
        else:
            products = self.matrix[near, j] if self.is_gram else self.matrix[:, near].T @ self.matrix[:, j]
        correlations = products / np.sqrt(self._squares[near]) / np.sqrt(self._squares[j])
        equal = correlations * correlations >= 1.0 - tolerance
        if not self.is_gram:
            shares, share = self._squares[near] / self.scatter[near], self._squares[j] / self.scatter[j]
            equal &= np.abs(shares - share) <= np.sqrt(tolerance) * np.maximum(shares, share)
        if self.about == "zero":
            means, deviations = self.means[near], self._deviations[near]
            expected = np.sign(correlations) * (deviations / self._deviations[j]) * self.means[j]
            # The rounding of a mean also affects the deviation, and so the ratio.
            rounding = (100.0 * tolerance + np.sqrt(self._stored[j])) * np.abs(means)
            rounding += 16.0 * _EPS * means * (means / deviations)
            equal &= np.abs(means - expected) <= rounding + np.sqrt(tolerance) * deviations
        equal |= near == j
        copies: Indices = near[equal].astype(np.int64)
        return copies


ROUNDING = 1e-12
"""Share of the largest square below which a direction, or the remainder of a column, is rounding."""


@dataclass(frozen=True, kw_only=True)
class Factor(ABC):
    """Approximate square root C of ``A'A``, from the top directions of a summary of the rows A, about mean or zero."""

    squared_norms: Floats  # shape (n_features,): Exact squared norms of the columns of A
    shrinkage: float  # Delta: C'C may be this far below A'A in any of its directions; 0 for exact summaries
    copies: ColumnCopies  # The columns that are multiples of a column, by the whole summary
    roots: Floats  # Square roots of the diagonal matrix CC', one for each row of C
    squares: Floats  # shape (n_features,): Squared norms of the columns of C
    captured: float  # Squared norm of C
    noise: Floats  # shape (n_features,): Squared norms outside C that products in float32 can have left
    # Bound of the sine of the angle between the directions and those of A; None if no bound follows
    angle: float | None = None

    @abstractmethod
    def greedy(self, noise: Floats, unexplained: Floats, n_select: int) -> Pivots:
        """Return columns by their gain; see `greedy_columns`."""

    @abstractmethod
    def pivots(self, unexplained: Floats, n_select: int) -> Pivots:
        """Return columns by their distance; see `pivot_columns`."""

    @property
    def unexplained(self) -> Floats:
        """Squared norm of each column that C leaves out; exactly 0 where that is rounding."""
        remainder = self.squared_norms - self.squares
        rounding = np.maximum(ROUNDING * self.squared_norms.max(initial=0.0), self.noise)
        return np.where((remainder > rounding) | (self.squares == 0), remainder, 0.0)


@dataclass(frozen=True, kw_only=True)
class WholeFactor(Factor):
    """The factor in this process."""

    columns: Floats  # shape (m, n_features): C: rows s_i v_i, descending

    def greedy(self, noise: Floats, unexplained: Floats, n_select: int) -> Pivots:
        """Return columns by their gain; see `greedy_columns`."""
        return greedy_columns(self.columns, noise, unexplained, self.copies.of, n_select)

    def pivots(self, unexplained: Floats, n_select: int) -> Pivots:
        """Return columns by their distance; see `pivot_columns`."""
        return pivot_columns(self.columns, unexplained, self.copies.of, n_select)


MOST_IN_PANELS = 4096
"""Most columns that are chosen by their gain with an exchange between panels for each; for more C is put together."""


@dataclass(frozen=True, kw_only=True)
class PanelFactor(Factor):
    """The factor of a sketch in panels, where it stays."""

    directions: PanelDirections

    def greedy(self, noise: Floats, unexplained: Floats, n_select: int) -> Pivots:
        """Return columns by their gain; see `greedy_columns`."""
        if n_select > MOST_IN_PANELS:
            columns = self.directions.apply(_columns)
            return greedy_columns(columns, noise, unexplained, self.copies.of, n_select)
        # The gains hold fourth powers.
        top = float(self.squares.max(initial=0.0)) or 1.0
        roots = self.roots / np.sqrt(top)
        factor = Factored(self.directions.view, self.directions.scaled(roots))
        gains = PanelGains(self.directions.panels, factor, noise / top, np.diag(roots * roots))
        return by_gain(gains, self.squares / top, unexplained, self.copies.of, n_select)

    def pivots(self, unexplained: Floats, n_select: int) -> Pivots:
        """Return columns by their distance; see `pivot_columns`."""
        factor = Factored(self.directions.view, self.directions.scaled(self.roots))
        choose = partial(panel_pivots, self.directions.panels, factor)
        return without_copies(choose, self.squares, unexplained, self.copies.of, n_select)


def _columns(directions: Directions) -> Floats:
    return np.sqrt(directions.squares)[:, None] * directions.vectors


def _column_norms(directions: Directions) -> Floats:
    return directions.squares @ directions.vectors**2


def top_factor(summary: Spectrum, n_components: int, about: About = "mean") -> Factor:
    """Return the `n_components` strongest directions of a summary, s_i v_i with ``s_i^2`` compensated for shrinking.

    Adding Delta back to every s_i^2 takes its upper bound (as FSDS does); without it the weaker of the top directions
    look much weaker than they are. Directions at rounding level, and `single_noise`, are left out.
    """
    directions, shrinkage = column_directions(summary, about), summary.shrinkage
    squared_norms = squares_about(summary, about)
    panelled = isinstance(directions, PanelDirections)
    gram = None if panelled else summary.centered_gram
    matrix: Any = summary.centered_sketch if gram is None and not panelled else gram
    copies = ColumnCopies(
        PanelColumns(directions.panels) if isinstance(directions, PanelDirections) else matrix,
        gram is not None,
        summary.centered_column_squared_norms,
        summary.mean,
        float(np.max(summary.weight)),
        max(COPY, 2.0 * summary.product_rounding),
        about,
    )
    top = float(directions.squares[0]) if directions.squares.size else 0.0
    noise = single_noise(summary, directions)
    real = directions.squares >= noise
    chosen = np.flatnonzero(real & (directions.squares > ROUNDING * top))[:n_components]
    m = chosen.size
    s = np.sqrt(directions.squares[chosen] + shrinkage)
    # None where directions that are rounding come before others: they are below the error.
    error = shrinkage + summary.single_rounding
    angle = subspace_angle(directions.squares, m, error, summary.n_features)
    known: dict[str, Any] = {
        "squared_norms": squared_norms,
        "shrinkage": shrinkage,
        "copies": copies,
        "roots": s,
        "angle": angle,
        "noise": np.zeros(squared_norms.size) if real.all() else noise[~real] @ directions.vectors[~real] ** 2,
    }
    if isinstance(directions, PanelDirections):
        directions = replace(directions, squares=s * s, turn=directions.turn[:m])
        squares = directions.apply(_column_norms)
        return PanelFactor(**known, squares=squares, captured=float(squares.sum()), directions=directions)
    columns = s[:, None] * directions.vectors[chosen]
    # A column of zeros stays exactly zero; eigenvectors have rounding there.
    columns[:, squared_norms == 0] = 0.0
    squares, captured = np.einsum("ij,ij->j", columns, columns), float(np.einsum("ij,ij->", columns, columns))
    return WholeFactor(**known, squares=squares, captured=captured, columns=columns)


def rank_scores(pivots: Pivots, squared_norms: Floats, n_select: int) -> Floats:
    """Return scores in the order of choice: n_select for the first column down to 1, the others by their norms.

    Columns that are not chosen score in (0, 1/2]; columns without a norm score 0.
    """
    top = float(squared_norms.max(initial=0.0))
    scores: Floats = squared_norms / (2.0 * top) if top > 0 else np.zeros(squared_norms.size)
    scores[pivots.order] = np.arange(n_select, n_select - pivots.order.size, -1, dtype=np.float64)
    scores[squared_norms == 0] = 0.0
    return scores


DEFAULT_SIZE = 160
"""Rows of the sketch by default, where 4 n_components is not larger."""


class DirectionsSelector(BaseSelector):
    """Base of the selectors that choose columns one by one on the top directions of a sketch or of moments.

    Parameters
    ----------
    about : "mean" or "zero", default "mean"
        The point from which columns are measured. k-means does not see the mean, so with "mean" the selection does not
        either: a number added to a column changes nothing. "zero": the rows as they are, whose first direction
        is often that of their mean.
    sketch_size : int, optional
        Rows l of the sketch; min(n_features, max(4 n_components, 160)) by default.
    """

    requires: ClassVar[tuple[str, ...]] = ("frequent-directions", "moments", "decayed-directions")
    selects_in_panels: ClassVar[bool] = True

    n_components: int | None
    sketch_size: int | None
    about: About = "mean"

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or a sketch with too few rows for the directions."""
        super().check_parameters()
        if self.sketch_size is not None and self.n_components is not None:
            require_more_rows(self.sketch_size, self.n_components)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sketch of `sketch_size` rows; the default is min(n_features, max(4 n_components, 160))."""
        k = self.n_components or 1
        size = self.sketch_size or max(min(n_features, max(4 * k, DEFAULT_SIZE)), k + 1, 2)
        return FrequentDirections(size, self.half_life)

    @staticmethod
    def _at_most_accurate(summary: Spectrum, n_components: int) -> int:
        """Return the number of directions, at most the upper half of a sketch, which is accurate."""
        limit = summary.n_features if summary.is_exact or summary.size is None else max(summary.size // 2, 1)
        return min(n_components, limit)

    def _factor(self, summary: Spectrum, n_components: int) -> Factor:
        """Return the factor; raise `BadParameter` if a sketch has fewer directions than the parameter says."""
        if self.n_components is not None:
            require_directions(summary.size, self.n_components)
        return top_factor(summary, n_components, self.about)

    def _result(self, summary: Any, factor: Factor, pivots: Pivots, n_select: int, **computed: Any) -> Selection:
        total = float(factor.squared_norms.sum())
        return self._selection(
            summary,
            np.sort(pivots.order),
            rank_scores(pivots, factor.squared_norms, n_select),
            diagnostics={
                "n_directions": int(factor.roots.size),
                "n_copies": pivots.n_copies,
                "shrinkage": factor.shrinkage,
                "subspace_angle": factor.angle,
                "captured_energy": min(factor.captured / total, 1.0) if total > 0 else 0.0,
            },
            n_features_to_select=n_select,
            sketch_size=summary.size,
            **computed,
        )


COMPONENTS = 40
"""Directions by default: enough for the structure of images, few enough to leave out the noise of texts and counts."""


class GreedySelector(DirectionsSelector):
    """Select, one by one, the columns from which all columns can be predicted best.

    The top m directions of the sketch are each column's signal, and the remainder of its (exact) norm is its noise.
    Each column chosen lowers the expected squared error of predicting the signal of *all* columns from the chosen ones
    the most. A column that nothing else resembles, or that is mostly noise, comes late. A multiple of a column chosen
    before (``1 - r^2 <= 1e-13``, or the rounding of storing both, and the means, in float32; 3.1e-5 for moments of
    float32 rows), plus any number, is chosen only when no other column is left; one that never varies comes last. The
    best, or near it, on images, texts and counts, with the same defaults
    (`tests/benchmarks/papers/selection_comparison.py`). Deterministic: ties go to the larger column, then to the lowest
    index.

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
    auto_priority: ClassVar[int | None] = 1
    is_nested: ClassVar[bool] = True

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        n_components: Count | None = None,
        sketch_size: SketchSize | None = None,
        noise: Literal["residual"] | None = "residual",
        normalize: str | None = "l2",
        half_life: HalfLife | None = None,
        window: Count | None = None,
        about: About = "mean",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.noise = noise
        self.normalize = normalize
        self.half_life = half_life
        self.window = window
        self.about = about

    @classmethod
    def for_clusters(cls, n_clusters: int) -> GreedySelector:
        """Return the method on as many directions as there are clusters, the most that their means can span."""
        return cls(n_components=n_clusters)

    def _select(self, summary: Any, n_select: int) -> Selection:
        k = self.n_components
        if k is None:
            # With as many directions as columns there would be no noise left to estimate.
            k = self._at_most_accurate(summary, max(min(COMPONENTS, summary.n_features // 2), 1))
        factor = self._factor(summary, k)
        unexplained = factor.unexplained
        noise = unexplained + unexplained.mean() if self.noise == "residual" else np.zeros(summary.n_features)
        with one_blas_thread():
            pivots = factor.greedy(noise, unexplained, n_select)
        return self._result(summary, factor, pivots, n_select, n_components=k, noise=self.noise)


class PivotedQRSelector(DirectionsSelector):
    """Select columns by QR with column pivoting of the top directions of the data.

    Each column chosen is the one farthest from the span of those before, in the space of the top m directions. When m
    columns span the directions, the columns with the largest norms outside of them follow, so any number can be chosen.
    A multiple of a column chosen before (``1 - r^2 <= 1e-13``, or the rounding of storing both, and the
    means, in float32; 3.1e-5 for moments of float32 rows), plus any number, is chosen only when no other column is
    left; one that never varies comes last. Deterministic: ties within rounding go to the lowest index.

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
    auto_priority: ClassVar[int | None] = 2

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        n_components: Count | None = None,
        sketch_size: SketchSize | None = None,
        normalize: str | None = "l2",
        half_life: HalfLife | None = None,
        window: Count | None = None,
        about: About = "mean",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.normalize = normalize
        self.half_life = half_life
        self.window = window
        self.about = about

    def _select(self, summary: Any, n_select: int) -> Selection:
        k = self.n_components
        if k is None:
            k = self._at_most_accurate(summary, n_select)
        factor = self._factor(summary, k)
        with one_blas_thread():
            pivots = factor.pivots(factor.unexplained, n_select)
        return self._result(summary, factor, pivots, n_select, n_components=k)
