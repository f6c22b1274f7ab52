"""Jobs of `method = "auto"` on forty sets, each raw, standardised and of unit length, against scikit-learn's k-means.

Run ``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python tests/benchmarks/auto_sets.py [--held-aside] [--only WORD]
[--preparation WORD] [--json FILE]``. Jobs of few numbers come first; FILE has every line as soon as it is measured,
and what it has is not measured again. Every line is a job: what its objective in all columns is, relative to the best
of ten starts of scikit-learn on the columns that it chose (`job`); what those ten starts cost, relative to ten starts
on all columns (`fresh`), and whether that is in the interval of the estimate (`in`); the share of what ten starts on
all columns explain that the job and the ten starts on its columns still do (`kept`); and the processor time of
choosing, as a multiple of the pass and of ten starts on all columns. Sets whose rows are all in the sample are a group
apart.

Constants of `auto` were chosen by the sets of `TUNING`. Those of `HELD_ASIDE` were named before that, and are run
afterwards, with each version that changes results; nothing is chosen by them.
(Earlier versions of `auto` were measured on all of TDT2.)
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import cluster, datasets

from sketchselect import workflow

DATA = Path(os.environ.get("SKETCHSELECT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
PREPARATIONS = ("raw", "standardised", "unit length")
SEED = 11  # Of scikit-learn's starts and of the choice of rows and columns


def file_set(name: str, n_rows: int, n_columns: int) -> np.ndarray:
    """Return rows of a file drawn at random, and its columns of largest variance."""
    import scipy.sparse as sp

    with np.load(DATA / f"{name}.npz") as archive:
        if "indptr" in archive:
            parts = (archive["data"].astype(float), archive["indices"], archive["indptr"])
            X = sp.csr_array(parts, shape=tuple(archive["shape"]))
        else:
            X = archive["X"]
        order = np.sort(np.random.default_rng(SEED).permutation(X.shape[0])[:n_rows])
        rows = X[order]
        rows = rows.toarray() if sp.issparse(rows) else rows.astype(float)
    columns = np.sort(np.argsort(-rows.var(axis=0), kind="stable")[:n_columns])
    return np.ascontiguousarray(rows[:, columns])


def packaged(name: str, n_rows: int = 5000) -> np.ndarray:
    """Return numbers of a set of statsmodels, rows drawn at random."""
    import statsmodels.api as sm

    X = getattr(sm.datasets, name).load_pandas().data.select_dtypes("number").dropna().to_numpy(float)
    return X[np.sort(np.random.default_rng(SEED).permutation(len(X))[:n_rows])]


def patches(name: str, n_rows: int) -> np.ndarray:
    """Return squares of 8 x 8 pixels of a picture, three colours each."""
    from sklearn.feature_extraction.image import extract_patches_2d

    picture = datasets.load_sample_image(name)
    return extract_patches_2d(picture, (8, 8), max_patches=n_rows, random_state=SEED).reshape(n_rows, -1).astype(float)


def mixture(n: int, p: int, k: int, seed: int, apart: float = 2.0) -> tuple[np.ndarray, np.random.Generator]:
    """Return rows about k centres, and a generator."""
    rng = np.random.default_rng(seed)
    return apart * rng.standard_normal((k, p))[rng.integers(k, size=n)] + rng.standard_normal((n, p)), rng


def heavy(kind: str, n: int, p: int, k: int, seed: int) -> np.ndarray:
    """Return a mixture with heavy tails."""
    X, rng = mixture(n, p, k, seed)
    if kind == "cauchy":
        return X + rng.standard_cauchy(X.shape)
    if kind == "log-normal":
        return X + rng.lognormal(0.0, 2.0, X.shape)
    if kind == "power law":
        return X + rng.pareto(1.5, X.shape)
    X[rng.choice(n, max(1, n // 1000), replace=False)] *= 1e3
    return X


def sensors(n: int, p: int, k: int, seed: int, degrees: float) -> np.ndarray:
    """Return columns of which neighbours correlate, about k levels, with the tails of Student's t."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(degrees, (n, p))
    for j in range(1, p):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    return X + (3.0 * rng.standard_normal((k, p)).cumsum(axis=1) / np.sqrt(p))[rng.integers(k, size=n)]


