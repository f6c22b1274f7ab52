"""One summarize pass over a store against what it cannot do without: reading it, and the sketch's matrix products.

Run: ``python tests/benchmarks/bench_pass.py FOLDER`` makes (once) a 4 GB store of 500,000 x 2,000 float32 and times, in
turn and with the same two threads, (a) ``summarize`` with a sketch of 64 rows and column statistics, (b) reading and
decoding alone, (c) the products alone (8 l p flops a row). ``--rows 20000`` for a smoke run.
"""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from bench_large import COLUMNS, make_store
from threadpoolctl import threadpool_limits
from timing import seconds

import sketchselect as sks
from sketchselect.execution import LocalEngine
from sketchselect.readers import DEFAULT_PARTITION_BYTES, row_partitions

SIZE, THREADS = 64, 2


def summarize(path: str) -> None:
    """The pass itself."""
    spec = {"sketch": sks.FrequentDirections(size=SIZE), "stats": sks.ColumnStats()}
    sks.summarize(path, spec, client=LocalEngine(THREADS))


def read_only(path: str) -> None:
    """Read and decode every partition with the same threads, and throw it away."""
    matrix = sks.open_matrix(path)
    partitions = row_partitions(matrix, DEFAULT_PARTITION_BYTES)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda i: matrix.read_rows(*partitions[i]).shape, range(len(partitions))))


def products_only(n_rows: int) -> None:
    """The 8 l p flops a row of the plain algorithm, as products of its own shapes, on the same threads."""
    rows = n_rows // THREADS

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        buffer, factor = rng.standard_normal((2 * SIZE, COLUMNS)), rng.standard_normal((SIZE, 2 * SIZE))
        gram, out = np.empty((2 * SIZE, SIZE)), np.empty((SIZE, COLUMNS))
        other = rng.standard_normal((SIZE, COLUMNS))
        for _ in range(rows // SIZE):
            np.matmul(buffer, other.T, out=gram)
            np.matmul(factor, buffer, out=out)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


def main() -> None:
    """Print the three times and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    store = arguments.folder / f"mixture-{arguments.rows}.zarr"
    make_store(store, arguments.rows)
    summarize(str(store)), read_only(str(store))
    ratios = []
    for _ in range(arguments.repeats):
        with threadpool_limits(1):
            a, b, c = (
                seconds(lambda: summarize(str(store))),
                seconds(lambda: read_only(str(store))),
                seconds(lambda: products_only(arguments.rows)),
            )
        ratios.append(a / (b + c))
        print(f"summarize {a:.1f} s, reading {b:.1f} s, products {c:.1f} s: ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}, target <= 1.6")


if __name__ == "__main__":
    main()
