"""Least squares on all columns, then the largest coefficients: the simplest selector of Sun, Guo and Barbu (2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Unpack

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_number
from sketchselect.selectors.supervised.fit import SupervisedKeywords
from sketchselect.selectors.supervised.model_path import Candidate
from sketchselect.selectors.supervised.sized import SizedSelector
from sketchselect.solvers import Problem, least_squares, threshold
from sketchselect.solvers.ranking import strongest


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

    Notes
    -----
    Guarantee: least squares on the selected columns, exact to rounding.
    Cost after the pass: one Cholesky factorisation, p^3 / 3.
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
        n_features_to_select: float | None = None,
        criterion: str | None = None,
        cv: int | None = None,
        *,
        ridge: float | None = None,
        **shared: Unpack[SupervisedKeywords],
    ) -> None:
        super().__init__(n_features_to_select, criterion, cv, **shared)
        self.ridge = ridge

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or parameters that exclude each other."""
        super().check_parameters()
        if self.ridge is not None:
            require_number("ridge", self.ridge, least=0)

    def _of_sizes(self, problem: Problem, sizes: Sequence[int]) -> tuple[list[Candidate], Floats]:
        fit = threshold(problem, max(sizes), jitter=self.ridge)
        out = []
        for size in sizes:
            support = fit.support if size == max(sizes) else strongest(fit.scores, size, problem.active)
            coef = fit.coef if size == max(sizes) else least_squares(problem, support)
            out.append(Candidate.of(problem, size, coef, support))
        return out, fit.scores
