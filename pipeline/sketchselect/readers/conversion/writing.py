"""Writing of Zarr arrays: with checksums, every chunk, our marker, and put in place as a whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect.errors import NotOurFolder, SketchSelectError
from sketchselect.linalg.arrays import Array
from sketchselect.location import Location
from sketchselect.readers.zarr.node import read_node
from sketchselect.readers.zarr.scan import MARKER

ZSTD_LEVEL = 1
TEXT_ROWS = 1 << 16
"""Entries in a chunk of a text column."""


def create_array(
    path: Path | str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: Any,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Return a new Zarr v3 array in a folder that does not exist yet: zstd with checksum, empty chunks written, marked.

    `path`: Local folder.
    `shape`, `chunks`: Of the array and of its chunks.
    `dtype`: Native byte order is used.
    `attributes`: Further attributes, beside our marker.
    """
    import zarr
    from zarr.codecs import ZstdCodec
    from zarr.storage import LocalStore

    marker = {MARKER: {"empty_chunks": "written"}}
    return zarr.create_array(
        LocalStore(path),
        shape=shape,
        chunks=chunks,
        dtype=np.dtype(dtype).newbyteorder("="),
        compressors=ZstdCodec(level=ZSTD_LEVEL, checksum=True),
        fill_value=0,
        attributes=marker | dict(attributes or {}),
        config={"write_empty_chunks": True},
    )


def create_columns(path: Path, rows: Any) -> list[Any]:
    """Return new arrays for the text columns of a table, in ``obs`` of a group for its matrix in the layout of AnnData.

    `rows`: Has `texts`, the names of the columns, `has_row_names` and `n_rows`.
    """
    import zarr
    from zarr.codecs import ZstdCodec
    from zarr.storage import LocalStore

    marker = {MARKER: {"empty_chunks": "written"}}
    kind = {"encoding-type": "anndata", "encoding-version": "0.1.0"}
    zarr.create_group(LocalStore(path), attributes=marker | kind)
    names = list(rows.texts)
    index = {"_index": names[0]} if rows.has_row_names else {}
    frame = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "column-order": names[bool(index) :], **index}
    zarr.create_group(LocalStore(path / "obs"), attributes=frame)
    return [
        zarr.create_array(
            LocalStore(path / "obs" / name),
            shape=(rows.n_rows,),
            chunks=(min(rows.n_rows, TEXT_ROWS),),
            dtype=str,
            compressors=ZstdCodec(level=ZSTD_LEVEL, checksum=True),
            attributes=marker | {"encoding-type": "string-array", "encoding-version": "0.2.0"},
            config={"write_empty_chunks": True},
        )
        for name in names
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


@contextlib.contextmanager
def put_in_place(destination: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `destination` that takes its name when the block ends without an error.

    What was there before is replaced only if it is a store of ours. After an error, or Ctrl-C, the temporary folder is
    removed; after a crash it stays under its temporary name, and the next successful call removes it.
    Raises `NotOurFolder` if something else is there; `SketchSelectError` if the disk refuses (full, read-only), naming
    the destination.
    """
    require_ours(destination)
    temporary = (
        destination.parent / f".{destination.name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}.partial"
    )
    try:
        yield temporary
        require_ours(destination)
        _swap(temporary, destination)
    except OSError as error:
        raise SketchSelectError(
            f"{destination}: cannot be written ({error.strerror or type(error).__name__}); nothing was left there"
        ) from error
    finally:
        _remove(temporary)
    _remove_leftovers(destination)


def _remove(temporary: Path) -> None:
    """Remove a folder that other threads may still be writing their last chunks to."""
    for _ in range(100):
        shutil.rmtree(temporary, ignore_errors=True)
        if not temporary.exists():
            return
        time.sleep(0.02)


def require_ours(destination: Path) -> None:
    """Raise `NotOurFolder` unless the path is free or holds a store with our marker."""
    if not os.path.lexists(destination):
        return
    node = None
    if destination.is_dir() and not destination.is_symlink():
        with contextlib.suppress(SketchSelectError):
            node = read_node(Location(str(destination)))
    if node is None or MARKER not in node.attributes:
        raise NotOurFolder(
            f"{destination}: exists and was not written by sketchselect, so it is not overwritten; choose another name"
        )


def _swap(temporary: Path, destination: Path) -> None:
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
