"""Certificates: never violated by the true optimum, exact where the mathematics is, honest where it says nothing."""

import json

import numpy as np
import pandas as pd
import pytest

from sketchselect.cluster import (
    Certificate,
    bounded_certificate,
    certify,
    certify_labels,
    dropped_columns_certificate,
    kmeans_objective,
)
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.summaries import Bundle, ColumnStats, FrequentDirections, Moments

from .data import blobs
from .exhaustive import solved


@pytest.mark.parametrize("seed", range(25))
def test_of_exact_moments_the_bound_is_the_sum_of_the_smallest_squares(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 4))
    X = blobs(seed, 8, 90, int(rng.integers(1, 4)), separation=rng.choice([0.1, 1.0, 10.0])) + rng.choice([0.0, 1e6])
    spectrum = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    exact = certify(Moments().from_block(X), spectrum.sum(), k)
    assert exact.lower_bound == pytest.approx(spectrum[k - 1 :].sum(), rel=1e-6)
    if k == 1:
        assert exact.factor == pytest.approx(1.0, rel=1e-7)
    sketch = certify(FrequentDirections(size=5).from_block(X), spectrum.sum(), k)
    assert sketch.lower_bound <= exact.lower_bound * (1 + 1e-9)


def two_points(n_rows, n_features, offset, seed=0):
    """Rows that take two values, both exact in float64 also at the offset: two clusters cost nothing."""
    a, b = np.round(64 * np.random.default_rng(seed).standard_normal((2, n_features))) / 64 + offset
    return np.where(np.arange(n_rows)[:, None] % 3 == 0, a, b)


@pytest.mark.parametrize(
    ("description", "n_features"), [(Moments(), 5), (FrequentDirections(4), 5), (FrequentDirections(4), 80)]
)
@pytest.mark.parametrize("offset", [0.0, 1e8, 1e12])
def test_rounding_of_means_never_makes_a_bound(description, n_features, offset):
    X = two_points(2000, n_features, offset)
    summary = description.from_block(X[:7])
    for a in range(7, len(X), 7):
        summary = summary.merge(description.from_block(X[a : a + 7]))
    assert certify(summary, 0.0, 2).lower_bound == 0.0


def test_rounding_of_long_sums_never_makes_a_bound():
    X = np.where(np.arange(300_000)[:, None] % 3 == 0, [0.1, 0.7, 0.3, -0.9], [1.3, 0.2, 0.9, 2.2])
    assert certify(Moments().from_block(X), 0.0, 2).lower_bound == 0.0


def test_directions_too_small_for_the_sketch_make_no_bound():
    """Three distinct rows, one of them huge: no cost with three clusters, whatever the sketch drops beside it."""
    X = np.zeros((8001, 100))
    X[0, 0] = 1e9
    X[1::2, 1] = 1.0
    assert certify(FrequentDirections(3).from_block(X), 0.0, 3).lower_bound == 0.0


def test_the_member_is_picked_by_kind():
    X = blobs(1, 60, 4)
    members = {"columns": ColumnStats().from_block(X), "sketch": FrequentDirections(size=8).from_block(X)}
    direct = certify(members["sketch"], 1e6, 3)
    assert certify(members, 1e6, 3).lower_bound == direct.lower_bound
    assert certify(Bundle.of(members), 1e6, 3).lower_bound == direct.lower_bound
    with pytest.raises(Incompatible, match="column-stats"):
        certify(members["columns"], 1.0, 3)


def test_drop_bound_holds_and_says_so():
    X = blobs(2, 200, 6) * np.array([5.0, 4.0, 3.0, 0.3, 0.2, 0.1])
    labels = (X[:, 0] > 0).astype(int)
    moments = Moments().from_block(X)
    support = [0, 1, 2]
    selected = kmeans_objective(X[:, support], labels, 2)
    full = kmeans_objective(X, labels, 2)
    result = dropped_columns_certificate(moments, selected, support, 2)
    dropped = ((X[:, 3:] - X[:, 3:].mean(axis=0)) ** 2).sum()
    assert result.objective == pytest.approx(selected + dropped, rel=1e-12)
    assert result.objective >= full
    assert result.factor >= certify(moments, full, 2).factor
    assert result.factor == pytest.approx(result.objective / result.lower_bound)
    assert "at most" in result.sentence()
    for wrong in ([0, 0], [6], [-1], [0.5], [[0]]):
        with pytest.raises(BadParameter, match="support"):
            dropped_columns_certificate(moments, selected, wrong, 2)


