"""The engine on a Dask cluster.

The cluster is checked before work is sent to it, and watched while a pass runs: no wait is endless, and errors say how
the workers looked. Graphs are sent, followed, and sent again where results that they need were lost.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import ipaddress
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from itertools import chain, repeat
from operator import itemgetter
from pickle import loads
from queue import Empty
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

import dask
from cloudpickle import dumps
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.task_spec import Task, TaskRef

from sketchselect._memory import peak_nbytes, trim
from sketchselect._progress import Progress, Result, Statistics
from sketchselect._text import counted, format_seconds
from sketchselect._version import KERNEL_VERSION, __version__
from sketchselect.errors import BadCluster, BadParameter, ClusterLost, PartitionFailed, SketchSelectError
from sketchselect.execution.engine import CLIENTS
from sketchselect.execution.plan import SENT_AHEAD, Engine, Graph, Plan, local_build
from sketchselect.execution.tasks import Span, read_cached
from sketchselect.execution.tree import Node
from sketchselect.execution.watch import LOOK_SECONDS, TOPIC, ClusterWatch, no_workers, send_log, this_process, why_lost
from sketchselect.linalg.panel_columns import Each, Panels, Step, map_panels, own_arguments, step_panels
from sketchselect.linalg.sparse_shrink import SketchPanel
from sketchselect.location import location_of
from sketchselect.summaries.base import canonical_record

CHECKED = ("sketchselect", "numpy", "scipy", "numba", "zarr", "dask")
"""Packages that must have the same version everywhere."""

ANSWER_SECONDS = 10.0
"""Seconds in which workers have to answer a question."""


def worker_builds(client: Any) -> list[tuple[str, ...]]:
    """Return the builds of the workers, each once.

    Raises `BadCluster` if a worker lacks a package or has another version than this process; the message lists them.
    """
    try:
        versions = client.get_versions(packages=list(CHECKED))
    except OSError:
        raise
    except Exception as error:
        raise BadCluster(f"the workers cannot be asked for their versions ({type(error).__name__})") from error
    ours = _named_versions(versions["client"])
    wrong = Counter(
        (name, version)
        for worker in versions["workers"].values()
        for name, version in _named_versions(worker).items()
        if version != ours[name]
    )
    if wrong:
        listed = "; ".join(
            f"{name} {version} on {count} worker(s), {ours[name]} here"
            for (name, version), count in sorted(wrong.items())
        )
        raise BadCluster(f"workers and client have different libraries: {listed}. Use the same environment everywhere")
    builds = {
        tuple(build) for build in ask_workers(client, functools.partial(_build_of_worker, this_process(), local_build))
    }
    return sorted(builds) or [local_build()]


def _build_of_worker(client_process: str, build: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    send_log(client_process)
    return build()


def _named_versions(answer: Any) -> dict[str, str]:
    """Return the versions of Python (without the last number) and of the packages that are compared."""
    packages = answer["packages"]
    versions = {name: packages.get(name) or "missing" for name in CHECKED}
    return {"python": ".".join(packages["python"].split(".")[:2]), **versions}


def is_exposed(address: str) -> bool:
    """Return whether traffic to a scheduler leaves this machine unencrypted."""
    parts = urlsplit(address)
    if parts.scheme not in ("tcp", "ws") or not parts.hostname or parts.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname).is_loopback
    except ValueError:
        return True


def scheduler_settings(client: Any) -> dict[str, Any]:
    """Return the settings in effect on the scheduler; those of this process do not apply if it runs elsewhere."""
    names = ("allowed_failures", "worker_ttl")
    with contextlib.suppress(Exception):  # a scheduler may forbid to be asked
        return dict(client.run_on_scheduler(lambda dask_scheduler: {n: getattr(dask_scheduler, n) for n in names}))
    return {}


def runs_tasks(client: Any, token: str) -> bool:
    """Return whether a worker still runs tasks of a pass: cancelled tasks run to their end."""
    return any(ask_workers(client, lambda dask_worker: any(token in str(key) for key in dask_worker.active_keys)))


def ask_workers(client: Any, question: Any) -> list[Any]:
    """Return the answers of the workers, except of workers that have died or do not answer in time.

    `client.run` alone would wait for ever for a worker that is cut off, and so would the others' answers.
    """

    async def ask(workers: list[str]) -> list[Any]:
        asked = [asyncio.ensure_future(client._run(question, workers=[w], on_error="ignore")) for w in workers]
        done, late = await asyncio.wait(asked, timeout=ANSWER_SECONDS)
        for task in late:
            task.cancel()
        return [answer for task in asked if task in done and not task.exception() for answer in task.result().values()]

    with contextlib.suppress(Exception):
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        return list(client.sync(ask, workers)) if workers else []
    return []


def probe_folder(client: Any, directory: str | os.PathLike[str]) -> bool | None:
    """Return whether all workers can write files in a folder (or URL) that this process sees; None if silent."""
    folder = location_of(directory)

    def write() -> str | None:
        name = f".probe-{uuid4().hex}"
        with contextlib.suppress(Exception):
            folder.join(name).write(b"probe", durable=False)
            return name
        return None

    try:
        if folder.is_local:
            os.makedirs(folder.url, exist_ok=True)
    except OSError:
        return False
    answers, seen = ask_workers(client, write), 0
    for name in answers:
        if name is not None:
            with contextlib.suppress(Exception):
                folder.join(name).remove()
                seen += 1
    return seen == len(answers) if answers else None


T = TypeVar("T")

MOST_LEAVES = 512
"""Leaves of one graph: a bounded number of tasks is on the scheduler, and no more than these are repeated on a loss."""

AHEAD = 16
"""Leaves per task slot that are on the scheduler, at least."""

MAX_LOSSES = 20
"""Number of times that one graph may be lost with its workers before the pass is given up."""

SENT_NBYTES = 256 * 2**20
"""Rows of this process's memory that are on the scheduler at a time."""

