"""Streams: batches equal one pass, decayed moments equal weighted least squares and follow varying coefficients."""

import numpy as np
import pytest
from tests.selectors.conftest import linear

import sketchselect as sks
from sketchselect.errors import BadParameter, EmptyInput, Incompatible, SketchSelectError

HALF_LIFE = 60.0


def weighted_least_squares(X, y, half_life, columns):
    """Solve for coefficients and intercept row by row: a row counts half after so many rows."""
    weight = np.sqrt(0.5 ** (np.arange(len(y))[::-1] / half_life))
    A = np.c_[np.ones(len(y)), X[:, columns]]
    solution = np.linalg.lstsq(A * weight[:, None], y * weight, rcond=None)[0]
    return solution[1:], solution[0]


def sines(n_periods, per_period, a, b, period, k, p, rng):
    """Equally correlated columns; the k first coefficients are sines of the period's number (Sun 2019, eq. 17)."""
    t = np.repeat(np.arange(1, n_periods + 1), per_period)
    X = rng.standard_normal((t.size, p)) + rng.standard_normal((t.size, 1))
    beta = np.zeros((t.size, p))
    phase = period / k * np.arange(1, k + 1)
    beta[:, :k] = a * np.sin(2 * np.pi * (t[:, None] - phase) / period) + b
    return X, beta


def follow(method, X, y, batch):
    """Predict every batch before it is learnt; return the squared errors of the second half."""
    errors = []
    for start in range(0, len(y), batch):
        rows = slice(start, start + batch)
        if start >= len(y) // 2:
            errors.append((y[rows] - method.predict(X[rows])) ** 2)
        method.partial_fit(X[rows], y[rows])
    return np.concatenate(errors)


@pytest.mark.statement("Sun 2019, Figure 5", "Sun 2019, Table 4")
def test_sine_coefficients_are_followed():
    rng = np.random.default_rng(0)
    X, beta = sines(n_periods=100, per_period=20, a=0.8, b=0.6, period=100, k=4, p=12, rng=rng)
    y = (X * beta).sum(axis=1) + rng.standard_normal(len(X))
    adaptive = sks.ThresholdedOLS(6, half_life=HALF_LIFE)
    fixed = sks.ThresholdedOLS(6)
    followed, lagging = follow(adaptive, X, y, 20), follow(fixed, X, y, 20)
    s = adaptive.support_
    coef, intercept = weighted_least_squares(X, y, HALF_LIFE, s)
    assert np.allclose(adaptive.coef_[s], coef, rtol=1e-9)
    assert adaptive.intercept_ == pytest.approx(intercept, rel=1e-9)
    full, _ = weighted_least_squares(X, y, HALF_LIFE, np.arange(12))
    weight = 0.5 ** (np.arange(len(y))[::-1] / HALF_LIFE)
    center = X - np.average(X, axis=0, weights=weight)
    sd = np.sqrt(np.average(center**2, axis=0, weights=weight))
    assert s.tolist() == sorted(np.argsort(-np.abs(full * sd))[:6].tolist())
    # With mean coefficients the variance of the sines, 4 a^2 / 2, adds to that of the noise; following loses a part.
    assert np.sqrt(lagging.mean()) > 1.3
    assert followed.mean() - 1 < 0.25 * (lagging.mean() - 1)
    assert np.abs(adaptive.coef_ - beta[-1]).max() < np.abs(fixed.coef_ - beta[-1]).max()


@pytest.mark.statement("Sun 2019, Figure 6")
def test_dynamic_pricing():
    rng = np.random.default_rng(1)
    X, beta = sines(n_periods=100, per_period=20, a=0.2, b=0.4, period=200, k=3, p=10, rng=rng)
    X[:, 9], beta[:, 9] = rng.uniform(10, 20, len(X)), -0.5
    demand = 30.0 + (X * beta).sum(axis=1) + rng.standard_normal(len(X))
    seller = sks.ThresholdedOLS(4, half_life=100.0)
    errors = follow(seller, X, demand, 50)
    assert 9 in seller.support_
    coef, intercept = weighted_least_squares(X, demand, 100.0, seller.support_)
    assert np.allclose(seller.coef_[seller.support_], coef, rtol=1e-9)
    assert seller.intercept_ == pytest.approx(intercept, rel=1e-9)
    # The price coefficient within four of its standard errors at the effective number of rows.
    error = 1.0 / (np.sqrt(100 / 12) * np.sqrt(seller.summary_.n_effective))
    assert abs(seller.coef_[9] + 0.5) < 4 * error
    assert np.sqrt(errors.mean()) < np.sqrt(follow(sks.ThresholdedOLS(4), X, demand, 50).mean())