def test_nothing_to_say_and_everything_to_say():
    X = blobs(3, 20, 40)
    lost = certify(FrequentDirections(size=2).from_block(X), 100.0, 15)
    assert lost.lower_bound == 0.0
    assert lost.factor == np.inf
    assert "Nothing can be said" in lost.sentence()
    assert lost.to_dict()["factor"] is None
    assert Certificate.from_dict(lost.to_dict()) == lost
    perfect = certify(Moments().from_block(X), 0.0, 20)
    assert perfect.factor == 1.0
    assert "best possible" in perfect.sentence()
    for k in (20, 21):
        assert certify(Moments().from_block(X), 1.0, k).factor == np.inf
    constant = certify(Moments().from_block(np.full((9, 3), 0.1)), 0.0, 2)
    assert (constant.factor, constant.objective) == (1.0, 0.0)


def test_rows_with_gaps_have_no_certificate():
    X = blobs(7, 30, 4)
    X[3, 1] = np.nan
    with pytest.raises(Incompatible, match="missing values"):
        certify(Moments(missing="pairwise").from_block(X), 1e6, 3)


def test_an_impossible_objective_is_refused():
    X = blobs(4, 100, 5)
    moments = Moments().from_block(X)
    bound = certify(moments, 1e6, 3).lower_bound
    with pytest.raises(BadParameter, match="impossible"):
        certify(moments, 0.99 * bound, 3)
    assert certify(moments, bound * (1 - 1e-8), 3).factor == 1.0
    for wrong in (np.nan, np.inf, -1.0):
        with pytest.raises(BadParameter, match="an objective must be a number at least 0"):
            certify(moments, wrong, 3)
    with pytest.raises(BadParameter, match="n_clusters"):
        certify(moments, 1e6, 0)
    with pytest.raises(BadParameter, match="'spectral'"):
        certify(moments, 1e6, 3, method="guess")


def test_record_in_words_and_numbers():
    result = certify(Moments().from_block(blobs(5, 50, 3)), 1e5, 2)
    plain = result.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert Certificate.from_dict(plain) == result
    assert plain["confidence"] == 1.0
    assert plain["cost"] >= 0
    assert result.details["n_rows"] == 50
    words = Certificate(50.0, 51.0, 1.02, "spectral", 1.0, 0.0, 3).sentence()
    assert "within 2 %" in words
    assert "3 clusters" in words
    assert "within 2.1 %" in Certificate(50.0, 51.0, 1.0200001, "spectral", 1.0, 0.0, 3).sentence()
    assert "factor of 4" in Certificate(1.0, 4.0, 4.0, "spectral", 1.0, 0.0, 1).sentence()


def test_numbers_in_words_are_rounded_to_where_they_stay_true():
    words = Certificate(1.23456789, 1.29876543, 1.052, "spectral", 1.0, 0.0, 3).sentence()
    assert "below 1.23456" in words
    assert "is 1.29877" in words
    assert "is at most 1.29433" in Certificate(1.0, 1.2943211, 1.2943211, "spectral+drop", 1.0, 0.0, 3).sentence()


