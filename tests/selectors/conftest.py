"""Data that several tests of selectors share."""

import contextlib

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from sketchselect.selectors.supervised import auto
from sketchselect.selectors.supervised.penalized import PenalizedPath

TRUE = [3, 8, 14]


def linear(n=400, p=25, seed=0, noise=1.0):
    """Correlated columns in units from 0.01 to 100, far from zero; three (the TRUE ones, modulo p) carry the target."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 1))
    X = (rng.standard_normal((n, p)) + 0.7 * shared) * np.geomspace(0.01, 100, p) + 50.0
    signal = StandardScaler().fit_transform(X)[:, np.array(TRUE) % p] @ np.array([2.0, -1.5, 1.0])
    return X, 7.0 + signal + noise * rng.standard_normal(n)


def blobs(n=240, d=40, k=4, seed=0, offset=3.0):
    """Clusters that show in half of the columns, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.r_[np.arange(k), rng.integers(k, size=n - k)]
    X = rng.standard_normal((n, d)) * rng.exponential(size=d) + offset
    return X + 3 * rng.standard_normal((k, d))[labels] * (rng.random(d) < 0.5), labels


def objective(X, labels):
    """Return the k-means objective of a partition."""
    return sum(((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum() for c in np.unique(labels))


def leverage(X, ridge):
    """Return the scores of the columns of X, from its singular values."""
    _, s, vt = np.linalg.svd(X, full_matrices=False)
    return (vt**2).T @ (s**2 / (s**2 + ridge))


def tail(X, k):
    """Return the k-th part of the squares beyond the k first singular values."""
    return (np.linalg.svd(X, compute_uv=False)[k:] ** 2).sum() / k


@contextlib.contextmanager
def short_paths_within():
    """Give `TargetAutoSelector` paths of ten models and two divisions, which no parameter of `SHORT` says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PenalizedPath.__init__.__kwdefaults__, "n_alphas", 10)
        patch.setattr(auto, "_DIVISIONS", 2)
        yield


@pytest.fixture
def short_paths():
    """Shorten the paths for a whole test."""
    with short_paths_within():
        yield
