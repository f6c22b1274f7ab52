"""Bounds of rows between sweeps save comparisons and change no bit."""

from __future__ import annotations

import numpy as np
import pytest

from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.kmeans.lloyd import RowMemory, n_groups, worth_keeping
from sketchselect.summaries import CentroidSums


class Watched(RowMemory):
    """Notes how many rows were compared where bounds were known."""

    def __init__(self, n_rows):
        super().__init__(n_rows)
        self.compared = []

    def note_sweep(self, centers, compared):
        if self._bounds.known:
            self.compared.append(compared)
        super().note_sweep(centers, compared)


def iterate(X, centers, sweeps, weights=None, memory=None):
    """Follow Lloyd's iteration with and without memory; return the memory after asserting equal bits in every sweep."""
    memory = Watched(len(X)) if memory is None else memory
    for _ in range(sweeps):
        plain = lloyd.assign_and_sum(X, centers, weights)
        result = lloyd.assign_and_sum(X, centers, weights, memory=memory)
        for a, b in zip(plain[:2], result[:2], strict=True):
            assert a.tobytes() == b.tobytes()
        for name in ("weight", "mean", "correction", "within"):
            assert getattr(plain[2], name).tobytes() == getattr(result[2], name).tobytes()
        centers = np.where(plain[2].weight[:, None] > 0, plain[2].mean, centers)
    return memory


def cloud(seed, n_rows, n_features, n_blobs, spread=3.0):
    rng = np.random.default_rng(seed)
    means = spread * rng.standard_normal((n_blobs, n_features))
    return means[rng.integers(n_blobs, size=n_rows)] + rng.standard_normal((n_rows, n_features))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1.0), (1e8, 1.0), (0.0, 1e-25), (0.0, 1e15), (-1e4, 1e-3)])
@pytest.mark.parametrize("n_clusters", [1, 5, 40, 150])
def test_every_sweep_has_the_bits_it_has_without_memory(n_clusters, offset, scale, dtype):
    X = (scale * (cloud(n_clusters, 3000, 12, 20) + offset)).astype(dtype)
    iterate(X, X[:n_clusters].astype(float), 14)


@pytest.mark.parametrize("scale", [1e-140, 1e-42, 1e30, 1e140])
def test_magnitudes_that_bounds_in_float32_cannot_hold(scale):
    X = scale * cloud(3, 500, 6, 5)
    iterate(X, X[:20], 10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [5e-24, 2e-23, 1e18, 1.6e18])
@pytest.mark.parametrize(("n_features", "n_clusters"), [(64, 12), (32, 40)])
def test_squares_at_the_ends_of_float32(n_features, n_clusters, scale, dtype):
    X = (scale * cloud(9, 2000, n_features, 10)).astype(dtype)
    iterate(X, X[:n_clusters].astype(float), 10)


def test_most_rows_are_not_compared_once_centres_move_little():
    X = cloud(1, 20_000, 32, 30).astype(np.float32)
    memory = iterate(X, X[:30].astype(float), 20)
    assert len(memory.compared) >= 10
    assert memory.compared[-1] < 0.3 * len(X)


def test_still_centres_compare_no_row_that_was_clear():
    X = cloud(2, 5000, 16, 10).astype(np.float32)
    memory = Watched(len(X))
    for _ in range(5):
        lloyd.assign_and_sum(X, X[:10].astype(float), memory=memory)
    assert memory.compared[-1] <= 20


def test_centres_that_jump_and_come_back():
    X = cloud(4, 3000, 10, 8)
    rng = np.random.default_rng(0)
    memory = Watched(len(X))
    near = X[:12]
    for sweep in range(24):
        centers = near + (
            0.01 * rng.standard_normal(near.shape) if sweep % 6 else 1e3 * rng.standard_normal(near.shape)
        )
        iterate(X, centers, 1, memory=memory)
    assert memory.compared


@pytest.mark.parametrize("offset", [0.0, 30.0, 1e6])
@pytest.mark.parametrize(("n_features", "n_clusters"), [(16, 10), (150, 10), (40, 60)])
def test_lengths_that_are_remembered_without_bounds_change_no_bit(n_features, n_clusters, offset):
    X = (offset + cloud(4, 1500, n_features, 8)).astype(np.float32)
    memory = iterate(X, X[:n_clusters].astype(float), 8, memory=RowMemory(len(X), bounded=False))
    assert all(not memory.bounds_for(X[:n_clusters].astype(float)).lower.size for _ in range(5))
    iterate(X, X[:n_clusters].astype(float), 12)


def test_another_number_of_centres_starts_afresh():
    X = cloud(5, 2000, 6, 4)
    memory = Watched(len(X))
    for n_clusters in (7, 9, 7, 3):
        memory = iterate(X, X[:n_clusters], 6, memory=memory)


def test_ties_duplicates_and_weights():
    rng = np.random.default_rng(6)
    X = rng.integers(0, 3, (4000, 3)).astype(np.float32)
    weights = rng.random(4000) * (rng.random(4000) < 0.7)
    centers = np.concatenate([X[:10], X[:10]]).astype(float) + 0.0
    iterate(X, centers, 8, weights)
    iterate(np.ones((50, 4)), np.ones((6, 4)), 6)


def test_no_rows():
    memory = RowMemory(0)
    for _ in range(5):
        labels, _, sums = lloyd.assign_and_sum(np.zeros((0, 3)), np.ones((2, 3)), memory=memory)
        assert labels.shape == (0,)
        assert sums.weight.tolist() == [0.0, 0.0]


def test_a_sweep_that_failed_leaves_nothing_known(monkeypatch):
    X = cloud(7, 1000, 5, 4)
    memory = iterate(X, X[:6], 5)

    def fail(*args):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(lloyd, "sweep", fail)
        with pytest.raises(MemoryError):
            lloyd.assign_and_sum(X, X[6:12], memory=memory)
    iterate(X, X[:6] + 0.01, 5, memory=memory)


def test_a_summary_keeps_its_labels_when_the_memory_moves_on():
    X = cloud(8, 400, 4, 3)
    memory = RowMemory(400)
    first, sums = CentroidSums(centers=X[:3]).label_block(X, memory=memory)
    before = first.copy()
    CentroidSums(centers=X[50:53]).label_block(X, memory=memory)
    assert first.tolist() == before.tolist()
    assert sums.cluster_means.tobytes() == CentroidSums(centers=X[:3]).from_block(X).cluster_means.tobytes()


def test_groups_and_when_to_keep():
    assert [n_groups(k) for k in (1, 5, 8, 50, 1000)] == [1, 5, 8, 16, 32]
    assert worth_keeping(64, 50)
    assert not worth_keeping(2, 1000)
    assert not worth_keeping(100, 2)
