"""Figures and tables of a fitted model: coefficients, regularisation path, cross-validation, criteria."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from sketchselect.linalg.arrays import Floats
from sketchselect.report import drawing
from sketchselect.report.records import ModelRecord
from sketchselect.report.text import as_numbers, clean, count, number, percent

MAX_TERMS = 100
MAX_OUTPUTS = 4
"""Outputs whose coefficients are listed."""

_COLOURED = drawing.N_COLOURS
_MAX_LINES = 30
_DOTS_UNTIL = 60
_STEEP = 20.0
_HUGE = 1e100


def model_section(model: ModelRecord) -> Mapping[str, Any]:
    """Return the content of the page's sections on a model."""
    return {
        "sentence": describe_model(model),
        "outputs": [clean(name) for name in model.outputs[:MAX_OUTPUTS]],
        "outputs_left_off": max(0, len(model.outputs) - MAX_OUTPUTS),
        "terms": term_rows(model),
        "n_terms": model.n_terms,
        "intercepts": [number(float(b)) for b in as_numbers(model.intercepts)[:MAX_OUTPUTS]],
        "path": path_figure(model),
        "validation": validation_figure(model),
        "criteria": criteria_rows(model),
        "by": "alpha" if model.parameter == "alpha" else f"{_words(model)} allowed",
        "word": _word(model),
        "words": _words(model),
    }


def _word(model: ModelRecord) -> str:
    return "term" if model.expanded else "column"


def _words(model: ModelRecord) -> str:
    return f"{_word(model)}s"


def _counted(model: ModelRecord, n_terms: float) -> str:
    return f"{count(n_terms)} {_word(model) if n_terms == 1 else _words(model)}"


def describe_model(model: ModelRecord) -> str:
    """Return the size of the model and the rule that chose it."""
    m, i = len(as_numbers(model.values)), model.chosen
    text = f"The model has {_counted(model, model.n_terms)}; it was chosen by {clean(model.chosen_by)}"
    if m > 1:
        text += f" from {count(m)} models of growing size"
    if model.parameter == "alpha":
        text += f", at a regularisation strength (alpha) of {number(float(as_numbers(model.values)[i]))}"
    return text + "."


def headline_of(model: ModelRecord, n_columns: int) -> tuple[str, str]:
    """Return the statement and the explanation at the top of the page for a run that ends with a model."""
    one = model.n_terms == 1
    size = f"{_counted(model, model.n_terms) if model.expanded else count(model.n_terms)} of {count(n_columns)} columns"
    if model.task == "classification":
        outputs = "two classes" if len(model.outputs) == 1 else f"{count(len(model.outputs))} classes"
        return f"{size} {'tells' if one else 'tell'} the {outputs} apart", describe_model(model)
    share, where = model.explained_held_out, "of the target’s variance in held-out rows"
    if share is None:
        share, where = model.explained, "of the target’s variance in these rows"
    if share is None:
        return f"{size} chosen for the target", "The target does not vary, so there is nothing to explain."
    verb = "explains" if one else "explain"
    return f"{size} {verb} {percent(max(share, 0.0))} {where}", describe_model(model)


def term_rows(model: ModelRecord) -> Sequence[Mapping[str, Any]]:
    """Return the listed terms: name, coefficients, and the strength with its bar."""
    strengths = as_numbers(model.strengths)[:MAX_TERMS]
    coefficients = as_numbers(model.coefficients).reshape(len(model.terms), len(model.outputs))[
        :MAX_TERMS, :MAX_OUTPUTS
    ]
    most = float(np.abs(strengths).max(initial=0.0))
    return [
        {
            "name": clean(model.terms[i]),
            "coefficients": [number(float(v)) for v in coefficients[i]],
            "strength": number(float(strength)),
            "bar": 100 * abs(float(strength)) / most if most > 0 else 0.0,
            "negative": bool(strength < 0),
        }
        for i, strength in enumerate(strengths)
    ]


def criteria_rows(model: ModelRecord) -> Sequence[Mapping[str, Any]]:
    """Return for each criterion, and for cross-validation, the best model and the value of the chosen one."""
    sizes = as_numbers(model.sizes)
    rows = []
    curves = {name.upper(): as_numbers(values) for name, values in model.criteria.items()}
    if model.cv_mean is not None:
        curves[f"{count(model.cv_folds)}-fold error"] = as_numbers(model.cv_mean)
    for name, values in curves.items():
        if not np.isfinite(values).any():
            continue
        best = int(np.nanargmin(values))
        rows.append(
            {
                "name": clean(name),
                "best_terms": count(float(sizes[best])),
                "best_at": number(float(as_numbers(model.values)[best])),
                "best": number(float(values[best])),
                "chosen": number(float(values[model.chosen])),
                "is_chosen": best == model.chosen,
            }
        )
    return rows


