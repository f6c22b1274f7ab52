"""Points of a scan: prefixes and windows of the partitions as further outputs on the nodes of the merge tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from dask.task_spec import List, Task, TaskRef

from sketchselect._progress import Result
from sketchselect.execution.plan import Graph, Plan
from sketchselect.execution.tasks import with_total
from sketchselect.execution.tree import MergeTree, Node
from sketchselect.linalg.threads import one_blas_thread

T = TypeVar("T")


@dataclass(frozen=True)
class ScanTree(MergeTree):
    """A merge tree whose root stands above the nodes that the points of a scan are made of.

    A point is its partitions ``(first, stop)``.
    """

    points: tuple[tuple[int, int], ...] = ()

    @property
    def root(self) -> Node:
        """The node of all points."""
        return Node(self.depth + 1, 0)

    @cached_property
    def needed(self) -> list[Node]:
        """The nodes that points are made of, from the leaves up."""
        return sorted({node for first, stop in self.points for node in cover(self, first, stop)})

    def children(self, node: Node) -> list[Node]:
        """Return a node's children; of the root, the nodes of all points."""
        return self.needed if node == self.root else super().children(node)


@dataclass(frozen=True)
class ScanPlan(Plan[Any]):
    """The plan of a pass whose value is the list of what `finish` returns for the summary of each point's rows.

    Points whose rows begin with the same nodes go on from the same state.
    """

    tree: ScanTree
    finish: Callable[[Any], Any] = repr

    def cuts(self, most_leaves: int) -> list[Node]:
        """Return the nodes that points are made of, in parts where they are large, if there are many leaves."""
        if self.tree.n_leaves <= most_leaves:
            return [self.tree.root]
        parts = set(self.tree.subtrees(most_leaves))
        level = max(node.level for node in parts)
        below = (node for needed in self.tree.needed for node in self.tree.post_order(needed, skip=self.ready))
        cuts = (node for node in below if node in parts or (node.level <= level and node in self.tree.needed))
        return [*dict.fromkeys(cuts), self.tree.root]

    def add_node(self, tasks: Graph, node: Node, ready: Mapping[Node, Any]) -> None:
        """Add the tasks of one node; above the needed ones, those of all points."""
        if node != self.tree.root:
            super().add_node(tasks, node, ready)
            return
        parts: dict[Node, Any] = {}
        for needed in self.tree.needed:
            key = self.key(needed)
            if needed in ready and hasattr(ready[needed], "release"):  # a future, which has this key itself
                parts[needed] = ready[needed]
                continue
            if needed in ready:
                tasks[key] = Task(key, copy, ready[needed])
            parts[needed] = TaskRef(key)
        values = self._values(tasks, parts)
        # Together they cover every row of the points once.
        topmost = self.tree.topmost(parts.get, Node(node.level - 1, 0))
        tasks[self.key(node)] = Task(self.key(node), with_total, List(*topmost.values()), List(*values))

    def _values(self, tasks: Graph, parts: Mapping[Node, Any]) -> list[TaskRef]:
        """Add a task for the state, and one for the value, of every point."""
        values = []
        prefixes: dict[tuple[Node, ...], TaskRef] = {}
        for i, (first, stop) in enumerate(self.tree.points):
            state: TaskRef | None = None
            prefix: tuple[Node, ...] = ()
            for node in cover(self.tree, first, stop):
                prefix = (*prefix, node)
                if prefix not in prefixes:
                    key = (f"prefix-{self.token}", i, len(prefix))
                    tasks[key] = Task(key, _merged, self.context.reduction.merge, parts[node], state)
                    prefixes[prefix] = TaskRef(key)
                state = prefixes[prefix]
            key = (f"point-{self.token}", i, 0)
            tasks[key] = Task(key, _point, self.finish, state)
            values.append(TaskRef(key))
        return values


def _merged(merge: Callable[[T, T], T], part: Result[T], before: T | None) -> T:
    with one_blas_thread():
        return part.value if before is None else merge(before, part.value)


def _point(finish: Callable[[Any], T], state: Any) -> T:
    with one_blas_thread():
        return finish(state)


def cover(tree: MergeTree, start: int, stop: int) -> list[Node]:
    """Return the fewest full nodes that cover partitions `start` to `stop`, in order: O(log n) nodes.

    Examples
    --------
    >>> cover(MergeTree(100, fan_in=8), 6, 81)[:4]
    [Node(level=0, place=6), Node(level=0, place=7), Node(level=1, place=1), Node(level=1, place=2)]
    """
    nodes = []
    while start < stop:
        level, width = 0, 1
        while start % (width * tree.fan_in) == 0 and start + width * tree.fan_in <= stop:
            level, width = level + 1, width * tree.fan_in
        nodes.append(Node(level, start // width))
        start += width
    return nodes
