"""The curve at the limits: units far from one, samples that are too small, arguments of another kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import sketchselect as sks
from sketchselect.errors import BadParameter
from sketchselect.selectors.auto import AutoSelector, selection_curve
from sketchselect.selectors.curve import Coreset, cluster_means
from sketchselect.summaries import RowSample, pick


def rows(p: int = 12) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((4, p)) * np.geomspace(2.0, 0.5, p)
    return centers[rng.integers(4, size=90)] + rng.standard_normal((90, p))


@pytest.mark.parametrize("p", [12, 80])
@pytest.mark.parametrize("exponent", [-480, -270, -140, 140, 270, 480])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_unit_of_the_rows_changes_no_ratio(p: int, exponent: int, sparse: bool) -> None:
    """Powers of two, so that the rows are the same but for the unit; beyond 2^127 float32 has no such numbers."""
    X = np.round(rows(p), 4) * (rows(p) > 0.5) if sparse else rows(p)
    options = {"methods": ["variance"], "sizes": [1, 5], "normalize": None, "sample_rows": 60}
    kind = csr_array if sparse else np.asarray
    curve, scaled = (selection_curve(kind(rows), 4, **options) for rows in (X, X * 2.0**exponent))
    before, after = curve.to_dict(), scaled.to_dict()
    assert after["method"] == before["method"]
    for name in ("n_features", "ratio", "low", "high"):  # the spread of starts is made of logarithms, which round
        assert after[name] == pytest.approx(before[name], rel=1e-9)
    assert scaled.objective == pytest.approx(curve.objective * 2.0 ** (2 * exponent), rel=1e-12)
    assert scaled.scatter == pytest.approx(curve.scatter * 2.0 ** (2 * exponent), rel=1e-12)
    assert max(curve.to_dict()["ratio"]) > 1.01


def test_a_sample_of_fewer_than_two_rows_a_cluster_is_refused_unless_it_is_all_rows() -> None:
    """K-means of k rows into k clusters costs nothing, on whatever columns."""
    X = rows()
    with pytest.raises(BadParameter, match="4 of 90 rows say nothing of 4 clusters; sample at least 8"):
        selection_curve(X, 4, sample_rows=4)
    with pytest.raises(BadParameter, match="sample at least 8"):
        AutoSelector(n_clusters=4, sample_rows=7).fit(X)
    assert AutoSelector(n_clusters=4, sample_rows=8, methods=["variance"]).fit(X).curve_.points
    assert selection_curve(X[:3], 4, sample_rows=3, methods=["variance"]).points[-1].ratio == 1.0


@pytest.mark.parametrize("p", [6, 100])
@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_of_rows_that_are_all_equal_one_column_is_enough(p: int, kind: Callable[..., Any]) -> None:
    chosen = AutoSelector(n_clusters=3).fit(kind(np.ones((50, p))))
    assert chosen.support_.size == 1
    assert {point.ratio for point in chosen.curve_.points} == {1.0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": 5}, "sizes: expected a list of numbers of columns, got 5"),
        ({"methods": 5}, "methods must be a list of methods.* got 5"),
        ({"methods": [5]}, "methods: expected names of methods or selectors, got 5"),
        ({"methods": [AutoSelector]}, "methods: expected names of methods or selectors, got <class"),
    ],
)
def test_arguments_of_another_kind_are_named_in_one_line(options: dict, message: str) -> None:
    with pytest.raises(BadParameter, match=message) as caught:
        selection_curve(rows(), 4, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("seed", range(10))
def test_clusters_on_all_columns_are_as_good_as_those_that_the_rows_were_drawn_from(seed: int) -> None:
    """All ratios have them below the line: a poor local optimum there makes all columns look better than they are."""
    rng = np.random.default_rng(3)
    truth = rng.integers(12, size=2000)
    X = rng.standard_normal((12, 50))[truth] + rng.standard_normal((2000, 50))
    drawn = sum(float(((X[truth == c] - X[truth == c].mean(axis=0)) ** 2).sum()) for c in range(12))
    curve = selection_curve(X, 12, methods=["variance"], sizes=[5], normalize=None, random_state=seed)
    assert curve.objective <= 1.001 * drawn


def test_clusters_of_rows_of_subnormal_numbers_are_those_of_their_multiples() -> None:
    X = 1e-310 * rows()
    sample = RowSample(100).from_block(np.ldexp(X, 1000)), RowSample(100).from_block(X)
    large, small = (Coreset(one, 3, 0).clustered(np.arange(4)).labels for one in sample)
    assert np.unique(large).size == 3
    assert small.tolist() == large.tolist()


@pytest.mark.slow
def test_runs_from_the_clusters_of_the_sample_are_within_the_stated_error() -> None:
    """The intervals of 25 samples cover the ratio of full runs that start from the sample's clusters, and are short."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((5, 20)) * np.geomspace(6.0, 0.05, 20)
    X = centers[rng.integers(5, size=4000)] + 2.0 * rng.standard_normal((4000, 20))
    covered, widths = [], []
    for seed in range(25):
        selector = AutoSelector(n_clusters=5, methods=["variance"], sample_rows=500, normalize=None, random_state=seed)
        selector.drawn_starts = False
        summary = selector.collect(X)
        curve, sample = selector._curve(summary), pick(summary, RowSample.kind)
        start = cluster_means(sample, 5, seed)

        def run(columns: np.ndarray, start: np.ndarray = start) -> float:
            labels = sks.KMeans(5, init=start[:, columns]).fit(X[:, columns]).labels_
            return sks.kmeans_objective(X, labels, 5)

        whole = run(np.arange(20))
        for size in (2, 4, 8):
            (point,) = curve.add(["variance"], size)
            covered.append(point.low <= run(point.selection.support) / whole <= point.high)
            widths.append(point.high - point.low)
    assert np.mean(covered) >= 0.90
    assert np.median(widths) < 0.1


def test_of_runs_from_the_clusters_of_the_sample_a_point_has_the_same_interval_whatever_others_there_are() -> None:
    selector = AutoSelector(n_clusters=9, methods=["variance"], sample_rows=60, normalize=None)
    selector.drawn_starts = False
    curve = selector._curve(selector.collect(np.random.default_rng(0).standard_normal((90, 12))))
    assert curve.everything.spread > 0
    curve.add(["variance"], 3)
    alone = next(p for p in curve.result().points if p.n_features == 3)
    for size in (2, 5, 8, 11):
        curve.add(["variance"], size)
    among = next(p for p in curve.result().points if p.n_features == 3)
    assert (alone.low, alone.ratio, alone.high) == (among.low, among.ratio, among.high)


@pytest.mark.parametrize("drawn", [True, False])
def test_the_selection_says_which_runs_are_predicted(drawn: bool) -> None:
    selector = AutoSelector(n_clusters=4, n_features_to_select=3, normalize=None)
    selector.drawn_starts = drawn
    chosen = selector.fit(rows()).selection_
    assert ("drawn" in chosen.diagnostics["predicted_starts"]) == drawn
