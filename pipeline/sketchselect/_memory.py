"""The memory of a process: now, at its peak, and its limit."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from pathlib import Path

_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def reuse_blocks() -> None:
    """Let glibc use the memory of a freed block again, up to 64 MiB, unless the environment sets how it allocates.

    Its own limit is 32 MiB, a partition of the default size and a header less: such blocks went back to the system, and
    faulting them in again took a fifth of a pass.
    """
    if not any(name.startswith("MALLOC_") for name in os.environ):
        with contextlib.suppress(AttributeError, OSError):  # other libraries of C have no such function
            set_option = ctypes.CDLL(None).mallopt
            set_option(_M_MMAP_THRESHOLD, 64 << 20)
            set_option(_M_TRIM_THRESHOLD, 128 << 20)


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


def can_reset() -> bool:
    """Return whether this system can start a process's peak again."""
    return os.access("/proc/self/clear_refs", os.W_OK)


def available_nbytes() -> int:
    """Return the memory of this machine, or what the container that the process runs in is allowed of it."""
    import psutil

    memory = int(psutil.virtual_memory().total)
    for name in _CONTAINER_LIMITS:
        # Where there is no limit the file is absent, or says "max", or more than the machine has.
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(Path(name).read_text()))
    return memory
