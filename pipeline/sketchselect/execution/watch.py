"""The workers of a cluster while a pass runs: what tasks report, who is silent, and what stands still."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

import psutil

from sketchselect._byte_sizes import format_bytes
from sketchselect._progress import Progress
from sketchselect._text import counted, format_seconds
from sketchselect.errors import ClusterLost, NoWorkers, PartitionCrash, Stalled

TOPIC = "sketchselect"
"""Where tasks report partitions."""

MEMORY_TOPIC = "worker-restart-memory"
"""Where nannies say that they kill a worker for its memory: the exception that follows does not say so."""

LOOK_SECONDS = 3.0
"""Seconds between two looks at the workers."""

SILENT_SECONDS = 60.0
"""A scheduler that has not answered for this long is lost."""

QUIET_SECONDS = 10.0
"""A worker that has given no sign of life for this long is named; it sends one or two heartbeats a second."""

WORKER_TTL = 30.0
"""Seconds without a sign of life after which a worker that this process started is replaced."""

KILL_SECONDS = 10.0
"""Seconds that the nanny of a silent worker has to kill it before the scheduler drops both."""

MOST_STEP = 10.0
"""Longest time between two looks at the clock that counts: in a longer one this process was suspended."""

SHOWN_WORKERS = 8

Events = SimpleQueue[tuple[str, Any, Any]]

_listeners: dict[str, list[Events]] = {}
"""A client has one handler a topic; several passes may run with it at the same time."""
_lock = threading.Lock()
_HANDED_ON: set[tuple[str, str]] = set()
"""Clients, and the entries of workers' logs that they have noted: one note stands for all workers."""


class _ToClient(logging.Handler):
    """Sends what a worker logs while it runs a task to the clients."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send an entry, with its text before anything is filled in."""
        from distributed import get_worker

        with contextlib.suppress(Exception):  # outside of tasks there is no worker; work must not end of this
            get_worker().log_event(TOPIC, {"log": record.getMessage(), "kind": str(record.msg)})


def this_process() -> str:
    """Return the name of this process among those of all hosts."""
    return f"{socket.gethostname()} {os.getpid()}"


def send_log(client_process: str) -> None:
    """Send what this worker says of compiling kernels to its clients, unless it is a client's own process."""
    if this_process() != client_process:
        _send_log()


@functools.cache
def _send_log() -> None:
    logger = logging.getLogger("sketchselect._kernels")
    logger.addHandler(_ToClient())
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


class WakingClock:
    """Counts the seconds in which this process looks at it every now and then; one that is suspended does not."""

    def __init__(self) -> None:
        self._last, self._seconds, self._lock = time.monotonic(), 0.0, threading.Lock()

    def now(self) -> float:
        """Return the seconds since the beginning."""
        with self._lock:
            now = time.monotonic()
            self._seconds += min(now - self._last, MOST_STEP)
            self._last = now
            return self._seconds


