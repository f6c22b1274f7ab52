"""What every reader demands of a source before the first read, and does to every block after it."""

from __future__ import annotations

import warnings
from typing import Any, get_args

import numpy as np

from sketchselect.errors import BadParameter, EmptyInput, SourceError
from sketchselect.linalg.arrays import Array, as_block
from sketchselect.readers.base import Nonfinite

ALLOWED = "bool, int8 to int64, uint8 to uint64, float16, float32 and float64"
_EXACT = 2**53
_HINTS = {
    "c": "take the real part or the modulus",
    "M": "turn dates into numbers first",
    "m": "turn durations into numbers first",
    "V": "choose one field of the records",
    "O": "convert to numbers first",
    "U": "leave text columns out or encode them as numbers",
    "S": "leave text columns out or encode them as numbers",
    "T": "leave text columns out or encode them as numbers",
}


def require_matrix(shape: tuple[int, ...], dtype: np.dtype[Any], address: str, type_name: str = "") -> None:
    """Raise `SourceError` unless this is a two-dimensional array of real numbers, `EmptyInput` if it has no entries."""
    if len(shape) != 2:
        text = " x ".join(map(str, shape)) or "no"
        raise SourceError(
            f"{address}: a matrix has two dimensions (rows x columns), this array has {len(shape)} (shape {text}); "
            + ("reshape it to one column, X[:, None]" if len(shape) == 1 else "reshape it to rows x columns")
        )
    require_numeric(dtype, address, type_name)
    if 0 in shape:
        raise EmptyInput(f"{address}: shape {shape[0]} x {shape[1]}: there are no {'columns' if shape[0] else 'rows'}")


def require_numeric(dtype: np.dtype[Any], address: str, type_name: str = "") -> None:
    """Raise `SourceError` naming the type (as `type_name`, where given) unless it is a real numeric one."""
    if dtype.kind not in "fiub":
        hint = _HINTS.get(dtype.kind, "convert to numbers first")
        name = "a structured type" if dtype.names else f"type {type_name or dtype}"
        raise SourceError(f"{address}: values of {name} are not real numbers; allowed are {ALLOWED}: {hint}")


def require_policy(nonfinite: str) -> Nonfinite:
    """Return the policy for NaN and infinity, or raise `BadParameter`."""
    if nonfinite not in get_args(Nonfinite):
        raise BadParameter(f'nonfinite must be "error", "drop_rows" or "missing", got {nonfinite!r:.40}')
    return nonfinite  # type: ignore[return-value]


def finish(block: Any, address: str) -> Array:
    """Return a block as it leaves a reader: canonical, native, and with a warning where float64 cannot hold it."""
    out = as_block(block)
    warn_beyond_double(out, address)
    return out


def warn_beyond_double(values: Array, address: str) -> None:
    """Warn where there are whole numbers that float64 cannot hold."""
    if (
        values.dtype.kind in "iu"
        and values.dtype.itemsize == 8
        and values.size
        and (int(values.max()) > _EXACT or int(values.min()) < -_EXACT)
    ):
        warnings.warn(f"{address}: whole numbers beyond 2^53 are rounded to float64", stacklevel=3)


def check_range(start: int, stop: int, n: int, address: str, axis: str = "row") -> None:
    """Raise `BadParameter` unless 0 <= start <= stop <= n; `axis` is what one of the n is called."""
    if not 0 <= start <= stop <= n:
        raise BadParameter(f"{address}: {axis}s {start} to {stop} are outside 0 to {n}")


def as_names(values: Any, n_columns: int) -> tuple[str, ...] | None:
    """Return column names as a tuple of text if there is one text for each column, else None."""
    try:
        names = tuple(values)
    except TypeError:
        return None
    if len(names) != n_columns or not all(isinstance(name, str) for name in names):
        return None
    return tuple(str(name) for name in names)
