"""What operators do to a job on a cluster: suspend it, take its workers away, add one that does not belong there."""

import contextlib
import gc
import multiprocessing
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import dask
import dask.array
import distributed
import numpy as np
import pytest
import scipy.sparse
import typer
import zarr
from distributed import Client
from distributed.core import Status
from tests.deploy.conftest import wait_until
from tests.execution.on_dask import Slowly, run, spans
from tests.job.commands import start
from tests.passing import Recorder, dask_cluster

from sketchselect.cli.shell import plain_errors
from sketchselect.cluster.kmeans.passes import LOAD_ROWS
from sketchselect.errors import (
    BadCluster,
    ClusterLost,
    NotFinite,
    NoWorkers,
    PartitionFailed,
    SourceChanged,
    SourceError,
    Stalled,
)
from sketchselect.execution import (
    Checkpoint,
    PassOptions,
    Source,
    clusters,
    dask_engine,
    local_cluster,
    summarize_source,
    watch,
)
from sketchselect.execution.clusters import connect
from sketchselect.execution.dask_engine import DaskEngine
from sketchselect.execution.engine import LocalEngine, make_plan
from sketchselect.readers import convert, open_matrix
from sketchselect.selectors import VarianceSelector
from sketchselect.summaries import ColumnStats, FrequentDirections, frequent_directions
from sketchselect.workflow.folder import open_folder
from sketchselect.workflow.stages.features import WriteColumns, write_features

pytestmark = pytest.mark.slow


class Once(Recorder):
    """Calls a function when the first partition is done."""

    def __init__(self, function):
        super().__init__()
        self._functions = [function]

    def advance(self, nbytes):
        super().advance(nbytes)
        while self._functions:
            self._functions.pop()()


@pytest.fixture
def source():
    return Source(open_matrix(np.ones((1000, 4))))


def test_a_driver_that_was_suspended_goes_on(source, monkeypatch):
    clock = SimpleNamespace(monotonic=watch.time.monotonic)
    monkeypatch.setattr(watch, "time", clock)

    def suspend():
        before = clock.monotonic
        clock.monotonic = lambda: before() + 200.0

    with local_cluster(2) as engine:
        assert run(source, engine, leaf=Slowly(0.05), progress=Once(suspend), stall_timeout=100.0).value == spans()


def test_messages_that_dask_holds_back_are_said_and_another_client_gets_them(source):
    def hold_back(dask_scheduler):
        # As after a clock was set back: no batch is sent before the time of the last one is reached again.
        for stream in dask_scheduler.client_comms.values():
            stream.interval = 3600.0

    with local_cluster(2) as engine:
        once = Once(lambda: engine.client.run_on_scheduler(hold_back))
        with pytest.raises(Stalled, match="holds them back"):
            run(source, engine, leaf=Slowly(0.05), progress=once, stall_timeout=10.0)
        with connect(engine.client.scheduler.address) as other:
            assert run(source, other).value == spans()


def test_a_cluster_that_is_scaled_by_its_work_may_have_no_worker_yet(source, tmp_path):
    with dask_cluster(0) as (cluster, client):
        cluster.adapt(minimum=0, maximum=1, interval="100ms", wait_count=20)
        for _ in range(2):
            wait_until(lambda: not client.scheduler_info()["workers"], "the cluster has no workers")
            engine = DaskEngine(client, worker_timeout=60.0)
            assert run(source, engine).value == spans()
        wait_until(lambda: not client.scheduler_info()["workers"], "the cluster has no workers")
        assert engine.can_write(tmp_path)


def test_an_engine_in_a_forked_process_is_refused(source, monkeypatch):
    monkeypatch.setattr(dask_engine, "LOOP_SECONDS", 3.0)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def use(engine):
        try:
            run(source, engine)
        except BadCluster as error:
            answers.put(str(error))

    with local_cluster(1) as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads forks, as it should not
        process = context.Process(target=use, args=(engine,))
        process.start()
        process.join(60)
        process.kill()
        assert not answers.empty(), "it hangs"
        assert "make one in this process" in answers.get()
        assert run(source, engine).value == spans()