class ClusterWatch:
    """Follows the workers of a client, and what tasks report, during one stage.

    `worker_timeout` seconds without any worker are too many, as are `stall_timeout` without any partition done.
    A worker is replaced, or left to the scheduler (None), after `worker_ttl` seconds without a sign of life: a
    heartbeat or, of workers that this process started with `nannies`, time on a processor. Before a pass that stands
    still is given up, workers that are silent are replaced, whatever the limit is. `stall_timeout` begins anew when
    workers are replaced, once for each partition done: the new ones have time for theirs, and no run lasts for ever.
    """

    def __init__(
        self,
        client: Any,
        stage: str,
        stall_timeout: float,
        progress: Progress,
        worker_timeout: float,
        worker_ttl: float | None = None,
        nannies: Sequence[Any] = (),
    ) -> None:
        self.client = client
        self.worker_timeout, self.worker_ttl, self.nannies = worker_timeout, worker_ttl, nannies
        self.events: Events = SimpleQueue()
        self._clock = WakingClock()
        self.deaths = self.memory_kills = 0
        self._stage, self._stall_timeout, self._progress = stage, stall_timeout, progress
        self._signs: dict[str, tuple[Any, float]] = {}  # The last sign of life of each worker, and when it was new
        self._quiet: set[str] = set()
        self._paused: dict[str, float] = {}  # Since when workers take no tasks
        self._named_paused: set[str] = set()
        self._given_up: set[str] = set()
        self._hopeless: set[str] = set()  # Those that are silent while everything stands still
        self._last_progress = self._last_answer = self._clock.now()
        self._reprieved = False  # Workers were replaced since the last progress
        self._without_workers: float | None = None
        self._workers: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, dict[str, Any]] = {}
        self._over = threading.Event()
        _listen(client, self.events)
        # A scheduler that hangs would block the thread that asks it, so another thread asks.
        self._thread = threading.Thread(target=self._look, name="sketchselect-watch", daemon=True)
        self._thread.start()

    def again(self, stage: str) -> ClusterWatch:
        """Return a watch of the same workers during a later stage."""
        limits = self._stall_timeout, self._progress, self.worker_timeout, self.worker_ttl, self.nannies
        return ClusterWatch(self.client, stage, *limits)

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join(timeout=1)
        _unlisten(self.client, self.events)

    def tell(self, text: str) -> None:
        """Say what a worker logged."""
        self._progress.note(f"workers: {text}")

    def progressed(self) -> None:
        """A partition, or a merge, is done."""
        self._last_progress = self._clock.now()
        self._reprieved = False

    @property
    def is_silent(self) -> bool:
        """Whether no worker gives a sign of life."""
        return self._quiet.issuperset(self._workers)

    def arriving(self) -> None:
        """Results are on their way: however long that takes is no standstill, unless a worker is silent."""
        if not self._quiet:
            self.progressed()

    def check(self) -> None:
        """Raise `ClusterLost`, `NoWorkers` or `Stalled` where it is time to."""
        self.require_scheduler()
        now = self._clock.now()
        empty = self._without_workers
        if empty is not None and now - empty > self.worker_timeout:
            raise no_workers(
                self.client, f"{self._stage}: the cluster has had no workers for", now - empty, self.nannies
            )
        if now - self._last_progress > self._stall_timeout:
            # A scheduler may never find out: where the clock is set back, Dask's timers and messages wait for the time
            # that it showed before.
            hopeless = self._quiet.intersection(self._workers) - self._given_up
            if hopeless and not self._reprieved:
                self._hopeless |= hopeless
                self._reprieve()
                return
            raise Stalled(
                f"{self._stage}: no partition was finished in {format_seconds(self._stall_timeout)} ({self.table()}); "
                f"{self._why()}. Running the same command again resumes from the checkpoints"
            )

    def _reprieve(self) -> None:
        """Give workers that replace others as long as those had; the next ones have it after progress only."""
        if not self._reprieved:
            self._reprieved = True
            self._last_progress = self._clock.now()

    def require_scheduler(self) -> None:
        """Raise `ClusterLost` if the scheduler is gone."""
        silent = self._clock.now() - self._last_answer
        if self.client.status != "running" or silent > SILENT_SECONDS:
            raise ClusterLost(
                f"{self._stage}: {why_lost(self.client)}; running the same command again "
                "resumes from the checkpoints, if parts were long enough to be saved"
            )

    def table(self) -> str:
        """Return the workers in words: status and memory."""
        if not self._workers:
            return "no workers"
        lines = [
            f"{address} {info.get('status', '?')}, {format_bytes(_memory_of(info))} of "
            f"{format_bytes(info.get('memory_limit') or 0)}, {_n_running(info)} running"
            + ", silent"
            * (address in self._quiet)
            for address, info in sorted(self._workers.items())[:SHOWN_WORKERS]
        ]
        more = len(self._workers) - len(lines)
        return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")

    def _why(self) -> str:
        """Return the likely cause of standing still, and what can be done."""
        if not self._workers:
            return "they have ended, or have not started: raise stall_timeout if they just take that long to start"
        workers = self._workers.values()
        if any(info.get("status") == "paused" for info in workers):
            why = "a paused worker is short of memory: lower partition_bytes or raise memory_limit"
        elif any(_n_running(info) for info in workers):
            why = "no task that runs has ended, as where a source or a disk does not answer"
        else:
            return "no worker has anything to do: Dask lost messages, or holds them back, as after a clock was set back"
        return f"{why}. If partitions just take that long, raise stall_timeout"

    def crash(self, where: str, error: Any) -> PartitionCrash:
        """Return the error for a task whose workers died every time, though nothing else ran."""
        died = error.allowed_failures + 1
        last = error.last_worker
        seen = _memory_of(self._seen.get(last.address, {}))
        limit = format_bytes(last.memory_limit) if last.memory_limit else "none"
        memory = f"memory last seen {format_bytes(seen) if seen else 'unknown'}, limit {limit}"
        cause = "none for exceeding the memory limit, so likely a crash of native code or a kill from outside"
        if self.memory_kills:
            cause = f"{min(self.memory_kills, died)} of them were killed for exceeding the memory limit"
        return PartitionCrash(
            f"{where}: worker died {died} times while running it alone ({memory}); {cause}. Lower partition_bytes or "
            "threads per worker, or raise memory_limit"
        )

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            if self.client.status == "closed":
                return
            try:
                workers = self.client.scheduler_info(n_workers=-1)["workers"]
            except Exception:
                # `check` notices it by the client's status or by the silence.
                continue
            self._last_answer = self._clock.now()
            self._workers = {address: dict(info) for address, info in workers.items()}
            self._seen |= self._workers
            self._look_for_silence()
            self._look_for_pauses()
            if workers:
                self._without_workers = None
            elif self._without_workers is None:
                self._without_workers = self._clock.now()

    def _look_for_silence(self) -> None:
        """Name workers that give no sign of life, and replace those that have given none for too long."""
        now = self._clock.now()
        for address, info in self._workers.items():
            sign = (info.get("last_seen"), self._cpu_seconds(address))
            if self._signs.get(address, (None, now))[0] != sign:
                self._signs[address] = (sign, now)
                self._given_up.discard(address)  # The one that replaces it may have the same address
                if address in self._quiet:
                    self._quiet.discard(address)
                    self._hopeless.discard(address)
                    self._progress.note(f"{self._stage}: worker {address} is heard from again")
                continue
            silent = now - self._signs[address][1]
            if silent >= QUIET_SECONDS and address not in self._quiet:
                self._quiet.add(address)
                self._progress.note(f"{self._stage}: nothing heard from worker {address} for {self._what_then(silent)}")
            too_long = self.worker_ttl is not None and silent >= self.worker_ttl
            if (too_long or address in self._hopeless) and address not in self._given_up:
                self._given_up.add(address)
                self._reprieve()
                self._progress.note(
                    f"{self._stage}: worker {address} is given up after {format_seconds(silent)} of silence; its "
                    "results are computed again"
                )
                with contextlib.suppress(Exception):  # a scheduler may forbid to be asked
                    self.client.run_on_scheduler(_replace_worker, address, wait=False)

    def _look_for_pauses(self) -> None:
        """Name workers that Dask has paused, for their memory, for some time."""
        now = self._clock.now()
        paused = [address for address, info in self._workers.items() if info.get("status") == "paused"]
        self._paused = {address: self._paused.get(address, now) for address in paused}
        self._named_paused &= self._paused.keys()
        late = [a for a, since in self._paused.items() if now - since >= QUIET_SECONDS and a not in self._named_paused]
        if not late:
            return
        self._named_paused.update(late)
        worker = self._workers[late[0]]
        memory = f"{format_bytes(_memory_of(worker))} of {format_bytes(worker.get('memory_limit') or 0)}"
        more = f" and {counted(len(late) - 1, 'other worker')}" if len(late) > 1 else ""
        self._progress.note(
            f"{self._stage}: Dask has paused worker {late[0]}{more}, short of memory ({memory}), until some is freed; "
            "lower partition_bytes or raise memory_limit if it stays so"
        )

    def _what_then(self, silent: float) -> str:
        why = f"{format_seconds(silent)} (frozen, cut off, or its clock was set back)"
        if self.worker_ttl is not None:
            return f"{why}; it is given up after {format_seconds(self.worker_ttl)}"
        return (
            f"{why}; the scheduler gives it up after its distributed.scheduler.worker-ttl, "
            "execution.worker_ttl = 60 would do so after a minute"
        )

    def _cpu_seconds(self, address: str) -> float | None:
        """Return the CPU time of a worker of this process; native code may keep its heartbeats from being sent."""
        for nanny in self.nannies:
            if nanny.worker_address == address and nanny.pid:
                with contextlib.suppress(psutil.Error):
                    times = psutil.Process(nanny.pid).cpu_times()
                    return float(times.user + times.system)
        return None


