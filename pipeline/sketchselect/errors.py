"""Every error this package raises on purpose.

Each message is one line that says what was wrong, where (file, key, partition, row, column), and what to do.
Messages never contain data values. All classes take the message alone, so they survive pickling between processes.
"""

from __future__ import annotations


class SketchSelectError(Exception):
    """Base of all our errors; ``exit_code`` is what the command line returns for it."""

    exit_code = 1


class ConfigError(SketchSelectError, ValueError):
    """A job file or command line that cannot be right."""

    exit_code = 2


class BadParameter(SketchSelectError, ValueError):
    """A parameter outside its range, or two that contradict each other."""


class Incompatible(SketchSelectError, ValueError):
    """Two summaries that may not be merged, or a summary that does not fit the question."""


class NoData(SketchSelectError, ValueError):
    """A description was asked for a statistic: it has seen no data yet."""


class BadBlock(SketchSelectError, ValueError):
    """A block of rows of the wrong shape, type or domain."""


class NotFinite(BadBlock):
    """NaN or infinity where the policy is to refuse them."""


class EmptyInput(SketchSelectError, ValueError):
    """No rows or no columns."""


class SourceError(SketchSelectError, ValueError):
    """A data source that cannot be opened, or is not a numeric matrix."""


class MissingChunks(SourceError):
    """Chunks that the store's metadata promises are not there."""


class ChunkReadError(SourceError):
    """A chunk is there but cannot be read or decoded."""


class SourceChanged(SourceError):
    """The source was rewritten while it was read."""


class DamagedFile(SketchSelectError, ValueError):
    """A file of ours that fails its digest or its format."""


class NotOurFolder(SketchSelectError):
    """An output path that exists and was not made by us: it is never overwritten."""


class RunInProgress(SketchSelectError):
    """Another live process holds the lock of this output folder."""


class WillNotFit(SketchSelectError, ValueError):
    """The projection says the run cannot fit in the memory it was given."""


class PartitionFailed(SketchSelectError):
    """One partition failed for good; the message names it."""


class PartitionCrash(PartitionFailed):
    """A partition whose worker died every time it was tried."""


class Stalled(SketchSelectError):
    """No partition finished within the stall timeout."""

    exit_code = 75


class NoWorkers(SketchSelectError):
    """The cluster has no workers."""

    exit_code = 75


class ClusterLost(SketchSelectError):
    """The scheduler went away; running the same command again resumes."""

    exit_code = 75


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised in the main thread by the command line's handler, so that it takes the way of Ctrl-C."""


class Interrupted(SketchSelectError):
    """Ctrl-C or SIGTERM: finished checkpoints are kept; ``exit_code`` is 130 or 143."""

    exit_code = 130


class BadCluster(SketchSelectError):
    """A cluster of our own that does not start, or a given one that cannot be used."""
