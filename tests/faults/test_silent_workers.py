"""Workers that freeze for good, and workers that are killed for their memory: named, replaced, the same result."""

import os
import signal
import threading
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from tests.execution.on_dask import Slowly, run, spans
from tests.passing import Recorder

from sketchselect.errors import ClusterLost, NoWorkers, Stalled
from sketchselect.execution import Source, dask_engine, local_cluster, watch
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


@pytest.mark.share(0, 2)
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


def test_workers_that_are_all_frozen_are_not_said_to_be_unable_to_write(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_engine, "ANSWER_SECONDS", 1.0)
    with (
        local_cluster(1, worker_ttl=3600.0) as own,
        connect(own.client.scheduler.address, worker_timeout=25.0) as other,
    ):
        worker = psutil.Process(own.nannies[0].pid)
        worker.suspend()
        try:
            with pytest.raises(
                ClusterLost, match=r"no worker has said in 25 s whether it can write .* silent\); .* again"
            ):
                other.can_write(tmp_path)
            thaw = threading.Timer(3.0, worker.resume)
            thaw.start()
            assert own.can_write(tmp_path)
            thaw.join()
        finally:
            worker.resume()


def test_a_cluster_of_our_own_that_is_empty_says_why(source):
    def hog(block):
        arrays = [np.ones(2**24) for _ in range(20)]
        return [len(arrays)]

    async def does_not_start(): ...

    with local_cluster(1, "600MiB", worker_timeout=3.0) as own:
        own.nannies[0].instantiate = does_not_start
        with pytest.raises(NoWorkers, match=r"1 worker\(s\) were killed for exceeding the memory limit of 600.00 MiB"):
            run(source, own, leaf=hog)
        with pytest.raises(NoWorkers, match=r"no worker after 3.00 s: 1 worker\(s\) were killed .* memory_limit"):
            run(source, own)


class ByHand:
    """A watch of workers that exist on paper, and a clock that moves on by three seconds from look to look.

    The first `n_silent` workers, w0 and those that replace others, never send a heartbeat.
    """

    status, id = "running", "by hand"

    def __init__(self, monkeypatch, n_silent, workers=("w0",), same_address=False, **limits):
        for name in ("_listen", "_unlisten"):
            monkeypatch.setattr(watch, name, lambda *given: None)
        thread = SimpleNamespace(start=lambda: None, join=lambda timeout: None)
        monkeypatch.setattr(watch.threading, "Thread", lambda **given: thread)
        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: self.seconds))
        self.seconds, self.n_silent, self.same_address = 0.0, n_silent, same_address
        self.workers, self.replaced, self.done = {address: number for number, address in enumerate(workers)}, [], ()
        self.watch = watch.ClusterWatch(self, "a pass", progress=Recorder(), worker_timeout=60.0, **limits)

    def scheduler_info(self, n_workers):
        busy = {"status": "running", "metrics": {"task_counts": {"executing": 1}}}
        heard = {name: number if number < self.n_silent else self.seconds for name, number in self.workers.items()}
        return {"workers": {address: busy | {"last_seen": last} for address, last in heard.items()}}

    def run_on_scheduler(self, function, address, wait):
        del self.workers[address]
        self.replaced.append(self.seconds)
        self.workers[address if self.same_address else f"w{len(self.replaced)}"] = len(self.replaced)

    def wait(self, seconds):
        self.seconds += seconds
        if self.seconds in self.done:
            self.watch.progressed()
        self.watch.check()
        return self.seconds >= 1000.0

    def ends(self, done=()):
        """Return when the pass is given up; partitions are done at the seconds `done`."""
        self.done, self.watch._over = done, self
        with pytest.raises(Stalled) as caught:
            self.watch._look()
        self.said = str(caught.value)
        return self.seconds


@pytest.mark.parametrize("same_address", [False, True])
@pytest.mark.parametrize(
    ("n_silent", "worker_ttl", "done", "replaced", "ends"),
    [
        (99, None, (), [33], 66),  # the one that replaces it is silent, too
        (99, None, (60, 120), [33, 93, 153], 186),  # ... and each does one partition before
        (99, 15.0, (), [18, 36], 51),  # the limit of a worker goes on as before
        (1, 15.0, (45,), [18], 78),  # a later stall is that of workers that are heard from
        (1, 15.0, (), [18], 51),
        (1, 27.0, (), [30], 63),  # one replaced just before the end has as long as it had
        (0, 15.0, (), [], 33),
    ],
)
def test_a_stall_waits_for_workers_that_replace_others_once(
    monkeypatch, n_silent, worker_ttl, done, replaced, ends, same_address
):
    by_hand = ByHand(monkeypatch, n_silent, same_address=same_address, stall_timeout=30.0, worker_ttl=worker_ttl)
    assert by_hand.ends(done) == ends
    assert by_hand.replaced == replaced


def test_a_pass_that_stands_still_without_workers_says_so(monkeypatch):
    by_hand = ByHand(monkeypatch, 0, workers=(), stall_timeout=30.0)
    assert by_hand.ends() == 33
    assert "(no workers)" in by_hand.said
    assert "paused" not in by_hand.said
