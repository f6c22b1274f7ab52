"""``objective <= objective_before`` of reassigned labels, exact but for rounding, also where distances are rounding.

Rows about offsets up to 1e8, with spreads down to 1e-8: differences of a few units in the last place.
"""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.cluster import reassign

from .instances import each_instance


def instance(seed):
    rng = np.random.default_rng(seed)
    n, k, d = int(rng.integers(4, 60)), int(rng.integers(2, 5)), int(rng.integers(1, 4))
    X = 10.0 ** rng.integers(0, 9) + 10.0 ** -float(rng.integers(0, 9)) * rng.standard_normal((n, d))
    labels = np.r_[np.arange(k), rng.integers(k, size=n)][:n]
    if seed % 4 == 0:
        labels[rng.integers(n)] = -1  # Rows without a label stay out.
    return X, labels, k


@each_instance
def test_the_objective_never_rises(seeds):
    moved = 0
    for seed in seeds:
        X, labels, k = instance(seed)
        after = reassign(X, labels, k)
        assert after.objective <= after.objective_before, seed
        assert ((after.labels < 0) == (labels < 0)).all()
        rows = labels >= 0
        assert after.objective_before == pytest.approx(sks.kmeans_objective(X[rows], labels[rows], k), rel=1e-9)
        # Another order of merges rounds a little differently.
        again = sks.kmeans_objective(X[rows], after.labels[rows], k)
        assert again <= after.objective_before * (1 + 1e-9) + 1e-28
        moved += int((after.labels != labels).sum())
    assert moved > 100
