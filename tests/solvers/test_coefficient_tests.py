"""Tests of least-squares coefficients from moments: NIST's Longley, the rows themselves, and what has no tests."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sketchselect.selectors import ThresholdedOLS
from sketchselect.solvers import coefficient_tests, standardize
from sketchselect.summaries import Moments

LONGLEY = Path(__file__).parents[1] / "papers" / "nist" / "longley.txt"
# NIST StRD, Longley: certified standard deviations of the estimates of B1 to B6
CERTIFIED_ERRORS = [
    84.9149257747669,
    0.334910077722432e-01,
    0.488399681651699,
    0.214274163161675,
    0.226073200069370,
    455.478499142212,
]


def problem_of(X: Any, y: Any) -> Any:
    n = len(y)
    A, b = X - X.mean(axis=0), y - y.mean()
    return standardize(A.T @ A / n, A.T @ b / n, b @ b / n, mean=X.mean(axis=0), y_mean=y.mean(), n=n)


def test_standard_errors_of_longley_are_the_certified_ones() -> None:
    rows = np.loadtxt(LONGLEY)
    selector = ThresholdedOLS(6).fit(rows[:, 1:], rows[:, 0])
    np.testing.assert_allclose(selector.standard_errors_, CERTIFIED_ERRORS, rtol=1e-8)
    certified = np.array([15.0618722713733, -0.358191792925910e-01, -2.02022980381683])
    t = certified / CERTIFIED_ERRORS[:3]
    np.testing.assert_allclose(selector.pvalues_[:3], 2 * stats.t.sf(np.abs(t), 9), rtol=1e-7)


def test_one_column_is_the_regression_line_of_scipy() -> None:
    rng = np.random.default_rng(0)
    x, e = rng.standard_normal((2, 40))
    X, y = 1e4 + 1e-2 * x[:, None], 3.0 * x + e
    expected = stats.linregress(x, y)
    tests = coefficient_tests(problem_of(X, y))
    assert tests is not None
    np.testing.assert_allclose(tests.errors, expected.stderr * 1e2, rtol=1e-6)
    np.testing.assert_allclose(tests.pvalues, expected.pvalue, rtol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 50.0])
@pytest.mark.parametrize("weightless", [0, 9])
def test_weighted_rows_have_the_errors_of_weighted_least_squares(scale: float, weightless: int) -> None:
    rng = np.random.default_rng(4)
    n, p = 40, 3
    X, w = rng.standard_normal((n, p)), scale * np.exp(1.5 * rng.standard_normal(n))
    w[:weightless] = 0.0
    y = X[:, 0] + rng.standard_normal(n)
    parts = [Moments().from_block(X[i::4], y[i::4], sample_weight=w[i::4]) for i in range(4)]
    sites = ThresholdedOLS(1).fit_summary(functools.reduce(Moments.merge, parts))
    # Least squares of the rows times the roots of their weights
    root = np.sqrt(w[weightless:, None])
    A = root * np.column_stack([np.ones(n - weightless), X[weightless:]])
    coef, rss, _, _ = np.linalg.lstsq(A, root[:, 0] * y[weightless:])
    freedom = n - weightless - p - 1
    errors = np.sqrt(np.diag(np.linalg.inv(A.T @ A)) * rss / freedom)[1:]
    half = errors * stats.t.ppf(0.975, freedom)
    for selector in (ThresholdedOLS(1).fit(X, y, sample_weight=w), sites):
        np.testing.assert_allclose(selector.standard_errors_, errors, rtol=1e-10)
        np.testing.assert_allclose(selector.pvalues_, 2 * stats.t.sf(np.abs(coef[1:] / errors), freedom), rtol=1e-9)
        np.testing.assert_allclose(selector.confint_, np.column_stack([coef[1:] - half, coef[1:] + half]), rtol=1e-9)


@pytest.mark.slow
def test_intervals_cover_and_p_values_of_noise_are_uniform() -> None:
    rng = np.random.default_rng(1)
    beta, covered, noise = np.array([2.0, -1.0, 0.0]), [], []
    for _ in range(400):
        X = rng.standard_normal((12, 3)) @ np.array([[1, 0.9, 0], [0, 1, 0.5], [0, 0, 1]])
        selector = ThresholdedOLS(1).fit(X, X @ beta + rng.standard_normal(12))
        low, high = selector.confint_.T
        covered.append((low <= beta) & (beta <= high))
        noise.append(selector.pvalues_[2])
    # Four standard errors of a share of .95
    assert (np.abs(np.mean(covered, axis=0) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 400)).all()
    assert stats.kstest(noise, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("case", ["few rows", "copies", "classes", "two targets", "degree", "fading"])
def test_what_has_no_honest_test_has_none(case: str) -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 5))
    y, options = X[:, 0] + rng.standard_normal(40), {}
    if case == "few rows":
        X, y = X[:6], y[:6]
    elif case == "copies":
        X[:, 4] = -X[:, 1]
    elif case == "classes":
        y, options = (y > 0).astype(int), {"task": "classification"}
    elif case == "two targets":
        y = np.column_stack([y, y**2])
    elif case == "degree":
        options = {"degree": 2}
    selector = ThresholdedOLS(2, **options)
    if case == "fading":
        selector.fit_summary(Moments(half_life=20).from_block(X, y))
    else:
        selector.fit(X, y)
    assert np.isnan(selector.pvalues_).all()
    assert np.isnan(selector.confint_).all()
    assert selector.selection_.columns == {}


def test_a_constant_column_has_none_and_scores_csv_has_the_others() -> None:
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.standard_normal((40, 3)), np.full(40, 2.0)])
    selector = ThresholdedOLS(1).fit(X, X[:, 0] + rng.standard_normal(40))
    assert np.isnan(selector.pvalues_).tolist() == [False, False, False, True]
    np.testing.assert_array_equal(selector.selection_.columns["pvalues"], selector.pvalues_)
