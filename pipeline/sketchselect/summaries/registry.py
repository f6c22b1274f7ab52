"""Which summary kinds exist: name in a file -> class."""

from __future__ import annotations

from typing import Any, TypeVar

from sketchselect.summaries.base import Summary

KINDS: dict[str, type[Summary[Any]]] = {}

S = TypeVar("S", bound=type[Summary[Any]])


def register(cls: S) -> S:
    """Class decorator: make a summary known to files and to the law suite."""
    if cls.kind in KINDS and KINDS[cls.kind].__qualname__ != cls.__qualname__:
        raise ValueError(f"the summary kind {cls.kind!r} is taken by {KINDS[cls.kind].__qualname__}")
    KINDS[cls.kind] = cls
    return cls
