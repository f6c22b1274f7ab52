"""Algorithms of Sun, Guo and Barbu (2019) as loops: running averages of any rate, and Algorithm 3 as printed."""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import BadParameter
from sketchselect.solvers import standardize
from sketchselect.summaries import DecayedMoments, Moments

# --- running averages ----------------------------------------------------------------------------------------------

SCHEDULES = {
    "all alike": lambda n: 1 / n,
    "constant": lambda n: max(1 / n, 0.02),
    "polynomial": lambda n: n**-0.6,
    "slower and slower, with a change": lambda n: 1 / n if n < 150 else 10 / n,
}


@pytest.mark.statement("Sun 2019, Equation 13", "Sun 2019, Equation 3")
@pytest.mark.parametrize("name", SCHEDULES)
def test_running_averages_of_any_rates_are_decayed_moments(name):
    """The loop of eq. 13, one row at a time, for means and products; the first rate is 1. In batches and in trees."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5)) @ rng.standard_normal((5, 5)) + 3
    y = X @ np.array([1.0, 0, -2, 0, 0]) + rng.standard_normal(300)
    Z = np.column_stack([X, y])
    rates = np.array([SCHEDULES[name](n) for n in range(1, 301)])
    mean, products = np.zeros(6), np.zeros((6, 6))
    for z, alpha in zip(Z, rates, strict=True):
        mean = (1 - alpha) * mean + alpha * z
        products = (1 - alpha) * products + alpha * np.outer(z, z)
    centred = products - np.outer(mean, mean)
    description = DecayedMoments(rates=rates)
    stream = description
    for a in range(0, 300, 7):
        stream = stream.update(X[a : a + 7], y[a : a + 7])
    parts = [description.from_block(X[a : a + 50], y[a : a + 50], start=a) for a in range(0, 300, 50)]
    tree = parts[0].merge(parts[1]).merge(parts[2].merge(parts[3].merge(parts[4])).merge(parts[5]))
    for m in (stream, tree, sks.summaries.decode(sks.summaries.encode(tree))):
        np.testing.assert_allclose(np.r_[m.mean, m.y_mean], mean, rtol=1e-11)
        np.testing.assert_allclose(m.covariance(), centred[:5, :5], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(m.xy[:, 0], centred[:5, 5], rtol=1e-9, atol=1e-11)
    assert description.from_block(X, y).weight == pytest.approx(1 / rates[-1], rel=1e-10)


@pytest.mark.statement("Sun 2019, Equation 13")
def test_beyond_the_list_the_last_rate_repeats_and_any_estimator_takes_the_moments():
    rng = np.random.default_rng(4)
    X = rng.standard_normal((5000, 4))
    y = X[:, [1, 3]] @ np.array([1.0, -2.0]) * np.where(np.arange(5000) < 4000, 1, -1) + rng.standard_normal(5000)
    rates = np.maximum(1 / np.arange(1.0, 51.0), 0.02)
    short, long = (DecayedMoments(rates=r) for r in (rates, np.r_[rates, np.full(4950, 0.02)]))
    left = short.from_block(X[:4500], y[:4500]).merge(short.from_block(X[4500:], y[4500:], start=4500))
    right = long.from_block(X, y)
    np.testing.assert_allclose(left.covariance(), right.covariance(), rtol=1e-9)
    # Weights before the list ends are those of 1 / n: all rows alike.
    np.testing.assert_allclose(short.from_block(X[:50]).mean, X[:50].mean(axis=0), atol=1e-12)
    model = sks.ThresholdedOLS(2).fit_summary(left)
    assert model.support_.tolist() == [1, 3]
    assert model.coef_[1] < 0 < model.coef_[3]
    stream = sks.ThresholdedOLS(2).fit_summary(short.from_block(X[:4500], y[:4500])).partial_fit(X[4500:], y[4500:])
    np.testing.assert_allclose(stream.coef_, model.coef_, rtol=1e-9, atol=1e-12)


@pytest.mark.statement("Sun 2019, Equation 13")
@pytest.mark.parametrize("rates", [[], [0.0, 0.5], [1.0], [0.5, 1.0], [[0.5]], "fast", [float("nan")]])
def test_rates_that_are_none_are_refused(rates):
    with pytest.raises(BadParameter, match="rates"):
        DecayedMoments(rates=rates)


@pytest.mark.statement("Sun 2019, Section 3.7", "Sun 2019, Table 1")
def test_memory_is_the_square_of_the_columns_and_does_not_grow_with_the_rows():
    X = np.random.default_rng(2).standard_normal((3000, 40))
    sizes = {len(sks.summaries.encode(Moments().from_block(X[:n], X[:n, 0]))) for n in (100, 3000)}
    assert max(sizes) - min(sizes) <= 64
    assert max(sizes) <= 8 * 41**2 + 8192
    assert Moments().projected_nbytes(2000, 1) <= 1.01 * 4 * Moments().projected_nbytes(1000, 1)


# --- Algorithm 3 ---------------------------------------------------------------------------------------------------


def theta(name, t, alpha, step):
    """The proximal step; eq. 12 for MCP with b / step for b, so that the penalty does not change with the step."""
    l1 = 0.5 * alpha if name == "elastic-net" else alpha
    soft = np.maximum(np.abs(t) - step * l1, 0.0) * np.sign(t)
    if name == "lasso":
        return soft
    if name == "elastic-net":
        return soft / (1 + step * 0.5 * alpha)
    return np.where(np.abs(t) <= 3.0 * alpha, soft / (1 - step / 3.0), t)


def algorithm_3(problem, name, alpha, n_iter=20_000):
    """Gradient and thresholding steps from zero, and least squares on the columns that are left."""
    S, right = problem.correlation, problem.xy[:, 0]
    step = 1.0 / np.linalg.eigvalsh(S)[-1]
    b = np.zeros(len(right))
    for _ in range(n_iter):
        before, b = b, theta(name, b - step * (S @ b - right), alpha, step)
        if np.abs(b - before).max() <= 1e-14:
            break
    support = np.flatnonzero(b)
    refit = np.zeros(len(right))
    refit[support] = np.linalg.solve(S[np.ix_(support, support)], right[support])
    return b, refit


ESTIMATORS = {"lasso": sks.LassoPath, "elastic-net": sks.ElasticNetPath, "mcp": sks.MCPPath}


@pytest.mark.statement("Sun 2019, Algorithm 3")
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.8])
def test_algorithm_3_as_printed_is_the_estimator_with_refit(name, alpha):
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((400, 20)) + 0.7 * rng.standard_normal((400, 1))) * np.linspace(0.5, 3, 20) + 2
    y = X[:, [3, 8, 15]] @ np.array([2.0, -1.0, 0.5]) + rng.standard_normal(400)
    m = Moments().from_block(X, y)
    problem = standardize(m.covariance(), m.xy, m.yy, mean=m.mean, y_mean=m.y_mean, n=400)
    shrunk, refit = algorithm_3(problem, name, alpha)
    assert 0 < np.count_nonzero(shrunk) < 20
    plain = ESTIMATORS[name](alphas=[alpha], alpha=alpha).fit_summary(m)
    last = ESTIMATORS[name](alphas=[alpha], alpha=alpha, refit=True).fit_summary(m)
    assert plain.support_.tolist() == last.support_.tolist() == np.flatnonzero(shrunk).tolist()
    np.testing.assert_allclose(plain.coef_ * problem.scale, shrunk, atol=1e-8)
    np.testing.assert_allclose(last.coef_ * problem.scale, refit, atol=1e-8)
