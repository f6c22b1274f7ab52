"""Opening of matrices and vectors from any source: objects, files by their endings, Zarr stores, X of estimators."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from scipy.sparse import issparse

from sketchselect._plugins import Plugins
from sketchselect._text import counted, did_you_mean, first_names, listed_names, name_list, unquoted
from sketchselect.errors import BadBlock, BadParameter, NotFinite, SourceError, warn
from sketchselect.linalg.csr import converted, first_nonfinite_entry
from sketchselect.linalg.validation import first_nonfinite
from sketchselect.location import Location, is_url, locate, warnings_of_waiting
from sketchselect.readers import arrays, row_order, tables
from sketchselect.readers.anndata_layout import ANNDATA, encoding, modality_key
from sketchselect.readers.base import (
    GroupedTarget,
    Matrix,
    MissingPolicy,
    Nonfinite,
    Vector,
    as_entries,
    as_names,
    require_distinct,
    require_missing_policy,
    require_no_nul,
    require_numeric,
    require_policy,
)
from sketchselect.readers.dask import (
    DaskMatrix,
    DaskVector,
    LazyIndex,
    encoded_frame,
    frame_rows,
    lazy_identifiers,
    require_known_chunks,
    zarr_as_dask,
)
from sketchselect.readers.hdf5 import hdf5_columns_of_rows, hdf5_vector, open_hdf5_matrix
from sketchselect.readers.npy import open_npy_matrix, open_npy_vector, open_npz_matrix, open_npz_vector
from sketchselect.readers.parquet import (
    ParquetVector,
    open_parquet_matrix,
    open_parquet_vector,
    parquet_column,
    parquet_names,
)
from sketchselect.readers.parquet_files import ENDINGS as PARQUET_ENDINGS
from sketchselect.readers.parquet_files import holds_parquet
from sketchselect.readers.text import (
    open_market_matrix,
    open_svmlight_matrix,
    open_svmlight_vector,
    open_text_vector,
    read_names,
    svmlight_vector,
)
from sketchselect.readers.views import ChosenColumns, NamedColumn
from sketchselect.readers.zarr.matrix import (
    ATTRIBUTE,
    folder_of,
    open_zarr_matrix,
    open_zarr_vector,
    read_node,
    zarr_columns_of_rows,
    zarr_vector_beside,
)
from sketchselect.readers.zarr.metadata import LEFT_OUT, MARKER


@dataclass(frozen=True)
class FileFormat:
    """A file format, and what opens it."""

    name: str  # What messages call such files
    endings: tuple[str, ...]  # Endings of their names, in lower case
    # ``matrix(location, key, nonfinite)`` opens a matrix (with a further argument `encode` where `takes_text`); None
    # where it is not read in place, see `cure`
    matrix: Callable[..., Matrix] | None = None
    # ``vector(location, n_rows, name)`` opens a vector
    vector: Callable[[Location, int | None, str], Vector] | None = None
    # ``vector_inside(location, key)`` returns the vector of this name in the file of a matrix, or None
    vector_inside: Callable[[Location, str], Vector | None] | None = None
    takes_key: bool = False  # Whether one file can hold several matrices
    takes_text: bool = False  # Whether columns of text and dates can be read as numbers, see `readers.tables`
    remote: bool = False  # Whether it is read from URLs too
    cure: str = ""  # What to do with a file that is not read in place; ``{name}`` is the name of the file

    def open_matrix(
        self, location: Location, key: str | None, nonfinite: Nonfinite, encode: Collection[str] = ()
    ) -> Matrix:
        """Open the matrix in a file, or raise `SourceError` naming what to do instead."""
        if location.is_local:
            location.existing_version()
        if self.matrix is None:
            cure = self.cure.format(name=location.name)
            raise SourceError(f"{location.address}: {self.name} are not read in place; {cure}")
        if key is not None and not self.takes_key:
            raise BadParameter(f"{location.address}: {self.name} hold one matrix, which has no key; leave key out")
        self._require_local(location)
        return self.matrix(location, key, nonfinite, *([encode] if self.takes_text else []))

    def open_vector(self, location: Location, n_rows: int | None, name: str) -> Vector:
        """Open the vector in a file, or raise `SourceError` naming what to do instead."""
        self._require_local(location)
        if self.vector is None:
            hint = (
                'give its name in the file alone, such as "obs/cell_type"'
                if self.vector_inside is not None
                else "use a .npy file"
            )
            raise SourceError(f"{name}: {location.address}: no vectors are read from {self.name}; {hint}")
        return self.vector(location, n_rows, name)

    def _require_local(self, location: Location) -> None:
        if location.is_local:
            location.existing_version()
        if not (location.is_local or self.remote):
            raise SourceError(
                f"{location.address}: {self.name} are read from local disks only; copy it, or convert it to Zarr"
            )


PARQUET = FileFormat(
    "Parquet files",
    PARQUET_ENDINGS,
    open_parquet_matrix,
    open_parquet_vector,
    parquet_column,
    takes_key=True,
    takes_text=True,
    remote=True,
)
TEXT = FileFormat(
    "text files",
    (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz"),
    vector=open_text_vector,
    cure="first: sketchselect convert {name} OUT.zarr",
)

FORMATS = (
    FileFormat("NumPy files", (".npy",), open_npy_matrix, open_npy_vector),
    FileFormat("NumPy archives", (".npz",), open_npz_matrix, open_npz_vector, takes_key=True),
    FileFormat("Matrix Market files", (".mtx", ".mtx.gz"), open_market_matrix),
    FileFormat(
        "svmlight files",
        tuple(f".{name}{packed}" for name in ("svm", "svmlight", "libsvm") for packed in ("", ".gz", ".bz2")),
        open_svmlight_matrix,
        open_svmlight_vector,
        vector_inside=svmlight_vector,
        takes_key=True,
    ),
    PARQUET,
    TEXT,
    FileFormat(
        "Arrow IPC (Feather) files",
        (".feather", ".arrow", ".ipc"),
        cure='write it as Parquet, with pandas: pd.read_feather({name!r}).to_parquet("OUT.parquet")',
    ),
    FileFormat("packed files", (".bz2", ".xz", ".zst", ".lz4"), cure="unpack it first"),
    FileFormat(
        "Zip files",
        (".zip",),
        cure="unpack it, or in Python: zarr.open_array(zarr.storage.ZipStore({name!r}, mode='r'))",
    ),
    FileFormat(
        "HDF5 files", (".h5ad", ".h5mu", ".h5", ".hdf5"), open_hdf5_matrix, vector_inside=hdf5_vector, takes_key=True
    ),
)
"""All formats but Zarr, which is what a folder without Parquet files, or a name without one of these endings, is."""

PLUGINS: Plugins[FileFormat] = Plugins(
    "readers",
    "a FileFormat of files that end in",
    lambda part, name: isinstance(part, FileFormat) and f".{name}" in part.endings,
)
"""Formats of other packages, by an ending without its first dot."""


def format_by_ending(name: str) -> FileFormat | None:
    """Return the format of a file of this name in lower case; None where it may be Zarr."""
    known = next((known for known in FORMATS if name.endswith(known.endings)), None)
    if known is not None or name.endswith(".zarr"):
        return known
    _, *words = name.rpartition("/")[2].split(".")
    endings = (".".join(words[i:]) for i in range(len(words)))
    return next((plugin for ending in endings if (plugin := PLUGINS.find(ending)) is not None), None)


ROW_NAMES = "row_names"
"""What messages call the names of rows, which are read as they are written."""

_FIRST_NAMES = 1 << 16
_ROLE = "it is named as the target, labels, weights, dates or row names"


P = ParamSpec("P")
R = TypeVar("R")


def _warning_of_waits(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, which opens a source, with a warning every few seconds while a server does not answer."""

    @functools.wraps(function)
    def opened(*args: P.args, **kwargs: P.kwargs) -> R:
        source = args[0] if args else None
        if not isinstance(source, str) or not is_url(source):
            return function(*args, **kwargs)
        with warnings_of_waiting(source):
            return function(*args, **kwargs)

    return opened


