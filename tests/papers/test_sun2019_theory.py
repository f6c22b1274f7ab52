"""The theorems of Sun, Guo and Barbu (2019) as probabilities and rates, and the lemmas of its appendix."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from sketchselect.solvers import homotopy_path, least_squares, threshold
from sketchselect.summaries import Moments

from .conftest import problem_of


def equicorrelated(rng, n, p, scale=1.0):
    """Rows of normal columns of correlation one half, in units of `scale`."""
    return (rng.standard_normal((n, p)) + rng.standard_normal((n, 1))) / np.sqrt(2) * scale


# --- the lemmas of the appendix, by the exact distribution where there is one --------------------------------------


@pytest.mark.share(1)
@pytest.mark.statement("Sun 2019, Lemma 7")
@pytest.mark.parametrize("p", [1, 7, 60])
def test_lemma_7(p):
    norms = (np.random.default_rng(p).standard_normal((20_000, p)) ** 2).sum(axis=1)
    assert abs(norms.mean() - p) <= 4 * np.sqrt(2 * p / 20_000)
    # The fourth central moment of the distribution is 12 p^2 + 48 p.
    assert abs(norms.var() - 2 * p) <= 4 * np.sqrt((8 * p**2 + 48 * p) / 20_000)
    assert kstest(norms, chi2(p).cdf).pvalue > 1e-3


@pytest.mark.statement("Sun 2019, Lemma 8")
def test_lemma_8_up_to_one_and_not_for_every_delta():
    """For delta > 1 the tail falls with delta, not with its square: the proofs use 1 / 5 alone."""
    n, delta = np.meshgrid(np.arange(1, 400), np.linspace(0.01, 1.0, 60))
    tails = chi2.sf(n * (1 + delta), n) + chi2.cdf(n * (1 - delta), n)
    assert (tails <= 2 * np.exp(-n * delta**2 / 8)).all()
    assert chi2.sf(1 + 8.0, 1) > 2 * np.exp(-(8.0**2) / 8)


@pytest.mark.statement("Sun 2019, Lemma 9")
def test_lemma_9():
    p, ratio = np.meshgrid(np.arange(1, 300), np.linspace(1.0, 20.0, 100))
    assert (chi2.sf(p * ratio, p) <= np.exp(-p * ratio / 2 + p / 2 * np.log(np.e * ratio)) * (1 + 1e-12)).all()


@pytest.mark.share(1)
@pytest.mark.statement("Sun 2019, Lemma 10")
@pytest.mark.parametrize("p", [1, 4, 12])
def test_lemma_10(p):
    rng = np.random.default_rng(p)
    basis = np.linalg.qr(rng.standard_normal((p, p)))[0]
    for values in (np.full(p, 0.5), 0.5 + rng.exponential(size=p)):
        least, root = values.min(), basis / np.sqrt(values)
        norms = np.linalg.norm(rng.standard_normal((20_000, p)) @ root.T, axis=1)
        for ratio in (1.2, 2.0, 4.0):
            stated = np.exp(-p * ratio / 2 + p / 2 * np.log(np.e * ratio))
            frequency = np.mean(norms > np.sqrt(p * ratio / least))
            assert frequency <= stated + 4 * np.sqrt(stated / 20_000)


@pytest.mark.share(1)
@pytest.mark.statement("Sun 2019, Lemma 11")
@pytest.mark.parametrize(("n", "p"), [(10, 2), (40, 5), (120, 30)])
def test_lemma_11(n, p):
    rng = np.random.default_rng(n)
    covariance = 0.5 + 0.5 * np.eye(p)
    root = np.linalg.cholesky(covariance).T
    least = np.sqrt(np.linalg.eigvalsh(covariance)[0])
    draws = [np.linalg.svd(rng.standard_normal((n, p)) @ root, compute_uv=False)[-1] for _ in range(400)]
    for delta in (0.05, 0.2, 0.5):
        stated = np.exp(-n * delta**2 / 2)
        level = least * (1 - delta) - np.sqrt(p / n)
        assert np.mean(np.array(draws) / np.sqrt(n) <= level) <= stated + 4 * np.sqrt(stated / 400)


# --- recovery ------------------------------------------------------------------------------------------------------


def failure(lam, b, n, p, sigma=1.0):
    """The probability of Proposition 2 with which the true columns may not come out on top."""
    ratio = lam * b**2 * n / (9 * sigma**2)
    assert ratio >= p, "the condition of the proposition"
    return np.exp(-ratio / 2 + p / 2 * np.log(np.e * ratio / p)) + 2 * p * np.exp(-n / 200)


@pytest.mark.slow
@pytest.mark.statement("Sun 2019, Proposition 2", "Sun 2019, Theorem 3")
@pytest.mark.parametrize(("n", "b", "p"), [(1200, 1.0, 5), (1500, 0.6, 5), (2400, 0.8, 12)])
def test_the_true_columns_come_out_on_top_as_often_as_stated(n, b, p):
    """Columns of other units; Proposition 2 for the draws with lambda below the least eigenvalue, Theorem 3 for all."""
    units = 10.0 ** np.linspace(-3, 3, p)
    coefficients = np.zeros(p)
    coefficients[[1, p - 2]] = b, -1.5 * b
    lam = (0.8 * np.sqrt(0.5) - np.sqrt(p / n)) ** 2 * (1 - 1e-9)
    stated = failure(lam, b, n, p)
    assert stated + np.exp(-n / 50) < 0.5, "a negative probability states nothing"
    right, conditional = [], []
    for seed in range(150):
        rng = np.random.default_rng([n, seed])
        X = equicorrelated(rng, n, p)
        y = X @ coefficients + rng.standard_normal(n)
        fit = threshold(problem_of(Moments().from_block(X * units, y)), 2)
        right.append(fit.support.tolist() == [1, p - 2])
        if lam < np.linalg.eigvalsh(X.T @ X / n)[0]:
            conditional.append(right[-1])
    slack = 3 * np.sqrt(stated / 150)
    assert np.mean(conditional) >= 1 - stated - slack
    assert np.mean(right) >= 1 - stated - np.exp(-n / 50) - slack


@pytest.mark.slow
@pytest.mark.statement("Sun 2019, Theorem 6")
@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("rho", [0.0, 0.4])
def test_the_lasso_on_discrete_responses_finds_the_true_columns_from_enough_rows(levels, rho):
    """Autoregressive columns satisfy the irrepresentable condition; the frequency rises to one with n / (k log p)."""
    p, k = 100, 4
    true = np.arange(10, p, 25)
    shares = []
    for n in (30, 200, 1500):
        hits = 0
        for seed in range(12):
            rng = np.random.default_rng([levels, int(10 * rho), seed, n])
            X = rng.standard_normal((n, p))
            for j in range(1, p):
                X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
            latent = np.tanh(X[:, true].sum(axis=1) + 0.5 * rng.standard_normal(n))
            y = np.sign(latent) if levels == 2 else np.round(latent)
            path = homotopy_path(problem_of(Moments().from_block(X, y)), max_features=k)
            hits += path.support(-1).tolist() == true.tolist()
        shares.append(hits / 12)
    assert shares[0] < 0.5
    assert shares[0] <= shares[1] <= shares[2] == 1.0


# --- regret --------------------------------------------------------------------------------------------------------


def streams(n_runs, n, p, coefficients, seed=0):
    """Return rows (n_runs, n, p) and targets (n_runs, n), noise 1."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n_runs, n, p)) + rng.standard_normal((n_runs, n, 1))) / np.sqrt(2)
    return X, X @ coefficients + rng.standard_normal((n_runs, n))