async def _replace_worker(address: str, *, dask_scheduler: Any) -> None:
    """Have a worker killed and started again by its nanny; one without a nanny, or out of its reach, is removed."""
    await dask_scheduler.restart_workers(
        [address],
        timeout=KILL_SECONDS,
        wait_for_workers=False,
        on_error="return",
        stimulus_id=f"sketchselect-silent-{address}",
    )


def why_lost(client: Any) -> str:
    """Return why a client reaches no scheduler: a program that closes it may have done so in another thread."""
    if client.status in ("closing", "closed"):
        return "the client is closed, by this program or because its scheduler went away"
    return "the scheduler went away or does not answer"


def no_workers(client: Any, what: str, seconds: float, nannies: Sequence[Any]) -> NoWorkers:
    """Return the error for a cluster without workers; `what` leads up to the seconds that were waited."""
    waited = f"{what} {format_seconds(seconds)}"
    workers: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        workers = client.scheduler_info(n_workers=-1)["workers"]
    paused = [address for address, info in workers.items() if info.get("status") == "paused"]
    if paused and not nannies:
        return NoWorkers(
            f"{waited} that takes tasks: {len(paused)} worker(s) are paused, short of memory ({min(paused)}); restart "
            "them, with more memory or with a lower partition_bytes, then run again"
        )
    if not nannies:
        return NoWorkers(f"{waited}; start one with `dask worker {client.scheduler.address}`, then run again")
    kills: Sequence[Any] = ()
    with contextlib.suppress(Exception):
        kills = client.get_events(MEMORY_TOPIC)
    if kills:
        limits = [nanny.memory_manager.memory_limit for nanny in nannies if nanny.memory_manager]
        limit = f" of {format_bytes(min(limits))}" if limits else ""
        return NoWorkers(
            f"{waited}: {len(kills)} worker(s) were killed for exceeding the memory limit{limit}; lower "
            "partition_bytes or n_workers, or raise memory_limit. Running the same command again resumes"
        )
    return NoWorkers(
        f"{waited}: the processes that this job started have ended, and none comes back (killed by the system, or the "
        'machine is overloaded); run the same command again, with fewer n_workers or cluster = "threads"'
    )


