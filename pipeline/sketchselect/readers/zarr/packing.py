"""Packed values of the CF conventions: numbers stored as ``(x - add_offset) / scale_factor``, with a missing value."""

from __future__ import annotations

import base64
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.errors import SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.readers.zarr.node import Node

_PACKED = ("scale_factor", "add_offset")
_MISSING = ("_FillValue", "missing_value")


@dataclass(frozen=True)
class Packing:
    """The rule by which stored values become numbers: ``x scale + offset``, or NaN. Compare and hash by content."""

    # Type of the numbers, as xarray chooses it: float64 where they are scaled; otherwise float32 for integers of 16
    # bits, float64 for longer ones, and floats as they are
    dtype: str

    scale: float
    offset: float
    missing: tuple[float, ...]  # Stored values that stand for a missing one

    def decode(self, stored: Array) -> Array:
        """Return the numbers behind stored values."""
        numbers = stored.astype(self.dtype)
        if self.scale != 1:
            numbers *= self.scale
        if self.offset != 0:
            numbers += self.offset
        if self.missing:
            numbers[np.isin(stored, np.array(self.missing).astype(stored.dtype))] = np.nan
        return numbers


def packing_of(node: Node, dtype: np.dtype[Any] | None) -> Packing | None:
    """Return how the values of an array are packed, by its attributes; None where they are stored as they are.

    Follows xarray, whose Zarr v2 arrays have the missing value as their fill value. Such an array is known by its
    attribute ``_ARRAY_DIMENSIONS``; a fill value of 0 without scale or offset is a number there, not a missing one.
    Raises `SourceError` if an attribute is not a number, or says that the values are unsigned.
    """
    attributes = node.attributes
    if dtype is None or dtype.kind not in "iuf":
        return None
    scaled = any(name in attributes for name in _PACKED)
    missing = {name: attributes[name] for name in _MISSING if attributes.get(name) is not None}
    fill = node.document.get("fill_value") if node.document.get("zarr_format") == 2 else None
    if fill is not None and (scaled or (fill != 0 and "_ARRAY_DIMENSIONS" in attributes)):
        missing["_FillValue"] = fill
    numbers = {name: [_number(node, name, v) for v in _items(value)] for name, value in missing.items()}
    values = sorted({value for some in numbers.values() for value in some if _is_value(value, dtype)})
    if not scaled and not values:
        return None
    if str(attributes.get("_Unsigned", "false")).lower() == "true":
        raise SourceError(
            f"{node.location.address}: packed as unsigned integers (attribute _Unsigned), which is not read; open the "
            "store with xarray and give that array"
        )
    scale, offset = (
        _number(node, name, _items(attributes[name])[0]) if name in attributes else default
        for name, default in zip(_PACKED, (1.0, 0.0), strict=True)
    )
    name = "float64" if scaled or dtype.itemsize > 2 else "float32"
    return Packing(dtype.name if dtype.kind == "f" and not scaled else name, scale, offset, tuple(values))


def _is_value(value: float, dtype: np.dtype[Any]) -> bool:
    """Return whether an array of this type can hold the value, NaN aside."""
    if dtype.kind == "f":
        return not math.isnan(value)
    return value.is_integer() and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) and value else [value]


def _number(node: Node, name: str, value: Any) -> float:
    try:
        if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
            # So xarray writes floats in Zarr v3.
            (value,) = struct.unpack("<d", base64.standard_b64decode(value))
        return float(value)
    except (TypeError, ValueError, struct.error):
        raise SourceError(f"{node.location.address}: the attribute {name} is not a number; correct it") from None
