"""Standard streams that are closed, and pipes that nobody reads."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

COMMAND = f"{shlex.quote(sys.executable)} -m sketchselect"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.share(0, 2)
@pytest.mark.parametrize("closed", ["2>&-", "1>&-", "0<&-", "0<&- 1>&- 2>&-"])
def test_a_job_runs_with_closed_streams(job_file: Callable[..., Path], tmp_path: Path, closed: str) -> None:
    done = shell(f"{COMMAND} run {job_file()} {closed}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "selection.json").exists()
    assert "Error" not in done.stderr + done.stdout


def test_a_pipe_that_nobody_reads_ends_in_silence(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 3)))
    done = shell(f"(sleep 5; {COMMAND} inspect {tmp_path / 'x.npy'}; echo code $? >&2) | true")
    assert done.stderr == "code 1\n"
