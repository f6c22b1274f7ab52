"""What clusters on selected columns cost in all columns: methods about the mean and about zero, and random columns.

    python tests/benchmarks/papers/mean_or_zero.py [--json FILE]

Every method for clusters selects k, 2 k and 4 k columns (at most half of them) from rows as they are, standardised, and
of unit length. The objective of scikit-learn's KMeans on the selected columns is that of its labels in all columns,
relative to the best of KMeans on all columns; NMI is with the classes, or without classes with the clusters on all
columns. Defaults of `about` were fixed with the sets of `seen`; the forty of `auto_sets` had no part in that. What is
not there is skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from real_data import DATA
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.metrics import normalized_mutual_info_score

from sketchselect.errors import SketchSelectError
from sketchselect.selectors import METHODS, make

sys.path.append(str(Path(__file__).resolve().parents[1]))
import auto_sets

FORTY = auto_sets.TUNING | auto_sets.HELD_ASIDE

ROWS, COLUMNS = 2000, 1500
STORED = ("USPS", "COIL20", "MNIST", "Isolet")


def stored(name: str) -> tuple[Any, Any] | None:
    """Return at most `ROWS` rows and `COLUMNS` columns of a set, and classes."""
    file = DATA / f"{name}.npz"
    if not file.exists():
        return None
    rng, archive = np.random.default_rng(0), np.load(file)
    X, y = archive["X"], np.unique(archive["y"], return_inverse=True)[1]
    rows = np.sort(rng.choice(len(X), min(ROWS, len(X)), replace=False))
    columns = np.sort(rng.choice(X.shape[1], min(COLUMNS, X.shape[1]), replace=False))
    return X[np.ix_(rows, columns)].astype(np.float64), y[rows]


def made(name: str) -> tuple[Any, Any]:
    """Return a made set: clusters in some columns and noise in the others, with many means, scales and tails."""
    rng = np.random.default_rng(sum(map(ord, name)))
    if name.startswith("planted"):
        y = rng.integers(4, size=3000)
        X = rng.standard_normal((3000, 30)) * np.r_[np.ones(8), rng.uniform(0.8, 1.2, 22)] + 50.0
        X[:, :8] += 3.0 * rng.standard_normal((4, 8))[y]
        return X, y
    if name.startswith("clusters"):
        k, p = int(rng.integers(3, 9)), int(rng.integers(30, 200))
        y = rng.integers(k, size=1500)
        X = rng.standard_normal((1500, p)) + rng.normal(0, 3.0, (k, p))[y] * (rng.random(p) < 0.4)
        return X * rng.lognormal(0, 0.3, p) + rng.choice([0.0, 1.0, 10.0], p), y
    y = rng.integers(5, size=1500)
    base = rng.standard_normal((1500, 60)) + (2.0 * rng.standard_normal((5, 60)) * (rng.random(60) < 0.5))[y]
    if name == "log-normal":
        return np.exp(base / 2), y
    return base * np.geomspace(3, 0.1, 60) + rng.normal(0, 3, 60), y


def seen() -> dict[str, Any]:
    """Return a loader of every set by which the defaults were fixed."""
    packaged = {
        "digits": load_digits,
        "wine": load_wine,
        "breast-cancer": load_breast_cancer,
        "diabetes": lambda return_X_y: (load_diabetes(return_X_y=True, scaled=False)[0], None),
    }
    names = [f"planted-{i}" for i in range(3)] + [f"clusters-{i}" for i in range(5)] + ["log-normal", "power-law"]
    return (
        {name: (lambda load=load: load(return_X_y=True)) for name, load in packaged.items()}
        | {name: (lambda name=name: made(name)) for name in names}
        | {name: (lambda name=name: stored(name)) for name in STORED}
    )


def forty(name: str) -> tuple[Any, None] | None:
    """Return the rows of a set of `auto_sets`."""
    try:
        return FORTY[name][0](), None
    except FileNotFoundError:
        return None


PREPARED = {
    "as they are": lambda X: X,
    "standardised": lambda X: (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0),
    "unit rows": lambda X: X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300),
}


METHOD_NAMES = (
    *("greedy", "pivoted-qr", "osinsky", "leverage", "sketched-ridge", "sketched-lasso", "auto", "deterministic"),
    *("hybrid", "randomized", "variance", "mcfs", "laplacian-score"),
)
DRAWS = 3  # Of random columns


def choices(A: Any, k: int, r: int) -> Iterator[tuple[str, str | None, Any]]:
    """Return r columns by every method, for those with `about` from both points, and some drawn at random."""
    for draw in range(DRAWS):
        yield "random", None, np.sort(np.random.default_rng(draw).choice(A.shape[1], r, replace=False))
    for method in METHOD_NAMES:
        parameters = METHODS[method]().get_params()
        options: dict[str, Any] = {"n_features_to_select": r}
        options |= {"normalize": None} if "normalize" in parameters else {}
        options |= {"n_clusters": k} if "n_clusters" in parameters else {}
        options |= {"random_state": 0} if "random_state" in parameters else {}
        for about in ("mean", "zero") if "about" in parameters else (None,):
            try:
                selector = make(method, **options, **({} if about is None else {"about": about})).fit(A)
            except SketchSelectError:  # Such as n_clusters columns for a method with a bound
                continue
            yield method, about, selector.support_


def compare(name: str, X: Any, y: Any, k: int) -> list[dict[str, Any]]:
    """Return a record for each preparation, method, point and number of columns; without classes NMI is with the
    clusters on all columns.
    """
    records = []
    for prepared, prepare in PREPARED.items():
        A = prepare(X)
        best = KMeans(k, n_init=5, random_state=0).fit(A)
        scatter = float(((A - A.mean(axis=0)) ** 2).sum())
        for r in sorted({max(2, min(r, A.shape[1] // 2)) for r in (k, 2 * k, 4 * k)}):
            for method, about, support in choices(A, k, r):
                labels = KMeans(k, n_init=3, random_state=0).fit_predict(A[:, support])
                parts = [A[labels == c] for c in range(k)]
                cost = sum(float(((part - part.mean(axis=0)) ** 2).sum()) for part in parts if len(part))
                nmi = normalized_mutual_info_score(best.labels_ if y is None else y, labels)
                record = {"set": name, "rows": prepared, "method": method, "about": about, "r": r, "nmi": nmi}
                explained = (scatter - cost) / (scatter - best.inertia_)
                records.append({**record, "ratio": cost / best.inertia_, "explained": explained})
    return records


def by_set(records: list[dict[str, Any]], random: list[dict[str, Any]]) -> np.ndarray:
    """Return ratio and NMI of each set, means over the numbers of columns, and those of as many random columns."""
    values: dict[str, list[list[float]]] = {}
    for record in records:
        drawn = [r for r in random if (r["set"], r["r"]) == (record["set"], record["r"])]
        line = [record["ratio"], record["nmi"], *(float(np.mean([r[key] for r in drawn])) for key in ("ratio", "nmi"))]
        values.setdefault(record["set"], []).append(line)
    return np.array([np.mean(lines, axis=0) for lines in values.values()])


def show(records: list[dict[str, Any]]) -> None:
    """Print a line for each method, point, preparation, and for the sets seen and the forty."""
    print("| method | about | rows | sets | worse than random | excess, median | random | NMI | random |")
    print("|---|---|---|---|---|---|---|---|---|")
    methods = dict.fromkeys((r["method"], r["about"]) for r in records if r["method"] != "random")
    for (method, about), rows, of_forty in product(methods, PREPARED, (False, True)):
        group = [r for r in records if r["rows"] == rows and (r["set"] in FORTY) == of_forty]
        mine = [r for r in group if (r["method"], r["about"]) == (method, about)]
        if not mine:
            continue
        ratio, nmi, other, other_nmi = by_set(mine, [r for r in group if r["method"] == "random"]).T
        excess = " | ".join(f"{100 * (np.median(values) - 1):.1f} %" for values in (ratio, other))
        print(
            f"| {method} | {about or ''} | {rows} | {len(ratio)} {'of the forty' if of_forty else 'seen'} |"
            f" {(ratio > 1.0005 * other).sum()} | {excess} | {nmi.mean():.3f} | {other_nmi.mean():.3f} |"
        )


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    records: list[dict[str, Any]] = []
    for name, load in (seen() | {name: partial(forty, name) for name in FORTY}).items():
        loaded = load()
        if loaded is None:
            print(f"{name}: skipped, not in {DATA}")
            continue
        X, y = loaded
        k = FORTY[name][1] if name in FORTY else 6 if y is None else int(np.unique(y).size)
        records += compare(name, np.asarray(X, dtype=np.float64), None if y is None else np.asarray(y), k)
        print(f"{name}: {X.shape[0]} x {X.shape[1]}", flush=True)
        if options.json:
            Path(options.json).write_text(json.dumps(records))
    show(records)


if __name__ == "__main__":
    main()
