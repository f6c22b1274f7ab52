"""Engines: what computes the graph of a pass. Dask's local schedulers, synchronous or threaded, are one of them.

Options of a pass, made where the user's words are read and handed on as one value.
"""

from __future__ import annotations

import functools
import os
import platform
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any, Generic, Literal, Self, TypedDict, TypeVar

from dask.system import CPU_COUNT

from sketchselect._memory import peak_nbytes
from sketchselect._progress import Progress
from sketchselect._version import KERNEL_VERSION, __version__
from sketchselect.errors import BadParameter
from sketchselect.execution.checkpoints import Checkpoint
from sketchselect.execution.passes import Pass, Slots, pass_inputs, taken
from sketchselect.execution.tasks import Part, Span, Stopped
from sketchselect.execution.tree import UserTaskFailed, naming_failures
from sketchselect.linalg.threads import blas_builds, one_blas_thread

T = TypeVar("T")

CLIENTS = (
    'None, "threads", "serial", "env", the address of a scheduler (tcp://...), its scheduler file (.json), a '
    "distributed.Client or Cluster, or an engine"
)
"""What a `client` may be, in messages; `sketchselect.summarize` explains each."""

LOCAL_LEAVES = 4096
"""Leaves of one graph; a larger tree is computed subtree by subtree."""


@dataclass(frozen=True)
class Ran(Generic[T]):
    """The output of a pass, and what it cost."""

    output: Part[T]
    n_tasks: int
    worker_deaths: int = 0


class Engine(Slots, ABC):
    """Computes the graphs of passes; all engines give the same bits. The defaults are those of this process."""

    memory_limit: int | None = None  # Bytes per process, where a limit is known

    @abstractmethod
    def run(self, work: Pass[T]) -> Ran[T]:
        """Run a pass."""

    def describe(self) -> dict[str, Any]:
        """Return kind, workers and settings in effect, for the manifest."""
        return {
            "kind": self.kind,
            "n_workers": self.n_workers,
            "threads_per_worker": self.slots_per_process,
            "memory_limit": self.memory_limit,
        }

    def can_write(self, directory: str | os.PathLike[str]) -> bool:
        """Return whether the processes that run tasks can write files there that this process can read."""
        return True

    def build(self) -> tuple[str, ...]:
        """Return what, beside our own version, decides the bits: library versions, BLAS builds and CPU kernels."""
        return local_build()

    def peak_nbytes(self) -> int | None:
        """Return the largest resident memory that a process which runs tasks ever had; None where it is unknown."""
        return peak_nbytes()


@functools.cache
def local_build() -> tuple[str, ...]:
    """Return versions of the numeric libraries, BLAS builds with the CPU kernel they chose, and the machine type."""
    versions = (f"{name} {metadata.version(name)}" for name in ("numpy", "scipy", "numba"))
    ours = f"sketchselect {__version__} kernels {KERNEL_VERSION}"
    return tuple(sorted((ours, *versions, *blas_builds(), platform.machine())))


def available_cores() -> int:
    """Return the cores that this process may use: its affinity and the limit of its container counted."""
    return int(CPU_COUNT)


class LocalEngine(Engine):
    """Dask's threaded scheduler in this process, or its synchronous one (kind "serial"), which is the reference.

    BLAS takes one thread meanwhile. There are as many threads as cores by default, each with one block in memory; of a
    remote source as many more read ahead. The projection of a pass may not exceed `memory_limit`.
    """

    def __init__(
        self,
        n_threads: int | None = None,
        *,
        memory_limit: int | None = None,
        kind: Literal["threads", "serial"] = "threads",
    ) -> None:
        if n_threads is not None and n_threads < 1:
            raise BadParameter(f"n_threads must be at least 1, got {n_threads}")
        self.kind = kind
        self.n_slots = self.slots_per_process = 1 if kind == "serial" else n_threads or available_cores()
        self.memory_limit = memory_limit

    def run(self, work: Pass[T]) -> Ran[T]:
        """Compute the graph of a pass, subtree by subtree where the tree is large."""
        import dask
        import dask.threaded

        stop = threading.Event()

        def report(span: Span | None) -> None:
            if stop.is_set():
                raise Stopped
            if span is not None:
                work.progress.advance(span.nbytes)

        inputs = pass_inputs(work.spec.source, work.partitions, remote=False)
        spec = replace(work.spec, source=inputs.source, report=report)
        ready, n_tasks, pool = dict(work.ready), 0, None
        if self.kind != "serial":
            turns, n_threads = threading.BoundedSemaphore(self.n_slots), (1 + spec.reads_ahead) * self.n_slots
            spec = replace(spec, turn=lambda: turns)
            pool = ThreadPoolExecutor(n_threads, thread_name_prefix="sketchselect")
        get = dask.get if pool is None else functools.partial(dask.threaded.get, pool=pool)
        try:
            with one_blas_thread():
                for output in work.cuts(LOCAL_LEAVES):
                    if isinstance(ready.get(output), Part):
                        continue
                    graph = work.graph(output, inputs, ready)
                    n_tasks += len(graph)
                    tasks = {**inputs.culled(graph), work.spec_key: spec}
                    if inputs.graph:
                        tasks |= naming_failures({key: tasks[key] for key in inputs.graph if key in tasks})
                    *pieces, part = get(tasks, work.keys(output))
                    ready[output] = part if work.join is None else work.join(part, taken(pieces))
        except UserTaskFailed as failure:
            error = failure.__cause__ or failure
            raise work.user_error(failure.args[0], inputs, error) from error
        finally:
            # Running tasks stop at their next partition; none should compute, or report, after this returns.
            stop.set()
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        return Ran(ready[work.tree.root], n_tasks)


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
