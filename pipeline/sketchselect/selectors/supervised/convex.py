"""Lasso and elastic net from moments: convex paths, exactly k columns, cross-validation without a further pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sketchselect.linalg.arrays import Floats
from sketchselect.selectors.supervised.model_path import Candidate
from sketchselect.selectors.supervised.penalized import PenalizedPath, models_of
from sketchselect.solvers import Problem, homotopy_path
from sketchselect.solvers.penalties import ElasticNet, Lasso, Penalty


class LassoPath(PenalizedPath):
    """Lasso from moments: ``(1/2n) ||y - Xb||^2 + alpha ||b||_1`` over standardised columns.

    The path equals that of scikit-learn on the raw, standardised rows, to rounding. Coefficients are returned in
    original units.

    Parameters
    ----------
    alphas : sequence of float, optional
        Regularisation strengths, scaled as in scikit-learn for standardised columns; by default `n_alphas` of them,
        geometric from the one where the first column enters down to `alpha_ratio` times it.
    n_features_to_select : int, optional
        Take the model of exactly so many columns, the one of least alpha, by the homotopy method (for several targets,
        by refining alpha); where columns are duplicates of one another there may be fewer.
    criterion : "aic", "bic" or "ebic", default "ebic"
        Chooses the model where neither `alpha`, `n_features_to_select` nor `cv` does.
    cv : int, optional
        Number of folds: the model of least cross-validated squared error. The folds are hashed rows, their moments kept
        in the same one pass.
    alpha : float, optional
        Take the model at this alpha.
    n_alphas : int, default 100
    alpha_ratio : float, optional
        1e-3 where there are more rows than columns, else 5e-2.
    cv_rule : "min" or "1se", default "min"
        The best model, or the sparsest within one standard error of it.
    ebic_gamma : float, default 0.5
    adaptive : bool, default False
        Weigh each column's penalty by the inverse of its pilot coefficient (adaptive lasso, Zou 2006).
    refit : bool, default False
        Replace the model's coefficients by the unregularised least-squares fit of its columns.
    task : "regression" or "classification", default "regression"
        Classes may be numbers or text; two become a target of +-1, several an indicator each. Slope and threshold of
        the decision are those of the linear discriminant of the fitted scores.
    degree : 1 or 2, default 1
        2 adds all squares and products of the standardised columns, from the same pass; `coef_`, `support_` and
        `transform` are then of these terms.
    half_life : float, optional
        Forget: a row counts half after so many rows.
    window : int, optional
        Forget otherwise: only the last so many rows count, in `fit` too; `partial_fit` rounds up to whole panes of a
        32nd of them, and keeps the states of the panes.
    missing : "pairwise", optional
        NaN in X are missing values: use every pair of present ones. A matrix that was opened before must have been
        opened with ``nonfinite="missing"``. Predictions need complete rows.
    tol : float, default 1e-10
        Stop at this duality gap or violation of the optimality conditions, relative to the target's variance.
    random_state : int, default 0
        Seed of the folds.

    Notes
    -----
    Cost after the pass: a path of a hundred models takes little more than a few products with the p x p covariance.
    Source: Tibshirani 1996; from moments: Sun, Guo and Barbu 2019, Proposition 1; homotopy: Efron et al. 2004.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + rng.standard_normal(500)
    >>> LassoPath().fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "lasso"

    def __init__(
        self,
        alphas: Sequence[float] | None = None,
        n_features_to_select: int | None = None,
        criterion: str = "ebic",
        cv: int | None = None,
        *,
        alpha: float | None = None,
        n_alphas: int = 100,
        alpha_ratio: float | None = None,
        cv_rule: str = "min",
        ebic_gamma: float = 0.5,
        adaptive: bool = False,
        refit: bool = False,
        task: str = "regression",
        degree: int = 1,
        half_life: float | None = None,
        window: int | None = None,
        missing: str | None = None,
        tol: float = 1e-10,
        random_state: int = 0,
    ) -> None:
        self.alphas = alphas
        self.n_features_to_select = n_features_to_select
        self.criterion = criterion
        self.cv = cv
        self.alpha = alpha
        self.n_alphas = n_alphas
        self.alpha_ratio = alpha_ratio
        self.cv_rule = cv_rule
        self.ebic_gamma = ebic_gamma
        self.adaptive = adaptive
        self.refit = refit
        self.task = task
        self.degree = degree
        self.half_life = half_life
        self.window = window
        self.missing = missing
        self.tol = tol
        self.random_state = random_state

    def _penalty(self) -> Penalty:
        return Lasso()

    def _exactly(self, problem: Problem, size: int, alphas: Floats, factors: Floats | None) -> list[Candidate]:
        if factors is None and self.alphas is None and problem.n_targets == 1:
            return models_of(problem, homotopy_path(problem, max_features=size))
        return super()._exactly(problem, size, alphas, factors)


