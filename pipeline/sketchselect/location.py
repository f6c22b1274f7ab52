"""Locations of files and folders, local paths and remote URLs: the file operations of the package, and its errors."""

from __future__ import annotations

import contextlib
import contextvars
import difflib
import errno
import functools
import inspect
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from sketchselect._text import did_you_mean, is_signed, without_credentials
from sketchselect.errors import (
    BadParameter,
    ChunkReadError,
    SourceChanged,
    SourceError,
    SourceMissing,
    SourceOutOfReach,
    warn,
)

SCHEMES = ("file", "memory", "s3", "gs", "az", "abfs")
"""URL schemes that are opened; http and https need ``storage_options={"allow_http": True}``."""

PAUSES = (0.2, 1.0)
"""Seconds before a store that failed is asked a second and a third time."""

LAST_PAUSE = 4.0
"""Seconds before a web server that is out of reach, or cut a connection off, is asked a fourth time: it may restart."""

SILENT_SECONDS = 60.0
"""Seconds in which a web server has to send something, else a read counts as failed: only those are made again."""

NOTED_SECONDS = 15.0
"""Seconds between two warnings that a source is still being opened."""

S3_SILENT_SECONDS = 30.0
"""Seconds in which a server of S3 has to send something, as to obstore."""

S3FS_TRIES = 2
"""Times that s3fs asks, each by several requests of botocore; with its own five a read takes minutes."""

S3_RETRIES = {"mode": "standard", "total_max_attempts": 3}
"""Requests of botocore for each try of s3fs."""

