"""How a mistake in a job file is worded: the key, the value, what was expected, and the line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from sketchselect.job.schema import SECTIONS
from sketchselect.job.text import JobText


def line(text: JobText, path: tuple[str, ...], problem: str) -> str:
    """Return the message about one key."""
    return f"{text.name}: {'.'.join(path)}: {problem}{text.where(path)}"


def shown(value: Any) -> str:
    """Return a value, shortened, and what kind it is."""
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


def yaml_hint(text: JobText, value: Any) -> str:
    """Return a hint where YAML reads something else than was probably meant."""
    if not text.is_yaml:
        return ""
    if isinstance(value, bool):
        return "; YAML reads unquoted yes, no, on and off as truth values: quote them"
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+[eE][-+]?[0-9]+", value):
        return "; YAML reads a number like 1e-5 as text: write 1.0e-5"
    return ""


def hint(path: tuple[str, ...], known: Sequence[str] | None = None) -> str:
    """Return what an unknown key may have been meant to be, or where it belongs."""
    if known is None:
        known = list(SECTIONS) if len(path) == 1 else list(fields(SECTIONS[path[0]]))
    if close := difflib.get_close_matches(path[-1], known, n=1, cutoff=0.7):
        return f"; did you mean {close[0]!r}?"
    if homes := [f"[{name}]" for name, section in SECTIONS.items() if path[-1] in fields(section)]:
        return f"; it belongs in {' or '.join(homes)}"
    return f"; known {'sections' if len(path) == 1 else 'keys'}: {', '.join(known)}"


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the keys of a section."""
    return {name: info for name, info in model.model_fields.items() if name != "parameters"}
