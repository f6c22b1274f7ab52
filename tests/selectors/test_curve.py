"""The curve of the objective over the number of columns: enumeration, the stated error, order and engines."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import dask.array as da
import numpy as np
import pytest
from scipy.sparse import csr_array

import sketchselect as sks
from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.selectors import METHODS, make
from sketchselect.selectors.auto import AutoSelector, Limit, fewest_within, limit_of, selection_curve, smallest_within
from sketchselect.selectors.curve import (
    ALL_STARTS,
    Coreset,
    Curve,
    CurvePoint,
    SampledClusters,
    best,
    best_of_starts,
    cluster_means,
)
from sketchselect.summaries import RowSample, pick

from .conftest import objective


def blobs(n: int, p: int, k: int, seed: int = 0, noise: float = 1.0) -> np.ndarray:
    """Rows about k centres that the first columns tell apart better than the last."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((k, p)) * np.geomspace(6.0, 0.05, p)
    return centers[rng.integers(k, size=n)] + noise * rng.standard_normal((n, p))


def exhaustive(X: np.ndarray, columns: np.ndarray) -> float:
    """The objective in all columns of the best clustering into two on some columns, of all there are."""
    labels = np.array([(0, *rest) for rest in product((0, 1), repeat=len(X) - 1)])
    costs = [objective(X[:, columns], one) for one in labels]
    return objective(X, labels[int(np.argmin(costs))])


@pytest.mark.share(1)
@pytest.mark.parametrize("seed", range(4))
def test_of_few_rows_the_curve_is_that_of_the_best_clusterings(seed: int) -> None:
    X = blobs(11, 5, 2, seed, noise=0.3)
    curve = selection_curve(X, 2, methods=["greedy", "variance"], sizes=[1, 3, 5], normalize=None)
    whole, coreset = exhaustive(X, np.arange(5)), Coreset(RowSample(100).from_block(X), 2, seed=0)
    scatter = objective(X, np.zeros(11))
    assert curve.objective == pytest.approx(whole, rel=1e-9)
    assert curve.scatter == pytest.approx(scatter, rel=1e-9)
    assert [p.n_features for p in curve.points] == [1, 3, 5, 1, 3, 5]
    for point in curve.points:
        exact = exhaustive(X, point.selection.support)
        assert coreset.clustered(point.selection.support).costs.sum() == pytest.approx(exact, rel=1e-6)
        # Some of ten starts may end elsewhere.
        assert point.low <= exact / whole <= point.high
        assert point.ratio == pytest.approx(exact / whole, rel=1e-3)
        assert curve.gain_left(point) == pytest.approx((scatter - point.ratio * whole) / (scatter - whole), rel=1e-6)


def test_where_clusters_explain_nothing_no_share_of_it_is_left() -> None:
    X = np.eye(2)[[0, 1] * 10] + 1e9
    curve = selection_curve(X, 1, methods=["variance"], sizes=[1], normalize=None)
    assert curve.gain_left(curve.points[0]) is None


def test_a_curve_is_shown_in_one_line_and_printed_as_a_table() -> None:
    curve = selection_curve(blobs(60, 9, 2), 2, methods=["variance", "leverage"], sizes=[2, 5])
    assert repr(curve).startswith("<SelectionCurve: variance, leverage; columns: 2, 5; 60 of 60 rows sampled; lowest: ")
    assert "\n" not in repr(curve)
    _, header, *rows = (line.split() for line in str(curve).splitlines())
    assert header == ["columns", "variance", "leverage"]
    ratios = {(p.n_features, p.method): f"{p.ratio:.3f}" for p in curve.points}
    assert rows == [[str(r), ratios[r, "variance"], ratios[r, "leverage"]] for r in (2, 5)]


def test_costs_are_those_of_the_labels_for_sparse_and_dense_rows_far_from_zero() -> None:
    import scipy.sparse as sp

    X = np.where(np.random.default_rng(0).random((90, 70)) < 0.3, blobs(90, 70, 3, noise=0.3), 0.0)
    for rows in (X, sp.csr_array(X), X + 1e6):
        coreset = Coreset(RowSample(100).from_block(rows), 3, seed=0)
        clusters = coreset.clustered(np.array([0, 2, 5]))
        order = RowSample(100).from_block(rows).indices
        assert clusters.costs.sum() == pytest.approx(objective(X[order], clusters.labels), rel=1e-6)
        assert coreset.scatter == pytest.approx(objective(X, np.zeros(90)), rel=1e-6)
    sparse, dense = (selection_curve(rows, 3, sizes=[4, 8]).to_csv().split()[1:] for rows in (sp.csr_array(X), X))
    assert [line.split(",")[:2] for line in sparse] == [line.split(",")[:2] for line in dense]


