"""Jobs for clusters of real processes: a command in a process of its own, its result on threads, and an end halfway."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zarr
from tests.deploy.conftest import wait_until

CLUSTERING_JOB = """
[input]
url = "rows.zarr"
[prepare]
rows = ["l2"]
[select]
method = "sketched-ridge"
n_features = 30
n_components = 8
sketch_size = 12
[output]
report = false
[cluster]
n_clusters = 6
"""

SELECTION_JOB = """
[input]
url = "rows.zarr"
[select]
method = "sketched-ridge"
n_features = 20
n_components = 6
sketch_size = 10
[execution]
partition_bytes = "{partition_bytes}"
[output]
report = false
"""


def write_job(folder: Path, text: str, rows: np.ndarray, chunk_rows: int) -> None:
    """Write the rows as a store and the job beside it, and run it on threads."""
    write_rows(folder, rows, chunk_rows)
    (folder / "job.toml").write_text(text, encoding="utf-8")
    make_reference(folder)


def write_rows(folder: Path, rows: np.ndarray, chunk_rows: int) -> None:
    """Write the rows as a store."""
    zarr.create_array(folder / "rows.zarr", data=rows.astype("f4"), chunks=(chunk_rows, rows.shape[1]))


def make_reference(folder: Path) -> None:
    """Run the folder's job on threads, with the result in ``reference``."""
    done = run(folder, "threads", "reference")
    assert done.returncode == 0, done.stdout + done.stderr


def clustered_rows() -> np.ndarray:
    """Return 12,000 rows about six centres."""
    rng = np.random.default_rng(5)
    centres = 4 * rng.standard_normal((6, 200))
    return centres[rng.integers(6, size=12_000)] + rng.standard_normal((12_000, 200))


def write_clustering_job(folder: Path, options: str, chunk_rows: int) -> Path:
    """Write a job that selects and clusters rows about six centres, with these lines at its end."""
    write_job(folder, CLUSTERING_JOB + options, clustered_rows(), chunk_rows)
    return folder


def write_selection_job(folder: Path, seed: int, n_rows: int, chunk_rows: int, partition_bytes: str) -> None:
    """Write a job that only selects, from rows of 100 columns in 12 dimensions."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n_rows, 12)) @ rng.standard_normal((12, 100))
    write_job(folder, SELECTION_JOB.format(partition_bytes=partition_bytes), rows, chunk_rows)


def command(folder: Path, cluster: str, out: str, *words: str) -> list[str]:
    """Return the command line of the folder's job on a cluster, with the result in a folder beside it.

    A ``program.py`` in the folder takes the place of the command line.
    """
    job = ["run", str(folder / "job.toml"), "--cluster", cluster, "--set", f"output.dir={folder / out}"]
    program = folder / "program.py"
    return [sys.executable, *([str(program)] if program.exists() else ["-m", "sketchselect"]), *job, *words]


def run(folder: Path, cluster: str, out: str, *words: str) -> subprocess.CompletedProcess[str]:
    line = command(folder, cluster, out, *words)
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)


def run_interrupted(
    words: list[str], halfway: Callable[[], bool], what: str, interrupt: Callable[[], None]
) -> tuple[int, str]:
    """Start a command, interrupt something when it is halfway, and return its exit code and what it said."""
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            wait_until(lambda: halfway() or process.poll() is not None, what)
            assert process.poll() is None, process.communicate()[0]
            interrupt()
            said, _ = process.communicate(timeout=600)
        finally:
            process.kill()
    return process.returncode, said


def assert_same_result(folder: Path, out: str) -> None:
    """Check that a result has the bits of the one on threads, file by file; clusters too where the job makes them."""
    for name in ("selection.json", "summary.sks"):
        assert (folder / out / name).read_bytes() == (folder / "reference" / name).read_bytes(), name
    clustered = (folder / "reference" / "labels.zarr").exists()
    for name in ("labels.zarr", "centers.zarr") if clustered else ():
        mine, other = (zarr.open_array(folder / where / name, mode="r")[:] for where in (out, "reference"))
        assert np.asarray(mine).tobytes() == np.asarray(other).tobytes(), name
