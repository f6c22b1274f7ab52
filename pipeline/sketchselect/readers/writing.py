"""Writing of Zarr arrays: with checksums, every chunk, our marker, and put in place as a whole.

Writing of CSR groups: the layout of AnnData, with checksums, put in place as a whole.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter, NotOurFolder, SketchSelectError
from sketchselect.linalg.arrays import Array
from sketchselect.location import Location, locate
from sketchselect.readers.base import Matrix
from sketchselect.readers.formats import format_by_ending
from sketchselect.readers.partitions import ENTRY_NBYTES, row_partitions
from sketchselect.readers.zarr.array import MARKER
from sketchselect.readers.zarr.matrix import ATTRIBUTE, read_node

ZSTD_LEVEL = 1
ROOT = "zarr.json"
"""Document that makes a folder a store."""
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
    `dtype`: Native byte order is used.
    `attributes`: Further attributes, beside our marker.
    """
    import zarr
    from zarr.codecs import ZstdCodec

    from sketchselect.readers.zarr.store import make_store

    marker = {MARKER: {"empty_chunks": "written"}}
    return zarr.create_array(
        make_store(location, read_only=False),
        shape=shape,
        chunks=chunks,
        dtype=np.dtype(dtype).newbyteorder("="),
        compressors=ZstdCodec(level=ZSTD_LEVEL, checksum=True),
        fill_value=0,
        attributes=marker | dict(attributes or {}),
        config={"write_empty_chunks": True},
    )


def create_columns(location: Location, rows: Any) -> list[Any]:
    """Return new arrays for the columns of a table beside its matrix, in ``obs`` of a group in the layout of AnnData.

    `rows`: Has `texts`, the columns by name, `measured`, which of them are numbers, `has_row_names` and `n_rows`.
    """
    import zarr
    from zarr.codecs import ZstdCodec

    from sketchselect.readers.zarr.store import make_store

    marker = {MARKER: {"empty_chunks": "written"}}
    kind = {"encoding-type": "anndata", "encoding-version": "0.1.0"}
    zarr.create_group(make_store(location, read_only=False), attributes=marker | kind)
    names = list(rows.texts)
    index = {"_index": names[0]} if rows.has_row_names else {}
    frame = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "column-order": names[bool(index) :], **index}
    zarr.create_group(make_store(location.join("obs"), read_only=False), attributes=frame)
    return [
        zarr.create_array(
            make_store(location.join(f"obs/{name}"), read_only=False),
            shape=(rows.n_rows,),
            chunks=(min(rows.n_rows, TEXT_ROWS),),
            dtype=float if place in rows.measured else str,
            compressors=ZstdCodec(level=ZSTD_LEVEL, checksum=True),
            attributes=marker
            | {"encoding-type": "array" if place in rows.measured else "string-array", "encoding-version": "0.2.0"},
            config={"write_empty_chunks": True},
        )
        for name, place in rows.texts.items()
    ]


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
            f"{location.address}: a Zarr store is written, not one of {known.name}; use a name that ends in .zarr"
        )
    if location.is_local and not Path(location.url).parent.is_dir():
        raise BadParameter(f"{location.url}: the folder {Path(location.url).parent} does not exist; make it first")
    if not location.has_listing:
        raise BadParameter(f"{location.address}: web servers take no files; write to s3://, gs://, az:// or a folder")
    return location


@contextlib.contextmanager
def put_in_place(destination: Location) -> Iterator[Location]:
    """Yield a temporary folder beside `destination` that takes its name when the block ends without an error.

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
        yield temporary
        require_ours(destination)
        put(temporary, destination)
    except OSError as error:
        if not destination.is_local:
            raise destination.failure(error, "written") from error
        raise SketchSelectError(
            f"{destination.url}: cannot be written ({error.strerror or type(error).__name__}); nothing was left there"
        ) from error
    finally:
        remove(temporary)
    if destination.is_local:
        _remove_leftovers(Path(destination.url))


def _remove(temporary: Location) -> None:
    """Remove a folder that other threads may still be writing their last chunks to."""
    for _ in range(100):
        shutil.rmtree(temporary.url, ignore_errors=True)
        if not os.path.exists(temporary.url):
            return
        time.sleep(0.02)


def _remove_remote(temporary: Location) -> None:
    fs, path = temporary.filesystem()
    with contextlib.suppress(OSError):
        fs.invalidate_cache()
        fs.rm(path, recursive=True)


def _copy(temporary: Location, destination: Location) -> None:
    fs, path = destination.filesystem()
    _, source = temporary.filesystem()
    # Without its document what was there is no store any more, and has none of the new chunks.
    for name in (ROOT, None):
        with contextlib.suppress(FileNotFoundError):
            fs.rm(path if name is None else f"{path}/{name}", recursive=name is None)
    keys = [key for key, _, _ in temporary.files() if key != ROOT]
    fs.copy([f"{source}/{key}" for key in keys], [f"{path}/{key}" for key in keys])
    fs.copy(f"{source}/{ROOT}", f"{path}/{ROOT}")
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
    import zarr

    from sketchselect.readers.zarr.store import make_store

    n_rows, n_columns = matrix.shape
    offsets = matrix.entry_offsets
    dtype = matrix.dtype.newbyteorder("=")
    attributes: dict[str, Any] = {
        MARKER: {"empty_chunks": "written"},
        "encoding-type": "csr_matrix",
        "encoding-version": "0.1.0",
        "shape": [n_rows, n_columns],
    }
    if names is not None:
        attributes[ATTRIBUTE] = list(names)
    zarr.create_group(make_store(folder, read_only=False), attributes=attributes)
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


def _blocks(matrix: Matrix, ends: Array, progress: Callable[[int, int], None] | None) -> Iterator[tuple[Array, Array]]:
    edges = row_partitions(matrix, ENTRY_NBYTES * _BLOCK_ENTRIES, sparse=True).edges
    for start, stop in pairwise(edges):
        block = matrix.read_rows(start, stop)
        ends[start + 1 : stop + 1] = ends[start] + block.indptr[1:]
        yield block.data, block.indices
        if progress is not None:
            progress(stop, matrix.shape[0])
