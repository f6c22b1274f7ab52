"""Names of rows that are numbers, and selections of a source with one column less."""

import csv
from pathlib import Path

import numpy as np
import pytest

from sketchselect.readers import convert

from .commands import cli, refused

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
    assert cli("run", "job.toml").exit_code == 0
    return tmp_path


def first_column(path: Path) -> list[str]:
    with path.open(newline="") as stream:
        return [row[0] for row in csv.reader(stream)][1:]


def test_whole_numbers_have_no_decimal_point(numbered: Path) -> None:
    expected = [str(1000 + i) for i in range(30)]
    assert first_column(numbered / "out" / "labels.csv") == expected
    assert cli("assign", "out", "rows.zarr", "-o", "new.csv", "--row-names", "number").exit_code == 0
    assert first_column(numbered / "new.csv") == expected


def test_a_selection_of_fewer_columns_says_which_is_new_and_what_to_do(numbered: Path) -> None:
    selection = ("--selection", "out/selection.json", "--n-clusters", "2", "-o", "two", "--scheduler", "threads")
    advice = ("of 4 columns", "has 5", "does not know 'number'", "with --labels", "--key=-NAME")
    refused(cli("cluster", "rows.zarr", *selection), 2, *advice)
    # The advice works.
    assert cli("cluster", "rows.zarr", *selection, "--labels", "number").exit_code == 0
    np.save("other.npy", np.ones((30, 6)))
    refused(cli("cluster", "other.npy", *selection), 2, "of 4 columns", "has 6", "give the source")
