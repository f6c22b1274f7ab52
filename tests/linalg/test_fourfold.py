"""The exact tail of G of tables of two by two: all tables by whole numbers, SciPy, and the level."""

from fractions import Fraction
from math import comb, log
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import special, stats

from sketchselect.linalg.independence import fourfold_log_tail


def log_tails(counts: ArrayLike, of_bin: int, of_class: int, n: int) -> np.ndarray:
    k = np.atleast_1d(counts)
    return fourfold_log_tail(k, np.full(k.size, float(of_bin)), np.full(k.size, float(of_class)), float(n))


def cells(k: Any, of_bin: int, of_class: int, n: int) -> tuple[Any, Any, Any, Any]:
    return k, of_bin - k, of_class - k, n - of_bin - of_class + k


def tables(of_bin: int, of_class: int, n: int) -> range:
    return range(max(0, of_bin + of_class - n), min(of_bin, of_class) + 1)


def brute_force(of_bin: int, of_class: int, n: int) -> dict[int, Fraction]:
    """Return the p-value of every table, ordered by the product of x ** x of its cells, a whole number."""
    order, ways = {}, {}
    for k in tables(of_bin, of_class, n):
        order[k] = int(np.prod([x**x for x in cells(k, of_bin, of_class, n)], dtype=object))
        ways[k] = comb(of_bin, k) * comb(n - of_bin, of_class - k)
    total = comb(n, of_class)
    return {k: Fraction(sum(ways[j] for j in ways if order[j] >= order[k]), total) for k in ways}


@pytest.mark.parametrize("n", [*range(2, 15), 30])
def test_it_is_that_of_all_tables_and_keeps_every_level(n: int) -> None:
    for of_bin in range(1, n):
        for of_class in range(1, n):
            expected = brute_force(of_bin, of_class, n)
            p = np.exp(log_tails(list(expected), of_bin, of_class, n))
            np.testing.assert_allclose(p, [float(value) for value in expected.values()], rtol=1e-13)
            probability = stats.hypergeom.pmf(list(expected), n, of_bin, of_class)
            for alpha in (0.001, 0.01, 0.05, 0.1, 0.5):
                assert probability[p <= alpha].sum() <= alpha + 1e-12


@pytest.mark.parametrize(
    ("k", "of_bin", "of_class", "n"),
    [
        (2000, 2000, 2000, 4000),
        (20, 20, 20, 100_000),
        (400, 20_000, 500, 100_000),
        (0, 50_000, 3000, 100_000),
        (7000, 50_000, 10_000, 100_000),
        (96_000, 97_000, 98_000, 100_000),
        (3, 1_000_000, 40, 2_000_000_000),
    ],
)
def test_far_out_it_is_that_of_whole_numbers(k: int, of_bin: int, of_class: int, n: int) -> None:
    counts = np.arange(tables(of_bin, of_class, n).start, tables(of_bin, of_class, n).stop)
    margins = (of_bin, of_class), (of_bin, n - of_class), (n - of_bin, of_class), (n - of_bin, n - of_class)
    observed = cells(counts, of_bin, of_class, n)
    order = [(x, a / n * b) for x, (a, b) in zip(observed, margins, strict=True)]
    g = np.sum([special.xlogy(x, x / e) for x, e in order], axis=0)
    is_as_large = g >= g[k - counts[0]] - 1e-6
    ways, total = comb(of_bin, int(counts[0])) * comb(n - of_bin, of_class - int(counts[0])), 0
    for j, counted in zip(counts.tolist(), is_as_large.tolist(), strict=True):
        total += ways * counted
        _, of_bin_alone, of_class_alone, neither = cells(j, of_bin, of_class, n)
        ways = ways * of_bin_alone * of_class_alone // ((j + 1) * (neither + 1))
    expected = 80 * log(2) - log((comb(n, of_class) << 80) // total)
    assert log_tails(k, of_bin, of_class, n)[0] == pytest.approx(expected, rel=1e-14, abs=1e-11)


@pytest.mark.parametrize(("of_bin", "of_class", "n"), [(40_000, 50_000, 100_000), (700_000, 500_000, 1_000_000)])
def test_beside_halves_it_is_fishers_exact_test(of_bin: int, of_class: int, n: int) -> None:
    # The distribution is symmetric, so that the order of G is that of the probabilities.
    middle = of_bin // 2
    for k in (middle, middle + 1, middle - 130, middle + 1000):
        table = np.reshape(cells(k, of_bin, of_class, n), (2, 2))
        expected = stats.fisher_exact(table).pvalue
        assert np.exp(log_tails(k, of_bin, of_class, n)[0]) == pytest.approx(expected, rel=1e-8)


def test_of_very_many_rows_chi_squared_is_near() -> None:
    n, of_bin, of_class = 79_000_000, 10_000_000, 48_000_000
    expected = of_bin * of_class / n
    counts = np.floor(expected + np.linspace(-8000, 8000, 81)).astype(np.int64)
    table = np.array(cells(counts, of_bin, of_class, n), dtype=float)
    margins = np.outer([of_bin, n - of_bin], [of_class, n - of_class]).ravel()[:, None]
    g = 2 * (special.xlogy(table, table * n / margins) - table + margins / n).sum(axis=0)
    log_of_chi_squared = np.log(special.chdtrc(1, g))
    np.testing.assert_allclose(log_tails(counts, of_bin, of_class, n), log_of_chi_squared, atol=4e-3)
    assert np.isnan(log_tails(counts[:1], 40_000_000, of_class, n)).all()
