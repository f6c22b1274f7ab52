"""Base class of summaries: an identity, `from_block`, and an associative `merge`; and of summaries whose rows decay.

A `Summary` is an immutable value. Without a record it is a *description* (parameters, no data); with a record, a frozen
dataclass of numbers and arrays, it is the summary of some rows. A new kind implements three primitives on plain records
(`_empty`, `_summarise`, `_combine`); checks, canonical layout, purity and files are derived from them here.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from sketchselect._plugins import Registry
from sketchselect._text import count, first_names, html_table, table_size
from sketchselect.errors import BadParameter, Incompatible, NoData
from sketchselect.linalg.csr import as_csr, densify, row_pieces, stays_sparse, take_rows
from sketchselect.linalg.validation import (
    Array,
    Floats,
    as_block,
    as_weights,
    canonical,
    global_rows,
    is_csr,
    require_number,
    row_numbers,
    start_of_piece,
    without_groups,
)

Label = str | bool | int | float


def as_classes(classes: Sequence[Any] | Array | None) -> tuple[Label, ...] | None:
    """Return the classes as a tuple of plain values, all text or all numbers, in their order; None stays None.

    Raises `BadParameter` for fewer than two classes, repeated classes, NaN, or text mixed with numbers.
    """
    if classes is None:
        return None
    if isinstance(classes, (str, bytes)):
        raise BadParameter("classes must be a sequence of labels, got a single text")
    labels = tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
    if len(labels) < 2:
        raise BadParameter(f"classification needs at least two classes, got {len(labels)}")
    texts = [isinstance(c, str) for c in labels]
    if not all(texts) and (any(texts) or not all(isinstance(c, (bool, int, float)) for c in labels)):
        raise BadParameter("classes must be all text or all numbers")
    if any(isinstance(c, float) and not np.isfinite(c) for c in labels):
        raise BadParameter("classes must be finite; leave rows without a label out")
    if len(set(labels)) < len(labels):
        raise BadParameter("classes must differ from each other")
    return labels


R = TypeVar("R")


def stored_name(field: Field[Any]) -> str:
    """Return the name of a record's field in files: its own, or the older one in its metadata."""
    return str(field.metadata.get("stored_name", field.name))


def same_value(a: Any, b: Any) -> bool:
    """Return whether two values are the same to the bit (arrays: shape, type and bytes)."""
    if a is b:
        return True
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
    for item in fields(record):
        value = getattr(record, item.name)
        if isinstance(value, Mapping):
            for name, member in value.items():
                out.update({f"{name}/{k}": a for k, a in record_arrays(member.record).items()})
        elif value is not None:
            out[item.name] = np.asarray(value)
    return out


def canonical_record(record: R) -> R:
    """Return the record with every array in canonical layout; unchanged arrays are shared, not copied."""
    changes = {
        name: better
        for name, value in vars(record).items()
        if isinstance(value, np.ndarray) and (better := canonical(value)) is not value
    }
    return cast(R, replace(cast(Any, record), **changes)) if changes else record


def frozen_record(record: R) -> R:
    """Return the record with its arrays read-only: summaries share them, and answers return them."""
    for value in vars(record).values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return record


Ranges = tuple[tuple[int, int], ...]
"""Pairs of first and last + 1, ascending and disjoint."""


def union(left: Ranges | None, right: Ranges | None) -> Ranges | None:
    """Return the ranges of the rows of both; None stands for unknown rows, and adds none.

    Examples
    --------
    >>> union(((0, 5),), ((9, 12), (5, 7)))
    ((0, 7), (9, 12))
    """
    if left is None or right is None:
        return right if left is None else left
    merged: list[tuple[int, int]] = []
    for start, stop in sorted((*left, *right)):
        if merged and start <= merged[-1][1]:
            start, stop = merged[-1][0], max(merged.pop()[1], stop)
        merged.append((start, stop))
    return tuple(merged)


def require_disjoint(kind: str, left: Ranges | None, right: Ranges | None) -> None:
    """Raise `Incompatible`, naming the first rows that both have, if any is in both.

    Examples
    --------
    >>> require_disjoint("row-sample", ((0, 5),), ((5, 7),))
    """
    for first, last in left or ():
        for start, stop in right or ():
            if max(first, start) < min(last, stop):
                raise shared_rows(kind, max(first, start), min(last, stop) - 1, max((*left, *right))[1])  # type: ignore[misc]


