"""A job file -> a checked `JobConfig`, or one line for every mistake in it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sketchselect.errors import BadParameter, ConfigError
from sketchselect.job.messages import hint, line, shown, yaml_hint
from sketchselect.job.parameters import method_parameters, parameter_problems, with_current_names
from sketchselect.job.schema import SECTIONS, JobConfig, SelectSettings
from sketchselect.job.text import SET, JobText, read_job_text, with_overrides, write_toml

OWN_CLUSTER = ("n_workers", "memory_limit")
"""Keys of ``[execution]`` that only make sense for a cluster that the job starts."""


def load_job(source: str | os.PathLike[str] | Mapping[str, Any], overrides: Sequence[str] = ()) -> JobConfig:
    """Return the checked job of a TOML or YAML file, or of a mapping with the same sections.

    Parameters
    ----------
    source : path or mapping
        The job file. Relative paths in it are relative to its folder (in a mapping: to the working directory).
    overrides : sequence of str
        Settings ``section.key=value`` that win over the file's.

    Raises
    ------
    ConfigError
        With one line for every mistake found, naming key, value, what was expected and the line.
    """
    if isinstance(source, Mapping):
        text = JobText("job", {k: dict(v) if isinstance(v, Mapping) else v for k, v in source.items()}, Path.cwd())
    else:
        text = read_job_text(Path(source))
    if overrides:
        text = _moved(with_overrides(text, overrides))
    text = with_current_names(text)
    config, problems = None, []
    try:
        config = JobConfig.model_validate(text.values)
    except ValidationError as error:
        problems = _problems(text, error)
    problems += parameter_problems(text)
    if config is not None:
        problems += _contradictions(text, config)
    if problems or config is None:
        raise ConfigError("\n".join(problems))
    return _resolved(config, text.folder)


def check_select(values: Mapping[str, Any]) -> SelectSettings:
    """Return the checked section ``[select]`` alone, for a selection from a summary file.

    Raises
    ------
    ConfigError
        With one line for every mistake, as `load_job`.
    """
    text = with_current_names(JobText("job", {"select": dict(values)}, Path.cwd()))
    try:
        settings = SelectSettings.model_validate(text.values["select"])
    except ValidationError as error:
        raise ConfigError("\n".join(_problems(text, error, ("select",)))) from None
    if problems := parameter_problems(text):
        raise ConfigError("\n".join(problems))
    return settings


def _moved(text: JobText) -> JobText:
    """Leave out what the file says of its own cluster where the command line sends the job to another one."""
    execution = text.values.get("execution")
    path = ("execution", "cluster")
    if (
        not isinstance(execution, dict)
        or text.lines.get(path) != SET
        or execution.get("cluster") in ("local", "threads")
    ):
        return text
    kept = {k: v for k, v in execution.items() if k not in OWN_CLUSTER or text.lines.get(("execution", k)) == SET}
    return replace(text, values={**text.values, "execution": kept})


def job_toml(config: JobConfig) -> str:
    """Return the job as TOML text that repeats it; storage options are left out, as they may hold credentials."""
    tables = config.model_dump(exclude_none=True)
    tables["input"].pop("storage_options")
    tables["select"].update(tables["select"].pop("parameters"))
    return write_toml(tables)


def _problems(text: JobText, error: ValidationError, above: tuple[str, ...] = ()) -> list[str]:
    """Return one line per key that is wrong (a union gives several errors for one key)."""
    seen: dict[tuple[str, ...], str] = {}
    for item in error.errors(include_url=False):
        item["loc"] = (*above, *item["loc"])
        path = tuple(map(str, item["loc"][:2]))
        if path and path not in seen:
            seen[path] = _problem(text, path, item)
    return list(seen.values())


def _problem(text: JobText, path: tuple[str, ...], item: Any) -> str:
    info = JobConfig.model_fields.get(path[0])
    if info is not None and len(path) > 1:
        info = SECTIONS[path[0]].model_fields.get(path[1])
    if item["type"] == "extra_forbidden" or info is None:
        return line(text, path, f"unknown key{hint(path)}")
    expected = info.description or "something else"
    if item["type"] == "missing" and len(item["loc"]) == len(path):
        return line(text, path, f"missing; expected {expected}")
    reason = str(item["ctx"]["error"]) if item["type"] == "value_error" else ""
    if reason.startswith(("'", "unknown", "prepare")):
        return line(text, path, reason)
    value: Any = text.values
    for part in path:
        value = value[part]
    if reason.startswith(("a path or", "a text without", "a folder of")):
        expected = reason
    return line(text, path, f"expected {expected}, got {shown(value)}{yaml_hint(text, value)}")


def _contradictions(text: JobText, config: JobConfig) -> list[str]:
    """Return what is wrong between keys, each valid alone."""
    problems = []
    execution = config.execution
    if execution.cluster not in ("local", "threads", "serial", "env") and "://" not in execution.cluster:
        expected = SECTIONS["execution"].model_fields["cluster"].description
        close = difflib.get_close_matches(execution.cluster, ("local", "threads", "serial", "env"), n=1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        problems.append(line(text, ("execution", "cluster"), f"expected {expected}, got {execution.cluster!r}{meant}"))
    elif execution.cluster not in ("local", "threads"):
        problems += [
            line(text, ("execution", name), "only for a cluster that the job starts itself; leave it out")
            for name in OWN_CLUSTER
            if getattr(execution, name) is not None
        ]
    problems += _section_contradictions(text, config) + _prepare_contradictions(text, config)
    tls = {name: getattr(execution, name) for name in ("tls_ca", "tls_cert", "tls_key")}
    if any(tls.values()) and not all(tls.values()):
        missing = ", ".join(name for name, value in tls.items() if not value)
        problems.append(line(text, ("execution",), f"tls_ca, tls_cert and tls_key go together; missing: {missing}"))
    return problems


def _section_contradictions(text: JobText, config: JobConfig) -> list[str]:
    """Return what is wrong between what the method needs, what the input gives and what is to be done with it."""
    from sketchselect import selectors

    method, problems = config.select.method, []
    if config.input.target is None:
        expected = SECTIONS["input"].model_fields["target"].description
        if selectors.METHODS[method].needs_target:
            problems.append(line(text, ("input", "target"), f"missing; {method} learns from a target: {expected}"))
        elif config.select.parameters.get("batches") is True and "batches" in method_parameters(method):
            problems.append(line(text, ("input", "target"), f"missing; select.batches = true needs one: {expected}"))
    if config.input.nonfinite == "missing":
        if config.select.parameters.get("missing") in (None, False):
            fix = 'a method that takes missing values, with select.missing = "pairwise"'
            problems.append(line(text, ("input", "nonfinite"), f'"missing" needs {fix}'))
        if config.cluster is not None:
            problems.append(
                line(text, ("cluster",), 'input.nonfinite = "missing" leaves gaps in rows that k-means needs')
            )
    own = config.select.parameters.get("window")
    if config.timeline is not None and None not in (own, config.timeline.window) and own != config.timeline.window:
        said = f"{config.timeline.window}, but select.window is {own}; give one of them"
        problems.append(line(text, ("timeline", "window"), said))
    if config.cluster is not None and not config.output.features:
        problems.append(line(text, ("output", "features"), "false, but [cluster] works on the selected columns"))
    return problems


def _prepare_contradictions(text: JobText, config: JobConfig) -> list[str]:
    """Return what is wrong between the keys of ``[prepare]``."""
    from sketchselect.prepare import resolve

    given = config.prepare
    if given.steps and (given.rows or given.columns):
        said = "the order of all steps, so rows and columns do not go with it; put theirs in here"
        return [line(text, ("prepare", "steps"), said)]
    try:
        steps = resolve(given.entries)
    except BadParameter as error:
        return [line(text, ("prepare", "columns"), str(error))]
    if given.fitted is not None and all(step.is_fitted for step in steps):
        return [line(text, ("prepare", "fitted"), "no step needs statistics; leave it out")]
    return []


def _resolved(config: JobConfig, folder: Path) -> JobConfig:
    """Return the job with relative paths made absolute; names of arrays in the store stay names."""

    def absolute(value: str | None) -> str | None:
        return value if value is None or "://" in value else os.path.abspath(folder / Path(value).expanduser())

    def file_or_name(value: str | None) -> str | None:
        path = absolute(value)
        return path if path is not None and os.path.exists(path) else value

    parameters = dict(config.select.parameters)
    if isinstance(partition := parameters.get("partition"), str):
        parameters["partition"] = file_or_name(partition)
    checkpoint = config.execution.checkpoint
    given, execution, output = config.input, config.execution, config.output
    return config.model_copy(
        update={
            "input": given.model_copy(
                update={
                    "url": absolute(given.url),
                    "target": file_or_name(given.target),
                    "labels": file_or_name(given.labels),
                }
            ),
            "prepare": config.prepare.model_copy(update={"fitted": absolute(config.prepare.fitted)}),
            "select": config.select.model_copy(update={"parameters": parameters}),
            "execution": execution.model_copy(
                update={
                    "checkpoint": checkpoint if checkpoint in ("auto", False) else absolute(str(checkpoint)),
                    **{name: absolute(getattr(execution, name)) for name in ("tls_ca", "tls_cert", "tls_key")},
                }
            ),
            "output": output.model_copy(update={"dir": absolute(output.dir)}),
        }
    )
