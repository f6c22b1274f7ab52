"""Stores of the zarr library: one that raises where a chunk has no file, one that remembers chunks read in parts.

Imported where a store is opened: importing zarr takes longer than all other readers.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from zarr.storage import FsspecStore, LocalStore, WrapperStore

from sketchselect.location import Location, version_of
from sketchselect.readers.stored import RECENT_NBYTES

_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")

_RECENT: OrderedDict[tuple[object, str, str], tuple[str, Any]] = OrderedDict()
# Version and content of chunks, by store, key and range; zarr reads all of them in one thread.


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


class RecentStore(WrapperStore):  # type: ignore[misc,unused-ignore]
    """A remote store that fetches a chunk once where several partitions each take a part of it.

    What is remembered is used only as long as the store states the same size and version of the chunk, which is asked
    every time; a chunk whose version it does not state is fetched every time.
    """

    nbytes: ClassVar[int] = 0
    """Bytes that this process remembers, of all stores."""

    def __init__(self, store: FsspecStore) -> None:
        super().__init__(store)
        self._identity = object()
        # Of partitions that start together, the first fetches and the others wait.
        self._locks: WeakValueDictionary[Any, asyncio.Lock] = WeakValueDictionary()

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the content of `key`, remembered or fetched."""
        place = (self._identity, key, repr(byte_range))
        lock = self._locks.setdefault(place, asyncio.Lock())
        async with lock:
            version = await self._version(key)
            before, value = self._take(place)
            if not version or version != before:
                value = await super().get(key, prototype, byte_range)
            if version and value is not None:
                _RECENT[place] = version, value
                RecentStore.nbytes += len(value)
                while RecentStore.nbytes > RECENT_NBYTES:
                    self._take(next(iter(_RECENT)))
            return value

    @staticmethod
    def _take(place: Any) -> tuple[str, Any]:
        version, value = _RECENT.pop(place, ("", b""))
        RecentStore.nbytes -= len(value)
        return version, value

    async def _version(self, key: str) -> str:
        """Return size and version of a chunk as the store states them now; empty where it does not."""
        files = self._store.fs
        try:
            files.invalidate_cache()
            info = await files._info(f"{self._store.path}/{key}")
        except Exception:  # whoever may read a chunk need not be allowed to ask for its version
            return ""
        version = version_of(info)
        return f"{info.get('size')}:{version}" if version else ""


class DigestStore(WrapperStore):  # type: ignore[misc,unused-ignore]
    """A store to write to that knows the digest of every file."""

    def __init__(self, store: LocalStore | FsspecStore) -> None:
        super().__init__(store)
        self.digests: dict[str, str] = {}

    async def set(self, key: str, value: Any) -> None:
        """Write a file."""
        self.digests[key] = await asyncio.to_thread(_digest, value)
        await super().set(key, value)

    def set_sync(self, key: str, value: Any) -> None:
        """Write a file, in releases of zarr that do so in its own threads."""
        self.digests[key] = _digest(value)
        super().set_sync(key, value)


def _digest(value: Any) -> str:
    return hashlib.blake2b(value.as_numpy_array().data, digest_size=16).hexdigest()


def make_store(
    location: Location, *, strict: bool = False, recent: bool = False, read_only: bool = True
) -> LocalStore | FsspecStore | StrictStore | RecentStore | DigestStore:
    """Return a store of the folder at `location`; one that is written to has digests."""
    if location.is_local:
        store: Any = LocalStore(location.url, read_only=read_only)
    else:
        options = dict(location.options) or None
        store = FsspecStore.from_url(location.url, storage_options=options, read_only=read_only)
        store = RecentStore(store) if recent else store
    if not read_only:
        return DigestStore(store)
    return StrictStore(store) if strict else store
