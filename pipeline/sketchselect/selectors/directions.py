"""Base class of selectors that choose columns one by one on the top directions of a sketch.

Columns that are multiples of one another, as far as moments or a sketch can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.comoments import SINGLE_ROUNDING
from sketchselect.linalg.hashing import gaussians
from sketchselect.linalg.pivoting import Pivots
from sketchselect.linalg.spectrum import Directions, subspace_angle, symmetric_directions
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import require_positive
from sketchselect.selectors.forgetting import DecayingSelector
from sketchselect.selectors.selection import Selection
from sketchselect.summaries import FrequentDirections, Moments, Summary

Indices = NDArray[np.int64]

COPY = 1e-13
"""Largest ``1 - r^2`` of two columns that are copies: products of equal columns differ by rounding."""

SINGLE_COPY = 2.0 * SINGLE_ROUNDING
"""The same where the products were computed in float32: the error of a correlation is at most half of it."""

_STORED, _MOST_STORED = 1e-14, 1e-9
"""What rounding values to float32 may make of it, over the squares about zero in units of the variance; and its limit,
beyond which columns differ by little else."""

_EPS = float(np.finfo(np.float64).eps)


class ColumnCopies:
    """The copies of any column: its multiples, to rounding.

    Columns i and j are copies if their correlation r has ``1 - r^2 <= tolerance``, or what storing copies in float32
    may make of that (below 1e-9), and their means have the ratio of their standard deviations, to the same rounding.
    In a sketch, the ratio of the exact standard deviations is also that of the sketched ones; so it is for all
    multiples, and for other columns only if the sketch cannot tell them apart. Columns that never vary are copies of
    each other, and a column of zeros is no copy.

    `matrix` of shape (m, p): The rows B of a sketch about the means, or with `is_gram` the scatter ``B'B`` itself.
    `scatter` of shape (p,): Exact squared norms of the columns about their means.
    `means` of shape (p,).
    `weight`: Of all rows.

    Notes
    -----
    Cost: one product with `matrix` at first; then log p a column, and m for each candidate. Copies have equal products
    with any one vector, so that only columns with equal products with a random one are compared.

    Examples
    --------
    >>> import numpy as np
    >>> A = np.array([[1.0, 0.0, -2.0, 1.0], [-1.0, 1.0, 2.0, 0.0]])
    >>> C = A - A.mean(axis=0)
    >>> ColumnCopies(C.T @ C, True, (C**2).sum(axis=0), A.mean(axis=0), 2.0).of(0).tolist()
    [0, 2]
    """

    def __init__(
        self, matrix: Floats, is_gram: bool, scatter: Floats, means: Floats, weight: float, tolerance: float = COPY
    ) -> None:
        self.matrix, self.is_gram, self.scatter, self.means = matrix, is_gram, scatter, means
        self._deviations = np.sqrt(scatter / weight) if weight > 0 else np.zeros(scatter.size)
        self._squares = matrix.diagonal() if is_gram else np.einsum("ij,ij->j", matrix, matrix)
        self._constant = (self._deviations <= 4.0 * _EPS * np.abs(means)) | ~(self._squares > 0)
        ratios = np.divide(means, self._deviations, out=np.zeros(scatter.size), where=~self._constant)
        stored = _STORED * (1.0 + ratios**2)
        self._stored = np.where(stored <= _MOST_STORED, stored, 0.0)
        self.tolerance = np.maximum(self._stored, tolerance)
        # Scaled, because a scatter of large values has no room for another factor.
        scale = np.sqrt(float(self._squares.max(initial=0.0)) or 1.0)
        combination = gaussians(0, (1, matrix.shape[0]))[0] / scale
        products = combination @ matrix
        reach = np.sqrt(max(float(products @ combination), 0.0)) if is_gram else np.linalg.norm(combination)
        self._signature = np.full(products.size, np.inf)
        np.divide(np.abs(products), np.sqrt(self._squares), out=self._signature, where=~self._constant)
        self._order = np.argsort(self._signature, kind="stable")
        self._sorted = self._signature[self._order]
        # Unit columns that are copies differ by at most sqrt(tolerance), and their products by `reach` times that.
        self._width = 4.0 * np.sqrt(self.tolerance) * float(reach)

    def of(self, j: int) -> Indices:
        """Return the copies of column j, itself included, ascending; none for a column of zeros."""
        if self._constant[j]:
            return np.flatnonzero(self._constant & (self.means != 0)) if self.means[j] != 0 else np.zeros(0, np.int64)
        tolerance, width = self.tolerance[j], self._width[j]
        low, high = np.searchsorted(self._sorted, self._signature[j] + np.array([-width, width]))
        if high - low == 1:
            return np.array([j], dtype=np.int64)
        near = np.sort(self._order[low:high])
        products = self.matrix[near, j] if self.is_gram else self.matrix[:, near].T @ self.matrix[:, j]
        correlations = products / np.sqrt(self._squares[near]) / np.sqrt(self._squares[j])
        equal = correlations * correlations >= 1.0 - tolerance
        if not self.is_gram:
            shares, share = self._squares[near] / self.scatter[near], self._squares[j] / self.scatter[j]
            equal &= np.abs(shares - share) <= np.sqrt(tolerance) * np.maximum(shares, share)
        means, deviations = self.means[near], self._deviations[near]
        expected = np.sign(correlations) * (deviations / self._deviations[j]) * self.means[j]
        # The rounding of a mean is one of the deviation too, and so of the ratio.
        rounding = (100.0 * tolerance + np.sqrt(self._stored[j])) * np.abs(means)
        rounding += 16.0 * _EPS * means * (means / deviations)
        equal &= np.abs(means - expected) <= rounding + np.sqrt(tolerance) * deviations
        equal |= near == j
        copies: Indices = near[equal].astype(np.int64)
        return copies


ROUNDING = 1e-12
"""Share of the largest square below which a direction, or the remainder of a column, is rounding."""


@dataclass(frozen=True)
class Factor:
    """Approximate square root C of ``A'A``, from the top directions of a summary of the rows A."""

    columns: Floats  # shape (m, n_features): C: rows s_i v_i, descending
    squared_norms: Floats  # shape (n_features,): Exact squared norms of the columns of A
    shrinkage: float  # Delta: C'C may be this far below A'A in any of its directions; 0 for exact summaries
    copies: ColumnCopies  # The columns that are multiples of a column, by the whole summary
    # Bound of the sine of the angle between the directions and those of A; None if no bound follows
    angle: float | None = None

    @property
    def unexplained(self) -> Floats:
        """Squared norm of each column that C leaves out; exactly 0 where that is rounding."""
        squares = np.einsum("ij,ij->j", self.columns, self.columns)
        remainder = self.squared_norms - squares
        rounding = ROUNDING * self.squared_norms.max(initial=0.0)
        return np.where((remainder > rounding) | (squares == 0), remainder, 0.0)


