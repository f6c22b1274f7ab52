"""Supervised selectors against scikit-learn on the raw rows: paths, refits, several targets, original units."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, MultiTaskLasso, enet_path, lars_path, lasso_path
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from tests.passing import Recorder
from tests.selectors.conftest import TRUE, linear

import sketchselect as sks
from sketchselect import _progress
from sketchselect.errors import BadParameter

PATHS = {"lasso": sks.LassoPath, "elastic-net": sks.ElasticNetPath, "mcp": sks.MCPPath, "scad": sks.SCADPath}
SIZED = {"thresholded-ols": sks.ThresholdedOLS, "annealing": sks.FeatureSelectionAnnealing}


def in_original_units(X, y, coefs):
    """Turn coefficients of standardised columns into those of X, with intercepts."""
    coefs = coefs / X.std(axis=0)[:, None]
    return coefs, y.mean() - X.mean(axis=0) @ coefs


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["lasso", "elastic-net"])
@pytest.mark.parametrize(("n", "p"), [(400, 25), (40, 60), (40, 1100)])
def test_paths_equal_those_of_scikit_learn_on_the_rows(name, n, p):
    X, y = linear(n, p)
    alphas = np.geomspace(2.0, 0.01, 30)
    ours = PATHS[name](alphas=alphas).fit(X, y).path_
    Z, c = StandardScaler().fit_transform(X), y - y.mean()
    if name == "lasso":
        _, coefs, _ = lasso_path(Z, c, alphas=alphas, tol=1e-14, max_iter=200_000)
    else:
        _, coefs, _ = enet_path(Z, c, alphas=alphas, l1_ratio=0.5, tol=1e-14, max_iter=200_000)
    coefs, intercepts = in_original_units(X, y, coefs)
    assert np.array_equal(ours.alphas, alphas)
    scale = X.std(axis=0)[:, None]
    assert np.allclose(ours.coefs * scale, coefs * scale, atol=1e-6)
    assert np.allclose(X @ ours.coefs + ours.intercepts, X @ coefs + intercepts, atol=1e-5)
    assert np.allclose(ours.residual_squares, ((y[:, None] - X @ coefs - intercepts) ** 2).mean(axis=0), rtol=1e-5)


def test_the_lasso_has_exactly_as_many_columns_as_asked_for():
    X, y = linear(200, 15)
    Z = StandardScaler().fit_transform(X)
    _, _, knots = lars_path(Z, y - y.mean(), method="lasso")
    sizes = np.count_nonzero(np.abs(knots) > 1e-10, axis=0)
    for k in range(1, 16):
        chosen = sks.LassoPath(n_features_to_select=k).fit(X, y)
        assert len(chosen.support_) == k == np.count_nonzero(chosen.coef_)
        at = np.flatnonzero(sizes == k)[-1]
        assert chosen.support_.tolist() == np.flatnonzero(np.abs(knots[:, at]) > 1e-10).tolist()
        assert np.allclose(chosen.coef_ * X.std(axis=0), knots[:, at], atol=1e-8)


@pytest.mark.parametrize("name", ["elastic-net", "mcp", "scad"])
def test_other_paths_have_at_most_as_many_and_convex_ones_exactly(name):
    X, y = linear(200, 15)
    for k in (1, 4, 9, 15):
        size = len(PATHS[name](n_features_to_select=k).fit(X, y).support_)
        assert size == k if name == "elastic-net" else 1 <= size <= k


@pytest.mark.statement("Sun 2019, Algorithm 1")
def test_thresholding_keeps_the_largest_standardised_coefficients_and_refits_them():
    X, y = linear(noise=3.0)
    full = LinearRegression().fit(X, y).coef_ * X.std(axis=0)
    for k in (1, 3, 10, 25):
        chosen = sks.ThresholdedOLS(k).fit(X, y)
        assert np.allclose(chosen.scores_, np.abs(full), rtol=1e-5)
        assert chosen.support_.tolist() == sorted(np.argsort(-np.abs(full))[:k].tolist())
        assert_is_refit(chosen, X, y)


def assert_is_refit(chosen, X, y):
    s = chosen.support_
    refit = LinearRegression().fit(X[:, s], y)
    assert np.allclose(chosen.coef_[s] * X.std(axis=0)[s], refit.coef_ * X.std(axis=0)[s], rtol=1e-8)
    assert np.allclose(chosen.predict(X), refit.predict(X[:, s]), rtol=1e-8)
    assert chosen.score(X, y) == pytest.approx(refit.score(X[:, s], y), rel=1e-9)
    assert not np.delete(chosen.coef_, s).any()


@pytest.mark.parametrize("name", [*PATHS, *SIZED])
def test_every_method_finds_a_strong_signal_and_can_refit_it(name):
    X, y = linear(noise=0.3)
    chosen = SIZED[name](3) if name in SIZED else PATHS[name](n_features_to_select=3, refit=True)
    assert chosen.fit(X, y).support_.tolist() == TRUE
    assert_is_refit(chosen, X, y)
    assert chosen.selection_.method == name
    assert chosen.selection_.diagnostics["explained"] == pytest.approx(chosen.score(X, y))


@pytest.mark.parametrize("name", list(PATHS))
def test_a_given_alpha_is_taken_and_is_in_units_of_standardised_columns(name):
    X, y = linear()
    one = PATHS[name](alpha=0.3).fit(X, y)
    assert one.path_.values[one.path_.chosen] == 0.3
    other = PATHS[name](alpha=0.3).fit(X * np.geomspace(1e3, 1e-3, X.shape[1]) - 5.0, y)
    assert np.array_equal(one.support_, other.support_)
    assert np.allclose(one.predict(X), other.predict(X * np.geomspace(1e3, 1e-3, X.shape[1]) - 5.0), rtol=1e-8)


def test_the_adaptive_lasso_is_a_lasso_on_columns_scaled_by_the_pilot():
    X, y = linear()
    alphas = np.geomspace(1.0, 1e-3, 20)
    ours = sks.LassoPath(alphas=alphas, adaptive=True).fit(X, y).path_
    Z, c = StandardScaler().fit_transform(X), y - y.mean()
    pilot = np.abs(LinearRegression().fit(Z, c).coef_)
    scaled = pilot * np.mean(1 / pilot)
    _, coefs, _ = lasso_path(Z * scaled, c, alphas=alphas, tol=1e-14, max_iter=200_000)
    assert np.allclose(ours.coefs * X.std(axis=0)[:, None], coefs * scaled[:, None], atol=1e-6)


def test_several_targets_share_a_support():
    X, y = linear()
    rng = np.random.default_rng(1)
    Y = np.c_[y, 2 * X[:, 5] / X[:, 5].std() + rng.standard_normal(len(y)), -y + rng.standard_normal(len(y))]
    Z = StandardScaler().fit_transform(X)
    ours = sks.LassoPath(alpha=0.4).fit(X, Y)
    expected = MultiTaskLasso(alpha=0.4, tol=1e-13, max_iter=100_000).fit(Z, Y)
    assert np.allclose(ours.coef_ * X.std(axis=0), expected.coef_, atol=1e-6)
    assert np.allclose(ours.predict(X), expected.predict(Z), atol=1e-5)
    assert ours.path_.coefs.shape == (3, 25, len(ours.path_))
    full = LinearRegression().fit(Z, Y).coef_
    sized = sks.ThresholdedOLS(4).fit(X, Y)
    assert np.allclose(sized.scores_, np.linalg.norm(full, axis=0), rtol=1e-5)
    refit = LinearRegression().fit(X[:, sized.support_], Y)
    assert np.allclose(sized.predict(X), refit.predict(X[:, sized.support_]))
    assert sized.score(X, Y) == pytest.approx(refit.score(X[:, sized.support_], Y))


@pytest.mark.parametrize("method", [sks.ThresholdedOLS(6, degree=2), sks.LassoPath(n_features_to_select=6, degree=2)])
def test_polynomial_terms_are_those_of_standardised_columns(method):
    X, _ = linear(300, 6)
    Z = StandardScaler().fit_transform(X)
    rng = np.random.default_rng(5)
    y = Z[:, 1] + 2 * Z[:, 0] * Z[:, 4] - Z[:, 2] ** 2 + 0.1 * rng.standard_normal(300)
    T = PolynomialFeatures(2, include_bias=False).fit_transform(Z)
    chosen = method.fit(X, y)
    names = PolynomialFeatures(2, include_bias=False).fit(Z).get_feature_names_out()
    assert chosen.get_feature_names_out().tolist() == names[chosen.support_].tolist()
    assert {"x1", "x0 x4", "x2^2"} <= set(chosen.get_feature_names_out())
    assert np.allclose(chosen.transform(X), T[:, chosen.support_], atol=1e-9)
    assert np.allclose(chosen.predict(X), T @ chosen.coef_ + chosen.intercept_, atol=1e-8)
    assert set(chosen.selection_.support.tolist()) >= {0, 1, 2, 4}
    if isinstance(method, sks.ThresholdedOLS):
        refit = LinearRegression().fit(T[:, chosen.support_], y)
        assert np.allclose(chosen.predict(X), refit.predict(T[:, chosen.support_]), atol=1e-9)
    with pytest.raises(BadParameter, match="degree"):
        chosen.inverse_transform(chosen.transform(X))


def test_moments_that_keep_a_factor_give_the_refit_its_digits():
    x = np.linspace(0, 10, 200)
    X = np.vander(x, 9, increasing=True)[:, 1:]  # condition number about 1e10
    y = X @ np.ones(8) + 3.0
    model = sks.ThresholdedOLS(8).fit_summary(sks.Moments(method="qr").from_block(X, y))
    plain = sks.ThresholdedOLS(8).fit_summary(sks.Moments().from_block(X, y))
    assert np.abs(model.coef_ - 1).max() < 1e-5 < np.abs(plain.coef_ - 1).max()
    assert model.intercept_ == pytest.approx(3.0, abs=1e-5)


def test_long_fits_say_how_far_they_are_and_short_ones_nothing(monkeypatch):
    X, y = linear()
    fits = {"folds: 2 of 5": sks.LassoPath(), "models: 9 of 10": sks.LassoPath(n_alphas=10)}
    fits |= {
        "halves: 2 of 3": sks.StabilitySelector(n_pairs=3),
        "sample: 4 of 5": sks.selectors.LogisticPath(n_alphas=5),
    }
    for seconds in (1e9, 0.0):
        monkeypatch.setattr(_progress, "STEP_SECONDS", seconds)
        monkeypatch.setattr(_progress, "LINE_SECONDS", seconds)
        for text, estimator in fits.items():
            progress = Recorder()
            estimator.fit(X, y > np.median(y) if "sample" in text else y, progress=progress)
            assert any(text in note for note in progress.notes) == (seconds == 0.0), progress.notes
