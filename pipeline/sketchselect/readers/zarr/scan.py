"""Scan of a Zarr array before it is read: the presence of every chunk file, and the first bytes of local ones."""

from __future__ import annotations

import math
import struct
import sys

import numpy as np

from sketchselect._byte_sizes import format_bytes
from sketchselect.errors import ChunkReadError, MissingChunks
from sketchselect.readers.zarr.array import ZarrArray
from sketchselect.readers.zarr.metadata import ArrayMetadata

MARKER = "sketchselect"
"""Attribute of stores that `convert` wrote; its entry ``empty_chunks`` says that every chunk has its file."""

_SHOWN = 5
_SLACK = 64


def scan(source: ZarrArray, attributes: dict[str, object]) -> tuple[str, ...]:
    """Raise `MissingChunks` or `ChunkReadError` for chunk files that are absent, empty, cut off or oversized.

    One listing of the store; for local zstd and Blosc chunks also their first bytes, which tell a truncated
    Blosc chunk (decoded without complaint by the library) and one that would expand far beyond its shape.

    `source`: Its policy decides whether absent chunks are an error.
    `attributes`: The array's attributes, for the marker of `convert`.

    Returns
    -------
    tuple of str
        Notes on chunks read as the fill value, and on chunk files beyond the shape (the array was longer once).
    """
    if not source.location.has_listing:
        return (f"{source.address}: a web server lists no files, so missing chunks are noticed when they are read",)
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
        if metadata.frame and source.location.is_local:
            _check_frame(source, key, size)
    total = math.prod(n_cells)
    n_missing = total - int(present.sum())
    if n_missing and source.missing_chunks == "error":
        first = [metadata.key(tuple(map(int, cell))) for cell in np.argwhere(~present)[:_SHOWN]]
        raise MissingChunks(
            f"{source.address}: {n_missing} of {total} chunks are missing ({', '.join(first)}"
            f'{", ..." if n_missing > _SHOWN else ""}): {_reading(attributes)} missing_chunks="fill"'
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
    return tuple(notes)


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
    declared = math.prod(metadata.grid) * (metadata.dtype.itemsize if metadata.dtype is not None else 1)
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
