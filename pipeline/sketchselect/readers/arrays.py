"""Matrices and vectors of objects in memory: NumPy arrays, SciPy matrices, data frames, AnnData and xarray."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from sketchselect._text import did_you_mean, first_few
from sketchselect.errors import BadBlock, SourceChanged, SourceError
from sketchselect.linalg.csr import as_csr, densify, row_of, structure_fault, take_columns, take_rows
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.validation import Array, canonical
from sketchselect.readers import tables
from sketchselect.readers.base import (
    ALLOWED,
    REAL_NUMBERS,
    Matrix,
    Nonfinite,
    Vector,
    as_names,
    require_matrix,
    warn_of_rounding,
)

_PROTOCOLS = ("__array__", "__array_interface__")


class ArrayMatrix(Matrix):
    """A NumPy array. Blocks are views of it where it is canonical.

    `values` of shape (n_rows, n_features): Real numbers.
    `feature_names`: Names of the columns.
    `nonfinite`, "error", "drop_rows", "missing": Policy for NaN and infinity.
    `address`: Its name in messages.
    """

    in_memory = True

    def __init__(
        self,
        values: Array,
        feature_names: tuple[str, ...] | None = None,
        nonfinite: Nonfinite = "error",
        address: str = "array",
    ) -> None:
        require_matrix(values.shape, values.dtype, address)
        self._values = values
        self.shape = (values.shape[0], values.shape[1])
        self.dtype = values.dtype
        self.feature_names = feature_names
        self.nonfinite = nonfinite
        self.address = address

    def _rows(self, start: int, stop: int) -> Array:
        require_mapped(self._values, self.address)
        return self._values[start:stop]

    def _columns(self, start: int, stop: int) -> Array:
        require_mapped(self._values, self.address)
        return self._values[:, start:stop]

    def transposed(self) -> Matrix:
        """Return a view of the same memory whose rows are the columns."""
        out = ArrayMatrix(self._values.T, None, self.nonfinite, self.address)
        out.axes = self.axes[::-1]
        return out

    def identity(self, start: int, stop: int) -> str | None:
        """Return a digest of the values of these rows."""
        require_mapped(self._values, self.address)
        rows = canonical(self._values[start:stop], self.dtype.newbyteorder("="))
        return digest(f"array {rows.dtype.str} {rows.shape}", rows)


class SparseMatrix(Matrix):
    """A SciPy sparse matrix in memory, handed out as CSR blocks.

    `values` of shape (n_rows, n_features): In any format; stored as canonical CSR, sharing memory where it is that
        already.
    `feature_names`, `nonfinite`, `address`: As for `ArrayMatrix`.
    Raises `SourceError` if its index arrays do not describe a matrix; the message names the row.
    """

    in_memory = True
    is_sparse = True

    def __init__(
        self,
        values: Any,
        feature_names: tuple[str, ...] | None = None,
        nonfinite: Nonfinite = "error",
        address: str = "sparse matrix",
    ) -> None:
        require_matrix(values.shape, values.dtype, address)
        try:
            rows = as_csr(values, address)
        except BadBlock as error:
            raise SourceError(f"{error}; write it again") from error
        self._values = rows
        self.entry_offsets = rows.indptr.astype(np.int64)
        self.shape = (int(rows.shape[0]), int(rows.shape[1]))
        self.dtype = np.dtype(values.dtype)
        self.feature_names = feature_names
        self.nonfinite = nonfinite
        self.address = address

    def _rows(self, start: int, stop: int) -> csr_array:
        return take_rows(self._values, start, stop)

    def _columns(self, start: int, stop: int) -> Array:
        return densify(take_columns(self._values, range(start, stop)))

    def transposed(self) -> Matrix:
        """Return a copy, in CSR again, whose rows are the columns."""
        out = SparseMatrix(self._values.T, None, self.nonfinite, self.address)
        out.axes = self.axes[::-1]
        return out

    def identity(self, start: int, stop: int) -> str | None:
        """Return a digest of the stored entries of these rows."""
        rows = take_rows(self._values, start, stop)
        places = rows.indptr.astype(np.int64), rows.indices.astype(np.int64)
        return digest(f"csr {rows.dtype.str} {rows.shape}", *places, rows.data)

    def stored_nbytes(self, start: int, stop: int) -> int:
        """Return the bytes of these rows: values and column indices."""
        rows = self._values
        return int(rows.indptr[stop] - rows.indptr[start]) * int(rows.data.itemsize + rows.indices.itemsize)


class ArrayVector(Vector):
    """Entries in memory."""

    in_memory = True

    def __init__(self, values: Array, address: str = "array") -> None:
        self._values = values
        self.shape = values.shape
        self.dtype = values.dtype
        self.address = address

    def _entries(self, start: int, stop: int) -> Array:
        require_mapped(self._values, self.address)
        return self._values[start:stop]

    def identity(self) -> str | None:
        """Return a digest of the values."""
        require_mapped(self._values, self.address)
        return digest(f"array {self.dtype.str} {self._values.shape}", self._values)


def entries_of(column: Any) -> Any:
    """Return the entries of a column of a data frame, or of an Arrow array, as NumPy has them."""
    if type(column).__module__.partition(".")[0] != "pyarrow":
        return column.to_numpy()
    if hasattr(column.type, "index_type"):
        return np.concatenate([np.empty(0, object), *map(_decoded, getattr(column, "chunks", [column]))])
    return column.to_numpy(zero_copy_only=False)


def _decoded(part: Any) -> Array:
    """Return the entries of an Arrow array of categories as objects, None where one is missing."""
    if len(part.dictionary) > len(part):  # a piece of a long column has all of its categories
        return np.array(part.to_pylist(), dtype=object)
    # With one more for missing entries, for which pyarrow would give one of the categories.
    levels: Array = np.empty(len(part.dictionary) + 1, dtype=object)
    levels[:-1] = part.dictionary.to_pylist()
    # As int64: a small type of codes may not hold that of a missing entry.
    codes: Array = part.indices.cast("int64").fill_null(len(part.dictionary)).to_numpy(zero_copy_only=False)
    return levels[codes]


def require_mapped(values: Array, address: str) -> None:
    """Raise `SourceChanged` if the file that an array is mapped from was cut short: reading would kill the process."""
    base: Any = values
    first = 0
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            first = base.offset - base.offset % mmap.ALLOCATIONGRANULARITY
        base = base.base
    if not isinstance(base, mmap.mmap):
        return
    try:
        size = base.size()
    except (OSError, ValueError):  # memory without a file, as processes share it
        return
    if size < first + len(base):
        raise SourceChanged(
            f"{address}: the file that it is mapped from was cut short; write it again, and open it anew"
        )


def require_valid_csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, ...], address: str) -> None:
    """Raise `SourceError` unless these arrays are a CSR matrix: reading a damaged one would reach beyond them."""
    wrong = structure_fault(data, indices, indptr, shape)
    if wrong is None and len(indices):
        outside = (indices[: int(indptr[-1])] < 0) | (indices[: int(indptr[-1])] >= shape[1])
        if outside.any():
            place = int(outside.argmax())
            wrong = (
                f"row {row_of(indptr, place)} has an entry in column {int(indices[place])}, and there are {shape[1]} "
                "columns"
            )
    if wrong is not None:
        raise SourceError(f"{address}: not a valid CSR matrix: {wrong}; write it again")


def in_scipy(source: Any, address: str) -> Any:
    """Return an array of the package sparse as one of SciPy.

    Raises `SourceError` if the entries that are not stored are no zeros.
    """
    fill = source.fill_value
    if fill != 0:
        raise SourceError(
            f"{address}: the entries that are not stored are {fill}, not 0; give the dense array, x.todense(), or "
            "subtract it first"
        )
    return source.to_scipy_sparse()


def has_masked(values: Any) -> bool:
    """Return whether an array, or a row of a list or tuple, has a masked entry, which NumPy would read as its value."""
    rows = values if isinstance(values, (list, tuple)) else (values,)
    return any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in rows)


def as_array(source: Any, name: str = "array") -> Array:
    """Return an object with an array protocol, or a sequence of numbers, as a NumPy array.

    Raises `SourceError` for every other object, before NumPy sees it: of some, NumPy would ask for one entry after the
    other for ever.
    """
    kind = type(source)
    require_unmasked(source, name)
    is_readable = any(hasattr(kind, protocol) for protocol in _PROTOCOLS) or isinstance(source, Sequence)
    if not (is_readable or hasattr(kind, "__dlpack__")):
        full_name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise SourceError(
            f"{name}: an object of type {full_name} is not a source; give a path, a URL, an array, a data frame, a "
            "SciPy sparse matrix, or an AnnData, xarray or Dask array"
        )
    try:
        array = np.asanyarray(source) if is_readable else np.from_dlpack(source)
    except (ValueError, TypeError) as error:
        if not isinstance(source, Sequence):
            raise SourceError(f"{name}: this {kind.__name__} gives no NumPy array; convert it first") from error
        raise SourceError(f"{name}: this {kind.__name__} is not an array; give rows of equal length") from error
    except (RuntimeError, BufferError) as error:  # such as a sparse one without a conversion to SciPy
        raise SourceError(f"{name}: this {kind.__name__} gives no NumPy array; convert it first") from error
    if has_masked(array):  # variables of netCDF4 become masked arrays, mostly without a masked entry
        raise _masked(name)
    return np.asarray(array)


def require_unmasked(source: Any, name: str) -> None:
    """Raise `SourceError` for a masked array, or rows of such with a masked entry, which NumPy reads as its value."""
    if isinstance(source, np.ma.MaskedArray) or has_masked(source):
        raise _masked(name)


def _masked(name: str) -> SourceError:
    return SourceError(f"{name}: masked arrays are not read; fill the masked entries first, e.g. with NaN")


_ADDRESS = "data frame"


def require_whole(source: Any) -> None:
    """Raise `SourceError` for a table of Arrow with a column shorter than stated: what lies behind it would be read."""
    if type(source).__module__.partition(".")[0] != "pyarrow" or not hasattr(type(source), "validate"):
        return
    try:
        source.validate()
    except ValueError as error:  # of pyarrow
        reason = " ".join(str(error).split())
        raise SourceError(f"{_ADDRESS}: a damaged table of Arrow ({reason:.200}); write its file again") from error


def is_dask(source: Any) -> bool:
    """Return whether this is a Dask array, of dask.array or of a package that follows its protocol."""
    # Asked of the class: a Delayed has every attribute.
    return all(hasattr(type(source), name) for name in ("__dask_graph__", "map_blocks", "chunks"))


def is_dask_frame(source: Any) -> bool:
    """Return whether this is a data frame, or a column of one, of Dask."""
    return all(hasattr(type(source), name) for name in ("__dask_graph__", "to_dask_array"))


def is_pandas(source: Any) -> bool:
    """Return whether this is a data frame of pandas, or of a library with its methods."""
    return all(hasattr(type(source), name) for name in ("iloc", "dtypes", "columns"))


def frame_matrix(source: Any, nonfinite: Nonfinite, encode: Collection[str] = ()) -> ArrayMatrix | None:
    """Return the matrix of a data frame with its names: all columns numeric, missing values as NaN.

    `encode`: Columns of text or dates that are numbers too; see `readers.tables`.
    Returns None for an object that is no data frame.
    Raises `SourceError` if a column is not numeric, or the frame is lazy.
    """
    if is_pandas(source):
        table = encoded(source, encode)
        matrix = _pandas_matrix(table.frame, nonfinite, encode)
        matrix.row_names, matrix.unread_columns = frame_index(source), unread_index(source)
        table.name_levels(matrix, list(source.columns))
        return _doubted(matrix)
    if isinstance(source, (np.ndarray, list, tuple)):
        return None
    frame = eager_frame(source)
    return None if frame is None else _doubted(_narwhals_matrix(frame, nonfinite, encode))


@dataclass(frozen=True)
class FrameIndex:
    """Names of the rows of a data frame of pandas."""

    index: Any
    name: str | None

    @property
    def n_rows(self) -> int:
        """Return how many rows there are."""
        return len(self.index)

    def read(self, start: int, stop: int) -> Array:
        """Return the names of rows `start` to `stop`."""
        return np.array([str(value) for value in self.index[start:stop].tolist()])


def frame_index(frame: Any) -> FrameIndex | None:
    """Return the names of the rows of a data frame: text or whole numbers, unless pandas numbered the rows."""
    index = frame.index
    if type(index).__name__ == "CategoricalIndex":
        kind = index.categories.dtype
        index = index.astype(np.float64 if index.hasnans and kind.kind in "iu" else kind)
    # A date can be written in many ways, see `unread_index`.
    is_numbered = type(index).__name__ == "RangeIndex" and index.name is None
    if is_numbered or getattr(index, "inferred_type", None) not in ("string", "integer"):
        return None
    return FrameIndex(index, None if index.name is None else str(index.name))


def unread_index(frame: Any) -> dict[str, ArrayVector]:
    """Return an index of dates or floats by its title; it names the rows for a file with such a column, not in outputs.

    Whole numbers of a table with a missing entry once are floats.
    """
    index = frame.index
    kind = getattr(index, "inferred_type", None)
    if index.name is None or kind not in ("datetime64", "datetime", "date", "floating") or index.hasnans:
        return {}
    if kind == "datetime" and any(time.tzinfo is not None for time in index):
        return {}
    return {
        str(index.name): ArrayVector(np.asarray(index, dtype=np.float64 if kind == "floating" else "datetime64[us]"))
    }


def _doubted(matrix: ArrayMatrix) -> ArrayMatrix:
    """Return the matrix of a data frame with what is probably a mistake in it."""
    matrix.doubts = tables.doubts_of_frame(
        matrix._values, matrix.feature_names or (), (*matrix.text_columns, *matrix.date_columns)
    )
    matrix.notes = matrix.doubts
    return matrix


def encoded(frame: Any, encode: Collection[str]) -> tables.EncodedFrame:
    """Return a data frame of pandas with columns of text or dates as numbers."""
    if not encode:
        return tables.EncodedFrame(frame)
    _require_distinct(frame.columns)
    return tables.encoded_pandas(frame, encode)


def without_columns(source: Any, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Return a data frame without the columns of these names, and those columns; other objects unchanged."""
    if not names:
        return source, {}
    if is_pandas(source):
        there = [name for name in names if list(source.columns).count(name) == 1]
        return (source.drop(columns=there) if there else source), {name: source[name] for name in there}
    frame = None if isinstance(source, (np.ndarray, list, tuple)) else eager_frame(source)
    if frame is None or not (there := [name for name in names if name in frame.columns]):
        return source, {}
    return frame.drop(there).to_native(), {name: frame[name].to_native() for name in there}


