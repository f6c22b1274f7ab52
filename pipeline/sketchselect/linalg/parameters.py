"""Parameters of selectors and prepare steps: types and limits, declared; inherited signatures and documentation.

An annotation says which values a parameter may have, for the estimator, the job file and the help of a method alike: a
type, a `Literal`, or ``Annotated[type, Limits(...)]`` where a type says too little.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.validation import MOST_TIMES, is_number, is_whole, whole_in_words, with_former_names


@dataclass(frozen=True)
class Limits:
    """The values that a parameter may have, in words and as a test, and advice for those who pass another one."""

    words: str
    allows: Callable[[Any], bool]
    advice: str = ""


def whole(least: int = 1, advice: str = "", most: int | None = None) -> Limits:
    """Return the limits of a whole number of at least `least` and at most `most`."""
    words = whole_in_words(least, most)
    return Limits(words, lambda value: is_whole(value, least, most), advice)


def number(**limits: float) -> Limits:
    """Return the limits of a finite number: `above`, `least`, `below`, `most`, as of `require_number`."""
    words = {"above": "above", "least": "at least", "below": "below", "most": "at most"}
    text = " and ".join(f"{words[name]} {limit:g}" for name, limit in limits.items())
    joint = "" if text.startswith(("above", "below")) else "of "
    return Limits(f"a number {joint}{text}", lambda value: is_number(value, **limits))


def _is_size(value: Any) -> bool:
    return is_number(value, above=0, below=1) or is_whole(value)


Count = Annotated[int, whole()]
Times = Annotated[int, whole(most=MOST_TIMES)]
Size = Annotated[float, Limits("a number of columns, at least 1, or a share of them below 1", _is_size)]
SketchSize = Annotated[int, whole(2)]
Share = Annotated[float, number(above=0, below=1)]
NotNegative = Annotated[float, number(least=0)]
Positive = Annotated[float, number(above=0)]
HalfLife = Positive
SeedNumber = Annotated[int, Limits("a whole number from 0 to 2^64 - 1", lambda value: is_whole(value, 0, 2**64 - 1))]


def allows(hint: Any, value: Any) -> bool:
    """Return whether a parameter with this annotation may have this value."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return bool(args[1].allows(value))
    if origin in (Union, UnionType):
        return any(allows(part, value) for part in args)
    if origin is Literal:
        return any(isinstance(value, type(known)) and value == known for known in args)
    if hint is int:
        return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if hint is float:
        return is_number(value)
    if hint is bool:
        return isinstance(value, (bool, np.bool_))
    if isinstance(origin, type) and issubclass(origin, Iterable):
        is_list = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str) and np.ndim(value) > 0
        return is_list and all(allows(args[0], item) for item in value)
    return hint is Any or isinstance(value, origin or hint)


def takes_floats(hint: Any) -> bool:
    """Return whether a number with this annotation is a float, though whole numbers may be given."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(map(takes_floats, args))
    return hint is float or (origin is Annotated and args[0] is float)


def takes_none(hint: Any) -> bool:
    """Return whether a job file writes false for None: where None is allowed, and false itself is not."""
    return type(None) in get_args(hint) and bool not in get_args(hint)


def in_words(hint: Any, none: str = "None") -> str:
    """Return the values that an annotation allows, in words; a job file writes false for None."""
    values = _alternatives(hint, none)
    return " or ".join(filter(None, [", ".join(values[:-1]), *values[-1:]]))


def _alternatives(hint: Any, none: str) -> list[str]:
    words = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return [str(args[1].words)]
    if origin is Literal:
        return [json.dumps(known) for known in args]
    if origin in (Union, UnionType):
        return [words for part in args for words in _alternatives(part, none)]
    if isinstance(origin, type) and issubclass(origin, Sequence):
        plural = {int: "whole numbers", float: "numbers", str: "strings"}
        return [f"a list of {plural.get(args[0], 'values')}"]
    if hint is NoneType:
        return [none] if none else []
    return [words.get(hint, "another value")]


@cache
def _declared(constructor: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(constructor, include_extras=True)
    return {name: hint for name, hint in hints.items() if name != "return"}


def declared(cls: Any) -> dict[str, Any]:
    """Return the parameters of a class and their annotations, with their limits."""
    return _declared(cls.__init__)


def problem(name: str, hint: Any, value: Any) -> str | None:
    """Return the parameter, its allowed values and the wrong value in words; None if the value is allowed."""
    if allows(hint, value):
        return None
    parts = [hint, *get_args(hint)]
    advice = next((part.advice for h in parts for part in get_args(h)[1:] if getattr(part, "advice", "")), "")
    return f"{name} must be {in_words(hint)}, got {value!r:.40}" + (f"; {advice}" if advice else "")


def check_declared(estimator: Any) -> None:
    """Raise `BadParameter`, naming the first parameter with a value that its declaration does not allow."""
    for name, hint in declared(type(estimator)).items():
        text = problem(name, hint, getattr(estimator, name))
        if text is not None:
            raise BadParameter(text)


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
    hints = get_type_hints(base, include_extras=True) | get_type_hints(init, include_extras=True)
    init.__annotations__ = {name: hint for name, hint in hints.items() if name != "shared"}
    init.__signature__ = signature.replace(parameters=parameters)


def _with_inherited_entries(cls: type) -> str:
    entries: dict[str, str] = {}
    for ancestor in reversed(cls.__mro__):
        entries |= _entries(vars(ancestor).get("__doc__") or "")
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


@cache
def _entries(doc: str) -> dict[str, str]:
    """Return the entries of a docstring's section "Parameters" by the name of their parameter."""
    section = _SECTION.search(inspect.cleandoc(doc))
    return {} if section is None else {re.split(r"\W", e)[0]: e for e in re.split(r"\n(?=\S)", section[1])}
