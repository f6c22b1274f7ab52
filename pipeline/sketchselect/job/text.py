"""Text of job files: plain values and the line of each key; TOML and YAML, read strictly."""

from __future__ import annotations

import contextlib
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sketchselect.errors import ConfigError

MAX_BYTES = 1 << 20
"""Largest job file read."""

SET = "from --set"
"""Place of a value that comes from the command line, instead of a line number."""

KeyPath = tuple[str, ...]

_TABLE = re.compile(r"^\s*\[\s*([A-Za-z0-9_.\-\"' ]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_.\-\"']+)\s*=")
_BARE_FRACTION = re.compile(r"[+-]?\.[0-9]+([eE][+-]?[0-9]+)?")
_YAML_ODD_INT = re.compile(r"[-+]?(0[0-9_]+|[0-9_]+(:[0-5]?[0-9])+)")


@dataclass(frozen=True)
class JobText:
    """Content of a job file before it is checked."""

    name: str  # Its name in messages
    values: dict[str, Any]  # The nested tables
    folder: Path  # Folder that relative paths in it start from
    # Key path -> line number, or another place that the value comes from
    lines: dict[KeyPath, str] = field(default_factory=dict)
    is_yaml: bool = False  # Whether notes about YAML's reading of unquoted words apply

    def where(self, path: Sequence[str]) -> str:
        """Return " (line n)" of the key or of the nearest table above it, an empty string if neither is known."""
        for stop in range(len(path), 0, -1):
            if origin := self.lines.get(tuple(path[:stop])):
                return f" ({origin})"
        return ""


def read_job_text(path: Path) -> JobText:
    """Read a TOML (``.toml``) or YAML (``.yaml``, ``.yml``) file, or for ``-`` TOML from standard input.

    Raises `ConfigError` if it cannot be read, or is not well-formed; the message names the line.
    """
    name, suffix = path.name, path.suffix.lower()
    if from_input := path == Path("-"):
        name, suffix = "standard input", ".toml"
    if suffix not in (".toml", ".yaml", ".yml"):
        if not path.exists():
            raise ConfigError(f"{path}: no such file or folder")
        if path.is_dir():
            raise ConfigError(f"{path}: a folder; name a job file, which ends in .toml, .yaml or .yml")
        raise ConfigError(f"{name}: the name of a job file ends in .toml, .yaml or .yml")
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if from_input else path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such job file; check the path, or let `sketchselect init SOURCE` write one"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{name}: larger than {MAX_BYTES} bytes, so not a job file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"{name}: line {line}: not UTF-8 text") from None
    folder = path.absolute().parent
    try:
        if suffix == ".toml":
            return JobText(name, _read_toml(name, text), folder, _toml_lines(text))
        values, lines = _read_yaml(name, text)
        return JobText(name, values, folder, lines, is_yaml=True)
    except RecursionError:
        raise ConfigError(f"{name}: values are nested too deeply") from None


def with_overrides(text: JobText, overrides: Sequence[str]) -> JobText:
    """Return the text with ``section.key=value`` settings of the command line added.

    Values are written as in TOML; anything else is a string, so ``--set output.dir=out2`` needs no quotes.
    Raises `ConfigError` for a key that is set twice, also by another option.
    """
    values, lines, sources = _copied(text.values), dict(text.lines), dict[KeyPath, str]()
    for item in overrides:
        key, sign, value = item.partition("=")
        path = tuple(part.strip() for part in key.split("."))
        if not sign or len(path) < 2 or not all(path):
            raise ConfigError(f"--set {item}: expected section.key=value, for example select.n_features=100")
        if path in sources:
            raise ConfigError(f"--set {sources[path]}: {item} sets this key too (--set or an option); give it once")
        sources[path] = item
        table = values
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"--set {item}: {part} is not a section")
        table[path[-1]] = toml_value(value)
        lines[path] = SET
    return JobText(text.name, values, text.folder, lines, text.is_yaml)


def toml_value(text: str) -> Any:
    """Return `text` read as a TOML value, or `text` itself if it is not one.

    Numbers may begin with the decimal point, which TOML does not allow.

    Examples
    --------
    >>> toml_value("0.5"), toml_value("-.5"), toml_value("greedy")
    (0.5, -0.5, 'greedy')
    """
    stripped = text.strip()
    if _BARE_FRACTION.fullmatch(stripped):
        return float(stripped)
    try:
        return tomllib.loads(f"value = {stripped}")["value"] if "\n" not in text else text
    except (tomllib.TOMLDecodeError, RecursionError):
        return stripped