def eager_frame(source: Any) -> Any | None:
    """Return a data frame as narwhals has it; None for every other object.

    Raises `SourceError` if the frame is lazy, or two columns have one name.
    """
    import narwhals
    import narwhals.exceptions

    try:
        frame = narwhals.from_native(source, pass_through=True)
    except narwhals.exceptions.DuplicateError:
        _require_distinct(source.column_names)
        raise
    if isinstance(frame, narwhals.LazyFrame):
        raise SourceError(f"lazy {_ADDRESS} of type {type(source).__name__}: compute it first, e.g. with .collect()")
    return frame if isinstance(frame, narwhals.DataFrame) else None


def _pandas_matrix(source: Any, nonfinite: Nonfinite, encode: Collection[str]) -> ArrayMatrix:
    dtypes = []
    extension = False
    unread = [
        pair for pair in zip(source.columns, source.dtypes, strict=True) if getattr(pair[1], "kind", "O") not in "fiub"
    ]
    if unread:
        raise not_numeric(*unread[0], encode, others=unread[1:])
    for dtype in source.dtypes:
        extension |= not isinstance(dtype, np.dtype)
        dtypes.append(dtype if isinstance(dtype, np.dtype) else np.dtype(np.float64))
    target = np.dtype(np.float64) if extension or not dtypes else np.result_type(*dtypes)
    if target.kind == "f":
        for place, dtype in enumerate(source.dtypes):
            if dtype.kind in "iu":
                column = source.iloc[:, place]
                warn_of_rounding((column.min(), column.max()), _ADDRESS)
    values = source.to_numpy(dtype=target, na_value=np.nan) if extension else source.to_numpy(dtype=target)
    return ArrayMatrix(values, as_names(source.columns, source.shape[1]), nonfinite, _ADDRESS)