@_warning_of_waits
def open_matrix(
    source: Any,
    *,
    key: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    missing_chunks: str = "error",
    nonfinite: str = "error",
    source_id: str | None = None,
    vectors: Sequence[Any] | Mapping[str, Any] = (),
    feature_names: str | os.PathLike[str] | Sequence[str] | None = None,
    encode: Collection[str] = (),
) -> Matrix:
    """Open a numeric matrix that may not fit in memory.

    Nothing is read but metadata (and a listing of a Zarr array's chunks), except that ``.npz`` archives are loaded.
    Blocks come out C-contiguous, aligned and in native byte order, in the type as stored (bool and float16 as float64).
    Packed values in Zarr (attributes ``scale_factor``, ``add_offset``, ``_FillValue``) are decoded as xarray does.

    Parameters
    ----------
    source : path, URL, array or Matrix
        A Zarr v2 or v3 array, or a CSR matrix that AnnData or `convert` wrote to a Zarr store (folder, or URL
        ``file:// memory:// s3:// gs:// az:// abfs://``); a ``.parquet`` file, or a folder or Hive partitions of them;
        a local ``.npy``, ``.npz``, ``.h5ad``, ``.h5mu``, HDF5, svmlight or Matrix Market file; a NumPy array, an
        array-like or a sequence of rows, a data frame (pandas, polars, pyarrow, modin, Dask), a SciPy sparse matrix, an
        AnnData or MuData object, an xarray DataArray or Dataset, a Dask array with known chunks, a `zarr.Array` of any
        store (read as a Dask array where that is not a local disk). A `Matrix` is returned unchanged.
    key : str or None
        The array inside a Zarr group or ``.npz`` archive; of AnnData the matrix ("layers/counts"; ``X`` by default);
        of MuData the modality, and perhaps a matrix in it ("rna", "rna/layers/counts");
        of an xarray Dataset the variable, by default the only one of two dimensions; of Parquet the columns, "a,b,c",
        or with a leading "-" those to leave out, a name with a comma in quotation marks ('-id,"price, net"'); of
        svmlight the number of columns, where the last may be all zero.
    storage_options : mapping or None
        Arguments of the remote file system. ``{"allow_http": True}`` also opens ``http://`` and ``https://``.
    missing_chunks : {"error", "fill"}
        What a Zarr chunk without a file means: damage, or a chunk of the fill value that the writer left out.
    nonfinite : {"error", "drop_rows", "missing"}
        Whether NaN or infinity is an error or costs its row, or NaN is a missing value, for summaries that take such
        (``ColumnStats``, ``Moments(missing="pairwise")``); applied when blocks are made.
    source_id : str or None
        Names the content of a Dask array, so that work on it can be checkpointed: same name, same values.
    vectors : sequence, or mapping of str
        Sources of targets, weights and labels, as for `open_vector`: a column of the source among them is no feature,
        in a store, a data frame, or an opened matrix. The keys of a mapping are what messages call them.
    feature_names : path or sequence of str, optional
        Names of the columns, instead of those of the source: a local text file with one name a line, or the names.
        For ``.npy``, ``.npz`` and Matrix Market files, and for arrays, which have none.
    encode : sequence of "text" and "dates", or mapping
        Columns of a table that are read although they are no numbers: text (and categories and truth values) as codes
        of its levels, from which the prepare step "one-hot" makes columns; dates and times as days since 1970-01-01.
        Otherwise they are refused. ``fit``, ``summarize`` and jobs set this by their prepare steps. A mapping of these
        words to names says which columns were such in a fit: they are although all entries are missing.

    Returns
    -------
    Matrix
        With ``shape``, ``dtype``, ``is_sparse``, ``feature_names``, ``read_rows(start, stop)``. Small and picklable
        unless it was in memory.

    Raises
    ------
    SourceError
        If it cannot be opened, is not two-dimensional, or does not hold real numbers.
    EmptyInput
        If it has no rows or no columns.
    MissingChunks, ChunkReadError
        If chunk files are missing (under the policy "error"), empty or cut off.

    Examples
    --------
    >>> import numpy as np
    >>> m = open_matrix(np.arange(6.0).reshape(3, 2))
    >>> m.shape, m.read_rows(1, 3).tolist()
    ((3, 2), [[2.0, 3.0], [4.0, 5.0]])
    """
    policy = require_policy(nonfinite)
    missing = require_missing_policy(missing_chunks)
    kinds = tables.require_encodings(encode) if encode else frozenset()
    if isinstance(vectors, Mapping):
        row_order.require_row_order(source, vectors)
    if isinstance(source, (str, os.PathLike)):
        if source_id is not None:
            raise BadParameter("source_id names the content of a Dask array; a file or store is identified by itself")
        location = locate(source, storage_options)
        known = format_of(location)
        if known is None:
            key, left_out = _without_left_out(location, key)
            matrix = _with_names(open_zarr_matrix(location, key, missing, policy), feature_names)
            place = location if key is None else location.join(key)
            # An array of this name in the store of the matrix has precedence.
            named = _vector_columns(
                vectors, lambda name: _is_column(matrix, name) and zarr_vector_beside(place, name, missing) is None
            )
            if left_out:
                _require_columns(left_out, matrix, location)
            matrix = _features(matrix, [*named, *left_out])
            if kinds:
                no_features = [*_sources(vectors), *(f"obs/{name}" for name in left_out)]
                matrix = _with_fields(matrix, location, kinds, no_features, missing)
        else:
            parquet = vectors if known is PARQUET else ()
            named = _vector_columns(parquet, lambda name: parquet_column(location, name) is not None)
            with _misspelt_first(parquet, location.address, lambda: parquet_names(location), every=True):
                opened = known.open_matrix(location, key_of_others(named, key), policy, kinds)
            matrix = _with_names(opened, feature_names)
        require_distinct(matrix.feature_names, matrix.address)
        matrix.notes += tuple(f"{matrix.address}: column {name!r} is not used as a feature: {_ROLE}" for name in named)
        return matrix
    arrays.require_whole(source)
    source, beside = arrays.without_columns(source, local_names(vectors))
    if feature_names is not None and isinstance(source, Matrix):
        raise BadParameter("feature_names go with a source; this matrix was opened before")
    with _misspelt_first(
        vectors, "the data frame", lambda: getattr(source, "column_names", getattr(source, "columns", ()))
    ):
        opened = _open_object(source, key, storage_options, missing, policy, source_id, kinds)
    matrix = _with_names(opened, feature_names)
    named = _vector_columns(vectors, lambda name: _is_column(matrix, name) and not _is_stored_vector(matrix, name))
    beside |= {name: NamedColumn(matrix, name) for name in named}
    matrix = _features(matrix, named)
    require_distinct(matrix.feature_names, matrix.address)
    if beside:
        matrix.columns_beside = {**matrix.columns_beside, **beside}
    return matrix


