"""All prefixes, or all windows, of a source in one graph: further outputs on the nodes of the merge tree.

Every point's rows are made of a few full nodes of the tree; what is computed of a point is all that comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
from dask.task_spec import List, Task, TaskRef

from sketchselect.errors import BadParameter, DamagedFile
from sketchselect.execution.graph.inputs import Graph, Inputs
from sketchselect.execution.graph.passes import Pass, Ready
from sketchselect.execution.graph.tasks import Part, PassSpec, load_part, sum_accounts
from sketchselect.execution.graph.tree import BIG_STATE_FAN_IN, BIG_STATE_NBYTES, FAN_IN, MergeTree, Node
from sketchselect.execution.memory.projection import projection, require_fit
from sketchselect.execution.options import PassOptions
from sketchselect.execution.run import (
    PassStats,
    node_index,
    pass_stats,
    require_rows,
    require_unchanged,
    run_pass,
    saves_on_workers,
    source_identities,
    source_partitions,
)
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import SummariseBlock, merge_summaries, source_for, summary_key
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.readers.base import Partitions
from sketchselect.readers.partitions import DEFAULT_PARTITION_BYTES
from sketchselect.summaries import Summary
from sketchselect.summaries.base import require_positive

T = TypeVar("T")

LEAST_POINTS = 16
"""Points of a scan that is asked for none, where the rows can be cut into that many partitions."""

_MOST_PARTITIONS = 1024


@dataclass(frozen=True)
class Scanned(Generic[T]):
    """The values of a scan, one for each point, the rows that each is of, and the account of the pass."""

    values: list[T]
    spans: list[tuple[int, int]]
    stats: PassStats


@dataclass(frozen=True)
class ScanPass(Pass[Any]):
    """A pass with the points of a scan as outputs: the values that `finish` gives of the summaries of their rows.

    A point is its partitions ``(first, stop)``; with `onward` points are prefixes, which go on from earlier ones.
    """

    points: tuple[tuple[int, int], ...] = ()
    finish: Callable[[Any], Any] = repr
    onward: bool = field(default=True)

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
            tasks[self.key(node)] = Task(self.key(node), _same, ready[node])
        values = self._values(tasks)
        account = Task(None, sum_accounts, List(*(TaskRef(self.key(node)) for node in self._topmost())))
        tasks[self.key(output)] = Task(self.key(output), _collected, List(*values), account)
        return tasks

    def _topmost(self) -> list[Node]:
        """Return the needed nodes that stand below no other needed node: together they cover every row once."""
        needed = self.needed
        topmost = []
        for node in needed:
            above = node
            while above.level <= self.tree.depth and (above == node or above not in needed):
                above = Node(above.level + 1, above.place // self.tree.fan_in)
            if above.level > self.tree.depth:
                topmost.append(node)
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
                tasks[key] = Task(key, _merged, part) if state is None else Task(key, _merged, part, state)
                state = TaskRef(key)
                if self.onward:
                    prefixes[nodes[: n + 1]] = state
            key = (f"point-{self.token}", place, 0)
            tasks[key] = Task(key, _point, self.finish, state)
            values.append(TaskRef(key))
        return values


def _merged(part: Part[Any], before: Any = None) -> Any:
    with one_blas_thread():
        return part.value if before is None else merge_summaries(before, part.value)


def _point(finish: Callable[[Any], T], state: Any) -> T:
    with one_blas_thread():
        return finish(state)


def _same(part: Part[Any]) -> Part[Any]:
    return part


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


def scan_source(
    source: Source,
    description: Summary[Any],
    finish: Callable[[Summary[Any]], T],
    options: PassOptions,
    *,
    points: int | None = None,
    window: int | None = None,
    stage: str = "scan",
) -> Scanned[T]:
    """Return ``finish(summary)`` of the rows up to the end of every partition, or of a window that ends there.

    Every summary is the merge, from left to right, of O(log n) nodes of the tree over partitions: the same bits on
    every engine. Exact summaries equal those of the rows read one after the other to rounding, sketches within their
    guarantee.

    The source has fitted prepare steps; `finish` is pure and picklable, its result small, and it may see the summary of
    no rows. `points` are that many partition ends, evenly spaced, the last among them, or all of them; a `window` is
    rounded up to whole partitions (at the beginning of the source there are fewer). With a checkpoint the states of all
    nodes are saved, whatever their size, so that a later scan reads only partitions that are new. By default partitions
    are small enough for the points and the window (`scan_partitions`).

    Raises
    ------
    BadParameter
        For points or a window that are not positive; where the workers cannot write in the checkpoint's folder.
    WillNotFit, EmptyInput, SourceChanged, PartitionFailed, SketchSelectError
        As in `reduce_blocks`.
    """
    began = time.perf_counter()
    work = scan_pass(source, description, finish, options, points=points, window=window, stage=stage)
    source = work.spec.source
    require_fit(work.projected, options.engine.memory_limit, source.matrix.address)
    before = source_identities(source)
    index = None
    if options.checkpoint is not None:
        # Whatever its size, a node that is not saved would have to be read again.
        everything = replace(options.checkpoint, min_bytes=0, state_ratio=0.0, min_seconds=0.0)
        index = node_index(work, options.but(checkpoint=everything), summary_key(description))
    if index is not None and options.checkpoint is not None:
        if not saves_on_workers(index, options):
            raise BadParameter(
                f"{options.checkpoint.directory}: the workers cannot write there; give as checkpoint a folder or URL "
                "that this process and every worker can write in"
            )
        paths = index.paths(work.needed)
        ready = {node: Task(None, load_part, path, index.covered(node), 0) for node, path in paths.items()}
        for note in index.notes:
            work.progress.note(note)
        work = replace(work, ready=ready, name=index.name, spec=replace(work.spec, saving=index.saving(0)))
    try:
        ran = run_pass(work, options, saved=index is not None)
    except DamagedFile as error:
        # A file of an earlier scan, which was not read until now.
        work.progress.note(f"{error}; everything is computed again")
        work = replace(work, ready={})
        ran = run_pass(work, options, saved=index is not None)
    require_unchanged(before, source)
    for note in ran.output.notes:
        work.progress.note(note)
    edges = work.partitions.edges
    stats = pass_stats(work, ran, began, n_saved=ran.output.n_saved)
    if options.account is not None:
        options.account(stats)
    return Scanned(ran.output.value, [(edges[a], edges[b]) for a, b in work.points], stats)


def scan_pass(
    source: Source,
    description: Summary[Any],
    finish: Callable[[Summary[Any]], Any],
    options: PassOptions,
    *,
    points: int | None = None,
    window: int | None = None,
    stage: str = "scan",
) -> ScanPass:
    """Return the pass of a scan, cut and projected; nothing is read. Parameters are those of `scan_source`."""
    source = source_for(source, description)
    require_rows(source)
    state = description.projected_nbytes(source.n_columns, source.n_targets)
    working = description.working_nbytes(source.n_columns, source.n_targets)
    points, window = _positive("points", points), _positive("window", window)
    partitions = scan_partitions(source, options.partition_bytes, points, window)
    tree = MergeTree(len(partitions), fan_in=FAN_IN if state <= BIG_STATE_NBYTES else BIG_STATE_FAN_IN)
    # Nodes at both ends of a point's rows wait for other points.
    waiting = 2 * tree.depth * (tree.fan_in - 1) * state
    projected = projection(
        source,
        partitions,
        tree,
        state_nbytes=state,
        working_nbytes=working,
        caller_nbytes=waiting,
        engine=options.engine,
    )
    return ScanPass(
        PassSpec(source, SummariseBlock(description), merge_summaries, options.retries),
        tree,
        partitions,
        options.progress,
        projected,
        stage=stage,
        stall_timeout=options.stall_timeout,
        points=tuple(point_spans(partitions, points, window)),
        finish=finish,
        onward=window is None,
    )


def scan_partitions(
    source: Source, partition_bytes: int | str | None, points: int | None, window: int | None
) -> Partitions:
    """Return how the rows are cut: where no size is asked for, fine enough for the points and the window.

    The usual size is halved until it is, so that appended rows move an earlier edge only when they double the source;
    not beyond where chunks would be decoded again and again, or a window would cost a thousand states.
    """
    partitions = source_partitions(source, partition_bytes)
    size, least = DEFAULT_PARTITION_BYTES, points or LEAST_POINTS
    while partition_bytes is None and size > 1 and len(partitions) < source.n_rows:
        tallest = int(np.diff(partitions.edges).max())
        if len(partitions) >= least and (window is None or tallest <= window or len(partitions) >= _MOST_PARTITIONS):
            break
        size //= 2
        try:
            partitions = source_partitions(source, size)
        except BadParameter:
            break
    return partitions


def point_spans(partitions: Partitions, points: int | None, window: int | None) -> list[tuple[int, int]]:
    """Return for every point the partitions that count there, ``(first, stop)``, in order."""
    n = len(partitions)
    stops = range(1, n + 1) if points is None else sorted({-(-n * i // points) for i in range(1, points + 1)})
    if window is None:
        return [(0, stop) for stop in stops]
    edges = np.asarray(partitions.edges)
    firsts = [int(np.searchsorted(edges, max(edges[stop] - window, 0), side="right")) - 1 for stop in stops]
    return list(zip(firsts, stops, strict=True))


def _positive(name: str, value: Any) -> int | None:
    return None if value is None else require_positive(name, value)
