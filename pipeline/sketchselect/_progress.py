"""Progress of passes: a bar on a terminal, a line now and then in a log, or the caller's own object; statistics."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, Literal, TextIO, TypeVar, cast

from sketchselect._byte_sizes import format_bytes
from sketchselect._text import LogStream, counted, format_seconds
from sketchselect.errors import BadParameter

LINE_SECONDS = 5.0
"""Least seconds between two lines in a log."""

BRIEF_LINE_SECONDS = 60.0
"""The same in a brief log."""

LOG = logging.getLogger("sketchselect.progress")
"""Where a job logs all progress, for ``run.log``."""

LOG.setLevel(logging.INFO)
LOG.propagate = False

T = TypeVar("T")

EVENTS = ("start", "advance", "note", "finish")


class Laps(dict[str, float]):
    """Seconds by step of a pass: "read" (with decoding), "prepare" (with screening), "kernel", "merge", "save"."""

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the seconds that the body of the `with` takes to a step."""
        began = time.perf_counter()
        yield
        self[name] = self.get(name, 0.0) + time.perf_counter() - began

    @classmethod
    def total(cls, several: Iterable[Mapping[str, float]]) -> Laps:
        """Return the sums by step."""
        sums = cls()
        for laps in several:
            for name, seconds in laps.items():
                sums[name] = sums.get(name, 0.0) + seconds
        return sums


@dataclass(frozen=True)
class Statistics:
    """What a pass, a part of one, or several passes read and did; they add up.

    What a checkpoint already has is not counted as read.
    """

    rows_read: int = 0
    rows_dropped: int = 0  # Rows left out of the result by the policy for non-finite values
    bytes_read: int = 0
    seconds: float = 0.0
    n_partitions: int = 0
    n_tasks: int = 0
    n_resumed: int = 0  # Nodes taken from a checkpoint
    n_saved: int = 0
    worker_deaths: int = 0
    projected_nbytes: int = 0  # Projected peak memory per process: the largest, in a sum
    profile: Laps = field(default_factory=Laps)  # Seconds by step, of all tasks together
    # What decides whether a node is saved: bytes as stored of all rows below, seconds of work that no file holds, and
    # partitions whose rows have changed since the pass began
    covered: int = 0
    unsaved_seconds: float = 0.0
    n_changed: int = 0
    notes: tuple[str, ...] = ()  # What the user should know, each text once

    def __add__(self, other: Statistics) -> Statistics:
        return Statistics.total((self, other))

    @classmethod
    def total(cls, several: Iterable[Statistics]) -> Statistics:
        """Return the sum of several."""
        parts = list(several)
        sums: dict[str, Any] = dict(zip(_SUMMED, map(sum, zip(*map(_summed, parts), strict=True)), strict=bool(parts)))
        return cls(
            **sums,
            projected_nbytes=max((part.projected_nbytes for part in parts), default=0),
            profile=Laps.total(part.profile for part in parts),
            notes=tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        )

    @property
    def counts(self) -> dict[str, int]:
        """What was read and done, by name: the sums that a manifest states."""
        return {name: getattr(self, name) for name in _COUNTS}


_SUMMED = [f.name for f in fields(Statistics) if f.name not in ("projected_nbytes", "profile", "notes")]
_summed = attrgetter(*_SUMMED)
_COUNTS = (
    "rows_read",
    "rows_dropped",
    "bytes_read",
    "n_partitions",
    "n_tasks",
    "n_resumed",
    "n_saved",
    "worker_deaths",
)


@dataclass(frozen=True)
class Result(Generic[T]):
    """The value of a pass, or the state of one of its nodes, and the statistics of computing it."""

    value: T
    stats: Statistics = field(default_factory=Statistics)

    def __sizeof__(self) -> int:
        # The size by which Dask decides where to merge.
        return object.__sizeof__(self) + int(getattr(self.value, "nbytes", 0))


class Progress:
    """What a pass reports to; this base class reports nothing. Methods may be called from any thread."""

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        """A pass begins, with these bytes to read."""

    def advance(self, nbytes: int) -> None:
        """One more partition, of these bytes, is done."""

    def note(self, text: str) -> None:
        """Something the user should know."""

    def detail(self, text: str) -> None:
        """Something that a brief log leaves out."""
        self.note(text)

    def finish(self, stage: str) -> None:
        """The pass is over, well or not."""


