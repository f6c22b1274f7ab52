"""A Zarr array as an address: scanned before it is read, opened once per process, and fingerprinted by its chunks.

Errors name the chunk and its file. Packed values of the CF conventions are decoded as xarray does.
"""

from __future__ import annotations

import base64
import itertools
import math
import struct
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import first_few
from sketchselect.errors import ChunkReadError, MissingChunks, SourceChanged, SourceError
from sketchselect.linalg.hashing import digest
from sketchselect.linalg.validation import Array
from sketchselect.location import PAUSES, Location, file_version, hide_addresses, refusal, refused_chunk
from sketchselect.readers.base import MissingPolicy
from sketchselect.readers.stored import LRUCache
from sketchselect.readers.zarr.metadata import MARKER, ArrayMetadata, parse_metadata, read_document

_PACKED = ("scale_factor", "add_offset")
_MISSING = ("_FillValue", "missing_value")
_OTHER_SIGN = {"true": "i", "false": "u"}  # Attribute _Unsigned -> integers that it turns into the others


@dataclass(frozen=True)
class Packing:
    """The rule by which stored values become numbers: ``x scale + offset``, or NaN. Compare and hash by content."""

    # Type of the numbers, as xarray chooses it: float64 where they are scaled; otherwise float32 for integers of 16
    # bits, float64 for longer ones, and floats as they are
    dtype: str

    scale: float
    offset: float
    missing: tuple[float, ...]  # Stored values that stand for a missing one

    def decode(self, stored: Array) -> Array:
        """Return the numbers behind stored values."""
        numbers = stored.astype(self.dtype)
        if self.scale != 1:
            numbers *= self.scale
        if self.offset != 0:
            numbers += self.offset
        if self.missing:
            numbers[np.isin(stored, np.array(self.missing).astype(stored.dtype))] = np.nan
        return numbers


def packing_of(document: dict[str, Any], dtype: np.dtype[Any] | None, address: str) -> Packing | None:
    """Return how the values of an array are packed, by its attributes; None where they are stored as they are.

    Follows xarray, whose Zarr v2 arrays have the missing value as their fill value. Such an array is known by its
    attribute ``_ARRAY_DIMENSIONS``; a fill value of 0 without scale or offset is a number there, not a missing one.
    Raises `SourceError` if an attribute is not a number, or says that the values are unsigned.
    """
    attributes = document.get("attributes") or {}
    if dtype is None or dtype.kind not in "iuf":
        return None
    scaled = any(name in attributes for name in _PACKED)
    missing = {name: attributes[name] for name in _MISSING if attributes.get(name) is not None}
    fill = document.get("fill_value") if document.get("zarr_format") == 2 else None
    if fill is not None and (scaled or (fill != 0 and "_ARRAY_DIMENSIONS" in attributes)):
        missing["_FillValue"] = fill
    numbers = {name: [_number(v, name, address) for v in _items(value)] for name, value in missing.items()}
    values = sorted({value for some in numbers.values() for value in some if _is_value(value, dtype)})
    if dtype.kind == _OTHER_SIGN.get(str(attributes.get("_Unsigned")).lower()):
        signed = "unsigned" if dtype.kind == "i" else "signed"
        raise SourceError(
            f"{address}: packed as {signed} integers (attribute _Unsigned), which is not read; open the "
            "store with xarray and give that array"
        )
    if not scaled and not values:
        return None
    scale, offset = (
        _number(_items(attributes[name])[0], name, address) if name in attributes else default
        for name, default in zip(_PACKED, (1.0, 0.0), strict=True)
    )
    name = "float64" if scaled or dtype.itemsize > 2 else "float32"
    return Packing(dtype.name if dtype.kind == "f" and not scaled else name, scale, offset, tuple(values))


def _is_value(value: float, dtype: np.dtype[Any]) -> bool:
    """Return whether an array of this type can hold the value, NaN aside."""
    if dtype.kind == "f":
        return not math.isnan(value)
    return value.is_integer() and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) and value else [value]


