"""The exact path against scikit-learn's, and where that one gives up: ties, equal columns, degenerate steps."""

import numpy as np
import pytest
from sklearn.linear_model import lars_path_gram

from sketchselect.errors import BadParameter
from sketchselect.solvers import homotopy_path, standardize


def of_moments(correlation, xy, yy=None):
    s = np.asarray(xy, dtype=float)
    total = float(s @ s) * 4 + 1 if yy is None else yy
    return standardize(correlation, s, total, mean=np.zeros(s.size), y_mean=0.0, n=1000)


def at(path, alpha):
    """Interpolate the path, which is linear between its breakpoints."""
    coefs = np.array([path.coef(i) for i in range(len(path))])
    return np.array([np.interp(alpha, path.alphas[::-1], c[::-1]) for c in coefs.T])


def assert_optimal(problem, path, l2=0.0, atol=1e-8):
    """Check the stationarity conditions at every breakpoint and half way between."""
    middles = (path.alphas[1:] + path.alphas[:-1]) / 2
    for alpha in np.concatenate([path.alphas, middles]):
        b = at(path, alpha)
        residual = problem.xy[:, 0] - problem.correlation @ b - l2 * b
        assert np.abs(residual).max() <= alpha + atol
        np.testing.assert_allclose(residual[b != 0], alpha * np.sign(b[b != 0]), atol=atol)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("n", "p"), [(300, 60), (40, 60)], ids=["tall", "wide"])
@pytest.mark.parametrize("l2", [0.0, 0.2])
def test_breakpoints_equal_lars_path_gram(make, seed, n, p, l2):
    problem = make(n, p, 8, beta=0.4, seed=seed).problem
    mine = homotopy_path(problem, max_features=25, l2=l2)
    gram = (problem.correlation + l2 * np.eye(p)) * n
    alphas, _, coefs = lars_path_gram(problem.xy[:, 0] * n, gram, n_samples=n, max_iter=500, method="lasso")
    shared = alphas[alphas >= mine.alphas[-1] * (1 + 1e-9)]
    np.testing.assert_allclose(mine.alphas[: shared.size], shared, atol=1e-10)
    for i in range(shared.size):
        np.testing.assert_allclose(mine.coef(i), coefs[:, i], atol=1e-9)
    assert mine.optimality.max() <= 1e-12
    assert_optimal(problem, mine, l2)


@pytest.mark.parametrize("k", [1, 2, 7, 30])
def test_exactly_k_columns(make, k):
    path = homotopy_path(make(300, 30, 5, beta=0.3).problem, max_features=k)
    assert path.n_nonzero[-1] == k
    assert path.n_nonzero.max() == k


def test_path_ends_in_least_squares(make):
    data = make(200, 25, 5)
    path = homotopy_path(data.problem)
    assert path.alphas[-1] == 0.0
    np.testing.assert_allclose(path.coef(-1), np.linalg.lstsq(data.z, data.centered[:, 0])[0], atol=1e-10)


def test_wide_data_end_with_no_residual(make):
    problem = make(20, 60, 4).problem
    path = homotopy_path(problem)
    assert path.n_nonzero.max() <= 19
    assert path.rss[-1] <= 1e-12 * path.rss[0]
    assert_optimal(problem, path)


def test_copies_never_enter(make, moments):
    data = make(200, 10, 3)
    x = np.hstack([data.x, 5.0 - 2.0 * data.x, data.x])
    problem = moments(x, data.y)
    path = homotopy_path(problem)
    single = homotopy_path(data.problem)
    np.testing.assert_allclose(path.alphas, single.alphas, atol=1e-10)
    assert path.n_nonzero.max() == 10
    for i in range(len(path)):
        merged = path.coef(i)[:10] - path.coef(i)[10:20] + path.coef(i)[20:]
        np.testing.assert_allclose(merged, single.coef(i), atol=1e-8)
    assert path.indices.max() < 10


def test_orthogonal_columns_that_tie(moments):
    problem = of_moments(np.eye(5), [2.0, -2.0, 1.0, 2.0, 1.0])
    path = homotopy_path(problem)
    np.testing.assert_allclose(path.alphas, [2.0, 1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(path.coef(1), [1.0, -1.0, 0.0, 1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(path.coef(2), problem.xy[:, 0], atol=1e-12)
    assert homotopy_path(problem, max_features=2).n_nonzero.tolist() == [0]
    assert homotopy_path(problem, max_features=4).n_nonzero.tolist() == [0, 3]


@pytest.mark.parametrize("seed", range(12))
def test_ties_in_integers_stay_optimal(moments, seed):
    """Small integers make many columns meet their bound at the same alpha, with coefficients of zero."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-1, 2, size=(9, 12)).astype(float)
    y = rng.integers(-2, 3, size=9).astype(float)
    problem = moments(x, y)
    path = homotopy_path(problem)
    assert (np.diff(path.alphas) < 1e-12).all()
    assert path.alphas[-1] <= 1e-9
    assert_optimal(problem, path, atol=1e-7)


def test_a_column_on_the_bound_that_need_not_enter():
    # Column 2 is the sum of the others: at the first alpha it ties, and stays on the bound without being used.
    correlation = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.5, 0.5, 1.0]])
    problem = of_moments(correlation, [1.0, 1.0, 1.0])
    path = homotopy_path(problem)
    assert_optimal(problem, path)


@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_the_unit_of_the_target_does_not_matter(make, scale):
    p = make(100, 15, 3).problem
    near = standardize(p.correlation, p.xy, p.yy, mean=p.mean, y_mean=0, n=p.n)
    far = standardize(p.correlation, p.xy * scale, p.yy * scale**2, mean=p.mean, y_mean=0, n=p.n)
    a, b = homotopy_path(near), homotopy_path(far)
    np.testing.assert_allclose(b.alphas / scale, a.alphas, atol=1e-12)
    np.testing.assert_allclose(b.data / scale, a.data, atol=1e-9)


def test_nothing_to_explain(moments):
    x = np.random.default_rng(0).standard_normal((30, 5))
    path = homotopy_path(moments(x, np.full(30, 2.0)))
    assert path.alphas.tolist() == [0.0]
    assert path.n_nonzero.tolist() == [0]


def test_one_column(moments):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 1))
    problem = moments(x, x[:, 0] * -3)
    path = homotopy_path(problem)
    np.testing.assert_allclose(path.coef(-1), problem.xy[:, 0])


@pytest.mark.parametrize(("options", "words"), [({"max_features": 0}, "max_features"), ({"l2": -1.0}, "l2")])
def test_bad_options_are_named(make, options, words):
    with pytest.raises(BadParameter, match=words):
        homotopy_path(make(30, 6, 2).problem, **options)
