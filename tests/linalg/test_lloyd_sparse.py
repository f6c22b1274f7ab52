"""The nearest centres of sparse rows against extended precision over all columns, and against dense rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from sketchselect.errors import BadBlock
from sketchselect.linalg.csr import as_csr
from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.kmeans.assignment import sparse_mean_products
from sketchselect.summaries import CentroidSums


def counts(seed, n_rows, n_features, density=0.03, dtype=np.float32):
    rng = np.random.default_rng(seed)
    made = sparse.random_array((n_rows, n_features), density=density, random_state=rng, format="csr", data_sampler=None)
    made.data = rng.integers(1, 9, made.nnz).astype(dtype)
    return as_csr(made)


def exact(X, centers):
    """Squared distances in extended precision."""
    rows = X.toarray().astype(np.longdouble)
    return np.stack([((rows - c.astype(np.longdouble)) ** 2).sum(axis=1) for c in np.asarray(centers)], axis=1)


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
    assert result.farthest_rows.tolist() == dense.farthest_rows.tolist()
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
