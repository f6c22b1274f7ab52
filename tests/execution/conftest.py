"""A tiny matrix whose reads are counted, and worker processes with a store to read."""

import hashlib
import sys

import cloudpickle
import dask
import numpy as np
import pytest
import zarr

from sketchselect.execution import Source, local_cluster, summarize
from sketchselect.readers import Matrix, open_matrix

from .on_dask import DESCRIPTION, FEW_DEATHS, OPTIONS

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


@pytest.fixture(scope="module")
def engine():
    """Two worker processes, for all tests of a file."""
    with dask.config.set(FEW_DEATHS), local_cluster(2, "1GiB") as engine:
        yield engine


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The path of a store of 60 chunks, and its rows."""
    X = np.random.default_rng(0).normal(size=(6000, 128)).astype(np.float32)
    X[:, :4] *= 10
    path = str(tmp_path_factory.mktemp("store") / "x.zarr")
    zarr.create_array(path, data=X, chunks=(100, 128))
    return path, X


@pytest.fixture(scope="module")
def expected(store):
    """What the serial engine makes of the store."""
    return summarize(store[0], DESCRIPTION, y=store[1][:, 0], client="serial", **OPTIONS)


@pytest.fixture
def wide(store):
    """Sixty partitions of 100 rows, from a path."""
    return Source(open_matrix(store[0])), {"partition_bytes": 100 * 128 * 8}
