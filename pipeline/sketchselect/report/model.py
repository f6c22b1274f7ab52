"""Sections of a fitted model: coefficients, regularisation path, cross-validation, criteria."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from sketchselect._text import clean, count, counted, number
from sketchselect.plots.charts import draw_path, draw_validation
from sketchselect.report import drawing
from sketchselect.report.drawing import NOTE_LENGTH, as_numbers, percent

MAX_TERMS = 100
MAX_OUTPUTS = 4
"""Outputs whose coefficients are listed."""

_COLOURED = drawing.N_COLOURS


def model_section(model: Mapping[str, Any], prepare: Sequence[str]) -> Mapping[str, Any]:
    """Return the content of the page's sections on a model."""
    outputs, word = model["outputs"], _word(model)
    return {
        "sentence": describe_model(model),
        "outputs": [clean(name) for name in outputs[:MAX_OUTPUTS]],
        "prepared": clean(", ".join(prepare), NOTE_LENGTH),
        "n_outputs": len(outputs),
        "outputs_left_off": max(0, len(outputs) - MAX_OUTPUTS),
        "terms": _term_rows(model),
        "n_terms": model["n_terms"],
        "intercepts": [number(float(b)) for b in as_numbers(model["intercepts"])[:MAX_OUTPUTS]],
        "path": _path_figure(model),
        "validation": _validation_figure(model),
        "criteria": _criteria_rows(model),
        "by": "alpha" if model["parameter"] == "alpha" else f"{word}s allowed",
        "word": word,
        "words": f"{word}s",
    }


def _word(model: Mapping[str, Any]) -> str:
    return "term" if model["expanded"] else "column"


def describe_model(model: Mapping[str, Any]) -> str:
    """Return the size of the model and the rule that chose it."""
    values = as_numbers(model["values"])
    text = (
        f"The model has {counted(model['n_terms'], _word(model), count)}; it was chosen by {clean(model['chosen_by'])}"
    )
    if len(values) > 1:
        text += f" from {count(len(values))} models of growing size"
    if model["parameter"] == "alpha":
        text += f", at a regularisation strength (alpha) of {number(float(values[model['chosen']]))}"
    return text + "."


def headline_of(model: Mapping[str, Any], n_columns: int) -> tuple[str, str]:
    """Return the statement and the explanation at the top of the page for a run that ends with a model."""
    n_terms, n_outputs = model["n_terms"], len(model["outputs"])
    terms = counted(n_terms, "term", count) if model["expanded"] else count(n_terms)
    size = f"{terms} of {counted(n_columns, 'column', count)}"
    is_gaussian = model.get("family", "gaussian") == "gaussian"
    if model["task"] == "classification" and is_gaussian:
        classes = "two classes" if n_outputs == 1 else f"{count(n_outputs)} classes"
        statement = f"{size} {'tells' if n_terms == 1 else 'tell'} the {classes} apart"
        return statement + _wrong_share(model), " ".join(filter(None, (describe_model(model), _wrong_words(model))))
    spread = "target’s variance" if is_gaussian else "target’s deviance"
    share, where = model["explained_held_out"], f"of the {spread} in held-out rows"
    if share is None:
        share, where = model["explained"], f"of the {spread} in these rows"
    if share is None:
        return f"{size} chosen for the target", "The target does not vary, so there is nothing to explain."
    verb = "explains" if n_terms == 1 else "explain"
    statement = f"{size} {verb} {percent(max(share, 0.0))} {where}"
    return statement + _wrong_share(model), " ".join(filter(None, (describe_model(model), _wrong_words(model))))


def _wrong_share(model: Mapping[str, Any]) -> str:
    """Return the end of the statement on classes: the share of wrong predictions, of held-out rows where known."""
    rates = model.get("misclassification") or {}
    where = "held-out" if rates.get("held_out") is not None else "these"
    rate = rates.get("held_out" if where == "held-out" else "fitted")
    if rate is None:
        return ""
    is_counted = rates["counted"] if where == "held-out" else rates.get("fitted_counted", False)
    return f": {percent(rate)} of the predictions of {where} rows are {'' if is_counted else 'expected to be '}wrong"


