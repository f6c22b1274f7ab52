"""Folder of Numba's compiled kernels: a temporary one where neither the home nor the installation can be written."""

from __future__ import annotations

import functools
import os
import stat
import sys
from pathlib import Path

VARIABLE = "NUMBA_CACHE_DIR"


def ensure_writable() -> None:
    """Set `VARIABLE`, which processes started from here inherit, where Numba would find no folder to write in.

    Numba raises an error then. Must run before it is imported.
    """
    cache = _user_cache()
    if VARIABLE in os.environ or (cache.is_absolute() and _can_make(cache)) or _is_writable(Path(__file__).parent):
        return
    folder = _private_folder()
    if folder is not None:
        os.environ[VARIABLE] = folder


@functools.cache
def is_empty() -> bool:
    """Return whether no kernel of this package had been compiled when this process first asked."""
    import hashlib  # OpenSSL, a thirtieth of the time of `--help`

    given = os.environ.get(VARIABLE)
    cache = Path(given) if given else _user_cache()
    for folder, _, files in os.walk(Path(__file__).parent):
        if any(name.endswith(".py") for name in files):
            # Numba's name for a folder's kernels, in a cache that it shares among packages.
            shared = (
                cache / f"{os.path.basename(folder)}_{hashlib.sha1(folder.encode(), usedforsecurity=False).hexdigest()}"
            )
            places = [shared] if given else [shared, Path(folder, "__pycache__")]
            if any(next(place.glob("*.nbi"), None) for place in places):
                return False
    return True


def description() -> str:
    """Return where compiled kernels are, in words."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        package = Path(__file__).parent
        if _is_writable(package):
            return f"compiled kernels are kept in the folders __pycache__ of {package}"
        return f"compiled kernels are kept in {_user_cache()}"
    if Path(folder).name.startswith(_PREFIX):
        return (
            f"compiled kernels are kept in {folder}, because neither the user's cache {_user_cache()} nor the package "
            f"can be written; set {VARIABLE} to a folder that lasts, and they are compiled once"
        )
    return f"compiled kernels are kept in {folder} ({VARIABLE})"


_PREFIX = "sketchselect-numba-"


def _user_cache() -> Path:
    """Return the folder that Numba uses where the package cannot be written; for a user without a home not absolute."""
    if sys.platform == "win32":
        return Path(os.path.expanduser(os.environ.get("LOCALAPPDATA", "~"))) / "numba"
    if sys.platform == "darwin":
        return Path(os.path.expanduser("~/Library/Caches/numba"))
    return Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")) / "numba"


def _can_make(folder: Path) -> bool:
    """Return whether a folder is there, or can be made, and can be written."""
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _is_writable(package: Path) -> bool:
    """Return whether the cache folders of all modules of a package can be written."""
    for folder, _, files in os.walk(package):
        if any(name.endswith(".py") for name in files) and not _can_make(Path(folder) / "__pycache__"):
            return False
    return True


def _private_folder() -> str | None:
    """Return a temporary folder that is this user's alone: what is in it is run as code."""
    import tempfile

    try:
        if not hasattr(os, "getuid"):
            return tempfile.mkdtemp(prefix=_PREFIX)
        folder = os.path.join(tempfile.gettempdir(), f"{_PREFIX}{os.getuid()}")
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            known = os.lstat(folder)
            if not stat.S_ISDIR(known.st_mode) or known.st_uid != os.getuid() or known.st_mode & 0o077:
                return tempfile.mkdtemp(prefix=_PREFIX)
    except OSError:
        return None
    return folder
