"""The tasks of a pass: pure functions that read, summarise and merge, and name the partition where one fails."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from traceback import walk_tb
from typing import Any, Generic, NamedTuple, TypeVar

from sketchselect._progress import Laps
from sketchselect.errors import ChunkReadError, PartitionFailed, SketchSelectError
from sketchselect.execution.checkpoints import Checkpoint, read_node, write_node
from sketchselect.execution.source import Block, CachedBlock, Rows, Source
from sketchselect.linalg.threads import one_blas_thread

T = TypeVar("T")

FIRST_PAUSE = 0.2
"""Seconds before a read is tried again; four times longer each time."""

Report = Callable[["Span | None"], object]
"""Called after every partition, and with None after every merge; may raise to stop the task."""


class Span(NamedTuple):
    """A partition: its index, its rows, and their bytes as stored."""

    partition: int
    start: int
    stop: int
    nbytes: int


@dataclass(frozen=True)
class PassSpec(Generic[T]):
    """What all tasks of a pass share; `leaf` makes a state of a block, `merge` one of two, and neither changes any."""

    source: Source
    leaf: Callable[[Block], T]
    merge: Callable[[T, T], T]
    retries: int = 2
    saving: Checkpoint | None = None
    report: Report | None = None
    reads_ahead: bool = False  # Whether beside each task that computes there is one that reads
    turn: Callable[[], AbstractContextManager[object]] = nullcontext  # What a task that has read a block computes in
    fold: Callable[[T, T], T] | None = None  # `merge` that may use up its first state, where nobody else has that


class SavedName(NamedTuple):
    """The name of a node in a checkpoint, and for a leaf the identity of its rows when the pass began."""

    name: str
    rows: str | None = None


@dataclass(frozen=True)
class Part(Generic[T]):
    """The state of a node, and the account of how it came about."""

    value: T
    rows: int = 0  # Rows read; what a checkpoint already has is not counted in the first five
    dropped: int = 0
    nbytes: int = 0
    unsaved_seconds: float = 0.0
    n_saved: int = 0
    covered: int = 0  # Bytes as stored of all rows below
    unchanged: bool = True  # Whether the rows below are those that the names of the nodes promise
    notes: tuple[str, ...] = ()
    laps: Laps = field(default_factory=Laps)

    def __sizeof__(self) -> int:
        # The size by which Dask decides where to merge.
        return object.__sizeof__(self) + int(getattr(self.value, "nbytes", 0))


def run_leaf(
    spec: PassSpec[T],
    spans: Sequence[Span],
    rows: Rows | CachedBlock | None = None,
    before: Part[T] | None = None,
    name: SavedName | None = None,
) -> Part[T]:
    """Return the state of consecutive partitions of a leaf folded in order.

    `rows` is what is there already of a single partition, `before` the fold of the leaf's partitions before these, and
    `name` that of the leaf in the checkpoint, where these are its last partitions.
    """
    source, laps, dropped = spec.source, Laps(), 0
    state = None if before is None else before.value
    # States that are made here are nobody else's; that of no rows is the one before.
    merge = spec.fold if before is None and spec.fold else spec.merge
    with one_blas_thread(), ExitStack() as turn:
        for span in spans:
            turn.close()
            with naming(source, f"partition {span.partition}", span.start, span.stop):
                block = read_block(source, span.start, span.stop, spec.retries, rows, laps)
                if spec.reads_ahead:
                    with laps.step("wait"):
                        turn.enter_context(spec.turn())
                with laps.step("kernel"):
                    value = spec.leaf(block)
                dropped += block.n_dropped
                del block
                with laps.step("merge"):
                    state = value if state is None else merge(state, value)
                del value
            if spec.report is not None:
                spec.report(span)
        assert state is not None
        nbytes = sum(span.nbytes for span in spans)
        start, stop = spans[0].start, spans[-1].stop
        worked = sum(laps.values()) - laps.get("wait", 0.0)
        part = Part(state, stop - start, dropped, nbytes, worked, covered=nbytes, laps=laps)
        if before is not None:
            part = join_parts([before, part], state)
        if name is not None and name.rows is not None:
            part = replace(part, unchanged=source.matrix.identity(stop - part.rows, stop) == name.rows)
        return save_if_due(part, spec.saving, name)


def run_merge(
    spec: PassSpec[T], parts: Sequence[Part[T]], rows: tuple[int, int], name: SavedName | None = None
) -> Part[T]:
    """Return the states of some nodes merged in order; `rows` is the range they cover, for messages."""
    state, laps = parts[0].value, Laps()
    with one_blas_thread(), naming(spec.source, "merging", *rows), laps.step("merge"):
        for part in parts[1:]:
            state = spec.merge(state, part.value)
    if spec.report is not None:
        spec.report(None)
    whole = join_parts(parts, state)
    unsaved = whole.unsaved_seconds + laps["merge"]
    whole = replace(whole, unsaved_seconds=unsaved, laps=Laps.total([whole.laps, laps]))
    return save_if_due(whole, spec.saving, name)


def join_parts(parts: Sequence[Part[Any]], value: T) -> Part[T]:
    """Return a value with the accounts of the nodes that it was made of."""
    counted = ("rows", "dropped", "nbytes", "unsaved_seconds", "n_saved", "covered")
    sums: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in counted}
    notes = tuple(dict.fromkeys(note for part in parts for note in part.notes))
    laps = Laps.total(part.laps for part in parts)
    return Part(value, **sums, unchanged=all(part.unchanged for part in parts), notes=notes, laps=laps)


def read_cached(spec: PassSpec[Any], span: Span, rows: Rows | None = None) -> CachedBlock:
    """Return the prepared block of one partition, which stays where it was read."""
    where = f"partition {span.partition}"
    with one_blas_thread(), naming(spec.source, where, span.start, span.stop), spec.turn():
        return CachedBlock.of(read_block(spec.source, span.start, span.stop, spec.retries, rows))


def load_part(path: str, covered: int, dropped: int = 0) -> Part[Any]:
    """Return a node from a checkpoint."""
    return Part(read_node(path), dropped=dropped, covered=covered)


def read_block(
    source: Source,
    start: int,
    stop: int,
    retries: int,
    rows: Rows | CachedBlock | None = None,
    laps: Laps | None = None,
) -> Block:
    """Return a block; errors of storage that may pass are tried again, each time after a longer pause."""
    if isinstance(rows, CachedBlock):
        return rows.aligned()
    for attempt in range(retries):
        try:
            return source.block(start, stop, rows, laps)
        except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError):
            raise
        except (OSError, ChunkReadError):
            time.sleep(FIRST_PAUSE * 4**attempt)
    return source.block(start, stop, rows, laps)


def save_if_due(part: Part[T], saving: Checkpoint | None, name: SavedName | None) -> Part[T]:
    """Save a node where it is worth it. A run never fails because a checkpoint could not be written."""
    if saving is None or name is None or not part.unchanged:
        return part
    if not saving.is_due(part.covered, part.unsaved_seconds, int(getattr(part.value, "nbytes", 0))):
        return part
    laps = Laps(part.laps)
    with laps.step("save"):
        note = write_node(part.value, saving.directory, name.name)
    if note is not None:
        return replace(part, notes=tuple(dict.fromkeys((*part.notes, note))))
    return replace(part, unsaved_seconds=0.0, n_saved=part.n_saved + 1, laps=laps)


class Stopped(BaseException):
    """Raised by a report to end a task whose result nobody needs any more."""


def place_in_words(source: Source, what: str, start: int, stop: int) -> str:
    """Return a place in the source in words."""
    return f"{source.matrix.address}: {what} ({source.matrix.axes[0]}s {start} to {stop - 1})"


@contextmanager
def naming(source: Source, what: str, start: int, stop: int) -> Iterator[None]:
    """Turn what a task raises into an error that names the partition and its rows, and no value of the data."""
    where = place_in_words(source, what, start, stop)
    try:
        yield
    except Stopped:
        raise
    except SketchSelectError as error:
        # Readers begin with the address too; once is enough.
        message = str(error).removeprefix(f"{source.matrix.address}: ")
        raise type(error)(f"{where}: {message}") from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # a real Ctrl-C: signals reach the main thread only
        raise PartitionFailed(f"{where}: {_without_values(error)}") from error


def _without_values(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, (OSError, MemoryError, ImportError)):
        return f"{name}: {error}"
    # Other libraries' messages may quote the data, so only the place is named.
    *_, (frame, line) = walk_tb(error.__traceback__)
    return f"{name} in {frame.f_code.co_name} ({os.path.basename(frame.f_code.co_filename)}, line {line})"
