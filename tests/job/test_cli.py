"""The command line: exit codes, one readable line for every mistake, and nothing lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from typer.testing import CliRunner, Result

import sketchselect as sks
from sketchselect.cli import app
from sketchselect.jobtext import write_toml

Job = Callable[..., dict[str, Any]]


def cli(*arguments: object) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(app, [str(a) for a in arguments])


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "sketchselect", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def refused(result: Result, code: int, *expected: str) -> None:
    """Assert one readable line on stderr, this exit code, and no traceback."""
    assert result.exit_code == code, result.output
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    for text in expected:
        assert text in line
    assert "Traceback" not in result.output


@pytest.fixture
def job_file(job: Job, tmp_path: Path) -> Callable[..., Path]:
    """Write the job, with sections changed, and return its path."""

    def build(**sections: dict[str, Any] | None) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(write_toml(job(**sections)))
        return path

    return build


def test_file_by_file(store: Path, rows: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "top.npy", rows[:120])
    np.save(tmp_path / "rest.npy", rows[120:])
    for name in ("top", "rest"):
        done = cli("convert", tmp_path / f"{name}.npy", tmp_path / f"{name}.zarr", "--chunks", "50x12")
        assert done.exit_code == 0, done.output
        done = cli(
            *("summarize", tmp_path / f"{name}.zarr", "-o", tmp_path / f"{name}.sks"),
            *("--size", 6, "--prepare", "l2", "--moments", "--cluster", "threads"),
        )
        assert done.exit_code == 0, done.output
    both = tmp_path / "both.sks"
    done = cli("merge", tmp_path / "top.sks", tmp_path / "rest.sks", "-o", both)
    assert (done.exit_code, "300 rows x 12 columns" in done.stdout) == (0, True)
    assert sks.load(both).n_rows == 300

    chosen = tmp_path / "selection.json"
    done = cli(
        *("select", both, "--method", "sketched-ridge", "--features", 5),
        *("--set", "n_components=2", "--set", "alpha=paper", "-o", chosen),
    )
    assert done.exit_code == 0, done.output
    oracle = sks.SketchedRidgeSelector(5, 2, 6, alpha="paper").fit(rows)
    assert json.loads(chosen.read_text())["support"] == oracle.support_.tolist()

    out = tmp_path / "out"
    np.save(tmp_path / "truth.npy", np.arange(300) % 3)
    done = cli(
        *("cluster", store, "--selection", chosen, "--clusters", 3, "-o", out),
        *("--prepare", "l2", "--labels", tmp_path / "truth.npy", "--cluster", "serial"),
    )
    assert done.exit_code == 0, done.output
    assert "NMI of the clusters with the given labels: " in done.stdout
    assert np.asarray(zarr.open_array(str(out / "labels.zarr"), mode="r")[:]).shape == (300,)
    assert json.loads((out / "selection.json").read_text()) == json.loads(chosen.read_text())

    assert "frequent-directions" in cli("inspect", both).stdout
    assert "300 rows x 12 columns, float32" in cli("inspect", store).stdout
    assert "selected: 5 columns with sketched-ridge" in cli("inspect", out).stdout
    (out / "report.html").unlink()
    assert cli("report", out).exit_code == 0
    assert (out / "report.html").exists()


def test_run_twice_with_changes(job_file: Callable[..., Path], tmp_path: Path) -> None:
    path = job_file(output={"report": True})
    done = cli("run", path)
    assert done.exit_code == 0, done.output
    first = (tmp_path / "out" / "selection.json").read_bytes()
    assert re.search(r"within .* of the best possible one with 3 clusters", done.stdout)
    again = cli("run", path)
    assert "summarize: already done by an earlier run" in again.stderr
    assert (tmp_path / "out" / "selection.json").read_bytes() == first
    other = cli(
        "run", path, "--set", "select.n_features=3", "--set", f"output.dir={tmp_path / 'out2'}", "--cluster", "threads"
    )
    assert other.exit_code == 0, other.output
    assert len(json.loads((tmp_path / "out2" / "selection.json").read_text())["support"]) == 3
    assert json.loads((tmp_path / "out2" / "manifest.json").read_text())["engine"]["kind"] == "threads"
    fresh = cli("run", path, "--fresh")
    assert "already done" not in fresh.stderr
    assert (tmp_path / "out" / "selection.json").read_bytes() == first


def test_bad_job_files(job_file: Callable[..., Path], tmp_path: Path) -> None:
    refused(cli("run", tmp_path / "none.toml"), 2, "no such job file")
    refused(cli("run", job_file(select={"n_featurs": 3})), 2, "job.toml: select.n_featurs", "did you mean", "(line ")
    refused(cli("run", job_file(), "--set", "cluster.n_clusters=0"), 2, "cluster.n_clusters", "(from --set)")
    refused(cli("run", job_file(select={"n_features": 13})), 2, "select.n_features: 13 wanted", "12 columns")
    refused(cli("run", job_file(cluster={"n_clusters": 301})), 2, "cluster.n_clusters: 301 wanted", "300 rows")
    (tmp_path / "job.toml").write_text("[input\n")
    refused(cli("run", tmp_path / "job.toml"), 2, "line 1")
    several = cli("run", job_file(select={"method": "x"}, cluster={"tol": -1.0}, output={"report": 3}))
    assert several.exit_code == 2
    assert len([line for line in several.stderr.splitlines() if line.startswith("error: job.toml: ")]) == 3
    assert not (tmp_path / "out").exists()


def test_bad_command_lines(tmp_path: Path) -> None:
    for arguments in (
        ["frobnicate"],
        ["run"],
        ["merge", "a.sks"],
        ["select", "a.sks"],
        ["summarize", "a", "-o", "b", "--size", "0"],
    ):
        done = cli(*arguments)
        assert done.exit_code == 2, arguments
        assert "Traceback" not in done.output
    assert cli("--help").exit_code == 0
    assert sks.__version__ in cli("--version").stdout


def bad_sources(folder: Path) -> dict[str, tuple[Path, str]]:
    """Name -> a source that cannot be a matrix of numbers, and what is said of it."""
    made: dict[str, tuple[Path, str]] = {"missing": (folder / "none.zarr", "none.zarr")}
    (folder / "photos").mkdir()
    (folder / "photos" / "a.jpg").write_bytes(b"x")
    made["not a store"] = (folder / "photos", "photos")
    for name, array in {
        "one-dimensional": np.zeros(10),
        "three-dimensional": np.zeros((4, 3, 2)),
        "complex": np.zeros((40, 12), complex),
        "text": np.full((40, 12), "a"),
    }.items():
        np.save(folder / f"{name}.npy", array)
        made[name] = (folder / f"{name}.npy", f"{name}.npy")
    np.save(folder / "objects.npy", np.full((40, 12), None), allow_pickle=True)
    made["objects"] = (folder / "objects.npy", "objects.npy")
    np.save(folder / "rowless.npy", np.zeros((0, 12)))
    made["no rows"] = (folder / "rowless.npy", "rowless.npy")
    nan = np.ones((40, 12))
    nan[7, 3] = np.nan
    np.save(folder / "nan.npy", nan)
    made["not a number"] = (folder / "nan.npy", "row 7, column 3")
    return made


def test_bad_sources(job_file: Callable[..., Path], tmp_path: Path) -> None:
    for name, (path, expected) in bad_sources(tmp_path).items():
        done = cli("run", job_file(input={"url": str(path)}))
        assert done.exit_code in (1, 2), name
        refused(done, done.exit_code, expected)
        assert not (tmp_path / "out" / "summary.sks").exists(), name


def test_damaged_stores(job_file: Callable[..., Path], store: Path, tmp_path: Path) -> None:
    chunk = store / "c" / "3" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[: len(whole) // 2])
    refused(cli("run", job_file()), 1, "c/3/0")
    chunk.unlink()
    refused(cli("run", job_file()), 1, "c/3/0", "fill")
    assert not (tmp_path / "out" / "summary.sks").exists()
    filled = cli("run", job_file(input={"missing_chunks": "fill"}))
    assert filled.exit_code == 0, filled.output


def test_folders_that_are_not_ours(job_file: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious.txt").write_text("mine")
    for arguments in (["run", job_file()], ["run", job_file(), "--fresh"], ["demo", "--out", tmp_path / "out"]):
        refused(cli(*arguments), 1, str(tmp_path / "out"), "not made by sketchselect")
    refused(cli("report", tmp_path / "out"), 1, "not an output folder")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["precious.txt"]


def test_files_that_are_not_ours(store: Path, tmp_path: Path) -> None:
    precious = tmp_path / "thesis.sks"
    precious.write_text("not a summary")
    refused(cli("summarize", store, "-o", precious, "--cluster", "serial"), 1, "not overwritten")
    assert precious.read_text() == "not a summary"
    refused(cli("summarize", store, "-o", tmp_path / "a.txt", "--cluster", "serial"), 2, "must end in .sks")
    refused(cli("summarize", store, "-o", tmp_path / "no" / "a.sks", "--cluster", "serial"), 1, "does not exist")
    refused(cli("inspect", precious), 1, "not a summary file")
    refused(cli("merge", precious, precious, "-o", tmp_path / "b.sks"), 1, "thesis.sks")
    (tmp_path / "theirs.zarr").mkdir()
    (tmp_path / "theirs.zarr" / "x").write_text("")
    np.save(tmp_path / "a.npy", np.zeros((3, 3)))
    refused(cli("convert", tmp_path / "a.npy", tmp_path / "theirs.zarr"), 1, "theirs.zarr")
    refused(cli("convert", tmp_path / "a.npy", tmp_path / "b.zarr", "--chunks", "10"), 2, "ROWSxCOLUMNS")


def test_bad_selections(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.sks"
    assert cli("summarize", store, "-o", file, "--size", 6, "--cluster", "serial").exit_code == 0
    chosen = tmp_path / "s.json"
    select = ["select", file, "-o", chosen, "--features"]
    refused(cli(*select, 13, "--method", "variance"), 2, "13 wanted", "12 columns")
    refused(cli(*select, 3, "--method", "varience"), 2, "did you mean 'variance'?")
    refused(cli(*select, 3, "--method", "sketched-ridge", "--set", "n_component=2"), 2, "did you mean 'n_components'?")
    refused(cli(*select, 3, "--method", "sketched-ridge", "--set", "n_components=40"), 2, "n_components")
    refused(cli(*select, 3, "--method", "variance", "--set", "nothing"), 2, "NAME=VALUE")
    assert not chosen.exists()
    unprepared = cli(*select, 3, "--method", "sketched-ridge", "--set", "n_components=2")
    assert unprepared.exit_code == 0, unprepared.output
    assert "asks for rows prepared with --prepare l2" in unprepared.stdout
    wide = tmp_path / "wide.npy"
    np.save(wide, np.random.default_rng(0).standard_normal((30, 20)))
    refused(
        cli("cluster", wide, "--selection", chosen, "--clusters", 2, "-o", tmp_path / "out", "--cluster", "serial"),
        2,
        "12 columns",
        "has 20",
    )


def test_unexpected_errors_are_one_line_too(job_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from sketchselect.workflow import job

    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError("first line\nsecond line")

    monkeypatch.setattr(job, "_run", broken)
    refused(cli("run", job_file()), 1, "unexpected ZeroDivisionError: first line second line", "--debug")
    shown = cli("run", job_file(), "--debug")
    assert isinstance(shown.exception, ZeroDivisionError)


def test_a_full_disk_is_named_and_leaves_no_half_file(
    job_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchselect.workflow.folder import OutputFolder

    write = OutputFolder.write

    def full(self: OutputFolder, name: str, content: bytes | str) -> Path:
        if name == "summary.sks":
            self.staging(name).write_bytes(b"half")
            raise OSError(28, "No space left on device", str(self.path / name))
        return write(self, name, content)

    monkeypatch.setattr(OutputFolder, "write", full)
    refused(cli("run", job_file()), 1, "No space left on device", "summary.sks")
    assert not (tmp_path / "out" / "summary.sks").exists()
    monkeypatch.undo()
    assert cli("run", job_file()).exit_code == 0


def test_a_second_run_in_the_same_folder_is_refused(job_file: Callable[..., Path], tmp_path: Path) -> None:
    from sketchselect.workflow.folder import open_folder

    with open_folder(tmp_path / "out"):
        refused(cli("run", job_file()), 1, f"process {os.getpid()}", "has been running here since")
    assert cli("run", job_file()).exit_code == 0


@pytest.fixture(scope="module")
def long_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job whose k-means takes minutes."""
    folder = tmp_path_factory.mktemp("long")
    np.save(folder / "rows.npy", np.random.default_rng(0).standard_normal((40_000, 20)).astype(np.float32))
    (folder / "job.toml").write_text(
        write_toml(
            {
                "input": {"url": "rows.npy"},
                "select": {"method": "variance", "n_features": 15},
                "cluster": {"n_clusters": 60, "n_init": 500, "tol": 0.0},
                "execution": {"n_workers": 2, "partition_bytes": "1MiB"},
                "output": {"report": False},
            }
        )
    )
    return folder / "job.toml"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "number", "whole_group", "code"),
    [
        ("threads", signal.SIGINT, False, 130),
        ("local", signal.SIGINT, True, 130),  # what a terminal does on Ctrl-C: the workers get it as well
        ("local", signal.SIGTERM, False, 143),
    ],
)
def test_interrupted_runs_say_how_to_resume_and_do(
    long_job: Path, tmp_path: Path, cluster: str, number: signal.Signals, whole_group: bool, code: int
) -> None:
    run = ["run", long_job, "--cluster", cluster, "--set", f"output.dir={tmp_path / 'out'}"]
    process = start(*run, start_new_session=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("load rows for k-means"):
            break
    time.sleep(0.5)
    (os.killpg if whole_group else os.kill)(process.pid, number)
    # The watchdog ends the process a few seconds after the signal, whatever it is doing.
    out, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert "Traceback" not in out + err
    assert "run the same command again to resume" in err
    assert "summarize, select, write features" in err
    assert not (tmp_path / "out" / ".lock").exists()
    again = cli(*run, "--set", "cluster.n_init=1", "--set", "cluster.max_iter=5", "--cluster", "threads")
    assert again.exit_code == 0, again.output
    assert "summarize: already done" in again.stderr
    assert "write features: already done" in again.stderr


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_resumes(long_job: Path, tmp_path: Path) -> None:
    import psutil

    run = ["run", long_job, "--set", f"output.dir={tmp_path / 'out'}"]
    process = start(*run)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("load rows for k-means"):
            break
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    process.kill()
    process.communicate(timeout=30)
    assert (tmp_path / "out" / ".lock").exists(), "a killed process cannot tidy up"
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
    again = cli(*run, "--set", "cluster.n_init=1", "--set", "cluster.max_iter=5", "--cluster", "threads")
    assert again.exit_code == 0, again.output
    assert "write features: already done" in again.stderr


@pytest.mark.slow
def test_demo_and_its_job_file(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    process = start("demo", "--out", out)
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    assert "selected 20 of 64 columns" in stdout
    assert "on all columns: " in stdout
    assert str(out / "report.html") in stdout
    for name in ("manifest.json", "selection.json", "scores.csv", "summary.sks", "report.html", "job.toml"):
        assert (out / name).stat().st_size > 0
    pixels = np.asarray(zarr.open_array(str(out / "input" / "digits.zarr"), mode="r")[:])
    features = np.asarray(zarr.open_array(str(out / "features.zarr"), mode="r")[:])
    support = json.loads((out / "selection.json").read_text())["support"]
    lengths = np.linalg.norm(pixels, axis=1, keepdims=True)
    assert features == pytest.approx(pixels[:, support] / lengths, abs=1e-6)
    again = cli("run", out / "job.toml", "--cluster", "threads")
    assert again.exit_code == 0, again.output
    assert "summarize: already done" in again.stderr
    moved = tmp_path / "moved"
    shutil.copytree(out, moved)
    elsewhere = cli("run", moved / "job.toml", "--cluster", "threads", "--set", "select.n_features=10")
    assert elsewhere.exit_code == 0, elsewhere.output
    assert len(json.loads((moved / "selection.json").read_text())["support"]) == 10
    assert len(json.loads((out / "selection.json").read_text())["support"]) == 20


@pytest.mark.slow
def test_doctor_finds_this_installation_fit() -> None:
    process = start("doctor")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stdout + stderr
    assert "BAD" not in stdout
    assert "all is well" in stdout


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, sketchselect.cli\n"
        "heavy = {'numpy', 'dask', 'distributed', 'zarr', 'sklearn', 'numba', 'matplotlib', 'pydantic'}\n"
        "sys.argv = ['sketchselect', '--help']\n"
        "try: sketchselect.cli.main()\n"
        "except SystemExit: pass\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_summary_is_not_merged_with_itself(store: Path, tmp_path: Path) -> None:
    one, again = tmp_path / "one.sks", tmp_path / "again.sks"
    assert cli("summarize", store, "-o", one, "--size", 6, "--cluster", "serial").exit_code == 0
    before = one.read_bytes()
    shutil.copy(one, again)
    refused(cli("merge", one, again, "-o", one), 2, "again.sks", "counted twice")
    assert one.read_bytes() == before


def test_a_report_that_was_not_wanted_is_not_called_unfinished(job_file: Callable[..., Path], tmp_path: Path) -> None:
    assert cli("run", job_file()).exit_code == 0
    refused(cli("report", tmp_path / "out"), 1, "output.report = false")


def test_warnings_are_one_line_and_said_once(job_file: Callable[..., Path], tmp_path: Path) -> None:
    np.save(tmp_path / "big.npy", np.arange(60).reshape(20, 3) + 2**60)
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


def test_a_full_disk_names_the_folder(
    job_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchselect.workflow.folder import OutputFolder

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(OutputFolder, "write", full)
    refused(cli("run", job_file()), 1, str(tmp_path / "out"), os.strerror(28), "same command again")
