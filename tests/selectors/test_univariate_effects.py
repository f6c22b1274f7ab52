"""Intervals of the effects of univariate tests: SciPy and brute force as oracles, extremes, and what is written."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sketchselect.linalg.independence import independence_cumulants
from sketchselect.selectors import UnivariateSelector
from sketchselect.selectors.supervised.binned import rank_sums
from sketchselect.selectors.supervised.effects import noncentralities, variance_effects
from sketchselect.workflow.tables import scores_csv


@pytest.fixture
def rows() -> tuple[Any, Any]:
    """Rows of two classes of different variance; column 0 has equal means, column 3 is constant."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [30, 70])
    X = (rng.standard_normal((100, 5)) + 0.5 * labels[:, None]) * (1 + labels[:, None])
    for k in (0, 1):
        X[labels == k, 0] -= X[labels == k, 0].mean()
    X[:, 3] = 2.0
    return X, labels


def test_limits_of_correlations_are_those_of_scipy(rows: tuple[Any, Any]) -> None:
    X, _ = rows
    y = X[:, 1] + np.random.default_rng(1).standard_normal(100)
    selector = UnivariateSelector("correlation").fit(X, y)
    for j in (0, 1, 2, 4):
        expected = stats.pearsonr(X[:, j], y).confidence_interval(0.95)
        np.testing.assert_allclose(selector.confint_[j], expected, rtol=1e-9)
    assert np.isnan(selector.confint_[3]).all()
    perfect = UnivariateSelector("correlation").fit(y[:, None], 2 * y)
    np.testing.assert_allclose(perfect.confint_, 1.0)


def test_limits_of_a_difference_without_effect_are_welchs(rows: tuple[Any, Any]) -> None:
    X, labels = rows[0][:, [0, 1, 2, 4]], rows[1]
    selector = UnivariateSelector("t-test").fit(X, labels)
    first, second = X[labels == 0], X[labels == 1]
    within = np.sqrt((29 * first.var(axis=0, ddof=1) + 69 * second.var(axis=0, ddof=1)) / 98)
    test = stats.ttest_ind(first, second, equal_var=False)
    expected = np.column_stack(test.confidence_interval(0.95)) / within[:, None]
    np.testing.assert_allclose(selector.confint_[0], expected[0], rtol=1e-9)
    middle = (selector.confint_[:, 0] + selector.confint_[:, 1]) / 2
    np.testing.assert_allclose(middle, (first.mean(axis=0) - second.mean(axis=0)) / within, atol=1e-9)
    wider = np.diff(selector.confint_)[:, 0] / np.diff(expected)[:, 0]
    assert ((wider > 1) & (wider < 1.1))[1:].all(), "the standard deviation has an error too"


@pytest.mark.parametrize(("n_groups", "n_rows"), [(2, 12), (4, 90), (30, 100), (3, 100_000)])
def test_limits_of_the_variance_between_classes_are_quantiles(n_groups: int, n_rows: int) -> None:
    f = np.array([1.5, 3.0, 20.0, 400.0, 1e6])
    d1, d2 = n_groups - 1, n_rows - n_groups
    low, high = noncentralities(f, d1, d2)
    # Beyond a noncentrality of 10,000 the distribution is an approximation.
    for limits, tail, tolerance in ((low, 0.975, 2e-3), (high, 0.025, 2e-3)):
        reached = stats.ncf.cdf(f, d1, d2, np.maximum(limits, 1e-12))
        solved = limits > 0
        np.testing.assert_allclose(reached[solved], tail, rtol=0, atol=tolerance)
        np.testing.assert_allclose(reached[solved & (limits < 1e4)], tail, rtol=0, atol=1e-8)
        assert (stats.f.cdf(f[~solved], d1, d2) <= tail).all()
    effects = variance_effects(np.array([0.0, np.inf, np.nan]), n_groups, n_rows)
    np.testing.assert_array_equal(np.array(effects), [[0, 1, np.nan]] * 3)


