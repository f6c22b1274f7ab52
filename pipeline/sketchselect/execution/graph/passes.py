"""A pass as a Dask graph: ``{("summarize-3f2a", 0, 17): read and summarise, ("merge-3f2a", 1, 4): merge, ...}``.

A pure function of partitions, tree, leaf, merge and what a checkpoint holds; any Dask scheduler computes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from uuid import uuid4

from dask.task_spec import List, Task, TaskRef

from sketchselect._progress import Progress
from sketchselect.errors import PartitionFailed
from sketchselect.execution.cached import CachedSource
from sketchselect.execution.graph.arrays import partition_of
from sketchselect.execution.graph.tasks import Part, PassSpec, SavedName, Span, place_in_words, run_leaf, run_merge
from sketchselect.execution.graph.tree import MergeTree, Node
from sketchselect.execution.projection import Projection
from sketchselect.execution.source import Block, Rows, Source
from sketchselect.readers.arrays.dask import cut_arrays
from sketchselect.readers.base import Partitions
from sketchselect.readers.vector import Vector
from sketchselect.readers.views import MatrixMetadata

T = TypeVar("T")

Graph = dict[Any, Any]

Ready = Mapping[Node, Any]
"""Nodes that need not be computed: a `Part`, a future of one, or a task that loads one."""


@dataclass(frozen=True)
class Reduction(Generic[T]):
    """What a pass computes of a source: the states of its blocks, merged."""

    leaf: Callable[[Block], T]  # Pure and picklable; also of no rows
    merge: Callable[[T, T], T]  # The state of the rows of both, left ones first; pure and picklable
    stage: str = "pass"  # The name in progress, messages and keys
    # state_nbytes, working_nbytes: Bounds of a state's bytes, and of what leaf and merge need beside it: they shape the
    # tree and the projection
    state_nbytes: int = 0
    working_nbytes: int = 0
    caller_nbytes: int = 0  # What the caller has in this process meanwhile
    # What tells leaf and merge, with their parameters, from all others; a pass without it is not saved
    key: str | None = None
    fold: Callable[[T, T], T] | None = None  # As `merge`; may use up its first state
    in_panels: Any = None  # The `FrequentDirections` that is computed in panels of columns, in place of leaf and merge


def taken(items: list[T]) -> Iterator[T]:
    """Yield the items of a list, which forgets each of them: they may be most of the memory there is."""
    while items:
        yield items.pop(0)


@dataclass(frozen=True)
class Inputs:
    """What leaves depend on: the source as tasks know it, and an argument for each partition that is read elsewhere.

    The argument is the third one of `run_leaf`: an object, or a node that refers to tasks of `graph`, by `keys` of each
    array for each partition. `sends` says whether arguments hold rows of this process's memory.
    """

    source: Source
    argument: Callable[[Span], Any] | None = None
    graph: Graph = field(default_factory=dict)
    keys: list[list[Any]] = field(default_factory=list)
    sends: bool = False

    def culled(self, graph: Graph) -> Graph:
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
    join: Callable[[Part[Any], Iterable[Any]], Part[T]] | None = None  # Of a part and the pieces sent beside it

    @property
    def leaf_tasks(self) -> int:
        """Tasks that may work on one leaf at a time."""
        return 1

    @property
    def step_rows(self) -> int:
        """Rows that cost as much as fewer ones."""
        return 1

    @property
    def spec_key(self) -> str:
        """The key of what all tasks share."""
        return f"spec-{self.token}"

    def key(self, node: Node) -> tuple[str, int, int]:
        """Return the key of a node: stage, level and place, so that dashboards and errors can say which it is."""
        name = "merge" if node.level else re.sub(r"\W+", "-", self.stage)
        return (f"{name}-{self.token}", *node)

    def keys(self, node: Node) -> list[Any]:
        """Return the keys of what a node sends to the caller; the last one is that of its part."""
        return [self.key(node)]

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

    def user_error(self, failed: Any, inputs: Inputs, error: BaseException) -> PartitionFailed:
        """Return the error for a task of the user's graph, by its key: which partition needs it, and no value."""
        partition = partition_of(failed, inputs.graph, inputs.keys)
        if partition is None:
            where = place_in_words(self.spec.source, "some partition", *self.rows(self.tree.root))
        else:
            start, stop = self.partitions[partition]
            where = place_in_words(self.spec.source, f"partition {partition}", start, stop)
        kind = type(error).__name__
        return PartitionFailed(f"{where}: an error in the graph of a Dask array ({kind}); compute these rows to see it")

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
    parts = (source.matrix, source.target, source.weight)
    arrays = [None if part is None else part.dask_rows() for part in parts]
    sent = [
        array is None and part is not None and remote and part.in_memory
        for part, array in zip(parts, arrays, strict=True)
    ]
    elsewhere = [array is not None or is_sent for array, is_sent in zip(arrays, sent, strict=True)]
    if not any(elsewhere):
        return Inputs(source)
    graph, keys = cut_arrays([array for array in arrays if array is not None], partitions.edges)
    places = iter(keys)
    keys_of = [None if array is None else next(places) for array in arrays]

    def rows(place: int, span: Span) -> Any:
        part, pieces = parts[place], keys_of[place]
        if pieces is not None:
            return TaskRef(pieces[span.partition])
        if not sent[place] or part is None:
            return None
        return (part.read if isinstance(part, Vector) else part.read_rows)(span.start, span.stop)

    remaining = replace(
        source,
        matrix=MatrixMetadata(source.matrix) if elsewhere[0] else source.matrix,
        target=None if elsewhere[1] else source.target,
        weight=None if elsewhere[2] else source.weight,
    )
    return Inputs(remaining, lambda span: Task(None, Rows, *(rows(i, span) for i in range(3))), graph, keys, any(sent))
