"""How close to 1 the certified factor of k-means comes on real data, and what that costs in CPU minutes.

    python tests/benchmarks/papers/certificates.py [data set ...] [--rows 400 800] [--exact]

One line for every data set and number of rows a block: factor from the spectrum, factor from all blocks, CPU and wall
minutes. ``--exact`` leaves the sampled bounds out. The clustering is the best of a few runs of k-means on all columns.
"""

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from real_data import DATA
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

import sketchselect as sks

CLUSTERS = {"digits": 10, "MNIST": 10, "USPS": 10, "COIL20": 20, "Isolet": 26, "mouse_bladder_cells": 16}
DIGIT_ROWS = 300
TARGET_SUM = 1e4


def load(name: str) -> Any | None:
    """Return the rows in float64 (cells: counts per library size, log(1 + x), unit length, CSR); None where absent."""
    if name == "digits":
        return load_digits().data
    file = DATA / f"{name}.npz"
    if not file.exists():
        return None
    found = np.load(file)
    if "X" in found:
        return found["X"].astype(np.float64)
    parts = found["data"].astype(np.float64), found["indices"].astype(np.int32), found["indptr"].astype(np.int32)
    rows = csr_array(parts, shape=tuple(found["shape"]))
    lengths = np.diff(rows.indptr)
    rows.data *= TARGET_SUM / np.repeat(rows.sum(axis=1), lengths)
    np.log1p(rows.data, out=rows.data)
    rows.data /= np.repeat(np.sqrt((rows * rows).sum(axis=1)), lengths)
    return rows


def measured(rows: Any, objective: float, k: int, **options: Any) -> tuple[sks.Certificate, float, float]:
    """Return a certificate, CPU seconds of all threads, and seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    found = sks.certify(rows, objective, k, method="blocks", **options)
    return found, time.process_time() - cpu, time.perf_counter() - wall


def lines(name: str, sizes: list[int], sampled: bool) -> Iterator[str]:
    """Yield the lines of one data set."""
    rows = load(name)
    if rows is None:
        yield f"{name:20} not there"
        return
    k = CLUSTERS[name]
    runs = KMeans(k, n_init=3 if rows.shape[0] > 20000 else 10, random_state=0).fit(rows)
    objective = sks.kmeans_objective(rows, runs.labels_, k)
    sketch = sks.FrequentDirections(size=16 * k)
    spectral = sks.certify(sks.summarize(rows, sketch), objective, k).factor
    start = f"{name:20} {rows.shape[0]:6} x {rows.shape[1]:5}  k = {k:2}"
    for size in sizes:
        found, cpu, wall = measured(rows, objective, k, block_rows=size)
        blocks = int(found.details["n_blocks"])
        yield (
            f"{start}  rows {size:4} ({blocks:3} blocks)  spectral {spectral:.3f}  blocks {found.factor:.4f}  "
            f"CPU {cpu / 60:5.2f} min  wall {wall / 60:5.2f} min"
        )
        if sampled and blocks >= 40:
            found, cpu, wall = measured(rows, objective, k, block_rows=size, confidence=0.99)
            solved = int(found.details["n_solved"])
            yield (
                f"{start}  rows {size:4} ({solved} of {blocks} blocks)  at {found.confidence:.0%} {found.factor:.4f}  "
                f"CPU {cpu / 60:5.2f} min  wall {wall / 60:5.2f} min"
            )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=", ".join(CLUSTERS))
    parser.add_argument("--rows", type=int, nargs="+", default=[400, 800])
    parser.add_argument("--exact", action="store_true", help="leave the sampled bounds out")
    given = parser.parse_args()
    for name in given.names or CLUSTERS:
        sizes = [DIGIT_ROWS, *given.rows] if name == "digits" else given.rows
        for line in lines(name, sizes, not given.exact):
            print(line, flush=True)


if __name__ == "__main__":
    main()