T = TypeVar("T")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")
_NEARLY_URL = re.compile(r"/(s3|gs|az|abfs|https?):/*([^/].*)")
_PACKAGES = {"gs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_VERSION_FIELDS = (
    *("ETag", "etag", "md5Hash", "generation", "mtime", "last_modified", "LastModified", "created"),
    *("Content-MD5", "Digest", "Last-Modified"),  # of web servers without ETag
)
_NO_FILE = ".sketchselect-no-such-file"
_PASSING = (408, 425, 429, 500, 502, 503, 504)  # What a web server answers that may do better a moment later
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--(?:(?!-->).){0,400}-->\s*){0,4}<(?:!doctype\s+html|html|head|title)\b",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Location:
    """A file or folder, local or remote. Small and picklable; connections are made when needed."""

    url: str  # Absolute path, or URL
    # Arguments of the remote file system; they may hold credentials and are never shown
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether it is a path of this machine."""
        return not is_url(self.url)

    @property
    def has_listing(self) -> bool:
        """Whether the files below it can be listed: not by web servers."""
        return not self.url.startswith(("http://", "https://"))

    @property
    def file_options(self) -> dict[str, Any]:
        """The arguments of its file system, with the patience that reading has with a server."""
        if self.url.startswith("s3://"):
            options = {**_configured("s3", "s3a"), **self.options}
            given = options.get("config_kwargs") or {}
            is_said = not isinstance(given, Mapping) or "retries" in given
            if not is_said and _s3fs_reads() and not _states_retries(options.get("profile")):
                return {
                    **self.options,
                    "config_kwargs": {"retries": S3_RETRIES, "read_timeout": S3_SILENT_SECONDS, **given},
                }
        if self.is_local or self.has_listing or "get_client" in self.options:
            return dict(self.options)
        with contextlib.suppress(ImportError):  # which is said where the file system is made
            import aiohttp

            # Its own limit of five minutes is for the whole of a file, however large that is.
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENT_SECONDS, sock_read=SILENT_SECONDS)
            given = {**_configured("http", "https"), **self.options}.get("client_kwargs") or {}
            return {**self.options, "client_kwargs": {"timeout": timeout, **given}}
        return dict(self.options)

    @property
    def address(self) -> str:
        """The location for messages: no credentials, and of a web server no query string."""
        if self.is_local:
            return self.url
        parts = urlsplit(self.url)
        host = parts.netloc if parts.scheme in ("az", "abfs") else parts.netloc.rpartition("@")[2]
        if not host and parts.scheme == "memory":
            return self.url
        if self.has_listing and not is_signed(self.url):
            # Question marks and number signs are parts of a name.
            return f"{parts.scheme}://{host}{self.url.partition('://')[2][len(parts.netloc) :]}"
        return urlunsplit((parts.scheme, host, parts.path, "", ""))

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.url.rstrip("/").rpartition("/")[2]

    def join(self, key: str) -> Location:
        """Return the location of `key` below this one; a key that leaves it is refused."""
        parts = key.strip("/").split("/")
        if _CONTROL.search(key) or any(part in ("", ".", "..") for part in parts):
            raise SourceError(f"{self.address}: the key {key!r:.80} must be a plain path inside the store")
        return replace(self, url="/".join([self.url.rstrip("/"), *parts]))

    def parent(self) -> Location | None:
        """Return the folder above, or None at the top."""
        head = self.url.rstrip("/").rpartition("/")[0]
        return replace(self, url=head) if head and not head.endswith(":/") else None

    @property
    def whole_file_options(self) -> dict[str, Any]:
        """The same for files read whole: s3fs asks for the size of each first where it may fetch parts side by side."""
        one_at_a_time = {"max_concurrency": 1} if self.url.startswith("s3://") and _s3fs_reads() else {}
        return {**one_at_a_time, **self.file_options}

    def sibling(self, name: str) -> Location:
        """Return the location of `name` in the same folder; a bucket has no such neighbour."""
        head, _, last = self.url.rstrip("/").rpartition("/")
        if not last or (head.endswith(":/") and not head.startswith("memory")):
            raise SourceError(f"{self.address}: this is a whole bucket; name a folder in it")
        return replace(self, url=f"{head}/{name}")

    def filesystem(self) -> tuple[Any, str]:
        """Return the fsspec file system of a remote location and the path in it."""
        import fsspec

        try:
            fs, path = fsspec.core.url_to_fs(self.url, **self.file_options)
        except ImportError as error:
            scheme = self.url.partition(":")[0]
            package = _PACKAGES.get(scheme, '"sketchselect[remote]"')
            raise SourceError(
                f"{self.address}: {scheme}:// needs a package that is not installed; pip install {package}"
            ) from error
        except Exception as error:
            raise self.failure(error) from error
        if self.url.startswith("s3://") and self.file_options != self.options and hasattr(type(fs), "retries"):
            # Reads that fail are made again, as those of obstore are.
            fs.retries = S3FS_TRIES
        return fs, path

    def is_folder(self) -> bool:
        """Return whether this is a folder; raise `SourceError` if its file system refuses to say."""
        if self.is_local:
            return os.path.isdir(self.url)
        fs, path = self.filesystem()
        try:
            return bool(fs.isdir(path))
        except Exception as error:
            raise self.failure(error) from error

    def failure(self, error: BaseException, action: str = "read") -> SourceError:
        """Return the error for a file system that refused an action, with every option value blanked out."""
        if _is_redirected(error):
            return SourceError(
                f"{self.address}: cannot be {action} (the server sends every request elsewhere); check the bucket, its "
                "region (client_kwargs.region_name) and the address (endpoint_url)"
            )
        text = refusal(error) or f"{type(error).__name__}: {error}".replace("\n", " ").removesuffix(": ")
        for secret in sorted(_texts(self.options), key=len, reverse=True):
            text = text.replace(secret, "***")
        kind = SourceOutOfReach if _status(error) in _PASSING or _is_silent(error) else SourceError
        return kind(f"{self.address}: cannot be {action} ({text:.300}); check the address and the credentials")

    def read_inside(self, key: str, top: str) -> bytes | None:
        """Return the content of the file `key`, or None; a local one must be a plain file below the real path `top`."""
        if self.is_local:
            path = self.join(key).url
            _require_inside(path, top)
            if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
                raise _not_a_file(path)
        return self.read(key)

    def require_files(self, keys: Iterable[str]) -> None:
        """Raise `SourceError` where a local file that is there leads out of this folder by now, or is a pipe."""
        top, folders = os.path.realpath(self.url), set[str]()
        for key in keys:
            path = f"{self.url}/{key}"
            folders.add(os.path.dirname(path))
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if not stat.S_ISREG(os.lstat(path).st_mode):
                    _require_inside(path, top)
                    if not stat.S_ISREG(mode := os.stat(path).st_mode) and not stat.S_ISDIR(mode):
                        raise _not_a_file(path)
        for folder in folders:
            _require_inside(folder, top)

    def read(self, key: str | None = None) -> bytes | None:
        """Return the content of a file (of `key` below this location), or None if there is none.

        A page that a web server sends instead of a file that it does not have is none.
        """
        return self.read_unless_page(key)[0]

    def read_unless_page(self, key: str | None = None) -> tuple[bytes | None, SourceError | None]:
        """Return what `read` does, and the error for a web server that sent a page instead; None where it did not."""
        target = self if key is None else self.join(key)
        try:
            if self.is_local:
                return Path(target.url).read_bytes(), None
            fs, path = target.filesystem()
            content: bytes = persistent(lambda: fs.cat_file(path, **_without_size(fs)))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None, None
        except (SourceError, MemoryError):
            raise
        except Exception as error:
            raise target.failure(error) from error
        return (None, target._page()) if not self.has_listing and _PAGE.match(content) else (content, None)

    def page_instead(self, key: str | None = None) -> SourceError | None:
        """Return the error for a web server that sends a page in the place of this file (or of `key`); None if not."""
        target = self if key is None else self.join(key)
        if self.has_listing:
            return None
        fs, path = target.filesystem()
        try:
            is_page = _PAGE.match(persistent(lambda: fs.cat_file(path, start=0, end=512))) is not None
        except Exception:  # which whoever asks has an error for
            return None
        return target._page() if is_page else None

    def _page(self) -> SourceError:
        return SourceError(
            f"{self.address}: the web server sends a page (HTML) instead of this file; check the address, and "
            "whether the server asks for a login"
        )

    def says_what_is_missing(self) -> bool:
        """Return whether a web server says that a file is missing, instead of sending a page or forbidding it."""
        try:
            content, page = self.read_unless_page(_NO_FILE)
        except SourceError as error:
            if status_of(error) != 403:
                raise
            return False
        return content is None and page is None

    def write(self, content: bytes | Iterable[Buffer], *, durable: bool = True) -> None:
        """Write a file as a whole: readers see the old content or the new, never a part; a remote folder is made.

        The content may come in parts.

        Raises `OSError` if the disk refuses; `SourceError` if the remote file system refuses.
        """
        if self.is_local:
            write_atomically(Path(self.url), content, durable=durable)
            return
        import fsspec

        self.filesystem()  # its errors name what is missing
        try:
            # Object stores publish an object as a whole when the upload ends.
            with fsspec.open(self.url, "wb", **self.options) as file:
                for part in _parts(content):
                    file.write(part)
        except OSError:
            raise
        except Exception as error:
            raise self.failure(error, "written") from error

    def remove(self) -> None:
        """Remove a file; raise `FileNotFoundError` if there is none."""
        if self.is_local:
            os.unlink(self.url)
            return
        fs, path = self.filesystem()
        if not fs.exists(path):
            raise FileNotFoundError(self.address)
        fs.rm_file(path)

    def files(self) -> Iterator[tuple[str, int, str]]:
        """Yield ``(key, size, version)`` of every file below; the version is "" where the store has none."""
        if self.is_local:
            yield from _walk(Path(self.url), "", os.path.realpath(self.url))
            return
        fs, path = self.filesystem()
        try:
            fs.invalidate_cache()
            listing = fs.find(path, detail=True)
        except FileNotFoundError:
            return
        except Exception as error:
            raise self.failure(error) from error
        cut = len(path.strip("/")) + 1
        for name, info in listing.items():
            key = name.lstrip("/")[cut:]
            if key:
                yield key, int(info.get("size") or 0), version_of(info)

    def version(self, key: str | None = None) -> str | None:
        """Return size and modification time (or ETag) of one file, or None if there is none."""
        target = self if key is None else self.join(key)
        if self.is_local:
            return file_version(target.url)
        fs, path = target.filesystem()

        def ask() -> Any:
            fs.invalidate_cache()
            return fs.info(path)

        try:
            info = persistent(ask)
        except FileNotFoundError as error:
            if (cause := _cause(error)) is None:
                return None
            raise target.failure(cause) from error
        except Exception as error:
            raise target.failure(error) from error
        return f"{info.get('size')}:{version_of(info)}"

    def existing_version(self) -> str:
        """Return the version of this file, or raise `SourceError` if there is none, or it is a pipe or a device."""
        version = self.version()
        if version is None:
            raise self.not_found()
        if self.is_local and not (os.path.isfile(self.url) or os.path.isdir(self.url)):
            raise SourceError(
                f"{self.address}: this is a pipe or a device, but a source is read more than once; write it "
                "to a file first"
            )
        return version

    def require_version(self, opened: str) -> None:
        """Raise `SourceChanged` unless the file is still the version that was opened."""
        if self.version() != opened:
            raise SourceChanged(
                f"{self.address}: the file was rewritten after it was opened; start again when nothing writes to it"
            )

    def missing_bucket(self) -> SourceMissing | None:
        """Return the error for a bucket of S3 that does not exist; None where it does, or the store does not say."""
        if not self.url.startswith("s3://"):
            return None
        fs, path = self.filesystem()
        bucket = path.partition("/")[0]
        try:
            fs.call_s3("head_bucket", Bucket=bucket)
        except FileNotFoundError:
            return SourceMissing(f"{self.address}: there is no bucket {bucket!r:.80}; check its name, and endpoint_url")
        except Exception:  # a file system of another package, or one that may not ask
            return None
        return None

    def not_found(self) -> SourceMissing:
        """Return the error for a location where nothing is, with the closest name in the same folder."""
        if (missing := self.missing_bucket()) is not None:
            return missing
        hint = "; check the path"
        if (typed := _NEARLY_URL.search(self.url)) is not None:
            return SourceMissing(f"{self.address}: no such file or folder; did you mean {typed[1]}://{typed[2]}?")
        if self.is_local:
            if "*" in self.url:
                return SourceMissing(
                    f"{self.address}: no such file; patterns are not read: give the folder of the files"
                )
            if os.path.islink(self.url):
                return SourceMissing(f"{self.address}: a link that leads to nothing, or to itself; correct the link")
            above = Path(self.url).parent
            try:
                names = sorted(os.listdir(above))
            except OSError:
                return SourceMissing(f"{self.address}: no such file or folder, nor the folder {above}; check the path")
            # Two names that share little but their ending are not alike.
            stem = Path(self.name).stem
            near = [name for name in names if difflib.SequenceMatcher(None, stem, Path(name).stem).ratio() > 0.6]
            hint = did_you_mean(self.name, near, hint)
        return SourceMissing(f"{self.address}: no such file or folder{hint}")


def _s3fs_reads() -> bool:
    """Return whether it is s3fs that reads ``s3://``; another package may know none of its options."""
    from fsspec.registry import known_implementations, registry

    if "s3" in registry:
        return any(kind.__module__.startswith("s3fs.") for kind in registry["s3"].__mro__)
    return str(known_implementations["s3"]["class"]).startswith("s3fs.")