def _without_left_out(location: Location, key: str | None) -> tuple[str | None, list[str]]:
    """Return the key of a Zarr store without the columns that it leaves out, "-NAME,NAME", and these."""
    if key is None or not key.startswith("-") or read_node(location.join(key)) is not None:
        return key, []
    names = [name.removeprefix("-").removeprefix("obs/") for name in listed_names(key[1:])]
    if not names:
        raise BadParameter(f"{location.address}: key {key!r:.80} names no column to leave out; write -NAME,NAME")
    return None, names


def _require_columns(left_out: Sequence[str], matrix: Matrix, location: Location) -> None:
    """Raise `SourceError` naming the first column to leave out that the store does not have."""
    names, others = matrix.feature_names or (), () if _table_root(location) is None else obs_columns(location, None)
    known = [*names, *(name.removeprefix("obs/") for name in others or ())]
    index = getattr(matrix.row_names, "name", None)  # no feature anyway
    for name in left_out:
        if name not in known and name != index:
            listed = f"; there are {first_names(known, 8)}" if known else "; its columns have no names"
            hint = unquoted(name, known) or did_you_mean(name, known, listed)
            raise SourceError(f"{location.address}: no column {name!r:.80} to leave out{hint}")


def is_converted_table(location: Location) -> bool:
    """Return whether a place is a store that `convert` made of a text file with columns of text."""
    return format_of(location) is None and _table_root(location) is not None


def _table_root(location: Location) -> Any:
    root = read_node(location)
    return None if root is None or MARKER not in root.attributes or encoding(root) != ANNDATA else root


