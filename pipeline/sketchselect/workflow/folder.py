"""The output folder of a run: ours by a marker, one process at a time by a lock, published file by file, sealed."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

from sketchselect.errors import DamagedFile, Incompatible, NotOurFolder, RunInProgress, SketchSelectError, SourceError
from sketchselect.location import Buffer, sync_folder


def parsed(text: str) -> Any:
    """Return the value of a JSON text; raise `ValueError` if it is invalid, or nested deeper than our files."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON nested too deep") from None


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tree_digest(path: Path) -> str | None:
    """Return the digest of a file, or of the names and contents in a folder; None if absent.

    Contents and not times: a disk that loses a bit changes neither size nor time.
    """
    if path.is_file():
        return file_digest(path)
    if not path.is_dir():
        return None
    entries = [f"{file.relative_to(path).as_posix()} {file_digest(file)}" for file in path.rglob("*") if file.is_file()]
    return hashlib.sha256("\n".join(sorted(entries)).encode()).hexdigest()


def require_digests(path: Path, content: Mapping[str, Any], *names: str) -> None:
    """Raise `DamagedFile` if one of these files and stores of a run is not that of its manifest's content."""
    for name in names:
        digest = content.get("digests", {}).get(name)
        if digest is not None and tree_digest(path / name) != digest:
            raise DamagedFile(f"{path / name}: not the file that {path / 'manifest.json'} describes; run the job again")


T = TypeVar("T")

MARKER = ".sketchselect"
LOCK = ".lock"
HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 120.0
"""A lock of another host whose heartbeat is older than this belongs to a dead process."""

DIGEST_KEY = "digest"

FORMAT = 1
"""Version of the manifest's format; a later one may mean something else by the same names."""

UNUSED_DAYS = 30
MOST_CHECKPOINT_BYTES = 10 * 2**30

PUBLISHED = (
    "manifest.json",
    "selection.json",
    "scores.csv",
    "curve.csv",
    "model.json",
    "path.csv",
    "timeline.csv",
    "clusters.csv",
    "annotations.h5ad",
    "prepare.sks",
    "summary.sks",
    "columns.sks",
    "features.zarr",
    "labels.zarr",
    "labels.csv",
    "centers.zarr",
    "assign.json",
    "labels-unweighted.zarr",
    "centers-unweighted.zarr",
    "labels-weighted.zarr",
    "centers-weighted.zarr",
    "certificate.json",
    "report.json",
    "report.html",
    "run.log",
)
"""Every name a run may leave in its folder, except `checkpoints`, the marker and the lock."""

_FOLDERS = tuple("checkpoints" + below for below in ("", "/nodes", "/staging"))

_WRITTEN_THROUGH = (
    MARKER,
    LOCK,
    LOCK + ".guard",
    "run.log",
    *_FOLDERS,
    "checkpoints/stages.json",
    "checkpoints/cluster",
)
"""Names that are opened in place or searched for old files; all others are replaced as a whole."""


