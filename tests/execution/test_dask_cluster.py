"""The cluster itself: where it listens, what it says of itself, which ones are refused."""

import contextlib
import logging
import os
import re
import signal
import socket
import threading
import time
from multiprocessing import resource_tracker

import dask
import distributed.nanny
import psutil
import pytest
from distributed.deploy.spec import SpecCluster
from tests.passing import Recorder

from sketchselect.errors import BadCluster, BadParameter, ClusterLost, ConfigError, NoScheduler
from sketchselect.execution import DaskEngine, clusters, local_cluster, summarize, watch
from sketchselect.job.load import load_job
from sketchselect.summaries import ColumnStats, Moments

from .on_dask import Killer, run

pytestmark = pytest.mark.slow


def test_own_clusters_listen_on_loopback_only_and_leave_nothing_behind(store):
    before = dict(os.environ)
    me = psutil.Process()
    there = {p.pid for p in me.children(recursive=True)}
    with local_cluster(2) as own:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            assert os.environ.get(name) == before.get(name)
        summarize(store[0], Moments(), client=own)
        # With Dask's own value glibc gives every large buffer back at once, and each block is faulted in again.
        name = "MALLOC_TRIM_THRESHOLD_"
        assert set(own.client.run(os.getenv, name).values()) == {before.get(name)}
        ours = [me, *(p for p in me.children(recursive=True) if p.pid not in there)]
        listening = {c.laddr.ip for p in ours for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN}
        assert len(ours) >= 3
    assert listening <= {"127.0.0.1", "::1"}
    workers = [
        p for p in me.children(recursive=True) if p.pid not in there and "resource_tracker" not in str(p.cmdline())
    ]
    _, alive = psutil.wait_procs(workers, timeout=600)
    assert alive == []
    changed = {k for k in os.environ if os.environ[k] != before.get(k)}
    assert changed <= {"PYTEST_CURRENT_TEST", "__DASK_PARENT_PID", "KMP_DUPLICATE_LIB_OK"}


def test_a_scheduler_lost_between_passes_is_named_and_a_closed_client_refused(tiny, tmp_path):
    from distributed import Client

    with local_cluster(1) as own, Client(own.client.scheduler.address, set_as_default=False) as client:
        mine = DaskEngine(client)
        client.close()
        for ask in (lambda: mine.can_write(tmp_path), lambda: run(tiny(20), mine)):
            with pytest.raises(ClusterLost, match="same command again resumes"):
                ask()
        with pytest.raises(BadCluster, match="the client is closed; make a new one"):
            DaskEngine(client)


def test_a_frozen_worker_does_not_answer_for_the_others(engine, tmp_path, monkeypatch):
    from sketchselect.execution import dask_engine

    monkeypatch.setattr(dask_engine, "ANSWER_SECONDS", 1.0)
    frozen = psutil.Process(min(engine.client.run(os.getpid).values()))
    frozen.suspend()
    try:
        assert engine.can_write(tmp_path)
        assert not engine.can_write("/proc/nowhere")
    finally:
        frozen.resume()


def test_describe_tells_the_settings_in_effect(engine):
    told = engine.describe()
    assert told["n_workers"] == 2
    assert told["memory_limit"] == 2**30
    assert told["allowed_failures"] == 1
    assert told["encrypted"] is False


def test_other_versions_on_workers_are_refused(engine, monkeypatch):
    real = engine.client.get_versions

    def versions(**options):
        answer = real(**options)
        answer["client"]["packages"]["zarr"] = "9.9"
        return answer

    monkeypatch.setattr(engine.client, "get_versions", versions)
    with pytest.raises(BadCluster, match=r"zarr .* on 2 worker\(s\), 9\.9 here"):
        DaskEngine(engine.client)


def test_workers_of_several_kinds_are_noted(engine, monkeypatch, tiny):
    from sketchselect.execution import dask_engine as dask_engine

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
    from sketchselect.execution.dask_engine import is_exposed

    assert is_exposed(address) is exposed


@pytest.mark.parametrize("place", ["127.0.0.1:9", "127.0.0.1:abc", "127.0.0.1:99999", "[::1:1", "a" * 300 + ":1"])
def test_an_address_where_nobody_listens_is_an_error(place):
    from sketchselect.execution.clusters import connect

    with pytest.raises(NoScheduler, match="no scheduler can be reached"), connect(f"tcp://{place}", timeout=1):
        pass


def test_a_connection_that_is_refused_is_noted_while_the_client_waits():
    from sketchselect.execution.clusters import connect

    notes = Recorder()
    with pytest.raises(NoScheduler), connect("tcp://127.0.0.1:9", timeout=1, progress=notes):
        pass
    assert notes.notes == [
        "tcp://127.0.0.1:9: nothing listens there yet (ConnectionRefusedError); waiting up to 1 s for a scheduler"
    ]


@pytest.mark.parametrize("place", ["localhost:8786", "10.0.0.1:8786", "[::1]:8786"])
def test_an_address_without_a_protocol_is_shown_with_one(place):
    from sketchselect.execution.client import open_engine

    with pytest.raises(BadParameter, match=re.escape(f"tcp://{place}")), open_engine(place):
        pass
    with pytest.raises(ConfigError, match=re.escape(f"tcp://{place}")):
        load_job({"input": {"url": "a.npy"}, "select": {"method": "greedy"}, "execution": {"cluster": place}})


