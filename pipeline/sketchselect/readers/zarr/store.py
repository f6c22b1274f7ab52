"""Stores of the zarr library, and one that raises where a chunk has no file."""

from __future__ import annotations

from typing import Any

from zarr.storage import FsspecStore, LocalStore, WrapperStore

from sketchselect.location import Location

_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


class ChunkNotFoundError(Exception):
    """A chunk without a file; zarr has an error of the same name since 3.2, earlier releases read the fill value."""


class StrictStore(WrapperStore):  # type: ignore[misc,unused-ignore]
    """A store in which every chunk must exist, for releases of zarr without a setting for that."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the content of `key`; raise `ChunkNotFoundError` where a chunk has none."""
        value = await super().get(key, prototype, byte_range)
        if value is None and key.rpartition("/")[2] not in _METADATA:
            raise ChunkNotFoundError(key)
        return value


def make_store(location: Location, strict: bool = False) -> LocalStore | FsspecStore | StrictStore:
    """Return a read-only store of the folder at `location`."""
    if location.is_local:
        store: Any = LocalStore(location.url, read_only=True)
    else:
        store = FsspecStore.from_url(location.url, storage_options=dict(location.options) or None, read_only=True)
    return StrictStore(store) if strict else store
