"""Models of a supervised selector fitted to a design, and the choice of one of them.

Linear discriminant of a regression on class indicators, which makes it a classifier.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypedDict

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.selectors.selection import Selection
from sketchselect.selectors.supervised import models
from sketchselect.selectors.supervised.models import Candidate, ModelPath
from sketchselect.selectors.supervised.moments import Design
from sketchselect.selectors.supervised.predict import LinearPredictor
from sketchselect.solvers import Problem, least_squares

_LEAST_SPREAD = 1e-12


def class_statistics(problem: Problem, n_classes: int) -> tuple[Floats, Floats]:
    """Return ``(priors, differences)``: class frequencies and class means minus the overall mean, standardised columns.

    Follows from the regression's own moments: with an indicator z_k of class k, ``cov(x, z_k) = prior_k (mean_k -
    mean)``; one target of +-1 stands for the indicators ``(1 -+ y) / 2``.

    `problem`: With one target per class, or one of +-1 for two classes (the second is +1).

    Returns
    -------
    priors : array of shape (n_classes,)
    differences : array of shape (p, n_classes)
        Zero for a class without rows.
    """
    if problem.xy.shape[1] == 1 and n_classes == 2:
        positive = float(np.clip((1.0 + problem.y_mean[0]) / 2.0, 0.0, 1.0))
        priors = np.array([1.0 - positive, positive])
        covariance = np.hstack([-problem.xy, problem.xy]) / 2.0
    else:
        priors = np.clip(problem.y_mean, 0.0, 1.0)
        covariance = problem.xy
    present = priors > 0
    return priors, np.where(present, covariance / np.where(present, priors, 1.0), 0.0)


def discriminant(problem: Problem, model: Candidate, n_classes: int) -> tuple[Floats, Floats]:
    """Return coefficients and intercepts of the log posterior odds of a selected model.

    The regression's scores ``t = B'x`` have class means m_k and a common covariance V within the classes, both known
    from the moments; the discriminant is ``log prior_k + t'V^-1 m_k - m_k'V^-1 m_k / 2``. For a model that is the
    least-squares fit of its support this equals linear discriminant analysis of the selected columns; for a shrunken
    one it keeps the direction and sets slope and threshold right, which the regression's own intercept does not do
    unless the classes are equally frequent.

    `problem`: The standardised problem with class targets.
    `model`: The selected model.

    Returns
    -------
    coef : array of shape (k, n_outputs)
        In original units, for the columns of the support; n_outputs is 1 (the odds of the second class) for two
        classes, else n_classes.
    intercept : array of shape (n_outputs,)
        Minus infinity for a class without rows, which is never predicted.

    Notes
    -----
    Source: Hastie, Tibshirani and Friedman, Elements of Statistical Learning, sections 4.3 and 12.5 (optimal scoring).
    """
    priors, differences = class_statistics(problem, n_classes)
    s, b = model.support, model.coef
    d = differences[s]
    correlation = problem.correlation[np.ix_(s, s)]
    means = b.T @ d
    total = b.T @ correlation @ b
    within = total - (means * priors) @ means.T
    # Classes that the scores separate without error would have infinite odds: their spread is set to 1e-6 sd.
    spread = max(float(np.trace(total)), np.finfo(np.float64).tiny)
    squares, axes = np.linalg.eigh((within + within.T) / 2.0)
    squares = np.maximum(squares, _LEAST_SPREAD * spread)
    # Along the axes: a full inverse would drown the others in the rounding of the smallest one.
    along = axes.T @ means
    slopes = (b @ axes) @ (along / squares[:, None])
    with np.errstate(divide="ignore"):
        offsets = np.log(priors) - 0.5 * (along * along / squares[:, None]).sum(axis=0)
    if n_classes == 2:
        slopes, offsets = slopes[:, 1:] - slopes[:, :1], offsets[1:] - offsets[:1]
    coef: Floats = slopes / problem.scale[s, None]
    intercept: Floats = offsets - problem.mean[s] @ coef
    return coef, intercept


DEFAULT_FOLDS = 5
"""Folds by which a model is chosen unless something else is asked for."""

MOST_FOLDS_NBYTES = 2 << 30
"""Bytes of moments in folds up to which the default makes them: five folds of some 7,300 columns."""

_NO_RESIDUAL = 1e-12
"""Share of the target's squares below which a residual of pairwise moments is none."""