@pytest.mark.slow
def test_runs_on_all_rows_are_within_the_stated_error() -> None:
    """The intervals of 40 samples cover the ratio of full runs in at least 90 % of cases, and are not wide."""
    X = blobs(4000, 20, 5, noise=2.0)
    columns = {r: make("variance", n_features_to_select=r, normalize=None).fit(X).support_ for r in (2, 4, 8)}
    whole = sks.kmeans_objective(X, sks.KMeans(5, random_state=0).fit(X).labels_, 5)
    true = {
        r: sks.kmeans_objective(X, sks.KMeans(5, random_state=0).fit(X[:, c]).labels_, 5) / whole
        for r, c in columns.items()
    }
    covered, widths = [], []
    for seed in range(40):
        curve = selection_curve(
            X, 5, methods=["variance"], sizes=list(columns), sample_rows=500, normalize=None, random_state=seed
        )
        covered += [p.low <= true[p.n_features] <= p.high for p in curve.points]
        widths += [p.high - p.low for p in curve.points]
    assert np.mean(covered) >= 0.90
    assert np.median(widths) < 0.1


def test_errors_of_held_out_rows_show_optimism() -> None:
    """Of pure noise in many columns, clusters of few sampled rows flatter themselves: unseen rows cost more."""
    X = np.random.default_rng(0).standard_normal((3000, 60))
    coreset = Coreset(sks.summarize(X, RowSample(100)), 8, seed=0)
    clusters = coreset.clustered()
    assert clusters.unseen > 1.1 * clusters.objective


NESTED = sorted(name for name, cls in METHODS.items() if cls.is_nested)


@pytest.mark.parametrize("method", NESTED)
def test_fewer_columns_of_a_nested_method_are_the_beginning_of_more(method: str) -> None:
    X = blobs(200, 30, 4)
    largest = make(method, n_features_to_select=20).fit(X)
    for r in (1, 4, 11):
        fewer = make(method, n_features_to_select=r).fit_summary(largest.summary_)
        assert sorted(largest.selection_.ranking()[:r]) == fewer.support_.tolist()


def test_every_competitor_has_a_place_of_its_own() -> None:
    places = [cls.auto_priority for cls in METHODS.values() if cls.auto_priority is not None]
    assert len(set(places)) == len(places) >= 5


def test_the_same_bits_for_all_chunks_and_engines() -> None:
    X = blobs(700, 40, 4)
    one = AutoSelector(n_clusters=4).fit(X)
    rows = da.from_array(X, (90, 40))
    threads, serial = (AutoSelector(n_clusters=4).fit(rows, client=client) for client in ("threads", "serial"))
    assert threads.curve_.to_csv() == serial.curve_.to_csv()
    assert threads.support_.tolist() == one.support_.tolist()
    again = AutoSelector(n_clusters=4).fit_summary(one.summary_)
    assert again.curve_.to_csv() == one.curve_.to_csv()


def test_a_run_on_the_selected_columns_is_within_the_tolerance_and_fewer_columns_are_not() -> None:
    X = blobs(3000, 40, 6, noise=2.0)
    whole = sks.kmeans_objective(X, sks.KMeans(6, random_state=1).fit(X).labels_, 6)
    chosen = AutoSelector(n_clusters=6, normalize=None, tolerance=0.1).fit(X)
    labels = sks.KMeans(6, random_state=1).fit(X[:, chosen.support_]).labels_
    assert 2 < len(chosen.support_) < 40
    assert sks.kmeans_objective(X, labels, 6) <= 1.1 * whole
    gain = chosen.curve_.scatter / chosen.curve_.objective - 1.0
    enough = [p for p in chosen.curve_.points if p.high <= 1.1 and p.ratio**0.25 * p.high**0.75 <= 1.0 + 0.1 * gain]
    assert min(p.n_features for p in enough) == len(chosen.support_)
    looser = AutoSelector(n_clusters=6, normalize=None, tolerance=0.6).fit_summary(chosen.summary_)
    assert len(looser.support_) < len(chosen.support_)


def test_the_lowest_objective_wins_and_ties_go_to_fewer_columns_then_to_the_order() -> None:
    def point(method: str, r: int, ratio: float) -> CurvePoint:
        return CurvePoint(method, r, ratio, ratio, ratio, None)  # type: ignore[arg-type]

    a, b, c = point("a", 8, 1.0311), point("b", 8, 1.0300), point("c", 8, 1.02)
    assert best([a, b]) is a
    assert best([a, b, c]) is c
    assert best([a, point("b", 7, 1.04)]).method == "b"  # type: ignore[union-attr]
    assert best([]) is None
    X = blobs(300, 12, 3)
    chosen = AutoSelector(5, n_clusters=3, methods=["variance", sks.GreedySelector(n_components=2)]).fit(X)
    last = {p.method: p.ratio for p in chosen.curve_.points if p.n_features == 5}
    assert list(last) == ["variance", "greedy"]
    assert last[chosen.selection_.method] <= min(last.values()) + 0.002
    assert len(chosen.support_) == 5