def _with_fields(
    matrix: Matrix, location: Location, encode: Collection[str], vectors: Sequence[Any], missing: MissingPolicy
) -> Matrix:
    """Return a matrix with the text columns of the table that its store was converted from, but for the `vectors`.

    After a fit these are the columns of the fit. Before, they are those that the conversion did not leave out, and of
    these the first column of the table only where two of its first entries are equal: otherwise it names the rows.
    """
    columns_given, places = {v for v in vectors if isinstance(v, str)}, _places(vectors)
    root = _table_root(location)
    if root is None:
        return matrix
    frame = root.child("obs")
    index = [] if frame is None or "_index" not in frame.attributes else [f"obs/{frame.attributes['_index']}"]
    left_out = () if frame is None else frame.attributes.get(LEFT_OUT, ())
    columns = []
    for name in (*index, *(zarr_columns_of_rows(location, None) or ())):
        column = name.removeprefix("obs/")
        if isinstance(encode, Mapping) and tables.kind_in_fit(column, encode) is None:
            continue
        if column in left_out and not isinstance(encode, Mapping):
            continue
        if name in columns_given or _place(location.join(name).address) in places:
            continue
        vector = zarr_vector_beside(location, name, missing)
        if vector is None or vector.dtype.kind != "U":
            continue
        first = vector.read(0, min(vector.n_rows, _FIRST_NAMES)) if name in index else ()
        if name in index and len(set(first)) == len(first) and not isinstance(encode, Mapping):
            continue
        columns.append(tables.FieldColumn.of(column, vector, encode))
    fields = [column for column in columns if column is not None]
    return tables.WithFields(matrix, fields) if fields else matrix


def _places(vectors: Sequence[Any]) -> set[str]:
    """Return where vectors are that were opened before, or are given by a path or URL."""
    opened = [
        v
        for vector in vectors
        for v in ((vector.target, vector.groups) if isinstance(vector, GroupedTarget) else (vector,))
    ]
    return {_place(v.address if isinstance(v, Vector) else v) for v in opened if isinstance(v, (Vector, str))}


def _place(address: str) -> str:
    """Return one spelling of the address of an array: the path without links, or the URL."""
    return address.rstrip("/") if is_url(address) else os.path.realpath(os.path.expanduser(address))


def given_names(names: str | os.PathLike[str] | Sequence[str], n_columns: int, address: str) -> tuple[str, ...]:
    """Return the names of the columns of a source, from a text file or a sequence."""
    if isinstance(names, (str, os.PathLike)):
        return read_names(locate(names), n_columns, address)
    given = as_names(names, n_columns)
    if given is None:
        raise BadParameter(f"feature_names must be {n_columns} texts, one for each column of {address}")
    return given


def _with_names(matrix: Matrix, names: str | os.PathLike[str] | Sequence[str] | None) -> Matrix:
    """Give a matrix that was just opened the names of its columns."""
    if names is not None:
        matrix.feature_names = given_names(names, matrix.shape[1], matrix.address)
    return matrix


def _open_object(
    source: Any,
    key: str | None,
    storage_options: Mapping[str, Any] | None,
    missing: MissingPolicy,
    policy: Nonfinite,
    source_id: str | None,
    encode: Collection[str],
) -> Matrix:
    """Return the matrix of an object in memory, or of one that reads from a file or a graph."""
    kind = type(source)
    if arrays.is_mudata(source):
        name, key = modality_key(list(source.mod), key, "MuData")
        source, inside = source.mod[name], f"mod/{name}/"
    else:
        inside = ""
    if arrays.is_anndata(source):
        if source.isbacked:
            matrix = open_matrix(arrays.backing_file(source), key=f"{inside}{key or 'X'}", nonfinite=policy)
            matrix.feature_names, matrix.row_names = arrays.anndata_names(source)
        else:
            values, columns, rows = arrays.anndata_matrix(source, key)
            matrix = open_matrix(values, nonfinite=policy, source_id=source_id)
            matrix.feature_names, matrix.row_names = columns, rows
        matrix.columns_beside = {f"{inside}obs/{name}": source.obs[name] for name in source.obs}
        return matrix
    if arrays.is_xarray(source):
        values, columns, rows = arrays.xarray_matrix(source, key)
        matrix = open_matrix(values, nonfinite=policy, source_id=source_id)
        matrix.feature_names, matrix.row_names = columns, rows
        return matrix
    if key is not None or storage_options:
        raise BadParameter("key and storage_options go with a path or URL, not with an object in memory")
    if isinstance(source, Matrix):
        if policy not in ("error", source.nonfinite):
            raise BadParameter(
                f'this matrix was opened with nonfinite="{source.nonfinite}"; open its source again to change that'
            )
        return source
    if arrays.is_dask(source):
        return DaskMatrix(source, source_id, policy)
    if arrays.is_dask_frame(source):
        if source.ndim != 2:
            raise SourceError("Dask series: a matrix has two dimensions; make a data frame of it, X.to_frame()")
        require_distinct(as_names(source.columns, len(source.columns)), "data frame of Dask")
        lazy = encoded_frame(source, encode)
        matrix = DaskMatrix(frame_rows(lazy.frame), source_id, policy)
        matrix.feature_names = as_names(source.columns, matrix.shape[1])
        matrix.unread_columns = LazyIndex(source)
        lazy.name_levels(matrix, list(source.columns))
        matrix.doubts = matrix.notes = tables.doubts_of(
            "data frame of Dask", (), lazy_identifiers(source), tables.OF_FRAMES
        )
        return matrix
    if source_id is not None:
        raise BadParameter("source_id names the content of a Dask array; this source is identified by its values")
    if kind.__module__.partition(".")[0] == "zarr":
        folder = folder_of(source)
        if folder is None:
            matrix = DaskMatrix(zarr_as_dask(source, missing), None, policy)
            matrix.feature_names = as_names(source.attrs.get(ATTRIBUTE), matrix.shape[1])
            return matrix
        return open_zarr_matrix(folder, None, missing, policy)
    if hasattr(kind, "to_scipy_sparse") and getattr(source, "ndim", 2) == 2:
        source = arrays.in_scipy(source, "array")
    if issparse(source) or (hasattr(kind, "tocsr") and hasattr(kind, "nnz")):
        return arrays.SparseMatrix(source, None, policy)
    frame = arrays.frame_matrix(source, policy, encode)
    if frame is not None:
        return frame
    return arrays.ArrayMatrix(arrays.as_array(source), None, policy)