def _narwhals_matrix(frame: Any, nonfinite: Nonfinite, encode: Collection[str]) -> ArrayMatrix:
    import narwhals

    columns: list[Array] = []
    whole = []
    table = tables.encoded_narwhals(frame, encode)
    # pyarrow has the index of a data frame of pandas among the columns; in a Parquet file it is no feature either.
    index = _noted_in_arrow(frame.to_native())
    names = [name for name in frame.columns if name not in index]
    for name in names:
        column = table.frame[name]
        has_missing = column.null_count() > 0
        if has_missing and column.dtype == narwhals.Boolean:
            column = column.cast(narwhals.Float64)
        if column.dtype in (narwhals.Int128, narwhals.UInt128):  # of which polars panics, which is no `Exception`
            raise not_numeric(name, column.dtype, encode)
        try:
            values = column.to_numpy()
            if has_missing and column.dtype.is_integer():
                # Not by a cast of narwhals: pyarrow's refuses whole numbers beyond 2^53.
                values = values.astype(np.float64)
        except Exception as error:  # each library has errors of its own
            raise not_numeric(name, column.dtype, encode) from error
        # pyarrow gives the numbers of categories; with pandas, and in Parquet, categories are no numbers.
        is_categories = column.dtype == narwhals.Categorical or column.dtype == narwhals.Enum
        if is_categories or values.dtype.kind not in "fiub" or values.ndim != 1:
            is_missing = column.null_count() == len(column)
            types = [(other, table.frame[other].dtype) for other in names[len(columns) + 1 :]]
            others = [(other, dtype) for other, dtype in types if not (dtype.is_numeric() or dtype == narwhals.Boolean)]
            raise not_numeric(name, column.dtype, encode, others=others, is_missing=is_missing)
        columns.append(values)
        if table.frame[name].dtype.is_integer():
            whole.append(table.frame[name])
    out = np.empty((frame.shape[0], len(names)), np.result_type(*columns) if columns else np.float64)
    for j, values in enumerate(columns):
        out[:, j] = values
    for column in whole if out.dtype.kind == "f" else ():
        warn_of_rounding((column.min(), column.max()), _ADDRESS)
    matrix = ArrayMatrix(out, as_names(names, len(names)), nonfinite, _ADDRESS)
    table.name_levels(matrix, names)
    return matrix


