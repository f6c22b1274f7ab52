"""Least squares on the columns with the largest coefficients, and feature selection with annealing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Unpack

import numpy as np

from sketchselect.linalg.parameters import NotNegative, Size, whole
from sketchselect.linalg.validation import Floats
from sketchselect.selectors.base import Selection
from sketchselect.selectors.supervised.models import Candidate, Criterion, design_of
from sketchselect.selectors.supervised.path import Folded, PathKeywords, PathSelector
from sketchselect.solvers import Problem, anneal, anneal_path, coefficient_tests, least_squares, threshold
from sketchselect.solvers.annealing import MOST_STEPS
from sketchselect.solvers.path import strongest

_SIZES = 50


class SizedSelector(PathSelector):
    """Base of `ThresholdedOLS` and `FeatureSelectionAnnealing`."""

    parameter: ClassVar[str] = "n_features"
    # the models of a size are least-squares fits of their columns from the start
    refit = False

    @property
    def refits(self) -> bool:
        """Always true: the chosen model is the unregularised fit of its columns."""
        return True

    @abstractmethod
    def _of_sizes(self, problem: Problem, sizes: Sequence[int]) -> tuple[list[Candidate], Floats]:
        """Return a model of each of these sizes (ascending, at least 1), and the scores of all columns."""

    def _models(
        self, problem: Problem, size: int | None, values: Sequence[float] | None
    ) -> tuple[Sequence[Candidate], Floats | None]:
        n_active = int(np.count_nonzero(problem.active))
        if size is not None:
            return self._of_sizes(problem, [min(size, n_active)])
        if values is None:
            most = max(min(n_active, self._most_columns(problem)), 1)
            values = [0, *np.unique(np.round(np.geomspace(1, most, _SIZES)).astype(int)).tolist()]
        # A fold may leave a column constant.
        sizes = [min(int(v), n_active) for v in values]
        positive = [s for s in sizes if s > 0]
        candidates, scores = self._of_sizes(problem, positive) if positive else ([], np.zeros(problem.scale.size))
        empty = [Candidate.of(problem, 0.0, np.zeros(problem.xy.shape)) for s in sizes if s == 0]
        return [*empty, *candidates], scores


class ThresholdedOLS(SizedSelector):
    """Select the columns of largest standardised least-squares coefficient, and refit them (OLS-th).

    From moments alone, so that it equals ordinary least squares on the rows. A column's score is ``|b_j| sd_j`` of the
    fit on all columns (with a vanishing ridge, so that dependent columns have an answer); for several targets or
    classes the norm over them. Ties go to the lowest index. Constant columns are never selected, and no column is for a
    constant target: a warning says if there are fewer columns than asked for. With fewer rows than columns the ranking
    is that of the ridge; set a larger `ridge` then, or use a penalised path.

    Parameters
    ----------
    ridge : float, optional
        Added to the unit diagonal of the correlations for the ranking; of the size of rounding by default. The refit
        is not regularised.

    Attributes
    ----------
    pvalues_, standard_errors_ : array of shape (n_features,)
        Two-sided p-values and standard errors of the coefficients of least squares on *all* columns, which are in
        ``scores.csv`` too. There are none for the selected columns alone: the rows that chose them would make them too
        small. NaN for classes, for degree 2, for rows that fade or lack values, for several targets, for fewer than
        n_features + 2 rows, and where columns are in a linear relation.
    confint_ : array of shape (n_features, 2)
        The 95 % confidence intervals of these coefficients.

    Notes
    -----
    Guarantee: least squares on the selected columns, exact to rounding; p-values and intervals are exact if the target
    is linear in the columns, with Gaussian errors of one variance, or of variances inverse to the sample weights, of
    which only the ratios matter: those of weighted least squares on the rows of positive weight.
    Cost after the pass: one Cholesky factorisation, p^3 / 3, and an eigendecomposition for the p-values.
    Source: Sun, Guo and Barbu 2019, Algorithm 1 and Proposition 2, on standardised columns.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + rng.standard_normal(500)
    >>> ThresholdedOLS(n_features_to_select=2).fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "thresholded-ols"

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        criterion: Criterion | None = None,
        cv: Folded | None = None,
        *,
        ridge: NotNegative | None = None,
        **shared: Unpack[PathKeywords],
    ) -> None:
        super().__init__(n_features_to_select, criterion, cv, **shared)
        self.ridge = ridge

    def _select(self, summary: Any, n_select: int) -> Selection:
        selection = super()._select(summary, n_select)
        p = selection.scores.size
        tests = None
        if self.degree == 1 and self.task == "regression" and self.half_life is None and self.missing is None:
            design = design_of(summary, self.task, 1, with_folds=False)
            if not design.moments.decays:
                tests = coefficient_tests(design.problem, design.moments.n_weighted_rows)
        if tests is None:
            self.pvalues_ = self.standard_errors_ = np.full(p, np.nan)
            self.confint_ = np.full((p, 2), np.nan)
            return selection
        self.pvalues_, self.standard_errors_, self.confint_ = tests.pvalues, tests.errors, tests.intervals
        columns = {
            "coefficients_of_all": tests.coef,
            "standard_errors": tests.errors,
            "pvalues": tests.pvalues,
            "confint_low": tests.intervals[:, 0],
            "confint_high": tests.intervals[:, 1],
        }
        return replace(selection, columns=columns)

    def _of_sizes(self, problem: Problem, sizes: Sequence[int]) -> tuple[list[Candidate], Floats]:
        fit = threshold(problem, max(sizes), jitter=self.ridge)
        out = []
        for size in sizes:
            support = fit.support if size == max(sizes) else strongest(fit.scores, size, problem.active)
            coef = fit.coef if size == max(sizes) else least_squares(problem, support)
            out.append(Candidate.of(problem, size, coef, support))
        return out, fit.scores