def write_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return sections of plain values as TOML text; None is left out, as TOML has no null.

    Examples
    --------
    >>> print(write_toml({"input": {"url": "a.zarr", "key": None}}), end="")
    [input]
    url = "a.zarr"
    """
    sections = []
    for name, table in tables.items():
        lines = [f"{_toml_key(k)} = {_toml_literal(v)}" for k, v in table.items() if v is not None]
        sections.append("\n".join([f"[{name}]", *lines]) + "\n")
    return "\n".join(sections)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_literal(key)


def _toml_literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml_literal, value)) + "]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_toml_key(k)} = {_toml_literal(v)}" for k, v in value.items() if v is not None)
        return "{" + inner + "}"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda control: f"\\u{ord(control[0]):04x}", escaped) + '"'


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {k: _copied(v) if isinstance(v, dict) else v for k, v in values.items()}


def _read_toml(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not valid TOML: {_toml_fault(str(error), text)}") from None


def _toml_fault(fault: str, text: str) -> str:
    """Return tomllib's message; of a key or a section that is there twice one that says so and names it."""
    match = re.fullmatch(r"Cannot (overwrite a value|declare .* twice) (\(at line (\d+),.*\))", fault)
    if match is None:
        return fault
    lines = text.split("\n")[: int(match[3])]
    if match[1] != "overwrite a value":
        return (
            f"the section {lines[-1].partition('#')[0].strip()} is there twice; put all of its keys into one {match[2]}"
        )
    # The place is behind the value, which may have several lines. A key that stands once there keeps the message: it is
    # a section too, or a line of a text.
    keys = [key[1].strip() for line in lines if (key := _KEY.match(line))]
    if not keys or keys.count(keys[-1]) < 2 or lines[-1].lstrip().startswith("[") or "." in keys[-1]:
        return fault
    return f"the key {keys[-1]} is there twice; remove one of the two {match[2]}"


def _toml_lines(text: str) -> dict[KeyPath, str]:
    """Return the line of every ``[table]`` and ``key =``; tomllib reports none."""
    lines: dict[KeyPath, str] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.split("\n"), 1):
        if header := _TABLE.match(line):
            table = _split(header[1])
            lines.setdefault(table, f"line {number}")
        elif key := _KEY.match(line):
            lines.setdefault(table + _split(key[1]), f"line {number}")
    return lines


def _split(dotted: str) -> KeyPath:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _read_yaml(name: str, text: str) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    import yaml

    class StrictLoader(yaml.SafeLoader):
        """Safe YAML without aliases, duplicate keys, octal and base-60 numbers."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event: Any = self.peek_event()  # type: ignore[no-untyped-call]
                raise _yaml_error(event, "aliases (*name) are not allowed in a job file")
            return super().compose_node(parent, index)

    def mapping(loader: Any, node: Any, deep: bool = True) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _yaml_error(key_node, f"YAML reads this key as {key!r}, not as a string; put it in quotes")
            if key in out:
                raise _yaml_error(key_node, f"key {key!r} appears twice")
            out[key] = loader.construct_object(value_node, deep=True)
        return out

    def integer(loader: Any, node: Any) -> int:
        if _YAML_ODD_INT.fullmatch(node.value):
            value = loader.construct_yaml_int(node)
            raise _yaml_error(
                node, f"YAML reads {node.value} as {value} (octal or base 60); write {value} or put it in quotes"
            )
        return int(loader.construct_yaml_int(node))

    StrictLoader.add_constructor("tag:yaml.org,2002:map", mapping)
    StrictLoader.add_constructor("tag:yaml.org,2002:int", integer)
    try:
        loader = StrictLoader(text)
    except yaml.reader.ReaderError as error:
        number = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{name}: line {number}: the character {chr(error.character)!a} is not allowed in YAML"
        ) from None
    try:
        node = loader.get_single_node()
        values = {} if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ConfigError(f"{name}: {line}{error.problem or error.context or 'not valid YAML'}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{name}: not valid YAML: {str(error).splitlines()[0]}") from None
    finally:
        loader.dispose()
    if not isinstance(values, dict):
        raise ConfigError(f"{name}: line 1: expected sections such as 'input:', got {type(values).__name__}")
    lines: dict[KeyPath, str] = {}
    _yaml_lines(node, (), lines)
    return values, lines


def _yaml_error(node: Any, problem: str) -> Exception:
    import yaml

    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _yaml_lines(node: Any, path: KeyPath, lines: dict[KeyPath, str]) -> None:
    """Collect the line of every key of nested mappings."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            lines[(*path, key.value)] = f"line {key.start_mark.line + 1}"
            _yaml_lines(value, (*path, key.value), lines)
