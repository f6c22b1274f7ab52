"""``[select] window``: a job selects from the last rows of its source, whatever came before."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import ConfigError
from sketchselect.job.load import load_job
from sketchselect.workflow.plan.forecast import forecast_job

from .commands import cli, refused, works

Job = Callable[..., dict[str, Any]]


@pytest.fixture
def drift(tmp_path: Path) -> np.ndarray:
    """Columns 2 and 5 carry the first half of the rows, 11 and 20 the second; also as a file."""
    rng = np.random.default_rng(0)
    X = 0.1 * rng.standard_normal((240, 30))
    X[:120, [2, 5]] += 5 * rng.standard_normal((120, 2))
    X[120:, [11, 20]] += 3 * rng.standard_normal((120, 2))
    np.save(tmp_path / "drift.npy", X)
    np.save(tmp_path / "y.npy", np.r_[X[:120, 2], X[120:, 20] - X[120:, 11]])
    return X


def described(job: Job, folder: Path, select: dict[str, Any], **sections: Any) -> dict[str, Any]:
    given = {"input": {"url": str(folder / "drift.npy")}, "cluster": None}
    whole = job(**{**given, "execution": {"partition_bytes": 8 * 30 * 20}, **sections})
    return {**whole, "select": select}


def test_a_job_selects_from_the_last_rows(job: Job, drift: np.ndarray, tmp_path: Path) -> None:
    select = {"method": "greedy", "n_features": 2, "n_components": 2, "normalize": False}
    result = sks.run(described(job, tmp_path, {**select, "window": 100}, timeline={"points": 6}))
    direct = sks.GreedySelector(2, 2, normalize=None).fit(drift[-100:])
    assert result.selection.support.tolist() == direct.support_.tolist() == [11, 20]
    assert np.allclose(result.selection.scores, direct.scores_, rtol=1e-9)
    assert result.selection.parameters["window"] == 100
    assert sks.load(result.folder / "columns.sks").n_rows == 100
    # The summary of the job is of all rows, and the timeline has the method's window.
    assert sks.load(result.folder / "summary.sks").n_rows == 240
    with (result.folder / "timeline.csv").open(newline="") as file:
        spans = {(int(line["first_row"]), int(line["end_row"])) for line in csv.DictReader(file)}
    assert spans == {(0, 40), (0, 80), (20, 120), (60, 160), (100, 200), (140, 240)}
    again = sks.run(described(job, tmp_path, {**select, "window": 100}, timeline={"points": 6}))
    assert {stage["name"]: stage["reused"] for stage in again.manifest["stages"]}["collect"] is True
    wider = sks.run(described(job, tmp_path, {**select, "window": 240}))
    whole = sks.GreedySelector(2, 2, normalize=None).fit(drift)
    assert np.allclose(wider.selection.scores, whole.scores_, rtol=1e-9)


def test_a_model_of_the_last_rows(job: Job, drift: np.ndarray, tmp_path: Path) -> None:
    y = np.load(tmp_path / "y.npy")
    given = {"url": str(tmp_path / "drift.npy"), "target": str(tmp_path / "y.npy")}
    chosen = {"method": "lasso", "n_features": 2, "window": 90}
    result = sks.run(described(job, tmp_path, chosen, input=given))
    expected = sks.LassoPath(n_features_to_select=2).fit(drift[-90:], y[-90:])
    assert result.selection.support.tolist() == expected.support_.tolist() == [11, 20]
    model = json.loads((result.folder / "model.json").read_text())
    assert np.allclose(np.ravel(model["coefficients"]), expected.coef_[expected.support_], rtol=1e-7)


def test_a_plan_counts_the_pass_over_the_window(job: Job, drift: np.ndarray, tmp_path: Path) -> None:
    expected = described(job, tmp_path, {"method": "greedy", "n_features": 2, "window": 100}, timeline={})
    config = load_job(expected)
    plan = forecast_job(config, calibrate=False)
    assert {"collect", "timeline"} <= {one.stage for one in plan.passes}
    (collect,) = [one for one in plan.passes if one.stage == "collect"]
    (whole,) = [one for one in plan.passes if one.stage == "summarize"]
    assert collect.bytes_read < 0.5 * whole.bytes_read


def test_windows_that_cannot_be(job: Job, drift: np.ndarray, tmp_path: Path) -> None:
    select = {"method": "sketched-ridge", "n_features": 2, "window": 100}
    with pytest.raises(ConfigError, match=r"select\.window: .*window and half_life exclude each other"):
        sks.run(described(job, tmp_path, {**select, "half_life": 50.0}))
    with pytest.raises(ConfigError, match=r"select\.window: expected a whole number of at least 1"):
        sks.run(described(job, tmp_path, {**select, "window": 0}))
    with pytest.raises(ConfigError, match=r"timeline\.window: 60, but select\.window is 100"):
        sks.run(described(job, tmp_path, select, timeline={"window": 60}))
    works("summarize", tmp_path / "drift.npy", "-o", tmp_path / "d.sks")
    expected = ["--method", "greedy", "--n-features", 2, "-o", tmp_path / "s.json"]
    result = cli("select", tmp_path / "d.sks", *expected, "--set", "window=100")
    refused(result, 2, "--set window", "summarize only the rows")
    works("select", tmp_path / "d.sks", *expected, "--set", "window=false")
