"""The fitted model of a method with a target: ``model.json``, ``path.csv``, and their figures in the report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect._text import counted
from sketchselect.linalg.validation import Floats
from sketchselect.selectors import BaseSelector
from sketchselect.workflow.tables import csv_text, plain_value

MAX_LINES = 30
"""Columns whose coefficients are followed along the path on the page."""

CODES = 1e-9
"""Rounding of the variance of zeros and ones, relative to it."""

MAX_LISTED = 100
"""Coefficients listed on the page."""


@dataclass(frozen=True, eq=False)
class Model:
    """A sparse linear model and the path it was chosen from."""

    # method, task: The method, and "regression" (to a number) or "classification" (to classes)
    method: str
    task: str
    # shape (k,): Terms with a coefficient, ascending: columns, or with ``degree = 2`` also their squares and products
    terms: NDArray[np.int64]
    names: tuple[str, ...] | None  # Names of all terms; None where the columns have none
    # shape (k, n_outputs): In original units: an output is ``intercept + values of the terms @ coefficients`` for a
    # prepared row
    coefficients: Floats
    intercepts: Floats  # shape (n_outputs,): Minus infinity for a class without rows
    # shape (k, n_targets): Of the terms scaled to standard deviation 1: comparable with one another
    standardized: Floats
    # Labels of a classification. Two classes have one output, the log odds of the second; more have one each.
    classes: tuple[Any, ...] | None
    path: Any  # All models it was chosen from; see `sketchselect.selectors.supervised.models`
    chosen_by: str  # The rule of choice: the number of columns, a criterion, cross-validation
    rule: str  # Which point of a cross-validation curve is taken: "min" or "1se"
    n_rows: int  # Rows it was fitted to
    prepare: tuple[str, ...]  # Steps the rows went through first
    target: str | None = None  # Name of the target's column in the source
    # Of classes: `PathSelector._misclassification`
    misclassification: dict[str, Any] | None = None
    expansion: Any = None  # How rows become terms, with ``degree = 2``; see `sketchselect.selectors.supervised.models`

    def name_of(self, term: int) -> str:
        """Return the name of a term."""
        return f"column {term}" if self.names is None else self.names[term]

    def columns_of(self, terms: NDArray[np.int64]) -> list[list[int]]:
        """Return the columns whose product each term is."""
        if self.expansion is None:
            return [[int(j)] for j in terms]
        pairs = zip(*self.expansion.columns(terms), strict=True)
        return [[int(i)] if j < 0 else [int(i), int(j)] for i, j in pairs]

    @property
    def explained(self) -> float | None:
        """Share of the targets' variance that the chosen model explains on the rows it was fitted to."""
        return self._share(float(self.path.residual_squares[self.path.chosen]))

    @property
    def explained_held_out(self) -> float | None:
        """The same on held-out folds; None without cross-validation."""
        errors = self.path.mean_cv_error
        return None if errors is None else self._share(float(errors[self.path.chosen]))

    @property
    def is_of_codes(self) -> bool:
        """Whether a regression is of a target with the values 0 and 1 alone, as its mean and variance tell."""
        path = self.path
        if self.task != "regression" or path.family != "gaussian" or len(path.y_mean) != 1:
            return False
        mean, variance = float(path.y_mean[0]), float(path.target_squares[0])
        return variance > 0 and abs(variance - mean * (1.0 - mean)) <= CODES * variance

    def _share(self, error: float) -> float | None:
        total = float(np.sum(self.path.target_squares))
        return 1.0 - error / total if total > 0 else None

    def sentence(self) -> str:
        """Return the model in one line for the terminal."""
        path = self.path
        value = f"alpha {path.values[path.chosen]:.6g}, " if path.parameter == "alpha" else ""
        text = f"model: {counted(self.terms.size, self._word)} ({value}chosen by {self.chosen_by})"
        if self.task == "regression" or path.family != "gaussian":
            share_name = "R2" if path.family == "gaussian" else "D2 (share of the deviance explained)"
            shares = [(self.explained, "on these rows"), (self.explained_held_out, "on held-out folds")]
            parts = [f"{share:.4f} {where}" for share, where in shares if share is not None]
            text += f"; {share_name} {', '.join(parts)}" if parts else ""
        if self.misclassification is not None:
            text += f"; {rates_in_words(self.misclassification)}"
        return text

    @property
    def _word(self) -> str:
        return "column" if self.expansion is None else "term"

    def outline(self) -> dict[str, Any]:
        """Return the model's entry in manifest and ``model.json``, without its coefficients."""
        path, i = self.path, self.path.chosen
        fit, error, share = _measures(path)
        content: dict[str, Any] = {
            "method": self.method,
            "task": self.task,
            "classes": None if self.classes is None else list(self.classes),
            "n_rows": self.n_rows,
            "n_terms": int(self.terms.size),
            "chosen_by": self.chosen_by,
            "path_parameter": path.parameter,
            "path_value": float(path.values[i]),
            "path_length": len(path),
            fit: float(path.residual_squares[i]),
            share: self.explained,
            "criteria": {name: float(values[i]) for name, values in path.criteria.items()},
            "cv": None,
        }
        if self.misclassification is not None:
            content["misclassification"] = self.misclassification
        if path.family != "gaussian":
            content["family"] = path.family
        if path.cv_errors is not None:
            content["cv"] = {
                "n_folds": int(path.cv_errors.shape[1]),
                "rule": self.rule,
                error: float(path.mean_cv_error[i]),
                "standard_error": _standard_error(path.cv_errors[i]),
                share: self.explained_held_out,
            }
        return content

    def figure(self) -> dict[str, Any]:
        """Return the content of the report's sections on the model.

        `terms`, strongest first, with `coefficients` (n_terms, n_outputs) in units of the data and `strengths` of the
        standardised terms; `values` and `sizes` of the models along the path, `chosen` among them; `path_lines`
        (n_models, n_followed): standardised coefficients of `path_terms`; `criteria`, `cv_mean`, `cv_error`: curves.
        """
        path = self.path
        strongest = np.argsort(-np.linalg.norm(self.standardized, axis=1), kind="stable")[:MAX_LISTED]
        columns, lines = path.lines()
        return {
            "task": self.task,
            "outputs": _outputs(self.classes, self.coefficients.shape[1], self.target),
            "terms": [self.name_of(int(self.terms[j])) for j in strongest],
            "coefficients": self.coefficients[strongest],
            "strengths": self._signed()[strongest],
            "intercepts": self.intercepts,
            "n_terms": int(self.terms.size),
            "chosen_by": self.chosen_by,
            "explained": self.explained,
            "explained_held_out": self.explained_held_out,
            "misclassification": self.misclassification,
            "parameter": path.parameter,
            "values": path.values,
            "sizes": path.n_nonzero,
            "chosen": int(path.chosen),
            "path_terms": [self.name_of(int(j)) for j in columns],
            "path_lines": lines,
            "criteria": {name: np.asarray(values) for name, values in path.criteria.items()},
            "cv_mean": path.mean_cv_error,
            "cv_error": path.cv_standard_error,
            "cv_folds": 0 if path.cv_errors is None else int(path.cv_errors.shape[1]),
            "cv_rule": self.rule,
            "expanded": self.expansion is not None,
            "family": path.family,
        }

    def _signed(self) -> Floats:
        """Return one number per column: its standardised coefficient, or the norm of several targets'."""
        if self.standardized.shape[1] == 1:
            return self.standardized[:, 0]
        norms: Floats = np.linalg.norm(self.standardized, axis=1)
        return norms


