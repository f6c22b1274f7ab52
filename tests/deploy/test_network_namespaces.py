"""Scheduler, two workers and the job on hosts of their own: a cable is cut while the job runs."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.cluster_jobs import assert_same_result, command, write_selection_job
from tests.deploy.conftest import PLAIN, PlainCluster, wait_until
from tests.deploy.namespaces import Host, network, why_not
from tests.passing import succeed

REASON = why_not()

pytestmark = [pytest.mark.slow, pytest.mark.skipif(REASON is not None, reason=str(REASON))]

# After so long without a word a host is given up: by default minutes, for networks that hiccup.
PATIENCE = {
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "12s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "12s",
}
STALL = ("--set", "execution.stall_timeout=60.0")
SLOW = """
import time
import sketchselect.execution.tasks as tasks
read_block = tasks.read_block
def slowly(*words):
    time.sleep(0.25)
    return read_block(*words)
tasks.read_block = slowly
"""
"""What workers run first: every partition takes a quarter of a second longer, so that a pass has a middle."""

BOUND = 600.0
"""Seconds within which a job whose network is cut must have ended."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of 64 partitions, and the job with its result on threads."""
    folder = tmp_path_factory.mktemp("job")
    write_selection_job(folder, seed=11, n_rows=5_120, chunk_rows=80, partition_bytes="64KiB")
    return folder


@pytest.fixture
def hosts() -> Iterator[dict[str, Host]]:
    with network(["scheduler", "one", "two", "client"]) as made:
        yield made


def start_cluster(cluster: PlainCluster, hosts: dict[str, Host]) -> str:
    """Start a scheduler and two workers on their hosts; return the scheduler's address."""
    place = hosts["scheduler"]
    words = place.command(str(PLAIN / "scheduler.sh"), place.address, "8786")
    cluster.wait_for(cluster.start(*words, **PATIENCE), "Scheduler at:")
    address = f"tcp://{place.address}:8786"
    (cluster.folder / "sitecustomize.py").write_text(SLOW, encoding="utf-8")
    slow = {"PYTHONPATH": str(cluster.folder)}
    for name in ("one", "two"):
        # Which of its addresses a worker listens on is found by the script, from the routes of its host.
        words = hosts[name].command(str(PLAIN / "worker.sh"), address, "1", "1GiB")
        worker = cluster.start(*words, **PATIENCE, **slow)
        cluster.wait_for(worker, "Registered to:")
        assert f"tcp://{hosts[name].address}:" in cluster.log(worker)
    return address


def start_job(hosts: dict[str, Host], folder: Path, address: str, out: str) -> subprocess.Popen[str]:
    """Start the job on its host, and wait until it is in the middle of the first pass."""
    log = folder / f"{out}.log"
    with log.open("w", encoding="utf-8") as said:
        process = subprocess.Popen(
            hosts["client"].command(*command(folder, address, out, *STALL)),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env=os.environ | PATIENCE,
            text=True,
            start_new_session=True,
        )
    # The first thing of a job that reaches its scheduler; the pass, of eight seconds, begins right after it.
    reached = folder / out / "checkpoints" / "cluster"
    wait_until(lambda: process.poll() is not None or reached.is_file(), "a pass begun")
    time.sleep(2.0)
    assert process.poll() is None, log.read_text()
    return process


def finish(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(timeout=BOUND)
    finally:
        process.kill()
        process.wait()


def test_job_goes_on_without_the_worker_whose_cable_is_cut(
    plain_cluster: PlainCluster, hosts: dict[str, Host], job: Path
) -> None:
    address = start_cluster(plain_cluster, hosts)
    process = start_job(hosts, job, address, "one-cut")
    hosts["two"].cut()
    code = finish(process)
    said = (job / "one-cut.log").read_text()
    assert code == 0, said
    assert_same_result(job, "one-cut")


def test_scheduler_cut_off_is_exit_75_and_the_same_command_finishes(
    plain_cluster: PlainCluster, hosts: dict[str, Host], job: Path
) -> None:
    address = start_cluster(plain_cluster, hosts)
    process = start_job(hosts, job, address, "scheduler-cut")
    hosts["scheduler"].cut()
    code = finish(process)
    said = (job / "scheduler-cut.log").read_text()
    assert code == 75, said
    assert "Traceback" not in said
    assert "ended before" not in said, "nothing ran here before"
    # The workers have given up, too; with the cable back in, new ones join and the same command goes on.
    hosts["scheduler"].mend()
    for name in ("one", "two"):
        words = hosts[name].command(str(PLAIN / "worker.sh"), address, "1", "1GiB")
        plain_cluster.wait_for(plain_cluster.start(*words, **PATIENCE), "Registered to:")
    again = hosts["client"].command(*command(job, address, "scheduler-cut", *STALL))
    succeed(*again, env=os.environ | PATIENCE)
    assert_same_result(job, "scheduler-cut")
