"""A thousand small instances solved by trying every partition: no certificate, of any method, is ever violated."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sketchselect.cluster import certify_selection, dropped_columns_certificate
from sketchselect.cluster.certificates.spectral import spectral_bound
from sketchselect.selectors.kmeans_columns import certify_weighted_columns, column_subspace
from sketchselect.summaries import BlockBound, FrequentDirections, Moments, block_bound

from .exhaustive import cost, solved

INSTANCES = 1000
BATCHES = 40

_ROUNDING = 1e-12
"""Of the exhaustive optimum itself, relative to the scatter: sums of a dozen squares."""


@dataclass(frozen=True)
class Instance:
    """Rows, number of clusters, the best objective and its partition, and a selection of columns."""

    X: Any
    k: int
    best: float
    partition: Any
    support: Any
    slack: float
    rng: Any


def instance(number: int) -> Instance:
    """Return one of a thousand: blobs, integers, duplicates, far from the origin, tiny and huge."""
    rng = np.random.default_rng(number)
    kind = ("blobs", "integers", "duplicates", "far", "tiny", "huge", "line")[number % 7]
    k, p = int(rng.integers(2, 5)), int(rng.integers(1, 5))
    n = int(rng.integers(k + 1, 13 if k < 4 else 12))
    centers = rng.choice([0.0, 1.0, 8.0]) * rng.standard_normal((k, p))
    X = centers[rng.integers(0, k, n)] + rng.standard_normal((n, p))
    if kind == "integers":
        X = rng.integers(-2, 3, (n, p)).astype(float)
    elif kind == "duplicates":
        X = X[rng.integers(0, max(k, n // 2), n) % n]
    elif kind == "far":
        X = np.round(X * 1024) / 1024 + np.array([1e8, -1e8, 3e9, 1e6])[:p]
    elif kind == "tiny":
        X = X * 1e-120
    elif kind == "huge":
        X = X * 1e120
    elif kind == "line":
        X[:, 1:] = X[:, :1] * 1e-7
    best, partition = solved(X, k)
    support = np.sort(rng.choice(p, int(rng.integers(1, p + 1)), replace=False))
    slack = _ROUNDING * float(((X - X[0]) ** 2).sum())
    return Instance(X, k, best, partition, support, slack, rng)


def summaries(one: Instance) -> list[Any]:
    """Return the rows' exact moments and a sketch that lost something, both merged from parts."""
    found = []
    for description in (Moments(), FrequentDirections(size=2)):
        cut = len(one.X) // 2
        left = description.from_block(one.X[:cut])
        found.append(left.merge(description.from_block(one.X[cut:], start=cut)))
    return found


@pytest.mark.share(1)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_lower_bound_is_above_the_optimum(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spectral from exact moments and from a sketch; block bounds of all rows at once and of two blocks."""
    for number in range(batch, INSTANCES, BATCHES):
        # Any number of rounds is valid: most instances take few, some as many as users do.
        monkeypatch.setattr(block_bound, "ITERATIONS", 100 if number % 25 == 0 else 10)
        one = instance(number)
        limit = one.best + one.slack
        for summary in summaries(one):
            assert spectral_bound(summary, one.k)[0] <= limit, number
        n = len(one.X)
        whole = BlockBound(one.k, block_rows=n).from_block(one.X)
        assert whole.record.n_blocks == 1
        assert whole.lower_bound() <= limit, number
        halves = BlockBound(one.k, block_rows=max(n // 2, 2), seed=number).from_block(one.X)
        assert halves.lower_bound() <= limit, number


@pytest.mark.share(1)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_upper_bound_is_below_what_it_bounds(batch: int) -> None:
    """Drop bounds after and before clustering, and that of weighted columns, for the best partition and any other."""
    for number in range(batch, INSTANCES, BATCHES):
        one = instance(number)
        chosen = one.X[:, one.support]
        best_there, partition_there = solved(chosen, one.k)
        other = one.rng.integers(0, one.k, len(one.X))
        squares = one.rng.uniform(0.5, 3.0, one.support.size)
        for summary in summaries(one):
            promise = certify_selection(summary, one.support, one.k)
            subspace = column_subspace(summary, one.k)
            weighted = certify_weighted_columns(subspace, one.support, squares, one.k)
            for labels in (partition_there, one.partition, other):
                value, there = cost(one.X, labels), cost(chosen, labels)
                if there >= spectral_bound(summary, one.k)[0]:
                    assert (
                        dropped_columns_certificate(summary, there, one.support, one.k).objective >= value - one.slack
                    ), number
                if best_there > one.slack and one.best > one.slack:
                    gamma = max(there / best_there, 1.0)
                    assert promise.factor(gamma) * one.best >= value - one.slack * (1 + gamma), number
                assert weighted.bound(cost(chosen * np.sqrt(squares), labels)) >= value - one.slack, number


@pytest.mark.slow
def test_a_sample_of_blocks_is_right_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of many small blocks, at 80 %: against the sum over all of the same blocks, which is what is estimated."""
    monkeypatch.setattr(block_bound, "ITERATIONS", 10)
    wrong = better = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = 2 * rng.standard_normal((3, 6))[rng.integers(0, 3, 300)] + rng.standard_normal((300, 6))
        every = BlockBound(3, block_rows=10, seed=seed).from_block(X).lower_bound()
        some = BlockBound(3, block_rows=10, seed=seed, fraction=0.5).from_block(X)
        wrong += some.lower_bound(0.8) > every
        better += some.lower_bound(0.8) > some.lower_bound()
    # Were it right four times in five and no more, more than these would be wrong once in a hundred times.
    assert wrong <= 4
    assert better >= 5


def test_a_sample_of_blocks_never_beats_the_optimum_more_often_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_bound, "ITERATIONS", 10)
    wrong = 0
    for number in range(0, INSTANCES, 10):
        one = instance(number)
        some = BlockBound(one.k, block_rows=one.k + 1, fraction=0.5, seed=number).from_block(one.X)
        wrong += some.lower_bound(0.9) > one.best + one.slack
    assert wrong <= 18
