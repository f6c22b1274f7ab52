import numpy as np
import pytest

from sketchselect.errors import BadParameter, EmptyInput, NotFinite
from sketchselect.solvers import nearest_psd, standardize


@pytest.mark.statement("Sun 2019, Equations 4 and 5")
def test_moments_are_those_of_standardised_columns(make):
    data = make(200, 30, 3, q=2)
    p = data.problem
    np.testing.assert_allclose(p.correlation, np.corrcoef(data.x.T), atol=1e-13)
    np.testing.assert_allclose(p.xy, data.z.T @ data.centered / 200, atol=1e-13)
    np.testing.assert_allclose(p.scale, data.x.std(axis=0))
    assert p.active.all()
    assert (p.correlation == p.correlation.T).all()


def test_original_units_predict_what_standardised_ones_do(make):
    data = make(200, 30, 3, q=2)
    b = np.random.default_rng(0).standard_normal((30, 2))
    coef, intercept = data.problem.original_units(b)
    np.testing.assert_allclose(data.x @ coef + intercept, data.y.mean(axis=0) + data.z @ b, rtol=1e-12)
    one, base = data.problem.original_units(b[:, 0])
    np.testing.assert_allclose(one, coef[:, 0])
    assert base == pytest.approx(intercept[0])


def test_rss_is_the_mean_squared_residual(make):
    data = make(100, 20, 3, q=2)
    b = np.random.default_rng(1).standard_normal((20, 2))
    b[5:] = 0
    residual = data.centered - data.z @ b
    np.testing.assert_allclose(data.problem.rss(b), (residual**2).mean(axis=0), rtol=1e-12)
    assert data.problem.rss(b[:, 1], target=1) == pytest.approx((residual[:, 1] ** 2).mean(), rel=1e-12)


def test_constant_columns_and_targets_are_inactive(moments):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((50, 4))
    x[:, 2] = 1e8 / 3
    y = np.column_stack([x[:, 0], np.full(50, 0.1)])
    p = moments(x, y)
    assert p.active.tolist() == [True, True, False, True]
    assert not p.correlation[2].any()
    assert not p.correlation[:, 2].any()
    assert not p.xy[:, 1].any()
    assert p.yy[1, 1] == 0.0
    coef, _ = p.original_units(np.ones((4, 2)))
    assert not coef[2].any()


@pytest.mark.parametrize("scale", [1e-150, 1e-75, 1e75, 1e150])
def test_units_do_not_change_correlations(make, scale):
    data = make(100, 6, 2)
    factors = np.array([scale, 1.0, 1 / scale, scale, 1.0, 1.0])
    p = data.problem
    cov = p.correlation * p.scale[:, None] * p.scale
    scaled = standardize(
        (cov * factors[:, None]) * factors,
        (p.xy[:, 0] * p.scale) * factors * scale,
        p.yy * scale * scale,
        mean=p.mean * factors,
        y_mean=p.y_mean * scale,
        n=100,
    )
    np.testing.assert_allclose(scaled.correlation, p.correlation, atol=1e-12)
    np.testing.assert_allclose(scaled.xy / scale, p.xy, rtol=1e-10)


def test_overwrite_uses_the_memory_given():
    cov = np.array([[4.0, 1.0], [1.0, 1.0]])
    kept = cov.copy()
    p = standardize(cov, [2.0, 1.0], 2.0, mean=[0, 0], y_mean=0, n=9)
    assert (cov == kept).all()
    q = standardize(cov, [2.0, 1.0], 2.0, mean=[0, 0], y_mean=0, n=9, reuse_memory=True)
    assert q.correlation is cov
    assert (p.correlation == q.correlation).all()


def test_rounding_of_the_two_halves_is_averaged():
    cov = np.array([[1.0, 0.5 + 1e-16], [0.5 - 1e-16, 1.0]])
    p = standardize(cov, [0.0, 0.0], 1.0, mean=[0, 0], y_mean=0, n=9)
    assert p.correlation[0, 1] == p.correlation[1, 0]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"covariance": np.eye(3)}, BadParameter, "covariance has shape"),
        ({"mean": [0.0]}, BadParameter, "mean has shape"),
        ({"yy": np.eye(2)}, BadParameter, "yy has shape"),
        ({"n": 0}, BadParameter, "n must be"),
        ({"covariance": -np.eye(2)}, BadParameter, "variance of column 0"),
        ({"covariance": [[1.0, np.nan], [0.0, 1.0]]}, NotFinite, r"covariance is not finite at \(0, 1\)"),
        ({"xy": [np.inf, 0.0]}, NotFinite, r"xy is not finite at \(0, 0\)"),
        ({"covariance": np.eye(0), "xy": np.zeros((0, 1)), "mean": []}, EmptyInput, "at least one column"),
    ],
)
def test_bad_moments_are_named(change, error, words):
    given = {"covariance": np.eye(2), "xy": [1.0, 0.0], "yy": 1.0, "mean": [0.0, 0.0], "y_mean": 0.0, "n": 10} | change
    with pytest.raises(error, match=words):
        standardize(given.pop("covariance"), given.pop("xy"), given.pop("yy"), **given)


def test_nearest_psd_keeps_variances_whatever_the_units():
    bad = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    units = np.array([1e-100, 1.0, 1e100])
    fixed = nearest_psd(bad * units[:, None] * units)
    np.testing.assert_allclose(fixed.diagonal(), units**2)
    plain = fixed / units[:, None] / units
    assert np.linalg.eigvalsh(plain).min() > -1e-12
    np.testing.assert_allclose(plain, nearest_psd(bad), atol=1e-12)


def test_nearest_psd_leaves_a_covariance_alone():
    x = np.random.default_rng(0).standard_normal((5, 20))
    cov = np.cov(x.T)
    cov[3] = cov[:, 3] = 0
    assert nearest_psd(cov) is cov
