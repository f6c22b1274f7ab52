"""Block certificates: ``F* >= sum of lower bounds of blocks``, for any blocks, pieces and trees.

Every partition of at most nine rows is tried, in blocks of two to nine rows. The confidence of sampled blocks is
simulated in `test_row_identity`.
"""

from __future__ import annotations

import numpy as np

import sketchselect as sks
from sketchselect.summaries import BlockBound

from .instances import best_partition, each_instance, matrix, merged


@each_instance
def test_no_partition_is_better_than_the_sum_over_blocks(seeds):
    tight = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, k = int(rng.integers(3, 9)), int(rng.integers(1, 4))
        X = matrix(rng, n, int(rng.integers(1, 8)))
        best, _ = best_partition(X, k)
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