def _configured(*protocols: str) -> dict[str, Any]:
    """Return the arguments of a file system in the configuration of fsspec, which those of a call replace whole."""
    from fsspec.config import conf

    return {name: value for protocol in protocols for name, value in (conf.get(protocol) or {}).items()}


def _states_retries(profile: Any) -> bool:
    """Return whether the environment, or the configuration of AWS, says how often requests are made again."""
    names = ("AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE")
    if any(name in os.environ for name in names):
        return True
    files = os.environ.get("AWS_CONFIG_FILE"), os.environ.get("AWS_SHARED_CREDENTIALS_FILE")
    profile = profile or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
    return _configured_retries(profile if isinstance(profile, str) else None, *files)


@functools.lru_cache(maxsize=8)
def _configured_retries(profile: str | None, *files: str | None) -> bool:
    try:
        from botocore.session import Session

        return not {"max_attempts", "retry_mode"}.isdisjoint(Session(profile=profile).get_scoped_config())
    except Exception:  # a profile or file that cannot be read, of which s3fs has an error
        return False


def _is_silent(error: BaseException) -> bool:
    """Return whether a server took a request and sent nothing, or one of S3 asks for fewer requests."""
    cause = _cause(error) or error
    is_timeout = type(cause).__name__ in (
        "FSTimeoutError",
        "SocketTimeoutError",
        "ServerTimeoutError",
        "ReadTimeoutError",
    )
    return is_timeout or (isinstance(cause, OSError) and cause.errno == errno.EBUSY)


