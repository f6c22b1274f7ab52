"""Reader of job files: a checked `JobConfig` with the parameters of its method, or one line for every mistake."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ValidationError

from sketchselect._text import did_you_mean
from sketchselect.errors import BadParameter, ConfigError, warn
from sketchselect.job.schema import (
    SECTIONS,
    SELECT_KEYS,
    Expectation,
    JobConfig,
    PrepareSettings,
    Problem,
    SelectSettings,
    at_key,
    describe,
    suggestion,
    yaml_note,
)
from sketchselect.job.text import SET, JobText, KeyPath, read_job_text, with_overrides, write_toml
from sketchselect.location import is_scheduler_file, is_url, scheduler_fault, scheduler_hint

if TYPE_CHECKING:
    from sketchselect.readers import Vector
    from sketchselect.selectors import BaseSelector

_WIDE = 10**6
"""Columns of an imagined matrix against which parameters are checked when the real one is not known."""


def with_current_names(text: JobText) -> JobText:
    """Return the text with the method's parameters under their current names; warn of former names."""
    from sketchselect.selectors import METHODS

    select = text.values.get("select")
    cls = METHODS.get(str(select.get("method"))) if isinstance(select, dict) else None
    if cls is None:
        return text
    values, lines = dict(text.values["select"]), dict(text.lines)
    for former in [name for name, current in cls.renamed.items() if name in values and current not in values]:
        current, path = cls.renamed[former], ("select", former)
        warn(at_key(text, path, f"the key is now called {current!r}"))
        values[current] = values.pop(former)
        lines |= {("select", current): lines.pop(path)} if path in lines else {}
    return replace(text, values={**text.values, "select": values}, lines=lines)


def for_target(text: JobText) -> JobText:
    """Return the text with the method "auto" for a target, if the job has one, no clusters, and no keys for these."""
    from sketchselect.selectors import AutoSelector, TargetAutoSelector

    select = text.values.get("select")
    if not isinstance(select, dict) or select.get("method") != AutoSelector.method:
        return text
    if not _has_only_a_target(text) or {*select} - _keys_with_target(select):
        return text
    return replace(text, values={**text.values, "select": {**select, "method": TargetAutoSelector.method}})


def _keys_with_target(select: Mapping[str, Any]) -> set[str]:
    """Return the keys of ``[select]`` that the method "auto" has with a target."""
    from sketchselect.selectors import TargetAutoSelector

    keys = {*SELECT_KEYS, *method_parameters(TargetAutoSelector.method)} - {"tolerance", "tolerance_proved"}
    return keys | ({"normalize"} if select.get("normalize") is False else set())


def _has_only_a_target(text: JobText) -> bool:
    """Return whether a job has a target and clusters no rows, so that its method "auto" learns from the target."""
    data = text.values.get("input")
    return isinstance(data, dict) and data.get("target") is not None and "cluster" not in text.values


def without_scaling(text: JobText) -> JobText:
    """Return the text without ``normalize = false`` in ``[select]``, where the method scales no rows in any case."""
    select = text.values.get("select")
    if not isinstance(select, dict) or select.get("normalize") is not False:
        return text
    from sketchselect import selectors

    method = str(select.get("method"))
    if method not in selectors.METHODS or "normalize" in method_parameters(method):
        return text
    return replace(text, values={**text.values, "select": {k: v for k, v in select.items() if k != "normalize"}})