def _entries(source: Any, name: str) -> Any:
    """Return the entries of an object in memory, or of an open Zarr array with packed values decoded."""
    arrays.require_whole(source)
    library = type(source).__module__.partition(".")[0]
    if library == "pyarrow" and getattr(source, "num_columns", 0) == 1:
        column = source.column(0)
        return arrays.entries_of(column) if hasattr(column.type, "index_type") else arrays.as_array(source, name)
    if hasattr(type(source), "to_numpy"):
        return arrays.entries_of(source)
    values = arrays.as_array(source, name)
    if values.dtype.kind in "US" and isinstance(source, (list, tuple)):
        texts = np.array(source, dtype=object)
        require_no_nul(texts.ravel().tolist(), name, width=math.prod(texts.shape[1:]))
    if library == "zarr" and values.dtype.kind in "iuf":
        from sketchselect.readers.zarr.array import packing_of

        packing = packing_of(source.metadata.to_dict(), values.dtype, name)
        return values if packing is None else packing.decode(values)
    return values


@_warning_of_waits
def open_vector(
    source: Any,
    n_rows: int | None,
    *,
    matrix: Matrix | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    missing_chunks: str = "error",
    name: str = "target",
    dates: bool = False,
    row_names: Vector | None = None,
) -> Vector:
    """Open targets, labels or weights: one entry for each of the `n_rows` rows of a matrix.

    The entries of a text or Parquet file that has the names of the rows in another column come in their order.

    Parameters
    ----------
    source : path, URL, array or Vector
        An ``.npy`` file; an ``.npz`` archive (its array `name`, else ``y``, else the only one of `n_rows` entries);
        a Parquet file with a column `name`, or with one column; a text file (``.csv``, ``.txt``) likewise;
        a Zarr array, or a column of an AnnData store; the name of an array or column in the store of the matrix, or
        in the data frame or AnnData object that it was opened from; a NumPy array, pandas Series or Dask array.
    n_rows : int or None
        Rows of the matrix; None without a matrix to compare with.
    matrix : Matrix, str or None
        The matrix, or its location; arrays and columns of the same store can then be given by name.
    storage_options : mapping or None
        Arguments of the remote file system.
    missing_chunks : {"error", "fill"}
        What a Zarr chunk without a file means, as for `open_matrix`.
    name : str
        What messages call it.
    dates : bool
        Whether it may hold dates and times.
    row_names : Vector, optional
        Names of the rows; by default those of the matrix.

    Raises
    ------
    SourceError
        If it cannot be opened, has another length than the matrix (naming both), holds neither numbers nor text, or is
        the column of a file whose names are of other rows.
    """
    missing, given, lacking = require_missing_policy(missing_chunks), source, ""
    if isinstance(matrix, Matrix) and isinstance(source, str):
        source = matrix.columns_beside.get(source, source)
    if isinstance(source, Vector):
        vector = source
    elif isinstance(source, (str, os.PathLike)):
        vector = _vector_at(os.fspath(source), n_rows, matrix, storage_options, missing, name)
        if vector.beside and name != ROW_NAMES:
            names = row_names or row_order.names_of_rows(matrix, vector)
            if vector.n_rows == n_rows != 0:
                row_order.require_titled(vector, matrix, names, name)
                row_order.require_no_identifier(vector, matrix, name)
                vector = row_order.in_row_order(vector, names, name)
            elif n_rows is not None:
                lacking = row_order.lacking_in_words(vector, names)
        vector.beside = {}
        if vector.holds_fields and name != ROW_NAMES:  # a row may be called NA
            vector = tables.Labels(vector)
    elif arrays.is_dask(source := frame_rows(source) if arrays.is_dask_frame(source) else arrays.unwrapped(source)):
        require_known_chunks(source, f"{name} Dask array")
        vector = DaskVector(source)
    else:
        values = _entries(source, name)
        if dates and values.dtype.kind == "O":
            values = tables.column_of_times(values)
        values = as_entries(values, name)
        if name == "labels" and values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]  # of a data frame
        vector = arrays.ArrayVector(values)
        if vector.shape[:1] == (n_rows,) and hasattr(index := getattr(given, "index", None), "inferred_type"):
            names = row_names or getattr(matrix, "row_names", None) or row_order.names_in_unread(matrix, index)
            vector = vector if names is None else row_order.series_in_row_order(vector, index, names, name)
    if len(vector.shape) not in (1, 2):
        raise SourceError(
            f"{name} {vector.address}: has {len(vector.shape)} dimensions; give one entry (or one row) per row"
        )
    if n_rows is not None and vector.shape[0] != n_rows:
        raise SourceError(
            f"{name} {vector.address}: has shape {vector.shape}, the matrix has {n_rows} rows; "
            f"both must have the same number of rows{lacking}"
        )
    if vector.dtype.kind not in ("fiubUM" if dates else "fiubU"):
        raise SourceError(f"{name} {vector.address}: values of type {vector.dtype} are neither numbers nor text")
    return vector


def identifying_column(first: str, second: str, storage_options: Mapping[str, Any] | None = None) -> Vector | None:
    """Return the column of a table of clusters that names the rows: text or whole numbers, each once.

    Columns of both tables go first, and last those that count the rows from 0 or 1. Whole numbers name them where both
    tables have the same ones, in the first column if neither table's only count, or under the title of an identifier.

    Raises `SourceError` if one of the tables cannot be opened.
    """
    ours, theirs = (
        _vector_at(source, None, None, storage_options, "error", name).beside
        for source, name in ((first, "clusters"), (second, "labels"))
    )
    columns = dict[str, Any]()
    for title, column in ours.items():
        with row_order.missing_entries():
            columns[title] = np.asarray(column.read(0, column.n_rows))
    counts = {title: row_order.counts_rows(entries.astype(str).tolist()) for title, entries in columns.items()}
    for title in sorted(columns, key=lambda title: (title not in theirs, counts[title])):
        entries, are_same, is_counted = columns[title], False, False
        if title in theirs:
            with row_order.missing_entries():
                others = np.asarray(theirs[title].read(0, theirs[title].n_rows))
                are_same = row_order.same_names(entries, others)
                is_counted = counts[title] or row_order.counts_rows(others.astype(str).tolist())
        if are_same or (not is_counted and row_order.are_names("id" if title == next(iter(ours)) else title, entries)):
            names = arrays.ArrayVector(entries)
            names.name = title
            return names
    return None