def index_in_arrow(table: Any) -> list[str]:
    """Return the titles of the index of pandas in a table of Arrow; a range without a title only counts the rows."""
    noted = _noted_in_arrow(table)
    columns = [entry for entry in noted if isinstance(entry, str) and entry in table.schema.names]
    return columns + [str(entry["name"]) for entry in noted if not isinstance(entry, str) and entry.get("name")]


def _noted_in_arrow(table: Any) -> list[str | dict[str, Any]]:
    schema = getattr(table, "schema", None)
    return tables.noted_index(schema, _ADDRESS) if hasattr(type(schema), "pandas_metadata") else []


def require_numbers(frame: Any, encode: Collection[str] = ()) -> None:
    """Raise the error of the first column of a data frame of pandas that has another's name, or holds no numbers."""
    _require_distinct(frame.columns)
    if not frame.shape[1]:  # of no rows scikit-learn has an error
        require_matrix(frame.shape, np.dtype(float), _ADDRESS)
    _require_zeros(frame)
    places = [place for place, dtype in enumerate(frame.dtypes) if not _holds_numbers(frame.iloc[:, place], dtype)]
    if places:
        first, *others = [(frame.columns[place], frame.dtypes.iloc[place]) for place in places]
        raise not_numeric(*first, encode, others=others)


