"""What runs without anybody watching: exit codes, a last line of JSON, logs of records, and a file of metrics."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deploy.chaos import takes_signals
from tests.deploy.conftest import wait_until
from tests.job.commands import cli, start

import sketchselect as sks
from sketchselect._progress import Metrics, Progress
from sketchselect.errors import ConfigError, SketchSelectError
from sketchselect.job.text import write_toml
from sketchselect.workflow import session


@pytest.fixture
def job(tmp_path: Path) -> dict[str, Any]:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((600, 12)))
    return {
        "input": {"url": str(tmp_path / "rows.npy")},
        "select": {"method": "variance", "n_features": 4},
        "cluster": {"n_clusters": 3, "max_iter": 5},
        "execution": {"cluster": "serial", "partition_bytes": 100 * 12 * 8},
        "output": {"dir": str(tmp_path / "out"), "report": False, "metrics": str(tmp_path / "run.prom")},
    }


@pytest.fixture
def job_file(job: dict[str, Any], tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(write_toml(job))
    return tmp_path / "job.toml"


def test_a_result_is_one_line(job_file: Path) -> None:
    done = cli("run", job_file, "--json")
    assert done.exit_code == 0
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["selection"]["n_selected"] == 4


@pytest.mark.parametrize(("setting", "code"), [("input.url=none.npy", 1), ("select.n_features=13", 2)])
def test_an_error_is_one_line_with_its_exit_code(job_file: Path, setting: str, code: int) -> None:
    done = cli("run", job_file, "--json", "--set", setting)
    (line,) = done.stdout.splitlines()
    told = json.loads(line)
    assert done.exit_code == told["exit_code"] == code
    assert told["error"].splitlines() == [line[7:] for line in done.stderr.splitlines() if line.startswith("error: ")]


@pytest.mark.share(0, 3)
@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("when", ["at once", "in a pass"])
def test_so_is_the_end_of_a_job_that_is_stopped(
    tmp_path: Path, job: dict[str, Any], number: int, code: int, when: str
) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((400_000, 30)))
    # So many partitions that its passes last for seconds.
    job["execution"] |= {"partition_bytes": 100 * 30 * 8}
    (tmp_path / "job.toml").write_text(write_toml(job))
    # Under nohup a program ignores SIGHUP, and so does what it starts.
    process = start("run", tmp_path / "job.toml", "--json", preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    metrics = tmp_path / "run.prom"

    def is_time() -> bool:
        if when == "at once":
            return takes_signals(process.pid)  # while its parts are imported
        # Any pass: metrics are written once a second, and the first may have begun and ended between.
        return metrics.exists() and re.search(r'pass_partitions{pass="\w', metrics.read_text()) is not None

    wait_until(lambda: process.poll() is not None or is_time(), when)
    assert process.poll() is None, "ended before it was stopped"
    process.send_signal(number)
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err
    (line,) = out.splitlines()
    assert json.loads(line)["exit_code"] == code
    if when == "in a pass":
        assert values(metrics)["failed"] == 1


IMPATIENT = """
import atexit, os, signal, sys, threading, time
def insist():
    for _ in range(3):
        os.kill(os.getpid(), signal.{number})
        time.sleep(0.05)
def wait():
    threading.main_thread().join()
    insist()
if {at_exit}:
    atexit.register(insist)
else:
    threading.Thread(target=wait).start()
