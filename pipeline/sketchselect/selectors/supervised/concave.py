"""MCP and SCAD from moments: concave penalties, which leave large coefficients unshrunken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from sketchselect.selectors.supervised.penalized import PenalizedPath
from sketchselect.solvers.penalties import MCP, SCAD, Penalty


class MCPPath(PenalizedPath):
    """Minimax concave penalty from moments.

    ``P(b) = alpha |b| - b^2 / (2 gamma)`` up to |b| = gamma alpha, then constant; columns standardised.
    The path starts at zero and goes down with warm starts; every model satisfies the conditions of a local optimum to
    `tol` (``path_`` says nothing of other local optima).

    Parameters
    ----------
    gamma : float, default 3.0
        Concavity, above 1; the larger, the nearer to the lasso.
    alphas : sequence of float, optional
        Regularisation strengths, scaled as in scikit-learn for standardised columns; by default `n_alphas` of them,
        geometric from the one where the first column enters down to `alpha_ratio` times it.
    n_features_to_select : int, optional
        Take the last model with at most so many columns, alpha refined between the grid's values. Along a path of a
        concave penalty columns may enter together, so that exactly so many cannot be promised.
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
    Source: Zhang 2010; from moments: Sun, Guo and Barbu 2019, Algorithm 3 with the proximal step corrected.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + rng.standard_normal(500)
    >>> MCPPath().fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "mcp"

    def __init__(
        self,
        gamma: float = 3.0,
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
        self.gamma = gamma
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
        return MCP(self.gamma)


class SCADPath(PenalizedPath):
    """Smoothly clipped absolute deviation penalty from moments.

    ``P'(b) = alpha`` up to |b| = alpha, falls linearly to 0 at |b| = gamma alpha; columns standardised.
    The path starts at zero and goes down with warm starts; every model satisfies the conditions of a local optimum to
    `tol` (``path_`` says nothing of other local optima).

    Parameters
    ----------
    gamma : float, default 3.7
        Concavity, above 2; the larger, the nearer to the lasso.
    alphas : sequence of float, optional
        Regularisation strengths, scaled as in scikit-learn for standardised columns; by default `n_alphas` of them,
        geometric from the one where the first column enters down to `alpha_ratio` times it.
    n_features_to_select : int, optional
        Take the last model with at most so many columns, alpha refined between the grid's values. Along a path of a
        concave penalty columns may enter together, so that exactly so many cannot be promised.
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
    Source: Fan and Li 2001.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + rng.standard_normal(500)
    >>> SCADPath().fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "scad"

    def __init__(
        self,
        gamma: float = 3.7,
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
        self.gamma = gamma
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
        return SCAD(self.gamma)
