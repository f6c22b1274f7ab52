"""What runs inside a task: read, summarise, merge, and say which partition it was when that fails. Pure functions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from sketchselect.errors import ChunkReadError, PartitionFailed, SketchSelectError
from sketchselect.execution.checkpoints.files import write_node
from sketchselect.execution.source import Block, Source
from sketchselect.linalg.threads import one_blas_thread

T = TypeVar("T")

FIRST_PAUSE = 0.2
"""Seconds before a read is tried again; four times longer each time."""

Tick = Callable[[int], None]
"""Called with the bytes of each partition that is done; may raise to stop the task."""


@dataclass(frozen=True)
class Recipe(Generic[T]):
    """What all tasks of a pass share.

    Parameters
    ----------
    source : Source
        Where blocks come from.
    leaf : callable
        Block -> state; pure.
    merge : callable
        (state, state) -> state; pure, changes neither.
    retries : int
        How often a failed read is tried again.
    """

    source: Source
    leaf: Callable[[Block], T]
    merge: Callable[[T, T], T]
    retries: int = 2


@dataclass(frozen=True)
class SaveOrder:
    """Where, and when, a finished node is kept (see `checkpoint`).

    Parameters
    ----------
    directory, name : str
        Folder of the checkpoint, and name of the node in it. Without a folder it is kept on the shelf alone.
    always : bool
        Whether its size alone makes it worth keeping.
    min_seconds : float
        Work not kept yet that makes it worth keeping.
    start, stop : int
        The node's rows.
    identity : str or None
        Identity of these rows when the pass began: a node whose rows have changed since is not kept. None: not checked.
    durable : bool
        Whether the file has to outlive this run.
    handed_on : bool
        Whether the node above needs the state; otherwise it gets None.
    shelf : dict or None
        Where the state itself is put under its name, by engines whose tasks run in this process.
    """

    directory: str
    name: str
    always: bool
    min_seconds: float
    start: int
    stop: int
    identity: str | None
    durable: bool = True
    handed_on: bool = True
    shelf: dict[str, Any] | None = None


@dataclass(frozen=True)
class Part(Generic[T]):
    """The state of a node, and the account of how it came about.

    Parameters
    ----------
    value : object
        The state.
    rows, dropped, nbytes : int
        Rows read, rows left out, bytes as stored, all without what a checkpoint already held.
    unsaved_seconds : float
        Work below this node that no checkpoint holds.
    n_saved : int
        Checkpoints written below this node.
    notes : tuple of str
        What the user should be told.
    """

    value: T
    rows: int = 0
    dropped: int = 0
    nbytes: int = 0
    unsaved_seconds: float = 0.0
    n_saved: int = 0
    notes: tuple[str, ...] = ()

    def __sizeof__(self) -> int:
        # What a scheduler goes by when it decides where to merge.
        return object.__sizeof__(self) + int(getattr(self.value, "nbytes", 0))


def run_leaf(
    recipe: Recipe[T],
    first: int,
    spans: Sequence[tuple[int, int]],
    order: SaveOrder | None = None,
    tick: Tick | None = None,
) -> Part[T]:
    """Return the state of consecutive partitions folded in order; `first` is the index of the first of them."""
    began = time.perf_counter()
    source = recipe.source
    state: T | None = None
    dropped = nbytes = 0
    with one_blas_thread():
        for index, (start, stop) in enumerate(spans, first):
            with _named(source, index, start, stop):
                block = read_block(source, start, stop, recipe.retries)
                value = recipe.leaf(block)
                dropped += block.n_dropped
                del block
                state = value if state is None else recipe.merge(state, value)
                del value
            read = source.matrix.stored_nbytes(start, stop)
            nbytes += read
            if tick is not None:
                tick(read)
    rows = spans[-1][1] - spans[0][0]
    assert state is not None
    part = Part(state, rows, dropped, nbytes, time.perf_counter() - began)
    return kept(part, order, source)


def run_merge(
    recipe: Recipe[T], parts: Sequence[Part[T]], rows: tuple[int, int], order: SaveOrder | None = None
) -> Part[T]:
    """Return the states of some nodes merged in order; `rows` is what they cover, for messages."""
    began = time.perf_counter()
    state = parts[0].value
    with one_blas_thread(), _named(recipe.source, None, *rows):
        for part in parts[1:]:
            state = recipe.merge(state, part.value)
    part = Part(
        state,
        sum(p.rows for p in parts),
        sum(p.dropped for p in parts),
        sum(p.nbytes for p in parts),
        sum(p.unsaved_seconds for p in parts) + time.perf_counter() - began,
        sum(p.n_saved for p in parts),
        tuple(dict.fromkeys(note for p in parts for note in p.notes)),
    )
    return kept(part, order, recipe.source)


def read_block(source: Source, start: int, stop: int, retries: int) -> Block:
    """Return a block; errors of storage that may pass are tried again, each time after a longer pause."""
    for attempt in range(retries):
        try:
            return source.block(start, stop)
        except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError):
            raise
        except (OSError, ChunkReadError):
            time.sleep(FIRST_PAUSE * 4**attempt)
    return source.block(start, stop)


def kept(part: Part[T], order: SaveOrder | None, source: Source) -> Part[T]:
    """Keep a node where it is worth it. A run never fails because a checkpoint could not be written."""
    if order is None or not (order.always or part.unsaved_seconds >= order.min_seconds):
        return part
    if order.identity is not None and source.matrix.identity(order.start, order.stop) != order.identity:
        return part
    if order.shelf is not None:
        order.shelf[order.name] = part.value
    if order.directory:
        note = write_node(part.value, order.directory, order.name, durable=order.durable)
        if note is not None:
            return replace(part, notes=tuple(dict.fromkeys((*part.notes, note))))
        part = replace(part, unsaved_seconds=0.0, n_saved=part.n_saved + 1)
    return part if order.handed_on else replace(part, value=cast(T, None))


class _named:
    """Turn what a task raises into an error that names the partition and its rows, and no value of the data."""

    def __init__(self, source: Source, index: int | None, start: int, stop: int) -> None:
        what = "merging" if index is None else f"partition {index}"
        self.address = source.matrix.address
        self.where = f"{self.address}: {what} ({source.matrix.axes[0]}s {start} to {stop - 1})"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if error is None or isinstance(error, Stopped):
            return
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            return  # a real Ctrl-C: signals reach the main thread only
        if isinstance(error, SketchSelectError):
            # Readers begin with the address too; once is enough.
            said = str(error).removeprefix(f"{self.address}: ")
            raise _same_kind(error, f"{self.where}: {said}") from error
        raise PartitionFailed(f"{self.where}: {_without_values(error)}") from error


class Stopped(BaseException):
    """Raised by a tick to end a task that nobody waits for any more."""


def _same_kind(error: SketchSelectError, message: str) -> SketchSelectError:
    try:
        return type(error)(message)
    except Exception:
        return PartitionFailed(message)


def _without_values(error: BaseException) -> str:
    name = type(error).__name__
    if isinstance(error, (OSError, MemoryError, ImportError)):
        return f"{name}: {error}"
    # Other libraries' messages may quote the data, so only the place is named.
    trace = error.__traceback__
    if trace is None:
        return name
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{name} in {code.co_name} ({os.path.basename(code.co_filename)}, line {trace.tb_lineno})"