from sketchselect.__main__ import main
main()
"""


@pytest.mark.share(0, 2)
@pytest.mark.slow
@pytest.mark.parametrize("at_exit", [False, True])
@pytest.mark.parametrize(
    ("number", "words", "code"), [("SIGINT", ["methods", "--json"], 0), ("SIGTERM", ["run", "none.toml", "--json"], 2)]
)
def test_what_has_ended_is_not_ended_again(number: str, at_exit: bool, words: list[str], code: int) -> None:
    program = IMPATIENT.format(number=number, at_exit=at_exit)
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)
    assert len(done.stderr.splitlines()) == (code > 0)


def test_a_log_of_records(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sketchselect._progress.LINE_SECONDS", 1e-9)
    done = cli("run", job_file, "-v", "--log-format", "json")
    assert done.exit_code == 0
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["time"]) for one in records)
    passes = [one for one in records if one.get("pass") == "summarize"]
    assert {one["bytes"] for one in passes} == {600 * 12 * 8}
    assert passes[-1]["bytes_done"] == 600 * 12 * 8
    failed = cli("run", job_file, "--log-format", "json", "--set", "input.url=none.npy")
    assert json.loads(failed.stderr.splitlines()[-1])["level"] == "error"
    refused = cli("run", job_file, "--log-format", "xml")
    assert refused.exit_code == 2
    assert "--log-format" in refused.stderr


def values(path: Path) -> dict[str, float]:
    """Return the metrics of a file, in which every line is what Prometheus takes."""
    samples = {}
    for line in path.read_text().splitlines():
        if not line.startswith("# "):
            sample = re.fullmatch(r'sketchselect_(\w+)(?:\{pass="(?:[^"\\]|\\.)*"\})? ([-+.e\d]+)', line)
            assert sample is not None, line
            samples[sample[1]] = float(sample[2])
    return samples


def test_a_file_of_metrics(job: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sketchselect._progress.METRICS_SECONDS", 0.0)
    seen = []

    class Watching(Progress):
        def advance(self, nbytes: int) -> None:
            seen.append(values(tmp_path / "run.prom"))

    sks.run(job, progress=Watching())
    first = [one for one in seen if one["passes_total"] == 0]
    assert [one["pass_done_partitions"] for one in first] == [*range(len(first))]
    assert {one["pass_bytes"] for one in first} == {600 * 12 * 8}
    assert all(one["running"] == 1 for one in seen)
    last = values(tmp_path / "run.prom")
    assert (last["running"], last["failed"]) == (0, 0)
    assert last["read_bytes_total"] >= 600 * 12 * 8
    job["input"]["nonfinite"] = "error"
    rows = np.load(tmp_path / "rows.npy")
    rows[7, 3] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    with pytest.raises(SketchSelectError):
        sks.run(job)
    assert values(tmp_path / "run.prom")["failed"] == 1


def test_metrics_go_on_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sketchselect._progress.METRICS_SECONDS", 0.0)
    written: list[bytes] = []
    metrics = Metrics(written.append)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    metrics.advance(7)
    assert b"sketchselect_read_bytes_total 7" in written[-1]


def test_metrics_that_cannot_be_written_end_no_job(
    job: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job["output"]["metrics"] = str(tmp_path / "no" / "such" / "folder.prom")
    with pytest.raises(ConfigError, match="metrics"):
        sks.run(job)
    assert not Path(job["output"]["dir"]).exists(), "refused before anything is made"
    attempts = []

    def write(path: Path, *contents: Any, **options: Any) -> None:
        attempts.append(path)
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(session, "write_atomically", write)
    job["output"]["metrics"] = str(tmp_path / "progress.prom")
    assert sks.run(job).selection.support.size == 4
    assert attempts
    assert {path.name for path in attempts} == {"progress.prom"}


@pytest.mark.slow
@pytest.mark.parametrize("content", ["distributed: [1, 2\n", "only text"])
def test_a_broken_file_of_the_configuration_of_dask_is_one_line(job_file: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "dask.yaml").write_text(content)
    process = start("run", job_file, "--json", env={**os.environ, "DASK_CONFIG": str(tmp_path / "dask.yaml")})
    out, err = process.communicate(timeout=600)
    assert process.returncode == json.loads(out)["exit_code"] == 2
    (line,) = err.splitlines()
    assert "dask.yaml' is malformed" in line
    assert "correct the file" in line
    assert "report" not in line


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--version"], ["--help"], ["run", "--help"], ["methods"], ["methods", "--json"], ["schema"]], ids=str
)
def test_output_that_cannot_be_written_is_one_line(words: list[str]) -> None:
    command = [sys.executable, "-m", "sketchselect", *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["error: standard output: No space left on device"]
