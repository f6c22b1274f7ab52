"""A memory limit that a later pass of a job exceeds: refused before the first pass, by `run` and by `plan`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import sketchselect as sks
from sketchselect.errors import Interrupted, WillNotFit
from sketchselect.execution.plan import library_nbytes
from sketchselect.job.text import write_toml
from sketchselect.workflow.plan.forecast import forecast_job

from .commands import cli


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    rows = np.random.default_rng(0).standard_normal((50_000, 100)).astype(np.float32)
    zarr.create_array(tmp_path / "rows.zarr", data=rows, chunks=(5_000, 100))
    return {
        "input": {"url": str(tmp_path / "rows.zarr")},
        "select": {"method": "greedy", "n_features": 20},
        "cluster": {"n_clusters": 5, "max_iter": 3, "n_init": 1},
        "execution": {"cluster": "threads", "n_workers": 2, "partition_bytes": 4_000_000},
        "output": {"dir": str(tmp_path / "out"), "report": False},
    }


def limited(job: dict[str, Any], nbytes: int) -> dict[str, Any]:
    return {**job, "execution": {**job["execution"], "memory_limit": nbytes}}


@pytest.mark.slow
def test_a_limit_that_a_later_pass_exceeds_is_refused_before_the_first(job: dict[str, Any], tmp_path: Path) -> None:
    passes = forecast_job(job, calibrate=False).passes
    needs = [one.projected_bytes for one in passes if one.where == "workers"]
    assert needs[0] < max(needs), "the first pass is not the largest"
    with pytest.raises(WillNotFit, match="memory_limit"):
        sks.run(limited(job, (needs[0] + max(needs)) // 2))
    assert not (tmp_path / "out").exists()
    assert sks.run(limited(job, max(needs))).selection.support.size == 20


@pytest.mark.parametrize(("limit", "code"), [(280_000_000, 1), (8_000_000_000, 0)])
def test_plan_of_such_a_job_is_no_success(job: dict[str, Any], tmp_path: Path, limit: int, code: int) -> None:
    (tmp_path / "job.toml").write_text(write_toml(limited(job, limit)))
    ran = cli("plan", tmp_path / "job.toml", "--no-calibrate")
    assert ran.exit_code == code
    assert ("execution.memory_limit" in ran.output) == bool(code)


def test_columns_of_levels_that_the_first_rows_do_not_have_are_stated(job: dict[str, Any], tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    levels = np.random.default_rng(0).integers(600, size=20_000)
    table = {"x": np.random.default_rng(1).standard_normal(20_000), "place": [f"place {level}" for level in levels]}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    job |= {"input": {"url": str(tmp_path / "rows.parquet")}, "prepare": {"steps": ["one-hot"]}}
    del job["cluster"]
    needs = forecast_job(job, calibrate=False).to_dict()["memory"]["projected_bytes_per_worker"]
    with pytest.raises(WillNotFit, match="a run is refused"):
        sks.run(limited(job, needs - (1 << 20)))
    assert not (tmp_path / "out").exists()
    # The first 256 rows have 208 of the levels.
    assert sks.run(limited(job, needs)).selection.support.size == 20


@pytest.mark.parametrize("cluster", ["threads", "local"])
def test_rows_that_stay_in_memory_between_iterations_are_stated(
    job: dict[str, Any], cluster: str, tmp_path: Path
) -> None:
    zarr.create_array(tmp_path / "many.zarr", shape=(1_000_000, 100), dtype="float32", chunks=(5_000, 100))
    job["input"] = {"url": str(tmp_path / "many.zarr"), "missing_chunks": "fill"}
    job["select"]["n_features"] = 90
    job["execution"]["cluster"] = cluster
    plan = forecast_job(job, calibrate=False)
    assert plan.to_dict()["memory"]["client_bytes"] >= library_nbytes("threads") + 1_000_000 * 90 * 4


def test_an_interrupted_forecast_names_no_pass_of_its_own(job: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        error = Interrupted("interrupted; write features: 0 of 15 partitions are in checkpoints")
        error.exit_code = 143
        raise error

    monkeypatch.setattr("sketchselect.workflow.plan.forecast.forecast_job", interrupted)
    with pytest.raises(Interrupted, match=r"^interrupted before the first pass; run the same command again$") as caught:
        sks.run(limited(job, 1_000_000_000))
    assert caught.value.exit_code == 143
