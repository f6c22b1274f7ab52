"""Choice of the model: criteria, cross-validation from folds of moments, stability selection; oracles are the rows."""

from math import comb, log

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, lasso_path
from sklearn.preprocessing import StandardScaler
from tests.selectors.conftest import TRUE, linear

import sketchselect as sks
from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.selectors import METHODS, StabilitySelector
from sketchselect.selectors.supervised.auto import MRMRPath, UnivariatePath
from sketchselect.selectors.supervised.models import best_by_size, best_by_validation
from sketchselect.selectors.supervised.path import NoFolds
from sketchselect.solvers import adaptive_factors

REGRESSIONS = [name for name, cls in METHODS.items() if cls.fits_model and cls().task == "regression"]


def folds_of(n, k, seed):
    """Return the fold of each row, as the summary hashes them."""
    return sks.Folds(sks.Moments(), k, seed=seed).fold_of(np.arange(n, dtype=np.uint64))


@pytest.mark.parametrize("refit", [False, True])
def test_cross_validation_equals_refits_on_the_rows(refit):
    X, y = linear(120, 10)
    alphas = np.geomspace(1.0, 0.05, 8)
    ours = sks.LassoPath(alphas=alphas, cv=4, random_state=3, refit=refit, tol=1e-13).fit(X, y)
    fold = folds_of(120, 4, 3)
    expected = np.zeros((8, 4))
    for f in range(4):
        a, b = fold != f, fold == f
        scaler = StandardScaler().fit(X[a])
        Z = scaler.transform(X[a])
        _, coefs, _ = lasso_path(Z, y[a] - y[a].mean(), alphas=alphas, tol=1e-15, max_iter=500_000)
        for i in range(8):
            used = np.flatnonzero(coefs[:, i])
            if refit and used.size:
                predicted = LinearRegression().fit(X[a][:, used], y[a]).predict(X[b][:, used])
            else:
                predicted = scaler.transform(X[b]) @ coefs[:, i] + y[a].mean()
            expected[i, f] = np.mean((y[b] - predicted) ** 2)
    assert np.allclose(ours.path_.cv_errors, expected, rtol=1e-9)
    assert ours.path_.chosen == expected.mean(axis=1).argmin()
    assert np.allclose(ours.path_.mean_cv_error, expected.mean(axis=1))


def test_cross_validation_of_sizes_and_terms_equals_refits_on_the_rows():
    X, y = linear(150, 5)
    y = y + (X[:, 0] - X[:, 0].mean()) * (X[:, 3] - X[:, 3].mean()) * 3
    ours = sks.ThresholdedOLS(cv=3, degree=2).fit(X, y)
    fold = folds_of(150, 3, 0)
    from sklearn.preprocessing import PolynomialFeatures

    T = PolynomialFeatures(2, include_bias=False).fit_transform(StandardScaler().fit_transform(X))
    sizes = ours.path_.values.astype(int)
    for f in range(3):
        a, b = fold != f, fold == f
        full = LinearRegression().fit(T[a], y[a]).coef_ * T[a].std(axis=0)
        order = np.argsort(-np.abs(full))
        for i, size in enumerate(sizes):
            used = order[:size]
            predicted = LinearRegression().fit(T[a][:, used], y[a]).predict(T[b][:, used]) if size else y[a].mean()
            assert ours.path_.cv_errors[i, f] == pytest.approx(np.mean((y[b] - predicted) ** 2), rel=1e-8)


def test_folds_of_a_saved_summary_give_the_same_model(tmp_path):
    X, y = linear()
    direct = sks.LassoPath(cv=5).fit(X, y)
    folds = sks.summarize(X, sks.Folds(sks.Moments(), 5), y=y)
    sks.save(sks.Bundle.of({"m": folds, "s": sks.summarize(X, sks.ColumnStats())}), tmp_path / "a.sks")
    again = sks.LassoPath(cv=5).fit_summary(sks.load(tmp_path / "a.sks"))
    assert np.array_equal(direct.support_, again.support_)
    assert np.allclose(direct.coef_, again.coef_, rtol=1e-9)
    by_criterion = sks.LassoPath().fit_summary(folds)
    assert np.array_equal(by_criterion.support_, sks.LassoPath().fit(X, y).support_)
    with pytest.raises(Incompatible, match="folds"):
        sks.LassoPath(cv=5).fit_summary(sks.summarize(X, sks.Moments(), y=y))
    with pytest.raises(Incompatible, match="are in 5 folds, but cv is 4"):
        sks.LassoPath(cv=4).fit_summary(folds)
    with pytest.raises(Incompatible, match="are not in folds, but cv is 3"):
        sks.LassoPath(criterion="bic").fit(X, y).set_params(cv=3).partial_fit(X, y)