def top_factor(summary: FrequentDirections | Moments, n_components: int) -> Factor:
    """Return the `n_components` strongest directions of a summary, s_i v_i with ``s_i^2`` compensated for shrinking.

    Adding Delta back to every s_i^2 takes its upper bound (as FSDS does); without it the weaker of the top directions
    look much weaker than they are. Directions at rounding level are left out.
    """
    directions: Directions
    if isinstance(summary, FrequentDirections):
        directions, shrinkage, squared_norms = summary.directions, summary.shrinkage, summary.column_squared_norms
        matrix = summary.record.gram if summary.is_exact else summary.centered_sketch
        copies = ColumnCopies(matrix, summary.is_exact, *_column_moments(summary))
    else:
        gram = summary.gram()
        with one_blas_thread():
            directions = symmetric_directions(gram)
        shrinkage, squared_norms = 0.0, gram.diagonal().copy()
        tolerance = SINGLE_COPY if summary.single_rounding > 0 else COPY
        copies = ColumnCopies(summary.covariance(), True, *_column_moments(summary), tolerance)
    top = float(directions.squares[0]) if directions.squares.size else 0.0
    m = min(n_components, int(np.count_nonzero(directions.squares > ROUNDING * top)))
    s = np.sqrt(directions.squares[:m] + shrinkage)
    columns = s[:, None] * directions.vectors[:m]
    # A column of zeros is one exactly; eigenvectors hold rounding there.
    columns[:, squared_norms == 0] = 0.0
    error = shrinkage + summary.single_rounding
    angle = subspace_angle(directions.squares, m, error, summary.n_features) if m else None
    return Factor(columns, squared_norms, shrinkage, copies, angle)


