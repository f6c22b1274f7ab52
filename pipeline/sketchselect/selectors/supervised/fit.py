"""Fitting the models of a supervised selector to a design, and taking one of them."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.selectors.selection import Selection
from sketchselect.selectors.supervised import model_choice
from sketchselect.selectors.supervised.linear_discriminant import discriminant
from sketchselect.selectors.supervised.model_path import Candidate, ModelPath
from sketchselect.selectors.supervised.moments import Design
from sketchselect.selectors.supervised.predict import LinearPredictor
from sketchselect.solvers import Problem, least_squares


class ConstantTarget(UserWarning):
    """The target does not vary, so that no column can explain it."""


class ConstantColumns(UserWarning):
    """No column varies, so that none can explain the target."""


class Interpolation(UserWarning):
    """An unregularised model has a coefficient for every row, and so fits whatever the target is."""


@dataclass(frozen=True)
class Fitted:
    """What a supervised selector learned: the models it compared, the one it took, and a score for each column."""

    path: ModelPath
    scores: Floats
    coef: Floats
    intercept: Floats
    selection: Selection


class ModelFitter(LinearPredictor):
    """From a design to the chosen model: what `SupervisedSelector` does between its moments and its attributes."""

    # parameters that every subclass declares in its constructor
    n_features_to_select: int | None
    criterion: Any
    cv: int | None
    cv_rule: Any
    ebic_gamma: float
    task: Any
    degree: int
    refit: bool
    half_life: float | None
    window: int | None
    missing: Any
    random_state: int
    _seen_classes: tuple[Any, ...] | None

    # --- what a new method implements --------------------------------------------------------------------------

    @abstractmethod
    def _models(
        self, problem: Problem, size: int | None, values: Sequence[float] | None
    ) -> tuple[Sequence[Candidate], Floats | None]:
        """Return models from the sparsest on, and scores of all columns (None: sizes of the chosen coefficients).

        Parameters
        ----------
        problem : Problem
        size : int or None
            Columns wanted: the models may end with the first of so many.
        values : sequence of float or None
            Alphas (or numbers of columns) of exactly these models, for cross-validation.
        """

    def _chosen_by_value(self, candidates: Sequence[Candidate]) -> int | None:
        """Return the model that a parameter names outright, or None."""
        return None

    @property
    def refits(self) -> bool:
        """Whether the chosen model is the unregularised fit of its columns."""
        return bool(self.refit)

    parameter: ClassVar[str] = "n_features"
    """What tells the models of a path apart: "alpha" or "n_features"."""

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
                    "no column varies (beyond the rounding of its mean, or by more than 1e-152): none is selected, and "
                    "the target's mean is predicted"
                ),
                stacklevel=6,
            )
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
            chosen = model_choice.best_by_size(candidates, size)
        elif chosen is None and self.cv is not None:
            errors = self._validation_errors(design, path)
            chosen = model_choice.best_by_validation(errors, self.cv_rule)
        elif chosen is None:
            chosen = model_choice.best_by_criterion(path.criteria[self.criterion])
        if self.refit and not compared:
            candidates = [*candidates[:chosen], refitted(problem, candidates[chosen]), *candidates[chosen + 1 :]]
        path = replace(path, candidates=candidates, chosen=chosen, cv_errors=errors)
        self._warn_if_saturated(path.model.support.size, design.moments.n_rows)
        return self._fitted(design, path, scores)

    def _warn_if_saturated(self, n_columns: int, n_rows: int) -> None:
        if self.refits and n_columns and n_columns + 1 >= n_rows:
            warnings.warn(
                Interpolation(
                    f"least squares on {n_columns} columns of {n_rows} rows fits any target: the coefficients are "
                    "those of least norm; select fewer columns, or use a penalised path without refit"
                ),
                stacklevel=7,
            )

    def _path(self, problem: Problem, size: int | None, constant: bool) -> tuple[Sequence[Candidate], Floats | None]:
        """Return the models; one without columns for a target that cannot be explained."""
        p, q = problem.xy.shape
        if constant or not problem.active.any():
            return [Candidate.of(problem, 0.0, np.zeros((p, q)))], None
        return self._models(problem, size, None)

    def _validation_errors(self, design: Design, path: ModelPath) -> Floats:
        values = path.values.tolist()

        def solve(problem: Problem) -> Sequence[Candidate]:
            if not problem.active.any():
                return [Candidate.of(problem, v, np.zeros(problem.xy.shape)) for v in values]
            found = self._models(problem, None, values)[0]
            return [refitted(problem, c) for c in found] if self.refit else found

        return model_choice.cross_validation_errors(solve, design.splits(), len(path))

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
                "coefficients": coef.T.tolist(),
                "intercept": [float(b) if np.isfinite(b) else None for b in intercept],
                "terms": None if design.expansion is None else [(design.names or ())[j] for j in model.support],
                "explained": 1.0 - float(model.rss.sum()) / total if total > 0 else None,
                "effective_rows": float(problem.n),
                "model": float(model.value),
                "cv_error": None if path.cv_errors is None else float(path.cv_errors[path.chosen].mean()),
            },
        )
        return Fitted(path, strengths, dense, intercept, selection)

    def _resolved(self, path: ModelPath) -> dict[str, Any]:
        """Return the parameters as plain values: those that give this selection again."""
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
    return Candidate.of(problem, model.value, coef, model.support)
