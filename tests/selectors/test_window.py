"""Selectors with a window: whatever the batches, they select as a fit to just the rows that are in it."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from tests.passing import drifting, serial
from tests.selectors.conftest import linear

import sketchselect as sks
from sketchselect.errors import BadParameter, EmptyInput, Incompatible, NotFinite

SUPERVISED = [
    sks.ThresholdedOLS(3),
    sks.FeatureSelectionAnnealing(3),
    sks.LassoPath(n_features_to_select=3),
    sks.ElasticNetPath(n_features_to_select=3),
    sks.MCPPath(n_features_to_select=3),
    sks.SCADPath(n_features_to_select=3),
]
SKETCHED = [
    sks.SketchedRidgeSelector(2, 2, sketch_size=8, normalize=None),
    sks.SketchedLassoSelector(2, 2, sketch_size=8, normalize=None),
    sks.GreedySelector(2, 2, sketch_size=8, normalize=None),
    sks.PivotedQRSelector(2, 2, sketch_size=8, normalize=None),
]


def name(selector):
    return type(selector).__name__


def fed(selector, step, *rows):
    for start in range(0, len(rows[0]), step):
        yield selector.partial_fit(*(values[start : start + step] for values in rows))


@pytest.mark.share(4)
@pytest.mark.parametrize("step", [7, 130])
@pytest.mark.parametrize("selector", SUPERVISED, ids=name)
def test_a_model_on_a_window_is_that_of_its_rows_alone(selector, step):
    X, y = linear(n=390, p=12)
    y[200:] = linear(n=390, p=12, seed=1)[1][::-1][200:]
    chosen = clone(selector).set_params(window=100)
    for result in fed(chosen, step, X, y):
        a, b = result.window_.start, result.window_.end
        assert min(100, b) <= b - a < 100 + 100 // 32
        assert result.summary_.n_rows == b - a
        if b - a < 60:
            continue  # so few rows leave near ties among the columns, which rounding decides
        expected = clone(selector).fit(X[a:b], y[a:b])
        assert result.support_.tolist() == expected.support_.tolist()
        assert np.allclose(result.coef_, expected.coef_, rtol=1e-7, atol=1e-10)
        assert result.intercept_ == pytest.approx(expected.intercept_, rel=1e-7)
    assert result.window_.end == 390
    assert not np.allclose(result.coef_, clone(selector).fit(X, y).coef_, rtol=1e-2), "rows that left still count"


@pytest.mark.share(3)
@pytest.mark.parametrize("step", [20, 250])
@pytest.mark.parametrize("selector", SKETCHED, ids=name)
@pytest.mark.statement("Huang 2015, Section 3.2, windowed inputs")
def test_a_sketch_of_a_window_is_that_of_its_rows_alone(selector, step):
    """The sketch keeps the Gram matrix exactly (60 columns, size 8): the scores are those of the rows."""
    X = drifting()
    for data in (X, sp.csr_array(X)):
        chosen = clone(selector).set_params(window=100)
        starts = range(0, len(X), step)
        for start in starts:
            result = chosen.partial_fit(data[start : start + step])
            a, b = result.window_.start, result.window_.end
            expected = clone(selector).fit(X[a:b])
            assert result.support_.tolist() == expected.support_.tolist()
            assert np.allclose(result.scores_, expected.scores_, rtol=1e-6, atol=1e-9)
        assert result.support_.tolist() == [30, 44]
        assert result.selection_.parameters["window"] == 100


def test_weights_and_classes_go_through_the_window():
    X, y = linear(n=300, p=10)
    labels = np.where(y > np.median(y), "high", "low")
    w = np.random.default_rng(4).random(300)
    chosen = sks.ThresholdedOLS(3, task="classification", window=64)
    for start in range(0, 300, 45):
        rows = slice(start, start + 45)
        chosen.partial_fit(X[rows], labels[rows], ["high", "low"], sample_weight=w[rows])
    rows = slice(chosen.window_.start, 300)
    expected = sks.ThresholdedOLS(3, task="classification").fit(X[rows], labels[rows], sample_weight=w[rows])
    assert chosen.support_.tolist() == expected.support_.tolist()
    assert np.allclose(chosen.coef_, expected.coef_, rtol=1e-8)


@pytest.mark.parametrize("client", ["serial", "threads"])
def test_fit_reads_the_last_rows_and_no_others(tmp_path, client):
    X, y = linear(n=500, p=10)
    spoilt = X.copy()
    spoilt[:400] = np.nan
    np.save(tmp_path / "rows.npy", spoilt)
    for window in (100, 37):
        chosen = sks.LassoPath(n_features_to_select=3, window=window).fit(tmp_path / "rows.npy", y, client=client)
        expected = sks.LassoPath(n_features_to_select=3).fit(X[-window:], y[-window:])
        assert chosen.summary_.n_rows == window
        assert np.allclose(chosen.coef_, expected.coef_, rtol=1e-9)
    with pytest.raises(NotFinite, match="row 399"):
        sks.LassoPath(window=101).fit(tmp_path / "rows.npy", y)
    all_rows = sks.LassoPath(n_features_to_select=3, window=9999).fit(X, y)
    assert np.array_equal(all_rows.coef_, sks.LassoPath(n_features_to_select=3).fit(X, y).coef_)


def test_a_pass_over_the_last_rows_is_the_same_on_every_engine_and_resumes(tmp_path):
    from sketchselect.execution import Checkpoint, LocalEngine, Source, summarize_source
    from sketchselect.readers import open_matrix

    np.save(tmp_path / "rows.npy", drifting(p=90))
    source = Source(open_matrix(tmp_path / "rows.npy"))
    options = serial(partition_bytes=8 * 90 * 10)

    def read(options, first_row=215):
        return summarize_source(replace(source, first_row=first_row), sks.FrequentDirections(4), options)

    reference = read(options)
    assert reference.value.n_rows == reference.stats.rows_read == 385
    assert read(options.but(engine=LocalEngine(3))).value == reference.value
    options = options.but(checkpoint=Checkpoint(tmp_path / "kept", min_bytes=0, state_ratio=0, min_seconds=0))
    for n_read in (385, 0):
        again = read(options)
        assert again.value == reference.value
        assert again.stats.rows_read == n_read
    assert read(options, 216).value.n_rows == 384


def test_a_batch_that_is_refused_leaves_the_window_as_it_was():
    X = drifting()
    chosen = sks.GreedySelector(2, 2, normalize=None, window=50)
    with pytest.raises(EmptyInput):
        chosen.partial_fit(X[:10], sample_weight=np.zeros(10))
    assert not hasattr(chosen, "window_")
    chosen.partial_fit(X[:40])
    scores = chosen.scores_
    bad = X[:30].copy()
    bad[3, 4] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        chosen.partial_fit(bad)
    with pytest.raises(EmptyInput):
        chosen.partial_fit(np.concatenate([X] * 2), sample_weight=np.zeros(1200))
    assert chosen.window_.end == 40
    assert np.array_equal(chosen.scores_, scores)
    assert chosen.partial_fit(X[40:80]).window_.end == 80


def test_other_ways_to_forget_than_what_was_seen_are_refused():
    X = drifting()
    stream = sks.SketchedRidgeSelector(2, 2, window=50).partial_fit(X[:40])
    for other, said in ((None, "window is None"), (60, "in a window of 50, but window is 60")):
        with pytest.raises(Incompatible, match=said):
            stream.set_params(window=other).partial_fit(X[40:])
    stream.set_params(window=50).partial_fit(X[40:])
    for begun in (
        sks.SketchedRidgeSelector(2, 2, window=50).fit(X),
        sks.SketchedRidgeSelector(2, 2, window=50).fit_summary(stream.summary_),
        stream.fit(X),
        sks.SketchedRidgeSelector(2, 2).partial_fit(X).set_params(window=50),
    ):
        with pytest.raises(Incompatible, match="which they cannot leave"):
            begun.partial_fit(X)
    y = X[:, 0]
    with pytest.raises(Incompatible, match="in a window of 50"):
        sks.ThresholdedOLS(2, window=50).partial_fit(X, y).set_params(window=None).partial_fit(X, y)


def test_stability_selection_has_no_window():
    X, y = linear(n=50, p=12)
    with pytest.raises(BadParameter, match="estimator without window"):
        sks.StabilitySelector(sks.LassoPath(window=20)).fit(X, y)


def test_a_timeline_moves_the_window_of_the_selector():
    X = drifting()
    chosen = sks.SketchedRidgeSelector(2, 2, normalize=None)
    expected = sks.timeline(X, chosen, window=100, points=12)
    chosen.set_params(window=100)
    for window in (None, 100):
        result = sks.timeline(X, chosen, window=window, points=12)
        assert np.array_equal(result.starts, expected.starts)
        assert np.array_equal(result.scores, expected.scores)
    assert result.starts[-1] > 0
    with pytest.raises(BadParameter, match="window is 60, but the selector's is 100"):
        sks.timeline(X, chosen, window=60)


def test_collecting_other_rows_leaves_the_window_of_a_stream():
    X = np.random.default_rng(0).standard_normal((60, 5))
    selector = sks.GreedySelector(2, window=20).partial_fit(X)
    selector.collect(X[:30])
    assert selector.partial_fit(X).window_.end == 120
