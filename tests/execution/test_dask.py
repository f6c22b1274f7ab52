"""The engine on real worker processes: the same bits, whatever happens to the workers."""

import os
import signal
import sys
import time

import cloudpickle
import dask
import dask.array as da
import numpy as np
import psutil
import pytest
import zarr

from sketchselect.errors import BadCluster, BadParameter, NoWorkers, PartitionCrash, PartitionFailed, Stalled
from sketchselect.execution import (
    Checkpoint,
    DaskEngine,
    SerialEngine,
    Source,
    as_engine,
    local_cluster,
    reduce_blocks,
    summarize,
    summarize_source,
)
from sketchselect.execution.nodefiles import list_nodes, read_node
from sketchselect.readers import open_matrix
from sketchselect.summaries import Bundle, FrequentDirections, Moments

pytestmark = pytest.mark.slow

# Workers cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


FEW_DEATHS = {"distributed.scheduler.allowed-failures": 1}
"""Two deaths are enough for Dask to give a task up: quicker to test, and harder to survive."""


@pytest.fixture(scope="module")
def engine():
    with dask.config.set(FEW_DEATHS), local_cluster(2, "1GiB") as engine:
        yield engine


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    X = np.random.default_rng(0).normal(size=(6000, 128)).astype(np.float32)
    X[:, :4] *= 10
    path = str(tmp_path_factory.mktemp("store") / "x.zarr")
    z = zarr.create_array(path, shape=X.shape, chunks=(100, 128), dtype="float32")
    z[:] = X
    return path, X


DESCRIPTION = Bundle({"fd": FrequentDirections(size=8), "mo": Moments()})
OPTIONS = {"partition_bytes": 100 * 128 * 8, "prepare": ["l2"]}


@pytest.fixture(scope="module")
def expected(store):
    return summarize(store[0], DESCRIPTION, y=store[1][:, 0], client="serial", **OPTIONS)


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


class Killer:
    """A progress that kills a worker when so many partitions are done."""

    def __init__(self, engine, *after):
        self.engine, self.after, self.seen, self.notes = engine, list(after), 0, []

    def start(self, stage, total_bytes, n_partitions):
        self.total = total_bytes

    def advance(self, nbytes):
        self.seen += 1
        self.total -= nbytes
        if self.after and self.seen >= self.after[0]:
            self.after.pop(0)
            workers = self.engine.client.run(os.getpid)
            os.kill(sorted(workers.values())[0], signal.SIGKILL)

    def note(self, text):
        self.notes.append(text)

    def finish(self, stage): ...


def run(source, engine, leaf=rows_of, merge=join, partition_bytes=320, **options):
    return reduce_blocks(source, leaf, merge, engine=engine, partition_bytes=partition_bytes, **options)


@pytest.fixture
def wide(store):
    """Sixty partitions of 100 rows, from a path."""
    return Source(open_matrix(store[0])), {"partition_bytes": 100 * 128 * 8}


# --- the same bits -----------------------------------------------------------------------------------------------


def sources(path, X, engine):
    yield path
    yield X
    yield np.asfortranarray(X)
    yield da.from_array(X, chunks=(100, 128))
    yield da.from_zarr(path)
    yield engine.client.persist(da.from_array(X, chunks=(100, 64)))


def test_every_source_gives_the_bits_of_the_serial_engine(engine, store, expected):
    assert expected["fd"].shrinkage > 0
    for source in sources(*store, engine):
        got = summarize(source, DESCRIPTION, y=store[1][:, 0], client=engine, **OPTIONS)
        assert got == expected


def test_a_client_is_enough_and_stays_open(engine, store, expected):
    got = summarize(store[0], DESCRIPTION, y=store[1][:, 0], client=engine.client, **OPTIONS)
    assert got == expected
    assert engine.client.status == "running"


def test_an_address_is_enough(engine, store, expected, monkeypatch):
    address = engine.client.scheduler.address
    assert summarize(store[0], DESCRIPTION, y=store[1][:, 0], client=address, **OPTIONS) == expected
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    with as_engine("env") as other:
        assert other.n_slots == 2


def test_one_worker_gives_the_same_bits(store, expected):
    with local_cluster(1, threads_per_worker=2) as one:
        assert one.n_slots == 2
        for source in store:
            assert summarize(source, DESCRIPTION, y=store[1][:, 0], client=one, **OPTIONS) == expected


def test_a_recipe_that_holds_much_is_sent_once(engine, tiny):
    class Heavy:
        def __init__(self):
            self.load = np.arange(400_000.0)

        def __call__(self, block):
            assert self.load.sum() == 400_000 * 399_999 / 2
            return rows_of(block)

    assert run(tiny(1000), engine, leaf=Heavy()).value == spans()