@pytest.mark.parametrize("scheme", ["tcp", "http"])
@pytest.mark.parametrize("name", ["connect", "open_engine"])
def test_a_password_in_an_address_is_refused_and_not_repeated(name, scheme):
    from sketchselect.execution import client, clusters

    opening = {"connect": clusters.connect, "open_engine": client.open_engine}[name]
    with pytest.raises(BadParameter, match=r"127\.0\.0\.1:9") as refusal, opening(f"{scheme}://ann:secret@127.0.0.1:9"):
        pass
    assert "secret" not in str(refusal.value)


def test_a_client_that_cannot_start_is_closed(monkeypatch):
    # Left to a garbage collection, it could stop another one that is starting for ever.
    from distributed import Client

    from sketchselect.execution.clusters import connect

    started, start = [], Client.start

    def recorded(self, **options):
        started.append(self)
        start(self, **options)

    monkeypatch.setattr(Client, "start", recorded)
    monkeypatch.setattr("sketchselect.execution.clusters.require_understood", lambda *_: None)

    def answer():
        with contextlib.suppress(OSError), contextlib.ExitStack() as open_ones:
            while True:
                open_ones.enter_context(server.accept()[0]).sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(NoScheduler), connect(f"tcp://127.0.0.1:{server.getsockname()[1]}", timeout=0.5):
            pass
    assert [client.status for client in started] == ["closed"]
    assert not started[0]._loop_runner.is_started()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.0\r\n", b"", None])
def test_an_address_where_something_else_answers_is_an_error(answer, monkeypatch):
    from sketchselect.execution import clusters
    from sketchselect.execution.clusters import connect

    monkeypatch.setattr(clusters, "HANDSHAKE_SECONDS", 0.5)

    def serve():
        with contextlib.suppress(OSError), contextlib.ExitStack() as open_ones:
            while True:
                accepted = open_ones.enter_context(server.accept()[0])
                if answer is not None:
                    accepted.sendall(answer)
                    accepted.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(NoScheduler, match=f"{address}: no scheduler"), connect(address, timeout=3):
            pass


@pytest.mark.parametrize("options", [{"n_workers": -1}, {"threads_per_worker": 0}, {"memory_limit": "lots"}])
def test_clusters_that_cannot_be_are_refused(options):
    with pytest.raises(BadParameter), local_cluster(**options):
        pass


@pytest.mark.parametrize("failures", [2, 3])
def test_starting_a_cluster_is_tried_three_times(monkeypatch, failures):
    real, tries = clusters._cluster_class(), []

    def unlucky(**options):
        tries.append(options)
        if len(tries) <= failures:
            raise RuntimeError("Nanny failed to start.")
        return real(**options)

    monkeypatch.setattr(clusters, "_cluster_class", lambda: unlucky)
    if failures == 3:
        with pytest.raises(BadCluster, match=r"did not start in 3 attempts .*Nanny.*threads"), local_cluster(1):
            pass
    else:
        with local_cluster(1) as own:
            assert own.n_workers == 1
    assert len(tries) == 3


@pytest.mark.parametrize("starts", ["Nanny.instantiate", "WorkerProcess.start", "WorkerProcess._wait_until_connected"])
def test_ctrl_c_while_workers_start_leaves_no_process_and_no_setting(monkeypatch, starts):
    level = logging.getLogger("distributed").level
    resource_tracker.ensure_running()  # a process too, which stays
    before = set(psutil.Process().children()), set(SpecCluster._instances)
    owner, _, name = starts.partition(".")
    real = getattr(getattr(distributed.nanny, owner), name)

    sent = []

    async def interrupted(self, *args):
        if not sent:
            sent.append(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
        return await real(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(f"distributed.nanny.{starts}", interrupted)
        with pytest.raises(KeyboardInterrupt), local_cluster(2):
            pass
    new = set(psutil.Process().children()) - before[0]
    assert psutil.wait_procs(new, timeout=60)[1] == []
    assert {cluster.status.name for cluster in set(SpecCluster._instances) - before[1]} <= {"closed"}
    assert logging.getLogger("distributed").level == level


def test_a_worker_that_is_started_again_has_the_settings_of_the_first():
    def settings():
        return os.getpid(), dask.config.get("distributed.worker")

    with local_cluster(1) as engine:
        ((pid, first),) = engine.client.run(settings).values()
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answers = engine.client.run(settings, on_error="ignore").values()
            again = [worker for process, worker in answers if process != pid]
            if again:
                break
            time.sleep(0.1)
    assert again == [first]


def test_a_worker_with_the_process_number_of_its_client_on_another_host_sends_its_log(monkeypatch):
    logger = logging.getLogger("sketchselect._kernels")
    watch._send_log.cache_clear()
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    watch.send_log(watch.this_process())
    assert not logger.handlers
    for _ in range(2):
        watch.send_log(f"another-host {os.getpid()}")
    assert len(logger.handlers) == 1
    watch._send_log.cache_clear()


def test_that_workers_compile_kernels_is_said_once(store, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    notes = Recorder()
    with local_cluster(2) as own:
        for summary in (Moments(), ColumnStats()):
            summarize(store[0], summary, client=own, progress=notes)
    (line,) = (note for note in notes.notes if "compiling" in note)
    assert line.startswith("workers: compiling kernels, which takes up to a minute once; compiled kernels are kept in ")
