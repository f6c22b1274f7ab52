"""A job file -> a checked `JobConfig`, or one line for every mistake in it."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from sketchselect.config import SECTIONS, JobConfig
from sketchselect.errors import BadParameter, ConfigError
from sketchselect.jobtext import SET, JobText, read_job_text, with_overrides, write_toml

OWN_CLUSTER = ("n_workers", "memory_limit")
"""Keys of ``[execution]`` that only make sense for a cluster that the job starts."""

_WIDE = 10**6
"""Columns of an imagined matrix against which parameters are checked when the real one is not known."""


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
    config, problems = None, []
    try:
        config = JobConfig.model_validate(text.values)
    except ValidationError as error:
        problems = _problems(text, error)
    problems += _parameter_problems(text)
    if config is not None:
        problems += _contradictions(text, config)
    if problems or config is None:
        raise ConfigError("\n".join(problems))
    return _resolved(config, text.folder)


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


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {name: info for name, info in model.model_fields.items() if name != "parameters"}


def _problems(text: JobText, error: ValidationError) -> list[str]:
    """Return one line per key that is wrong (a union gives several errors for one key)."""
    seen: dict[tuple[str, ...], str] = {}
    for item in error.errors(include_url=False):
        path = tuple(map(str, item["loc"][:2]))
        if path and path not in seen:
            seen[path] = _problem(text, path, item)
    return list(seen.values())


def _problem(text: JobText, path: tuple[str, ...], item: Any) -> str:
    info = JobConfig.model_fields.get(path[0])
    if info is not None and len(path) > 1:
        info = SECTIONS[path[0]].model_fields.get(path[1])
    if item["type"] == "extra_forbidden" or info is None:
        return _line(text, path, f"unknown key{_hint(path)}")
    expected = info.description or "something else"
    if item["type"] == "missing" and len(item["loc"]) == len(path):
        return _line(text, path, f"missing; expected {expected}")
    reason = str(item["ctx"]["error"]) if item["type"] == "value_error" else ""
    if reason.startswith(("'", "unknown", "prepare")):
        return _line(text, path, reason)
    value: Any = text.values
    for part in path:
        value = value[part]
    if reason.startswith(("a path or", "a text without", "a folder of")):
        expected = reason
    return _line(text, path, f"expected {expected}, got {_shown(value)}{_yaml_hint(text, value)}")


def _line(text: JobText, path: tuple[str, ...], problem: str) -> str:
    return f"{text.name}: {'.'.join(path)}: {problem}{text.where(path)}"


def _shown(value: Any) -> str:
    kinds = {
        bool: "the truth value",
        str: "the text",
        int: "the number",
        float: "the number",
        list: "the list",
        dict: "a section",
    }
    kind = kinds.get(type(value), type(value).__name__)
    if isinstance(value, dict):
        return kind
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{kind} {shown if len(shown) <= 80 else shown[:77] + '...'}"


def _yaml_hint(text: JobText, value: Any) -> str:
    if not text.is_yaml:
        return ""
    if isinstance(value, bool):
        return "; YAML reads unquoted yes, no, on and off as truth values: quote them"
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+[eE][-+]?[0-9]+", value):
        return "; YAML reads a number like 1e-5 as text: write 1.0e-5"
    return ""


def _hint(path: tuple[str, ...], known: Sequence[str] | None = None) -> str:
    if known is None:
        known = list(SECTIONS) if len(path) == 1 else list(_fields(SECTIONS[path[0]]))
    if close := difflib.get_close_matches(path[-1], known, n=1, cutoff=0.7):
        return f"; did you mean {close[0]!r}?"
    if homes := [f"[{name}]" for name, section in SECTIONS.items() if path[-1] in _fields(section)]:
        return f"; it belongs in {' or '.join(homes)}"
    return f"; known {'sections' if len(path) == 1 else 'keys'}: {', '.join(known)}"


def _parameter_problems(text: JobText) -> list[str]:
    """Check the method's own parameters against its estimator: names, types and ranges."""
    from sketchselect import selectors

    select = text.values.get("select")
    method = select.get("method") if isinstance(select, dict) else None
    if not isinstance(select, dict) or not isinstance(method, str) or method not in selectors.METHODS:
        return []
    hints = _hints(method)
    known = ["method", "n_features", *(name for name in hints if name != "n_features_to_select")]
    problems, sound = [], {}
    for name, value in select.items():
        path = ("select", name)
        if name in ("method", "n_features"):
            continue
        if name == "n_features_to_select":
            problems.append(_line(text, path, "unknown key; in a job file it is called 'n_features'"))
        elif name not in hints:
            problems.append(_line(text, path, f"unknown key{_hint(path, known)}"))
        elif not _fits(value, hints[name]):
            expected = f"expected {_described(hints[name])}, got {_shown(value)}{_yaml_hint(text, value)}"
            problems.append(_line(text, path, expected))
        else:
            sound[name] = value
    while problem := selector_problem(method, sound):
        # The message names its parameter; without that one there may be more to find.
        culprit = min((n for n in sound if n in problem), key=problem.index, default=None)
        problems.append(_line(text, ("select", culprit) if culprit else ("select",), problem))
        if culprit is None:
            break
        del sound[culprit]
    return problems


