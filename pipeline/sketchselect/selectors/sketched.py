"""Base class of selectors that score columns on the top k directions of a Frequent Directions sketch.

FSDS: feature selection on data streams from a sketch and ridge weights (Huang, Yoo and Kasiviswanathan 2015).

Selection by variance: the baseline to compare every other method with.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.spectrum import subspace_angle
from sketchselect.linalg.validation import require_number, require_positive
from sketchselect.selectors.base import BaseSelector
from sketchselect.selectors.forgetting import DecayingSelector, Sketch
from sketchselect.selectors.selection import Selection, rank
from sketchselect.summaries import BatchDirections, ColumnStats, Summary


class SketchedSelector(DecayingSelector):
    """Base of the selectors with k = `n_components` directions of a sketch of `sketch_size` rows.

    Parameters
    ----------
    n_components : int, optional
        Directions k; min(10, n_features - 1) by default. Must be below `sketch_size`.
    sketch_size : int, optional
        Rows l of the sketch; min(n_features, max(8 k, 64)) by default.
    """

    requires: ClassVar[tuple[str, ...]] = ("frequent-directions", "decayed-directions")
    limits_components: ClassVar[bool] = True

    n_components: int | None
    sketch_size: int | None
    compensate: bool
    literal: bool = False

    @abstractmethod
    def _scores(
        self, summary: Any, squares: Floats, n_components: int, n_select: int
    ) -> tuple[Floats, dict[str, Any], dict[str, Any]]:
        """Return the columns' scores, and the resolved parameters and the diagnostics that only this method has.

        `squares` are the s_i^2 to score with.
        """

    def _select(self, summary: Sketch, n_select: int) -> Selection:
        self.check_parameters()
        k = self._resolved_components(summary)
        compensate = bool(self.compensate) and not self.literal
        squares = scored_squares(summary, compensate)
        scores, parameters, diagnostics = self._scores(summary, squares, k, n_select)
        return Selection(
            method=self.method,
            support=np.sort(rank(scores)[:n_select]),
            scores=scores,
            feature_names=summary.feature_names,
            parameters={
                "n_features_to_select": n_select,
                "n_components": k,
                "sketch_size": summary.size,
                "normalize": self._normalized(summary),
                "compensate": compensate,
                "half_life": getattr(summary, "half_life", None),
                "window": self.window,
                **parameters,
            },
            diagnostics={
                "shrinkage": summary.shrinkage,
                "subspace_angle": subspace_angle(
                    summary.directions.squares, k, summary.shrinkage + summary.single_rounding, summary.n_features
                ),
                **diagnostics,
            },
        )

    def _components(self, n_features: int) -> int:
        if self.n_components is None:
            return max(min(10, n_features - 1), 1)
        return require_positive("n_components", self.n_components)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the sketch of `sketch_size` rows; the default is min(n_features, max(8 k, 64)), at least k + 1."""
        k = self._components(n_features)
        if self.sketch_size is None:
            return self._sketch(max(min(n_features, max(8 * k, 64)), k + 1, 2))
        sketch = self._sketch(self.sketch_size)
        if sketch.size <= k:
            raise BadParameter(
                f"sketch_size ({sketch.size}) must exceed n_components ({k}): a sketch has size - 1 directions"
            )
        return sketch

    def _resolved_components(self, summary: Sketch) -> int:
        """Return k; raise `BadParameter` if the sketch has fewer directions."""
        k = self._components(summary.n_features)
        if summary.size <= k:
            raise BadParameter(
                f"n_components = {k}, but a sketch of size {summary.size} has only {summary.size - 1} directions; "
                "lower n_components, or make the sketch larger"
            )
        return k


def scored_squares(summary: Sketch, compensate: bool) -> Floats:
    """Return s_i^2 of a sketch for scoring: with `compensate` their upper bounds."""
    squares = summary.directions.squares
    return np.where(squares > 0, squares + summary.shrinkage, 0.0) if compensate else squares


def n_significant(squares: Floats, n_features: int, n_components: int) -> int:
    """Return how many of the first `n_components` directions are above the rounding of the largest."""
    top = float(squares[0]) if squares.size else 0.0
    # Directions at rounding level are noise, which a division by their size would blow up.
    above = int(np.count_nonzero(squares > n_features * float(np.finfo(np.float64).eps) * top))
    return min(n_components, above)


Alpha = float | Literal["auto", "paper"]


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
    if k == 0:
        return np.zeros(vectors.shape[1]), 0.0
    s2 = squares[:k]
    if alpha == "auto":
        ridge = float(s2[-1])
    elif alpha == "paper":
        ridge = 8.0 * float(np.sqrt(s2[-1]))
    else:
        ridge = float(alpha)
    x = vectors[:k] * (np.sqrt(s2) / (s2 + ridge))[:, None]
    scores: Floats = np.abs(x).max(axis=0) if combine == "max" else np.sqrt(np.einsum("ij,ij->j", x, x))
    return scores, ridge


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
        Algorithm 2 as printed: rows are not centred, every batch of `partial_fit` is shrunk once together with the
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
    competes: ClassVar[int | None] = 4
    is_nested: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = (BatchDirections.kind, *SketchedSelector.requires)
    # As an attribute, `score` would hide the method `score` of scikit-learn's estimators.
    renamed: ClassVar[dict[str, str]] = {"score": "combine"}

    def __init__(
        self,
        n_features_to_select: float | None = None,
        n_components: int | None = None,
        sketch_size: int | None = None,
        alpha: Alpha = "auto",
        normalize: str | None = "l2",
        combine: str = "max",
        compensate: bool = True,
        half_life: float | None = None,
        window: int | None = None,
        literal: bool = False,
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

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a `combine` or `alpha` out of range, or a stream that is literal and forgets."""
        if self.combine not in ("max", "l2"):
            raise BadParameter(f'combine must be "max" or "l2", got {self.combine!r}')
        if isinstance(self.alpha, str):
            if self.alpha not in ("auto", "paper"):
                raise BadParameter(f'alpha must be "auto", "paper" or a number, got {self.alpha!r}')
        else:
            require_number("alpha", self.alpha, least=0)
        if self.literal and (self.half_life is not None or self.window is not None):
            raise BadParameter(
                "literal=True is Algorithm 2 as printed, which forgets nothing; leave out half_life and window"
            )

    def _sketch(self, size: int) -> Sketch:
        self.check_parameters()
        return BatchDirections(size) if self.literal else super()._sketch(size)

    def _scores(
        self, summary: Sketch, squares: Floats, n_components: int, n_select: int
    ) -> tuple[Floats, dict[str, Any], dict[str, Any]]:
        if self.literal and not isinstance(summary, BatchDirections):
            raise Incompatible(
                f"literal=True needs a {BatchDirections.kind} summary, not {summary.kind}; start a new selector, or "
                "leave literal out"
            )
        alpha: Alpha = self.alpha if isinstance(self.alpha, str) else float(self.alpha)
        alpha = "paper" if self.literal and alpha == "auto" else alpha
        scores, ridge = ridge_weights(squares, summary.directions.vectors, n_components, alpha, self.combine)
        return scores, {"alpha": alpha, "combine": self.combine, "literal": bool(self.literal)}, {"ridge": ridge}


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
