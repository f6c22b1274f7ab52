"""Constructor signatures and parameter documentation that a selector inherits from its base classes."""

from __future__ import annotations

import inspect
import json
import re
from numbers import Real
from typing import Any, get_type_hints

from sketchselect.errors import BadParameter
from sketchselect.linalg.validation import require_positive, with_former_names

_SECTION = re.compile(r"\n\nParameters\n-+\n(.*?)(?=\n\n\S+\n-{3,}\n|\Z)", re.DOTALL)
_NEXT_SECTION = re.compile(r"(?=\n\n\S+\n-{3,}\n)|\Z")


def inherit_parameters(cls: Any) -> None:
    """Complete signature and docstring of a new class, which scikit-learn and `help` read.

    A constructor that passes ``**shared`` on to its base class gets the base's parameters as keywords of its signature.
    The section "Parameters" of the docstring gets an entry for every parameter that only a base class documents, and
    each entry without one its default. A class with parameters in `renamed` also takes their former names.
    """
    init = vars(cls).get("__init__")
    if init is not None and "shared" in inspect.signature(init).parameters:
        _inherit_keywords(init, super(cls, cls).__init__)
    if "renamed" in vars(cls):
        cls.__init__ = with_former_names(cls.__init__, cls.renamed)
    if cls.__init__ is not object.__init__ and vars(cls).get("__doc__"):
        cls.__doc__ = _with_inherited_entries(cls)


def _inherit_keywords(init: Any, base: Any) -> None:
    signature = inspect.signature(init)
    parameters = [p for p in signature.parameters.values() if p.name != "shared"]
    keywords = [p for p in inspect.signature(base).parameters.values() if p.name not in signature.parameters]
    parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in keywords]
    hints = get_type_hints(base) | get_type_hints(init)
    init.__annotations__ = {name: hint for name, hint in hints.items() if name != "shared"}
    init.__signature__ = signature.replace(parameters=parameters)


def _with_inherited_entries(cls: type) -> str:
    entries: dict[str, str] = {}
    for ancestor in reversed(cls.__mro__):
        entries |= _entries(ancestor)
    lines = []
    for name, parameter in inspect.signature(cls).parameters.items():
        if name in entries:
            head, _, text = entries[name].partition("\n")
            if not re.search(r"optional$|default ", head) and parameter.default is not parameter.empty:
                default = json.dumps(parameter.default) if isinstance(parameter.default, str) else parameter.default
                head += f", default {default}"
            lines += [head, *([text] if text else [])]
    doc = _SECTION.sub("", inspect.cleandoc(cls.__doc__ or ""))
    if not lines:
        return doc
    section = "\n\nParameters\n----------\n" + "\n".join(lines)
    return _NEXT_SECTION.sub(lambda _: section, doc, count=1) + "\n"


def _entries(cls: type) -> dict[str, str]:
    """Return the entries of the docstring's section "Parameters" by the name of their parameter."""
    section = _SECTION.search(inspect.cleandoc(vars(cls).get("__doc__") or ""))
    return {} if section is None else {re.split(r"\W", e)[0]: e for e in re.split(r"\n(?=\S)", section[1])}


def as_count(n_select: float, n_features: int) -> int:
    """Return a number of columns, which below 1 is a share of them."""
    if isinstance(n_select, float) and 0.0 < n_select < 1.0:
        return max(int(n_select * n_features), 1)
    if not isinstance(n_select, Real):
        raise BadParameter(f"n_features_to_select must be a number of columns or a share of them, got {n_select!r:.40}")
    return require_positive("n_features_to_select", n_select)
