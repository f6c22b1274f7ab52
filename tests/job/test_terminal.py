"""What a command shows while it works: at most twelve lines, on a terminal and in a pipe; all of it in `run.log`."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sketchselect._progress import Bar, Lines

from .commands import cli, works

MOST_LINES = 12


def test_a_brief_log_has_no_lines_of_passes(capsys: pytest.CaptureFixture[str]) -> None:
    for progress in (Lines(is_brief=True), Bar(is_brief=True)):
        progress.start("a pass", 10, 1)
        progress.advance(10)
        progress.detail("a detail")
        progress.finish("a pass")
    assert "a detail" not in capsys.readouterr().err


def test_a_piped_job_says_its_stages_once(job_file: Callable[..., Path], tmp_path: Path) -> None:
    path = job_file(
        select={"method": "auto", "n_features": "auto", "tolerance_proved": 0.5},
        cluster={"compare_all_columns": True},
        output={"report": False},
    )
    path.write_text(re.sub(r"(?m)^(n_components|sketch_size).*\n", "", path.read_text()))
    done = works("run", path)
    lines = done.stderr.splitlines()
    assert len(lines) <= MOST_LINES, done.stderr
    assert len([line for line in lines if line.startswith("k-means  ")]) == 1
    assert re.search(r"^k-means +[\d.]+ m?s  inertia [\d.]+$", done.stderr, re.MULTILINE)
    log = (tmp_path / "out" / "run.log").read_text()
    assert "projected peak" in log, "the rest is in the log"
    assert "load rows for k-means: " in log
    assert "projected peak" in cli("run", path, "--fresh", "-v").stderr


@pytest.mark.slow
def test_a_terminal_shows_one_live_line(job_file: Callable[..., Path]) -> None:
    near, far = pty.openpty()
    command = [sys.executable, "-m", "sketchselect", "run", str(job_file())]
    process = subprocess.Popen(command, stderr=far, stdout=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"})
    os.close(far)
    shown = b""
    while True:
        try:
            shown += os.read(near, 65536)
        except OSError:  # the other end is closed
            break
    assert process.wait(timeout=600) == 0, shown
    assert b"\x1b[2K" in shown, "a bar that is removed when its pass ends"
    text = re.sub(rb"\x1b\[[\d;?]*[a-zA-Z]", b"", shown)
    lasting = [line for line in text.split(b"\n") if line.strip() and b"\xe2\x94\x81" not in line]
    assert len(lasting) <= MOST_LINES, text
