"""The N-th file operation of a run fails, for every N: the right result, or one line; then the same bits."""

import builtins
import errno
import io
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from tests.deploy.chaos import damaged_nodes, digests
from tests.job.commands import cli

from sketchselect._progress import LOG
from sketchselect.execution import tasks
from sketchselect.job.text import write_toml
from sketchselect.readers.zarr import array
from sketchselect.summaries import block_bound
from sketchselect.workflow.session import library_logs

CALLS = ("open", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "scandir", "listdir", "stat", "utime")
"""Functions of `os` that a run needs."""


class Disk:
    """Counts the operations on files below a folder, and lets one of them fail."""

    def __init__(self, folder: Path, error: int) -> None:
        self.folder, self.error = str(folder), error
        self.n_done, self.failing, self.failed = 0, -1, ""
        self._lock = threading.Lock()
        self._paths: dict[int, str] = {}

    def operate(self, what: str, path: Any) -> None:
        """Count an operation; raise if its turn to fail has come."""
        name = self._paths.get(path, "") if isinstance(path, int) else os.fsdecode(path or "")
        if not name.startswith(self.folder):
            return
        with self._lock:
            self.n_done += 1
            fails = self.n_done == self.failing
        if fails:
            self.failed = f"{what} {name.removeprefix(self.folder)}"
            raise OSError(self.error, os.strerror(self.error), name)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Put the disk between Python and the operating system."""
        for name in CALLS:
            patch.setattr(os, name, self._wrapped(name, getattr(os, name)))
        opener = self._opener(io.open)
        patch.setattr(io, "open", opener)
        patch.setattr(builtins, "open", opener)

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            self.operate(name, arguments[0] if arguments else ".")
            value = call(*arguments, **options)
            if name == "open":
                self._paths[value] = os.fsdecode(arguments[0])
            return value

        return operation

    def _opener(self, true_open: Callable[..., Any]) -> Callable[..., Any]:
        disk = self

        class Writer(io.BufferedWriter):
            def write(self, data: Any) -> int:
                disk.operate("write", disk._paths.get(self.fileno(), ""))
                return super().write(data)

        def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if isinstance(file, int) or not os.fsdecode(file).startswith(disk.folder):
                return true_open(file, mode, *arguments, **options)
            disk.operate("open", file)
            if not set(mode) & set("wax"):
                return true_open(file, mode, *arguments, **options)
            raw = io.FileIO(file, mode.replace("b", "").replace("t", ""))
            disk._paths[raw.fileno()] = os.fsdecode(file)
            writer = Writer(raw)
            return writer if "b" in mode else io.TextIOWrapper(writer, encoding="utf-8", write_through=True)

        return opened


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small job with checkpoints, and what it leaves on a sound disk; few rounds of bounds, which touch no file."""
    folder = tmp_path_factory.mktemp("disk")
    rows = np.random.default_rng(0).standard_normal((120, 6)).astype("f4")
    zarr.create_array(str(folder / "rows.zarr"), data=rows, chunks=(40, 6))
    job = {
        "input": {"url": "rows.zarr"},
        "prepare": {"steps": ["standardise"]},
        "select": {"method": "variance", "n_features": 3},
        "cluster": {"n_clusters": 3},
        "execution": {"cluster": "serial", "partition_bytes": 2000, "checkpoint_seconds": 0},
        "output": {"report": False},
    }
    (folder / "job.toml").write_text(write_toml(job))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_bound, "ITERATIONS", 2)
        assert run(folder, folder / "quiet").exit_code == 0
        yield folder


def run(folder: Path, out: Path) -> Any:
    return cli("run", folder / "job.toml", "--set", f"output.dir={out}")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(array, "PAUSES", (0.0, 0.0))


def failures(folder: Path, tmp_path: Path, error: int, step: int) -> Iterator[tuple[int, Disk, Any, Path]]:
    """Yield a run for every `step`-th operation that fails, until none is left to fail."""
    failing = 1 + step // 2
    while True:
        out = tmp_path / f"out-{failing}"
        disk = Disk(folder, error)
        disk.folder = os.path.commonpath([folder, tmp_path])
        disk.failing = failing
        with pytest.MonkeyPatch.context() as patch:
            disk.install(patch)
            done = run(folder, out)
        if not disk.failed:
            assert disk.n_done < failing
            return
        yield failing, disk, done, out
        failing += step


@pytest.mark.parametrize(
    ("error", "step"),
    [
        pytest.param(errno.ENOSPC, 149, marks=pytest.mark.slow),
        pytest.param(errno.ENOSPC, 1, marks=[pytest.mark.slow, pytest.mark.nightly]),
        pytest.param(errno.EIO, 1, marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
)
@pytest.mark.timeout(3600)
def test_the_nth_operation_fails(folder: Path, tmp_path: Path, error: int, step: int) -> None:
    quiet = digests(folder / "quiet")
    outcomes, wrong = [], []
    for n, disk, done, out in failures(folder, tmp_path, error, step):
        outcomes.append(done.exit_code)
        for fault in faults_of(done, disk.failed, out, quiet):
            wrong.append(f"operation {n}, {disk.failed}: {fault}; exit code {done.exit_code}: {done.output}")
        again = run(folder, out)
        if again.exit_code or digests(out) != quiet:
            wrong.append(f"operation {n}, {disk.failed}: not the same when run again: {again.output}")
    assert wrong == []
    assert {0, 1} >= {*outcomes} - {2} > set()


def faults_of(done: Any, failed: str, out: Path, quiet: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with the end of a run in which an operation failed."""
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    # A job file that cannot be read is a mistake of the command line.
    if (done.exit_code, len(errors)) not in ((0, 0), (2 if "job.toml" in failed else 1, 1)):
        yield "no listed end"
    if "Traceback" in done.output or "unexpected" in done.output:
        yield "in the words of Python"
    try:
        now = digests(out)
    except Exception as error:
        yield f"half-written: {error}"
        return
    if not now.items() <= quiet.items():
        yield f"half-written or wrong: {now.items() - quiet.items()}"
    if now != quiet and done.exit_code == 0:
        yield "not the result"
    if (out / "checkpoints").exists() and damaged_nodes(out):
        yield "a damaged node"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_log_on_a_full_disk_loses_records_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with library_logs(Path("/dev/full")):
        LOG.warning("a line")
        logging.getLogger().warning("of a library")
    assert "Error" not in capsys.readouterr().err
