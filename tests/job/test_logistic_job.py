"""A job of `LogisticPath`, whose passes are its own: run, choose again from its summary, predict new rows."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import ConfigError
from sketchselect.selectors import LogisticPath
from sketchselect.selectors.supervised import likelihood_path

from .commands import works


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return a folder with rows, classes as text and counts that two columns explain."""
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((300, 8))
    margins = 1.5 * rows[:, 2] - rows[:, 5]
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "classes.npy", np.where(margins + rng.logistic(size=300) > 1, "ill", "well"))
    np.save(tmp_path / "counts.npy", rng.poisson(np.exp(0.5 * margins)).astype(float))
    return tmp_path


def job_file(folder: Path) -> Path:
    """Write a job of ten models of the classes."""
    lines = ["[input]", 'url = "rows.npy"', 'target = "classes.npy"']
    lines += ["[select]", 'method = "logistic"', "n_alphas = 10"]
    lines += ["[output]", 'dir = "out"', "[execution]", 'cluster = "serial"']
    (folder / "job.toml").write_text("\n".join(lines))
    return folder / "job.toml"


def job(folder: Path, target: str, **select: Any) -> dict[str, Any]:
    return {
        "input": {"url": str(folder / "rows.npy"), "target": str(folder / f"{target}.npy")},
        "select": {"method": "logistic", **select},
        "output": {"dir": str(folder / "out")},
        "execution": {"cluster": "serial", "partition_bytes": 6400},
    }


def test_run_select_and_assign(files: Path) -> None:
    works("plan", job_file(files), "--no-calibrate")
    run = works("run", files / "job.toml")
    fitted = LogisticPath(n_alphas=10).fit(np.load(files / "rows.npy"), np.load(files / "classes.npy"))
    model = json.loads((files / "out" / "model.json").read_text())
    assert (model["family"], model["classes"]) == ("binomial", ["ill", "well"])
    assert np.ravel(model["coefficients"]) == pytest.approx(fitted.coef_[0, fitted.support_], rel=1e-6)
    assert model["cv"]["mean_deviance"] == pytest.approx(fitted.path_.mean_cv_error.min(), rel=1e-6)
    page = (files / "out" / "report.html").read_text()
    assert "mean deviance on held-out rows" in page
    share = model["cv"]["d2"]
    assert re.search(rf"D2 \(share of the deviance explained\) .* {share:.4f} on held-out folds", run.stdout)
    assert f"{100 * share:.1f} % of the target’s deviance in held-out rows" in page
    rates = model["misclassification"]
    wrong = fitted.predict(np.load(files / "rows.npy")) != np.load(files / "classes.npy")
    assert rates["fitted"] == pytest.approx(wrong.mean())
    stated = f"counted misclassification rate: {100 * wrong.mean():.1f} % on the fitted rows"
    assert f"{stated}, {100 * rates['held_out']:.1f} % on held-out folds" in run.stdout
    assert stated in works("inspect", files / "out").stdout
    assert f"{100 * rates['held_out']:.1f} % of the predictions of held-out rows are wrong" in page
    assert "Wrong predictions were counted on all rows" in page
    words = ("--method", "logistic", "--n-features", 2, "-o", files / "s.json")
    works("select", files / "out" / "columns.sks", *words)
    assert json.loads((files / "s.json").read_text())["support"] == [2, 5]
    done = works("assign", files / "out", files / "rows.npy", "-o", files / "new.csv", "--scheduler", "serial")
    assert stated in done.stdout
    with (files / "new.csv").open() as stream:
        labels = [line["class"] for line in csv.DictReader(stream)]
    assert labels == fitted.predict(np.load(files / "rows.npy")).tolist()
    works("verify", files / "out")


def test_counts_are_predicted_by_their_mean(files: Path) -> None:
    result = sks.run(job(files, "counts", family="poisson", criterion="bic"))
    assert "D2 " in result.summary()
    assert result.selection.support.tolist() == [2, 5]
    rows, counts = np.load(files / "rows.npy"), np.load(files / "counts.npy")
    fitted = LogisticPath(family="poisson", criterion="bic").fit(rows, counts)
    model = json.loads((files / "out" / "model.json").read_text())
    assert model["d2"] == pytest.approx(fitted.score(rows, counts), rel=1e-6)
    works("assign", files / "out", files / "rows.npy", "-o", files / "new.csv", "--scheduler", "serial")
    with (files / "new.csv").open() as stream:
        means = [float(line["target"]) for line in csv.DictReader(stream)]
    assert means == pytest.approx(fitted.predict(rows), rel=1e-5)


def test_a_job_that_cannot_be_names_the_key(files: Path) -> None:
    np.save(files / "halves.npy", np.load(files / "counts.npy") / 2)
    with pytest.raises(ConfigError, match="continuous numbers are no classes; set family"):
        sks.run(job(files, "halves"))


@pytest.mark.parametrize("fits", [True, False], ids=["all rows in the sample", "more rows"])
def test_plan_says_how_often_the_rows_are_read(files: Path, monkeypatch: pytest.MonkeyPatch, fits: bool) -> None:
    if not fits:
        monkeypatch.setattr(likelihood_path, "SAMPLE_NBYTES", 0)
        monkeypatch.setattr(likelihood_path, "LEAST_ROWS", 60)
    plan = json.loads(works("plan", job_file(files), "--no-calibrate", "--json").stdout)
    of_method = [one for one in plan["passes"] if one["name"].startswith("logistic")]
    usual, most = (sum(one[name] for one in of_method) for name in ("repeats", "repeats_most"))
    run = works("run", files / "job.toml")
    n_passes = 1 + len(set(re.findall(r"logistic: pass (\d+)", run.stderr)))
    assert most == 12
    assert "max_iter" not in str(plan["warnings"])  # there is no k-means
    if fits:
        assert usual == n_passes == 2
    else:
        assert 6 <= usual <= most
        assert 2 < n_passes <= most