LOOP_SECONDS = 20.0
"""Seconds without an answer after which the event loop of a client does not run."""

REPORTED_SECONDS = 3.0
"""A longer wait for the first worker is reported."""

REMINDER_SECONDS = 15.0
"""Seconds after which a wait that goes on is reported again."""

POLL_SECONDS = 0.5


class ClusterPass(Generic[T]):
    """The state of one pass; used once."""

    def __init__(self, client: Any, plan: Plan[T], watch: ClusterWatch, n_slots: int) -> None:
        self.client, self.watch = client, watch
        self.ready: dict[Node, Any] = dict(plan.ready)
        self.flying: dict[Node, Any] = {}
        self.pieces: dict[Node, list[Any]] = {}  # Futures of the pieces that nodes send with their results
        self.suspects: list[Node] = []
        self.alone: Node | None = None
        self.losses: dict[Node, int] = {}
        self.counted = plan.done
        self.n_tasks = 0
        plan = plan.bound(remote=True)
        # What all tasks share is packed once, and not unpacked by the scheduler.
        on_task_end = functools.partial(report_to_client, plan.token, local_versions(), this_process())
        context = plan.task_context(on_task_end=on_task_end)
        if context.reads_ahead:
            context = replace(context, compute_slot=seceded)
            if plan.prefetched is None:
                # One task a partition: a compute slot is held until the end of its task.
                plan = replace(plan, prefetched=lambda span: None)
        self.plan = plan
        self.context = dumps(context)
        ahead, most = AHEAD * n_slots, MOST_LEAVES
        if plan.sends_rows:
            # Rows travel inside the graph, and wait on the scheduler.
            fitting = SENT_NBYTES // max(1, max(plan.span(i).nbytes for i in range(len(plan.partitions))))
            ahead = max(2, min(SENT_AHEAD * n_slots, fitting))
            most = max(plan.tree.fan_in, ahead // 2)
        self.cuts = plan.cuts(most)
        self.n_flying = max(2, ahead * len(self.cuts) // plan.tree.n_leaves)

    def run(self) -> Result[T]:
        """Run it to the end."""
        output = self.plan.tree.root
        # What is sent inside messages on purpose is bounded; the warning is meant for graphs that carry data.
        quiet = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"})
        try:
            with quiet:
                while not isinstance(self.ready.get(output), Result):
                    if output in self.ready:
                        self._collect(output)
                    else:
                        self._start_more()
                        self._follow()
        finally:
            for future in (*self.ready.values(), *self.flying.values(), *chain(*self.pieces.values())):
                if hasattr(future, "release"):
                    future.release()
        result = self.ready[output]
        stats = Statistics(n_tasks=self.n_tasks, worker_deaths=self.watch.deaths)
        return Result(result.value, result.stats + stats)

    def _start_more(self) -> None:
        if self.alone is not None:
            return
        self.suspects = [node for node in self.suspects if node not in self.ready]
        if self.suspects:
            if not self.flying and not runs_tasks(self.client, self.plan.token):
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
                    for partition in self.plan.tree.partitions(who):
                        self._count(partition)
                else:
                    self._failed(who, detail, alone)
            finally:
                # An error keeps its future alive, and so the tasks of the whole graph.
                if self.ready.get(who) is not detail:
                    detail.release()
        elif what == "report" and who == self.plan.token:
            self.watch.progressed()
            if detail is not None:
                self._count(detail)
        elif what == "log":
            self.watch.tell(detail)
        elif what == "memory":
            self.watch.memory_kills += 1
        elif what == "death":
            self.watch.deaths += 1
            self.plan.progress.note(f"{self.plan.stage}: a worker died; its results are computed again")

    def _count(self, partition: int) -> None:
        """Report a partition as done, once however often it was computed."""
        if partition not in self.counted:
            self.counted.add(partition)
            self.plan.progress.advance(self.plan.span(partition).nbytes)

    def _failed(self, node: Node, future: Any, alone: Node | None) -> None:
        from distributed import CancelledError, KilledWorker

        error = future.exception() if future.status == "error" else CancelledError()
        if isinstance(error, SketchSelectError):
            raise error
        if isinstance(error, KilledWorker):
            # Dask blames every task that was waiting on the worker, so the cause is looked for: the one it names first,
            # then the parts of the graph one by one, and those of the part that kills its workers again.
            below = [child for child in self.plan.tree.children(node) if child not in self.ready]
            if node == alone and not below:
                raise self.watch.crash(self.plan.where(node), error)
            self.suspects += [node, *reversed(below)]
            named = self.plan.node_of(error.task)
            if named is not None and named != alone and named not in self.ready:
                self.suspects.append(named)
            self._count_loss(node)
        elif isinstance(error, CancelledError):
            self._count_loss(node)
        elif (cause := self._cause(future)) in self.plan.inputs:
            raise self.plan.user_error(cause, error) from error
        else:
            what = f"{type(error).__name__}: {error}" if isinstance(error, ImportError) else type(error).__name__
            raise PartitionFailed(
                f"{self.plan.where(node)}: the worker could not run the task ({what}); "
                "are all workers in the same environment as this process?"
            ) from error

    def _cause(self, future: Any) -> Any:
        """Return the key of the first task that failed among the tasks that a future needs."""
        cause = self.client.sync(self.client.scheduler.get_error_cause, keys=[future.key])
        return tuple(cause) if isinstance(cause, list) else cause

    def _count_loss(self, node: Node) -> None:
        """Count a graph that went away with its workers, and forget results that went with it."""
        self.watch.require_scheduler()
        self.losses[node] = self.losses.get(node, 0) + 1
        if self.losses[node] > MAX_LOSSES:
            raise ClusterLost(
                f"{self.plan.where(node)}: lost {MAX_LOSSES} times with its worker; the cluster is not stable enough. "
                "Running the same command again resumes from the checkpoints"
            )
        for done, result in list(self.ready.items()):
            if getattr(result, "status", "finished") not in ("finished", "pending"):
                del self.ready[done]
                if done in self.plan.ready:
                    self.ready[done] = self.plan.ready[done]

    def _start(self, node: Node) -> None:
        graph = self.plan.graph(node, self.ready)
        self.n_tasks += len(graph)
        context_key = self.plan.context_key
        graph = {**self.plan.with_inputs(graph), context_key: Task(context_key, loads, self.context)}
        *self.pieces[node], future = self.client.get(self._placed(graph), self.plan.keys(node), sync=False)
        self.flying[node] = future
        events = self.watch.events
        future.add_done_callback(lambda done: events.put(("done", node, done)))

    def _placed(self, graph: Graph) -> Any:
        """Return the graph with the workers that its tasks prefer; without one of these, any other will do."""
        workers = sorted(self.client.scheduler_info(n_workers=-1)["workers"])
        places = {worker: keys for worker, keys in self.plan.places(graph, workers).items() if keys}
        if not places:
            return graph
        anywhere = graph.keys() - set(chain(*places.values()))
        layers = {"anywhere": MaterializedLayer({key: graph[key] for key in anywhere})}
        for worker, keys in places.items():
            preferred = {"workers": [worker], "allow_other_workers": True}
            layers[worker] = MaterializedLayer({key: graph[key] for key in keys}, annotations=preferred)
        # Tasks of all layers may need each other, which no order of layers says.
        return HighLevelGraph(layers, {name: set() for name in layers})

    def _collect(self, output: Node) -> None:
        from distributed import CancelledError, KilledWorker

        future = self.ready[output]
        try:
            (result,), pieces = self._gathered([future]), self.pieces.pop(output, [])
            if self.plan.join is not None:
                result = self.plan.join(result, RemotePieces(self.client, pieces, self.watch.again, self.plan.stage))
            self.ready[output] = result
        except (CancelledError, KilledWorker, OSError, ClusterLost):
            del self.ready[output]
            self._count_loss(output)
        future.release()

    def _gathered(self, futures: list[Any]) -> list[Any]:
        """Return results, some of which may have to be computed again."""
        with gathering(self.client, futures) as answer:
            answer.add_done_callback(lambda done: self.watch.events.put(("gathered", None, done)))
            while not answer.done():
                if are_finished(futures):
                    self.watch.arriving()
                self._follow()
            return all_results(answer.result(), futures)


@contextmanager
def gathering(client: Any, futures: list[Any]) -> Iterator[concurrent.futures.Future[list[Any]]]:
    """Yield the answer to come with the results of futures, without those that failed; it is given up at the end.

    `client.gather` alone would wait for ever for a result that went away with the last worker, or is on a frozen one.
    """

    async def gather() -> list[Any]:
        # Where it raises errors, tasks that it leaves behind when it is given up log tracebacks. It goes on when it is
        # given up: cancelled, it would leave the client a request that later ones wait for.
        coming = asyncio.ensure_future(client.gather(futures, errors="skip", asynchronous=True))
        coming.add_done_callback(lambda done: done.cancelled() or done.exception())
        return list(await asyncio.shield(coming))

    answer = asyncio.run_coroutine_threadsafe(gather(), client.loop.asyncio_loop)
    try:
        yield answer
    finally:
        answer.cancel()


def are_finished(futures: list[Any]) -> bool:
    """Return whether all results are there, on workers."""
    return all(future.status == "finished" for future in futures)


def all_results(results: list[Any], futures: list[Any]) -> list[Any]:
    """Return the results of futures; raise the error of one that failed, or was lost, and has none."""
    from distributed import CancelledError

    if len(results) < len(futures):
        raise next((future.exception() for future in futures if future.status == "error"), CancelledError())
    return results


SELECTING = "selecting columns"
"""Stage of the answers of panels."""


class RemotePieces:
    """Pieces on workers."""

    def __init__(self, client: Any, futures: list[Any], watched: Callable[[str], ClusterWatch], stage: str) -> None:
        self._client, self._futures, self._watched, self._stage = client, futures, watched, stage

    def __iter__(self) -> Iterator[Any]:
        """Yield the pieces, each of which is released."""
        while self._futures:
            yield from gather_watched(self._client, [self._futures.pop(0)], self._watched, self._stage)

    def in_place(self, edges: Sequence[int], value: Callable[[Any], SketchPanel]) -> RemotePanels:
        """Return the panels, which stay on their workers."""
        return RemotePanels(self._client, list(self._futures), edges, value, self._watched)


class RemotePanels(Panels):
    """Panels on workers, each of which computes with its own.

    `watched` makes a watch of the workers for a named stage: answers that are late are waited for as those of a pass.
    """

    def __init__(
        self,
        client: Any,
        futures: list[Any],
        edges: Sequence[int],
        value: Callable[[Any], SketchPanel],
        watched: Callable[[str], ClusterWatch],
    ) -> None:
        super().__init__(edges)
        self._client, self._futures, self._value, self._watched = client, futures, value, watched
        self._await(futures)  # none is anywhere before it is made
        holders = client.who_has(futures)
        self._groups: dict[str, list[int]] = {}
        for j, future in enumerate(futures):
            self._groups.setdefault(min(holders.get(future.key) or [""]), []).append(j)

    def drained(self) -> Iterator[SketchPanel]:
        """Yield the panels, one after the other."""
        for future in self._futures:
            with self._reached():
                (piece,) = self._gather([future])
            yield canonical_record(self._value(piece))

    def _map(self, function: Callable[..., Any], places: Sequence[int], each: Each, shared: Any) -> list[Any]:
        chosen = set(map(int, places))
        asked = {worker: [j for j in group if j in chosen] for worker, group in self._groups.items()}
        asked = {worker: group for worker, group in asked.items() if group}
        with self._reached():
            answers = [
                self._submit(
                    worker, _map_held, self._value, function, self._held(group), own_arguments(each, group), shared
                )
                for worker, group in asked.items()
            ]
            return self._in_order(asked.values(), answers)

    def _step(self, function: Step, states: Any, each: Each, shared: Any) -> tuple[dict[str, Any], list[Any]]:
        with self._reached():
            after = {}
            for worker, group in self._groups.items():
                before, own = None if states is None else states[worker], own_arguments(each, group)
                held = self._held(group)
                after[worker] = self._submit(worker, _step_held, self._value, function, held, before, own, shared)
            # The scheduler forgets the states before, unless some that are still held are made of them.
            answers = [self._submit(worker, itemgetter(1), state) for worker, state in after.items()]
            return after, self._in_order(self._groups.values(), answers)

    def _submit(self, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the future of a task that runs where the panels are, if that worker is still there."""
        preferred = {"workers": [worker], "allow_other_workers": True} if worker else {}
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"}):
            return self._client.submit(function, *arguments, pure=False, **preferred)

    def _in_order(self, groups: Iterable[Sequence[int]], futures: list[Any]) -> list[Any]:
        """Return the answers of some panels, by their order, from those of groups."""
        answers = zip(chain(*groups), chain(*self._gather(futures)), strict=True)
        return [answer for _, answer in sorted(answers, key=itemgetter(0))]

    def _held(self, group: Sequence[int]) -> list[Any]:
        return [self._futures[j] for j in group]

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Turn whatever the loss of the cluster raises inside into `ClusterLost`."""
        from distributed import CancelledError, KilledWorker
        from distributed.client import ClosedClientError

        try:
            if self._client.status != "running":
                raise ClosedClientError
            yield
        except (CancelledError, KilledWorker, ClosedClientError, OSError) as error:
            raise ClusterLost(
                "the workers that held the panels of this sketch are gone, or their client is closed, and so is the "
                "sketch; fit again, or run the same job again, and save a sketch while its client is open"
            ) from error

    def _gather(self, futures: list[Any]) -> list[Any]:
        return gather_watched(self._client, futures, self._watched, SELECTING)

    def _await(self, futures: list[Any]) -> None:
        watch_until(lambda seconds: self._are_done(futures, seconds), futures, self._watched, SELECTING)

    def _are_done(self, futures: list[Any], seconds: float) -> bool:
        """Return whether futures are done within some seconds, successfully or not."""

        async def wait() -> bool:
            waiting = [asyncio.ensure_future(future._state.wait()) for future in futures]
            _, late = await asyncio.wait(waiting, timeout=seconds)
            for task in late:
                task.cancel()
            return not late

        return bool(self._client.sync(wait))


def gather_watched(client: Any, futures: list[Any], watched: Callable[[str], ClusterWatch], stage: str) -> list[Any]:
    """Return the results of futures; raise what a watch of the workers raises where they cannot come."""
    with gathering(client, futures) as answer:
        watch_until(lambda seconds: bool(concurrent.futures.wait([answer], seconds).done), futures, watched, stage)
        return all_results(answer.result(), futures)


def watch_until(
    is_done: Callable[[float], bool], futures: list[Any], watched: Callable[[str], ClusterWatch], stage: str
) -> None:
    """Wait for what `is_done` says of futures within some seconds, and watch the workers where it is late."""
    if not is_done(LOOK_SECONDS):
        with contextlib.closing(watched(stage)) as watch:
            while not is_done(POLL_SECONDS):
                # Panels that were lost are computed again, which reports partitions.
                while not watch.events.empty():
                    what, _, detail = watch.events.get()
                    if what == "report":
                        watch.progressed()
                    elif what == "log":
                        watch.tell(detail)
                if are_finished(futures):
                    watch.arriving()
                watch.check()


def _same(panel: SketchPanel) -> SketchPanel:
    return panel


def _map_held(value: Any, function: Any, held: Sequence[Any], each: Any, shared: Any) -> list[Any]:
    return map_panels(function, [value(piece) for piece in held], each, shared)


def _step_held(value: Any, function: Any, held: Sequence[Any], before: Any, each: Any, shared: Any) -> Any:
    states = None if before is None else before[0]
    return step_panels(function, [value(piece) for piece in held], states, each, shared)


def persist_blocks(client: Any, plan: Plan[Any]) -> dict[tuple[int, int], Any]:
    """Return futures of the prepared blocks: neighbouring partitions on one worker, evenly by threads.

    What a worker loses is read again wherever there is room; when the futures are released, or the client dies, the
    memory is free again. Returns at once; errors of reading come up in the first pass that needs the block.
    """
    plan = plan.bound(remote=True)
    slot = functools.partial(seceded, waits=False) if plan.context.reads_ahead else plan.context.compute_slot
    packed = dumps(plan.task_context(compute_slot=slot))
    (context,) = client.get({plan.context_key: Task(plan.context_key, loads, packed)}, [plan.context_key], sync=False)
    graphs: dict[str, Graph] = {}
    workers = client.scheduler_info(n_workers=-1)["workers"]
    slots = [address for address in sorted(workers) for _ in range(int(workers[address]["nthreads"]))]
    for index in range(len(plan.partitions)):
        span = plan.span(index)
        key = (f"block-{plan.token}", index)
        sent = None if plan.prefetched is None else plan.prefetched(span)
        graphs.setdefault(slots[index * len(slots) // len(plan.partitions)], {})[key] = Task(
            key, read_cached, TaskRef(plan.context_key), span, sent, plan.rows_identity(span.start, span.stop)
        )
    futures = {}
    for worker, graph in graphs.items():
        keys = list(graph)
        # The workers are a preference: when one is gone, any other will do.
        results = client.get(plan.with_inputs(graph), keys, workers=[worker], allow_other_workers=True, sync=False)
        futures.update({plan.partitions[key[1]]: future for key, future in zip(keys, results, strict=True)})
    context.release()
    return futures


@contextmanager
def seceded(*, waits: bool = True) -> Iterator[None]:
    """Leave the thread pool of the worker, which then reads the next rows.

    At most as many tasks leave as the pool has threads: a further one `waits`, or else stays in the pool.
    """
    from distributed import get_worker, secede

    worker = get_worker()
    slots = _compute_slots(worker.address, worker.state.nthreads)
    if not slots.acquire(blocking=waits):
        yield
        return
    try:
        secede()
        yield
    finally:
        slots.release()


@functools.cache
def _compute_slots(address: str, n_threads: int) -> threading.BoundedSemaphore:
    """Return the semaphore that bounds the tasks of one worker outside its thread pool."""
    return threading.BoundedSemaphore(n_threads)


@functools.cache
def local_versions() -> dict[str, str]:
    """Return the versions of this process that have to be the same everywhere."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}
    versions["sketchselect"] = f"{__version__} kernels {KERNEL_VERSION}"  # there may be no metadata of a sent package
    return versions | {name: metadata.version(name) for name in CHECKED if name not in versions}


def report_to_client(token: str, versions: dict[str, str], client_process: str, span: Span | None) -> None:
    """Report a partition, or with None a merge, from a worker to the client, whose `versions` it must have.

    Workers that are there when a job begins were asked for theirs; others join later.
    """
    from distributed import get_worker

    send_log(client_process)
    ours = local_versions()
    if ours != versions:
        listed = "; ".join(
            f"{name} {ours[name]}, here {versions[name]}" for name in ours if ours[name] != versions[name]
        )
        raise BadCluster(
            f"worker {get_worker().address} joined during the run and has different libraries ({listed}); use the same "
            "environment everywhere, and run the same command again"
        )
    get_worker().log_event(TOPIC, {"token": token, "partition": None if span is None else span.partition})


@contextlib.contextmanager
def beside_tasks(client: Any) -> Iterator[None]:
    """Give up this thread's place among the tasks of a worker, where it is a task of the client's own cluster.

    Tasks that wait for tasks of theirs would otherwise hold all places, and wait for ever.
    """
    from distributed import get_worker, rejoin, secede
    from distributed.comm import resolve_address
    from distributed.threadpoolexecutor import thread_state

    is_task = False
    if getattr(thread_state, "proceed", False):  # a task within Dask's `worker_client` has given it up
        with contextlib.suppress(ValueError, OSError):
            worker = get_worker()
            addresses = worker.scheduler.address, client.scheduler.address
            is_task = addresses[0] == addresses[1] or len({*map(resolve_address, addresses)}) == 1
            # An actor has no place among the tasks, and its methods must not run side by side.
            is_task &= thread_state.executor is not worker.executors.get("actor")
    if is_task:
        secede()
    try:
        yield
    finally:
        if is_task:
            rejoin()


class DaskEngine(Engine):
    """Runs tasks on the workers of a synchronous Dask client, which stays open.

    Raises `NoWorkers` if none comes in `worker_timeout` seconds, `BadCluster` if their libraries differ from ours. A
    worker that is silent for `worker_ttl` seconds is given up; None leaves that to the scheduler. `nannies` are those
    of workers that this process started. `progress` is told of waiting for workers.
    """

    kind = "dask"

    def __init__(
        self,
        client: Any,
        *,
        worker_timeout: float = 60.0,
        worker_ttl: float | None = None,
        nannies: Sequence[Any] = (),
        progress: Progress | None = None,
    ) -> None:
        from distributed import Client

        if not isinstance(client, Client):
            raise BadParameter(f"client must be {CLIENTS}, got {type(client).__name__}")
        if client.asynchronous:
            raise BadParameter("an asynchronous client cannot be used; give Client(..., asynchronous=False)")
        if client.status != "running":
            raise BadCluster(f"the client is {client.status}; make a new one")
        self.client = client
        self.worker_timeout, self.worker_ttl, self.nannies = worker_timeout, worker_ttl, nannies
        self._address, self._progress = str(client.scheduler.address), progress or Progress()
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

    def _require_loop(self) -> None:
        """Raise `BadCluster` if the client's event loop runs nothing: in a forked process its thread is not there."""
        try:
            self.client.sync(asyncio.sleep, 0, callback_timeout=LOOP_SECONDS)
        except TimeoutError:
            raise BadCluster(
                f"{self._address}: the event loop of the client does not answer for {format_seconds(LOOP_SECONDS)}; a "
                "client works in the process that made it and in no process forked from that: make one in this process"
            ) from None

    def _await_workers(self, progress: Progress) -> None:
        """Wait for a worker, and take note of all that are there; report a wait of more than a moment."""
        self._require_loop()
        waiting = []
        try:
            if not self.client.scheduler_info(n_workers=-1)["workers"]:
                # A cluster that is scaled by its work starts a worker only where a task waits for one.
                waiting.append(self.client.submit(int, pure=False))
            left, limit = self.worker_timeout, format_seconds(self.worker_timeout)
            for pause in chain((REPORTED_SECONDS,), repeat(REMINDER_SECONDS)):
                try:
                    self.client.wait_for_workers(1, timeout=min(pause, left))
                    break
                except TimeoutError:
                    if pause >= left:
                        raise
                    progress.note(f"{self._address}: {self._idle()}; waiting up to {limit}")
                    left -= pause
                    limit = f"{format_seconds(max(left - REMINDER_SECONDS, 0))} more"
        except TimeoutError:
            what = f"{self._address}: no worker after"
            raise no_workers(self.client, what, self.worker_timeout, self.nannies) from None
        except OSError:
            raise self._lost() from None
        finally:
            for task in waiting:
                task.release()
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        threads = [int(w["nthreads"]) for w in workers] or [1]
        limits = [int(w["memory_limit"]) for w in workers if w.get("memory_limit")]
        self.n_workers = len(threads)
        self.n_slots = sum(threads)
        self.slots_per_process = max(threads)
        self.memory_limit = min(limits) if limits else None

    def _idle(self) -> str:
        """Return in words why no worker takes tasks."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        if paused := [address for address, info in workers.items() if info.get("status") == "paused"]:
            return f"{counted(len(paused), 'worker')} paused by Dask, short of memory ({min(paused)})"
        return "no worker is connected to the scheduler"

    def describe(self) -> dict[str, Any]:
        """Return workers, and the settings in effect on the scheduler."""
        encrypted = self._address.startswith("tls://")
        settings = scheduler_settings(self.client)
        if self.worker_ttl is not None:
            settings["worker_ttl"] = self.worker_ttl
        return {**super().describe(), "encrypted": encrypted, **settings}

    def build(self) -> tuple[str, ...]:
        """Return the builds of all workers; several where they differ in BLAS or CPU."""
        return self._build

    def can_write(self, directory: str | os.PathLike[str]) -> bool:
        """Return whether every worker can write in a folder what this process can read."""
        with self._connected():  # a cluster that is scaled by its work may have no worker by now
            able = probe_folder(self.client, directory)
            if able is None and self.client.status == "running":
                able = self._probe_again(directory)
        if able is None:
            raise self._lost()
        return able

    def _probe_again(self, directory: str | os.PathLike[str]) -> bool:
        """Return what workers say of a folder that gave no answer at first; silent ones are given up meanwhile."""
        limits = self.worker_timeout, self.worker_ttl, self.nannies
        watch = ClusterWatch(self.client, f"{directory}", Plan.stall_timeout, self._progress, *limits)
        deadline = time.monotonic() + self.worker_timeout
        with contextlib.closing(watch):
            while (able := probe_folder(self.client, directory)) is None and time.monotonic() < deadline:
                watch.check()
                time.sleep(POLL_SECONDS)
            if able is None and watch.is_silent:
                raise ClusterLost(
                    f"{directory}: no worker has said in {format_seconds(self.worker_timeout)} whether it can write "
                    f"there ({watch.table()}); running the same command again resumes"
                )
        return bool(able)  # workers may forbid to be asked

    def trim(self) -> None:
        """Let this process, and workers that it started, give back to the system what they have freed."""
        trim()
        if self.nannies:
            ask_workers(self.client, trim)

    def peak_nbytes(self) -> int | None:
        """Return the largest resident memory that one of the workers ever had; None where they do not answer."""
        return max(ask_workers(self.client, peak_nbytes), default=None)

    def run(self, plan: Plan[T]) -> Result[T]:
        """Run a pass; whatever ends it, none of its tasks is left on the cluster."""
        reports = plan.stage, plan.stall_timeout, plan.progress
        limits = self.worker_timeout, self.worker_ttl, self.nannies
        with self._connected(plan), contextlib.closing(ClusterWatch(self.client, *reports, *limits)) as watch:
            return ClusterPass(self.client, plan, watch, self.n_slots).run()

    def hold(self, panels: Iterator[SketchPanel], edges: Sequence[int]) -> Panels:
        """Return panels on the workers, evenly, to which they are sent one after the other."""
        limits = Plan.stall_timeout, Progress(), self.worker_timeout, self.worker_ttl, self.nannies
        with self._connected():
            workers = sorted(self.client.scheduler_info(n_workers=-1)["workers"])
            futures = []
            for j, panel in enumerate(panels):
                try:
                    worker = workers[j * len(workers) // (len(edges) - 1)]
                    sent = self.client.scatter(panel, workers=[worker], hash=False)
                except (LookupError, OSError) as error:  # a scheduler that does not know the worker has a KeyError
                    raise ClusterLost(
                        f"{self._address}: workers went away while the panels of a sketch were sent to them; run the "
                        "same command again"
                    ) from error
                # In memory of its own, aligned as where it was made.
                future = self.client.submit(
                    canonical_record, sent, workers=[worker], allow_other_workers=True, pure=False
                )
                futures.append(future)
            return RemotePanels(
                self.client, futures, edges, _same, lambda stage: ClusterWatch(self.client, stage, *limits)
            )

    def persist_blocks(self, plan: Plan[Any]) -> dict[tuple[int, int], Any]:
        """Return futures of the prepared blocks of a pass, by their rows; see `persist_blocks`."""
        with self._connected(plan):
            return persist_blocks(self.client, plan)

    @contextlib.contextmanager
    def _connected(self, plan: Plan[Any] | None = None) -> Iterator[None]:
        """Check the cluster, and turn a connection that breaks inside into `ClusterLost`."""
        from distributed.comm import CommClosedError

        try:
            if self.client.status != "running":
                raise self._lost()
            self._await_workers(self._progress if plan is None else plan.progress)
            while plan is not None and self._notes:
                plan.progress.note(self._notes.pop(0))
            yield
        except CommClosedError as error:
            raise self._lost() from error

    def _lost(self) -> ClusterLost:
        return ClusterLost(
            f"{self._address}: {why_lost(self.client)}; running the same command again resumes from the checkpoints"
        )
