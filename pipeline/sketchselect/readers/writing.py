"""Writing of Zarr arrays and CSR groups, with checksums and put in place as a whole; conversion to them (`convert`)."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect._text import first_names, listed_names
from sketchselect.errors import BadParameter, NotOurFolder, SketchSelectError, SourceChanged, warn
from sketchselect.linalg.csr import densify
from sketchselect.linalg.validation import Array, is_csr
from sketchselect.location import Location, is_url, is_within, locate
from sketchselect.readers import arrays, row_order
from sketchselect.readers.base import (
    ENTRY_NBYTES,
    Matrix,
    require_distinct,
    row_partitions,
    row_texts,
    warn_of_rounding,
)
from sketchselect.readers.dask import LazyIndex
from sketchselect.readers.opening import TEXT, format_by_ending, format_of, given_names, open_matrix, warn_of_doubts
from sketchselect.readers.tables import ENCODINGS, LEAST_COUNTED, different_columns, doubts_of, rising_columns
from sketchselect.readers.text import CsvRows
from sketchselect.readers.zarr.matrix import ATTRIBUTE, read_node
from sketchselect.readers.zarr.metadata import LEFT_OUT, MARKER, MAX_CHUNK_BYTES
from sketchselect.readers.zarr.seal import seal

ZSTD_LEVEL = 1
WRITTEN = {MARKER: {"empty_chunks": "written"}}
"""Attribute that marks a store as ours, with a file for every chunk."""
ROOT = "zarr.json"
"""Document that makes a folder a store."""
_NODE = re.compile(r"[^/\\\x00-\x1f\x7f]{1,60}")
"""Titles that are names of folders on every disk, of at most 240 bytes."""
TEXT_ROWS = 1 << 16
"""Entries in a chunk of a text column."""


def create_array(
    location: Location,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: Any,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Return a new Zarr v3 array in a folder that does not exist yet: zstd with checksum, empty chunks written, marked.

    `location`: The folder.
    `shape`, `chunks`: Of the array and of its chunks.
    `dtype`: Native byte order is used; text may be `str`.
    `attributes`: Further attributes, with our marker.
    """
    import zarr
    from zarr.codecs import ZstdCodec

    from sketchselect.readers.zarr.store import make_store

    return zarr.create_array(
        make_store(location, read_only=False),
        shape=shape,
        chunks=chunks,
        dtype=str if dtype is str else np.dtype(dtype).newbyteorder("="),
        compressors=ZstdCodec(level=ZSTD_LEVEL, checksum=True),
        attributes=WRITTEN | dict(attributes or {}),
        config={"write_empty_chunks": True},
        **({} if dtype is str else {"fill_value": 0}),
    )


def create_group(location: Location, attributes: Mapping[str, Any]) -> None:
    """Make a new Zarr v3 group in a folder that does not exist yet."""
    import zarr

    from sketchselect.readers.zarr.store import make_store

    zarr.create_group(make_store(location, read_only=False), attributes=dict(attributes))


def create_columns(location: Location, rows: Any) -> list[Any]:
    """Return new arrays for the other columns of a table, in ``obs`` of a group in the layout of AnnData.

    `rows`: Has `texts`, the columns by name, `measured`, which of them are numbers, `left_out`, `has_row_names` and
        `n_rows`.
    """
    kind = {"encoding-type": "anndata", "encoding-version": "0.1.0"}
    create_group(location, WRITTEN | kind)
    names = list(rows.texts)
    index = {"_index": names[0]} if rows.has_row_names else {}
    frame: dict[str, Any] = {
        "encoding-type": "dataframe",
        "encoding-version": "0.2.0",
        "column-order": names[bool(index) :],
        **index,
    }
    if rows.left_out:
        frame[LEFT_OUT] = sorted(rows.left_out)
    create_group(location.join("obs"), frame)
    columns = []
    for name, place in rows.texts.items():
        dtype, form = (float, "array") if place in rows.measured else (str, "string-array")
        attributes = {"encoding-type": form, "encoding-version": "0.2.0"}
        chunks = (min(rows.n_rows, TEXT_ROWS),)
        columns.append(create_array(location.join(f"obs/{name}"), (rows.n_rows,), chunks, dtype, attributes))
    return columns