def test_several_of_one_method_compete_each_under_its_parameters() -> None:
    """The first two columns make the clusters, and two directions see them; one direction sees one of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 12))
    X[:, [0, 1]] += [12.0, 9.0] * rng.integers(0, 2, (300, 2))
    X[:, [2, 3, 4]] = X[:, [0]] + 0.5 * rng.standard_normal((300, 3))
    for n_components in ((1, 2), (2, 1)):
        methods = [sks.GreedySelector(n_components=m) for m in n_components]
        chosen = AutoSelector(2, n_clusters=4, normalize=None, methods=[*methods, "variance"]).fit(X)
        names = [f"greedy(n_components={m})" for m in n_components]
        assert list(chosen.curve_.methods) == [*names, "variance"]
        assert [line.split(",")[0] for line in chosen.curve_.to_csv().split()[1:]].count(names[0]) >= 1
        for name, m in zip(names, n_components, strict=True):
            point = next(p for p in chosen.curve_.points if p.method == name and p.n_features == 2)
            alone = sks.GreedySelector(2, n_components=m, normalize=None).fit_summary(chosen.summary_)
            assert point.selection.support.tolist() == alone.support_.tolist()
        assert chosen.selection_.method == "greedy"
        assert chosen.selection_.parameters["n_components"] == 2
        assert chosen.selection_.diagnostics["competitor"] == "greedy(n_components=2)"
        assert "best of 3 methods, greedy(n_components=2)," in chosen.selection_.diagnostics["choice"]


def test_parameters_that_tell_methods_apart_are_one_cell_of_the_table() -> None:
    methods = [sks.GreedySelector(n_components=2), sks.GreedySelector(n_components=3, noise=None)]
    table = selection_curve(blobs(60, 6, 2), 2, methods=methods, sizes=[3]).to_csv()
    names = [row["method"] for row in csv.DictReader(table.splitlines())]
    assert names == ["greedy(n_components=2, noise='residual')", "greedy(n_components=3, noise=None)"]


@pytest.mark.share(1)
@pytest.mark.parametrize("seed", range(6))
def test_of_few_rows_clusters_are_as_good_as_those_of_ten_starts(seed: int) -> None:
    """Of 60 rows from ten clusters single starts scatter by a tenth and more."""
    from sklearn.cluster import KMeans as Theirs

    X = blobs(60, 200, 10, seed)
    coreset = Coreset(RowSample(100).from_block(X), 10, seed=0)
    order = RowSample(100).from_block(X).indices
    columns = np.arange(30)
    for chosen in (None, columns):
        labels = coreset.clustered(chosen).labels
        part = X[order] if chosen is None else X[order][:, chosen]
        theirs = [Theirs(10, n_init=10, random_state=s).fit(part).inertia_ for s in range(10)]
        assert objective(part, labels) <= max(theirs) * (1 + 1e-9)


@pytest.mark.parametrize("spread", [1e-4, 0.0])
def test_the_lowest_method_and_those_within_the_error_of_starts_are_clustered_again_from_more(
    monkeypatch: pytest.MonkeyPatch, spread: float
) -> None:
    """From few starts the first is 1 % better than the second, from more 2 % worse; the third is far from both."""
    X = blobs(50, 6, 2)
    methods = {"first": [0, 1], "second": [2, 3], "third": [4, 5]}
    costs = {"first": (1.01, 1.03), "second": (1.02, 1.01), "third": (1.5, 1.0)}
    again = []

    def clustered(self: Coreset, columns: object = None, before: SampledClusters | None = None) -> SampledClusters:
        name = None if columns is None else next(m for m, c in methods.items() if c == list(columns))  # type: ignore[call-overload]
        if before is not None:
            again.append(name)
        cost = 1.0 if name is None else costs[name][before is not None]
        return SampledClusters(np.zeros(50, np.int32), np.full(50, cost / 50), spread, spread, cost, cost)

    monkeypatch.setattr(Coreset, "clustered", clustered)
    chosen = {m: make("variance", n_features_to_select=2).fit(X).selection_ for m in methods}
    for method, columns in methods.items():
        object.__setattr__(chosen[method], "support", np.array(columns))
    curve = Curve(RowSample(100).from_block(X), 2, {m: lambda _, m=m: chosen[m] for m in methods})
    assert best(curve.add(list(methods), 2)).method == "first"  # type: ignore[union-attr]
    while curve.settle(2):
        pass
    assert best(list(curve.result().points)).method == "second"  # type: ignore[union-attr]
    assert sorted(again) == ["first", "second"]


@pytest.mark.parametrize(
    ("limit", "scale", "sizes"), [(Limit(high=1.05), 1.0, {4}), (Limit(ratio=0.9), 0.85, {4, 5, 6})]
)
def test_methods_far_beyond_the_limit_are_not_tried_with_a_few_more_columns(
    monkeypatch: pytest.MonkeyPatch, limit: Limit, scale: float, sizes: set[int]
) -> None:
    """Three starts on four and five columns of the first method look better than ten; the others are 6 and 50 % off.

    Of a limit below k-means on all columns, no excess is relative to it.
    """
    X = blobs(50, 12, 2)
    costs, asked = {"first": 1.0, "close": 1.06, "far": 1.5}, {"first": set(), "close": set(), "far": set()}  # type: ignore[var-annotated]

    def clustered(self: Coreset, columns: Any = None, before: SampledClusters | None = None) -> SampledClusters:
        name = None if columns is None else list(costs)[columns[0]]
        cost = 1.0 if name is None else scale * costs[name]
        if name == "first" and (columns.size < 4 or (before is not None and columns.size < 6)):
            cost = 1.2
        return SampledClusters(np.zeros(50, np.int32), np.full(50, cost / 50), 0.0, 0.0, cost, cost)

    monkeypatch.setattr(Coreset, "clustered", clustered)
    chosen = make("variance", n_features_to_select=2).fit(X).selection_

    def selections(name: str) -> Callable[[int], Any]:
        def selection(size: int) -> Any:
            asked[name].add(size)
            place = list(costs).index(name)
            return replace(chosen, support=np.append(place, np.arange(3, 2 + size)))

        return selection

    curve = Curve(RowSample(100).from_block(X), 2, {name: selections(name) for name in costs})
    assert smallest_within(curve, limit, (1, 9)).n_features == 6
    assert asked["far"] == sizes
    assert asked["close"] == {4, 5, 6}


@pytest.mark.parametrize("better", [True, False])
def test_at_a_settled_size_a_method_takes_its_alternative_where_that_is_better(
    monkeypatch: pytest.MonkeyPatch, better: bool
) -> None:
    """Of the columns of blobs the first tell them apart, and the last do not. Either is clustered from ten starts."""
    monkeypatch.setattr("sketchselect.selectors.curve.CHEAP_FLOPS", 0.0)
    X = blobs(200, 12, 3, noise=0.3)
    first = make("variance", n_features_to_select=2, normalize=None).fit(X).selection_
    last = replace(first, support=np.array([10, 11]))
    own, other = (last, first) if better else (first, last)
    sample = RowSample(500).from_block(X)
    curve = Curve(sample, 3, {"one": lambda _: own}, alternatives={"one": lambda _: other})
    assert curve.add(["one"], 2)[0].selection is own
    assert curve.add_starts(["one"], 2)
    assert curve.settle(2) == better
    assert len(curve._points["one", 2][1].starts) == ALL_STARTS
    point = curve.result().points[0]
    assert point.selection is first
    assert point.ratio == pytest.approx(exact_ratio(X, first.support), rel=1e-6)
    assert not curve.settle(2)


def exact_ratio(X: np.ndarray, columns: np.ndarray) -> float:
    from sklearn.cluster import KMeans as Theirs

    labels = [Theirs(3, n_init=50, random_state=0).fit(part).labels_ for part in (X[:, columns], X)]
    return objective(X, labels[0]) / objective(X, labels[1])


def test_greedy_has_an_alternative_unless_methods_are_named() -> None:
    summary = AutoSelector(n_clusters=4).collect(blobs(100, 12, 4))
    alternatives = AutoSelector(n_clusters=4)._curve(summary).alternatives
    assert list(alternatives) == ["greedy"]
    assert alternatives["greedy"](3).parameters["n_components"] == 4
    assert AutoSelector(n_clusters=4, methods=["greedy"])._curve(summary).alternatives == {}


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_columns_of_noise_that_follow_the_few_that_suffice_are_not_taken(seed: int) -> None:
    """Of 46 columns of variance 1 six tell the clusters apart; with all, the first search ends at 15 to 21."""
    from sklearn.cluster import KMeans as Theirs

    rng = np.random.default_rng(seed)
    centers = 3.0 * rng.standard_normal((6, 6))
    X = np.hstack([centers[rng.integers(6, size=800)] + rng.standard_normal((800, 6)), rng.standard_normal((800, 40))])
    X /= X.std(axis=0)
    chosen = AutoSelector(n_clusters=6, normalize=None).fit(X)
    assert max(chosen.support_) < 6
    point = next(p for p in chosen.curve_.points if p.selection.support.tolist() == chosen.support_.tolist())
    assert point.high <= 1.05
    whole, few = (
        objective(X, Theirs(6, n_init=10, random_state=0).fit(part).labels_) for part in (X, X[:, chosen.support_])
    )
    assert objective(X, np.zeros(800)) - few >= 0.95 * (objective(X, np.zeros(800)) - whole)


@pytest.mark.parametrize("fewer", [None, 3, 4])
def test_a_second_search_changes_the_choice_only_to_half_the_columns_or_fewer(fewer: int | None) -> None:
    """The method takes columns that say nothing first; the alternative does so, too, or does not below a number."""
    X = blobs(300, 12, 3, noise=0.3)
    chosen = make("variance", n_features_to_select=2, normalize=None).fit(X).selection_

    def selection(size: int, first: int = 0) -> Any:
        return replace(chosen, support=np.sort(np.append(np.arange(11, 12 - size, -1), first)))

    def own(size: int) -> Any:
        return selection(size, 0 if size >= 7 else 12 - size)

    def other(size: int) -> Any:
        return None if fewer is None else selection(size, 0 if size >= fewer else 12 - size)

    curve = Curve(RowSample(500).from_block(X), 3, {"one": own}, alternatives={"one": other})
    limit = limit_of(curve, 0.2)
    first = smallest_within(curve, limit, (1, 12))
    table = curve.result().to_csv()
    last, choice = fewest_within(curve, limit, (1, 12))
    assert curve.result().to_csv() == table
    if fewer == 3:
        assert (first.n_features, choice.n_features) == (7, 3)
        assert last is not curve
    else:
        assert last is curve
        assert choice.n_features == first.n_features == 7


@pytest.mark.parametrize("seed", range(3))
def test_a_small_number_is_enough_although_starts_scatter_on_fewer(seed: int) -> None:
    """Two bits make the clusters and two coins do not: the six columns of most variance hold each bit twice.

    Of five, k-means gains more by a coin than by the second bit, which is there once. Halving the rows by a coin
    instead of a bit costs a multiple of the tolerance, so that starts on five columns and fewer scatter.
    """
    rng = np.random.default_rng(seed)
    bits = np.array(list(product((-1.0, 1.0), repeat=4)))[rng.permutation(3200) % 16]
    X = np.hstack([1.5 * bits[:, :2], np.tile(bits[:, 2:], 30) * np.geomspace(1.4, 0.7, 60)])
    X += 0.3 * rng.standard_normal(X.shape)
    chosen = AutoSelector(n_clusters=4, normalize=None, methods=["variance"]).fit(X)
    assert chosen.support_[:6].tolist() == list(range(6))
    assert len(chosen.support_) <= 7  # Sizes are tried a step apart


def test_of_a_given_number_all_compete_and_fewer_columns_are_shown_of_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    X = blobs(300, 20, 3)
    chosen = AutoSelector(8, n_clusters=3).fit(X)
    sizes = {m: [p.n_features for p in chosen.curve_.points if p.method == m] for m in chosen.curve_.methods}
    winner = chosen.selection_.method
    assert sizes == {m: [2, 4, 8] if m == winner else [8] for m in METHODS if METHODS[m].auto_priority is not None}
    monkeypatch.setattr("sketchselect.selectors.auto.MOST_FLOPS", 0)
    assert "deterministic" not in AutoSelector(8, n_clusters=3).fit_summary(chosen.summary_).curve_.methods


def test_a_method_that_cannot_select_as_few_begins_where_it_can() -> None:
    rng = np.random.default_rng(0)
    rows = 10.0 * rng.standard_normal((6, 30))[rng.integers(6, size=400)] + rng.standard_normal((400, 30))
    chosen = sks.AutoSelector(methods=["deterministic"], n_clusters=6, normalize=None).fit(rows)
    assert 6 < chosen.support_.size < 30


def test_all_columns_are_within_every_tolerance() -> None:
    X = np.random.default_rng(0).standard_normal((300, 12))
    chosen = AutoSelector(n_clusters=3, tolerance=1e-9).fit(X)
    assert len(chosen.support_) == 12
    assert chosen.curve_.points[-1].ratio == chosen.curve_.points[-1].high == 1.0


def test_where_no_number_of_columns_that_is_tried_will_do_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sketchselect.selectors.auto.MOST", 6)
    X = np.random.default_rng(0).standard_normal((300, 12))
    with pytest.warns(UserWarning, match="no number of columns up to 6 is within 1e-09"):
        chosen = AutoSelector(n_clusters=3, tolerance=1e-9).fit(X)
    assert len(chosen.support_) == 6


def test_mistakes_are_named() -> None:
    X = blobs(60, 6, 2)
    for parameters, message in (
        ({"methods": ["lasso"]}, "lasso cannot compete"),
        ({"methods": ["auto"]}, "auto cannot compete: it is what compares them"),
        ({"methods": []}, "none was named"),
        ({"methods": ["greedy", "variance", "greedy"]}, "greedy is named twice"),
        ({"methods": ["gredy"]}, "did you mean 'greedy'"),
        ({"tolerance": 0}, "tolerance must be a number above 0"),
        ({"n_features_to_select": "all"}, 'n_features_to_select.*"auto".*all'),
    ):
        with pytest.raises(BadParameter, match=message):
            AutoSelector(**parameters).fit(X)
    with pytest.raises(BadParameter, match="7 columns, but there are 6"):
        selection_curve(X, 2, sizes=[7])
    with pytest.raises(Incompatible, match="row-sample"):
        selection_curve(sks.summarize(X, sks.FrequentDirections(4)), 2)


def spread_signal(n: int, p: int, size: float, seed: int) -> np.ndarray:
    """Rows about five centres that differ a little in every one of p columns, whose noise is larger."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) + size * rng.standard_normal((5, p))[rng.integers(5, size=n)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_few_columns_within_the_objective_are_not_enough_where_clusters_explain_little(seed: int) -> None:
    """Clusters explain a tenth of the scatter: losing half of it is 5 % of the objective. Measured without samples."""
    X = spread_signal(1500, 60, 0.4, seed)
    chosen = AutoSelector(n_clusters=5, normalize=None, methods=["greedy", "variance"]).fit(X)
    scatter, whole = objective(X, np.zeros(1500)), run_on(X, np.arange(60))
    assert (scatter - whole) / scatter < 0.2
    assert run_on(X, chosen.support_) <= 1.05 * whole
    kept = (scatter - run_on(X, chosen.support_)) / (scatter - whole)
    assert kept >= 0.93
    half = AutoSelector(len(chosen.support_) // 2, n_clusters=5, normalize=None, methods=["greedy", "variance"])
    fewer = half.fit_summary(chosen.summary_).support_
    assert (scatter - run_on(X, fewer)) / (scatter - whole) < 0.95


def run_on(X: np.ndarray, columns: np.ndarray) -> float:
    from sklearn.cluster import KMeans as Theirs

    return objective(X, Theirs(5, n_init=10, random_state=0).fit(X[:, columns]).labels_)


def test_clusters_that_say_nothing_of_other_rows_are_no_reason_for_any_columns() -> None:
    X = np.random.default_rng(0).standard_normal((1500, 400))
    selector = AutoSelector(n_clusters=5, normalize=None, sample_rows=100)
    curve = selector._curve(selector.collect(X))
    assert curve.everything.unseen > curve.coreset.scatter
    most = curve.coreset.scatter / curve.everything.objective - 1.0
    explained = pytest.approx(1.0 + 0.05 * most)
    assert limit_of(curve, 0.05) == Limit(1.05, seen=explained, upper=explained)
    clear = spread_signal(1500, 60, 1.0, 0)
    curve = selector._curve(selector.collect(clear))
    gain = curve.coreset.scatter - curve.everything.objective
    most = 1.0 + 0.05 * gain / curve.everything.objective
    assert limit_of(curve, 0.05) == Limit(1.05, seen=most, upper=most)


def test_a_mistake_in_the_call_is_one_line() -> None:
    X = np.random.default_rng(0).standard_normal((60, 6))
    for options, message in (({"methods": "greedy"}, "a list of methods"), ({"sizes": []}, "sizes: none was named")):
        with pytest.raises(BadParameter, match=message):
            selection_curve(X, 2, **options)
    with pytest.raises(Incompatible) as caught:
        selection_curve(RowSample(40).from_block(X), 2)
    assert "\n" not in str(caught.value)
    assert selection_curve(X, 2, methods=["variance"], sizes=[1]).points
    chosen = AutoSelector(1, n_clusters=2, methods=["variance"]).fit(X)
    choice = chosen.selection_.diagnostics["choice"].split(" % of the variance. ")[1]
    assert "variance" in choice
    assert "1 column." in choice
    choices = [
        AutoSelector(n, n_clusters=2, methods=["variance"]).fit(X).selection_.diagnostics["choice"] for n in (1, 5, 6)
    ]
    assert ["nearly all" in choice for choice in choices] == [False, True, False]
    assert ["No column is left out" in choice for choice in choices] == [False, False, True]


def test_columns_that_outweigh_all_others_are_named() -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 3))[rng.integers(3, size=200)] @ rng.standard_normal((3, 8))
    X += rng.standard_normal(X.shape)
    units = X * [1, 1, 1e4, 1, 1, 1, 1, 1]
    selector = AutoSelector(2, n_clusters=3, methods=["variance"], normalize=None)

    def remarks(rows: Any, **options: Any) -> bool:
        return "of the variance of all 8 columns" in selector.fit(rows, **options).selection_.diagnostics["choice"]

    assert remarks(units)
    assert "Column 2 has 100.0 % of the variance" in selector.selection_.diagnostics["choice"]
    assert 'prepare step "standardise"' in selector.selection_.diagnostics["choice"]
    assert remarks(units * 1e-100)
    assert remarks(np.rint(np.abs(units))), "a table of whole numbers"
    counts = np.rint(np.abs(units)) * (np.quantile(X, 0.6) < X)
    for rows in (X, counts, csr_array(units), units[:, [2] * 8]):
        assert not remarks(rows)
    assert not remarks(units, prepare=["standardise"])


