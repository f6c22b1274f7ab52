"""Prepare steps: their protocol, and steps of single rows: unit length, library size, logarithms.

Euclidean norms of rows have the same bits in any block: NumPy's buffered sums depend on the rows before.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Real
from typing import Any, ClassVar, Literal, Self, get_type_hints

import numpy as np
from scipy.sparse import csr_array

from sketchselect._kernels import REASSOCIATED, kernel
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg.csr import densify
from sketchselect.linalg.parameters import Positive, problem, takes_floats
from sketchselect.linalg.validation import Array, Floats, canonical, is_csr, pieces, read_only

Block = Any
"""An ndarray, or a canonical `scipy.sparse.csr_array`."""

_DIGEST = 10
_PIECE_VALUES = 1 << 20


@dataclass(frozen=True)
class Need:
    """The summary that a step is fitted from: its kind, its parameters, and its rows.

    Parameters
    ----------
    kind : str
        Name of the kind, as in a summary file.
    parameters : mapping
        Arguments of its constructor.
    first_partition : bool
        Whether it is of the first partition alone, not of all rows.
    weighted : bool
        Whether rows count by their weights; not in a sample, which stands for the rows as they are.
    before : tuple of Step
        Steps on the rows for this summary only, after the earlier steps of the list.
    """

    kind: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    first_partition: bool = False
    weighted: bool = True
    before: tuple[Step, ...] = ()


class BadEntry(ValueError):
    """An entry of a block that a step is not defined for; `apply_steps` adds the row and the source."""

    def __init__(self, row: int, column: int, problem: str) -> None:
        super().__init__(problem)
        self.row, self.column, self.problem = row, column, problem


@dataclass(frozen=True)
class Replaced:
    """Entries of a column that a step takes for something else: missing values, or levels that its fit did not have."""

    n_rows: int
    levels: Mapping[float, int] = field(default_factory=dict)  # Codes of the first few levels, and a row of each

    def followed_by(self, other: Replaced) -> Replaced:
        """Return these entries and those of later rows."""
        levels = {**self.levels, **{code: row for code, row in other.levels.items() if code not in self.levels}}
        return Replaced(self.n_rows + other.n_rows, dict(list(levels.items())[:LISTED_LEVELS]))


LISTED_LEVELS = 4
"""Levels of a column that a note lists, and one more."""


@dataclass(frozen=True, eq=False)
class Step(ABC):
    """One transform of blocks: pure, the input is never changed. Two steps are equal if their labels are.

    Parameters
    ----------
    values : mapping of str to array, optional
        The fitted values; None where it is not fitted yet, or needs nothing.
    expected : str, optional
        Digest that `values` must have, where the step was named by the label of a fitted one.
    """

    name: ClassVar[str]
    acts_on: ClassVar[Literal["rows", "columns"]]
    """Whether what happens to a row depends on that row alone."""
    of_counts: ClassVar[bool] = False
    """Whether it is defined for values of at least 0 only."""
    takes_missing: ClassVar[bool] = False
    """Whether it is defined for rows with missing values (NaN)."""
    fills_missing: ClassVar[bool] = False
    """Whether there are none after it."""
    keeps_units: ClassVar[bool] = False
    """Whether columns that differ in unit still do after it."""
    is_by_column: ClassVar[bool] = False
    """Whether every column after it is made from one column before it, once it is fitted."""
    normalizes_rows: ClassVar[bool] = False
    """Whether rows have length 1 after it."""

    encodes: ClassVar[str | None] = None
    """Columns of a table, besides numbers, that are read for this step: "text" or "dates"."""

    values: Mapping[str, Array] | None = field(default=None, kw_only=True, repr=False)
    expected: str | None = field(default=None, kw_only=True, repr=False)

    @abstractmethod
    def apply(self, block: Block) -> Block:
        """Return the block after this step: float32 stays float32, all else becomes float64."""

    @property
    def keeps_sparsity(self) -> bool:
        """Whether zeros stay zeros, so that CSR blocks stay CSR."""
        return True

    @property
    def needs(self) -> Need | None:
        """What the step is fitted from; None where a block is enough."""
        return None

    def may_be_negative(self, before: bool) -> bool:
        """Return whether values after the step may be negative, where `before` says whether those before it may."""
        return before

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the fitted values from the summary of its `needs`."""
        raise BadParameter(f"prepare step {self.name!r} has nothing to be fitted with")

    def completed(self, summary: Any, matrix: Any) -> Any:
        """Return the summary of the `needs` with what is looked up in the source, a `Matrix`, once it is known."""
        return summary

    def seen(self, matrix: Any) -> Self:
        """Return the step with what it has to know of the source of its fit, a `Matrix`, besides rows."""
        return self

    def replaced(self, block: Block) -> dict[int, Replaced]:
        """Return what the step takes for something else, by column; rows are those of the block."""
        return {}

    def n_filled(self, block: Block) -> Array:
        """Return how many values of every column are missing and will be filled."""
        return np.zeros(block.shape[1], dtype=np.int64)

    def notes(self, names: Sequence[str] | None = None) -> list[str]:
        """Return notes for the user on the fitted values; `names` are those of the columns of the source."""
        return []

    def n_columns(self, n_columns: int) -> int:
        """Return the number of columns after the step."""
        return n_columns

    def column_names(self, names: tuple[str, ...] | None, n_columns: int) -> tuple[str, ...] | None:
        """Return the names of the columns after the step; `names` and `n_columns` are those before it."""
        return names

    def names_before(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the columns before the step from those after it, where the step made others of some."""
        return names

    def working_nbytes(self, n_columns: int) -> int:
        """Return the bytes a process holds for this step, whatever the block."""
        return 0 if self.needs is None else 4 * 8 * n_columns

    # --- derived -----------------------------------------------------------------------------------------------

    def __post_init__(self) -> None:
        """Check the parameters by the annotations of the fields; whole numbers become floats where floats are meant."""
        for name, value in self.parameters().items():
            hint = _hints(type(self))[name]
            if (text := problem(name, hint, value)) is not None:
                raise BadParameter(f"prepare step {self.name!r}: {text}")
            if isinstance(value, Real) and takes_floats(hint):
                object.__setattr__(self, name, float(value))

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the step."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("values", "expected")}

    @property
    def is_fitted(self) -> bool:
        """Whether the step can be applied."""
        return self.needs is None or self.values is not None

    @property
    def description(self) -> str:
        """The step and its parameters that differ from the defaults, as `resolve` reads it."""
        defaults = {f.name: f.default for f in fields(self)}
        changed = [
            f"{name}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in self.parameters().items()
            if value != defaults[name]
        ]
        return f"{self.name}({', '.join(changed)})" if changed else self.name

    @property
    def digest(self) -> str | None:
        """A hash of the fitted values; None where there are none."""
        if self.values is None:
            return self.expected
        state = hashlib.sha256()
        for name in sorted(self.values):
            array = canonical(self.values[name])
            state.update(f"{name} {array.dtype.str} {array.shape} ".encode() + array.tobytes())
        return state.hexdigest()[:_DIGEST]

    @property
    def label(self) -> str:
        """The description, and of a fitted step ``#`` and the digest: summaries merge only if these agree."""
        return self.description if self.digest is None else f"{self.description}#{self.digest}"

    def fitted(self, summary: Any) -> Self:
        """Return the step, fitted with the summary of its `needs`.

        Raises
        ------
        Incompatible
            If the step was named by a label with another digest.
        """
        return self.with_values(self.learn(summary))

    def with_values(self, values: Mapping[str, Array]) -> Self:
        """Return the step with these fitted values, or raise `Incompatible` where it had others."""
        new = replace(self, values={k: canonical(v) for k, v in values.items()}, expected=None)
        if self.expected is not None and new.digest != self.expected:
            raise Incompatible(
                f"prepare step {self.description!r} was fitted with other rows: it is {new.label!r}, not "
                f"{self.label!r}; give the statistics of that fit (prepare.sks of that run)"
            )
        return new

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and self.label == other.label

    def __hash__(self) -> int:
        return hash(self.label)

    def value(self, name: str) -> Array:
        """Return one of the fitted arrays.

        Raises
        ------
        BadParameter
            If the step is not fitted.
        """
        if self.values is None:
            raise BadParameter(
                f"prepare step {self.label!r} needs statistics of all rows, and is not fitted here; fit it with "
                "sketchselect.fit_prepare(source, steps), or give the prepare.sks of an earlier run"
            )
        return self.values[name]

    def require_width(self, block: Block, width: int) -> None:
        """Raise `Incompatible` unless the block has as many columns as the step was fitted with."""
        if block.shape[1] != width:
            raise Incompatible(
                f"prepare step {self.label!r} was fitted with {width} columns, the rows have {block.shape[1]}"
            )


@cache
def _hints(cls: type[Step]) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def stored(block: Block) -> Array:
    """Return the values a block stores: all of a dense one's, the entries of a sparse one."""
    out: Array = block.data if is_csr(block) else block
    return out


def with_stored(block: Block, values: Array) -> Block:
    """Return a block with other stored values in the same places."""
    if not is_csr(block):
        return values
    out = csr_array((values, block.indices, block.indptr), shape=block.shape)
    if not values.all():
        # A canonical block stores no zeros; the places are shared with the input until they change.
        out = out.copy()
        out.eliminate_zeros()
    # The places are those of a canonical block; checking them again would cost a sweep.
    out.has_canonical_format = True
    return out


def as_floats(values: Array) -> Array:
    """Return values as floats: float32 and float64 as they are (no copy), all else as float64."""
    return values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)


