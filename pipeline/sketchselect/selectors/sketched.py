"""Selectors that score columns on the top directions of a sketch: ridge weights (FSDS), lasso, and variance.

The lasso is the l1 companion of FSDS (Huang, Yoo and Kasiviswanathan 2015, problem (3) with p = 1).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from sketchselect.errors import BadParameter, Incompatible, warn
from sketchselect.linalg.panel_columns import PanelDirections
from sketchselect.linalg.parameters import Count, HalfLife, NotNegative, Size, SketchSize
from sketchselect.linalg.spectrum import (
    About,
    Directions,
    column_directions,
    directions_about,
    squares_about,
    subspace_angle,
)
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Floats
from sketchselect.prepare.fitted import Standardise
from sketchselect.selectors.base import (
    BaseSelector,
    Selection,
    Undecided,
    rank,
    require_directions,
    require_more_rows,
    sketch_size,
)
from sketchselect.solvers.homotopy import Design, lasso_coefficients
from sketchselect.summaries import BatchDirections, ColumnStats, FrequentDirections, Summary

Sketch = FrequentDirections | BatchDirections

EQUAL = 1e-6
"""Relative difference of the largest and the smallest variance below which rounding, of float32 too, decides."""

N_NONZERO = 200
"""Most columns in a regression by default: the coefficients of later ones are small."""


class SketchedSelector(BaseSelector):
    """Base of the selectors with k = `n_components` directions of a sketch of `sketch_size` rows.

    Parameters
    ----------
    n_components : int, optional
        Directions k; min(10, n_features - 1) by default. Must be below `sketch_size`.
    sketch_size : int, optional
        Rows l of the sketch; min(n_features, max(8 k, 64)) by default.
    about : "mean" or "zero", default "zero"
        The point from which columns are measured. "zero" is the paper's form, whose first direction is often that of
        the mean. k-means does not see the mean: with "mean" a number added to a column changes nothing. Yet these
        scores are better about zero on the sets by which the default was fixed, and as good on forty others
        (`tests/benchmarks/papers/mean_or_zero.py`).
    """

    requires: ClassVar[tuple[str, ...]] = ("frequent-directions", "decayed-directions")
    limits_components: ClassVar[bool] = True

    n_components: int | None
    sketch_size: int | None
    compensate: bool
    about: About
    literal: bool = False

    @abstractmethod
    def _scores(
        self, summary: Any, directions: Any, n_components: int, n_select: int
    ) -> tuple[Floats, dict[str, Any], dict[str, Any]]:
        """Return the columns' scores, and the resolved parameters and the diagnostics that only this method has.

        `directions` have the s_i^2 to score with.
        """

    def _select(self, summary: Sketch, n_select: int) -> Selection:
        k = self._components(summary.n_features)
        require_directions(summary.size, k)
        compensate = bool(self.compensate) and not self.literal
        directions = self._directions(summary, self.about)
        squares = directions.squares
        if compensate:
            squares = np.where(squares > 0, squares + summary.shrinkage, 0.0)
        scores, parameters, diagnostics = self._scores(summary, replace(directions, squares=squares), k, n_select)
        return self._selection(
            summary,
            np.sort(rank(scores)[:n_select]),
            scores,
            diagnostics={
                "shrinkage": summary.shrinkage,
                "subspace_angle": subspace_angle(
                    directions.squares, k, summary.shrinkage + summary.single_rounding, summary.n_features
                ),
                **diagnostics,
            },
            n_features_to_select=n_select,
            n_components=k,
            sketch_size=summary.size,
            compensate=compensate,
            about=self.about,
            **parameters,
        )

    def _directions(self, summary: Sketch, about: About) -> Directions | PanelDirections:
        if isinstance(summary, BatchDirections):
            if about == "mean":
                raise Incompatible(f'a {summary.kind} summary is of rows about zero; set about="zero"')
            return summary.directions
        return column_directions(summary, about) if self.selects_in_panels else directions_about(summary, about)

    def _components(self, n_features: int) -> int:
        return max(min(10, n_features - 1), 1) if self.n_components is None else int(self.n_components)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sketch of `sketch_size` rows; the default is min(n_features, max(8 k, 64)), at least k + 1."""
        k = self._components(n_features)
        if self.sketch_size is not None:
            require_more_rows(self.sketch_size, k)
        return self._sketch(self.sketch_size or sketch_size(n_features, k))

    def _sketch(self, size: int) -> Sketch:
        return FrequentDirections(size, self.half_life)


