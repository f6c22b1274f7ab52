"""The kernels against extended precision: assignment, sums, merges, and what must not change their bits."""

import numpy as np
import pytest

from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.kmeans.assignment import farthest, merge_sums, spread_out
from sketchselect.linalg.kmeans.kernels import multiply, takes_dots
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import read_only

from .data import blobs, exact_distances, exact_sums


def assert_assigned_to_the_nearest(X, centers, rtol):
    """Assert that each row has a centre at its least exact distance, which `assign` returns to `rtol`."""
    labels, distances = lloyd.assign(X, centers)
    exact = exact_distances(X, centers)
    chosen = exact[np.arange(len(X)), labels]
    assert (chosen <= exact.min(axis=1) * (1 + 1e-13)).all()
    np.testing.assert_allclose(distances, chosen.astype(float), rtol=rtol)


@pytest.mark.parametrize(
    ("dtype", "offset"),
    [(d, o) for d in (np.float32, np.float64, np.int64, np.int32) for o in (0.0, 1e8)] + [(np.uint8, 0.0)],
)
def test_assignment_is_that_of_exact_distances(dtype, offset):
    rng = np.random.default_rng(3)
    X = (128 + offset + 30 * rng.standard_normal((3000, 7))).clip(
        0 if not offset else None, 255 if not offset else None
    )
    X = X.astype(dtype)
    assert_assigned_to_the_nearest(X, X[:40].astype(np.float64) + 0.25, rtol=1e-13)