def aligned(blocks: Iterable[tuple[Array, ...]], step: int) -> Iterator[tuple[Array, ...]]:
    """Yield the same entries in blocks of exactly `step` but for the last, so that no chunk is written twice.

    A block is one or several arrays of the same length.
    """
    buffer: list[tuple[Array, ...]] = []
    n_entries = 0
    for block in blocks:
        buffer.append(block)
        n_entries += block[0].shape[0]
        while n_entries >= step:
            whole = _joined(buffer)
            yield tuple(array[:step] for array in whole)
            buffer = [tuple(array[step:] for array in whole)]
            n_entries -= step
    if n_entries:
        yield _joined(buffer)


def _joined(blocks: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    return blocks[0] if len(blocks) == 1 else tuple(map(np.concatenate, zip(*blocks, strict=True)))


def destination_of(path: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Location:
    """Return the location of a store to be written: a URL, or a path in a folder that exists.

    Raises `BadParameter` if the name has the ending of another format, the folder does not exist, or the URL is one of
    a web server.
    """
    location = locate(path, storage_options)
    if (known := format_by_ending(location.name.lower())) is not None:
        raise BadParameter(
            f"{location.address}: what is written is a Zarr store, not {known.name}; use a name that ends in .zarr"
        )
    if location.is_local and not Path(location.url).parent.is_dir():
        raise BadParameter(f"{location.url}: the folder {Path(location.url).parent} does not exist; make it first")
    if not location.has_listing:
        raise BadParameter(f"{location.address}: web servers take no files; write to s3://, gs://, az:// or a folder")
    return location


@contextlib.contextmanager
def put_in_place(destination: Location) -> Iterator[Location]:
    """Yield a temporary folder next to `destination` that takes its name when the block ends without an error.

    What was there before is replaced only if it is a store of ours. After an error, or Ctrl-C, the temporary folder is
    removed; after a crash it stays under its temporary name, and on a local disk the next successful call removes it.
    Object stores rename nothing: there every file is copied within the store, the document that makes the folder a
    store last, so that readers see no half of one.
    Raises `NotOurFolder` if something else is there; `SketchSelectError` if the disk refuses (full, read-only), naming
    the destination.
    """
    temporary = destination.sibling(
        f".{destination.name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}.partial"
    )
    require_ours(destination)
    put, remove = (_swap, _remove) if destination.is_local else (_copy, _remove_remote)
    try:
        if destination.is_local:
            _unfinished.add(temporary.url)
        yield temporary
        require_ours(destination)
        _unfinished.discard(temporary.url)
        put(temporary, destination)
    except OSError as error:
        if not destination.is_local:
            raise destination.failure(error, "written") from error
        raise SketchSelectError(
            f"{destination.url}: cannot be written ({error.strerror or type(error).__name__}); nothing was left there"
        ) from error
    finally:
        _unfinished.discard(temporary.url)
        remove(temporary)
    if destination.is_local:
        _remove_leftovers(Path(destination.url))


_unfinished: set[str] = set()
"""Temporary local folders of stores that are being written."""


def remove_unfinished() -> None:
    """Remove the temporary folders of stores that are half written, when the process is about to end."""
    for folder in list(_unfinished):
        for _ in range(3):  # other threads may still be writing
            shutil.rmtree(folder, ignore_errors=True)


def _remove(temporary: Location) -> None:
    """Remove a folder that other threads may still be writing their last chunks to."""
    for _ in range(100):
        shutil.rmtree(temporary.url, ignore_errors=True)
        if not os.path.exists(temporary.url):
            return
        time.sleep(0.02)


def _remove_remote(temporary: Location) -> None:
    with contextlib.suppress(OSError):
        temporary.filesystem()[0].invalidate_cache()
        _remove_files(temporary)


def _remove_files(folder: Location) -> None:
    """Remove the files of a remote folder; of this name only, which fsspec would take for a pattern of others too."""
    fs, path = folder.filesystem()
    if re.search(r"[*?[]", path) is None:
        fs.rm(path, recursive=True)
        return
    for key, _, _ in folder.files():
        fs.rm_file(f"{path}/{key}")


def _copy(temporary: Location, destination: Location) -> None:
    fs, path = destination.filesystem()
    _, source = temporary.filesystem()
    # Without its document what was there is no store any more, and has none of the new chunks.
    with contextlib.suppress(FileNotFoundError):
        fs.rm_file(f"{path}/{ROOT}")
    with contextlib.suppress(FileNotFoundError):
        _remove_files(destination)
    # Lists, whose names are no patterns.
    for keys in ([key for key, _, _ in temporary.files() if key != ROOT], [ROOT]):
        fs.copy([f"{source}/{key}" for key in keys], [f"{path}/{key}" for key in keys])
    fs.invalidate_cache()


def require_ours(destination: Location) -> None:
    """Raise `NotOurFolder` unless the place is free or holds a store with our marker."""
    node = None
    if destination.is_local:
        if not os.path.lexists(destination.url):
            return
        if os.path.isdir(destination.url) and not os.path.islink(destination.url):
            with contextlib.suppress(SketchSelectError):
                node = read_node(destination)
    else:
        node = read_node(destination)
        if node is None and destination.version() is None:
            return
    if node is None or MARKER not in node.attributes:
        raise NotOurFolder(
            f"{destination.address}: exists and was not written by sketchselect, so it is not overwritten; choose "
            "another name"
        )


def _swap(temporary_folder: Location, place: Location) -> None:
    temporary, destination = Path(temporary_folder.url), Path(place.url)
    if not destination.exists():
        os.rename(temporary, destination)
        return
    old = temporary.with_suffix(".old.partial")
    os.rename(destination, old)
    try:
        os.rename(temporary, destination)
    except OSError:
        os.rename(old, destination)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _remove_leftovers(destination: Path) -> None:
    """Remove temporary folders of this destination whose process, on this machine, is gone."""
    for path in destination.parent.glob(f".{_literal(destination.name)}.{_literal(socket.gethostname())}.*.partial"):
        pid = path.name.rsplit(".", 3 if not path.name.endswith(".old.partial") else 4)[1]
        if pid.isdigit() and int(pid) != os.getpid() and not _alive(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _literal(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


CHUNK_ENTRIES = 1 << 20
"""Entries in a chunk: 8 MiB of float64 values, 4 MiB of indices."""

_BLOCK_ENTRIES = 4 << 20


def write_csr(
    folder: Location, matrix: Matrix, names: Sequence[str] | None, progress: Callable[[int, int], None] | None
) -> None:
    """Write a sparse matrix as a group of ``data``, ``indices`` and ``indptr``, a few chunks in memory at a time."""
    n_rows, n_columns = matrix.shape
    offsets = matrix.entry_offsets
    dtype = matrix.dtype.newbyteorder("=")
    attributes: dict[str, Any] = {
        **WRITTEN,
        "encoding-type": "csr_matrix",
        "encoding-version": "0.1.0",
        "shape": [n_rows, n_columns],
    }
    if names is not None:
        attributes[ATTRIBUTE] = list(names)
    create_group(folder, attributes)
    index = np.dtype(np.int32 if n_columns <= np.iinfo(np.int32).max else np.int64)
    n_entries = CHUNK_ENTRIES if offsets is None else max(int(offsets[-1]), 1)
    chunk = (min(CHUNK_ENTRIES, n_entries),)
    data = create_array(folder.join("data"), (n_entries,), chunk, dtype)
    indices = create_array(folder.join("indices"), (n_entries,), chunk, index)
    ends = np.zeros(n_rows + 1, np.int64)
    done = 0
    for values, columns in aligned(_blocks(matrix, ends, progress), max(1, _BLOCK_ENTRIES // chunk[0]) * chunk[0]):
        if done + values.size > n_entries:
            n_entries = done + values.size
            data.resize((n_entries,))
            indices.resize((n_entries,))
        data[done : done + values.size] = values.astype(dtype, copy=False)
        indices[done : done + values.size] = columns.astype(index, copy=False)
        done += values.size
    # Entries stored twice, and stored zeros, are gone from what is written.
    data.resize((done,))
    indices.resize((done,))
    indptr = create_array(folder.join("indptr"), ends.shape, (min(CHUNK_ENTRIES, n_rows + 1),), np.int64)
    indptr[:] = ends
    for name, array in (("data", data), ("indices", indices), ("indptr", indptr)):
        seal(folder.join(name), array)
    seal(folder)


def _blocks(matrix: Matrix, ends: Array, progress: Callable[[int, int], None] | None) -> Iterator[tuple[Array, Array]]:
    edges = row_partitions(matrix, ENTRY_NBYTES * _BLOCK_ENTRIES, sparse=True).edges
    for start, stop in pairwise(edges):
        block = matrix.read_rows(start, stop)
        ends[start + 1 : stop + 1] = ends[start] + block.indptr[1:]
        yield block.data, block.indices
        if progress is not None:
            progress(stop, matrix.shape[0])


CHUNK_VALUES = 2 << 20
"""Values in a chunk where no size is asked for: 16 MiB of float64, 8 MiB of float32."""

BLOCK_BYTES = 64 << 20
"""Decoded bytes in memory at a time, at most, unless one chunk row is larger."""

_CHUNKS = re.compile(r"\s*(\d+)\s*[xX,]\s*(\d+)\s*")

Progress = Callable[[int, int], None]


def convert(
    source: Any,
    destination: str | os.PathLike[str],
    *,
    chunks: str | tuple[int, int] | None = None,
    key: str | None = None,
    feature_names: str | os.PathLike[str] | Sequence[str] | None = None,
    decimal: str = ".",
    storage_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Path | str:
    """Write a matrix as a Zarr v3 array that is quick to read, checks itself, and has a file for every chunk.

    Sparse matrices stay sparse: they become a group in the layout of AnnData, unless `chunks` asks for a dense array.

    Chunks are compressed with zstd and carry a checksum; the type stays (in native byte order; text becomes float64).
    Names, shape and type have a digest, which is checked whenever the store is opened, and so have all chunk files in
    their order, for `sketchselect verify`.
    The array is written next to its destination and renamed when complete (in an object store copied, its document
    last), so an interrupted run leaves nothing under the final name. Needs memory for a few chunk rows, and for
    the index of a frame of Dask; archives and Matrix Market files are read whole.

    Text columns of a ``.csv`` file are no features: the store becomes a group with the numbers in ``X`` and each such
    column in ``obs``, for a job's target or labels and the steps ``one-hot`` and ``dates``. So does every column left
    out by ``key="-id,outcome"``, which these steps do not take. The first column of the file, if it is text or left
    out, names the rows. Empty fields and NA become NaN. A warning says so. The index of a table of Parquet or pandas,
    one of Dask if it has a title, and the names of the rows of AnnData go into ``obs`` too, but for those that pandas
    numbered. A warning names an index that does not: of dates, floats or several levels, or of an Arrow table.

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
    feature_names : path, sequence of str or None
        Names of the columns, or a text file with one a line; by default those of the source.
    decimal : "." or ","
        Sign before the decimals of a text file; with a comma, numbers with a point are text.
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
    SourceChanged
        If the source was rewritten meanwhile.
    NotOurFolder
        If the destination exists and was not written by us.
    BadParameter
        If `chunks` or `feature_names` do not fit.
    SketchSelectError
        If the disk refuses.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import sketchselect as sks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/rows.npy", np.ones((1000, 5), np.float32))
    ...     _ = sks.convert(f"{folder}/rows.npy", f"{folder}/rows.zarr")
    ...     sks.open_matrix(f"{folder}/rows.zarr").shape
    (1000, 5)
    """
    remote = is_url(os.fspath(destination))
    target = destination_of(destination, storage_options if remote else None)
    if remote and not (isinstance(source, (str, os.PathLike)) and is_url(os.fspath(source))):
        storage_options = None
    if isinstance(source, (str, os.PathLike)) and _is_in(target, locate(source, storage_options)):
        raise BadParameter(f"{target.address}: source and destination must be different folders, neither in the other")
    rows = _open(source, key, decimal, storage_options)
    n_rows, n_columns = rows.n_rows, rows.n_columns
    dtype = rows.dtype.newbyteorder("=")
    names = rows.names
    if feature_names is not None:
        names = given_names(feature_names, n_columns, rows.address)
    require_distinct(names, rows.address if isinstance(rows, CsvRows) else "feature_names")
    sparse = chunks is None and isinstance(rows, MatrixRows) and rows.matrix.is_sparse
    shape = _chunk_shape(chunks, n_rows, n_columns, dtype)
    step = _block_rows(shape[0], n_columns * max(dtype.itemsize, 4), rows.chunk_rows)
    attributes = {} if names is None else {ATTRIBUTE: list(names)}
    with put_in_place(target) as temporary:
        place, columns = (temporary.join("X"), create_columns(temporary, rows)) if rows.texts else (temporary, [])
        if sparse:
            write_csr(place, rows.matrix, names, progress)
            for column in columns:
                for start in range(0, n_rows, TEXT_ROWS):
                    column[start : start + TEXT_ROWS] = row_texts(rows.row_names, start, min(start + TEXT_ROWS, n_rows))
            _seal_columns(temporary, rows.texts, columns)
            rows.require_unchanged()
            if not rows.has_row_names:
                _warn_of_lost_names(rows.matrix, source)
            return _result(target)
        array = create_array(place, (n_rows, n_columns), shape, dtype, attributes)
        done, rising = 0, np.arange(n_columns if isinstance(rows, CsvRows) and n_rows >= LEAST_COUNTED else 0)
        different: list[str] = []
        for block, *texts in aligned(rows.partitions(step), step):
            for column, entries in zip([array, *columns], [block.astype(dtype, copy=False), *texts], strict=True):
                column[done : done + len(entries)] = entries
            done += block.shape[0]
            rising = rising[rising_columns(block[:, rising])]
            if done == block.shape[0] and isinstance(rows, CsvRows):
                different = different_columns(block, rows.names or ())
            if progress is not None:
                progress(done, n_rows)
        if done < n_rows:
            for column in (array, *columns):
                column.resize((done, *column.shape[1:]))
        _seal_columns(temporary, rows.texts, columns)
        seal(place, array)
        rows.require_unchanged()
    if isinstance(rows, CsvRows):
        _warn_of(rows, rising, different)
    else:
        warn_of_doubts(rows.matrix.doubts)
    if isinstance(rows, MatrixRows) and key is not None and key.startswith("-"):
        warn(
            f"{rows.address}: the columns left out are not in the store; a job that needs one as target, labels or row "
            "names can read the table itself, or a file with that column alone"
        )
    if isinstance(rows, MatrixRows) and not rows.has_row_names:
        _warn_of_lost_names(rows.matrix, source)
    return _result(target)


def _seal_columns(folder: Location, names: Iterable[str], columns: Sequence[Any]) -> None:
    for name, column in zip(names, columns, strict=True):
        seal(folder.join(f"obs/{name}"), column)
    if columns:
        seal(folder.join("obs"))
        seal(folder)


def _warn_of_lost_names(matrix: Matrix, source: Any) -> None:
    others = matrix.unread_columns
    titles = [
        getattr(matrix.row_names, "name", None),
        *(others if matrix.in_memory or isinstance(others, LazyIndex) else getattr(others, "index", ())),
        *(in_arrow := arrays.index_in_arrow(source)),
    ]
    title = next((title for title in titles if title and not title.startswith("__index_level_")), None)
    is_lazy = isinstance(others, LazyIndex) and others.has_untitled_names
    # Dates, several levels, and missing names without a title; pandas sets a range by itself.
    is_untitled = matrix.in_memory and arrays.is_pandas(source) and not row_order.is_count(source.index)
    if any(titles) or is_untitled or is_lazy:
        which = "the index" if title is None else f"the index {title!r:.80}"
        cure = "a job that reads the table itself has the names"
        if in_arrow:
            cure = (
                "those of a frame of pandas would be where they are text: frame = table.to_pandas(), then "
                "frame.index = frame.index.map(str)"
            )
        elif is_lazy:
            cure = (
                "names that are text would be, under a title: in Dask, frame.map_partitions(lambda part: "
                'part.set_axis(part.index.map(str).rename("row")))'
            )
        elif title is None:
            cure = "names that are text would be: in pandas, frame.index = frame.index.map(str)"
        warn(
            f"{matrix.address}: {which}, the names of the rows, is not in the store, so that targets and labels of it "
            f"go by place; {cure}"
        )


def _result(target: Location) -> Path | str:
    return Path(target.url) if target.is_local else target.url


def _is_in(target: Location, source: Location) -> bool:
    """Return whether a store written here would replace the source, or the store that it is in, or lie in them."""
    if is_within(target.url, source.url, of_whole_store=False):
        return True
    if not (target.is_local and source.is_local):
        return f"{source.url}/".startswith(f"{target.url}/")
    place, folder = Path(target.url).resolve(), Path(source.url).resolve()
    return place in (folder, *folder.parents)


def _warn_of(rows: CsvRows, rising: Array, different: Sequence[str]) -> None:
    """Warn of a text file's entries that are not numbers, and of columns that number the rows."""
    if rows.may_be_names:
        warn(
            f"{rows.address}: the first line rises by whole numbers and is read as a row; if these are names of "
            "columns, put a letter before one of them and convert again"
        )
    warn_of_doubts(doubts_of(rows.address, [rows.names[j] for j in rising] if rows.names else (), different))
    if rows.texts:
        first = f", {next(iter(rows.texts))!r:.80} names the rows" if rows.has_row_names else ""
        listed = ", ".join(f'"obs/{name:.80}"' for name in list(rows.texts)[:8])
        kinds = ["text"] * bool(rows.texts.keys() - rows.left_out) + ["left out"] * bool(rows.left_out)
        encoding = f'; the prepare step "{ENCODINGS["text"]}" makes features of text' if "text" in kinds else ""
        if encoding:
            encoding += ', but for columns that key = "-NAME,NAME" leaves out, of convert or of a job\'s [input]'
        warn(
            f"{rows.address}: {len(rows.texts)} of {len(rows.texts) + rows.n_columns} columns "
            f"{'is' if len(rows.texts) == 1 else 'are'} {' or '.join(kinds)} and not used as features{first}; "
            f"target, labels or dates of a job may be {listed}{encoding}"
        )
    if rows.like_numbers:
        commas = '; decimal commas are read with decimal="," (--decimal ,)' if rows.decimal == "." else ""
        warn(
            f"{rows.address}: text looks like numbers in {', '.join(f'{n!r:.80}' for n in rows.like_numbers[:8])}; "
            f"written as 1234{rows.decimal}5 (decimal {'point' if rows.decimal == '.' else 'comma'}, no separators, no "
            f"unit) they are features{commas}"
        )
    if rows.like_dates:
        warn(
            f"{rows.address}: dates such as 31.12.2024 or 12/31/2024 in {first_names(rows.like_dates, 8)} are read as "
            'text; written as 2024-12-31 (pandas: to_datetime(column, format="%d.%m.%Y") or "%m/%d/%Y") they are dates '
            f'for the prepare step "{ENCODINGS["dates"]}"'
        )
    nearly = [name for name, count in rows.nearly_numbers.items() if count.is_nearly_all]
    if nearly := [name for name in nearly if name not in rows.like_numbers]:
        count = rows.nearly_numbers[nearly[0]]
        # A sign for a missing value is shown, and no word or number of the data.
        sign = f"{count.field!r} " if len(count.field) <= 3 and not any(map(str.isalnum, count.field)) else "that "
        warn(
            f"{rows.address}: {nearly[0]!r:.80}: {count.n_numbers:,} of {count.n_numbers + count.n_others:,} values "
            f"are numbers; {sign}in line {count.line} is not, so the column is text: leave it empty if it is missing"
            + (f"; likewise in {first_names(nearly[1:], 8)}" if nearly[1:] else "")
        )
    warn_of_rounding([rows.largest_whole], rows.address)
    if rows.n_missing:
        missing = "1 field is" if rows.n_missing == 1 else f"{rows.n_missing:,} fields are"
        warn(f'{rows.address}: {missing} missing; the prepare step "impute" fills them')


class MatrixRows:
    """The rows of a matrix, block by block."""

    def __init__(self, matrix: Matrix) -> None:
        self.n_rows, self.n_columns = matrix.shape
        self.dtype, self.address = matrix.dtype, matrix.address
        self.names = matrix.feature_names
        self.chunk_rows = matrix.chunk_rows
        self.matrix = matrix
        title, self.row_names = _index_of(matrix)
        self.texts: dict[str, int] = {} if title is None else {title: 0}
        self.has_row_names, self.measured, self.left_out = bool(self.texts), (), ()
        self._content = self._content_now()

    def _content_now(self) -> str | None:
        """Return what tells whether rows were rewritten; None in memory, where no one else writes."""
        if self.matrix.in_memory:
            return None
        identity = self.matrix.identity(0, self.n_rows)
        return self.matrix.witness() if identity is None and self.matrix.is_remote else identity

    def require_unchanged(self) -> None:
        """Raise `SourceChanged` if the rows were rewritten since they were opened."""
        if self._content_now() != self._content:
            raise SourceChanged(
                f"{self.address}: it was rewritten while it was read; run again when no one writes to it"
            )

    def partitions(self, n_rows: int) -> Iterator[tuple[Array, ...]]:
        """Yield blocks of `n_rows` rows, in order; the last may be shorter."""
        for start in range(0, self.n_rows, n_rows):
            stop = min(start + n_rows, self.n_rows)
            block = self.matrix.read_rows(start, stop)
            names = [np.array(row_texts(self.row_names, start, stop))] if self.has_row_names else []
            yield (densify(block) if is_csr(block) else block, *names)


def _index_of(matrix: Matrix) -> tuple[str | None, Any]:
    """Return the title and the entries of the names of the rows; no title where a row has none."""
    names: Any = matrix.row_names
    if names is None and isinstance(matrix.unread_columns, LazyIndex):
        names = matrix.unread_columns.row_names()
    title = getattr(names, "name", None) or "_index"  # that of AnnData where there is no title
    if names is None or not _NODE.fullmatch(title):
        return None, names
    if title.startswith("__") or title == ROOT or not title.strip("."):
        return None, names
    if getattr(getattr(names, "index", None), "hasnans", False):  # of pandas, whose text may be missing
        return None, names
    with row_order.missing_entries():
        for start in range(0, matrix.shape[0], TEXT_ROWS):
            names.read(start, min(start + TEXT_ROWS, matrix.shape[0]))
        return title, names
    return None, names


def _open(source: Any, key: str | None, decimal: str, storage_options: Mapping[str, Any] | None) -> Any:
    place = locate(source, storage_options) if isinstance(source, (str, os.PathLike)) else None
    if place is not None and format_of(place) is TEXT:
        if key is not None and not key.startswith("-"):
            raise BadParameter(f'{place.address}: of a text file, key can only leave columns out: key="-NAME,NAME"')
        return CsvRows(place, [] if key is None else listed_names(key[1:]), decimal)
    if decimal != ".":
        raise BadParameter(f"decimal goes with text files alone, not with {place.address if place else 'an object'}")
    return MatrixRows(open_matrix(source, key=key, storage_options=storage_options))


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