class Lines(Progress):
    """Writes plain lines: bytes, rate and time left, at most one every `every` seconds.

    A brief log has no details, and of a pass only a line a minute while it runs.
    """

    def __init__(self, stream: TextIO | None = None, every: float | None = None, *, is_brief: bool = False) -> None:
        self._stream = stream
        self._every = every or (BRIEF_LINE_SECONDS if is_brief else LINE_SECONDS)
        self._is_brief = is_brief
        self._lock = threading.Lock()
        self._stage, self._total, self._done = "", 0, 0
        self._began = self._last = 0.0
        self._over = threading.Event()

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        """Say what begins."""
        with self._lock:
            self._stage, self._total, self._done = stage, total_bytes, 0
            self._began = self._last = time.monotonic()
            self._over.set()
            self._over = threading.Event()
        # A partition may take minutes, as with many blocks of a certificate.
        threading.Thread(target=self._repeat, args=(self._over,), name="sketchselect-progress", daemon=True).start()
        self.detail(f"{stage}: {counted(n_partitions, 'partition')}, {format_bytes(total_bytes)}")

    def _repeat(self, over: threading.Event) -> None:
        while not over.wait(self._every):
            self.advance(0)

    def advance(self, nbytes: int) -> None:
        """Count, and write a line where it is time for one."""
        with self._lock:
            self._done += nbytes
            now = time.monotonic()
            if now - self._last < self._every:
                return
            self._last = now
            seconds = max(now - self._began, 1e-9)
            text = f"{self._stage}: {format_bytes(self._done)} of {format_bytes(self._total)} "
            if self._done:
                rate = self._done / seconds
                left = format_seconds(max(self._total - self._done, 0) / rate)
                text += f"({self._done / max(self._total, 1):.0%}), {format_bytes(rate)}/s, {left} left"
            else:
                text += f"after {format_seconds(seconds)}: the first partitions are still being computed"
        self.note(text)

    @property
    def _file(self) -> TextIO:
        return cast(TextIO, LogStream(self._stream or sys.stderr))

    def note(self, text: str) -> None:
        """Write a line."""
        print(text, file=self._file, flush=True)

    def detail(self, text: str) -> None:
        """Write a line, if the log is not brief."""
        if not self._is_brief:
            self.note(text)

    def finish(self, stage: str) -> None:
        """Say what was done."""
        with self._lock:
            self._over.set()
            seconds, done = time.monotonic() - self._began, self._done
        rate = format_bytes(done / max(seconds, 1e-9))
        self.detail(f"{stage}: {format_bytes(done)} in {format_seconds(seconds)} ({rate}/s)")


class Bar(Lines):
    """A bar with bytes, rate and time left, on a terminal."""

    _bar: Any = None
    _task: Any = None

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        """Show the bar."""
        from rich import progress as rich
        from rich.console import Console

        self.finish(stage)
        self._began = time.monotonic()
        self._bar = rich.Progress(
            rich.TextColumn("{task.description}", markup=False),
            rich.BarColumn(),
            rich.DownloadColumn(binary_units=True),
            rich.TransferSpeedColumn(),
            rich.TimeRemainingColumn(),
            rich.TimeElapsedColumn(),
            console=Console(file=self._file),
            transient=self._is_brief,
        )
        self._task = self._bar.add_task(stage, total=max(total_bytes, 1))
        self._bar.start()

    def advance(self, nbytes: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, advance=nbytes)

    def note(self, text: str) -> None:
        """Write a line above the bar."""
        if self._bar is None:
            super().note(text)
        else:
            self._bar.console.print(text, markup=False, highlight=False)

    def finish(self, stage: str) -> None:
        """Leave the bar, or remove it from a brief log."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class LogLines(Lines):
    """Writes the lines to `LOG`."""

    def note(self, text: str) -> None:
        """Log a line."""
        LOG.info("%s", text)


def record(level: str, message: str, **further: Any) -> str:
    """Return a line of a log of JSON records: time, level and message, and further entries."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    return json.dumps({"time": stamp, "level": level, "message": message, **further})


def without_traceback(entry: logging.LogRecord) -> bool:
    """As the filter of a handler: remove the traceback of a record that reports no problem, leave out cancelled tasks.

    Dask attaches one to the information that a worker has closed its connection, also at the end of a good run; and
    reports as an error that the end of the run cancelled the start of a worker in place of one that was killed.
    """
    if entry.exc_info:
        from asyncio import CancelledError  # loads slowly

        if isinstance(entry.exc_info[1], CancelledError) and entry.name.startswith("distributed"):
            return False
    if entry.levelno < logging.WARNING:
        entry.exc_info = entry.exc_text = None
    return True


