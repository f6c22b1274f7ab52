"""What a pass costs beside its work: very many tiny partitions, iterations, one large store; and its peak memory.

Run: ``python tests/benchmarks/bench_overhead.py FOLDER --against TREE`` times this tree and another checkout in
turn, in processes of their own, and prints the ratio of the medians. ``--only tiny,kmeans,large,memory`` chooses;
``memory`` states the peak of client and scheduler for 100,000 partitions, of this tree alone.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
from bench_large import make_store
from timing import seconds

TINY, MANY, ROWS, COLUMNS = 10_000, 100_000, 10, 4
HERE = Path(__file__).resolve()
CASES = {
    "tiny": ("tiny threads", "tiny workers"),
    "kmeans": ("kmeans threads", "kmeans workers"),
    "large": ("large threads",),
    "memory": ("memory workers",),
}


def tiny_store(folder: Path, n_partitions: int) -> str:
    """Make (once) a matrix of so many partitions of ten rows."""
    path = folder / f"tiny-{n_partitions}.npy"
    if not path.exists():
        np.save(path, np.random.default_rng(0).random((n_partitions * ROWS, COLUMNS)))
    return str(path)


def run(case: str, folder: Path, n_rows: int) -> None:
    """Time one case in this process, on whichever tree it imports, and print the seconds."""
    what, where = case.split()
    if where == "threads":
        print(measured(what, folder, n_rows, "threads"))
        return
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        print(measured(what, folder, n_rows, client))


def measured(what: str, folder: Path, n_rows: int, client: object) -> str:
    """Return the seconds of a case; of `memory` the peak of client and scheduler, which run in this process."""
    import sketchselect as sks

    if what in ("tiny", "memory"):
        n_partitions = TINY if what == "tiny" else MANY
        path = tiny_store(folder, n_partitions)
        size = ROWS * COLUMNS * 8
        sks.summarize(tiny_store(folder, 10), sks.ColumnStats(), client=client, partition_bytes=size)
        before = peak_mib()
        took = seconds(lambda: sks.summarize(path, sks.ColumnStats(), client=client, partition_bytes=size))
        return f"{took:.3f}" if what == "tiny" else f"{before:.0f} MiB before, {peak_mib():.0f} MiB peak, {took:.0f} s"
    if what == "large":
        store = folder / f"mixture-{n_rows}.zarr"
        spec = {"sketch": sks.FrequentDirections(size=64), "stats": sks.ColumnStats()}
        return f"{seconds(lambda: sks.summarize(str(store), spec, client=client)):.3f}"
    path = folder / "kmeans.npy"
    if not path.exists():
        np.save(path, np.random.default_rng(0).random((400_000, 64), dtype=np.float32))
    estimator = sks.KMeans(10, max_iter=20, tol=0, random_state=0)
    if client != "threads":
        estimator.fit(np.zeros((20, 2)) + np.arange(20)[:, None])  # imports the module whose setting is changed
        (passes,) = (
            module for name, module in sys.modules.items() if name.endswith(("kmeans.passes", "cluster.passes"))
        )
        passes.LOCAL_NBYTES = 0  # blocks stay on the workers
    took = seconds(lambda: estimator.fit(str(path), client=client))
    assert estimator.n_iter_ == 20
    return f"{took:.3f}"


def peak_mib() -> float:
    """Return the largest resident memory that this process ever had."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(tree: Path, case: str, folder: Path, n_rows: int) -> str:
    """Return what a process with the package of a tree prints for a case."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "pipeline")}
    command = [sys.executable, str(HERE), str(folder), "--rows", str(n_rows), "--case", case]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split("\n")[-2]


def main() -> None:
    """Print the seconds and the ratio of every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder, n_rows = arguments.folder, arguments.rows
    folder.mkdir(parents=True, exist_ok=True)
    if arguments.case:
        run(arguments.case, folder, n_rows)
        return
    if "large" in arguments.only:
        make_store(folder / f"mixture-{n_rows}.zarr", n_rows)
    ours = HERE.parent.parent.parent
    for case in (case for name in arguments.only.split(",") for case in CASES[name]):
        if case.startswith("memory"):
            print(f"{case}: {child(ours, case, folder, n_rows)} for {MANY} partitions", flush=True)
            continue
        trees = [ours, *([arguments.against] if arguments.against else [])]
        times = [[float(child(tree, case, folder, n_rows)) for tree in trees] for _ in range(arguments.repeats)]
        medians = [statistics.median(column) for column in zip(*times, strict=True)]
        ratio = f", before {medians[1]:.2f} s: ratio {medians[0] / medians[1]:.2f}" if len(medians) > 1 else ""
        print(f"{case}: {medians[0]:.2f} s{ratio}", flush=True)


if __name__ == "__main__":
    main()
