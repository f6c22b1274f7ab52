"""One pass over a source: cut, projected, resumed from a checkpoint, run, and the source compared at the end.

The nodes of a pass in a checkpoint: their names, and which of them are there already.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from dask.task_spec import Task

from sketchselect._byte_sizes import parse_bytes
from sketchselect.errors import EmptyInput, Interrupted, SketchSelectError, SourceChanged, Terminated
from sketchselect.execution.checkpoints import Checkpoint, entries_identity, list_nodes, read_node
from sketchselect.execution.engine import PassOptions, Ran
from sketchselect.execution.passes import Pass, Ready, Reduction, projection, require_fit
from sketchselect.execution.source import Block, Source
from sketchselect.execution.tasks import Part, PassSpec, SavedName, load_part, save_if_due
from sketchselect.execution.tree import Node, make_tree
from sketchselect.linalg.arrays import stacked
from sketchselect.linalg.hashing import fingerprint
from sketchselect.readers import DEFAULT_PARTITION_BYTES, Partitions, row_partitions


class NodeIndex:
    """The checkpoint of one pass.

    A leaf is named by all that decides its bits, its rows as they are when the pass begins included; a merge by the
    names of its children. Rows appended behind leave the names of full nodes as they were. `leaf_key` tells the leaf
    and its parameters from all others, `build` the libraries and processors of the engine.
    """

    def __init__(self, checkpoint: Checkpoint, work: Pass[Any], *, leaf_key: str, build: tuple[str, ...]) -> None:
        self.directory, self._checkpoint = os.fspath(checkpoint.directory), checkpoint
        self._pass, self._tree = work, work.tree
        self._source = source = work.spec.source
        self._common = fingerprint(
            leaf_key,
            source.prepare_labels,
            (source.columns, "float64") if source.in_double else source.columns,
            source.matrix.nonfinite,
            source.matrix.shape[1],
            build,
            work.tree.chain,
            work.tree.fan_in,
        )
        self._names: dict[Node, SavedName] = {}

    def saving(self, ready: Ready, state_nbytes: int) -> Pass[Any]:
        """Return the pass with some nodes ready, and others saved as the rules say for states of these bytes."""
        rules = self._checkpoint
        least = math.ceil(max(rules.min_bytes, rules.state_ratio * state_nbytes))
        spec = replace(self._pass.spec, saving=replace(rules, min_bytes=least))
        return replace(self._pass, ready=ready, name=self.name, spec=spec)

    def name(self, node: Node) -> SavedName:
        """Return the name of a node's file without digest and ending."""
        for below in self._tree.post_order(node, skip=self._names):
            children = [self._names[child].name for child in self._tree.children(below)]
            self._names[below] = SavedName(fingerprint(self._common, children)) if children else self._leaf_name(below)
        return self._names[node]

    def _leaf_name(self, node: Node) -> SavedName:
        below, partitions, source = self._tree.partitions(node), self._pass.partitions, self._source
        edges = partitions.edges[below.start : below.stop + 1]
        rows = source.matrix.identity(edges[0], edges[-1])
        beside = [entries_identity(v, [partitions[i] for i in below]) for v in (source.target, source.weight)]
        # Where partitions begin and end decides the bits too.
        name = fingerprint(self._common, rows, beside, edges[0], [edge - edges[0] for edge in edges])
        return SavedName(name, None if source.matrix.in_memory or source.matrix.dask_rows() is not None else rows)

    def resume(self, *, by_tasks: bool = False) -> dict[Node, Any]:
        """Return the topmost nodes whose files are there and sound.

        With `by_tasks` the files are verified here and loaded again by the tasks that need them, the root excepted.
        """
        listing = self._listing()
        return self._tree.topmost(functools.partial(self._sound, listing, by_tasks)) if listing else {}

    def n_saved(self) -> int:
        """Return the number of partitions below the nodes that have files now."""
        listing = self._listing()
        saved = self._tree.topmost(lambda node: listing.get(self.name(node).name)) if listing else {}
        return sum(len(self._tree.partitions(node)) for node in saved)

    def unread(self, nodes: Iterable[Node]) -> dict[Node, Any]:
        """Return tasks that load those of some nodes whose files are there."""
        listing = self._listing()
        paths = {node: listing.get(self.name(node).name) for node in nodes} if listing else {}
        return {node: Task(None, load_part, path, self._covered(node)) for node, path in paths.items() if path}

    def _listing(self) -> dict[str, str]:
        """Return name -> path of every file in the folder; empty, with a note, where it cannot be listed."""
        try:
            return list_nodes(self.directory)
        except (OSError, ImportError, ValueError) as error:
            self._pass.progress.note(
                f"{self.directory}: checkpoints cannot be read ({type(error).__name__}); starting from scratch"
            )
            return {}

    def _covered(self, node: Node) -> int:
        return self._source.matrix.stored_nbytes(*self._pass.rows(node))

    def _sound(self, listing: dict[str, str], by_tasks: bool, node: Node) -> Any | None:
        """Return a node whose file is there and sound, or the task that loads it."""
        path = listing.get(self.name(node).name)
        if path is None:
            return None
        try:
            value = read_node(path)
        except (OSError, SketchSelectError) as error:
            self._pass.progress.note(f"{path}: damaged checkpoint ({type(error).__name__}), computed again")
            return None
        with contextlib.suppress(OSError):  # a URL, or not ours to touch
            os.utime(path)  # used, so not old
        covered, dropped = self._covered(node), 0
        if self._source.matrix.nonfinite == "drop_rows":
            start, stop = self._pass.rows(node)
            dropped = stop - start - int(getattr(value, "n_rows", stop - start))
        if by_tasks and node != self._tree.root:
            return Task(None, load_part, path, covered, dropped)
        return Part(value, dropped=dropped, covered=covered)