def test_workers_that_are_paused_are_said():
    def pause(dask_worker):
        dask_worker.memory_manager.memory_pause_fraction = False
        dask_worker.status = Status.paused

    with local_cluster(1) as own:
        own.client.run(pause)
        (address,) = own.client.scheduler_info()["workers"]
        wait_until(lambda: own.client.scheduler_info()["workers"][address]["status"] == "paused", "it is paused")
        expected = pytest.raises(NoWorkers, match=rf"1 worker\(s\) are paused.*{address}")
        with expected, connect(own.client.scheduler.address, worker_timeout=1.0):
            pass


@pytest.mark.parametrize("cluster", [lambda: local_cluster(1), lambda: connect("tcp://127.0.0.1:9")])
def test_a_timeout_with_which_nothing_connects_is_named(cluster):
    short = dask.config.set({"distributed.comm.timeouts.tcp": "2s"})
    with short, pytest.raises(BadCluster, match=r"comm\.timeouts\.tcp is '2s', .* less than 11 s"), cluster():
        pass


def test_a_timeout_of_tcp_is_no_matter_to_a_cluster_within_this_process(source):
    short = dask.config.set({"distributed.comm.timeouts.tcp": "2s"})
    cluster = distributed.LocalCluster(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None)
    with cluster, short, connect(cluster) as engine:
        assert run(source, engine).value == spans()


def test_the_program_of_a_frozen_application_needs_no_file(monkeypatch):
    """PyInstaller names a file that is not there, and no worker process imports it."""
    monkeypatch.setattr(
        multiprocessing.spawn, "get_preparation_data", lambda _: {"init_main_from_path": "/gone/fit.py"}
    )
    with pytest.raises(BadCluster, match=r"is no file any more \(/gone/fit\.py\)"):
        clusters._require_program()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    clusters._require_program()


def test_a_wait_for_paused_workers_between_two_passes_is_said(tmp_path, monkeypatch):
    """Also where it is not a pass that waits for them."""
    monkeypatch.setattr(dask_engine, "REPORTED_SECONDS", 0.2)
    progress = Recorder()

    def pause(dask_worker):
        dask_worker.memory_manager.memory_pause_fraction = False
        dask_worker.status = Status.paused

    with local_cluster(1) as own:
        engine = DaskEngine(own.client, worker_timeout=2.0, progress=progress)
        own.client.run(pause)
        (address,) = own.client.scheduler_info()["workers"]
        wait_until(lambda: own.client.scheduler_info()["workers"][address]["status"] == "paused", "it is paused")
        with pytest.raises(NoWorkers, match=r"1 worker\(s\) are paused"):
            engine.can_write(tmp_path)
    (note,) = [note for note in progress.notes if "waiting" in note]
    assert re.search(r"1 worker paused by Dask, short of memory \(tcp://.*\); waiting up to 2", note)


def test_workers_that_are_paused_during_a_pass_are_named_soon(source, monkeypatch):
    monkeypatch.setattr(watch, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.2)

    def pause(dask_worker):
        dask_worker.memory_manager.memory_pause_fraction = False
        dask_worker.status = Status.paused

    with local_cluster(2) as engine:
        progress = Once(lambda: engine.client.run(pause))
        with pytest.raises(Stalled, match=r"paused, .* a paused worker is short of memory"):
            run(source, engine, leaf=Slowly(0.05), progress=progress, stall_timeout=15.0)
        notes = [note for note in progress.notes if "paused" in note]
        assert 1 <= len(notes) <= 2
        assert re.search(
            r"Dask has paused worker tcp://.*, short of memory \(.* of .*\), .* raise memory_limit", notes[0]
        )


def test_a_client_that_its_program_closes_is_no_lost_scheduler(source):
    with dask_cluster(1) as (cluster, _), Client(cluster.scheduler_address, set_as_default=False) as client:
        engine = DaskEngine(client)
        with pytest.raises(ClusterLost, match="the client is closed, by this program or"):
            run(source, engine, leaf=Slowly(0.05), progress=Once(client.close))
        with pytest.raises(ClusterLost, match="the client is closed, by this program or"):
            run(source, engine)