def test_criteria_are_those_of_the_residuals():
    X, y = linear(150, 12)
    path = sks.MCPPath(ebic_gamma=0.8).fit(X, y).path_
    residuals = y[:, None] - X @ path.coefs - path.intercepts
    for i in range(len(path)):
        k, fit = int(path.n_nonzero[i]), 150 * log(np.mean(residuals[:, i] ** 2))
        assert path.criteria["aic"][i] == pytest.approx(fit + 2 * k, rel=1e-9)
        assert path.criteria["bic"][i] == pytest.approx(fit + k * log(150), rel=1e-9)
        assert path.criteria["ebic"][i] == pytest.approx(fit + k * log(150) + 1.6 * log(comb(12, k)), rel=1e-9)
    for name in ("aic", "bic", "ebic"):
        chosen = sks.MCPPath(criterion=name, ebic_gamma=0.8).fit(X, y)
        assert chosen.path_.chosen == np.argmin(path.criteria[name])


@pytest.mark.parametrize(
    "method",
    [sks.LassoPath(refit=True), sks.MCPPath(), sks.SCADPath(), sks.ThresholdedOLS(criterion="ebic"), sks.MCPPath(cv=5)],
)
def test_the_number_of_columns_is_found(method):
    X, y = linear(1000, 25, noise=0.5)
    assert set(TRUE) <= set(method.fit(X, y).support_.tolist())
    assert len(method.support_) <= 5