def parameter_problems(text: JobText) -> list[str]:
    """Check the method's parameters against its estimator: names, types and ranges."""
    from sketchselect import selectors
    from sketchselect.linalg.parameters import allows, in_words, takes_none
    from sketchselect.selectors.auto import WITH_TARGET

    select = text.values.get("select")
    method = select.get("method") if isinstance(select, dict) else None
    if not isinstance(select, dict) or not isinstance(method, str) or method not in selectors.METHODS:
        return []
    hints = method_parameters(method)
    learning = method == selectors.AutoSelector.method and _has_only_a_target(text)
    names = [*SELECT_KEYS, *hints, *(method_parameters(selectors.TargetAutoSelector.method) if learning else ())]
    known = [name for name in dict.fromkeys(names) if name != "n_features_to_select"]
    with_target = _keys_with_target(select)
    problems, sound = [], {}
    # A manifest has null for what a job leaves out.
    if select.get("n_features") is not None and "n_features_to_select" not in hints:
        problems.append(
            at_key(text, ("select", "n_features"), f"{method} chooses the number of columns itself; remove this key")
        )
    for name, value in select.items():
        path = ("select", name)
        if name in SELECT_KEYS:
            continue
        if name == "n_features_to_select":
            problems.append(at_key(text, path, "unknown key; in a job file it is called 'n_features'"))
        elif name == "methods" and method == selectors.TargetAutoSelector.method:
            problems.append(at_key(text, path, f"is for choosing without a target; {WITH_TARGET}"))
        elif name not in hints and name in known:
            # Of auto with a target: it is that unless another key is wrong, or for choosing without a target.
            if others := [k for k in select if k in {*hints, *SELECT_KEYS} - with_target]:
                clash = f"is for learning from the target, and {others[0]} for choosing without it; remove one of them"
                problems.append(at_key(text, path, clash))
        elif name not in hints:
            methods = [other for other in selectors.METHODS if name in method_parameters(other)]
            owners = f"; it is a parameter of {', '.join(methods[:10])}" if methods else ""
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
        # The message names one parameter; without it there may be more to find.
        others_checked = {**sound, "n_features_to_select": n_features}
        culprit = min((n for n in others_checked if n in problem), key=problem.index, default=None)
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
    """Return a selector's message on wrong parameters; None if it accepts them."""
    from sketchselect.prepare import resolve

    try:
        with warnings.catch_warnings():
            # `with_current_names` warns of former names, as it knows their line.
            warnings.simplefilter("ignore", FutureWarning)
            selector = make_selector(method, n_features, parameters)
        selector.check_parameters()
        resolve((), selector.prepare_steps())
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
    from sketchselect.linalg.parameters import takes_none

    hints, cls = method_parameters(method), selectors.METHODS[method]
    values = {k: None if v is False and takes_none(hints.get(k)) else v for k, v in parameters.items()}
    if issubclass(cls, selectors.AutoSelector):
        values |= sizing
    elif n_features == "auto" and cls.automatic is not None:
        return cls(**cls.automatic | values)
    elif n_features == "auto":
        method = cls(**values)
        return selectors.AutoSelector(methods=[method], normalize=getattr(method, "normalize", None), **sizing)
    if n_features is not None:
        values["n_features_to_select"] = n_features
    return cls(**values)


def estimator(config: JobConfig, target: Vector | None = None) -> BaseSelector:
    """Return the unfitted selector that ``[select]`` describes; one that learns from a target has inspected it."""
    chosen = config.select
    try:
        sizing = {} if chosen.tolerance is None else {"tolerance": chosen.tolerance}
        if config.cluster is not None:
            sizing["n_clusters"] = config.cluster.n_clusters
        selector = make_selector(chosen.method, chosen.n_features, _completed(config), **sizing)
        if target is not None and selector.uses_target:
            selector.inspect_target(target)
    except (BadParameter, TypeError) as error:
        raise ConfigError(f"select: {in_words_of_job(error)}") from None
    return selector


def _completed(config: JobConfig) -> dict[str, Any]:
    """Return the method's parameters with what other sections say, for a method that takes it.

    The number of clusters is that of ``[cluster]``; ``steps = []`` in ``[prepare]`` means none of the method.
    """
    parameters = dict(config.select.parameters)
    if config.prepare.steps == [] and "normalize" in method_parameters(config.select.method):
        parameters.setdefault("normalize", False)
    has_number = "n_clusters" in parameters or parameters.get("partition", "kmeans++") != "kmeans++"
    if config.cluster is not None and not has_number and "n_clusters" in method_parameters(config.select.method):
        parameters["n_clusters"] = config.cluster.n_clusters
    return parameters


def in_words_of_job(error: Exception) -> str:
    """Return an estimator's message on its parameters, with the job file's name for `n_features_to_select`."""
    return str(error).replace("n_features_to_select", "n_features")


def method_parameters(method: str) -> dict[str, Any]:
    """Return the parameters of a method's estimator as declared; a job's seed is a number, so that it repeats."""
    from sketchselect import selectors
    from sketchselect.linalg.parameters import Limits, allows, declared

    # A file of TOML or JSON need not keep a whole number above 2^63 - 1.
    seed = Annotated[int, Limits("a whole number of at least 0", lambda v: allows(int, v) and 0 <= v < 2**63)]
    hints = declared(selectors.METHODS[method])
    return {name: seed if name == "random_state" else hint for name, hint in hints.items()}


LOCAL_CLUSTER_KEYS = ("n_workers", "memory_limit")
"""Keys of ``[execution]`` that apply only to a cluster that the job starts itself."""

CLUSTERS = ("local", "threads", "serial", "env")
"""Values of ``[execution] cluster`` other than the address of a scheduler."""