class OutputFolder:
    """A folder that carries our marker and, while open, our lock.

    Nothing outside `PUBLISHED` and ``checkpoints`` is ever written, replaced or deleted.

    `is_read_only`: Whether it is only read: without a lock, and possibly on a read-only disk.
    `was_stopped_early`: Whether an earlier run left neither a finished stage nor a part of one when it was opened.
    """

    def __init__(self, path: Path, *, is_read_only: bool = False) -> None:
        self.path, self.is_read_only, self.was_stopped_early = path, is_read_only, False
        self.checkpoints = path / "checkpoints"
        # Of this run alone: a task of an earlier one, on a worker that was away, may still write to that one's.
        self._staging = self.checkpoints / "staging" / uuid.uuid4().hex[:8]
        self._log = self.checkpoints / "stages.json"
        self._lock: _Lock | None = None

    def is_there(self) -> bool:
        """Return whether what is at the path is the folder that was opened, and not another run's in its place."""
        return (self.path / MARKER).exists() if self._lock is None else self._lock.is_there()

    def gone(self) -> NotOurFolder:
        """Return the error for a folder that is not there any more."""
        return NotOurFolder(
            f"{self.path}: moved or deleted while the run was writing to it; put it back, or remove what is there "
            "now, and run the same command again"
        )

    def remove_remains(self) -> None:
        """Remove what tasks have made at the path since the folder went away, where nothing else is there."""
        with contextlib.suppress(OSError):
            if {*os.listdir(self.path)} == {"checkpoints"} and {*os.listdir(self.checkpoints)} <= {"nodes", "staging"}:
                _remove(self.path)

    # --- publishing --------------------------------------------------------------------------------------------

    def staging(self, name: str) -> Path:
        """Return an unused path on the same file system to build `name` at; `publish` moves it to its name.

        Raises `NotOurFolder` if the folder was moved or deleted since it was opened: none is made in its place.
        """
        if not self.is_there():
            raise self.gone()
        self._staging.mkdir(parents=True, exist_ok=True)
        path = self._staging / name
        _remove(path)
        return path

    def publish(self, name: str) -> Path:
        """Move the file or folder at ``staging(name)`` to its final name, atomically."""
        final, source = self.path / name, self._staging / name
        if source.is_dir():
            _remove(final)
        os.replace(source, final)
        sync_folder(self.path)
        return final

    def write(self, name: str, content: Buffer | str | Iterable[Buffer | str]) -> Path:
        """Write one file, given as a whole or in parts, under its final name, atomically and durably."""
        parts = [content] if isinstance(content, (bytes, memoryview, str)) else content
        path = self.staging(name)
        with path.open("wb") as stream:
            stream.writelines(part.encode() if isinstance(part, str) else part for part in parts)
            stream.flush()
            os.fsync(stream.fileno())
        return self.publish(name)

    def discard(self, names: Sequence[str] = ("checkpoints", *PUBLISHED)) -> None:
        """Delete files of earlier runs with these names."""
        for name in names:
            _remove(self.path / name)

    def invalidate_results(self) -> None:
        """Discard the manifest, which states that the folder is complete, before a file that it describes changes."""
        self.discard(("manifest.json", "certificate.json", "report.json", "report.html"))

    def collect_checkpoints(self, elsewhere: Path | None = None) -> None:
        """Remove partial files of killed writers, nodes unused for `UNUSED_DAYS`, and the oldest nodes beyond a limit.

        Only the holder of the lock calls this, so no running job loses its files. `elsewhere` is a folder of nodes that
        other jobs may be writing to: there only nodes are removed, by their age.
        """
        now, total = time.time(), 0
        for file in elsewhere.glob("[0-9a-f][0-9a-f]/*.sks") if elsewhere else ():
            with contextlib.suppress(FileNotFoundError):  # another job has removed it since
                if now - file.stat().st_mtime > UNUSED_DAYS * 86400:
                    file.unlink()
        ours = (file for suffix in (".sks", ".partial") for file in (self.checkpoints / "nodes").rglob("*" + suffix))
        files = [(file.stat(), file) for file in ours if file.is_file()]
        for status, file in sorted(files, key=lambda entry: -entry[0].st_mtime):
            total += status.st_size
            too_old = now - status.st_mtime > UNUSED_DAYS * 86400
            if too_old or total > MOST_CHECKPOINT_BYTES or file.suffix != ".sks":
                file.unlink(missing_ok=True)

    # --- finished stages ---------------------------------------------------------------------------------------

    def finished(self, stage: str, fingerprint: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return the result of an earlier run's stage if its inputs and its files are unchanged."""
        entry = self._entries().get(stage)
        if entry is None or fingerprint is None or entry["fingerprint"] != plain(fingerprint):
            return None
        if any(digest != tree_digest(self.path / name) for name, digest in entry["files"].items()):
            return None
        result: dict[str, Any] = entry["result"]
        return result

    def finish(
        self, stage: str, fingerprint: Mapping[str, Any] | None, files: Sequence[str], result: Mapping[str, Any]
    ) -> None:
        """Record a finished stage; without a fingerprint (a source that cannot be identified) it is never reused."""
        entries = self._entries()
        if fingerprint is None:
            entries.pop(stage, None)
        else:
            digests = {name: tree_digest(self.path / name) for name in files}
            entries[stage] = {"fingerprint": plain(fingerprint), "files": digests, "result": plain(result)}
        path = self.staging("stages.json")
        path.write_text(sealed(entries, indent=1))
        os.replace(path, self._log)

    def differences(self, stage: str, fingerprint: Mapping[str, Any] | None) -> list[str]:
        """Return the names of inputs that changed since an earlier run finished this stage here."""
        entry = self._entries().get(stage)
        if entry is None or fingerprint is None:
            return []
        old, new = entry["fingerprint"], plain(fingerprint)
        return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))

    def fingerprint(self, stage: str) -> dict[str, Any] | None:
        """Return the inputs of an earlier run's stage; None if it did not finish one."""
        entry = self._entries().get(stage)
        return None if entry is None else dict(entry["fingerprint"])

    def _entries(self) -> dict[str, Any]:
        try:
            return unsealed(self._log)
        except (OSError, ValueError):
            return {}