T = TypeVar("T")


@dataclass(frozen=True)
class PassStats:
    """The account of a pass; what a checkpoint already has is not counted as read."""

    rows_read: int
    rows_dropped: int  # Rows left out of the result by the policy for non-finite values
    bytes_read: int
    seconds: float
    n_partitions: int
    n_tasks: int
    n_resumed: int  # Nodes taken from a checkpoint
    n_saved: int
    worker_deaths: int
    projected_nbytes: int  # Projected peak memory per process
    profile: dict[str, float] = field(default_factory=dict)  # Seconds by step, of all tasks together


@dataclass(frozen=True)
class Reduced(Generic[T]):
    """The result of a pass, and its account."""

    value: T
    stats: PassStats


def reduce_blocks(
    source: Source, reduction: Reduction[T], options: PassOptions, *, partitions: Partitions | None = None
) -> Reduced[T]:
    """Reduce a source, block by block, in one fixed tree: the same bits on every engine.

    A checkpoint needs states that are summaries, and a reduction with a key. `partitions` are given where the caller
    cuts them, or begins at a later row.

    Raises
    ------
    WillNotFit, EmptyInput, SourceChanged, PartitionFailed, PartitionCrash, Stalled, NoWorkers, ClusterLost, Interrupted
        See `sketchselect.errors`.
    """
    began = time.perf_counter()
    work = planned_pass(source, reduction, options, partitions=partitions)
    require_fit(work.projected, options.engine.memory_limit, source.matrix.address)
    before = source_identities(source)
    index = node_index(work, options, reduction.key)
    saves = index is not None and options.engine.can_write(index.directory)
    if index is not None:
        # Only processes that can write there can be expected to read there.
        work = index.saving(index.resume(by_tasks=saves and options.engine.kind == "dask"), reduction.state_nbytes)
        if not saves:
            work = replace(work, name=None)
            work.progress.note(
                f"{index.directory}: the workers cannot write there, so only the finished pass is saved; give a folder "
                "or URL that every worker can write"
            )
    ran = run_pass(work, options, index)
    require_unchanged(before, source)
    root = work.tree.root
    if index is not None and not saves and root not in work.ready:
        ran = replace(ran, output=save_if_due(ran.output, work.spec.saving, index.name(root)))
    return Reduced(ran.output.value, pass_stats(work, ran, began))


def map_blocks(source: Source, function: Callable[[Block], Any], stage: str, options: PassOptions) -> Any:
    """Return what a picklable function makes of the blocks, one below the other; rows dropped are left out."""
    return reduce_blocks(source, Reduction(function, stacked, stage), options).value


def planned_pass(
    source: Source, reduction: Reduction[T], options: PassOptions, *, partitions: Partitions | None = None
) -> Pass[T]:
    """Return a pass that is cut, planned and projected; nothing is read. Parameters are those of `reduce_blocks`."""
    n_features = source.matrix.shape[1]
    size = DEFAULT_PARTITION_BYTES if options.partition_bytes is None else parse_bytes(options.partition_bytes)
    if partitions is None:
        partitions = source_partitions(source, size)
    # Sparse partitions differ in height, and the tree must not depend on which of them is the first.
    # The first one may be cut where the pass begins at a later row.
    whole = 1 if partitions.edges[0] and len(partitions) > 1 else 0
    full = size if source.is_sparse else (partitions.edges[whole + 1] - partitions.edges[whole]) * n_features * 8
    tree = make_tree(len(partitions), full, reduction.state_nbytes)
    nbytes = {name: getattr(reduction, name) for name in ("state_nbytes", "working_nbytes", "caller_nbytes")}
    engine = options.engine
    projected, reads_ahead = projection(source, partitions, tree, **nbytes, engine=engine), False
    # A sketch in panels reads ahead by itself.
    if source.matrix.is_remote and engine.kind != "serial" and reduction.in_panels is None:
        more = projection(source, partitions, tree, **nbytes, engine=engine, reads_ahead=True)
        if engine.memory_limit is None or more.nbytes <= engine.memory_limit:
            projected, reads_ahead = more, True
    spec = PassSpec(
        source, reduction.leaf, reduction.merge, options.retries, fold=reduction.fold, reads_ahead=reads_ahead
    )
    work = Pass(
        spec, tree, partitions, options.progress, projected, stage=reduction.stage, stall_timeout=options.stall_timeout
    )
    if reduction.in_panels is None:
        return work
    from sketchselect.execution.panels import sketch_pass

    return sketch_pass(work, reduction.in_panels, options.engine)


