"""The errors of the package.

A message is one line that says what is wrong, where (file, key, partition, row, column), and what to do. It never
contains data values. All classes take the message alone, so that they can be pickled between processes.
"""

from __future__ import annotations


class SketchSelectError(Exception):
    """Base class of the errors of the package; ``exit_code`` is that of the command line."""

    exit_code = 1


class ConfigError(SketchSelectError, ValueError):
    """An invalid job file or command line."""

    exit_code = 2


class BadParameter(SketchSelectError, ValueError):
    """A parameter outside its range, or parameters that contradict each other."""


class Incompatible(SketchSelectError, ValueError):
    """Summaries that cannot be merged, or a summary unfit for its use."""


class NoData(SketchSelectError, ValueError):
    """A statistic of a description, which has no data."""


class BadBlock(SketchSelectError, ValueError):
    """A block of rows of the wrong shape, type or domain."""


class NotFinite(BadBlock):
    """NaN or infinity under a policy that refuses them."""


class EmptyInput(SketchSelectError, ValueError):
    """No rows or no columns."""


class SourceError(SketchSelectError, ValueError):
    """A data source that cannot be opened, or is not a numeric matrix."""


class MissingChunks(SourceError):
    """Chunks missing from a store, according to its metadata."""


class ChunkReadError(SourceError):
    """A chunk that exists but cannot be read or decoded."""


class SourceChanged(SourceError):
    """The source was rewritten while it was read."""


class DamagedFile(SketchSelectError, ValueError):
    """A file of this package with a wrong digest or format."""


class NotOurFolder(SketchSelectError):
    """An existing output path that this package did not create; it is never overwritten."""


class RunInProgress(SketchSelectError):
    """Another live process holds the lock of this output folder."""


class WillNotFit(SketchSelectError, ValueError):
    """Projected memory beyond the limit."""


class PartitionFailed(SketchSelectError):
    """A partition that failed in spite of retries; the message names it."""


class PartitionCrash(PartitionFailed):
    """A partition whose worker died at every attempt."""


class Stalled(SketchSelectError):
    """No partition finished within the stall timeout."""

    exit_code = 75


class NoWorkers(SketchSelectError):
    """The cluster has no workers."""

    exit_code = 75


class ClusterLost(SketchSelectError):
    """Connection to the scheduler lost; running the same command again resumes."""

    exit_code = 75


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised in the main thread by the command line's handler, to be handled like Ctrl-C."""


class Interrupted(SketchSelectError):
    """Ctrl-C or SIGTERM: finished checkpoints remain; ``exit_code`` is 130 or 143."""

    exit_code = 130


class BadCluster(SketchSelectError):
    """A local cluster that does not start, or another cluster that cannot be used."""
