"""Tests of single columns, compared with scikit-learn, SciPy, and closed forms far in the tail."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from sketchselect.selectors.supervised.univariate import UnivariateSelector, adjusted, f_of_classes, welch


def grouped(X: Any, labels: Any) -> tuple[Any, Any, Any]:
    parts = [X[labels == k] for k in np.unique(labels)]
    means = np.array([part.mean(axis=0) for part in parts])
    return np.array([float(len(p)) for p in parts]), means, np.array([len(p) * p.var(axis=0) for p in parts])


@pytest.fixture
def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 200)
    return rng.standard_normal((200, 12)) + labels[:, None] * np.linspace(0, 1.5, 12), labels


def test_welch_is_that_of_scipy(data: tuple[Any, Any]) -> None:
    X, labels = data
    first = (labels != 0).astype(int)
    weights, means, scatters = grouped(X, first)
    expected = stats.ttest_ind(X[first == 0], X[first == 1], equal_var=False)
    found = welch(weights, means, scatters)
    np.testing.assert_allclose(found.statistics, expected.statistic, rtol=1e-12)
    np.testing.assert_allclose(found.pvalues, expected.pvalue, rtol=1e-12)
    sd = np.sqrt(scatters / (weights - 1)[:, None])
    over = stats.ttest_ind_from_stats(means[0], sd[0], weights[0], means[1], sd[1], weights[0], equal_var=False)
    found = welch(weights, means, scatters, as_many=True)
    np.testing.assert_allclose(found.statistics, over.statistic, rtol=1e-12)
    np.testing.assert_allclose(found.pvalues, over.pvalue, rtol=1e-12)


@pytest.mark.parametrize("half", [500.0, 5000.0])
@pytest.mark.parametrize("effect", [4.0, 40.0])
def test_pvalues_below_float64_have_their_logarithm(half: float, effect: float) -> None:
    # The tail with 2 and 2 a degrees of freedom is x^a, with 4 it is x^a (1 + a (1 - x)); x is 1 / (1 + effect).
    x = 1.0 / (1.0 + effect)
    for n_classes, closed in ((3, half * np.log(x)), (5, half * np.log(x) + np.log1p(half * (1 - x)))):
        weights = np.full(n_classes, (2 * half + n_classes) / n_classes)
        means = np.zeros((n_classes, 1))
        means[0], means[1] = 1.0, -1.0
        scatters = np.full((n_classes, 1), 2 * weights[0] / effect / n_classes)
        found = f_of_classes(weights, means, scatters)
        assert found.pvalues[0] < 1e-300
        np.testing.assert_allclose(found.log_pvalues[0], closed, rtol=1e-12)


def test_corrections_for_many_tests_are_those_of_scipy_and_of_the_definition() -> None:
    p = np.random.default_rng(1).uniform(size=50) ** 4
    p[7] = p[9]
    for correction, name in (("fdr", "bh"), ("fdr-by", "by")):
        expected = stats.false_discovery_control(p, method=name)
        np.testing.assert_allclose(np.exp(adjusted(np.log(p), correction)), expected, rtol=1e-12)
    ranks = {int(j): i for i, j in enumerate(np.argsort(p, kind="stable"))}
    holm = [min(1.0, max((50 - ranks[i]) * p[i] for i in range(50) if ranks[i] <= ranks[j])) for j in range(50)]
    np.testing.assert_allclose(np.exp(adjusted(np.log(p), "fwe")), holm, rtol=1e-12)
    gaps = np.insert(np.log(p), 3, np.nan)
    assert np.isnan(adjusted(gaps, "fdr")[3])
    np.testing.assert_array_equal(np.delete(adjusted(gaps, "fdr"), 3), adjusted(np.log(p), "fdr"))


def test_a_constant_column_and_one_class_have_no_test() -> None:
    X = np.ones((4, 1))
    assert np.isnan(f_of_classes(*grouped(X, np.array([0, 0, 1, 1]))).pvalues).all()
    assert np.isnan(f_of_classes(*grouped(X, np.zeros(4))).pvalues).all()
    assert np.isnan(welch(*grouped(X, np.array([0, 1, 1, 1]))).pvalues).all()


@pytest.mark.parametrize("mode", ["k", "percentile", "fpr", "fdr", "fdr-by", "fwe"])
def test_each_mode_says_in_a_sentence_what_is_proved(data: tuple[Any, Any], mode: Any) -> None:
    named = {"fpr": "each false column", "fdr": "positively dependent", "fdr-by": "however", "fwe": "one or more"}
    selector = UnivariateSelector(mode=mode, alpha=0.07).fit(*data)
    sentence = selector.selection_.diagnostics["choice"]
    assert named.get(mode, "nothing is proved") in sentence
    assert ("at most 7 %" in sentence) == (mode in named)
    size = selector.support_.size
    assert mode in ("fpr", "fwe") or ("this column" if size == 1 else f"these {size} columns") in sentence
    assert mode != "fpr" or f"of the {data[0].shape[1]} that were tested" in sentence
    assert "relation to the target by itself" in sentence
    if mode in named:
        noise = np.random.default_rng(3).standard_normal((50, 2))
        none = UnivariateSelector(mode=mode, alpha=1e-9).fit(noise, np.arange(50) % 2).selection_
        assert none.support.size == 0
        assert "no column is selected" in none.diagnostics["choice"]
