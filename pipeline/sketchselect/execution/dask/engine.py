"""The engine on a Dask cluster: graphs go to its scheduler, and the pass is followed until its output is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, TypeVar

from sketchselect._memory import peak_nbytes
from sketchselect.errors import BadCluster, BadParameter, ClusterLost, NoWorkers
from sketchselect.execution.dask.checks import ask_workers, is_exposed, probe_folder, scheduler_settings, worker_builds
from sketchselect.execution.dask.running import ClusterPass, persist_blocks
from sketchselect.execution.dask.watch import ClusterWatch
from sketchselect.execution.engine import CLIENTS, Engine, Ran
from sketchselect.execution.graph.passes import Pass

T = TypeVar("T")


class DaskEngine(Engine):
    """Runs tasks on the workers of a synchronous Dask client, which stays open.

    Raises `NoWorkers` if none comes in `worker_timeout` seconds, `BadCluster` if their libraries differ from ours.
    """

    kind = "dask"

    def __init__(self, client: Any, *, worker_timeout: float = 60.0) -> None:
        from distributed import Client

        if not isinstance(client, Client):
            raise BadParameter(f"client must be {CLIENTS}, got {type(client).__name__}")
        if client.asynchronous:
            raise BadParameter("an asynchronous client cannot be used; give Client(..., asynchronous=False)")
        if client.status != "running":
            raise BadCluster(f"the client is {client.status}; make a new one")
        self.client = client
        self.worker_timeout = worker_timeout
        self._address = str(client.scheduler.address)
        with self._connected():
            builds = worker_builds(client)
        self._build = tuple(sorted({line for build in builds for line in build}))
        self._notes = []
        if is_exposed(self._address):
            self._notes.append(
                f"{self._address}: traffic with this cluster is not encrypted; use tls:// beyond a private network"
            )
        if len(builds) > 1:
            different = set(self._build) - set(builds[0]).intersection(*builds)
            self._notes.append(
                f"{self._address}: workers have {len(builds)} different kinds of BLAS or CPU "
                f"({', '.join(sorted(different))}); results may differ in their last bits from run to run"
            )

    def _await_workers(self) -> None:
        """Wait for a worker, and take note of all that are there."""
        try:
            self.client.wait_for_workers(1, timeout=self.worker_timeout)
        except TimeoutError:
            raise NoWorkers(
                f"{self._address}: no worker after {self.worker_timeout:g} s; start one with "
                f"`dask worker {self._address}`, then run again"
            ) from None
        except OSError:
            raise self._lost() from None
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        threads = [int(w["nthreads"]) for w in workers] or [1]
        limits = [int(w["memory_limit"]) for w in workers if w.get("memory_limit")]
        self.n_workers = len(threads)
        self.n_slots = sum(threads)
        self.slots_per_process = max(threads)
        self.memory_limit = min(limits) if limits else None

    def describe(self) -> dict[str, Any]:
        """Return workers, and the scheduler's settings as they are in effect there."""
        encrypted = self._address.startswith("tls://")
        return {**super().describe(), "encrypted": encrypted, **scheduler_settings(self.client)}

    def build(self) -> tuple[str, ...]:
        """Return the builds of all workers; several where they differ in BLAS or CPU."""
        return self._build

    def can_write(self, directory: str | os.PathLike[str]) -> bool:
        """Return whether every worker can write in a folder what this process can read."""
        able = probe_folder(self.client, directory)
        if self.client.status != "running":  # its silence says nothing of the folder
            raise self._lost()
        return able

    def peak_nbytes(self) -> int | None:
        """Return the largest resident memory that one of the workers ever had; None where they do not answer."""
        return max(ask_workers(self.client, peak_nbytes), default=None)

    def run(self, work: Pass[T]) -> Ran[T]:
        """Run a pass; whatever ends it, none of its tasks is left on the cluster."""
        with (
            self._connected(work),
            contextlib.closing(ClusterWatch(self.client, self.worker_timeout, work.stage, work.stall_timeout)) as watch,
        ):
            return ClusterPass(self.client, work, watch, self.n_slots).run()

    def persist_blocks(self, work: Pass[Any]) -> dict[tuple[int, int], Any]:
        """Return futures of the prepared blocks of a pass, by their rows; see `running.persist_blocks`."""
        with self._connected(work):
            return persist_blocks(self.client, work)

    @contextlib.contextmanager
    def _connected(self, work: Pass[Any] | None = None) -> Iterator[None]:
        """Check the cluster, and turn a connection that breaks inside into `ClusterLost`."""
        from distributed.comm import CommClosedError

        try:
            if self.client.status != "running":
                raise self._lost()
            self._await_workers()
            while work is not None and self._notes:
                work.progress.note(self._notes.pop(0))
            yield
        except CommClosedError as error:
            raise self._lost() from error

    def _lost(self) -> ClusterLost:
        return ClusterLost(
            f"{self._address}: the scheduler went away; running the same command again resumes from the checkpoints"
        )
