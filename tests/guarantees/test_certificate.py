"""Spectral certificates: ``F* >= L = ||A_c||^2 - sum_{i<k} s_i^2 - min((k-1) Delta, ||A_c||^2 - ||B_c||^2)``.

    F* >= L for sketch and moments,   factor >= F / F* for any labels,   F(X) <= gamma F* + scatter of dropped columns

Every partition of at most nine rows is tried; weighted and merged in any order.
"""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.cluster import certify_labels, certify_selection

from ..cluster.exhaustive import solved
from .instances import each_instance, matrix, merged, objective


def instance(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(3, 9)), int(rng.integers(1, 4))
    size = int(rng.integers(2, 4))
    p = int(rng.integers(31, 60)) if seed % 2 else int(rng.integers(1, 20))
    X = matrix(rng, n, p)
    if seed % 3 == 0:
        X[: n // 2] += 10.0 * np.abs(X).max()
    # The objective of labels at rounding of the values is not what is certified here.
    room = 1e-12 * float((X**2).sum())
    return rng, X, k, size, room


@each_instance
@pytest.mark.parametrize("summary", ["sketch", "moments"])
def test_no_partition_is_better_than_the_lower_bound(seeds, summary):
    positive = 0
    for seed in seeds:
        rng, X, k, size, room = instance(seed)
        best, _ = solved(X, k)
        description = sks.FrequentDirections(max(size, k + 1)) if summary == "sketch" else sks.Moments()
        certificate = sks.certify(merged(rng, description, X), best, k)
        assert certificate.lower_bound <= best + room
        labels = rng.integers(k, size=len(X))
        F = objective(X, labels)
        # As above: an objective below the rounding of the rows proves nothing.
        if best > 1e6 * room:
            assert sks.certify(merged(rng, description, X), F, k).factor >= F / best * (1 - 1e-9)
            positive += certificate.lower_bound > 0
    assert positive


@each_instance
@pytest.mark.parametrize("method", ["spectral", "blocks"])
def test_anybodys_labels(seeds, method):
    for seed in seeds:
        rng, X, k, _, room = instance(seed)
        best, _ = solved(X, k)
        labels = rng.integers(k, size=len(X))
        certificate = certify_labels(X, labels, k, method=method)
        assert abs(certificate.objective - objective(X, labels)) <= 1e-9 * certificate.objective + room
        assert certificate.lower_bound <= best + room


@each_instance
def test_selected_columns_before_anything_is_clustered(seeds):
    finite = 0
    for seed in seeds:
        rng, X, k, _, room = instance(seed)
        best, _ = solved(X, k)
        chosen = np.sort(rng.permutation(X.shape[1])[: int(rng.integers(1, X.shape[1] + 1))])
        proof = certify_selection(merged(rng, sks.Moments(), X), chosen, k)
        within, labels = solved(X[:, chosen], k)
        there = objective(X, labels)
        assert there <= best + proof.dropped_scatter + 2 * room
        if np.isfinite(proof.factor(1.0)) and best > 1e6 * room:
            assert there <= proof.factor(1.0) * best * (1 + 1e-9)
            finite += 1
        assert within <= best + room
    assert finite
