"""Stores of the zarr library: for S3, one that raises where a chunk has no file, one that remembers chunks.

Imported where a store is opened: importing zarr takes longer than all other readers.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.storage import FsspecStore, LocalStore, ObjectStore, WrapperStore

from sketchselect.location import S3FS_TRIES, Location, version_of
from sketchselect.readers.stored import RECENT_NBYTES

_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")

_RECENT: OrderedDict[tuple[object, str, str], tuple[str, Any]] = OrderedDict()
# Version and content of chunks, by store, key and range; zarr reads all of them in one thread.


class ChunkNotFoundError(Exception):
    """A chunk without a file; zarr has an error of the same name since 3.2, earlier releases read the fill value."""


_PROCESS = os.getpid()

CONNECTION = {"timeout": "1h", "read_timeout": "30s", "connect_timeout": "15s"}
"""Limits of obstore: without the first, an object that is not there after 30 s would never be read."""

RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}

CREDENTIALS_LAST = timedelta(minutes=5)
"""How long obstore uses the credentials of s3fs, which renews them, before it asks again."""

S3_OPTIONS = frozenset(
    ("anon", "key", "username", "secret", "password", "token", "endpoint_url", "profile", "client_kwargs", "use_ssl")
)
"""Options of s3fs that mean the same where obstore reads; with any other one s3fs reads."""

CLIENT_OPTIONS = frozenset(
    ("endpoint_url", "region_name", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "use_ssl")
)


class S3Store(ObjectStore):  # type: ignore[misc,unused-ignore]
    """A store in S3 that obstore reads: one request a chunk, about a third of the processor time of s3fs."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the content of `key`; raise `OSError` where the store or the network refuses it."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            return await super().get(key, prototype, byte_range)
        except BaseError as error:
            refused = isinstance(error, (PermissionDeniedError, UnauthenticatedError))
            # What a server says may quote the request.
            reason = "access denied" if refused else f"{type(error).__name__}: {error}".splitlines()[0][:160]
            raise OSError(errno.EACCES if refused else errno.EIO, reason, key) from error

    async def version(self, key: str) -> str:
        """Return size and ETag of an object as the store states them now."""
        import obstore

        meta = await obstore.head_async(self.store, key)
        return f"{meta['size']}:{meta['e_tag']}" if meta.get("e_tag") else ""


def s3_store(location: Location) -> S3Store | None:
    """Return the store that obstore reads; None where it is not installed, or s3fs is told what obstore is not.

    Address, region and credentials are those that s3fs works out from options, environment and files. A fork has
    none of the threads of obstore, so a forked process reads with s3fs.
    """
    options = location.options
    client = options.get("client_kwargs") or {}
    if not location.url.startswith("s3://") or options.keys() - S3_OPTIONS or client.keys() - CLIENT_OPTIONS:
        return None
    try:
        import obstore.store
    except ImportError:
        return None
    if os.getpid() != _PROCESS:
        return None
    files, path = location.filesystem()
    if not hasattr(files, "s3"):  # a file system of another package for s3://
        return None
    bucket, _, prefix = path.partition("/")
    meta = files.s3.meta
    endpoint = str(meta.endpoint_url)
    # It would go before the address that is given here.
    if os.environ.get("AWS_ENDPOINT_URL_S3") not in (None, "", endpoint) or ":" in bucket:
        return None
    credentials = _credentials(files, client)
    if credentials is None and not options.get("anon"):
        return None
    region = str(meta.region_name or "")
    try:
        store = obstore.store.S3Store(
            bucket,
            prefix=prefix or None,
            endpoint=endpoint,
            region="us-east-1" if region in ("", "aws-global") else region,
            virtual_hosted_style_request=False,
            skip_signature=bool(options.get("anon")),
            # Always given, so that those of the environment are not mixed with those of the options.
            credential_provider=credentials or (lambda: _stated("", "", None)),
            client_options={**CONNECTION, "allow_http": endpoint.startswith("http://")},
            retry_config=RETRIES,
        )
    except Exception:  # an earlier obstore lacks some of these
        return None
    return S3Store(store, read_only=True)


def _credentials(files: Any, client: Mapping[str, Any]) -> Callable[[], dict[str, Any]] | None:
    """Return what gives obstore the credentials of a file system of s3fs, renewed; None where it has none."""
    from fsspec.asyn import sync

    if key := files.key or client.get("aws_access_key_id"):
        secret = files.secret or client.get("aws_secret_access_key")
        return lambda: _stated(key, secret, files.token or client.get("aws_session_token"))
    source = sync(files.loop, files.session.get_credentials)
    if source is None:
        return None

    def renewed() -> dict[str, Any]:
        now = sync(files.loop, source.get_frozen_credentials)
        return _stated(now.access_key, now.secret_key, now.token) | {"expires_at": datetime.now(UTC) + CREDENTIALS_LAST}

    return renewed


def _stated(key: str, secret: str | None, token: str | None) -> dict[str, Any]:
    return {"access_key_id": key, "secret_access_key": secret or "", "token": token, "expires_at": None}


class WebStore(FsspecStore):  # type: ignore[misc,unused-ignore]
    """A store of a web server, which may send a whole file where a part of it is asked for."""

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the content of `key`, or the part of it."""
        value = await super().get(key, prototype, byte_range)
        if value is None:
            return None
        if isinstance(byte_range, SuffixByteRequest) and len(value) > byte_range.suffix:
            return value[len(value) - byte_range.suffix :]
        if isinstance(byte_range, RangeByteRequest) and len(value) > byte_range.end - byte_range.start:
            return value[byte_range.start : byte_range.end]
        return value


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

    def __init__(self, store: FsspecStore | S3Store) -> None:
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
        try:
            if isinstance(self._store, S3Store):
                return await self._store.version(key)
            files = self._store.fs
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


def read_stores(location: Location, *, strict: bool = False, recent: bool = False) -> Iterator[Any]:
    """Yield the stores of a remote folder, the fastest first; one that cannot be opened gives way to the next."""
    plain = s3_store(location)
    if plain is not None:
        store: Any = RecentStore(plain) if recent else plain
        yield StrictStore(store) if strict else store
    yield make_store(location, strict=strict, recent=recent)


def make_store(
    location: Location, *, strict: bool = False, recent: bool = False, read_only: bool = True
) -> LocalStore | FsspecStore | StrictStore | RecentStore | DigestStore:
    """Return a store of the folder at `location`; one that is written to has digests."""
    if location.is_local:
        store: Any = LocalStore(location.url, read_only=read_only)
    else:
        options = (location.whole_file_options if read_only else location.file_options) or None
        kind = FsspecStore if location.has_listing else WebStore
        store = kind.from_url(location.url, storage_options=options, read_only=read_only)
        if location.file_options != location.options and hasattr(type(store.fs), "retries"):
            # Reads that fail are made again, as those of obstore are.
            store.fs.retries = S3FS_TRIES
        store = RecentStore(store) if recent else store
    if not read_only:
        return DigestStore(store)
    return StrictStore(store) if strict else store
