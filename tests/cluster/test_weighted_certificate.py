"""Certificates of weighted rows: a thousand instances against every partition, and the options that go with them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import sketchselect as sks
from sketchselect.cluster import certify_selection, dropped_columns_certificate
from sketchselect.cluster.certificates.spectral import spectral_bound
from sketchselect.errors import BadBlock, BadParameter
from sketchselect.summaries import BlockBound, FrequentDirections, Moments, block_bound

from .data import blobs
from .exhaustive import cost, solved

INSTANCES = 1000
BATCHES = 10
KINDS = ("equal", "even", "counts", "wide", "zeros", "one heavy", "huge", "tiny")

_ROUNDING = 1e-12
"""Of the exhaustive optimum itself, relative to the sum of squares."""


def weights_of(kind: str, n: int, rng: Any) -> Any:
    """Return row weights; some positive."""
    w = rng.uniform(0.2, 3.0, n)
    if kind == "equal":
        w = np.ones(n)
    elif kind == "counts":
        w = rng.integers(1, 5, n).astype(float)
    elif kind == "wide":
        w = 10.0 ** rng.uniform(-8, 8, n)
    elif kind == "zeros":
        w = w * (rng.random(n) < 0.7)
        w[0] = 1.0
    elif kind == "one heavy":
        w[-1] = 1e6
    elif kind in ("huge", "tiny"):
        w = w * {"huge": 1e60, "tiny": 1e-60}[kind]
    return w


def instance(number: int) -> tuple[Any, Any, int, Any]:
    """Return rows, their weights, a number of clusters, and what draws more."""
    rng = np.random.default_rng([7, number])
    k, p = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    n = int(rng.integers(k + 1, 12 if k < 4 else 11))
    X = rng.choice([0.0, 1.0, 8.0]) * rng.standard_normal((k, p))[rng.integers(0, k, n)] + rng.standard_normal((n, p))
    if number % 5 == 0:
        X = X[rng.integers(0, n, n)]
    if number % 4 == 0:
        X = np.round(X * 1024) / 1024 + np.array([1e8, -1e8, 3e9, 1e6])[:p]
    elif number % 3 == 0:
        X[:, 1:] = X[:, :1] * 1e-7
    X = X * {1: 1e-80, 2: 1e80}.get(number % 9, 1.0)
    return X, weights_of(KINDS[number % len(KINDS)], n, rng), k, rng


@pytest.mark.slow
def test_the_oracle_is_the_best_of_all_weighted_partitions() -> None:
    for number in range(0, 70, 3):
        X, w, k, _ = instance(number)
        X, w = X[:6], w[:6]
        w = w if number % 2 else np.ones(len(X))
        every = (np.array(labels) for labels in itertools.product(range(k), repeat=len(X)))
        best, partition = solved(X, k, w if number % 2 else None)
        slack = _ROUNDING * float(w @ ((X - X[0]) ** 2).sum(axis=1))
        assert best == pytest.approx(min(cost(X, labels, w) for labels in every), rel=1e-9, abs=slack)
        assert cost(X, partition, w) == pytest.approx(best, rel=1e-9, abs=slack)


@pytest.mark.share(1)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_lower_bound_is_above_the_weighted_optimum(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spectral from exact moments and from a sketch, and block bounds of one block, of two, and of some of several."""
    wrong = 0
    for number in range(batch, INSTANCES, BATCHES):
        monkeypatch.setattr(block_bound, "ITERATIONS", 100 if number % 20 == 0 else 10)
        X, w, k, rng = instance(number)
        n, cut = len(X), len(X) // 2
        best, partition = solved(X, k, w)
        slack = _ROUNDING * float(w @ ((X - X[0]) ** 2).sum(axis=1))
        for description in (Moments(), FrequentDirections(size=2)):
            left = description.from_block(X[:cut], sample_weight=w[:cut])
            summary = left.merge(description.from_block(X[cut:], start=cut, sample_weight=w[cut:]))
            assert spectral_bound(summary, k)[0] <= best + slack, number
            support = np.sort(rng.choice(X.shape[1], int(rng.integers(1, X.shape[1] + 1)), replace=False))
            there = cost(X[:, support], partition, w)
            if there >= spectral_bound(summary, k)[0]:
                assert (
                    dropped_columns_certificate(summary, there, support, k).objective >= cost(X, partition, w) - slack
                ), number
            best_there = solved(X[:, support], k, w)[0]
            if best_there > slack and best > slack:
                promise = certify_selection(summary, support, k).factor(max(there / best_there, 1.0))
                assert promise * best >= cost(X, partition, w) - slack * (1 + promise), number
        for rows in (n, max(cut, 2)):
            bound = BlockBound(k, block_rows=rows, seed=number).from_block(X, sample_weight=w)
            assert bound.lower_bound() <= best + slack, number
        some = BlockBound(k, block_rows=k + 1, fraction=0.5, seed=number).from_block(X, sample_weight=w)
        assert some.lower_bound() <= best + slack, number
        wrong += some.lower_bound(0.9) > best + slack
    # Right nine times in ten, and no more often, it would be wrong this often once in a thousand times.
    assert wrong <= 21


