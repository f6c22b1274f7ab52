"""Least squares on all columns, then the largest coefficients: the simplest selector of Sun, Guo and Barbu (2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.selectors.supervised.model_path import Candidate
from sketchselect.selectors.supervised.sized import SizedSelector
from sketchselect.solvers import Problem, least_squares, threshold
from sketchselect.solvers.ranking import strongest


class ThresholdedOLS(SizedSelector):
    """Select the columns of largest standardised least-squares coefficient, and refit them (OLS-th).

    From moments alone, so that it equals ordinary least squares on the rows. A column's score is ``|b_j| sd_j`` of the
    fit on all columns (with a vanishing ridge, so that dependent columns have an answer); for several targets or
    classes the norm over them. Ties go to the lowest index. With fewer rows than columns the ranking is that of
    the ridge; give `ridge` a value of weight then, or use a penalised path.

    Parameters
    ----------
    n_features_to_select : int, optional
        Half of the columns by default, unless `criterion` or `cv` is given.
    criterion : "aic", "bic" or "ebic", optional
        Choose the number of columns, of some fifty from none to all.
    cv : int, optional
        Choose it by cross-validated squared error with so many folds of hashed rows, without a further pass.
    cv_rule : "min" or "1se", default "min"
        The best number, or the smallest within one standard error of it.
    ebic_gamma : float, default 0.5
    ridge : float, optional
        Added to the unit diagonal of the correlations for the ranking; a rounding-sized one by default. The refit is
        not regularised.
    task : "regression" or "classification", default "regression"
        Classes may be numbers or text. The decision is that of linear discriminant analysis on the selected columns.
    degree : 1 or 2, default 1
        2 adds all squares and products of the standardised columns, from the same pass.
    half_life : float, optional
        Forget: a row counts half after so many rows.
    window : int, optional
        Forget otherwise: only the last so many rows count, in `fit` too; `partial_fit` rounds up to whole panes of a
        32nd of them, and keeps the states of the panes.
    missing : "pairwise", optional
        NaN in X are missing values: use every pair of present ones. A matrix that was opened before must have been
        opened with ``nonfinite="missing"``. Predictions need complete rows.
    random_state : int, default 0
        Seed of the folds.

    Notes
    -----
    Cost after the pass: one Cholesky factorisation, p^3 / 3.
    Source: Sun, Guo and Barbu 2019, Algorithm 1 and Theorem 2, on standardised columns.

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
        n_features_to_select: int | None = None,
        criterion: str | None = None,
        cv: int | None = None,
        *,
        cv_rule: str = "min",
        ebic_gamma: float = 0.5,
        ridge: float | None = None,
        task: str = "regression",
        degree: int = 1,
        half_life: float | None = None,
        window: int | None = None,
        missing: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.criterion = criterion
        self.cv = cv
        self.cv_rule = cv_rule
        self.ebic_gamma = ebic_gamma
        self.ridge = ridge
        self.task = task
        self.degree = degree
        self.half_life = half_life
        self.window = window
        self.missing = missing
        self.random_state = random_state

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter that is wrong whatever the data are."""
        super().check_parameters()
        value: Any = self.ridge
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        if value is not None and (not number or not 0 <= float(value) < np.inf):
            raise BadParameter(f"ridge must be a finite number that is not negative, got {value!r}")

    def _of_sizes(self, problem: Problem, sizes: Sequence[int]) -> tuple[list[Candidate], Floats]:
        fit = threshold(problem, max(sizes), jitter=self.ridge)
        out = []
        for size in sizes:
            support = fit.support if size == max(sizes) else strongest(fit.scores, size, problem.active)
            coef = fit.coef if size == max(sizes) else least_squares(problem, support)
            out.append(Candidate.of(problem, size, coef, support))
        return out, fit.scores
