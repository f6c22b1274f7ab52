"""Scores along the rows, against the same selector fed with the rows one batch after the other."""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import BadParameter
from sketchselect.execution import LocalEngine
from sketchselect.selectors.sketched import ridge_weights


def drifting(n=400, p=60, seed=0):
    """Columns 2 and 5 matter at first, 30 and 44 in the end."""
    rng = np.random.default_rng(seed)
    X = 0.1 * rng.standard_normal((n, p))
    X[: n // 2, [2, 5]] += 3 * rng.standard_normal((n // 2, 2))
    X[n // 2 :, [30, 44]] += 5 * rng.standard_normal((n - n // 2, 2))
    return X


ROWS = 20
SMALL = {"partition_bytes": 8 * 60 * ROWS, "client": "serial"}


def streamed(selector, X, y=None):
    """Return scores after every 20 rows, from `partial_fit`."""
    result = []
    for start in range(0, len(X), ROWS):
        selector.partial_fit(X[start : start + ROWS], None if y is None else y[start : start + ROWS])
        result.append(selector.scores_)
    return np.array(result)


def test_prefixes_of_moments_equal_the_stream_to_rounding():
    X = drifting()
    y = X[:, 5] - 2 * X[:, 44] + np.random.default_rng(1).standard_normal(400)
    for selector in (sks.ThresholdedOLS(4), sks.ThresholdedOLS(4, half_life=60.0)):
        result = sks.timeline(X[:, :40], selector, y=y, partition_bytes=8 * 40 * ROWS, client="serial")
        expected = streamed(type(selector)(**selector.get_params()), X[:, :40], y)
        # As long as there are fewer rows than columns anything fits, and rounding decides.
        assert np.allclose(result.scores[4:], expected[4:], rtol=1e-6, atol=1e-9)
    exact = sks.VarianceSelector(3, normalize=None)
    result = sks.timeline(X, exact, **SMALL)
    assert np.allclose(result.scores, [X[:stop].var(axis=0) for stop in result.rows], rtol=1e-9)


@pytest.mark.parametrize("half_life", [None, 30.0])
def test_prefixes_of_sketches_are_within_the_guarantee(half_life):
    """The sketch keeps the Gram matrix exactly (60 columns, size 8): the scores are those of the data themselves."""
    X = drifting()
    exact = sks.SketchedRidgeSelector(2, 2, sketch_size=8, normalize=None, half_life=half_life)
    result = sks.timeline(X, exact, **SMALL)
    for stop, scores, support in zip(result.rows, result.scores, result.supports, strict=True):
        ages = np.arange(stop)[::-1, None]
        A = X[:stop] * (1.0 if half_life is None else 0.5 ** (ages / half_life / 2))
        _, s, V = np.linalg.svd(A, full_matrices=False)
        expected, _ = ridge_weights(s**2, V, 2)
        assert np.allclose(scores, expected, rtol=1e-6, atol=1e-9)
        assert support.tolist() == sorted(np.argsort(-expected, kind="stable")[:2])
    if half_life is not None:
        assert result.supports[0].tolist() == [2, 5]
        assert result.supports[-1].tolist() == [30, 44]
        assert set(result.risers(2)) == {30, 44}
        assert set(result.fallers(2)) == {2, 5}


def test_a_sketch_that_loses_agrees_with_the_stream_where_the_gap_is_wide():
    X = drifting()
    lossy = {"n_features_to_select": 2, "n_components": 2, "sketch_size": 4, "normalize": None, "half_life": 40.0}
    for kind in (sks.SketchedRidgeSelector, sks.GreedySelector, sks.PivotedQRSelector):
        result = sks.timeline(X, kind(**lossy), **SMALL)
        stream = kind(**lossy)
        for t, start in enumerate(range(0, 400, ROWS)):
            stream.partial_fit(X[start : start + ROWS])
            assert stream.support_.tolist() == result.supports[t].tolist()


@pytest.mark.parametrize("window", [60, 50, 1])
def test_windows_are_fits_to_their_rows_alone(window):
    X = drifting()
    result = sks.timeline(X, sks.VarianceSelector(2, normalize=None), window=window, **SMALL)
    assert (result.rows - result.starts >= np.minimum(window, result.rows)).all()
    assert (result.rows - result.starts < window + ROWS).all()
    for start, stop, scores in zip(result.starts, result.rows, result.scores, strict=True):
        assert np.allclose(scores, X[start:stop].var(axis=0), rtol=1e-9)
    assert result.supports[0].tolist() == [2, 5]
    assert result.supports[-1].tolist() == [30, 44]


def test_ranks_and_movements():
    scores = np.array([[3.0, 2.0, 1.0, 0.0, np.nan], [0.0, 2.0, 3.0, 2.0, 9.0]])
    result = sks.selectors.Timeline("any", np.array([5, 9]), np.array([0, 0]), scores, [np.array([0]), np.array([4])])
    assert result.ranks.tolist() == [[1, 2, 3, 4, 5], [5, 3, 2, 4, 1]]
    assert result.selected.tolist() == [[True] + 4 * [False], 4 * [False] + [True]]
    # The columns between were never selected.
    assert np.allclose(result.rises, [-np.log2(5), 0, 0, 0, np.log2(5)])
    assert result.risers().tolist() == [4]
    assert result.fallers(1).tolist() == [0]
    assert "5 columns by any at 2 points up to row 9" in repr(result)


def test_engines_and_weights_and_names():
    X = drifting(240)
    selector = sks.SketchedRidgeSelector(3, 2, sketch_size=4)
    serial = sks.timeline(X, selector, partition_bytes=9600, client="serial")
    threads = sks.timeline(X, selector, partition_bytes=9600, client=LocalEngine(3))
    assert np.array_equal(serial.scores, threads.scores)
    assert serial.method == "sketched-ridge"
    assert not hasattr(selector, "selection_")
    weights = np.r_[np.zeros(40), np.ones(200)]
    weighted = sks.timeline(X, sks.VarianceSelector(3), sample_weight=weights, points=6, **SMALL)
    assert np.isnan(weighted.scores[0]).all()
    assert weighted.supports[0].size == 0
    assert np.allclose(weighted.scores[-1], X[40:].var(axis=0), rtol=1e-9)


def test_prepare_steps_come_before_the_selectors_own():
    X = np.abs(drifting())
    result = sks.timeline(X, sks.SketchedRidgeSelector(3, 2, sketch_size=8), prepare=["log1p"], points=2, **SMALL)
    logs = np.log1p(X)
    units = logs / np.linalg.norm(logs, axis=1)[:, None]
    expected = sks.SketchedRidgeSelector(3, 2, sketch_size=8, normalize=None).fit(units)
    assert np.allclose(result.scores[-1], expected.scores_, rtol=1e-8)


@pytest.mark.parametrize(
    ("selector", "options", "named"),
    [
        (sks.OnlineLeverageSelector(), {}, "online-leverage reads the source in passes of its own"),
        (sks.LeverageSelector(read="columns"), {}, "leverage reads the source"),
        ("sketched-ridge", {}, "expected a selector, got str"),
        (sks.ThresholdedOLS(3), {}, "thresholded-ols learns from a target; pass y"),
        (sks.VarianceSelector(3), {"window": 0}, "window must be a whole number of at least 1, got 0"),
        (sks.VarianceSelector(3), {"points": -1}, "points must be a whole number of at least 1"),
        (sks.SketchedRidgeSelector(3, half_life=-1), {}, "half_life must be a number above 0"),
    ],
)
def test_what_cannot_be_right_is_said_in_one_line(selector, options, named):
    with pytest.raises(BadParameter, match=named) as caught:
        sks.timeline(drifting(), selector, **SMALL, **options)
    assert "\n" not in str(caught.value)
