"""The fewest columns on which a clustering is proved to be within ten percent of the best one in all columns.

    python tests/benchmarks/papers/proved_columns.py [data set ...] [--rows N] [--block-rows 400] [--restarts 50]
        [--reassign]

A job with ``tolerance_proved = 0.10`` chooses method and columns, clusters, and certifies with all blocks. Its lower
bound is then compared with restarts of scikit-learn's k-means in all columns: none may have a smaller objective. Rows
have length 1.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from certificates import CLUSTERS, load
from sklearn.cluster import KMeans

import sketchselect as sks

DATA_SETS = ("digits", "USPS", "COIL20", "Isolet", "MNIST")
TOLERANCE = 0.10


def proved(rows: np.ndarray, k: int, folder: Path, block_rows: int, reassign: bool) -> sks.RunResult:
    """Run the job."""
    np.save(folder / "rows.npy", rows)
    certificate = {"method": "blocks", "block_rows": block_rows}
    select = {"method": "auto", "n_features": "auto", "tolerance_proved": TOLERANCE}
    cluster = {"n_clusters": k, "reassign": reassign, "certificate": certificate}
    job = {"input": {"url": str(folder / "rows.npy")}, "prepare": {"rows": ["l2"]}, "select": select}
    output = {"dir": str(folder / "out"), "report": False}
    return sks.run({**job, "cluster": cluster, "execution": {"cluster": "serial"}, "output": output})


def line(name: str, n_rows: int | None, block_rows: int, restarts: int, reassign: bool) -> str:
    """Return the line of one data set, or of some of its rows, drawn at random."""
    rows = load(name)
    if rows is None:
        return f"{name:8} not there"
    if n_rows is not None:
        rows = rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:n_rows])]
    k, began = CLUSTERS[name], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = proved(rows, k, Path(folder), block_rows, reassign)
    certificate, spent = result.certificate, time.perf_counter() - began
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    best = min(KMeans(k, n_init=1, random_state=seed).fit(rows).inertia_ for seed in range(restarts))
    verdict = "holds" if certificate.lower_bound <= best * (1 + 1e-9) else "VIOLATED"
    above, bound = 100 * (certificate.factor - 1), certificate.lower_bound
    how, support = result.selection.method, result.selection.support
    return (
        f"{name:8} {rows.shape[0]:6} x {rows.shape[1]:4}  k = {k:2}  blocks of {block_rows:4}"
        f"{'  reassigned' if reassign else ''}  {support.size:4} columns by {how}: {certificate.method} proves "
        f"{above:.2f} %, objective {certificate.objective:.8g}, bound {bound:.8g}; best of {restarts} in all columns "
        f"{best:.8g} (bound {verdict}, {100 * (best / bound - 1):.2f} % above it); {spent:.0f} s"
    )


def main() -> None:
    """Print one line for every data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(DATA_SETS))
    parser.add_argument("--rows", type=int, help="random rows; all by default")
    parser.add_argument("--block-rows", type=int, default=400)
    parser.add_argument("--restarts", type=int, default=50)
    parser.add_argument("--reassign", action="store_true", help="one step of k-means in all columns at the end")
    given = parser.parse_args()
    for name in given.names or DATA_SETS:
        print(line(name, given.rows, given.block_rows, given.restarts, given.reassign), flush=True)


if __name__ == "__main__":
    main()
