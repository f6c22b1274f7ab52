"""`variance`: the order of the exact variances, and ``F(A, X) <= F(S, X) + sum of the scatter of the other columns``.

Reference: the scatter in rational arithmetic, where scatters differ by more than rounding; random partitions.
"""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import EmptyInput

from .instances import each_instance, matrix, objective
from .rational import fractions_of, rows_of, scatter_of


@pytest.mark.filterwarnings("ignore:all columns have the same variance")
@each_instance
def test_the_columns_of_largest_variance_are_chosen(seeds):
    compared = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(2, 20)), int(rng.integers(2, 7))
        X = matrix(rng, n, p)
        exact = np.array([float(row[j]) for j, row in enumerate(scatter_of(rows_of(X), fractions_of(np.ones(n))))])
        r = int(rng.integers(1, p + 1))
        if not exact.any():
            with pytest.raises(EmptyInput):
                sks.VarianceSelector(r).fit(X)
            continue
        chosen = sks.VarianceSelector(r).fit(X).support_
        rounding = 1e-10 * exact + 1e-13 * n * (X**2).sum(axis=0) * 1e-10 + (1e-15 * n * np.abs(X).max(axis=0)) ** 2
        others = np.setdiff1d(np.arange(p), chosen)
        if others.size:
            assert exact[others].max() <= (exact + 2 * rounding)[chosen].min() + rounding.max()
            compared += 1
        labels = rng.integers(3, size=n)
        room = 1e-9 * (exact.sum() + 1e-12 * (X**2).sum())
        assert objective(X, labels) <= objective(X[:, chosen], labels) + exact[others].sum() + room
    assert compared
