"""Digests in the stores that `convert` writes: of every metadata document, and of the chunk files of each array."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

from sketchselect._text import counted
from sketchselect.linalg.hashing import digest
from sketchselect.location import Location
from sketchselect.readers.zarr.matrix import ZarrNode
from sketchselect.readers.zarr.metadata import (
    MARKER,
    ArrayMetadata,
    document_digest,
    mark_of,
    parse_metadata,
    rows_when_sealed,
)

ABSENT = "absent"
_AT_ONCE = 8
"""Chunk files that are read at a time."""


def seal(location: Location, array: Any = None) -> None:
    """Write into the document of a node the digest of its chunk files in order, and that of the document.

    `array`: The written array, in a `DigestStore`; None for a group.
    """
    place = location.join("zarr.json")
    document = json.loads(place.read() or b"{}")
    mark = document.setdefault("attributes", {}).setdefault(MARKER, {})
    if array is not None:
        digests = array.store.digests
        metadata = parse_metadata(document, "new array")
        mark |= _mark_of_chunks([digests.get(key, ABSENT) for key in _keys(metadata)], metadata)
    _write(place, document, mark)


def _mark_of_chunks(digests: list[str], metadata: ArrayMetadata) -> dict[str, Any]:
    """Return the digest of all chunk files, and of those that appending rows leaves as they are, where it differs."""
    mark: dict[str, Any] = {"chunks": _chunks_digest(digests), "rows": metadata.shape[0]}
    if (n_full := _n_full(metadata, metadata.shape[0])) < len(digests):
        mark["full"] = _chunks_digest(digests[:n_full])
    return mark


def _n_full(metadata: ArrayMetadata, n_rows: int) -> int:
    """Return the number of chunk files in which all rows are among the first `n_rows`; they are the first by key."""
    return n_rows // metadata.grid[0] * math.prod(metadata.n_cells[1:])


def _write(place: Location, document: dict[str, Any], mark: dict[str, Any]) -> None:
    mark["document"] = document_digest(document)
    place.write(json.dumps(document, indent=2).encode(), durable=False)


def seal_appended(root: Location) -> Iterator[tuple[str, bool, str]]:
    """Take rows in that were appended to converted arrays: write their digests anew; yield as `check_seals`.

    Chunks that were full before must be those that were written; every file is read. A last chunk that was not full
    is written anew when rows are appended, and cannot be compared. A document that differs by more than appended rows
    is left as it is, and raises `SourceError` where the store is opened.
    """
    for folder in _folders(root):
        yield from _seal_appended(root.join(folder) if folder else root, folder or "array")


def _seal_appended(location: Location, name: str) -> Iterator[tuple[str, bool, str]]:
    place = location.join("zarr.json")
    document = json.loads(place.read() or b"{}")
    if (n_rows := rows_when_sealed(document)) is None:
        return
    metadata, mark = parse_metadata(document, location.address), mark_of(document)
    keys = list(_keys(metadata))
    digests = _file_digests(location, keys)
    n_left = n_rows % metadata.grid[0]
    if _chunks_digest(digests[: _n_full(metadata, n_rows)]) != mark.get("full" if n_left else "chunks"):
        yield name, False, "chunk files of the rows before are changed; restore the store, or convert again"
        return
    if ABSENT in digests:
        first = keys[digests.index(ABSENT)]
        missing = f"{digests.count(ABSENT):,} of its {len(digests):,} chunk files are missing, {first} first"
        how = "zarr leaves chunks of zeros out, unless rows are appended with write_empty_chunks=True"
        yield name, False, f"{missing}; {how}"
        return
    mark.pop("full", None)
    mark |= _mark_of_chunks(digests, metadata)
    _write(place, document, mark)
    but = f" but for the last {n_left:,}, whose chunk was not full and is written anew" if n_left else ""
    n_new = counted(document["shape"][0] - n_rows, "appended row")
    yield name, True, f"sealed with {n_new}; those before are the rows that were written{but}"


def check_seals(root: ZarrNode) -> Iterator[tuple[str, bool | None, str]]:
    """Yield name, outcome (None if there is no digest) and text for each array of a store; every file is read.

    Raises `SourceError` for metadata that are not those that were written.
    """
    for folder in _folders(root.location):
        node = root.child(folder) if folder else root
        if node is None or node.kind != "array":
            continue
        metadata, name = parse_metadata(node.document, node.address), folder or "array"
        stated = mark_of(node.document).get("chunks")
        if stated is None:
            yield name, None, "no digest of its chunks; `sketchselect convert` writes them"
            continue
        keys = list(_keys(metadata))
        digests = _file_digests(node.location, keys)
        n, n_missing = f"{len(keys):,}", digests.count(ABSENT)
        if _chunks_digest(digests) == stated:
            yield name, True, f"{n} chunk files are those that were written, each in its place"
        elif n_missing:
            first = keys[digests.index(ABSENT)]
            yield name, False, f"{n_missing:,} of {n} chunk files are missing, {first} first; restore the store"
        else:
            text = f"some of its {n} chunk files are changed, or in the place of others"
            yield name, False, f"{text}; restore the store, or convert again"


def _folders(root: Location) -> list[str]:
    """Return the folders of all nodes of a store."""
    return sorted({key.rpartition("/")[0] for key, _, _ in root.files() if key.rpartition("/")[2] == "zarr.json"})


def _keys(metadata: ArrayMetadata) -> Iterator[str]:
    return map(metadata.key, product(*map(range, metadata.n_cells)))


def _file_digests(location: Location, keys: list[str]) -> list[str]:
    def digest_of(key: str) -> str:
        content = location.read(key)
        return ABSENT if content is None else hashlib.blake2b(content, digest_size=16).hexdigest()

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(digest_of, keys))


def _chunks_digest(digests: list[str]) -> str:
    return digest(" ".join(digests))