def test_nothing_is_left_on_the_cluster(engine, tiny):
    with pytest.raises(PartitionFailed):
        run(tiny(1000), engine, leaf=Slowly(0, at=500, what="exit"))
    run(tiny(1000), engine)
    held = lambda: engine.client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))  # noqa: E731
    until = time.monotonic() + 10
    while held() and time.monotonic() < until:
        time.sleep(0.05)
    assert held() == 0


def test_progress_is_told_every_byte_once_also_in_chains(engine, tiny):
    for state_nbytes in (0, 400):
        progress = Killer(engine)
        value = run(tiny(1000), engine, state_nbytes=state_nbytes, progress=progress).value
        assert value == spans()
        assert progress.total == 0
        assert progress.seen == 100


# --- deaths ------------------------------------------------------------------------------------------------------


def test_killed_workers_do_not_change_the_bits(engine, wide, store, expected):
    source, options = wide
    serial = summarize_source(source, FrequentDirections(size=8), engine=SerialEngine(), **options)
    killer = Killer(engine, 10, 40)
    slow = SlowMatrix(source.matrix)
    got = summarize_source(Source(slow), FrequentDirections(size=8), engine=engine, progress=killer, **options)
    assert got.value == serial.value
    assert got.stats.worker_deaths == 2
    assert sum("worker died" in note for note in killer.notes) == 2
    assert killer.total == 0


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
    assert "limit 1.0 GiB" in message
    assert "none for exceeding the memory limit" in message
    assert "partition_bytes" in message
    assert run(tiny(1000), engine).value == spans()


def test_a_worker_killed_for_its_memory_is_named_so(tiny):
    def hog(block):
        if block.start == 30:
            held = [np.ones(2**24) for _ in range(40)]
            time.sleep(5)
            return len(held)
        return 1

    with (
        dask.config.set(FEW_DEATHS),
        local_cluster(1, "500MiB") as small,
        pytest.raises(PartitionCrash, match=r"partition 3 .*killed for exceeding"),
    ):
        run(tiny(100), small, leaf=hog, merge=lambda a, b: a + b)


# --- errors in tasks ---------------------------------------------------------------------------------------------


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
    with local_cluster(2) as own:
        began = time.monotonic()
        with pytest.raises(Stalled, match=r"no partition was finished in 4\.0 s .*127\.0\.0\.1.*running.* of .*GiB"):
            run(tiny(1000), own, leaf=Slowly(0, at=500, what="hang"), stall_timeout=4.0)
        assert time.monotonic() - began < 40


