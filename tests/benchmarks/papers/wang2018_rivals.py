"""Table 1 of Wang et al. (2018) on data: the objective in all columns of k-means on the reduced rows, over the best.

    python tests/benchmarks/papers/wang2018_rivals.py [--sets USPS,COIL20] [--counts 20,50,100] [--seeds 3]

Means and the largest of some seeds, and seconds. The projections take no columns of the data: their rows have no names.
"""

import argparse
import time

import numpy as np
from boutsidis2012 import cluster, objective
from kmeans_projections import random_signs, sparse_embedding, sparsified_kmeans
from real_data import load

import sketchselect as sks

STATED = {
    "Boutsidis 2009": "2 + eps",
    "Boutsidis 2015": "2 + eps",
    "Liu 2017": "1 + eps",
    "Pourkamali-Anaraki 2017": "none",
    "OFS": "1 + eps",
    "pivoted QR": "none",
}


def labels_of(name: str, X, k: int, r: int, seed: int):
    """Return the labels of one method."""
    if name == "Pourkamali-Anaraki 2017":
        return sparsified_kmeans(X, k, r, seed)
    if name == "Boutsidis 2015":
        reduced = random_signs(X, r, seed)
    elif name == "Liu 2017":
        reduced = sparse_embedding(X, r, seed)
    elif name == "pivoted QR":
        reduced = X[:, sks.PivotedQRSelector(r, normalize=None).fit(X).support_]
    else:
        if name == "OFS":
            selector = sks.OnlineLeverageSelector(n_features_to_select=r, random_state=seed, about="zero")
        else:
            selector = sks.RandomizedSelector(r, n_clusters=k, random_state=seed)
        chosen = selector.fit(X)
        reduced = X[:, chosen.support_] * chosen.weights_
    return cluster(reduced, k, 3, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default="USPS,COIL20")
    parser.add_argument("--counts", default="20,50,100")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in options.sets.split(","):
        data = load(name, 2000)
        if data is None:
            continue
        X, k = data.cluster.astype(np.float64), data.n_clusters
        best = objective(X, cluster(X, k, 10))
        print(f"{name}: {X.shape[0]} x {X.shape[1]}, k = {k}; objective over the best known: mean, largest, seconds")
        for method, stated in STATED.items():
            cells = []
            for r in map(int, options.counts.split(",")):
                if not k < r < X.shape[1]:
                    continue
                began = time.perf_counter()
                ratios = [objective(X, labels_of(method, X, k, r, seed)) / best for seed in range(options.seeds)]
                seconds = (time.perf_counter() - began) / options.seeds
                cells.append(f"r={r}: {np.mean(ratios):.3f} {np.max(ratios):.3f} {seconds:.2f}")
            print(f"  {method:<24} stated {stated:<8} " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