def test_a_question_to_workers_that_an_interruption_ends_is_no_traceback(caplog):
    questions = []

    def interrupted():
        with local_cluster(1) as engine:
            loop, ask = engine.client.loop.asyncio_loop, engine.client._run
            loop.call_soon_threadsafe(lambda: questions.append(loop.create_task(ask(time.sleep, 60))))
            time.sleep(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    wait_until(questions[0].done, "the end of the question")
    questions.clear()
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_cluster_of_our_own_does_not_end_where_it_has_nothing_to_do_for_a_while(source):
    with dask.config.set({"distributed.scheduler.idle-timeout": "500ms"}), local_cluster(1) as engine:
        time.sleep(2)
        assert engine.client.scheduler_info()["workers"]
        assert run(source, engine).value == spans()


def test_a_forked_process_has_a_cluster_of_its_own_after_one_of_its_parent():
    fit = 'print(sks.VarianceSelector(1).fit(rows, client="local").get_support(indices=True), flush=True)'
    program = f"import os, numpy as np, sketchselect as sks\nrows = np.eye(300)[:, :4] * [1, 2, 9, 3]\n{fit}\n"
    program += f"if child := os.fork():\n    os.waitpid(child, 0)\nelse:\n    {fit}\n    os._exit(0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250)
    assert done.stdout == "[2]\n[2]\n", done.stderr


@pytest.mark.parametrize("by_address", [False, True])
def test_fits_in_tasks_of_their_own_cluster_leave_places_to_their_tasks(by_address):
    rows = np.random.default_rng(0).normal(size=(1000, 4)) * [1, 3, 2, 4]

    def fit(_, address):
        client = address if by_address else distributed.get_client()
        first, again = (VarianceSelector(2).fit(rows, client=client) for _ in range(2))
        return [sorted(map(int, each.get_support(indices=True))) for each in (first, again)]

    with dask_cluster(1) as (cluster, client):
        address = cluster.scheduler_address
        futures = client.map(fit, range(2), address=address.replace("127.0.0.1", "localhost"), pure=False)
        assert client.gather(futures) == [[[1, 3]] * 2] * 2
        assert client.submit(lambda: 1).result(60) == 1, "the worker has its place for tasks again"


class Fitting:
    """An actor, which fits."""

    def fit(self):
        with dask_engine.beside_tasks(distributed.get_client()):
            return distributed.threadpoolexecutor.thread_state.proceed


def test_methods_of_an_actor_that_fit_do_not_run_side_by_side():
    with dask_cluster(1, processes=False) as (_, client):
        actor = client.submit(Fitting, actor=True).result(60)
        assert actor.fit().result(timeout=60), "its only thread does not make room for another"


def test_a_fit_in_a_task_that_fails_takes_its_place_again():
    def fit():
        rows = dask.array.full((100, 2), np.nan, chunks=(10, 2))
        with pytest.raises(NotFinite):
            VarianceSelector(1).fit(rows, client=distributed.get_client())
        return distributed.threadpoolexecutor.thread_state.proceed

    with dask_cluster(1) as (_, client):
        assert client.submit(fit).result(60)


def test_a_worker_of_other_libraries_that_joins_late_is_named(source):
    def joined_late():
        other = {**dask_engine.local_versions(), "numpy": "1.0"}
        dask_engine.local_versions = lambda: other

    with local_cluster(2) as engine:
        replace_worker = Once(lambda: engine.client.run(joined_late))
        with pytest.raises(BadCluster, match=r"worker tcp://.* libraries \(numpy 1\.0, here"):
            run(source, engine, leaf=Slowly(0.05), progress=replace_worker)


def summarized(source, options):
    summarize_source(source, ColumnStats(), options)


def saved(source, options):
    summarize_source(source, ColumnStats(), options.but(checkpoint=Checkpoint("nodes", min_bytes=0, state_ratio=0)))


def persisted(source, options):
    blocks = options.engine.persist_blocks(make_plan(source, LOAD_ROWS, options))
    options.engine.client.gather(list(blocks.values()))


def in_panels(source, options):
    summarize_source(source, FrequentDirections(12), options)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_worker_with_files_of_its_own_is_refused(factor, tmp_path, monkeypatch):
    monkeypatch.setattr(frequent_directions, "PANELS_ABOVE_NBYTES", 1)
    monkeypatch.setattr(frequent_directions, "PANEL_NBYTES", 8 * 12 * 128)
    rows = scipy.sparse.random_array((600, 900), density=0.02, format="csr", rng=np.random.default_rng(0))
    for place, content in ((tmp_path / "here", rows), (tmp_path / "there", factor * rows)):
        place.mkdir()
        convert(content, place / "dense.zarr", chunks=(8, 900))
        convert(content, place / "sparse.zarr")
    monkeypatch.chdir(tmp_path / "here")
    with local_cluster(1) as engine:
        engine.client.run(os.chdir, str(tmp_path / "there"))
        for read, name in ((summarized, "dense"), (saved, "dense"), (persisted, "dense"), (in_panels, "sparse")):
            source = Source(open_matrix(f"/proc/self/cwd/{name}.zarr"))
            with pytest.raises(SourceChanged, match=rf"/proc/self/cwd/{name}\.zarr: .*other files there .* rsync -a"):
                read(source, PassOptions(engine, 60_000))


def written(source, options):
    write_features(source, (0,), "/proc/self/cwd/features.zarr", None, 0, options)


@pytest.mark.parametrize("read", [summarized, written])
def test_a_worker_without_the_files_is_named(read, source, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    convert(np.ones((600, 9)), "dense.zarr", chunks=(8, 9))
    with local_cluster(1) as engine:
        (address,) = engine.client.run(os.chdir, str(tmp_path))
        missing = Source(open_matrix("/proc/self/cwd/dense.zarr"))
        with pytest.raises((SourceError, PartitionFailed), match=f"; worker {address} does not see it: .* rsync -a"):
            read(missing if read is summarized else source, PassOptions(engine, 6_000))


def test_a_task_of_an_earlier_run_that_goes_on_late_changes_no_features(tmp_path):
    X = np.random.default_rng(0).normal(size=(100, 4))
    source, options = Source(open_matrix(X)), PassOptions(LocalEngine(kind="serial"))
    for columns in ([0, 1], [2, 3]):
        with open_folder(tmp_path / "out") as folder:
            path = folder.staging("features.zarr")
            write_features(source, np.array(columns), path, None, 0, options)
            if columns == [0, 1]:
                late = WriteColumns(str(path), (0, 1), None, np.empty(0, np.int64))
                continue
            with contextlib.suppress(FileNotFoundError):
                late(source.block(0, 100))
            folder.publish("features.zarr")
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "out" / "features.zarr", mode="r")[:], X[:, 2:])
    assert not (tmp_path / "out" / "checkpoints" / "staging").exists()


