"""Seeding against scikit-learn over many seeds: python tests/benchmarks/kmeans_seeding.py [--sets USPS,zipf].

Every run starts with another seed; objectives are divided by the lowest that any run on the data set found. With
`--stream` what is compared is `partial_fit` in batches of 1,000 rows with scikit-learn's MiniBatchKMeans, in random
order and in order of the groups. Data sets in files are looked for in SKETCHSELECT_DATA, and left out where absent.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sketchselect.cluster import KMeans

DATA = Path(os.environ.get("SKETCHSELECT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
SETS = ("USPS", "MNIST", "zipf", "geometric", "heavy")
BATCH = 1000


def load(name: str, n_rows: int) -> tuple[Any, Any, int] | None:
    """Return rows, a group for each, and the number of clusters; None where the file is not here."""
    if name in ("USPS", "MNIST"):
        path = DATA / f"{name}.npz"
        if not path.exists():
            return None
        with np.load(path) as archive:
            X, y = archive["X"].astype(np.float32), archive["y"]
        if name == "MNIST":
            X = np.ascontiguousarray(X[:, np.sort(np.argsort(-X.var(axis=0))[:200])])
        return X, y, 10
    rng = np.random.default_rng(0)
    k, width = 20, 10
    shares = {"zipf": 1 / np.arange(1, k + 1) ** 1.5, "geometric": 0.6 ** np.arange(k) + 1e-3}
    share = shares.get(name, 1 / np.arange(1, k + 1) ** 2)
    spread = {"zipf": np.ones(k), "geometric": np.exp(0.5 * rng.normal(size=k))}.get(name, np.exp(rng.normal(size=k)))
    apart = {"zipf": 5.0, "geometric": 8.0}.get(name, 20.0)
    middle = apart * rng.standard_normal((k, width))
    group = rng.choice(k, n_rows, p=share / share.sum())
    return middle[group] + spread[group, None] * rng.standard_normal((n_rows, width)), group, k


def fits(X: Any, k: int) -> dict[str, Callable[[int], float]]:
    """Return name -> seed -> objective of each way to start."""
    from sklearn.cluster import KMeans as Theirs

    def theirs(seed: int) -> float:
        return float(Theirs(k, n_init=1, random_state=seed, algorithm="lloyd").fit(X).inertia_)

    found: dict[str, Callable[[int], float]] = {"scikit-learn k-means++, n_init = 1": theirs}
    for init in ("k-means||", "k-means++"):
        for n_init in (1, "auto"):

            def ours(seed: int, init: str = init, n_init: Any = n_init) -> float:
                return float(KMeans(k, init=init, n_init=n_init, random_state=seed).fit(X).inertia_)

            found[f"ours {init}, n_init = {n_init}"] = ours
    return found


def streams(X: Any, group: Any, k: int) -> dict[str, Callable[[int], float]]:
    """Return name -> seed -> objective over all rows of centres found in batches."""
    from sklearn.cluster import MiniBatchKMeans

    def batches(order: Any) -> Iterator[Any]:
        for start in range(0, len(X), BATCH):
            rows = X[order[start : start + BATCH]]
            if len(rows) >= k:
                yield rows

    found: dict[str, Callable[[int], float]] = {}
    for name in ("random", "grouped"):

        def order_of(seed: int, name: str = name) -> Any:
            order = np.random.default_rng(seed).permutation(len(X))
            return order if name == "random" else order[np.argsort(group[order], kind="stable")]

        def theirs(seed: int, order_of: Any = order_of) -> float:
            model = MiniBatchKMeans(k, n_init=3, random_state=seed)
            for rows in batches(order_of(seed)):
                model.partial_fit(rows)
            return cost(X, model.cluster_centers_)

        def ours(seed: int, order_of: Any = order_of) -> float:
            model = KMeans(k, random_state=seed)
            for rows in batches(order_of(seed)):
                model.partial_fit(rows)
            return cost(X, model.cluster_centers_)

        found[f"MiniBatchKMeans, {name} order"] = theirs
        found[f"ours partial_fit, {name} order"] = ours
    return found


def cost(X: Any, centers: Any) -> float:
    """Return the sum of squared distances of the rows to the nearest centre."""
    from sketchselect.linalg.kmeans import lloyd

    return float(lloyd.assign(X, np.asarray(centers, dtype=np.float64))[1].sum())


def run(names: tuple[str, ...] = SETS, n_seeds: int = 20, n_rows: int = 20_000, stream: bool = False) -> dict[str, Any]:
    """Print a table of each data set as it is done; return data set -> way -> (objectives, seconds)."""
    results: dict[str, Any] = {}
    for name in names:
        loaded = load(name, n_rows)
        if loaded is None:
            print(f"{name}: not here")
            continue
        X, group, k = loaded
        ways = streams(X, group, k) if stream else fits(X, k)
        found: dict[str, tuple[list[float], float]] = {way: ([], 0.0) for way in ways}
        for seed in range(n_seeds):
            # In turn, so that whatever else the machine does hits all alike.
            for way, fit in ways.items():
                began = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found[way][0].append(fit(seed))
                found[way] = (found[way][0], found[way][1] + time.perf_counter() - began)
        best = min(min(values) for values, _ in found.values())
        print(f"\n{name}: {X.shape[0]} x {X.shape[1]}, k = {k}, {n_seeds} seeds; objective / lowest found")
        print(f"{'':<38} {'median':>8} {'mean':>8} {'worst':>8} {'s a fit':>8}")
        for way, (values, spent) in found.items():
            ratio = np.array(values) / best
            print(
                f"{way:<38} {np.median(ratio):8.4f} {ratio.mean():8.4f} {ratio.max():8.4f} {spent / n_seeds:8.2f}",
                flush=True,
            )
        results[name] = found
    return results


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=20_000, help="rows of the mixtures")
    parser.add_argument("--stream", action="store_true")
    args = parser.parse_args()
    run(tuple(args.sets.split(",")), args.seeds, args.rows, args.stream)


if __name__ == "__main__":
    main()
