"""Workers that die, tasks that fail and passes that stand still: the same bits, or an error naming the partition."""

import contextlib
import os
import signal
import time

import dask
import numpy as np
import pytest
from tests.passing import Recorder, dask_cluster, serial

from sketchselect.errors import NoWorkers, PartitionCrash, PartitionFailed, Stalled
from sketchselect.execution import (
    DaskEngine,
    PassOptions,
    Source,
    local_cluster,
    reduce_blocks,
    summarize,
    summarize_source,
    watch,
)
from sketchselect.execution.dask_engine import ClusterPass, gathering
from sketchselect.execution.tasks import Reduction
from sketchselect.summaries import FrequentDirections

from .on_dask import FEW_DEATHS, Killer, Slowly, SlowMatrix, run, spans

pytestmark = pytest.mark.slow

# --- deaths ----------------------------------------------------------------------------------------------------------


def test_killed_workers_do_not_change_the_bits(engine, wide, store, expected):
    source, options = wide
    local = summarize_source(source, FrequentDirections(size=8), serial(**options))
    killer = Killer(engine, 10, 25)
    slow = SlowMatrix(source.matrix)
    got = summarize_source(Source(slow), FrequentDirections(size=8), PassOptions(engine, progress=killer, **options))
    assert got.value == local.value
    assert got.stats.worker_deaths == 2
    assert sum("worker died" in note for note in killer.notes) == 2
    assert killer.total == 0


def test_rows_lost_with_the_worker_that_held_them_are_sent_again(engine, store):
    description = FrequentDirections(size=8)
    serial = summarize(store[1], description, client="serial", partition_bytes=200 * 128 * 8)

    class SlowFrequentDirections(FrequentDirections):
        def from_block(self, X, y=None, **options):
            time.sleep(0.1)
            return super().from_block(X, y, **options)

    killer = Killer(engine, 3, 9, 15)
    got = summarize(
        store[1], SlowFrequentDirections(size=8), client=engine, partition_bytes=200 * 128 * 8, progress=killer
    )
    assert got.sketch.tobytes() == serial.sketch.tobytes()
    assert got.shrinkage == serial.shrinkage
    assert killer.after == []


def test_a_task_that_kills_its_worker_once_is_run_again(engine, tiny, tmp_path):
    leaf = Slowly(0, at=500, what="die", marker=str(tmp_path / "died"))
    reduced = run(tiny(1000), engine, leaf=leaf)
    assert reduced.value == spans()
    assert reduced.stats.worker_deaths == 1


def test_a_task_that_always_kills_its_worker_is_named(engine, tiny):
    with pytest.raises(PartitionCrash) as info:
        run(tiny(1000), engine, leaf=Slowly(0, at=500, what="die"))
    message = str(info.value)
    assert message.startswith("tiny: partition 50 (rows 500 to 509): worker died 2 times")
    assert "limit 1.00 GiB" in message
    assert "none for exceeding the memory limit" in message
    assert "partition_bytes" in message
    assert run(tiny(1000), engine).value == spans()


def test_a_worker_killed_for_its_memory_is_named_so(tiny):
    def hog(block):
        if block.start == 30:
            arrays = [np.ones(2**24) for _ in range(40)]
            time.sleep(5)
            return len(arrays)
        return 1

    with (
        dask.config.set(FEW_DEATHS),
        local_cluster(1, "500MiB") as small,
        pytest.raises(PartitionCrash, match=r"partition 3 .*killed for exceeding"),
    ):
        run(tiny(100), small, leaf=hog, merge=lambda a, b: a + b)


def test_a_worker_that_dies_when_it_is_asked_for_its_libraries_is_left_out(tmp_path, monkeypatch):
    from sketchselect.execution import dask_engine
    from sketchselect.execution.plan import local_build

    marker = tmp_path / "died"

    def dies_once():
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return local_build()
        os._exit(1)

    monkeypatch.setattr(dask_engine, "local_build", dies_once)
    with dask_cluster(2) as (_, client):
        assert DaskEngine(client).build() == local_build()
    assert marker.exists()


# --- errors in tasks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "name"), [("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt")])
def test_leaving_inside_a_task_does_not_kill_the_worker(engine, tiny, what, name):
    before = sorted(engine.client.run(os.getpid).values())
    with pytest.raises(PartitionFailed, match=rf"partition 50 \(rows 500 to 509\): {name}"):
        run(tiny(1000), engine, leaf=Slowly(0, at=500, what=what))
    assert sorted(engine.client.run(os.getpid).values()) == before


