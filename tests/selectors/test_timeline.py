"""Scores along the rows, against the same selector fed with the rows one batch after the other."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests import passing

import sketchselect as sks
from sketchselect.errors import BadParameter, SourceError
from sketchselect.execution import LocalEngine
from sketchselect.selectors.sketched import ridge_weights

ROWS = 20
drifting = partial(passing.drifting, n=400, seed=0, sizes=(3, 5))
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
    X = drifting(n=240)
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


DAYS = pd.Timestamp("2023-12-20 23:30") + pd.to_timedelta(np.sort(np.random.default_rng(5).integers(0, 90, 400)), "D")


def dated(form, tmp_path):
    """Return 400 rows of the end of a year and the next one's beginning, their dates, and the vector of them."""
    frame = pd.DataFrame(drifting(p=8 + 37)[:, ::6], columns=list("abcdefgh")).assign(when=DAYS)
    if form == "parquet":
        frame.to_parquet(tmp_path / "t.parquet", index=False, row_group_size=40)
        return tmp_path / "t.parquet", "when"
    if form == "text":
        frame.to_csv(tmp_path / "t.csv", index=False)
        with pytest.warns(UserWarning, match="text"):
            return sks.convert(tmp_path / "t.csv", tmp_path / "t.zarr", chunks=(20, 8)), "obs/when"
    if form == "array":
        return frame.drop(columns="when"), DAYS.to_numpy()
    return {"pandas": frame, "polars": pl.from_pandas(frame), "dates": frame.assign(when=DAYS.date)}[form], "when"


@pytest.mark.parametrize(
    ("form", "window"),
    [("pandas", None), ("pandas", 3), ("polars", 2), ("dates", 2), ("array", 2), ("parquet", 2), ("text", 2)],
)
@pytest.mark.parametrize(("period", "code"), [("day", "D"), ("week", "W-SUN"), ("month", "M"), ("year", "Y")])
def test_points_of_dates_are_the_periods_of_pandas(form, period, code, window, tmp_path):
    X, when = dated(form, tmp_path)
    options = {"dates": when, "period": period, "window": window, "partition_bytes": 8 * 8 * ROWS}
    line = sks.timeline(X, sks.VarianceSelector(2, normalize=None), **options)
    rows, periods = dated("pandas", tmp_path)[0].drop(columns="when").to_numpy(), DAYS.to_period(code)
    distinct = periods.unique()
    assert line.dates.tolist() == [p.start_time.date() for p in distinct]
    assert line.feature_names == tuple("abcdefgh")
    for i, p in enumerate(distinct):
        counts = periods <= p
        if window is not None:
            counts &= periods >= distinct[max(i - window + 1, 0)]
        assert (line.starts[i], line.rows[i]) == (np.flatnonzero(counts)[0], np.flatnonzero(counts)[-1] + 1)
        np.testing.assert_allclose(line.scores[i], rows[counts].var(axis=0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("place", ["{}/dates.npy", "file://{}/dates.npy", "~/dates.npy"])
def test_dates_beside_a_data_frame_are_in_a_file_or_at_a_url(place, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    np.save(tmp_path / "dates.npy", DAYS.to_numpy())
    frame = pd.DataFrame({"a": np.arange(400.0)})
    lines = [sks.timeline(frame, sks.VarianceSelector(1), dates=d) for d in (place.format(tmp_path), DAYS)]
    np.testing.assert_array_equal(lines[0].dates, lines[1].dates)


def test_dates_that_give_no_timeline_are_refused(tmp_path, monkeypatch):
    X, _ = dated("array", tmp_path)
    selector = sks.VarianceSelector(2)
    few = sks.timeline(X, selector, dates=DAYS, period="week", points=3)
    assert len(few.dates) == 3
    assert few.rows[-1] == 400
    assert str(few.dates[-1]) in repr(few)
    back, holes = DAYS.to_numpy().copy(), pd.Series(DAYS).where(np.arange(400) != 7)
    back[9] = back[300]
    with pytest.raises(BadParameter, match=r"row 10 is of an earlier week.*sort"):
        sks.timeline(X, selector, dates=back, period="week")
    with pytest.raises(SourceError, match=r"row 7, .*is no date"):
        sks.timeline(X, selector, dates=holes)
    with pytest.raises(SourceError, match=r"row 0, '31\.3\.2024', is no date"):
        sks.timeline(X, selector, dates=np.array(["31.3.2024"] * 400))
    with pytest.raises(SourceError, match=r"dates: no column 'dya'.*'day'"):
        sks.timeline(pd.DataFrame({"a": np.arange(400.0), "day": DAYS}), selector, dates="dya")
    with pytest.raises(SourceError, match="no column 'xxx"):
        sks.timeline(pd.DataFrame({"a": np.arange(400.0)}), selector, dates="x" * 5000)
    with pytest.raises(BadParameter, match="'fortnight'"):
        sks.timeline(X, selector, dates=DAYS, period="fortnight")
    with pytest.raises(BadParameter, match="number of periods"):
        sks.timeline(X, sks.GreedySelector(2, window=50), dates=DAYS)
    X.assign(when=DAYS).to_parquet(tmp_path / "tall.parquet", index=False)
    assert len(sks.timeline(tmp_path / "tall.parquet", selector, dates="when", period="week").dates) == 14
    monkeypatch.setattr("sketchselect.selectors.timelines.MOST_DECODED", 1000)
    with pytest.raises(BadParameter, match=r"longer than a period.*longer period"):
        sks.timeline(tmp_path / "tall.parquet", selector, dates="when")
