"""Names of results: what decides the bits of a node, hashed."""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np

from sketchselect._version import __version__
from sketchselect.linalg.threads import blas_builds
from sketchselect.readers.vector import Vector

KERNEL_VERSION = 4
"""Raised when the bits that a kernel or the plan gives for the same input change."""

PACKAGES = ("numpy", "scipy", "numba")


@cache
def local_build() -> tuple[str, ...]:
    """Return versions of the numeric libraries, BLAS builds with the CPU kernel they chose, and the machine type."""
    versions = (f"{name} {metadata.version(name)}" for name in PACKAGES)
    ours = f"sketchselect {__version__} kernels {KERNEL_VERSION}"
    return tuple(sorted((ours, *versions, *blas_builds(), platform.machine())))


def digest(*parts: Any) -> str:
    """Return a hash of nested lists, mappings, texts, numbers and arrays (by content)."""
    text = json.dumps(parts, sort_keys=True, default=_plain, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        is_text = value.dtype.kind in "OUST"
        content = value.tolist() if is_text else hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
        return ["array", str(value.dtype), list(value.shape), content]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"no fingerprint for {type(value).__name__}")


def entries_identity(vector: Vector | None, runs: list[tuple[int, int]]) -> str:
    """Return the identity of some runs of a target or weight: by content, which appended rows leave as it was."""
    return "none" if vector is None else digest([digest(np.asarray(vector.read(*run))) for run in runs])