# The curve at the limits: units far from one, samples that are too small, arguments of another kind.


def rows(p: int = 12) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((4, p)) * np.geomspace(2.0, 0.5, p)
    return centers[rng.integers(4, size=90)] + rng.standard_normal((90, p))


@pytest.mark.share(8)
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


@pytest.mark.parametrize(("n_rows", "times"), [(2, 1), (5, 1), (3, 20)])
def test_by_default_there_are_no_more_clusters_than_distinct_rows(n_rows: int, times: int) -> None:
    rows = np.repeat(np.random.default_rng(0).normal(size=(n_rows, 10)), times, axis=0)
    selector = AutoSelector(n_features_to_select="auto").fit(rows)
    assert selector.curve_.n_clusters == n_rows
    assert selector.selection_.diagnostics["choice"].startswith(f"{n_rows} clusters explain 100.0 % of the variance")


def test_a_sample_of_fewer_than_two_rows_a_cluster_is_refused_unless_it_is_all_rows() -> None:
    """K-means of k rows into k clusters costs nothing, on whatever columns."""
    X = rows()
    with pytest.raises(BadParameter, match="4 of 90 rows say nothing of 4 clusters; sample at least 8"):
        selection_curve(X, 4, sample_rows=4)
    with pytest.raises(BadParameter, match="sample at least 8"):
        AutoSelector(n_clusters=4, sample_rows=7).fit(X)
    assert AutoSelector(n_clusters=4, sample_rows=8, methods=["variance"]).fit(X).curve_.points
    assert selection_curve(X[:3], 3, sample_rows=3, methods=["variance"]).points[-1].ratio == 1.0


