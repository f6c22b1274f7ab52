"""The memory of a process: now, at its peak, and its limit."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from pathlib import Path

_M_ARENA_MAX = -8  # of glibc's malloc.h
_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def resident_nbytes(*, reset_peak: bool = False) -> int:
    """Return this process's resident memory (0 where it is unknown), and start its peak again (Linux)."""
    if reset_peak:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_nbytes() -> int:
    """Return the largest resident memory of this process, since its peak was last reset.

    From what the kernel says of this program alone: `getrusage` counts the process that started it, too.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def trim() -> None:
    """Give back to the system what this process has freed, where its C library can (glibc)."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def share_heap() -> None:
    """Let all threads that are started from now on take memory from one heap (glibc), so that `trim` reaches all of it.

    Of a heap of its own a thread gives nothing back, and a job in threads took a fifth more.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def can_reset() -> bool:
    """Return whether this system can start a process's peak again."""
    return os.access("/proc/self/clear_refs", os.W_OK)


def available_nbytes() -> int:
    """Return the memory of this machine, or what the container that the process runs in is allowed of it."""
    import psutil

    memory = int(psutil.virtual_memory().total)
    for name in _CONTAINER_LIMITS:
        # Without a limit the file is absent, or says "max", or more than the machine has.
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(Path(name).read_text()))
    return memory
