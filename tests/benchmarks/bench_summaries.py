"""Speed of the summaries as ratios to the matrix products they cannot do without, on one BLAS thread.

Run: ``python tests/benchmarks/bench_summaries.py`` (about a minute); ``--quick`` for a smoke run at small sizes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits
from timing import paired, seconds

import sketchselect as sks
from sketchselect.linalg.shrink import shrink
from sketchselect.summaries.moment_forms import expand


def gemm_rate(rows: int, inner: int, columns: int) -> float:
    """Return flops per second of a product shaped like those of the sketch."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((rows, inner)), rng.standard_normal((inner, columns))
    out = np.empty((rows, columns))
    best = min(seconds(lambda: np.matmul(a, b, out=out)) for _ in range(9))
    return 2.0 * rows * inner * columns / best


def sketch_by_svd(block: np.ndarray, size: int) -> np.ndarray:
    """Frequent Directions as usually written: a buffer of 2 l rows, shrunk through an SVD."""
    sketch = np.zeros((0, block.shape[1]))
    for start in range(0, block.shape[0], size):
        rows = np.vstack([sketch, block[start : start + size]])
        if rows.shape[0] >= 2 * size - 1:
            _, s, vt = np.linalg.svd(rows, full_matrices=False)
            s2 = np.maximum(s[: size - 1] ** 2 - s[size - 1] ** 2, 0)
            rows = np.sqrt(s2)[:, None] * vt[: size - 1]
        sketch = rows
    return sketch


def exact_gram(block: np.ndarray) -> np.ndarray:
    """Accumulate the Gram matrix over pieces of rows."""
    p = block.shape[1]
    gram, product = np.zeros((p, p), block.dtype), np.empty((p, p), block.dtype)
    for start in range(0, block.shape[0], 2048):
        piece = block[start : start + 2048]
        gram += np.matmul(piece.T, piece, out=product)
    return gram


def forms(quick: bool, rng: np.random.Generator) -> Iterator[str]:
    """Yield one line for each form of moments: what it costs against the product it cannot do without."""
    p = 200 if quick else 1000
    block = rng.standard_normal((400 if quick else 8192, p))
    y = rng.standard_normal(block.shape[0])
    a, b = (sks.Moments().from_block(block, y) for _ in range(2))
    square = np.empty((p, p))
    yield paired(lambda: a.merge(b), lambda: np.add(square, 1.0, out=square), 9).line(
        f"one merge / one sweep, p={p}", "-"
    )
    others = {
        "decayed": (sks.summaries.DecayedMoments(half_life=1000), 1.4),
        "five folds": (sks.Folds(sks.Moments(), 5), 1.8),
        "pairwise": (sks.Moments(missing="pairwise"), 6),
    }
    for name, (description, target) in others.items():
        yield paired(lambda d=description: d.from_block(block, y), lambda: exact_gram(block), 3).line(
            f"Moments, {name} / bare X.T @ X, p={p}", f"<= {target}"
        )
    yield paired(lambda: sks.Moments(method="qr").from_block(block, y), lambda: np.linalg.qr(block, mode="r"), 3).line(
        f"Moments, qr / bare QR, p={p}", "<= 2"
    )
    narrow = block[:, : 20 if quick else 60]
    wide = expand(narrow, narrow.mean(axis=0))
    yield paired(lambda: sks.Moments(degree=2).from_block(narrow), lambda: exact_gram(wide), 3).line(
        f"Moments, degree 2 / bare Gram matrix of the products, p={narrow.shape[1]}", "<= 1.5"
    )


def lines(quick: bool) -> Iterator[str]:
    """Yield one line per promise."""
    rng = np.random.default_rng(1)
    for p, size, target in ((4000, 100, "<= 1.6"), (10000, 100, "<= 1.25")):
        n = 4 * size if quick else 60 * size
        block = rng.standard_normal((n, p))
        fd = sks.FrequentDirections(size=size)
        # The floor is 8 l p flops a row at the rate of the sketch's own product shape, measured around every repeat.
        result = paired(lambda f=fd, b=block: f.from_block(b), lambda p=p, size=size: gemm_rate(size, 2 * size, p), 3)
        rates = [gemm_rate(size, 2 * size, p) for _ in range(5)]
        floor = 8.0 * size * p * n / float(np.median(rates))
        yield (
            f"FrequentDirections p={p} l={size} n={n}: {result.ours / n * 1e6:.1f} us a row, products alone "
            f"{floor / n * 1e6:.1f} us: ratio {result.ours / floor:.2f}, target {target}"
        )
        if p == 4000:
            few = block[: 2 * size] if quick else block[: 12 * size]
            svd = paired(lambda b=few, s=size: sketch_by_svd(b, s), lambda b=few, f=fd: f.from_block(b), 3)
            yield svd.line(f"the same sketch by SVD / ours, p={p} l={size}", ">= 4")
    n, p, size = (400, 1000, 50) if quick else (20000, 1000, 50)
    block = rng.standard_normal((n, p))
    fd = sks.FrequentDirections(size=size)
    yield paired(lambda: fd.from_block(block), lambda: exact_gram(block), 5).line(
        f"FrequentDirections / exact Gram, p={p} l={size}", "<= 1"
    )
    for p in (500, 1000, 2000):
        for dtype in (np.float64, np.float32):
            block = rng.standard_normal((400 if quick else 8192, p)).astype(dtype)
            y = rng.standard_normal(block.shape[0])
            yield paired(lambda b=block, y=y: sks.Moments().from_block(b, y), lambda b=block: exact_gram(b), 5).line(
                f"Moments with a target / bare X.T @ X, p={p} {np.dtype(dtype)}", "<= 1.3"
            )
    yield from forms(quick, rng)
    rows = rng.standard_normal((240, 4000))
    yield paired(lambda: shrink(rows, 100), lambda: np.linalg.eigh(rows @ rows.T), 5).line("one shrink / its eigh", "-")


def main() -> None:
    """Print every line under one BLAS thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, a smoke run")
    arguments = parser.parse_args()
    with threadpool_limits(1):
        for line in lines(arguments.quick):
            print(line, flush=True)


if __name__ == "__main__":
    main()
