"""The recipe of `deploy/README.md` for plain Dask clusters, with real processes on loopback."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from distributed import Client
from tests.deploy.cluster_jobs import assert_same_result, command, run, run_interrupted, write_clustering_job
from tests.deploy.conftest import PLAIN, PlainCluster, listening_addresses

OPTIONS = """
max_iter = 8
[execution]
partition_bytes = "256KiB"
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="the recipe is for POSIX shells")]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of 75 partitions, and the job with its result on threads as the reference."""
    return write_clustering_job(tmp_path_factory.mktemp("job"), OPTIONS, chunk_rows=160)


def test_job_on_scheduler_and_two_workers_gives_the_bits_of_threads(plain_cluster: PlainCluster, job: Path) -> None:
    scheduler = plain_cluster.start_scheduler()
    workers = [plain_cluster.start_worker(), plain_cluster.start_worker()]

    assert set().union(*(listening_addresses(p.pid) for p in [scheduler, *workers])) == {"127.0.0.1"}
    with urllib.request.urlopen(f"http://127.0.0.1:{plain_cluster.http_port}/health", timeout=600) as answer:
        assert answer.read() == b"ok"
    with Client(plain_cluster.address, timeout=600, set_as_default=False) as client:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
            assert set(client.run(os.getenv, name).values()) == {"1"}
        assert set(client.run(os.getenv, "MALLOC_TRIM_THRESHOLD_").values()) == {"134217728"}

    done = run(job, plain_cluster.address, "two")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_result(job, "two")
    manifest = json.loads((job / "two" / "manifest.json").read_text(encoding="utf-8"))
    assert plain_cluster.address.rsplit(":", 1)[1] in json.dumps(manifest)
    # The cluster is the user's: it is still there, and takes the next job.
    assert [p.poll() for p in [scheduler, *workers]] == [None, None, None]
    done = run(job, plain_cluster.address, "again")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_result(job, "again")


def test_worker_killed_in_the_middle_changes_no_bit(plain_cluster: PlainCluster, job: Path) -> None:
    plain_cluster.start_scheduler()
    victim = plain_cluster.start_worker()
    plain_cluster.start_worker()
    with Client(plain_cluster.address, timeout=600, set_as_default=False) as client:
        inside = {w["name"]: a for a, w in client.scheduler_info(n_workers=-1)["workers"].items()}
        assert len(inside) == 2
        pids = client.run(os.getpid)
        group = {p.pid for p in psutil.Process(victim.pid).children(recursive=True)}
        (address,) = [a for a, pid in pids.items() if pid in group]
        code, out = run_interrupted(
            command(job, plain_cluster.address, "killed"),
            halfway=lambda: bool(client.processing().get(address)),
            what="a task on the victim",
            interrupt=lambda: os.killpg(victim.pid, signal.SIGKILL),
        )
        assert code == 0, out
        assert list(client.scheduler_info(n_workers=-1)["workers"]) == [a for a in pids if a != address]
    assert_same_result(job, "killed")


def test_lost_scheduler_is_exit_75_and_the_same_command_finishes(plain_cluster: PlainCluster, job: Path) -> None:
    scheduler = plain_cluster.start_scheduler()
    worker = plain_cluster.start_worker()
    with Client(plain_cluster.address, timeout=600, set_as_default=False) as client:

        def end() -> None:
            client.close(timeout=1)
            os.killpg(scheduler.pid, signal.SIGKILL)

        code, out = run_interrupted(
            command(job, plain_cluster.address, "lost"),
            halfway=lambda: any(client.processing().values()),
            what="a task on a worker",
            interrupt=end,
        )
    assert code == 75, out
    assert "Traceback" not in out
    worker.wait(timeout=600)
    # Not back yet: again 75, where an address that was never reached is an error.
    done = run(job, plain_cluster.address, "lost")
    assert done.returncode == 75, done.stdout + done.stderr
    assert done.stderr.count("error: ") == 1
    assert "no scheduler can be reached" in done.stderr

    plain_cluster.start_scheduler()
    plain_cluster.start_worker()
    done = run(job, plain_cluster.address, "lost")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_same_result(job, "lost")


def test_two_workers_killed_one_after_the_other_are_exit_75_in_our_words(
    plain_cluster: PlainCluster, job: Path
) -> None:
    plain_cluster.start_scheduler()
    workers = [plain_cluster.start_worker(), plain_cluster.start_worker()]
    with Client(plain_cluster.address, timeout=600, set_as_default=False) as client:

        def end() -> None:
            os.killpg(workers[0].pid, signal.SIGKILL)
            time.sleep(6)
            os.killpg(workers[1].pid, signal.SIGKILL)

        code, out = run_interrupted(
            command(job, plain_cluster.address, "none left", "--set", "execution.checkpoint_seconds=0"),
            halfway=lambda: any(client.processing().values()),
            what="a task on a worker",
            interrupt=end,
        )
    if code != 0:  # a fast machine may be done before the second is gone
        (error,) = [line for line in out.splitlines() if line.startswith("error: ")]
        assert (code, "Stream is closed" in error, "CommClosedError" in error) == (75, False, False), out


def test_worker_without_a_scheduler_gives_up(plain_cluster: PlainCluster) -> None:
    worker = plain_cluster.start(
        str(PLAIN / "worker.sh"), plain_cluster.address, "1", "1GiB", SKETCHSELECT_DEATH_TIMEOUT="2"
    )
    assert worker.wait(timeout=600) != 0


def test_worker_that_is_being_restarted_gives_up_without_a_scheduler(plain_cluster: PlainCluster) -> None:
    scheduler = plain_cluster.start_scheduler()
    worker = plain_cluster.start_worker(SKETCHSELECT_DEATH_TIMEOUT="20")
    (inside,) = (p for p in psutil.Process(worker.pid).children() if "spawn_main" in " ".join(p.cmdline()))
    inside.suspend()  # or it would see that the scheduler goes, and tell its nanny to end
    os.killpg(scheduler.pid, signal.SIGKILL)
    inside.kill()
    worker.wait(timeout=600)


def test_worker_with_another_version_does_not_join(plain_cluster: PlainCluster) -> None:
    scheduler = plain_cluster.start_scheduler()
    other = plain_cluster.folder / "sitecustomize.py"
    other.write_text(
        "import importlib.metadata as m\n"
        "true_version = m.version\n"
        "m.version = lambda name: '0.0.1' if name == 'scipy' else true_version(name)\n",
        encoding="utf-8",
    )
    worker = plain_cluster.start(
        str(PLAIN / "worker.sh"), plain_cluster.address, "1", "1GiB", PYTHONPATH=str(plain_cluster.folder)
    )
    assert worker.wait(timeout=600) != 0
    assert "this worker does not join" in plain_cluster.log(worker)
    assert "scipy: 0.0.1 here" in plain_cluster.log(worker)
    time.sleep(0.2)
    with Client(plain_cluster.address, timeout=600, set_as_default=False) as client:
        assert client.scheduler_info(n_workers=-1)["workers"] == {}
    assert scheduler.poll() is None


def test_worker_of_a_scheduler_without_the_preload_does_not_join(plain_cluster: PlainCluster) -> None:
    bare = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", str(plain_cluster.port)]
    scheduler = plain_cluster.start(*bare, "--dashboard-address", "127.0.0.1:0")
    plain_cluster.wait_for(scheduler, "Scheduler at:")
    worker = plain_cluster.start(str(PLAIN / "worker.sh"), plain_cluster.address)
    assert worker.wait(timeout=600) != 0
    assert "does not tell its versions" in plain_cluster.log(worker)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "*"])
def test_scheduler_refuses_every_interface(host: str) -> None:
    done = subprocess.run([PLAIN / "scheduler.sh", host], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "every interface" in done.stderr


@pytest.mark.parametrize("words", [[], ["nonsense"], ["tcp://127.0.0.1"]])
def test_worker_script_names_a_bad_address(words: list[str]) -> None:
    done = subprocess.run([PLAIN / "worker.sh", *words], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (1, 2)
    assert "worker.sh" in done.stderr
    assert "Traceback" not in done.stderr
