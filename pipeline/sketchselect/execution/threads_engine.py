"""The engine inside this process: a pool of threads over the same tree, for kernels that release the lock."""

from __future__ import annotations

import os
import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from sketchselect.errors import BadParameter
from sketchselect.execution.checkpoints.fingerprint import local_build
from sketchselect.execution.engine import Ran, Work
from sketchselect.execution.graph.tasks import Part, Stopped
from sketchselect.execution.graph.tree import Node
from sketchselect.linalg.threads import one_blas_thread

T = TypeVar("T")


def available_cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ThreadEngine:
    """Runs tasks in threads of this process; BLAS is held to one thread meanwhile.

    Parameters
    ----------
    n_threads : int, optional
        Tasks at a time, each with one block in memory; one per core by default.
    memory_limit : int, optional
        Bytes that the projection of a pass may not exceed.
    """

    kind = "threads"

    def __init__(self, n_threads: int | None = None, *, memory_limit: int | None = None) -> None:
        if n_threads is not None and n_threads < 1:
            raise BadParameter(f"n_threads must be at least 1, got {n_threads}")
        self.n_slots = self.slots_per_process = n_threads or available_cores()
        self.memory_limit = memory_limit

    def describe(self) -> dict[str, Any]:
        """Return kind and number of threads."""
        return {
            "kind": self.kind,
            "n_workers": 1,
            "threads_per_worker": self.n_slots,
            "memory_limit": self.memory_limit,
        }

    def can_write(self, directory: str) -> bool:
        """Return True: it is this process."""
        return True

    def build(self) -> tuple[str, ...]:
        """Return this process's build."""
        return local_build()

    def run(self, work: Work[T]) -> Ran[T]:
        """Compute the tree: leaves in order, merges as soon as their children are there and before further leaves."""
        stop = threading.Event()

        def tick(nbytes: int) -> None:
            if stop.is_set():
                raise Stopped
            work.progress.advance(nbytes)

        with one_blas_thread():
            pool = ThreadPoolExecutor(self.n_slots, thread_name_prefix="sketchselect")
            try:
                return self._drive(work, pool, tick)
            finally:
                # Running tasks stop at their next partition; nobody should compute, or report, after this returns.
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)

    def _drive(self, work: Work[T], pool: ThreadPoolExecutor, tick: Any) -> Ran[T]:
        todo = list(work.plan.post_order(skip=work.done))
        parents = {child: node for node in todo for child in work.plan.children(node)}
        leaves = iter([node for node in todo if node.level == 0])
        parts: dict[Node, Part[T]] = dict(work.done)
        missing = {node: sum(c not in parts for c in work.plan.children(node)) for node in todo if node.level}
        # A node all of whose children came from checkpoints waits for nobody.
        ready = [node for node, count in missing.items() if count == 0]
        running: dict[Future[Part[T]], Node] = {}

        def start_one() -> bool:
            if ready:
                node = ready.pop()
                below = [parts.pop(child) for child in work.plan.children(node)]
                running[pool.submit(work.run_merge, node, below)] = node
                return True
            leaf = next(leaves, None)
            if leaf is not None:
                running[pool.submit(work.run_leaf, leaf, tick)] = leaf
            return leaf is not None

        while work.plan.root not in parts:
            # One more than there are threads, so that none waits for this loop.
            while len(running) <= self.n_slots and start_one():
                pass
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                node = running.pop(future)
                parts[node] = future.result()
                parent = parents.get(node)
                if parent is not None:
                    missing[parent] -= 1
                    if missing[parent] == 0:
                        ready.append(parent)
        return Ran(parts[work.plan.root], len(todo))