@contextlib.contextmanager
def open_folder(path: str | os.PathLike[str], *, fresh: bool = False) -> Iterator[OutputFolder]:
    """Make the folder, or recognise it as ours, and hold its lock.

    `fresh` discards the files of earlier runs (only ours).
    Raises `NotOurFolder` if there is something at `path` that we did not make, or links; `RunInProgress` if a live
    process holds the lock; a dead one's lock is taken over. An error inside becomes `NotOurFolder` where the folder
    was moved or deleted meanwhile.
    """
    folder = OutputFolder(Path(os.path.abspath(path)))
    claim(folder.path)
    require_plain(folder.path)
    require_kinds(folder.path)
    with locked(folder.path) as folder._lock:
        if fresh:
            folder.discard()
        _remove(folder.checkpoints / "staging")  # what a run that was killed was building
        nodes = (folder.checkpoints / "nodes").rglob("*.sks")
        # It began here, and left neither a finished stage nor a part of one.
        folder.was_stopped_early = folder.checkpoints.is_dir() and not folder._entries() and not any(nodes)
        try:
            yield folder
        except Exception as error:
            if folder.is_there():
                with contextlib.suppress(OSError):  # a task that goes on may write there still
                    _remove(folder.checkpoints / "staging")  # on a full disk it is what takes the room
                raise
            folder.remove_remains()
            raise folder.gone() from error
        _remove(folder.checkpoints / "staging")
        with contextlib.suppress(OSError):
            folder.checkpoints.rmdir()  # Empty where files were put in place, and no stage was begun


def claim(path: Path) -> None:
    """Create a folder with our marker, or raise `NotOurFolder` if an existing one has none."""
    marker = path / MARKER
    if os.path.isfile(marker):
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        what = "is a file;" if path.exists() else "a link to a folder that is not there; make that, or"
        raise NotOurFolder(f"{path}: {what} choose another output folder") from None
    except OSError as error:
        raise SketchSelectError(f"{path}: the output folder cannot be made: {error.strerror}") from None
    try:
        # Another run may have made it ours since we looked.
        is_others = any(path.iterdir()) and not os.path.isfile(marker)
    except OSError as error:
        cure = "choose another output folder"
        raise SketchSelectError(f"{path}: the output folder cannot be listed: {error.strerror}; {cure}") from None
    if is_others:
        raise NotOurFolder(
            f"{path}: not empty and not made by sketchselect, so nothing is written there; choose another folder"
        )
    try:
        marker.write_text('{"made_by": "sketchselect", "what": "output folder", "version": 1}\n')
    except OSError as error:
        raise SketchSelectError(f"{path}: cannot be written: {error.strerror}") from None


