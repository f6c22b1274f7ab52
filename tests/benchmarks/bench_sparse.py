"""Sparse rows against the same rows dense: seconds of one `from_block`, both sides in turn, one thread.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_sparse.py [--rows 4096] [--columns 25000] [--density 0.01]

The dense side is given its rows dense already. Targets are those of the project: Frequent Directions of 25,000 columns
at 1 % at least five times faster than the dense path; the other lines are there to be watched.
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.sparse as sp
from timing import paired

from sketchselect.linalg.csr import as_csr
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.summaries import CentroidSums, ColumnStats, FrequentDirections, Moments


def counts(n_rows: int, n_columns: int, density: float) -> sp.csr_array:
    """Return counts with columns of very different frequency, as documents and cells have them."""
    rng = np.random.default_rng(0)
    share = 1.0 / (10 + np.arange(n_columns))
    columns = rng.choice(n_columns, size=(n_rows, int(density * n_columns)), p=share / share.sum())
    ends = np.arange(n_rows + 1) * columns.shape[1]
    return as_csr(sp.csr_array((1.0 + rng.poisson(1, columns.size), columns.ravel(), ends), shape=(n_rows, n_columns)))


def main() -> None:
    """Print one line per summary."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--columns", type=int, default=25_000)
    parser.add_argument("--density", type=float, default=0.01)
    given = parser.parse_args()
    n, p, share = given.rows, given.columns, given.density
    uniform = as_csr(sp.random_array((n, p), density=share, format="csr", random_state=np.random.default_rng(0)))
    print(f"{n} rows x {p} columns, {share:.2%}; sparse / dense")
    with one_blas_thread():
        for name, X in (("uniform", uniform), ("frequent words", counts(n, p, share))):
            dense = X.toarray()
            labels = np.arange(n) % 20
            for text, description, y, target in (
                ("Frequent Directions, l = 64", FrequentDirections(64), None, "<= 0.20"),
                ("Frequent Directions, l = 200", FrequentDirections(200), None, "<= 0.20"),
                ("ColumnStats", ColumnStats(), None, "none"),
                ("CentroidSums of 20 labels", CentroidSums(20), labels, "none"),
            ):

                def one(rows, description=description, y=y):
                    return description.from_block(rows, y)

                ratio = paired(lambda one=one, X=X: one(X), lambda one=one, D=dense: one(D), repeats=3)
                print(ratio.line(f"{name}: {text}", target))
            del dense
            narrow = as_csr(X[:, : p // 10])
            plain = narrow.toarray()
            ratio = paired(
                lambda rows=narrow: Moments().from_block(rows), lambda rows=plain: Moments().from_block(rows), repeats=3
            )
            print(ratio.line(f"{name}: Moments of {p // 10} columns, {narrow.nnz / plain.size:.1%}", "none"))


if __name__ == "__main__":
    main()
