"""Options of a pass, made where the user's words are read and handed on as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sketchselect.execution.checkpoints.checkpoint import Checkpoint
from sketchselect.execution.engine import Engine
from sketchselect.execution.progress import Progress, Silent


@dataclass(frozen=True)
class PassOptions:
    """What runs a pass, how it is cut, where it is saved, and what is reported of it.

    Parameters
    ----------
    engine : Engine
        What computes the graph.
    partition_bytes : int or text, optional
        Size of a partition (rows x columns x 8 bytes; entries x 16 where blocks are sparse); 32 MiB by default.
    checkpoint : Checkpoint, optional
        Where finished nodes are saved.
    progress : Progress
        Where partitions done are reported.
    retries : int
        How often a failed read is tried again.
    stall_timeout : float
        Seconds without any partition done after which a pass on other processes is given up.
    account : callable, optional
        Called with the `PassStats` of each summarising pass.
    """

    engine: Engine
    partition_bytes: int | str | None = None
    checkpoint: Checkpoint | None = None
    progress: Progress = field(default_factory=Silent)
    retries: int = 2
    stall_timeout: float = 300.0
    account: Callable[[Any], object] | None = None

    def but(self, **changes: Any) -> Self:
        """Return the same options with some of them changed."""
        return replace(self, **changes)
