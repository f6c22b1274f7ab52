"""k-means of a Zarr store on worker processes: python tests/benchmarks/kmeans_zarr.py [--rows 2000000] [--folder F].

One run measures, on the same machine: the seconds of one read of the store, scikit-learn's seconds for one Lloyd
iteration on rows in memory (a part of them, scaled up), and our whole fits with one and with two workers, from the same
centres for the same number of iterations. Targets: total <= 1.5 x (one read + iterations at scikit-learn's rate), and
two workers at least 1.7 times as fast as one.
"""

import argparse
import contextlib
import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect.cluster import KMeansParameters, fit_kmeans
from sketchselect.cluster.kmeans import passes
from sketchselect.execution import LocalEngine, PassOptions, Source, local_cluster, summarize_source
from sketchselect.readers import open_matrix
from sketchselect.summaries import ColumnStats

CHUNK_ROWS = 20_000


def make(path: Path, n_rows: int, n_columns: int, n_clusters: int) -> None:
    """Write a float32 store of overlapping groups, a chunk at a time."""
    import zarr

    store: Any = zarr.create_array(
        str(path), shape=(n_rows, n_columns), chunks=(min(CHUNK_ROWS, n_rows), n_columns), dtype="float32"
    )
    rng = np.random.default_rng(0)
    middle = 1.5 * rng.standard_normal((n_clusters, n_columns)).astype(np.float32)
    for start in range(0, n_rows, CHUNK_ROWS):
        m = min(CHUNK_ROWS, n_rows - start)
        rows = rng.standard_normal((m, n_columns), dtype=np.float32)
        store[start : start + m] = rows + middle[rng.integers(n_clusters, size=m)]


def theirs(X: Any, centers: Any, n_iter: int, repeats: int = 3) -> float:
    """Return scikit-learn's seconds an iteration: of a long and a short fit the difference, least of the repeats."""
    from sklearn.cluster import KMeans

    spent: dict[int, list[float]] = {1: [], 1 + n_iter: []}
    for repeat in range(1 + repeats):
        for most, seconds in spent.items():
            model = KMeans(len(centers), init=centers, n_init=1, max_iter=most, tol=0.0, algorithm="lloyd")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                began = time.perf_counter()
                model.fit(X)
            # The first fits start the threads.
            if repeat:
                seconds.append(time.perf_counter() - began)
    return (min(spent[1 + n_iter]) - min(spent[1])) / n_iter


def ours(source: Source, centers: Any, n_iter: int, n_workers: int, local: bool) -> float:
    """Return the seconds of a whole fit, once the workers have loaded their libraries."""
    parameters = KMeansParameters(len(centers), centers, max_iter=n_iter, tol=0.0)
    with contextlib.ExitStack() as stack:
        engine: Any = LocalEngine(n_workers) if local else stack.enter_context(local_cluster(n_workers))
        small = Source(open_matrix(np.asarray(centers, dtype=np.float32)))
        keep, passes.LOCAL_NBYTES = passes.LOCAL_NBYTES, passes.LOCAL_NBYTES if local else 0
        try:
            fit_kmeans(small, KMeansParameters(2, max_iter=1), PassOptions(engine))
            began = time.perf_counter()
            fit_kmeans(source, parameters, PassOptions(engine))
            return time.perf_counter() - began
        finally:
            passes.LOCAL_NBYTES = keep


def run(
    n_rows: int = 2_000_000,
    n_columns: int = 200,
    n_clusters: int = 100,
    n_iter: int = 10,
    folder: Path | None = None,
    local: bool = False,
) -> dict[str, float]:
    """Return seconds and ratios; `local` uses threads of this process instead of workers."""
    own = Path(tempfile.mkdtemp()) if folder is None else folder
    path = own / f"kmeans-{n_rows}x{n_columns}.zarr"
    try:
        if not path.exists():
            make(path, n_rows, n_columns, n_clusters)
        source = Source(open_matrix(path))
        part = min(n_rows, 200_000)
        X = source.matrix.read_rows(0, part)
        centers = X[np.random.default_rng(1).choice(part, n_clusters, replace=False)].astype(np.float64)
        began = time.perf_counter()
        summarize_source(source, ColumnStats(), PassOptions(LocalEngine(2)))
        read = time.perf_counter() - began
        rate = theirs(X, centers, 5) * n_rows / part
        del X
        found = {"read": read, "scikit-learn iteration": rate}
        for n_workers in (1, 2):
            found[f"{n_workers} workers"] = ours(source, centers, n_iter, n_workers, local)
        # The labels are one more sweep over the rows.
        found["ratio"] = found["2 workers"] / (read + (n_iter + 1) * rate)
        found["speed-up"] = found["1 workers"] / found["2 workers"]
        return found
    finally:
        if folder is None:
            shutil.rmtree(own, ignore_errors=True)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=200)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="keep the store here, and use the one that is there")
    parser.add_argument("--threads", action="store_true", help="threads of this process instead of workers")
    args = parser.parse_args()
    found = run(args.rows, args.columns, args.clusters, args.iterations, args.folder, args.threads)
    print(
        f"{args.rows} x {args.columns} float32 from Zarr, k = {args.clusters}, {args.iterations} iterations and labels"
    )
    print(f"one read {found['read']:.1f} s, scikit-learn {found['scikit-learn iteration']:.2f} s an iteration")
    print(f"one worker {found['1 workers']:.1f} s, two workers {found['2 workers']:.1f} s")
    print(f"total / (one read + iterations at scikit-learn's rate) {found['ratio']:.2f} (target 1.5)")
    print(f"two workers over one {found['speed-up']:.2f} (target 1.7)")


if __name__ == "__main__":
    main()