def _number(value: Any, name: str, address: str) -> float:
    try:
        if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
            # So xarray writes floats in Zarr v3.
            (value,) = struct.unpack("<d", base64.standard_b64decode(value))
        return float(value)
    except (TypeError, ValueError, struct.error):
        raise SourceError(f"{address}: the attribute {name} is not a number; correct it") from None


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
    notes: tuple[str, ...] = field(default=(), compare=False)  # What the scan found
    missing_share: float = field(default=0.0, compare=False)  # Of the chunks, read as the fill value

    @classmethod
    def of(cls, location: Location, document: dict[str, Any], missing_chunks: MissingPolicy) -> ZarrArray:
        """Return the array of a metadata document."""
        metadata = parse_metadata(document, location.address)
        packing = packing_of(document, metadata.dtype, location.address) if document.get("attributes") else None
        return cls(location, metadata, missing_chunks, packing)

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

    @property
    def itemsize(self) -> int:
        """Bytes of a number as stored."""
        return np.dtype(self.metadata.type_name).itemsize

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of what is decoded at a time."""
        return self.metadata.chunks

    @property
    def is_sharded(self) -> bool:
        """Whether a file holds several chunks."""
        return self.metadata.grid != self.metadata.chunks

    @property
    def has_checksum(self) -> bool:
        """Whether some codec detects a flipped bit."""
        return self.metadata.has_checksum

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
        if now is None:
            kind, document = read_document(self.location) or (None, {})
            if kind != "array":
                raise self.location.not_found()
            now = parse_metadata(document, self.address)
        self._require_same(now)
        try:
            array = self._first_opened(recent)
            if self.missing_chunks == "fill":
                return array
            try:
                return array.with_config({"read_missing_chunks": False})
            except (TypeError, ValueError):  # zarr before 3.2 has no such setting
                return self._first_opened(recent, strict=True)
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(
                f"{self.address}: cannot be opened as a Zarr array ({type(error).__name__}: {_short(error)}); "
                "check the metadata"
            ) from error

    def require_same(self) -> None:
        """Raise `SourceChanged` if the metadata, read anew, are no longer those of the opened array.

        Chunks that were cut off would be read as they were, filled up.
        """
        kind, document = read_document(self.location, sealed=False) or (None, {})
        if kind == "array":
            self._require_same(parse_metadata(document, self.address))

    def _require_same(self, now: ArrayMetadata) -> None:
        """Raise `SourceChanged` if the metadata are no longer those of the opened array, or rows went away."""
        if now.fingerprint != self.metadata.fingerprint or now.shape[0] < self.metadata.shape[0]:
            raise SourceChanged(
                f"{self.address}: the array was rewritten after it was opened; start again when nothing writes to it"
            )

    def _first_opened(self, recent: bool, *, strict: bool = False) -> Any:
        """Return the array in the first of the stores that zarr can open it in."""
        import zarr

        from sketchselect.readers.zarr.store import make_store, read_stores

        if self.location.is_local:
            # Not by its path: zarr takes what stands behind a # or ? in one for parts of a URL.
            stores: Iterator[Any] = iter((make_store(self.location, strict=strict),))
        else:
            stores = read_stores(self.location, strict=strict, recent=recent)
        failures: list[OSError] = []
        for store in stores:  # each is made where the one before it failed
            try:
                return zarr.open_array(store, mode="r", zarr_format=self.metadata.zarr_format)
            except OSError as error:  # another library may reach what this one does not
                failures.append(error)
        raise failures[-1]

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
        pauses = () if self.location.is_local else PAUSES
        for pause in (*pauses, None):
            try:
                out: Array = array[start:stop] if axis == 0 else array[:, start:stop]
                break
            except MemoryError:
                raise
            except Exception as error:
                if pause is None:
                    hide_addresses(error)
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
            versions = [file_version(f"{self.location.url}/{key}") for key in cells]
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

    def describe(self, sparse: bool) -> dict[str, Any]:
        """Return the description for the manifest."""
        metadata = self.metadata
        packed = {} if self.packing is None else {"packing": asdict(self.packing) | {"dtype": metadata.type_name}}
        shards = {"shards": list(metadata.grid) if metadata.grid != metadata.chunks else None}
        return {
            **({} if sparse else packed),
            "format": f"zarr v{metadata.zarr_format}{', CSR' if sparse else ''}",
            "chunks": list(metadata.chunks),
            **({} if sparse else shards),
            "checksum": metadata.has_checksum,
            "missing_chunks": self.missing_chunks,
        }

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield ``(key, size)`` of every file of the array at this time."""
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
                    cure = 'restore it, or pass missing_chunks="fill" to read its fill value'
                    return MissingChunks(f"{self._chunk(cell)} is missing: {cure}")
                return self._undecodable(cell, failure)
        return ChunkReadError(
            f"{self.address}: {('rows', 'columns')[axis]} {start} to {stop - 1} could not be read "
            f"({_short(error)}); try again"
        )

    def _chunk(self, cell: tuple[int, ...]) -> str:
        key = self.metadata.key(cell)
        return f"{self.address}: chunk {key} (file {self.location.join(key).address})"

    def _undecodable(self, cell: tuple[int, ...], error: Exception) -> ChunkReadError:
        if isinstance(error, PermissionError):  # by s3fs without a number
            return ChunkReadError(
                f"{self._chunk(cell)} cannot be read ({error.strerror or 'access denied'}); check the permissions"
            )
        if isinstance(error, OSError) and not isinstance(error, (EOFError, UnicodeError)) and error.errno:
            place = "disk" if self.location.is_local else "network"
            return ChunkReadError(
                f"{self._chunk(cell)} cannot be read ({error.strerror}); check the {place} and the permissions"
            )
        if (refused := refused_chunk(self._chunk(cell), error)) is not None:
            return refused
        if (page := self.location.page_instead(self.metadata.key(cell))) is not None:
            return ChunkReadError(f"chunk {self.metadata.key(cell)} is missing: {page}")
        try:
            version = self.location.version(self.metadata.key(cell))
        except SourceError as failure:  # out of reach, not damaged
            return ChunkReadError(str(failure))
        size = version.partition(":")[0] if version else "?"
        fault = "fails its checksum" if "checksum" in str(error).lower() else "cannot be decoded (cut off or damaged)"
        return ChunkReadError(f"{self._chunk(cell)}, {size} bytes, {fault}: restore it or write it again")


