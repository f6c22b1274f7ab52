"""Sections of a fitted model: coefficients, regularisation path, cross-validation, criteria."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from sketchselect.linalg.validation import Floats
from sketchselect.report import drawing
from sketchselect.report.drawing import as_numbers, clean, count, number, percent

MAX_TERMS = 100
MAX_OUTPUTS = 4
"""Outputs whose coefficients are listed."""

_COLOURED = drawing.N_COLOURS
_MAX_LINES = 30
_STEEP = 20.0
_HUGE = 1e100


def model_section(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of the page's sections on a model."""
    outputs, word = model["outputs"], _word(model)
    return {
        "sentence": describe_model(model),
        "outputs": [clean(name) for name in outputs[:MAX_OUTPUTS]],
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


def _is_gaussian(model: Mapping[str, Any]) -> bool:
    return bool(model.get("family", "gaussian") == "gaussian")


def _counted(model: Mapping[str, Any], n_terms: float) -> str:
    return f"{count(n_terms)} {_word(model)}{'' if n_terms == 1 else 's'}"


def describe_model(model: Mapping[str, Any]) -> str:
    """Return the size of the model and the rule that chose it."""
    values = as_numbers(model["values"])
    text = f"The model has {_counted(model, model['n_terms'])}; it was chosen by {clean(model['chosen_by'])}"
    if len(values) > 1:
        text += f" from {count(len(values))} models of growing size"
    if model["parameter"] == "alpha":
        text += f", at a regularisation strength (alpha) of {number(float(values[model['chosen']]))}"
    return text + "."


def headline_of(model: Mapping[str, Any], n_columns: int) -> tuple[str, str]:
    """Return the statement and the explanation at the top of the page for a run that ends with a model."""
    n_terms, n_outputs = model["n_terms"], len(model["outputs"])
    size = f"{_counted(model, n_terms) if model['expanded'] else count(n_terms)} of {count(n_columns)} columns"
    if model["task"] == "classification":
        classes = "two classes" if n_outputs == 1 else f"{count(n_outputs)} classes"
        return f"{size} {'tells' if n_terms == 1 else 'tell'} the {classes} apart", describe_model(model)
    spread = "target’s variance" if _is_gaussian(model) else "target’s deviance"
    share, where = model["explained_held_out"], f"of the {spread} in held-out rows"
    if share is None:
        share, where = model["explained"], f"of the {spread} in these rows"
    if share is None:
        return f"{size} chosen for the target", "The target does not vary, so there is nothing to explain."
    verb = "explains" if n_terms == 1 else "explain"
    return f"{size} {verb} {percent(max(share, 0.0))} {where}", describe_model(model)


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
    lines = _drawable(model["path_lines"])[:, :_MAX_LINES]
    figure, (axes,) = drawing.new_figure(300)
    axes.axhline(0.0, color=drawing.MUTED, linewidth=0.6)
    x, log = _positions(model)
    for j in range(lines.shape[1] - 1, -1, -1):  # the strongest last, on top
        colour = drawing.cluster_colour(j) if j < _COLOURED else drawing.OTHER
        axes.plot(x, lines[:, j], color=colour, linewidth=1.3 if j < _COLOURED else 0.8)
    _frame(axes, model, drawing.widened(lines, 0.06), "standardised coefficient", log="x" if log else "")
    legend = [(j, clean(name)) for j, name in enumerate(names[:_COLOURED])]
    return {
        "svg": Markup(drawing.to_svg(figure, "path", "Line chart of the coefficients along the regularisation path")),
        "legend": legend,
        "n_grey": lines.shape[1] - len(legend),
    }


def _validation_figure(model: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the cross-validation curve with its one-standard-error band; None without cross-validation."""
    chosen = model["chosen"]
    if model["cv_mean"] is None or len(model["values"]) < 2:
        return None
    mean = _drawable(model["cv_mean"])
    error = np.zeros_like(mean) if model["cv_error"] is None else _drawable(model["cv_error"])
    best = int(np.argmin(mean))
    low, high = mean - error, mean + error
    # The model without columns is often worse by so much that nothing else could be told apart.
    steep = bool(mean.min() > 0 and mean.max() > _STEEP * mean.min())
    low = np.maximum(low, 0.5 * mean) if steep else low
    x, log = _positions(model)
    figure, (axes,) = drawing.new_figure(300)
    drawing.draw_band(axes, x, low, high, "± one standard error")
    drawing.draw_line(axes, x, mean, drawing.ACCENT, label="mean over the folds", width=1.4)
    axes.axhline(float(high[best]), color=drawing.MUTED, linewidth=0.8, dashes=(3, 2))
    drawing.draw_dots(axes, np.array([[x[chosen], mean[chosen]]]), drawing.INK, 6.0)
    heights = (0.9 * float(low.min()), 1.15 * float(high.max())) if steep else drawing.widened(np.r_[low, high], 0.06)
    measure = "mean squared error" if _is_gaussian(model) else "mean deviance"
    _frame(axes, model, heights, f"{measure} on held-out rows", log="x" * log + "y" * steep)
    axes.legend(loc="best")
    smallest, size = (_counted(model, float(as_numbers(model["sizes"])[i])) for i in (best, chosen))
    rule = ""
    if "cross-validation" in model["chosen_by"]:
        sparsest = ": the sparsest model within one standard error of the best"
        rule = sparsest if model["cv_rule"] == "1se" else ": the smallest error"
    return {
        "svg": Markup(drawing.to_svg(figure, "validation", "Line chart of the cross-validation error along the path")),
        "caption": (
            f"{count(model['cv_folds'])} folds, each predicted by models fitted to the others. The smallest mean error "
            f"is {number(float(mean[best]))}, with {smallest}; the dashed line is one standard error above it. The dot "
            f"is the chosen model, with {size}{rule}."
        ),
    }


def _positions(model: Mapping[str, Any]) -> tuple[Floats, bool]:
    """Return the position of each model on the horizontal axis, and whether the axis is logarithmic."""
    values = _drawable(model["values"])
    if model["parameter"] != "alpha" or not (as_numbers(model["values"]) > 0).all():
        return values, False
    values = np.maximum(values, 1 / _HUGE)
    return values, float(values.max()) > 10 * float(values.min())


def _frame(axes: Axes, model: Mapping[str, Any], heights: tuple[float, float], name: str, *, log: str) -> None:
    """Frame a chart along the path, and mark the chosen model."""
    x, by_alpha = _positions(model)[0], model["parameter"] == "alpha"
    left, right = (float(x.min()) / 1.1, float(x.max()) * 1.1) if "x" in log else drawing.widened(x, 0.03)
    along = "alpha (regularisation strength), decreasing" if by_alpha else "number of columns allowed"
    limits = (right, left) if by_alpha else (left, right)  # from the sparsest model on
    chosen = float(x[model["chosen"]])
    drawing.frame(axes, limits, heights, (along, name), log=log, whole=not by_alpha, chosen=chosen)


def _drawable(values: Any) -> Floats:
    """Return numbers for drawing: finite, and not so large that ticks overflow."""
    return np.clip(np.nan_to_num(as_numbers(values), posinf=_HUGE, neginf=-_HUGE), -_HUGE, _HUGE)
