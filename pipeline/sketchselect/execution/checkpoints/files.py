"""The files of a checkpoint: one per node, named by what it is the result of and by its own digest."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sketchselect import location
from sketchselect.errors import DamagedFile
from sketchselect.summaries import codec

SUFFIX = ".sks"


def write_node(value: Any, directory: str, name: str, *, durable: bool = True) -> str | None:
    """Write a node atomically as ``<directory>/<2 hex>/<name>.<digest>.sks``; return what went wrong, or None.

    The digest in the name tells a file that another node's file was copied over from the node's own. Files that no
    later run will look for need not be `durable`.
    """
    raw = codec.encode(value)
    folder = f"{directory}/{name[:2]}"
    path = f"{folder}/{name}.{_ending(raw)}{SUFFIX}"
    try:
        if is_url(directory):
            import fsspec

            with fsspec.open(path, "wb") as file:
                file.write(raw)
        else:
            os.makedirs(folder, exist_ok=True)
            location.write_atomically(Path(path), raw, durable=durable)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        return f"{directory}: checkpoints cannot be written ({reason}); the run goes on without them"
    return None


def read_node(path: str) -> Any:
    """Return the state in a node's file.

    Raises
    ------
    DamagedFile
        If a bit is not as it was written, or the content is another node's.
    """
    if is_url(path):
        import fsspec

        with fsspec.open(path, "rb") as file:
            raw = file.read()
    else:
        raw = Path(path).read_bytes()
    if _ending(raw) != path.removesuffix(SUFFIX).rsplit(".", 1)[-1]:
        raise DamagedFile(f"{path}: the content is not what the name promises")
    return codec.decode(raw, path)


def list_nodes(directory: str) -> dict[str, str]:
    """Return name -> path of every node in a checkpoint folder; empty where there is none."""
    paths: list[str] = []
    if is_url(directory):
        import fsspec

        filesystem, root = fsspec.core.url_to_fs(directory)
        if filesystem.exists(root):
            paths = [filesystem.unstrip_protocol(path) for path in filesystem.find(root)]
    else:
        for folder, _, files in os.walk(directory):
            paths += [f"{folder}/{file}" for file in files if not file.startswith(".")]
    found = {}
    for path in sorted(paths):
        name, dot, _ = path.rsplit("/", 1)[-1].removesuffix(SUFFIX).partition(".")
        if dot and path.endswith(SUFFIX):
            found[name] = path
    return found


def is_url(path: str) -> bool:
    """Return whether a path goes through fsspec."""
    return "://" in path


def _ending(raw: bytes) -> str:
    # The last bytes of a file are those of its digest, which `codec.decode` verifies.
    return raw[-8:].hex()