def shared_rows(kind: str, first: int, last: int, free: int) -> Incompatible:
    """Return the error for rows that are in both summaries; `free` is the first index above all."""
    rows = f"row {first} is" if first == last else f"rows {first} to {last} are"
    return Incompatible(
        f"cannot merge {kind} summaries that share row indices: {rows} in both, so the draws for them would not be "
        f"independent; summarize the second source with start={free} (--after {free} on the command line) or more"
    )


SPARSE_LIMIT = 0.05
"""Share of stored entries above which dense kernels are faster than those for sparse rows."""

_PIECE_ROWS = 1 << 20  # Rows whose entries are counted at a time


@dataclass(frozen=True)
class Context:
    """Prepare steps, column names and indices of the rows of a summary; steps and names of merged summaries agree.

    Parameters
    ----------
    prepare : tuple of str
        The prepare steps applied to the rows.
    feature_names : tuple of str or None
        Names of the columns, if known.
    rows : ranges or None
        Global indices of the rows, if known, of a summary whose draws depend on them; no part of its value.
    filled : tuple of int or None
        Values of every column that were missing and that a prepare step filled; None without any, or where they were
        not counted; no part of its value.
    """

    prepare: tuple[str, ...] = ()
    feature_names: tuple[str, ...] | None = None
    rows: Ranges | None = field(default=None, compare=False)
    filled: tuple[int, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class SparseRows:
    """What is known of sparse rows before they are read, for bounds of the memory of their summary."""

    n_blocks: int | None = None
    fewest_rows: int = 0  # Rows of the smallest block
    density: float = 1.0  # Of the densest block
    offsets: NDArray[np.int64] | None = None  # shape (n_rows + 1,): Where the entries of each row begin
    itemsize: int = 8  # Bytes of an entry as steps leave it
    split_nbytes: int = 0  # That reading counts for a copy split by column, which dense pieces do without

    def most_entries(self, n_rows: int) -> int | None:
        """Return the entries of the fullest rows; None where they are unknown."""
        if self.offsets is None:
            return None
        fullest = np.zeros(0, dtype=np.int64)
        for a in range(0, self.offsets.size - 1, _PIECE_ROWS):
            counts = np.concatenate([fullest, np.diff(self.offsets[a : a + _PIECE_ROWS + 1])])
            fullest = np.partition(counts, -n_rows)[-n_rows:] if counts.size > n_rows else counts
        return int(fullest.sum())


class Summary(ABC, Generic[R]):
    """Base class of all summaries.

    Laws (tested by `sketchselect.testing.laws.SummaryLaws`): ``empty(d)`` is the identity on both sides; ``merge`` is
    associative for any tree, exactly or within the guarantee of the summary; inputs are never changed.
    """

    kind: ClassVar[str]
    """Name in files; never reused for another kind."""
    format_version: ClassVar[int] = 1
    """Newest version that is read; raised when the meaning of the record changes."""
    record_type: ClassVar[type]
    later_parameters: ClassVar[Mapping[str, Any]] = {}
    """Parameters that the format did not have at first -> what their absence means; files leave out that value."""
    takes_groups: ClassVar[bool] = False
    """Whether the groups of rows, which may come with their targets, are for this kind."""
    of_columns: ClassVar[bool] = False
    """Whether the rows that jobs pass to this kind are the columns of the data."""

    _record: R | None = None
    context: Context = Context()

    @property
    def written_version(self) -> int:
        """The format version in files of this summary: the oldest that can say all of it."""
        return self.format_version

    # --- for a new kind to implement ---------------------------------------------------------------------------

    @abstractmethod
    def _empty(self, n_features: int, n_targets: int) -> R:
        """Return the record of zero rows."""

    def _empty_like(self, record: Any) -> R:
        """Return the record of zero rows in the form of a record that was read, which must fit to it."""
        return self._empty(record.n_features, getattr(record, "n_targets", 0))

    @abstractmethod
    def _summarise(self, block: Any, targets: Any, start: int | Array, weights: Floats | None) -> R:
        """Return the record of a block of at least one row (canonical, any real dtype; CSR if `accepts_sparse`)."""

    @abstractmethod
    def _combine(self, left: R, right: R) -> R:
        """Return the record of the rows of both; neither is empty, and neither may be changed."""

    @abstractmethod
    def projected_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return an upper bound of the bytes of a summary of `n_features` columns."""

    def working_nbytes(self, n_features: int, n_targets: int = 0) -> int:
        """Return an upper bound of the bytes that `from_block` and `merge` need besides block and states."""
        return self.projected_nbytes(n_features, n_targets)

    def sparse_nbytes(self, n_features: int, n_targets: int, rows: SparseRows) -> tuple[int, int]:
        """Return both bounds, of a state and beside it, for CSR blocks of these rows."""
        return self.projected_nbytes(n_features, n_targets), self.working_nbytes(n_features, n_targets)

    @property
    def accepts_sparse(self) -> bool:
        """Whether `_summarise` takes CSR blocks of a density up to `sparse_limit`; otherwise they are made dense."""
        return False

    @property
    def sparse_limit(self) -> float:
        """Density above which a CSR block is made dense, some rows at a time."""
        return SPARSE_LIMIT

    @property
    def keeps_filled(self) -> bool:
        """Whether the context has the number of filled missing values, which `drift` allows for."""
        return False

    @property
    def accepts_missing(self) -> bool:
        """Whether NaN is a missing value; otherwise it is refused."""
        return False

    @property
    def has_panels(self) -> bool:
        """Whether a pass can make it in panels, where the columns are too many for one state."""
        return False

    @property
    def decays(self) -> bool:
        """Whether rows lose weight with age; then their global indices are times."""
        return False

    @property
    def keyed_by_rows(self) -> bool:
        """Whether random draws depend on the global indices of rows; summaries that share one are then not merged."""
        return False

    @property
    def divides_rows(self) -> bool:
        """Whether the rows of a block are summarised in parts, such as folds."""
        return False

    def kernel_weights(self, start: int | Array, n_rows: int, weights: Floats | None) -> Iterator[Floats | None]:
        """Yield the weights that kernels give the rows of a block, once for each summary that is made of them."""
        yield weights

    @property
    def goes_by_row_numbers(self) -> bool:
        """Whether folds, random draws or ages depend on the global indices of rows."""
        return self.decays or self.keyed_by_rows

    def _next_start(self) -> int:
        """Return the global index of the row that follows these, the default `start` of `update`."""
        return self.context.rows[-1][1] if self.context.rows else self.n_rows

    def _targets(self, y: Any, n_rows: int, start: int | Array = 0) -> Any:
        """Return `y` in the form `_summarise` takes; summaries that use no target ignore it."""
        return None

    def details(self) -> Iterator[str]:
        """Yield the lines that `sketchselect inspect` prints about this kind after its size."""
        return iter(())

    # --- derived -----------------------------------------------------------------------------------------------

    def parameters(self) -> dict[str, Any]:
        """Return the constructor's arguments (numbers, strings, None or arrays), stored under their own names."""
        return {name: getattr(self, name) for name in _arguments(type(self))}

    @property
    def has_data(self) -> bool:
        """Whether this is a summary of rows (possibly none), and not a description."""
        return self._record is not None

    @property
    def record(self) -> R:
        """The state; read-only."""
        if self._record is None:
            raise NoData(f"this {self.kind} summary has seen no data yet; use from_block, or sketchselect.summarize")
        return self._record

    @property
    def n_features(self) -> int:
        """Number of columns of the data."""
        return int(cast(Any, self.record).n_features)

    @property
    def n_rows(self) -> int:
        """Number of rows summarised."""
        return int(cast(Any, self.record).n_rows)

    @property
    def weight(self) -> Any:
        """Total weight of the rows; their number for kinds that do not sum weights."""
        return float(self.n_rows)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, or None."""
        return self.context.feature_names

    @property
    def prepare(self) -> tuple[str, ...]:
        """Prepare steps applied to the rows before they were summarised."""
        return self.context.prepare

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of the record."""
        return sum(a.nbytes for a in record_arrays(self.record).values())

    def describe(self) -> Self:
        """Return the description: the same parameters, no data."""
        return self._with(None, Context())

    def empty(self, n_features: int, n_targets: int = 0) -> Self:
        """Return the summary of zero rows of `n_features` columns: the identity of `merge`."""
        return self._with(self._empty(int(n_features), int(n_targets)), replace(self.context, rows=None, filled=None))

    def from_block(
        self, X: ArrayLike, y: Any = None, *, start: int | Array = 0, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Return a new summary, with these parameters, of one block of rows.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_rows, n_features)
            Finite real numbers below 1e150 in magnitude. The column names of a data frame become `feature_names`.
        y : array of shape (n_rows,) or (n_rows, n_targets), optional
            Targets, for the kinds that use them.
        start : int or array of int
            Global index of the first row, or of every row, from 0 to 2^63 - 1; draws and weights by row then do not
            depend on blocks. Of `RowSample`, `LeverageSample` and sampled `BlockBound` no two merged blocks may share
            an index.
        sample_weight : array of shape (n_rows,), optional
            Row weights; 1 by default.

        Raises
        ------
        BadBlock, NotFinite
            For a block that is not a two-dimensional array of real numbers, or has NaN or infinity.
        BadParameter
            If `start` is negative, too large, no whole number, or names a row twice.
        """
        block = as_csr(X) if issparse(X) else as_block(X)
        start = row_numbers(start, block.shape[0])
        targets = self._targets(y if self.takes_groups else without_groups(y)[0], block.shape[0], start)
        weights = as_weights(sample_weight, block.shape[0], start)
        names = column_names(X)
        rows = None
        if self.keyed_by_rows and block.shape[0] and not isinstance(start, np.ndarray):
            rows = ((int(start), int(start) + block.shape[0]),)
        context = Context(self.context.prepare, self.context.feature_names if names is None else names, rows)
        if block.shape[0] == 0:
            n_targets = targets.shape[1] if isinstance(targets, np.ndarray) and targets.ndim == 2 else 0
            return self._with(self._empty(block.shape[1], n_targets), context)
        if is_csr(block):
            return self._with(self._summarise_sparse(block, targets, start, weights), context)
        return self._with(self._summarise(block, targets, start, weights), context)

    def _summarise_sparse(self, block: csr_array, targets: Any, start: int | Array, weights: Floats | None) -> R:
        """Return the record of a CSR block; the choice of kernels, and so the bits, depend on the block alone."""
        if not self.accepts_sparse:
            return self._summarise(densify(block), targets, start, weights)
        if all(stays_sparse(block, w, self.sparse_limit) for w in self.kernel_weights(start, block.shape[0], weights)):
            return self._summarise(block, targets, start, weights)
        record: R | None = None
        for a, b in row_pieces(block):
            rows = densify(take_rows(block, a, b))
            part_y, part_w = (None if values is None else values[a:b] for values in (targets, weights))
            piece = self._summarise(rows, part_y, start_of_piece(start, a, b), part_w)
            record = piece if record is None else self._combine(canonical_record(record), canonical_record(piece))
        assert record is not None  # `from_block` handles blocks without rows
        return record

    def merge(self, other: Self) -> Self:
        """Return the summary of the rows of both, those of `self` first; neither is changed.

        Rows that are in both count twice, as in a merge with itself; the command `merge` refuses the same file twice.

        Raises
        ------
        Incompatible
            If kind, parameters, columns or prepare steps differ, or draws depend on row indices that both have; the
            message names both values.
        """
        self.require_mergeable(other)
        names = other.context if self.context.feature_names is None else self.context
        counts = [one.context.filled for one in (self, other) if one.context.filled is not None]
        filled = tuple(map(sum, zip(*counts, strict=True))) or None
        context = replace(names, rows=union(self.context.rows, other.context.rows), filled=filled)
        left, right = self.record, other.record
        if not cast(Any, right).n_rows:
            return self._with(left, context)
        if not cast(Any, left).n_rows:
            return self._with(right, context)
        return self._with(self._combine(canonical_record(left), canonical_record(right)), context)

    def into_mutable(self) -> Self:
        """Let the next `merge` reuse this summary's memory: only for a summary that no other code holds."""
        return self

    def update(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        start: int | Array | None = None,
        sample_weight: ArrayLike | None = None,
        prepare: Sequence[str] = (),
    ) -> Self:
        """Return the summary of the rows so far and of a further block: ``merge`` with its `from_block`.

        Parameters
        ----------
        X, y, sample_weight
            As in `from_block`.
        start : int or array of int, optional
            As in `from_block`; by default the block follows the rows so far.
        prepare : sequence of str
            The prepare steps already applied to X.

        Raises
        ------
        Incompatible
            If the prepare steps or the column names differ from those of the rows so far.
        """
        if not self.has_data:
            return self.from_block(X, y, start=0 if start is None else start, sample_weight=sample_weight)
        context = Context(tuple(prepare), column_names(X))
        return self._appended(X, y, self._next_start() if start is None else start, sample_weight, context)

    def _appended(
        self, X: ArrayLike, y: Any, start: int | Array, sample_weight: ArrayLike | None, context: Context
    ) -> Self:
        block = self.from_block(X, y, start=start, sample_weight=sample_weight)
        return self.merge(block.with_context(prepare=context.prepare, feature_names=context.feature_names))

    def with_context(self, *, prepare: tuple[str, ...], feature_names: tuple[str, ...] | None) -> Self:
        """Return this summary with the prepare steps and feature names of its source."""
        names = None if feature_names is None else tuple(feature_names)
        return self._with(self._record, replace(self.context, prepare=tuple(prepare), feature_names=names))

    def with_filled(self, filled: Sequence[int]) -> Self:
        """Return this summary with the number of values of every column that a step filled, if it keeps that.

        Empty: they were not counted.
        """
        if not self.keeps_filled:
            return self
        return self._with(self._record, replace(self.context, filled=tuple(filled) or None))

    def with_rows(self, rows: Ranges | None) -> Self:
        """Return this summary with the global indices of its rows, if its draws depend on them."""
        return self._with(self._record, replace(self.context, rows=rows)) if self.keyed_by_rows else self

    def require_mergeable(self, other: Any) -> None:
        """Raise `Incompatible`, naming both values, unless `other` can be merged with `self`."""
        if not isinstance(other, Summary):
            raise Incompatible(f"cannot merge a {self.kind} summary with {type(other).__name__}")
        if self.kind != other.kind:
            raise Incompatible(f"cannot merge summaries of different kinds: {self.kind} and {other.kind}")
        mine, theirs = self.parameters(), other.parameters()
        for name in mine:
            if not same_value(mine[name], theirs.get(name)):
                raise Incompatible(
                    f"cannot merge {self.kind} summaries with different {name}: "
                    f"{_value_text(mine[name])} and {_value_text(theirs.get(name))}; summarize both alike"
                )
        if self.n_features != other.n_features:
            raise Incompatible(
                f"cannot merge {self.kind} summaries of different width: "
                f"{self.n_features} and {other.n_features} columns{differing(self.feature_names, other.feature_names)}"
            )
        n_mine = getattr(self.record, "n_targets", 0)
        n_theirs = getattr(other.record, "n_targets", 0)
        if n_mine != n_theirs and self.n_rows and other.n_rows:
            raise Incompatible(f"cannot merge {self.kind} summaries with {n_mine} and {n_theirs} targets")
        if self.context.prepare != other.context.prepare:
            steps = [[label.partition("#")[0] for label in one.context.prepare] for one in (self, other)]
            cure = "summarize both with the same prepare"
            if steps[0] == steps[1]:
                cure = (
                    "the steps are the same, their statistics (after #) are not: write those of each file's rows "
                    "(--write-fitted), merge them, and summarize every file with the merged ones (--fitted)"
                )
            raise Incompatible(
                f"cannot merge {self.kind} summaries of differently prepared rows: "
                f"{list(self.context.prepare)} and {list(other.context.prepare)}; {cure}"
            )
        a, b = self.context.feature_names, other.context.feature_names
        if a is not None and b is not None and a != b:
            j = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
            raise Incompatible(
                f"cannot merge {self.kind} summaries whose column {j} is named {a[j]!r} and {b[j]!r}{differing(a, b)}"
            )
        if self.keyed_by_rows:
            require_disjoint(self.kind, self.context.rows, other.context.rows)

    def _with(self, record: R | None, context: Context) -> Self:
        new = object.__new__(type(self))
        new.__dict__.update(self.parameters(), context=context)
        new._record = None if record is None else frozen_record(record)
        return new

    def __eq__(self, other: object) -> bool:
        """Bit-for-bit equality of kind, parameters, context and record."""
        if not isinstance(other, Summary) or self.kind != other.kind or self.context != other.context:
            return False
        mine, theirs = self.parameters(), other.parameters()
        if not all(same_value(mine[k], theirs.get(k)) for k in mine) or self.has_data != other.has_data:
            return False
        if not self.has_data:
            return True
        a, b = record_arrays(self.record), record_arrays(other.record)
        return a.keys() == b.keys() and all(same_value(a[k], b[k]) for k in a)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        defaults = {name: p.default for name, p in _arguments(type(self)).items()}
        arguments = {k: v for k, v in self.parameters().items() if k not in defaults or not same_value(v, defaults[k])}
        args = ", ".join(f"{k}={_value_text(v)}" for k, v in arguments.items())
        data = f" of {table_size(self.n_rows, self.n_features)}" if self.has_data else ""
        return f"<{type(self).__name__}({args}){data}>"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = [(name, _value_text(value)) for name, value in self.parameters().items()]
        if self.has_data:
            rows += [("rows", count(self.n_rows)), ("columns", count(self.n_features))]
            rows += [("prepared by", ", ".join(self.prepare))] if self.prepare else []
            rows += [("", line) for line in self.details()]
        return html_table(f"{type(self).__name__} (kind {self.kind})", rows)


@cache
def _arguments(cls: type) -> Mapping[str, inspect.Parameter]:
    """Return the constructor's arguments by name."""
    return inspect.signature(cls).parameters


def _value_text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array{value.shape}"
    return repr(value).strip("<>") if isinstance(value, Summary) else repr(value)


def differing(a: Sequence[str] | None, b: Sequence[str] | None) -> str:
    """Return the end of a message on columns of two summaries: those that one lacks, or that their order differs."""
    if a is None or b is None:
        return ""
    mine, theirs = set(a), set(b)
    others = {"first": [name for name in a if name not in theirs], "second": [name for name in b if name not in mine]}
    if parts := [f"only the {which} has {first_names(names)}" for which, names in others.items() if names]:
        return f"; {', '.join(parts)}; summarize the same columns of both"
    return "; both have the same columns in another order; write the rows of one in the order of the other's columns"


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a data frame, None where there are none or they are not text."""
    columns = getattr(X, "columns", None)
    names = () if columns is None else tuple(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


KINDS: Registry[type[Summary[Any]]] = Registry("summaries", Summary, "kind")
"""Name in files -> kind of summary."""

S = TypeVar("S", bound=type[Summary[Any]])


def register(cls: S) -> S:
    """Add a summary class to the registry, for files and the conformance suite; a class decorator."""
    # Not of other packages: one of those may be what is being imported.
    known = dict(KINDS).get(cls.kind, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"the summary kind {cls.kind!r} is already registered for {known.__qualname__}")
    KINDS[cls.kind] = cls
    return cls


class DecayingSummary(Summary[R]):
    """Base of the summaries that can let rows lose weight: row i weighs ``g^(end - 1 - i)``, or as `rates` say.

    With a decay, `kind` is `decayed_kind`, and the field `end` of the record is the global index after the last row:
    the time at which the weights are valid. Without one, `end` is None.
    """

    decayed_kind: ClassVar[str]
    half_life: float | None = None
    decay: float | None = None
    rates: Floats | None = None

    def _set_decay(self, half_life: Any, decay: Any, rates: Any = None) -> None:
        """Set `half_life` (in rows), `decay` (the factor g of a row) or `rates`; at most one of them is not None."""
        if [half_life is None, decay is None, rates is None].count(False) > 1:
            raise BadParameter(
                f"{type(self).__name__} takes either half_life (in rows) or decay (a factor for each row), not both"
            )
        self.rates = None if rates is None else _checked_rates(rates)
        self.half_life = None if half_life is None else require_number("half_life", half_life, above=0)
        self.decay = None if decay is None else require_number("decay", decay, above=0, most=1)
        self._name_kind()

    def _require_decay(self) -> None:
        """Raise `BadParameter` without a decay, which the former names of decaying summaries need."""
        if not self.decays:
            raise BadParameter(
                f"{type(self).__name__} needs either half_life (in rows) or decay (a factor for each row)"
            )

    def _name_kind(self) -> None:
        if self.decays:
            vars(self)["kind"] = self.decayed_kind

    def _with(self, record: R | None, context: Context) -> Self:
        new = super()._with(record, context)
        new._name_kind()
        return new

    @property
    def decays(self) -> bool:
        """Whether rows lose weight with age; then their global indices are times."""
        return self.half_life is not None or self.decay is not None or self.rates is not None

    @abstractmethod
    def _scaled(self, record: R, factor: float, end: int) -> R:
        """Return the record at a later time, when all weights have fallen by this factor."""

    def _at(self, record: R, end: int) -> R:
        before = cast(Any, record).end
        return record if before == end else self._scaled(record, float(self._factors(end, before - 1)), end)

    def _aligned(self, left: R, right: R) -> tuple[R, R]:
        """Return two records at the later of their times."""
        if not self.decays:
            return left, right
        end = max(cast(Any, left).end, cast(Any, right).end)
        return self._at(left, end), self._at(right, end)

    def _factors(self, end: int, rows: Any) -> Any:
        """Return the weights that rows with these indices have at time `end`."""
        if self.rates is not None:
            return _scheduled(self.rates, end, rows)
        ages = np.asarray(end - 1 - rows, dtype=np.float64)
        if self.half_life is not None:
            return np.exp2(-ages / self.half_life)
        assert self.decay is not None
        return np.power(self.decay, ages)

    def _row_weights(self, start: int | Array, n_rows: int, weights: Floats | None) -> tuple[int | None, Floats | None]:
        """Return ``(end, w)`` of a block: the index after its last row, and the weight of each row at that time."""
        if not self.decays:
            return None, weights
        rows = global_rows(start, n_rows).astype(np.int64)
        end = int(rows.max()) + 1
        decayed: Floats = self._factors(end, rows)
        return end, decayed if weights is None else decayed * weights

    def kernel_weights(self, start: int | Array, n_rows: int, weights: Floats | None) -> Iterator[Floats | None]:
        """Yield the weights after their decay."""
        yield self._row_weights(start, n_rows, weights)[1]

    @property
    def end(self) -> int:
        """Global index after the last row, for rows that lose weight with age."""
        if not self.decays:
            raise AttributeError(f"the rows of this {self.kind} summary do not lose weight, so it has no end")
        return int(cast(Any, self.record).end)

    def _next_start(self) -> int:
        return self.end if self.decays else super()._next_start()


def _checked_rates(rates: Any) -> Floats:
    """Return rates as an array; raise `BadParameter` unless they lie between 0 and 1; the first of several may be 1."""
    try:
        values = np.array(rates, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.zeros(0)
    inside = (values > 0) & (values < 1)
    if (
        values.ndim != 1
        or not values.size
        or not inside[1:].all()
        or not (inside[:1].all() or (values.size > 1 and values[0] == 1))
    ):
        raise BadParameter("rates must be numbers above 0 and below 1; the first of several may be 1")
    return values


def _scheduled(rates: Floats, end: int, rows: Any) -> Any:
    """Return ``(alpha_i / alpha_e) prod_{i < j <= e} (1 - alpha_j)`` for each row i, with e the row before `end`."""
    last, logs = rates.size - 1, np.log(rates)
    logs[1:] -= np.cumsum(np.log1p(-rates[1:]))
    tail = np.log1p(-rates[-1])
    listed, newest = np.minimum(rows, last), min(end - 1, last)
    # Beyond the list the last rate repeats; the difference of whole numbers is exact.
    return np.exp(logs[listed] - logs[newest] + ((end - 1 - newest) - (rows - listed)) * tail)
