"""One pass on a Dask cluster: hand out tasks a window at a time, follow them, hand out again what was lost."""

from __future__ import annotations

from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sketchselect.errors import ClusterLost, PartitionFailed, SketchSelectError
from sketchselect.execution import shipping
from sketchselect.execution.cached import WorkerSource
from sketchselect.execution.dask.watch import TOPIC, ClusterWatch
from sketchselect.execution.engine import Ran, Work
from sketchselect.execution.graph.tasks import Part
from sketchselect.execution.graph.tree import Node
from sketchselect.execution.memory.projection import SENT_AHEAD
from sketchselect.execution.sending import Sender

if TYPE_CHECKING:
    from sketchselect.execution.dask.engine import DaskEngine

T = TypeVar("T")

MAX_LOSSES = 20
"""How often one node may be lost with its worker before the pass is given up."""

POLL_SECONDS = 0.5


class DaskPass(Generic[T]):
    """The state of one pass; used once."""

    def __init__(self, engine: DaskEngine, work: Work[T], run_id: str) -> None:
        self.engine = engine
        self.client = engine.client
        self.work = work
        self.run_id = run_id
        self.events: SimpleQueue[tuple[str, Any, Any]] = SimpleQueue()
        self.futures: dict[Node, Any] = {}
        self.finished: set[Node] = set()
        self.parents: dict[Node, Node] = {}
        self.missing: dict[Node, int] = {}
        self.leaves: deque[Node] = deque()
        self.ready: list[Node] = []
        self.flying: set[Node] = set()
        self.n_leaves_flying = 0
        self.suspects: deque[Node] = deque()
        self.alone: Node | None = None
        self.losses: dict[Node, int] = {}
        self.counted: set[int] = set()
        self.n_tasks = 0
        self.watch = ClusterWatch(engine, work.stage, work.stall_timeout, self.events)
        self.sender = Sender(engine, work, self.watch)
        # Rows that wait on workers cost memory; addresses do not. Where blocks stay on workers each has its own, so a
        # few leaves at a time would keep only some of the workers busy, and the others would fetch their blocks.
        if isinstance(work.recipe.source, WorkerSource):
            self.window = len(work.partitions)
        else:
            self.window = engine.n_slots * (SENT_AHEAD if self.sender.carries else 16)

    # --- the loop ----------------------------------------------------------------------------------------------

    def run(self) -> Ran[T]:
        """Run it to the end."""
        import dask

        root = self.work.plan.root
        # What we send on purpose inside messages is bounded; the warning is meant for graphs that carry data.
        quiet = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TiB"})
        try:
            with quiet:
                self._need(root)
                while root not in self.finished:
                    self._hand_out()
                    self._follow()
                part = self._collect(root)
        finally:
            self.watch.close()
            self.sender.close()
            for future in self.futures.values():
                future.release()
        return Ran(part, self.n_tasks, self.watch.deaths)

    def _follow(self) -> None:
        self.watch.check()
        try:
            what, who, detail = self.events.get(timeout=POLL_SECONDS)
        except Empty:
            return
        if what == "task":
            # A callback of a future that has been replaced since says nothing.
            if who in self.flying and self.futures.get(who) is detail:
                self._landed(who)
                self._settle(who, detail)
        elif what == "partition":
            if who == self.run_id:
                self._count(detail)
                self.watch.progressed()
        elif what == "death":
            self.watch.deaths += 1
            self.work.progress.note(f"{self.work.stage}: a worker died; what it held is computed again")

    def _settle(self, node: Node, future: Any) -> None:
        alone, self.alone = self.alone, None
        if future.status == "finished":
            self.watch.progressed()
            self._finish(node)
        elif future.status == "error":
            self._failed(node, future.exception(), alone)
        else:
            self._lost(node)

    def _finish(self, node: Node) -> None:
        self.finished.add(node)
        if node.level == 0:
            # What its task did not report, or not yet.
            for partition in self.work.plan.partitions(node):
                self._count(partition)
        self.sender.release(node)
        for child in self.work.plan.children(node):
            self._forget(child)
        parent = self.parents.get(node)
        if parent is not None and parent in self.missing:
            self.missing[parent] -= 1
            if self.missing[parent] == 0:
                del self.missing[parent]
                self.ready.append(parent)

    def _count(self, partition: int) -> None:
        """Tell the progress of a partition, once however often it was computed."""
        if partition not in self.counted:
            self.counted.add(partition)
            start, stop = self.work.partitions[partition]
            matrix = self.work.recipe.source.matrix
            self.work.progress.advance((stop - start) * matrix.shape[1] * matrix.dtype.itemsize)

    # --- failures ----------------------------------------------------------------------------------------------

    def _failed(self, node: Node, error: BaseException, alone: Node | None) -> None:
        from distributed import CancelledError, KilledWorker

        if isinstance(error, SketchSelectError):
            raise error
        if isinstance(error, KilledWorker):
            # Dask blames every task that was waiting on the worker. Alone, it is this one or none.
            if node == alone:
                raise self.watch.crash(self._where(node), error)
            self._forget(node)
            self.suspects.append(node)
        elif isinstance(error, CancelledError):
            self._lost(node)
        else:
            what = f"{type(error).__name__}: {error}" if isinstance(error, ImportError) else type(error).__name__
            raise PartitionFailed(
                f"{self._where(node)}: the worker could not run the task ({what}); "
                "are all workers in the same environment as this process?"
            ) from error

    def _lost(self, node: Node) -> None:
        """A result, or the rows sent for it, went away with a worker."""
        self.watch.require_scheduler()
        self.losses[node] = self.losses.get(node, 0) + 1
        if self.losses[node] > MAX_LOSSES:
            raise ClusterLost(
                f"{self._where(node)}: lost {MAX_LOSSES} times with its worker; the cluster is not stable enough. "
                "Running the same command again resumes from the checkpoints"
            )
        self._again(node)

    def _again(self, node: Node) -> None:
        self._forget(node)
        # Children may have gone the same way: those not in memory any more are needed again too.
        for child in self.work.plan.children(node):
            future = self.futures.get(child)
            gone = future is not None and future.status not in ("finished", "pending")
            if child in self.work.done or gone:
                self._forget(child)
        self._need(node)

    def _where(self, node: Node) -> str:
        start, stop = self.work.rows(node)
        below = self.work.plan.partitions(node)
        matrix = self.work.recipe.source.matrix
        address, axis = matrix.address, matrix.axes[0]
        if node.level:
            return f"{address}: merging partitions {below.start} to {below.stop - 1} ({axis}s {start} to {stop - 1})"
        what = f"partition {below.start}" if len(below) == 1 else f"partitions {below.start} to {below.stop - 1}"
        return f"{address}: {what} ({axis}s {start} to {stop - 1})"

    # --- handing out -------------------------------------------------------------------------------------------

    def _need(self, node: Node) -> None:
        """Queue a node and all below it that is neither there nor on its way."""
        below = self.work.plan.children(node)
        if not below:
            self.leaves.append(node)
            return
        missing = [child for child in below if child not in self.finished and child not in self.work.done]
        for child in below:
            self.parents[child] = node
        if missing:
            self.missing[node] = len(missing)
            for child in missing:
                if child not in self.futures:
                    self._need(child)
        else:
            self.ready.append(node)

    def _hand_out(self) -> None:
        if self.alone is not None:
            return
        if self.suspects:
            if not self.flying:
                self.alone = self.suspects.popleft()
                self._need(self.alone)
                # Should its children be lost too, it waits for them like any other.
                if self.alone in self.missing:
                    self.alone = None
                elif self.alone.level:
                    self._start(self.ready.pop())
                else:
                    self._start(self.leaves.pop())
            return
        while self.ready:
            self._start(self.ready.pop())
        while self.leaves and self.n_leaves_flying < self.window:
            self._start(self.leaves.popleft())

    def _start(self, node: Node) -> None:
        order, recipe = self.sender.order(node), self.sender.recipe(self.run_id)
        if node.level:
            parts = [self._future_of(child) for child in self.work.plan.children(node)]
            self._submit(node, shipping.merge_task, recipe, parts, self.work.rows(node), order)
        else:
            parcel, values = self.sender.parcel(node)
            spans = self.work.spans(node)
            topic = (TOPIC, self.run_id) if len(spans) > 1 else None
            first = self.work.plan.partitions(node).start
            self._submit(node, shipping.leaf_task, recipe, first, spans, order, parcel, values, topic)
        self.flying.add(node)
        self.n_leaves_flying += node.level == 0

    def _landed(self, node: Node) -> None:
        self.flying.discard(node)
        self.n_leaves_flying -= node.level == 0

    def _submit(self, node: Node, task: Any, *args: Any) -> None:
        # The key holds the run and a count, so that no result of another run or attempt can be taken for this one.
        self.n_tasks += 1
        name = "sketchselect-merge" if node.level else "sketchselect-leaf"
        key = f"{name}-{self.run_id}-{node.level}-{node.place}-{self.n_tasks}"
        # Merges first: they free memory. Leaves in order.
        priority = 1 if node.level else 0
        future = self.client.submit(task, *args, key=key, pure=False, priority=priority)
        self.futures[node] = future
        future.add_done_callback(lambda done: self.events.put(("task", node, done)))

    def _future_of(self, node: Node) -> Any:
        if node not in self.futures:
            # From a checkpoint: sent when it is needed, and again should it be lost.
            self.futures[node] = self.sender.send(self.work.done[node])
        return self.futures[node]

    # --- futures -----------------------------------------------------------------------------------------------

    def _collect(self, root: Node) -> Part[T]:
        from distributed import CancelledError

        for _ in range(MAX_LOSSES):
            try:
                part: Part[T] = self.client.gather(self.futures[root], direct=self.engine.reaches_workers is True)
                return part
            except (CancelledError, OSError):
                self._lost(root)
                while root not in self.finished:
                    self._hand_out()
                    self._follow()
        raise ClusterLost(f"{self._where(root)}: the result could not be fetched; run again to resume")

    def _forget(self, node: Node) -> None:
        self.finished.discard(node)
        future = self.futures.pop(node, None)
        if future is not None:
            future.release()
        self.sender.release(node)