def _require_zeros(frame: Any) -> None:
    """Raise `SourceError` if all columns of a data frame of pandas are sparse, and what one leaves out is no zero."""
    fills = [getattr(dtype, "fill_value", None) for dtype in frame.dtypes]
    if None in fills:  # pandas makes such a frame dense
        return
    for name, fill in zip(frame.columns, fills, strict=True):
        if fill != 0:
            raise SourceError(
                f"{_ADDRESS}: column {name!r:.80} is sparse, and the entries that it does not store are {fill}, not 0; "
                "give the dense frame, frame.sparse.to_dense()"
            )


def doubt_of_digits(frame: Any) -> tuple[str, ...]:
    """Return a sentence on columns of a data frame of pandas whose text is taken as numbers, as scikit-learn does."""
    names = [
        name
        for place, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True))
        if getattr(dtype, "kind", "O") == "O" and any(isinstance(entry, str) for entry in frame.iloc[:, place])
    ]
    if not names:
        return ()
    return (
        f"{_ADDRESS}: text that reads as numbers counts as numbers, in {first_few(names, 5, lambda n: f'{n!r:.80}')}; "
        "leave out what are codes, such as postcodes, and turn the rest into numbers: frame[name].astype(float)",
    )


def _holds_numbers(column: Any, dtype: Any) -> bool:
    kind = getattr(dtype, "kind", "O")
    if kind == "O":
        try:
            column.to_numpy(dtype=float, na_value=np.nan)
        except (TypeError, ValueError):
            return False
        return not any(isinstance(entry, (complex, np.complexfloating)) for entry in column)
    return kind not in "mMc"


