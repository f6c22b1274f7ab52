"""`auto`: intervals of the objective that k-means on some columns reaches in all columns, from a sample of the rows.

    P(low <= F(columns) / F(all columns) <= high) = 0.95,    F by k-means of all rows, simulated
    low = ratio = high = 1 of all columns
    the same columns for the same rows and seed

Each seed makes rows and samples a fourth of them; frequencies are over seeds and numbers of columns.
"""

import math

import numpy as np

import sketchselect as sks
from sketchselect.selectors.auto import AutoSelector, selection_curve

from .instances import each_instance


def instance(seed):
    """Rows about centres that the first columns tell apart best, and the number of clusters."""
    rng = np.random.default_rng(seed)
    k, p = int(rng.integers(2, 6)), int(rng.integers(6, 16))
    centers = rng.standard_normal((k, p)) * np.geomspace(10.0 ** rng.uniform(0, 1), 0.05, p)
    return centers[rng.integers(k, size=400)] + rng.uniform(0.5, 2) * rng.standard_normal((400, p)), k


def reached(X, columns, k):
    """Return the objective in all columns of k-means on some."""
    return sks.kmeans_objective(X, sks.KMeans(k, random_state=0).fit(X[:, columns]).labels_, k)


@each_instance
def test_intervals_have_their_coverage(seeds):
    covered = []
    for seed in seeds:
        X, k = instance(seed)
        p = X.shape[1]
        options = {"methods": ["variance"], "sample_rows": 100, "normalize": None, "random_state": seed}
        curve = selection_curve(X, k, sizes=[2, p // 2, p], **options)
        whole = reached(X, np.arange(p), k)
        *some, all_columns = curve.points
        assert all_columns.low == all_columns.ratio == all_columns.high == 1
        covered += [point.low <= reached(X, point.selection.support, k) / whole <= point.high for point in some]
    assert np.mean(covered) >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / len(seeds))


@each_instance
def test_the_choice_is_the_same_for_all_partitions(seeds):
    for seed in seeds[::8]:
        X, k = instance(seed)
        auto = AutoSelector(4, n_clusters=k, methods=["greedy", "variance"], sample_rows=50, random_state=seed)
        one, many = (auto.summary_description(X.shape[1]).from_block(X[a:b], start=a) for a, b in ((0, 400), (0, 100)))
        for a in (100, 200, 300):
            many = many.update(X[a : a + 100])
        chosen = [auto.fit_summary(summary).support_.tolist() for summary in (one, many)]
        assert chosen[0] == chosen[1]
