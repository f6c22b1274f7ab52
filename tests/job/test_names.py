"""Names of the columns, which are no part of the rows: renamed, or out of order where rows are appended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import sketchselect as sks
from sketchselect.errors import Incompatible
from sketchselect.summaries import codec

from .commands import cli

Job = Callable[..., dict[str, Any]]
NAMES = [f"gene{j}" for j in range(12)]


def name(store: Path, names: list[str]) -> None:
    zarr.open_array(str(store), mode="r+").attrs["feature_names"] = names


def append(store: Path, rows: np.ndarray) -> None:
    zarr.open_array(str(store), mode="r+").append(rows)


def test_names_that_changed_are_not_those_of_the_last_run(job: Job, store: Path, tmp_path: Path) -> None:
    name(store, NAMES)
    sks.run(job())
    name(store, [f"new{j}" for j in range(12)])
    result = sks.run(job())
    assert json.loads((tmp_path / "out" / "selection.json").read_text())["feature_names"][0] == "new0"
    assert result.selection.feature_names[0] == "new0"
    assert codec.load(tmp_path / "out" / "summary.sks").feature_names[0] == "new0"


def test_rows_appended_under_other_names_are_refused(job: Job, store: Path, rows: np.ndarray) -> None:
    name(store, NAMES)
    sks.run(job())
    append(store, rows[:40])
    swapped = [*NAMES[:3], NAMES[4], NAMES[3], *NAMES[5:]]
    name(store, swapped)
    with pytest.raises(Incompatible, match=r"column 3, which was named 'gene3', is named 'gene4' now; .*--fresh"):
        sks.run(job())
    assert sks.run(job(), fresh=True).selection.feature_names == tuple(swapped)


def test_rows_appended_under_the_same_names_go_on(job: Job, store: Path, rows: np.ndarray) -> None:
    name(store, NAMES)
    sks.run(job())
    append(store, rows[:40])
    assert len(sks.run(job()).labels) == 340


def test_two_windows_are_a_mistake_with_its_line(job_file: Callable[..., Path]) -> None:
    path = job_file(select={"window": 100}, timeline={"window": 80})
    done = cli("run", str(path))
    line = path.read_text().splitlines().index("window = 80") + 1
    assert done.exit_code == 2
    assert f"job.toml: timeline.window: 80, but select.window is 100; set only one (line {line})" in done.output


def test_a_method_without_a_window_names_those_with_one(job_file: Callable[..., Path]) -> None:
    done = cli("run", str(job_file(select={"method": "variance", "window": 100, "n_components": None})))
    assert done.exit_code == 2
    assert "select.window: unknown key; " in done.output
    assert "it is a parameter of" in done.output
    assert "greedy" in done.output
