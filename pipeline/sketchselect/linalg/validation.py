"""Canonical arrays, and checks of parameters.

One memory layout for blocks, weights and targets, so that equal numbers give equal bits; whole numbers, numbers within
limits, seeds, former names of parameters.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse, vstack

from sketchselect.errors import BadBlock, BadParameter, NotFinite, warn

Array = NDArray[Any]
Floats = NDArray[np.float64]
Labels = NDArray[np.int32]

PIECE_ROWS = 2048  # Rows that a kernel upcasts to float64 at a time
LARGEST = 1e150  # Largest magnitude accepted: squares and sums of squares of larger values leave float64

_NUMERIC = "fiub"


def is_csr(values: Any) -> TypeGuard[csr_array]:
    """Return whether `values` is a SciPy matrix or array in CSR form."""
    return not isinstance(values, np.ndarray) and getattr(values, "format", None) == "csr" and issparse(values)


def canonical(values: ArrayLike, dtype: Any = None) -> Array:
    """Return `values` as a C-contiguous aligned array, copying only when it is not one already.

    BLAS takes another path for unaligned input (arrays received from another process often are), and its bits differ.
    """
    # np.require takes twenty times as long to find that nothing is to be done, which is nearly always so.
    if type(values) is np.ndarray and (dtype is None or values.dtype == dtype):
        flags = values.flags
        if flags.c_contiguous and flags.aligned:
            return values
    return np.require(values, dtype, ["C", "A"])


def with_groups(target: ArrayLike, groups: NDArray[np.uint64]) -> Array:
    """Return entries of a target, each with the words (`words_of`) of the group of its row."""
    entries = np.asarray(target)
    out = np.empty(len(entries), dtype=[("target", entries.dtype, entries.shape[1:]), ("group", np.uint64)])
    out["target"], out["group"] = entries, groups
    return out


def without_groups(target: Any) -> tuple[Any, NDArray[np.uint64] | None]:
    """Return the entries of a target, and the words of their rows' groups where it has any."""
    if getattr(target, "dtype", None) is None or target.dtype.names is None:
        return target, None
    return np.ascontiguousarray(target["target"]), np.ascontiguousarray(target["group"])


def stacked(above: Any, below: Any) -> Any:
    """Return rows, or entries, one below the other: CSR stays CSR."""
    if issparse(above):
        return vstack([above, below], format="csr")
    return np.concatenate([above, below])


def read_only(array: Array) -> Array:
    """Return an array as it is if canonical and read-only, else such a view: kernels are compiled for one type."""
    fixed = canonical(array)
    if fixed.flags.writeable:
        fixed = fixed.view()
        fixed.flags.writeable = False
    return fixed


def as_block(values: Any) -> Array:
    """Return a block of rows as a canonical two-dimensional array in native byte order, keeping its real dtype.

    Raises `BadBlock` if it is not two-dimensional or not of real numeric type.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise BadBlock("the mask of a masked array would be ignored; fill it first, with NaN where values are missing")
    array = np.asarray(values)
    if array.ndim != 2:
        raise BadBlock(f"a block must be two-dimensional (rows x columns), got {array.ndim} dimension(s)")
    if array.dtype.kind not in _NUMERIC:
        raise BadBlock(f"a block must be of real numeric type (float, int or bool), got {array.dtype}")
    return canonical(array, block_dtype(array.dtype))


def block_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that values come in: native, and float64 for bool, float16, and longer ones."""
    native = dtype.newbyteorder("=")
    widened = native == np.float16 or native == np.bool_ or native.itemsize > 8
    return np.dtype(np.float64) if widened else native


def pieces(block: Array, rows: int = PIECE_ROWS) -> Iterator[tuple[int, int]]:
    """Yield ``(start, stop)`` of consecutive pieces of at most `rows` rows."""
    for start in range(0, block.shape[0], rows):
        yield start, min(start + rows, block.shape[0])