def _column_moments(summary: FrequentDirections | Moments) -> tuple[Floats, Floats, float]:
    """Return scatter and mean of every column, and the weight of all rows."""
    return summary.centered_column_squared_norms, summary.mean, float(np.max(summary.weight))


def rank_scores(pivots: Pivots, squared_norms: Floats, n_select: int) -> Floats:
    """Return scores in the order of choice: n_select for the first column down to 1, the others by their norms.

    Columns that are not chosen score in (0, 1/2]; columns of zeros score 0.
    """
    top = float(squared_norms.max(initial=0.0))
    scores: Floats = squared_norms / (2.0 * top) if top > 0 else np.zeros(squared_norms.size)
    scores[pivots.order] = np.arange(n_select, n_select - pivots.order.size, -1, dtype=np.float64)
    scores[squared_norms == 0] = 0.0
    return scores


class DirectionsSelector(DecayingSelector):
    """Base of the selectors that choose columns one by one on the top directions of a sketch or of moments.

    Parameters
    ----------
    sketch_size : int, optional
        Rows l of the sketch; min(n_features, max(4 n_components, 160)) by default.
    """

    requires: ClassVar[tuple[str, ...]] = ("frequent-directions", "moments", "decayed-directions")

    n_components: int | None
    sketch_size: int | None

    def _checked_components(self) -> int | None:
        """Return `n_components`, checked."""
        return None if self.n_components is None else require_positive("n_components", self.n_components)

    def check_parameters(self) -> None:
        """Raise `BadParameter` for an `n_components` or `sketch_size` out of range, or too many directions for it."""
        k = self._checked_components()
        if self.sketch_size is None:
            return
        size = FrequentDirections(size=self.sketch_size).size
        if k is not None and size <= k:
            raise BadParameter(f"sketch_size ({size}) must exceed n_components ({k}): a sketch has size - 1 directions")

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sketch of `sketch_size` rows; the default is min(n_features, max(4 n_components, 160))."""
        self.check_parameters()
        if self.sketch_size is not None:
            return self._sketch(self.sketch_size)
        k = self._checked_components() or 1
        return self._sketch(max(min(n_features, max(4 * k, DEFAULT_SIZE)), k + 1, 2))

    @staticmethod
    def _at_most_accurate(summary: FrequentDirections | Moments, n_components: int) -> int:
        """Return the number of directions, at most the upper half of a sketch, which is accurate."""
        limit = summary.n_features
        if isinstance(summary, FrequentDirections) and not summary.is_exact:
            limit = max(summary.size // 2, 1)
        return min(n_components, limit)

    def _factor(self, summary: FrequentDirections | Moments, n_components: int) -> Factor:
        """Return the factor; raise `BadParameter` if a sketch has fewer directions than the parameter says."""
        k = self._checked_components()
        if k is not None and isinstance(summary, FrequentDirections) and summary.size <= k:
            raise BadParameter(
                f"n_components = {k}, but a sketch of size {summary.size} has only {summary.size - 1} directions; "
                "lower n_components, or make the sketch larger"
            )
        return top_factor(summary, n_components)

    def _result(self, summary: Any, factor: Factor, pivots: Pivots, n_select: int, **parameters: Any) -> Selection:
        captured = float(np.einsum("ij,ij->", factor.columns, factor.columns))
        total = float(factor.squared_norms.sum())
        return Selection(
            method=self.method,
            support=np.sort(pivots.order),
            scores=rank_scores(pivots, factor.squared_norms, n_select),
            feature_names=summary.feature_names,
            parameters={
                "n_features_to_select": n_select,
                "sketch_size": summary.size if isinstance(summary, FrequentDirections) else None,
                "normalize": self._normalized(summary),
                "half_life": getattr(summary, "half_life", None),
                "window": self.window,
                **parameters,
            },
            diagnostics={
                "n_directions": int(factor.columns.shape[0]),
                "n_copies": pivots.n_copies,
                "shrinkage": factor.shrinkage,
                "subspace_angle": factor.angle,
                "captured_energy": min(captured / total, 1.0) if total > 0 else 0.0,
            },
        )


DEFAULT_SIZE = 160
"""Rows of the sketch by default, where 4 n_components is not larger."""
