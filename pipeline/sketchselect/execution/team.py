"""Threads that work along with the caller's in many short rounds."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

POLL_SECONDS = 2e-5  # Between two looks of one thread; longer where more threads look
SETTLED_SECONDS = 0.05  # Until the system no longer puts two threads on one processor
MOST_POLLING = 0.02  # Seconds until a thread that waits sleeps
LOOK_SECONDS = 0.5  # Between two looks of one that sleeps: Ctrl-C may come between a change and its notice


class Team:
    """Threads that call a function along with the caller's thread, round by round, until `close`.

    Linux wakes a thread on the processor of the thread that ended its sleep, on virtual machines above all, and the two
    share it for milliseconds while another is idle: all of a short round. So at first each is bound to a processor of
    its own, the caller's thread during rounds alone, and between rounds looks for work, as the caller looks for the
    end, again and again: threads woken by a clock stay.
    """

    def __init__(self, n_helpers: int) -> None:
        self._changed = threading.Condition()
        self._round = self._n_busy = 0
        self._work: Callable[[], None] | None = None
        self._threads: list[threading.Thread] = []
        self._first, self._settled = threading.get_native_id(), time.monotonic() + SETTLED_SECONDS
        try:
            for place in range(1, n_helpers + 1):
                thread = threading.Thread(target=self._help, args=(place,), name=f"sketchselect_{place}")
                thread.start()
                self._threads.append(thread)
        except BaseException:
            self.close()
            raise

    def run(self, work: Callable[[], None]) -> None:
        """Call a function, which must not raise, in all threads at once, and return when all are done."""
        unsettled = self._threads and time.monotonic() < self._settled
        with _on_processor(self._first) if unsettled else contextlib.nullcontext():
            self._begin(work)
            work()
            self.wait()

    def wait(self) -> None:
        """Return when all other threads are done."""
        self._wait_until(lambda: self._n_busy == 0)

    def close(self) -> None:
        """End the threads, which must be done."""
        self._begin(None)
        for thread in self._threads:
            thread.join()

    def _begin(self, work: Callable[[], None] | None) -> None:
        with self._changed:
            self._work, self._n_busy, self._round = work, len(self._threads), self._round + 1
            self._changed.notify_all()

    def _help(self, place: int) -> None:
        with contextlib.ExitStack() as bound:
            bound.enter_context(_on_processor(self._first + place))
            for before in itertools.count():
                self._wait_until(lambda before=before: self._round > before or _python_ends())  # type: ignore[misc]
                if self._round == before or self._work is None:
                    return
                if time.monotonic() > self._settled:
                    bound.close()
                self._work()
                with self._changed:
                    self._n_busy -= 1
                    self._changed.notify_all()

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        end = time.monotonic() + MOST_POLLING
        with _exact_sleep():
            while not is_so() and time.monotonic() < end:
                time.sleep(POLL_SECONDS * len(self._threads))
        with self._changed:
            while not self._changed.wait_for(is_so, LOOK_SECONDS):
                pass


def _python_ends() -> bool:
    return not threading.main_thread().is_alive()


@contextlib.contextmanager
def _exact_sleep() -> Iterator[None]:
    """End short sleeps of this thread on time; Linux may delay them by 50 microseconds, to end several at once."""
    before = _prctl()(_GET_TIMER_SLACK, 0, 0, 0, 0) if sys.platform == "linux" else 0
    if before <= 0:  # there is none, or the system does not say
        yield
        return
    try:
        _prctl()(_SET_TIMER_SLACK, 1, 0, 0, 0)
        yield
    finally:
        _prctl()(_SET_TIMER_SLACK, before, 0, 0, 0)


_SET_TIMER_SLACK, _GET_TIMER_SLACK = 29, 30


@functools.cache
def _prctl() -> Callable[..., int]:
    function = ctypes.CDLL(None).prctl
    function.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return cast(Callable[..., int], function)


@contextlib.contextmanager
def _on_processor(place: int) -> Iterator[None]:
    """Bind this thread to one of its processors, where the system lets it."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_setaffinity") else set()
    try:
        if allowed:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, {sorted(allowed)[place % len(allowed)]})
        yield
    finally:
        if allowed:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, allowed)