def test_what_workers_cannot_load_is_said(engine, tiny):
    class Unloadable:
        def __call__(self, block):
            return 0

        def __reduce__(self):
            return __import__, ("no_such_module_anywhere",)

    with pytest.raises(PartitionFailed, match="same environment"):
        run(tiny(20), engine, leaf=Unloadable())


def test_a_pass_that_stands_still_is_given_up(tiny):
    said = r"no partition was finished in 4\.00 s .*127\.0\.0\.1.*running.* of .*GiB, 1 running.*no task that runs"
    with local_cluster(2) as own, pytest.raises(Stalled, match=said):
        run(tiny(1000), own, leaf=Slowly(0, at=500, what="hang"), stall_timeout=4.0)


def test_no_workers_is_an_error_and_not_a_wait(tiny):
    with dask_cluster(0) as (cluster, client):
        with pytest.raises(NoWorkers, match="no worker after"):
            DaskEngine(client, worker_timeout=0.3)
        cluster.scale(1)
        engine = DaskEngine(client, worker_timeout=60.0)
        engine.worker_timeout = 1.0
        cluster.scale(0)
        cluster.sync(cluster._correct_state)
        engine._await_workers = lambda progress: None
        engine._refresh = lambda: None
        with pytest.raises(NoWorkers, match="no workers for"):
            run(tiny(100), engine, leaf=Slowly(0.1))


def test_a_wait_for_the_first_worker_is_reported():
    with dask_cluster(0) as (cluster, client):
        for worker_timeout, notes in ((0.2, 0), (4.0, 1)):
            progress = Recorder()
            with pytest.raises(NoWorkers, match="no worker after"):
                DaskEngine(client, worker_timeout=worker_timeout, progress=progress)
            assert len(progress.notes) == notes
        address = cluster.scheduler_address
        assert progress.notes == [f"{address}: no worker is connected to the scheduler; waiting up to 4.00 s"]


def test_a_long_wait_for_a_worker_is_reported_again(monkeypatch):
    monkeypatch.setattr("sketchselect.execution.dask_engine.REPORTED_SECONDS", 0.1)
    monkeypatch.setattr("sketchselect.execution.dask_engine.REMINDER_SECONDS", 0.5)
    with dask_cluster(0) as (_, client):
        progress = Recorder()
        with pytest.raises(NoWorkers, match=r"no worker after 1\.40 s"):
            DaskEngine(client, worker_timeout=1.4, progress=progress)
        ends = [note.rpartition("waiting up to ")[2] for note in progress.notes]
        assert ends == ["1.40 s", "0.80 s more", "0.30 s more"]


def test_a_result_lost_with_the_last_worker_is_not_waited_for(tiny, monkeypatch):
    """Dask asks the scheduler for the result, which has it computed again, and that waits for a worker for ever."""
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.1)
    collect = ClusterPass._collect
    with dask_cluster(1, processes=False) as (cluster, client):

        def collect_too_late(self, output):
            cluster.scale(0)
            cluster.sync(cluster._correct_state)
            collect(self, output)

        monkeypatch.setattr(ClusterPass, "_collect", collect_too_late)
        with pytest.raises(NoWorkers, match="no workers for"):
            run(tiny(100), DaskEngine(client, worker_timeout=1.0), leaf=Slowly(0))


def test_a_result_that_takes_long_to_send_is_no_standstill(engine, tiny):
    class Parcel:
        def __reduce__(self):
            time.sleep(3)
            return int, (7,)

    reduction = Reduction(lambda block: Parcel(), lambda a, b: a)
    assert reduce_blocks(tiny(10), reduction, PassOptions(engine, "1MB", stall_timeout=1.0)).value == 7


def test_results_that_are_given_up_leave_the_client_usable(engine):
    """Dask fetches at most five batches at a time; a request that is cancelled before its turn would stay for ever."""
    client = engine.client
    holder, pid = next(iter(client.run(os.getpid).items()))
    futures = [client.submit(int, i, pure=False, workers=[holder]) for i in range(8)]
    client.gather(futures)
    os.kill(pid, signal.SIGSTOP)
    try:
        with contextlib.ExitStack() as stack:
            for future in futures:
                stack.enter_context(gathering(client, [future]))
                time.sleep(0.2)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert client.gather(client.submit(sum, [1, 2], pure=False), asynchronous=False) == 3
