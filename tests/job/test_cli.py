"""The command line: what its verbs do, together and one after the other, and what it says."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import sketchselect as sks
from sketchselect.selectors import Selection
from sketchselect.workflow.tables import selection_json, selection_lines

from .commands import cli, refused, start, works


def test_file_by_file(store: Path, rows: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "top.npy", rows[:120])
    np.save(tmp_path / "rest.npy", rows[120:])
    for name in ("top", "rest"):
        works("convert", tmp_path / f"{name}.npy", tmp_path / f"{name}.zarr", "--chunks", "50x12")
        works(
            *("summarize", tmp_path / f"{name}.zarr", "-o", tmp_path / f"{name}.sks"),
            *("--size", 6, "--prepare", "l2", "--moments", "--cluster", "threads"),
        )
    both = tmp_path / "both.sks"
    done = cli("merge", tmp_path / "top.sks", tmp_path / "rest.sks", "-o", both)
    assert (done.exit_code, "300 rows x 12 columns" in done.stdout) == (0, True)
    assert sks.load(both).n_rows == 300

    chosen = tmp_path / "selection.json"
    works(
        *("select", both, "--method", "sketched-ridge", "--n-features", 5),
        *("--set", "n_components=2", "--set", "alpha=paper", "-o", chosen),
    )
    oracle = sks.SketchedRidgeSelector(5, 2, 6, alpha="paper").fit(rows)
    assert json.loads(chosen.read_text())["support"] == oracle.support_.tolist()

    out = tmp_path / "out"
    np.save(tmp_path / "truth.npy", np.arange(300) % 3)
    done = works(
        *("cluster", store, "--selection", chosen, "--clusters", 3, "-o", out),
        *("--prepare", "l2", "--labels", tmp_path / "truth.npy", "--cluster", "serial"),
    )
    assert "NMI of the clusters with the given labels: " in done.stdout
    assert np.asarray(zarr.open_array(str(out / "labels.zarr"), mode="r")[:]).shape == (300,)
    published = json.loads((out / "selection.json").read_text())
    assert published["diagnostics"].pop("selection_bound")["n_clusters"] == 3
    assert published == json.loads(chosen.read_text())
    content = json.loads((out / "manifest.json").read_text())
    assert (content["selection"]["method"], content["selection"]["given"]) == ("sketched-ridge", True)
    assert content["job"]["select"] is None, "the command selects nothing"
    for verb in ("verify", "certify"):
        works(verb, out, "--scheduler", "serial")

    assert "frequent-directions" in cli("inspect", both).stdout
    assert "300 rows x 12 columns, float32" in cli("inspect", store).stdout
    assert "selected: 5 columns with sketched-ridge" in cli("inspect", out).stdout
    refused(cli("inspect", out / "manifest.json"), 1, f"sketchselect inspect {out}")
    shown = cli("inspect", chosen).stdout
    assert "selection file" in shown
    assert "selected 5 of 12 columns with sketched-ridge" in shown
    ranked = [str(j) for j in oracle.selection_.ranking().tolist() if j in oracle.support_]
    assert f"columns by rank: {', '.join(ranked)}\n" in shown
    (out / "report.html").unlink()
    works("report", out)
    assert (out / "report.html").exists()


def test_run_twice_with_changes(job_file: Callable[..., Path], tmp_path: Path) -> None:
    path = job_file(output={"report": True})
    done = works("run", path)
    first = (tmp_path / "out" / "selection.json").read_bytes()
    assert re.search(r"within .* of the best possible one with 3 clusters", done.stdout)
    again = cli("run", path)
    assert "summarize: already done by an earlier run" in again.stderr
    assert (tmp_path / "out" / "selection.json").read_bytes() == first
    works(
        "run", path, "--set", "select.n_features=3", "--set", f"output.dir={tmp_path / 'out2'}", "--cluster", "threads"
    )
    assert len(json.loads((tmp_path / "out2" / "selection.json").read_text())["support"]) == 3
    assert json.loads((tmp_path / "out2" / "manifest.json").read_text())["engine"]["kind"] == "threads"
    fresh = cli("run", path, "--fresh")
    assert "already done" not in fresh.stderr
    assert (tmp_path / "out" / "selection.json").read_bytes() == first


def test_help_and_version() -> None:
    works("--help")
    assert sks.__version__ in cli("--version").stdout


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, sketchselect.cli\n"
        "heavy = {'numpy', 'dask', 'distributed', 'zarr', 'sklearn', 'numba', 'matplotlib', 'pydantic'}\n"
        "sys.argv = ['sketchselect', '--help']\n"
        "try: sketchselect.cli.main()\n"
        "except SystemExit: pass\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_unexpected_errors_are_one_line_too(job_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect.workflow import job

    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr(job, "run_config", broken)
    refused(cli("run", job_file()), 1, "unexpected ZeroDivisionError: first line second line", "--debug")
    shown = cli("run", job_file(), "--debug")
    assert isinstance(shown.exception, ZeroDivisionError)


@pytest.mark.slow
def test_warnings_are_one_line_and_said_once(job_file: Callable[..., Path], tmp_path: Path) -> None:
    np.save(tmp_path / "big.npy", np.arange(60).reshape(20, 3) * 2**50 + 2**60 + 1)
    job = job_file(
        input={"url": str(tmp_path / "big.npy")}, select={"n_features": 2, "method": "variance"}, cluster=None
    )
    text = re.sub(r"(n_components|sketch_size) = .*\n", "", job.read_text())
    job.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "sketchselect", "run", job], capture_output=True, text=True, check=True
    )
    assert [line for line in done.stderr.splitlines() if "2^53" in line] == [
        f"warning: {tmp_path / 'big.npy'}: whole numbers beyond 2^53 are rounded to float64"
    ]


def test_a_report_that_was_not_wanted_is_not_called_unfinished(job_file: Callable[..., Path], tmp_path: Path) -> None:
    works("run", job_file())
    refused(cli("report", tmp_path / "out"), 1, "output.report = false")


@pytest.mark.slow
def test_demo_and_its_job_file(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    process = start("demo", "--output", out, "--scheduler", "threads")
    stdout, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    columns = re.fullmatch(r"(\d+) of 64 pixels do: .* proved to be within (\d+\.\d) % .*", stdout.splitlines()[-1])
    assert columns is not None, stdout
    assert int(columns[1]) <= 20
    assert float(columns[2]) <= 10.0
    assert "on all columns: " in stdout
    assert str(out / "report.html") in stdout
    for name in ("manifest.json", "selection.json", "scores.csv", "summary.sks", "report.html", "job.toml"):
        assert (out / name).stat().st_size > 0
    pixels = np.asarray(zarr.open_array(str(out / "input" / "digits.zarr"), mode="r")[:])
    features = np.asarray(zarr.open_array(str(out / "features.zarr"), mode="r")[:])
    support = json.loads((out / "selection.json").read_text())["support"]
    lengths = np.linalg.norm(pixels, axis=1, keepdims=True)
    assert features == pytest.approx(pixels[:, support] / lengths, abs=1e-6)
    again = works("run", out / "job.toml", "--cluster", "threads")
    assert "summarize: already done" in again.stderr
    moved = tmp_path / "moved"
    shutil.copytree(out, moved)
    works("run", moved / "job.toml", "--cluster", "threads", "--set", "select.tolerance_proved=0.5")
    fewer = len(json.loads((moved / "selection.json").read_text())["support"])
    assert fewer < len(json.loads((out / "selection.json").read_text())["support"]) == int(columns[1])


@pytest.mark.slow
def test_doctor_finds_this_installation_fit(tmp_path: Path) -> None:
    # Its measurement is not that of the other tests.
    process = start("doctor", env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)})
    stdout, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stdout + stderr
    assert "BAD" not in stdout
    assert "all is well" in stdout


def test_the_first_columns_are_printed_by_rank_and_the_file_has_all(tmp_path: Path) -> None:
    names = tuple(f"gene {j}\x1b" for j in range(30))
    chosen = Selection("greedy", np.arange(3, 18), np.arange(30.0), feature_names=names, diagnostics={"choice": "why"})
    first, listed, why = selection_lines(chosen, "s.json")
    assert first == "selected 15 of 30 columns with greedy"
    assert listed == f"columns by rank: {', '.join(f'gene {j}?' for j in range(17, 7, -1))}, ... (all are in s.json)"
    assert why == "why"
    none = Selection("knockoffs", np.zeros(0, np.int64), np.zeros(4))
    (tmp_path / "none.json").write_text("".join(selection_json(none)))
    assert "selected 0 of 4 columns with knockoffs" in works("inspect", tmp_path / "none.json").stdout
    (tmp_path / "other.json").write_text('{"a": 1}')
    refused(cli("inspect", tmp_path / "other.json"), 1, "not a selection")
