"""The contract of a data source, a matrix that hands out runs of rows; its partitions, and vectors of its rows.

Checks of a source before the first read, policies for what it lacks, and the canonical form of what is read.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod, update_abstractmethods
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sketchselect._byte_sizes import format_bytes, parse_bytes
from sketchselect._text import table_size
from sketchselect.errors import BadParameter, ChunkReadError, EmptyInput, NotFinite, SourceError, warn
from sketchselect.linalg.csr import densify, entry_runs, take_columns
from sketchselect.linalg.hashing import digest, fingerprint, words_of
from sketchselect.linalg.validation import Array, as_block, canonical, is_csr, with_groups

Nonfinite = Literal["error", "drop_rows", "missing"]
"""Policies for NaN and infinity."""

MissingPolicy = Literal["error", "fill"]
"""Policies for Zarr chunks without a file."""

ALLOWED = "bool, int8 to int64, uint8 to uint64, float16, float32 and float64"
REAL_NUMBERS = "take the real part or the modulus"
"""What to do about complex numbers."""

_EXACT = 2**53
_HINTS = {
    "c": REAL_NUMBERS,
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
        if not shape:
            raise SourceError(
                f"{address}: a matrix has two dimensions (rows x columns), this array has 0: it is a single value; "
                "write an array of rows x columns"
            )
        text = " x ".join(map(str, shape))
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


def finish(block: Any, address: str) -> Any:
    """Return a block in the canonical layout, with a warning where float64 cannot hold its values; CSR is canonical."""
    out = block if is_csr(block) else as_block(block)
    warn_beyond_double(out.data if is_csr(out) else out, address)
    return out


def as_entries(values: Any, address: str, start: int = 0) -> Array:
    """Return entries of a vector as a canonical array of numbers in native byte order, or of text.

    Missing numbers are NaN. Raises `SourceError` for missing text, and text that ends with NUL, naming the row: the
    first entry is of row `start`.
    """
    array = np.asarray(values)
    if isinstance(values, list) and array.dtype.kind == "U":
        require_no_nul(values, address, start)
    elif array.dtype.kind in "OT":
        entries = array.ravel().tolist()
        if all(isinstance(entry, str) for entry in entries):
            require_no_nul(entries, address, start, math.prod(array.shape[1:]))
            array = np.array(entries, dtype=str).reshape(array.shape)
        else:
            array = _mixed_entries(entries, address, start, array.shape)
    elif array.dtype.kind == "S":
        try:
            array = array.astype(str)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{address}: entries are bytes that are no plain text (ASCII); decode them first"
            ) from error
    return canonical(array, array.dtype.newbyteorder("="))


def require_no_nul(entries: Sequence[Any], address: str, start: int = 0, width: int = 1) -> None:
    """Raise `SourceError` for the first text that ends with NUL, which NumPy would drop; a row has `width` of them."""
    for place, entry in enumerate(entries):
        if isinstance(entry, (str, bytes)) and entry[-1:] in ("\0", b"\0"):
            raise SourceError(
                f"{address}: row {start + place // width}, {entry!r:.80}, ends with the character NUL, without which "
                "it may be the text of other rows; correct it"
            )


def _mixed_entries(entries: list[Any], address: str, start: int, shape: tuple[int, ...]) -> Array:
    absent = [is_absent(entry) for entry in entries]
    present = [entry for entry, is_missing in zip(entries, absent, strict=True) if not is_missing]
    if all(isinstance(entry, (bool, int, float, np.number, np.bool_)) for entry in present):
        numbers = zip(entries, absent, strict=True)
        if any(absent):
            warn_of_rounding(present, address)
        return np.array([np.nan if is_missing else entry for entry, is_missing in numbers]).reshape(shape)
    if all(isinstance(entry, str) for entry in present):
        row = start + absent.index(True) // math.prod(shape[1:])
        raise SourceError(f"{address}: {missing_in_words(sum(absent), row)}")
    raise SourceError(f"{address}: entries are neither all numbers nor all text; convert them first")


def is_absent(value: Any) -> bool:
    """Return whether an entry is missing: None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (Number, np.generic)) and bool(value != value)