class FeatureSelectionAnnealing(SizedSelector):
    """Select columns by gradient descent on the least-squares loss, removing the smallest coefficients (OFSA).

    From moments alone. Step e of N keeps ``M_e = k + (p - k) max(0, (N - 2e) / (2 e mu + N))`` columns, so that k are
    left after N/2 steps. Stopping early regularises: for weak signals it detects more than least squares does. For
    several targets or classes columns are ranked by the norm over them. Constant columns are never selected, and
    no column is for a constant target: a warning says if there are fewer columns than asked for. Models of all sizes
    that are compared come from one descent of 2N steps.

    Parameters
    ----------
    n_iter : int, optional
        Steps N; 500 by default, 40 with `newton`.
    mu : float, default 1.0
        Speed of removal; larger removes earlier.
    newton : bool, default False
        Newton steps: faster, and better for strong or collinear signals; gradient steps are better for weak ones.

    Notes
    -----
    Guarantee: least squares on the selected columns, exact to rounding.
    Cost after the pass: a product of the active block a step, some p^2 N / 5 in all.
    Source: Barbu, She, Ding and Gramajo 2017, Algorithm 1; Sun, Guo and Barbu 2019, Algorithm 2, with the step size
    ``1.9 / lambda_max`` of the active block; longer outside its first eigenvector if one factor dominates the columns,
    where columns are exchanged last (`solvers.anneal`).

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + rng.standard_normal(500)
    >>> FeatureSelectionAnnealing(n_features_to_select=2).fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "annealing"

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        criterion: Criterion | None = None,
        cv: Folded | None = None,
        *,
        n_iter: Annotated[int, whole(2, most=MOST_STEPS)] | None = None,
        mu: NotNegative = 1.0,
        newton: bool = False,
        **shared: Unpack[PathKeywords],
    ) -> None:
        super().__init__(n_features_to_select, criterion, cv, **shared)
        self.n_iter = n_iter
        self.mu = mu
        self.newton = newton

    def _of_sizes(self, problem: Problem, sizes: Sequence[int]) -> tuple[list[Candidate], Floats]:
        mu, newton = float(self.mu), bool(self.newton)
        steps = None if self.n_iter is None else int(self.n_iter)
        if len(sizes) == 1:
            fits = [anneal(problem, sizes[0], n_iter=steps, mu=mu, newton=newton)]
        else:
            fits = anneal_path(problem, sizes, n_iter=steps, mu=mu, newton=newton)
        models = [Candidate.of(problem, size, f.coef, f.support) for size, f in zip(sizes, fits, strict=True)]
        return models, fits[-1].scores
