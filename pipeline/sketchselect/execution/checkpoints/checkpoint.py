"""Checkpoints: finished nodes in files whose names say all that decided their bits, so that none can be stale."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass

from sketchselect.errors import BadParameter
from sketchselect.location import location_of

WRITE_SECONDS = (0.02, 0.2)
"""Seconds that a small file takes, on a local disk and elsewhere."""

WRITE_RATE = 100e6
"""Bytes written a second."""

WORK_PER_COST = 20.0
"""Work that a file saves, over what it costs: a run spends at most a twentieth of its time on checkpoints."""

LEAST_RATIO = 8.0
"""Bytes of data below a node over those of its file, so that checkpoints stay far smaller than the data."""


@dataclass(frozen=True)
class Checkpoint:
    """Folder of finished nodes of a pass, and which of them are saved.

    A node is written when it stands on at least `min_bytes` and on `state_ratio` times the bytes of a state, or on
    `min_seconds` of work that no other file holds; by default, on so much work that files cost at most a twentieth of
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
        cost = WRITE_SECONDS["://" in os.fspath(self.directory)] + state_nbytes / WRITE_RATE
        return unsaved_seconds >= WORK_PER_COST * cost and covered >= LEAST_RATIO * state_nbytes


def as_checkpoint(checkpoint: Checkpoint | str | os.PathLike[str] | None) -> Checkpoint | None:
    """Return a `Checkpoint` from what a user may pass."""
    if checkpoint is None or isinstance(checkpoint, Checkpoint):
        return checkpoint
    if isinstance(checkpoint, (str, os.PathLike)):
        return Checkpoint(checkpoint)
    raise BadParameter(f"checkpoint must be a folder, a URL, a Checkpoint or None, got {type(checkpoint).__name__}")
