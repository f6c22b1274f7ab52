"""Options of a pass, made where the user's words are read and handed on as one value."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypedDict

from sketchselect._progress import Progress
from sketchselect.execution.checkpoints.checkpoint import Checkpoint
from sketchselect.execution.engine import Engine


class RunKeywords(TypedDict, total=False):
    """How a method of an estimator runs its passes, by keyword and as in `sketchselect.summarize`."""

    client: Any
    partition_bytes: int | str | None
    progress: Progress | Callable[..., object] | bool | None


class FitKeywords(RunKeywords, total=False):
    """The same of a fit, whose passes can be saved."""

    checkpoint: Checkpoint | str | os.PathLike[str] | None


@dataclass(frozen=True)
class PassOptions:
    """What runs a pass, how it is cut, where it is saved, and what is reported of it.

    `retries` are those of a read that failed; after `stall_timeout` seconds without any partition done, a pass on other
    processes is given up; `account` is called with the `PassStats` of each summarising pass.
    """

    engine: Engine
    partition_bytes: int | str | None = None
    checkpoint: Checkpoint | None = None
    progress: Progress = field(default_factory=Progress)
    retries: int = 2
    stall_timeout: float = 300.0
    account: Callable[[Any], object] | None = None

    def but(self, **changes: Any) -> Self:
        """Return the same options with some of them changed."""
        return replace(self, **changes)