@pytest.mark.parametrize("key", ["distributed.comm.timeouts.connect", "distributed.admin.tick.interval"])
def test_a_setting_of_dask_that_is_no_duration_is_named_before_anything_is_started(key, monkeypatch):
    monkeypatch.setattr("sketchselect.execution.clusters._cluster_class", pytest.fail)
    monkeypatch.setenv(variable := f"DASK_{key.replace('.', '__').upper()}", "nonsense")
    with dask.config.set(dask.config.collect(paths=[])):
        match = f"setting {key} is 'nonsense', .* such as '.*s'; .*{variable}"
        with pytest.raises(BadCluster, match=match), local_cluster(1):
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Dask does not close what did not start
def test_a_setting_of_dask_with_which_no_cluster_starts_is_named(monkeypatch):
    monkeypatch.setattr(clusters, "START_ATTEMPTS", 1)
    monkeypatch.setattr(clusters, "LEAST_TCP_SECONDS", 0)  # as if it were a setting that is not looked at before
    key, match = "distributed.comm.timeouts.tcp", r"Timeout too low.*differ from its defaults in .*'distributed\.comm\."
    with dask.config.set({key: "2s"}), pytest.raises(BadCluster, match=match), local_cluster(1):
        pass
    gc.collect()


def test_a_folder_in_which_workers_can_keep_no_files_is_named():
    match = r"in /dev/null/scratch \(Not a directory\); set TMPDIR, or Dask's temporary-directory"
    unusable = dask.config.set({"temporary-directory": "/dev/null/scratch"})
    with unusable, pytest.raises(BadCluster, match=match), local_cluster(1):
        pass


