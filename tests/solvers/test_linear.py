import numpy as np
import pytest
from sklearn.linear_model import Ridge

from sketchselect.errors import BadParameter
from sketchselect.solvers import anneal, least_squares, ridge, standardize, threshold

SELECTORS = {
    "threshold": threshold,
    "anneal": lambda problem, k: anneal(problem, k, n_iter=100),
    "newton": lambda problem, k: anneal(problem, k, newton=True),
}
every = pytest.mark.parametrize("select", SELECTORS.values(), ids=SELECTORS)


@pytest.mark.statement("Sun 2019, Section 3.2")
def test_least_squares_equals_lstsq_on_the_rows(make):
    data = make(200, 30, 4, q=2)
    support = [3, 17, 5]
    coef = least_squares(data.problem, support)
    np.testing.assert_allclose(coef[support], np.linalg.lstsq(data.z[:, support], data.centered)[0], atol=1e-12)
    assert not np.delete(coef, support, axis=0).any()


def test_singular_supports_get_the_least_norm(make, moments):
    data = make(200, 8, 2)
    x = np.hstack([data.x, data.x[:, :2]])
    problem = moments(x, data.y)
    coef = least_squares(problem, np.arange(10))
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    np.testing.assert_allclose(coef, np.linalg.lstsq(z, data.centered, rcond=1e-10)[0], atol=1e-9)


def test_wide_supports_get_the_least_norm(make):
    data = make(20, 40, 2)
    coef = least_squares(data.problem, np.arange(40))
    np.testing.assert_allclose(coef, np.linalg.lstsq(data.z, data.centered, rcond=1e-10)[0], atol=1e-8)


def test_nearly_collinear_columns_keep_their_digits(moments):
    rng = np.random.default_rng(0)
    base = rng.integers(-50, 50, size=400).astype(float)
    x = np.column_stack([base, base + 1e-4 * rng.standard_normal(400)])
    problem = moments(x, x @ [2.0, -1.0])
    coef, _ = problem.original_units(least_squares(problem, [0, 1]))
    # Condition of the Gram matrix is some 1e11: five digits are left, and none would be with a ridge of 1e-8.
    np.testing.assert_allclose(coef[:, 0], [2.0, -1.0], rtol=1e-3)


@pytest.mark.parametrize(
    ("support", "words"),
    [([0, 0], "twice"), ([9], "column 9"), ([-1], "support has column"), ([0.5], "column indices")],
)
def test_impossible_supports_are_named(make, support, words):
    with pytest.raises(BadParameter, match=words):
        least_squares(make(30, 6, 2).problem, support)


def test_empty_and_constant_supports(moments):
    x = np.random.default_rng(0).standard_normal((20, 3))
    x[:, 1] = 4.0
    problem = moments(x, x[:, 0])
    assert not least_squares(problem, []).any()
    np.testing.assert_allclose(least_squares(problem, [0, 1])[:, 0], [x[:, 0].std(), 0.0, 0.0], rtol=1e-12)


@pytest.mark.parametrize(("n", "p"), [(100, 20), (20, 50)])
def test_ridge_equals_scikit_learn(make, n, p):
    data = make(n, p, 3, q=2)
    model = Ridge(alpha=0.3 * n, fit_intercept=False).fit(data.z, data.centered)
    np.testing.assert_allclose(ridge(data.problem, 0.3), model.coef_.T, atol=1e-9)


@pytest.mark.parametrize("penalty", [0.0, -1.0, np.nan, np.inf])
def test_ridge_needs_a_penalty(make, penalty):
    with pytest.raises(BadParameter, match="ridge penalty"):
        ridge(make(30, 6, 2).problem, penalty)


def test_threshold_ranks_the_full_solution(make):
    data = make(400, 40, 5, q=2, beta=0.2)
    full = np.linalg.lstsq(data.z, data.centered)[0]
    fit = threshold(data.problem, 7)
    np.testing.assert_allclose(fit.scores, np.linalg.norm(full, axis=1), rtol=1e-5)
    assert fit.support.tolist() == sorted(np.argsort(-np.linalg.norm(full, axis=1))[:7].tolist())
    np.testing.assert_allclose(fit.coef, least_squares(data.problem, fit.support))


