"""Records, the states of summaries: frozen dataclasses of numbers and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np

from sketchselect.linalg.arrays import Array, canonical

R = TypeVar("R")


def stored_name(field: Field[Any]) -> str:
    """Return the name of a record's field in files: its own, or the older one in its metadata."""
    return str(field.metadata.get("stored_name", field.name))


def same_value(a: Any, b: Any) -> bool:
    """Return whether two values are the same to the bit (arrays: shape, type and bytes)."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
            return False
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return bool(a == b)


def record_arrays(record: Any) -> dict[str, Array]:
    """Return every field of a record (a frozen dataclass) as arrays, scalars as zero-dimensional ones."""
    if not is_dataclass(record):
        raise TypeError(f"a record is a dataclass, got {type(record).__name__}")
    out: dict[str, Array] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Mapping):
            for name, member in value.items():
                out.update({f"{name}/{k}": a for k, a in record_arrays(member.record).items()})
        elif value is not None:
            out[field.name] = np.asarray(value)
    return out


def canonical_record(record: R) -> R:
    """Return the record with every array in canonical layout; unchanged arrays are shared, not copied."""
    changes = {
        f.name: better
        for f in fields(cast(Any, record))
        if isinstance(value := getattr(record, f.name), np.ndarray) and (better := canonical(value)) is not value
    }
    return cast(R, replace(cast(Any, record), **changes)) if changes else record


def frozen_record(record: R) -> R:
    """Return the record with its arrays read-only: summaries share them, and answers return them."""
    for field in fields(cast(Any, record)):
        value = getattr(record, field.name)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return record