def test_a_cluster_of_our_own_leaves_no_file_in_scratch_space(source, tmp_path):
    killed = tmp_path / "sketchselect-workers-killed"
    killed.mkdir()
    (killed / "owner").touch()
    with dask.config.set({"temporary-directory": str(tmp_path)}):
        with local_cluster(2) as engine, local_cluster(1) as other:
            assert not killed.exists()
            assert len(list(tmp_path.iterdir())) == 2
            assert run(source, engine).value == run(source, other).value == spans()
        assert list(tmp_path.iterdir()) == []
        with local_cluster(2) as engine:
            for nanny in engine.nannies:
                os.kill(nanny.pid, signal.SIGKILL)  # in good order they would take their files with them
        assert list(tmp_path.iterdir()) == []


def test_a_driver_that_is_killed_leaves_no_word_on_the_terminal():
    program = "import os, sketchselect.execution as e\nwith e.local_cluster(1):\n    os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")


@pytest.mark.parametrize(
    ("n_files", "cluster", "error"),
    [
        (24, "local", r"a cluster of 2 workers takes some 68 open files, .* 24; raise the limit \(ulimit -n 68\)"),
        (8, "serial", r"Too many open files; raise the limit of open files \(ulimit -n\)"),
    ],
)
def test_too_few_open_files_are_said(n_files, cluster, error, tmp_path):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(100, 4)))
    (tmp_path / "job.toml").write_text(
        f"""
        [input]
        url = "rows.npy"
        [select]
        method = "variance"
        n_features = 2
        [cluster]
        n_clusters = 2
        [execution]
        cluster = "{cluster}"
        {"n_workers = 2" * (cluster == "local")}
        """
    )

    def limited():
        resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, n_files))

    process = start("run", tmp_path / "job.toml", "-q", preexec_fn=limited)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 1
    [line] = err.splitlines()
    assert re.search(error, line)


def test_too_few_threads_for_a_cluster_are_said(monkeypatch):
    monkeypatch.setattr("sketchselect.execution.clusters._cluster_class", pytest.fail)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    limits = {resource.RLIMIT_NPROC: 20}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits.get(kind, resource.RLIM_INFINITY),) * 2)
    with pytest.raises(BadCluster, match=r"2 workers takes some 28 .* limited to 20; .*ulimit -u"), local_cluster(2):
        pass


def test_no_thread_left_is_said(monkeypatch, capsys):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", start)
    with pytest.raises(typer.Exit), plain_errors(debug=False):
        threading.Thread(target=print).start()
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"error: the system starts no more threads; .*ulimit -u.*", line)


@pytest.mark.parametrize(
    ("error", "is_said"),
    [
        (OSError("Could not find/load shared object file 'libllvmlite.so'"), True),
        (ImportError("a.so: failed to map segment from shared object"), True),
        (MemoryError(), True),
        (ModuleNotFoundError("No module named 'nothing'"), False),
        (FileNotFoundError(2, "No such file or directory", "nothing"), False),
    ],
)
def test_too_few_addresses_are_said(error, is_said, monkeypatch, capsys):
    monkeypatch.setattr("resource.getrlimit", lambda _: (500 << 20, 500 << 20))
    with pytest.raises(typer.Exit), plain_errors(debug=False):
        raise error
    (line,) = capsys.readouterr().err.splitlines()
    assert (("this process may have 500.00 MiB of addresses" in line) and line.endswith("(ulimit -v)")) == is_said


def test_so_is_one_that_a_partition_would_start(monkeypatch):
    def rows(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("sketchselect.readers.arrays.ArrayMatrix._rows", rows)
    with pytest.raises(PartitionFailed, match=r"partition 0 \(rows .*: the system starts no more threads; .*ulimit -u"):
        VarianceSelector(1).fit(np.ones((4, 2)), client="serial")


@pytest.mark.parametrize(
    ("mount", "reason"),
    [("-o ro sketchselect /dev/shm", "Read-only file system"), ("sketchselect /dev", "No such file")],
)
def test_no_room_for_semaphores_is_said(mount, reason):
    """As in a container without a `/dev/shm` that the user may write to."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("a process can have its own file systems only on Linux, as root")
    program = "from sketchselect.execution import local_cluster\nwith local_cluster(1): pass"
    words = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs {mount} && exec "$@"', "sh", sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 1
    assert re.search(rf"BadCluster: a cluster of processes .* \({reason}.*/dev/shm", done.stderr.splitlines()[-1])