def test_threshold_raises_its_jitter_until_it_can_be_solved(make):
    p = make(50, 6, 2).problem
    bad = p.correlation - 1e-5 * (np.ones((6, 6)) - np.eye(6))
    bad[0, 1] = bad[1, 0] = 1.0 + 1e-7
    problem = standardize(bad, p.xy, p.yy, mean=np.zeros(6), y_mean=0, n=50)
    assert np.isfinite(threshold(problem, 2).scores).all()
    worse = np.ones((3, 3)) * 5.0
    np.fill_diagonal(worse, 1.0)
    with pytest.raises(BadParameter, match="nearest_psd"):
        threshold(standardize(worse, np.ones(3), 9.0, mean=np.zeros(3), y_mean=0, n=9), 1)


@every
def test_strong_columns_are_found(make, select):
    data = make(1500, 100, 10)
    fit = select(data.problem, 10)
    assert fit.support.tolist() == data.true.tolist()
    np.testing.assert_allclose(fit.coef, least_squares(data.problem, data.true), atol=1e-10)


@every
def test_equal_columns_are_told_apart_by_index(make, moments, select):
    data = make(300, 6, 2)
    x = np.hstack([data.x, data.x, -3.0 * data.x])
    fit = select(moments(x, data.y), 2)
    assert fit.support.tolist() == data.true.tolist()


@every
def test_all_columns_and_constant_ones_last(make, moments, select):
    data = make(100, 6, 2)
    x = data.x.copy()
    x[:, 0] = 3.0
    problem = moments(x, data.y)
    assert select(problem, 6).support.tolist() == [0, 1, 2, 3, 4, 5]
    assert select(problem, 5).support.tolist() == [1, 2, 3, 4, 5]


@every
def test_wide_data(make, select):
    data = make(60, 150, 3, rho=0.0, beta=3.0)
    fit = select(data.problem, 3)
    assert np.isin(data.true, fit.support).sum() >= 2
    assert np.isfinite(fit.coef).all()


@every
@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_the_unit_of_the_target_does_not_matter(make, select, scale):
    p = make(100, 15, 3, q=2).problem
    near = standardize(p.correlation, p.xy, p.yy, mean=p.mean, y_mean=[0, 0], n=p.n)
    far = standardize(p.correlation, p.xy * scale, p.yy * scale**2, mean=p.mean, y_mean=[0, 0], n=p.n)
    a, b = select(near, 3), select(far, 3)
    assert a.support.tolist() == b.support.tolist()
    np.testing.assert_allclose(b.coef / scale, a.coef, rtol=1e-6)


@every
def test_nothing_to_explain(moments, select):
    x = np.random.default_rng(0).standard_normal((30, 5))
    fit = select(moments(x, np.full(30, 2.0)), 2)
    assert fit.support.tolist() == [0, 1]
    assert not fit.coef.any()
    assert select(moments(np.ones((30, 4)), x[:, 0]), 2).support.tolist() == [0, 1]


@every
def test_one_column(moments, select):
    x = np.random.default_rng(0).standard_normal((30, 1))
    fit = select(moments(x, 2 * x[:, 0]), 1)
    assert fit.support.tolist() == [0]
    assert fit.coef[0, 0] == pytest.approx(2 * x.std())


@every
@pytest.mark.parametrize("k", [0, 7, 2.0, True])
def test_impossible_numbers_of_columns(make, select, k):
    with pytest.raises(BadParameter, match="select"):
        select(make(30, 6, 2).problem, k)


@every
def test_the_problem_is_not_changed(make, select):
    problem = make(60, 12, 3).problem
    kept = problem.correlation.copy(), problem.xy.copy()
    select(problem, 4)
    assert (problem.correlation == kept[0]).all()
    assert (problem.xy == kept[1]).all()


@every
def test_units_and_offsets_of_columns_do_not_matter(make, moments, select):
    data = make(200, 12, 3)
    plain = select(data.problem, 3)
    units = np.array([1e-150, 1.0, 1e150, 1e-75] * 3)
    fit = select(moments(data.x * units, data.y), 3)
    assert fit.support.tolist() == plain.support.tolist()
    np.testing.assert_allclose(fit.coef, plain.coef, rtol=1e-6)
    far = select(moments(data.x + 1e8, data.y), 3)
    assert far.support.tolist() == plain.support.tolist()
    np.testing.assert_allclose(far.coef, plain.coef, rtol=1e-5)
