"""Selectors with a path of sparse linear models: from moments of columns and target to the choice of one model."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect.errors import BadParameter, Incompatible, warn
from sketchselect.linalg.parameters import Count, HalfLife, SeedNumber, Size, number, whole
from sketchselect.linalg.validation import MOST_TIMES, Floats
from sketchselect.selectors.base import BaseSelector, Selection
from sketchselect.selectors.supervised import models
from sketchselect.selectors.supervised.models import (
    Candidate,
    Criterion,
    Design,
    ModelPath,
    Rule,
    coefficient_error,
    design_of,
    warn_of_few_digits,
)
from sketchselect.selectors.supervised.predict import LinearModelMixin, discriminant, expected_wrong, observed_wrong
from sketchselect.selectors.supervised.target import (
    ConstantColumns,
    ConstantTarget,
    DoubtfulClasses,
    FewerColumns,
    TargetMixin,
    Task,
    with_task,
)
from sketchselect.solvers import Problem, least_squares
from sketchselect.summaries import Folds, Moments, Summary

DEFAULT_FOLDS = 5
"""Number of folds by which a model is chosen by default."""

MOST_FOLDS_NBYTES = 2 << 30
"""Bytes of moments in folds up to which the default makes them: five folds of some 7,300 columns."""

_NO_RESIDUAL = 1e-12
"""Share of the target's squares below which a residual of pairwise moments is none."""


_LEAST_SQUARED = 1e-152
"""Standard deviation of a target below which it counts as constant, as that of a column does."""

NOTHING_VARIES = (
    "no column varies (by more than the rounding of its mean, or 1e-152): none is selected, and the target's mean is "
    "predicted"
)


class NoFolds(UserWarning):
    """Warning that folds by default would take too much memory, so that an information criterion chooses the model."""


class Interpolation(UserWarning):
    """Warning that an unregularised model has a coefficient for every row, and so fits any target."""


def _warn(category: type[UserWarning], text: str) -> None:
    warn(text, category)


@dataclass(frozen=True)
class Fitted:
    """A supervised selector's result: the models, the chosen one in original units, and a score for each column."""

    path: ModelPath
    scores: Floats
    coef: Floats
    intercept: Floats
    selection: Selection


def ignore_early_warnings() -> None:
    """Ignore warnings that few rows, the first ones of a stream or a half of all, give without reason."""
    for early in (ConstantTarget, ConstantColumns, FewerColumns, Interpolation, DoubtfulClasses):
        warnings.simplefilter("ignore", early)


Probability = Annotated[float, number(least=0, most=1)]
_OF_FOLDS = "cv is the number of folds; fit(X, y, groups=...) keeps groups of rows whole"
Folded = Annotated[int, whole(2, _OF_FOLDS, MOST_TIMES)]


class PathKeywords(TypedDict, total=False):
    """Parameters of every selector with a path of models that are passed by keyword."""

    cv_rule: Rule
    ebic_gamma: Probability
    task: Task
    degree: Literal[1, 2]
    half_life: HalfLife | None
    window: Count | None
    missing: Literal["pairwise"] | None
    random_state: SeedNumber


