"""Points of a scan: prefixes and windows of the partitions as further outputs on the nodes of the merge tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dask.task_spec import List, Task, TaskRef

from sketchselect.execution.graph.inputs import Graph, Inputs
from sketchselect.execution.graph.passes import Pass, Ready, identity
from sketchselect.execution.graph.tasks import Part, sum_accounts
from sketchselect.execution.graph.tree import MergeTree, Node
from sketchselect.linalg.threads import one_blas_thread

T = TypeVar("T")


@dataclass(frozen=True)
class ScanPass(Pass[Any]):
    """A pass with the points of a scan as outputs: the values that `finish` gives of the summaries of their rows.

    A point is its partitions ``(first, stop)``; with `onward` points are prefixes, which go on from earlier ones.
    """

    points: tuple[tuple[int, int], ...] = ()
    finish: Callable[[Any], Any] = repr
    onward: bool = True

    @property
    def output(self) -> Node:
        """The node above the root: the values of all points, and the account."""
        return Node(self.tree.depth + 1, 0)

    def cuts(self, most_leaves: int) -> list[Node]:
        """Return the output alone: points refer to nodes in all of the tree."""
        return [self.output]

    def partitions_below(self, node: Node) -> range:
        """Return the partitions below a node; of the output, all of them."""
        return range(self.tree.n_partitions) if node == self.output else self.tree.partitions(node)

    @property
    def needed(self) -> set[Node]:
        """The nodes that points are made of."""
        return {node for first, stop in self.points for node in cover(self.tree, first, stop)}

    def graph(self, output: Node, inputs: Inputs, ready: Ready) -> Graph:
        """Return the tasks of all points, and of the nodes that they need."""
        if output != self.output:
            return super().graph(output, inputs, ready)
        tasks: Graph = {}
        done = set(ready)
        for top in sorted(self.needed - done):
            for node in self.tree.post_order(top, skip=done):
                self.add_node(tasks, node, inputs, ready)
                done.add(node)
        for node in ready:
            tasks[self.key(node)] = Task(self.key(node), identity, ready[node])
        values = self._values(tasks)
        account = Task(None, sum_accounts, List(*(TaskRef(self.key(node)) for node in self._topmost())))
        tasks[self.key(output)] = Task(self.key(output), _collected, List(*values), account)
        return tasks

    def _topmost(self) -> list[Node]:
        """Return the needed nodes that stand below no other needed node: together they cover every row once."""
        topmost, covered = [], 0
        for node in sorted(self.needed, key=lambda node: (self.tree.partitions(node).start, -node.level)):
            if self.tree.partitions(node).stop > covered:
                topmost.append(node)
                covered = self.tree.partitions(node).stop
        return topmost

    def below(self, node: Node) -> list[Node]:
        """Return the nodes that a node is made of; of the output, those that points are made of."""
        return sorted(self.needed) if node == self.output else super().below(node)

    def partitions_to_read(self) -> set[int]:
        """Return the partitions of all points."""
        return {partition for node in self.needed for partition in self.tree.partitions(node)}

    def _values(self, tasks: Graph) -> list[TaskRef]:
        """Add a task for the state, and one for the value, of every point."""
        values = []
        prefixes: dict[tuple[Node, ...], TaskRef] = {}
        for place, (first, stop) in enumerate(self.points):
            nodes = tuple(cover(self.tree, first, stop))
            shared = len(nodes) if self.onward else 0
            while shared and nodes[:shared] not in prefixes:
                shared -= 1
            state = prefixes.get(nodes[:shared])
            for n in range(shared, len(nodes)):
                part = TaskRef(self.key(nodes[n]))
                key = (f"prefix-{self.token}", place, n)
                tasks[key] = Task(key, _merged, self.spec.merge, part, state)
                state = TaskRef(key)
                if self.onward:
                    prefixes[nodes[: n + 1]] = state
            key = (f"point-{self.token}", place, 0)
            tasks[key] = Task(key, _point, self.finish, state)
            values.append(TaskRef(key))
        return values


def _merged(merge: Callable[[T, T], T], part: Part[T], before: T | None) -> T:
    with one_blas_thread():
        return part.value if before is None else merge(before, part.value)


def _point(finish: Callable[[Any], T], state: Any) -> T:
    with one_blas_thread():
        return finish(state)


def _collected(values: list[Any], account: Part[Any]) -> Part[list[Any]]:
    return replace(account, value=values)


def cover(tree: MergeTree, start: int, stop: int) -> list[Node]:
    """Return the fewest full nodes that partitions `start` to `stop` are made of, in order: O(log n) of them.

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