def _memory_of(info: dict[str, Any]) -> int:
    return int(info.get("metrics", {}).get("memory", 0))


def _n_running(info: dict[str, Any]) -> int:
    """Return how many tasks run on a worker, in its thread pool or outside of it."""
    counts = info.get("metrics", {}).get("task_counts", {})
    return int(counts.get("executing", 0) + counts.get("long-running", 0))


def _listen(client: Any, events: Events) -> None:
    with _lock:
        _listeners.setdefault(client.id, []).append(events)

    def hand_on(event: tuple[str, Any, Any]) -> None:
        for queue in list(_listeners.get(client.id, ())):
            queue.put(event)

    def on_any(event: tuple[float, Any]) -> None:
        message = event[1]
        if isinstance(message, dict) and message.get("action") == "remove-worker" and not message.get("expected"):
            hand_on(("death", message.get("worker"), None))

    def on_ours(event: tuple[float, Any]) -> None:
        message = event[1]
        if "log" not in message:
            hand_on(("report", message["token"], message["partition"]))
        elif (key := (client.id, message["kind"])) not in _HANDED_ON:
            _HANDED_ON.add(key)
            hand_on(("log", None, message["log"]))

    client.subscribe_topic(TOPIC, on_ours)
    client.subscribe_topic(MEMORY_TOPIC, lambda event: hand_on(("memory", event[1].get("worker"), None)))
    client.subscribe_topic("all", on_any)


def _unlisten(client: Any, events: Events) -> None:
    with _lock:
        _listeners[client.id].remove(events)
        if _listeners[client.id]:
            return
        del _listeners[client.id]
    for topic in (TOPIC, MEMORY_TOPIC, "all"):
        with contextlib.suppress(Exception):  # the scheduler may be gone, or going away
            client.unsubscribe_topic(topic)
