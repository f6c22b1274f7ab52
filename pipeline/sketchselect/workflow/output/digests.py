"""Digests of the files and folders that a run leaves."""

from __future__ import annotations

import hashlib
from pathlib import Path


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def tree_digest(path: Path) -> str | None:
    """Return the digest of a file, or of names, sizes and times in a folder (chunks have checksums); None if absent."""
    if path.is_file():
        return file_digest(path)
    if not path.is_dir():
        return None
    entries = [
        f"{file.relative_to(path).as_posix()} {stat.st_size} {stat.st_mtime_ns}"
        for file in path.rglob("*")
        if file.is_file() and (stat := file.stat())
    ]
    return hashlib.sha256("\n".join(sorted(entries)).encode()).hexdigest()