class RecordFormatter(logging.Formatter):
    """Formats the log entries of libraries as JSON records, with the name of the `logger`."""

    def format(self, entry: logging.LogRecord) -> str:
        """Return a line, which has the traceback of an error within its message."""
        return record(entry.levelname.lower(), super().format(entry), logger=entry.name)


class Records(Lines):
    """Writes the lines as JSON records; those of a pass have its name and bytes."""

    def note(self, text: str) -> None:
        """Write a record."""
        further: dict[str, Any] = {"pass": self._stage, "bytes": self._total, "bytes_done": self._done}
        line = record("info", text, **(further if self._stage and text.startswith(f"{self._stage}: ") else {}))
        print(line, file=self._file, flush=True)


METRICS_SECONDS = 1.0
"""Least seconds between two writings of a file of metrics."""

METRICS_HEAD = b"# HELP sketchselect_"
"""What a file of metrics begins with."""

_METRICS = {
    "running": ("gauge", "Whether the job is running."),
    "failed": ("gauge", "Whether the job ended with an error or was stopped."),
    "pass_bytes": ("gauge", "Bytes that the current pass has to read."),
    "pass_done_bytes": ("gauge", "Bytes that the current pass has read."),
    "pass_partitions": ("gauge", "Partitions of the current pass."),
    "pass_done_partitions": ("gauge", "Partitions that the current pass has read."),
    "read_bytes_total": ("counter", "Bytes that all passes have read."),
    "passes_total": ("counter", "Passes that are over."),
    "last_progress_timestamp_seconds": ("gauge", "When something was last done."),
}


class Metrics(Progress):
    """Progress of a job as text for Prometheus, given to `write` about once a second and at the end."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write, self._lock, self._written, self._pass = write, threading.Lock(), -math.inf, ""
        self._values = dict.fromkeys(_METRICS, 0.0) | {"running": 1.0}
        self._step()

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        """Begin a pass."""
        self._pass = stage
        self._step(pass_bytes=total_bytes, pass_partitions=n_partitions, pass_done_bytes=0, pass_done_partitions=0)

    def advance(self, nbytes: int) -> None:
        """Count a partition."""
        self._step({"pass_done_bytes": nbytes, "pass_done_partitions": 1, "read_bytes_total": nbytes})

    def finish(self, stage: str) -> None:
        """Count a pass."""
        self._step({"passes_total": 1})

    def close(self, *, failed: bool) -> None:
        """Write for the last time."""
        self._written = -math.inf
        self._step(running=0, failed=failed)

    def text(self) -> str:
        """Return the metrics in the text format of Prometheus, version 0.0.4."""
        escaped = self._pass.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        lines = []
        for name, (kind, what) in _METRICS.items():
            label = f'{{pass="{escaped}"}}' if name.startswith("pass_") else ""
            lines += [f"# HELP sketchselect_{name} {what}", f"# TYPE sketchselect_{name} {kind}"]
            lines.append(f"sketchselect_{name}{label} {self._values[name]:.17g}")
        return "\n".join(lines) + "\n"

    def _step(self, added: Mapping[str, float] = MappingProxyType({}), **values: float) -> None:
        with self._lock:
            self._values |= {**values, "last_progress_timestamp_seconds": time.time()}
            for name, amount in added.items():
                self._values[name] += amount
            now = time.monotonic()  # the time of day may be set back, and then nothing would be written for long
            if now - self._written < METRICS_SECONDS:
                return
            self._written = now
            # A run does not fail because its metrics, like its log, cannot be written.
            with contextlib.suppress(OSError):
                self._write(self.text().encode())


class SeveralProgress(Progress):
    """Reports every event to several others."""

    def __init__(self, *others: Progress) -> None:
        def report(event: str, *arguments: Any) -> None:
            for other in others:
                # A user's object may have no details; it gets notes.
                getattr(other, event, other.note)(*arguments)

        for event in (*EVENTS, "detail"):
            setattr(self, event, partial(report, event))


class Calls(Progress):
    """Calls a function with every event: its name, such as "start" or "advance", and the arguments of the method."""

    def __init__(self, function: Callable[..., object]) -> None:
        for event in EVENTS:
            setattr(self, event, partial(function, event))


class ThrottledProgress(Progress):
    """Progress of another object, without the passes that begin within `every` seconds of the last one shown.

    Iterations over small data would otherwise fill the screen; slow ones are all shown.
    """

    def __init__(self, progress: Progress, every: float = 5.0) -> None:
        self._progress, self._every = progress, every
        self._shown, self._last = False, -math.inf

    def start(self, stage: str, total_bytes: int, n_partitions: int) -> None:
        """Decide whether this pass is shown."""
        now = time.monotonic()
        self._shown = now - self._last >= self._every
        if self._shown:
            self._last = now
            self._progress.start(stage, total_bytes, n_partitions)

    def advance(self, nbytes: int) -> None:
        """Pass on a partition of a pass that is shown."""
        if self._shown:
            self._progress.advance(nbytes)

    def note(self, text: str) -> None:
        """Pass on."""
        self._progress.note(text)

    def detail(self, text: str) -> None:
        """Pass on."""
        give_detail(self._progress, text)

    def finish(self, stage: str) -> None:
        """Pass on the end of a pass that is shown."""
        if self._shown:
            self._progress.finish(stage)


def give_detail(progress: Progress, text: str) -> None:
    """Report something that a brief log leaves out; a user's object without `detail` gets a note."""
    getattr(progress, "detail", progress.note)(text)