def model_of(selector: BaseSelector, target: str | None = None) -> Model | None:
    """Return the model of a fitted selector, with the name of its target; None if it fits none."""
    path = getattr(selector, "path_", None)
    if path is None:
        return None
    terms = np.asarray(path.model.support, dtype=np.int64)
    coefficients = np.atleast_2d(np.asarray(selector.coef_, dtype=np.float64)).T[terms]
    classes = getattr(selector, "classes_", None)
    task = str(getattr(selector, "target_task", "regression"))
    return Model(
        method=selector.method,
        task=task,
        terms=terms,
        names=getattr(selector, "_term_names", None),
        coefficients=coefficients,
        intercepts=np.atleast_1d(np.asarray(selector.intercept_, dtype=np.float64)),
        standardized=path.model.coef,
        classes=None if classes is None or task != "classification" else tuple(np.asarray(classes).tolist()),
        path=path,
        chosen_by=_chosen_by(selector, path),
        rule=str(getattr(selector, "cv_rule", "min")),
        n_rows=int(selector.summary_.n_rows),
        prepare=selector.selection_.prepare,
        target=target,
        misclassification=selector.selection_.diagnostics.get("misclassification"),
        expansion=getattr(selector, "_expansion", None),
    )


_EXPECTED = "expected if scores are normal within classes; where they are not, more or fewer may be wrong"