def first_nonfinite(block: Array) -> tuple[int, int, int, int] | None:
    """Return ``(row, column, n_nan, n_inf)`` of the first NaN or infinity in `block`, or None if all is finite.

    Cost: one pass for the sum of squares (it is finite only if every entry is, short of overflow), and a full scan only
    when that is not finite.
    """
    if block.dtype.kind != "f" or block.size == 0:
        return None
    with np.errstate(all="ignore"):
        # BLAS has no product of float16, where it would overflow besides.
        if block.dtype.itemsize >= 4 and block.flags.c_contiguous and np.isfinite(np.vdot(block, block)):
            return None
        if np.isfinite(np.einsum("ij->j", block, dtype=np.float64, casting="same_kind")).all():
            return None
    bad = ~np.isfinite(block)
    if not bad.any():
        return None
    flat = int(bad.argmax())
    n_nan = int(np.isnan(block).sum())
    return flat // block.shape[1], flat % block.shape[1], n_nan, int(bad.sum()) - n_nan


def require_finite(block: Array, start: int = 0) -> None:
    """Raise `NotFinite` naming row (global index, `start` is that of the first row), column and counts."""
    first = first_nonfinite(block)
    if first is not None:
        raise nonfinite_error(*first, start)


def nonfinite_error(row: int, column: int, n_nan: int, n_inf: int, start: int = 0) -> NotFinite:
    """Return the error for a block whose first NaN or infinity is at this row (of the block) and column."""
    return NotFinite(
        f"non-finite values: {n_nan} NaN and {n_inf} infinite, the first at row {start + row}, column {column}; "
        'clean the data, or pass nonfinite="drop_rows" to leave such rows out'
    )


def magnitude_error(row: int, column: int, name: str = "column") -> BadBlock:
    """Return the error for values too large to be squared in float64, the largest of them at this global row."""
    return BadBlock(
        "values of magnitude 1e150 or more, or sums near it, cannot be squared in float64: the largest value is at "
        f"row {row}, {name} {column}; rescale that {name} or the weights"
    )


_MOST_WEIGHT = 1e150
_MOST_ROW = 2**63 - 1


def as_weights(weights: ArrayLike | None, n_rows: int, start: int | Array = 0) -> Floats | None:
    """Return row weights as float64 of shape (n_rows,), from 0 to 1e150; None, all weights 1, stays None.

    Numbers below 2.2e-308, which have lost digits, become 0: they are nothing beside larger weights.

    `start`: Global index of the first row, or of every row, for messages.
    """
    if weights is None:
        return None
    try:
        array: Floats = canonical(weights, np.float64)
    except ValueError as error:
        raise BadBlock("sample_weight holds text that is no number; give numbers") from error
    if array.shape != (n_rows,):
        raise BadBlock(f"sample_weight has shape {array.shape}, the block has {n_rows} rows")
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        first = int(wrong.argmax())
        row = int(start[first]) if isinstance(start, np.ndarray) else start + first
        raise BadBlock(f"sample_weight is {array[first]:g} at row {row}; weights must be finite and not negative")
    if array.size and array.max() > _MOST_WEIGHT:
        first = int(array.argmax())
        row = int(start[first]) if isinstance(start, np.ndarray) else start + first
        raise BadBlock(
            f"sample_weight is {array[first]:g} at row {row}; sums with weights above 1e150 overflow in float64; "
            "divide all weights by the largest"
        )
    small = array < np.finfo(np.float64).tiny
    return np.where(small, 0.0, array) if (array[small] > 0).any() else array


def as_labels(labels: ArrayLike, n_rows: int) -> Array:
    """Return the labels of the rows of a block as an array of shape (n_rows,), from that shape or (n_rows, 1)."""
    array = np.asarray(labels)
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.shape != (n_rows,):
        raise BadBlock(f"the labels have shape {array.shape}, the block has {n_rows} rows")
    return array


