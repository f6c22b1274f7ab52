"""Feature selection with annealing: gradient steps, with columns removed on a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Unpack

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_number, require_positive
from sketchselect.selectors.supervised.fit import SupervisedKeywords
from sketchselect.selectors.supervised.model_path import Candidate
from sketchselect.selectors.supervised.sized import SizedSelector
from sketchselect.solvers import Problem, anneal, anneal_path


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
        n_features_to_select: float | None = None,
        criterion: str | None = None,
        cv: int | None = None,
        *,
        n_iter: int | None = None,
        mu: float = 1.0,
        newton: bool = False,
        **shared: Unpack[SupervisedKeywords],
    ) -> None:
        super().__init__(n_features_to_select, criterion, cv, **shared)
        self.n_iter = n_iter
        self.mu = mu
        self.newton = newton

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or parameters that exclude each other."""
        super().check_parameters()
        if self.n_iter is not None:
            require_positive("n_iter", self.n_iter, 2)
        require_number("mu", self.mu, least=0)

    def _of_sizes(self, problem: Problem, sizes: Sequence[int]) -> tuple[list[Candidate], Floats]:
        mu, newton = float(self.mu), bool(self.newton)
        steps = None if self.n_iter is None else int(self.n_iter)
        if len(sizes) == 1:
            fits = [anneal(problem, sizes[0], n_iter=steps, mu=mu, newton=newton)]
        else:
            fits = anneal_path(problem, sizes, n_iter=steps, mu=mu, newton=newton)
        models = [Candidate.of(problem, size, f.coef, f.support) for size, f in zip(sizes, fits, strict=True)]
        return models, fits[-1].scores
