"""Messages about mistakes in a job file: the key, its value, what was expected, and the line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from sketchselect._text import did_you_mean
from sketchselect.job.schema import SECTIONS
from sketchselect.job.text import JobText, KeyPath


def at_key(text: JobText, path: KeyPath, problem: str) -> str:
    """Return the message about one key."""
    return f"{text.name}: {'.'.join(path)}: {problem}{text.where(path)}"


def describe(value: Any) -> str:
    """Return the kind of a value and the value itself, shortened."""
    if isinstance(value, dict):
        return "a section"
    kinds = {bool: "boolean", str: "string", int: "number", float: "number"}
    kind = kinds.get(type(value), type(value).__name__)
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"the {kind} {shown if len(shown) <= 80 else shown[:77] + '...'}"


def yaml_note(text: JobText, value: Any) -> str:
    """Return a note where YAML reads something else than was probably meant."""
    if not text.is_yaml:
        return ""
    if isinstance(value, bool):
        return "; YAML reads unquoted yes, no, on and off as booleans: quote them"
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+[eE][-+]?[0-9]+", value):
        return "; YAML reads a number like 1e-5 as a string: write 1.0e-5"
    return ""


def suggestion(path: KeyPath, known: Iterable[str] | None = None) -> str:
    """Return where an unknown key belongs, the known key nearest to it, or all known keys."""
    *_, key = path
    if homes := [f"[{name}]" for name, section in SECTIONS.items() if key in keys(section)]:
        return f"; it belongs in {' or '.join(homes)}"
    if known is None:
        known = SECTIONS if len(path) == 1 else keys(SECTIONS[path[0]])
    return did_you_mean(key, known, f"; known {'sections' if len(path) == 1 else 'keys'}: {', '.join(known)}")


def keys(model: type[BaseModel]) -> list[str]:
    """Return the keys of a section."""
    return [name for name in model.model_fields if name != "parameters"]
