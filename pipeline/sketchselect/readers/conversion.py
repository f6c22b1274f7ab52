"""Conversion of files that are not Zarr, and of badly chunked Zarr, to a store that is quick to read: `convert`."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.csr import densify, is_csr
from sketchselect.location import Location, is_url, locate
from sketchselect.readers.base import Matrix, as_names
from sketchselect.readers.formats import TEXT
from sketchselect.readers.opening import format_of, open_matrix
from sketchselect.readers.text import CsvRows
from sketchselect.readers.writing import (
    aligned,
    create_array,
    create_columns,
    destination_of,
    put_in_place,
    write_csr,
)
from sketchselect.readers.zarr.matrix import ATTRIBUTE
from sketchselect.readers.zarr.metadata import MAX_CHUNK_BYTES

CHUNK_VALUES = 2 << 20
"""Values in a chunk where no size is asked for: 16 MiB of float64, 8 MiB of float32."""

BLOCK_BYTES = 64 << 20
"""Decoded bytes in memory at a time, at most, unless one chunk row is larger."""

_COUNTED_ROWS = 20
"""Rows from which on rising whole numbers are taken for identifiers."""

_CHUNKS = re.compile(r"\s*(\d+)\s*[xX,]\s*(\d+)\s*")

Progress = Callable[[int, int], None]


def convert(
    source: Any,
    destination: str | os.PathLike[str],
    *,
    chunks: str | tuple[int, int] | None = None,
    key: str | None = None,
    feature_names: Sequence[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Path | str:
    """Write a matrix as a Zarr v3 array that is quick to read, checks itself, and has a file for every chunk.

    Sparse matrices stay sparse: they become a group in the layout of AnnData, unless `chunks` asks for a dense array.

    Chunks are compressed with zstd and carry a checksum; the type stays (in native byte order; text becomes float64).
    The array is written beside its destination and renamed when complete (in an object store copied, its document
    last), so an interrupted run leaves nothing under the final name. Needs memory for a few chunk rows; archives and
    Matrix Market files are read whole.

    Text columns of a ``.csv`` file are no features: the store becomes a group with the numbers in ``X`` and each such
    column in ``obs``, for a job's target or labels, as does every column left out by ``key="-id,outcome"``. The first
    column of the file, if it is text or left out, names the rows. Empty fields and NA become NaN. A warning says so.

    Parameters
    ----------
    source : path, URL or object
        A source of `open_matrix`; also ``.csv`` and ``.tsv`` (a first line that is not all numbers holds the column
        names; ``.gz`` too). A Zarr array is written again in other chunks; pass
        ``open_matrix(path, missing_chunks="fill")`` where chunks of zeros were left out.
    destination : path or URL
        A folder; a store that `convert` wrote before is replaced, anything else is left alone.
    chunks : "ROWSxCOLS" or (rows, columns), default whole rows
        Shape of a chunk, and a dense array in any case. By default whole rows up to 2^21 values (16 MiB of float64).
    key : str or None
        The array inside an ``.npz`` archive or Zarr group; of a text file the columns to leave out, ``"-NAME,NAME"``.
    feature_names : sequence of str or None
        Names of the columns; by default those of the source.
    storage_options : mapping or None
        Arguments of the file system of a remote source, a remote destination, or both.
    progress : callable or None
        Called with ``(rows written, rows in all)``; blank lines of a text file count in the second number.

    Returns
    -------
    Path or str
        The destination; a URL as text.

    Raises
    ------
    SourceError
        If the source cannot be read; of a text file with line and column.
    NotOurFolder
        If the destination exists and was not written by us.
    BadParameter
        If `chunks` or `feature_names` do not fit.
    SketchSelectError
        If the disk refuses.
    """
    remote = is_url(os.fspath(destination))
    target = destination_of(destination, storage_options if remote else None)
    if remote and not (isinstance(source, (str, os.PathLike)) and is_url(os.fspath(source))):
        storage_options = None
    rows = _open(source, key, storage_options)
    n_rows, n_columns = rows.n_rows, rows.n_columns
    dtype = rows.dtype.newbyteorder("=")
    names = rows.names
    if feature_names is not None:
        names = as_names(feature_names, n_columns)
        if names is None:
            raise BadParameter(f"feature_names must be {n_columns} texts, one per column")
    sparse = chunks is None and isinstance(rows, MatrixRows) and rows.matrix.is_sparse
    shape = _chunk_shape(chunks, n_rows, n_columns, dtype)
    folder = getattr(rows, "folder", None)
    if folder is not None and _is_in(target, folder):
        raise BadParameter(f"{target.address}: source and destination must be different folders")
    step = _block_rows(shape[0], n_columns * max(dtype.itemsize, 4), rows.chunk_rows)
    attributes = {} if names is None else {ATTRIBUTE: list(names)}
    with put_in_place(target) as temporary:
        if sparse:
            write_csr(temporary, rows.matrix, names, progress)
            return _result(target)
        place, columns = (temporary.join("X"), create_columns(temporary, rows)) if rows.texts else (temporary, [])
        array = create_array(place, (n_rows, n_columns), shape, dtype, attributes)
        done, counting = 0, np.full(n_columns, isinstance(rows, CsvRows) and n_rows >= _COUNTED_ROWS)
        for block, *texts in aligned(rows.partitions(step), step):
            for column, entries in zip([array, *columns], [block.astype(dtype, copy=False), *texts], strict=True):
                column[done : done + len(entries)] = entries
            done += block.shape[0]
            if counting.any():
                rises = np.diff(block[:, counting], axis=0)
                counting[counting] = ((rises > 0) & (rises % 1 == 0)).all(axis=0)
            if progress is not None:
                progress(done, n_rows)
        if done < n_rows:
            for column in (array, *columns):
                column.resize((done, *column.shape[1:]))
    if isinstance(rows, CsvRows):
        _warn_of(rows, np.flatnonzero(counting))
    return _result(target)


def _result(target: Location) -> Path | str:
    return Path(target.url) if target.is_local else target.url


def _is_in(target: Location, source: Location) -> bool:
    """Return whether a store written here would replace the source, or the store that it is in."""
    if not (target.is_local and source.is_local):
        return f"{source.url}/".startswith(f"{target.url}/")
    place, folder = Path(target.url).resolve(), Path(source.url).resolve()
    return place in (folder, *folder.parents)


def _warn_of(rows: CsvRows, counting: Array) -> None:
    """Warn of what a text file holds beside numbers, and of columns that count the rows."""
    for name in [rows.names[j] for j in counting[:8]] if rows.names else ():
        warnings.warn(
            f"{rows.address}: column {name!r:.80} rises by whole numbers, as identifiers do, and is a feature; "
            f'key="-{name:.80}" (--key=-NAME) leaves it out',
            stacklevel=3,
        )
    if rows.texts:
        first = f", {next(iter(rows.texts))!r:.80} names the rows" if rows.has_row_names else ""
        listed = ", ".join(f'"obs/{name:.80}"' for name in list(rows.texts)[:8])
        warnings.warn(
            f"{rows.address}: {len(rows.texts)} of {len(rows.texts) + rows.n_columns} columns are text"
            f"{' or left out' if rows.measured else ''} and no features{first}; "
            f"target or labels of a job may be {listed}",
            stacklevel=3,
        )
    if rows.like_numbers:
        warnings.warn(
            f"{rows.address}: text looks like numbers in {', '.join(f'{n!r:.80}' for n in rows.like_numbers[:8])}; "
            "written as 1234.5 (decimal point, no separators, no unit) they are features",
            stacklevel=3,
        )
    if repeated := [name for name, times in Counter(rows.names or ()).items() if times > 1]:
        warnings.warn(
            f"{rows.address}: several columns are named {', '.join(f'{n!r:.80}' for n in repeated[:8])}; give each its "
            "own name",
            stacklevel=3,
        )
    if rows.n_missing:
        warnings.warn(
            f"{rows.address}: {rows.n_missing:,} fields are missing; a job takes them with input.nonfinite = "
            '"missing" and the prepare step "impute"',
            stacklevel=3,
        )


class MatrixRows:
    """The rows of a matrix, block by block."""

    def __init__(self, matrix: Matrix, folder: Location | None) -> None:
        self.n_rows, self.n_columns = matrix.shape
        self.dtype = matrix.dtype
        self.names = matrix.feature_names
        self.chunk_rows = matrix.chunk_rows
        self.folder = folder
        self.matrix = matrix
        self.texts: dict[str, int] = {}

    def partitions(self, n_rows: int) -> Iterator[tuple[Array, ...]]:
        """Yield blocks of `n_rows` rows, in order; the last may be shorter."""
        for start in range(0, self.n_rows, n_rows):
            block = self.matrix.read_rows(start, min(start + n_rows, self.n_rows))
            yield (densify(block) if is_csr(block) else block,)


def _open(source: Any, key: str | None, storage_options: Mapping[str, Any] | None) -> Any:
    if not isinstance(source, (str, os.PathLike)):
        return MatrixRows(open_matrix(source, key=key, storage_options=storage_options), None)
    place = locate(source, storage_options)
    if format_of(place) is TEXT:
        if key is not None and not key.startswith("-"):
            raise BadParameter(f'{place.address}: of a text file, key can only leave columns out: key="-NAME,NAME"')
        return CsvRows(place, [] if key is None else [name.strip() for name in key[1:].split(",")])
    return MatrixRows(open_matrix(source, key=key, storage_options=storage_options), place)


def _chunk_shape(
    chunks: str | tuple[int, int] | None, n_rows: int, n_columns: int, dtype: np.dtype[Any]
) -> tuple[int, int]:
    if chunks is None:
        return min(n_rows, max(1, CHUNK_VALUES // n_columns)), min(n_columns, CHUNK_VALUES)
    match = _CHUNKS.fullmatch(chunks) if isinstance(chunks, str) else None
    shape = (int(match[1]), int(match[2])) if match else chunks
    if (
        not isinstance(shape, (tuple, list))
        or len(shape) != 2
        or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in shape)
    ):
        raise BadParameter(f'chunks must be "ROWSxCOLS" with two positive numbers, got {chunks!r:.60}')
    shape = (min(shape[0], n_rows), min(shape[1], n_columns))
    if math.prod(shape) * dtype.itemsize > MAX_CHUNK_BYTES:
        raise BadParameter(
            f"chunks of {shape[0]}x{shape[1]} take more than {MAX_CHUNK_BYTES >> 30} GiB; choose smaller ones"
        )
    return shape


def _block_rows(written: int, row_bytes: int, read: int) -> int:
    """Return the rows of a block: whole chunk rows as written, and of the source's where that fits."""
    fitting = max(1, BLOCK_BYTES // row_bytes)
    n_rows = min(max(read, written), fitting)
    n_rows *= fitting // n_rows
    return max(1, n_rows // written) * written
