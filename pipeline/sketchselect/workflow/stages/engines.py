"""The engine of a job, its logs, and throttled progress."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchselect.job.schema import ExecutionSettings

if TYPE_CHECKING:
    from sketchselect.execution import Engine, Progress


@contextlib.contextmanager
def engine_for(settings: ExecutionSettings, client: Any = None) -> Iterator[Engine]:
    """Yield the engine that a job's ``[execution]`` names (or the caller's `client`), and close it at the end."""
    from sketchselect import execution

    if client is not None:
        with execution.as_engine(client) as engine:
            yield engine
    elif settings.cluster == "local":
        with execution.local_cluster(settings.n_workers, settings.memory_limit) as engine:
            yield engine
    elif settings.cluster == "threads":
        yield execution.LocalEngine(settings.n_workers, memory_limit=settings.memory_limit)
    elif settings.tls_ca and settings.tls_cert and settings.tls_key:
        from sketchselect.execution.dask.clusters import connect
        from sketchselect.execution.dask.tls import tls_security

        security = tls_security(settings.tls_ca, settings.tls_cert, settings.tls_key)
        with connect(settings.cluster, security=security) as engine:
            yield engine
    else:
        with execution.as_engine(settings.cluster) as engine:
            yield engine


@contextlib.contextmanager
def library_logs(path: Path | None) -> Iterator[None]:
    """Send what libraries log to a file, or nowhere, instead of to the terminal."""
    handler = logging.NullHandler() if path is None else logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def iterating_engine(engine: Engine, nbytes: int) -> Engine:
    """Return threads of this process in place of a cluster on this machine, where the data fit in their memory.

    The bits are the same; the data are then read once and cached, instead of once per iteration.
    """
    from sketchselect.cluster.kmeans.passes import CACHED_SHARE
    from sketchselect.execution import LocalEngine

    if engine.memory_limit is None:
        return engine
    memory = engine.memory_limit * (engine.n_slots // engine.slots_per_process)
    return LocalEngine(engine.n_slots, memory_limit=memory) if nbytes <= CACHED_SHARE * memory else engine


class ThrottledProgress:
    """Passes on what it is told of a pass, unless the last one it passed on began just before.

    Iterations over small data would otherwise fill the screen; slow ones are all shown.

    Parameters
    ----------
    progress : Progress
        What is told in the end.
    every : float
        Least seconds between the beginnings of two passes that are shown.
    """

    def __init__(self, progress: Progress, every: float = 5.0) -> None:
        self._progress, self._every = progress, every
        self._shown, self._last = False, -math.inf

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        """Decide whether this pass is shown."""
        now = time.monotonic()
        self._shown = now - self._last >= self._every
        if self._shown:
            self._last = now
            self._progress.start(stage, total_bytes, n_partitions)

    def advance(self, nbytes: int) -> None:
        """Pass on a partition of a pass that is shown."""
        if self._shown:
            self._progress.advance(nbytes)

    def note(self, text: str) -> None:
        """Pass on."""
        self._progress.note(text)

    def finish(self, stage: str) -> None:
        """Pass on the end of a pass that is shown."""
        if self._shown:
            self._progress.finish(stage)
