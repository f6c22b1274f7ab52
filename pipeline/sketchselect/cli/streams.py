"""Standard streams of the command line: closed ones, and pipes that nobody reads any more."""

from __future__ import annotations

import os
import select
import sys


def open_closed_streams() -> None:
    """Open the null device for standard streams that are closed, so that no other file gets their descriptors."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", closefd=False))  # noqa: SIM115 - for the life of the process


def output_is_unread() -> bool:
    """Return whether standard output is a pipe whose other end is closed."""
    poll = select.poll()
    poll.register(1, select.POLLOUT)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