def are_missing(labels: Array) -> NDArray[np.bool_]:
    """Return which labels are missing: NaN, or text that is empty, or "nan" as in AnnData's categories."""
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    return (labels == "") | (labels == "nan") if labels.dtype.kind == "U" else np.zeros(labels.shape, dtype=bool)


def missing_in_words(
    n_missing: int, row: int, cure: str = "leave these rows out, or give them a text of their own"
) -> str:
    """Return in words how many entries of text are missing, and what to do; `row` has the first."""
    are = "entry is" if n_missing == 1 else "entries are"
    return f"{n_missing:,} {are} missing, the first at row {row}; {cure}"


def warn_beyond_double(values: Array, address: str) -> None:
    """Warn where there are whole numbers that float64 cannot hold."""
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and values.size:
        warn_of_rounding((values.min(), values.max()), address)


def warn_of_rounding(ends: Iterable[Any], address: str) -> None:
    """Warn where the least or largest of some whole numbers, no number where there are none, is beyond float64."""
    if any(isinstance(end, (int, np.integer)) and abs(int(end)) > _EXACT for end in ends):
        warn(f"{address}: whole numbers beyond 2^53 are rounded to float64")


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


def require_distinct(names: Sequence[str] | None, address: str) -> None:
    """Raise `SourceError` if two columns have the same name."""
    if names is None or len(set(names)) == len(names):
        return
    first: dict[str, int] = {}
    for place, name in enumerate(names):
        if (before := first.setdefault(name, place)) != place:
            raise SourceError(
                f"{address}: columns {before} and {place} are both named {name!r:.80}; give each its own name "
                "(of AnnData: adata.var_names_make_unique())"
            )


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


_PIECE_VALUES = 4 << 20
_INDEX_NBYTES = 4


@dataclass(frozen=True)
class Partitions:
    """Runs of rows that a matrix is cut into.

    Parameters
    ----------
    edges : tuple of int
        Row indices ``0 = e_0 < e_1 < ... = n_rows``; partition i is rows e_i to e_{i+1}. A pass over the last rows
        alone begins at a later e_0.
    read_amplification : float
        Bytes decoded per byte used: 1 where partitions are runs of whole chunks.
    """

    edges: tuple[int, ...]
    read_amplification: float = 1.0

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __getitem__(self, index: int) -> tuple[int, int]:
        return self.edges[index], self.edges[index + 1]


READ_FACTOR, SHARD_FACTOR, PLAIN_FACTOR = 2.5, 5.0, 1.5
"""Peak of reading and decoding a block, as a multiple of its decoded bytes: measured on Zarr stores without and with
shards, of which the zarr library holds the bytes of all chunks, and their values, at once; and where a block is read
to where it stays, with a margin for checking its values."""


