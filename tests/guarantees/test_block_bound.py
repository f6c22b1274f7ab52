"""Block certificates: ``F* >= sum of lower bounds of blocks``, for any blocks, pieces and trees.

Every partition of at most nine rows is tried, in blocks of two to nine rows. The confidence of sampled blocks is
simulated in `test_row_identity`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.linalg.kmeans import triangles
from sketchselect.summaries import BlockBound, block_bound

from ..cluster.exhaustive import solved
from .instances import each_instance, each_number, matrix, merged


@each_instance
def test_no_partition_is_better_than_the_sum_over_blocks(seeds):
    tight = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(3, 9)), int(rng.integers(1, 4))
        X = matrix(rng, n, int(rng.integers(1, 8)))
        best, _ = solved(X, k)
        # Blocks dealt by hash, and balanced by labels, which may be any.
        labels = None if seed % 2 else rng.integers(0, k, n)
        bound = merged(rng, BlockBound(k, block_rows=int(rng.integers(2, 10)), seed=seed), X, labels).lower_bound()
        room = 1e-12 * float((X**2).sum())
        assert 0 <= bound <= best + room
        whole = sks.certify(X, best, k, method="blocks").lower_bound
        assert whole <= best + room
        tight += whole > 0.99 * best > room
    # One block of all rows is nearly always the optimum.
    assert tight > len(seeds) / 4


@each_number(range(100), range(100, 2000), 100)
def test_no_partition_is_better_with_triangle_inequalities(number: int, monkeypatch: pytest.MonkeyPatch):
    """All that are violated, from the fifth round on; rows near 1e-150, 1 and 1e150, copies, and whole weights."""
    monkeypatch.setattr(triangles, "LEAST_VIOLATION", 0.0)
    if number % 20:
        monkeypatch.setattr(block_bound, "EVALUATE_EVERY", 5)
        monkeypatch.setattr(block_bound, "LEAST_GAIN", 1e6)
    rng = np.random.default_rng(number)
    n, k = int(rng.integers(4, 9)), int(rng.integers(2, 4))
    X = matrix(rng, n, int(rng.integers(1, 8)))
    counts = rng.multinomial(8, np.full(n, 1 / n)) if number % 3 == 0 else np.ones(n, dtype=int)
    best, _ = solved(np.repeat(X, counts, axis=0), k)
    # By a power of two, so that the optimum is exactly the same but for its scale.
    power = int(rng.choice([-498, 0, 498])) - math.frexp(float(np.abs(X).max(initial=2**-10)))[1]
    weights = counts.astype(float) if number % 3 == 0 else None
    proved = block_bound.partition_bound(np.ldexp(X, power), k, weights, triangles=True)
    bound = proved.lower
    room = 1e-12 * float(counts @ (X**2).sum(axis=1))
    assert 0 <= bound <= math.ldexp(best + room, 2 * power)
    assert 0 <= proved.spectral <= bound <= proved.scatter
