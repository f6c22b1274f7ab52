"""The curve of the objective over the number of columns against full runs, and `auto` against the best method.

    python tests/benchmarks/papers/selection_curve.py [--sets USPS,TDT2] [--runs FOLDER] [--drawn]

For every data set, competitor and number of columns k-means is run on all rows (kept in FOLDER as JSON: it takes
long), and the curve of `selection_curve` is made from one pass. Shown: the error of the curve, the share of runs within
its intervals and below their upper ends, `auto` at a given number of columns against the best method, and CPU seconds
of the pass and of the curve. Runs start from the clusters of the sample in all columns, as those of a job do, or with
`--drawn` from rows that are drawn in the selected columns. Data: ../shared/data, or $SKETCHSELECT_DATA.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from real_data import KINDS, DataSet, dense_columns, load

import sketchselect as sks
from sketchselect.selectors import AutoSelector, make
from sketchselect.selectors.curve import TIE, cluster_means
from sketchselect.summaries import FrequentDirections, RowSample, pick

SIZES = {"image": (8, 16, 32, 64, 128, 256)} | dict.fromkeys(("text", "cells", "arrays"), (64, 256, 1024))

# Sums of the same clusters differ by rounding.
NEAR = 1 + 1e-9


def objective(rows: Any, columns: Any, k: int, start: Any) -> float:
    """Return the objective in all columns of k-means on some of them, from the means in all columns or drawn ones."""
    chosen = rows if columns is None else dense_columns(rows, columns)
    init: Any = "k-means||" if start is None else start if columns is None else start[:, columns]
    return sks.kmeans_objective(rows, sks.KMeans(k, init=init, random_state=0).fit(chosen).labels_, k)


def full_runs(data: DataSet, rows: Any, summary: Any, start: Any, methods: list[str], file: Path) -> dict[str, Any]:
    """Return the objectives of runs on all rows, and their columns; from the file where it is there."""
    if file.exists():
        return dict(json.loads(file.read_text()))
    k, runs = data.n_clusters, []
    whole = objective(rows, None, k, start)
    for method in methods:
        for r in (r for r in SIZES[data.kind] if r < rows.shape[1]):
            clusters = {"n_clusters": k} if "n_clusters" in make(method).get_params() else {}
            if clusters and r <= k:
                continue
            columns = make(method, n_features_to_select=r, **clusters).fit_summary(summary).support_
            runs.append((method, r, objective(rows, columns, k, start), columns.tolist()))
    content = {"all": whole, "rows": runs}
    file.write_text(json.dumps(content))
    return content


def measure(data: DataSet, folder: Path, drawn: bool) -> None:
    """Print the lines of one data set."""
    rows = data.select if sp.issparse(data.select) else data.select.astype(np.float32)
    selector, began = AutoSelector(n_clusters=data.n_clusters, normalize=None), time.process_time()
    summary = selector.collect(rows, client="serial")
    passed = time.process_time() - began
    methods = list(selector._competitors())
    start = None if drawn else cluster_means(pick(summary, RowSample.kind), data.n_clusters, 0)
    file = folder / f"{data.name}{'-drawn' * drawn}.json"
    runs = full_runs(data, rows, summary, start, methods, file)
    curve, points, began = selector._curve(summary), [], time.process_time()
    curve = curve if drawn else curve.from_centers()
    # The runs are those of the methods as they are.
    curve.alternatives = {}
    for method, r, value, columns in runs["rows"]:
        if method in methods:
            curve.methods[method] = lambda _, columns=columns, method=method: Chosen(method, np.array(columns))
            points.append((method, r, value / runs["all"], curve.add([method], r)))
    for r in sorted({r for _, r, *_ in points}):
        while curve.settle(r):
            pass
    table = {(p.method, p.n_features): p for p in curve.result().points}
    spent = time.process_time() - began
    true = np.array([ratio for *_, ratio, _ in points])
    seen = [table[method, r] for method, r, *_ in points]
    errors = np.log(np.array([p.ratio for p in seen]) / true)
    inside = np.mean([p.low <= t * NEAR and t <= p.high * NEAR for p, t in zip(seen, true, strict=True)])
    below = np.mean([t <= p.high * NEAR for p, t in zip(seen, true, strict=True)])
    shrinkage = pick(summary, FrequentDirections.kind).shrinkage
    print(
        f"{data.name}: {len(seen)} runs; log error {errors.mean():+.4f} +- {errors.std():.4f}; inside {inside:.2f}, "
        f"below the upper end {below:.2f}; CPU: pass {passed:.1f} s, curve {spent:.1f} s; shrinkage {shrinkage:.3g}"
    )
    for r in sorted({r for _, r, *_ in points}):
        here = {method: value for method, size, value, _ in points if size == r}
        least = min(table[method, r].ratio for method in here)
        winner = next(method for method in methods if method in here and table[method, r].ratio <= least + TIE)
        print(f"  r = {r}: auto takes {winner}: {here[winner] / min(here.values()) - 1:+.2%} above the best run")


class Chosen:
    """Columns that stand for a selection."""

    def __init__(self, method: str, support: Any) -> None:
        self.method, self.support = method, support


def main() -> None:
    """Measure the data sets that are there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", default=",".join(KINDS))
    parser.add_argument("--runs", type=Path, default=Path("selection_curve_runs"))
    parser.add_argument("--drawn", action="store_true")
    options = parser.parse_args()
    options.runs.mkdir(exist_ok=True)
    for name in options.sets.split(","):
        if (data := load(name, 10**9)) is not None:
            measure(data, options.runs, options.drawn)


if __name__ == "__main__":
    main()
