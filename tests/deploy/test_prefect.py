"""The flows of `deploy/prefect`, run by a server that lives as long as the tests."""

import doctest
import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.deploy.conftest import ROOT, PlainCluster, wait_until
from tests.deploy.orchestrated import (
    BAND,
    Reads,
    append,
    assert_guarantee,
    assert_same_bits,
    commands_of,
    first_stage,
    free_port,
    marks_of,
    rows_of,
    shell,
    undisturbed,
    write_job,
    write_store,
)
from tests.passing import succeed

FLOWS = ROOT / "deploy" / "prefect"

pytestmark = marks_of("prefect")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of the API of a server of our own, with its database in a temporary folder."""
    os.environ |= {
        "PREFECT_HOME": str(tmp_path_factory.mktemp("prefect")),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    from prefect.settings import get_current_settings
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=600):
        yield str(get_current_settings().api.url)


@pytest.fixture
def flows(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FLOWS))
    return importlib.import_module("flows")


def asked(server: str, what: str, **body: Any) -> list[dict[str, Any]]:
    import httpx

    answer = httpx.post(f"{server}/{what}/filter", json=body, timeout=600)
    answer.raise_for_status()
    found: list[dict[str, Any]] = answer.json()
    return found


def task_runs(server: str, name: str) -> dict[str, tuple[str, int]]:
    """Return task -> (state, attempts) of the flow run of this name."""
    runs = asked(server, "task_runs", flow_runs={"name": {"any_": [name]}})
    return {run["name"].rsplit("-", 1)[0]: (run["state_type"], run["run_count"]) for run in runs}


def test_task_that_loses_its_cluster_resumes(
    server: str, flows: Any, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads(lose_after=7).install(monkeypatch)
    flow = flows.job_flow.with_options(flow_run_name="lost")
    page = Path(flow(str(job), retry_delay=0.1))
    assert page.name == "report.html"
    done = {"select": ("COMPLETED", 1), "cluster": ("COMPLETED", 1), "report": ("COMPLETED", 1)}
    wait_until(lambda: len(task_runs(server, "lost")) == 4, "all task runs on the server")
    assert task_runs(server, "lost") == {"summarize": ("COMPLETED", 2), **done}
    again = reads.partitions[reads.at_loss :]
    assert reads.at_loss == 7
    # The second attempt began from the first one's checkpoints, and the stages after it read no row of the source.
    assert len(again) < 12
    assert {*reads.partitions} == {BAND * i for i in range(12)}
    stage = first_stage(page.parent)
    assert stage["reused"]
    assert stage["rows_read"] == BAND * len(again)
    assert_same_bits(undisturbed(job.parent), page.parent)


def test_progress_selection_result_and_report_are_artifacts(server: str, flows: Any, job: Path) -> None:
    page = Path(flows.job_flow.with_options(flow_run_name="shown")(str(job), ["select.n_features=5"], "threads"))
    found = asked(server, "artifacts", flow_runs={"name": {"any_": ["shown"]}})
    kinds = {artifact["key"]: artifact for artifact in found}
    assert kinds["sketchselect-summarize-progress"]["type"] == "progress"
    assert kinds["sketchselect-summarize-progress"]["data"] == 100
    assert kinds["sketchselect-cluster-progress"]["data"] == 100
    assert kinds["sketchselect-selection"]["type"] == "table"
    assert kinds["sketchselect-selection"]["data"].count('"column"') == 5
    assert "5 columns with sketched-ridge" in kinds["sketchselect-result"]["data"]
    assert page.as_uri() in kinds["sketchselect-report"]["data"]


def test_mistake_in_the_job_is_not_tried_again(server: str, flows: Any, job: Path) -> None:
    from sketchselect.errors import ConfigError

    flow = flows.job_flow.with_options(flow_run_name="mistaken")
    with pytest.raises(ConfigError, match=r"select\.n_features"):
        flow(str(job), ["select.n_features=151"], retry_delay=0.1)
    wait_until(lambda: "summarize" in task_runs(server, "mistaken"), "the task run on the server")
    assert task_runs(server, "mistaken") == {"summarize": ("FAILED", 1)}


def test_appended_day_gives_the_bits_of_one_run(flows: Any, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads().install(monkeypatch)
    flows.job_flow(str(job))
    append(job.parent / "rows.zarr", rows_of(2, 9))
    del reads.partitions[:]
    out = Path(flows.job_flow(str(job))).parent
    assert sorted(reads.partitions) == [BAND * i for i in range(12, 21)]
    assert_same_bits(undisturbed(job.parent), out)


def test_days_of_their_own_are_merged(flows: Any, tmp_path: Path) -> None:
    job, days = write_job(tmp_path), {"2026-03-01": rows_of(1, 12), "2026-03-02": rows_of(2, 9)}
    for day, rows in days.items():
        write_store(tmp_path / "rows" / f"{day}.zarr", rows)
        selection = flows.daily_flow(str(job), str(tmp_path / "rows"), str(tmp_path / "days"), day)
    assert selection == str(tmp_path / "days" / "selection.json")
    merged = tmp_path / "days" / "summary.sks"
    assert_guarantee(merged, np.vstack(list(days.values())))
    before = merged.read_bytes()
    # An earlier day done again takes no later one away.
    flows.daily_flow(str(job), str(tmp_path / "rows"), str(tmp_path / "days"), "2026-03-01")
    assert merged.read_bytes() == before


def test_lost_scheduler_of_a_real_cluster(
    server: str, flows: Any, tmp_path: Path, plain_cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(tmp_path / "rows.zarr", rows_of(1, 600))
    job, nodes = write_job(tmp_path), tmp_path / "out" / "checkpoints" / "nodes"
    Reads().install(monkeypatch)
    scheduler = plain_cluster.start_scheduler()
    plain_cluster.start_worker()

    def replace_the_cluster() -> None:
        wait_until(lambda: any(nodes.rglob("*.sks")), "a checkpoint")
        os.killpg(scheduler.pid, signal.SIGKILL)
        plain_cluster.start_scheduler()
        plain_cluster.start_worker()

    other = threading.Thread(target=replace_the_cluster)
    other.start()
    try:
        flow = flows.job_flow.with_options(flow_run_name="real")
        page = Path(flow(str(job), cluster=plain_cluster.address, retry_delay=2, retries=3))
    finally:
        other.join()
    attempts = task_runs(server, "real")["summarize"]
    assert attempts[0] == "COMPLETED"
    assert attempts[1] > 1
    assert first_stage(page.parent)["n_resumed"] > 0
    assert first_stage(page.parent)["rows_read"] < 600 * BAND
    assert_same_bits(undisturbed(tmp_path), page.parent)


PROGRAM = """
import sys, time, pytest
from tests.deploy.orchestrated import Reads
reads = Reads().install(pytest.MonkeyPatch())
reads.each = lambda: time.sleep(0.3)
import flows
flows.job_flow(sys.argv[1], cluster=sys.argv[2])
"""


@pytest.mark.parametrize("engine", ["serial", "threads"])
def test_cancelled_run_keeps_its_checkpoints(
    server: str, flows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    # More leaves, of six partitions each, than there are threads: some are left when the first is kept.
    write_store(tmp_path / "rows.zarr", rows_of(1, 48))
    job, out = write_job(tmp_path), tmp_path / "out"
    search = [str(FLOWS), str(ROOT), *([os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else [])]
    environment = os.environ | {"PREFECT_API_URL": server, "PYTHONPATH": os.pathsep.join(search)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(job), engine],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        kept = out / "checkpoints" / "nodes"
        wait_until(lambda: any(kept.rglob("*.sks")) or process.poll() is not None, "a checkpoint")
        # What Prefect sends to the process of a run that is cancelled.
        process.terminate()
        said, _ = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGTERM, said
    assert "Retry" not in said
    assert not (out / ".lock").exists()
    assert not (out / "summary.sks").exists()
    reads = Reads().install(monkeypatch)
    assert Path(flows.job_flow(str(job))).exists()
    assert 0 < len(reads.partitions) < 48
    assert_same_bits(undisturbed(tmp_path), out)


def test_deployment_is_run_by_a_worker(server: str, job: Path) -> None:
    environment = os.environ | {"PREFECT_API_URL": server, "SKETCHSELECT_FLOWS": str(FLOWS)}

    def prefect(*words: str) -> str:
        words = sys.executable, "-m", "prefect", "--no-prompt", *words
        return succeed(*words, cwd=FLOWS, env=environment).stdout

    prefect("work-pool", "create", "--type", "process", "sketchselect")
    prefect("deploy", "--all")
    prefect("deployment", "run", "sketchselect-job/job", "--param", f"job={job}")
    prefect("worker", "start", "--pool", "sketchselect", "--run-once")
    assert (job.parent / "out" / "report.html").exists()
    labels = np.asarray(zarr.open_array(job.parent / "out" / "labels.zarr", mode="r")[:])
    assert labels.shape == (12 * BAND,)
    names = {run["name"] for run in asked(server, "deployments")}
    assert names == {"job", "daily"}


def test_the_text_is_followed_literally(server: str, job: Path, tmp_path: Path) -> None:
    """Commands of the README in their order, with a server and a worker that run."""
    start, use, _ = commands_of(FLOWS / "README.md", job, "pip install")
    port, home = free_port(), tmp_path / "user"
    home.mkdir()
    assert "4200" in start
    script = start.replace("4200", port) + use
    settings = {"PREFECT_HOME": str(home / ".prefect"), "PREFECT_SERVER_API_PORT": port, "PREFECT_API_URL": ""}
    # The server has something to complain about: it wants to send telemetry, and cannot.
    settings |= {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "true",
        "DO_NOT_TRACK": "",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
    }
    log = tmp_path / "log"
    with shell(script, home, log, **settings) as process:
        assert process.wait(timeout=600) == 0, log.read_text()
    assert "telemetry" in (home / "prefect-server.log").read_text()
    assert (job.parent / "out" / "report.html").exists(), log.read_text()


def test_examples() -> None:
    assert doctest.testmod(importlib.import_module("sketchselect.integrations.prefect")).failed == 0
