"""What an engine is, the work it is given, and the serial engine that defines the right answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from sketchselect.execution.graph.tasks import Part, Recipe, SaveOrder, run_leaf, run_merge
from sketchselect.execution.graph.tree import Node, Plan
from sketchselect.execution.progress import Progress
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.readers.base import Partitions

if TYPE_CHECKING:
    from sketchselect.execution.memory.projection import Projection

T = TypeVar("T")


def never_saved(node: Node) -> SaveOrder | None:
    """Return no order: the pass keeps no checkpoints."""
    return None


@dataclass(frozen=True)
class Work(Generic[T]):
    """One pass, ready for any engine.

    Parameters
    ----------
    plan : Plan
        The tree.
    bands : Partitions
        The rows of each partition.
    recipe : Recipe
        What a task does.
    done : mapping of Node to Part
        Nodes that a checkpoint already holds.
    order : callable
        Node -> where to keep it, or None.
    progress : Progress
        Told of every partition done.
    stage : str
        Name of the pass.
    stall_timeout : float
        Seconds without any partition done after which the pass is given up (engines with other processes).
    projected : Projection, optional
        What a process will need at most; engines that run tasks have been checked against it.
    """

    plan: Plan
    partitions: Partitions
    recipe: Recipe[T]
    progress: Progress
    done: Mapping[Node, Part[T]] = field(default_factory=dict)
    order: Callable[[Node], SaveOrder | None] = never_saved
    stage: str = "pass"
    stall_timeout: float = 300.0
    projected: Projection | None = None

    def rows(self, node: Node) -> tuple[int, int]:
        """Return the rows below a node."""
        below = self.plan.partitions(node)
        return self.partitions.edges[below.start], self.partitions.edges[below.stop]

    def spans(self, node: Node) -> list[tuple[int, int]]:
        """Return the rows of each partition below a node."""
        return [self.partitions[i] for i in self.plan.partitions(node)]

    def run_leaf(self, node: Node, tick: Callable[[int], None]) -> Part[T]:
        """Compute a leaf here."""
        return run_leaf(self.recipe, self.plan.partitions(node).start, self.spans(node), self.order(node), tick)

    def run_merge(self, node: Node, parts: list[Part[T]]) -> Part[T]:
        """Compute an inner node here."""
        return run_merge(self.recipe, parts, self.rows(node), self.order(node))


@dataclass(frozen=True)
class Ran(Generic[T]):
    """What an engine hands back: the root, and what it cost."""

    root: Part[T]
    n_tasks: int
    worker_deaths: int = 0


class Engine(Protocol):
    """Runs the tasks of a pass. All engines give the same bits."""

    kind: str
    n_slots: int
    """Tasks at a time."""
    slots_per_process: int
    """Tasks at a time in one process, which share its memory."""
    memory_limit: int | None
    """Bytes per process, where a limit is known."""

    def describe(self) -> dict[str, Any]:
        """Return kind, workers and settings in effect, for the manifest."""

    def run(self, work: Work[T]) -> Ran[T]:
        """Run a pass."""

    def can_write(self, directory: str) -> bool:
        """Return whether the processes that run tasks can write files there that this process can read."""

    def build(self) -> tuple[str, ...]:
        """Return what, beside our own version, decides the bits: library versions, BLAS builds and CPU kernels."""


class SerialEngine:
    """The reference: one task after the other, in this thread."""

    kind = "serial"
    n_slots = 1
    slots_per_process = 1
    memory_limit: int | None = None

    def describe(self) -> dict[str, Any]:
        """Return kind and number of workers."""
        return {"kind": self.kind, "n_workers": 1}

    def can_write(self, directory: str) -> bool:
        """Return True: it is this process."""
        return True

    def build(self) -> tuple[str, ...]:
        """Return this process's build."""
        from sketchselect.execution.checkpoints.fingerprint import local_build

        return local_build()

    def run(self, work: Work[T]) -> Ran[T]:
        """Compute the tree depth first."""
        parts = dict(work.done)
        n_tasks = 0
        with one_blas_thread():
            for node in work.plan.post_order(skip=work.done):
                below = [parts.pop(child) for child in work.plan.children(node)]
                parts[node] = work.run_merge(node, below) if below else work.run_leaf(node, work.progress.advance)
                n_tasks += 1
        return Ran(parts[work.plan.root], n_tasks)