@pytest.mark.parametrize("p", [6, 100])
@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_rows_that_are_all_equal_are_refused(p: int, kind: Callable[..., Any]) -> None:
    with pytest.raises(EmptyInput, match=f"all {p} columns are constant over 50 rows"):
        AutoSelector(n_clusters=3).fit(kind(np.ones((50, p))))


def test_for_a_single_cluster_one_column_is_enough() -> None:
    rows = np.random.default_rng(0).standard_normal((300, 12)) + 7.0
    with pytest.warns(UserWarning, match="1 cluster explains 0.0 %"):
        chosen = AutoSelector(n_clusters=1, normalize=None).fit(rows)
    assert chosen.support_.size == 1


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


@pytest.mark.share(4)
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
        summary = selector.collect(X)
        curve, sample = selector._curve(summary).from_centers(), pick(summary, RowSample.kind)
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
    curve = selector._curve(selector.collect(np.random.default_rng(0).standard_normal((90, 12)))).from_centers()
    assert curve.everything.spread > 0
    curve.add(["variance"], 3)
    alone = next(p for p in curve.result().points if p.n_features == 3)
    for size in (2, 5, 8, 11):
        curve.add(["variance"], size)
    among = next(p for p in curve.result().points if p.n_features == 3)
    assert (alone.low, alone.ratio, alone.high) == (among.low, among.ratio, among.high)


