"""A tiny matrix, and states that remember in which order they were merged."""

import hashlib
import sys

import cloudpickle
import numpy as np
import pytest

from sketchselect.execution import Source
from sketchselect.readers import Matrix

# Worker processes cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class TinyMatrix(Matrix):
    """Row i holds i in every column; reads are counted, and fail where they are told to."""

    def __init__(self, n_rows=100, n_columns=4, version="1"):
        self.shape, self.dtype, self.address = (n_rows, n_columns), np.dtype(np.float64), "tiny"
        self.version = version
        self.rewritten = {}
        self.reads = []
        self.faults = {}

    def read_rows(self, start, stop):
        self.reads.append((start, stop))
        fault = self.faults.get(len(self.reads))
        if fault is not None:
            raise fault
        return np.repeat(np.arange(start, stop, dtype=float)[:, None], self.shape[1], axis=1)

    def identity(self, start, stop):
        rows = [(r, v) for r, v in self.rewritten.items() if start <= r < stop]
        return hashlib.sha1(f"{self.version} {start} {stop} {rows}".encode()).hexdigest()


@pytest.fixture
def tiny():
    """Return a maker of sources; a partition of 320 bytes is ten rows."""
    return lambda *args, **kwargs: Source(TinyMatrix(*args, **kwargs))
