"""Many jobs in one process, and folders that are used for months: nothing is left behind, nothing grows."""

import contextlib
import gc
import os
import re
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import zarr

import sketchselect as sks
from sketchselect.errors import Interrupted
from sketchselect.execution import Checkpoint
from sketchselect.summaries import block_bound
from sketchselect.workflow import folder as folders
from sketchselect.workflow.folder import open_folder
from sketchselect.workflow.stages import columns as stages

N_WARM, N_JOBS = 60, 200
GROWTH = 24 * 2**20
"""Memory that the allocator may keep of 140 jobs; one that kept its rows would take 280 MB."""


def open_things() -> tuple[int, set[str]]:
    """Return the number of descriptors and the names of threads; a pool, which starts them as needed, has one name."""
    gc.collect()
    return psutil.Process().num_fds(), {re.sub(r"_\d+$", "", thread.name) for thread in threading.enumerate()}


def assert_nothing_more_is_open(before: tuple[int, set[str]]) -> None:
    """Assert that what is open now was open before; event loops close their last socket after the call that used it."""
    deadline = time.monotonic() + 300
    while True:
        descriptors, threads = open_things()
        if descriptors <= before[0] and threads <= before[1]:
            return
        if time.monotonic() > deadline:
            listed = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
            pytest.fail(f"{descriptors} descriptors, {before[0]} before: {listed}; new threads: {threads - before[1]}")
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_two_hundred_jobs_leave_nothing_in_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_bound, "ITERATIONS", 2)  # further rounds of a bound use the memory of these
    rng = np.random.default_rng(0)
    before, memory = open_things(), 0
    for number in range(N_JOBS):
        if number == N_WARM:
            before, memory = open_things(), psutil.Process().memory_info().rss
        rows = rng.standard_normal((10_000, 25))
        place = tmp_path / f"{number}.zarr"
        zarr.create_array(str(place), data=rows, chunks=(1000, 25))
        job: dict[str, Any] = {
            "input": {"url": str(place)},
            "select": {"method": ("variance", "sketched-ridge", "greedy")[number % 3], "n_features": 3},
            "cluster": {"n_clusters": 2, "max_iter": 3, "n_init": 1},
            "execution": {"cluster": "threads", "n_workers": 2, "partition_bytes": 500_000, "checkpoint_seconds": 0},
            "output": {"dir": str(tmp_path / "out"), "report": False},
        }
        sks.run(job, fresh=True)
    assert_nothing_more_is_open(before)
    assert psutil.Process().memory_info().rss < memory + GROWTH


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_service_of_a_week_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs every eight hours in one folder, new rows each time, every fifth interrupted; files age in between."""
    out, scratch, place = tmp_path / "out", tmp_path / "scratch", tmp_path / "rows.zarr"
    scratch.mkdir()
    monkeypatch.setattr(folders, "UNUSED_DAYS", 2)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("TMPDIR", str(scratch))
    job: dict[str, Any] = {
        "input": {"url": str(place)},
        "select": {"method": "sketched-ridge", "n_features": 3, "n_components": 2, "sketch_size": 4},
        "cluster": {"n_clusters": 2, "max_iter": 3, "n_init": 1},
        "execution": {"cluster": "threads", "n_workers": 2, "partition_bytes": 4000, "checkpoint_seconds": 0},
        "output": {"dir": str(out)},
    }
    rng, nodes_of_one, before = np.random.default_rng(0), 0, open_things()
    for number in range(21):
        zarr.create_array(str(place), data=rng.standard_normal((300, 10)), chunks=(50, 10), overwrite=True)
        with pytest.MonkeyPatch.context() as patch:
            if number % 5 == 4:
                patch.setattr(stages, "select", _interrupt)
            with pytest.raises(Interrupted) if number % 5 == 4 else contextlib.nullcontext():
                sks.run(job)
        if number == 0:
            nodes_of_one = len(list((out / "checkpoints" / "nodes").rglob("*.sks")))
        elif number == 5:
            before = open_things()
        (out / "checkpoints" / "nodes" / f".{number}.partial").write_bytes(b"half")  # as a killed writer leaves it
        _eight_hours_later(out)
    sks.run(job)
    left = {path.name for path in out.iterdir()}
    assert left - {*folders.PUBLISHED} == {"checkpoints", folders.MARKER, folders.LOCK + ".guard"}
    assert {path.name for path in (out / "checkpoints").iterdir()} == {"nodes", "stages.json"}
    nodes = [path for path in (out / "checkpoints" / "nodes").rglob("*") if path.is_file()]
    assert {path.suffix for path in nodes} == {".sks"}
    assert 0 < nodes_of_one <= len(nodes) <= 7 * nodes_of_one
    assert list(scratch.iterdir()) == []
    assert_nothing_more_is_open(before)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _eight_hours_later(folder: Path) -> None:
    for path in folder.rglob("*"):
        then = path.stat().st_mtime - 8 * 3600
        os.utime(path, (then, then))


def test_old_and_large_checkpoints_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_CHECKPOINT_BYTES", 250)
    ages = {"00/new.1.sks": 0, "01/middle.1.sks": 1, "02/older.1.sks": 2, "03/ancient.1.sks": 40, ".04.partial": 1}
    with open_folder(tmp_path / "out") as folder:
        for name, days in ages.items():
            path = folder.checkpoints / "nodes" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(100))
            then = time.time() - days * 86400
            os.utime(path, (then, then))
        folder.collect_checkpoints()
        left = {str(p.relative_to(folder.checkpoints / "nodes")) for p in folder.checkpoints.rglob("*") if p.is_file()}
    assert left == {"00/new.1.sks"} | ({"01/middle.1.sks"} & left)
    assert not (folder.checkpoints / "nodes" / "03/ancient.1.sks").exists()
    assert sum(100 for _ in left) <= 250


def test_old_nodes_are_removed_from_a_folder_that_several_jobs_share(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).standard_normal((60, 6)))
    shared = tmp_path / "shared"
    job = {
        "input": {"url": str(tmp_path / "rows.npy")},
        "select": {"method": "variance", "n_features": 2},
        "execution": {"cluster": "serial", "checkpoint": str(shared), "checkpoint_seconds": 0},
        "output": {"dir": str(tmp_path / "out")},
    }
    sks.run(job)
    used = {path for path in shared.rglob("*") if path.is_file()}
    assert used
    others = {"0a/mine.1.sks": 40, "0b/theirs.1.sks": 29, "notes.txt": 40, "0c/.1.partial": 40}
    for name, days in others.items():
        path = shared / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(10))
        then = time.time() - days * 86400
        os.utime(path, (then, then))
    sks.run(job)
    left = {path for path in shared.rglob("*") if path.is_file()}
    assert left == used | {shared / name for name in others if name != "0a/mine.1.sks"}


def test_a_node_that_is_used_is_not_old(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((200, 5))
    zarr.create_array(str(tmp_path / "rows.zarr"), data=rows, chunks=(20, 5))
    saving = Checkpoint(tmp_path / "nodes", min_bytes=0, state_ratio=0)
    options = {"client": "serial", "partition_bytes": 800, "checkpoint": saving}
    first = sks.summarize(tmp_path / "rows.zarr", sks.Moments(), **options)
    files = list((tmp_path / "nodes").rglob("*.sks"))
    for path in files:
        os.utime(path, (0, 0))
    assert sks.summarize(tmp_path / "rows.zarr", sks.Moments(), **options) == first
    assert any(path.stat().st_mtime > 0 for path in files)