def test_whole_numbers_of_a_row_are_as_many_rows() -> None:
    X = blobs(3, 40, 4)
    counts = np.random.default_rng(0).integers(0, 4, 40)
    labels, repeated = np.arange(40) % 3, np.repeat(X, counts, axis=0)
    for method in ("blocks", "spectral"):
        found = sks.certify_labels(X, labels, 3, method, sample_weight=counts)
        same = sks.certify_labels(repeated, np.repeat(labels, counts), 3, method)
        assert found.objective == pytest.approx(same.objective, rel=1e-12)
        # The dual is climbed on another matrix, so block bounds agree as far as both are converged.
        assert found.lower_bound == pytest.approx(same.lower_bound, rel=1e-9 if method == "spectral" else 0.02)
        assert found.factor == pytest.approx(found.objective / found.lower_bound, rel=1e-12)


@pytest.mark.share(4)
@pytest.mark.parametrize("number", range(3, 203, 10))
def test_factors_are_never_too_small(number: int) -> None:
    """From labels to the certificate, of the best partition and of another one; dense and sparse."""
    X, w, k, rng = instance(number)
    best, partition = solved(X, k, w)
    slack = _ROUNDING * float(w @ ((X - X[0]) ** 2).sum(axis=1))
    for labels, rows in ((partition, X), (rng.integers(0, k, len(X)), csr_array(X))):
        value = cost(X, labels, w)
        for method in ("blocks", "spectral"):
            found = sks.certify_labels(rows, labels, k, method, sample_weight=w, client="serial")
            assert found.objective == pytest.approx(value, rel=1e-9, abs=slack)
            assert found.factor * (best + slack) >= value - slack
            assert found.lower_bound <= best + slack


def test_the_same_from_files_and_from_the_rows_and_an_objective(tmp_path: Path) -> None:
    X = blobs(5, 120, 4)
    w = np.random.default_rng(1).uniform(0.0, 2.0, 120)
    km = sks.KMeans(3).fit(X, sample_weight=w)
    for name, values in (("X", X), ("w", w), ("labels", km.labels_)):
        np.save(tmp_path / f"{name}.npy", values)
    files = [str(tmp_path / f"{name}.npy") for name in ("X", "labels", "w")]
    found = sks.certify_labels(files[0], files[1], 3, block_rows=50, sample_weight=files[2])
    value = sks.kmeans_objective(X, km.labels_, 3, sample_weight=w)
    assert value == pytest.approx(cost(X, km.labels_, w), rel=1e-12)
    assert value <= km.inertia_ * (1 + 1e-9)
    assert found.objective == pytest.approx(value, rel=1e-12)
    direct = sks.certify(X, value, 3, block_rows=50, sample_weight=w)
    # The labels balance the blocks.
    assert direct.lower_bound < found.lower_bound <= value
    assert sks.certify_labels(X, km.labels_, 3, block_rows=50, sample_weight=w).lower_bound == found.lower_bound
    assert direct.lower_bound != sks.certify(X, 1e9, 3, block_rows=50).lower_bound
    sketch = sks.summarize(X, sks.Moments(), sample_weight=w)
    assert sks.certify(sketch, value, 3).lower_bound <= value


def test_rows_that_are_left_out_are_seen_whatever_they_weigh() -> None:
    X = blobs(6, 50, 3)
    labels, w = np.arange(50) % 2, np.full(50, 1e9)
    labels[7], w[7] = -1, 1e-9
    with pytest.raises(BadParameter, match=r"rows of weight 1e-09 have a negative label"):
        sks.certify_labels(X, labels, 2, sample_weight=w)
    w[7] = 0.0
    kept = np.arange(50) != 7
    found = sks.certify_labels(X, labels, 2, "spectral", sample_weight=w)
    same = sks.certify_labels(X[kept], labels[kept], 2, "spectral", sample_weight=w[kept])
    assert found.factor == pytest.approx(same.factor, rel=1e-9)


def test_labels_that_cannot_be_are_named_by_their_row() -> None:
    X, labels = blobs(6, 50, 3), np.arange(50) % 2
    labels[31] = 2
    with pytest.raises(BadBlock, match="row 31 has the label 2, but labels of 2 clusters are below 2"):
        sks.certify_labels(X, labels, 2)


def test_weights_are_for_rows() -> None:
    with pytest.raises(BadParameter, match="sample_weight is for rows, and a summary was given"):
        sks.certify(sks.Moments().from_block(np.eye(4)), 3.0, 2, sample_weight=np.ones(4))


@pytest.mark.parametrize("method", ["blocks", "spectral"])
def test_rows_that_all_weigh_nothing_prove_nothing(method):
    X = np.random.default_rng(0).random((20, 3))
    with pytest.raises(BadParameter, match="every sample_weight is zero"):
        sks.certify_labels(X, np.arange(20) % 2, 2, method=method, sample_weight=np.zeros(20))
