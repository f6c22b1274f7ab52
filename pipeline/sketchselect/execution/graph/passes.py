"""A pass as a Dask graph: ``{("summarize-3f2a", 0, 17): read and summarise, ("merge-3f2a", 1, 4): merge, ...}``.

A pure function of partitions, tree, leaf, merge and what a checkpoint holds; any Dask scheduler computes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from uuid import uuid4

import numpy as np
from dask.task_spec import List, Task, TaskRef

from sketchselect._progress import Progress
from sketchselect.execution.cached import CachedSource
from sketchselect.execution.graph.tasks import PassSpec, SavedName, Span, place_in_words, run_leaf, run_merge
from sketchselect.execution.graph.tree import MergeTree, Node
from sketchselect.execution.projection import Projection
from sketchselect.execution.source import Block, Rows, Source
from sketchselect.readers.base import Matrix, Partitions
from sketchselect.readers.vector import Vector
from sketchselect.readers.views import MatrixMetadata

T = TypeVar("T")

Graph = dict[Any, Any]

Ready = Mapping[Node, Any]
"""Nodes that need not be computed: a `Part`, a future of one, or a task that loads one."""


@dataclass(frozen=True)
class Reduction(Generic[T]):
    """What a pass computes of a source: the states of its blocks, merged.

    Parameters
    ----------
    leaf : callable, Block -> state
        Pure and picklable; also of no rows.
    merge : callable, (state, state) -> state
        The state of the rows of both, left ones first; pure and picklable.
    stage : str
        The name in progress, messages and keys.
    state_nbytes, working_nbytes : int
        Bounds of a state's bytes, and of what leaf and merge need beside it: they shape the tree and the projection.
    caller_nbytes : int
        What the caller has in this process meanwhile.
    key : str or None
        What tells leaf and merge, with their parameters, from all others; a pass without it is not saved.
    """

    leaf: Callable[[Block], T]
    merge: Callable[[T, T], T]
    stage: str = "pass"
    state_nbytes: int = 0
    working_nbytes: int = 0
    caller_nbytes: int = 0
    key: str | None = None


@dataclass(frozen=True)
class Inputs:
    """What leaves depend on: the source as tasks know it, and an argument for each partition that is read elsewhere.

    The argument is the third one of `run_leaf`: an object, or a node that refers to tasks of `graph`. `sends` says
    whether arguments hold rows of this process's memory.
    """

    source: Source
    argument: Callable[[Span], Any] | None = None
    graph: Graph = field(default_factory=dict)
    sends: bool = False

    def complete(self, graph: Graph) -> Graph:
        """Return a graph with those tasks of the inputs that it needs."""
        from dask.optimization import cull

        return cull({**self.graph, **graph}, list(graph))[0] if self.graph else graph


@dataclass(frozen=True)
class Pass(Generic[T]):
    """One pass over a source, ready for any engine, which adds the report to what tasks share.

    The part of the tree's root is the result. `name` gives the names of nodes in a checkpoint, where there is one.
    """

    spec: PassSpec[T]
    tree: MergeTree
    partitions: Partitions
    progress: Progress
    projected: Projection
    ready: Ready = field(default_factory=dict)
    name: Callable[[Node], SavedName] | None = None
    stage: str = "pass"
    stall_timeout: float = 300.0
    token: str = field(default_factory=lambda: uuid4().hex)

    @property
    def spec_key(self) -> str:
        """The key of what all tasks share."""
        return f"spec-{self.token}"

    def key(self, node: Node) -> tuple[str, int, int]:
        """Return the key of a node: stage, level and place, so that dashboards and errors can say which it is."""
        name = "merge" if node.level else re.sub(r"\W+", "-", self.stage)
        return (f"{name}-{self.token}", *node)

    def cuts(self, most_leaves: int) -> list[Node]:
        """Return the nodes to be computed one graph after the other, the last of them the root."""
        if self.tree.n_leaves <= most_leaves:
            return [self.tree.root]
        missing = set(self.tree.post_order(skip=self.ready))
        return [*(node for node in self.tree.subtrees(most_leaves) if node in missing), self.tree.root]

    def span(self, partition: int) -> Span:
        """Return a partition."""
        start, stop = self.partitions[partition]
        return Span(partition, start, stop, self.spec.source.matrix.stored_nbytes(start, stop))

    def rows(self, node: Node) -> tuple[int, int]:
        """Return the rows below a node."""
        below = self.tree.partitions(node)
        return self.partitions.edges[below.start], self.partitions.edges[below.stop]

    def where(self, node: Node) -> str:
        """Return a node in words."""
        below = self.tree.partitions(node)
        what = f"partition {below.start}" if len(below) == 1 else f"partitions {below.start} to {below.stop - 1}"
        return place_in_words(self.spec.source, f"merging {what}" if node.level else what, *self.rows(node))

    def node_of(self, key: Any) -> Node | None:
        """Return the node that has a key; None for keys of other tasks."""
        if isinstance(key, tuple) and len(key) == 3 and str(key[0]).endswith(self.token):
            level, place = int(key[1]), int(key[2])
            return Node(level, place) if level >= 0 else Node(0, place // self.tree.chain)
        return None

    def graph(self, output: Node, inputs: Inputs, ready: Ready) -> Graph:
        """Return the tasks of a node and of all below it that is not ready; `spec_key` is not among them."""
        tasks: Graph = {}
        done = set(ready)
        for node in self.tree.post_order(output, skip=done):
            self.add_node(tasks, node, inputs, ready)
            done.add(node)
        if output in ready:
            tasks[self.key(output)] = Task(self.key(output), copy, ready[output])
        return tasks

    def add_node(self, tasks: Graph, node: Node, inputs: Inputs, ready: Ready) -> None:
        """Add the tasks of one node."""
        key, spec, name = self.key(node), TaskRef(self.spec_key), None if self.name is None else self.name(node)
        children = self.tree.children(node)
        if children:
            parts = List(*(ready[child] if child in ready else TaskRef(self.key(child)) for child in children))
            tasks[key] = Task(key, run_merge, spec, parts, self.rows(node), name)
            return
        spans = [self.span(i) for i in self.tree.partitions(node)]
        if inputs.argument is None:
            tasks[key] = Task(key, run_leaf, spec, spans, None, None, name)
            return
        # One task a partition, so that no more than one of them has to be in memory.
        before = None
        for span in spans:
            last = span is spans[-1]
            fold = key if last else (f"fold-{self.token}", -1, span.partition)
            tasks[fold] = Task(fold, run_leaf, spec, [span], inputs.argument(span), before, name if last else None)
            before = TaskRef(fold)


def pass_inputs(source: Source, partitions: Partitions, *, remote: bool) -> Inputs:
    """Return what the leaves of a pass over these partitions depend on.

    With `remote`, tasks may run in other processes, and rows in this process's memory travel inside the graph.
    """
    if isinstance(source, CachedSource):
        blocks = source.blocks
        return Inputs(Source(MatrixMetadata(source.matrix)), lambda span: blocks[span.start, span.stop])
    graph: Graph = {}
    parts = (source.matrix, source.target, source.weight)
    columns = [None if part is None else _column(part, partitions, graph, remote) for part in parts]
    if columns == [None, None, None]:
        return Inputs(source)
    values, target, weight = columns
    sent = replace(
        source,
        matrix=source.matrix if values is None else MatrixMetadata(source.matrix),
        target=source.target if target is None else None,
        weight=source.weight if weight is None else None,
    )

    def argument(span: Span) -> Any:
        return Task(None, Rows, *(None if column is None else column(span) for column in columns))

    return Inputs(sent, argument, graph, remote and any(part is not None and part.in_memory for part in parts))


def _column(part: Matrix | Vector, partitions: Partitions, graph: Graph, remote: bool) -> Callable[[Span], Any] | None:
    """Return what gives the rows of a partition, of one of matrix, target and weight; None where tasks read it."""
    dask, read = part.dask_rows(), part.read if isinstance(part, Vector) else part.read_rows
    if dask is not None:
        tasks, keys = partition_graph(dask, partitions.edges)
        graph.update(tasks)
        return lambda span: TaskRef(keys[span.partition])
    return (lambda span: read(span.start, span.stop)) if remote and part.in_memory else None


def partition_graph(array: Any, edges: Iterable[int]) -> tuple[Graph, list[Any]]:
    """Return the optimised graph of a Dask array cut along its rows, and the key of each piece."""
    import dask

    cuts = tuple(edges)
    sizes = tuple(int(n) for n in np.diff(cuts))
    columns = dict.fromkeys(range(1, len(array.shape)), -1)
    pieces = array[cuts[0] : cuts[-1]].rechunk({0: sizes, **columns})
    (pieces,) = dask.optimize(pieces)
    keys = pieces.__dask_keys__()
    return dict(pieces.__dask_graph__()), [row[0] if isinstance(row, list) else row for row in keys]


def futures_client(array: Any) -> Any | None:
    """Return the client of the futures in the graph of a Dask array; None where there is none."""
    if array is None or "distributed" not in sys.modules:
        return None
    from distributed import futures_of

    return next((future.client for future in futures_of(array)), None)
