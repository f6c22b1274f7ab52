"""Disks that are full and files that may not grow: the message names the output, what is safe, and how to go on."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.deploy.links import Disk

from sketchselect.job.text import write_toml

pytestmark = pytest.mark.slow


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((20_000, 60)))
    job = {
        "input": {"url": "rows.npy"},
        "select": {"method": "greedy", "n_features": 40},
        "cluster": {"n_clusters": 3, "max_iter": 3, "certificate": False},
        "execution": {"cluster": "threads", "partition_bytes": "1MiB"},
        "output": {"dir": "out", "report": False},
    }
    (tmp_path / "job.toml").write_text(write_toml(job))
    return tmp_path / "job.toml"


def command(*words: object, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line, in a process that is limited before it begins."""
    line = [sys.executable, "-m", "sketchselect", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, preexec_fn=before, timeout=600)


@pytest.fixture(params=["limit", "disk"])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None] | None, str]]:
    """A folder without room for features of 6 MB, what makes it so before a command starts, and the word for why."""
    if request.param == "limit":
        yield tmp_path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000)), "ulimit -f"
        return
    with contextlib.closing(Disk(tmp_path / "small", megabytes=2)) as disk:
        if not disk.is_mounted:
            pytest.skip("a disk that gets full is a file system of its own, which this user cannot mount")
        yield disk.place, None, "make room"


def test_a_job_names_the_output_and_goes_on(
    job_file: Path, room: tuple[Path, Callable[[], None] | None, str], tmp_path: Path
) -> None:
    folder, before, cure = room
    run = ["run", job_file, "--set", f"output.dir={folder / 'out'}"]
    failed = command(*run, before=before)
    assert failed.returncode == 1
    (line,) = [line for line in failed.stderr.splitlines() if line.startswith("error: ")]
    for text in (str(folder / "out" / "features.zarr"), cure, "stages that are saved (summarize)", "same command"):
        assert text in line
    assert "rows.npy" not in line, "the input is not at fault"
    assert not (folder / "out" / "features.zarr").exists()
    if before is None:
        return  # there is no more room on this disk
    again = command(*run)
    assert again.returncode == 0, again.stderr
    assert "summarize" in again.stderr
    whole = command("run", job_file)
    assert whole.returncode == 0, whole.stderr
    for name in ("selection.json", "summary.sks", "features.zarr/c/0/0", "labels.zarr/c/0"):
        assert (folder / "out" / name).read_bytes() == (tmp_path / "out" / name).read_bytes(), name


@pytest.mark.share(0, 2)
@pytest.mark.parametrize(
    "words", [("convert", "rows.npy", "{}/rows.zarr"), ("summarize", "rows.npy", "-o", "{}/a.sks")]
)
def test_so_do_other_commands(
    job_file: Path, room: tuple[Path, Callable[[], None] | None, str], words: tuple[str, ...], tmp_path: Path
) -> None:
    folder, before, _ = room
    if words[0] == "summarize":
        words = (*words, "--moments", "--degree", "1", "--top-values", "6000", "--scheduler", "serial")
    written = [tmp_path / word if word == "rows.npy" else word.format(folder) for word in words]
    failed = command(*written, before=before)
    assert failed.returncode == 1
    (line,) = [line for line in failed.stderr.splitlines() if line.startswith("error: ")]
    assert str(written[2] if words[0] == "convert" else written[3]) in line
    left = [path.name for path in folder.iterdir() if path.name not in ("rows.npy", "job.toml", "small")]
    assert left == []


def test_a_job_file_that_is_not_written_whole_is_not_there(job_file: Path, tmp_path: Path) -> None:
    failed = command(
        "init", tmp_path / "rows.npy", "-o", tmp_path / "new.toml",
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )  # fmt: skip
    assert failed.returncode == 1
    assert failed.stderr == f"error: {tmp_path / 'new.toml'}: File too large\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.toml", "rows.npy"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_umask(job_file: Path, mask: int, tmp_path: Path) -> None:
    done = command("run", job_file, before=lambda: os.umask(mask) and None)
    assert done.returncode == 0, done.stderr
    paths = [tmp_path / "out", *(tmp_path / "out").rglob("*")]
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in paths}
    assert modes == {(True, 0o777 & ~mask), (False, 0o666 & ~mask)}
