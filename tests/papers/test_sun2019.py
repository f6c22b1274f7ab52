"""Sun, Guo and Barbu (2019) anew, small: equivalence, true columns found, regret and adaptation."""

import numpy as np
import pytest

from sketchselect.solvers import Lasso, anneal, least_squares, solve_path, threshold
from sketchselect.summaries import DecayedMoments, Moments

from .conftest import problem_of


def rows(rng, n, b):
    X = rng.normal(size=(n, b.size)) + rng.normal(size=(n, 1))
    return X, X @ b + rng.normal(size=n)


def merged(X, y, n_parts):
    summary = Moments().empty(X.shape[1], 1)
    for part in np.array_split(np.arange(len(X)), n_parts):
        summary = summary.merge(Moments().from_block(X[part], y[part]))
    return summary


# --- the exact draws of the benchmark ----------------------------------------------------------------------------


def test_drawn_moments_have_the_moments_of_rows(script):
    """First and second moments of the entries of a Wishart matrix: df I, and variances 2 df and df."""
    data = script("sun2019_data")
    rng = np.random.default_rng(0)
    draws = np.array([data.wishart(rng, 9, 4) for _ in range(4000)])
    assert np.array_equal(draws, draws.transpose(0, 2, 1))
    assert np.allclose(draws.mean(axis=0), 9 * np.eye(4), atol=5 * np.sqrt(18 / 4000))
    variance = draws.var(axis=0)
    expected = 9 * (1 + np.eye(4))
    assert np.allclose(variance, expected, rtol=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.statement("Sun 2019, Section 5.1")
def test_drawn_samples_have_the_distribution_of_real_ones(script, labels):
    """Means and spreads of what solvers see, over many draws, against as many samples of real rows."""
    data = script("sun2019_data")
    b = data.true_coefficients(6, 2, 0.7)
    n, count = 40, 800

    def real(seed):
        X, y = rows(np.random.default_rng([1, seed]), n, b)
        return problem_of(Moments().from_block(X, np.sign(y) if labels else y))

    def drawn(seed):
        rng = np.random.default_rng([2, seed])
        return data.draw_classification(rng, n, b) if labels else data.draw_sample(rng, n, 6).problem(b)

    def numbers(make):
        return np.array([seen(make(seed)) for seed in range(count)])

    def seen(p):
        rss = p.rss(least_squares(p, range(6))[:, 0])
        return [*p.xy[:, 0], p.yy[0, 0], *p.correlation[0], *p.scale, *p.mean, p.y_mean[0], rss]

    left, right = numbers(real), numbers(drawn)
    spread = np.maximum(left.std(axis=0), 1e-12)
    assert (np.abs(left.mean(axis=0) - right.mean(axis=0)) <= 5 * spread * np.sqrt(2 / count)).all()
    varying = spread > 1e-9
    assert np.allclose(left.std(axis=0)[varying], right.std(axis=0)[varying], rtol=0.15)


@pytest.mark.slow
def test_expected_scores_are_those_of_many_rows(script):
    data = script("sun2019_data")
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(4)
    truth = data.Truth(data.true_coefficients(20, 4, 0.3))
    coef = truth.b + 0.1 * rng.normal(size=20)
    X, y = rows(rng, 100_000, truth.b)
    assert truth.rmse(coef, 0.2) == pytest.approx(np.sqrt(np.mean((y - X @ coef - 0.2) ** 2)), rel=0.01)
    assert truth.auc(coef) == pytest.approx(roc_auc_score(y > 0, X @ coef), abs=0.005)


# --- Proposition 1 -----------------------------------------------------------------------------------------------


@pytest.mark.share(1)
@pytest.mark.parametrize("n_parts", [1, 5])
@pytest.mark.statement("Sun 2019, Proposition 1", "Sun 2019, Section 3.2")
def test_moments_give_what_the_rows_give(n_parts):
    """Equal minimisers of eqs. 6 and 7: least squares and the lasso, against scikit-learn on standardised rows."""
    from sklearn.linear_model import LinearRegression, lasso_path

    rng = np.random.default_rng(1)
    b = np.zeros(30)
    b[[3, 11, 20]] = 1, -2, 0.5
    X, y = rows(rng, 400, b)
    X = X * np.linspace(0.1, 10, 30) + np.arange(30.0)
    problem = problem_of(merged(X, y, n_parts))
    coef, intercept = problem.original_units(least_squares(problem, np.arange(30))[:, 0])
    theirs = LinearRegression().fit(X, y)
    assert np.allclose(coef, theirs.coef_, rtol=1e-8, atol=1e-10)
    assert intercept == pytest.approx(theirs.intercept_, rel=1e-8)
    alphas = np.geomspace(1, 1e-3, 15) * np.abs(problem.xy).max()
    path = solve_path(problem, Lasso(), alphas)
    Z, r = (X - X.mean(axis=0)) / X.std(axis=0), y - y.mean()
    _, expected, _ = lasso_path(Z, r, alphas=alphas, tol=1e-14, max_iter=100_000)
    assert np.allclose(np.column_stack([path.coef(i) for i in range(len(path))]), expected, atol=1e-6)


# --- section 5.1 -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.statement("Sun 2019, Table 6")
def test_true_columns_are_found_as_often_as_printed(script):
    """Table 6, p = 1000, n = 10,000: OLS-th and OFSA find 100 % at beta = 0.1 and 22.5 % and 32.5 % at 0.01."""
    data, paper = script("sun2019_data"), script("sun2019_paper")
    found = {(method, beta): [] for method in ("OLS-th", "OFSA") for beta in (0.1, 0.01)}
    for seed in range(2):
        sample = data.draw_sample(np.random.default_rng([10, seed]), 10_000, 1000)
        for (method, beta), rates in found.items():
            truth = data.Truth(data.true_coefficients(1000, 100, beta))
            fit = (threshold if method == "OLS-th" else anneal)(sample.problem(truth.b), 100)
            rates.append(truth.detection(fit.support))
    for (method, beta), rates in found.items():
        printed = paper.REGRESSION[1000, beta, 10_000][method][0]
        # Each repetition finds some of 100 columns: the standard error is at most that of so many coin tosses.
        error = 100 * np.sqrt(max(printed, 1) * max(100 - printed, 1) / 1e4 / 200)
        assert np.mean(rates) >= printed - 3 * error


@pytest.mark.slow
@pytest.mark.statement("Sun 2019, Table 6")
def test_annealing_finds_every_column_of_a_strong_signal_among_thousands(script):
    """The first eigenvalue is more than 1,000 times the second: steps as short as it asks for lose a column here."""
    data = script("sun2019_data")
    sample = data.draw_sample(np.random.default_rng([7, 9000, 0]), 9000, 3000)
    for beta in (1.0, 0.1):
        truth = data.Truth(data.true_coefficients(3000, 300, beta))
        assert truth.detection(anneal(sample.problem(truth.b), 300).support) == 100


@pytest.mark.statement("Sun 2019, Theorem 3")
def test_more_rows_find_more_columns_until_all():
    """Theorem 3: OLS-th finds exactly the true columns once n passes a multiple of p."""
    rng = np.random.default_rng(7)
    b = np.zeros(40)
    b[::10] = 0.5
    exact = []
    for n in (60, 400, 4000):
        hits = 0
        for _ in range(10):
            X, y = rows(rng, n, b)
            hits += set(threshold(problem_of(Moments().from_block(X, y)), 4).support) == set(range(0, 40, 10))
        exact.append(hits)
    assert exact[0] < exact[2] == 10
    assert exact[0] <= exact[1] <= exact[2]


def test_columns_are_found_in_any_units():
    """Proposition 2 ranks |beta_j sigma_j|; without standardising, small units would win."""
    rng = np.random.default_rng(8)
    b = np.zeros(20)
    b[[2, 9]] = 1.0
    X, y = rows(rng, 500, b)
    units = 10.0 ** rng.uniform(-6, 6, 20)
    for fit in (threshold, anneal):
        assert fit(problem_of(Moments().from_block(X * units, y)), 2).support.tolist() == [2, 9]


# --- section 5.2 -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.statement("Sun 2019, Theorem 5", "Sun 2019, Figure 4")
def test_regret_of_the_moments_falls_like_one_over_n(script):
    """Theorem 5 and Figure 4: exponent near -1 (with a logarithm); truncated gradient descent stays far above."""
    streams = script("sun2019_streams")
    curves = streams.regret(50, 5, 0.5, 20_000, seed=0)
    for method in ("OLS-th", "OFSA"):
        assert -1.3 < streams.slope(curves["n"], curves[method]) < -0.6
        assert curves[method][-1] < 0.1 * curves["TSGD"][-1]


# --- section 5.3 -------------------------------------------------------------------------------------------------


@pytest.mark.statement("Sun 2019, Figure 5")
def test_forgetting_follows_changing_coefficients(script):
    streams = script("sun2019_streams")
    k, p = 4, 20
    support = np.arange(p // k - 1, p, p // k)
    forgetful, faithful = DecayedMoments(decay=0.99), Moments()
    forgetful, faithful = forgetful.empty(p, 1), faithful.empty(p, 1)
    errors = {"forgetful": [], "faithful": []}
    right = {"forgetful": 0, "faithful": 0}
    stream = streams.sine_stream(np.random.default_rng(0), 0, 600, k, p)
    for period, X, y in stream:
        X, y = X[:100], y[:100]
        if period >= 400:
            for name, state in (("forgetful", forgetful), ("faithful", faithful)):
                problem = problem_of(state)
                coef, intercept = problem.original_units(threshold(problem, k).coef[:, 0])
                errors[name].append(np.mean((y - X @ coef - intercept) ** 2))
                right[name] += set(np.flatnonzero(coef)) == set(support)
        forgetful, faithful = forgetful.update(X, y), faithful.update(X, y)
    rmse = {name: np.sqrt(np.mean(e)) for name, e in errors.items()}
    assert rmse["forgetful"] < 1.1
    assert rmse["faithful"] > 1.3
    # Some coefficients pass near 0.2 on their way, a tenth of the noise's spread in the rows remembered.
    assert right["forgetful"] > 180
