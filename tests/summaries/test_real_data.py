"""The guarantees on real data: digits, which ship with scikit-learn, and larger sets where they are at hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from tests.data_sets import data_set

import sketchselect as sks


def load(name):
    if name == "digits":
        return load_digits().data
    return data_set(name)["X"][:2000].astype(float)


@pytest.mark.parametrize("size", [3, 12])
@pytest.mark.parametrize("name", ["digits", "USPS", "COIL20", "Isolet", "MNIST"])
def test_sketch_of_real_data_over_random_trees(name, size):
    X = load(name)
    rng = np.random.default_rng(size)
    parts, start = [], 0
    for rows in np.array_split(X, np.sort(rng.integers(0, len(X) + 1, 10))):
        parts.append(sks.FrequentDirections(size).from_block(rows, start=start))
        start += len(rows)
    while len(parts) > 1:
        i = int(rng.integers(len(parts) - 1))
        parts[i : i + 2] = [parts[i].merge(parts[i + 1])]
    result = parts[0]
    centered = X - X.mean(axis=0)
    for rows, data in ((result.sketch, X), (result.centered_sketch, centered)):
        slack = 1e-10 * (data**2).sum()
        gap = np.linalg.eigvalsh(data.T @ data - rows.T @ rows)
        assert gap[0] >= -slack
        assert gap[-1] <= result.shrinkage + slack
    tails = np.maximum(np.linalg.eigvalsh(centered.T @ centered)[::-1], 0)
    for k in range(size):
        assert result.shrinkage <= tails[k:].sum() / (size - k) * (1 + 1e-9)


@pytest.mark.parametrize("name", ["digits", "USPS", "Isolet"])
def test_certificate_on_real_data_is_never_contradicted_by_a_better_clustering(name):
    from sklearn.cluster import KMeans

    X = load(name)
    best = KMeans(10, n_init=5, random_state=0).fit(X).inertia_
    exact = (np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[9:] ** 2).sum()
    for size in (12, 80):
        bound = sks.certify(sks.FrequentDirections(size).from_block(X), best, 10).lower_bound
        assert bound <= exact * (1 + 1e-9)
        assert bound <= best
