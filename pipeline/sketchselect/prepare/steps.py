"""The contract of a prepare step: its effect on a block, the summary it is fitted from, and its label."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.sparse import csr_array

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.linalg import validation
from sketchselect.linalg.arrays import Array, canonical, pieces
from sketchselect.linalg.csr import densify, is_csr

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
    normalizes_rows: ClassVar[bool] = False
    """Whether rows have length 1 after it."""

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

    def notes(self) -> list[str]:
        """Return notes for the user on the fitted values."""
        return []

    def n_columns(self, n_columns: int) -> int:
        """Return the number of columns after the step."""
        return n_columns

    def column_names(self, names: tuple[str, ...] | None, n_columns: int) -> tuple[str, ...] | None:
        """Return the names of the columns after the step; `names` and `n_columns` are those before it."""
        return names

    def working_nbytes(self, n_columns: int) -> int:
        """Return the bytes a process holds for this step, whatever the block."""
        return 0 if self.needs is None else 4 * 8 * n_columns

    # --- derived -----------------------------------------------------------------------------------------------

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
        changed = [f"{k}={_written(v)}" for k, v in self.parameters().items() if v != defaults[k]]
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
        new = replace(self, values={k: canonical(v) for k, v in self.learn(summary).items()}, expected=None)
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


def _written(value: Any) -> str:
    """Return a parameter as text for a label."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- helpers of the steps -----------------------------------------------------------------------------------------


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
    out: Array = densify(block) if is_csr(block) else block
    return out


def require_counts(block: Block, step: str) -> None:
    """Raise `BadEntry` naming the first negative entry."""
    values = stored(block)
    if values.dtype.kind in "ub" or values.size == 0 or not (values < 0).any():
        return
    first = int((values < 0).argmax())
    if is_csr(block):
        row, column = int(np.searchsorted(block.indptr, first, side="right")) - 1, int(block.indices[first])
    else:
        row, column = divmod(first, values.shape[1])
    raise BadEntry(row, column, f"a negative value, but {step!r} is for counts; clean the data or leave the step out")


def require_number(step: str, name: str, value: Any, *, above: float = -np.inf) -> float:
    """Return a parameter as a float, or raise `BadParameter`."""
    return validation.require_number(f"prepare step {step!r}: {name}", value, above=above)


def require_bool(step: str, name: str, value: Any) -> bool:
    """Return a parameter that is true or false, or raise `BadParameter`."""
    if not isinstance(value, bool):
        raise BadParameter(f"prepare step {step!r}: {name} must be true or false, got {value!r}")
    return value


def require_count(step: str, name: str, value: Any, least: int = 1) -> int:
    """Return a parameter as a whole number of at least `least`, or raise `BadParameter`."""
    return validation.require_positive(f"prepare step {step!r}: {name}", value, least)