@pytest.mark.statement("Sun 2019, Proposition 4")
def test_the_regret_of_least_squares_is_the_number_of_columns_times_log_n_over_n():
    """n R_n grows by p log 8 from n to 8 n, with noise 1: the constant of the proposition, not its order alone."""
    p, n, n_runs = 3, 4000, 80
    X, y = streams(n_runs, n, p, np.array([1.0, -0.5, 0.0]))
    first = 20
    gram = np.einsum("ria,rib->rab", X[:, :first], X[:, :first])
    inverse, right = np.linalg.inv(gram), np.einsum("ria,ri->ra", X[:, :first], y[:, :first])
    losses = np.zeros((n_runs, n))
    losses[:, :first] = y[:, :first] ** 2
    for i in range(first, n):
        x, target = X[:, i], y[:, i]
        losses[:, i] = (target - np.einsum("ra,rab,rb->r", x, inverse, right)) ** 2
        image = np.einsum("rab,rb->ra", inverse, x)
        inverse -= image[:, :, None] * image[:, None] / (1 + (x * image).sum(axis=1))[:, None, None]
        right += x * target[:, None]
    regret = {}
    for m in (500, 4000):
        best = [np.linalg.lstsq(X[r, :m], y[r, :m], rcond=None)[1][0] for r in range(n_runs)]
        regret[m] = losses[:, :m].sum(axis=1) - best
    growth = (regret[4000] - regret[500]) / (p * np.log(8))
    assert abs(growth.mean() - 1) <= 4 * growth.std(ddof=1) / np.sqrt(n_runs)
    # The estimate that was followed is that of the running averages.
    m = Moments().from_block(np.concatenate([X[0], -X[0]]), np.concatenate([y[0], -y[0]]))
    ours, _ = problem_of(m).original_units(least_squares(problem_of(m), np.arange(p))[:, 0])
    assert np.allclose(ours, inverse[0] @ right[0], rtol=1e-7)