def grouped(y: Any, groups: Any, matrix: Matrix | str | None = None) -> GroupedTarget:
    """Return a target paired with the group of each row: the `y` of `summarize` for ``Folds(groups=True)``.

    Parameters
    ----------
    y, groups : anything `open_vector` takes
        A target, and a number or text for each of its rows.
    matrix : Matrix or str, optional
        As for `open_vector`.

    Raises
    ------
    SourceError
        If they differ in length, groups are no numbers or text, or one of them is lazy.

    Examples
    --------
    >>> import numpy as np, sketchselect as sks
    >>> patients = np.array(["eva", "ben", "eva", "ben", "kim", "eva"])
    >>> y = sks.readers.grouped(np.arange(6.0), patients)
    >>> folds = sks.summarize(np.eye(6), sks.Folds(sks.Moments(), 2, seed=2, groups=True), y=y)
    >>> sorted(fold.n_rows for fold in folds)
    [3, 3]
    """
    target = open_vector(y, matrix.shape[0] if isinstance(matrix, Matrix) else None, matrix=matrix)
    opened = open_vector(groups, target.n_rows, matrix=matrix, name="groups")
    if len(opened.shape) == 2 and opened.shape[1] != 1:
        raise SourceError(f"groups {opened.address}: {opened.shape[1]} columns; a row has one group")
    if target.dask_rows() is not None or opened.dask_rows() is not None:
        raise SourceError("groups: compute them and the target first; lazy ones cannot be read side by side")
    return GroupedTarget(target, opened)


def _vector_at(
    text: str,
    n_rows: int | None,
    matrix: Matrix | str | None,
    storage_options: Mapping[str, Any] | None,
    missing: MissingPolicy,
    name: str,
) -> Vector:
    """Return the vector at a path or URL, or else the one of this name in the store of the matrix."""
    names: tuple[str, ...] = ()
    if isinstance(matrix, Matrix):
        names = (*matrix.columns_beside, *(matrix.feature_names or ()))
    remote = is_url(text)
    location = locate(text, storage_options if remote else None)
    if remote or location.version() is not None:
        known = format_of(location)
        if known is None:
            return open_zarr_vector(location, missing)
        return known.open_vector(location, n_rows, name)
    vector = _vector_beside(text, matrix, storage_options, missing)
    if vector is None:
        place = "the object in memory" if getattr(matrix, "in_memory", False) else getattr(matrix, "address", matrix)
        names = (*_obs_beside(matrix, storage_options), *names) if names else ()
        if names and not os.path.splitext(text)[1]:  # the name of a column, not the path of a file
            bare = text.removeprefix("obs/")
            nearest = _nearest(text, names)
            if not nearest and _vector_beside(f"obs/{bare}", matrix, storage_options, missing) is not None:
                nearest = f"; did you mean 'obs/{bare}'?"  # beside the matrix in a store of a converted text file
            raise SourceError(f"{name}: {_no_column(text, place, nearest, names)}")
        archive = getattr(matrix, "archive", None)
        if archive is not None and text in archive.headers:
            raise SourceError(
                f"{name}: {text!r:.80} is an array of {archive.path}; give the path of this archive as the {name}; it "
                f"stands for its array {name!r}, else 'y', else the only one of {n_rows} entries"
            )
        beside = f"; nor is there such an array or column in {place}{did_you_mean(text, names)}" if place else ""
        raise SourceError(f"{name}: {location.not_found()}{beside}")
    return vector


def _no_column(text: str, place: Any, nearest: str, names: Sequence[str]) -> str:
    hint = nearest or ";"
    return f"no column {text!r:.80} in {place}, and no file of that name{hint} columns: {first_names(names, 8)}"


def _nearest(text: str, names: Sequence[str]) -> str:
    """Return the hint at the column that was meant, empty where none is near."""
    bare = text.removeprefix("obs/")
    if text == bare and f"obs/{bare}" in names:
        return f"; did you mean 'obs/{bare}'?"
    return next(filter(None, (did_you_mean(name, names) for name in (text, bare, f"obs/{bare}"))), "")


Vectors = Sequence[Any] | Mapping[str, Any]
"""Targets, weights and labels, perhaps by what messages call them."""


def _sources(vectors: Vectors) -> Sequence[Any]:
    return list(vectors.values()) if isinstance(vectors, Mapping) else vectors


def _called(text: str, vectors: Vectors) -> str:
    """Return what messages call the vector that is given as this text, with a colon; empty where that is not known."""
    names = vectors.items() if isinstance(vectors, Mapping) else ()
    return next((f"{name}: " for name, source in names if isinstance(source, str) and source == text), "")


@contextlib.contextmanager
def _misspelt_first(vectors: Vectors, place: str, columns: Callable[[], Any], *, every: bool = False) -> Iterator[None]:
    """Raise, for a refusal of a table, that of a misspelt target, which may be the column that is refused.

    `every`: Whether these are all columns, those of the vectors too.
    """
    try:
        yield
    except SourceError:
        names, texts = list[str](), local_names(vectors)
        if texts:
            with contextlib.suppress(SourceError):  # of a damaged file, which the refusal names
                names = [name for name in columns() if isinstance(name, str)]
        for text in texts:
            nearest, is_path = _nearest(text, names), os.path.exists(text) or bool(os.path.splitext(text)[1])
            if text not in names and (nearest or (every and names and not is_path)):
                raise SourceError(_called(text, vectors) + _no_column(text, place, nearest, names)) from None
        raise


