"""A target, weight or label that is a column of the source is no feature."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sketchselect as sks
from sketchselect.job.text import write_toml

from .commands import works

NAMES = [f"x{j}" for j in range(6)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of six columns of which nothing follows, a column that would give the outcome away, and its classes."""
    rng = np.random.default_rng(0)
    columns = {name: rng.standard_normal(300) for name in NAMES}
    columns["outcome"] = rng.standard_normal(300)
    columns["arm"] = rng.integers(0, 2, 300)
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def _job(table: Path, key: str | None = None) -> Path:
    job = {
        "input": {"url": "t.parquet", "target": "outcome", "labels": "arm", "key": key},
        "select": {"method": "lasso", "n_features": 3},
        "execution": {"cluster": "serial"},
        "output": {"dir": "out", "report": False},
    }
    (table.parent / "job.toml").write_text(write_toml(job))
    return table.parent / "job.toml"


@pytest.mark.parametrize("key", [None, "-x5", "x0,x1,outcome,x2,x3,arm"])
def test_a_job_says_which_columns_it_left_out(table: Path, key: str | None) -> None:
    done = works("run", _job(table, key))
    chosen = json.loads((table.parent / "out" / "selection.json").read_text())
    assert not {"outcome", "arm"} & set(chosen["feature_names"])
    assert "column 'outcome' is not used as a feature" in done.stderr
    assert "column 'arm' is not used as a feature" in done.stderr
    assert any(
        "'outcome'" in note for note in json.loads((table.parent / "out" / "manifest.json").read_text())["notes"]
    )


def test_summarize_and_certify_leave_them_out_too(table: Path) -> None:
    out = table.parent / "t.sks"
    words = ("--key", "-arm", "--cluster", "serial")
    works("summarize", table, "-o", out, "--target", "outcome", "--moments", "--no-sketch", *words)
    assert sks.load(out)["moments"].feature_names == tuple(NAMES)
    done = works(
        "certify", table, "--labels", "arm", "--clusters", 2, "--key", "-outcome", "--cluster", "serial", "--json"
    )
    assert json.loads(done.stdout)["details"]["n_features"] == len(NAMES)


def test_columns_of_a_converted_text_file_are_left_out_too(table: Path) -> None:
    csv, store = table.with_suffix(".csv"), table.with_suffix(".zarr")
    pq.read_table(table).to_pandas().to_csv(csv, index=False)
    works("convert", csv, store)
    model = _model(table, "t.parquet")
    assert _model(table, "t.zarr")["coefficients"] == model["coefficients"]
    assert {*json.loads((table.parent / "out" / "selection.json").read_text())["feature_names"]} == {*NAMES}
    with pytest.raises(sks.errors.SourceError, match="no column "):
        sks.LassoPath(n_features_to_select=3).fit(str(store), "income")


def _model(table: Path, url: str) -> dict[str, Any]:
    done = works("run", _job(table), "--set", f"input.url={url}", "--fresh")
    assert "column 'outcome' is not used as a feature" in done.stderr
    model: dict[str, Any] = json.loads((table.parent / "out" / "model.json").read_text())
    return model


def test_a_target_of_another_file_with_the_name_of_a_feature_is_noted(table: Path) -> None:
    pq.write_table(pq.read_table(table).select(["outcome"]), table.parent / "y.parquet")
    done = works("run", _job(table), "--set", "input.target=y.parquet")
    assert "note: target: column 'outcome' has the target's name and is a feature" in done.stderr
    assert "set input.target = 'outcome'" in done.stderr
