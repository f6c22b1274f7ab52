"""Workers that freeze for good, and workers that are killed for their memory: named, replaced, the same result."""

import os
import signal

import numpy as np
import pytest
from tests.execution.on_dask import Slowly, run, spans
from tests.passing import Recorder

from sketchselect.errors import NoWorkers
from sketchselect.execution import Source, local_cluster
from sketchselect.execution.clusters import connect
from sketchselect.readers import open_matrix

pytestmark = pytest.mark.slow


class Freezer(Recorder):
    """Stops a worker, for good, when the first partition is done."""

    def __init__(self, pids):
        super().__init__()
        self.pids = list(pids)

    def advance(self, nbytes):
        if self.pids:
            os.kill(self.pids.pop(), signal.SIGSTOP)
            self.pids = []


@pytest.fixture
def source():
    return Source(open_matrix(np.ones((1000, 4))))


@pytest.mark.parametrize(
    ("elsewhere", "worker_ttl", "stall_timeout"), [(False, None, 100.0), (True, 15.0, 100.0), (True, None, 15.0)]
)
def test_a_worker_that_freezes_is_named_and_replaced(source, elsewhere, worker_ttl, stall_timeout):
    with local_cluster(2) as own, connect(own.client.scheduler.address, worker_ttl=worker_ttl) as other:
        freezer = Freezer(nanny.pid for nanny in own.nannies)
        frozen = own.nannies[-1].worker_address
        engine = other if elsewhere else own
        # Nothing else would end the wait: the scheduler of `own` never gives a worker up.
        reduced = run(source, engine, leaf=Slowly(0.05), progress=freezer, stall_timeout=stall_timeout)
    assert reduced.value == spans()
    assert reduced.stats.worker_deaths == 1
    assert any(f"nothing heard from worker {frozen}" in note for note in freezer.notes), freezer.notes
    assert any(f"worker {frozen} is given up" in note for note in freezer.notes), freezer.notes


def test_a_cluster_of_our_own_that_is_empty_says_why(source):
    def hog(block):
        arrays = [np.ones(2**24) for _ in range(20)]
        return [len(arrays)]

    async def does_not_start(): ...

    with local_cluster(1, "400MiB", worker_timeout=3.0) as own:
        own.nannies[0].instantiate = does_not_start
        with pytest.raises(NoWorkers, match=r"1 worker\(s\) were killed for exceeding the memory limit of 400.00 MiB"):
            run(source, own, leaf=hog)
        with pytest.raises(NoWorkers, match=r"no worker after 3.00 s: 1 worker\(s\) were killed .* memory_limit"):
            run(source, own)