def first_not_whole(labels: Array) -> int | None:
    """Return the index of the first label that is no whole number, such as NaN; None if all are."""
    if labels.dtype.kind != "f" or not (odd := labels != np.trunc(labels)).any():
        return None
    return int(np.argmax(odd))


def as_targets(targets: ArrayLike | None, n_rows: int, start: int | Array = 0) -> Floats:
    """Return targets as a float64 array of shape (n_rows, n_targets); None gives no targets.

    `start`: Global index of the first row, or of every row, for messages.
    """
    if targets is None:
        return np.empty((n_rows, 0))
    array = np.asarray(targets)
    if array.dtype.kind not in _NUMERIC:
        raise BadBlock(f"the target must be of real numeric type, got {array.dtype}")
    if array.ndim not in (1, 2):
        raise BadBlock(f"the target must have one or two dimensions, got {array.ndim}")
    if array.shape[0] != n_rows:
        raise BadBlock(f"the target has {array.shape[0]} rows, the block has {n_rows}")
    array = array[:, None] if array.ndim == 1 else array
    out: Floats = canonical(array, np.float64)
    first = first_nonfinite(out)
    if first is not None:
        row, column, n_nan, n_inf = first
        raise NotFinite(
            f"non-finite targets: {n_nan} NaN and {n_inf} infinite, the first at row {number_of(row, start)}, "
            f"target {column}; leave rows without a target out"
        )
    return out


def first_row(start: int | Array) -> int:
    """Return the global index of a block's first row; `start` is that index, or the index of every row."""
    return int(start[0]) if isinstance(start, np.ndarray) else start


def row_numbers(start: Any, n_rows: int) -> int | Array:
    """Return the `start` of a block as a user gave it: the number of the first row, or an array of those of all rows.

    Raises `BadParameter` unless they are whole numbers from 0 to 2^63 - 1; of an array as many as rows, and distinct.
    """
    numbers = np.asarray(start, dtype=object if isinstance(start, (list, tuple)) else None)
    entries = [] if numbers.dtype.kind in "iu" else numbers.ravel().tolist()
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, (int, np.integer)):
            raise BadParameter(f"start: {entry!r:.40} is no row number; give whole numbers from 0 to 2^63 - 1")
    if numbers.ndim and numbers.shape != (n_rows,):
        raise BadParameter(
            f"start: row numbers of shape {numbers.shape} for {n_rows} rows; give one, or one for each row"
        )
    last = max(n_rows - 1, 0) if numbers.ndim == 0 else 0
    for wrong in (numbers.min(initial=0), numbers.max(initial=0)):
        if not 0 <= int(wrong) <= _MOST_ROW - last:
            place = f" at row {int(np.argmax(numbers == wrong))} of the block" if numbers.ndim else ""
            raise BadParameter(f"start: row number {wrong}{place} is not from 0 to 2^63 - 1; number rows from 0")
    if numbers.ndim == 0:
        return int(numbers)
    numbers = numbers.astype(np.int64, copy=False)
    if not (numbers[1:] > numbers[:-1]).all():
        order = np.argsort(numbers, kind="stable")
        if (same := numbers[order][1:] == numbers[order][:-1]).any():
            first, second = order[(at := int(same.argmax())) : at + 2].tolist()
            raise BadParameter(
                f"start: rows {first} and {second} of the block have one number, {numbers[first]}; give each its own"
            )
    return numbers


def number_of(row: int, start: int | Array) -> int:
    """Return the global index of a row of a block; see `row_numbers`."""
    return int(start[row]) if isinstance(start, np.ndarray) else start + row


def start_of_piece(start: int | Array, a: int, b: int) -> int | Array:
    """Return the `start` of rows `a` to `b` of a block that begins at `start`."""
    return start[a:b] if isinstance(start, np.ndarray) else start + a


def global_rows(start: int | Array, n_rows: int) -> NDArray[np.uint64]:
    """Return the global index of each row of a block; `start` is that of the first row, or of every row."""
    if isinstance(start, np.ndarray):
        return start.astype(np.uint64)
    return np.arange(start, start + n_rows, dtype=np.uint64)