@contextlib.contextmanager
def warnings_of_waiting(url: str) -> Iterator[None]:
    """Warn every `NOTED_SECONDS` until the block ends, which waits for a server."""
    over, began = threading.Event(), time.monotonic()

    def say() -> None:
        while not over.wait(NOTED_SECONDS):
            with contextlib.suppress(Warning):  # where warnings are errors
                seconds = f"{time.monotonic() - began:.0f} s"
                address = Location(url).address
                warn(f"{address}: opening has taken {seconds} so far; the server answers slowly, or not at all")

    context = contextvars.copy_context()
    waiting = threading.Thread(target=context.run, args=(say,), name="sketchselect-waiting", daemon=True)
    waiting.start()
    try:
        yield
    finally:
        over.set()
        waiting.join(1.0)  # not for ever: what is said may go to a pipe that nobody reads


def _is_redirected(error: BaseException) -> bool:
    """Return whether a server of S3 answers with one redirection after the other."""
    # aiobotocore asks again and again for the region of a bucket whose server does not say it.
    inner = getattr(error, "kwargs", {}).get("error") or error.__cause__
    return isinstance(error, RecursionError) or type(inner).__name__ == "TooManyRedirects"


def is_url(text: str) -> bool:
    """Return whether a text is a URL, of any scheme, and no local path."""
    return _SCHEME.match(text) is not None


