"""Errors of the package, and the place of its warnings.

Each message is one line that says what was wrong, where (file, key, partition, row, column), and what to do.
Messages never contain data values. All classes take the message alone, so they survive pickling between processes.
"""

from __future__ import annotations

import sys
import warnings

from sketchselect._text import without_credentials

_PASSED_OVER = {"sketchselect", "sklearn"}


NO_MORE_THREADS = "the system starts no more threads; raise the limit of this user (ulimit -u) or of the container"
"""What is wrong where Python cannot start a thread."""


def is_out_of_threads(error: BaseException) -> bool:
    """Return whether the system has refused to start a thread."""
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"


class SketchSelectError(Exception):
    """Base class of all errors; ``exit_code`` is the exit code of the command line.

    Addresses in the message have neither user and password nor a query, in which signatures stand.
    """

    exit_code = 1

    def __init__(self, *parts: object) -> None:
        super().__init__(*(without_credentials(part) if isinstance(part, str) else part for part in parts))


class ConfigError(SketchSelectError, ValueError):
    """A mistake in a job file or on the command line."""

    exit_code = 2


class BadParameter(SketchSelectError, ValueError):
    """A parameter outside its range, or two that contradict each other."""


class Incompatible(SketchSelectError, ValueError):
    """Summaries that cannot be merged, or a summary that cannot answer the question."""


class NoData(SketchSelectError, ValueError):
    """A statistic of a summary that has no data yet."""


class BadBlock(SketchSelectError, ValueError):
    """A block of rows of the wrong shape, type or domain."""


class NotFinite(BadBlock):
    """NaN or infinity where the policy refuses them."""


class EmptyInput(SketchSelectError, ValueError):
    """No rows or no columns."""


class SourceError(SketchSelectError, ValueError):
    """A data source that cannot be opened, or is not a numeric matrix."""


class SourceMissing(SourceError):
    """Nothing is where a data source was looked for."""


class MissingChunks(SourceError):
    """Chunks that the metadata of a store requires and that do not exist."""


class ChunkReadError(SourceError):
    """A chunk that exists but cannot be read or decoded."""


class SourceOutOfReach(ChunkReadError):
    """What a web server does not give now and may give later; the same command resumes."""

    exit_code = 75


class SourceChanged(SourceError):
    """The source was rewritten while it was read."""


class DamagedFile(SketchSelectError, ValueError):
    """A file of sketchselect with a wrong checksum or format."""


class BadPlugin(SketchSelectError):
    """A part of another package that cannot be loaded, or is not what its entry point says."""


class NotOurFolder(SketchSelectError):
    """An output path that exists and was not made by sketchselect; it is never overwritten."""


class RunInProgress(SketchSelectError):
    """Another live process holds the lock of this output folder."""


class WillNotFit(SketchSelectError, ValueError):
    """The projected memory of a run exceeds its limit."""


class OutputFailed(SketchSelectError):
    """What a task has to write cannot be written: the disk is full, say."""


class PartitionFailed(SketchSelectError):
    """A partition that failed on every attempt; the message names it."""


class PartitionCrash(PartitionFailed):
    """A partition whose worker died on every attempt."""


class Stalled(SketchSelectError):
    """No partition finished within the stall timeout."""

    exit_code = 75


class NoWorkers(SketchSelectError):
    """The cluster has no workers."""

    exit_code = 75


class ClusterLost(SketchSelectError):
    """The scheduler was lost; the same command resumes the run."""

    exit_code = 75


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised in the main thread by the command line so that it is handled like Ctrl-C."""

    exit_code = 143


class HungUp(Terminated):
    """The same for SIGHUP: the terminal is closed, or its connection is lost."""

    exit_code = 129


class Interrupted(SketchSelectError):
    """Ctrl-C, SIGTERM or SIGHUP; ``exit_code`` is 130, 143 or 129.

    Parameters
    ----------
    message : str
        What happened.
    saved : str
        What of the interrupted pass is in checkpoints, in words.
    """

    exit_code = 130

    def __init__(self, message: str, saved: str = "") -> None:
        super().__init__(message)
        self.saved = saved


class BadCluster(SketchSelectError):
    """A local cluster that does not start, or another one that cannot be used."""


class NoScheduler(BadCluster):
    """A scheduler that cannot be reached."""


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called the package, or scikit-learn's that called it."""
    level, frame = 2, sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _PASSED_OVER and frame.f_back:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