def test_a_tolerance_that_was_meant_in_per_cent_is_warned_of() -> None:
    X = np.random.default_rng(0).standard_normal((60, 5))
    with pytest.warns(UserWarning, match=r"tolerance = 5 .*6 times as large; 0\.05 is 5 %"):
        AutoSelector(n_clusters=3, tolerance=5.0, methods=["variance"]).fit(X)


@pytest.mark.filterwarnings("ignore:tolerance = 9")
@pytest.mark.parametrize("seed", range(3))
def test_columns_that_need_the_centres_of_the_sample_come_with_them_and_it_is_said(seed: int) -> None:
    """Three of twelve columns hold a part of what tells ten clusters apart: k-means has many optima there."""
    rng = np.random.default_rng(seed)
    X = 3.0 * rng.standard_normal((10, 12))[rng.integers(10, size=1000)] + rng.standard_normal((1000, 12))
    options: dict[str, Any] = {"n_clusters": 10, "methods": ["variance"], "normalize": None}
    whole = AutoSelector(3, **options, tolerance=9.0).fit(X)
    chosen = whole.selection_
    fresh = next(p for p in whole.curve_.points if p.n_features == 3)
    begun = whole._curve(whole.summary_).from_centers().at("variance", chosen)
    assert begun.high < fresh.high
    assert "cluster_centers" not in chosen.diagnostics
    assert "ten" in chosen.diagnostics["predicted_starts"]
    between = AutoSelector(3, **options, tolerance=(begun.high + fresh.high) / 2.0 - 1.0).fit_summary(whole.summary_)
    assert between.cluster_centers_ is not None
    assert between.selection_.diagnostics["cluster_centers"] == between.cluster_centers_.tolist()
    assert "Only when started from the cluster centres" in between.selection_.diagnostics["choice"]
    labels = sks.KMeans(10, init=between.cluster_centers_).fit(X[:, between.support_]).labels_
    assert begun.low <= objective(X, labels) / whole.curve_.objective <= begun.high