def load_job(source: str | os.PathLike[str] | Mapping[str, Any] | JobText, overrides: Sequence[str] = ()) -> JobConfig:
    """Return the checked job of a TOML or YAML file, or of a mapping with the same sections.

    `source`: The job file. Relative paths in it are relative to its folder (in a mapping: to the working directory).
    `overrides`: Settings ``section.key=value`` that replace the file's.
    Raises `ConfigError` with one line for every mistake, naming the key, its value, what was expected and the line.
    """
    if isinstance(source, JobText):
        text = source
    elif isinstance(source, Mapping):
        text = JobText("job", {k: dict(v) if isinstance(v, Mapping) else v for k, v in source.items()}, Path.cwd())
    else:
        text = read_job_text(Path(source))
    if overrides:
        text = _without_local_cluster(with_overrides(text, overrides))
    text = without_scaling(for_target(with_current_names(text)))
    config, problems = None, []
    try:
        config = JobConfig.model_validate(text.values)
    except ValidationError as error:
        problems = _problems(text, error)
    problems += parameter_problems(text)
    if config is not None:
        problems += [at_key(text, path, problem) for path, problem in _contradictions(config)]
    if problems or config is None:
        raise ConfigError("\n".join(problems))
    return _resolved(config, text.folder)


def with_cluster(overrides: Sequence[str], cluster: str | None) -> list[str]:
    """Return overrides of a job, with ``execution.cluster`` if a cluster is named.

    The path of a scheduler file is relative to the working directory, as all paths of the command line.
    """
    if cluster is None:
        return [*overrides]
    address = os.path.abspath(cluster) if is_scheduler_file(cluster) else cluster
    return [*overrides, f"execution.cluster={json.dumps(address)}"]


def with_storage(overrides: Sequence[str], storage: Sequence[str] | None) -> list[str]:
    """Return overrides of a job, with those of ``input.storage_options`` for ``KEY=VALUE`` of the command line."""
    for item in storage or ():
        if not item.partition("=")[0] or "=" not in item:
            raise ConfigError(f"--storage-option {item.partition('=')[0]}: expected KEY=VALUE, for example anon=true")
    return [*overrides, *(f"input.storage_options.{item}" for item in storage or ())]


def storage_options(storage: Sequence[str] | None) -> dict[str, Any] | None:
    """Return the storage options of the command line; None if it has none."""
    if not storage:
        return None
    text = with_overrides(JobText("storage", {}, Path.cwd()), with_storage((), storage))
    options: dict[str, Any] = text.values["input"]["storage_options"]
    return options


def check_select(values: Mapping[str, Any]) -> SelectSettings:
    """Return the checked section ``[select]`` alone, for a selection from a summary file.

    Raises `ConfigError` with one line for every mistake, as `load_job`.
    """
    text = with_current_names(JobText("job", {"select": dict(values)}, Path.cwd()))
    try:
        settings = SelectSettings.model_validate(text.values["select"])
    except ValidationError as error:
        raise ConfigError("\n".join(_problems(text, error, ("select",)))) from None
    if problems := parameter_problems(text):
        raise ConfigError("\n".join(problems))
    return settings


def _without_local_cluster(text: JobText) -> JobText:
    """Leave out the settings of the job's own cluster if the command line names another cluster."""
    execution = text.values.get("execution")
    path = ("execution", "cluster")
    if (
        not isinstance(execution, dict)
        or text.lines.get(path) != SET
        or execution.get("cluster") in ("local", "threads")
    ):
        return text
    inapplicable = {key for key in LOCAL_CLUSTER_KEYS if text.lines.get(("execution", key)) != SET}
    settings = {key: value for key, value in execution.items() if key not in inapplicable}
    return replace(text, values={**text.values, "execution": settings})


def job_toml(config: JobConfig) -> str:
    """Return the job as TOML text that repeats it; storage options are left out, as they may hold credentials."""
    tables = config.model_dump(exclude_none=True)
    tables["input"].pop("storage_options")
    tables["select"].update(tables["select"].pop("parameters"))
    return write_toml(tables)


def _problems(text: JobText, error: ValidationError, above: KeyPath = ()) -> list[str]:
    """Return one line per key that is wrong (a union gives several errors for one key)."""
    problems: dict[KeyPath, str] = {}
    for item in error.errors(include_url=False):
        item["loc"] = (*above, *item["loc"])
        path = tuple(map(str, item["loc"][:2]))
        if path and path not in problems:
            problems[path] = _problem(text, path, item)
    return list(problems.values())


