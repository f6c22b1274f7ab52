"""Watching a cluster while a pass runs: nothing waits for ever, and failures say what the workers looked like."""

from __future__ import annotations

import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from sketchselect._text import format_seconds
from sketchselect.errors import ClusterLost, NoWorkers, PartitionCrash, Stalled
from sketchselect.readers.byte_sizes import format_bytes

if TYPE_CHECKING:
    from sketchselect.execution.dask.engine import DaskEngine

TOPIC = "sketchselect"
"""Where tasks report partitions."""

LOOK_SECONDS = 3.0
"""Time between two looks at the workers."""

SILENT_SECONDS = 60.0
"""A scheduler that has not answered for so long is lost."""

SHOWN_WORKERS = 8

Events = SimpleQueue[tuple[str, Any, Any]]

_listeners: dict[str, list[Events]] = {}
_lock = threading.Lock()


class ClusterWatch:
    """Follows one pass.

    Parameters
    ----------
    engine : DaskEngine
        Whose client is watched.
    stage : str
        Name of the pass, for messages.
    stall_timeout : float
        Seconds without any partition done that are too many.
    events : queue
        Told of partitions done inside long tasks ("partition") and of lost workers ("death").
    """

    def __init__(self, engine: DaskEngine, stage: str, stall_timeout: float, events: Events) -> None:
        self.engine = engine
        self.client = engine.client
        self.stage = stage
        self.stall_timeout = stall_timeout
        self.deaths = 0
        self._events = events
        self._began_kills = engine.memory_kills() if engine.memory_kills else 0
        self._last_progress = self._last_answer = time.monotonic()
        self._without_workers: float | None = None
        self._workers: dict[str, dict[str, Any]] = {}
        self._memory: dict[str, int] = {}
        self._over = threading.Event()
        _listen(self.client, events)
        # A scheduler that hangs would hang whoever asks it, so another thread asks.
        self._thread = threading.Thread(target=self._look, name="sketchselect-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join(timeout=1)
        _unlisten(self.client, self._events)

    def progressed(self) -> None:
        """A partition, or a merge, is done."""
        self._last_progress = time.monotonic()

    def check(self) -> None:
        """Raise `ClusterLost`, `NoWorkers` or `Stalled` where it is time to."""
        self.require_scheduler()
        now = time.monotonic()
        empty = self._without_workers
        if empty is not None and now - empty > self.engine.worker_timeout:
            raise NoWorkers(
                f"{self.stage}: the cluster has had no workers for {format_seconds(now - empty)}; start some, "
                "then run the same command again"
            )
        if now - self._last_progress > self.stall_timeout:
            raise Stalled(
                f"{self.stage}: no partition was finished in {format_seconds(self.stall_timeout)} ({self.table()}); "
                "a paused worker is short of memory: lower partition_bytes or raise memory_limit. If partitions just "
                "take that long, raise stall_timeout. Running the same command again resumes from the checkpoints"
            )

    def require_scheduler(self) -> None:
        """Raise `ClusterLost` if the scheduler is gone."""
        silent = time.monotonic() - self._last_answer
        if self.client.status != "running" or silent > SILENT_SECONDS:
            raise ClusterLost(
                f"{self.stage}: the scheduler went away or does not answer; finished checkpoints are kept, "
                "running the same command again resumes"
            )

    def table(self) -> str:
        """Return the workers in words: status and memory."""
        if not self._workers:
            return "no workers"
        lines = [
            f"{address} {info.get('status', '?')}, {format_bytes(_memory_of(info))} of "
            f"{format_bytes(info.get('memory_limit') or 0)}, {info.get('metrics', {}).get('executing', 0)} running"
            for address, info in sorted(self._workers.items())[:SHOWN_WORKERS]
        ]
        more = len(self._workers) - len(lines)
        return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")

    def crash(self, where: str, error: Any) -> PartitionCrash:
        """Return the error for a task whose workers died every time, though nothing ran beside it."""
        died = error.allowed_failures + 1
        last = error.last_worker
        seen = self._memory.get(last.address)
        limit = format_bytes(last.memory_limit) if last.memory_limit else "none"
        memory = f"memory last seen {format_bytes(seen) if seen else 'unknown'}, limit {limit}"
        kills = self.engine.memory_kills() - self._began_kills if self.engine.memory_kills else None
        if kills:
            cause = f"{kills} of them were killed for exceeding the memory limit"
        elif kills == 0:
            cause = "none for exceeding the memory limit, so likely a crash of native code or a kill from outside"
        else:
            cause = "likely memory, or a crash of native code"
        return PartitionCrash(
            f"{where}: worker died {died} times while running it alone ({memory}); {cause}. Lower partition_bytes or "
            "threads per worker, or raise memory_limit; finished checkpoints are kept"
        )

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                workers = self.client.scheduler_info(n_workers=-1)["workers"]
            except Exception:
                # Whoever waits for the pass finds out from the client's status, or from the silence.
                continue
            self._last_answer = time.monotonic()
            self._workers = {address: dict(info) for address, info in workers.items()}
            for address, info in self._workers.items():
                self._memory[address] = _memory_of(info)
            if workers:
                self._without_workers = None
            elif self._without_workers is None:
                self._without_workers = time.monotonic()


def _memory_of(info: dict[str, Any]) -> int:
    return int(info.get("metrics", {}).get("memory", 0))


def _listen(client: Any, events: Events) -> None:
    with _lock:
        known = _listeners.setdefault(client.id, [])
        known.append(events)
        if len(known) > 1:
            return

    def tell(event: tuple[str, Any, Any]) -> None:
        for queue in list(_listeners.get(client.id, ())):
            queue.put(event)

    def on_partition(event: tuple[float, Any]) -> None:
        tell(("partition", event[1]["run"], event[1]["partition"]))

    def on_any(event: tuple[float, Any]) -> None:
        message = event[1]
        if isinstance(message, dict) and message.get("action") == "remove-worker" and not message.get("expected"):
            tell(("death", message.get("worker"), None))

    client.subscribe_topic(TOPIC, on_partition)
    client.subscribe_topic("all", on_any)


def _unlisten(client: Any, events: Events) -> None:
    with _lock:
        known = _listeners.get(client.id, [])
        known.remove(events)
        if known:
            return
        _listeners.pop(client.id, None)
    if client.status == "running":
        for topic in (TOPIC, "all"):
            client.unsubscribe_topic(topic)
