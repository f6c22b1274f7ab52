"""A Zarr array as an address: opened once per process, read with errors that name the chunk, and fingerprinted."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchselect.errors import ChunkReadError, MissingChunks, SourceChanged, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.linalg.hashing import digest
from sketchselect.location import Location
from sketchselect.readers.cache import LRUCache
from sketchselect.readers.checks import MissingPolicy
from sketchselect.readers.zarr.metadata import ArrayMetadata, parse_metadata
from sketchselect.readers.zarr.node import Node, read_node
from sketchselect.readers.zarr.packing import Packing, packing_of

_RETRY_PAUSES = (0.2, 1.0)

_VERSIONS_AT_ONCE = 16
"""Chunks that a web server is asked about at a time."""

OPEN_ARRAYS = LRUCache(64)
"""Arrays that zarr has open."""

LISTINGS = LRUCache(64)
"""Versions of the files of remote arrays."""


@dataclass(frozen=True)
class ZarrArray:
    """The address of an array, and its metadata when it was opened. Small and picklable."""

    location: Location  # The folder that holds ``zarr.json`` or ``.zarray``
    metadata: ArrayMetadata  # Every process that opens the array compares its metadata with these
    # Whether a chunk without a file is an error or holds the fill value
    missing_chunks: MissingPolicy = "error"
    packing: Packing | None = None  # How stored values become numbers, where they are packed

    @classmethod
    def of(cls, node: Node, missing_chunks: MissingPolicy) -> ZarrArray:
        """Return the array of a node."""
        metadata = parse_metadata(node.document, node.location.address)
        packing = packing_of(node, metadata.dtype) if node.attributes else None
        return cls(node.location, metadata, missing_chunks, packing)

    @property
    def address(self) -> str:
        """Path or URL for messages."""
        return self.location.address

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.metadata.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values that are read; that of text where it is no plain type of NumPy."""
        if self.packing is not None:
            return np.dtype(self.packing.dtype)
        return self.metadata.dtype if self.metadata.dtype is not None else np.dtype("U")

    def open(self, known: ArrayMetadata | None = None, *, recent: bool = False) -> Any:
        """Return the `zarr.Array`, one per process.

        `known`: The metadata as they are now, where they were just read; `recent`: whether a remote chunk that is read
        in parts is fetched once.
        Raises `SourceChanged` if the metadata are no longer those of the opened array, or rows went away; `SourceError`
        if zarr cannot open it.
        """
        options = repr(sorted(self.location.options.items()))
        key = (self.location.url, options, self.metadata, self.missing_chunks, recent)
        return OPEN_ARRAYS.get(key, lambda: self._open(known, recent))

    def _open(self, now: ArrayMetadata | None, recent: bool) -> Any:
        import zarr

        from sketchselect.readers.zarr.store import make_store

        if now is None:
            node = read_node(self.location)
            if node is None or node.kind != "array":
                raise self.location.not_found()
            now = parse_metadata(node.document, self.address)
        if now.fingerprint != self.metadata.fingerprint or now.shape[0] < self.metadata.shape[0]:
            raise SourceChanged(
                f"{self.address}: the array was rewritten after it was opened; start again when nothing writes to it"
            )
        try:
            store: Any = self.location.url if self.location.is_local else make_store(self.location, recent=recent)
            array = zarr.open_array(store, mode="r", zarr_format=self.metadata.zarr_format)
            if self.missing_chunks == "fill":
                return array
            try:
                return array.with_config({"read_missing_chunks": False})
            except (TypeError, ValueError):  # zarr before 3.2 has no such setting
                store = make_store(self.location, strict=True, recent=recent)
                return zarr.open_array(store, mode="r", zarr_format=self.metadata.zarr_format)
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(
                f"{self.address}: cannot be opened as a Zarr array ({type(error).__name__}: {_short(error)}); "
                "check the metadata"
            ) from error

    def read(self, start: int, stop: int, axis: int = 0) -> Array:
        """Return rows (`axis` 0) or columns (1) `start` to `stop`; one call of zarr, whatever the chunks.

        Raises `ChunkReadError` naming array, chunk key and file of the first chunk that cannot be read or decoded;
        `MissingChunks` if a chunk file went away and the policy is "error".
        """
        if start == stop:
            shape = list(self.shape)
            shape[axis] = 0
            return np.empty(shape, self.dtype.newbyteorder("="))
        if self.location.is_local:
            self.location.require_files(self.metadata.key(cell) for cell in self.cells(start, stop, axis))
        edges, height = (start, stop % self.shape[axis]), self.metadata.chunks[axis]
        is_part = not self.location.is_local and any(edge % height for edge in edges)
        array = self.open(recent=is_part)
        pauses = () if self.location.is_local else _RETRY_PAUSES
        for pause in (*pauses, None):
            try:
                out: Array = array[start:stop] if axis == 0 else array[:, start:stop]
                break
            except MemoryError:
                raise
            except Exception as error:
                if pause is None:
                    raise self._diagnose(array, start, stop, error, axis) from error
                time.sleep(pause)
        return out if self.packing is None else self.packing.decode(out)

    def cells(self, start: int, stop: int, axis: int = 0) -> Iterator[tuple[int, ...]]:
        """Yield the chunk files that rows (or columns) `start` to `stop` come from."""
        if stop <= start:
            return
        size = self.metadata.grid[axis]
        ranges = [range(n) for n in self.metadata.n_cells]
        ranges[axis] = range(start // size, -(-stop // size))
        yield from itertools.product(*ranges)

    def identity(self, start: int, stop: int, axis: int = 0) -> str | None:
        """Return a fingerprint of the content of these rows: metadata without the row count, and chunk versions.

        Of columns (`axis` 1): metadata without the column count, and the versions of the chunks below them.

        Local chunk files, and those of a web server, are checked every time. Of another remote store one listing per
        process is cached; opening it and asking for all rows take a new one. None where the remote store has neither
        ETag nor time.
        """
        metadata = self.metadata
        cells = (metadata.key(cell) for cell in self.cells(start, stop, axis))
        versions: list[str | None]
        if self.location.is_local:
            versions = [_version(f"{self.location.url}/{key}") for key in cells]
        elif self.location.has_listing:
            listing = self._listing(renew=start == 0 and stop >= metadata.shape[axis])
            versions = [listing.get(key) for key in cells]
        else:
            with ThreadPoolExecutor(_VERSIONS_AT_ONCE) as pool:
                versions = list(pool.map(self.location.version, cells))
        if any(version is not None and version.endswith(":") for version in versions):
            return None
        layout = metadata.fingerprint if axis == 0 else f"columns {metadata.shape[0]} {metadata.layout}"
        packed = "" if self.packing is None else f" {self.packing}"
        return digest(f"zarr {self.address} {layout}{packed}", *(f"\n{version or 'absent'}" for version in versions))

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield ``(key, size)`` of every file of the array as it is now."""
        if self.location.is_local:
            yield from ((name, size) for name, size, _ in self.location.files())
        else:
            yield from ((name, int(version.partition(":")[0])) for name, version in self._listing(renew=True).items())

    def _listing(self, renew: bool) -> dict[str, str]:
        def load() -> dict[str, str]:
            return {name: f"{size}:{version}" for name, size, version in self.location.files()}

        return LISTINGS.get((self.location.url,), load, renew=renew)

    def _diagnose(self, array: Any, start: int, stop: int, error: Exception, axis: int) -> SourceError:
        """Return the error that names the first chunk under these rows (or columns) that fails on its own."""
        for cell in self.cells(start, stop, axis):
            region = tuple(slice(i * step, (i + 1) * step) for i, step in zip(cell, self.metadata.grid, strict=True))
            try:
                array[region]
            except Exception as failure:
                if type(failure).__name__ == "ChunkNotFoundError":
                    return self._missing(cell)
                return self._undecodable(cell, failure)
        return ChunkReadError(
            f"{self.address}: {('rows', 'columns')[axis]} {start} to {stop - 1} could not be read "
            f"({_short(error)}); try again"
        )

    def _chunk(self, cell: tuple[int, ...]) -> str:
        key = self.metadata.key(cell)
        return f"{self.address}: chunk {key} (file {self.location.join(key).address})"

    def _missing(self, cell: tuple[int, ...]) -> MissingChunks:
        return MissingChunks(
            f'{self._chunk(cell)} is missing: restore it, or pass missing_chunks="fill" to read its fill value'
        )

    def _undecodable(self, cell: tuple[int, ...], error: Exception) -> ChunkReadError:
        if isinstance(error, OSError) and not isinstance(error, (EOFError, UnicodeError)) and error.errno:
            return ChunkReadError(
                f"{self._chunk(cell)} cannot be read ({error.strerror}); check the disk and the permissions"
            )
        version = self.location.version(self.metadata.key(cell))
        size = version.partition(":")[0] if version else "?"
        fault = "fails its checksum" if "checksum" in str(error).lower() else "cannot be decoded (cut off or damaged)"
        return ChunkReadError(f"{self._chunk(cell)}, {size} bytes, {fault}: restore it or write it again")


def checksum_notes(address: str, *arrays: ZarrArray) -> tuple[str, ...]:
    """Return the note that not all of the arrays have checksums, or none."""
    if all(array.metadata.has_checksum for array in arrays):
        return ()
    return (
        f"{address} has no checksum codec: a flipped bit in a chunk would go unnoticed (sketchselect convert writes "
        "stores that have one)",
    )


def _version(path: str) -> str | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return f"{status.st_size}:{status.st_mtime_ns}"


def _short(error: BaseException) -> str:
    return f"{str(error).splitlines()[0] if str(error) else type(error).__name__:.160}"
