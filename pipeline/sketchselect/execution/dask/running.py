"""One pass on a Dask cluster: its graphs are sent, followed, and sent again where what they need was lost."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pickle import loads
from queue import Empty
from typing import Any, Generic, TypeVar

from cloudpickle import dumps
from dask.task_spec import Task, TaskRef

from sketchselect.errors import ClusterLost, PartitionFailed, SketchSelectError
from sketchselect.execution.dask.checks import runs_tasks
from sketchselect.execution.dask.watch import TOPIC, ClusterWatch
from sketchselect.execution.engine import Ran
from sketchselect.execution.graph.passes import Graph, Pass, pass_inputs, taken
from sketchselect.execution.graph.tasks import Part, Span, read_cached
from sketchselect.execution.graph.tree import Node
from sketchselect.execution.projection import SENT_AHEAD

T = TypeVar("T")

MOST_LEAVES = 512
"""Leaves of one graph: a bounded number of tasks is on the scheduler, and no more than these are repeated on a loss."""

AHEAD = 16
"""Leaves per task slot that are on the scheduler, at least."""

MAX_LOSSES = 20
"""Number of times that one graph may be lost with its workers before the pass is given up."""

SENT_NBYTES = 256 * 2**20
"""Rows of this process's memory that are on the scheduler at a time."""

POLL_SECONDS = 0.5


