"""Base class of summaries: an identity, `from_block`, and an associative `merge`.

A `Summary` is an immutable value. Without a record it is a *description* (parameters, no data); with a record it is the
summary of some rows. A new kind implements three primitives on plain records (`_empty`, `_summarise`, `_combine`);
everything public (checks, canonical layout, purity, files) is derived from them here.

Records, the states of summaries: frozen dataclasses of numbers and arrays.

Ranges of global row indices, and whether two summaries share a row.

Registry of the summary kinds: name in files -> class.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse

from sketchselect._plugins import Registry
from sketchselect.errors import Incompatible, NoData
from sketchselect.linalg.arrays import Array, Floats, as_block, as_weights, canonical, start_of_piece, without_groups
from sketchselect.linalg.csr import as_csr, densify, is_csr, row_pieces, stays_sparse, take_rows

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
        f.name: better
        for f in fields(cast(Any, record))
        if isinstance(value := getattr(record, f.name), np.ndarray) and (better := canonical(value)) is not value
    }
    return cast(R, replace(cast(Any, record), **changes)) if changes else record


def frozen_record(record: R) -> R:
    """Return the record with its arrays read-only: summaries share them, and answers return them."""
    for item in fields(cast(Any, record)):
        value = getattr(record, item.name)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return record


Ranges = tuple[tuple[int, int], ...]
"""Pairs of first and last + 1, ascending and disjoint."""


def joined(left: Ranges | None, right: Ranges | None) -> Ranges | None:
    """Return the ranges of the rows of both; None, unknown, adds nothing.

    Examples
    --------
    >>> joined(((0, 5),), ((9, 12), (5, 7)))
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
    """

    prepare: tuple[str, ...] = ()
    feature_names: tuple[str, ...] | None = None
    rows: Ranges | None = field(default=None, compare=False)


class Summary(ABC, Generic[R]):
    """Base class of all summaries.

    Laws (tested by `sketchselect.testing.laws.SummaryLaws`): ``empty(d)`` is the identity on both sides; ``merge`` is
    associative for any tree, exactly or within the guarantee of the summary; inputs are never changed.
    """

    kind: ClassVar[str]
    """Name in files; never reused for another kind."""
    format_version: ClassVar[int] = 1
    """Raised when the meaning of the record changes; part of every checkpoint's fingerprint."""
    record_type: ClassVar[type]
    later_parameters: ClassVar[Mapping[str, Any]] = {}
    """Parameters that the format did not have at first -> what their absence means; files leave out that value."""
    takes_groups: ClassVar[bool] = False
    """Whether the groups of rows, which may stand beside their targets, are for this kind."""
    of_columns: ClassVar[bool] = False
    """Whether the rows that jobs pass to this kind are the columns of the data."""

    _record: R | None = None
    context: Context = Context()

    # --- for a new kind to implement ---------------------------------------------------------------------------

    @abstractmethod
    def _empty(self, n_features: int, n_targets: int) -> R:
        """Return the record of zero rows."""

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
        """Return an upper bound of the bytes that `from_block` and `merge` need beside block and states."""
        return self.projected_nbytes(n_features, n_targets)

    @property
    def accepts_sparse(self) -> bool:
        """Whether `_summarise` takes CSR blocks of a density up to `sparse_limit`; otherwise they are made dense."""
        return False

    @property
    def sparse_limit(self) -> float:
        """Density above which a CSR block is made dense, some rows at a time."""
        return SPARSE_LIMIT

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

    def _next_start(self) -> int:
        """Return the global index of the row that follows these, the default `start` of `update`."""
        return self.context.rows[-1][1] if self.context.rows else self.n_rows

    def _targets(self, y: Any, n_rows: int) -> Any:
        """Return `y` in the form `_summarise` takes; summaries that use no target ignore it."""
        return None

    def details(self) -> Iterator[str]:
        """Yield the lines that `sketchselect inspect` prints about this kind, beside its size."""
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
        return self._with(self._empty(int(n_features), int(n_targets)), replace(self.context, rows=None))

    def from_block(
        self,
        X: ArrayLike,
        y: Any = None,
        *,
        start: int | Array = 0,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Return a new summary, with these parameters, of one block of rows.

        Parameters
        ----------
        X : array, data frame or SciPy sparse matrix of shape (n_rows, n_features)
            Finite real numbers below 1e150 in magnitude. The column names of a data frame become `feature_names`.
        y : array of shape (n_rows,) or (n_rows, n_targets), optional
            Targets, for the kinds that use them.
        start : int or array of int
            Global index of the first row, or of every row; draws and weights by row then do not depend on blocks. Of
            `RowSample`, `LeverageSample` and sampled `BlockBound` no two merged blocks may share an index.
        sample_weight : array of shape (n_rows,), optional
            Row weights; 1 by default.

        Raises
        ------
        BadBlock, NotFinite
            For a block that is not a two-dimensional array of real numbers, or has NaN or infinity.
        """
        block = as_csr(X) if issparse(X) else as_block(X)
        targets = self._targets(y if self.takes_groups else without_groups(y)[0], block.shape[0])
        weights = as_weights(sample_weight, block.shape[0])
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
        if stays_sparse(block, weights, self.sparse_limit):
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

        Raises
        ------
        Incompatible
            If kind, parameters, columns or prepare steps differ, or draws depend on row indices that both have; the
            message names both values.
        """
        self.require_mergeable(other)
        names = other.context if self.context.feature_names is None else self.context
        context = replace(names, rows=joined(self.context.rows, other.context.rows))
        left, right = self.record, other.record
        if not cast(Any, right).n_rows:
            return self._with(left, context)
        if not cast(Any, left).n_rows:
            return self._with(right, context)
        return self._with(self._combine(canonical_record(left), canonical_record(right)), context)

    def releasing(self) -> Self:
        """Return this summary, of which the next `merge` may use up the memory: only for one that nobody else has."""
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
        """Return the summary of the rows so far and of a further block: ``merge`` with the `from_block` of it.

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
        """Return this summary labelled with the prepare steps and feature names of its source."""
        names = None if feature_names is None else tuple(feature_names)
        return self._with(self._record, Context(tuple(prepare), names, self.context.rows))

    def with_rows(self, rows: Ranges | None) -> Self:
        """Return this summary labelled with the global indices of its rows, if its draws depend on them."""
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
                    f"{_shown(mine[name])} and {_shown(theirs.get(name))}"
                )
        if self.n_features != other.n_features:
            raise Incompatible(
                f"cannot merge {self.kind} summaries of different width: "
                f"{self.n_features} and {other.n_features} columns"
            )
        n_mine = getattr(self.record, "n_targets", 0)
        n_theirs = getattr(other.record, "n_targets", 0)
        if n_mine != n_theirs and self.n_rows and other.n_rows:
            raise Incompatible(f"cannot merge {self.kind} summaries with {n_mine} and {n_theirs} targets")
        if self.context.prepare != other.context.prepare:
            raise Incompatible(
                f"cannot merge {self.kind} summaries of differently prepared rows: "
                f"{list(self.context.prepare)} and {list(other.context.prepare)}; summarize both with the same prepare"
            )
        a, b = self.context.feature_names, other.context.feature_names
        if a is not None and b is not None and a != b:
            j = next(i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
            raise Incompatible(f"cannot merge {self.kind} summaries whose column {j} is named {a[j]!r} and {b[j]!r}")
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
        args = ", ".join(f"{k}={_shown(v)}" for k, v in arguments.items())
        data = f" of {self.n_rows} rows x {self.n_features} columns" if self.has_data else ""
        return f"<{type(self).__name__}({args}){data}>"


@cache
def _arguments(cls: type) -> Mapping[str, inspect.Parameter]:
    """Return the constructor's arguments by name."""
    return inspect.signature(cls).parameters


def _shown(value: Any) -> str:
    return f"array{value.shape}" if isinstance(value, np.ndarray) else repr(value)


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
