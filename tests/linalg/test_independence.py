"""Cumulants of the G statistic: scikit-learn's expected information, all tables of small margins, drawn tables."""

from itertools import product

import numpy as np
import pytest
from scipy import special, stats
from sklearn.metrics.cluster import expected_mutual_information

from sketchselect.linalg.independence import Cumulants, independence_cumulants, independence_tail


def g_of(tables: np.ndarray, bins: np.ndarray, classes: np.ndarray) -> np.ndarray:
    expected = np.outer(bins, classes) / bins.sum()
    return np.asarray(2 * special.xlogy(tables, tables / expected).sum(axis=(-2, -1)))


def drawn(bins: np.ndarray, classes: np.ndarray, n_tables: int) -> np.ndarray:
    tables = stats.random_table(bins, classes).rvs(n_tables, random_state=0)
    return g_of(tables, bins, classes)


@pytest.mark.parametrize("classes", [[30, 30], [57, 3], [20, 30, 10], [1] * 60])
@pytest.mark.parametrize("bins", [[10] * 6, [55, 4, 1], [2] * 30, [37, 0, 23]])
def test_the_mean_is_twice_the_rows_times_the_expected_information(bins: list[int], classes: list[int]) -> None:
    filled = np.array([b for b in bins if b])
    labels = [np.repeat(np.arange(len(sizes)), sizes) for sizes in (filled, classes)]
    table = np.zeros((filled.size, len(classes)), dtype=np.int64)
    np.add.at(table, tuple(labels), 1)
    expected = 2 * 60 * expected_mutual_information(table, 60)
    mean = independence_cumulants(np.array([bins], dtype=float), np.array(classes, dtype=float)).mean
    assert mean[0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("bins", "classes"), [([12, 8], [15, 5]), ([19, 1], [19, 1]), ([9, 7, 4], [14, 6])])
def test_cumulants_are_near_those_of_all_tables(bins: list[int], classes: list[int]) -> None:
    b, c = np.array(bins), np.array(classes)
    columns = np.array([k for k in product(*(range(size + 1) for size in bins)) if sum(k) == classes[0]])
    tables = np.stack([columns, b - columns], axis=2)
    p = stats.random_table(b, c).pmf(tables)
    g = g_of(tables, b, c)
    mean = p @ g
    cumulants = independence_cumulants(b[None].astype(float), c.astype(float))
    assert p.sum() == pytest.approx(1.0)
    assert cumulants.mean[0] == pytest.approx(mean, rel=1e-10)
    # The rests of the cells are not quite independent.
    assert cumulants.variance[0] == pytest.approx(p @ (g - mean) ** 2, rel=0.15)


def test_of_many_rows_in_every_cell_they_are_those_of_chi_squared() -> None:
    of_bins = np.array([[4e5, 3e5, 2e5, 1e5], [5e5, 5e5, 0, 0]])
    cumulants = independence_cumulants(of_bins, np.array([5e5, 3e5, 2e5]))
    np.testing.assert_allclose(cumulants, np.outer([1, 2, 8], [6, 2]), rtol=1e-12)
    g = np.array([3.0, 9.0])
    x, freedom = independence_tail(g, cumulants)
    np.testing.assert_allclose(stats.chi2.sf(x, freedom), stats.chi2.sf(g, [6, 2]), rtol=1e-10)


def test_sizes_of_bins_between_those_of_the_table_change_nothing_that_matters() -> None:
    rng = np.random.default_rng(0)
    classes = np.array([29_900.0, 70.0, 30.0])
    of_bins = rng.multinomial(30_000, np.full(30, 1 / 30), 40).astype(float)
    together = independence_cumulants(of_bins, classes)
    for j in range(40):
        alone = independence_cumulants(of_bins[j : j + 1], classes)
        np.testing.assert_allclose(np.array(together)[:2, j], np.array(alone)[:2, 0], rtol=1e-3)


CASES = [
    ([13] * 16 + [12] * 16, [340, 60]),
    ([47] * 28 + [46] * 4, [1455, 45]),
    ([31] * 8 + [32] * 24, [32] * 24 + [31] * 8),
    ([72] * 8 + [53] * 8, [72] * 6 + [71] * 8),
    ([100, 70] + [1] * 30, [150, 50]),
    ([900, 60, 30, 5, 3, 2], [950, 50]),
    ([5] * 12, [40, 20]),
    ([690] + [10] * 31, [980, 20]),
    ([8000] + [50] * 40, [9950, 50]),
]


@pytest.mark.parametrize(("bins", "classes"), CASES)
def test_independent_tables_are_beyond_the_quantiles_as_rarely_as_they_should(
    bins: list[int], classes: list[int]
) -> None:
    b, c = np.array(bins), np.array(classes)
    assert b.sum() == c.sum()
    g = drawn(b, c, 10_000)
    cumulants = independence_cumulants(b[None].astype(float), c.astype(float))
    x, freedom = independence_tail(g, Cumulants(*(values[0] for values in np.array(cumulants)[:, :, None])))
    p = stats.chi2.sf(x, freedom)
    for level in (0.05, 0.01, 0.001):
        # A tenth for the approximation, and four standard errors.
        assert (p <= level).mean() <= 1.1 * level + 4 * np.sqrt(level / 10_000)
    # The chi-squared distribution of (bins - 1) (classes - 1) degrees of freedom: .15 to .99 in the first four.
    assert (p <= 0.05).mean() >= 0.02


@pytest.mark.parametrize(("bins", "classes"), [([690] + [10] * 31, [980, 20]), ([8000] + [50] * 40, [9950, 50])])
def test_the_skewness_of_counts_beside_a_rare_class_is_that_of_drawn_tables(
    bins: list[int], classes: list[int]
) -> None:
    b, c = np.array(bins), np.array(classes)
    _, variance, third = (v[0] for v in independence_cumulants(b[None].astype(float), c.astype(float)))
    # Without the moments of linear parts and rests together .3 and .5, instead of 1 and 1.1.
    assert third / variance**1.5 == pytest.approx(stats.skew(drawn(b, c, 40_000)), rel=0.3)


def test_a_rare_event_among_many_bins_is_not_thought_rarer_by_orders_of_magnitude() -> None:
    # Both rows of a class are in one of 256 bins with probability 1 / 256: G has two values.
    b, c = np.full(256, 400), np.array([102_398, 2])
    cumulants = independence_cumulants(b[None].astype(float), c.astype(float))
    g = drawn(b, c, 10_000)
    x, freedom = independence_tail(g, Cumulants(*(v[0] for v in np.array(cumulants)[:, :, None])))
    assert (stats.chi2.sf(x, freedom) > 1 / 256 / 8).all()


def test_what_the_margins_leave_to_chance_alone_is_no_evidence() -> None:
    # One row in a class, all bins of equal size: G is the same in every table.
    b, c = np.full(20, 700), np.array([13_999, 1])
    cumulants = independence_cumulants(b[None].astype(float), c.astype(float))
    x, freedom = independence_tail(drawn(b, c, 10), Cumulants(*(v[0] for v in np.array(cumulants)[:, :, None])))
    assert (stats.chi2.sf(x, freedom) > 0.2).all()