def _short(error: BaseException) -> str:
    return refusal(error) or f"{str(error).splitlines()[0] if str(error) else type(error).__name__:.160}"


_SLACK = 64


def scan(source: ZarrArray, attributes: dict[str, object]) -> tuple[tuple[str, ...], float]:
    """Raise `MissingChunks` or `ChunkReadError` for chunk files that are absent, empty, cut off or oversized.

    One listing of the store; for local zstd and Blosc chunks also their first bytes, which tell a truncated
    Blosc chunk (decoded without complaint by the library) and one that would expand far beyond its shape.

    `source`: Its policy decides whether absent chunks are an error.
    `attributes`: The array's attributes, for the marker of `convert`.

    Returns
    -------
    notes : tuple of str
        On chunks read as the fill value, and on chunk files beyond the shape (the array was longer once).
    missing_share : float
        Share of the chunks that are read as the fill value.
    """
    if not source.location.has_listing:
        return (
            f"{source.address}: a web server lists no files, so missing chunks are noticed when they are read",
        ), 0.0
    metadata = source.metadata
    n_cells = metadata.n_cells
    largest = _largest_file(metadata)
    present = np.zeros(n_cells, dtype=bool)
    n_beyond = 0
    for key, size in source.files():
        cell = metadata.cell(key)
        if cell is None:
            continue
        if any(i >= n for i, n in zip(cell, n_cells, strict=True)):
            n_beyond += 1
            continue
        if size == 0:
            raise ChunkReadError(f"{source.address}: chunk {key} is empty (0 bytes): restore it or write it again")
        if size > largest:
            raise ChunkReadError(
                f"{source.address}: chunk {key} takes {format_bytes(size)}, more than its values can "
                f"({format_bytes(largest)}): it is damaged or hostile, and is not decoded"
            )
        present[cell] = True
        if metadata.frame and metadata.item_nbytes and source.location.is_local:
            _check_frame(source, key, size)
    total = math.prod(n_cells)
    n_missing = total - int(present.sum())
    if n_missing and source.missing_chunks == "error":
        first = first_few(np.argwhere(~present), 5, lambda cell: metadata.key(tuple(map(int, cell))))
        raise MissingChunks(
            f"{source.address}: {n_missing} of {total} chunks are missing ({first}): "
            f'{_reading(attributes)} missing_chunks="fill"'
        )
    notes = []
    if n_missing:
        notes.append(f"{source.address}: {n_missing} of {total} chunks have no file and are read as the fill value")
    if n_beyond:
        shape = " x ".join(map(str, metadata.shape))
        notes.append(
            f"{source.address}: {n_beyond} chunk files lie beyond the shape {shape} and are not read; the array "
            "may have been longer once"
        )
    return tuple(notes), n_missing / max(total, 1)