def node_index(work: Pass[Any], options: PassOptions, key: str | None) -> NodeIndex | None:
    """Return the checkpoint of a pass; None where it is not saved, with a note if the source has no identity."""
    if options.checkpoint is None or key is None:
        return None
    source = work.spec.source
    vectors = [vector for vector in (source.target, source.weight) if vector is not None]
    if None in (source.matrix.identity(0, source.n_rows), *(vector.identity() for vector in vectors)):
        work.progress.note(f"{source.matrix.address}: no checkpoints, the content of this source has no identity")
        return None
    return NodeIndex(options.checkpoint, work, leaf_key=key, build=options.engine.build())


def run_pass(work: Pass[T], options: PassOptions, index: NodeIndex | None) -> Ran[T]:
    """Run a pass, with its beginning and end reported; `index` is its checkpoint, where it has one."""
    tree, progress = work.tree, work.progress
    axis = work.spec.source.matrix.axes[0]
    missing = {i for node in tree.children(tree.root) or [tree.root] for i in tree.partitions(node)}
    if work.ready:
        n_rows, parts = sum(span.stop - span.start for span in map(work.span, missing)), len(missing)
        missing -= {i for node in work.ready for i in tree.partitions(node)}
        rows = f"{n_rows - sum(span.stop - span.start for span in map(work.span, missing))} of {n_rows} {axis}s"
        there = f"{parts - len(missing)} of {parts} partitions ({rows}) are in checkpoints"
        progress.note(f"{work.stage}: resuming, {there} and are not read again")
    progress.start(work.stage, sum(work.span(i).nbytes for i in missing), len(missing))
    try:
        return options.engine.run(work)
    except KeyboardInterrupt as error:
        n_saved = 0 if index is None or work.name is None else index.n_saved()
        saved = f"{work.stage}: {n_saved} of {len(work.partitions)} partitions are in checkpoints"
        then = "the same command goes on from there" if n_saved else "the same command starts from the beginning"
        interrupted = Interrupted(f"interrupted; {saved}; {then}", saved)
        if isinstance(error, Terminated):
            interrupted.exit_code = 143
        raise interrupted from None
    finally:
        progress.finish(work.stage)


def pass_stats(work: Pass[Any], ran: Ran[Any], began: float) -> PassStats:
    """Return the account of a pass that began at this time, and report what its tasks noted."""
    output = ran.output
    for note in output.notes:
        work.progress.note(note)
    return PassStats(
        rows_read=output.rows,
        rows_dropped=output.dropped,
        bytes_read=output.nbytes,
        seconds=time.perf_counter() - began,
        n_partitions=len(work.partitions),
        n_tasks=ran.n_tasks,
        n_resumed=len(work.ready),
        n_saved=output.n_saved,
        worker_deaths=ran.worker_deaths,
        projected_nbytes=work.projected.nbytes,
        profile=dict(output.laps),
    )


def source_partitions(source: Source, partition_bytes: int | str | None = None) -> Partitions:
    """Return how a source's rows are cut: by stored entries where blocks stay sparse; raise `EmptyInput` for none."""
    n_rows, n_features = source.matrix.shape
    if n_rows == 0 or n_features == 0:
        raise EmptyInput(f"{source.matrix.address}: nothing to read, the shape is {n_rows} x {n_features}")
    n_chosen = 1 if source.columns is None else len(source.columns)
    return row_partitions(source.matrix, partition_bytes, sparse=source.is_sparse, dense_columns=n_chosen)


def source_identities(source: Source) -> list[tuple[str, str | None]]:
    """Return address and identity of all that is read; arrays in memory are nobody else's to rewrite."""
    matrix = source.matrix
    rows = [] if matrix.in_memory else [(matrix.address, matrix.identity(0, matrix.shape[0]))]
    return rows + [
        (v.address, v.identity()) for v in (source.target, source.weight) if v is not None and not v.in_memory
    ]


def require_unchanged(before: list[tuple[str, str | None]], source: Source) -> None:
    """Raise `SourceChanged` where something that was read has another identity than before."""
    for (address, old), (_, new) in zip(before, source_identities(source), strict=True):
        if old != new:
            raise SourceChanged(f"{address}: it was rewritten while it was read; run again when nobody writes to it")