def test_float32_products_alone_would_mislabel():
    """Two centres closer than float32 can tell, far from a third: the exact comparison decides."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((500, 4)), 1e7 + rng.standard_normal((500, 4))])
    centers = np.stack([np.full(4, -0.5), np.full(4, 0.5), np.full(4, 1e7 - 0.5), np.full(4, 1e7 + 0.5)])
    labels, _ = lloyd.assign(X, centers)
    assert (labels == exact_distances(X, centers).argmin(axis=1)).all()


def test_ties_go_to_the_lowest_index():
    X = np.array([[0.0], [1.0], [2.0]])
    labels, distances = lloyd.assign(X, np.array([[2.0], [0.0], [2.0], [0.0]]))
    assert labels.tolist() == [1, 0, 0]
    assert distances.tolist() == [0.0, 1.0, 0.0]
    labels, _ = lloyd.assign(np.ones((5, 3), np.float32), np.ones((200, 3)))
    assert labels.tolist() == [0] * 5


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e25, 1e37])
def test_magnitudes_at_the_ends_of_float32(scale):
    X = blobs(1, 300, 6)
    X = (X * scale).astype(np.float32)
    centers = X[:9].astype(np.float64)
    labels, _ = lloyd.assign(X, centers)
    unit = X.astype(np.float64) / scale
    exact = exact_distances(unit, centers / scale)
    assert (exact[np.arange(len(X)), labels] <= exact.min(axis=1) * (1 + 1e-12)).all()


@pytest.mark.parametrize("scale", [1e-140, 1e140])
def test_magnitudes_far_beyond_float32(scale):
    X = blobs(1, 300, 6)
    labels, distances = lloyd.assign(X * scale, X[:9] * scale)
    exact = exact_distances(X, X[:9])
    assert (exact[np.arange(len(X)), labels] <= exact.min(axis=1) * (1 + 1e-12)).all()
    np.testing.assert_allclose(distances / scale**2, exact.min(axis=1).astype(float), rtol=1e-9, atol=1e-12)


def test_one_outlier_row_beyond_float32_among_ordinary_centres():
    X = np.vstack([blobs(2, 50, 3), [[1e60, 1e60, -1e60]]])
    labels, distances = lloyd.assign(X, X[:5])
    assert np.isfinite(distances).all()
    assert (labels[:50] == exact_distances(X[:50], X[:5]).argmin(axis=1)).all()


def test_a_row_beyond_float32_is_compared_with_all_centres():
    """Of its three products one is infinite and two are not numbers; the distances tie."""
    labels, _ = lloyd.assign(np.array([[1e60, 0.9e60]]), np.array([[1.0, -2.0], [-2.0, 1.0], [1.0, 1.0]]))
    assert labels.tolist() == [0]


@pytest.mark.parametrize("far", [1e37, 1e60, 1e140])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_centre_beyond_float32_among_ordinary_rows(far, dtype):
    X = blobs(2, 50, 3).astype(dtype)
    centers = np.vstack([X[:5], np.full((1, 3), far)])
    labels, distances = lloyd.assign(X, centers)
    assert (labels == exact_distances(X, X[:5]).argmin(axis=1)).all()
    assert np.isfinite(distances).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("offset", "separation"), [(0.0, 5.0), (1e8, 5.0), (1e8, 1e7), (0.0, 1e7), (-1e8, 0.0)])
def test_sums_are_those_of_extended_precision(offset, separation, weighted):
    rng = np.random.default_rng(5)
    X = blobs(5, 2000, 6, separation=separation) + offset
    weights = rng.random(2000) * (rng.random(2000) < 0.8) if weighted else None
    centers = X[rng.choice(2000, 12, replace=False)]
    labels, _, sums = lloyd.assign_and_sum(X, centers, weights)
    weight, mean, within = exact_sums(X, labels, 12, weights)
    spread = np.abs(X).max()
    for result in (sums, lloyd.label_sums(X, labels, 12, weights)):
        np.testing.assert_allclose(result.weight, weight.astype(float), rtol=1e-13)
        np.testing.assert_allclose(result.within, within.astype(float), rtol=1e-11, atol=1e-11)
        heavy = result.weight > 0
        np.testing.assert_allclose(result.mean[heavy], mean[heavy].astype(float), rtol=0, atol=4e-16 * spread + 1e-15)


def test_a_light_outlier_first_does_not_spoil_the_sum_of_squares():
    """The reference point is a row of weight 1e-12 at 1e6: only the second sweep keeps digits."""
    rng = np.random.default_rng(6)
    X = np.vstack([[[1e6, -1e6]], rng.standard_normal((500, 2))])
    weights = np.concatenate([[1e-12], np.ones(500)])
    labels = np.zeros(501, np.int32)
    sums = lloyd.label_sums(X, labels, 1, weights)
    _, _, within = exact_sums(X, labels, 1, weights)
    np.testing.assert_allclose(sums.within, within.astype(float), rtol=1e-12)


def test_merge_of_parts_is_the_whole_also_far_away():
    X = blobs(7, 1500, 4, separation=1e7) + 1e8
    labels = lloyd.assign(X, X[:6])[0]
    parts = [lloyd.label_sums(X[a:b], labels[a:b], 6) for a, b in [(0, 1), (1, 700), (700, 701), (701, 1500)]]
    left = merge_sums(merge_sums(parts[0], parts[1]), merge_sums(parts[2], parts[3]))
    right = merge_sums(parts[0], merge_sums(parts[1], merge_sums(parts[2], parts[3])))
    _, _, within = exact_sums(X, labels, 6)
    for merged in (left, right):
        np.testing.assert_allclose(merged.within, within.astype(float), rtol=1e-12)


def test_merging_a_cluster_without_rows_keeps_the_bits():
    X = blobs(8, 60, 3) + 0.1
    full = lloyd.label_sums(X, np.zeros(60, np.int32), 2)
    other = lloyd.label_sums(X[:7], np.ones(7, np.int32), 2)
    merged = merge_sums(full, other)
    assert merged.mean[0].tobytes() == full.mean[0].tobytes()
    assert merged.within[0] == full.within[0]
    assert merged.mean[1].tobytes() == other.mean[1].tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_and_distances_do_not_depend_on_the_block(dtype, monkeypatch):
    X = blobs(9, 5000, 20).astype(dtype)
    centers = X[::100].astype(float)
    labels, distances = lloyd.assign(X, centers)
    for cut in (1, 7, 2500):
        parts = [lloyd.assign(X[a : a + cut * 500], centers) for a in range(0, 5000, cut * 500)]
        assert np.concatenate([p[0] for p in parts]).tobytes() == labels.tobytes()
        assert np.concatenate([p[1] for p in parts]).tobytes() == distances.tobytes()
    sums = lloyd.assign_and_sum(X, centers)[2]
    monkeypatch.setattr(lloyd, "_PIECE_BYTES", 1)
    small = lloyd.assign_and_sum(X, centers)[2]
    assert small.within.tobytes() == sums.within.tobytes()
    assert small.mean.tobytes() == sums.mean.tobytes()


def test_read_only_input_is_taken_and_left_alone():
    X = blobs(10, 100, 3)
    X.flags.writeable = False
    before = X.tobytes()
    lloyd.assign_and_sum(X, X[:3])
    assert X.tobytes() == before
    assert not X.flags.writeable


def test_no_rows():
    labels, distances, sums = lloyd.assign_and_sum(np.zeros((0, 3)), np.ones((2, 3)))
    assert labels.shape == distances.shape == (0,)
    assert sums.weight.tolist() == [0.0, 0.0]


def test_farthest_are_the_largest_with_ties_by_row():
    distances = np.array([3.0, 0.0, 5.0, 3.0, 5.0, 1.0])
    rows = np.array([10, 11, 12, 9, 1, 2])
    assert farthest(distances, rows, 3).tolist() == [4, 2, 3]
    assert farthest(distances, rows, 10).tolist() == [4, 2, 3, 0, 5]
    assert farthest(np.zeros(4), np.arange(4), 2).tolist() == []


def test_farthest_of_many_are_those_of_a_full_sort():
    rng = np.random.default_rng(12)
    for distances in (rng.integers(0, 50, 3000).astype(float), np.arange(3000.0), rng.standard_normal(3000)):
        rows = rng.permutation(3000)
        positive = np.flatnonzero(distances > 0)
        want = positive[np.lexsort((rows[positive], -distances[positive]))]
        for count in (1, 2, 17, 1000, 5000):
            assert farthest(distances, rows, count).tolist() == want[:count].tolist()
        order = positive[np.lexsort((positive, -distances[positive]))]
        assert farthest(distances, None, 9).tolist() == order[:9].tolist()


def test_spread_out_takes_each_blob_and_stops_at_distinct_rows():
    X = np.repeat(np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]]), 50, axis=0)
    chosen = spread_out(X, np.ones(150), 5, seed=3)
    assert len(chosen) == 3
    assert len(np.unique(X[chosen], axis=0)) == 3
    weights = np.concatenate([np.zeros(50), np.ones(100)])
    assert (spread_out(X, weights, 2, seed=4) >= 50).all()


def test_spread_out_draws_the_first_row_by_weight():
    X = np.arange(1000.0).reshape(-1, 1)
    firsts = np.array([spread_out(X, np.ones(1000), 3, seed=s)[0] for s in range(200)])
    assert 400 < firsts.mean() < 600
    assert firsts.min() < 50
    assert firsts.max() > 950


# Products of rows and centres: within the rounding that Lloyd's steps allow for, whichever way they are computed.

# Rows and centres that fill the tiles, and that do not; both sides of the numbers that decide between the ways.
SHAPES = [
    (n_rows, n_features, n_clusters)
    for n_rows in (1, 5, 6, 7, 12, 100)
    for n_features in (16, 127, 128, 131, 200)
    for n_clusters in (1, 2, 3, 10, 32, 33)
]


@pytest.mark.share(30)
@pytest.mark.parametrize(("n_rows", "n_features", "n_clusters"), SHAPES)
def test_products_are_within_the_rounding_of_a_sum_in_any_order(n_rows, n_features, n_clusters):
    rng = np.random.default_rng(n_rows + n_features + n_clusters)
    # A factor of 1e4 between columns: the order of summation shows in the last digits.
    rows = (rng.standard_normal((n_rows, n_features)) * 10 ** rng.uniform(-2, 2, n_features)).astype(np.float32)
    factors = rng.standard_normal((n_clusters, n_features)).astype(np.float32)
    products, turning = np.full((n_clusters, n_rows), np.nan, np.float32), np.empty(n_rows * n_clusters, np.float32)
    with one_blas_thread():
        multiply(read_only(rows), factors, np.ascontiguousarray(factors.T), turning, products)
    exact = factors.astype(np.float64) @ rows.T.astype(np.float64)
    allowed = n_features * 2.0**-24 * (np.abs(factors).astype(np.float64) @ np.abs(rows.T).astype(np.float64))
    assert (np.abs(products - exact) <= allowed).all()


def test_few_centres_of_long_rows_are_multiplied_without_blas():
    assert takes_dots(784, 10)
    assert not takes_dots(16, 10)
    assert not takes_dots(784, 100)
    assert not takes_dots(784, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n_rows", "n_clusters"), [(4, 2), (50, 3), (301, 10), (601, 31)])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_labels_of_long_rows_are_those_of_exact_distances(dtype, n_rows, n_clusters, offset):
    rng = np.random.default_rng(n_rows)
    X = (offset + rng.standard_normal((n_rows, 150))).astype(dtype)
    # Centres in pairs that float32 products cannot tell apart.
    centers = offset + rng.standard_normal((n_clusters, 150))
    centers[1::2] = centers[: n_clusters - 1 : 2] * (1 + 1e-9)
    assert_assigned_to_the_nearest(X, centers, rtol=1e-12)
