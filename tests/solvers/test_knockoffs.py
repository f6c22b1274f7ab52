"""Knockoffs from moments: knockoffs made from the rows, brute force and SciPy as oracles."""

from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.linear_model import lars_path

from sketchselect.solvers import knockoffs as k
from sketchselect.solvers import standardize


def rows(n: int = 60, p: int = 6, seed: int = 0, *, copies: bool = False) -> Any:
    """Centred rows whose columns have unit length, a target, and a correlation between columns."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) @ (np.eye(p) + 0.5 * np.eye(p, k=1))
    if copies:
        X[:, 3] = -2.0 * X[:, 1]
    X -= X.mean(axis=0)
    X /= np.linalg.norm(X, axis=0)
    y = 4.0 * X[:, 0] - 3.0 * X[:, 2] + rng.standard_normal(n) / np.sqrt(n)
    return X, y - y.mean()


def knockoff_rows(X: Any, made: k.Construction, rng: Any) -> Any:
    """Return fixed-X knockoffs made from the rows, with a random orthonormal complement (Barber and Candes 2015)."""
    n, p = X.shape
    basis = np.linalg.qr(np.column_stack([np.ones(n), X]))[0]
    noise = rng.standard_normal((n, p))
    complement = np.linalg.qr(noise - basis @ (basis.T @ noise))[0] * rng.choice([-1.0, 1.0], p)  # Haar
    return X @ made.mixing + complement @ made.root


def equicorrelated(S: Any) -> k.Construction:
    """Return the construction of equal gaps (Barber and Candes 2015, equation 2.4)."""
    gaps = np.full(len(S), min(1.0, 2.0 * float(np.linalg.eigvalsh(S)[0])))
    remainder = 2 * np.diag(gaps) - gaps[:, None] * np.linalg.inv(S) * gaps
    values, vectors = np.linalg.eigh(remainder)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return k.Construction(gaps, np.eye(len(S)) - np.linalg.inv(S) * gaps, root)


def statsmodels() -> Any:
    """Return its class for knockoffs made from rows, and ridge coefficients with our penalty as its statistic."""
    pytest.importorskip("statsmodels", minversion="0.15")
    from statsmodels.regression.linear_model import OLS
    from statsmodels.stats._knockoff import RegressionFDR
    from statsmodels.stats.knockoff_regeffects import RegModelEffects

    def ridge(n: int) -> Any:
        return RegModelEffects(OLS, regularized=True, fit_kws={"L1_wt": 0.0, "alpha": 0.1 / n})

    return RegressionFDR, ridge


def test_knockoffs_of_statsmodels_have_the_same_products_and_statistics() -> None:
    RegressionFDR, ridge = statsmodels()
    X, y = rows()
    S = X.T @ X
    for seed in range(5):
        peer = RegressionFDR(y, X, ridge(len(y)), rng=[seed, 1])
        gram = k.draw_fixed(equicorrelated(S), S, X.T @ y, 1.0, 53, seed).gram
        np.testing.assert_allclose(gram, peer.exog.T @ peer.exog, atol=1e-9)
        xy = (peer.exog.T @ y)[:, None]
        np.testing.assert_allclose(k.ridge_statistics(k.Augmented(gram, xy)), peer.stats, atol=1e-8)


@pytest.mark.slow
def test_products_with_the_target_have_the_law_of_statsmodels() -> None:
    RegressionFDR, ridge = statsmodels()
    X, y = rows()
    S = X.T @ X
    made = equicorrelated(S)
    rss = y @ y - y @ X @ np.linalg.inv(S) @ X.T @ y
    rng = np.random.default_rng(1)
    drawn = np.array([k.draw_fixed(made, S, X.T @ y, rss, len(y) - 1 - 6, seed).xy[6:, 0] for seed in range(400)])
    of_peer = np.array([RegressionFDR(y, X, ridge(len(y)), rng=rng).exog2.T @ y for _ in range(400)])
    assert min(stats.ks_2samp(*pair).pvalue for pair in zip(drawn.T, of_peer.T, strict=True)) > 1e-3
    expected = np.cov(of_peer.T)
    assert np.linalg.norm(np.cov(drawn.T) - expected) < 0.3 * np.linalg.norm(expected)


def test_the_same_statistics_select_the_columns_of_statsmodels() -> None:
    RegressionFDR, _ = statsmodels()
    rng = np.random.default_rng(7)
    sizes = set()
    for _ in range(30):
        W = rng.standard_normal(40) + 1.2 * (np.arange(40) < 20)

        class Given:
            def stats(self, parent: Any, W: Any = W) -> Any:
                return W

        peer = RegressionFDR(rng.standard_normal(90), rng.standard_normal((90, 40)), Given(), rng=0)
        q = float(rng.choice([0.05, 0.1, 0.2, 0.3]))
        allowed = W[(W > 0) & (peer.fdrp <= q)]
        selected = np.flatnonzero(np.min(allowed, initial=np.inf) <= W)
        np.testing.assert_array_equal(np.flatnonzero(k.knockoff_threshold(W, q) <= W), selected)
        sizes.add(selected.size)
    assert min(sizes) == 0
    assert max(sizes) > 10


@pytest.mark.share(1)
@pytest.mark.parametrize("copies", [False, True])
def test_knockoffs_of_rows_have_the_moments_of_a_draw(copies: bool) -> None:
    X, y = rows(copies=copies)
    S = X.T @ X
    made = k.construct(S)
    assert ((made.gaps == 0) == [False, copies, False, copies, False, False]).all()
    rank = 5 if copies else 6
    rng, drawn, of_rows = np.random.default_rng(1), [], []
    rss = y @ y - y @ X @ np.linalg.pinv(S) @ X.T @ y
    for seed in range(400):
        K = knockoff_rows(X, made, rng)
        moments = k.draw_fixed(made, S, X.T @ y, rss, len(y) - 1 - rank, seed)
        if seed == 0:
            both = np.column_stack([X, K])
            np.testing.assert_allclose(both.T @ both, moments.gram, atol=1e-9)
        of_rows.append(K.T @ y)
        drawn.append(moments.xy[6:, 0])
    for j in np.flatnonzero(made.gaps):
        assert stats.ks_2samp(np.array(drawn)[:, j], np.array(of_rows)[:, j]).pvalue > 1e-3
    assert np.linalg.norm(np.cov(np.array(drawn).T) - np.cov(np.array(of_rows).T)) < 0.3 * np.linalg.norm(
        np.cov(np.array(of_rows).T)
    )
    if copies:
        np.testing.assert_allclose(np.array(drawn)[:, [1, 3]], np.array(of_rows)[:, [1, 3]], atol=1e-9)


def test_gaps_have_the_least_sum_of_variances() -> None:
    S = rows(p=8)[0]
    S = S.T @ S

    def loss(gaps: Any) -> float:
        return float(np.trace(np.linalg.inv(2 * S - np.diag(gaps))) + (1 / gaps).sum())

    gaps = k.minimum_variance_gaps(S)
    assert np.linalg.eigvalsh(2 * S - np.diag(gaps))[0] > 0
    best = optimize.minimize(loss, gaps * 0.7, method="Nelder-Mead", options={"maxiter": 20000, "fatol": 1e-10})
    assert loss(gaps) <= best.fun * (1 + 1e-3)
    np.testing.assert_allclose(k.minimum_variance_gaps(np.eye(150)), 1.0, rtol=1e-3)


def test_gaps_of_several_panels_are_feasible_and_stationary() -> None:
    rng = np.random.default_rng(3)
    S = np.corrcoef(rng.standard_normal((400, 150)) @ (np.eye(150) + 0.3), rowvar=False)
    gaps = k.minimum_variance_gaps(S)
    inverse = np.linalg.inv(2 * S - np.diag(gaps))
    assert np.linalg.eigvalsh(2 * S - np.diag(gaps))[0] > 0
    np.testing.assert_allclose((inverse**2).sum(axis=0), 1 / gaps**2, rtol=0.05)


@pytest.mark.parametrize(("n", "p"), [(600, 200), (120, 40), (41, 40), (40, 40), (60, 100), (9, 30), (4, 1)])
def test_shrunk_correlations_of_many_columns_are_closer_to_those_of_the_law(n: int, p: int) -> None:
    rng = np.random.default_rng(n + p)
    X = rng.standard_normal((n, p))
    given = np.corrcoef(X, rowvar=False).reshape(p, p)
    shrunk = k.shrunk_correlation(given, n)
    np.testing.assert_allclose(shrunk.diagonal(), 1.0, atol=1e-12)
    assert np.linalg.eigvalsh(shrunk)[0] > 0.1
    assert np.linalg.norm(shrunk - np.eye(p)) <= np.linalg.norm(given - np.eye(p))


def test_shrunk_correlations_keep_small_eigenvalues_and_linear_relations() -> None:
    rng = np.random.default_rng(4)
    mixing = np.eye(30) + 0.3 * rng.standard_normal((30, 30))
    scale = 1.0 / np.linalg.norm(mixing, axis=0)
    least = np.linalg.eigvalsh(mixing.T @ mixing * scale * scale[:, None])[0]
    X = rng.standard_normal((300, 30)) @ mixing
    shrunk = np.linalg.eigvalsh(k.shrunk_correlation(np.corrcoef(X, rowvar=False), 300))[0]
    assert least / 2 < shrunk < 2 * least
    X[:, 29] = X[:, 0] - 2 * X[:, 1]
    X = np.column_stack([X, 3 * X[:, 4]])
    dependent, _ = k.dependent_columns(k.shrunk_correlation(np.corrcoef(X, rowvar=False), 300))
    assert np.flatnonzero(dependent).tolist() == [0, 1, 4, 29, 30]


@pytest.mark.share(1)
@pytest.mark.parametrize(("n", "p", "q"), [(200, 5, 1), (200, 4, 3), (7, 9, 1)], ids=["one", "several", "wide"])
def test_moments_of_model_knockoffs_have_the_law_of_rows(n: int, p: int, q: int) -> None:
    """Of knockoffs ``X M + E root`` with Gaussian rows E, centred, each column by its own norm."""
    rng = np.random.default_rng(5)
    Z = rng.standard_normal((n, p + q))
    Z[:, p:] += Z[:, :1]
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0) * np.sqrt((n - 1) / n)
    X, scatter = Z[:, :p], Z.T @ Z
    made = k.construct(k.shrunk_correlation(np.corrcoef(X, rowvar=False), n))
    drawn, of_rows = [], []
    for seed in range(600):
        moments = k.draw_model(made, scatter, p, n - 1, seed)
        drawn.append(np.concatenate([moments.gram[np.triu_indices(2 * p)], moments.xy.ravel()]))
        E = rng.standard_normal((n, p))
        both = np.column_stack([X, X @ made.mixing + (E - E.mean(axis=0)) @ made.root])
        gram, norms = both.T @ both / (n - 1), np.linalg.norm(both, axis=0) / np.sqrt(n - 1)
        xy = both.T @ Z[:, p:] / (n - 1) / norms[:, None]
        of_rows.append(np.concatenate([(gram / norms / norms[:, None])[np.triu_indices(2 * p)], xy.ravel()]))
    a, b = np.array(drawn), np.array(of_rows)
    fixed = b.std(axis=0) < 1e-9
    np.testing.assert_allclose(a[:, fixed], b[:, fixed], atol=1e-8)
    least = min(stats.ks_2samp(x, y).pvalue for x, y in zip(a[:, ~fixed].T, b[:, ~fixed].T, strict=True))
    assert least > 1e-3 / np.count_nonzero(~fixed)


def test_statistic_of_a_column_changes_sign_with_its_knockoff_alone() -> None:
    X, y = rows()
    made = k.construct(X.T @ X)
    K = knockoff_rows(X, made, np.random.default_rng(2))
    template = standardize(np.eye(1), [[1.0]], [[float(y @ y)]], mean=[0.0], y_mean=[0.0], n=60.0)
    swapped = np.array([0, 4])

    def moments(A: Any, B: Any) -> k.Augmented:
        both = np.column_stack([A, B])
        return k.Augmented(both.T @ both, (both.T @ y)[:, None])

    X2, K2 = X.copy(), K.copy()
    X2[:, swapped], K2[:, swapped] = K[:, swapped], X[:, swapped]
    signs = np.ones(6)
    signs[swapped] = -1
    for statistic in (k.ridge_statistics, lambda m: k.entry_statistics(m, template, 7)):
        np.testing.assert_allclose(statistic(moments(X2, K2)), signs * statistic(moments(X, K)), atol=1e-9)
    # The penalties at which columns enter are those of the path on the rows.
    both = np.column_stack([X, K])
    alphas, _, coefs = lars_path(both, y, method="lasso")
    entered = np.array([alphas[np.flatnonzero(c)[0] - 1] if c.any() else 0.0 for c in coefs]) * len(y)
    np.testing.assert_allclose(k.entry_statistics(moments(X, K), template, 3), k.signed_maximum(entered), atol=1e-8)


def test_threshold_is_that_of_the_definition() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        W = rng.integers(-3, 9, 12).astype(float)
        q = float(rng.choice([0.1, 0.2, 0.5]))
        candidates = sorted({abs(w) for w in W if w})
        expected = next((t for t in candidates if (1 + (-t >= W).sum()) / max((t <= W).sum(), 1) <= q), np.inf)
        assert k.knockoff_threshold(W, q) == expected
        # One draw's e-values select what the threshold selects.
        values = k.e_values(W, q)
        least = k.e_value_threshold(values, q)
        np.testing.assert_array_equal(values >= least, expected <= W)


def test_e_values_are_selected_by_benjamini_and_hochberg() -> None:
    rng = np.random.default_rng(5)
    for _ in range(100):
        values = rng.exponential(8.0, 10)
        sizes = [i for i in range(1, 11) if np.sort(values)[-i] >= 10 / (0.3 * i)]
        selected = values >= k.e_value_threshold(values, 0.3)
        assert selected.sum() == max(sizes, default=0)