def refusal(error: BaseException) -> str | None:
    """Return why a web server, or the network, gave no file; None for an error of another kind.

    Without the text of the error: it quotes the address that a server redirected to, which may be a signed one.
    """
    error = _cause(error) or error
    if isinstance(error, TimeoutError) and type(error).__module__.startswith(("fsspec.", "aiohttp.")):
        return "the server sends nothing; raise the option timeout, in seconds, if it just takes that long"
    if not type(error).__module__.startswith("aiohttp."):
        return None
    hide_addresses(error)
    if _is_distrusted(error):
        return "its certificate is not trusted"
    status = getattr(error, "status", None)
    return f"the server answers {status}" if status else type(error).__name__


def refused_chunk(place: str, error: BaseException) -> ChunkReadError | None:
    """Return the error for a part of a file that a web server, or the network, did not give; None for another error."""
    if (reason := refusal(error)) is None:
        return None
    if _is_distrusted(error):
        return ChunkReadError(
            f"{place} cannot be read ({reason}); check the server's certificate and this machine's clock"
        )
    kind = SourceOutOfReach if _status(error) in (None, *_PASSING) else ChunkReadError
    return kind(f"{place} cannot be read ({reason}); try again, or check the permissions")


def _is_distrusted(error: BaseException) -> bool:
    """Return whether the certificate of a web server was refused, which no later try changes."""
    return type(_cause(error) or error).__name__ == "ClientConnectorCertificateError"


def hide_addresses(error: Any) -> None:
    """Take what is secret out of the addresses that an error of aiohttp quotes: a traceback shows it as the cause."""
    error.args = tuple(without_credentials(arg) if isinstance(arg, str) else arg for arg in error.args)
    if (request := getattr(error, "request_info", None)) is not None:
        # Before aiohttp 3.11 it was no named tuple; messages read the address alone.
        error.request_info = SimpleNamespace(real_url=without_credentials(str(request.real_url)))


def status_of(error: SourceError) -> int | None:
    """Return what a web server answered: 403 also where it does not say which files it has; None without an answer."""
    status = getattr(error.__cause__, "status", None)
    return status if isinstance(status, int) else None


def _without_size(files: Any) -> dict[str, int]:
    """Return the option with which s3fs reads a whole file without asking for its size first, a request more."""
    read = getattr(files, "_cat_file", None)
    takes_it = files.protocol[0] == "s3" and read and "max_concurrency" in inspect.signature(read).parameters
    return {"max_concurrency": 1} if takes_it else {}


def persistent(call: Callable[[], T]) -> T:
    """Return what a call gives that asks a web server, which is made again after pauses where that may do better."""
    for n, pause in enumerate((*PAUSES, LAST_PAUSE)):
        try:
            return call()
        except Exception as error:
            cause = _cause(error) or error
            status = _status(error)
            if (
                refusal(cause) is None
                or _is_distrusted(error)
                or (status and (status not in _PASSING or n == len(PAUSES)))
            ):
                raise
        time.sleep(pause)
    return call()


def _status(error: BaseException) -> Any:
    return getattr(_cause(error) or error, "status", None)


def _cause(error: BaseException) -> BaseException | None:
    """Return why a web server was not asked with success, where fsspec says that there is no file whatever it was."""
    cause = error.__cause__
    if not isinstance(error, FileNotFoundError) or not type(cause).__module__.startswith("aiohttp."):
        return None
    return None if getattr(cause, "status", None) in (404, 410) else cause


