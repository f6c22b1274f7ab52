"""Online selection of columns by leverage against a pseudo-inverse for every column, as printed in Wang et al. 2018.

Run ``python tests/benchmarks/bench_leverage.py [--quick] [--mnist FILE.npy]``. The pseudo-inverse is timed on a sample
of the columns, spread evenly over the stream, and the mean is multiplied by their number; the output says so. Both
sides see the same rows kept so far. The target is a ratio of at least 20.
"""

import argparse
import time
from pathlib import Path

import numpy as np

import sketchselect as sks


def decaying(n_rows: int, n_columns: int, seed: int = 0) -> np.ndarray:
    """Return columns whose spectrum decays, as that of measured data does."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_columns, n_rows)) / np.sqrt(np.arange(1, n_rows + 1))


def per_column_seconds(columns: np.ndarray, sample: sks.summaries.LeverageSample, n_timed: int) -> float:
    """Return the mean seconds of one step with a pseudo-inverse: of CC', or of C itself where C has fewer columns.

    The second form is the better one for many rows (n x n would not even fit), so it is what we compare with there.
    """
    seconds = []
    for i in np.linspace(0, len(columns) - 1, n_timed).astype(int):
        kept = sample.items < i
        C = sample.sample[kept].T
        a = columns[i]
        began = time.perf_counter()
        if C.shape[1] == 0:
            score = np.inf
        elif C.shape[0] <= C.shape[1]:
            score = a @ np.linalg.pinv(C @ C.T, hermitian=True) @ a
        else:
            score = np.sum((np.linalg.pinv(C) @ a) ** 2)
        seconds.append(time.perf_counter() - began)
        assert score >= 0
    return float(np.mean(seconds))


def compare(name: str, columns: np.ndarray, n_timed: int) -> float:
    """Print and return how many times faster the blocked selection is."""
    began = time.perf_counter()
    sample = sks.summaries.LeverageSample().from_block(columns)
    ours = time.perf_counter() - began
    each = per_column_seconds(columns, sample, n_timed)
    theirs = each * len(columns)
    print(
        f"{name}: {columns.shape[0]} columns x {columns.shape[1]} rows, {sample.n_kept} kept: {ours:.2f} s; a "
        f"pseudo-inverse a column {each:.3f} s (mean of {n_timed} columns), extrapolated to {theirs:.0f} s: "
        f"{theirs / ours:.0f} x"
    )
    return theirs / ours


def mnist(path: Path) -> np.ndarray:
    """Return the columns of MNIST, zero ones included, as rows."""
    X = np.load(path, mmap_mode="r")
    X = X["X"] if isinstance(X, np.lib.npyio.NpzFile) else X
    return np.ascontiguousarray(np.asarray(X).reshape(X.shape[0], -1).T, dtype=np.float64)


def main() -> None:
    """Run the comparisons that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: only that it runs")
    parser.add_argument("--mnist", type=Path, help=".npy or .npz file of MNIST, rows x 784")
    arguments = parser.parse_args()
    n_timed = 3 if arguments.quick else 12
    shape = (100, 1000) if arguments.quick else (1000, 20_000)
    compare("decaying spectrum", decaying(*shape), n_timed)
    if arguments.mnist is not None:
        columns = mnist(arguments.mnist)
        compare("MNIST", columns[:, :2000] if arguments.quick else columns, n_timed)


if __name__ == "__main__":
    main()
