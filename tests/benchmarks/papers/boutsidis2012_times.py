"""Running times of Boutsidis and Magdon-Ismail 2012: measured exponents beside those that the paper states.

    python tests/benchmarks/papers/boutsidis2012_times.py [--quick]

One size grows at a time; processor time of one thread, the least of three runs. An exponent below the stated one means
that another term, or the cost of a call, is still the larger at these sizes.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from sketchselect.linalg.barrier import sample_frobenius, sample_spectral
from sketchselect.linalg.hashing import approximate_directions, combinations, draw_columns, draw_weights, gaussians

Sizes = dict[str, int]


def fast_directions(A: Any, k: int, epsilon: float = 0.5, seed: int = 0) -> Any:
    """FastApproximateSVD of Lemma 6 on the matrix itself: two products with it and one with its transpose."""
    image = A.T @ gaussians(seed, (A.shape[0], combinations(k, epsilon)))
    return approximate_directions(image, lambda M: A.T @ (A @ M), k)


def algorithm_6(A: Any, k: int, r: int, seed: int = 0, directions: Any = None) -> Any:
    """Return the squared weights of Algorithm 6 as printed: r steps, so at most r columns; Z of the matrix itself."""
    Z = fast_directions(A, k, seed=seed) if directions is None else directions
    scores = (Z**2).sum(axis=1)
    c = max(r, int(np.ceil(16 * k * np.log(20 * k))))
    first = draw_weights(scores, draw_columns(scores, c, seed))
    candidates = np.flatnonzero(first)
    # Repeated draws are merged: the same Z' Omega_1 S_1, in fewer columns.
    left, s, _ = np.linalg.svd(Z[candidates] * np.sqrt(first[candidates])[:, None], full_matrices=False)
    out = np.zeros(A.shape[1])
    out[candidates] = first[candidates] * sample_spectral(np.ascontiguousarray(left[:, s > 1e-12 * s[0]]), r).squares
    return out


def orthonormal(n: int, k: int) -> Any:
    return np.linalg.qr(np.random.default_rng(0).standard_normal((n, k)))[0]


def matrix(m: int, n: int) -> Any:
    return np.random.default_rng(1).standard_normal((m, n))


PARTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Sizes, dict[str, float]]] = {
    # name: (data of the sizes, work on them, sizes, stated exponent of each size)
    "Algorithm 1, O(r k^2 n)": (
        lambda n, k, r: (orthonormal(n, k), np.ones(n)),
        lambda data, n, k, r: sample_frobenius(*data, r),
        {"n": 4000, "k": 10, "r": 100},
        {"n": 1, "k": 2, "r": 1},
    ),
    "Algorithm 2, O(r k^2 n)": (
        lambda n, k, r: orthonormal(n, k),
        lambda data, n, k, r: sample_spectral(data, r),
        {"n": 4000, "k": 10, "r": 100},
        {"n": 1, "k": 2, "r": 1},
    ),
    "exact directions, O(m n min{m, n})": (
        lambda m, n: matrix(m, n),
        lambda data, m, n: np.linalg.svd(data, full_matrices=False),
        {"m": 800, "n": 200},
        {"m": 1, "n": 2},
    ),
    "Lemma 6, O(m n k / eps)": (
        lambda m, n, k: matrix(m, n),
        lambda data, m, n, k: fast_directions(data, k),
        {"m": 1500, "n": 1500, "k": 8},
        {"m": 1, "n": 1, "k": 1},
    ),
    "Algorithm 6, O(m n k + r k^3 log k + r log r)": (
        lambda m, n, k, r: matrix(m, n),
        lambda data, m, n, k, r: algorithm_6(data, k, r),
        {"m": 1500, "n": 2000, "k": 6, "r": 60},
        {"m": 1, "n": 1, "k": 3, "r": 1},
    ),
}


def seconds(make: Callable[..., Any], work: Callable[..., Any], sizes: Sizes) -> float:
    """Return the least processor time of three runs."""
    data, best = make(**sizes), np.inf
    for _ in range(3):
        began = time.process_time()
        work(data, **sizes)
        best = min(best, time.process_time() - began)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two sizes instead of four")
    factors = (1, 2) if parser.parse_args().quick else (1, 2, 4, 8)
    with threadpool_limits(1):
        for title, (make, work, sizes, stated) in PARTS.items():
            print(f"{title}, from {sizes}")
            for name, exponent in stated.items():
                values = [seconds(make, work, sizes | {name: f * sizes[name]}) for f in factors]
                measured = np.polyfit(np.log(factors), np.log(values), 1)[0]
                last = np.log(values[-1] / values[-2]) / np.log(factors[-1] / factors[-2])
                shown = " ".join(f"{v:.4f}" for v in values)
                print(
                    f"  {name}: stated {exponent}, measured {measured:.2f} (last step {last:.2f}): {shown} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
