"""The share of the possible gain that a certificate proves, and the choice between both bounds."""

import itertools
from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.cluster import Certificate
from sketchselect.cluster.certificates import certify

from .data import blobs


@pytest.fixture(scope="module")
def noise() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((1500, 120)), rng.integers(0, 5, 1500)


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, "blocks", "spectral"])
def test_random_labels_on_noise_have_a_small_share_whatever_the_factor(noise, method) -> None:
    X, labels = noise
    found = sks.certify_labels(X, labels, 5, method)
    assert found.scatter == pytest.approx(((X - X.mean(axis=0)) ** 2).sum(), rel=1e-9)
    assert found.share == pytest.approx((found.scatter - found.objective) / (found.scatter - found.lower_bound))
    assert found.share < 0.1
    assert not found.says_much
    assert "this says little about the clusters" in found.sentence()
    assert found.to_dict()["share"] == found.share
    assert Certificate.from_dict(found.to_dict()) == found


def test_the_share_is_no_more_than_that_of_the_optimum() -> None:
    X = blobs(3, 300, 5, separation=8.0)
    best = sks.KMeans(3, n_init=5, random_state=0).fit(X)
    found = sks.certify_labels(X, best.labels_, 3)
    gain = found.scatter - best.inertia_
    assert 0.9 < found.share <= 1.0
    worse = sks.certify_labels(X, np.where(np.arange(300) < 60, 0, best.labels_), 3)
    assert worse.share <= (found.scatter - worse.objective) / gain + 1e-12
    assert f"at least {np.floor(1000 * worse.share) / 10:g} %" in worse.sentence()


@pytest.mark.parametrize(("n_rows", "n_columns", "k"), [(40, 3000, 3), (100, 2000, 10)])
def test_random_labels_on_noise_say_little_with_more_columns_than_rows_too(n_rows, n_columns, k) -> None:
    rng = np.random.default_rng(1)
    found = sks.certify_labels(rng.standard_normal((n_rows, n_columns)), np.arange(n_rows) % k, k)
    assert found.share > 0.5
    assert not found.says_much
    assert "labels drawn at random have" in found.sentence()
    assert Certificate.from_dict(found.to_dict()) == found


def test_clusters_that_are_there_say_much_with_more_columns_than_rows_too() -> None:
    rng = np.random.default_rng(1)
    labels = np.arange(40) % 3
    assert sks.certify_labels(
        rng.standard_normal((3, 3000))[labels] + rng.standard_normal((40, 3000)), labels, 3
    ).says_much


def test_the_share_of_chance_is_the_mean_over_all_orders_of_the_labels() -> None:
    X = np.random.default_rng(2).exponential(size=(6, 3))
    orders = [np.array(one) for one in sorted(set(itertools.permutations([0, 0, 0, 1, 1, 2])))]
    shares = []
    found = sks.certify_labels(X, orders[0], 3, "spectral")
    for labels in orders:
        gain = found.scatter - sks.kmeans_objective(X, labels, 3)
        shares.append(gain / (found.scatter - found.lower_bound))
    assert found.chance_share == pytest.approx(np.mean(shares), rel=1e-9)


def test_one_cluster_has_nothing_to_gain() -> None:
    X = blobs(3, 60, 4)
    found = sks.certify_labels(X, np.zeros(60, int), 1)
    assert found.share is None
    assert "best possible" in found.sentence()


@pytest.mark.slow
def test_an_objective_alone_has_a_share_too(noise) -> None:
    X, labels = noise
    value = sks.kmeans_objective(X, labels, 5)
    expected = ((X - X.mean(axis=0)) ** 2).sum()
    for found in (sks.certify(X, value, 5), sks.certify(X, value, 5, "blocks"), sks.certify(X, value, 5, "spectral")):
        assert found.scatter == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_blocks_are_not_all_solved_where_a_few_promise_less(monkeypatch) -> None:
    """In noise of many columns a block of rows is fitted far better than all rows are."""
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((3000, 200)), rng.integers(0, 5, 3000)
    monkeypatch.setattr(certify, "TRIAL_BLOCKS", 2)
    found = sks.certify_labels(X, labels, 5, client="serial")
    assert found.method == "spectral"
    assert "blocks of rows promise no larger bound" in found.note
    assert found.rows_read == len(X)
    assert found.factor <= sks.certify_labels(X, labels, 5, "blocks", client="serial").factor


@pytest.mark.slow
def test_blocks_are_all_solved_where_a_few_promise_more(monkeypatch) -> None:
    X = blobs(3, 2000, 2, 6, separation=3.0)
    labels = sks.KMeans(6, n_init=3, random_state=0).fit_predict(X)
    monkeypatch.setattr(certify, "TRIAL_BLOCKS", 2)
    events: list[tuple[Any, ...]] = []
    found = sks.certify_labels(X, labels, 6, client="serial", progress=lambda *event: events.append(event))
    (announced,) = (text for kind, text, *_ in events if kind == "note" and "to solve" in text)
    assert announced.startswith(f"block certificate: {found.details['n_blocks']:.0f} blocks of rows to solve, about ")
    assert 'the method "spectral" solves none, a confidence (0.99) a quarter of them' in announced
    alone = [sks.certify_labels(X, labels, 6, method, client="serial") for method in ("spectral", "blocks")]
    assert found.method == "blocks"
    assert found.lower_bound == pytest.approx(max(one.lower_bound for one in alone), rel=1e-9)
    assert found.rows_read == 2 * len(X)