def _wrong_words(model: Mapping[str, Any]) -> str:
    """Return where the share of wrong predictions comes from."""
    rates = model.get("misclassification")
    if rates is None:
        return ""
    if rates.get("fitted_counted"):
        folds = ", each fold predicted by the model that the other folds choose"
        return f"Wrong predictions were counted on all rows{folds if rates['held_out'] is not None else ''}."
    if rates["counted"]:
        return "Wrong predictions were counted on a sample of the held-out rows."
    folds = "each fold predicted by the model that the other folds choose, " if rates["held_out"] is not None else ""
    return (
        f"The share of wrong predictions is the one that the moments lead to expect ({folds}with scores that are "
        "normal within classes; where they are not, more or fewer may be wrong); predictions of rows with known "
        "classes count it."
    )


def _term_rows(model: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the listed terms: name, coefficients, and the strength with its bar."""
    terms, strengths = model["terms"], as_numbers(model["strengths"])[:MAX_TERMS]
    coefficients = as_numbers(model["coefficients"]).reshape(len(terms), len(model["outputs"]))[:, :MAX_OUTPUTS]
    largest = float(np.abs(strengths).max(initial=0.0))
    return [
        {
            "name": clean(terms[i]),
            "coefficients": [number(float(v)) for v in coefficients[i]],
            "strength": number(float(strength)),
            "bar": 100 * abs(float(strength)) / largest if largest > 0 else 0.0,
            "negative": bool(strength < 0),
        }
        for i, strength in enumerate(strengths)
    ]


def _criteria_rows(model: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return for each criterion, and for cross-validation, the best model and the value of the chosen one."""
    sizes, alphas, chosen = as_numbers(model["sizes"]), as_numbers(model["values"]), model["chosen"]
    rows = []
    curves = {name.upper(): as_numbers(values) for name, values in model["criteria"].items()}
    if model["cv_mean"] is not None:
        curves[f"{count(model['cv_folds'])}-fold error"] = as_numbers(model["cv_mean"])
    for name, values in curves.items():
        if not np.isfinite(values).any():
            continue
        best = int(np.nanargmin(values))
        rows.append(
            {
                "name": clean(name),
                "best_terms": count(float(sizes[best])),
                "best_at": number(float(alphas[best])),
                "best": number(float(values[best])),
                "chosen": number(float(values[chosen])),
                "is_chosen": best == chosen,
            }
        )
    return rows


def _path_figure(model: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the coefficients along the path; None for a path of a single model."""
    names = model["path_terms"]
    if len(model["values"]) < 2 or model["path_lines"] is None or not len(names):
        return None
    figure, (axes,) = drawing.new_figure(300)
    n_lines = draw_path(drawing.PAGE, axes, model)
    legend = [(j, clean(name)) for j, name in enumerate(names[:_COLOURED])]
    return {
        "svg": Markup(drawing.to_svg(figure, "path", "Line chart of the coefficients along the regularisation path")),
        "legend": legend,
        "n_grey": n_lines - len(legend),
    }


def _validation_figure(model: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the cross-validation curve with its one-standard-error band; None without cross-validation."""
    chosen = model["chosen"]
    if model["cv_mean"] is None or len(model["values"]) < 2:
        return None
    figure, (axes,) = drawing.new_figure(300)
    best = draw_validation(drawing.PAGE, axes, model)
    smallest_error = float(as_numbers(model["cv_mean"])[best])
    smallest, size = (counted(float(as_numbers(model["sizes"])[i]), _word(model), count) for i in (best, chosen))
    rule = ""
    if "cross-validation" in model["chosen_by"]:
        sparsest = ": the sparsest model within one standard error of the best"
        rule = sparsest if model["cv_rule"] == "1se" else ": the smallest error"
    codes = ""
    if model["task"] == "classification" and model.get("family", "gaussian") == "gaussian":
        codes = " Errors are mean squared ones of the codes of the classes, and no shares of wrong predictions."
    return {
        "svg": Markup(drawing.to_svg(figure, "validation", "Line chart of the cross-validation error along the path")),
        "caption": (
            f"{count(model['cv_folds'])} folds, each predicted by models fitted to the others. The smallest mean error "
            f"is {number(smallest_error)}, with {smallest}; the dashed line is one standard error above it. The dot "
            f"is the chosen model, with {size}{rule}.{codes}"
        ),
    }