def scheduler_hint(text: Any) -> str:
    """Return the end of a message about what is no cluster, where it is a scheduler's address without its protocol.

    Examples
    --------
    >>> scheduler_hint("localhost:8786"), scheduler_hint("locl")
    ('; a scheduler there is tcp://localhost:8786', '')
    """
    is_place = isinstance(text, str) and re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}", text)
    return f"; a scheduler there is tcp://{text}" if is_place else ""


_SCHEDULERS = ("tcp", "tls", "ws", "wss", "ucx", "inproc")


def scheduler_fault(address: str) -> str | None:
    """Return what is wrong with the address of a scheduler, without repeating a password; None if nothing."""
    scheme, _, place = address.rpartition("://")
    place = place.rpartition("@")[2]
    if "@" in address:
        return (
            f"{place:.200}: a scheduler's address has no user and password; write it without what stands before the @, "
            "and protect the traffic with tls://"
        )
    if scheme in ("", *_SCHEDULERS):
        return None
    what = f"{_hide(address)}: this is not the address of a scheduler"
    if scheme in ("http", "https"):
        what = f"{_hide(address)}: this is the address of a web page, perhaps of the scheduler's dashboard"
    host = re.split(r"[:/?]", place, maxsplit=1)[0] or "HOST"
    return f"{what}; give that of the scheduler itself, such as tcp://{host:.100}:8786"


def is_scheduler_file(cluster: str) -> bool:
    """Return whether a cluster is named by the local scheduler file (``.json``) that its scheduler has written."""
    return cluster.endswith(".json") and not is_url(cluster)


def location_of(path: str | os.PathLike[str]) -> Location:
    """Return the location of a path or URL of our own files: any scheme that fsspec knows, credentials from outside."""
    text = os.fspath(path)
    if not is_url(text):
        if "::" in text and "://" in text:
            raise _chained(text)
        return Location(os.path.abspath(text))
    _require_no_credentials(text)
    return Location(text)


