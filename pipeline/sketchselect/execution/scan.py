"""All prefixes, or all windows, of a source at once: a scan over the plan's tree.

The first pass makes the nodes of the tree, as any pass does, and keeps those that points are made of: in memory where
tasks run in this process and it has room, in files otherwise. The second takes for every point the few nodes that its
rows are made of, merges them, and hands on only what is wanted of the result.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from sketchselect.errors import BadParameter, DamagedFile, EmptyInput, SourceChanged
from sketchselect.execution.checkpoints.index import Checkpoint
from sketchselect.execution.engine import Engine, Ran, Work
from sketchselect.execution.graph.points import BEGUN, Begun, Branch, BranchMatrix, LookAt, branches_of, join
from sketchselect.execution.graph.tasks import Recipe
from sketchselect.execution.graph.tree import BIG_STATE_FAN_IN, BIG_STATE_NBYTES, FAN_IN, Node, Plan
from sketchselect.execution.memory.process import available_nbytes
from sketchselect.execution.memory.projection import projection, require_fit
from sketchselect.execution.progress import Progress, Silent
from sketchselect.execution.run import PassStats, source_identities, source_partitions
from sketchselect.execution.scan_nodes import NodeStore, node_store
from sketchselect.execution.source import Source
from sketchselect.execution.summarize import SummariseBlock, merge_summaries, summary_key
from sketchselect.linalg.validation import require_positive
from sketchselect.readers.base import Partitions
from sketchselect.readers.partitions import DEFAULT_PARTITION_BYTES
from sketchselect.summaries import Summary

T = TypeVar("T")

LEAST_POINTS = 16
"""Points of a scan that is asked for none, where the rows can be cut into so many partitions."""

_MOST_PARTITIONS = 1024


@dataclass(frozen=True)
class Scanned(Generic[T]):
    """What a scan found at each point.

    Parameters
    ----------
    values : list
        One for each point.
    spans : list of (int, int)
        The rows that each is of.
    stats : PassStats
        The account of the pass that read the source.
    """

    values: list[T]
    spans: list[tuple[int, int]]
    stats: PassStats


def scan_source(
    source: Source,
    description: Summary[Any],
    finish: Callable[[Summary[Any]], T],
    *,
    engine: Engine,
    points: int | None = None,
    window: int | None = None,
    partition_bytes: int | str | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
    stage: str = "scan",
    retries: int = 2,
    stall_timeout: float = 300.0,
) -> Scanned[T]:
    """Return ``finish(summary)`` of the rows up to the end of every partition, or of a window that ends there.

    Every summary is the merge of O(log n) nodes of the plan's tree over partitions, and that of a prefix goes on from
    the point before it where both are in the same branch: the same bits on every engine. Exact summaries equal those
    of the rows read one after the other to rounding, sketches within their guarantee.

    Parameters
    ----------
    source : Source
        The rows, with fitted prepare steps.
    description : Summary
        What to summarise.
    finish : callable
        Summary -> what is wanted of it; pure and picklable, its result small. May see the summary of no rows.
    engine : Engine
        What runs the tasks.
    points : int, optional
        How many partition ends to look at, evenly spaced, the last among them; all of them by default.
    window : int, optional
        Rows that count at each point, rounded up to whole partitions (at the beginning of the source there are fewer);
        all rows since the first by default.
    checkpoint : Checkpoint, optional
        Folder or URL where the states of partitions and nodes are kept, whatever their size, so that a later scan reads
        only partitions that are new; by default they are held in memory, or in a temporary folder.
    partition_bytes : int or text, optional
        As in `reduce_blocks`; by default small enough for the points and the window (`scan_partitions`).
    progress, stage, retries, stall_timeout
        As in `reduce_blocks`.

    Raises
    ------
    BadParameter
        For points or a window that are not positive; where the workers cannot write in the folder.
    WillNotFit, EmptyInput, SourceChanged, PartitionFailed, SketchSelectError
        As in `reduce_blocks`; and where a state cannot be kept.

    Notes
    -----
    Memory or disk: at most a state for every partition, and one more for every `FAN_IN` of them. States are held in
    memory where the projected peak is then within the engine's limit, or half of the machine's memory.
    """
    began = time.perf_counter()
    matrix, target = source.matrix, source.target
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        raise EmptyInput(f"{matrix.address}: nothing to read, the shape is {matrix.shape[0]} x {matrix.shape[1]}")
    work, spans, branches = work_of_scan(
        source,
        description,
        engine=engine,
        points=points,
        window=window,
        partition_bytes=partition_bytes,
        progress=progress,
        stage=stage,
        retries=retries,
        stall_timeout=stall_timeout,
    )
    source, partitions, projected = work.recipe.source, work.partitions, work.projected
    assert projected is not None
    require_fit(projected, engine.memory_limit, matrix.address)
    needed = {node for branch in branches for nodes in branch.nodes for node in nodes}
    state = description.projected_nbytes(source.n_columns, _n_targets(target))
    keys: Any = {"leaf_key": summary_key(description), "engine": engine, "state_nbytes": state}
    before = source_identities(source)
    in_memory = _has_room(engine, projected.nbytes + (len(needed) + BEGUN) * state)
    with node_store(work, needed, checkpoint=checkpoint, in_memory=in_memory, **keys) as store:
        n_resumed = len(store.done)
        made = _make_nodes(work, store, engine)
        try:
            looked = _look(work, store, branches, finish, engine)
        except DamagedFile as error:
            # A file of an earlier scan, which was not read until now.
            work.progress.note(f"{error}; everything is computed anew")
            store.done.clear()
            made = _make_nodes(work, store, engine)
            looked = _look(work, store, branches, finish, engine)
    for (address, old), (_, new) in zip(before, source_identities(source), strict=True):
        if old != new:
            raise SourceChanged(f"{address}: it was rewritten while it was read; run again when nobody writes to it")
    stats = PassStats(
        rows_read=made.root.rows,
        rows_dropped=made.root.dropped,
        bytes_read=made.root.nbytes,
        seconds=time.perf_counter() - began,
        n_partitions=len(partitions),
        n_tasks=made.n_tasks + looked.n_tasks,
        n_resumed=n_resumed,
        n_saved=made.root.n_saved,
        worker_deaths=made.worker_deaths + looked.worker_deaths,
        projected_nbytes=projected.nbytes,
    )
    return Scanned(looked.root.value, [(partitions.edges[a], partitions.edges[b]) for a, b in spans], stats)


def work_of_scan(
    source: Source,
    description: Summary[Any],
    *,
    engine: Engine,
    points: int | None = None,
    window: int | None = None,
    partition_bytes: int | str | None = None,
    progress: Progress | None = None,
    stage: str = "scan",
    retries: int = 2,
    stall_timeout: float = 300.0,
) -> tuple[Work[Summary[Any]], list[tuple[int, int]], list[Branch[Node]]]:
    """Return the first pass of a scan, the partitions of every point, and the tasks of its second pass."""
    source = replace(source, takes_missing=description.accepts_missing, takes_sparse=description.accepts_sparse)
    n_targets = _n_targets(source.target)
    state = description.projected_nbytes(source.n_columns, n_targets)
    working = description.working_nbytes(source.n_columns, n_targets)
    points, window = _positive("points", points), _positive("window", window)
    partitions = scan_partitions(source, partition_bytes, points, window)
    plan = Plan(len(partitions), fan_in=FAN_IN if state <= BIG_STATE_NBYTES else BIG_STATE_FAN_IN)
    spans = point_spans(partitions, points, window)
    branches = branches_of(plan, spans, onward=window is None)
    projected = projection(source, partitions, plan, state_nbytes=state, working_nbytes=working, engine=engine)
    recipe = Recipe(source, SummariseBlock(description), merge_handed_on, retries)
    told = progress or Silent()
    work = Work(plan, partitions, recipe, told, stage=stage, stall_timeout=stall_timeout, projected=projected)
    return work, spans, branches


def merge_handed_on(left: Any, right: Any) -> Any:
    """Return the summary of the rows of both; None above nodes that no point needs more of."""
    return None if left is None or right is None else merge_summaries(left, right)


def _has_room(engine: Engine, nbytes: int) -> bool:
    """Return whether tasks run in this process, and it may take so many bytes."""
    return engine.kind != "dask" and nbytes <= (engine.memory_limit or available_nbytes() // 2)


def _n_targets(target: Any) -> int:
    return 0 if target is None else 1 if len(target.shape) == 1 else int(target.shape[1])


def scan_partitions(
    source: Source, partition_bytes: int | str | None, points: int | None, window: int | None
) -> Partitions:
    """Return how the rows are cut: where no size is asked for, fine enough for the points and the window.

    The usual size is halved until it is, so that appended rows move an earlier edge only when they double the source;
    not beyond where chunks would be decoded again and again, or a window would cost a thousand states.
    """
    partitions = source_partitions(source, partition_bytes)
    size, wanted = DEFAULT_PARTITION_BYTES, points or LEAST_POINTS
    while partition_bytes is None and size > 1 and len(partitions) < source.n_rows:
        tallest = int(np.diff(partitions.edges).max())
        if len(partitions) >= wanted and (window is None or tallest <= window or len(partitions) >= _MOST_PARTITIONS):
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


def _make_nodes(work: Work[Any], store: NodeStore, engine: Engine) -> Ran[Any]:
    """Make the nodes that are not there yet."""
    matrix, progress = work.recipe.source.matrix, work.progress
    held = [work.rows(node) for node in store.done]
    to_read = matrix.stored_nbytes(0, matrix.shape[0]) - sum(matrix.stored_nbytes(*rows) for rows in held)
    if held:
        resumed = sum(stop - start for start, stop in held)
        progress.note(f"{work.stage}: resuming, {resumed} of {matrix.shape[0]} {matrix.axes[0]}s are in checkpoints")
    progress.start(work.stage, to_read, work.plan.n_partitions)
    try:
        ran = engine.run(replace(work, done=store.done, order=store.order))
    finally:
        progress.finish(work.stage)
    for note in ran.root.notes:
        progress.note(note)
    return ran


def _look(
    work: Work[Any], store: NodeStore, branches: list[Branch[Node]], finish: Callable[[Any], T], engine: Engine
) -> Ran[list[T]]:
    """Look at every point."""
    places, read = store.places([nodes for branch in branches for nodes in branch.nodes])
    left = iter(places)
    found = [Branch([next(left) for _ in branch.nodes], branch.onward) for branch in branches]
    begun = None if store.shelf is None else Begun()
    n = len(found)
    source = Source(BranchMatrix(n, work.recipe.source.matrix.address))
    looking = Work(
        Plan(n),
        Partitions(tuple(range(n + 1))),
        Recipe(source, LookAt(found, finish, read, begun), join, work.recipe.retries),
        work.progress,
        stage=f"{work.stage}, points",
        stall_timeout=work.stall_timeout,
    )
    work.progress.start(looking.stage, source.matrix.stored_nbytes(0, n), n)
    try:
        return engine.run(looking)
    finally:
        work.progress.finish(looking.stage)


def _positive(name: str, value: Any) -> int | None:
    return None if value is None else require_positive(name, value)
