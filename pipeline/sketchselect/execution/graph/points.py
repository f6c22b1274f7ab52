"""The second pass of a scan: every point's rows from a few nodes, and what is wanted of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from sketchselect.execution.checkpoints.files import read_node
from sketchselect.execution.graph.tree import Node, Plan
from sketchselect.execution.source import Block
from sketchselect.execution.summarize import merge_summaries
from sketchselect.linalg.arrays import Array
from sketchselect.readers.base import Matrix

T = TypeVar("T")

BEGUN = 16
"""States that branches began with which are kept in memory: those of the last branches on two levels of the tree."""


def cover(plan: Plan, start: int, stop: int) -> list[Node]:
    """Return the fewest full nodes that partitions `start` to `stop` are made of, in order: O(log n) of them.

    Examples
    --------
    >>> cover(Plan(100, fan_in=8), 6, 81)[:4]
    [Node(level=0, place=6), Node(level=0, place=7), Node(level=1, place=1), Node(level=1, place=2)]
    """
    nodes = []
    while start < stop:
        level, width = 0, 1
        while start % (width * plan.fan_in) == 0 and start + width * plan.fan_in <= stop:
            level, width = level + 1, width * plan.fan_in
        nodes.append(Node(level, start // width))
        start += width
    return nodes


@dataclass(frozen=True)
class Branch(Generic[T]):
    """The points below one node of the level above the leaves: a task.

    Parameters
    ----------
    nodes : list of lists
        What each point's rows are made of, in order: nodes, or the paths of their files.
    onward : bool
        Whether each point goes on from the one before, and its nodes are only what comes on top.
    """

    nodes: list[list[T]]
    onward: bool


def branches_of(plan: Plan, spans: Sequence[tuple[int, int]], onward: bool) -> list[Branch[Node]]:
    """Return the branches of points, each given as its partitions ``(first, stop)``: prefixes, with `onward`."""
    groups: dict[int, list[tuple[int, int]]] = {}
    for first, stop in spans:
        groups.setdefault((stop - 1) // plan.fan_in, []).append((first, stop))
    found = []
    for group in groups.values():
        firsts = [first for first, _ in group]
        if onward:
            firsts[1:] = [stop for _, stop in group[:-1]]
        nodes = [cover(plan, first, stop) for first, (_, stop) in zip(firsts, group, strict=True)]
        found.append(Branch(nodes, onward))
    return found


class BranchMatrix(Matrix):
    """Branches as a matrix of their indices, so that any engine can hand them out."""

    def __init__(self, n_branches: int, address: str) -> None:
        self.shape, self.dtype, self.address = (n_branches, 1), np.dtype(np.int64), address
        self.axes = ("branch", "column")

    def read_rows(self, start: int, stop: int) -> Array:
        """Return indices of branches."""
        return np.arange(start, stop, dtype=np.int64)[:, None]

    def identity(self, start: int, stop: int) -> str | None:
        """Return None: there is nothing to keep."""
        return None


class Begun:
    """States that branches began with: the next ones begin with the same nodes, and some more."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, ...], Any] = {}
        self._lock = threading.Lock()

    def longest(self, nodes: Sequence[str]) -> tuple[int, Any]:
        """Return how many of the first nodes have been merged, and their state; 0 and None where none have."""
        with self._lock:
            for n in range(len(nodes), 1, -1):
                state = self._states.get(tuple(nodes[:n]))
                if state is not None:
                    return n, state
        return 0, None

    def keep(self, nodes: Sequence[str], state: Any) -> None:
        """Keep a state, and let go of the oldest where there are `BEGUN` of them."""
        with self._lock:
            self._states[tuple(nodes)] = state
            while len(self._states) > BEGUN:
                del self._states[next(iter(self._states))]


@dataclass(frozen=True)
class LookAt(Generic[T]):
    """Leaf of the second pass: what is wanted at every point of some branches.

    Parameters
    ----------
    branches : list of Branch
        With the paths of files, or the names of states.
    finish : callable
        Summary -> what is wanted of it.
    read : callable
        Path or name -> state.
    begun : Begun or None
        What other branches began with, where they are looked at in the same process.
    """

    branches: list[Branch[str]]
    finish: Callable[[Any], T]
    read: Callable[[str], Any] = read_node
    begun: Begun | None = None

    def __call__(self, block: Block) -> list[T]:
        """Return the values at the points of the branches whose indices the block holds."""
        return [value for i in block.values[:, 0] for value in self._branch(self.branches[int(i)])]

    def _branch(self, branch: Branch[str]) -> list[T]:
        found, state = [], None
        for paths in branch.nodes:
            if not branch.onward or state is None:
                state = self._begin(paths) if branch.onward and self.begun is not None else self._fold(None, paths)
            else:
                state = self._fold(state, paths)
            found.append(self.finish(state))
        return found

    def _fold(self, state: Any, paths: Sequence[str]) -> Any:
        for path in paths:
            value = self.read(path)
            state = value if state is None else merge_summaries(state, value)
        return state

    def _begin(self, paths: list[str]) -> Any:
        """Return the state of a first point; the same merges, of which other branches may have done the first."""
        assert self.begun is not None
        n, state = self.begun.longest(paths)
        for i in range(n, len(paths)):
            state = self._fold(state, paths[i : i + 1])
            if 0 < i < len(paths) - 1:
                self.begun.keep(paths[: i + 1], state)
        return state


def join(left: list[T], right: list[T]) -> list[T]:
    """Return the values of the points of both."""
    return left + right