def test_limits_of_counts_and_of_information_are_quantiles(rows: tuple[Any, Any]) -> None:
    labels = rows[1]
    rng = np.random.default_rng(2)
    X = rng.poisson(2 + 0.7 * labels[:, None] * [0, 1, 1], (100, 3)).astype(float)
    selector = UnivariateSelector("chi2").fit(X, labels)
    # About as even as the classes: the variance is that of the noncentral distribution, within a few per cent.
    noncentral = X.sum(axis=0) * selector.confint_[:, 1] ** 2
    np.testing.assert_allclose(stats.ncx2.cdf(selector.scores_, 1, noncentral), 0.025, atol=0.01)
    selector = UnivariateSelector("mutual-information").fit(X, labels)
    entropy = stats.entropy([30, 70])
    for j, (low, high) in enumerate(selector.confint_):
        table = selector.summary_.counts[j]
        table = table[table.any(axis=1)]
        g = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood")
        chance = independence_cumulants(table.sum(axis=1)[None].astype(float), np.array([30.0, 70.0])).mean[0]
        reached = stats.ncx2.cdf(g.statistic, chance, np.array([low, high]) * 200 * entropy + 1e-12)
        assert reached[1] == pytest.approx(0.025, abs=0.01)
        assert reached[0] == pytest.approx(0.975, abs=0.01) if low > 0 else reached[0] <= 0.975
    assert (selector.confint_[:, 0] <= selector.effects_).all()


def test_variance_of_the_area_is_that_of_placements(rows: tuple[Any, Any]) -> None:
    X, labels = rows
    values = np.clip(np.round(X[:, 1:3] + 4), 0, 8).astype(int)
    counts = np.array([[np.bincount(values[labels == k, j], minlength=9) for j in (0, 1)] for k in (0, 1)])
    sums = rank_sums(counts[0], counts[1])
    for j in (0, 1):
        a, b = values[labels == 0, j], values[labels == 1, j]
        below = (a[:, None] > b) + 0.5 * (a[:, None] == b)
        expected = below.mean(axis=1).var(ddof=1) / a.size + below.mean(axis=0).var(ddof=1) / b.size
        assert sums.variances[j] == pytest.approx(expected, rel=1e-12)


def test_several_classes_have_intervals_for_all_at_once_and_separation_has_limits(rows: tuple[Any, Any]) -> None:
    X, labels = rows
    three = labels + (np.arange(100) > 70)
    for score in ("t-test", "wilcoxon"):
        selector = UnivariateSelector(score).fit(X, three)
        j = 1
        low, high = selector.confint_[j]
        assert low < selector.effects_[j] < high
        # The same class against the others alone: an interval of 95 % for one test is narrower.
        best = min(range(3), key=lambda k: UnivariateSelector(score).fit(X, three == k).pvalues_[j])
        alone = UnivariateSelector(score).fit(X, three != best)
        assert np.ptp(alone.confint_[j]) < high - low
    apart = UnivariateSelector("wilcoxon").fit(np.where(labels, 5.0, 1.0)[:, None] + X[:, [3]], labels)
    low, high = apart.confint_[0]
    assert (apart.effects_[0], low) == (-1.0, -1.0)
    assert -0.99 < high < -0.5, "30 and 70 rows do not prove that groups never overlap"


def test_the_table_of_all_columns_has_the_limits(rows: tuple[Any, Any]) -> None:
    selector = UnivariateSelector().fit(*rows)
    table = sorted(
        csv.DictReader("".join(scores_csv(selector.selection_)).splitlines()), key=lambda row: int(row["column"])
    )
    for row, (low, high) in zip(table, selector.confint_, strict=True):
        if row["column"] != "3":
            assert (float(row["confint_low"]), float(row["confint_high"])) == (low, high)
    assert table[3]["confint_low"] == ""


def test_intervals_of_rare_values_beside_a_rare_class_without_a_relation_hold_zero() -> None:
    X = np.zeros((100_000, 2))
    X[100:105, 0] = 1.0
    X[100:120, 1] = 1.0
    selector = UnivariateSelector("mutual-information", mode="fpr").fit(X, np.arange(100_000) < 5)
    assert (selector.pvalues_ > 0.5).all()
    assert (selector.confint_[:, 0] == 0).all()
