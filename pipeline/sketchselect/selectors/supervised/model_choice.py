"""Choice of a model from a path: by its number of columns, an information criterion, or cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from sketchselect.errors import BadParameter, EmptyInput
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_number, require_positive
from sketchselect.selectors.supervised.model_path import CRITERIA, Candidate
from sketchselect.solvers import Problem
from sketchselect.solvers.criteria import validation_error

Criterion = Literal["aic", "bic", "ebic"]
Rule = Literal["min", "1se"]

Solve = Callable[[Problem], Sequence[Candidate]]


def cross_validation_errors(solve: Solve, splits: Iterable[tuple[Problem, Any]], n_models: int) -> Floats:
    """Return the mean squared error of each model on each fold, from moments alone; shape (n_models, n_folds).

    Exact: with b and b0 fitted to the other folds, ``mean (y - x'b - b0)^2`` over a fold is
    ``q'C q + (mean'q - b0)^2`` for q = [-b; 1] and the fold's mean and covariance C of [x, y].

    `solve`: Training problem -> its models, one for each value of the path.
    `splits`: For each fold, the problem of all other rows and the moments of the fold.
    `n_models`: Models on the path.
    """
    errors = []
    for problem, moments in splits:
        covariance, xy, yy = moments.covariance(), moments.xy, moments.yy
        column = np.zeros(n_models)
        for i, candidate in enumerate(solve(problem)):
            coef, intercept = candidate.original_units(problem)
            s = candidate.support
            column[i] = np.sum(
                validation_error(coef, intercept, covariance[np.ix_(s, s)], xy[s], yy, moments.mean[s], moments.y_mean)
            )
        errors.append(column)
    return np.column_stack(errors)


def best_by_criterion(values: Floats) -> int:
    """Return the index of the smallest value; of equal ones the first, which is the sparser model."""
    return int(np.argmin(values))


def best_by_validation(errors: Floats, rule: Rule) -> int:
    """Return the model of the smallest mean error, or the first within one standard error of it.

    `errors` of shape (n_models, n_folds): From `cross_validation_errors`; sparser models first.
    `rule`, "min" or "1se": The standard error is that of the mean over the folds, ``sd / sqrt(n_folds)``.
    """
    mean = errors.mean(axis=1)
    best = int(np.argmin(mean))
    if rule == "min" or errors.shape[1] < 2:
        return best
    slack = float(errors[best].std(ddof=1)) / np.sqrt(errors.shape[1])
    return int(np.flatnonzero(mean <= mean[best] + slack)[0])


def best_by_size(candidates: Sequence[Candidate], n_select: int) -> int:
    """Return the last of the models with the most columns that are at most `n_select`."""
    sizes = np.array([c.support.size if c.support.size <= n_select else -1 for c in candidates])
    if sizes.max() < 0:
        raise BadParameter(f"at each of these alphas the model has more than {n_select} columns; add a larger alpha")
    return int(np.flatnonzero(sizes == sizes.max())[-1])


def usable_folds(rows: Sequence[float]) -> list[int]:
    """Return the folds that have rows; raise unless there are two.

    `rows`: Weight of each fold.
    """
    usable = [i for i, weight in enumerate(rows) if weight > 0]
    if len(usable) < 2:
        raise EmptyInput(
            f"cross-validation needs at least two folds with rows, there are {len(usable)} of {len(rows)}; "
            "use fewer folds, a criterion, or (in a stream) a larger first batch"
        )
    return usable


def check_choice(criterion: object, cv: object, cv_rule: object, ebic_gamma: object) -> None:
    """Raise `BadParameter` for a parameter of the choice of the model that is out of range."""
    if criterion is not None and criterion not in CRITERIA:
        raise BadParameter(f"criterion must be one of {', '.join(CRITERIA)}, got {criterion!r}")
    if cv is not None:
        if hasattr(cv, "split"):
            raise BadParameter(
                f"cv is a number of folds, not a {type(cv).__name__}; fit(X, y, groups=...) keeps groups of rows whole"
            )
        require_positive("cv", cv, 2)
    if cv_rule not in ("min", "1se"):
        raise BadParameter(f'cv_rule must be "min" or "1se", got {cv_rule!r}')
    require_number("ebic_gamma", ebic_gamma, least=0, most=1)
