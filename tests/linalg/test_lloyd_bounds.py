"""Bounds of rows between sweeps save comparisons and change no bit."""

import numpy as np
import pytest
from scipy import sparse
from tests.cluster.exhaustive import solved

from sketchselect.errors import BadBlock
from sketchselect.linalg.csr import as_csr
from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.kmeans.assignment import sparse_mean_products
from sketchselect.linalg.kmeans.lloyd import RowMemory, n_groups, worth_keeping
from sketchselect.linalg.kmeans.sample import WeightedRows
from sketchselect.summaries import CentroidSums
from sketchselect.summaries.block_bound import partition_bound


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


@pytest.mark.share(10)
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
def test_a_memory_without_bounds_changes_no_bit(n_features, n_clusters, offset):
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


# The nearest centres of sparse rows against extended precision over all columns, and against dense rows.


def counts(seed, n_rows, n_features, density=0.03, dtype=np.float32):
    rng = np.random.default_rng(seed)
    made = sparse.random_array((n_rows, n_features), density=density, random_state=rng, format="csr", data_sampler=None)
    made.data = rng.integers(1, 9, made.nnz).astype(dtype)
    return as_csr(made)


def exact(X, centers):
    """Squared distances in extended precision."""
    rows = X.toarray().astype(np.longdouble)
    return np.stack([((rows - c.astype(np.longdouble)) ** 2).sum(axis=1) for c in np.asarray(centers)], axis=1)


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("n_clusters", [1, 7, 60])
def test_labels_and_distances_are_exact(n_clusters, dtype):
    X = counts(1, 600, 300, dtype=dtype)
    rng = np.random.default_rng(2)
    centers = np.abs(rng.standard_normal((n_clusters, 300)))
    centers[0] = X[[3]].toarray()[0]
    labels, distances = lloyd.assign(X, centers)
    want = exact(X, centers)
    np.testing.assert_allclose(distances, want[np.arange(600), labels].astype(float), rtol=1e-12)
    assert (want[np.arange(600), labels] <= want.min(axis=1) * (1 + 1e-13)).all()
    assert distances[3] == 0.0


def test_labels_are_those_of_dense_rows_ties_included():
    """Centres are means of few small counts: many rows are as far from one as from another."""
    X = counts(3, 800, 40, density=0.02, dtype=np.float64)
    centers = np.concatenate([X[:6].toarray(), X[3:9].toarray(), np.zeros((2, 40))])
    labels, distances = lloyd.assign(X, centers)
    dense, apart = lloyd.assign(X.toarray(), centers)
    assert labels.tolist() == dense.tolist()
    np.testing.assert_allclose(distances, apart, rtol=1e-12)


