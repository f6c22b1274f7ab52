"""A Lloyd iteration against scikit-learn's and dask-ml's, overhead included: python tests/benchmarks/bench_kmeans.py.

All start from the same centres, on the same data in memory, with the same two threads and tol = 0. The time of an
iteration is the difference of a long and a short fit over the difference of their iterations, least of the repeats,
which take turns; loading, surveys and final labels cancel. Whole fits are compared beside it. CPU time is that of this
process, for machines that are busy. dask-ml's inertia is another figure: it sums distances without squaring them where
a fit stops early.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from sketchselect.cluster import KMeansParameters, fit_kmeans
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.readers import open_matrix

SHAPES = [
    (200_000, 64, 50, "float32"),
    (200_000, 64, 10, "float32"),
    (200_000, 64, 100, "float32"),
    (100_000, 64, 200, "float32"),
    (200_000, 16, 50, "float32"),
    (100_000, 200, 50, "float32"),
    (30_000, 784, 50, "float32"),
    (200_000, 64, 50, "float64"),
]

Fit = Callable[[Any, Any, int], tuple[int, float]]


def clouds(n_rows: int, n_features: int, n_clusters: int, dtype: str) -> tuple[Any, Any]:
    """Return overlapping Gaussian clouds and rows to start from."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_features)).astype(dtype)
    X += rng.standard_normal((n_clusters, n_features)).astype(dtype)[rng.integers(n_clusters, size=n_rows)]
    return X, X[rng.choice(n_rows, n_clusters, replace=False)]


def ours(n_threads: int) -> Fit:
    """Return our fit: iterations done and inertia."""
    engine = LocalEngine(n_threads)

    def fit(X: Any, centers: Any, max_iter: int) -> tuple[int, float]:
        parameters = KMeansParameters(len(centers), centers, max_iter=max_iter, tol=0.0)
        result = fit_kmeans(Source(open_matrix(X)), parameters, PassOptions(engine))
        return result.n_iter, result.inertia

    return fit


def scikit_learn(n_threads: int) -> Fit:
    """Return scikit-learn's fit."""
    from sklearn.cluster import KMeans

    # Looking for libraries takes milliseconds, which are not scikit-learn's.
    threads = ThreadpoolController()

    def fit(X: Any, centers: Any, max_iter: int) -> tuple[int, float]:
        model = KMeans(len(centers), init=centers, n_init=1, max_iter=max_iter, tol=0.0, algorithm="lloyd")
        with threads.limit(limits=n_threads):
            model.fit(X)
        return model.n_iter_, model.inertia_

    return fit


def dask_ml(n_threads: int) -> Fit:
    """Return dask-ml's fit, on the threads of this process: a cluster of processes would have to copy the data."""
    import dask
    import dask.array as da
    from dask_ml.cluster import KMeans

    threads = ThreadpoolController()

    def fit(X: Any, centers: Any, max_iter: int) -> tuple[int, float]:
        # Unnamed, it would hash all rows first.
        lazy = da.from_array(X, name=False, chunks=(-(-len(X) // n_threads), X.shape[1]))
        model = KMeans(len(centers), init=centers, max_iter=max_iter, tol=0.0)
        with threads.limit(limits=1), dask.config.set(scheduler="threads", num_workers=n_threads):
            model.fit(lazy)
        return model.n_iter_, float(model.inertia_)

    return fit


def run(
    shape: tuple[int, int, int, str], sides: dict[str, Fit], few: int = 2, many: int = 12, repeats: int = 3
) -> dict[str, dict[str, float]]:
    """Return, per side, least seconds and CPU seconds an iteration, seconds of a whole fit, and inertia."""
    X, centers = clouds(*shape)
    for fit in sides.values():
        fit(X[: 8 * len(centers)], centers, 2)
    clock: dict[tuple[str, int], list[tuple[float, float]]] = {}
    iterations: dict[tuple[str, int], int] = {}
    inertia: dict[str, float] = {}
    for _ in range(repeats):
        for name, fit in sides.items():
            for max_iter in (few, many):
                wall, cpu = time.perf_counter(), time.process_time()
                iterations[name, max_iter], inertia[name] = fit(X, centers, max_iter)
                clock.setdefault((name, max_iter), []).append((time.perf_counter() - wall, time.process_time() - cpu))
    found = {}
    for name in sides:
        least = {m: [min(values) for values in zip(*clock[name, m], strict=True)] for m in (few, many)}
        more = iterations[name, many] - iterations[name, few]
        wall, cpu = ((a - b) / more for a, b in zip(least[many], least[few], strict=True))
        found[name] = {"wall": wall, "cpu": cpu, "fit": least[many][0], "inertia": inertia[name]}
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--first", action="store_true", help="only the first shape, with dask-ml")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    sides = {"ours": ours(args.threads), "scikit-learn": scikit_learn(args.threads)}
    for number, shape in enumerate(SHAPES[: 1 if args.first else None]):
        both = {**sides, "dask-ml": dask_ml(args.threads)} if number == 0 else sides
        found = run(shape, both, many=args.iterations, repeats=args.repeats)
        mine = found["ours"]
        print(f"{shape[0]:>7} x {shape[1]:<3} {shape[3]}, k = {shape[2]}: {1e3 * mine['wall']:.1f} ms an iteration")
        for name, other in found.items():
            if name != "ours":
                print(
                    f"    of {name:<12} {1e3 * other['wall']:7.1f} ms: ratio {mine['wall'] / other['wall']:.2f}, in "
                    f"CPU time {mine['cpu'] / other['cpu']:.2f}, whole fit {mine['fit'] / other['fit']:.2f}, "
                    f"inertia {mine['inertia'] / other['inertia']:.7f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
