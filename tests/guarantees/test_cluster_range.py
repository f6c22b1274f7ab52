"""`cluster_range`: exact objectives, bounds that no clustering is below, and a stability that is an index.

    objective >= F*(k) >= lower_bound,   stability <= 1 and |silhouette| <= 1, the same for weights of any scale

References: all partitions of at most eight rows; equal answers for weights times powers of two. That the indices are
scikit-learn's and Spark's is tested in tests/cluster/test_cluster_count.py.
"""

import numpy as np

from sketchselect.cluster import cluster_range

from ..cluster.exhaustive import solved
from .instances import each_instance, matrix


@each_instance
def test_objectives_and_bounds_of_a_range(seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        X = matrix(rng, int(rng.integers(4, 9)), int(rng.integers(1, 5)))
        ks = [1, 2, 3]
        result = cluster_range(X, ks, n_seeds=3, random_state=seed)
        scaled = cluster_range(
            X, ks, n_seeds=3, random_state=seed, sample_weight=np.full(len(X), 2.0 ** float(rng.integers(-30, 30)))
        )
        room = 1e-12 * float((X**2).sum())
        for k, one, other in zip(ks, result.counts, scaled.counts, strict=True):
            best, _ = solved(X, k)
            assert one.objective >= best * (1 - 1e-9) - room
            assert one.lower_bound <= best + room
            assert one.stability <= 1 + 1e-12
            assert one.silhouette is None or abs(one.silhouette) <= 1 + 1e-12
            assert one.valley is None or one.valley >= 0
            assert other.stability == one.stability
            assert other.silhouette == one.silhouette