def n_significant(squares: Floats, n_features: int, n_components: int) -> int:
    """Return how many of the first `n_components` directions are above the rounding of the largest."""
    top = float(squares[0]) if squares.size else 0.0
    # Directions at rounding level are noise, which the scores would divide by its own size.
    count = int(np.count_nonzero(squares > n_features * float(np.finfo(np.float64).eps) * top))
    return min(n_components, count)


Alpha = NotNegative | Literal["auto", "paper"]


def ridge_weights(
    squares: Floats, vectors: Floats, n_components: int, alpha: Alpha = "auto", combine: str = "max"
) -> tuple[Floats, float]:
    """Return ``(scores, alpha)``: the columns' weights in a ridge regression on the top directions, and its ridge.

    With singular values s_i and right singular vectors v_i of the data (i up to k = `n_components`) the weights are
    ``x_ij = v_ij s_i / (s_i^2 + alpha)``; the score of column j is ``max_i |x_ij|`` or ``sqrt(sum_i x_ij^2)``.

    `squares` of shape (m,): s_i^2, descending; those below the rounding of s_1^2 are left out, so rank deficiency is
        harmless.
    `vectors` of shape (m, n_features): v_i as rows.
    `alpha`: "auto": ``s_k^2``, which has the right units, so that rescaling the data does not change the ranking.
        "paper": ``8 s_k`` as printed.
    `combine`, "max" or "l2".
    Source: Huang et al. 2015, Algorithm 2 steps 5-7 and Lemma 3.3.
    """
    k = n_significant(squares, vectors.shape[1], n_components)
    ridge = _ridge(squares, k, alpha)
    return _ridge_scores(Directions(squares, vectors), k, ridge, combine), ridge


def _ridge(squares: Floats, k: int, alpha: Alpha) -> float:
    if k == 0:
        return 0.0
    if alpha == "auto":
        return float(squares[k - 1])
    return 8.0 * float(np.sqrt(squares[k - 1])) if alpha == "paper" else float(alpha)


def _ridge_scores(directions: Directions, k: int, ridge: float, combine: str) -> Floats:
    if k == 0:
        return np.zeros(directions.vectors.shape[1])
    s2 = directions.squares[:k]
    x = directions.vectors[:k] * (np.sqrt(s2) / (s2 + ridge))[:, None]
    scores: Floats = np.abs(x).max(axis=0) if combine == "max" else np.sqrt(np.einsum("ij,ij->j", x, x))
    return scores


