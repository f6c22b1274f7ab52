"""Engines, the options of a pass, and how a pass is made: planned, resumed from a checkpoint, run and checked."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypedDict, TypeVar

from dask.system import CPU_COUNT

from sketchselect._byte_sizes import parse_bytes
from sketchselect._progress import Progress, Result, Statistics
from sketchselect._text import without_credentials
from sketchselect.errors import BadParameter, EmptyInput, Interrupted, SourceChanged
from sketchselect.execution.checkpoints import Checkpoint, save_if_due
from sketchselect.execution.plan import Engine, LocalPieces, Plan, projection, require_fit
from sketchselect.execution.source import Block, Source
from sketchselect.execution.tasks import OTHER_FILES, Reduction, Span, Stopped, TaskContext
from sketchselect.execution.tree import UserTaskFailed, make_tree, naming_failures
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import stacked
from sketchselect.location import is_url, is_within
from sketchselect.readers import DEFAULT_PARTITION_BYTES, Partitions, row_partitions

T = TypeVar("T")

CLIENTS = (
    'None, "threads", "serial", "env", the address of a scheduler (tcp://...), its scheduler file (.json), a '
    "distributed.Client or Cluster, or an engine"
)
"""Values of `client`, in messages; `sketchselect.summarize` explains each."""

LOCAL_LEAVES = 4096
"""Leaves of one graph; a larger tree is computed subtree by subtree."""


AT_LEAST_AHEAD = 6
"""Tasks that read ahead in this process. Reads that begin together share the network and end together; with fewer of
them it is idle while their rows are computed and the next requests are on their way."""

AHEAD_NBYTES = 640 << 20
"""Bytes that they may take where that is more than one for each thread that computes."""


def available_cores() -> int:
    """Return the cores that this process may use: its affinity and the limit of its container counted."""
    return int(CPU_COUNT)


class LocalEngine(Engine):
    """Dask's threaded scheduler in this process, or its synchronous one (kind "serial"), which is the reference.

    BLAS takes one thread at that time. There are as many threads as cores by default, each with one block in memory; of
    a remote source as many more read ahead, and at least `AT_LEAST_AHEAD` where memory allows. The projection of a pass
    may not exceed `memory_limit`.
    """

    def __init__(
        self,
        n_threads: int | None = None,
        *,
        memory_limit: int | None = None,
        kind: Literal["threads", "serial"] = "threads",
    ) -> None:
        if n_threads is not None and n_threads < 1:
            raise BadParameter(f"n_threads must be at least 1, got {n_threads}")
        self.kind = kind
        self.n_slots = self.slots_per_process = 1 if kind == "serial" else n_threads or available_cores()
        self.memory_limit = memory_limit
        self.most_ahead = -(-AT_LEAST_AHEAD // self.n_slots)

    def run(self, plan: Plan[T]) -> Result[T]:
        """Compute the graph of a plan, subtree by subtree where the tree is large."""
        import dask
        import dask.threaded

        stop = threading.Event()

        def on_task_end(span: Span | None) -> None:
            if stop.is_set():
                raise Stopped
            if span is not None:
                plan.progress.advance(span.nbytes)

        plan = plan.bound(remote=False)
        context = plan.task_context(on_task_end=on_task_end)
        ready, n_tasks, pool = dict(plan.ready), 0, None
        if self.kind != "serial":
            slots, n_threads = threading.BoundedSemaphore(self.n_slots), (1 + context.reads_ahead) * self.n_slots
            context = replace(context, compute_slot=lambda: slots)
            pool = ThreadPoolExecutor(n_threads, thread_name_prefix="sketchselect")
        get = dask.get if pool is None else functools.partial(dask.threaded.get, pool=pool)
        try:
            with one_blas_thread():
                for output in plan.cuts(LOCAL_LEAVES):
                    if isinstance(ready.get(output), Result):
                        continue
                    graph = plan.graph(output, ready)
                    n_tasks += len(graph)
                    tasks = {**plan.with_inputs(graph), plan.context_key: context}
                    if plan.inputs:
                        tasks |= naming_failures({key: tasks[key] for key in plan.inputs if key in tasks})
                    *pieces, result = get(tasks, plan.keys(output))
                    ready[output] = result if plan.join is None else plan.join(result, LocalPieces(pieces))
        except UserTaskFailed as failure:
            error = failure.__cause__ or failure
            raise plan.user_error(failure.args[0], error) from error
        finally:
            # Running tasks stop at their next partition; none should compute, or report, after this returns.
            stop.set()
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        result = ready[plan.tree.root]
        return Result(result.value, result.stats + Statistics(n_tasks=n_tasks))


class RunKeywords(TypedDict, total=False):
    """How a method of an estimator runs its passes, by keyword and as in `sketchselect.summarize`."""

    client: Any
    partition_bytes: int | str | None
    progress: Progress | Callable[..., object] | bool | None


class FitKeywords(RunKeywords, total=False):
    """How a fit runs its passes, which can be saved."""

    checkpoint: Checkpoint | str | os.PathLike[str] | None


class PreparedKeywords(FitKeywords, total=False):
    """How a fit prepares rows, and runs its passes."""

    prepare: Sequence[Any] | None


@dataclass(frozen=True)
class PassOptions:
    """How passes are made: engine, size of partitions, checkpoint, and where they report.

    `retries` are those of a read that failed; after `stall_timeout` seconds without any partition done, a pass on other
    processes is given up; `on_statistics` is called with the `Statistics` of each summary. With `keeps_panels` a sketch
    in panels of columns stays in them, as `PanelledDirections`. The first row of a source has the global index `start`.
    """

    engine: Engine
    partition_bytes: int | str | None = None
    checkpoint: Checkpoint | None = None
    progress: Progress = field(default_factory=Progress)
    retries: int = 2
    stall_timeout: float = 300.0
    on_statistics: Callable[[Statistics], object] | None = None
    keeps_panels: bool = False
    start: int = 0

    def but(self, **changes: Any) -> Self:
        """Return the same options with some of them changed."""
        return replace(self, **changes)


Identities = list[tuple[str, str | None]]
"""Address and identity of everything that a pass reads."""


def reduce_blocks(
    source: Source, reduction: Reduction[T], options: PassOptions, *, partitions: Partitions | None = None
) -> Result[T]:
    """Reduce a source, block by block, in one fixed tree: the same bits on every engine.

    A checkpoint needs states that are summaries, and a reduction with a key. `partitions` are given where the caller
    cuts them.

    Raises
    ------
    WillNotFit, EmptyInput, SourceChanged, PartitionFailed, PartitionCrash, Stalled, NoWorkers, ClusterLost, Interrupted
        See `sketchselect.errors`.
    """
    plan = make_plan(source, reduction, options, partitions=partitions)
    return compute_plan(plan, options, source_identities(source))


def compute_plan(plan: Plan[T], options: PassOptions, before: Identities) -> Result[T]:
    """Run a plan that fits into memory, resumed from the checkpoint and saved there; see `reduce_blocks`.

    `before` are the identities of its source.
    """
    require_fit(plan.projected, options.engine.memory_limit, plan.source.matrix.address)
    plan = with_nodes(plan, options, plan.context.reduction.key, before)
    if plan.nodes is not None:
        directory = plan.nodes.directory
        saves = options.engine.can_write(directory)
        # Only processes that can write there can be expected to read there.
        plan = plan.resumed(shared=saves, remote=options.engine.kind == "dask")
        if saves:
            plan = plan.saving()
        else:
            saved = "nothing of this pass" if plan.context.reduction.keeps_panels else "only the finished pass"
            plan.progress.note(
                f"{directory}: the workers cannot write there, so {saved} is saved; give a folder or "
                "URL that every worker can write"
            )
    return run_plan(plan, options.engine, before)


def map_blocks(source: Source, function: Callable[[Block], Any], stage: str, options: PassOptions) -> Any:
    """Return the results of a picklable function of blocks, one below the other; rows dropped are left out."""
    return reduce_blocks(source, Reduction(function, stacked, stage), options).value


def make_plan(
    source: Source, reduction: Reduction[T], options: PassOptions, *, partitions: Partitions | None = None
) -> Plan[T]:
    """Return the plan of a pass; nothing is read. Parameters are those of `reduce_blocks`."""
    n_features = source.matrix.shape[1]
    size = DEFAULT_PARTITION_BYTES if options.partition_bytes is None else parse_bytes(options.partition_bytes)
    if partitions is None:
        partitions = source_partitions(source, size)
    # Sparse partitions differ in height, and the tree must not depend on which of them is the first.
    # The first one may be cut where the pass begins at a later row.
    whole = 1 if partitions.edges[0] and len(partitions) > 1 else 0
    full = size if source.is_sparse else (partitions.edges[whole + 1] - partitions.edges[whole]) * n_features * 8
    tree = make_tree(len(partitions), full, reduction.state_nbytes)
    engine, reads_ahead = options.engine, 0
    projected = projection(source, partitions, tree, reduction, engine)
    # A sketch in panels reads ahead by itself.
    if source.matrix.is_remote and engine.kind != "serial" and reduction.in_panels is None:
        for n in range(engine.most_ahead, 0, -1):
            more = projection(source, partitions, tree, reduction, engine, reads_ahead=n)
            is_small = n == 1 or more.nbytes - projected.nbytes <= AHEAD_NBYTES
            if is_small and (engine.memory_limit is None or more.nbytes <= engine.memory_limit):
                projected, reads_ahead = more, n
                break
    context = TaskContext(source, reduction, options.retries, reads_ahead=reads_ahead)
    plan = Plan(context, tree, partitions, options.progress, projected, stall_timeout=options.stall_timeout)
    if reduction.in_panels is None:
        return plan
    from sketchselect.execution.panels import sketch_plan

    return sketch_plan(plan, reduction.in_panels, engine)


def with_nodes(plan: Plan[T], options: PassOptions, key: str | None, before: Identities) -> Plan[T]:
    """Return a plan with its nodes in the checkpoint, if it has one; a note says so if the source has no identity.

    `key` is the fingerprint of leaf and merge, `before` the identities of what is not in memory.
    """
    if options.checkpoint is None or key is None:
        return plan
    source = plan.source
    place, address = os.fspath(options.checkpoint.directory), source.matrix.address
    if (os.path.isabs(address) or is_url(address)) and is_within(place, address):
        raise BadParameter(f"checkpoint: {without_credentials(place)} is in the source; choose a folder outside of it")
    if any(identity is None for _, identity in [*before, *source_identities(source, in_memory=True)]):
        plan.progress.note(f"{source.matrix.address}: no checkpoints, the content of this source has no identity")
        return plan
    nodes = plan.saved_as(
        options.checkpoint,
        source,
        plan.tree,
        plan.partitions,
        key=key,
        build=options.engine.build(),
        state_nbytes=plan.context.reduction.state_nbytes,
        note=plan.progress.note,
    )
    return replace(plan, nodes=nodes)


@contextlib.contextmanager
def naming_interrupts(stage: str, n_partitions: int, n_saved: Callable[[], int] = int) -> Iterator[None]:
    """Turn Ctrl-C into an error that says how much of a stage is saved."""
    try:
        yield
    except KeyboardInterrupt as error:
        n = n_saved()
        saved = f"{stage}: {n} of {n_partitions} partitions are in checkpoints"
        then = "the same command goes on from there" if n else "the same command starts from the beginning"
        interrupted = Interrupted(f"interrupted; {saved}; {then}", saved)
        interrupted.exit_code = getattr(error, "exit_code", Interrupted.exit_code)
        raise interrupted from None


def run_plan(plan: Plan[T], engine: Engine, before: Identities) -> Result[T]:
    """Run a plan, with its beginning, notes and end reported; the root at least is saved in its checkpoint.

    Raises `SourceChanged` unless the source still has the identities that it had `before`.
    """
    began, nodes = time.perf_counter(), plan.nodes
    tree, progress = plan.tree, plan.progress
    axis = plan.source.matrix.axes[0]
    missing = {i for node in tree.children(tree.root) or [tree.root] for i in tree.partitions(node)}
    if plan.n_resumed:
        n_rows, n_parts = sum(span.stop - span.start for span in map(plan.span, missing)), len(missing)
        missing -= plan.done
        rows = f"{n_rows - sum(span.stop - span.start for span in map(plan.span, missing))} of {n_rows} {axis}s"
        saved = f"{n_parts - len(missing)} of {n_parts} partitions ({rows}) are in checkpoints"
        progress.note(f"{plan.stage}: resuming, {saved} and are not read again")
    progress.start(plan.stage, sum(plan.span(i).nbytes for i in missing), len(missing))
    try:
        with naming_interrupts(
            plan.stage,
            len(plan.partitions),
            lambda: 0 if nodes is None or plan.context.saving is None else nodes.n_saved(),
        ):
            result = engine.run(plan)
    finally:
        progress.finish(plan.stage)
    require_unchanged(before, plan.source)
    if result.stats.n_changed and not plan.source.matrix.is_remote:  # of others, workers may have an old list of files
        raise SourceChanged(f"{plan.source.matrix.address}: {OTHER_FILES}")
    saved_here = nodes is not None and plan.context.saving is None and not plan.context.reduction.keeps_panels
    if nodes is not None and saved_here and tree.root not in plan.ready:
        result = save_if_due(result, nodes.rules, nodes.name(tree.root))
    for note in result.stats.notes:
        progress.note(note)
    stats = replace(
        result.stats,
        seconds=time.perf_counter() - began,
        n_partitions=len(plan.partitions),
        n_resumed=plan.n_resumed,
        projected_nbytes=plan.projected.nbytes,
    )
    return Result(result.value, stats)


def source_partitions(source: Source, partition_bytes: int | str | None = None) -> Partitions:
    """Return how a source's rows are cut: by stored entries where blocks stay sparse; raise `EmptyInput` for none."""
    n_rows, n_features = source.matrix.shape
    if n_rows == 0 or n_features == 0:
        raise EmptyInput(f"{source.matrix.address}: nothing to read, the shape is {n_rows} x {n_features}")
    n_chosen = 1 if source.columns is None else len(source.columns)
    partitions = row_partitions(source.matrix, partition_bytes, sparse=source.is_sparse, dense_columns=n_chosen)
    if source.first_row:
        edges = (source.first_row, *(edge for edge in partitions.edges if edge > source.first_row))
        partitions = replace(partitions, edges=edges)
    return partitions


def source_identities(source: Source, *, in_memory: bool = False) -> Identities:
    """Return address and identity of everything that is read; or of the arrays in memory, which nothing rewrites."""
    matrix, vectors = source.matrix, (source.target, source.weight)
    rows = [(matrix.address, matrix.identity(0, matrix.shape[0]))] if matrix.in_memory == in_memory else []
    if rows and rows[0][1] is None and matrix.is_remote:
        rows.append((matrix.address, matrix.witness()))
    return rows + [(v.address, v.identity()) for v in vectors if v is not None and v.in_memory == in_memory]


def require_unchanged(before: Identities, source: Source) -> None:
    """Raise `SourceChanged` where something that was read has another identity than before."""
    for (address, old), (_, new) in zip(before, source_identities(source), strict=True):
        if old != new:
            raise SourceChanged(f"{address}: it was rewritten while it was read; run again when no one writes to it")