def _require_spelt(vectors: Vectors, columns: Any) -> None:
    """Raise for a target or weight that is no column of a frame, and no path of a file, where columns have names."""
    names = [name for name in columns if isinstance(name, str)]
    for text in local_names(vectors) if names else ():
        nearest = _nearest(text, names)
        if text not in names and not os.path.exists(text) and (nearest or not os.path.splitext(text)[1]):
            raise SourceError(_called(text, vectors) + _no_column(text, "the data frame", nearest, names))


def _vector_beside(
    text: str, matrix: Matrix | str | None, storage_options: Mapping[str, Any] | None, missing: MissingPolicy
) -> Vector | None:
    if isinstance(matrix, Matrix):
        matrix = None if matrix.in_memory else matrix.address
    if matrix is None:
        return None
    try:
        location = locate(matrix, storage_options if is_url(matrix) else None)
    except SourceError:
        return None  # the matrix is no file, its address only a description
    known = format_of(location)
    if known is not None:
        return None if known.vector_inside is None else known.vector_inside(location, text)
    vector = zarr_vector_beside(location, text, missing)
    if vector is None and read_node(location) is not None:
        whole = open_zarr_matrix(location, None, missing, "missing")
        vector = NamedColumn(whole, text) if _is_column(whole, text) else None
    return vector


def _obs_beside(matrix: Any, storage_options: Mapping[str, Any] | None) -> list[str]:
    """Return the columns of ``obs`` in the store that holds a matrix, for a message."""
    if matrix.in_memory:
        return []
    place: Location | None = locate(matrix.address, storage_options if is_url(matrix.address) else None)
    while place is not None:
        columns = obs_columns(place, None)
        if columns is not None:
            return columns
        place = None if read_node(place) is None else place.parent()
    return []


def format_of(location: Location) -> FileFormat | None:
    """Return the format of a file by its ending, that of a folder by the files in it; None where it may be Zarr."""
    name = location.url.lower().rstrip("/")
    # Not by `Path.is_dir`, which raises where a text is too long to be a path.
    if location.is_local and os.path.isdir(folder := Path(location.url)):
        if name.endswith(PARQUET.endings):
            return PARQUET
        # The documents of Zarr come first: version 2 may have millions of chunk files next to them.
        is_zarr = any((folder / document).exists() for document in ("zarr.json", ".zarray", ".zgroup"))
        return PARQUET if not is_zarr and holds_parquet(location) else None
    return format_by_ending(name)


def obs_columns(location: Location, key: str | None) -> list[str] | None:
    """Return the columns of the rows of a matrix in AnnData or MuData, named as `open_vector` takes them.

    None for every other source.
    """
    if location.is_local and location.url.lower().endswith((".h5ad", ".h5mu")):
        return hdf5_columns_of_rows(location, key)
    return zarr_columns_of_rows(location, key)


def _is_column(matrix: Matrix, name: str) -> bool:
    return matrix.feature_names is not None and matrix.feature_names.count(name) == 1


def _is_stored_vector(matrix: Matrix, name: str) -> bool:
    """Return whether an array of this name is in the store of an opened matrix."""
    vector = _vector_beside(name, matrix, None, "error")
    return vector is not None and not isinstance(vector, (NamedColumn, ParquetVector))


def _features(matrix: Matrix, named: Sequence[str]) -> Matrix:
    """Return the matrix without the columns of these names."""
    names = matrix.feature_names or ()
    return ChosenColumns(matrix, [j for j, name in enumerate(names) if name not in named]) if named else matrix


def local_names(vectors: Vectors) -> list[str]:
    """Return the vectors that may be named by a column: texts that are no URL, and no file; a file goes first."""
    names = [name for name in _sources(vectors) if isinstance(name, str) and name and not is_url(name)]
    return [name for name in dict.fromkeys(names) if locate(name).version() is None]


def _vector_columns(vectors: Vectors, is_column: Callable[[str], bool]) -> list[str]:
    """Return the columns of a source that vectors are named by."""
    return [name for name in local_names(vectors) if is_column(name)]


def key_of_others(columns: Sequence[str], key: str | None) -> str | None:
    """Return the key of Parquet columns without some columns."""
    if not columns:
        return key
    if key is None or key.startswith("-"):
        return f"{'-' if key is None else f'{key},'}{name_list(columns)}"
    return name_list(word for word in listed_names(key) if word not in columns)


def require_finite(estimator: Any, values: Any, *, allows_nan: bool = False) -> None:
    """Raise `NotFinite`, naming the first NaN or infinity of X, or only the first infinity, by row and column."""
    first: Any = first_nonfinite if isinstance(values, np.ndarray) else first_nonfinite_entry
    bad = first(values)
    if bad is not None and allows_nan:
        if not bad[3]:
            return
        values = values.copy()
        entries = values if isinstance(values, np.ndarray) else values.data
        entries[np.isnan(entries)] = 0.0
        bad = first(values)
    if bad is not None:
        row, column, n_nan, n_inf = bad
        names = getattr(estimator, "feature_names_in_", None)
        where = column if names is None else f"{names[column]!r}"
        cure = "leave such rows out"
        if allows_nan:
            raise NotFinite(
                f"X: {counted(n_inf, 'infinite value')}, the first at row {row}, column {where}; {cure}, or write NaN, "
                "which is a missing value here"
            )
        if isinstance(values, np.ndarray) and np.isnan(values[:, column]).all():
            cure = "leave this column out, which has no values"
        raise NotFinite(
            f"X: {n_nan} NaN and {n_inf} infinite values, the first at row {row}, column {where}; {cure}, "
            'or fill missing values with fit(X, prepare=["impute"]), in a job steps = ["impute"]'
        )


