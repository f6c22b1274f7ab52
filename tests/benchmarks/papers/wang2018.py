"""Tables 2 and 3 and Figure 1 of Wang, Shen and Li (ICML 2018): accuracy and NMI against the number of features.

    python tests/benchmarks/papers/wang2018.py [--quick] [--sets USPS,AR_55x40,COIL20,MNIST] [--json FILE]

Of the paper's six sets, CIFAR-10 and ORL are not among the data; AR is a smaller version. Rows are raw values / max, as
the paper says nothing of preparing them, and the selection sees at most 2,000 of them (a column has that many numbers);
k-means runs unweighted on the selected columns, on at most 10,000 rows. The paper's rate, c = 8 log n / eps^2, keeps
every column of all its sets; its curves need a smaller rate or, as here, the number of features given.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from graph_baselines import alpha_investing, laplacian_scores
from real_data import KINDS, DataSet, agreement, dense_columns, load

import sketchselect as sks
from sketchselect.selectors import METHODS, make, rank

COUNTS = (10, 25, 50, 100, 200, 300, 400, 500)
PAPER_SECONDS = {  # LapS, LevS, Alpha, SEC, OFS
    "USPS": (1.46, 0.94, 3.30, 0.003, 0.15),
    "AR_55x40": (0.70, 7.76, 26.99, 0.005, 1.74),
    "COIL20": (0.23, 0.64, 4.79, 0.002, 0.58),
    "MNIST": (19.38, 10.23, 9.62, 0.003, 1.32),
}


def selectors(data: DataSet, X: Any, y: Any) -> dict[str, Callable[[int], Any]]:
    """Return the methods of the paper's figure, and ours beside them: number of columns -> columns."""
    p, kept = X.shape[1], {}

    def once(name: str, work: Callable[[], Any]) -> Any:
        if name not in kept:
            kept[name] = work()
        return kept[name]

    found: dict[str, Callable[[int], Any]] = {
        "LapS": lambda r: rank(once("LapS", lambda: laplacian_scores(X)))[:r],
        "Alpha (uses classes)": lambda r: once("Alpha", lambda: alpha_investing(X, y))[:r],
        "random": lambda r: np.random.default_rng(0).permutation(p)[:r],
        "SEC (projection)": lambda r: None,
    }
    if "leverage" in METHODS:
        found["LevS, top"] = lambda r: (
            make("leverage", n_features_to_select=r, choice="top", about="zero").fit(X).support_
        )
        found["LevS, sampled"] = lambda r: (
            make("leverage", n_features_to_select=r, choice="sampled", about="zero").fit(X).support_
        )
    if "online-leverage" in METHODS:
        found["OFS (online-leverage)"] = lambda r: (
            make("online-leverage", n_features_to_select=r, about="zero").fit(X).support_
        )
    found["pivoted-qr"] = lambda r: sks.PivotedQRSelector(r, normalize=None).fit(X).support_
    found["greedy"] = lambda r: sks.GreedySelector(r, normalize=None).fit(X).support_
    return found


def figure(data: DataSet, counts: tuple[int, ...], seeds: int) -> list[dict[str, Any]]:
    """Return one record for each method and number of features; the first is k-means on all of them."""
    from sklearn.random_projection import SparseRandomProjection

    X, y = data.cluster[:2000].astype(np.float64), data.y[:2000]
    nmi, accuracy = agreement(data.cluster, data, seeds)
    records: list[dict[str, Any]] = [
        {"set": data.name, "method": "k-means", "r": X.shape[1], "nmi": nmi, "accuracy": accuracy}
    ]
    for name, choose in selectors(data, X, y).items():
        for r in counts:
            if r >= X.shape[1]:
                continue
            start = time.perf_counter()
            support = choose(r)
            if support is None:
                projection = SparseRandomProjection(r, dense_output=True, random_state=0).fit(X)
            seconds = time.perf_counter() - start
            if support is None:
                features = projection.transform(data.cluster)
            elif len(support) == 0:
                continue
            else:
                features = dense_columns(data.cluster, np.sort(support))
            nmi, accuracy = agreement(features, data, seeds)
            record = {"set": data.name, "method": name, "r": r, "nmi": nmi, "accuracy": accuracy, "seconds": seconds}
            records.append({**record, "columns": int(features.shape[1])})
    return records


def show(name: str, records: list[dict[str, Any]]) -> None:
    """Print the figure as two tables, and Table 3."""
    counts = sorted({x["r"] for x in records[1:]})
    methods = list(dict.fromkeys(x["method"] for x in records[1:]))
    for measure in ("accuracy", "nmi"):
        print(f"\nFigure 1, {name}: {measure}; k-means on all features {records[0][measure]:.3f}")
        print(f"  {'method':<24}" + "".join(f"{r:>8}" for r in counts))
        for method in methods:
            values = {x["r"]: x for x in records if x["method"] == method}
            line = (
                f"{values[r][measure]:.3f}{'*' if values[r]['columns'] < r else ''}" if r in values else "-"
                for r in counts
            )
            print(f"  {method:<24}" + "".join(f"{v:>8}" for v in line))
    print(f"\nTable 3, {name}: seconds of the slowest number of features (another machine than the paper's)")
    for method in methods:
        print(f"  {method:<24}{max(x['seconds'] for x in records if x['method'] == method):8.3f}")
    if name in PAPER_SECONDS:
        print(
            "  paper: "
            + ", ".join(
                f"{m} {s}" for m, s in zip(("LapS", "LevS", "Alpha", "SEC", "OFS"), PAPER_SECONDS[name], strict=True)
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small set, two numbers of features, one seed")
    parser.add_argument("--sets", default="USPS,AR_55x40,COIL20,MNIST,Isolet")
    parser.add_argument("--json", help="where to write the figures")
    options = parser.parse_args()
    everything: list[dict[str, Any]] = []
    print("Table 2: data set, points, features")
    for name in ["COIL20"] if options.quick else options.sets.split(","):
        if KINDS.get(name) != "image":
            parser.error(f"{name!r} is not one of {', '.join(n for n, k in KINDS.items() if k == 'image')}")
        data = load(name, cluster_rows=10_000)
        if data is None:
            continue
        print(f"  {name:<12}{data.select.shape[0]:>8}{data.select.shape[1]:>8}", flush=True)
        records = figure(data, (10, 50) if options.quick else COUNTS, seeds=1 if options.quick else 3)
        show(name, records)
        everything += records
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(everything, out, indent=1)


if __name__ == "__main__":
    main()
