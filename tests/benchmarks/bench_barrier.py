"""One run of barrier sampling against its matrix products: python tests/benchmarks/bench_barrier.py.

The floor is 2 n k^2 flops a step at the rate of a large matrix product, measured in turn with the run, in the same
process, with one BLAS thread and with two.
"""

from __future__ import annotations

import argparse

import numpy as np
from threadpoolctl import threadpool_limits
from timing import paired

from sketchselect.linalg.barrier import sample_frobenius, sample_spectral

LIMIT = 8.0


def ratios(n: int = 20_000, k: int = 20, steps: int = 200, threads: int = 1, repeats: int = 5) -> dict[str, float]:
    """Return the ratio of a run's time to its floor, for both algorithms."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((n, k)) * rng.exponential(size=(n, 1)))[0]
    norms = rng.exponential(size=n)
    # A square product of about as many flops as the run.
    size = round((n * k * k * steps) ** (1 / 3))
    a = rng.standard_normal((size, size))
    scale = n * k * k * steps / size**3
    found = {}
    with threadpool_limits(threads):
        for name, run in (
            ("algorithm 1", lambda: sample_frobenius(vectors, norms, steps)),
            ("algorithm 2", lambda: sample_spectral(vectors, steps)),
        ):
            timed = paired(run, lambda: a @ a, repeats)
            found[name] = timed.median / scale
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, default=20_000)
    parser.add_argument("--directions", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="2,000 columns, 50 steps, 2 repeats")
    args = parser.parse_args()
    n, steps, repeats = (2_000, 50, 2) if args.quick else (args.columns, args.steps, 5)
    for threads in (1, 2):
        for name, ratio in ratios(n, args.directions, steps, threads, repeats).items():
            print(
                f"barrier sampling, {name}, {n} columns, k = {args.directions}, {steps} steps, {threads} thread(s): "
                f"{ratio:.2f} x the matrix products (limit {LIMIT:g})"
            )


if __name__ == "__main__":
    main()