def test_best_of_ten_starts_is_the_mean_over_all_draws() -> None:
    costs, values = np.array([2.0, 1.0, 3.0]), np.array([0.5, 0.2, 4.0])
    drawn = [values[min(draw, key=lambda i: costs[i])] for draw in product(range(3), repeat=10)]
    away = drawn - np.mean(drawn)
    sides = [2.0 * np.mean(np.where(side, away, 0.0) ** 2) for side in (away < 0, away > 0)]
    assert best_of_starts(costs, values) == pytest.approx((np.mean(drawn), *sides))
    assert np.mean(sides) == pytest.approx(np.var(drawn))


def text_like(seed: int, common: float) -> np.ndarray:
    """Rows of unit length: words of 20 topics by a power law that all share (`common`), weighed by rarity."""
    from sklearn.feature_extraction.text import TfidfTransformer

    rng = np.random.default_rng(seed)
    shared = 1.0 / np.arange(1, 1201)
    topics = rng.dirichlet(np.full(1200, 0.05), size=20)
    words = common * shared / shared.sum() + (1.0 - common) * topics
    counts = [rng.multinomial(1 + rng.poisson(60), words[topic]) for topic in rng.integers(20, size=2500)]
    rows: np.ndarray = TfidfTransformer(sublinear_tf=True).fit_transform(np.array(counts)).toarray()
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_one_word_of_many_is_not_enough_where_topics_explain_little(seed: int) -> None:
    """One cluster costs 1.02 times as much as 20: any column is within 5 % of the objective, and nearly all is lost."""
    X = text_like(seed, 0.9)
    with pytest.warns(UserWarning, match=r"20 clusters explain [1-4]\.\d % of the variance.*say little"):
        chosen = AutoSelector(n_clusters=20, normalize=None).fit(X)
    one = AutoSelector(1, n_clusters=20, normalize=None, methods=["greedy"])
    with pytest.warns(UserWarning, match="say little"):
        single = one.fit_summary(chosen.summary_)
    assert single.curve_.points[0].high <= 1.05
    assert len(chosen.support_) > 1
    scatter = objective(X, np.zeros(len(X)))

    def gained(columns: Any) -> float:
        from sklearn.cluster import KMeans as Theirs

        return scatter - objective(X, Theirs(20, n_init=3, random_state=0).fit(X[:, columns]).labels_)

    # Of the starts of k-means on 2,500 rows alone; the tolerance is that of the estimate.
    whole = gained(slice(None))
    assert gained(chosen.support_) > 0.9 * whole
    assert gained(single.support_) < 0.6 * whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_columns_of_poisson_cells_keep_what_clusters_explain(seed: int) -> None:
    """Six kinds of cells that differ in 25 of 500 genes each: clusters explain a tenth of the scatter."""
    rng = np.random.default_rng(seed)
    means = rng.lognormal(-1.5, 1.2, 500) * np.ones((6, 500))
    for kind in means:
        kind[rng.choice(500, 25, replace=False)] *= 4.0
    kinds = rng.integers(6, size=1800)
    X = np.log1p(rng.poisson(means[kinds] * rng.lognormal(0.0, 0.3, (1800, 1)))).astype(float)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    chosen = AutoSelector(n_clusters=6, normalize=None).fit(X)
    scatter = objective(X, np.zeros(1800))
    assert 0.05 < chosen.curve_.explained < 0.2
    assert chosen.selection_.diagnostics["choice"].startswith(f"6 clusters explain {100 * chosen.curve_.explained:.1f}")

    def gained(columns: Any) -> float:
        from sklearn.cluster import KMeans as Theirs

        return scatter - objective(X, Theirs(6, n_init=10, random_state=0).fit(X[:, columns]).labels_)

    assert gained(chosen.support_) >= 0.95 * gained(slice(None))
    assert chosen.curve_.explained == pytest.approx(gained(slice(None)) / scatter, rel=0.02)


def test_variances_that_only_rounding_tells_apart_do_not_compete():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 12))
    X[:, :3] += 6 * rng.integers(0, 2, (4, 3))[rng.integers(4, size=300)]
    for size in ("auto", 3):
        chosen = sks.AutoSelector(size, n_clusters=4, normalize=None).fit(X, prepare=["standardise"])
        assert "variance" not in {point.method for point in chosen.curve_.points}


def test_no_more_clusters_than_rows():
    with pytest.raises(BadParameter, match="n_clusters: 1000 clusters of 150 rows"):
        sks.AutoSelector(n_clusters=1000).fit(np.random.default_rng(0).standard_normal((150, 5)))
