"""The DAGs of `deploy/airflow`, run by `dag.test()` on a database of our own."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deploy.conftest import wait_until
from tests.deploy.orchestrated import (
    BAND,
    ROOT,
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

from sketchselect.integrations.stages import STAGES

DAGS = ROOT / "deploy" / "airflow" / "dags"

pytestmark = marks_of("airflow")


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make an Airflow that lives in a temporary folder, with a database of SQLite."""
    settings = {
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        # Airflow reads its settings when it is imported, so nothing of it may be imported before this.
        assert "airflow" not in sys.modules
        migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
        done = subprocess.run(migrate, capture_output=True, text=True, timeout=800, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        yield


@pytest.fixture
def dags(airflow: None) -> dict[str, Any]:
    """Return the DAGs by name, read anew: a run of `dag.test()` leaves its parameters in the one that it ran."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(DAGS)
    assert not bag.import_errors
    for dag in bag.dags.values():
        for task in dag.tasks:
            task.retry_delay = timedelta(seconds=0.1)
    return dict(bag.dags)


def tried(run: Any) -> dict[str, tuple[str, int]]:
    """Return task -> (state, number of the last try)."""
    return {ti.task_id: (str(ti.state), ti.try_number) for ti in run.get_task_instances()}


def left(run: Any, task: str) -> Any:
    """Return what a task of a run left for others."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    query = XComModel.get_many(run_id=run.run_id, task_ids=[task], dag_ids=[run.dag_id], key="return_value")
    with create_session() as session:
        (row,) = session.scalars(query)
        return row.value


def test_task_that_loses_its_cluster_resumes(dags: dict[str, Any], job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(lose_after=7).install(monkeypatch)
    run = dags["sketchselect_job"].test(run_conf={"job": str(job)})
    done = {"select": ("success", 1), "cluster": ("success", 1), "report": ("success", 1)}
    assert tried(run) == {"summarize": ("success", 2), **done}
    out, again = job.parent / "out", reads.partitions[reads.at_loss :]
    assert reads.at_loss == 7
    # The second try began from the first one's checkpoints, and the stages after it read no row of the source.
    assert len(again) < 12
    assert {*reads.partitions} == {BAND * i for i in range(12)}
    assert first_stage(out)["reused"]
    assert first_stage(out)["rows_read"] == BAND * len(again)
    assert_same_bits(undisturbed(job.parent), out)
    assert (out / "report.html").exists()
    for task, file in zip(STAGES, ("summary.sks", "selection.json", "manifest.json", "report.html"), strict=True):
        assert str(out / file) in str(left(run, task))


def test_mistake_in_the_job_is_not_tried_again(dags: dict[str, Any], job: Path) -> None:
    conf = {"job": str(job), "overrides": ["select.n_features=151"]}
    run = dags["sketchselect_job"].test(run_conf=conf)
    assert run.state == "failed"
    assert tried(run)["summarize"] == ("failed", 1)
    assert tried(run)["cluster"][0] == "upstream_failed"


def test_appended_day_gives_the_bits_of_one_run(
    dags: dict[str, Any], job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Reads().install(monkeypatch)
    for day in (0, 1):
        if day:
            append(job.parent / "rows.zarr", rows_of(2, 9))
            del reads.partitions[:]
        assert dags["sketchselect_job"].test(run_conf={"job": str(job), "cluster": "threads"}).state == "success"
    assert sorted(reads.partitions) == [BAND * i for i in range(12, 21)]
    assert_same_bits(undisturbed(job.parent), job.parent / "out")


def test_days_of_their_own_are_merged(dags: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, days = write_job(tmp_path), {"2026-03-01": rows_of(1, 12), "2026-03-02": rows_of(2, 9)}
    conf = {"job": str(job), "rows": str(tmp_path / "rows"), "out": str(tmp_path / "days")}
    reads = Reads().install(monkeypatch)
    for day, rows in days.items():
        write_store(tmp_path / "rows" / f"{day}.zarr", rows)
        reads.lose_after = 5
        # The interval that a run covers ends when the run is due.
        due = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1)
        run = dags["sketchselect_daily"].test(logical_date=due, run_conf=conf)
        assert run.state == "success"
        assert (tmp_path / "days" / day / "summary.sks").exists()
        assert len(str(left(run, "select"))) < 500
    # The operator was tried again on the first day, and the day was counted once all the same.
    assert reads.at_loss == 5
    assert_guarantee(tmp_path / "days" / "summary.sks", np.vstack(list(days.values())))
    before = (tmp_path / "days" / "summary.sks").read_bytes()
    # An earlier day done again takes no later one away.
    again = due - timedelta(days=1)
    assert dags["sketchselect_daily"].test(logical_date=again, run_conf=conf).state == "success"
    assert (tmp_path / "days" / "summary.sks").read_bytes() == before


def test_operator_runs_a_whole_job_with_templates(dags: dict[str, Any], job: Path) -> None:
    from sketchselect.errors import BadParameter
    from sketchselect.integrations.airflow import SketchSelectOperator

    assert {task.task_type for task in dags["sketchselect_daily"].tasks} > {"SketchSelectOperator"}
    operator = SketchSelectOperator(
        task_id="job", job="{{ params.job }}", overrides=['output.dir="{{ params.out }}"'], cluster="{{ params.where }}"
    )
    context = {"params": {"job": str(job), "out": str(job.parent / "templated"), "where": ""}}
    operator.render_template_fields(context)
    assert operator.execute(context) == str(job.parent / "templated" / "manifest.json")
    assert_same_bits(undisturbed(job.parent), job.parent / "templated")
    with pytest.raises(BadParameter, match="stage"):
        SketchSelectOperator(task_id="wrong", job="job.toml", stage="sumarize")


def test_the_text_is_followed_literally(job: Path, tmp_path: Path) -> None:
    """Commands of the README in their order, with the default cluster of workers and a scheduler that runs."""
    job.write_text(job.read_text().replace('cluster = "serial"', 'cluster = "local"\nn_workers = 1'))
    start, use = commands_of(ROOT / "deploy" / "airflow" / "README.md", job, "pip install")
    assert "standalone" in start
    ready = "until grep -q 'Airflow is ready' airflow.log; do sleep 1; done\n"
    port, home = free_port(), tmp_path / "user"
    home.mkdir()
    settings = {
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "airflow" / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__API__PORT": port,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
    }
    log, logs = tmp_path / "log", home / "airflow" / "logs" / "dag_id=sketchselect_job"
    script = start + ready + use.replace("n_features=50", "n_features=11") + "wait\n"
    with shell(script, home, log, **settings) as process:
        wait_until(lambda: any(logs.rglob("task_id=report/*.log")) or process.poll() is not None, "the page", 600)
        assert process.poll() is None, log.read_text()
    assert (job.parent / "out" / "report.html").exists()
    # Airflow itself may start a task twice where its API is slow to answer; a task that began must not fail.
    texts = [path.read_text() for path in logs.rglob("*.log")]
    assert len(texts) >= len(STAGES)
    assert not any("Task failed with exception" in text for text in texts)


def test_examples(dags: dict[str, Any]) -> None:
    import doctest

    assert doctest.testmod(importlib.import_module("sketchselect.integrations.airflow")).failed == 0
