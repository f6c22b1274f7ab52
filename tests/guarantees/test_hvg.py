"""`hvg`: ``sum_i min((x_ij - mean_j) / sigma_j, sqrt(N))^2 / (N - 1)`` from one pass, the trend that of scanpy's loess.

References: the two passes of the definition on the rows; scikit-misc's local regression as scanpy calls it, where means
are different; and, where they are equal, the same means shaken in their last bits.
"""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.linalg.loess import mean_variance_trend
from sketchselect.summaries import TopValues

from .instances import each_instance, merged


def counts(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(20, 90)), int(rng.integers(40, 90))
    X = rng.negative_binomial(2.0, 2.0 / (2.0 + np.geomspace(0.3, 30.0, p)), (n, p)).astype(float)
    X[int(rng.integers(n)), rng.integers(p, size=3)] += 2000
    if seed % 2:
        X = X[:, : int(rng.integers(1, 40))]  # Few columns too.
        X[:, 0] = 3
    return rng, X


def two_passes(X, trend):
    varies = X.max(axis=0) > X.min(axis=0)
    mean, variance = X.mean(axis=0), X.var(axis=0, ddof=1)
    out = np.zeros(X.shape[1])
    Z = (X[:, varies] - mean[varies]) / np.sqrt(trend(mean[varies], variance[varies]))
    out[varies] = (np.minimum(Z, np.sqrt(len(X))) ** 2).sum(axis=0) / (len(X) - 1)
    return out


@each_instance
def test_one_pass_is_the_two_of_the_definition(seeds):
    for seed in seeds:
        rng, X = counts(seed)
        result = sks.HighlyVariableGenes(1).fit_summary(merged(rng, TopValues(len(X)), X))
        expected = two_passes(X, lambda mean, variance: mean_variance_trend(mean, variance, "loess", 0.3))
        assert np.allclose(result.variances_norm_, expected, rtol=1e-8, atol=1e-12)


@each_instance
def test_the_trend_is_that_of_scanpy_where_means_are_different(seeds):
    reference = pytest.importorskip("skmisc.loess").loess
    for seed in seeds:
        rng, _ = counts(seed)
        x = np.sort(rng.standard_normal(int(rng.integers(40, 300))))
        y = 1.5 * x + 0.2 * rng.standard_normal(x.size)
        model = reference(x, y, span=0.3, degree=2)
        model.fit()
        ours = np.log10(mean_variance_trend(10**x, 10**y, "loess", 0.3))
        assert np.allclose(ours, model.outputs.fitted_values, rtol=1e-8, atol=1e-8)


@each_instance
def test_no_last_bit_of_a_mean_shows(seeds):
    for seed in seeds:
        rng, X = counts(seed)
        mean, variance = X.mean(axis=0), X.var(axis=0) + 0.1
        mean = np.maximum(mean.round(1), 0.1)
        trend = mean_variance_trend(mean, variance, "loess", 0.3)
        shaken = mean * (1 + 1e-15 * rng.integers(-3, 4, mean.size))
        assert np.allclose(mean_variance_trend(shaken, variance, "loess", 0.3), trend, rtol=1e-9, atol=0)