def test_a_row_much_closer_to_its_centre_than_to_the_origin():
    rng = np.random.default_rng(4)
    rows = np.zeros((50, 200))
    rows[:, :10] = 1e6 + rng.random((50, 10))
    centers = np.zeros((3, 200))
    centers[:, :10] = 1e6 + rng.random((3, 10))
    X = as_csr(sparse.csr_array(rows))
    labels, distances = lloyd.assign(X, centers)
    want = exact(X, centers)
    assert labels.tolist() == want.argmin(axis=1).tolist()
    np.testing.assert_allclose(distances, want.min(axis=1).astype(float), rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_summary_of_sparse_rows_is_that_of_dense_rows(weighted):
    X = counts(5, 900, 250, density=0.02)
    rng = np.random.default_rng(6)
    weights = rng.random(900) * (rng.random(900) < 0.9) if weighted else None
    centers = X[:12].toarray().astype(float)
    description = CentroidSums(centers=centers)
    labels, result = description.label_block(X, start=40, sample_weight=weights)
    dense_labels, dense = description.label_block(X.toarray(), start=40, sample_weight=weights)
    assert labels.tolist() == dense_labels.tolist()
    np.testing.assert_allclose(result.cluster_means, dense.cluster_means, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(result.within, dense.within, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(result.inertia(), dense.inertia(), rtol=1e-12)
    assert result.record.far_row.tolist() == dense.record.far_row.tolist()
    assert result.farthest_points.tolist() == dense.farthest_points.tolist()
    again = description.from_block(X, start=40, sample_weight=weights)
    assert again.cluster_means.tobytes() == result.cluster_means.tobytes()
    assert again.within.tobytes() == result.within.tobytes()


def test_sparse_in_form_only_is_taken_too():
    X = counts(7, 300, 30, density=0.6)
    description = CentroidSums(centers=X[:4].toarray())
    labels, result = description.label_block(X)
    dense_labels, dense = description.label_block(X.toarray())
    assert labels.tolist() == dense_labels.tolist()
    np.testing.assert_allclose(result.within, dense.within, rtol=1e-12)


def test_rows_without_entries_and_blocks_without_rows():
    X = as_csr(sparse.csr_array((5, 8)))
    labels, distances = lloyd.assign(X, np.stack([np.ones(8), np.zeros(8)]))
    assert labels.tolist() == [1] * 5
    assert distances.tolist() == [0.0] * 5
    labels, result = CentroidSums(centers=np.ones((2, 8))).label_block(as_csr(sparse.csr_array((0, 8))))
    assert labels.shape == (0,)
    assert result.n_rows == 0


def test_huge_values_are_refused_by_name():
    X = counts(8, 200, 90).astype(np.float64)
    X.data[0] = 1e200
    row, column = 40 + int(np.searchsorted(X.indptr, 0, side="right")) - 1, int(X.indices[0])
    with pytest.raises(BadBlock, match=f"row {row}, column {column}"):
        CentroidSums(centers=np.ones((2, 90))).from_block(X, start=40)


@pytest.mark.parametrize("seed", range(4))
def test_means_that_are_not_held_have_the_products_of_those_that_are(seed: int) -> None:
    """Signed values, so that sums can be zero; rows without weight, an empty cluster and an empty column."""
    rng = np.random.default_rng(seed)
    n, p, k, m = 40, 12, 6, 3
    rows = np.where(rng.random((n, p)) < 0.4, rng.integers(-2, 3, (n, p)), 0).astype(np.float32)
    rows[:, 3] = 0.0
    weights = rng.integers(0, 3, n).astype(float)
    labels = rng.integers(0, k - 1, (n, m)).astype(np.int32)
    totals, norms, paired, products = sparse_mean_products(sparse.csc_array(rows), labels, k, weights, of=1)
    for a in range(m):
        mean = np.zeros((k, p))
        for c in range(k):
            inside = labels[:, a] == c
            assert totals[a, c] == weights[inside].sum()
            if totals[a, c]:
                mean[c] = weights[inside] @ rows[inside] / totals[a, c]
        assert norms[a] == pytest.approx((mean**2).sum(axis=1), rel=1e-12, abs=1e-15)
        assert paired[a] == pytest.approx((mean[: k // 2] * mean[k // 2 :]).sum(axis=1), rel=1e-12, abs=1e-15)
        if a == 1:
            assert products == pytest.approx((rows * mean[labels[:, a]]).sum(axis=1), rel=1e-12, abs=1e-15)
    assert not sparse_mean_products(sparse.csc_array(rows), labels, k, weights)[3].any()


# The lower bound of a block's k-means objective, against every partition there is.


@pytest.mark.slow
def test_better_than_the_spectrum_where_directions_outnumber_clusters():
    X = np.random.default_rng(0).standard_normal((120, 2))
    bound = partition_bound(X, 6)
    assert bound.lower > 1.5 * bound.spectral


def test_one_cluster_is_the_scatter():
    X = np.random.default_rng(0).standard_normal((50, 3)) + 100.0
    exact = float(((X - X.mean(axis=0)) ** 2).sum())
    assert partition_bound(X, 1).lower == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("X", [np.zeros((9, 2)), np.full((9, 2), 3.7), np.eye(3)])
def test_nothing_to_prove(X):
    bound = partition_bound(X, 3)
    assert bound.lower == 0.0
    assert bound.spectral == 0.0


def test_any_number_of_rounds_is_valid():
    X = np.random.default_rng(3).standard_normal((7, 2))
    optimum = solved(X, 2)[0]
    for iterations in (0, 1, 2, 5, 300):
        assert partition_bound(X, 2, iterations=iterations).lower <= optimum * (1 + 1e-12)


@pytest.mark.parametrize(("most", "tol"), [(0, 1e-4), (1, 1e-4), (100, 1e-6), (5, -np.inf)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_runs_of_short_rows_end_where_others_do(
    monkeypatch: pytest.MonkeyPatch, most: int, tol: float, dtype: type
) -> None:
    """With weights, among them zeros, a row of great length, equal rows, and a centre that attracts nothing."""
    rng = np.random.default_rng(most)
    rows = (rng.standard_normal((200, 7)) + 3.0 * rng.integers(0, 3, (200, 1))).astype(dtype)
    rows[17] *= 1e4
    rows[:150:10] = rows[150]
    points = WeightedRows(rows, rng.integers(0, 3, 200).astype(float))
    centers = np.vstack([rows[:4], np.full((1, 7), 1e9)]).astype(np.float64)
    cost, ends, labels = points.clusters(centers, most, tol)
    monkeypatch.setattr("sketchselect.linalg.kmeans.sample.SHORT", 0)
    other, other_ends, others = points.clusters(centers, most, tol)
    assert cost == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(ends, other_ends, rtol=1e-10)
    assert labels.tolist() == others.tolist()
    assert centers[:4].tolist() == rows[:4].tolist()  # Arguments stay


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e18, 1e30])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_labels_of_short_rows_are_those_of_float64(scale: float, shift: float) -> None:
    """Centres that differ by less than float32 sees, and ties: the filter in float32 must decide neither."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((130, 9)) + shift
    centers = np.repeat(rows[:4], 3, axis=0) + np.tile([0.0, 1e-9, 0.0], 4)[:, None] * (1.0 + shift)
    rows, centers = rows * scale, centers * scale
    _, _, labels = WeightedRows(rows, np.ones(130)).clusters(centers, 0, 0.0)
    squares = ((rows[:, None] - centers) ** 2).sum(axis=2)
    least = squares.min(axis=1)
    assert (squares[np.arange(130), labels] <= least * (1 + 1e-12)).all()
    assert (labels % 3 != 2).all()  # Of equal centres the first
