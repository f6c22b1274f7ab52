"""How well `compare_preparations` chooses, by the agreement (NMI) of k-means on prepared counts with known classes.

Run ``OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python tests/benchmarks/preparations.py [--held-aside]``. Of each kind a
few draws: 1,500 rows at most of some classes of the real sets, of their 4,000 most frequent columns, and made documents
(topics, common words, log-normal lengths) and cells (negative binomial, log-normal depths). The way of choosing was
settled on the first four draws; those of ``--held-aside`` were run afterwards.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import normalized_mutual_info_score

import sketchselect as sks

DATA = Path(os.environ.get("SKETCHSELECT_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
REAL = ("20Newsgroups_tf", "TDT2", "mouse_bladder_cells")
KINDS = ("made documents", "made cells", *REAL)
DRAWS = {False: range(4), True: range(20, 26)}


def real(name: str, rng: np.random.Generator, draw: int) -> tuple[Any, np.ndarray]:
    """Return rows of all, five or ten classes of a real set."""
    with np.load(DATA / f"{name}.npz") as archive:
        parts = (archive["data"].astype(np.float64), archive["indices"], archive["indptr"])
        X, y = csr_array(parts, shape=tuple(archive["shape"])), archive["y"]
    classes = np.unique(y)
    if draw % 3:
        few = rng.choice(classes, min(5 * (draw % 3), classes.size), replace=False)
        X, y = X[np.isin(y, few)], y[np.isin(y, few)]
    order = rng.permutation(y.size)[:1500]
    X, y = X[order], y[order]
    frequent = np.sort(np.argsort(-np.bincount(X.indices, minlength=X.shape[1]), kind="stable")[:4000])
    X = X[:, frequent]
    filled = np.diff(X.indptr) > 0
    return X[filled], y[filled]


def made_documents(rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Return 1,500 documents of eight topics, half of whose words are common to all."""
    topics, common = rng.dirichlet(np.full(1500, 0.05), 8), rng.dirichlet(np.full(1500, 0.1))
    y, lengths = rng.integers(8, size=1500), rng.lognormal(4.0, 1.0, 1500).astype(int) + 5
    mixed = 0.5 * common + 0.5 * (0.8 * topics[y] + 0.2 * topics[rng.integers(8, size=1500)])
    return csr_array(np.stack([rng.multinomial(*pair) for pair in zip(lengths, mixed, strict=True)])), y


def made_cells(rng: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Return 1,500 cells of six types of unlike sizes, which differ in 8 % of 1,500 genes."""
    base = rng.lognormal(-1.0, 1.5, 1500)
    change = np.exp(rng.normal(0.0, 1.2, (6, 1500)) * (rng.random((6, 1500)) < 0.08))
    y = rng.choice(6, 1500, p=rng.dirichlet(np.full(6, 3.0)))
    mean = rng.lognormal(0.0, 0.5, 1500)[:, None] * base * change[y]
    return csr_array(rng.poisson(mean * rng.gamma(5.0, 0.2, mean.shape))), y


def main() -> None:
    """Print a line for each draw, and the means of each kind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--held-aside", action="store_true")
    total = []
    for kind in KINDS:
        lines = []
        for draw in DRAWS[parser.parse_args().held_aside]:
            rng = np.random.default_rng(draw)
            if kind in REAL:
                X, y = real(kind, rng, draw)
            else:
                X, y = made_documents(rng) if kind == "made documents" else made_cells(rng)
            k = np.unique(y).size
            began = time.perf_counter()
            compared = sks.cluster.compare_preparations(X, k, client="serial")
            seconds = time.perf_counter() - began
            agreement = {}
            for score in compared.scores:
                fit = sks.KMeans(k, random_state=0).fit(X, prepare=list(score.steps), client="serial")
                agreement[score.steps] = float(normalized_mutual_info_score(y, fit.labels_))
            lines.append([agreement[compared.best.steps], max(agreement.values()), *agreement.values()])
            values = " ".join(f"{value:.3f}" for value in lines[-1])
            print(
                f"{kind} {draw}, {X.shape[0]} x {X.shape[1]}, k = {k}, {seconds:.1f} s: {compared.best.name}: {values}"
            )
        total += lines
        print(f"{kind}: chosen, best, each: {np.round(np.mean(lines, axis=0), 3)}", flush=True)
    means, losses = np.mean(total, axis=0), np.array(total)[:, 1] - np.array(total)[:, 0]
    print(f"all: chosen, best, each: {np.round(means, 3)}; largest loss {losses.max():.3f}")


if __name__ == "__main__":
    main()
