"""Checkpoints: finished nodes in files whose names say all that decided their bits, so that none can be stale."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from sketchselect.errors import BadParameter, DamagedFile, SourceError
from sketchselect.linalg.hashing import fingerprint
from sketchselect.location import is_url, location_of
from sketchselect.readers.base import Vector
from sketchselect.summaries import codec

SUFFIX = ".sks"

WRITE_SECONDS = (0.02, 0.2)
"""Seconds that a small file takes, on a local disk and elsewhere."""

WRITE_RATE = 100e6
"""Bytes written a second."""

WORK_PER_COST = 40.0
"""Work that a file saves, over what it costs: a run spends at most a fortieth of its time on checkpoints."""

LEAST_RATIO = 8.0
"""Bytes of data below a node over those of its file, so that checkpoints stay far smaller than the data."""


@dataclass(frozen=True)
class Checkpoint:
    """Folder of finished nodes of a pass, and which of them are saved.

    A node is written when it stands on at least `min_bytes` and on `state_ratio` times the bytes of a state, or on
    `min_seconds` of work that no other file holds; by default, on so much work that files cost at most a fortieth of
    the run's time (by `WRITE_SECONDS` and `WRITE_RATE`), and take at most an eighth of the room of the data. A second
    run with the same source, prepare steps, summaries and libraries reads the nodes it finds and computes the others;
    whatever changed has another name and is not found.

    Parameters
    ----------
    directory : path or URL
        Folder of the files; made where it is missing. Every worker must be able to write there.
    min_bytes : int
        Least bytes of data (as stored) below a node.
    state_ratio : float
        Least multiple of a state's bytes below a node.
    min_seconds : float or None
        Work that makes any node worth saving; None weighs it against the cost of the file.
    """

    directory: str | os.PathLike[str]
    _: KW_ONLY
    min_bytes: int = 2**30
    state_ratio: float = 64.0
    min_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.min_bytes < 0 or self.state_ratio < 0 or (self.min_seconds or 0) < 0:
            raise BadParameter("min_bytes, state_ratio and min_seconds of a checkpoint must not be negative")
        # Workers may stand in another folder than we do.
        object.__setattr__(self, "directory", location_of(os.fspath(self.directory).rstrip("/")).url)

    def is_due(self, covered: int, unsaved_seconds: float, state_nbytes: int) -> bool:
        """Return whether a node is worth its file: by the bytes and the work below it, and those of its state."""
        if covered >= self.min_bytes:
            return True
        if self.min_seconds is not None:
            return unsaved_seconds >= self.min_seconds
        cost = WRITE_SECONDS[is_url(os.fspath(self.directory))] + state_nbytes / WRITE_RATE
        return unsaved_seconds >= WORK_PER_COST * cost and covered >= LEAST_RATIO * state_nbytes


def as_checkpoint(checkpoint: Checkpoint | str | os.PathLike[str] | None) -> Checkpoint | None:
    """Return a `Checkpoint` from what a user may pass."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if isinstance(checkpoint, (str, os.PathLike)):
        return Checkpoint(checkpoint)
    raise BadParameter(f"checkpoint must be a folder, a URL, a Checkpoint or None, got {type(checkpoint).__name__}")


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
    """Return the state in a node's file; raise `DamagedFile` where a bit, or the node, is not as it was written."""
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


def entries_identity(vector: Vector | None, runs: list[tuple[int, int]]) -> str:
    """Return the identity of some runs of a target or weight: by content, which appended rows leave as it was."""
    return "none" if vector is None else fingerprint([fingerprint(np.asarray(vector.read(*run))) for run in runs])
