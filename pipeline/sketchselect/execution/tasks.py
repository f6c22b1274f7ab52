"""The tasks of a pass.

Pure functions that read, reduce and merge; an error names the partition and its rows.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from traceback import walk_tb
from typing import Any, Generic, NamedTuple, TypeVar

from sketchselect._progress import Laps, Result, Statistics
from sketchselect.errors import (
    NO_MORE_THREADS,
    ChunkReadError,
    OutputFailed,
    PartitionFailed,
    SketchSelectError,
    SourceChanged,
    SourceMissing,
    is_out_of_threads,
)
from sketchselect.execution.checkpoints import Checkpoint, save_if_due
from sketchselect.execution.full_columns import RowWeights
from sketchselect.execution.source import Block, CachedBlock, Source
from sketchselect.linalg.threads import one_blas_thread

T = TypeVar("T")

FIRST_PAUSE = 0.2
"""Seconds before a read is tried again; four times longer each time."""

OnTaskEnd = Callable[["Span | None"], object]
"""Called after every partition, and with None after every merge; may raise to stop the task."""


class Span(NamedTuple):
    """A partition: its index, its rows, and their bytes as stored."""

    partition: int
    start: int
    stop: int
    nbytes: int


@dataclass(frozen=True)
class Reduction(Generic[T]):
    """What a pass computes of a source: the states of its blocks, merged."""

    leaf: Callable[[Block], T]  # Pure and picklable; also of no rows
    merge: Callable[[T, T], T]  # The state of the rows of both, left ones first; pure and picklable; changes neither
    stage: str = "pass"  # The name in progress, messages and keys
    # state_nbytes, working_nbytes: Bounds of the bytes of a state, and of the working memory of leaf and merge: they
    # shape the tree and the projection
    state_nbytes: int = 0
    working_nbytes: int = 0
    sparse_state_nbytes: int | None = None  # A closer bound of a state of sparse rows, which does not shape the tree
    # The weights that the leaf's kernels give the rows of a block; None where they are not known, if there are any
    row_weights: RowWeights | None = None
    caller_nbytes: int = 0  # Bytes of results that the caller holds while the pass runs
    key: str | None = None  # Fingerprint of leaf and merge with their parameters; None disables checkpoints
    merge_in_place: Callable[[T, T], T] | None = None  # As `merge`; may overwrite its first argument
    in_panels: Any = None  # The `FrequentDirections` that is computed in panels of columns, in place of leaf and merge
    keeps_panels: bool = False  # Whether these panels stay where they are


@dataclass(frozen=True)
class TaskContext(Generic[T]):
    """What all tasks of a pass share, on whatever worker they run."""

    source: Source
    reduction: Reduction[T]
    retries: int = 2  # Of a read that failed
    saving: Checkpoint | None = None
    on_task_end: OnTaskEnd | None = None
    reads_ahead: int = 0  # Tasks that read for each that computes
    compute_slot: Callable[[], AbstractContextManager[object]] = nullcontext  # Limits concurrent computation

    def saved(self, node: Result[T], name: str | None) -> Result[T]:
        """Return a node, saved where the pass has a checkpoint and it is worth it."""
        return node if self.saving is None else save_if_due(node, self.saving, name)


OTHER_FILES = (
    "a worker has other files there than the process that runs the job, or files with other times; give it the same "
    "(a shared disk, or copies with their times: rsync -a), and run again when no one writes to them"
)


def run_leaf(
    context: TaskContext[T],
    spans: Sequence[Span],
    sent: Block | None = None,
    before: Result[T] | None = None,
    name: str | None = None,
    identity: str | None = None,
) -> Result[T]:
    """Return the state of consecutive partitions of a leaf, merged in order.

    `sent` are rows of a single partition that were read elsewhere, `before` the state of the leaf's partitions before
    these. Where these are its last, `name` is that of the leaf in the checkpoint, and `identity` that of its rows when
    the pass began: a leaf whose rows have another one now is not saved.
    """
    source, reduction, laps, dropped = context.source, context.reduction, Laps(), 0
    state = None if before is None else before.value
    # States created here are private, so they may be merged in place; that of no rows is the state before, itself.
    merge = reduction.merge_in_place if before is None and reduction.merge_in_place else reduction.merge
    with one_blas_thread(), ExitStack() as slot:
        for span in spans:
            slot.close()
            with naming(source, f"partition {span.partition}", span.start, span.stop):
                block = read_block(source, span.start, span.stop, context.retries, sent, laps)
                if context.reads_ahead:
                    with laps.step("wait"):
                        slot.enter_context(context.compute_slot())
                with laps.step("kernel"):
                    value = reduction.leaf(block)
                dropped += block.n_dropped
                del block
                with laps.step("merge"):
                    state = value if state is None else merge(state, value)
                del value
            if context.on_task_end is not None:
                context.on_task_end(span)
        assert state is not None
        start, stop = spans[0].start, spans[-1].stop
        nbytes = sum(span.nbytes for span in spans)
        stats = Statistics(
            rows_read=stop - start,
            rows_dropped=dropped,
            bytes_read=nbytes,
            profile=laps,
            covered=nbytes,
            unsaved_seconds=sum(laps.values()) - laps.get("wait", 0.0),
        )
        if before is not None:
            stats = before.stats + stats
        if identity is not None:
            changed = source.matrix.identity(stop - stats.rows_read, stop) != identity
            stats = replace(stats, n_changed=int(changed))
        return context.saved(Result(state, stats), name)


def run_merge(
    context: TaskContext[T], parts: Sequence[Result[T]], rows: tuple[int, int], name: str | None = None
) -> Result[T]:
    """Return the states of some nodes merged in order; `rows` is the range they cover, for messages."""
    state, laps = parts[0].value, Laps()
    with one_blas_thread(), naming(context.source, "merging", *rows), laps.step("merge"):
        for part in parts[1:]:
            state = context.reduction.merge(state, part.value)
    if context.on_task_end is not None:
        context.on_task_end(None)
    merging = Statistics(unsaved_seconds=laps["merge"], profile=laps)
    return context.saved(with_total(parts, state, merging), name)


def with_total(parts: Sequence[Result[Any]], value: T, stats: Statistics = Statistics()) -> Result[T]:  # noqa: B008
    """Return a value with the statistics of the nodes that it was made of."""
    return Result(value, Statistics.total([*(part.stats for part in parts), stats]))


def read_cached(
    context: TaskContext[Any], span: Span, sent: Block | None = None, identity: str | None = None
) -> CachedBlock:
    """Return the prepared block of one partition, which stays where it was read.

    Raises `SourceChanged` where its rows have another `identity`.
    """
    source, where = context.source, f"partition {span.partition}"
    with one_blas_thread(), naming(source, where, span.start, span.stop), context.compute_slot():
        block = CachedBlock.of(read_block(source, span.start, span.stop, context.retries, sent))
        if identity is not None and source.matrix.identity(span.start, span.stop) != identity:
            raise SourceChanged(OTHER_FILES)
        return block


def read_block(
    source: Source, start: int, stop: int, retries: int, sent: Block | None = None, laps: Laps | None = None
) -> Block:
    """Return a block; errors of storage that may pass are tried again, each time after a longer pause."""
    if isinstance(sent, CachedBlock):
        return sent.aligned()
    for attempt in range(retries):
        try:
            return source.block(start, stop, sent, laps)
        except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError):
            raise
        except (OSError, ChunkReadError):
            time.sleep(FIRST_PAUSE * 4**attempt)
    return source.block(start, stop, sent, laps)


class Stopped(BaseException):
    """Raised by `on_task_end` to end a task whose result is no longer needed."""


def place_in_words(source: Source, what: str, start: int, stop: int) -> str:
    """Return a place in the source in words."""
    return f"{source.matrix.address}: {what} ({source.matrix.axes[0]}s {start} to {stop - 1})"


@contextmanager
def naming(source: Source, what: str, start: int, stop: int) -> Iterator[None]:
    """Turn what a task raises into an error that names the partition and its rows, and no value of the data."""
    where = place_in_words(source, what, start, stop)
    try:
        yield
    except (Stopped, OutputFailed):
        raise  # no fault of the rows
    except SketchSelectError as error:
        # Readers begin with the address too; once is enough.
        message = str(error).removeprefix(f"{source.matrix.address}: ")
        raise type(error)(f"{where}: {message}{_missing_where(error)}") from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # a real Ctrl-C: signals reach the main thread only
        raise PartitionFailed(f"{where}: {_without_values(error)}{_missing_where(error)}") from error


def _missing_where(error: BaseException) -> str:
    """Return which worker of a cluster has no such file, in words: the others, and this job's user, may see it."""
    distributed = sys.modules.get("distributed")
    if distributed is None or not isinstance(error, (SourceMissing, FileNotFoundError)):
        return ""
    try:
        address = distributed.get_worker().address
    except ValueError:  # not in a task of Dask
        return ""
    return (
        f"; worker {address} does not see it: give workers the files of the process that runs the job (a shared disk, "
        "or copies with their times: rsync -a), or stop that one, and run again"
    )


def _without_values(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, (OSError, MemoryError, ImportError)):
        return f"{name}: {error}"
    if is_out_of_threads(error):
        return NO_MORE_THREADS
    # Other libraries' messages may quote the data, so only the place is named.
    *_, (frame, line) = walk_tb(error.__traceback__)
    return f"{name} in {frame.f_code.co_name} ({os.path.basename(frame.f_code.co_filename)}, line {line})"