class Matrix(ABC):
    """A numeric matrix that may not fit in memory. Small and picklable unless `in_memory`.

    Attributes
    ----------
    shape : tuple of int
        (n_rows, n_features).
    dtype : numpy.dtype
        Type of the values as stored.
    is_sparse : bool
        Whether `read_rows` returns CSR blocks: canonical `scipy.sparse.csr_array` (see `linalg.csr.as_csr`).
    entry_offsets : array of int64, shape (n_rows + 1,), or None
        Stored entries before each row, and in all, where `is_sparse`; partitions are cut by them. None where they are
        not known before rows are read.
    feature_names : tuple of str or None
        Names of the columns, where the store has them.
    address : str
        Path, URL or description, for messages and manifests; never holds credentials.
    nonfinite : {"error", "drop_rows", "missing"}
        The policy for NaN and infinity; the engine applies it. "missing" hands NaN to summaries that take
        them as missing values; for all others, and for infinity, it is "error".
    chunk_rows : int
        Rows that one read decodes at least; 1 where any run of rows is equally cheap.
    chunk_edges : tuple of int or None
        Where the chunks begin and end, for sources whose chunks differ in height; `chunk_rows` is then the tallest.
    in_memory : bool
        True where the object holds the data itself, so that it should not be sent to other processes.
    notes : tuple of str
        What the user should know about this source (no checksum, say); the command line prints each once.
    doubts : tuple of str
        What is probably a mistake: warnings of `fit` and `summarize`, and notes too.
    missing_share : float
        Share of the chunks that have no file and are read as the fill value.
    axes : tuple of str
        What messages call its rows and columns: the other way round where columns are handed out as rows.
    chunk_columns : int or None
        Columns that one read of columns decodes at least; None where it reads whole rows.
    is_remote : bool
        Whether reads wait for a store behind a network, so that it pays to read ahead of computing.
    remembered_nbytes : int
        Bytes of chunks, as stored, that a process may remember where partitions are parts of chunks.
    read_factor : float
        Peak of reading and decoding a block, as a multiple of its decoded bytes.
    packed_itemsize : int
        Bytes of a value as stored, where it is packed in fewer than `dtype` has; else 0.
    piece_nbytes : int
        Bytes beside the block that a read needs which decodes chunks piece by piece; 0 where it decodes whole chunks.
    chunk_entries : int
        Entries that a read of a sparse matrix decodes at least.
    loaded_nbytes : int
        Bytes that a process keeps once it has read a row: of a file that is loaded whole, or of a library's buffers.
    row_names : object with ``read(start, stop)``, or None
        Names of the rows, where the store has them.
    unread_columns : mapping of str to vector
        Numbers and text of a table that are no features, of which one may name the rows.
    columns_beside : mapping of str to vector
        What targets, labels and weights of these rows may be named by, where they come from an object in memory.
    text_columns : tuple of int
        Columns of text, of which rows have the codes of their levels (see `readers.tables`).
    date_columns : tuple of int
        Columns of dates, of which rows have the days.
    levels : mapping of int to object with ``names(codes, rows)``
        What names the levels of these columns.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    is_sparse: bool = False
    entry_offsets: NDArray[np.int64] | None = None
    feature_names: tuple[str, ...] | None = None
    address: str = "array"
    nonfinite: Nonfinite = "error"
    chunk_rows: int = 1
    chunk_edges: tuple[int, ...] | None = None
    in_memory: bool = False
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    missing_share: float = 0.0
    axes: tuple[str, str] = ("row", "column")
    chunk_columns: int | None = None
    is_remote: bool = False
    remembered_nbytes: int = 0
    read_factor: float = READ_FACTOR
    packed_itemsize: int = 0
    piece_nbytes: int = 0
    chunk_entries: int = 0
    loaded_nbytes: int = 0
    row_names: Any = None
    unread_columns: Mapping[str, Any] = MappingProxyType({})
    columns_beside: Mapping[str, Any] = MappingProxyType({})
    text_columns: tuple[int, ...] = ()
    date_columns: tuple[int, ...] = ()
    levels: Mapping[int, Any] = MappingProxyType({})

    def __repr__(self) -> str:
        n_rows, n_columns = self.shape
        kind = f"{'sparse ' if self.is_sparse else ''}{self.dtype}"
        return f"<{type(self).__name__} {self.address}: {table_size(n_rows, n_columns)}, {kind}>"

    def read_rows(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop` (all columns) as a canonical block; raise `ChunkReadError` naming the chunk.

        An array, or a `scipy.sparse.csr_array` where `is_sparse`.
        """
        check_range(start, stop, self.shape[0], self.address, self.axes[0])
        return self.checked(finish(self._rows(start, stop), self.address), start, stop)

    def checked(self, block: Any, start: int, stop: int) -> Any:
        """Return a block of rows `start` to `stop`; raise `ChunkReadError` if it has another shape than these have."""
        if block.shape != (stop - start, self.shape[1]):
            rows, columns = self.axes
            raise ChunkReadError(
                f"{self.address}: {rows}s {start} to {stop - 1} came as {block.shape[0]} {rows}s of {block.shape[1]} "
                f"{columns}s, and should be {stop - start} of {self.shape[1]}; give the source the shape (of a Dask "
                "array, the chunks) that it has"
            )
        return block

    def _rows(self, start: int, stop: int) -> Any:
        """Return rows that exist, as an array in any layout or canonical CSR (`as_csr`); what a reader implements."""
        raise NotImplementedError(f"{type(self).__name__} has no _rows")

    @abstractmethod
    def identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the content of these rows, from chunk versions; None without versions.

        It changes when a chunk under these rows is rewritten, and does not when rows are appended behind them.
        """

    def witness(self) -> str:
        """Return a digest of the first and the last rows, read now: all that tells of a change without an identity.

        Costs the reading of two chunks.
        """
        n_rows, height = self.shape[0], min(self.chunk_rows, self.shape[0])
        ends = (self.read_rows(start, start + height) for start in sorted({0, n_rows - height}))
        parts = ((block.data, block.indices, block.indptr) if self.is_sparse else (block,) for block in ends)
        return digest("rows", *(array for arrays in parts for array in arrays))

    def read_columns(self, start: int, stop: int) -> Array:
        """Return columns `start` to `stop` (all rows), shape (n_rows, stop - start); as `read_rows` in all else."""
        check_range(start, stop, self.shape[1], self.address, self.axes[1])
        block: Array = finish(self._columns(start, stop), self.address)
        return block

    def _columns(self, start: int, stop: int) -> Array:
        """Return columns that exist; by default all rows are read."""
        n_rows, n_columns = self.shape
        step = max(1, _PIECE_VALUES // (n_columns * self.chunk_rows)) * self.chunk_rows
        runs: Iterable[tuple[int, int]] = ((a, min(a + step, n_rows)) for a in range(0, n_rows, step))
        if self.entry_offsets is not None:
            runs = entry_runs(self.entry_offsets, _PIECE_VALUES // 2)
        pieces = []
        for run in runs:
            rows = self.read_rows(*run)
            pieces.append(densify(take_columns(rows, range(start, stop))) if is_csr(rows) else rows[:, start:stop])
        return np.concatenate(pieces)

    def column_identity(self, start: int, stop: int) -> str | None:
        """Return a fingerprint of the content of these columns; that of the whole source where no better is known."""
        whole = self.identity(0, self.shape[0])
        return None if whole is None else f"{whole}:columns:{start}:{stop}"

    def dask_rows(self) -> Any | None:
        """Return all rows as a Dask array, in the types that `read_rows` gives, where they come from a Dask graph."""
        return None

    def transposed(self) -> Matrix:
        """Return the matrix whose rows are the columns of this one."""
        return ColumnsAsRows(self)

    def stored_nbytes(self, start: int, stop: int) -> int:
        """Return the bytes of these rows as stored: values, and the column indices of sparse ones."""
        if self.entry_offsets is not None:
            return int(self.entry_offsets[stop] - self.entry_offsets[start]) * (self.dtype.itemsize + _INDEX_NBYTES)
        return (stop - start) * self.shape[1] * self.dtype.itemsize

    def describe(self) -> dict[str, Any]:
        """Return the description of this source in the manifest."""
        return {"address": self.address, "shape": list(self.shape), "dtype": str(self.dtype), "sparse": self.is_sparse}


class MatrixView(Matrix):
    """Base of matrices around a matrix: attributes and methods are those of `matrix`, but for what a subclass changes.

    A subclass with `_rows` (or `read_rows`) of its own must override `identity` too. The other methods for rows and
    columns that it does not override are then those of `Matrix`, which follow from these two; `stored_nbytes` stays
    that of the store.

    Parameters
    ----------
    matrix : Matrix
        The matrix inside.
    """

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if {"read_rows", "_rows"} & vars(cls).keys():
            # What the matrix inside does with rows would go past the rows that the subclass makes of them.
            for name in _METHODS - vars(cls).keys() - {"describe", "stored_nbytes"}:
                setattr(cls, name, vars(Matrix)[name])

    def describe(self) -> dict[str, Any]:
        """Return the description of the matrix inside, with the shape and type of this one."""
        return self.matrix.describe() | Matrix.describe(self)


class _Delegated:
    """An attribute or method of the matrix inside a view, unless the view sets its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, view: MatrixView | None, owner: type) -> Any:
        return self if view is None else getattr(view.matrix, self.name)