def _require_distinct(names: Iterable[Any]) -> None:
    """Raise `SourceError` if two columns have one name: what is selected would be ambiguous."""
    for name, count in Counter(names).most_common(1):
        if count > 1:
            raise SourceError(f"{_ADDRESS}: {count} columns are named {name!r:.80}; give each a name of its own")


_NO_TEXT = ("duration", "list", "struct", "array", "decimal", "int", "uint", "float", "period", "time")


def _kind_of(dtype: Any) -> str | None:
    """Return "text" or "dates" for types of such in a data frame, None for all else."""
    code, text = getattr(dtype, "kind", "O"), str(dtype)
    if code in ("m", "c") or text.lower().startswith(_NO_TEXT):
        return None
    return "dates" if code == "M" or text.startswith("Date") else "text"


def not_numeric(
    name: Any,
    dtype: Any,
    encode: Collection[str] = (),
    *,
    others: Sequence[tuple[Any, Any]] = (),
    is_missing: bool = False,
) -> SourceError:
    """Return the error of a column that holds no numbers, nor what is to be encoded.

    `others`: Names and types of further columns of which this is true.
    """
    if is_missing:
        return SourceError(f"data frame: column {name!r:.80}: all entries are missing; leave it out")
    kind = _kind_of(dtype)
    alike = [other for other, of_other in others if kind is not None and _kind_of(of_other) == kind]
    cure = "leave it out or turn it into numbers"
    if getattr(dtype, "kind", "O") == "c":
        cure = REAL_NUMBERS
    if kind is not None and kind not in encode:
        cure = tables.advice(kind, several=bool(alike))
    too = tables.as_others(alike, kind)
    return SourceError(f"data frame: column {name!r:.80} is of type {dtype}{too}; allowed are {ALLOWED}: {cure}")


def is_anndata(source: Any) -> bool:
    """Return whether this is an AnnData object."""
    return type(source).__module__.partition(".")[0] == "anndata" and hasattr(source, "obs_names")