def path_figure(model: ModelRecord) -> Mapping[str, Any] | None:
    """Return the coefficients along the path; None for a path of a single model."""
    if len(as_numbers(model.values)) < 2 or model.path_lines is None or not len(model.path_terms):
        return None
    x, log = _positions(model)
    lines = _drawable(model.path_lines)[:, :_MAX_LINES]
    figure, (axes,) = drawing.new_figure(300)
    axes.axhline(0.0, color=drawing.MUTED, linewidth=0.6)
    for j in range(lines.shape[1] - 1, -1, -1):  # the strongest last, on top
        colour = drawing.cluster_colour(j) if j < _COLOURED else drawing.OTHER
        axes.plot(x, lines[:, j], color=colour, linewidth=1.3 if j < _COLOURED else 0.8)
    _frame(axes, model, x, log, lines)
    axes.set_ylabel("standardised coefficient")
    shown = min(len(model.path_terms), _COLOURED)
    return {
        "svg": Markup(drawing.to_svg(figure, "path", "Line chart of the coefficients along the regularisation path")),
        "legend": [(j, clean(name)) for j, name in enumerate(model.path_terms[:shown])],
        "n_grey": lines.shape[1] - shown,
        "weak": log,
    }


def validation_figure(model: ModelRecord) -> Mapping[str, Any] | None:
    """Return the cross-validation curve with its one-standard-error band; None where there is none."""
    if model.cv_mean is None or len(as_numbers(model.values)) < 2:
        return None
    x, log = _positions(model)
    mean = _drawable(model.cv_mean)
    error = np.zeros_like(mean) if model.cv_error is None else _drawable(model.cv_error)
    best = int(np.argmin(mean))
    low = mean - error
    # The model without columns is often worse by so much that nothing else could be told apart.
    steep = bool(mean.min() > 0 and mean.max() > _STEEP * mean.min())
    low = np.maximum(low, 0.5 * mean) if steep else low
    figure, (axes,) = drawing.new_figure(300)
    outline = np.concatenate([x, x[::-1]]), np.concatenate([low, (mean + error)[::-1]])
    axes.fill(*outline, color=drawing.BAND, linewidth=0, label="± one standard error")
    axes.plot(x, mean, color=drawing.ACCENT, linewidth=1.4, label="mean over the folds")
    if len(x) <= _DOTS_UNTIL:
        drawing.draw_dots(axes, np.column_stack([x, mean]), drawing.ACCENT, 3.2)
    limit = float(mean[best] + error[best])
    axes.axhline(limit, color=drawing.MUTED, linewidth=0.8, dashes=(3, 2))
    drawing.draw_dots(axes, np.array([[x[model.chosen], mean[model.chosen]]]), drawing.INK, 6.0)
    _frame(axes, model, x, log, np.column_stack([low, mean + error]))
    axes.set_ylabel("mean squared error on held-out rows")
    axes.legend(loc="best")
    if steep:
        axes.set_yscale("log")
        axes.set_ylim(0.9 * float(low.min()), 1.15 * float((mean + error).max()))
        drawing.plain_ticks(axes.yaxis, log=True)
    smallest, chosen = (_counted(model, float(as_numbers(model.sizes)[i])) for i in (best, model.chosen))
    rule = ""
    if "cross-validation" in model.chosen_by:
        sparsest = ": the sparsest model within one standard error of the best"
        rule = sparsest if model.cv_rule == "1se" else ": the smallest error"
    caption = (
        f"{count(model.cv_folds)} folds, each predicted by models fitted to the others. The smallest mean error is "
        f"{number(float(mean[best]))}, with {smallest}; the dashed line is one standard error above it. The dot is the "
        f"chosen model, with {chosen}{rule}."
    )
    return {
        "svg": Markup(drawing.to_svg(figure, "validation", "Line chart of the cross-validation error along the path")),
        "caption": caption,
    }


def _positions(model: ModelRecord) -> tuple[Floats, bool]:
    """Return the position of each model on the horizontal axis, and whether the axis is logarithmic."""
    values = _drawable(model.values)
    if model.parameter == "alpha" and (as_numbers(model.values) > 0).all():
        values = np.maximum(values, 1 / _HUGE)
    log = model.parameter == "alpha" and bool((values > 0).all()) and float(values.max()) > 10 * float(values.min())
    return values, log


def _frame(axes: Axes, model: ModelRecord, x: Floats, log: bool, heights: Floats) -> None:
    """Set limits, ticks and the mark of the chosen model."""
    low, high = float(np.nanmin(heights)), float(np.nanmax(heights))
    pad = 0.06 * (high - low) or 0.5
    axes.set_ylim(low - pad, high + pad)
    left, right = float(x.min()), float(x.max())
    if log:
        axes.set_xscale("log")
        left, right = left / 1.1, right * 1.1
    else:
        margin = 0.03 * (right - left) or 0.5
        left, right = left - margin, right + margin
    if model.parameter == "alpha":
        axes.set_xlim(right, left)  # from the sparsest model on
        axes.set_xlabel("alpha (regularisation strength), decreasing")
    else:
        axes.set_xlim(left, right)
        axes.set_xlabel("number of columns allowed")
    axes.axvline(float(x[model.chosen]), color=drawing.INK, linewidth=0.9, dashes=(3, 2))
    drawing.plain_ticks(axes.xaxis, log=log, whole=model.parameter != "alpha")
    drawing.plain_ticks(axes.yaxis, log=False)


def _drawable(values: Any) -> Floats:
    """Return numbers that can be drawn: finite, and not so large that ticks overflow."""
    return np.clip(np.nan_to_num(as_numbers(values), posinf=_HUGE, neginf=-_HUGE), -_HUGE, _HUGE)
