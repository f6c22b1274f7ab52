"""A store far larger than the workers' memory: does the job finish, and does memory stay below the projection?

Run: ``python tests/benchmarks/bench_large.py FOLDER`` makes (once) a 16 GB store of 2,000,000 x 2,000 float32, a
Gaussian mixture in 40 informative columns plus noise, and runs the whole job on a LocalCluster of two workers of 2 GB.
``--rows 20000`` for a smoke run.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import zarr
from zarr.codecs import ZstdCodec

COLUMNS, CLUSTERS, INFORMATIVE = 2000, 20, 40
BAND = 2000


def informative_columns(columns: int = COLUMNS) -> np.ndarray:
    """Return the columns that carry the mixture."""
    return np.sort(np.random.default_rng(1).choice(columns, INFORMATIVE, replace=False))


def write_band(path: str, start: int, stop: int) -> int:
    """Write rows `start` to `stop`, a whole number of chunks; the values depend on the rows alone."""
    array = zarr.open_array(path, mode="r+")
    columns = array.shape[1]
    centers = 4 * np.random.default_rng(2).standard_normal((CLUSTERS, INFORMATIVE)).astype(np.float32)
    for a in range(start, stop, BAND):
        b = min(a + BAND, stop)
        rng = np.random.default_rng([3, a])
        rows = rng.standard_normal((b - a, columns), dtype=np.float32)
        rows[:, informative_columns(columns)] += centers[rng.integers(0, CLUSTERS, b - a)]
        array[a:b] = rows
    return stop - start


def make_store(path: Path, n_rows: int, columns: int = COLUMNS) -> None:
    """Make the store with two processes unless it is there."""
    if (path / "zarr.json").exists():
        return
    zarr.create_array(
        str(path),
        shape=(n_rows, columns),
        chunks=(BAND, columns),
        dtype="float32",
        compressors=[ZstdCodec(level=0, checksum=True)],
    )
    step = BAND * 20
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(write_band, str(path), a, min(a + step, n_rows)) for a in range(0, n_rows, step)]
        for i, job in enumerate(jobs):
            job.result()
            print(f"\rmaking the store: {100 * (i + 1) // len(jobs)} %", end="", file=sys.stderr)
    print(file=sys.stderr)


JOB = """
[input]
url = "{store}"
[prepare]
rows = []
[select]
method = "sketched-ridge"
n_features = 40
n_components = 19
sketch_size = 160
[cluster]
n_clusters = 20
[execution]
cluster = "local"
n_workers = 2
memory_limit = "2GB"
[output]
dir = "{out}"
"""


def peak_memory(process: subprocess.Popen[str]) -> dict[int, int]:
    """Follow a process and its children until it ends; return the peak resident bytes of each."""
    peaks: dict[int, int] = {}
    parent = psutil.Process(process.pid)
    while process.poll() is None:
        try:
            for child in parent.children(recursive=True):
                peaks[child.pid] = max(peaks.get(child.pid, 0), child.memory_info().rss)
        except psutil.Error:
            pass
        time.sleep(0.1)
    return peaks


def main() -> None:
    """Make the store, run the job, print what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=2_000_000)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    store = arguments.folder / f"mixture-{arguments.rows}.zarr"
    make_store(store, arguments.rows)
    out = arguments.folder / f"out-{arguments.rows}"
    job = arguments.folder / "job.toml"
    job.write_text(JOB.format(store=store.resolve(), out=out.resolve()))
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "sketchselect", "run", str(job), "--fresh"], text=True)
    peaks = peak_memory(process)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(process.returncode)
    manifest = json.loads((out / "manifest.json").read_text())
    selection = json.loads((out / "selection.json").read_text())
    found = len(set(selection["support"]) & set(informative_columns().tolist()))
    print(f"seconds {seconds:.0f}, gigabytes per second of one pass {store_bytes(arguments.rows) / 1e9 / seconds:.2f}")
    print(f"informative columns found: {found} of {INFORMATIVE}")
    print(f"peak resident MiB of each process: {sorted((p >> 20 for p in peaks.values()), reverse=True)[:4]}")
    print(f"projected MiB: {manifest.get('memory')}")


def store_bytes(n_rows: int) -> int:
    """Return the decoded bytes of the store."""
    return 4 * n_rows * COLUMNS


if __name__ == "__main__":
    main()
