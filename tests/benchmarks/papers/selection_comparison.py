"""Agreement of k-means with the classes against the number of selected columns: selectors of the package and others.

    python tests/benchmarks/papers/selection_comparison.py [--quick] [--sets USPS,TDT2] [--json FILE]

NMI and accuracy of scikit-learn's KMeans on the selected columns, unweighted, and their mean ratio to all columns. The
data are read from ../shared/data beside the repository (or $SKETCHSELECT_DATA); what is not there is skipped.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from graph_baselines import alpha_investing, laplacian_scores, mcfs_scores
from real_data import KINDS, DataSet, agreement, dense_columns, load, sketch

from sketchselect.errors import SketchSelectError
from sketchselect.selectors import METHODS, make, rank

COUNTS = {
    "image": (25, 50, 100, 200),
    "text": (200, 600, 1000, 2000),
    "cells": (200, 600, 1000, 2000),
    "arrays": (200, 600, 1000, 2000),
}
SKETCH_SIZE = 160
# Sampling methods are run this often.
DRAWS = 3


def ours(data: DataSet, summary: Any) -> dict[str, Callable[[int], Any]]:
    """Return the package's selectors; those by sketch share one, and all rows have unit length already."""
    k = data.n_clusters

    def by_sketch(method: str, **parameters: Any) -> Callable[[int], Any]:
        return lambda r: make(method, n_features_to_select=r, **parameters).fit_summary(summary).support_

    found = {
        "greedy": by_sketch("greedy"),
        "greedy, no noise": by_sketch("greedy", noise=None),
        "pivoted-qr": by_sketch("pivoted-qr"),
        "pivoted-qr, k directions": by_sketch("pivoted-qr", n_components=k),
        "sketched-ridge": by_sketch("sketched-ridge", n_components=k),
        "variance": by_sketch("variance"),
        "leverage, top": by_sketch("leverage", n_components=k, choice="top"),
        "leverage, sampled": by_sketch("leverage", n_components=k, choice="sampled"),
        "deterministic": by_sketch("deterministic", n_clusters=k),
        "hybrid": by_sketch("hybrid", n_clusters=k),
        "randomized": by_sketch("randomized", n_clusters=k),
    }
    if not sp.issparse(data.select):
        # The columns of one random block of rows: what arrives one after the other.
        block = data.select[:2000]
        found["online-leverage"] = lambda r: (
            make("online-leverage", n_features_to_select=r).fit(np.ascontiguousarray(block)).support_
        )
    return {name: make_one for name, make_one in found.items() if name.split(",")[0] in METHODS}


def others(data: DataSet) -> dict[str, Callable[[int], Any]]:
    """Return selectors of the literature."""
    p = data.select.shape[1]
    scores: dict[str, Any] = {}

    def laplacian(r: int) -> Any:
        if "laplacian" not in scores:
            scores["laplacian"] = laplacian_scores(data.select)
        return rank(scores["laplacian"])[:r]

    found: dict[str, Callable[[int], Any]] = {f"random {i}": _random(p, i) for i in range(DRAWS)}
    found["laplacian"] = laplacian
    if p <= 3000:
        found["mcfs"] = lambda r: rank(mcfs_scores(data.select, data.n_clusters, r))[:r]

        def investing(r: int) -> Any:
            if "alpha" not in scores:
                scores["alpha"] = alpha_investing(data.cluster.astype(np.float64), data.y)
            return scores["alpha"][:r]

        found["alpha-investing (uses classes)"] = investing
    return found


def _random(p: int, seed: int) -> Callable[[int], Any]:
    return lambda r: np.random.default_rng(seed).permutation(p)[:r]


def projected(data: DataSet, r: int) -> Any:
    """Return the rows under a sparse random projection to r dimensions (not a selection of columns)."""
    from sklearn.random_projection import SparseRandomProjection

    return SparseRandomProjection(r, dense_output=True, random_state=0).fit_transform(data.cluster)


def compare(data: DataSet, counts: tuple[int, ...], seeds: int) -> list[dict[str, Any]]:
    """Return one record for each method and number of columns; the first one is all columns."""
    nmi, accuracy = agreement(data.cluster, data, seeds)
    records = [{"set": data.name, "method": "all", "r": data.select.shape[1], "nmi": nmi, "accuracy": accuracy}]
    start = time.perf_counter()
    summary = sketch(data, SKETCH_SIZE)
    print(f"  sketch of size {SKETCH_SIZE}: {time.perf_counter() - start:.1f} s, exact: {summary.is_exact}", flush=True)
    methods = {**ours(data, summary), **others(data), "random projection": lambda r: None}
    for name, choose in methods.items():
        for r in counts:
            if r > data.select.shape[1]:
                continue
            start = time.perf_counter()
            try:
                support = choose(r)
            except SketchSelectError as error:
                # A theorem's own limits (such as r > k); said, not hidden.
                print(f"  {name}, r = {r}: {error}")
                continue
            seconds = time.perf_counter() - start
            features = projected(data, r) if support is None else dense_columns(data.cluster, np.sort(support))
            if features.shape[1] == 0:
                continue
            nmi, accuracy = agreement(features, data, seeds)
            record = {"set": data.name, "method": name, "r": r, "nmi": nmi, "accuracy": accuracy, "seconds": seconds}
            records.append({**record, "columns": int(features.shape[1])})
    return records


def show(records: list[dict[str, Any]], measure: str = "nmi") -> None:
    """Print the table of one data set, and the mean ratio to all columns."""
    base = records[0][measure]
    counts = sorted({x["r"] for x in records[1:]})
    print(f"  {measure}: all columns {base:.3f}")
    print(f"  {'method':<32}" + "".join(f"{'r=' + str(r):>9}" for r in counts) + "   ratio")
    for method in dict.fromkeys(x["method"] for x in records[1:]):
        values = {x["r"]: x for x in records if x["method"] == method}
        # A star: fewer columns than asked for.
        cells = [
            f"{values[r][measure]:.3f}{'*' if values[r]['columns'] < r else ' '}" if r in values else "-"
            for r in counts
        ]
        ratio = np.mean([x[measure] for x in values.values()]) / base
        print(f"  {method:<32}" + "".join(f"{c:>9}" for c in cells) + f"   {ratio:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small set, two numbers of columns, one seed")
    parser.add_argument("--sets", default="USPS,COIL20,MNIST,Isolet,AR_55x40,TDT2,mouse_bladder_cells")
    parser.add_argument("--json", help="where to write the figures")
    options = parser.parse_args()
    names = ["COIL20"] if options.quick else options.sets.split(",")
    everything = []
    for name in names:
        if name not in KINDS:
            parser.error(f"unknown data set {name!r}; known: {', '.join(KINDS)}")
        data = load(name, cluster_rows=10_000)
        if data is None:
            continue
        counts = COUNTS[data.kind][:2] if options.quick else COUNTS[data.kind]
        print(f"{name}: {data.select.shape[0]} x {data.select.shape[1]}, {data.n_clusters} classes", flush=True)
        records = compare(data, counts, seeds=1 if options.quick else 3)
        show(records)
        show(records, "accuracy")
        everything += records
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(everything, out, indent=1)


if __name__ == "__main__":
    main()