def require_plain(path: Path) -> None:
    """Raise `NotOurFolder` where a run would write through a link, or wait for a pipe, in its folder."""
    for name in (*_WRITTEN_THROUGH, *PUBLISHED):
        file = path / name
        if name in _WRITTEN_THROUGH and file.is_symlink():
            cure = "put a file or folder itself there (execution.checkpoint names a place for checkpoints)"
            raise NotOurFolder(f"{file}: a link, and what it leads to is not written to; {cure}")
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise NotOurFolder(f"{file}: neither a file nor a folder; remove it, or choose another output folder")


def require_kinds(path: Path) -> None:
    """Raise `NotOurFolder` where a run would find a folder in the place of a file, or a file in that of a folder.

    Else the error would name the place in `staging` from which it cannot be moved here.
    """
    for name in (*_WRITTEN_THROUGH, *PUBLISHED):
        file = path / name
        if file.is_dir() and not (name.endswith(".zarr") or name in _FOLDERS):
            raise NotOurFolder(f"{file}: a folder where a file belongs; move it, or choose another output folder")
        if file.is_file() and (name.endswith(".zarr") or name in _FOLDERS):
            raise NotOurFolder(f"{file}: a file where a folder belongs; move it, or choose another output folder")


@dataclass(frozen=True)
class _Lock:
    """A lock file that this process has open and locked, and what it says."""

    path: Path
    stream: TextIO
    holder: dict[str, Any]

    def is_there(self) -> bool:
        """Return whether the folder is where it was locked; its lock file may have been deleted."""
        if self.path.exists():
            return _holder(self.path) in (None, self.holder)
        # A file that has a name elsewhere was moved with its folder, and what is here now is another's.
        return os.fstat(self.stream.fileno()).st_nlink == 0 and (self.path.parent / MARKER).exists()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[_Lock]:
    """Hold the folder's lock file, with a heartbeat, as long as the context is open."""
    lock = path / LOCK
    try:
        ours = _acquire(lock)
    except OSError as error:  # of another user, or of a file system that is read-only
        raise SketchSelectError(
            f"{path}: cannot be written: {error.strerror}; make it writable, give a copy of it, or choose another "
            "output folder"
        ) from None
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(lock)

    heart = threading.Thread(target=beat, name="sketchselect-lock", daemon=True)
    heart.start()
    try:
        yield ours
    finally:
        stop.set()
        heart.join()
        with contextlib.suppress(OSError), ours.stream:  # closed also where the guard cannot be
            if ours.is_there():
                with _guard(lock):
                    lock.unlink()


def _acquire(lock: Path) -> _Lock:
    """Return the lock file, open and locked by this process; the operating system lets go of it when the process ends.

    Times of processes are not compared: they move with the clock of the machine.
    """
    me = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    # Checking a dead lock and taking it over must be one step, or two newcomers could both do it.
    with _guard(lock), contextlib.ExitStack() as on_failure:
        handle = on_failure.enter_context(lock.open("a+"))
        locked_by_us = _flock(handle)
        holder = _holder(lock)
        if holder is not None and _alive(lock, holder, locked_by_us):
            raise RunInProgress(
                f"{lock.parent}: process {holder['pid']} on {holder['host']} has been running here since "
                f"{holder['since']}; wait for it, stop it, or choose another output folder"
            )
        handle.truncate(0)
        json.dump(me, handle)
        handle.flush()
        on_failure.pop_all()
        return _Lock(lock, handle, me)


@contextlib.contextmanager
def _guard(lock: Path) -> Iterator[None]:
    with (lock.parent / (LOCK + ".guard")).open("w") as stream:
        with contextlib.suppress(OSError):  # a file system without flock: only the heartbeat is left
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _holder(lock: Path) -> dict[str, Any] | None:
    try:
        holder = json.loads(lock.read_text())
    except (OSError, ValueError):
        return None
    return holder if isinstance(holder, dict) and {"pid", "host", "since"} <= holder.keys() else None