@pytest.mark.parametrize("method", ["blocks", "spectral"])
@pytest.mark.parametrize("exponent", [-480, -500, -520, -530, -540, -600])
def test_squares_that_vanish_make_no_factor_too_small(method, exponent):
    """Rows times a power of two, which rounds nothing: the true factor is that of the rows as they were."""
    X = blobs(11, 9, 3, 2, separation=1.0)
    best, other = solved(X, 2)[0], np.arange(9) % 2
    true = kmeans_objective(X, other, 2) / best
    result = certify_labels(X * 2.0**exponent, other, 2, method)
    assert result.factor >= true * (1 - 1e-9)
    assert result.to_dict()["factor"] != 1.0
    if exponent <= -540:
        assert result.factor == np.inf
        assert "squares vanish in double precision" in result.sentence()
        assert "multiply the rows by a power of two" in result.sentence()
    if exponent >= -500:
        assert result.factor == pytest.approx(certify_labels(X, other, 2, method).factor, rel=1e-3)


def test_an_objective_of_nothing_is_told_from_one_that_vanished():
    X = np.repeat(blobs(12, 3, 4), 4, axis=0)
    labels = np.repeat(np.arange(3), 4)
    for method in ("blocks", "spectral"):
        result = certify_labels(X, labels, 3, method)
        assert (result.objective, result.factor) == (0.0, 1.0)
        assert result.sentence() == "The clustering is the best possible one with 3 clusters: its inertia is 0."
    # One row is apart by less than can be squared.
    X[4:8, 0] = 0.0
    X[5, 0] = 1e-170
    assert kmeans_objective(X, labels, 3) == 0.0
    result = certify_labels(X, labels, 3)
    assert (result.objective, result.factor) == (0.0, np.inf)
    assert "vanish" in result.sentence()
    weights = np.ones(12)
    weights[5] = 0.0
    assert certify_labels(X, labels, 3, sample_weight=weights).factor == 1.0
    # Of an objective that is only told nothing can be compared, and this is said.
    assert "0 in double precision, where differences below 1e-162 count as none" in certify(X, 0.0, 3).sentence()


def test_labels_may_be_the_one_column_of_a_frame():
    X, labels = np.repeat(9.0 * np.eye(3), 4, axis=0) + np.arange(12)[:, None] % 4, np.arange(12) // 4
    for entries in (labels, np.array(["a", "b", "c"])[labels]):
        factor = certify_labels(X, entries, 3).factor
        assert certify_labels(X, pd.DataFrame({"kind": entries}), 3).factor == factor
    with pytest.raises(ValueError, match=r"shape \(12, 2\)"):
        certify_labels(X, pd.DataFrame({"kind": labels, "other": labels}), 3)


def test_what_a_method_proves_of_its_own_is_a_certificate_too() -> None:
    result = bounded_certificate(50.0, 60.0, 3, 0.0)
    assert (result.factor, result.method, result.confidence) == (1.2, "spectral+selection", 1.0)
    assert result.sentence().startswith("Judged by its selected columns alone, the clustering is within 20 %")
    assert bounded_certificate(0.0, 60.0, 3, 0.0).factor == np.inf
    assert bounded_certificate(0.0, 0.0, 3, 0.0).factor == 1.0
    assert bounded_certificate(5.0, np.inf, 3, 0.0).to_dict()["factor"] is None


def test_a_certificate_prints_as_its_sentence_and_figures() -> None:
    certificate = Certificate(50.0, 51.0, 1.02, "spectral", 0.95, 0.0, 3, details={"n_rows": 9}, scatter=100.0)
    first, *figures = str(certificate).splitlines()
    assert first == certificate.sentence()
    assert repr(certificate) == f"<Certificate: {first}>"
    shown = dict(line.rsplit("  ", 1) for line in figures)
    shown = {name.strip(): value for name, value in shown.items()}
    assert (shown["inertia"], shown["lower bound"], shown["holds"]) == ("51", "50", "with probability 0.95")
    for name, value in shown.items():
        assert f"<td>{name}</td><td>{value}</td>" in certificate._repr_html_()


@pytest.mark.parametrize("method", [None, "spectral", "blocks"])
def test_labels_of_fewer_clusters_are_noted(method: str | None) -> None:
    rows = np.random.default_rng(3).standard_normal((60, 4))
    labels = np.arange(60) % 3
    assert "use 3 of the 5 clusters" in certify_labels(rows, labels, 5, method).sentence()
    assert "clusters that they" not in certify_labels(rows, labels, 3, method).sentence()
