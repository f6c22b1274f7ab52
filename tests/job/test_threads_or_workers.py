"""Where tasks run that no option or key says: in threads where rows are few, else in worker processes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.execution.engine import LocalEngine
from sketchselect.workflow.plan.forecast import forecast_job

from .commands import works


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list to which every start of worker processes adds an entry; tasks run in threads all the same."""
    starts = []

    @contextlib.contextmanager
    def recorded(*arguments: Any, **options: Any) -> Iterator[LocalEngine]:
        starts.append(arguments)
        yield LocalEngine()

    monkeypatch.setattr("sketchselect.execution.clusters.local_cluster", recorded)
    return starts


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Return a file of 400 rows of 20 columns, 64 KiB, in three clusters."""
    path = tmp_path / "rows.npy"
    rng = np.random.default_rng(0)
    np.save(path, rng.normal(size=(400, 20)) + 9 * rng.normal(size=(3, 20))[np.arange(400) % 3])
    return path


def open_job(rows: Path, name: str = "out", **execution: Any) -> dict[str, Any]:
    """Return a job that leaves open where it runs, unless `execution` says so."""
    return {
        "input": {"url": str(rows)},
        "select": {"method": "variance", "n_features": 5},
        "cluster": {"n_clusters": 3, "certificate": "spectral"},
        "output": {"dir": str(rows.parent / name), "report": False},
        **({"execution": execution} if execution else {}),
    }


def test_a_summary_has_the_same_bytes_in_threads_and_in_processes(
    rows: Path, tmp_path: Path, started: list[Any]
) -> None:
    works("summarize", rows, "-o", tmp_path / "one.sks")
    assert not started
    works("summarize", rows, "-o", tmp_path / "several.sks", "--partition-bytes", "32kB")
    works("summarize", rows, "-o", tmp_path / "named.sks", "--scheduler", "local")
    works("summarize", rows, "-o", tmp_path / "workers.sks", "--n-workers", "2")
    assert len(started) == 3
    assert (tmp_path / "one.sks").read_bytes() == (tmp_path / "named.sks").read_bytes()


def test_a_job_that_leaves_it_open_runs_few_rows_in_threads(rows: Path, started: list[Any]) -> None:
    result = sks.run(open_job(rows))
    assert not started
    assert result.manifest["engine"]["kind"] == "threads"
    assert "faster for so few rows" in result.manifest["engine"]["reason"]
    assert "faster for so few rows" in (result.folder / "run.log").read_text()


@pytest.mark.parametrize(
    "execution",
    [
        {"cluster": "local"},
        {"n_workers": 2},
        {"memory_limit": "2GiB"},
        {"worker_ttl": 60},
        {"stall_timeout": 60},
        {"partition_bytes": "32kB"},
    ],
    ids=lambda execution: next(iter(execution)),
)
def test_a_key_of_workers_or_several_partitions_start_them(
    rows: Path, started: list[Any], execution: dict[str, Any]
) -> None:
    result = sks.run(open_job(rows, **execution))
    assert len(started) == 1
    assert "reason" not in result.manifest["engine"]


def test_a_run_of_processes_is_resumed_in_threads(rows: Path, started: list[Any]) -> None:
    first = sks.run(open_job(rows, cluster="local"))
    again = sks.run(open_job(rows))
    assert len(started) == 1
    assert any(stage["reused"] for stage in again.manifest["stages"])
    assert first.labels is not None
    np.testing.assert_array_equal(first.labels, again.labels)
    fresh = sks.run(open_job(rows, "fresh"))
    np.testing.assert_array_equal(first.labels, fresh.labels)


def test_commands_on_few_rows_start_no_processes(rows: Path, tmp_path: Path, started: list[Any]) -> None:
    chosen, labels = tmp_path / "out" / "selection.json", tmp_path / "labels.npy"
    result = sks.run(open_job(rows))
    assert result.labels is not None
    np.save(labels, result.labels)
    of_rows = ("--n-clusters", "3", "--labels", labels)
    works("cluster", rows, "--selection", chosen, "--n-clusters", "3", "-o", tmp_path / "clusters")
    works("certify", rows, *of_rows)
    assert not started
    options = ("--scheduler", "local")
    works("cluster", rows, "--selection", chosen, "--n-clusters", "3", "-o", tmp_path / "more", *options)
    works("certify", rows, *of_rows, "--n-workers", "1")
    assert len(started) == 2


def test_a_plan_is_of_the_engine_that_a_run_takes(rows: Path) -> None:
    plan = forecast_job(open_job(rows), calibrate=False)
    assert (plan.cluster.kind, plan.cluster.address) == ("threads", "threads")
    assert any("faster for so few rows" in note for note in plan.notes)
    named = forecast_job(open_job(rows, cluster="threads"), calibrate=False)
    assert plan.projected_nbytes == named.projected_nbytes
    assert plan.passes == named.passes
    assert forecast_job(open_job(rows, n_workers=2), calibrate=False).cluster.kind == "dask"
    assert forecast_job(open_job(rows), n_workers=2, calibrate=False).cluster.kind == "dask"
