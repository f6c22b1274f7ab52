"""A Zarr array as an address: opened once per process, read with errors that name the chunk, and fingerprinted."""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sketchselect.errors import BadParameter, ChunkReadError, MissingChunks, SourceChanged, SourceError
from sketchselect.linalg.arrays import Array
from sketchselect.location import Location
from sketchselect.readers.zarr.metadata import ArrayMetadata, load_document, parse_metadata

MissingPolicy = Literal["error", "fill"]

_KEPT_OPEN = 64
_RETRY_PAUSES = (0.2, 1.0)

_open_arrays: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
_listings: OrderedDict[tuple[Any, ...], dict[str, str]] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class ZarrArray:
    """Where an array is, and what its metadata said when it was opened. Small and picklable.

    Parameters
    ----------
    location : Location
        The folder that holds ``zarr.json`` or ``.zarray``.
    metadata : ArrayMetadata
        Every process that opens the array anew compares what it finds with this.
    missing_chunks : {"error", "fill"}
        Whether a chunk without a file is an error or holds the fill value.
    """

    location: Location
    metadata: ArrayMetadata
    missing_chunks: MissingPolicy = "error"

    @property
    def address(self) -> str:
        """Path or URL for messages."""
        return self.location.address

    def open(self) -> Any:
        """Return the `zarr.Array`, one per process.

        Raises
        ------
        SourceChanged
            If the metadata are no longer those that were found first, or rows went away.
        SourceError
            If zarr cannot open it.
        """
        key = (
            os.getpid(),
            self.location.url,
            repr(sorted(self.location.options.items())),
            self.metadata,
            self.missing_chunks,
        )
        with _lock:
            if key in _open_arrays:
                _open_arrays.move_to_end(key)
                return _open_arrays[key]
        array = self._open()
        with _lock:
            _open_arrays[key] = array
            while len(_open_arrays) > _KEPT_OPEN:
                _open_arrays.popitem(last=False)
        return array

    def _open(self) -> Any:
        import zarr

        from sketchselect.readers.zarr.store import make_store

        now = read_metadata(self.location)
        if now is None:
            raise self.location.not_found()
        if now.fingerprint != self.metadata.fingerprint or now.shape[0] < self.metadata.shape[0]:
            raise SourceChanged(
                f"{self.address}: the array was rewritten after it was opened; start again on a store at rest"
            )
        try:
            array = zarr.open_array(make_store(self.location), mode="r", zarr_format=self.metadata.zarr_format)
            if self.missing_chunks == "fill":
                return array
            try:
                return array.with_config({"read_missing_chunks": False})
            except (TypeError, ValueError):  # zarr before 3.2 has no such setting
                store = make_store(self.location, strict=True)
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

        Raises
        ------
        ChunkReadError
            Naming array, chunk key and file of the first chunk that cannot be read or decoded.
        MissingChunks
            If a chunk file went away and the policy is "error".
        """
        array = self.open()
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
        return out

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

        Local chunk files are looked at every time. Of a remote store one listing per process is kept; opening it and
        asking for all rows take a new one. None where the remote store tells neither ETag nor time.
        """
        versions: list[str | None]
        if self.location.is_local:
            versions = [
                _version(f"{self.location.url}/{self.metadata.key(cell)}") for cell in self.cells(start, stop, axis)
            ]
        else:
            listing = self._listing(renew=start == 0 and stop >= self.metadata.shape[axis])
            versions = [listing.get(self.metadata.key(cell)) for cell in self.cells(start, stop, axis)]
            if any(version is not None and version.endswith(":") for version in versions):
                return None
        told = self.metadata.fingerprint if axis == 0 else f"columns {self.metadata.shape[0]} {self.metadata.layout}"
        digest = hashlib.blake2b(f"zarr {self.address} {told}".encode(), digest_size=16)
        for version in versions:
            digest.update(f"\n{version or 'absent'}".encode())
        return digest.hexdigest()

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield ``(key, size)`` of every file of the array as it is now."""
        if self.location.is_local:
            yield from ((name, size) for name, size, _ in self.location.files())
        else:
            yield from ((name, int(version.partition(":")[0])) for name, version in self._listing(renew=True).items())

    def _listing(self, renew: bool) -> dict[str, str]:
        key = (os.getpid(), self.location.url)
        with _lock:
            known = _listings.get(key)
        if known is None or renew:
            known = {name: f"{size}:{version}" for name, size, version in self.location.files()}
            with _lock:
                _listings[key] = known
                while len(_listings) > _KEPT_OPEN:
                    _listings.popitem(last=False)
        return known

    def _diagnose(self, array: Any, start: int, stop: int, error: Exception, axis: int) -> SourceError:
        """Return the error that names the first chunk under these rows (or columns) that fails on its own."""
        for cell in self.cells(start, stop, axis):
            where = tuple(slice(i * step, (i + 1) * step) for i, step in zip(cell, self.metadata.grid, strict=True))
            try:
                array[where]
            except Exception as found:
                if type(found).__name__ == "ChunkNotFoundError":
                    return self._missing(cell)
                return self._undecodable(cell, found)
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
        what = "fails its checksum" if "checksum" in str(error).lower() else "cannot be decoded (cut off or damaged)"
        return ChunkReadError(f"{self._chunk(cell)}, {size} bytes, {what}: restore it or write it again")


def read_metadata(location: Location) -> ArrayMetadata | None:
    """Return the metadata of the array at `location`, or None if there is no array."""
    found = read_document(location)
    if found is None or found[0] != "array":
        return None
    return parse_metadata(found[1], location.address)


def read_document(location: Location) -> tuple[Literal["array", "group"], dict[str, Any]] | None:
    """Return ``(node type, document)`` of what is at `location`, attributes included; None if it is no Zarr node."""
    content = location.read("zarr.json")
    if content is not None:
        document = load_document(content, f"{location.address}/zarr.json")
        kind = document.get("node_type")
        if kind not in ("array", "group"):
            raise SourceError(f"{location.address}/zarr.json: the metadata names no node type; restore it")
        return kind, document
    for name, kind in ((".zarray", "array"), (".zgroup", "group")):
        content = location.read(name)
        if content is not None:
            document = load_document(content, f"{location.address}/{name}")
            attributes = location.read(".zattrs")
            document["attributes"] = load_document(attributes, f"{location.address}/.zattrs") if attributes else {}
            return kind, document  # type: ignore[return-value]
    return None


def require_missing_policy(missing_chunks: str) -> MissingPolicy:
    """Return the policy for missing chunks, or raise `BadParameter`."""
    if missing_chunks not in ("error", "fill"):
        raise BadParameter(f'missing_chunks must be "error" or "fill", got {missing_chunks!r:.40}')
    return missing_chunks  # type: ignore[return-value]


def _version(path: str) -> str | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return f"{status.st_size}:{status.st_mtime_ns}"


def _short(error: BaseException) -> str:
    return f"{str(error).splitlines()[0] if str(error) else type(error).__name__:.160}"
