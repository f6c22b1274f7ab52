"""Missing values from the command line: rows dropped are counted and limited, or gaps are filled."""

import json
from pathlib import Path

import numpy as np
import pytest

from sketchselect.job.text import write_toml

from .commands import cli, refused, works


@pytest.fixture
def gappy(tmp_path: Path) -> Path:
    """1,000 rows of which 980 lack a value."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 8)) + 6.0 * (np.arange(1000) % 2)[:, None]
    rows = np.arange(980)
    X[rows, rows % 8] = np.nan
    np.save(tmp_path / "rows.npy", X)
    return tmp_path


def _job(folder: Path, *steps: str, **inputs: object) -> Path:
    job = {
        "input": {"url": "rows.npy", **inputs},
        "prepare": {"steps": list(steps)},
        "select": {"method": "variance", "n_features": 3},
        "cluster": {"n_clusters": 2},
        "execution": {"cluster": "serial"},
        "output": {"dir": "out"},
    }
    (folder / "job.toml").write_text(write_toml(job))
    return folder / "job.toml"


def test_most_rows_are_not_dropped_unless_that_is_confirmed(gappy: Path) -> None:
    job = _job(gappy, nonfinite="drop_rows")
    refused(cli("run", job), 1, "left out 980 of 1,000 rows (98 %)", "so 20 are used", '"impute"', "max_dropped=0.98")
    assert not (gappy / "out" / "selection.json").exists()
    done = works("run", job, "--set", "input.max_dropped=0.98")
    assert "left out 980 of 1,000 rows (98 %), so 20 are used" in done.stderr
    page = (gappy / "out" / "report.html").read_text()
    assert "of which 20 rows were used and 980 left out, for" in page[page.index("<header") : page.index("</header>")]
    assert "left out 980 of 1,000 rows" in cli("inspect", gappy / "out").stdout
    again = cli("run", job, "--set", "input.max_dropped=0.98")
    assert "left out 980 of 1,000 rows" in again.stderr, "also where the summary was there already"


def test_summarize_does_the_same(gappy: Path) -> None:
    words = ("summarize", gappy / "rows.npy", "-o", gappy / "a.sks", "--nonfinite", "drop_rows", "--cluster", "serial")
    refused(cli(*words), 1, "left out 980 of 1,000 rows", "confirm with --max-dropped 0.98")
    assert not (gappy / "a.sks").exists()
    done = works(*words, "--max-dropped", "1")
    assert "left out 980 of 1,000 rows (98 %), so 20 are used" in done.stderr


def test_certify_does_the_same(gappy: Path) -> None:
    np.save(gappy / "labels.npy", np.arange(1000) % 2)
    words = ("certify", gappy / "rows.npy", "--labels", gappy / "labels.npy", "--clusters", 2, "--cluster", "serial")
    words += ("--nonfinite", "drop_rows", "--method", "spectral")
    refused(cli(*words), 1, "left out 980 of 1,000 rows", "confirm with --max-dropped 0.98")
    done = works(*words, "--max-dropped", "1")
    assert "left out 980 of 1,000 rows (98 %), so 20 are used" in done.stdout


@pytest.mark.share(1)
@pytest.mark.parametrize("nonfinite", [{}, {"nonfinite": "missing"}])
@pytest.mark.parametrize("by", ["mean", "median"])
def test_the_error_offers_imputation_and_it_keeps_all_rows(gappy: Path, nonfinite: dict[str, str], by: str) -> None:
    refused(cli("run", _job(gappy)), 1, 'fill missing values with the prepare step "impute"')
    works("run", _job(gappy, f"impute(by={by})", **nonfinite))
    manifest = json.loads((gappy / "out" / "manifest.json").read_text())
    assert manifest["clustering"]["dropped_rows"] == 0
    assert (gappy / "out" / "prepare.sks").exists()


@pytest.mark.parametrize(
    ("inputs", "steps", "message"),
    [
        ({"nonfinite": "missing"}, [], 'the prepare step "impute"'),
        ({"nonfinite": "drop_rows"}, ["impute"], 'leaves nothing for the prepare step "impute"'),
        ({"max_dropped": 1.5}, [], "a share of the rows, from 0 to 1"),
    ],
)
def test_contradictions_are_named_before_anything_is_read(
    gappy: Path, inputs: dict[str, object], steps: list[str], message: str
) -> None:
    refused(cli("run", _job(gappy, *steps, **inputs)), 2, message)
