"""Lasso on the sketch: the l1 companion of FSDS (Huang, Yoo and Kasiviswanathan 2015, problem (3) with p = 1)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.selectors.parameters import Count, HalfLife, Size, SketchSize
from sketchselect.selectors.sketched import SketchedSelector, n_significant
from sketchselect.solvers.factored import Design, lasso_coefficients
from sketchselect.summaries import FrequentDirections

N_NONZERO = 200
"""Most columns in a regression by default: the coefficients of later ones are small."""


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
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.sketch_size = sketch_size
        self.n_nonzero = n_nonzero
        self.normalize = normalize
        self.compensate = compensate
        self.half_life = half_life
        self.window = window

    def _scores(
        self, summary: FrequentDirections, squares: Floats, n_components: int, n_select: int
    ) -> tuple[Floats, dict[str, Any], dict[str, Any]]:
        n_nonzero = resolved_nonzero(self.n_nonzero, n_select)
        vectors = summary.directions.vectors.copy()
        # A column of zeros is one exactly; singular vectors may hold rounding there.
        vectors[:, summary.column_squared_norms == 0] = 0.0
        with one_blas_thread():
            weights = np.abs(lasso_weights(squares, vectors, n_components, n_nonzero)).max(axis=1, initial=0.0)
        first = slice(n_components)
        marginal = (np.sqrt(squares[first])[:, None] * np.abs(vectors[first])).max(axis=0, initial=0.0)
        scores = with_marginal_order(weights, marginal)
        return scores, {"n_nonzero": n_nonzero}, {"n_with_coefficient": int(np.count_nonzero(weights))}
