"""Columns measured about their means or about zero: what clusters on them cost in all columns, and how they agree.

    python tests/benchmarks/papers/mean_or_zero.py [--sets USPS,wine] [--json FILE]

Every method with `about` selects from rows as they are, standardised, and of unit length. The objective of
scikit-learn's KMeans on the selected columns is that of its labels in all columns, relative to the best of KMeans on
all columns; NMI is with the classes, where there are any. Sets `ASIDE` were named before the first run; defaults were
fixed with both groups seen. Data are those of `real_data`, scikit-learn's packaged sets, and made ones; what is not
there is skipped.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from real_data import DATA
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.metrics import normalized_mutual_info_score

from sketchselect.selectors import METHODS, make

ROWS, COLUMNS = 2000, 1500
ASIDE = ("Isolet", "ALLAML", "AR_55x40", "breast-cancer", "diabetes", "clusters-3", "clusters-4", "power-law")
STORED = ("USPS", "COIL20", "MNIST", "Isolet", "AR_55x40", "ALLAML", "arcene", "madelon")
COUNTS = ("mouse_bladder_cells", "TDT2")


def stored(name: str) -> tuple[Any, Any] | None:
    """Return at most `ROWS` rows and `COLUMNS` columns of a set, and classes; cells and texts as log(1 + count)."""
    file = DATA / f"{name}.npz"
    if not file.exists():
        return None
    rng, archive = np.random.default_rng(0), np.load(file)
    y = np.unique(archive["y"], return_inverse=True)[1]
    if name in COUNTS:
        from scipy.sparse import csr_array

        parts = (archive["data"].astype(float), archive["indices"].astype(np.int32), archive["indptr"].astype(np.int32))
        rows = np.sort(rng.choice(y.size, min(ROWS, y.size), replace=False))
        X = csr_array(parts, shape=tuple(archive["shape"]))[rows]
        X.data = np.log1p(X.data)
        columns = np.sort(np.argsort(-np.asarray(X.sum(axis=0)).ravel(), kind="stable")[:COLUMNS])
        return X[:, columns].toarray(), y[rows]
    X = archive["X"]
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


def sets() -> dict[str, Any]:
    """Return a loader of every set."""
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
        | {name: (lambda name=name: stored(name)) for name in (*STORED, *COUNTS)}
    )


PREPARED = {
    "as they are": lambda X: X,
    "standardised": lambda X: (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0),
    "unit rows": lambda X: X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300),
}


def compare(name: str, X: Any, y: Any) -> list[dict[str, Any]]:
    """Return a record for each preparation, method, point and number of columns."""
    records = []
    k = 6 if y is None else int(np.unique(y).size)
    for prepared, prepare in PREPARED.items():
        A = prepare(X)
        best = KMeans(k, n_init=5, random_state=0).fit(A)
        for method in [m for m, cls in METHODS.items() if "about" in cls().get_params()]:
            if METHODS[method].axis == "columns":
                continue
            for about in ("mean", "zero"):
                for r in sorted({max(2, min(r, A.shape[1] // 2)) for r in (k, 2 * k, 4 * k)}):
                    options = {"normalize": None} if "normalize" in METHODS[method]().get_params() else {}
                    selector = make(method, n_features_to_select=r, about=about, **options)
                    support = selector.fit(A).support_
                    labels = KMeans(k, n_init=3, random_state=0).fit_predict(A[:, support])
                    parts = [A[labels == c] for c in range(k)]
                    cost = sum(float(((part - part.mean(axis=0)) ** 2).sum()) for part in parts if len(part))
                    nmi = None if y is None else normalized_mutual_info_score(y, labels)
                    record = {"set": name, "rows": prepared, "method": method, "about": about, "r": r}
                    records.append({**record, "ratio": cost / best.inertia_, "nmi": nmi})
    return records


def show(records: list[dict[str, Any]]) -> None:
    """Print the mean excess over all columns, and NMI, of the sets for choosing and of those aside."""
    print("| method | rows | sets | excess, mean | excess, zero | lower about the mean | NMI, mean | NMI, zero |")
    for method in dict.fromkeys(r["method"] for r in records):
        for rows in PREPARED:
            for aside in (False, True):
                mine = [r for r in records if (r["method"], r["rows"]) == (method, rows)]
                mine = [r for r in mine if (r["set"] in ASIDE) == aside]
                by = {about: [r for r in mine if r["about"] == about] for about in ("mean", "zero")}
                if not mine:
                    continue
                excess = {a: 100 * np.array([r["ratio"] - 1 for r in rs]) for a, rs in by.items()}
                nmi = {a: np.mean([r["nmi"] for r in rs if r["nmi"] is not None] or [np.nan]) for a, rs in by.items()}
                lower, ties = (
                    (excess["mean"] < excess["zero"] - 0.1).sum(),
                    (abs(excess["mean"] - excess["zero"]) <= 0.1).sum(),
                )
                print(
                    f"| {method} | {rows} | {'aside' if aside else 'choosing'} | {excess['mean'].mean():.1f} % |"
                    f" {excess['zero'].mean():.1f} % | {lower} of {len(excess['mean']) - ties} | {nmi['mean']:.3f} |"
                    f" {nmi['zero']:.3f} |"
                )


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=None)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    records: list[dict[str, Any]] = []
    for name, load in sets().items():
        if options.sets is not None and name not in options.sets.split(","):
            continue
        loaded = load()
        if loaded is None:
            print(f"{name}: skipped, not in {DATA}")
            continue
        X, y = loaded
        records += compare(name, np.asarray(X, dtype=np.float64), None if y is None else np.asarray(y))
        print(f"{name}: {X.shape[0]} x {X.shape[1]}", flush=True)
        if options.json:
            Path(options.json).write_text(json.dumps(records))
    show(records)


if __name__ == "__main__":
    main()