def _problem(text: JobText, path: KeyPath, item: Any) -> str:
    info = JobConfig.model_fields.get(path[0])
    if info is not None and len(path) > 1:
        info = SECTIONS[path[0]].model_fields.get(path[1])
    if item["type"] == "extra_forbidden" or info is None:
        return at_key(text, path, f"unknown key{suggestion(path)}")
    expected = info.description or "another value"
    if item["type"] == "missing" and len(item["loc"]) == len(path):
        return at_key(text, path, f"missing; expected {expected}")
    reason = item["ctx"]["error"] if item["type"] == "value_error" else None
    if isinstance(reason, Problem):
        return at_key(text, path, str(reason))
    value: Any = text.values
    for part in path:
        value = value[part]
    if isinstance(reason, Expectation):
        expected = str(reason)
    note = yaml_note(text, value)
    if path == ("cluster", "n_clusters") and value == "auto":
        note = "; beside a number, cluster.range = [2, 20] compares others, and says whether one stands out"
    return at_key(text, path, f"expected {expected}, got {describe(value)}{note}")


def _contradictions(config: JobConfig) -> Iterator[tuple[KeyPath, str]]:
    """Yield (path, problem) of the contradictions between keys that are each valid alone."""
    execution = config.execution
    if not (execution.cluster in CLUSTERS or is_url(execution.cluster) or is_scheduler_file(execution.cluster)):
        hint = scheduler_hint(execution.cluster) or did_you_mean(execution.cluster, CLUSTERS)
        got = f"{describe(execution.cluster)}{hint}"
        yield ("execution", "cluster"), f"expected {_expected('execution', 'cluster')}, got {got}"
    elif is_url(execution.cluster) and (fault := scheduler_fault(execution.cluster)) is not None:
        yield ("execution", "cluster"), fault
    elif execution.cluster not in ("local", "threads"):
        for name in LOCAL_CLUSTER_KEYS:
            if getattr(execution, name) is not None:
                yield ("execution", name), "only for a cluster that the job starts itself; remove it"
    yield from _section_contradictions(config)
    yield from _prepare_contradictions(config)
    tls = {name: getattr(execution, name) for name in ("tls_ca", "tls_cert", "tls_key")}
    if any(tls.values()) and not all(tls.values()):
        missing = ", ".join(name for name, value in tls.items() if not value)
        yield ("execution",), f"tls_ca, tls_cert and tls_key are needed together; missing: {missing}"


def _section_contradictions(config: JobConfig) -> Iterator[tuple[KeyPath, str]]:
    """Yield the contradictions between the method, the input, and the sections on the result."""
    from sketchselect import selectors
    from sketchselect.prepare import FILLING_STEP

    method, parameters = config.select.method, config.select.parameters
    if config.input.target is None:
        expected = _expected("input", "target")
        if selectors.METHODS[method].needs_target:
            yield ("input", "target"), f"missing; {method} learns from a target: {expected}"
        elif parameters.get("batches") is True and "batches" in method_parameters(method):
            yield ("input", "target"), f"missing; select.batches = true needs one: {expected}"
    if config.input.cv_groups is not None and (config.input.target is None or "cv" not in method_parameters(method)):
        yield ("input", "cv_groups"), f"for the folds of a method that learns from a target; {method} makes none"
    if config.input.nonfinite == "missing":
        if parameters.get("missing") in (None, False) and not _fills_missing(config.prepare):
            fix = f'{FILLING_STEP}, or select.missing = "pairwise" and a method that has this parameter'
            yield ("input", "nonfinite"), f'"missing" needs {fix}'
        elif config.cluster is not None and not _fills_missing(config.prepare):
            why = f'k-means needs complete rows; input.nonfinite = "missing" leaves gaps in them: add {FILLING_STEP}'
            yield ("cluster",), why
    if config.input.nonfinite == "drop_rows" and _fills_missing(config.prepare):
        yield ("input", "nonfinite"), f'"drop_rows" leaves nothing for {FILLING_STEP} to fill; remove one'
    yield from _size_contradictions(config)
    windows = (parameters.get("window"), config.timeline.window if config.timeline else None)
    by_date = config.timeline is not None and config.timeline.dates is not None
    if by_date and windows[0] is not None:
        yield ("select", "window"), "a number of rows, and with timeline.dates a window is of periods: timeline.window"
    elif config.timeline is not None and not by_date and "period" in config.timeline.model_fields_set:
        yield ("timeline", "period"), "periods are those of dates; name the column of dates, timeline.dates"
    elif None not in windows and windows[0] != windows[1]:
        yield ("timeline", "window"), f"{windows[1]}, but select.window is {windows[0]}; set only one"
    if config.cluster is not None and config.cluster.metric != "euclidean" and config.cluster.weighted is not False:
        yield ("cluster", "metric"), '"least-squares" has weights of its own; leave cluster.weighted out'
    if config.cluster is not None and not config.output.features:
        yield ("output", "features"), "false, but [cluster] needs the selected columns"