Verbosity = Literal["silent", "brief", "all"]

_verbosity: ContextVar[Verbosity] = ContextVar("_verbosity", default="all")
_logs_json: ContextVar[bool] = ContextVar("_logs_json", default=False)


@contextlib.contextmanager
def _setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a variable this value until the context ends."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextlib.contextmanager
def reporting(verbosity: Verbosity, *, logs_json: bool = False) -> Iterator[None]:
    """Show nothing, a brief log, or everything where progress is requested by True; as text or as JSON records."""
    with _setting(_verbosity, verbosity), _setting(_logs_json, logs_json):
        yield


_step_progress: ContextVar[Progress | None] = ContextVar("_step_progress", default=None)

_task_progress: ContextVar[Progress | None] = ContextVar("_task_progress", default=None)


def reporting_tasks(tasks: Progress | None) -> contextlib.AbstractContextManager[None]:
    """Report all passes and steps of computations to this too, such as the callbacks of a fit; with None to nothing."""
    return _setting(_task_progress, tasks)


def surrounding_tasks() -> Progress | None:
    """Return what `reporting_tasks` set, if anything."""
    return _task_progress.get()


STEP_SECONDS = 2.0
"""Seconds of a computation after which its steps are noted, every `LINE_SECONDS`."""


def reporting_steps(progress: Progress) -> contextlib.AbstractContextManager[None]:
    """Report the steps of long computations (`track`), which read nothing, to this progress."""
    return _setting(_step_progress, progress)


def track(what: str, items: Iterable[T], total: int, *, shows_inner: bool = True) -> Iterator[T]:
    """Yield the items; where that takes seconds, note now and then how many are done: "lasso: folds: 2 of 5, 12 s".

    `shows_inner`: Whether calls of `track` while the caller works on an item report too.
    """
    progress, tasks, began = _step_progress.get(), _task_progress.get() or Progress(), time.monotonic()
    due = began + STEP_SECONDS
    tasks.start(what, 0, total)
    try:
        for done, item in enumerate(items, start=1):
            with contextlib.nullcontext() if shows_inner else _setting(_step_progress, None):
                yield item
            tasks.advance(0)
            now = time.monotonic()
            if progress is not None and now >= due and done < total:
                progress.note(f"{what}: {done} of {total}, {format_seconds(now - began)}")
                due = now + LINE_SECONDS
    finally:
        tasks.finish(what)


def log_line(level: str, text: str) -> str:
    """Return a line for standard error, as the user wants them: a JSON record, or the level and the text."""
    return record(level, text) if _logs_json.get() else f"{level}: {text}"


def make_progress(progress: Progress | Callable[..., object] | bool | None) -> Progress:
    """Return where to report: nothing for False and None, for True a bar on a terminal and lines elsewhere."""
    reporting, tasks = _as_progress(progress), _task_progress.get()
    return reporting if tasks is None else SeveralProgress(reporting, tasks)


def _as_progress(progress: Progress | Callable[..., object] | bool | None) -> Progress:
    if progress is None or progress is False or (progress is True and _verbosity.get() == "silent"):
        return Progress()
    if progress is True:
        is_brief = _verbosity.get() == "brief"
        if _logs_json.get():
            return Records(is_brief=is_brief)
        return Bar(is_brief=is_brief) if sys.stderr.isatty() else Lines(is_brief=is_brief)
    if all(hasattr(progress, event) for event in EVENTS):
        return progress  # type: ignore[return-value]
    if callable(progress):
        return Calls(progress)
    raise BadParameter(
        "progress must be True, False, a function of events, or an object with start, advance, note and finish, "
        f"got {type(progress).__name__}"
    )