def locate(source: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Location:
    """Return the location of a source that a user names; see `SCHEMES`.

    Raises `SourceError` for a scheme that is not allowed, chained URLs (``::``), control characters, or credentials in
    the URL; `BadParameter` if there are `storage_options` for a local path.
    """
    text = os.fspath(source)
    if not isinstance(text, str) or not text or _CONTROL.search(text):
        raise SourceError("a source must be a path or URL without control characters")
    match = _SCHEME.match(text)
    if "::" in text:
        raise _chained(text)
    if match is None or match[1].lower() == "file":
        if storage_options:
            raise BadParameter("storage_options apply to remote URLs (s3://, gs://, ...), not to a local path")
        return Location(os.path.abspath(text[match.end() :] if match else os.path.expanduser(text)))
    options = dict(storage_options or {})
    allow_http = options.pop("allow_http", False)
    scheme = match[1].lower()
    if scheme in ("http", "https"):
        if allow_http is not True:
            raise SourceError(
                f"{_hide(text)}: {scheme} addresses are opened only where that is asked for: "
                'storage_options={"allow_http": True} in Python, --storage-option allow_http=true on the command line, '
                "input.storage_options.allow_http = true in a job"
            )
    elif scheme not in SCHEMES:
        raise SourceError(
            f"{_hide(text)}: addresses of the form {scheme}:// are not opened; allowed: {', '.join(SCHEMES)}"
        )
    given = options.get("client_kwargs") or {}
    if not isinstance(given, Mapping):
        raise BadParameter(f"storage_options: client_kwargs must be a table of options, got {type(given).__name__}")
    if scheme == "s3" and (region := options.pop("region", None)) is not None:
        if given.get("region_name", region) != region:
            raise BadParameter("storage_options: region and client_kwargs.region_name differ; leave one of the two out")
        options["client_kwargs"] = {**given, "region_name": region}
    _require_no_credentials(text)
    return Location(scheme + text[len(scheme) :].rstrip("/"), options)


def _chained(url: str) -> SourceError:
    return SourceError(f"{_hide(url)}: chained URLs (::) are not opened; give the address of the store itself")


def _require_no_credentials(url: str) -> None:
    """Raise `SourceError` for a URL with a password, or a query as signed ones have: it would be in every report."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise SourceError(f"{_hide(url)}: not the address of a store; encode brackets in it") from None
    is_web = parts.scheme in ("http", "https")
    user = parts.netloc.rpartition("@")[0]
    signed = parts.query and (is_web or is_signed(parts.query))
    # A password with a slash or a question mark ends what is before the path; of a web server it may be a port.
    port = re.search(r":(?!\d{1,5}$)" if is_web else ":", parts.netloc.rpartition("]")[2])
    cut = port is not None and "@" in parts.path + parts.query + parts.fragment
    if ":" in user or cut or (user and parts.scheme not in ("az", "abfs")) or signed:
        raise SourceError(
            f"{_hide(url)}: credentials do not belong in a URL; take them from the environment or storage_options"
        )


def _hide(url: str) -> str:
    """Return a URL with everything that may be a credential cut out."""
    return re.sub(r"(://)(?:[^/]*|[^/]*:(?!\d{1,5}/).*)@", r"\1", url).partition("?")[0][:200]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, str) and len(value) >= 4:
        yield value


_STORE_DOCUMENTS = "zarr.json", ".zgroup", ".zarray"


def local_path(place: str | os.PathLike[str]) -> Path | None:
    """Return the path of a file or folder on this machine, links followed; None for a URL of another."""
    text = os.fspath(place)
    match = _SCHEME.match(text)
    if match is not None and match[1].lower() != "file":
        return None
    return Path(os.path.realpath(text[match.end() :] if match else os.path.expanduser(text)))


def is_within(place: str | os.PathLike[str], source: str | os.PathLike[str], *, of_whole_store: bool = True) -> bool:
    """Return whether a file or folder to be written is a source, or lies in its folder.

    `of_whole_store`: Of a Zarr array or group, the outermost group around it counts as its folder.
    """
    target, inner = local_path(place), local_path(source)
    if target is None or inner is None:
        return f"{os.fspath(place).rstrip('/')}/".startswith(f"{os.fspath(source).rstrip('/')}/")
    # The folder of everything has no group around it.
    while of_whole_store and inner != inner.parent and _is_stored(inner) and _is_stored(inner.parent):
        inner = inner.parent
    return target.is_relative_to(inner)


def _is_stored(folder: Path) -> bool:
    # Also where a path is too long to be one.
    return any(os.path.exists(folder / name) for name in _STORE_DOCUMENTS)


def file_version(path: str) -> str | None:
    """Return size and modification time of a local file, or None if there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        # A text too long to be a path names no file, and neither does a link to itself.
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            return None
        raise
    return f"{status.st_size}:{status.st_mtime_ns}"


def version_of(info: Mapping[str, Any]) -> str:
    """Return the version in what a file system says of a file; empty where it states none."""
    for name in _VERSION_FIELDS:
        if info.get(name) is not None:
            return str(info[name])
    return ""


FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Numbers of the errors of a disk, quota or limit that is exhausted."""


def unwritable(error: OSError) -> str:
    """Return why something cannot be written, and what to do."""
    cures = dict.fromkeys(FULL, "make room") | {errno.EFBIG: "raise the limit of the size of files (ulimit -f)"}
    return (
        f"cannot be written ({error.strerror or type(error).__name__}); {cures.get(error.errno or 0, 'check the disk')}"
    )


Buffer = bytes | memoryview


def _parts(content: bytes | Iterable[Buffer]) -> Iterable[Buffer]:
    return [content] if isinstance(content, bytes) else content


def write_atomically(path: Path, content: bytes | Iterable[Buffer], *, durable: bool = True) -> None:
    """Write a local file so that, whatever happens, either the old or the whole new content is under its name.

    Where it need not be `durable` that holds for all but a machine that fails.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("wb") as file:
            file.writelines(_parts(content))
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError):
            # The error of a full disk names no file, and users do not know the temporary name.
            error.filename = str(path)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _require_inside(path: str, top: str) -> None:
    """Raise `SourceError` if a path, its links followed, is not below `top`, which has no links."""
    if not Path(os.path.realpath(path)).is_relative_to(top):
        raise SourceError(f"{path}: a link that leads out of {top}, which is not followed; put the file itself there")


def _not_a_file(path: str) -> SourceError:
    return SourceError(f"{path}: neither a file nor a folder, which is not read; restore the file")


def _walk(folder: Path, prefix: str, top: str) -> Iterator[tuple[str, int, str]]:
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if entry.is_symlink():
                _require_inside(entry.path, top)
                if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(entry.path)):
                    raise SourceError(f"{entry.path}: a link to a folder that it is in; remove it")
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", top)
            elif entry.is_file():
                status = entry.stat()
                yield prefix + entry.name, status.st_size, str(status.st_mtime_ns)
            elif os.path.exists(entry.path):
                raise _not_a_file(entry.path)