MOST_TIMES = 10_000
"""Most repetitions, folds or points of a grid: with more, a slip of the pen would run for ever or take all memory."""


def is_whole(value: Any, least: int = 1, most: int | None = None) -> bool:
    """Return whether `value` is a whole number of at least `least` and at most `most`."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return is_integer and value >= least and (most is None or bool(value <= most))


def require_positive(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """Return `value` as an int of at least `least` and at most `most`, or raise `BadParameter`."""
    if not is_whole(value, least, most):
        raise BadParameter(f"{name} must be {whole_in_words(least, most)}, got {value!r:.40}")
    return int(value)


def whole_in_words(least: int, most: int | None = None) -> str:
    """Return the limits of a whole number in words."""
    return f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"


def is_beyond_floats(value: Any) -> bool:
    """Return whether a number is too large to be a float."""
    try:
        float(value)
    except OverflowError:
        return True
    return False


def is_number(
    value: Any, *, above: float = -np.inf, least: float = -np.inf, below: float = np.inf, most: float = np.inf
) -> bool:
    """Return whether `value` is a number within these limits, finite where `below` is left out."""
    is_real = isinstance(value, Real) and not isinstance(value, bool) and not is_beyond_floats(value)
    return is_real and bool(above < value < below and least <= value <= most)


def require_number(
    name: str,
    value: Any,
    *,
    above: float = -np.inf,
    least: float = -np.inf,
    below: float = np.inf,
    most: float = np.inf,
) -> float:
    """Return `value` as a float within these limits, finite where `below` is left out, or raise `BadParameter`.

    Examples
    --------
    >>> require_number("decay", 0.5, above=0, most=1)
    0.5
    >>> require_number("decay", 2, above=0, most=1)
    Traceback (most recent call last):
        ...
    sketchselect.errors.BadParameter: decay must be a number above 0 and at most 1, got 2
    """
    if not is_number(value, above=above, least=least, below=below, most=most):
        limits = {"above": above, "at least": least, "below": below, "at most": most}
        text = " and ".join(f"{words} {limit:g}" for words, limit in limits.items() if np.isfinite(limit))
        kind = f"a number {text}" if text else "a finite number"
        raise BadParameter(f"{name} must be {kind}, got {value!r:.40}")
    return float(value)


def require_seed(value: Any, name: str = "seed") -> int:
    """Return a seed as an int, or raise `BadParameter`: a whole number from 0 to 2^64 - 1, never a generator.

    Draws are hashed from seed and item (`hashing.uniforms`), so a seed must be the same in every process.
    """
    if not is_whole(value, 0, 2**64 - 1):
        raise BadParameter(f"{name} must be a whole number from 0 to 2^64 - 1, got {value!r:.40}")
    return int(value)


def seed_of(random_state: Any) -> int:
    """Return the seed of a scikit-learn ``random_state``; a generator (or None, the global one) draws it.

    Raises `BadParameter` for a number that is no seed (`require_seed`), or an object that is no random state.
    """
    from sklearn.utils import check_random_state

    if random_state is not None and not isinstance(random_state, np.random.RandomState):
        return require_seed(random_state, "random_state")
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def with_former_names(init: Any, renamed: dict[str, str]) -> Any:
    """Return a constructor that also takes parameters under their former names, with a warning."""

    @functools.wraps(init)
    def constructor(self: Any, *args: Any, **keywords: Any) -> None:
        for name in renamed.keys() & keywords.keys():
            if renamed[name] in keywords:
                raise TypeError(f"{name!r} is the former name of {renamed[name]!r}; leave it out")
            warn(f"the parameter {name!r} is now called {renamed[name]!r}", FutureWarning)
            keywords[renamed[name]] = keywords.pop(name)
        init(self, *args, **keywords)

    return constructor