def words(n: int, p: int, topics: int, seed: int) -> np.ndarray:
    """Return counts of words by a power law, of topics."""
    rng = np.random.default_rng(seed)
    shared = 1.0 / np.arange(1, p + 1)
    law = 0.7 * shared / shared.sum() + 0.3 * rng.dirichlet(np.full(p, 0.05), size=topics)
    counts = [rng.multinomial(20 + rng.poisson(80), law[t]) for t in rng.integers(topics, size=n)]
    return np.array(counts, dtype=float)


def cells(n: int, p: int, kinds: int, seed: int) -> np.ndarray:
    """Return logarithms of Poisson counts of kinds of cells that differ in 5 % of their genes."""
    rng = np.random.default_rng(seed)
    means = rng.lognormal(-1.0, 1.2, p) * np.ones((kinds, p))
    for kind in means:
        kind[rng.choice(p, p // 20, replace=False)] *= 5.0
    return np.log1p(rng.poisson(means[rng.integers(kinds, size=n)] * rng.lognormal(0.0, 0.3, (n, 1)))).astype(float)


Sets = dict[str, tuple[Callable[[], np.ndarray], int]]  # Name -> rows and the number of clusters

TUNING: Sets = {
    "20 newsgroups, 3000 x 600": (lambda: file_set("20Newsgroups_tf", 3000, 600), 20),
    "ALLAML, 72 x 1500": (lambda: file_set("ALLAML", 72, 1500), 4),
    "AR faces, 1400 x 500": (lambda: file_set("AR_55x40", 1400, 500), 20),
    "COIL20, 1440 x 500": (lambda: file_set("COIL20", 1440, 500), 20),
    "Isolet, 1560 x 617": (lambda: file_set("Isolet", 1560, 617), 12),
    "madelon, 2600 x 500": (lambda: file_set("madelon", 2600, 500), 6),
    "MNIST, 3000 x 400": (lambda: file_set("MNIST", 3000, 400), 10),
    "bladder cells, 2100 x 800": (lambda: file_set("mouse_bladder_cells", 2100, 800), 16),
    "USPS, 4000 x 256": (lambda: file_set("USPS", 4000, 256), 10),
    "years, 1176 x 90": (lambda: file_set("YearPredictionMSD_1176", 1176, 90), 8),
    "digits, 1797 x 64": (lambda: datasets.load_digits().data, 10),
    "wine, 178 x 13": (lambda: datasets.load_wine().data, 3),
    "iris, 150 x 4": (lambda: datasets.load_iris().data, 3),
    "diabetes, 442 x 10": (lambda: datasets.load_diabetes().data, 5),
    "china, 3000 x 192": (lambda: patches("china.jpg", 3000), 12),
    "elections of 1996, 944 x 11": (lambda: packaged("anes96"), 6),
    "modes of travel, 840 x 8": (lambda: packaged("modechoice"), 6),
    "macro-economy, 203 x 14": (lambda: packaged("macrodata"), 5),
    "El Nino, 61 x 13": (lambda: packaged("elnino"), 4),
    "blobs, 4000 x 40": (lambda: mixture(4000, 40, 8, 1)[0], 8),
    "noise, 3000 x 30": (lambda: np.random.default_rng(2).standard_normal((3000, 30)), 5),
    "cauchy, 1500 x 20": (lambda: heavy("cauchy", 1500, 20, 6, 3), 8),
    "cauchy, 4000 x 30": (lambda: heavy("cauchy", 4000, 30, 6, 4), 10),
    "log-normal, 1500 x 30": (lambda: heavy("log-normal", 1500, 30, 6, 5), 8),
    "log-normal, 5000 x 20": (lambda: heavy("log-normal", 5000, 20, 6, 6), 12),
    "power law, 4000 x 40": (lambda: heavy("power law", 4000, 40, 8, 7), 8),
    "outlier rows, 1500 x 30": (lambda: heavy("rows", 1500, 30, 6, 8), 6),
    "outlier rows, 5000 x 40": (lambda: heavy("rows", 5000, 40, 6, 9), 10),
    "sensors, 3000 x 64": (lambda: sensors(3000, 64, 6, 10, 2.5), 10),
    "words, 2500 x 400": (lambda: words(2500, 400, 12, 11), 12),
}

HELD_ASIDE: Sets = {
    "breast cancer, 569 x 30": (lambda: datasets.load_breast_cancer().data, 6),
    "flower, 3500 x 192": (lambda: patches("flower.jpg", 3500), 10),
    "affairs, 5000 x 9": (lambda: packaged("fair"), 8),
    "star98, 303 x 22": (lambda: packaged("star98"), 5),
    "health insurance, 5000 x 10": (lambda: packaged("randhie"), 7),
    "arcene, 200 x 1500": (lambda: file_set("arcene", 200, 1500), 6),
    "TDT2, 3000 x 600": (lambda: file_set("TDT2", 3000, 600), 15),
    "sensors with outliers, 4500 x 80": (lambda: sensors(4500, 80, 8, 101, 1.5), 12),
    "outlier rows, 3500 x 60": (lambda: heavy("rows", 3500, 60, 9, 102), 8),
    "cells, 2500 x 400": (lambda: cells(2500, 400, 8, 103), 8),
}


@dataclass(frozen=True)
class Line:
    """What is measured of a job."""

    name: str
    preparation: str
    method: str
    below: bool  # Whether all rows are in the sample
    n_columns: int
    n_all: int
    job: float  # Objective in all columns, relative to that of ten starts on the same columns
    job_of_all: float  # The same, relative to that of ten starts on all columns
    fresh: float  # Of ten starts on the same columns, relative to that of ten starts on all columns
    estimate: float
    low: float
    high: float
    explained: float  # Share of the scatter that ten starts on all columns explain
    kept_job: float
    kept_fresh: float
    needs_centers: bool  # Whether the selection says that its columns need the centres that come with it
    choosing: float  # Seconds of the processor
    reading: float
    ten: float  # Seconds of ten starts on all columns


def prepared(X: np.ndarray, preparation: str) -> np.ndarray:
    """Return the rows as they are, with columns of variance 1, or of unit length."""
    if preparation == "standardised":
        spread = X.std(axis=0)
        return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if preparation == "unit length":
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        return X / np.where(norms > 0, norms, 1.0)
    return X


def ten_starts(X: np.ndarray, columns: Any, k: int) -> tuple[float, float]:
    """Return the objective in all columns of the best of ten starts on some, and the seconds that these took."""
    rows = X[:, columns] - X[:, columns].mean(axis=0)
    began = time.process_time()
    labels = cluster.KMeans(k, n_init=10, random_state=SEED).fit(rows).labels_
    return objective(X, labels), time.process_time() - began


def objective(X: np.ndarray, labels: np.ndarray) -> float:
    """Return the sum of squared distances to the means of the clusters, by the rows about these means."""
    return sum(float(((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum()) for c in np.unique(labels))


def run(X: np.ndarray, k: int, folder: Path) -> tuple[Any, list[float]]:
    """Return the result of a job of `auto`, and the processor time of pass, choice and clustering."""
    np.save(folder / "rows.npy", X)
    job = {
        "input": {"url": str(folder / "rows.npy")},
        "prepare": {"steps": []},
        "select": {"method": "auto"},
        "cluster": {"n_clusters": k, "certificate": False},
        "execution": {"cluster": "serial"},
        "output": {"dir": str(folder / "out"), "report": False},
    }
    seconds = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for verb in (workflow.summarize, workflow.select, workflow.cluster):
            began = time.process_time()
            result = verb(job)
            seconds.append(time.process_time() - began)
    return result, seconds


def warm_up() -> None:
    """Compile what the jobs of a process need: that is no time of theirs."""
    with tempfile.TemporaryDirectory() as folder:
        run(mixture(2500, 80, 4, 0)[0], 4, Path(folder))


def measured(task: tuple[str, str, bool]) -> Line | str:
    """Return what is measured of one set with one preparation; the reason if it is not here."""
    name, preparation, aside = task
    make, k = (HELD_ASIDE if aside else TUNING)[name]
    try:
        X = prepared(make(), preparation)
    except (FileNotFoundError, ImportError) as error:
        return f"{name}: {error}"
    with tempfile.TemporaryDirectory() as folder:
        result, seconds = run(X, k, Path(folder))
        columns = result.selection.support
    whole, ten = ten_starts(X, slice(None), k)
    fresh, _ = ten_starts(X, columns, k)
    # Rows that ten starts explain all of cost a rounding error.
    scatter = objective(X, np.zeros(len(X), dtype=int))
    whole, fresh, cost = (max(value, 1e-12 * scatter) for value in (whole, fresh, objective(X, result.labels)))
    curve = result.selection.diagnostics["curve"]
    competitor = result.selection.diagnostics.get("competitor", result.selection.method)
    at = list(zip(curve["method"], curve["n_features"], strict=True)).index((competitor, len(columns)))
    gain = max(scatter - whole, 1e-12 * scatter)
    return Line(
        name,
        preparation,
        competitor,
        len(X) <= result.selection.diagnostics["sampled_rows"],
        len(columns),
        X.shape[1],
        cost / fresh,
        cost / whole,
        fresh / whole,
        *(curve[key][at] for key in ("ratio", "low", "high")),
        gain / scatter,
        (scatter - cost) / gain,
        (scatter - fresh) / gain,
        "cluster_centers" in result.selection.diagnostics,
        seconds[1],
        seconds[0],
        ten,
    )


def numbers(name: str) -> int:
    """Return how many numbers a set has, by its name."""
    n_rows, n_columns = name.rsplit(", ", 1)[1].split(" x ")
    return int(n_rows) * int(n_columns)


def row(line: Line) -> str:
    """Return a line in Markdown."""
    inside = line.low <= line.fresh <= line.high
    return (
        f"| {line.name}, {line.preparation} | {line.n_columns} of {line.n_all} | {line.explained:.3f} "
        f"| {line.job:.3f} | {line.fresh:.3f} | {line.estimate:.3f} ({line.low:.3f} to {line.high:.3f}) "
        f"| {'yes' if inside else 'NO'} | {line.kept_job:.3f}, {line.kept_fresh:.3f} "
        f"| {'yes' if line.needs_centers else ''} | {line.choosing:.2f} | {line.choosing / line.reading:.1f} "
        f"| {line.choosing / line.ten:.1f} |"
    )


def table(lines: list[Line]) -> Iterator[str]:
    """Yield the table in Markdown, and what holds for how many."""
    yield (
        "| set | columns | explained | job / ten starts | fresh / all | estimate (interval) | in | kept: job, fresh "
        "| centres | s choosing | / pass | / ten starts |"
    )
    yield "|---|" + "---|" * 11
    yield from map(row, lines)
    groups = {
        "all": lines,
        "all rows in the sample": [one for one in lines if one.below],
        "more rows": [one for one in lines if not one.below],
        **{preparation: [one for one in lines if one.preparation == preparation] for preparation in PREPARATIONS},
    }
    yield ""
    for title, group in groups.items():
        if not group:
            continue
        inside = np.mean([one.low <= one.fresh <= one.high for one in group])
        jobs, fresh = np.array([one.job for one in group]), np.array([one.fresh for one in group])
        kept = np.array([(one.kept_job, one.kept_fresh) for one in group])
        times = np.array([(one.choosing / one.reading, one.choosing / one.ten) for one in group])
        yield (
            f"{title}, {len(group)} jobs: objective <= 1.02 in {np.mean(jobs <= 1.02):.3f}, at most {jobs.max():.3f}; "
            f"fresh <= 1.05 in {np.mean(fresh <= 1.05):.3f}, at most {fresh.max():.3f}; coverage {inside:.3f}; "
            f"95 % kept by {(kept[:, 0] >= 0.95).mean():.3f} of jobs, by {(kept[:, 1] >= 0.95).mean():.3f} of starts; "
            f"choosing / ten starts: median {np.median(times[:, 1]):.2f}, at most {times[:, 1].max():.2f}, "
            f"/ pass: median {np.median(times[:, 0]):.1f}"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--held-aside", action="store_true", help="the sets that chose no constant")
    parser.add_argument("--only", default="", help="sets whose name contains this")
    parser.add_argument("--preparation", choices=PREPARATIONS, action="append", help="only jobs with this preparation")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file of the lines; jobs whose lines it has are not run again")
    options = parser.parse_args()
    lines: list[Line] = []
    if options.json is not None and options.json.exists():
        lines = [Line(**line) for line in json.loads(options.json.read_text())]
    done = {(line.name, line.preparation) for line in lines}
    sets = HELD_ASIDE if options.held_aside else TUNING
    tasks = [
        (name, preparation, options.held_aside)
        for name in sorted((name for name in sets if options.only in name), key=numbers)
        for preparation in options.preparation or PREPARATIONS
        if (name, preparation) not in done
    ]
    with multiprocessing.get_context("spawn").Pool(options.processes, warm_up) as pool:
        for line in pool.imap_unordered(measured, tasks):
            if isinstance(line, str):
                print(line, flush=True)
                continue
            lines.append(line)
            print(row(line), flush=True)
            if options.json is not None:
                part = options.json.with_suffix(".part")
                part.write_text(json.dumps([asdict(one) for one in lines]))
                part.replace(options.json)
    print("\n".join(table(lines)))


if __name__ == "__main__":
    main()
