"""The files of a checkpoint: one per node, named by what it is the result of and by its own digest."""

from __future__ import annotations

import os
from typing import Any

from sketchselect.errors import DamagedFile, SourceError
from sketchselect.location import location_of
from sketchselect.summaries import codec

SUFFIX = ".sks"


def write_node(value: Any, directory: str | os.PathLike[str], name: str) -> str | None:
    """Write a node atomically as ``<directory>/<2 hex>/<name>.<digest>.sks``; return what went wrong, or None.

    The digest in the name tells a file that another node's file was copied over from the node's own.
    """
    raw = codec.encode(value)
    place = location_of(f"{directory}/{name[:2]}/{name}.{_ending(raw)}{SUFFIX}")
    try:
        if place.is_local:
            os.makedirs(os.path.dirname(place.url), exist_ok=True)
        place.write(raw)
    except (OSError, SourceError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else type(error).__name__
        return f"{directory}: checkpoints cannot be written ({reason}); the run goes on without them"
    return None


def read_node(path: str) -> Any:
    """Return the state in a node's file.

    Raises
    ------
    DamagedFile
        If a bit is not as it was written, or the content is another node's.
    """
    raw = location_of(path).read()
    if raw is None:
        raise FileNotFoundError(path)
    if _ending(raw) != path.removesuffix(SUFFIX).rsplit(".", 1)[-1]:
        raise DamagedFile(f"{path}: the content is not what the name promises")
    return codec.decode(raw, path)


def list_nodes(directory: str | os.PathLike[str]) -> dict[str, str]:
    """Return name -> path of every node in a checkpoint folder; empty where there is none."""
    nodes = {}
    for path in sorted(path for path, _, _ in location_of(directory).files()):
        name, dot, _ = path.rsplit("/", 1)[-1].removesuffix(SUFFIX).partition(".")
        if name and dot and path.endswith(SUFFIX):
            nodes[name] = f"{directory}/{path}"
    return nodes


def _ending(raw: bytes) -> str:
    # The last bytes of a file are those of its digest, which `codec.decode` verifies.
    return raw[-8:].hex()
