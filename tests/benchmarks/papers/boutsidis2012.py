"""How well columns selected for k-means do in practice: python tests/benchmarks/papers/boutsidis2012.py --data FOLDER.

The question that Boutsidis and Magdon-Ismail 2012 (section 2.3) left open. For each data set, number of columns r and
method: the objective, in all columns, of k-means on the selected columns (weighted, where the method has weights, and
unweighted) over the best objective known; beside it what is proved, of the clustering found (`bound`, over the best
known) and against any clustering (`certified`, over a lower bound). `--quick`: small, and what needs no file.
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import sketchselect as sks
from sketchselect.selectors import METHODS, make

FILES = {"USPS": 10, "COIL20": 20, "Isolet": 26}
CANDIDATES = {
    "Algorithm 3": ("randomized", {}),
    "Algorithm 3, best of 10": ("randomized", {"n_draws": 10}),
    "Algorithm 4 (k-means++)": ("deterministic", {"partition": "kmeans++"}),
    "Algorithm 4 (best)": ("deterministic", {"partition": "best"}),
    "Algorithm 5": ("deterministic", {}),
    "Algorithm 6, best of 10": ("hybrid", {}),
    "leverage": ("leverage", {}),
    "FSDS": ("sketched-ridge", {}),
    "variance": ("variance", {}),
    "pivoted QR": ("pivoted-qr", {}),
    "greedy": ("greedy", {}),
}


def mixture(n: int, d: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return overlapping clusters that show in a third of the columns, of spread scales, some of them copies."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(k, size=n)
    centers = 2 * rng.standard_normal((k, d)) * (rng.random(d) < 0.33)
    X = (rng.standard_normal((n, d)) + centers[labels]) * rng.exponential(size=d)
    X[:, d // 2 : d // 2 + d // 8] = X[:, : d // 8] + 0.05 * rng.standard_normal((n, d // 8))
    return X, labels


def data_sets(folder: Path | None, quick: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray, int]]:
    """Yield (name, X, labels, k)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    yield "digits", digits.data, digits.target, 10
    X, labels = mixture(400 if quick else 3000, 120 if quick else 500, 8)
    yield "mixture", X, labels, 8
    if quick:
        return
    for name, k in FILES.items():
        path = None if folder is None else folder / f"{name}.npz"
        if path is None or not path.is_file():
            print(f"{name}: no file; give its folder by --data")
            continue
        with np.load(path, allow_pickle=False) as archive:
            yield name, archive["X"].astype(np.float64), archive["y"], k


