"""The lower bound of a block's k-means objective, against every partition there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sketchselect.summaries.block_bound import partition_bound


def best_objective(X, k, w):
    """Return the optimum over all partitions, by trying them (the first row's cluster is fixed)."""
    best = np.inf
    for rest in itertools.product(range(k), repeat=len(X) - 1):
        labels = np.array((0, *rest))
        found = 0.0
        for c in range(k):
            mine = labels == c
            if w[mine].sum() > 0:
                mean = np.average(X[mine], axis=0, weights=w[mine])
                found += float((w[mine][:, None] * (X[mine] - mean) ** 2).sum())
        best = min(best, found)
    return best


@pytest.mark.parametrize("seed", range(40))
def test_never_above_the_optimum(seed):
    rng = np.random.default_rng(seed)
    n, k, p = int(rng.integers(2, 8)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    X = rng.standard_normal((n, p)) * 10.0 ** rng.integers(-3, 4) + rng.choice([0.0, 1e4, -1e7])
    if seed % 5 == 0:
        X[n // 2 :] = X[0]
    w = rng.random(n) + 0.1 if seed % 2 else np.ones(n)
    if seed % 7 == 0:
        w[0] = 0.0
    bound = partition_bound(X, k, w if seed % 2 or seed % 7 == 0 else None)
    optimum = best_objective(X, k, w)
    # The brute-force optimum itself is rounded, relative to the offset.
    assert bound.lower <= optimum * (1 + 1e-9) + 1e-14 * float((w * (X**2).sum(axis=1)).sum())
    assert 0.0 <= bound.spectral <= bound.lower <= bound.scatter


def test_tight_on_small_instances():
    rng = np.random.default_rng(1)
    ratios = []
    for _ in range(20):
        X = rng.standard_normal((7, 2))
        ratios.append(partition_bound(X, 3).lower / best_objective(X, 3, np.ones(7)))
    assert np.median(ratios) > 0.97


@pytest.mark.slow
def test_better_than_the_spectrum_where_directions_outnumber_clusters():
    X = np.random.default_rng(0).standard_normal((120, 2))
    bound = partition_bound(X, 6)
    assert bound.lower > 1.5 * bound.spectral


def test_one_cluster_is_the_scatter():
    X = np.random.default_rng(0).standard_normal((50, 3)) + 100.0
    exact = float(((X - X.mean(axis=0)) ** 2).sum())
    assert partition_bound(X, 1).lower == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_extreme_scales(scale):
    X = np.random.default_rng(0).standard_normal((40, 3))
    assert partition_bound(X * scale, 3).lower == pytest.approx(partition_bound(X, 3).lower * scale**2, rel=1e-3)


@pytest.mark.parametrize("X", [np.zeros((9, 2)), np.full((9, 2), 3.7), np.eye(3)])
def test_nothing_to_prove(X):
    bound = partition_bound(X, 3)
    assert bound.lower == 0.0
    assert bound.spectral == 0.0


def test_any_number_of_rounds_is_valid():
    X = np.random.default_rng(3).standard_normal((7, 2))
    optimum = best_objective(X, 2, np.ones(7))
    for iterations in (0, 1, 2, 5, 300):
        assert partition_bound(X, 2, iterations=iterations).lower <= optimum * (1 + 1e-12)
