"""The merge tree of a pass, over partition indices: fixed by their number and the size of a state alone.

Who computes a node, and when, is up to Dask; in which order its children are merged is decided here. That is why every
engine, any number of workers and any resumed run give the same bits.

Tasks of the user's Dask arrays inside the graph of a pass, and the partition that one of them belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from dask.core import get_dependencies
from dask.task_spec import Task

V = TypeVar("V")

FAN_IN = 8
"""Children of a node."""

BIG_STATE_FAN_IN = 2
"""Children of a node where a state is so big that eight of them should not wait in one worker."""

BIG_STATE_NBYTES = 64 * 2**20

CHAIN_RATIO = 8
"""A leaf reads at least this many times its state's bytes."""


class Node(NamedTuple):
    """A node: level 0 are the leaves; (level, i) stands above those from ``i * fan_in`` on of the level below."""

    level: int
    place: int


@dataclass(frozen=True)
class MergeTree:
    """A fixed tree over `n_partitions` partitions.

    Node (level, i) covers partitions ``i * w`` to ``min((i + 1) * w, n_partitions)``, ``w = chain * fan_in**level``:
    appending partitions leaves the nodes that were full as they were. A node with one child is that child.

    Examples
    --------
    >>> tree = MergeTree(n_partitions=10, chain=1, fan_in=8)
    >>> tree.root, tree.children(tree.root)[-1], tree.partitions(Node(1, 1))
    (Node(level=2, place=0), Node(level=1, place=1), range(8, 10))
    """

    n_partitions: int  # At least one
    chain: int = 1  # Consecutive partitions that one leaf folds in order
    fan_in: int = FAN_IN  # Children per node

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return -(-self.n_partitions // self.chain)

    @property
    def depth(self) -> int:
        """Levels above the leaves."""
        depth, count = 0, self.n_leaves
        while count > 1:
            depth, count = depth + 1, -(-count // self.fan_in)
        return depth

    @property
    def most_waiting(self) -> int:
        """Most nodes that wait for siblings at one time, in post-order: on each level those of a family but one."""
        waiting, count = 0, self.n_leaves
        while count > 1:
            waiting, count = waiting + min(self.fan_in, count) - 1, -(-count // self.fan_in)
        return waiting

    @property
    def root(self) -> Node:
        """The node that covers everything."""
        return Node(self.depth, 0)

    def partitions(self, node: Node) -> range:
        """Return the partitions below a node."""
        width = self.chain * self.fan_in**node.level
        return range(node.place * width, min((node.place + 1) * width, self.n_partitions))

    def children(self, node: Node) -> list[Node]:
        """Return a node's children in merge order; none for a leaf. One that has a single child is replaced by it."""
        if node.level == 0:
            return []
        count = -(-self.n_leaves // self.fan_in ** (node.level - 1))
        first = node.place * self.fan_in
        return [self._shortened(Node(node.level - 1, i)) for i in range(first, min(first + self.fan_in, count))]

    def _shortened(self, node: Node) -> Node:
        level, place = node
        while level and place * self.fan_in + 1 >= -(-self.n_leaves // self.fan_in ** (level - 1)):
            level, place = level - 1, place * self.fan_in
        return Node(level, place)

    def post_order(self, root: Node | None = None, skip: Container[Node] = frozenset()) -> Iterator[Node]:
        """Yield the nodes of a subtree, children before parents and left before right; none in or below `skip`."""
        stack = [(self.root if root is None else root, False)]
        while stack:
            node, ready = stack.pop()
            if node in skip:
                continue
            below = self.children(node)
            if ready or not below:
                yield node
            else:
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(below))

    def topmost(self, find: Callable[[Node], V | None], top: Node | None = None) -> dict[Node, V]:
        """Return what `find` gives for the topmost nodes of a subtree where it is not None."""
        values, stack = {}, [self.root if top is None else top]
        while stack:
            node = stack.pop()
            value = find(node)
            if value is None:
                stack.extend(self.children(node))
            else:
                values[node] = value
        return values

    def subtrees(self, most_leaves: int) -> list[Node]:
        """Return the roots of the largest full subtrees of at most `most_leaves` leaves, from left to right.

        Examples
        --------
        >>> MergeTree(100, fan_in=8).subtrees(most_leaves=20)[-2:]
        [Node(level=1, place=11), Node(level=1, place=12)]
        """
        level = 0
        while self.fan_in ** (level + 1) <= most_leaves and level < self.depth:
            level += 1
        return [self._shortened(Node(level, i)) for i in range(-(-self.n_leaves // self.fan_in**level))]


@lru_cache(maxsize=4)
def families(tree: MergeTree) -> tuple[list[Node], dict[Node, list[Node]], dict[Node, Node]]:
    """Return all nodes, children before parents, the children of each, and the parent of each but the root.

    They are shared by all that ask for the same tree, and must not be changed.
    """
    nodes = list(tree.post_order())
    below = {node: tree.children(node) for node in nodes}
    return nodes, below, {child: node for node in nodes for child in below[node]}


def make_tree(n_partitions: int, partition_nbytes: int, state_nbytes: int = 0) -> MergeTree:
    """Return the tree: a pure function of the partitions' number and size and of the bytes of a state.

    Of a partition, its rows x columns x 8 bytes count. A leaf takes as many partitions as make it read at
    least `CHAIN_RATIO` times the bytes of the state that it leaves behind.
    """
    chain = max(1, -(-CHAIN_RATIO * state_nbytes // max(partition_nbytes, 1)))
    fan_in = FAN_IN if state_nbytes <= BIG_STATE_NBYTES else BIG_STATE_FAN_IN
    return MergeTree(n_partitions, chain, fan_in)


def partition_of(failed: Any, graph: Mapping[Any, Any], keys: Sequence[Sequence[Any]]) -> int | None:
    """Return the first partition whose rows depend on a task; None if none does."""
    for partition, pieces in enumerate(zip(*keys, strict=True)):
        waiting, seen = [*pieces], set()
        while waiting:
            key = waiting.pop()
            if key == failed:
                return partition
            if key not in seen and key in graph:
                seen.add(key)
                waiting += get_dependencies(graph, key)
    return None


class UserTaskFailed(Exception):
    """An error in a task of the user's graph: the key of the task, and the error as the cause."""


def naming_failures(graph: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a graph whose tasks raise `UserTaskFailed`; local schedulers do not say which task has failed."""
    return {
        key: Task(key, partial(_named, key, task.func), *task.args, **task.kwargs) if type(task) is Task else task
        for key, task in graph.items()
    }


def _named(key: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise UserTaskFailed(key) from error
