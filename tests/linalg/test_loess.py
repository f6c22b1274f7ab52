"""Local quadratic regression: polynomials, the reference implementation, and the last bits of the data."""

import numpy as np
import pytest

from sketchselect.linalg.loess import loess, mean_variance_trend


def abscissas(seed, n):
    rng = np.random.default_rng(seed)
    kinds = [
        lambda: rng.standard_normal(n),
        lambda: np.log10(rng.integers(1, 400, n) / 500),
        lambda: np.log10(rng.pareto(1, n) + 1e-3),
    ]
    return kinds[seed % 3](), rng


@pytest.mark.share(12)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_polynomials_of_degree_two_are_reproduced(seed, degree):
    x, rng = abscissas(seed, 3 + 20 * seed)
    coefficients = rng.standard_normal(degree + 1)
    y = np.polyval(coefficients, x)
    for span in (0.01, 0.3, 1.0):
        assert np.allclose(loess(x, y, span), y, rtol=1e-8, atol=1e-8)


@pytest.mark.share(10)
@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_reference_where_that_is_stable(seed):
    reference = pytest.importorskip("skmisc.loess").loess
    x, rng = abscissas(seed, int(np.random.default_rng(seed).integers(30, 1500)))
    y = x + 0.1 * x**2 + 0.2 * rng.standard_normal(x.size)
    for span in (0.2, 0.3, 0.75, 1.0):
        model = reference(x, y, span=span, degree=2)
        model.fit()
        assert np.allclose(loess(x, y, span), model.outputs.fitted_values, rtol=1e-9, atol=1e-9)


@pytest.mark.share(10)
@pytest.mark.parametrize("seed", range(40))
def test_the_last_bits_of_the_data_change_no_more_than_last_bits(seed):
    """Columns of equal means, whose logarithms differ by rounding, as moments merged in another order leave them."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 1500))
    means = rng.integers(1, 1 + int(rng.choice([3, 10, 300])), n) / 700
    variances = means * (1 + rng.exponential(size=n))
    span = float(rng.choice([0.1, 0.3, 0.5]))
    trend = mean_variance_trend(means, variances, "loess", span)
    for _ in range(5):
        shaken = means * (1 + 1e-14 * rng.standard_normal(n))
        again = mean_variance_trend(shaken, variances * (1 + 1e-14 * rng.standard_normal(n)), "loess", span)
        assert np.allclose(again, trend, rtol=1e-9, atol=0)


@pytest.mark.parametrize("n", range(1, 14))
def test_a_few_columns_have_a_trend(n):
    rng = np.random.default_rng(n)
    means = rng.uniform(0.1, 9, n)
    trend = mean_variance_trend(means, means**1.5, "loess", 0.3)
    assert np.allclose(trend, means**1.5, rtol=1e-8)


@pytest.mark.parametrize("n_distinct", [1, 2])
def test_fewer_means_than_a_parabola_needs(n_distinct):
    means = np.repeat([2.0, 5.0][:n_distinct], 40)
    variances = np.exp(np.random.default_rng(0).standard_normal(means.size))
    trend = mean_variance_trend(means, variances, "loess", 0.3)
    # The trend at a mean is the mean of the logarithms there.
    for mean in set(means.tolist()):
        here = means == mean
        assert np.allclose(np.log10(trend[here]), np.log10(variances[here]).mean(), rtol=0, atol=1e-9)
