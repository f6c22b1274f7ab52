"""Outputs that would lie in the source, or replace it: refused before anything is written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from typer.testing import CliRunner

import sketchselect as sks
from sketchselect.cli import app
from sketchselect.errors import BadParameter, ConfigError

ROWS = np.random.default_rng(0).standard_normal((60, 6))


def zarr_store(place: Path) -> str:
    group = zarr.open_group(str(place), mode="w")
    group.create_array("X", data=ROWS)
    return str(place / "X")


def parquet_folder(place: Path) -> str:
    place.mkdir()
    for part in range(2):
        table = pa.table({f"f{j}": ROWS[part::2, j] for j in range(6)})
        pq.write_table(table, place / f"part-{part}.parquet")
    return str(place)


def files_in(place: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(place.rglob("*")) if file.is_file()}


def file_address(place: Path) -> str:
    return f"file://{zarr_store(place)}"


@pytest.fixture(params=[zarr_store, parquet_folder, file_address])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    os.symlink(tmp_path / "rows", tmp_path / "link")
    url: str = request.param(tmp_path / "rows")
    return url


def job(source: str, **sections: Any) -> dict[str, Any]:
    whole = {
        "input": {"url": source},
        "select": {"method": "variance", "n_features": 2},
        "execution": {"cluster": "serial"},
    }
    return whole | sections


@pytest.mark.parametrize("place", ["rows", "rows/out", "rows/deep/out", "link/out", "link"])
def test_a_job_does_not_write_into_its_source(source: str, tmp_path: Path, place: str) -> None:
    before, inside, outside = files_in(tmp_path), str(tmp_path / place), str(tmp_path / "out")
    with pytest.raises(ConfigError, match=r"^output\.dir: .* is in the source; choose a place outside of it$"):
        sks.run(job(source, output={"dir": inside}))
    with pytest.raises(ConfigError, match=r"^output\.metrics: .* is in the source; choose a place outside of it$"):
        sks.run(job(source, output={"dir": outside, "metrics": f"{inside}/run.prom"}))
    execution = {"cluster": "serial", "checkpoint": inside}
    with pytest.raises(
        ConfigError, match=r"^execution\.checkpoint: .* is in the source; choose a place outside of it$"
    ):
        sks.run(job(source, output={"dir": outside}, execution=execution))
    with pytest.raises(BadParameter, match=r"^checkpoint: .* is in the source; choose a folder outside of it$"):
        sks.summarize(source, sks.ColumnStats(), checkpoint=inside)
    assert files_in(tmp_path) == before


def test_a_run_does_not_replace_the_features_that_it_reads(source: str, tmp_path: Path) -> None:
    output = {"dir": str(tmp_path / "out")}
    sks.run(job(source, output=output))
    before = files_in(tmp_path)
    with pytest.raises(ConfigError, match=r"^output\.dir: a run writes over .*, which it reads; choose another"):
        sks.run(job(str(tmp_path / "out" / "features.zarr"), output=output))
    assert files_in(tmp_path) == before
    sks.run(job(str(tmp_path / "out" / "features.zarr"), output={"dir": str(tmp_path / "again")}))


def commands(source: str, inside: Path) -> dict[str, list[str]]:
    return {
        "summarize": ["summarize", source, "-o", str(inside / "rows.sks")],
        # Beside an array, in its group, is a place for another.
        "convert": ["convert", source, str(inside / ("X" if source.endswith("X") else "") / "rows.zarr")],
    }


@pytest.mark.parametrize("name", ["summarize", "convert"])
def test_commands_do_not_write_into_their_source(source: str, tmp_path: Path, name: str) -> None:
    before = files_in(tmp_path)
    for place in ("rows", "link"):
        result = CliRunner().invoke(app, commands(source, tmp_path / place)[name])
        assert result.exit_code != 0
        assert "in the source" in result.stderr or "neither in the other" in result.stderr
        assert "Traceback" not in result.stderr
    assert files_in(tmp_path) == before


def test_a_run_does_not_replace_the_target_that_it_reads(tmp_path: Path) -> None:
    url, output = zarr_store(tmp_path / "rows"), {"dir": str(tmp_path / "out")}
    sks.run(job(url, output=output, cluster={"n_clusters": 2}))
    before = files_in(tmp_path)
    again = job(url, output=output, select={"method": "lasso"})
    again["input"]["target"] = str(tmp_path / "out" / "labels.zarr")
    with pytest.raises(ConfigError, match=r"^output\.dir: a run writes over .*labels\.zarr, which it reads; choose"):
        sks.run(again)
    assert files_in(tmp_path) == before


def test_places_beside_a_source_are_outside_of_it(tmp_path: Path) -> None:
    url = zarr_store(tmp_path / "rows")
    sks.convert(url, tmp_path / "rows" / "Y", chunks=(10, 6))  # another array of the same group
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "rows" / "Y"), mode="r")[:], ROWS)
    # A group around a file that is not Zarr is no part of it.
    zarr.open_group(str(tmp_path), mode="a")
    np.save(tmp_path / "rows.npy", ROWS)
    sks.run(job(str(tmp_path / "rows.npy"), output={"dir": str(tmp_path / "rows-selected")}))