@pytest.mark.parametrize(
    "method",
    [
        sks.LassoPath(n_features_to_select=5),
        sks.MCPPath(alpha=0.2),
        sks.ThresholdedOLS(cv=4),
        sks.FeatureSelectionAnnealing(4, half_life=50),
        sks.LassoPath(degree=2, alpha=0.4),
    ],
)
def test_batches_equal_one_pass(method):
    from sklearn.base import clone

    X, y = linear(300, 10)
    whole, stream = clone(method).fit(X, y), clone(method)
    for start in range(0, 300, 37):
        stream.partial_fit(X[start : start + 37], y[start : start + 37])
    assert np.array_equal(stream.support_, whole.support_)
    assert np.allclose(stream.coef_, whole.coef_, rtol=1e-6, atol=1e-12)
    assert stream.intercept_ == pytest.approx(whole.intercept_, rel=1e-6)


def test_a_stream_goes_on_from_a_saved_summary(tmp_path):
    X, y = linear()
    first = sks.LassoPath(alpha=0.2).fit(X[:200], y[:200])
    sks.save(first.summary_, tmp_path / "year.sks")
    again = sks.LassoPath(alpha=0.2).fit_summary(sks.load(tmp_path / "year.sks")).partial_fit(X[200:], y[200:])
    assert np.allclose(again.coef_, sks.LassoPath(alpha=0.2).fit(X, y).coef_, rtol=1e-7, atol=1e-12)


def test_a_batch_that_is_refused_leaves_the_stream_as_it_was():
    X, y = linear()
    stream = sks.LassoPath(alpha=0.2).partial_fit(X[:100], y[:100])
    before = stream.coef_.copy()
    for bad_X, bad_y in ((X[:5, :-1], y[:5]), (X[:5], y[:4]), (X[:5], np.full(5, np.nan))):
        with pytest.raises((SketchSelectError, ValueError)):
            stream.partial_fit(bad_X, bad_y)
        assert np.array_equal(stream.coef_, before)
        assert stream.summary_.n_rows == 100


def test_rows_too_few_for_a_model_are_no_error_in_a_stream():
    X, y = linear(40, 6)
    for method in (sks.ThresholdedOLS(3), sks.LassoPath(), sks.MCPPath(task="classification")):
        labels = y if method.task == "regression" else y > 7
        method.partial_fit(X[:1], labels[:1], classes=[False, True] if method.task == "classification" else None)
        assert method.predict(X[:1]) == pytest.approx(labels[:1])
    validated = sks.SCADPath(cv=3, n_alphas=10)
    with pytest.raises(EmptyInput, match=r"two folds with rows, there are 1 of 3.*larger first batch"):
        validated.partial_fit(X[:1], y[:1])
    # The batch was not taken: it is given again with more rows.
    assert validated.partial_fit(X, y).summary_.n_rows == 40


def test_what_does_not_go_with_forgetting_is_said():
    X, y = linear(60, 5)
    with pytest.raises(BadParameter, match="cv needs moments that do not decay"):
        sks.LassoPath(cv=3, half_life=10).fit(X, y)
    with pytest.raises(BadParameter, match="half_life needs degree=1"):
        sks.LassoPath(degree=2, half_life=10).fit(X, y)
    with pytest.raises(Incompatible, match="have no half_life, but half_life is 10"):
        sks.LassoPath(alpha=0.1).fit(X, y).set_params(half_life=10.0).partial_fit(X, y)
    decayed = sks.summaries.DecayedMoments(half_life=30).from_block(X, y)
    both = {"all": sks.Moments().from_block(X, y), "recent": decayed}
    recent = sks.ThresholdedOLS(2, half_life=30).fit_summary(both)
    assert np.array_equal(recent.coef_, sks.ThresholdedOLS(2).fit_summary(decayed).coef_)
    with pytest.raises(Incompatible, match="have half_life 30, but half_life is 40"):
        sks.ThresholdedOLS(2, half_life=40).fit_summary(decayed)