def _size_contradictions(config: JobConfig) -> Iterator[tuple[KeyPath, str]]:
    """Yield the contradictions between the keys that say how the number of columns is chosen."""
    from sketchselect import selectors

    select, cls = config.select, selectors.METHODS[config.select.method]
    by_curve = select.n_features == "auto" or (select.n_features is None and issubclass(cls, selectors.AutoSelector))
    for name in ("tolerance", "tolerance_proved"):
        if getattr(select, name) is not None and (cls.automatic is not None or not by_curve):
            yield ("select", name), 'only for n_features = "auto" and a method without a target; remove it'
    if select.tolerance_proved is not None:
        certificate = None if config.cluster is None else config.cluster.certificate_settings
        if certificate is None or certificate.method == "spectral":
            yield (
                ("select", "tolerance_proved"),
                'needs [cluster] with certificate = "auto" or "blocks", which proves it',
            )


def _fills_missing(settings: PrepareSettings) -> bool:
    """Return whether a step fills missing values; False for an invalid list, which another check reports."""
    from sketchselect.prepare import resolve

    try:
        return any(step.fills_missing for step in resolve(settings.entries))
    except BadParameter:
        return False


def _prepare_contradictions(config: JobConfig) -> Iterator[tuple[KeyPath, str]]:
    """Yield the contradictions between the keys of ``[prepare]``."""
    from sketchselect.prepare import resolve
    from sketchselect.selectors import METHODS

    settings, method = config.prepare, METHODS[config.select.method]
    if settings.steps and (settings.rows or settings.columns):
        yield ("prepare", "steps"), "cannot be combined with rows or columns; put all steps into this list"
        return
    if settings.steps == "auto":
        if config.cluster is None:
            yield ("prepare", "steps"), '"auto" compares clusters, and needs [cluster] with n_clusters'
        if method.needs_target or method.needs_counts:
            why = "learns from a target" if method.needs_target else "takes counts as they are"
            yield ("prepare", "steps"), f'"auto" compares clusters, and {method.method} {why}; list the steps'
        if settings.fitted is not None:
            yield ("prepare", "fitted"), 'is for a list of steps; with steps = "auto" they are not known yet'
        return
    try:
        steps = resolve(settings.entries)
    except BadParameter as error:
        yield ("prepare", "columns"), str(error)
        return
    if settings.fitted is not None and all(step.is_fitted for step in steps):
        yield ("prepare", "fitted"), "no step needs statistics; remove it"


def _expected(section: str, key: str) -> str | None:
    return SECTIONS[section].model_fields[key].description


def _resolved(config: JobConfig, folder: Path) -> JobConfig:
    """Return the job with relative paths made absolute; names of arrays in the store stay names."""

    def absolute(value: str | None) -> str | None:
        return value if value is None or is_url(value) else os.path.abspath(folder / os.path.expanduser(value))

    def file_or_name(value: str | None) -> str | None:
        path = absolute(value)
        return path if path is not None and os.path.exists(path) else value

    parameters = dict(config.select.parameters)
    if isinstance(partition := parameters.get("partition"), str):
        parameters["partition"] = file_or_name(partition)
    execution, checkpoint = config.execution, config.execution.checkpoint
    changed: dict[str, dict[str, Any]] = {
        "input": {"url": absolute(config.input.url), "feature_names": absolute(config.input.feature_names)}
        | {name: file_or_name(getattr(config.input, name)) for name in ("target", "cv_groups", "labels", "row_names")},
        "prepare": {"fitted": absolute(config.prepare.fitted)},
        "select": {"parameters": parameters},
        "execution": {name: absolute(getattr(execution, name)) for name in ("tls_ca", "tls_cert", "tls_key")},
        "output": {"dir": absolute(config.output.dir), "metrics": absolute(config.output.metrics)},
    }
    if config.timeline is not None:
        changed["timeline"] = {"dates": file_or_name(config.timeline.dates)}
    if is_scheduler_file(execution.cluster):
        changed["execution"]["cluster"] = absolute(execution.cluster)
    if checkpoint not in ("auto", False):
        changed["execution"]["checkpoint"] = absolute(str(checkpoint))
    return config.model_copy(
        update={name: getattr(config, name).model_copy(update=values) for name, values in changed.items()}
    )
