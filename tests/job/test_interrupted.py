"""Runs that are interrupted, killed or out of room: what is finished stays, and the same command resumes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sketchselect.job.text import write_toml

from .commands import cli, refused, start


def test_a_full_disk_is_named_and_leaves_no_half_file(
    job_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchselect.workflow.output.folder import OutputFolder

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


def test_a_full_disk_names_the_folder(
    job_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sketchselect.workflow.output.folder import OutputFolder

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(OutputFolder, "write", full)
    refused(cli("run", job_file()), 1, str(tmp_path / "out"), os.strerror(28), "same command again")


def test_a_second_run_in_the_same_folder_is_refused(job_file: Callable[..., Path], tmp_path: Path) -> None:
    from sketchselect.workflow.output.folder import open_folder

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
@pytest.mark.parametrize("stopped", [False, True])
def test_a_killed_run_leaves_no_process_and_resumes(long_job: Path, tmp_path: Path, stopped: bool) -> None:
    import psutil

    run = ["run", long_job, "--set", f"output.dir={tmp_path / 'out'}"]
    process = start(*run)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("load rows for k-means"):
            break
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    for worker in workers if stopped else ():
        if "spawn_main" in " ".join(worker.cmdline()):
            worker.suspend()  # and it never goes on
    process.kill()
    process.communicate(timeout=30)
    assert (tmp_path / "out" / ".lock").exists(), "a killed process cannot tidy up"
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
    again = cli(*run, "--set", "cluster.n_init=1", "--set", "cluster.max_iter=5", "--cluster", "threads")
    assert again.exit_code == 0, again.output
    assert "write features: already done" in again.stderr