class PathSelector(LinearModelMixin, TargetMixin, BaseSelector):
    """Base of the selectors that fit a path of sparse linear models from moments, and choose one.

    Rows of float32 are summarised as float64, because coefficients multiply the rounding of products by the condition
    number of the columns. Of moments with products in float32 (`Moments` of float32 rows) the error to expect is in
    ``selection_.diagnostics["coefficient_error"]``, and above 1e-4 a warning says so.

    A subclass implements `_models`: the models of a standardised problem, from the sparsest on. Choice of the model,
    classification, several targets, polynomial terms, streams and original units are derived here, once.

    Parameters
    ----------
    n_features_to_select : int, optional
        Number of columns; by default that of the least error in five-fold cross-validation, of some fifty from none to
        all.
    criterion : "aic", "bic" or "ebic", optional
        Choose it by an information criterion, without folds. This is also the default without
        folds: with `half_life` or `window`, from a summary without them, and (with a warning) where their moments would
        take more than 2 GiB, as five folds of 7,400 columns do. It takes BIC for `LassoPath` and `ElasticNetPath`,
        whose degrees of freedom are exact, and EBIC for others.
    cv : int, optional
        Number of folds. The folds are hashed rows, their moments come from the same one pass, and each
        takes the memory of one set; prepare steps that were fitted, and the centring of `degree` 2, have seen all rows.
    cv_rule : "min" or "1se"
        The best model, or the sparsest within one standard error.
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

    Attributes
    ----------
    coef_ : array of shape (n_columns,) or (n_outputs, n_columns)
        In the data's own units. Regression: one row per target if there are several. Classification: one row (the log
        odds of the second class) or one per class.
    intercept_ : float or array of shape (n_outputs,)
    classes_ : array
        Labels, ascending; classification only.
    path_ : ModelPath
        All models compared: ``alphas``, ``coefs``, ``n_nonzero``, ``criteria``, ``cv_errors``, ``gaps``,
        ``plot_path()``.
    converged_ : bool
        Whether no solver stopped before its `tol`: ``path_.converged`` of every model. ``path_.gaps`` says how far off.
    support_, scores_, selection_, summary_
        As for every selector; with degree=2 `support_` and `scores_` are of polynomial terms.
    """

    fits_model: ClassVar[bool] = True
    automatic: ClassVar[dict[str, Any] | None] = {"cv": 5, "cv_rule": "1se"}
    requires: ClassVar[tuple[str, ...]] = ("moments", "folds", "decayed-moments")

    def __init__(
        self,
        n_features_to_select: Size | None = None,
        criterion: Criterion | None = None,
        cv: Folded | None = None,
        *,
        cv_rule: Rule = "min",
        ebic_gamma: Probability = 0.5,
        task: Task = "regression",
        degree: Literal[1, 2] = 1,
        half_life: HalfLife | None = None,
        window: Count | None = None,
        missing: Literal["pairwise"] | None = None,
        random_state: SeedNumber = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.criterion = criterion
        self.cv = cv
        self.cv_rule: Rule = cv_rule
        self.ebic_gamma = ebic_gamma
        self.task = task
        self.degree: Literal[1, 2] = degree
        self.half_life = half_life
        self.window = window
        self.missing = missing
        self.random_state = random_state

    def check_parameters(self) -> None:
        """Raise `BadParameter` for a parameter out of range, or parameters that exclude each other."""
        super().check_parameters()
        if self.n_features_to_select is not None and self.cv is not None:
            raise BadParameter("n_features_to_select and cv both choose the model; leave one of them out")
        if self.half_life is not None:
            if self.cv is not None:
                raise BadParameter("cv needs moments that do not decay: leave half_life or cv out")
            if self.degree == 2 or self.missing is not None:
                raise BadParameter("half_life needs degree=1 and missing=None")

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
        """The criterion that chooses the model by default without folds."""
        return "ebic"

    @property
    def n_folds(self) -> int | None:
        """Number of folds that choose the model; None if another parameter does."""
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
        problem, n_active = design.problem, int(np.count_nonzero(design.problem.active))
        constant = not (problem.yy.diagonal() > 0).any()
        if constant:
            # Of a mean of zero the moments do not tell a target of zeros from one whose squares are zero.
            largest = np.abs(problem.y_mean).max()
            too_small = f"too small to be squared (below {_LEAST_SQUARED:g})"
            what, cure = "constant", ""
            if largest < _LEAST_SQUARED:
                what = f"{too_small}, as if it were constant" if largest > 0.0 else f"constant, or {too_small}"
                cure = "; multiply it by a number" if largest > 0.0 else "; multiply one that varies by a number"
            _warn(ConstantTarget, f"the target is {what}: no column is selected, and its mean is predicted{cure}")
        elif n_active == 0:
            _warn(ConstantColumns, NOTHING_VARIES)
        elif self.n_features_to_select is not None and size is not None and n_active < size:
            _warn(
                FewerColumns,
                f"only {n_active} of {problem.active.size} columns vary: at most these are selected, not the {size} of "
                "n_features_to_select; a constant column cannot explain a target",
            )
        candidates, scores = self._path(problem, size, constant)
        errors = None
        choice = self._chosen_by_value(candidates)
        is_compared = size is None and choice is None
        if is_compared and self.refit:
            candidates = [refitted(problem, c) for c in candidates]
        path = ModelPath(
            parameter=self.parameter,
            candidates=candidates,
            mean=problem.mean,
            scale=problem.scale,
            y_mean=problem.y_mean,
            target_squares=problem.yy.diagonal().copy(),
            n=problem.n,
            n_active=n_active,
            ebic_gamma=float(self.ebic_gamma),
            feature_names=design.names,
        )
        if choice is None and size is not None:
            choice = models.best_by_size(candidates, size)
        elif choice is None and design.folds is not None:
            errors = self._validation_errors(design, path.values)
            choice = models.best_by_validation(errors, self.cv_rule)
        elif choice is None:
            # Of equal ones the first, which is the sparser model.
            choice = int(np.argmin(path.criteria[self.criterion or self.default_criterion]))
        if self.refit and not is_compared:
            candidates = [*candidates[:choice], refitted(problem, candidates[choice]), *candidates[choice + 1 :]]
        path = replace(path, candidates=candidates, chosen=choice, cv_errors=errors)
        n_columns, n_rows = path.model.support.size, design.moments.n_rows
        if self.refits and n_columns and n_columns + 1 >= n_rows:
            _warn(
                Interpolation,
                f"least squares on {n_columns} columns of {n_rows} rows fits any target: the coefficients are those of "
                "least norm; select fewer columns, or use a penalised path without refit",
            )
        is_pairwise = getattr(design.moments, "missing", None) == "pairwise"
        if is_pairwise and n_columns and (path.model.rss <= _NO_RESIDUAL * path.target_squares).any():
            _warn(
                Interpolation,
                "moments of pairs of columns, each of other rows, leave no residual to measure: R2 and criteria say "
                "nothing here; fill the missing values first",
            )
        return self._fitted(design, path, scores)

    def _path(self, problem: Problem, size: int | None, constant: bool) -> tuple[Sequence[Candidate], Floats | None]:
        """Return the models; only one, without columns, for a target that no column can explain."""
        p, q = problem.xy.shape
        # Moments that were merged differ from those of all rows by rounding, which explains nothing.
        rounding = 8.0 * np.finfo(np.float64).eps * np.sqrt(problem.yy.diagonal())
        if constant or not (np.abs(problem.xy) > rounding).any():
            return [Candidate.of(problem, 0.0, np.zeros((p, q)))], None
        return self._models(problem, size, None)

    def _validation_errors(self, design: Design, alphas_or_sizes: Floats) -> Floats:
        values = alphas_or_sizes.tolist()

        def solve(problem: Problem) -> Sequence[Candidate]:
            if not problem.active.any():
                return [Candidate.of(problem, v, np.zeros(problem.xy.shape)) for v in values]
            candidates = self._models(problem, None, values)[0]
            return [refitted(problem, c) for c in candidates] if self.refit else candidates

        with warnings.catch_warnings():
            # Convergence of the path's own models; the errors of a fold are those of the models it reached.
            warnings.simplefilter("ignore", RuntimeWarning)
            return models.cross_validation_errors(solve, design.splits(), len(values), len(design.folds))

    def held_out_error(
        self, design: Design, path: ModelPath, n_select: int, errors: Floats, samples: Sequence[Any] | None
    ) -> float:
        """Return the error of a path on held-out folds, where the other folds choose the model that predicts a fold.

        The folds that choose the model of least error cannot also say how large its error is. That of numbers is the
        mean squared error over the variance of the target; that of classes the misclassification rate.

        `design`: With folds.
        `n_select`: Number of columns; 0 if the folds choose it.
        `errors`: Of the path's models on the folds; of the first ones alone, if no others are to be chosen.
        `samples`: Of the rows of every fold, with their classes; None: the rate is expected from the folds' moments.
        """
        n_folds = errors.shape[1]
        if n_select:
            chosen = [models.best_by_size(path.candidates, n_select)] * n_folds
        else:
            others = (np.delete(errors, fold, axis=1) for fold in range(n_folds))
            chosen = [models.best_by_validation(of_others, self.cv_rule) for of_others in others]
        if design.classes is not None:
            return self._held_out_wrong(design, path.values[chosen].tolist(), samples)
        return float(errors[chosen, np.arange(n_folds)].mean()) / (float(path.target_squares.sum()) or 1.0)

    def _held_out_wrong(self, design: Design, values: Sequence[float], samples: Sequence[Any] | None) -> float:
        """Return the misclassification rate on held-out folds; each is predicted by the model of one value."""
        wrong = rows = 0.0
        usable = models.usable_folds([fold.weight for fold in design.folds])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            for i, (problem, moments), value in zip(usable, design.splits(), values, strict=True):
                model = Candidate.of(problem, value, np.zeros(problem.xy.shape))
                if problem.active.any():
                    model = self._models(problem, None, [value])[0][0]
                if self.refit:
                    model = refitted(problem, model)
                coef, intercept = discriminant(problem, model, len(design.classes or ()))
                if samples is None:
                    rate = expected_wrong(coef, intercept, model.support, moments)
                else:
                    rate = observed_wrong(coef, intercept, model.support, design.expansion, samples[i])
                wrong += float(moments.weight) * rate
                rows += float(moments.weight)
        return wrong / rows

    def _misclassification(self, design: Design, path: ModelPath, coef: Floats, intercept: Floats) -> dict[str, Any]:
        """Return the rates expected from moments: of the fitted rows, and of held-out folds if these chose the model.

        The member `counted` says whether the rate on held-out folds was counted on rows; where that of the fitted rows
        was, `fitted_counted` does.
        """
        moments, support = design._terms(design.moments), path.model.support
        fitted, held_out = expected_wrong(coef[support], intercept, support, moments), None
        if path.cv_errors is not None:
            held_out = self.held_out_error(design, path, 0, path.cv_errors, None)
        rates = {"held_out": held_out, "fitted": fitted}
        finite = {name: rate if rate is not None and np.isfinite(rate) else None for name, rate in rates.items()}
        return {**finite, "counted": False}

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
        size = {} if self.n_features_to_select is None else {"n_features_to_select": int(model.support.size)}
        selection = Selection(
            method=self.method,
            support=columns,
            scores=column_scores,
            feature_names=design.source_names,
            parameters=self._resolved(**size),
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
        if design.classes is not None:
            selection.diagnostics["misclassification"] = self._misclassification(design, path, dense, intercept)
        return Fitted(path, strengths, dense, intercept, selection)

    def summary_description(self, n_features: int) -> Summary[Any]:
        """Return the moments of columns and target: in folds for cross-validation, decayed with `half_life`."""
        classes, groups = self.seen_classes, self.has_groups
        if groups and self.n_folds is None:
            raise BadParameter("groups are for the folds of cross-validation, and another parameter chooses the model")
        if self.half_life is not None:
            return Moments(classes=classes, half_life=self.half_life)
        moments = Moments(degree=self.degree, missing=self.missing, classes=classes)
        if self.n_folds is None:
            return moments
        folds = Folds(moments, self.n_folds, self.random_state, groups)
        by_default = self.cv is None and not groups
        return moments if by_default and folds.projected_nbytes(n_features, 1) > MOST_FOLDS_NBYTES else folds

    def summary_kinds(self) -> tuple[str, ...]:
        """Return the kinds of summary that the selector, with its parameters, can select from, the best first."""
        if self.cv is not None:
            return ("folds",)
        kinds = super().summary_kinds()
        return kinds if self.n_folds is None else ("folds", *kinds)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, **options: Any) -> Any:
        """Add a batch of rows to the stream and fit again, as `TargetMixin.partial_fit` says."""
        with warnings.catch_warnings():
            # A stream may begin with rows of one value, or with few.
            ignore_early_warnings()
            return super().partial_fit(X, y, classes, **options)

    def _select(self, summary: Any, n_select: int) -> Selection:
        if self.cv is not None and getattr(summary, "n_folds", None) != self.cv:
            were = f"are in {summary.n_folds} folds" if isinstance(summary, Folds) else "are not in folds"
            raise Incompatible(f"the moments of the rows seen so far {were}, but cv is {self.cv}; set it to match")
        with_folds = self.cv is not None or (self.n_folds is not None and can_validate(summary))
        if self.n_folds is not None and summary.kind == Moments.kind:
            nbytes = Folds(summary.describe(), self.n_folds).projected_nbytes(summary.n_features, 1)
            if nbytes > MOST_FOLDS_NBYTES:
                _warn(
                    NoFolds,
                    f"moments in {self.n_folds} folds would take {format_bytes(nbytes)}: the model is chosen by "
                    f"{self.default_criterion.upper()} instead; set cv={self.n_folds} to cross-validate all the same",
                )
        design = self._design(summary, with_folds)
        fit = self._fit_design(design, n_select or None)
        self.path_ = fit.path
        self.converged_ = bool(fit.path.converged.all())
        single = fit.coef.shape[1] == 1 and self.task == "regression"
        self.coef_ = fit.coef[:, 0] if single else fit.coef.T.copy()
        self.intercept_ = float(fit.intercept[0]) if single else fit.intercept
        self._terms, self._term_scores, self._expansion = fit.path.model.support, fit.scores, design.expansion
        self._term_names = design.names
        if design.classes is not None:
            self.classes_ = np.array(design.classes)
        elif hasattr(self, "classes_"):
            del self.classes_  # of an earlier fit with another task
        error = coefficient_error(design, self._terms)
        if error is None:
            return fit.selection
        warn_of_few_digits(error)
        return replace(fit.selection, diagnostics={**fit.selection.diagnostics, "coefficient_error": error})

    def _design(self, summary: Any, with_folds: bool) -> Design:
        """Return the design of a summary."""
        return design_of(summary, self.task, self.degree, with_folds=with_folds)

    def __sklearn_tags__(self) -> Any:
        return with_task(super().__sklearn_tags__(), self.task)


def can_validate(summary: Any) -> bool:
    """Return whether a summary has at least two folds with rows."""
    return isinstance(summary, Folds) and sum(np.max(fold.weight, initial=0.0) > 0 for fold in summary) >= 2


def refitted(problem: Problem, model: Candidate) -> Candidate:
    """Return the unregularised least-squares fit of the model's columns."""
    if not model.support.size:
        return model
    coef = least_squares(problem, model.support)
    return Candidate.of(problem, model.value, coef, model.support, model.gap, model.converged)