def cluster(X: np.ndarray, k: int, n_init: int, seed: int = 0) -> np.ndarray:
    """Return the labels of the best of several runs of k-means."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # Few columns may have fewer distinct rows than clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels: np.ndarray = KMeans(k, n_init=n_init, random_state=seed).fit(X).labels_
    return labels


def objective(X: np.ndarray, labels: np.ndarray) -> float:
    """Return the k-means objective of a partition."""
    return float(sum(((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum() for c in np.unique(labels)))


def selector(method: str, extra: dict[str, Any], r: int, k: int) -> Any:
    """Return a selector of a registered method, for k clusters where it knows them."""
    known = METHODS[method]().get_params()
    common = {"n_features_to_select": r, "n_clusters": k, "n_components": k, "normalize": None, "random_state": 0}
    return make(method, **{n: v for n, v in common.items() if n in known} | extra)


def measure(X: np.ndarray, y: np.ndarray, k: int, r: int, chosen: Any, n_init: int, lower: float) -> dict[str, Any]:
    """Return what k-means on the selected columns gives, weighted and not, and what is proved of it."""
    from sklearn.metrics import normalized_mutual_info_score

    columns = X[:, chosen.support_]
    plain = cluster(columns, k, n_init)
    row: dict[str, Any] = {
        "r": int(r),
        "objective": objective(X, plain),
        "nmi": float(normalized_mutual_info_score(y, plain)),
    }
    scatter = ((X - X.mean(axis=0)) ** 2).sum(axis=0)
    row["bound"] = objective(columns, plain) + float(np.delete(scatter, chosen.support_).sum())
    weights = getattr(chosen, "weights_", None)
    if weights is not None:
        C = columns * weights
        labels = cluster(C, k, n_init)
        row["weighted_objective"] = objective(X, labels)
        row["weighted_nmi"] = float(normalized_mutual_info_score(y, labels))
        certificate = getattr(chosen, "certificate_", None)
        if hasattr(certificate, "structural_bound"):
            row["weighted_bound"] = certificate.bound(objective(C, labels))
            row["structural_bound"] = certificate.structural_bound(objective(C, labels))
            row["sigma_min"] = certificate.sigma_min
            row["n_iterations"] = chosen.selection_.diagnostics.get("n_iterations")
            row["proven_factor"] = chosen.selection_.diagnostics.get("proven_factor")
            row["factor_before_clustering"] = certificate.factor()
    best = min(v for n, v in row.items() if n in ("objective", "weighted_objective"))
    row["certified"] = best / lower if lower > 0 else None
    return row


def run(name: str, X: np.ndarray, y: np.ndarray, k: int, sizes: list[int], n_init: int) -> dict[str, Any]:
    """Return the results of one data set."""
    labels = cluster(X, k, 2 * n_init)
    moments = sks.summarize(X, sks.Moments())
    lower = sks.certify(moments, objective(X, labels), k).lower_bound
    found: dict[str, Any] = {"shape": list(X.shape), "k": k, "lower_bound": lower, "methods": {}}
    rng = np.random.default_rng(0)
    for title, (method, extra) in CANDIDATES.items():
        if method not in METHODS:
            print(f"{name}: {title} is not available")
            continue
        rows = []
        for r in sizes:
            if not k < r < X.shape[1]:
                continue
            given = {n: labels if isinstance(v, str) and v == "best" else v for n, v in extra.items()}
            began = time.perf_counter()
            chosen = selector(method, given, r, k).fit(X)
            seconds = time.perf_counter() - began
            rows.append(measure(X, y, k, r, chosen, n_init, lower) | {"seconds": seconds})
        found["methods"][title] = rows
    rows = []
    for r in sizes:
        if not k < r < X.shape[1]:
            continue
        objectives = []
        for seed in range(3):
            columns = rng.permutation(X.shape[1])[:r]
            objectives.append(objective(X, cluster(X[:, columns], k, n_init, seed)))
        rows.append({"r": r, "objective": float(np.mean(objectives)), "worst": float(np.max(objectives))})
    found["methods"]["random (mean of 3)"] = rows
    every = [v for rows in found["methods"].values() for row in rows for n, v in row.items() if n.endswith("objective")]
    found["best_objective"] = min(objective(X, labels), *every)
    return found


def table(name: str, found: dict[str, Any]) -> str:
    """Return the ratios of one data set as text: weighted / unweighted (bound of either)."""
    best = found["best_objective"]
    lines = [
        f"{name}: {found['shape'][0]} x {found['shape'][1]}, k = {found['k']}; the best objective known is within "
        f"{best / found['lower_bound']:.3f} of any; weighted / plain ratio [proved bound of either]"
    ]
    for title, rows in found["methods"].items():
        cells = []
        for row in rows:
            weighted = f"{row['weighted_objective'] / best:.3f} / " if "weighted_objective" in row else ""
            bound = min(row.get("weighted_bound", np.inf), row.get("bound", np.inf)) / best
            proved = f" [{bound:.2f}]" if np.isfinite(bound) else ""
            cells.append(f"r={row['r']}: {weighted}{row['objective'] / best:.3f}{proved}")
        lines.append(f"  {title:<26} " + "   ".join(cells))
    return "\n".join(lines)


def main() -> None:
    """Print the tables; write everything as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=None, help="folder of USPS.npz, COIL20.npz, Isolet.npz")
    parser.add_argument("--out", type=Path, default=None, help="JSON file to write")
    parser.add_argument("--only", nargs="*", default=None, help="names of data sets")
    parser.add_argument("--restarts", type=int, default=5, help="runs of k-means of which the best is taken")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    n_init = 1 if args.quick else args.restarts
    results = {}
    for name, X, y, k in data_sets(args.data, args.quick):
        if args.only is not None and name not in args.only:
            continue
        sizes = [2 * k] if args.quick else sorted({k + 1, 2 * k, 50, 100, 200})
        results[name] = run(name, X, y, k, sizes, n_init)
        print(table(name, results[name]), flush=True)
    if args.out is not None:
        args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
