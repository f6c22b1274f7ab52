"""Penalised paths from moments, from strong to weak regularisation: lasso, elastic net, MCP and SCAD."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Unpack

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.parameters import Limits, Positive, Share, Size, number, whole
from sketchselect.linalg.validation import MOST_TIMES, Floats
from sketchselect.selectors.supervised.models import Candidate, Criterion
from sketchselect.selectors.supervised.path import Folded, PathKeywords, PathSelector
from sketchselect.solvers import (
    Path,
    Penalty,
    Problem,
    adaptive_factors,
    homotopy_path,
    least_squares,
    ridge,
    solve_path,
)
from sketchselect.solvers.path import effective_size, scaled_row_norms
from sketchselect.solvers.penalties import MCP, SCAD, ElasticNet, Lasso

_ZOOMS = 3
_ZOOM_POINTS = 13


NAlphas = Annotated[int, whole(2, most=MOST_TIMES)]


def _are_alphas(value: Any) -> bool:
    alphas = np.asarray(value)
    is_sequence = alphas.dtype.kind in "fiu" and alphas.ndim == 1 and alphas.size > 0
    return is_sequence and bool((np.isfinite(alphas) & (alphas > 0)).all())


_ALPHAS = Limits(
    "a sequence of finite numbers above 0",
    _are_alphas,
    "one number is `alpha`, and a number of columns `n_features_to_select`",
)
Alphas = Annotated[Sequence[float], _ALPHAS]


class PenaltyKeywords(PathKeywords, total=False):
    """Parameters of every penalised estimator that are passed by keyword."""

    alpha: Positive | None
    n_alphas: NAlphas
    alpha_ratio: Share | None
    adaptive: bool
    refit: bool
    tol: Positive


class PenalizedPath(PathSelector):
    """Base of `LassoPath`, `ElasticNetPath`, `MCPPath` and `SCADPath`.

    All minimise ``(1/2n) ||y - Xb||^2 + sum_j f_j P(b_j; alpha)`` over standardised columns, from moments alone, along
    a decreasing sequence of alpha with warm starts. For several targets (or classes) the penalty is on
    the norm of a column's coefficients, so that they share a support; bring targets to comparable units then.

    Parameters
    ----------
    alphas : sequence of float, optional
        Regularisation strengths, scaled as in scikit-learn for standardised columns; by default `n_alphas`,
        geometric from the one where the first column enters down to `alpha_ratio` times it.
    n_features_to_select : int, optional
        Take the last model before the path, from the largest alpha on, has more columns than this, alpha refined
        between the grid's values. It may have fewer: duplicated columns enter together, and along the path of a concave
        penalty others may too.
    alpha : float, optional
        Take the model at this alpha.
    n_alphas : int
        Number of alphas.
    alpha_ratio : float, optional
        1e-3 if there are more rows than columns, else 0.05.
    adaptive : bool
        Weight each column's penalty by the inverse of its pilot coefficient (adaptive lasso, Zou 2006).
    refit : bool
        Replace the model's coefficients by the unregularised least-squares fit of its columns: the last step of
        Algorithm 3 of Sun, Guo and Barbu 2019, which shrinks no coefficient of the result.
    tol : float
        Stop at this duality gap or violation of the optimality conditions, relative to the target's variance.
    """

    parameter: ClassVar[str] = "alpha"

    _n_first: int | None = None  # So many of the alphas, from the largest on, make the path; None: all

    @property
    def alpha_(self) -> float:
        """The alpha of the model that was chosen."""
        return float(self.path_.model.value)

    @property
    def mse_path_(self) -> Floats:
        """Mean squared errors on the folds, shape (n_alphas, n_folds), as of scikit-learn's `LassoCV`."""
        if self.path_.cv_errors is None:
            raise AttributeError("mse_path_ needs cross-validation, and another parameter chose the model")
        return self.path_.cv_errors

    def __init__(
        self,
        alphas: Alphas | None = None,
        n_features_to_select: Size | None = None,
        criterion: Criterion | None = None,
        cv: Folded | None = None,
        *,
        alpha: Positive | None = None,
        n_alphas: NAlphas = 100,
        alpha_ratio: Share | None = None,
        adaptive: bool = False,
        refit: bool = False,
        tol: Positive = 1e-10,
        **shared: Unpack[PathKeywords],
    ) -> None:
        super().__init__(n_features_to_select, criterion, cv, **shared)
        self.alphas = alphas
        self.alpha = alpha
        self.n_alphas = n_alphas
        self.alpha_ratio = alpha_ratio
        self.adaptive = adaptive
        self.refit = refit
        self.tol = tol

    @abstractmethod
    def _penalty(self) -> Penalty:
        """Return the penalty, checked."""

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or parameters that exclude each other."""
        super().check_parameters()
        if self.alpha is not None:
            for name in ("n_features_to_select", "cv"):
                if getattr(self, name) is not None:
                    raise BadParameter(f"alpha and {name} both choose the model; leave one of them out")

    def _models(
        self, problem: Problem, size: int | None, values: Sequence[float] | None
    ) -> tuple[Sequence[Candidate], Floats | None]:
        pilot = _pilot(problem) if self.adaptive else np.zeros(0)
        # If no column explains the target, there is nothing to weight by.
        factors = adaptive_factors(pilot) if pilot.any() else None
        alphas = self._grid(problem, factors)[: self._n_first] if values is None else np.asarray(values)
        if size is None:
            # A ridge shrinks any number of columns.
            is_default = values is None and self.alphas is None and self.alpha is None
            most = self._most_columns(problem) if is_default and not _ridge(self._penalty(), 1.0) else None
            models = self._solve(problem, alphas, factors, most)
            # Folds are compared by their errors.
            return with_degrees(problem, models, self._penalty(), factors) if values is None else models, None
        return self._exactly(problem, size, alphas, factors), None

    @property
    def default_criterion(self) -> str:
        """The criterion that chooses the model by default without folds: EBIC if degrees of freedom are not exact."""
        return "bic" if self._penalty().convex and not self.refit else "ebic"

    def _chosen_by_value(self, candidates: Sequence[Candidate]) -> int | None:
        return None if self.alpha is None else len(candidates) - 1

    def _grid(self, problem: Problem, factors: Floats | None) -> Floats:
        """Return the alphas, descending: the parameter's, or geometric from where the first column enters."""
        if self.alphas is not None:
            alphas = np.unique(np.asarray(self.alphas, dtype=np.float64))[::-1]
            return alphas if self.alpha is None else np.append(alphas[alphas > self.alpha], float(self.alpha))
        pull = scaled_row_norms(problem.xy)
        if factors is not None:
            pull = pull / factors
        # Rounding must not let a column in at the first alpha.
        first = float(pull.max(initial=0.0)) / float(getattr(self, "l1_ratio", 1.0)) * (1.0 + 1e-13)
        if self.alpha is not None:
            if first <= self.alpha:
                return np.array([float(self.alpha)])
            return np.append(np.geomspace(first, self.alpha, int(self.n_alphas))[:-1], float(self.alpha))
        ratio = self.alpha_ratio
        if ratio is None:
            ratio = 1e-3 if problem.n > np.count_nonzero(problem.active) else 5e-2
        first = max(first, float(np.finfo(np.float64).tiny) / ratio)
        return np.geomspace(first, first * ratio, int(self.n_alphas))

    def _solve(
        self, problem: Problem, alphas: Floats, factors: Floats | None, max_features: int | None = None
    ) -> list[Candidate]:
        """Return the models at these alphas; with `max_features` only those before the first with more columns."""
        path = solve_path(
            problem,
            self._penalty(),
            alphas,
            max_features=max_features,
            penalty_factor=factors,
            tol=float(self.tol),
            target=0 if problem.n_targets == 1 else None,
        )
        return models_of(problem, path)

    def _exactly(self, problem: Problem, size: int, alphas: Floats, factors: Floats | None) -> list[Candidate]:
        """Return a path that ends with the last model of at most `size` columns, alpha refined to reach it.

        Along a path of a convex penalty columns enter one by one, so that a fine grid has every size, unless columns
        are duplicates. Paths of MCP and SCAD may jump: then the model has fewer columns.
        """
        if self.alphas is not None:
            return self._solve(problem, alphas, factors)
        models = self._solve(problem, alphas, factors, size)
        if len(models) == len(alphas) and models[-1].support.size < size:
            alphas = np.concatenate([alphas, np.geomspace(alphas[-1], alphas[-1] * 1e-4, int(self.n_alphas) // 2)[1:]])
            models = self._solve(problem, alphas, factors, size)
        for _ in range(_ZOOMS):
            n = len(models)
            if n == len(alphas) or models[-1].support.size == size:
                break
            alphas = np.concatenate([alphas[: n - 1], np.geomspace(alphas[n - 1], alphas[n], _ZOOM_POINTS)])
            models = self._solve(problem, alphas, factors, size)
        return models


def models_of(problem: Problem, path: Path) -> list[Candidate]:
    """Return the models of a solver's path."""
    return [
        Candidate.of(problem, alpha, path.coef(i), gap=float(path.optimality[i]), converged=bool(path.converged[i]))
        for i, alpha in enumerate(path.alphas.tolist())
    ]


def with_degrees(
    problem: Problem, models: list[Candidate], penalty: Penalty, factors: Floats | None
) -> list[Candidate]:
    """Return the models with their effective degrees of freedom, where a ridge shrinks them: `effective_size`."""
    out = []
    for model in models:
        ridge = _ridge(penalty, model.value)
        shift = ridge * (np.ones(model.support.size) if factors is None else factors[model.support])
        degrees = effective_size(problem.gram[np.ix_(model.support, model.support)], shift) if ridge else None
        out.append(replace(model, degrees=degrees))
    return out


def _ridge(penalty: Penalty, alpha: float) -> float:
    """Return the factor of half the square of a large coefficient."""
    return float(penalty.pieces(np.asarray(alpha))[-1, 1])


def _pilot(problem: Problem) -> Floats:
    """Return the first fit of the adaptive lasso: least squares, or a ridge of p/n with no more rows than columns."""
    active = np.flatnonzero(problem.active)
    return least_squares(problem, active) if problem.n > active.size + 1 else ridge(problem, active.size / problem.n)


class LassoPath(PenalizedPath):
    """Lasso from moments: ``(1/2n) ||y - Xb||^2 + alpha ||b||_1`` over standardised columns.

    The path equals that of scikit-learn on the raw, standardised rows, to rounding. Coefficients are returned in
    original units.

    Parameters
    ----------
    n_features_to_select : int, optional
        Take the last model before the path, from the largest alpha on, has more columns than this, by the homotopy
        method (for several targets, by refining alpha); with duplicated columns there may be fewer. Where columns leave
        the path again, a smaller alpha may give as many other columns with a smaller error: `cv` compares all models.

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
        alphas: Alphas | None = None,
        n_features_to_select: Size | None = None,
        criterion: Criterion | None = None,
        cv: Folded | None = None,
        *,
        l1_ratio: Annotated[float, number(above=0, most=1)] = 0.5,
        **shared: Unpack[PenaltyKeywords],
    ) -> None:
        super().__init__(alphas, n_features_to_select, criterion, cv, **shared)
        self.l1_ratio = l1_ratio

    def _penalty(self) -> Penalty:
        return ElasticNet(self.l1_ratio)


class MCPPath(PenalizedPath):
    """Minimax concave penalty from moments.

    ``P(b) = alpha |b| - b^2 / (2 gamma)`` up to ``|b| = gamma alpha``, then constant; columns standardised.
    The path starts at zero and goes down with warm starts; every model satisfies the conditions of a local optimum to
    `tol` (there may be other local optima).

    Parameters
    ----------
    gamma : float, default 3.0
        Concavity, above 1; the larger, the nearer to the lasso.

    Notes
    -----
    Guarantee: every model satisfies the conditions of a local optimum, within ``path_.gaps``.
    Cost after the pass: sweeps over the p x p covariance, each model starting from the one before.
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
        gamma: Annotated[float, number(above=1)] = 3.0,
        alphas: Alphas | None = None,
        n_features_to_select: Size | None = None,
        criterion: Criterion | None = None,
        cv: Folded | None = None,
        **shared: Unpack[PenaltyKeywords],
    ) -> None:
        super().__init__(alphas, n_features_to_select, criterion, cv, **shared)
        self.gamma = gamma

    def _penalty(self) -> Penalty:
        return MCP(self.gamma)


class SCADPath(PenalizedPath):
    """Smoothly clipped absolute deviation penalty from moments.

    ``P'(b) = alpha`` up to ``|b| = alpha``, falls linearly to 0 at ``|b| = gamma alpha``; columns standardised.
    The path starts at zero and goes down with warm starts; every model satisfies the conditions of a local optimum to
    `tol` (there may be other local optima).

    Parameters
    ----------
    gamma : float, default 3.7
        Concavity, above 2; the larger, the nearer to the lasso.

    Notes
    -----
    Guarantee: every model satisfies the conditions of a local optimum, within ``path_.gaps``.
    Cost after the pass: sweeps over the p x p covariance, each model starting from the one before.
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
        gamma: Annotated[float, number(above=2)] = 3.7,
        alphas: Alphas | None = None,
        n_features_to_select: Size | None = None,
        criterion: Criterion | None = None,
        cv: Folded | None = None,
        **shared: Unpack[PenaltyKeywords],
    ) -> None:
        super().__init__(alphas, n_features_to_select, criterion, cv, **shared)
        self.gamma = gamma

    def _penalty(self) -> Penalty:
        return SCAD(self.gamma)