def _flock(handle: TextIO) -> bool | None:
    """Lock an open file; return False if a process has locked it, None on a file system that locks no files."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _alive(lock: Path, holder: Mapping[str, Any], locked_by_us: bool | None) -> bool:
    """Return whether the process named in a lock file still runs."""
    import psutil

    if locked_by_us is False:
        return True
    if holder["host"] == socket.gethostname() and (locked_by_us or not psutil.pid_exists(int(holder["pid"]))):
        return False
    guard = lock.parent / (LOCK + ".guard")
    os.utime(guard)  # both times are the file server's, so clocks of hosts do not matter
    age = guard.stat().st_mtime - lock.stat().st_mtime
    if age > -STALE_SECONDS:
        return bool(age < STALE_SECONDS)
    # The clock of the file server was ahead, and its times say nothing: who runs gives the next sign of life.
    last = _last_beat(lock)
    time.sleep(2 * HEARTBEAT_SECONDS)
    return _last_beat(lock) != last


def _last_beat(lock: Path) -> int:
    """Return the time of a lock file; to open it has a client of NFS ask the server."""
    with lock.open() as stream:
        return os.fstat(stream.fileno()).st_mtime_ns


def read_manifest(path: Path, use: Callable[[dict[str, Any]], T]) -> T:
    """Return the result of `use` for the content of a run's ``manifest.json``.

    Raises `SourceError` or `DamagedFile` if the run has not finished, or the file is damaged: not JSON, not of
    its digest, or without a key that `use` needs; `Incompatible` if it is of a later format; `NotOurFolder`
    for links and pipes in the folder, and a folder that no run wrote.
    """
    require_plain(path)
    try:
        content = unsealed(path / "manifest.json")
        if content.get("format", FORMAT) > FORMAT:
            words = f"of format {content['format']}, and this version reads up to {FORMAT}; install a newer one"
            raise Incompatible(f"{path / 'manifest.json'}: {words}")
        return use(content)
    except (FileNotFoundError, NotADirectoryError):
        if not (path / MARKER).is_file():
            words = "not an output folder of sketchselect" if path.exists() else "no such folder"
            raise NotOurFolder(f"{path}: {words}; give the output folder of a run") from None
        raise SourceError(f"{path}: the run did not finish; run the job again to resume it") from None
    except (DamagedFile, Incompatible):
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"without {error}" if isinstance(error, KeyError) else "not as a run writes it"
        raise DamagedFile(f"{path / 'manifest.json'}: damaged, {reason}; run the job again") from None


def job_with_moved_files(path: Path, content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections of a run's job, with files where they are now if they moved together with its folder."""
    before, now = content["job"]["output"]["dir"], path.resolve()

    def here(value: Any) -> Any:
        if not isinstance(value, str) or not os.path.isabs(value) or os.path.exists(value):
            return value
        moved = os.path.normpath(now / os.path.relpath(value, before))
        return moved if os.path.exists(moved) else value

    sections = {name: section for name, section in content["job"].items() if section is not None}
    return {name: {key: here(value) for key, value in section.items()} for name, section in sections.items()}


def plain(value: Any) -> Any:
    """Return a value as JSON reads it back, so that stored and fresh fingerprints compare equal."""
    return json.loads(json.dumps(value, sort_keys=True))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sealed(content: Mapping[str, Any], indent: int | None = None) -> str:
    """Return the text of a file with this content and its digest."""
    return json.dumps({**content, DIGEST_KEY: _content_digest(content)}, indent=indent, allow_nan=False) + "\n"


def unsealed(path: Path) -> dict[str, Any]:
    """Return the content of a file; raise `ValueError` if it is no JSON object, `DamagedFile` for another digest.

    Files of earlier versions have no digest and are not checked. White space does not count.
    """
    content = parsed(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    if content.pop(DIGEST_KEY, None) not in (None, _content_digest(content)):
        raise DamagedFile(f"{path}: damaged, its content is not what was written; run the job again")
    return content


def _content_digest(content: Mapping[str, Any]) -> str:
    canonical = json.dumps({name: value for name, value in content.items() if name != DIGEST_KEY}, sort_keys=True)
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()
