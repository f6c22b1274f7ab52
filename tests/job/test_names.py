"""Names of the columns, which are no part of the rows: renamed, or out of order where rows are appended."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import sketchselect as sks
from sketchselect.errors import Incompatible
from sketchselect.readers import convert
from sketchselect.summaries import codec

from .commands import cli, refused, works

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


# Names of rows that are numbers, and selections of a source with one column less.

JOB = """\
[input]
url = "rows.zarr"
row_names = "number"
[select]
method = "variance"
n_features = 2
[cluster]
n_clusters = 2
[execution]
cluster = "threads"
[output]
dir = "out"
report = false
"""


@pytest.fixture
def numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(30, 4)) * np.arange(1, 5)
    table = np.column_stack([1000 + np.arange(30), values])
    convert(table, "rows.zarr", feature_names=["number", "a", "b", "c", "d"])
    (tmp_path / "job.toml").write_text(JOB)
    works("run", "job.toml")
    return tmp_path


def first_column(path: Path) -> list[str]:
    with path.open(newline="") as stream:
        return [row[0] for row in csv.reader(stream)][1:]


def test_whole_numbers_have_no_decimal_point(numbered: Path) -> None:
    expected = [str(1000 + i) for i in range(30)]
    assert first_column(numbered / "out" / "labels.csv") == expected
    works("assign", "out", "rows.zarr", "-o", "new.csv", "--row-names", "number")
    assert first_column(numbered / "new.csv") == expected


def test_a_selection_of_fewer_columns_says_which_is_new_and_what_to_do(numbered: Path) -> None:
    selection = ("--selection", "out/selection.json", "--n-clusters", "2", "-o", "two", "--scheduler", "threads")
    advice = ("of 4 columns", "has 5", "does not know 'number'", "with --labels", "--key=-NAME")
    refused(cli("cluster", "rows.zarr", *selection), 2, *advice)
    # The advice works.
    works("cluster", "rows.zarr", *selection, "--labels", "number")
    np.save("other.npy", np.ones((30, 6)))
    refused(cli("cluster", "other.npy", *selection), 2, "of 4 columns", "has 6", "give the source")
