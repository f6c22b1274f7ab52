"""Selection from float32: exact where that is promised, and bounds that give way by what float32 products lost."""

from __future__ import annotations

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.selectors.kmeans_columns import column_subspace


def leverage(X, ridge):
    """Scores of the columns of X from its singular values."""
    _, s, vt = np.linalg.svd(X, full_matrices=False)
    return (vt**2).T @ (s**2 / (s**2 + ridge))


def tail(X, k):
    return (np.linalg.svd(X, compute_uv=False)[k:] ** 2).sum() / k


def objective(X, labels):
    return sum(((X[labels == j] - X[labels == j].mean(axis=0)) ** 2).sum() for j in np.unique(labels))


def nearly_low_rank(n=300, p=900, rank=5, noise=1e-3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p)) + noise * rng.standard_normal((n, p))
    return X.astype(np.float32)


@pytest.mark.parametrize("ridge", ["auto", 0.0])
def test_float32_columns_are_scored_in_float64(ridge):
    """What float32 products lose of AA' is more than what is left beside five strong directions."""
    X = nearly_low_rank()
    chosen = sks.LeverageSelector(40, ridge=ridge, read="columns", n_components=5).fit(X)
    wide = X.astype(np.float64)
    used = chosen.selection_.diagnostics["ridge"]
    assert np.allclose(chosen.scores_, leverage(wide, used), atol=1e-8)
    if ridge == "auto":
        assert used == pytest.approx(tail(wide, 5), rel=1e-7)


@pytest.mark.parametrize("ridge", ["auto", 1e5])
def test_bounds_from_moments_of_float32_hold(ridge):
    X = nearly_low_rank(900, 300)
    moments = sks.Moments().from_block(X)
    assert moments.single_rounding > 0
    chosen = sks.LeverageSelector(40, ridge=ridge, n_components=5).fit_summary(moments)
    tau = leverage(X.astype(np.float64), chosen.selection_.diagnostics["ridge"])
    lower, upper = chosen.score_bounds_
    assert (lower <= tau).all()
    assert (tau <= upper).all()
    assert (lower <= chosen.scores_).all()
    assert (chosen.scores_ <= upper).all()
    assert (lower > 0).any() == (ridge != "auto")


@pytest.mark.parametrize("cls", [sks.DeterministicSelector, sks.RandomizedSelector, sks.HybridSelector])
@pytest.mark.parametrize("noise", [1e-3, 1.0])
def test_what_moments_of_float32_say_holds_for_the_rows(cls, noise):
    """Products in float32 hide what is left beside strong directions; the bounds have to give way by as much."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((900, 5)) @ rng.standard_normal((5, 80)) + noise * rng.standard_normal((900, 80))
    X = X.astype(np.float32)
    moments = sks.Moments().from_block(X)
    assert moments.single_rounding > 0
    chosen = cls(20, n_clusters=5).fit_summary(moments)
    A = X.astype(np.float64)
    A -= A.mean(axis=0)
    result = column_subspace(moments, 5)
    E = A - A @ result.vectors @ result.vectors.T
    assert (E**2).sum() <= result.residual
    assert ((E**2).sum(axis=0) <= result.column_residuals).all()
    squares = np.linalg.svd(A, compute_uv=False) ** 2
    for k in (1, 2, 5, 6):
        assert result.lower_bound(k) <= squares[k - 1 :].sum()
    C = A[:, chosen.support_] * chosen.weights_
    for k in (1, 5):
        X_out = rng.integers(0, k, 900)
        assert chosen.certificate_.structural_bound(objective(C, X_out)) >= objective(A, X_out)
    assert chosen.selection_.diagnostics.get("proven_factor") is None