def is_mudata(source: Any) -> bool:
    """Return whether this is a MuData object."""
    return type(source).__module__.partition(".")[0] == "mudata" and hasattr(source, "mod")


def anndata_matrix(source: Any, key: str | None) -> tuple[Any, tuple[str, ...] | None, Vector | None]:
    """Return ``X``, or the layer `key`, of an AnnData object, and the names of its columns and rows.

    Raises `SourceError` if there is no such matrix.
    """
    layer = None if key is None or key == "X" else key.removeprefix("layers/")
    # Since anndata 0.13 X is among the layers too, without a name.
    layers = [name for name in source.layers if name is not None]
    if layer is not None and layer not in layers:
        raise SourceError(f"AnnData: no layer {layer!r:.80}; there are: {', '.join(layers) or 'none'}")
    values = source.X if layer is None else source.layers[layer]
    if values is None:
        raise SourceError("AnnData: X is empty; name a layer with key=")
    return values, *anndata_names(source)


def anndata_names(source: Any) -> tuple[tuple[str, ...] | None, Vector | None]:
    """Return the names of the columns and of the rows of an AnnData object."""
    rows = as_names(source.obs_names, source.n_obs)
    return as_names(source.var_names, source.n_vars), None if rows is None else ArrayVector(np.array(rows))


def backing_file(source: Any) -> str:
    """Return the path of the file that a backed AnnData object reads from.

    Raises `SourceError` for a view, whose rows or columns are not those of the file.
    """
    if source.is_view:
        raise SourceError("AnnData: this is a view of an object backed by a file; load it first, adata.to_memory()")
    return str(source.filename)


def is_xarray(source: Any) -> bool:
    """Return whether this is an object of xarray."""
    return type(source).__module__.partition(".")[0] == "xarray"


def unwrapped(source: Any) -> Any:
    """Return the array of an xarray object, lazy arrays without computing them; anything else unchanged."""
    return variable_of(source).data if is_xarray(source) else source


def variable_of(source: Any, key: str | None = None) -> Any:
    """Return a DataArray unchanged; of a Dataset the variable `key`, or the only one of two dimensions.

    Raises `SourceError` if that is no single variable; the message lists them.
    """
    if hasattr(source, "data"):
        if key is not None:
            raise SourceError(f"xarray DataArray: it is one matrix, which has no key {key!r:.80}; leave key out")
        return source
    variables = [str(name) for name in getattr(source, "data_vars", ())]
    matrices = [name for name in variables if source[name].ndim == 2]
    name = matrices[0] if key is None and len(matrices) == 1 else key
    if name is not None and name in variables:
        return source[name]
    there = f"there are: {', '.join(map(repr, (matrices or variables)[:5])) or 'none'}"
    if name is not None:
        hint = did_you_mean(name, variables, f"; {there}")
        raise SourceError(f"xarray {type(source).__name__}: no variable {name!r:.80}{hint}")
    raise SourceError(f"xarray {type(source).__name__}: give one of its variables, ds[NAME]; {there}")


def xarray_matrix(source: Any, key: str | None) -> tuple[Any, tuple[str, ...] | None, Vector | None]:
    """Return the array, lazy arrays without computing them, and the names of columns and rows: their text coordinates.

    Raises `SourceError` for a Dataset without the variable `key`, or of several variables where there is no key.
    """
    array = variable_of(source, key)
    if array.ndim != 2:
        return array.data, None, None
    rows, columns = (_coordinate(array, axis) for axis in (0, 1))
    return array.data, columns, None if rows is None else ArrayVector(np.array(rows))


def _coordinate(array: Any, axis: int) -> tuple[str, ...] | None:
    # A Variable has none.
    coordinate = getattr(array, "coords", {}).get(array.dims[axis])
    if coordinate is None or coordinate.dtype.kind not in "UOT":
        return None
    return as_names(map(str, coordinate.values.tolist()), array.shape[axis])
