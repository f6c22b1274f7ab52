"""Nodes of a Zarr hierarchy: arrays and groups with their metadata documents, and which of them a key means."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from sketchselect._text import did_you_mean
from sketchselect.errors import SourceError
from sketchselect.location import Location, locate
from sketchselect.readers.zarr.metadata import parse_metadata

_LISTED = 12


@dataclass(frozen=True)
class Node:
    """An array or a group, as its metadata document describes it."""

    location: Location  # The folder that holds the document
    kind: Literal["array", "group"]
    document: dict[str, Any]  # ``zarr.json``, or ``.zarray`` or ``.zgroup`` with ``.zattrs`` under "attributes"
    top: str = ""  # Real path of the local store that it was read from; no link below leads out of it

    @property
    def attributes(self) -> dict[str, Any]:
        """The user's attributes."""
        return self.document.get("attributes") or {}

    @property
    def encoding(self) -> str | None:
        """The type that AnnData wrote: "anndata", "csr_matrix", "categorical" and so on; None of other nodes."""
        encoding = self.attributes.get("encoding-type")
        return encoding if isinstance(encoding, str) else None

    def child(self, key: str) -> Node | None:
        """Return the node at `key` below this one, or None."""
        return read_node(self.location.join(key), self.top)


def read_node(location: Location, top: str = "") -> Node | None:
    """Return the node at `location`, or None if there is none; one file is read (of Zarr v2 two).

    `top`: Real path of the local store that holds it; the node itself where it is empty.
    Raises `SourceError` if a link leads out of the store.
    """
    if location.is_local and not top:
        top = os.path.realpath(location.url)
    content = location.read_inside("zarr.json", top)
    if content is not None:
        document = _load(content, f"{location.address}/zarr.json")
        kind = document.get("node_type")
        if kind not in ("array", "group"):
            raise SourceError(f"{location.address}/zarr.json: the metadata has no node type; restore it")
        return Node(location, kind, document, top)
    kinds: tuple[tuple[str, Literal["array", "group"]], ...] = ((".zarray", "array"), (".zgroup", "group"))
    for name, kind in kinds:
        content = location.read_inside(name, top)
        if content is not None:
            document = _load(content, f"{location.address}/{name}")
            attributes = location.read_inside(".zattrs", top)
            document["attributes"] = _load(attributes, f"{location.address}/.zattrs") if attributes else {}
            return Node(location, kind, document, top)
    return None


def find_node(root: Node | None, location: Location, key: str | None, groups: Collection[str]) -> Node:
    """Return the array at `key` below `root` (or `root` itself), or a group of an encoding that is one of `groups`.

    Raises `SourceError` if there is neither; the message says what is at `location` instead.
    """
    if root is None:
        if location.is_local:
            location.existing_version()
        raise SourceError(
            f"{location.address}: not a Zarr array: there is no zarr.json, .zarray or .zgroup; convert the file with: "
            "sketchselect convert IN OUT.zarr"
        )
    node = root
    if key is not None:
        if root.kind == "array":
            raise SourceError(
                f"{location.address}: this is an array, not a group, so it has no key {key!r:.80}; leave key out"
            )
        below = root.child(key)
        if below is None:
            arrays = list_arrays(root)
            hint = did_you_mean(key, arrays, f"; arrays there: {_listed(arrays) or 'none'}")
            raise SourceError(f"{location.address}: no array {key!r:.80} in this group{hint}")
        node = below
    if node.kind == "array" or node.encoding in groups:
        return node
    arrays = list_arrays(root)
    if key is not None:
        arrays = {name: text for name, text in arrays.items() if name.startswith(f"{key.strip('/')}/")}
    raise SourceError(
        f"{node.location.address}: this is a group, not an array; choose one with key= (or --key): {_listed(arrays)}"
        if arrays
        else f"{node.location.address}: this is a Zarr group without arrays in it"
    )


def list_arrays(group: Node) -> dict[str, str]:
    """Return the keys of the arrays in a group, each with a description such as ``"100 x 5 float32"``.

    Of a web server's group they are known by consolidated metadata alone.
    """
    arrays = {}
    if group.location.has_listing:
        paths = (key.rpartition("/") for key, _, _ in group.location.files())
        folders = [folder for folder, _, name in paths if folder and name in ("zarr.json", ".zarray")]
    else:
        folders = list((group.document.get("consolidated_metadata") or {}).get("metadata", {}))
    for folder in sorted(folders):
        node = group.child(folder)
        if node is not None and node.kind == "array":
            metadata = parse_metadata(node.document, folder)
            arrays[folder] = f"{' x '.join(map(str, metadata.shape))} {metadata.type_name}"
    return arrays


def _listed(arrays: dict[str, str]) -> str:
    shown = ", ".join(f"{key} ({text})" for key, text in list(arrays.items())[:_LISTED])
    return shown + (", ..." if len(arrays) > _LISTED else "")


def _load(content: bytes, address: str) -> dict[str, Any]:
    """Return a metadata document, or raise `SourceError` if it is damaged."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{address}: the metadata is damaged or cut off ({len(content)} bytes); restore it"
        ) from error
    if not isinstance(document, dict):
        raise SourceError(f"{address}: the metadata is not a JSON object; restore it")
    return document


def folder_of(source: Any) -> Location | None:
    """Return where an open `zarr.Array` or group is on a local disk; None for an array in another store."""
    from zarr.storage import LocalStore

    store = source.store
    if not isinstance(store, LocalStore):
        if hasattr(source, "shape"):
            return None
        raise SourceError(f"{type(store).__name__}: give an array of this Zarr group")
    location = locate(str(store.root))
    path = getattr(source, "path", "")
    return location.join(path) if path else location