def piece_rows(n_columns: int) -> int:
    """Return how many rows of this many columns are worked on at a time: about 8 MB of float64."""
    return max(1, _PIECE_VALUES // max(1, n_columns))


def in_pieces(values: Array, function: Callable[[Array], Array]) -> Array:
    """Return ``function(values)`` as floats of the type `as_floats` gives, made of a few rows at a time in float64.

    The function may change its argument.
    """
    out = np.empty(values.shape, dtype=as_floats(values[:0]).dtype)
    for a, b in pieces(values, piece_rows(values.shape[1])):
        out[a:b] = function(values[a:b].astype(np.float64))
    return out


def dense(block: Block) -> Array:
    """Return a block as an ndarray."""
    return densify(block) if is_csr(block) else block


def require_counts(block: Block, step: str) -> None:
    """Raise `BadEntry` naming the first negative entry."""
    values = stored(block)
    if values.dtype.kind in "ub" or values.size == 0 or not (values < 0).any():
        return
    problem = f"a negative value, but {step!r} is for counts; clean the data or leave the step out"
    raise BadEntry(*place_of(block, int((values < 0).argmax())), problem)


def place_of(block: Block, stored_value: int) -> tuple[int, int]:
    """Return row and column of one of the stored values of a block, by its number."""
    if not is_csr(block):
        return stored_value // int(block.shape[1]), stored_value % int(block.shape[1])
    return int(np.searchsorted(block.indptr, stored_value, side="right")) - 1, int(block.indices[stored_value])


@kernel(fastmath=REASSOCIATED)
def _sum_of_squares(row):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(row.shape[0]):
        value = np.float64(row[j])
        total += value * value
    return total


@kernel()
def _sums(rows, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        out[i] = _sum_of_squares(rows[i])


@kernel()
def _divide(rows, sums, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        sums[i] = _sum_of_squares(rows[i])
        norm = np.sqrt(sums[i])
        if norm > 0.0:
            for j in range(rows.shape[1]):
                out[i, j] = np.float64(rows[i, j]) / norm


_LEAST = 2.0**-600
"""Squared norm below which, and above whose inverse, squares of a row may leave their range."""


def unit_l2(block: Array) -> Array:
    """Scale every row to unit Euclidean length; rows of zeros stay as they are.

    Rows of huge or tiny values are divided by their largest magnitude first, so that squares do not leave their range.
    float32 stays float32, all else becomes float64. Source: Huang 2015, section 3.1.
    """
    values = block if block.dtype in (np.float32, np.float64) else block.astype(np.float64)
    out: Array = np.empty_like(values, order="C")
    squares = np.empty(len(values))
    _divide(read_only(values), squares, out)  # But for rows of norm 0, which are not written.
    others = ~((squares >= _LEAST) & (squares <= 1 / _LEAST))
    if others.any():
        out[others] = _scaled_first(values[others])
    return out


def _scaled_first(rows: Array) -> Array:
    """Scale rows of zeros, of huge or tiny values or of NaN."""
    if rows.shape[1] == 0:
        return rows
    top = np.maximum(rows.max(axis=1), -rows.min(axis=1)).astype(np.float64)
    # A power of two, so that scaling by it is exact.
    exponent = np.frexp(np.where(top > 0, top, 1.0))[1]
    scaled = np.ldexp(rows.astype(np.float64), -exponent[:, None])
    squares = np.empty(len(scaled))
    _sums(read_only(scaled), squares)
    norms = np.sqrt(squares)
    norms[norms == 0] = 1.0
    scaled /= norms[:, None]
    return scaled.astype(rows.dtype, copy=False)


def unit_l2_sparse(block: Block) -> Block:
    """Scale every row of a CSR block to unit Euclidean length, as `unit_l2` does, to rounding."""
    values = as_floats(stored(block))
    top = row_reduced(np.maximum, block, np.abs(values))
    exponent = np.frexp(np.where(top > 0, top, 1.0))[1]
    exponent = np.where(np.abs(exponent) < 40, 0, exponent)
    entries = np.diff(block.indptr)
    scaled = np.ldexp(values.astype(np.float64), -np.repeat(exponent, entries))
    norms = np.sqrt(row_reduced(np.add, block, scaled * scaled))
    norms[norms == 0] = 1.0
    return with_stored(block, (scaled / np.repeat(norms, entries)).astype(values.dtype, copy=False))


def row_reduced(reduce: np.ufunc, block: Block, entries: Array) -> Floats:
    """Return the reduction of the entries of every row of a CSR block, 0 of none; each from its row alone."""
    out = np.zeros(block.shape[0])
    there = np.flatnonzero(np.diff(block.indptr))
    if there.size:
        out[there] = reduce.reduceat(entries.astype(np.float64, copy=False), block.indptr[there])
    return out


@dataclass(frozen=True, eq=False)
class UnitRows(Step):
    """``x / ||x||``; rows of zeros stay as they are."""

    name: ClassVar[str] = "l2"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    keeps_units: ClassVar[bool] = True
    normalizes_rows: ClassVar[bool] = True

    def apply(self, block: Block) -> Block:
        """Return the block with rows of unit length."""
        return unit_l2_sparse(block) if is_csr(block) else unit_l2(block)


SAMPLED_TOTALS = 1 << 17
"""Rows whose totals decide the median library size: all of them, or this many drawn by hash."""


@dataclass(frozen=True, eq=False)
class Log1p(Step):
    """``log(1 + x)`` of counts, entry by entry."""

    name: ClassVar[str] = "log1p"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    is_by_column: ClassVar[bool] = True
    of_counts: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True

    def apply(self, block: Block) -> Block:
        """Return the logarithms."""
        require_counts(block, self.name)
        return with_stored(block, np.log1p(as_floats(stored(block))))


def row_totals(block: Block) -> Floats:
    """Return the sum of every row, in float64, each from its own row alone."""
    if is_csr(block):
        return row_reduced(np.add, block, block.data)
    out = np.empty(block.shape[0])
    # Not cast while they are summed: NumPy's buffers would make a row's bits depend on the rows before.
    for a, b in pieces(block, piece_rows(block.shape[1])):
        np.sum(block[a:b].astype(np.float64), axis=1, out=out[a:b])
    return out


@dataclass(frozen=True, eq=False)
class RowTotals(Step):
    """One column, the sum of the row, from which the median library size is fitted."""

    name: ClassVar[str] = "row-totals"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    of_counts: ClassVar[bool] = True

    def apply(self, block: Block) -> Block:
        """Return the totals, shape (n_rows, 1)."""
        require_counts(block, LibrarySize.name)
        totals = row_totals(block)[:, None]
        return csr_array(totals) if is_csr(block) else totals

    def n_columns(self, n_columns: int) -> int:
        """Return 1."""
        return 1

    def column_names(self, names: tuple[str, ...] | None, n_columns: int) -> tuple[str, ...]:
        """Return the name of the one column."""
        return ("row total",)


@dataclass(frozen=True, eq=False)
class LibrarySize(Step):
    """``x target / sum(x)``: every row of counts scaled to the same sum; rows of zeros stay as they are.

    Parameters
    ----------
    target : float or "median"
        The sum; "median" is the median of the sums of the rows (of those above 0), from an earlier pass. It is exact up
        to 131,072 rows, and beyond that the median of that many rows drawn by hash.
    """

    name: ClassVar[str] = "library-size"
    acts_on: ClassVar[Literal["rows", "columns"]] = "rows"
    of_counts: ClassVar[bool] = True

    target: Positive | Literal["median"] = 1e4

    @property
    def needs(self) -> Need | None:
        """The rows' totals, for the median."""
        if self.target != "median":
            return None
        return Need("row-sample", {"size": SAMPLED_TOTALS}, weighted=False, before=(RowTotals(),))

    def learn(self, summary: Any) -> dict[str, Array]:
        """Return the median of the totals above 0; 1 if no total is."""
        totals = dense(summary.rows).reshape(-1)
        totals = totals[totals > 0]
        return {"target": np.asarray(np.median(totals) if totals.size else 1.0)}

    def apply(self, block: Block) -> Block:
        """Return the scaled rows."""
        require_counts(block, self.name)
        target = float(self.value("target")) if self.target == "median" else float(self.target)
        totals = row_totals(block)
        factors = np.divide(target, totals, out=np.ones_like(totals), where=totals > 0)
        if not is_csr(block):
            out = np.empty(block.shape, dtype=as_floats(block[:0]).dtype)
            for a, b in pieces(block, piece_rows(block.shape[1])):
                out[a:b] = block[a:b].astype(np.float64) * factors[a:b, None]
            return out
        values = as_floats(block.data)
        return with_stored(block, (values * np.repeat(factors, np.diff(block.indptr))).astype(values.dtype, copy=False))