def open_features(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    nonfinite: Nonfinite = "error",
    vectors: Vectors = (),
    encode: Collection[str] = (),
    **checks: Any,
) -> Matrix:
    """Open what a user gave an estimator as X.

    Arrays, sequences, SciPy sparse matrices and pandas data frames get scikit-learn's checks and messages; everything
    else goes to `open_matrix`.

    `estimator`: Gets ``n_features_in_`` and ``feature_names_in_`` with `reset`.
    `X`: The rows.
    `reset`: Whether this is the first X; otherwise it must have the width of that, and its names where both have some.
    `nonfinite`, "error", "drop_rows", "missing": Policy for NaN and infinity.
    `vectors`, `encode`: Targets and weights of the same rows, and columns that are no numbers, as in `open_matrix`.
    `**checks`: For `sklearn.utils.validation.validate_data`.

    Raises `BadParameter` if width or names are others than in `fit`, naming the first such column, or `SourceError` if
    X cannot be opened.
    """
    if is_array_like(X):
        from sklearn.utils.validation import validate_data

        if isinstance(vectors, Mapping) and not isinstance(X, np.ndarray):
            row_order.require_row_order(X, vectors)
        if not (isinstance(X, (np.ndarray, Sequence)) or issparse(X) or arrays.is_pandas(X)):
            X = arrays.as_array(X, "X")  # scikit-learn, too, would take no notice of a mask
        elif issparse(X) and X.ndim == 2 and X.format != "csr":
            # scikit-learn would follow invalid index arrays, and add up entries stored twice in a narrow type.
            try:
                X = converted(X, "X")
            except BadBlock as error:
                raise SourceError(f"{error}; write it again") from error
        if isinstance(X, np.ndarray):
            arrays.require_mapped(X, "X")
            if X.dtype.kind in "mMV":  # scikit-learn, asked for floats, takes dates as numbers
                require_numeric(X.dtype, "array")
        rows, beside, table = X, dict[str, Any](), None
        if arrays.is_pandas(X):
            rows, beside = arrays.without_columns(X, local_names(vectors))
            table, columns = arrays.encoded(rows, encode), list(rows.columns)
            rows = table.frame
            with _misspelt_first(vectors, "the data frame", lambda: X.columns):
                arrays.require_numbers(rows, encode)
            _require_spelt(vectors, X.columns)
        finite = checks.pop("ensure_all_finite", True)
        values = validate_data(estimator, rows, reset=reset, accept_sparse="csr", ensure_all_finite=False, **checks)
        if finite:
            require_finite(estimator, values, allows_nan=finite == "allow-nan")
        matrix = open_matrix(values, nonfinite=nonfinite)
        matrix.columns_beside = beside
        if arrays.is_pandas(X):
            matrix.row_names, matrix.unread_columns = arrays.frame_index(X), arrays.unread_index(X)
        if table is not None:
            if encode:
                table.name_levels(matrix, columns)
                matrix.feature_names = as_names(columns, len(columns))
            if reset and isinstance(values, np.ndarray):
                names = as_names(columns, len(columns)) or ()
                warn_of_doubts(arrays.doubt_of_digits(rows))
                warn_of_doubts(tables.doubts_of_frame(values, names, (*matrix.text_columns, *matrix.date_columns)))
        return matrix
    matrix = open_matrix(X, nonfinite=nonfinite, vectors=vectors, encode=encode)
    if reset:
        warn_of_doubts(matrix.doubts)
        estimator.n_features_in_ = matrix.shape[1]
        if hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_
        if matrix.feature_names is not None:
            estimator.feature_names_in_ = np.array(matrix.feature_names, dtype=object)
        return matrix
    require_width(estimator, matrix.shape[1])
    if matrix.feature_names is not None:
        require_same_names(estimator, matrix.feature_names, matrix.address)
    return matrix


def warn_of_doubts(doubts: Sequence[str]) -> None:
    """Warn of what is probably a mistake in a source, see `Matrix.doubts`."""
    for text in doubts:
        warn(text)


def require_width(estimator: Any, n_columns: int) -> None:
    """Raise `BadParameter`, in scikit-learn's words, if X has another number of columns than in `fit`."""
    if n_columns != estimator.n_features_in_:
        raise BadParameter(
            f"X has {n_columns} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
            "features as input"
        )


def require_same_names(estimator: Any, names: Sequence[str], address: str) -> None:
    """Raise `BadParameter` if the columns have other names than in `fit`, or another order."""
    for j, (mine, first) in enumerate(zip(names, getattr(estimator, "feature_names_in_", names), strict=True)):
        if mine != first:
            raise BadParameter(
                f"{address}: column {j} is named {mine!r:.80}, but {first!r:.80} when {type(estimator).__name__} was "
                "fitted; bring the columns into that order"
            )


def is_array_like(X: Any) -> bool:
    """Return whether scikit-learn checks X: arrays, sequences, SciPy sparse matrices and pandas data frames."""
    # scikit-learn takes no notice of a mask; `open_matrix` refuses it.
    if isinstance(X, (str, bytes)) or arrays.has_masked(X):
        return False
    kind = type(X)
    if isinstance(X, (np.ndarray, Sequence)) or issparse(X):
        return True
    if hasattr(kind, "__dask_graph__") or kind.__module__.partition(".")[0] in ("anndata", "xarray", "zarr"):
        return False
    # Other data frames go to `open_matrix`, also those that are arrays to NumPy.
    return arrays.is_pandas(X) or (hasattr(kind, "__array__") and not hasattr(kind, "columns"))