class ElasticNetPath(PenalizedPath):
    """Elastic net from moments: lasso plus ridge, which keeps correlated columns together.

    Minimises ``(1/2n) ||y - Xb||^2 + alpha l1_ratio ||b||_1 + alpha (1 - l1_ratio) ||b||^2 / 2`` over standardised
    columns; equals scikit-learn's `enet_path` on the raw, standardised rows, to rounding. In this definition the ridge
    part does not scale with the target: of a target in larger units the models of few columns are shrunken more. Bring
    the target to unit variance, or set `refit`, where that matters.

    Parameters
    ----------
    alphas : sequence of float, optional
        Regularisation strengths, scaled as in scikit-learn for standardised columns; by default `n_alphas` of them,
        geometric from the one where the first column enters down to `alpha_ratio` times it.
    n_features_to_select : int, optional
        Take the last model with at most so many columns, alpha refined until they are exactly so many; there may be
        fewer where columns are duplicates of one another.
    criterion : "aic", "bic" or "ebic", default "ebic"
        Chooses the model where neither `alpha`, `n_features_to_select` nor `cv` does.
    cv : int, optional
        Number of folds: the model of least cross-validated squared error. The folds are hashed rows, their moments kept
        in the same one pass.
    alpha : float, optional
        Take the model at this alpha.
    n_alphas : int, default 100
    alpha_ratio : float, optional
        1e-3 where there are more rows than columns, else 5e-2.
    cv_rule : "min" or "1se", default "min"
        The best model, or the sparsest within one standard error of it.
    ebic_gamma : float, default 0.5
    adaptive : bool, default False
        Weigh each column's penalty by the inverse of its pilot coefficient (adaptive lasso, Zou 2006).
    refit : bool, default False
        Replace the model's coefficients by the unregularised least-squares fit of its columns.
    task : "regression" or "classification", default "regression"
        Classes may be numbers or text; two become a target of +-1, several an indicator each. Slope and threshold of
        the decision are those of the linear discriminant of the fitted scores.
    degree : 1 or 2, default 1
        2 adds all squares and products of the standardised columns, from the same pass; `coef_`, `support_` and
        `transform` are then of these terms.
    half_life : float, optional
        Forget: a row counts half after so many rows.
    window : int, optional
        Forget otherwise: only the last so many rows count, in `fit` too; `partial_fit` rounds up to whole panes of a
        32nd of them, and keeps the states of the panes.
    missing : "pairwise", optional
        NaN in X are missing values: use every pair of present ones. A matrix that was opened before must have been
        opened with ``nonfinite="missing"``. Predictions need complete rows.
    tol : float, default 1e-10
        Stop at this duality gap or violation of the optimality conditions, relative to the target's variance.
    random_state : int, default 0
        Seed of the folds.
    l1_ratio : float, default 0.5
        Share of the l1 penalty, above 0 and at most 1.

    Notes
    -----
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
        n_features_to_select: int | None = None,
        criterion: str = "ebic",
        cv: int | None = None,
        *,
        l1_ratio: float = 0.5,
        alpha: float | None = None,
        n_alphas: int = 100,
        alpha_ratio: float | None = None,
        cv_rule: str = "min",
        ebic_gamma: float = 0.5,
        adaptive: bool = False,
        refit: bool = False,
        task: str = "regression",
        degree: int = 1,
        half_life: float | None = None,
        window: int | None = None,
        missing: str | None = None,
        tol: float = 1e-10,
        random_state: int = 0,
    ) -> None:
        self.alphas = alphas
        self.n_features_to_select = n_features_to_select
        self.criterion = criterion
        self.cv = cv
        self.l1_ratio = l1_ratio
        self.alpha = alpha
        self.n_alphas = n_alphas
        self.alpha_ratio = alpha_ratio
        self.cv_rule = cv_rule
        self.ebic_gamma = ebic_gamma
        self.adaptive = adaptive
        self.refit = refit
        self.task = task
        self.degree = degree
        self.half_life = half_life
        self.window = window
        self.missing = missing
        self.tol = tol
        self.random_state = random_state

    def _penalty(self) -> Penalty:
        return ElasticNet(self.l1_ratio)
