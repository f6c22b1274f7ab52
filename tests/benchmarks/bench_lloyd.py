"""One Lloyd iteration against scikit-learn's, all overhead included: python tests/benchmarks/bench_lloyd.py.

Both fit from the same centres for the same number of iterations (tol = 0) with two threads; what is compared is the
time of the whole fit, loading, survey and final labels included, divided by the iterations done. Medians over
alternating repeats in one run.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from typing import Any

import numpy as np

from sketchselect.cluster import KMeansParameters, fit_kmeans
from sketchselect.execution import LocalEngine, PassOptions, Source
from sketchselect.readers import open_matrix


def ours(X: Any, centers: Any, max_iter: int, engine: LocalEngine) -> tuple[float, float]:
    """Return seconds per iteration and inertia of our fit."""
    began = time.perf_counter()
    parameters = KMeansParameters(len(centers), centers, max_iter=max_iter, tol=0.0)
    result = fit_kmeans(Source(open_matrix(X)), parameters, PassOptions(engine))
    return (time.perf_counter() - began) / result.n_iter, result.inertia


def theirs(X: Any, centers: Any, max_iter: int, n_threads: int) -> tuple[float, float]:
    """Return seconds per iteration and inertia of scikit-learn's fit."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    model = KMeans(len(centers), init=centers, n_init=1, max_iter=max_iter, tol=0.0, algorithm="lloyd")
    with threadpool_limits(n_threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model.fit(X)
        return (time.perf_counter() - began) / model.n_iter_, model.inertia_


def run(
    n_rows: int = 200_000,
    n_features: int = 64,
    n_clusters: int = 50,
    max_iter: int = 20,
    repeats: int = 5,
    n_threads: int = 2,
) -> dict[str, float]:
    """Return median seconds per iteration of both, their ratio, and the ratio of the inertias."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_features)).astype(np.float32)
    X += 2 * rng.standard_normal((n_clusters, n_features)).astype(np.float32)[rng.integers(n_clusters, size=n_rows)]
    centers = X[rng.choice(n_rows, n_clusters, replace=False)]
    engine = LocalEngine(n_threads)
    ours(X[: 4 * n_clusters], centers, 1, engine)
    theirs(X[: 4 * n_clusters], centers, 1, n_threads)
    a, b = [], []
    for _ in range(repeats):
        a.append(ours(X, centers, max_iter, engine))
        b.append(theirs(X, centers, max_iter, n_threads))
    mine, other = statistics.median(t for t, _ in a), statistics.median(t for t, _ in b)
    return {"ours": mine, "scikit-learn": other, "ratio": mine / other, "inertia ratio": a[0][1] / b[0][1]}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    found = run(args.rows, args.features, args.clusters, repeats=args.repeats, n_threads=args.threads)
    print(
        f"Lloyd iteration, {args.rows} x {args.features} float32, k = {args.clusters}, {args.threads} threads: "
        f"{1e3 * found['ours']:.1f} ms, scikit-learn {1e3 * found['scikit-learn']:.1f} ms, ratio {found['ratio']:.2f} "
        f"(limit 1.15), inertia ratio {found['inertia ratio']:.6f}"
    )


if __name__ == "__main__":
    main()