def selector_problem(method: str, parameters: Mapping[str, Any]) -> str | None:
    """Return what a selector says of its parameters, None where nothing is wrong."""
    from sketchselect import selectors

    try:
        selector = selectors.make(method, **selector_parameters(method, parameters))
        selector.check_parameters()
        selector.prepare_steps()
        selector.summary_description(_WIDE)
    except BadParameter as error:
        return str(error)
    return None


def selector_parameters(method: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as an estimator takes them: TOML has no None, so a job file writes false instead."""
    hints = _hints(method)
    return {k: None if v is False and _optional(hints.get(k)) else v for k, v in parameters.items()}


def _hints(method: str) -> dict[str, Any]:
    from sketchselect import selectors

    return {k: v for k, v in get_type_hints(selectors.METHODS[method].__init__).items() if k != "return"}


def _fits(value: Any, hint: Any) -> bool:
    if value is False and _optional(hint):
        return True
    try:
        TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False)).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def _optional(hint: Any) -> bool:
    return type(None) in get_args(hint) and bool not in get_args(hint)


def _described(hint: Any) -> str:
    """Return a type in words; where None is meant, a job file writes false."""
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "false"}
    if hint in words:
        return words[hint]
    if get_origin(hint) is Literal:
        return " or ".join(json.dumps(value) for value in get_args(hint))
    return " or ".join(_described(part) for part in get_args(hint)) or "something else"


def _contradictions(text: JobText, config: JobConfig) -> list[str]:
    """Return what is wrong between keys, each valid alone."""
    problems = []
    execution = config.execution
    if execution.cluster not in ("local", "threads", "serial", "env") and "://" not in execution.cluster:
        expected = SECTIONS["execution"].model_fields["cluster"].description
        close = difflib.get_close_matches(execution.cluster, ("local", "threads", "serial", "env"), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        problems.append(_line(text, ("execution", "cluster"), f"expected {expected}, got {execution.cluster!r}{hint}"))
    elif execution.cluster not in ("local", "threads"):
        problems += [
            _line(text, ("execution", name), "only for a cluster that the job starts itself; leave it out")
            for name in OWN_CLUSTER
            if getattr(execution, name) is not None
        ]
    tls = {name: getattr(execution, name) for name in ("tls_ca", "tls_cert", "tls_key")}
    if any(tls.values()) and not all(tls.values()):
        missing = ", ".join(name for name, value in tls.items() if not value)
        problems.append(_line(text, ("execution",), f"tls_ca, tls_cert and tls_key go together; missing: {missing}"))
    return problems


def _resolved(config: JobConfig, folder: Path) -> JobConfig:
    """Return the job with relative paths made absolute; names of arrays in the store stay names."""

    def absolute(value: str | None) -> str | None:
        return value if value is None or "://" in value else os.path.abspath(folder / Path(value).expanduser())

    def file_or_name(value: str | None) -> str | None:
        path = absolute(value)
        return path if path is not None and os.path.exists(path) else value

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
            "execution": execution.model_copy(
                update={
                    "checkpoint": checkpoint if checkpoint in ("auto", False) else absolute(str(checkpoint)),
                    **{name: absolute(getattr(execution, name)) for name in ("tls_ca", "tls_cert", "tls_key")},
                }
            ),
            "output": output.model_copy(update={"dir": absolute(output.dir)}),
        }
    )
