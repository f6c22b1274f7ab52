"""Digests in the stores that `convert` writes: of every metadata document, and of the chunk files of each array."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

from sketchselect.linalg.hashing import digest
from sketchselect.location import Location
from sketchselect.readers.zarr.matrix import ZarrNode
from sketchselect.readers.zarr.metadata import MARKER, ArrayMetadata, document_digest, mark_of, parse_metadata

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
        mark["chunks"] = _chunks_digest([digests.get(k, ABSENT) for k in _keys(parse_metadata(document, "new array"))])
    mark["document"] = document_digest(document)
    place.write(json.dumps(document, indent=2).encode(), durable=False)


def check_seals(root: ZarrNode) -> Iterator[tuple[str, bool | None, str]]:
    """Yield name, outcome (None if there is no digest) and text for each array of a store; every file is read.

    Raises `SourceError` for metadata that are not those that were written.
    """
    folders = {key.rpartition("/")[0] for key, _, _ in root.location.files() if key.rpartition("/")[2] == "zarr.json"}
    for folder in sorted(folders):
        node = root.child(folder) if folder else root
        if node is None or node.kind != "array":
            continue
        metadata, name = parse_metadata(node.document, node.address), folder or "array"
        stated = mark_of(node.document).get("chunks")
        if stated is None:
            yield name, None, "no digest of its chunks; `sketchselect convert` writes them"
            continue
        keys = list(_keys(metadata))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            digests = list(pool.map(lambda key, at=node.location: _file_digest(at, key), keys))
        n, n_missing = f"{len(keys):,}", digests.count(ABSENT)
        if _chunks_digest(digests) == stated:
            yield name, True, f"{n} chunk files are those that were written, each in its place"
        elif n_missing:
            first = keys[digests.index(ABSENT)]
            yield name, False, f"{n_missing:,} of {n} chunk files are missing, {first} first; restore the store"
        else:
            text = f"some of its {n} chunk files are changed, or in the place of others"
            yield name, False, f"{text}; restore the store, or convert again"


def _keys(metadata: ArrayMetadata) -> Iterator[str]:
    return map(metadata.key, product(*map(range, metadata.n_cells)))


def _file_digest(location: Location, key: str) -> str:
    content = location.read(key)
    return ABSENT if content is None else hashlib.blake2b(content, digest_size=16).hexdigest()


def _chunks_digest(digests: list[str]) -> str:
    return digest(" ".join(digests))