def test_no_workers_is_an_error_and_not_a_wait(tiny):
    from distributed import Client, LocalCluster

    options = {"dashboard_address": None, "host": "127.0.0.1", "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        with pytest.raises(NoWorkers, match="no worker after"):
            DaskEngine(client, worker_timeout=0.3)
        cluster.scale(1)
        engine = DaskEngine(client, worker_timeout=60.0)
        engine.worker_timeout = 1.0
        cluster.scale(0)
        cluster.sync(cluster._correct_state)
        engine._await_workers = lambda: None
        engine._refresh = lambda: None
        with pytest.raises(NoWorkers, match="no workers for"):
            run(tiny(100), engine, leaf=Slowly(0.1))


# --- checkpoints -------------------------------------------------------------------------------------------------


def test_workers_write_nodes_and_a_second_run_reads_nothing(engine, wide, tmp_path):
    source, options = wide
    kept = Checkpoint(tmp_path / "nodes", min_bytes=0, state_ratio=0)
    first = summarize_source(source, FrequentDirections(size=8), engine=engine, checkpoint=kept, **options)
    assert first.stats.n_saved > 8
    for path in list_nodes(kept.directory).values():
        if read_node(path).n_rows > 800:
            os.unlink(path)
    again = summarize_source(source, FrequentDirections(size=8), engine=engine, checkpoint=kept, **options)
    assert again.value == first.value
    assert again.stats.n_resumed > 4
    assert again.stats.rows_read < 800
    # What another engine kept is as good.
    serial = summarize_source(source, FrequentDirections(size=8), engine=SerialEngine(), checkpoint=kept, **options)
    assert serial.value == first.value
    assert serial.stats.rows_read == 0


def test_resumed_nodes_are_sent_again_when_their_worker_dies(engine, store, tmp_path):
    kept = Checkpoint(tmp_path / "nodes", min_bytes=0, state_ratio=0)
    source = Source(open_matrix(store[0]))
    options = {"partition_bytes": 100 * 128 * 8, "checkpoint": kept}
    first = summarize_source(source, FrequentDirections(size=8), engine=engine, **options)
    # Every second leaf, and all that stands on it, is to be done again.
    for path in list_nodes(kept.directory).values():
        if read_node(path).n_rows > 100 or hash(path) % 2:
            os.unlink(path)
    slow = Source(SlowMatrix(source.matrix))
    again = summarize_source(slow, FrequentDirections(size=8), engine=engine, progress=Killer(engine, 5), **options)
    assert again.value == first.value


def test_workers_that_cannot_write_leave_the_finished_pass_to_the_client(engine, wide, tmp_path, monkeypatch):
    source, options = wide
    assert not engine.can_write("/proc/nowhere")
    assert engine.can_write(str(tmp_path / "new"))
    assert os.listdir(tmp_path / "new") == []
    monkeypatch.setattr(engine, "can_write", lambda directory: False)
    kept = Checkpoint(tmp_path / "nodes", min_bytes=0, state_ratio=0)
    progress = Killer(engine)
    reduced = summarize_source(
        source, FrequentDirections(size=8), engine=engine, checkpoint=kept, progress=progress, **options
    )
    (path,) = list_nodes(kept.directory).values()
    assert read_node(path) == reduced.value
    assert any("workers cannot write" in note for note in progress.notes)


# --- the cluster itself ------------------------------------------------------------------------------------------


def test_own_clusters_listen_on_loopback_only_and_leave_nothing_behind(store):
    before = dict(os.environ)
    me = psutil.Process()
    there = {p.pid for p in me.children(recursive=True)}
    with local_cluster(2) as own:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            assert os.environ.get(name) == before.get(name)
        summarize(store[0], Moments(), client=own)
        ours = [me, *(p for p in me.children(recursive=True) if p.pid not in there)]
        listening = {c.laddr.ip for p in ours for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        assert len(ours) >= 3
    assert listening <= {"127.0.0.1", "::1"}
    workers = [
        p for p in me.children(recursive=True) if p.pid not in there and "resource_tracker" not in str(p.cmdline())
    ]
    assert workers == []
    changed = {k for k in os.environ if os.environ[k] != before.get(k)}
    assert changed <= {"PYTEST_CURRENT_TEST", "__DASK_PARENT_PID", "KMP_DUPLICATE_LIB_OK"}


def test_describe_tells_the_settings_in_effect(engine):
    told = engine.describe()
    assert told["n_workers"] == 2
    assert told["memory_limit"] == 2**30
    assert told["allowed_failures"] == 1
    assert told["encrypted"] is False


def test_other_versions_on_workers_are_refused(engine, monkeypatch):
    from sketchselect.execution import cluster_checks

    real = cluster_checks.metadata.version
    monkeypatch.setattr(cluster_checks.metadata, "version", lambda name: "9.9" if name == "zarr" else real(name))
    with pytest.raises(BadCluster, match=r"zarr .* on 2 worker\(s\), 9\.9 here"):
        DaskEngine(engine.client)


def test_workers_of_several_kinds_are_noted(engine, monkeypatch, tiny):
    from sketchselect.execution import dask_engine

    monkeypatch.setattr(dask_engine, "worker_builds", lambda client: [("numpy 1", "haswell"), ("numpy 1", "zen")])
    mixed = DaskEngine(engine.client)
    assert mixed.build() == ("haswell", "numpy 1", "zen")
    progress = Killer(engine)
    for _ in range(2):
        run(tiny(20), mixed, progress=progress)
    assert len([note for note in progress.notes if "2 different kinds" in note]) == 1


@pytest.mark.parametrize(
    ("address", "exposed"),
    [
        ("tcp://127.0.0.1:8786", False),
        ("tcp://[::1]:8786", False),
        ("tcp://localhost:8786", False),
        ("inproc://10.0.0.1/1/1", False),
        ("tls://10.0.0.1:8786", False),
        ("tcp://10.0.0.1:8786", True),
        ("tcp://scheduler.internal:8786", True),
    ],
)
def test_clusters_beyond_this_machine_should_be_encrypted(address, exposed):
    from sketchselect.execution.cluster_checks import is_exposed

    assert is_exposed(address) is exposed


def test_an_address_where_nobody_listens_is_an_error():
    from sketchselect.execution.dask_cluster import connect

    with pytest.raises(BadCluster, match="no scheduler can be reached"), connect("tcp://127.0.0.1:9", timeout=1):
        pass


@pytest.mark.parametrize("options", [{"n_workers": -1}, {"threads_per_worker": 0}, {"memory_limit": "lots"}])
def test_clusters_that_cannot_be_are_refused(options):
    with pytest.raises(BadParameter), local_cluster(**options):
        pass


@pytest.mark.parametrize("failures", [2, 3])
def test_starting_a_cluster_is_tried_three_times(monkeypatch, failures):
    import distributed

    real, tries = distributed.LocalCluster, []

    def unlucky(**options):
        tries.append(options)
        if len(tries) <= failures:
            raise RuntimeError("Nanny failed to start.")
        return real(**options)

    monkeypatch.setattr(distributed, "LocalCluster", unlucky)
    if failures == 3:
        with pytest.raises(BadCluster, match=r"did not start in 3 attempts .*Nanny.*threads"), local_cluster(1):
            pass
    else:
        with local_cluster(1) as own:
            assert own.n_workers == 1
    assert len(tries) == 3