_METHODS = {name for name, value in vars(Matrix).items() if callable(value) and not name.startswith("_")}

for _name in (Matrix.__annotations__.keys() | _METHODS) - vars(MatrixView).keys():
    setattr(MatrixView, _name, _Delegated(_name))
update_abstractmethods(MatrixView)  # type: ignore[type-abstract]


class ColumnsAsRows(MatrixView):
    """The columns of a matrix that can read runs of columns, as rows."""

    is_sparse = False
    entry_offsets = None
    feature_names = None
    chunk_edges = None
    row_names = None
    text_columns = ()
    stored_nbytes = Matrix.stored_nbytes

    def __init__(self, matrix: Matrix) -> None:
        super().__init__(matrix)
        self.shape = matrix.shape[::-1]
        self.chunk_rows = min(matrix.chunk_columns or matrix.shape[1], matrix.shape[1])
        self.chunk_columns = matrix.chunk_rows
        self.axes = matrix.axes[::-1]

    def _rows(self, start: int, stop: int) -> Array:
        return self.matrix.read_columns(start, stop).T

    def identity(self, start: int, stop: int) -> str | None:
        """Return the fingerprint of these columns."""
        return self.matrix.column_identity(start, stop)

    def dask_rows(self) -> Any | None:
        """Return the columns as rows of a Dask array, if the matrix is one."""
        rows = self.matrix.dask_rows()
        return None if rows is None else rows.T

    def transposed(self) -> Matrix:
        """Return the matrix inside."""
        return self.matrix


