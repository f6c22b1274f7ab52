"""Moments of missing values and of degree 2, against brute force and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from sketchselect.errors import BadBlock, BadParameter, NotFinite
from sketchselect.summaries import Moments
from sketchselect.summaries.moment_forms import expand, polynomial_names, recentre

from .moment_data import blocks, merged, some_rows

# --- missing values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_pairwise_is_the_covariance_of_the_rows_that_have_both(weighted):
    X, y, w = some_rows(300)
    rng = np.random.default_rng(7)
    X = np.where(rng.random(X.shape) < np.linspace(0, 0.6, 6), np.nan, X)
    # Missing in runs, so that whole blocks have no value of a column.
    X[:150, 3] = np.nan
    weights = w if weighted else None
    m = merged(blocks(Moments(missing="pairwise"), X, y, weights))
    Z = np.hstack([X, y])
    for i in range(8):
        for j in range(8):
            both = ~np.isnan(Z[:, i] + Z[:, j])
            expected = np.cov(Z[both, i], Z[both, j], aweights=None if weights is None else w[both], ddof=0)[0, 1]
            result = np.block([[m.covariance(), m.xy], [m.xy.T, m.yy]])[i, j]
            assert result == pytest.approx(expected, rel=1e-11, abs=1e-12)
            if i < 6 and j < 6:
                assert m.pair_weights[i, j] == pytest.approx(w[both].sum() if weighted else both.sum())
    present = ~np.isnan(X)
    expected = [np.average(X[present[:, j], j], weights=w[present[:, j]] if weighted else None) for j in range(6)]
    assert np.allclose(m.mean, expected, rtol=1e-12)


def test_pairwise_says_what_cannot_be_known():
    X = np.array([[1.0, np.nan, 3.0], [np.nan, 2.0, 4.0], [5.0, np.nan, 6.0]])
    m = Moments(missing="pairwise").from_block(X)
    with pytest.raises(BadParameter, match="columns 0 and 1"):
        m.covariance()
    with pytest.raises(BadParameter, match="no Gram matrix"):
        m.gram()
    with pytest.raises(NotFinite, match="row 11, column 2"):
        Moments(missing="pairwise").from_block([[0.0, 0.0, 0.0], [np.nan, 0.0, np.inf]], start=10)
    with pytest.raises(BadBlock, match="column 1"):
        Moments(missing="pairwise").from_block([[0.0, 0.0], [np.nan, 1e160]])
    with pytest.raises(NotFinite, match="row 0, column 1"):
        Moments().from_block(X)


# --- polynomial features ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_blocks", [1, 4, 9])
def test_expanded_is_the_gram_of_the_standardised_polynomial_features(n_blocks):
    X, y, w = some_rows(500, 5)
    X = (X + 1000) * 10.0 ** np.arange(-4, 6, 2)
    X[:, 3] = 0.1
    m = merged(blocks(Moments(degree=2), X, y, w, n_blocks))
    maker = PolynomialFeatures(2, include_bias=False)
    # Not StandardScaler: with weights its variance of the constant column comes out negative.
    centred = (X - np.average(X.astype(np.longdouble), axis=0, weights=w)).astype(float)
    sd = np.sqrt(np.average(centred**2, axis=0, weights=w))
    Z = maker.fit_transform(centred / np.where(np.ptp(X, axis=0) > 0, sd, 1))
    keep = [i for i, name in enumerate(maker.get_feature_names_out()) if "x3" not in name]
    got = m.expanded()
    expected = np.cov(np.hstack([Z, y]).T, aweights=w, ddof=0)
    p = Z.shape[1]
    assert got.n_features == p
    assert np.allclose(got.covariance()[np.ix_(keep, keep)], expected[:p, :p][np.ix_(keep, keep)], rtol=1e-9, atol=1e-9)
    assert np.allclose(got.xy[keep], expected[:p, p:][keep], rtol=1e-8, atol=1e-8)
    assert np.allclose(got.mean[keep], np.average(Z, axis=0, weights=w)[keep], atol=1e-10)
    assert got.feature_names == tuple(maker.get_feature_names_out())
    assert (got.n_rows, got.weight, got.n_effective) == (m.n_rows, m.weight, m.n_effective)
    assert np.isfinite(got.covariance()).all()


def test_expanded_far_from_zero_and_in_the_units_of_others():
    rng = np.random.default_rng(8)
    X = 1e8 + rng.standard_normal((3000, 3))
    m = merged(blocks(Moments(degree=2), X))
    Z = PolynomialFeatures(2, include_bias=False).fit_transform(StandardScaler().fit_transform(X - 1e8))
    assert np.allclose(m.expanded().covariance(), np.cov(Z.T, ddof=0), atol=1e-6)
    mean, scale = np.array([1e8 + 1, 1e8, 1e8 - 2]), np.array([2.0, 1.0, 0.5])
    got = m.expanded(mean=mean, scale=scale)
    Z = expand(X, mean, scale)
    assert np.allclose(got.covariance(), np.cov(Z.T, ddof=0), rtol=1e-9, atol=1e-9)
    assert np.allclose(got.mean, Z.mean(axis=0), atol=1e-7)
    with pytest.raises(BadParameter, match="degree=2"):
        Moments().from_block(X).expanded()


def test_expand_makes_the_features_of_new_rows():
    X, _, _ = some_rows(50, 4)
    expected = PolynomialFeatures(2, include_bias=False).fit_transform(StandardScaler().fit_transform(X))
    assert np.allclose(expand(X, X.mean(0), X.std(0)), expected, rtol=1e-12, atol=1e-12)
    assert polynomial_names(("a", "b"), 2) == ("a", "b", "a^2", "a b", "b^2")
    assert (expand(X, X.mean(0), np.zeros(4)) == 0).all()


def test_recentre_there_and_back():
    X, y, _ = some_rows(60, 4)
    Z = np.hstack([expand(X, np.zeros(4)), y])
    m = Moments().from_block(Z).record
    offset = np.array([1.0, -2.0, 0.5, 3.0])
    mean, comoment = recentre(m.mean, m.comoment, offset)
    moved = Moments().from_block(np.hstack([expand(X, offset), y])).record
    assert np.allclose(mean, moved.mean, rtol=1e-10, atol=1e-10)
    assert np.allclose(comoment, moved.comoment, rtol=1e-9, atol=1e-9 * np.abs(moved.comoment).max())
    back = recentre(mean, comoment, -offset)
    assert np.allclose(back[1], m.comoment, rtol=1e-9, atol=1e-9 * np.abs(m.comoment).max())


def test_products_that_leave_float64_are_refused():
    for size in (1e80, 1e-80):
        X = np.ones((4, 3))
        X[:, 1] = size * np.array([1, 2, 3, 9.0])
        with pytest.raises(BadBlock, match=r"column 1 .*row 8"):
            Moments(degree=2).from_block(X, start=5)