def _largest_file(metadata: ArrayMetadata) -> int:
    """Return the bytes that no codec exceeds for the values of one file: what is larger decodes to something else."""
    if metadata.dtype is None:
        return sys.maxsize
    nbytes = math.prod(metadata.grid) * metadata.dtype.itemsize
    n_inside = math.prod(metadata.grid) // math.prod(metadata.chunks)
    return nbytes + nbytes // 8 + 1024 * n_inside + (1 << 16)


def _reading(attributes: dict[str, object]) -> str:
    marker = attributes.get(MARKER)
    if isinstance(marker, dict) and marker.get("empty_chunks") == "written":
        return "this store was written with every chunk, so they were lost; restore them, or read the fill value with"
    return (
        "either they were lost, or they hold only the fill value and Zarr left them out; if you know the latter, read "
        "the fill value with"
    )


def _check_frame(source: ZarrArray, key: str, size: int) -> None:
    metadata = source.metadata
    with open(f"{source.location.url}/{key}", "rb") as file:
        head = file.read(18)
    declared = math.prod(metadata.grid) * metadata.item_nbytes
    if metadata.frame == "blosc":
        if len(head) < 16:
            raise ChunkReadError(
                f"{source.address}: chunk {key} is cut off ({size} bytes): restore it or write it again"
            )
        expands, _, stored = struct.unpack_from("<III", head, 4)
        if stored > size:
            raise ChunkReadError(
                f"{source.address}: chunk {key} is cut off ({size} of {stored} bytes): restore it or write it again"
            )
    else:
        expands = zstd_content_size(head) or 0
    if expands > declared + _SLACK:
        raise ChunkReadError(
            f"{source.address}: chunk {key} would expand to {format_bytes(expands)}, its shape needs "
            f"{format_bytes(declared)}: it is damaged or hostile, and is not decoded"
        )


def zstd_content_size(head: bytes) -> int | None:
    """Return the decoded size that a zstd frame header states, or None if it states none (RFC 8878, section 3.1.1)."""
    if len(head) < 5 or head[:4] != b"\x28\xb5\x2f\xfd":
        return None
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    at = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    field = head[at : at + width]
    if not width or len(field) < width:
        return None
    return int.from_bytes(field, "little") + (256 if width == 2 else 0)
