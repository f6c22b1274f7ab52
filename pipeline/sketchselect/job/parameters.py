"""Parameters of the method in ``[select]``, checked against its estimator's signature, and by the estimator."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sketchselect.errors import BadParameter, ConfigError
from sketchselect.job.schema import (
    SELECT_KEYS,
    ClusterSettings,
    JobConfig,
    at_key,
    describe,
    suggestion,
    yaml_note,
)
from sketchselect.job.text import JobText

if TYPE_CHECKING:
    from sketchselect.readers import Vector
    from sketchselect.selectors import BaseSelector

_WIDE = 10**6
"""Columns of an imagined matrix against which parameters are checked when the real one is not known."""


def with_current_names(text: JobText) -> JobText:
    """Return the text with the method's parameters under their current names; warn of former names."""
    from sketchselect import selectors

    select = text.values.get("select")
    cls = selectors.METHODS.get(str(select.get("method"))) if isinstance(select, dict) else None
    if cls is None:
        return text
    values, lines = dict(text.values["select"]), dict(text.lines)
    for former in [name for name, current in cls.renamed.items() if name in values and current not in values]:
        current, path = cls.renamed[former], ("select", former)
        warnings.warn(at_key(text, path, f"the key is now called {current!r}"), stacklevel=4)
        values[current] = values.pop(former)
        lines |= {("select", current): lines.pop(path)} if path in lines else {}
    return replace(text, values={**text.values, "select": values}, lines=lines)


def parameter_problems(text: JobText) -> list[str]:
    """Check the method's parameters against its estimator: names, types and ranges."""
    from sketchselect import selectors
    from sketchselect.selectors.parameters import allows, in_words, takes_none

    select = text.values.get("select")
    method = select.get("method") if isinstance(select, dict) else None
    if not isinstance(select, dict) or not isinstance(method, str) or method not in selectors.METHODS:
        return []
    hints = method_parameters(method)
    known = [*SELECT_KEYS, *(name for name in hints if name != "n_features_to_select")]
    problems, sound = [], {}
    if "n_features" in select and "n_features_to_select" not in hints:
        problems.append(
            at_key(text, ("select", "n_features"), f"{method} chooses the number of columns itself; remove this key")
        )
    for name, value in select.items():
        path = ("select", name)
        if name in SELECT_KEYS:
            continue
        if name == "n_features_to_select":
            problems.append(at_key(text, path, "unknown key; in a job file it is called 'n_features'"))
        elif name not in hints:
            methods = [other for other in selectors.METHODS if name in method_parameters(other)]
            owners = f"; it is a parameter of {', '.join(methods[:6])}" if methods else ""
            problems.append(at_key(text, path, f"unknown key{suggestion(path, known)}{owners}"))
        elif not allows(hints[name], None if value is False and takes_none(hints[name]) else value):
            expected = f"expected {in_words(hints[name], none='false')}, got {describe(value)}{yaml_note(text, value)}"
            problems.append(at_key(text, path, expected))
        else:
            sound[name] = value
    n_features = select.get("n_features")
    is_count = isinstance(n_features, int) and not isinstance(n_features, bool) and n_features > 0
    if not is_count or "n_features_to_select" not in hints:
        n_features = None
    while problem := selector_problem(method, sound, n_features):
        # The message names its parameter; without that one there may be more to find.
        named = {**sound, "n_features_to_select": n_features}
        culprit = min((n for n in named if n in problem), key=problem.index, default=None)
        key = {"n_features_to_select": "n_features"}.get(culprit or "", culprit)
        message = problem.replace("n_features_to_select", "n_features")
        problems.append(at_key(text, ("select", key) if key else ("select",), message))
        if culprit not in sound:
            break
        del sound[culprit]
    return problems


def selector_problem(
    method: str, parameters: Mapping[str, Any], n_features: int | Literal["auto"] | None = None
) -> str | None:
    """Return a selector's objection to its parameters; None where it has none."""
    try:
        with warnings.catch_warnings():
            # Of a former name `with_current_names` warns, which knows its line.
            warnings.simplefilter("ignore", FutureWarning)
            selector = make_selector(method, n_features, parameters)
        selector.check_parameters()
        selector.prepare_steps()
        selector.summary_description(_WIDE)
    except BadParameter as error:
        return str(error)
    return None


def make_selector(
    method: str, n_features: int | Literal["auto"] | None, parameters: Mapping[str, Any], **sizing: Any
) -> BaseSelector:
    """Return the unfitted estimator of a method; TOML has no None, so a job file writes false instead.

    With "auto" for `n_features` one that chooses the number of columns: by `sizing`, parameters of `AutoSelector`.
    """
    from sketchselect import selectors
    from sketchselect.selectors.parameters import takes_none

    hints, cls = method_parameters(method), selectors.METHODS[method]
    values = {k: None if v is False and takes_none(hints.get(k)) else v for k, v in parameters.items()}
    if issubclass(cls, selectors.AutoSelector):
        values |= sizing
    elif n_features == "auto" and cls.automatic is not None:
        return cls(**cls.automatic | values)
    elif n_features == "auto":
        one = cls(**values)
        return selectors.AutoSelector(methods=[one], normalize=getattr(one, "normalize", None), **sizing)
    if n_features is not None:
        values["n_features_to_select"] = n_features
    return cls(**values)


def estimator(config: JobConfig, target: Vector | None = None) -> BaseSelector:
    """Return the unfitted selector that ``[select]`` describes; one that learns from a target has looked at it."""
    chosen = config.select
    try:
        sizing = {} if chosen.tolerance is None else {"tolerance": chosen.tolerance}
        if config.cluster is not None:
            sizing["n_clusters"] = config.cluster.n_clusters
        selector = make_selector(chosen.method, chosen.n_features, _with_clusters(config), **sizing)
        predict_starts(selector, config.cluster)
        if target is not None and selector.uses_target:
            selector.inspect_target(target)
    except (BadParameter, TypeError) as error:
        raise ConfigError(f"select: {in_words_of_job(error)}") from None
    return selector


def predict_starts(selector: BaseSelector, settings: ClusterSettings | None) -> None:
    """Have a selector that predicts k-means predict it from the start that the job's k-means has."""
    from sketchselect.selectors import AutoSelector

    if isinstance(selector, AutoSelector):
        selector.drawn_starts = settings is None or not settings.starts_open


def _with_clusters(config: JobConfig) -> dict[str, Any]:
    """Return the method's parameters; one that selects for a number of clusters takes it from ``[cluster]``."""
    parameters = dict(config.select.parameters)
    has_number = "n_clusters" in parameters or parameters.get("partition", "kmeans++") != "kmeans++"
    if config.cluster is not None and not has_number and "n_clusters" in method_parameters(config.select.method):
        parameters["n_clusters"] = config.cluster.n_clusters
    return parameters


def in_words_of_job(error: Exception) -> str:
    """Return what an estimator says of its parameters, with the name that a job file has for one of them."""
    return str(error).replace("n_features_to_select", "n_features")


def method_parameters(method: str) -> dict[str, Any]:
    """Return the parameters of a method's estimator as declared; a job's seed is a number, so that it repeats."""
    from sketchselect import selectors
    from sketchselect.selectors.parameters import Limits, allows, declared

    # A file of TOML or JSON need not keep a whole number above 2^63 - 1.
    seed = Annotated[int, Limits("a whole number of at least 0", lambda v: allows(int, v) and 0 <= v < 2**63)]
    hints = declared(selectors.METHODS[method])
    return {name: seed if name == "random_state" else hint for name, hint in hints.items()}
