"""Checks of a source before the first read, policies for what it lacks, and the canonical form of what is read."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from sketchselect._text import did_you_mean
from sketchselect.errors import BadParameter, EmptyInput, NotFinite, SourceError
from sketchselect.linalg.arrays import Array, as_block, canonical

Nonfinite = Literal["error", "drop_rows", "missing"]
"""Policies for NaN and infinity."""

MissingPolicy = Literal["error", "fill"]
"""Policies for Zarr chunks without a file."""

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
    """Raise `SourceError` naming the type (`type_name`, or else that of NumPy) unless it is a real numeric one."""
    if dtype.kind not in "fiub":
        hint = _HINTS.get(dtype.kind, "convert to numbers first")
        name = "a structured type" if dtype.names else f"type {type_name or dtype}"
        raise SourceError(f"{address}: values of {name} are not real numbers; allowed are {ALLOWED}: {hint}")


def require_policy(nonfinite: str) -> Nonfinite:
    """Return the policy for NaN and infinity, or raise `BadParameter`."""
    if nonfinite not in get_args(Nonfinite):
        raise BadParameter(f'nonfinite must be "error", "drop_rows" or "missing", got {nonfinite!r:.40}')
    return nonfinite  # type: ignore[return-value]


def require_missing_policy(missing_chunks: str) -> MissingPolicy:
    """Return the policy for missing chunks, or raise `BadParameter`."""
    if missing_chunks not in get_args(MissingPolicy):
        raise BadParameter(f'missing_chunks must be "error" or "fill", got {missing_chunks!r:.40}')
    return missing_chunks  # type: ignore[return-value]


def finish(block: Any, address: str) -> Array:
    """Return a block in the canonical layout, with a warning where float64 cannot hold its values."""
    out = as_block(block)
    warn_beyond_double(out, address)
    return out


def as_entries(values: Any, address: str) -> Array:
    """Return entries of a vector as a canonical array of numbers in native byte order, or of text."""
    array = np.asarray(values)
    if array.dtype.kind in "OT":
        entries = array.ravel().tolist()
        if all(isinstance(entry, str) for entry in entries):
            array = np.array(entries, dtype=str).reshape(array.shape)
        elif all(isinstance(entry, (bool, int, float, np.number, np.bool_)) for entry in entries):
            array = np.array(entries).reshape(array.shape)
        else:
            raise SourceError(f"{address}: entries are neither all numbers nor all text; convert them first")
    elif array.dtype.kind == "S":
        array = array.astype(str)
    return canonical(array, array.dtype.newbyteorder("="))


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
    """Raise `BadParameter` unless 0 <= start <= stop <= n; `axis` names one of the n."""
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


def modality_key(names: Sequence[str], key: str | None, address: str) -> tuple[str, str]:
    """Return the modality of MuData that a key begins with, and the key of the matrix in it.

    `names`: All modalities.
    `key`: "rna" or "rna/layers/counts", also with "mod/" before it; None where there is one modality.
    Raises `SourceError` if it names none of them.
    """
    there = f"its modalities are: {', '.join(names) or 'none'}"
    if key is None and len(names) != 1:
        raise SourceError(f"{address}: choose a modality with key= (or --key); {there}")
    words = (names[0] if key is None else key.strip("/").removeprefix("mod/")).split("/")
    for n in range(len(words), 0, -1):
        if (name := "/".join(words[:n])) in names:
            return name, "/".join(words[n:]) or "X"
    raise SourceError(f"{address}: no modality {key!r:.80}{did_you_mean(words[0], names, f'; {there}')}")


def require_few_dropped(address: str, n_dropped: int, n_rows: int, max_dropped: float, confirm: str) -> str:
    """Return in words how many rows were left out, and how many are used.

    `address`: The source, for the message.
    `n_dropped`, `n_rows`: Rows left out, and all rows.
    `max_dropped`: Share of the rows that may be left out.
    `confirm`: Option that confirms a larger share, without its value.
    Raises `NotFinite` if more are.
    """
    share = f"{100 * n_dropped / n_rows:.2g} %" if n_dropped < n_rows else "100 %"
    used = f"{n_rows - n_dropped:,} are used"
    dropped = f'{address}: nonfinite = "drop_rows" left out {n_dropped:,} of {n_rows:,} rows ({share}), so {used}'
    if n_dropped > max_dropped * n_rows:
        raise NotFinite(
            f"{dropped}; that is more than max_dropped = {max_dropped:g} allows: fill missing values with the prepare "
            f'step "impute", leave out the columns that lack most, or confirm with {confirm}'
            f"{math.ceil(100 * n_dropped / n_rows) / 100:g}"
        )
    return dropped
