"""Sliding windows against the rows that they hold, at any batch size, pane and stream."""

import numpy as np
import pytest
from tests.passing import Counted
from tests.summaries.oracles import check_directions

from sketchselect.errors import BadParameter, NoData, NotFinite
from sketchselect.summaries import DecayedMoments, FrequentDirections, Moments
from sketchselect.summaries.window import SlidingWindow


def rows(n=600, p=40, seed=0):
    return 2 + np.random.default_rng(seed).standard_normal((n, p)) * np.linspace(2, 0.1, p)


def fed(window, X, step, **extra):
    for i in range(0, len(X), step):
        window = window.update(X[i : i + step], **{name: value[i : i + step] for name, value in extra.items()})
        yield window


@pytest.mark.parametrize("step", [1, 7, 150, 10_000])
@pytest.mark.parametrize("pane", [1, 8, None])
def test_moments_are_those_of_the_rows_in_the_window(step, pane):
    X = rows(300, 5)
    y, w = X @ np.arange(5), np.random.default_rng(1).random(300)
    for window in fed(SlidingWindow(Moments(), rows=90, pane_rows=pane), X, step, y=y, sample_weight=w):
        a, b = window.start, window.end
        assert min(90, b) <= b - a < 90 + window.pane_rows
        if pane == 1:
            assert b - a == min(90, b)
        result = window.summary()
        assert result.n_rows == b - a
        assert np.allclose(result.covariance(), np.cov(X[a:b].T, ddof=0, aweights=w[a:b]), atol=1e-11)
        assert np.allclose(result.y_mean, np.average(y[a:b], weights=w[a:b]), rtol=1e-12)


def test_the_batches_do_not_show():
    X = rows(300, 5)
    result = [list(fed(SlidingWindow(Moments(), 64), X, step))[-1].summary() for step in (1, 7, 300)]
    for other in result[1:]:
        assert np.allclose(other.covariance(), result[0].covariance(), rtol=1e-11, atol=1e-13)
        assert other.n_rows == result[0].n_rows


@pytest.mark.parametrize("step", [7, 10_000])
def test_sketches_keep_their_guarantee(step):
    X = rows()
    for window in fed(SlidingWindow(FrequentDirections(2), rows=100), X, step):
        A, result = X[window.start : window.end], window.summary()
        check_directions(result, A, None, np.ones(len(A)))
    assert result.shrinkage > 0


def test_any_part_of_the_window_and_rows_that_fade_in_it():
    X = rows(200, 4)
    window = list(fed(SlidingWindow(DecayedMoments(half_life=10), rows=80, pane_rows=5), X, 13))[-1]
    for length in range(1, 81):
        result = window.summary(length)
        start = max(200 - length, 0) // 5 * 5
        weights = 0.5 ** (np.arange(200 - start)[::-1] / 10)
        assert result.n_rows == 200 - start
        assert np.allclose(result.mean, np.average(X[start:], axis=0, weights=weights), rtol=1e-12)


def test_a_query_is_few_merges_and_states_do_not_pile_up():
    window = SlidingWindow(Counted(), rows=256, pane_rows=1)
    X = rows(2000, 2)
    for i, row in enumerate(X):
        window = window.update(row[None, :])
        assert len(window._nodes) + (window._open is not None) <= 2 * 256 + 4
        if i % 97 == 0:
            Counted.merges = 0
            window.summary()
            assert Counted.merges <= 2 * 8 + 1


def test_a_batch_that_is_refused_leaves_the_window_as_it_was():
    window = SlidingWindow(Moments(), rows=10).update(np.eye(3))
    bad = np.eye(3)
    bad[1, 1] = np.nan
    with pytest.raises(NotFinite, match="row 4"):
        window.update(bad)
    assert window.end == 3
    assert window.summary().n_rows == 3
    assert window.update(np.eye(3)[:0]).end == 3


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"rows": 0}, "rows must be a whole number"),
        ({"rows": 2.5}, "rows must be a whole number"),
        ({"rows": 10, "pane_rows": 0}, "pane_rows must be"),
        ({"rows": 10, "pane_rows": 11}, "at most rows"),
        ({"rows": 10, "description": Moments().from_block(np.eye(2))}, "description"),
    ],
)
def test_bad_parameters(arguments, named):
    with pytest.raises(BadParameter, match=named):
        SlidingWindow(**{"description": Moments(), **arguments})
    with pytest.raises(NoData):
        SlidingWindow(Moments(), 10).summary()
    with pytest.raises(BadParameter, match="at most 10, the length of the window"):
        SlidingWindow(Moments(), 10).update(np.eye(3)).summary(11)