class ConstantTarget(UserWarning):
    """Warning that the target does not vary, so that no column can explain it."""


class ConstantColumns(UserWarning):
    """Warning that no column varies, so that none can explain the target."""


class FewerColumns(UserWarning):
    """Warning that fewer columns vary than were asked for."""


class NoFolds(UserWarning):
    """Warning that folds by default would take too much memory, so that an information criterion chooses the model."""


class Interpolation(UserWarning):
    """Warning that an unregularised model has a coefficient for every row, and so fits any target."""


@dataclass(frozen=True)
class Fitted:
    """A supervised selector's result: the models, the chosen one in original units, and a score for each column."""

    path: ModelPath
    scores: Floats
    coef: Floats
    intercept: Floats
    selection: Selection


class SupervisedKeywords(TypedDict, total=False):
    """Parameters of every supervised selector that are passed by keyword."""

    cv_rule: str
    ebic_gamma: float
    task: str
    degree: int
    half_life: float | None
    window: int | None
    missing: str | None
    random_state: int


class ModelFitter(LinearPredictor):
    """Base class of supervised selectors: parameters, and the models of a design.

    Parameters
    ----------
    n_features_to_select : int, optional
        Number of columns; by default that of the least error in five-fold cross-validation, of some fifty from none to
        all.
    criterion : "aic", "bic" or "ebic", optional
        Choose it by an information criterion, without folds. This is also what the default does where there are no
        folds: with `half_life` or `window`, from a summary without them, and (with a warning) where their moments would
        take more than 2 GiB, as five folds of 7,400 columns do. It takes BIC for `LassoPath` and `ElasticNetPath`,
        whose degrees of freedom are exact, and EBIC for others.
    cv : int, optional
        Number of folds. The folds are hashed rows, their moments come from the same one pass, and each
        takes the memory of one set; prepare steps that were fitted, and the centring of `degree` 2, have seen all rows.
    cv_rule : "min" or "1se"
        The best model, or the sparsest within one standard error of it.
    ebic_gamma : float
        Weight of the number of possible models in "ebic", from 0 to 1.
    task : "regression" or "classification"
        Classes may be numbers or text; two become a target of +-1, several an indicator each. The decision is that of
        linear discriminant analysis on the fitted scores.
    degree : 1 or 2
        2 adds all squares and products of the standardised columns, from the same pass; `coef_`, `support_` and
        `transform` are then of these terms.
    missing : "pairwise", optional
        NaN in X are missing values: use every pair of present ones. A matrix that was opened before must have been
        opened with ``nonfinite="missing"``. Predictions need complete rows.
    random_state : int
        Seed of the folds.
    """

    _seen_classes: tuple[Any, ...] | None

    def __init__(
        self,
        n_features_to_select: float | None = None,
        criterion: str | None = None,
        cv: int | None = None,
        *,
        cv_rule: str = "min",
        ebic_gamma: float = 0.5,
        task: str = "regression",
        degree: int = 1,
        half_life: float | None = None,
        window: int | None = None,
        missing: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.criterion: Any = criterion
        self.cv = cv
        self.cv_rule: Any = cv_rule
        self.ebic_gamma = ebic_gamma
        self.task = task
        self.degree = degree
        self.half_life = half_life
        self.window = window
        self.missing: Any = missing
        self.random_state = random_state

    # --- what a new method implements --------------------------------------------------------------------------

    refit: bool

    @property
    def refits(self) -> bool:
        """Whether the chosen model is the unregularised fit of its columns."""
        return bool(self.refit)

    @abstractmethod
    def _models(
        self, problem: Problem, size: int | None, values: Sequence[float] | None
    ) -> tuple[Sequence[Candidate], Floats | None]:
        """Return models from the sparsest on, and scores of all columns (None: sizes of the chosen coefficients).

        `size`: Number of columns to select: the models may end with the first of that size.
        `values`: Alphas (or numbers of columns) of exactly these models, for cross-validation.
        """

    def _chosen_by_value(self, candidates: Sequence[Candidate]) -> int | None:
        """Return the index of the model that a parameter names, or None."""
        return None

    @property
    def default_criterion(self) -> str:
        """What chooses the model by default where there are no folds."""
        return "ebic"

    @property
    def n_folds(self) -> int | None:
        """Number of folds that choose the model; None where something else does."""
        others = (self.criterion, self.n_features_to_select, getattr(self, "alpha", None), self.half_life, self.window)
        by_default = DEFAULT_FOLDS if all(other is None for other in others) else None
        return by_default if self.cv is None else self.cv

    def _most_columns(self, problem: Problem) -> int:
        """Return the most columns of a model that is compared: as many as the rows of a fold fit anything."""
        share = 1.0 if self.n_folds is None else 1.0 - 1.0 / self.n_folds
        return max(int(share * problem.n) - 2, 1)

    parameter: ClassVar[str] = "n_features"
    """The quantity that the models of a path differ in: "alpha" or "n_features"."""

    def _fit_design(self, design: Design, size: int | None) -> Fitted:
        """Return the model of a design; pure."""
        problem = design.problem
        constant = not (problem.yy.diagonal() > 0).any()
        if constant:
            warnings.warn(
                ConstantTarget("the target is constant: no column is selected, and its mean is predicted"), stacklevel=6
            )
        elif not problem.active.any():
            warnings.warn(
                ConstantColumns(
                    "no column varies (by more than the rounding of its mean, or 1e-152): none is selected, and the "
                    "target's mean is predicted"
                ),
                stacklevel=6,
            )
        elif self.n_features_to_select is not None and size is not None:
            self._warn_if_fewer(int(np.count_nonzero(problem.active)), size, problem.active.size)
        candidates, scores = self._path(problem, size, constant)
        errors = None
        chosen = self._chosen_by_value(candidates)
        compared = size is None and chosen is None
        if compared and self.refit:
            candidates = [refitted(problem, c) for c in candidates]
        path = ModelPath(
            parameter=self.parameter,
            candidates=candidates,
            mean=problem.mean,
            scale=problem.scale,
            y_mean=problem.y_mean,
            target_squares=problem.yy.diagonal().copy(),
            n=problem.n,
            n_active=int(np.count_nonzero(problem.active)),
            ebic_gamma=float(self.ebic_gamma),
        )
        if chosen is None and size is not None:
            chosen = models.best_by_size(candidates, size)
        elif chosen is None and design.folds is not None:
            errors = self._validation_errors(design, path)
            chosen = models.best_by_validation(errors, self.cv_rule)
        elif chosen is None:
            chosen = models.best_by_criterion(path.criteria[self.criterion or self.default_criterion])
        if self.refit and not compared:
            candidates = [*candidates[:chosen], refitted(problem, candidates[chosen]), *candidates[chosen + 1 :]]
        path = replace(path, candidates=candidates, chosen=chosen, cv_errors=errors)
        self._warn_if_saturated(path.model.support.size, design.moments.n_rows)
        if getattr(design.moments, "missing", None) == "pairwise":
            self._warn_if_nothing_is_left(path)
        return self._fitted(design, path, scores)

    @staticmethod
    def _warn_if_fewer(n_active: int, size: int, n_columns: int) -> None:
        if n_active < size:
            warnings.warn(
                FewerColumns(
                    f"only {n_active} of {n_columns} columns vary: at most these are selected, not the {size} of "
                    "n_features_to_select; a constant column cannot explain a target"
                ),
                stacklevel=7,
            )

    def _warn_if_saturated(self, n_columns: int, n_rows: int) -> None:
        if self.refits and n_columns and n_columns + 1 >= n_rows:
            warnings.warn(
                Interpolation(
                    f"least squares on {n_columns} columns of {n_rows} rows fits any target: the coefficients are "
                    "those of least norm; select fewer columns, or use a penalised path without refit"
                ),
                stacklevel=7,
            )

    @staticmethod
    def _warn_if_nothing_is_left(path: ModelPath) -> None:
        chosen = path.candidates[path.chosen]
        if chosen.support.size and (chosen.rss <= _NO_RESIDUAL * path.target_squares).any():
            warnings.warn(
                Interpolation(
                    "moments of pairs of columns, each of other rows, leave no residual to measure: R2 and criteria "
                    "say nothing here; fill the missing values first"
                ),
                stacklevel=7,
            )

    def _path(self, problem: Problem, size: int | None, constant: bool) -> tuple[Sequence[Candidate], Floats | None]:
        """Return the models; only one, without columns, for a target that no column can explain."""
        p, q = problem.xy.shape
        # Moments that were merged differ from those of all rows by rounding, which explains nothing.
        rounding = 8.0 * np.finfo(np.float64).eps * np.sqrt(problem.yy.diagonal())
        if constant or not (np.abs(problem.xy) > rounding).any():
            return [Candidate.of(problem, 0.0, np.zeros((p, q)))], None
        return self._models(problem, size, None)

    def _validation_errors(self, design: Design, path: ModelPath) -> Floats:
        values = path.values.tolist()

        def solve(problem: Problem) -> Sequence[Candidate]:
            if not problem.active.any():
                return [Candidate.of(problem, v, np.zeros(problem.xy.shape)) for v in values]
            candidates = self._models(problem, None, values)[0]
            return [refitted(problem, c) for c in candidates] if self.refit else candidates

        with warnings.catch_warnings():
            # Of the path's own models; the errors of a fold are those of what was reached in it.
            warnings.simplefilter("ignore", RuntimeWarning)
            return models.cross_validation_errors(solve, design.splits(), len(path))

    def _fitted(self, design: Design, path: ModelPath, scores: Floats | None) -> Fitted:
        problem, model = design.problem, path.model
        p = problem.scale.size
        strengths = model.strengths(p) if scores is None else scores
        if design.classes is None:
            exact = design.exact_fit(model.support) if self.refits else None
            coef, intercept = exact or model.original_units(problem)
        else:
            coef, intercept = discriminant(problem, model, len(design.classes))
        dense = np.zeros((p, coef.shape[1]))
        dense[model.support] = coef
        columns, column_scores = design.source_columns(model.support, strengths)
        total = float(path.target_squares.sum())
        selection = Selection(
            method=self.method,
            support=columns,
            scores=column_scores,
            feature_names=design.source_names,
            parameters=self._resolved(path),
            diagnostics={
                "n_selected": int(columns.size),
                "coefficients": coef.T.tolist(),
                "intercept": [float(b) if np.isfinite(b) else None for b in intercept],
                "terms": None if design.expansion is None else [(design.names or ())[j] for j in model.support],
                "explained": 1.0 - float(model.rss.sum()) / total if total > 0 else None,
                "effective_rows": float(problem.n),
                "model": float(model.value),
                "converged": bool(path.converged.all()),
                "cv_error": None if path.cv_errors is None else float(path.cv_errors[path.chosen].mean()),
            },
        )
        return Fitted(path, strengths, dense, intercept, selection)

    def _resolved(self, path: ModelPath) -> dict[str, Any]:
        """Return the parameters that repeat this selection, as plain values."""
        out: dict[str, Any] = {}
        for name, value in self.get_params(deep=False).items():
            out[name] = np.asarray(value).tolist() if isinstance(value, (np.generic, np.ndarray)) else value
        if self.n_features_to_select is not None:
            out["n_features_to_select"] = int(path.model.support.size)
        return out


def refitted(problem: Problem, model: Candidate) -> Candidate:
    """Return the unregularised least-squares fit of the model's columns."""
    if not model.support.size:
        return model
    coef = least_squares(problem, model.support)
    return Candidate.of(problem, model.value, coef, model.support, model.gap, model.converged)