class SketchedRidgeSelector(SketchedSelector):
    """Select the columns that carry the top directions of the data, from a Frequent Directions sketch (FSDS).

    One pass, memory of the sketch alone. The scores equal those of an exact singular value decomposition up to the
    sketch's shrinkage Delta: each ``s_i^2`` is known to within Delta, and the top-k subspace to within the angle
    ``Delta / (s_k^2 - s_{k+1}^2 - Delta)`` (``selection_.diagnostics["subspace_angle"]``, None where no bound follows).
    Scores ignore redundancy: equal columns are all selected.

    Parameters
    ----------
    alpha : "auto", "paper" or float, default "auto"
        The ridge: s_k^2; or the paper's 8 s_k (its units are wrong: rescaling the data changes the ranking); or a
        number.
    combine : "max" or "l2", default "max"
        Score a column by its largest weight over the directions (paper), or by their root sum of squares (robust to
        rotation).
    compensate : bool, default True
        Add Delta back to every s_i^2 before scoring: shrinking makes weak directions look weaker still, and the scores
        are not monotone in s_i. False scores the shrunk values, as printed.
    literal : bool, default False
        Algorithm 2 as printed: about="zero", every batch of `partial_fit` is shrunk once together with the
        sketch (`BatchDirections`), "auto" is the paper's ridge, and nothing is compensated. Other batches give another
        sketch; the default loses less, and nothing where columns are few.

    Notes
    -----
    Guarantee: deterministic; ``s_i^2 <= sigma_i^2 <= s_i^2 + Delta`` for the spectrum behind the scores. No bound
    on a clustering: ask `certify`.
    Cost after the pass: one singular value decomposition of the sketch.
    Source: Huang, Yoo and Kasiviswanathan, CIKM 2015, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = 0.1 * rng.standard_normal((400, 30))
    >>> X[:, [3, 17]] += 5 * rng.standard_normal((400, 2))
    >>> chosen = SketchedRidgeSelector(n_features_to_select=2, n_components=2, normalize=None).fit(X)
    >>> chosen.support_.tolist()
    [3, 17]
    """

    method: ClassVar[str] = "sketched-ridge"
    auto_priority: ClassVar[int | None] = 4
    is_nested: ClassVar[bool] = True
    selects_in_panels: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = (BatchDirections.kind, *SketchedSelector.requires)
    # As an attribute, `score` would hide the method `score` of scikit-learn's estimators.
    renamed: ClassVar[dict[str, str]] = {"score": "combine"}

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        n_components: Count | None = None,
        sketch_size: SketchSize | None = None,
        alpha: Alpha = "auto",
        normalize: str | None = "l2",
        combine: Literal["max", "l2"] = "max",
        compensate: bool = True,
        half_life: HalfLife | None = None,
        window: Count | None = None,
        literal: bool = False,
        about: About = "zero",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.alpha = alpha
        self.normalize = normalize
        self.combine = combine
        self.compensate = compensate
        self.half_life = half_life
        self.window = window
        self.literal = literal
        self.about = about

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or a literal form about the mean or that forgets."""
        super().check_parameters()
        if self.literal and (self.half_life is not None or self.window is not None):
            raise BadParameter(
                "literal=True is Algorithm 2 as printed, which forgets nothing; leave out half_life and window"
            )
        if self.literal and self.about != "zero":
            raise BadParameter(
                'literal=True is Algorithm 2 as printed, whose columns are measured about zero; set about="zero"'
            )

    def _sketch(self, size: int) -> Sketch:
        return BatchDirections(size) if self.literal else super()._sketch(size)

    def _scores(
        self, summary: Sketch, directions: Directions | PanelDirections, n_components: int, n_select: int
    ) -> tuple[Floats, dict[str, Any], dict[str, Any]]:
        if self.literal and not isinstance(summary, BatchDirections):
            raise Incompatible(
                f"literal=True needs a {BatchDirections.kind} summary, not {summary.kind}; start a new selector, or "
                "leave literal out"
            )
        alpha: Alpha = self.alpha if isinstance(self.alpha, str) else float(self.alpha)
        alpha = "paper" if self.literal and alpha == "auto" else alpha
        k = n_significant(directions.squares, summary.n_features, n_components)
        ridge = _ridge(directions.squares, k, alpha)
        scores = directions.apply(partial(_ridge_scores, k=k, ridge=ridge, combine=self.combine))
        return scores, {"alpha": alpha}, {"ridge": ridge}


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
    about = "mean"
    auto_priority: ClassVar[int | None] = 6
    is_nested: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("column-stats", "frequent-directions", "moments")

    def __init__(self, n_features_to_select: Size | None = None, normalize: str | None = None) -> None:
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
        varying = scores[scores > 0]
        if varying.size > 1 and varying.max() <= varying.min() * (1 + EQUAL):
            if self.n_rivals:
                raise Undecided(f"{self.method}: all columns have the same variance")
            if not self.competes and n_select < varying.size:
                warn(
                    f"all columns have the same variance: rounding, or their order, decides which {self.method} "
                    f'selects; choose another method, or leave out "{Standardise.name}" where it is a step'
                )
        return self._selection(summary, np.sort(rank(scores)[:n_select]), scores, n_features_to_select=n_select)


def resolved_nonzero(n_nonzero: int | None, n_select: int) -> int:
    """Return the number of columns of each regression; min(n_select, `N_NONZERO`) by default."""
    return min(n_select, N_NONZERO) if n_nonzero is None else int(n_nonzero)


def with_marginal_order(scores: Floats, marginal: Floats) -> Floats:
    """Return scores in which columns that score 0 follow the others, in the order of `marginal` (not negative).

    Theirs are at most half of the smallest positive score; 0 where the marginal is 0 too.
    """
    used = scores > 0
    floor = float(scores[used].min()) if used.any() else 1.0
    top = float(marginal[~used].max(initial=0.0))
    if top <= 0:
        return scores
    return np.where(used, scores, 0.5 * floor * (marginal / top))


def lasso_weights(squares: Floats, vectors: Floats, n_components: int, n_nonzero: int) -> Floats:
    """Return the lasso regressions of the left singular vectors on the columns, shape (n_features, k).

    Column h minimises ``(1/2) ||B x - u_h||^2 + alpha_h ||x||_1``, where B has the singular values s_i and the right
    singular vectors v_i; alpha_h is the smallest one with no more than `n_nonzero` columns. Only the squares and
    the v_i are needed: in the basis of its left singular vectors B is ``diag(s) V'`` and u_h the unit vector e_h.

    `squares` of shape (m,): s_i^2, descending; those at rounding level are left out.
    `vectors` of shape (m, n_features): v_i as rows.
    `n_components`: Regressions k; fewer where the rank is lower.
    `n_nonzero`: At most m columns can take part in a regression.
    Cost: each of n_nonzero coefficients of each regression takes one product with B, 4 m n_features flops.
    Source: Huang et al. 2015, problem (3) with p = 1, by the lasso path.
    """
    m = n_significant(squares, vectors.shape[1], squares.size)
    k = min(n_components, m)
    if k == 0:
        return np.zeros((vectors.shape[1], 0))
    design = Design(np.sqrt(squares[:m])[:, None] * vectors[:m], center=False)
    return np.stack([lasso_coefficients(design, unit, n_nonzero) for unit in np.eye(m)[:k]], axis=1)


class SketchedLassoSelector(SketchedSelector):
    """Select the columns that explain the top directions of the data by sparse regressions on the sketch.

    As `SketchedRidgeSelector` (FSDS), with the lasso in place of the ridge: each of the top k left singular vectors is
    regressed on the columns of the sketch with `n_nonzero` coefficients, and a column scores its largest magnitude.
    Unlike ridge weights these leave out columns that repeat others. Columns that no regression uses rank last, in the
    order of their products ``s_h |v_hj|`` with the directions, the rule by which columns enter.

    Parameters
    ----------
    n_nonzero : int, optional
        Columns in each regression; min(n_features_to_select, 200) by default, and at most the rows of the sketch.
    compensate : bool, default True
        Add Delta back to every s_i^2 before the regressions, as for the ridge.

    Notes
    -----
    Guarantee: deterministic; ``s_i^2 <= sigma_i^2 <= s_i^2 + Delta`` for the spectrum behind the scores. No bound
    on a clustering: ask `certify`.
    Cost after the pass: one singular value decomposition of the sketch, and k sparse regressions on it.
    Source: Huang, Yoo and Kasiviswanathan, CIKM 2015, section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = 0.1 * rng.standard_normal((400, 30))
    >>> X[:, [3, 17]] += 5 * rng.standard_normal((400, 2))
    >>> X[:, 4] = X[:, 3]
    >>> chosen = SketchedLassoSelector(n_features_to_select=2, n_components=2, normalize=None).fit(X)
    >>> chosen.support_.tolist()
    [3, 17]
    """

    method: ClassVar[str] = "sketched-lasso"

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        n_components: Count | None = None,
        sketch_size: SketchSize | None = None,
        n_nonzero: Count | None = None,
        normalize: str | None = "l2",
        compensate: bool = True,
        half_life: HalfLife | None = None,
        window: Count | None = None,
        about: About = "zero",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.n_nonzero = n_nonzero
        self.normalize = normalize
        self.compensate = compensate
        self.half_life = half_life
        self.window = window
        self.about = about

    def _scores(
        self, summary: FrequentDirections, directions: Directions, n_components: int, n_select: int
    ) -> tuple[Floats, dict[str, Any], dict[str, Any]]:
        n_nonzero = resolved_nonzero(self.n_nonzero, n_select)
        squares, vectors = directions.squares, directions.vectors.copy()
        # A column of zeros stays exactly zero; singular vectors may have rounding there.
        vectors[:, squares_about(summary, self.about) == 0] = 0.0
        with one_blas_thread():
            weights = np.abs(lasso_weights(squares, vectors, n_components, n_nonzero)).max(axis=1, initial=0.0)
        first = slice(n_components)
        marginal = (np.sqrt(squares[first])[:, None] * np.abs(vectors[first])).max(axis=0, initial=0.0)
        scores = with_marginal_order(weights, marginal)
        return scores, {"n_nonzero": n_nonzero}, {"n_with_coefficient": int(np.count_nonzero(weights))}
