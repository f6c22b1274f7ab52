"""What the tests of Prefect and Airflow share: stores that grow, a job of them, a count of what is read, the oracle."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import sketchselect.execution
from sketchselect.errors import ClusterLost
from sketchselect.execution.summarize import SummariseBlock
from sketchselect.summaries import Bundle, load
from sketchselect.workflow import run

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 150
BAND = 40
"""Rows of a partition, and of a chunk."""

JOB = """
[input]
url = "rows.zarr"
key = "x"
[select]
method = "sketched-ridge"
n_features = 12
n_components = 4
sketch_size = 8
normalize = false
[cluster]
n_clusters = 3
max_iter = 5
[execution]
cluster = "serial"
partition_bytes = {bytes}
[output]
dir = "{out}"
"""


def marks_of(extra: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a file of tests that needs an orchestrator."""
    return [
        pytest.mark.slow,
        pytest.mark.timeout(900),
        pytest.mark.skipif(importlib.util.find_spec(extra) is None, reason=f"needs the extra {extra}"),
        # The orchestrator's own, of its dependencies.
        pytest.mark.filterwarnings("ignore"),
    ]


def commands_of(text: Path, job: Path, skipped: str) -> list[str]:
    """Return the blocks of shell commands in a text, for this job, without those that begin so."""
    blocks = re.findall(r"```sh\n(.*?)```", text.read_text(encoding="utf-8"), re.DOTALL)
    return [block.replace("/data/job.toml", str(job)) for block in blocks if not block.startswith(skipped)]


@contextlib.contextmanager
def shell(script: str, folder: Path, log: Path, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run commands by bash in a folder that has `deploy`, as a user would; nothing of them outlives the context."""
    (folder / "deploy").symlink_to(ROOT / "deploy")
    environment = os.environ | {
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **settings,
    }
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-ec", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            time.sleep(2)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def rows_of(seed: int, n_bands: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 3 * np.random.default_rng(0).standard_normal((3, COLUMNS))
    rows = centres[rng.integers(3, size=n_bands * BAND)] + rng.standard_normal((n_bands * BAND, COLUMNS))
    return rows.astype("float32")


def write_store(path: Path, rows: np.ndarray) -> None:
    group = zarr.create_group(path)
    for name, values in {"x": rows, "y": (rows[:, 3] - 2 * rows[:, 7]).astype("float64")}.items():
        group.create_array(name, data=values, chunks=(BAND, *values.shape[1:]))


def append(path: Path, rows: np.ndarray) -> None:
    array = zarr.open_array(path / "x", mode="r+")
    start = array.shape[0]
    array.resize((start + len(rows), COLUMNS))
    array[start:] = rows


def write_job(folder: Path, out: str = "out", **replaced: str) -> Path:
    text = JOB.format(bytes=BAND * COLUMNS * 8, out=out)
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{out}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def assert_same_bits(one: Path, other: Path) -> None:
    for name in ("summary.sks", "selection.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    for name in ("features.zarr", "labels.zarr", "centers.zarr"):
        mine, its = (np.asarray(zarr.open_array(folder / name, mode="r")[:]) for folder in (one, other))
        assert mine.tobytes() == its.tobytes(), name


def undisturbed(folder: Path) -> Path:
    """Run the job of a folder at once and without an orchestrator; return the output folder."""
    run(folder / "out.toml", overrides=["output.dir=alone"])
    return folder / "alone"


def first_stage(out: Path) -> dict[str, Any]:
    """Return what the manifest says of the pass that read the rows."""
    entry: dict[str, Any] = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["stages"][0]
    return entry


@dataclass
class Reads:
    """Counts the partitions that are summarised, and loses the cluster once, after so many of them."""

    lose_after: int | None = None
    partitions: list[int] = field(default_factory=list)
    """First row of each, in the order they were summarised."""
    at_loss: int | None = None
    each: Callable[[], object] = lambda: None
    lock: Any = field(default_factory=threading.Lock)

    def install(self, patch: pytest.MonkeyPatch) -> Reads:
        # What is kept on disk by default took a minute, or is of a gigabyte; here everything is worth it.
        kept = functools.partial(sketchselect.execution.Checkpoint, min_bytes=0, state_ratio=0)
        patch.setattr(sketchselect.execution, "Checkpoint", kept)
        original = SummariseBlock.__call__

        def counted(leaf: SummariseBlock, block: Any) -> Any:
            if not isinstance(leaf.description, Bundle):
                return original(leaf, block)  # a pass of k-means, not the one of the stage "summarize"
            with self.lock:
                if self.at_loss is None and self.lose_after is not None and len(self.partitions) >= self.lose_after:
                    self.at_loss = len(self.partitions)
                    raise ClusterLost("the scheduler went away")
                self.partitions.append(int(block.position))
            self.each()
            return original(leaf, block)

        patch.setattr(SummariseBlock, "__call__", counted)
        return self


def assert_guarantee(summary: Path, rows: np.ndarray) -> None:
    """Check a summary's moments to rounding, and its sketch against the bound that it states itself."""
    bundle, exact = load(summary), rows.astype(np.float64)
    columns, sketch = bundle["column-stats"], bundle["frequent-directions"]
    assert columns.n_rows == sketch.n_rows == len(rows)
    np.testing.assert_allclose(columns.mean, exact.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(columns.variance, exact.var(0), rtol=1e-12)
    gap = np.linalg.eigvalsh(exact.T @ exact - sketch.sketch.T @ sketch.sketch)
    rounding = 1e-12 * np.square(exact).sum()
    assert sketch.shrinkage > 0
    assert -rounding <= gap[0] <= gap[-1] <= sketch.shrinkage + rounding
