"""The image's script that resumes a job, with a stand-in for the command it runs."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.deploy.conftest import ROOT, wait_until

SCRIPT = ROOT / "deploy/docker/run-job.sh"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a POSIX shell script")


def stand_in(folder: Path, body: str) -> dict[str, str]:
    """Put a `sketchselect` into the path that notes its arguments, one line a call, and then does `body`."""
    command = folder / "sketchselect"
    command.write_text(f'#!/usr/bin/env bash\necho "$@" >> "{folder}/calls"\n{body}\n', encoding="utf-8")
    command.chmod(0o755)
    return os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "SKETCHSELECT_PAUSE": "0"}


def calls(folder: Path) -> list[str]:
    place = folder / "calls"
    return place.read_text(encoding="utf-8").splitlines() if place.exists() else []


@pytest.mark.parametrize(("code", "attempts"), [(0, 1), (1, 1), (2, 1), (75, 3)])
def test_only_a_lost_cluster_is_tried_again(tmp_path: Path, code: int, attempts: int) -> None:
    environment = stand_in(tmp_path, f"exit {code}") | {"SKETCHSELECT_ATTEMPTS": "3"}
    done = subprocess.run([SCRIPT, "job.toml", "--cluster", "env"], env=environment, timeout=600, check=False)
    assert done.returncode == code
    assert calls(tmp_path) == ["run job.toml --cluster env"] * attempts


def test_it_ends_with_the_first_run_that_ends(tmp_path: Path) -> None:
    environment = stand_in(tmp_path, f'[ "$(wc -l < "{tmp_path}/calls")" -ge 2 ] || exit 75')
    assert subprocess.run([SCRIPT, "job.toml"], env=environment, timeout=600, check=False).returncode == 0
    assert len(calls(tmp_path)) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_job_and_its_answer_is_waited_for(tmp_path: Path, number: signal.Signals) -> None:
    notes = tmp_path / "calls"
    body = f"trap 'sleep 0.3; echo tidy >> {notes}; exit 143' TERM; echo ready >> {notes}; while :; do sleep 0.05; done"
    # Whoever runs the tests in the background may have had SIGINT ignored, and no shell below can undo that.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen([SCRIPT, "job.toml"], env=stand_in(tmp_path, body), preexec_fn=heard)
    try:
        wait_until(lambda: "ready" in calls(tmp_path), "the job's start")
        process.send_signal(number)
        assert process.wait(timeout=600) == 143
    finally:
        process.kill()
        process.wait()
    assert calls(tmp_path)[-1] == "tidy"


def test_a_signal_between_two_attempts_is_the_end(tmp_path: Path) -> None:
    environment = stand_in(tmp_path, "exit 75") | {"SKETCHSELECT_PAUSE": "200"}
    process = subprocess.Popen([SCRIPT, "job.toml"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert "attempt 1 of 5" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=600) == 143
    finally:
        process.kill()
        process.communicate()
    assert len(calls(tmp_path)) == 1


def test_without_a_job_file_it_says_how(tmp_path: Path) -> None:
    done = subprocess.run(
        [SCRIPT], env=stand_in(tmp_path, ""), capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, calls(tmp_path)) == (2, [])
    assert "JOB.toml" in done.stderr
