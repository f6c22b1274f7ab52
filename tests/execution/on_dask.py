"""What the tests on real worker processes share: leaves and reads that take their time, and what kills workers."""

import os
import signal
import sys
import time

import cloudpickle

# Its defaults have to be there before a setting is laid over them for a while: afterwards all of them would be gone.
import distributed  # noqa: F401
from tests.passing import Recorder

from sketchselect.execution import PassOptions, reduce_blocks
from sketchselect.execution.tasks import Reduction
from sketchselect.summaries import Bundle, FrequentDirections, Moments

# Worker processes cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

FEW_DEATHS = {"distributed.scheduler.allowed-failures": 1}
"""Two deaths are enough for Dask to give a task up: quicker to test, and harder to survive."""

DESCRIPTION = Bundle({"fd": FrequentDirections(size=8), "mo": Moments()})
OPTIONS = {"partition_bytes": 100 * 128 * 8, "prepare": ["l2"]}


def rows_of(block):
    return [(block.start, block.stop)]


def join(left, right):
    return left + right


def spans(n_rows=1000, height=10):
    return [(a, a + height) for a in range(0, n_rows, height)]


class Slowly:
    """A leaf that takes its time, and does something else in one partition."""

    def __init__(self, seconds, at=None, what=None, marker=None):
        self.seconds, self.at, self.what, self.marker = seconds, at, what, marker

    def __call__(self, block):
        time.sleep(self.seconds)
        if block.start == self.at and not (self.marker and os.path.exists(self.marker)):
            if self.marker:
                open(self.marker, "x").close()
            if self.what == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.what == "exit":
                raise SystemExit(3)
            elif self.what == "interrupt":
                raise KeyboardInterrupt
            elif self.what == "hang":
                time.sleep(60)
        return rows_of(block)


class SlowMatrix:
    """A matrix whose reads take long enough to be killed in."""

    def __init__(self, matrix):
        self.matrix = matrix

    def __getattr__(self, name):
        if name == "matrix" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.matrix, name)

    def read_rows(self, start, stop):
        time.sleep(0.05)
        return self.matrix.read_rows(start, stop)


class Killer(Recorder):
    """A progress that kills a worker when some number of partitions is done."""

    def __init__(self, engine, *after):
        super().__init__()
        self.engine, self.after, self.seen = engine, list(after), 0

    def start(self, stage, total_bytes, n_partitions):
        self.total = total_bytes

    def advance(self, nbytes):
        self.seen += 1
        self.total -= nbytes
        if self.after and self.seen >= self.after[0]:
            self.after.pop(0)
            workers = self.engine.client.run(os.getpid, on_error="ignore")
            os.kill(sorted(workers.values())[0], signal.SIGKILL)


def run(source, engine, leaf=rows_of, merge=join, partition_bytes=320, **options):
    passing = {name: options.pop(name) for name in ("progress", "retries", "stall_timeout") if name in options}
    reduction = Reduction(leaf, merge, **options)
    return reduce_blocks(source, reduction, PassOptions(engine, partition_bytes, **passing))
