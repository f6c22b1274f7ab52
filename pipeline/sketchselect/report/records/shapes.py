"""Check of the shapes of a record's arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter


def require_shape(name: str, values: Any, expected: tuple[int, ...]) -> None:
    """Raise `BadParameter` unless values, where there are any, have this shape."""
    shape = np.shape(values)
    # An empty table read back from a file has lost its width.
    if values is not None and shape != expected and (math.prod(shape) or math.prod(expected)):
        raise BadParameter(f"report: {name} has shape {shape}, expected {expected}")
