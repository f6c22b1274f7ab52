"""Digests of the files and folders that a run leaves, and its texts in JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any


def parsed(text: str) -> Any:
    """Return what a JSON text holds; raise `ValueError` where it is none, or deeper than anything of ours."""
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

    Contents and not times: a disk that loses a bit leaves size and time as they were.
    """
    if path.is_file():
        return file_digest(path)
    if not path.is_dir():
        return None
    entries = [f"{file.relative_to(path).as_posix()} {file_digest(file)}" for file in path.rglob("*") if file.is_file()]
    return hashlib.sha256("\n".join(sorted(entries)).encode()).hexdigest()