class Vector(ABC):
    """One entry (or one row of several targets) per row of a matrix. Small and picklable unless `in_memory`.

    Attributes
    ----------
    shape : tuple of int
        (n_rows,) or (n_rows, n_targets).
    dtype : numpy.dtype
        Type of the entries as stored: numbers or text (class labels).
    address : str
        Path, URL or description, for messages; never holds credentials.
    in_memory : bool
        True where the object holds the data itself.
    name : str or None
        The name of the column of the store or table that it is; None of a file of one column.
    holds_fields : bool
        Whether the entries are text as a text file had it, some of which may stand for missing ones ("NA").
    beside : mapping of str to Vector
        The other columns of a file that is opened for this one, of which one may name the rows.
    ordered_by : str or None
        The column of the file by which the entries were brought into the order of the rows.
    ordered_names : sequence of str
        The names of the rows where the entries were brought into their order.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    address: str = "array"
    in_memory: bool = False
    name: str | None = None
    holds_fields: bool = False
    beside: Mapping[str, Vector] = MappingProxyType({})
    ordered_by: str | None = None
    ordered_names: Sequence[str] = ()

    def row_in_words(self, row: int) -> str:
        """Return which row this is: also by its name, where its entry was at another place in the file."""
        return f"row {row} ({self.ordered_names[row]!r:.80})" if len(self.ordered_names) else f"row {row}"

    @property
    def n_rows(self) -> int:
        """Entries."""
        return self.shape[0]

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop`, one- or two-dimensional, canonical."""
        check_range(start, stop, self.n_rows, self.address)
        return as_entries(self._entries(start, stop), self.address, start)

    def _entries(self, start: int, stop: int) -> Any:
        """Return entries that exist, in any layout; what a reader implements."""
        raise NotImplementedError(f"{type(self).__name__} has no _entries")

    @abstractmethod
    def identity(self) -> str | None:
        """Return a fingerprint of the whole content, or None."""

    def dask_rows(self) -> Any | None:
        """Return all entries as a Dask array where they come from a Dask graph."""
        return None


def row_texts(row_names: Any, start: int, stop: int) -> list[str]:
    """Return the names of rows `start` to `stop`; a whole number in a column of floats has no decimal point."""
    names = np.asarray(row_names.read(start, stop)).tolist()
    return [str(int(name) if isinstance(name, float) and name.is_integer() else name) for name in names]


class GroupedTarget(Vector):
    """A target paired with the group of each row; only folds of groups use the group."""

    def __init__(self, target: Vector, groups: Vector) -> None:
        self.target, self.groups = target, groups
        self.shape, self.dtype, self.address = target.shape, target.dtype, target.address
        self.in_memory = target.in_memory or groups.in_memory

    def read(self, start: int, stop: int) -> Array:
        """Return entries `start` to `stop` as records of target and group."""
        groups = np.ravel(self.groups.read(start, stop))
        if groups.dtype.kind == "f" and not (finite := np.isfinite(groups)).all():
            row = start + int(np.argmin(finite))
            raise NotFinite(f"groups {self.groups.address}: row {row} has none; leave rows without a group out")
        return with_groups(self.target.read(start, stop), words_of(groups))

    def identity(self) -> str | None:
        """Return a fingerprint of targets and groups."""
        parts = self.target.identity(), self.groups.identity()
        return None if None in parts else fingerprint("groups", *parts)


DEFAULT_PARTITION_BYTES = 32 << 20
"""Default size of a partition, counted as rows x columns x 8 bytes."""

