"""One pass over a source: plan it, see that it fits, resume what a checkpoint holds, run the rest, check the source."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from sketchselect.errors import EmptyInput, Interrupted, SourceChanged, Terminated
from sketchselect.execution.checkpoints.index import Checkpoint, Ledger
from sketchselect.execution.engine import Engine, Work, never_saved
from sketchselect.execution.graph.tasks import Part, Recipe, kept
from sketchselect.execution.graph.tree import Node, make_plan
from sketchselect.execution.memory.projection import projection, require_fit
from sketchselect.execution.progress import Progress, Silent
from sketchselect.execution.source import Block, Source
from sketchselect.readers import DEFAULT_PARTITION_BYTES, Partitions, row_partitions
from sketchselect.readers.byte_sizes import parse_bytes

T = TypeVar("T")


@dataclass(frozen=True)
class PassStats:
    """What a pass did.

    Parameters
    ----------
    rows_read, bytes_read : int
        Rows, and bytes as stored, read in this run; what a checkpoint held is not counted.
    rows_dropped : int
        Rows left out of the result by the policy for non-finite values.
    seconds : float
        Wall time.
    n_partitions, n_tasks, n_resumed : int
        Partitions of the source, tasks run, and nodes taken from a checkpoint.
    n_saved : int
        Checkpoint files written.
    worker_deaths : int
        Workers lost while it ran.
    projected_nbytes : int
        Projected peak memory per process.
    """

    rows_read: int
    rows_dropped: int
    bytes_read: int
    seconds: float
    n_partitions: int
    n_tasks: int
    n_resumed: int
    n_saved: int
    worker_deaths: int
    projected_nbytes: int


@dataclass(frozen=True)
class Reduced(Generic[T]):
    """The result of a pass, and its account."""

    value: T
    stats: PassStats


def reduce_blocks(
    source: Source,
    leaf: Callable[[Block], T],
    merge: Callable[[T, T], T],
    *,
    engine: Engine,
    partition_bytes: int | str | None = None,
    partitions: Partitions | None = None,
    stage: str = "pass",
    state_nbytes: int = 0,
    working_nbytes: int = 0,
    held_nbytes: int = 0,
    checkpoint: Checkpoint | None = None,
    leaf_key: str | None = None,
    progress: Progress | None = None,
    retries: int = 2,
    stall_timeout: float = 300.0,
) -> Reduced[T]:
    """Fold a source, block by block, in one fixed tree: the same bits on every engine.

    Parameters
    ----------
    source : Source
        Where the rows come from.
    leaf : callable
        Block -> state. Pure and picklable; must take a block of no rows.
    merge : callable
        (state, state) -> state of the rows of both, left ones first. Pure, picklable; changes neither.
    engine : Engine
        What runs the tasks.
    partition_bytes : int or text, optional
        Size of a partition (rows x columns x 8 bytes; entries x 16 where blocks are sparse); 32 MiB by default.
    bands : Partitions, optional
        The partitions themselves, where the caller has a reason of its own to cut them, or to begin at a later row.
    stage : str
        Name of the pass, for progress and messages.
    state_nbytes, working_nbytes : int
        Bounds of a state's bytes and of what leaf and merge need beside it; they shape the tree and the projection.
    held_nbytes : int
        What the caller holds meanwhile in this process; it counts where tasks run in the same process.
    checkpoint : Checkpoint, optional
        Where finished nodes are kept; needs `leaf_key` and states that are summaries.
    leaf_key : str, optional
        Text that tells this leaf and its parameters from all others.
    progress : Progress, optional
        Told of every partition.
    retries : int
        How often a failed read is tried again.
    stall_timeout : float
        Seconds without any partition done after which a pass on other processes is given up.

    Raises
    ------
    WillNotFit, EmptyInput, SourceChanged, PartitionFailed, PartitionCrash, Stalled, NoWorkers, ClusterLost, Interrupted
        See `sketchselect.errors`.
    """
    began = time.perf_counter()
    matrix = source.matrix
    n_rows, n_features = matrix.shape
    if n_rows == 0 or n_features == 0:
        raise EmptyInput(f"{matrix.address}: nothing to read, the shape is {n_rows} x {n_features}")
    progress = progress or Silent()
    wanted = DEFAULT_PARTITION_BYTES if partition_bytes is None else parse_bytes(partition_bytes)
    if partitions is None:
        partitions = source_partitions(source, wanted)
    # Sparse partitions differ in height, and the plan must not depend on which of them is the first.
    # The first one may be cut where the pass begins at a later row.
    whole = 1 if partitions.edges[0] and len(partitions) > 1 else 0
    full = wanted if source.is_sparse else (partitions.edges[whole + 1] - partitions.edges[whole]) * n_features * 8
    plan = make_plan(len(partitions), full, state_nbytes)
    projected = projection(
        source,
        partitions,
        plan,
        state_nbytes=state_nbytes,
        working_nbytes=working_nbytes,
        held_nbytes=held_nbytes,
        engine=engine,
    )
    require_fit(projected, engine.memory_limit, matrix.address)

    before = source_identities(source)
    done: dict[Node, Part[T]] = {}
    order = never_saved
    ledger = None
    shared = False
    if checkpoint is not None and leaf_key is not None:
        if matrix.identity(0, n_rows) is None:
            progress.note(f"{matrix.address}: no checkpoints, the content of this source has no identity")
        else:
            ledger = Ledger(
                checkpoint, source, partitions, plan, leaf_key=leaf_key, build=engine.build(), state_nbytes=state_nbytes
            )
            done = cast(dict[Node, Part[T]], ledger.resume())
            shared = engine.can_write(checkpoint.directory)
            if shared:
                order = ledger.order
            else:
                ledger.notes.append(
                    f"{checkpoint.directory}: the workers cannot write there, so only the finished pass is kept; "
                    "give a folder or URL that every worker can write"
                )
            for note in ledger.notes:
                progress.note(note)

    recipe = Recipe(source, leaf, merge, retries)
    work = Work(plan, partitions, recipe, progress, done, order, stage, stall_timeout, projected)
    spans = [(partitions.edges[p.start], partitions.edges[p.stop]) for p in map(plan.partitions, done)]
    resumed = sum(stop - start for start, stop in spans)
    to_read = matrix.stored_nbytes(partitions.edges[0], n_rows) - sum(matrix.stored_nbytes(*span) for span in spans)
    if done:
        counted = n_rows - partitions.edges[0]
        progress.note(f"{stage}: resuming, {resumed} of {counted} {matrix.axes[0]}s are in checkpoints")
    progress.start(stage, to_read, len(partitions))
    try:
        ran = engine.run(work)
    except KeyboardInterrupt as error:
        raise _interrupted(error, ledger is not None) from None
    finally:
        progress.finish(stage)
    root = ran.root
    for (address, old), (_, new) in zip(before, source_identities(source), strict=True):
        if old != new:
            raise SourceChanged(f"{address}: it was rewritten while it was read; run again when nobody writes to it")
    if ledger is not None and not shared and plan.root not in done:
        root = kept(root, ledger.order(plan.root), source)
    for note in root.notes:
        progress.note(note)
    stats = PassStats(
        rows_read=root.rows,
        rows_dropped=root.dropped,
        bytes_read=root.nbytes,
        seconds=time.perf_counter() - began,
        n_partitions=len(partitions),
        n_tasks=ran.n_tasks,
        n_resumed=len(done),
        n_saved=root.n_saved,
        worker_deaths=ran.worker_deaths,
        projected_nbytes=projected.nbytes,
    )
    return Reduced(root.value, stats)


def source_partitions(source: Source, partition_bytes: int | str | None = None) -> Partitions:
    """Return how a source's rows are cut: by their stored entries where its blocks stay sparse."""
    n_chosen = 1 if source.columns is None else len(source.columns)
    return row_partitions(source.matrix, partition_bytes, sparse=source.is_sparse, dense_columns=n_chosen)


def partitions_from(partitions: Partitions, first_row: int) -> Partitions:
    """Return the partitions of the rows from `first_row` on."""
    return Partitions(
        (first_row, *(edge for edge in partitions.edges if edge > first_row)), partitions.read_amplification
    )


def source_identities(source: Source) -> list[tuple[str, str | None]]:
    """Return address and identity of all that is read; arrays in memory are nobody else's to rewrite."""
    matrix = source.matrix
    found = [] if matrix.in_memory else [(matrix.address, matrix.identity(0, matrix.shape[0]))]
    return found + [
        (v.address, v.identity()) for v in (source.target, source.weight) if v is not None and not v.in_memory
    ]


def _interrupted(error: KeyboardInterrupt, keeps: bool) -> Interrupted:
    what = "finished checkpoints are kept, running the same command again resumes" if keeps else "nothing was kept"
    stopped = Interrupted(f"interrupted; {what}")
    if isinstance(error, Terminated):
        stopped.exit_code = 143
    return stopped