@pytest.mark.statement("Sun 2019, Theorem 5")
def test_the_support_is_right_in_every_step_from_n_0_as_often_as_stated():
    p, k, n_0, n, n_runs = 6, 2, 2600, 2800, 40
    coefficients = np.array([0.0, 1.0, 0.0, 0.0, -1.0, 0.0])
    lam = (0.8 * np.sqrt(0.5) - np.sqrt(p / n_0)) ** 2 * (1 - 1e-9)
    stated = n * (failure(lam, 1.0, n_0, p) + np.exp(-n_0 / 50))
    assert stated < 0.5
    X, y = streams(n_runs, n, p, coefficients)
    gram = np.einsum("ria,rib->rab", X[:, :n_0], X[:, :n_0])
    right = np.einsum("ria,ri->ra", X[:, :n_0], y[:, :n_0])
    always = np.ones(n_runs, dtype=bool)
    for i in range(n_0, n):
        size = np.abs(np.linalg.solve(gram, right[..., None])[..., 0]) * np.sqrt(np.einsum("raa->ra", gram))
        top = np.sort(np.argsort(-size, axis=1)[:, :k], axis=1)
        always &= (top == [1, 4]).all(axis=1)
        gram += X[:, i, :, None] * X[:, i, None]
        right += X[:, i] * y[:, i, None]
    assert always.mean() >= 1 - stated - 3 * np.sqrt(stated / n_runs)
    assert threshold(problem_of(Moments().from_block(X[0], y[0])), k).support.tolist() == [1, 4]


@pytest.mark.slow
@pytest.mark.statement("Sun 2019, Theorem 5")
def test_the_regret_of_thresholding_grows_as_the_rows_before_n_0_do():
    """With no model before n_0 = c n^alpha, n R_n is that of those rows, O(n^alpha), and a logarithm."""
    alpha, p, k, n_runs = 0.45, 8, 2, 30
    coefficients = np.zeros(p)
    coefficients[[2, 5]] = 1.0, -1.0
    X, y = streams(n_runs, 6400, p, coefficients, seed=1)
    gram, right = np.zeros((n_runs, p, p)), np.zeros((n_runs, p))
    with_model = np.full((n_runs, 6400), np.nan)
    least_start = int(np.ceil(4 * 400**alpha))
    for i in range(6400):
        if i >= least_start:
            size = np.abs(np.linalg.solve(gram, right[..., None])[..., 0]) * np.sqrt(np.einsum("raa->ra", gram))
            top = np.argsort(-size, axis=1)[:, :k]
            block = np.take_along_axis(np.take_along_axis(gram, top[:, :, None], 1), top[:, None], 2)
            b = np.linalg.solve(block, np.take_along_axis(right, top, 1)[..., None])[..., 0]
            with_model[:, i] = y[:, i] - (np.take_along_axis(X[:, i], top, 1) * b).sum(axis=1)
        gram += X[:, i, :, None] * X[:, i, None]
        right += X[:, i] * y[:, i, None]
    totals = []
    sizes = (400, 1600, 6400)
    for n in sizes:
        n_0 = int(np.ceil(4 * n**alpha))
        loss = (y[:, :n_0] ** 2).sum(axis=1) + (with_model[:, n_0:n] ** 2).sum(axis=1)
        best = [np.linalg.lstsq(X[r, :n][:, [2, 5]], y[r, :n], rcond=None)[1][0] for r in range(n_runs)]
        totals.append(np.mean(loss - best))
    exponents = np.diff(np.log(totals)) / np.diff(np.log(sizes))
    assert (exponents <= alpha + 0.05).all()
    assert (exponents > 0.2).all(), "the rows before n_0 are what is counted"
