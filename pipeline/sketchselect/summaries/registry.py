"""Registry of the summary kinds: name in files -> class."""

from __future__ import annotations

from typing import Any, TypeVar

from sketchselect.summaries.base import Summary

KINDS: dict[str, type[Summary[Any]]] = {}

S = TypeVar("S", bound=type[Summary[Any]])


def register(cls: S) -> S:
    """Add a summary class to the registry, for files and the conformance suite; a class decorator."""
    if cls.kind in KINDS and KINDS[cls.kind].__qualname__ != cls.__qualname__:
        raise ValueError(f"the summary kind {cls.kind!r} is already registered for {KINDS[cls.kind].__qualname__}")
    KINDS[cls.kind] = cls
    return cls
