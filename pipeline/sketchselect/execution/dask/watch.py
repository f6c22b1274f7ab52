"""A watch on a cluster while passes run: no wait is endless, and errors say what the workers looked like."""

from __future__ import annotations

import contextlib
import threading
import time
from queue import SimpleQueue
from typing import Any

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import format_seconds
from sketchselect.errors import ClusterLost, NoWorkers, PartitionCrash, Stalled

TOPIC = "sketchselect"
"""Where tasks report partitions."""

MEMORY_TOPIC = "worker-restart-memory"
"""Where nannies say that they kill a worker for its memory: the exception that follows does not say so."""

LOOK_SECONDS = 3.0
"""Time between two looks at the workers."""

SILENT_SECONDS = 60.0
"""A scheduler that has not answered for this long is lost."""

SHOWN_WORKERS = 8

Events = SimpleQueue[tuple[str, Any, Any]]

_listeners: dict[str, list[Events]] = {}
"""A client has one handler a topic; several passes may run with it at the same time."""
_lock = threading.Lock()


class ClusterWatch:
    """Follows the workers of a client, and what tasks report, during one pass.

    `worker_timeout` seconds without any worker are too many, as are `stall_timeout` without any partition done; `stage`
    is the pass in messages.
    """

    def __init__(self, client: Any, worker_timeout: float, stage: str, stall_timeout: float) -> None:
        self.client = client
        self.worker_timeout = worker_timeout
        self.events: Events = SimpleQueue()
        self.deaths = self.memory_kills = 0
        self._stage, self._stall_timeout = stage, stall_timeout
        self._last_progress = self._last_answer = time.monotonic()
        self._without_workers: float | None = None
        self._workers: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, dict[str, Any]] = {}
        self._over = threading.Event()
        _listen(client, self.events)
        # A scheduler that hangs would hang whoever asks it, so another thread asks.
        self._thread = threading.Thread(target=self._look, name="sketchselect-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join(timeout=1)
        _unlisten(self.client, self.events)

    def progressed(self) -> None:
        """A partition, or a merge, is done."""
        self._last_progress = time.monotonic()

    def check(self) -> None:
        """Raise `ClusterLost`, `NoWorkers` or `Stalled` where it is time to."""
        self.require_scheduler()
        now = time.monotonic()
        empty = self._without_workers
        if empty is not None and now - empty > self.worker_timeout:
            raise NoWorkers(
                f"{self._stage}: the cluster has had no workers for {format_seconds(now - empty)}; start some, "
                "then run the same command again"
            )
        if now - self._last_progress > self._stall_timeout:
            raise Stalled(
                f"{self._stage}: no partition was finished in {format_seconds(self._stall_timeout)} ({self.table()}); "
                "a paused worker is short of memory: lower partition_bytes or raise memory_limit. If partitions just "
                "take that long, raise stall_timeout. Running the same command again resumes from the checkpoints"
            )

    def require_scheduler(self) -> None:
        """Raise `ClusterLost` if the scheduler is gone."""
        silent = time.monotonic() - self._last_answer
        if self.client.status != "running" or silent > SILENT_SECONDS:
            raise ClusterLost(
                f"{self._stage}: the scheduler went away or does not answer; running the same command again "
                "resumes from the checkpoints, if parts were long enough to be saved"
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
                # Whoever waits for the pass finds out from the client's status, or from the silence.
                continue
            self._last_answer = time.monotonic()
            self._workers = {address: dict(info) for address, info in workers.items()}
            self._seen |= self._workers
            if workers:
                self._without_workers = None
            elif self._without_workers is None:
                self._without_workers = time.monotonic()


def _memory_of(info: dict[str, Any]) -> int:
    return int(info.get("metrics", {}).get("memory", 0))


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

    client.subscribe_topic(TOPIC, lambda event: hand_on(("report", event[1]["token"], event[1]["partition"])))
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
