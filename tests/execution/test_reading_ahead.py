"""Reading ahead of computing: of remote sources a task reads beside each that computes, with the same answers."""

import os
import threading
import time

import pytest

from sketchselect.errors import PartitionFailed, WillNotFit
from sketchselect.execution import LocalEngine, PassOptions, Source, local_cluster
from sketchselect.execution.engine import make_plan
from sketchselect.execution.source import CachedSource
from sketchselect.execution.tasks import Reduction

from .conftest import TinyMatrix
from .on_dask import join, rows_of, run, spans

N_PARTITIONS = 12
PATIENCE = 20.0
"""Seconds after which a leaf gives up waiting for the next read to begin."""


class RemoteMatrix(TinyMatrix):
    """A tiny matrix that says it is remote, and leaves a file for every read that has begun."""

    is_remote = True

    def __init__(self, *args, folder=None):
        super().__init__(*args)
        self.folder = folder

    def read_rows(self, start, stop):
        if self.folder is not None:
            open(os.path.join(self.folder, f"read-{start}"), "w").close()
        return super().read_rows(start, stop)


class WaitsForRead:
    """A leaf that ends when a read has begun that was not there when it began; only one of them runs at a time."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, block):
        alone, done = os.path.join(self.folder, "alone"), os.path.join(self.folder, f"done-{block.start}")
        os.close(os.open(alone, os.O_CREAT | os.O_EXCL))  # fails where another leaf computes
        n_done = len([name for name in os.listdir(self.folder) if name.startswith("done")])
        until, enough = time.monotonic() + PATIENCE, min(n_done + 2, N_PARTITIONS)
        while (n_read := sum(name.startswith("read") for name in os.listdir(self.folder))) < enough:
            if time.monotonic() > until:
                break
            time.sleep(0.005)
        open(done, "w").close()
        os.remove(alone)
        return [(block.start, n_read >= enough)]


def ahead(tmp_path, engine, **options):
    return run(Source(RemoteMatrix(10 * N_PARTITIONS, folder=str(tmp_path))), engine, WaitsForRead(tmp_path), **options)


def test_the_next_partition_is_read_while_one_is_computed(tmp_path):
    assert ahead(tmp_path, LocalEngine(1)).value == [(10 * i, True) for i in range(N_PARTITIONS)]


@pytest.mark.slow
def test_workers_read_the_next_partition_while_they_compute_one(tmp_path):
    with local_cluster(1) as engine:
        assert ahead(tmp_path, engine).value == [(10 * i, True) for i in range(N_PARTITIONS)]


@pytest.mark.slow
def test_every_engine_gives_the_same_answer(engine):
    source = Source(RemoteMatrix(1003))
    expected = [*spans(), (1000, 1003)]
    pair = lambda a, b: [a, b]  # noqa: E731
    for state_nbytes in (0, 100, 1000):
        tree = run(source, LocalEngine(kind="serial"), merge=pair, state_nbytes=state_nbytes).value
        for each in (LocalEngine(kind="serial"), LocalEngine(2), LocalEngine(5), engine):
            reduced = run(source, each, state_nbytes=state_nbytes)
            assert reduced.value == expected, (state_nbytes, each)
            assert (reduced.stats.rows_read, reduced.stats.bytes_read) == (1003, 1003 * 32)
            assert run(source, each, merge=pair, state_nbytes=state_nbytes).value == tree, (state_nbytes, each)


@pytest.mark.parametrize("matrix", [TinyMatrix, RemoteMatrix])
def test_blocks_in_memory_are_as_many_as_threads(matrix):
    lock = threading.Lock()
    now = most = 0

    def leaf(block):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1
        return rows_of(block)

    run(Source(matrix(1000)), LocalEngine(3), leaf)
    assert 1 < most <= 3


def boom(block):
    if block.start == 400:
        raise ZeroDivisionError
    return rows_of(block)


def test_an_error_names_the_partition_and_leaves_no_thread():
    source = Source(RemoteMatrix(10_000))
    with pytest.raises(PartitionFailed, match=r"partition 40 \(rows 400 to 409\): ZeroDivisionError in boom"):
        run(source, LocalEngine(2), boom)
    reads = len(source.matrix.reads)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sketchselect")]
    time.sleep(0.05)
    assert len(source.matrix.reads) == reads < 1000


@pytest.mark.slow
def test_an_error_on_a_worker_names_the_partition_and_leaves_it_working(engine):
    source = Source(RemoteMatrix(1000))
    for _ in range(3):  # a turn that is not given back would block the next pass
        with pytest.raises(PartitionFailed, match=r"partition 40 \(rows 400 to 409\): ZeroDivisionError in boom"):
            run(source, engine, boom)
    assert run(source, engine).value == spans()


def test_reads_that_fail_are_tried_again(monkeypatch):
    monkeypatch.setattr("sketchselect.execution.tasks.FIRST_PAUSE", 0.0)
    for n in range(1, 12):
        source = Source(RemoteMatrix(100))
        source.matrix.faults = {n: OSError(5, "Input/output error")}
        assert run(source, LocalEngine(2)).value == spans(100)
        source = Source(RemoteMatrix(100))
        source.matrix.faults = dict.fromkeys(range(n, 99), OSError(5, "Input/output error"))
        if n <= 10:
            with pytest.raises(PartitionFailed, match=r"partition \d \(rows \d+ to \d+\): OSError"):
                run(source, LocalEngine(2))


def planned(matrix, engine):
    return make_plan(Source(matrix), Reduction(rows_of, join, state_nbytes=10), PassOptions(engine, 320))


def test_reading_ahead_is_projected_and_left_out_where_it_does_not_fit(monkeypatch):
    near, far = TinyMatrix(1000), RemoteMatrix(1000)
    # As much as of that many times the tasks without.
    without, one, two, three = (planned(near, LocalEngine(2 * n)).projected for n in range(1, 5))
    assert one.reading == 2 * without.reading
    assert one.states >= without.states
    for limit, reads_ahead, projected in (
        (None, 3, three),
        (three.nbytes, 3, three),
        (three.nbytes - 1, 2, two),
        (one.nbytes, 1, one),
        (one.nbytes - 1, 0, without),
    ):
        work = planned(far, LocalEngine(2, memory_limit=limit))
        assert (work.context.reads_ahead, work.projected) == (reads_ahead, projected)
    assert planned(far, LocalEngine(8)).context.reads_ahead == 1
    monkeypatch.setattr("sketchselect.execution.engine.AHEAD_NBYTES", two.nbytes - without.nbytes)
    assert planned(far, LocalEngine(2)).context.reads_ahead == 2
    with pytest.raises(WillNotFit):
        run(Source(far), LocalEngine(2, memory_limit=without.nbytes - 1), state_nbytes=10)


def test_nothing_is_read_ahead_of_what_is_near():
    for matrix, engine in (
        (TinyMatrix(), LocalEngine(2)),
        (RemoteMatrix(), LocalEngine(kind="serial")),
        (CachedSource.of(Source(RemoteMatrix()), {}, 0).matrix, LocalEngine(2)),
    ):
        assert not planned(matrix, engine).context.reads_ahead
