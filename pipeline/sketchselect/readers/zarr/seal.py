"""Digests in the stores that `convert` writes: of every metadata document, and of the chunk files of each array."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
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
CSR = "csr_matrix"
_KEYS = frozenset(("empty_chunks", "chunks", "rows", "full", "nodes", "document"))
_AT_ONCE = 8
"""Chunk files that are read at a time."""


def seal(location: Location, array: Any = None) -> None:
    """Write into the document of a node the digest of its chunk files in order, and that of the document.

    `array`: The written array, in a `DigestStore`; None for a group, which lists the nodes below it instead.
    """
    place = location.join("zarr.json")
    document = json.loads(place.read() or b"{}")
    mark = document.setdefault("attributes", {}).setdefault(MARKER, {})
    if array is not None:
        digests = array.store.digests
        metadata = parse_metadata(document, "new array")
        mark |= _mark_of_chunks([digests.get(key, ABSENT) for key in _keys(metadata)], metadata)
    else:
        mark["nodes"] = [folder for folder in _folders(location) if folder]
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


@dataclass(frozen=True)
class _Appended:
    """What sealing a node again comes to, and what is then written."""

    name: str
    holds: bool
    text: str
    place: Location
    document: dict[str, Any]
    mark: dict[str, Any]


def seal_appended(root: Location) -> Iterator[tuple[str, bool, str]]:
    """Take rows in that were appended to converted arrays: write their digests anew; yield as `check_seals`.

    Chunks that were full before must be those that were written; every file is read. A last chunk that was not full
    is written anew when rows are appended, and cannot be compared. Nothing is written unless all arrays of the store
    have grown together (of a sparse matrix its three arrays and its shape), and nothing else has changed.
    """
    places = {folder: root.join(folder) if folder else root for folder in _folders(root)}
    documents = {folder: json.loads(place.read("zarr.json") or b"{}") for folder, place in places.items()}
    outcomes = (_appended(place, folder, documents) for folder, place in places.items())
    appended = [outcome for outcome in outcomes if outcome is not None]
    complete = all(each.holds for each in appended)
    unequal = list(_unequal(places, documents)) if appended and complete else []
    if complete and not unequal:
        for each in appended:
            _write(each.place, each.document, each.mark)
    yield from unequal
    yield from ((each.name, each.holds, each.text) for each in appended if not (unequal and each.holds))


def _appended(location: Location, folder: str, documents: Mapping[str, dict[str, Any]]) -> _Appended | None:
    """Return what sealing a node again comes to; None where nothing was appended to it."""
    document = documents[folder]
    mark, is_group = mark_of(document), document.get("node_type") == "group"
    if mark.get("document") in (None, document_digest(document)):
        return None
    result = partial(_Appended, folder or "array", place=location.join("zarr.json"), document=document, mark=mark)
    n_rows = _group_rows_before(document, folder, documents) if is_group else rows_when_sealed(document)
    if n_rows is None:
        return result(False, "its metadata differ by more than appended rows; restore them, or convert again")
    if is_group:
        return result(True, f"sealed with {counted((_n_rows(document) or 0) - n_rows, 'appended row')}")
    metadata = parse_metadata(document, location.address)
    keys = list(_keys(metadata))
    digests = _file_digests(location, keys)
    n_left = n_rows % metadata.grid[0]
    if _chunks_digest(digests[: _n_full(metadata, n_rows)]) != mark.get("full" if n_left else "chunks"):
        return result(False, "chunk files of the rows before are changed; restore the store, or convert again")
    if ABSENT in digests:
        first = keys[digests.index(ABSENT)]
        missing = f"{digests.count(ABSENT):,} of its {len(digests):,} chunk files are missing, {first} first"
        how = "zarr leaves chunks of zeros out, unless rows are appended with write_empty_chunks=True"
        return result(False, f"{missing}; {how}")
    mark.pop("full", None)
    mark |= _mark_of_chunks(digests, metadata)
    but = f" but for the last {n_left:,}, whose chunk was not full and is written anew" if n_left else ""
    n_new = counted(document["shape"][0] - n_rows, "appended row")
    return result(True, f"sealed with {n_new}; those before are the rows that were written{but}")


def _n_rows(document: Mapping[str, Any]) -> int | None:
    """Return the number of rows of an array, or of a sparse matrix."""
    sparse = document.get("attributes", {}).get("encoding-type") == CSR
    shape = document["attributes"].get("shape") if sparse else document.get("shape")
    return shape[0] if isinstance(shape, list) and shape and isinstance(shape[0], int) else None


def _group_rows_before(document: dict[str, Any], folder: str, documents: Mapping[str, dict[str, Any]]) -> int | None:
    """Return the number of rows of a sparse matrix when it was sealed, if it differs by appended rows alone."""
    ends = documents.get(f"{folder}/indptr".lstrip("/"), {})
    n_ends = rows_when_sealed(ends)
    if n_ends is None or _n_rows(document) is None:
        return None
    shape = [n_ends - 1, *document["attributes"]["shape"][1:]]
    before = {**document, "attributes": {**document["attributes"], "shape": shape}}
    return n_ends - 1 if document_digest(before) == mark_of(document)["document"] else None


def _unequal(
    places: Mapping[str, Location], documents: Mapping[str, dict[str, Any]]
) -> Iterator[tuple[str, bool, str]]:
    """Yield as `check_seals` the nodes that have not grown with the others."""
    for folder, document in documents.items():
        if document.get("attributes", {}).get("encoding-type") == CSR:
            names = [f"{folder}/{name}".lstrip("/") for name in ("data", "indices", "indptr")]
            n_data, n_indices, n_ends = (_n_rows(documents.get(name, {})) or 0 for name in names)
            n_rows = _n_rows(document)
            last = _last_entry(places[names[2]], documents[names[2]]) if n_ends else 0
            if n_data != n_indices or n_ends - 1 != n_rows or last != n_data:
                parts = f"shape has {n_rows} rows, indptr {n_ends - 1} that end at {last}"
                entries = f"data has {n_data} entries and indices {n_indices}"
                yield folder or "array", False, f"rows were appended in part: {parts}, {entries}; append to all of them"
        elif folder.rpartition("/")[0] == "obs" and "X" in documents:
            n_names, n_rows = _n_rows(document), _n_rows(documents["X"])
            if n_names != n_rows:
                yield folder, False, f"rows were appended in part: it has {n_names}, and X {n_rows}; append to both"


def _last_entry(location: Location, document: dict[str, Any]) -> int:
    """Return the last entry of an array, also of one whose document is not that which was sealed."""
    import zarr

    from sketchselect.readers.zarr.store import make_store

    parse_metadata(document, location.address)  # refuses codecs that are not safe to run
    array: Any = zarr.open_array(make_store(location), mode="r")
    return int(array[-1])


def check_seals(root: ZarrNode) -> Iterator[tuple[str, bool | None, str]]:
    """Yield name, outcome (None if there is no digest) and text for each array of a store; every file is read.

    Raises `SourceError` for metadata that are not those that were written.
    """
    folders = _folders(root.location)
    for folder in folders:
        node = root.child(folder) if folder else root
        if node is None:
            continue
        mark = mark_of(node.document)
        if not mark and (other := _renamed_mark(node.document)) is not None:
            text = f"its attribute {other!r:.40} in zarr.json is {MARKER}'s under another name"
            yield folder or "store", False, f"{text}; restore the file, or convert again"
        if unknown := sorted(mark.keys() - _KEYS):
            text = f"its attribute {MARKER} in zarr.json has the unknown key {unknown[0]!r:.40}"
            yield folder or "store", False, f"{text}; restore the file, or convert again"
        nodes = mark.get("nodes", [])
        if not isinstance(nodes, list):
            text = f"the list of nodes in its attribute {MARKER} is none"
            yield folder or "store", False, f"{text}; restore the file, or convert again"
        elif lost := sorted({f"{folder}/{name}".lstrip("/") for name in nodes} - set(folders)):
            yield folder or "store", False, f"{lost[0]}/zarr.json is missing; restore the store, or convert again"
        if node.kind != "array":
            continue
        metadata, name = parse_metadata(node.document, node.address), folder or "array"
        stated = mark.get("chunks")
        if stated is None:
            yield name, None, "no digest of its chunks; `sketchselect convert` writes them"
            continue
        keys = list(_keys(metadata))
        digests = _file_digests(node.location, keys)
        n, n_missing = counted(len(keys), "chunk file", "{:,}".format), digests.count(ABSENT)
        if _chunks_digest(digests) == stated:
            yield name, True, f"{n} as written, each in its place"
        elif n_missing:
            first = keys[digests.index(ABSENT)]
            yield name, False, f"{n_missing:,} of {n} missing, {first} first; restore the store"
        else:
            text = f"{n}, some of them changed or in the place of others"
            yield name, False, f"{text}; restore the store, or convert again"


def _renamed_mark(document: Mapping[str, Any]) -> str | None:
    """Return the name of an attribute that holds what ours does, None where there is none."""
    attributes = document.get("attributes")
    for name, value in attributes.items() if isinstance(attributes, dict) else ():
        if isinstance(value, dict) and "document" in value and not value.keys().isdisjoint(("chunks", "nodes")):
            return str(name)
    return None


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
