"""Lasso and elastic net from moments: convex paths, exactly k columns, cross-validation without a further pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Unpack

from sketchselect.linalg.arrays import Floats
from sketchselect.selectors.supervised.model_path import Candidate
from sketchselect.selectors.supervised.penalized import PathKeywords, PenalizedPath, models_of
from sketchselect.solvers import Problem, homotopy_path
from sketchselect.solvers.penalties import ElasticNet, Lasso, Penalty


class LassoPath(PenalizedPath):
    """Lasso from moments: ``(1/2n) ||y - Xb||^2 + alpha ||b||_1`` over standardised columns.

    The path equals that of scikit-learn on the raw, standardised rows, to rounding. Coefficients are returned in
    original units.

    Parameters
    ----------
    n_features_to_select : int, optional
        Take the model of exactly this number of columns and the least alpha, by the homotopy method (for several
        targets, by refining alpha); with duplicated columns there may be fewer.

    Notes
    -----
    Guarantee: the optimum, within the duality gap that ``path_.gaps`` states for each model.
    Cost after the pass: a path of a hundred models takes little more than a few products with the p x p covariance.
    Source: Tibshirani 1996; from moments: Sun, Guo and Barbu 2019, Proposition 1; homotopy: Efron et al. 2004.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + rng.standard_normal(500)
    >>> LassoPath(cv_rule="1se").fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "lasso"

    def _penalty(self) -> Penalty:
        return Lasso()

    def _exactly(self, problem: Problem, size: int, alphas: Floats, factors: Floats | None) -> list[Candidate]:
        if factors is None and self.alphas is None and problem.n_targets == 1:
            return models_of(problem, homotopy_path(problem, max_features=size, tol=float(self.tol)))
        return super()._exactly(problem, size, alphas, factors)


class ElasticNetPath(PenalizedPath):
    """Elastic net from moments: lasso plus ridge, which keeps correlated columns together.

    Minimises ``(1/2n) ||y - Xb||^2 + alpha l1_ratio ||b||_1 + alpha (1 - l1_ratio) ||b||^2 / 2`` over standardised
    columns; equals scikit-learn's `enet_path` on the raw, standardised rows, to rounding. In this definition the ridge
    part does not scale with the target: of a target in larger units the models of few columns are shrunken more. Bring
    the target to unit variance, or set `refit`, where that matters.

    Parameters
    ----------
    l1_ratio : float
        Share of the l1 penalty, above 0 and at most 1.

    Notes
    -----
    Guarantee: the optimum, within the duality gap that ``path_.gaps`` states for each model.
    Cost after the pass: as of `LassoPath`, a path over the p x p covariance.
    Source: Zou and Hastie 2005 (the naive elastic net, without its rescaling, as in scikit-learn).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + rng.standard_normal(500)
    >>> ElasticNetPath(n_features_to_select=2).fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "elastic-net"

    def __init__(
        self,
        alphas: Sequence[float] | None = None,
        n_features_to_select: float | None = None,
        criterion: str | None = None,
        cv: int | None = None,
        *,
        l1_ratio: float = 0.5,
        **shared: Unpack[PathKeywords],
    ) -> None:
        super().__init__(alphas, n_features_to_select, criterion, cv, **shared)
        self.l1_ratio = l1_ratio

    def _penalty(self) -> Penalty:
        return ElasticNet(self.l1_ratio)