class ClusterPass(Generic[T]):
    """The state of one pass; used once."""

    def __init__(self, client: Any, work: Pass[T], watch: ClusterWatch, n_slots: int) -> None:
        self.client, self.work, self.watch = client, work, watch
        self.ready: dict[Node, Any] = dict(work.ready)
        self.flying: dict[Node, Any] = {}
        self.pieces: dict[Node, list[Any]] = {}  # Futures of what nodes send beside their parts
        self.suspects: list[Node] = []
        self.alone: Node | None = None
        self.losses: dict[Node, int] = {}
        self.counted: set[int] = set()
        self.n_tasks = 0
        self.inputs = pass_inputs(work.spec.source, work.partitions, remote=True)
        # What all tasks share is packed once, and not unpacked by the scheduler.
        report = functools.partial(report_to_client, work.token)
        spec = replace(work.spec, source=self.inputs.source, report=report)
        if spec.reads_ahead:
            spec = replace(spec, turn=beside_pool)
            if self.inputs.argument is None:
                # One task a partition: a turn that has begun lasts until the end of its task.
                self.inputs = replace(self.inputs, argument=lambda span: None)
        self.spec = dumps(spec)
        ahead, most = AHEAD * n_slots, MOST_LEAVES
        if self.inputs.sends:
            # Rows travel inside the graph, and wait on the scheduler.
            fitting = SENT_NBYTES // max(1, max(work.span(i).nbytes for i in range(len(work.partitions))))
            ahead = max(2, min(SENT_AHEAD * n_slots, fitting))
            most = max(work.tree.fan_in, ahead // 2)
        self.cuts = work.cuts(most)
        self.n_flying = max(2, ahead * len(self.cuts) // work.tree.n_leaves)

    def run(self) -> Ran[T]:
        """Run it to the end."""
        import dask

        output = self.work.tree.root
        # What is sent inside messages on purpose is bounded; the warning is meant for graphs that carry data.
        quiet = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"})
        try:
            with quiet:
                while not isinstance(self.ready.get(output), Part):
                    if output in self.ready:
                        self._collect(output)
                    else:
                        self._start_more()
                        self._follow()
        finally:
            for future in (*self.ready.values(), *self.flying.values(), *chain(*self.pieces.values())):
                if hasattr(future, "release"):
                    future.release()
        return Ran(self.ready[output], self.n_tasks, self.watch.deaths)

    def _start_more(self) -> None:
        if self.alone is not None:
            return
        self.suspects = [node for node in self.suspects if node not in self.ready]
        if self.suspects:
            if not self.flying and not runs_tasks(self.client, self.work.token):
                self.alone = self.suspects.pop()
                self._start(self.alone)
            return
        *subtrees, output = self.cuts
        missing = [node for node in subtrees if node not in self.ready and node not in self.flying]
        for node in missing[: self.n_flying - len(self.flying)]:
            self._start(node)
        if not missing and not self.flying:
            self._start(output)

    def _follow(self) -> None:
        self.watch.check()
        try:
            what, who, detail = self.watch.events.get(timeout=POLL_SECONDS)
        except Empty:
            return
        # A callback of an earlier future of the same node says nothing.
        if what == "done" and who in self.flying and self.flying[who] is detail:
            self.watch.progressed()
            del self.flying[who]
            alone, self.alone = self.alone, None
            try:
                if detail.status == "finished":
                    self.ready[who] = detail
                    for partition in self.work.tree.partitions(who):
                        self._count(partition)
                else:
                    self._failed(who, detail, alone)
            finally:
                # An error keeps its future alive, and so the tasks of the whole graph.
                if self.ready.get(who) is not detail:
                    detail.release()
        elif what == "report" and who == self.work.token:
            self.watch.progressed()
            if detail is not None:
                self._count(detail)
        elif what == "memory":
            self.watch.memory_kills += 1
        elif what == "death":
            self.watch.deaths += 1
            self.work.progress.note(f"{self.work.stage}: a worker died; its results are computed again")

    def _count(self, partition: int) -> None:
        """Report a partition as done, once however often it was computed."""
        if partition not in self.counted:
            self.counted.add(partition)
            self.work.progress.advance(self.work.span(partition).nbytes)

    def _failed(self, node: Node, future: Any, alone: Node | None) -> None:
        from distributed import CancelledError, KilledWorker

        error = future.exception() if future.status == "error" else CancelledError()
        if isinstance(error, SketchSelectError):
            raise error
        if isinstance(error, KilledWorker):
            # Dask blames every task that was waiting on the worker, so the cause is looked for: the one it names first,
            # then the parts of the graph one by one, and those of the part that kills its workers again.
            below = [child for child in self.work.tree.children(node) if child not in self.ready]
            if node == alone and not below:
                raise self.watch.crash(self.work.where(node), error)
            self.suspects += [node, *reversed(below)]
            named = self.work.node_of(error.task)
            if named is not None and named != alone and named not in self.ready:
                self.suspects.append(named)
            self._count_loss(node)
        elif isinstance(error, CancelledError):
            self._count_loss(node)
        elif (cause := self._cause(future)) in self.inputs.graph:
            raise self.work.user_error(cause, self.inputs, error) from error
        else:
            what = f"{type(error).__name__}: {error}" if isinstance(error, ImportError) else type(error).__name__
            raise PartitionFailed(
                f"{self.work.where(node)}: the worker could not run the task ({what}); "
                "are all workers in the same environment as this process?"
            ) from error

    def _cause(self, future: Any) -> Any:
        """Return the key of the task that failed first, of those that a future needs."""
        cause = self.client.sync(self.client.scheduler.get_error_cause, keys=[future.key])
        return tuple(cause) if isinstance(cause, list) else cause

    def _count_loss(self, node: Node) -> None:
        """Count a graph that went away with its workers, and forget results that went with it."""
        self.watch.require_scheduler()
        self.losses[node] = self.losses.get(node, 0) + 1
        if self.losses[node] > MAX_LOSSES:
            raise ClusterLost(
                f"{self.work.where(node)}: lost {MAX_LOSSES} times with its worker; the cluster is not stable enough. "
                "Running the same command again resumes from the checkpoints"
            )
        for done, result in list(self.ready.items()):
            if getattr(result, "status", "finished") not in ("finished", "pending"):
                del self.ready[done]
                if done in self.work.ready:
                    self.ready[done] = self.work.ready[done]

    def _start(self, node: Node) -> None:
        graph = self.work.graph(node, self.inputs, self.ready)
        self.n_tasks += len(graph)
        graph = {**self.inputs.culled(graph), self.work.spec_key: Task(self.work.spec_key, loads, self.spec)}
        *self.pieces[node], future = self.client.get(graph, self.work.keys(node), sync=False)
        self.flying[node] = future
        events = self.watch.events
        future.add_done_callback(lambda done: events.put(("done", node, done)))

    def _collect(self, output: Node) -> None:
        from distributed import CancelledError, KilledWorker

        future = self.ready[output]
        try:
            part, pieces = self.client.gather(future), self.pieces.pop(output, [])
            if self.work.join is not None:
                part = self.work.join(part, map(self.client.gather, taken(pieces)))
            self.ready[output] = part
        except (CancelledError, KilledWorker, OSError):
            del self.ready[output]
            self._count_loss(output)
        future.release()


def persist_blocks(client: Any, work: Pass[Any]) -> dict[tuple[int, int], Any]:
    """Return futures of the prepared blocks: neighbouring partitions on one worker, evenly by threads.

    What a worker loses is read again wherever there is room; when the futures are released, or the client dies, the
    memory is free again. Returns at once; errors of reading come up in the first pass that needs the block.
    """
    inputs = pass_inputs(work.spec.source, work.partitions, remote=True)
    turn = functools.partial(beside_pool, waits=False) if work.spec.reads_ahead else work.spec.turn
    packed = dumps(replace(work.spec, source=inputs.source, turn=turn))
    (spec,) = client.get({work.spec_key: Task(work.spec_key, loads, packed)}, [work.spec_key], sync=False)
    graphs: dict[str, Graph] = {}
    workers = client.scheduler_info(n_workers=-1)["workers"]
    slots = [address for address in sorted(workers) for _ in range(int(workers[address]["nthreads"]))]
    for index in range(len(work.partitions)):
        span = work.span(index)
        key = (f"block-{work.token}", index)
        argument = None if inputs.argument is None else inputs.argument(span)
        graphs.setdefault(slots[index * len(slots) // len(work.partitions)], {})[key] = Task(
            key, read_cached, TaskRef(work.spec_key), span, argument
        )
    futures = {}
    for worker, graph in graphs.items():
        keys = list(graph)
        # The workers are a preference: when one is gone, any other will do.
        results = client.get(inputs.culled(graph), keys, workers=[worker], allow_other_workers=True, sync=False)
        futures.update({work.partitions[key[1]]: future for key, future in zip(keys, results, strict=True)})
    spec.release()
    return futures


@contextmanager
def beside_pool(*, waits: bool = True) -> Iterator[None]:
    """Leave the thread pool of the worker, which reads the next rows meanwhile.

    No more tasks do at a time than the pool has threads: a further one `waits`, or else stays in the pool.
    """
    from distributed import get_worker, secede

    worker = get_worker()
    turns = _turns(worker.address, worker.state.nthreads)
    if not turns.acquire(blocking=waits):
        yield
        return
    try:
        secede()
        yield
    finally:
        turns.release()


@functools.cache
def _turns(address: str, n_threads: int) -> threading.BoundedSemaphore:
    """Return what bounds the tasks of one worker that are outside of its thread pool."""
    return threading.BoundedSemaphore(n_threads)


def report_to_client(token: str, span: Span | None) -> None:
    """Report a partition, or with None a merge, from a worker to the client."""
    from distributed import get_worker

    get_worker().log_event(TOPIC, {"token": token, "partition": None if span is None else span.partition})