@pytest.mark.share(2)
@pytest.mark.parametrize("name", REGRESSIONS)
def test_by_default_a_model_is_chosen_by_what_it_predicts(name):
    """Half of 40 correlated columns matter a little: an information criterion that counts them finds few or none."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((120, 40)) + rng.standard_normal((120, 1))
    y = X[:, :20].sum(axis=1) + 8 * rng.standard_normal(120)
    ours, asked = METHODS[name]().fit(X[:80], y[:80]), METHODS[name](cv=5).fit(X[:80], y[:80])
    assert ours.path_.chosen == asked.path_.chosen == ours.path_.mean_cv_error.argmin()
    assert np.array_equal(ours.coef_, asked.coef_)
    assert ours.support_.size
    assert ours.score(X[80:], y[80:]) > 0.5


def test_alpha_and_errors_have_the_names_of_scikit_learn():
    X, y = linear(120, 10)
    ours = sks.LassoPath(cv=4, random_state=3).fit(X, y)
    fold = folds_of(120, 4, 3)
    errors = ours.mse_path_
    assert errors.shape == (len(ours.path_.alphas), 4)
    assert ours.alpha_ == ours.path_.alphas[errors.mean(axis=1).argmin()]
    again = sks.LassoPath(alpha=ours.alpha_).fit(X[fold != 2], y[fold != 2])
    held_out = np.mean((y[fold == 2] - again.predict(X[fold == 2])) ** 2)
    assert held_out == pytest.approx(errors[ours.path_.chosen, 2], rel=1e-6)
    assert not hasattr(again, "mse_path_")


@pytest.mark.parametrize("name", REGRESSIONS)
def test_without_folds_the_default_is_a_criterion(name):
    X, y = linear(200, 10)
    rows = sks.summarize(X, sks.Moments(), y=y)
    plain = METHODS[name]().fit_summary(rows)
    assert plain.path_.cv_errors is None
    assert plain.path_.chosen == np.argmin(plain.path_.criteria[plain.default_criterion])
    asked = METHODS[name](criterion=plain.default_criterion)
    assert np.array_equal(plain.coef_, asked.fit_summary(rows).coef_)
    assert METHODS[name](half_life=50).fit(X, y).path_.cv_errors is None
    assert METHODS[name]().partial_fit(X[:1], y[:1]).support_.size == 0, "one row is in one fold"


@pytest.mark.parametrize("adaptive", [False, True])
def test_an_elastic_net_has_the_degrees_of_freedom_of_its_hat_matrix(adaptive):
    X, y = linear(60, 30)
    model = sks.ElasticNetPath(criterion="aic", l1_ratio=0.3, adaptive=adaptive).fit(X, y)
    z = StandardScaler().fit_transform(X)
    factors = np.ones(30)
    if adaptive:
        factors = adaptive_factors(np.linalg.lstsq(z, y - y.mean(), rcond=None)[0][:, None])
    for i in (5, 20, 50, 99):
        a = model.path_.candidates[i].support
        shift = 60 * 0.7 * model.path_.alphas[i] * np.diag(factors[a])
        degrees = np.trace(z[:, a] @ np.linalg.solve(z[:, a].T @ z[:, a] + shift, z[:, a].T))
        residual = np.mean((y - X @ model.path_.coefs[:, i] - model.path_.intercepts[i]) ** 2)
        assert model.path_.criteria["aic"][i] == pytest.approx(60 * log(residual) + 2 * degrees, rel=1e-8)
        assert 0 < degrees < len(a)


def test_the_one_standard_error_rule():
    errors = np.array([[9.0, 9, 9], [4, 5, 6], [3, 4, 6], [4, 3, 5]])
    assert best_by_validation(errors, "min") == 3
    # mean 4, sd of (4, 3, 5) over sqrt(3) = 0.577: the third row, of mean 13/3, is within; the second, of 5, is not.
    assert best_by_validation(errors, "1se") == 2
    # Rounding does not decide between models of equal errors.
    assert best_by_validation(np.vstack([errors, errors[3] * (1 - 1e-15)]), "min") == 3
    assert best_by_validation(np.vstack([np.full(3, np.inf), errors]), "min") == 4
    X, y = linear()
    best, sparse = sks.LassoPath(cv=5).fit(X, y), sks.LassoPath(cv=5, cv_rule="1se").fit(X, y)
    assert sparse.path_.chosen < best.path_.chosen
    assert len(sparse.support_) <= len(best.support_)


@pytest.mark.parametrize("method", [MRMRPath, UnivariatePath])
@pytest.mark.parametrize("seed", range(3))
def test_of_models_that_give_the_target_exactly_the_sparsest_is_selected(method, seed):
    X = np.random.default_rng(seed).standard_normal((200, 6))
    assert method(cv=5).fit(X, 2.0 * X[:, 0]).support_.tolist() == [0]


def test_the_largest_model_within_the_limit_is_taken():
    path = sks.LassoPath(alphas=[1.0, 0.5, 0.1]).fit(*linear()).path_
    sizes = path.n_nonzero
    assert best_by_size(path.candidates, int(sizes[1])) == np.flatnonzero(sizes == sizes[1])[-1]
    with pytest.raises(BadParameter, match="larger alpha"):
        sks.LassoPath(alphas=[1e-6], n_features_to_select=2).fit(*linear())


def test_stability_selection_equals_the_halves_of_the_rows():
    X, y = linear(240, 20)
    ours = StabilitySelector(max_false=1.0, threshold=0.7, n_pairs=3, n_buckets=6, random_state=5).fit(X, y)
    bucket = folds_of(240, 6, 5)
    counts, q = np.zeros(20), ours.selection_.parameters["n_per_half"]
    assert q == int(np.sqrt(0.4 * 20))
    for pair in range(3):
        for half in (ours._halves(pair), ~ours._halves(pair)):
            rows = half[bucket]
            counts[sks.LassoPath(n_features_to_select=q).fit(X[rows], y[rows]).support_] += 1
    assert np.array_equal(ours.scores_, counts / 6)
    assert ours.support_.tolist() == np.flatnonzero(counts / 6 >= 0.7).tolist()
    assert ours.error_bound_ == pytest.approx(q**2 / (0.4 * 20))
    assert ours.error_bound_ <= 1.0


@pytest.mark.parametrize(
    ("p", "max_false", "least"), [(3, 0.1, "0.834"), (5, 0.05, "0.5"), (2, 0.1, "1.25"), (1, 0.5, "2.5")]
)
def test_a_bound_that_no_number_of_columns_keeps_is_refused(p, max_false, least):
    X, y = linear(100, 5)
    X = np.hstack([X[:, :p], np.full((100, 7), 3.0)])  # constant columns do not loosen the bound
    with pytest.raises(
        BadParameter, match=f"with {p} columns that vary and differ.*at least {least}, or raise threshold"
    ):
        StabilitySelector(max_false=max_false, threshold=0.7).fit(X, y)
    kept = StabilitySelector(max_false=float(least), threshold=0.7).fit(X, y)
    assert 0 < kept.error_bound_ <= float(least)


@pytest.mark.parametrize(("n", "p"), [(100, 8), (24, 600)])
def test_copies_of_columns_do_not_loosen_the_bound_of_stability_selection(n, p):
    X, y = linear(n, p)
    copies = np.hstack([1.0 - X[:, ::-1], X, 3.0 + 2.54 * X[:, :5]])
    alone, among = (StabilitySelector(n_pairs=1, n_buckets=4).fit(rows, y) for rows in (X, copies))
    assert among.selection_.parameters["n_per_half"] == alone.selection_.parameters["n_per_half"]
    assert among.error_bound_ == alone.error_bound_


@pytest.mark.slow
@pytest.mark.parametrize(("n", "p", "n_true", "correlation"), [(300, 30, 5, 0.0), (500, 100, 10, 0.5)])
def test_the_default_of_stability_selection_finds_most_related_columns_and_few_others(n, p, n_true, correlation):
    n_found, n_false = 0, 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = np.sqrt(correlation) * rng.standard_normal((n, 1)) + np.sqrt(1 - correlation) * rng.standard_normal((n, p))
        related = rng.choice(p, n_true, replace=False)
        signal = X[:, related] @ (rng.choice([-1, 1], n_true) * rng.uniform(0.5, 1.5, n_true))
        y = signal + rng.standard_normal(n) * signal.std()
        found = StabilitySelector().fit(X, y)
        n_found += np.isin(found.support_, related).sum()
        n_false += found.support_.size - np.isin(found.support_, related).sum()
        assert found.error_bound_ <= found.max_false_
    assert n_found >= 5 * n_true / 2
    assert n_false <= 5


@pytest.mark.parametrize("p", [1, 2, 5, 9])
def test_the_default_of_stability_selection_does_not_take_all_of_few_columns(p):
    X, y = linear(100, 9)
    chosen = StabilitySelector(n_pairs=4).fit(X[:, :p], y)
    assert chosen.selection_.parameters["n_per_half"] == max(min(int(np.sqrt(3.0 * p)), 2 * p // 5), 1)
    assert chosen.error_bound_ <= chosen.max_false_


def test_stability_of_classes_and_of_streams():
    X, y = linear(300, 12)
    labels = np.where(y > 7, "high", "low")
    whole = StabilitySelector(sks.LassoPath(task="classification")).fit(X, labels)
    stream = StabilitySelector(sks.LassoPath(task="classification"))
    for a in range(0, 300, 75):
        stream.partial_fit(X[a : a + 75], labels[a : a + 75], classes=["low", "high"])
    assert np.array_equal(whole.scores_, stream.scores_)
    assert set(whole.support_.tolist()) >= {3}


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (StabilitySelector(n_buckets=5), "n_buckets must be even"),
        (StabilitySelector(sks.LassoPath(half_life=5)), "half_life"),
        (StabilitySelector(sks.LassoPath(degree=2)), "degree=1"),
    ],
)
def test_bad_parameters_of_stability_selection(method, message):
    with pytest.raises(BadParameter, match=message):
        method.fit(*linear(60, 5))


def test_folds_without_rows_are_left_out_and_one_is_not_enough():
    X, y = linear(6, 3)
    chosen = sks.ThresholdedOLS(cv=40).fit_summary(sks.Folds(sks.Moments(), 40).from_block(X, y))
    assert 2 <= chosen.path_.cv_errors.shape[1] <= 6
    X, y = linear(200, 3)
    folds = sks.Folds(sks.Moments(), 2)
    rows = np.flatnonzero(folds.fold_of(np.arange(200, dtype=np.uint64)) == 1)
    with pytest.raises(EmptyInput, match="at least two folds with rows, there are 1 of 2"):
        sks.ThresholdedOLS(cv=2).fit_summary(folds.from_block(X[rows], y[rows], start=rows))


@pytest.mark.parametrize(("cls", "criterion"), [(sks.LassoPath, "bic"), (sks.MCPPath, "ebic")])
def test_folds_by_default_stop_where_they_take_too_much_memory(cls, criterion, monkeypatch):
    assert cls().summary_description(5_000).kind == "folds"
    assert cls().summary_description(10_000).kind == "moments"
    assert cls(cv=5).summary_description(10_000).kind == "folds"
    monkeypatch.setattr("sketchselect.selectors.supervised.path.MOST_FOLDS_NBYTES", 1000)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 10))
    y = X[:, 3] + 0.5 * rng.standard_normal(80)
    with pytest.warns(NoFolds, match=f"in 5 folds would take .* chosen by {criterion.upper()} instead; set cv=5"):
        fallen_back = cls().fit(X, y)
    assert fallen_back.path_.cv_errors is None
    assert fallen_back.coef_.tolist() == cls(criterion=criterion).fit(X, y).coef_.tolist()