MAX_READ_AMPLIFICATION = 4.0
"""Bytes decoded per byte used, beyond which a run is refused."""

WHOLE_CHUNKS = 32
"""Largest chunk, in partitions of the default size, that is one partition rather than decoded by several."""

WHOLE_CHUNK_MEMORY = 8
"""About what a task takes in all that reads a chunk whole, in such chunks."""

_LEAST_CHUNK_VALUES = 2**15

ENTRY_NBYTES = 16
"""Bytes that a stored entry of a sparse matrix counts as: a value and an index, both of 8."""


def row_partitions(
    matrix: Matrix, partition_bytes: int | str | None = None, *, sparse: bool = False, dense_columns: int = 1
) -> Partitions:
    """Cut the rows of a matrix into partitions of at most `partition_bytes`, each a run of whole chunks.

    All partitions have the same number of rows except the last; where chunks differ in height (Dask arrays) every
    edge is a chunk edge. With `sparse` a partition is as many rows as fit by their stored entries, taken greedily from
    the first row, so that rows appended behind never move an earlier edge; each chunk is one where entries are not
    known before they are read. A pure function of shape, chunk heights, entries in each row and size: the same for any
    number of workers.

    Parameters
    ----------
    matrix : Matrix
        The source.
    partition_bytes : int or str, default 32 MiB
        Size, as rows x columns x 8 bytes, whatever the type as stored; with `sparse`, as stored entries x 16. By
        default a chunk of up to 1 GiB stays whole.
    sparse : bool
        Whether blocks stay sparse.
    dense_columns : int
        With `sparse`, dense numbers that come with each row (chosen columns, say): they, too, fit in a partition.

    Returns
    -------
    Partitions
        With `read_amplification` > 1 where one row of chunks is larger than a partition and had to be split.

    Raises
    ------
    BadParameter
        If more than four times the bytes used would be decoded; the message has a command for better chunks.
    """
    size = DEFAULT_PARTITION_BYTES if partition_bytes is None else parse_bytes(partition_bytes)
    n_rows, n_columns = matrix.shape
    if sparse:
        if matrix.entry_offsets is None:
            return Partitions(matrix.chunk_edges or (*range(0, n_rows, matrix.chunk_rows), n_rows))
        runs = entry_runs(matrix.entry_offsets, size // ENTRY_NBYTES, max(1, size // (8 * max(1, dense_columns))))
        return Partitions((0, *(stop for _, stop in runs)))
    fitting = max(1, size // (8 * max(1, n_columns)))
    highest = _highest_chunk(matrix)
    if partition_bytes is None and highest <= WHOLE_CHUNKS * fitting:
        fitting = max(fitting, highest)
    partitions = _cut(matrix, fitting)
    if partitions.read_amplification > MAX_READ_AMPLIFICATION:
        needed = matrix.chunk_rows * n_columns * 8
        rows, height = ("rows", "high") if matrix.axes[0] == "row" else ("columns", "wide")
        raise BadParameter(
            f"{matrix.address}: chunks are {matrix.chunk_rows} {rows} {height} ({format_bytes(needed)} counted as 8 "
            f"bytes a value), so partitions of {format_bytes(size)} would decode everything "
            f"{partitions.read_amplification:.1f} times; set partition_bytes to {needed}, with "
            f"some {format_bytes(WHOLE_CHUNK_MEMORY * needed)} of memory for each thread, or "
            f"{_advice(matrix, fitting, size)}"
        )
    return partitions


def accepted_size(matrix: Matrix, partition_bytes: int) -> int:
    """Return the smallest accepted partition size at or above the default."""
    row, highest = 8 * max(1, matrix.shape[1]), _highest_chunk(matrix)
    fitting = max(1, partition_bytes // row)
    heights = (fitting, *(-(-highest // pieces) for pieces in (4, 3, 2, 1)))
    height = next(h for h in heights if h >= fitting and _cut(matrix, h).read_amplification <= MAX_READ_AMPLIFICATION)
    return partition_bytes if height == fitting else row * height


def even_partitions(matrix: Matrix, partition_bytes: int | str | None, dense_columns: int) -> Partitions:
    """Cut the rows of a sparse matrix into partitions of one height, as chunks of a dense array of these rows need.

    The height is the largest that fits by `dense_columns` numbers a row, halved until the entries of every partition
    fit too, as far as they are known.
    """
    size = DEFAULT_PARTITION_BYTES if partition_bytes is None else parse_bytes(partition_bytes)
    offsets = matrix.entry_offsets
    n_rows = matrix.shape[0]
    step = min(n_rows, max(1, size // (8 * max(1, dense_columns))))
    while (
        offsets is not None
        and step > 1
        and np.diff(offsets[[*range(0, n_rows, step), n_rows]]).max() > size // ENTRY_NBYTES
    ):
        step = -(-step // 2)
    return Partitions((*range(0, n_rows, step), n_rows))


def _cut(matrix: Matrix, fitting: int) -> Partitions:
    """Cut dense rows into partitions of at most `fitting` rows."""
    if matrix.chunk_edges:
        return _irregular(matrix.chunk_edges, fitting)
    return _regular(matrix.shape[0], matrix.chunk_rows, fitting)


def _highest_chunk(matrix: Matrix) -> int:
    return int(max(np.diff(matrix.chunk_edges))) if matrix.chunk_edges else min(matrix.chunk_rows, matrix.shape[0])


def _advice(matrix: Matrix, fitting: int, size: int) -> str:
    """Return the call or command that makes fitting chunks; of columns such that runs of rows can be read too."""
    n_rows, n_columns = matrix.shape
    by_row = matrix.axes[0] == "row"
    kind = matrix.describe().get("format")
    if kind == "dask":
        return f"rechunk it first, x.rechunk({(fitting, -1) if by_row else (-1, fitting)})"
    if kind == "parquet" and by_row:
        return f"write it with row groups of {fitting:,} rows (pandas: df.to_parquet(..., row_group_size={fitting}))"
    height, width = fitting, n_columns
    if not by_row:
        # Chunks that fit both ways would be tiny where a partition holds few columns of many rows.
        height, width = max(1, size // (8 * n_rows)), fitting
        factor = int(min(3, max(1, (_LEAST_CHUNK_VALUES / (height * width)) ** 0.5)))
        height, width = min(n_columns, factor * height), min(n_rows, factor * width)
    return f"rewrite it with: sketchselect convert IN OUT.zarr --chunks {height}x{width}"


def _regular(n_rows: int, chunk_rows: int, fitting: int) -> Partitions:
    if chunk_rows <= fitting:
        step = fitting // chunk_rows * chunk_rows
    else:
        n_pieces = -(-chunk_rows // fitting)
        even = next((chunk_rows // n for n in range(n_pieces, 2 * n_pieces) if chunk_rows % n == 0), fitting)
        candidates = {even, -(-chunk_rows // n_pieces), fitting}
        step = min(sorted(candidates, reverse=True), key=lambda rows: _amplification(n_rows, chunk_rows, rows))
    edges = (*range(0, n_rows, step), n_rows)
    return Partitions(edges, _amplification(n_rows, chunk_rows, step))


def _amplification(n_rows: int, chunk_rows: int, step: int) -> float:
    """Return rows decoded per row used when runs of `step` rows are read from chunks of `chunk_rows`."""
    if step % chunk_rows == 0:
        return 1.0
    decoded = 0
    for start in range(0, n_rows, step):
        stop = min(start + step, n_rows)
        decoded += min(-(-stop // chunk_rows) * chunk_rows, n_rows) - start // chunk_rows * chunk_rows
    return decoded / n_rows


def _irregular(edges: tuple[int, ...], fitting: int) -> Partitions:
    """Group whole chunks greedily; a chunk taller than a partition is split evenly."""
    cuts = [0]
    decoded = 0
    for i in range(len(edges) - 1):
        first, last = edges[i], edges[i + 1]
        if last - first > fitting:
            if cuts[-1] != first:
                cuts.append(first)
            n_pieces = -(-(last - first) // fitting)
            cuts += [first + (last - first) * piece // n_pieces for piece in range(1, n_pieces + 1)]
            decoded += (last - first) * n_pieces
        else:
            decoded += last - first
            if last - cuts[-1] > fitting:
                cuts.append(first)
    if cuts[-1] != edges[-1]:
        cuts.append(edges[-1])
    return Partitions(tuple(cuts), decoded / edges[-1])