def rates_in_words(misclassification: dict[str, Any]) -> str:
    """Return the misclassification rates of a model, and whether they were counted: those that were come first.

    Examples
    --------
    >>> rates_in_words({"held_out": 0.0561, "fitted": 0.0498, "counted": False})  # doctest: +ELLIPSIS
    'expected misclassification rate: 5.0 % on the fitted rows, 5.6 % on held-out folds (expected if ...)'
    >>> rates_in_words({"held_out": 0.0561, "fitted": 0.0498, "counted": True})  # doctest: +ELLIPSIS
    'misclassification rate: 5.6 % counted on held-out folds, 5.0 % expected on the fitted rows (expected if ...)'
    >>> rates_in_words({"held_out": 0.0561, "fitted": 0.0498, "counted": True, "fitted_counted": True})
    'counted misclassification rate: 5.0 % on the fitted rows, 5.6 % on held-out folds'
    """
    shares = {
        "the fitted rows": (misclassification["fitted"], misclassification.get("fitted_counted", False)),
        "held-out folds": (misclassification["held_out"], misclassification["counted"]),
    }
    known = {
        place: (rate, "counted" if was else "expected") for place, (rate, was) in shares.items() if rate is not None
    }
    kinds = {kind for _, kind in known.values()}
    ordered = sorted(known.items(), key=lambda entry: entry[1][1])  # "counted" before "expected"
    rates = [f"{100 * rate:.1f} % {f'{kind} ' * (len(kinds) > 1)}on {place}" for place, (rate, kind) in ordered]
    condition = f" ({_EXPECTED})" if "expected" in kinds else ""
    first = f"{kinds.pop()} " if len(kinds) == 1 else ""
    return f"{first}misclassification rate: {', '.join(rates) or 'not known'}{condition}"


def model_json(model: Model) -> str:
    """Return the content of ``model.json``: enough to compute every output, and the model's fit."""
    content = {
        "format": 1,
        **model.outline(),
        "prepare": list(model.prepare),
        "target": model.target,
        "outputs": _outputs(model.classes, model.coefficients.shape[1], model.target),
        "intercepts": model.intercepts,
        "terms": model.columns_of(model.terms),
        "term_names": None if model.names is None else [model.names[int(j)] for j in model.terms],
        "coefficients": model.coefficients,
        "standardized_coefficients": model.standardized,
        "scaling": _scaling(model),
    }
    return json.dumps(plain_value(content), indent=1, allow_nan=False) + "\n"


def _scaling(model: Model) -> dict[str, Any] | None:
    """Return means and scales by which columns are standardised before they are multiplied; None without products."""
    if model.expansion is None:
        return None
    factors = sorted({j for columns in model.columns_of(model.terms) for j in columns})
    return {"columns": factors, "mean": model.expansion.mean[factors], "scale": model.expansion.scale[factors]}


def path_csv(model: Model) -> str:
    """Return one line per model of the path: value, columns, fit, criteria, cross-validation, and which was chosen."""
    path = model.path
    criteria = sorted(path.criteria)
    fit = ("n_terms", _measures(path)[0], "gap", *criteria)
    rows: list[list[Any]] = [[path.parameter, *fit, "cv_error", "cv_standard_error", "chosen", "terms"]]
    residuals, sizes = path.residual_squares, path.n_nonzero
    for i, candidate in enumerate(path.candidates):
        errors = ["", ""]
        if path.cv_errors is not None:
            deviation = _standard_error(path.cv_errors[i])
            errors = [repr(float(path.mean_cv_error[i])), "" if deviation is None else repr(deviation)]
        value = repr(float(candidate.value)) if path.parameter == "alpha" else str(int(candidate.value))
        scores = [repr(float(path.criteria[name][i])) for name in criteria]
        columns_text = " ".join("*".join(map(str, columns)) for columns in model.columns_of(candidate.support))
        fit_of = [int(sizes[i]), repr(float(residuals[i])), repr(candidate.gap)]
        rows.append([value, *fit_of, *scores, *errors, int(i == path.chosen), columns_text])
    return csv_text(rows)


def _measures(path: Any) -> tuple[str, str, str]:
    """Return the names of the fit to the rows, of the error on held-out rows, and of the share explained."""
    if path.family == "gaussian":
        return "mean_squared_residual", "mean_squared_error", "r2"
    return "mean_deviance", "mean_deviance", "d2"


def _chosen_by(selector: BaseSelector, path: Any) -> str:
    """Return the rule that chose the model in words."""
    if getattr(selector, "n_features_to_select", None) is not None:
        return "the number of columns asked for"
    if getattr(selector, "alpha", None) is not None and path.parameter == "alpha":
        return "the alpha asked for"
    errors = path.cv_errors
    if errors is not None:
        within = " within one standard error" if getattr(selector, "cv_rule", "min") == "1se" else ""
        return f"{errors.shape[1]}-fold cross-validation{within}"
    return str(getattr(selector, "criterion", None) or getattr(selector, "default_criterion", "")).upper()


def _standard_error(errors: Floats) -> float | None:
    """Return the standard error of the mean over folds; None for a single fold."""
    return float(errors.std(ddof=1) / np.sqrt(errors.size)) if errors.size > 1 else None


def _outputs(classes: tuple[Any, ...] | None, n_outputs: int, target: str | None) -> list[str]:
    """Return the meaning of each output."""
    if classes is None:
        name = target or "target"
        return [name] if n_outputs == 1 else [f"{name} {i}" for i in range(n_outputs)]
    if n_outputs == 1:
        return [f"log odds of {classes[-1]} against {classes[0]}"]
    return [f"score of {label}" for label in classes]
