"""Products of rows and centres: within the rounding that Lloyd's steps allow for, whichever way they are computed."""

from __future__ import annotations

import numpy as np
import pytest

from sketchselect.linalg.kmeans import lloyd
from sketchselect.linalg.kmeans.kernels import multiply, takes_dots
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import read_only

from .data import exact_distances

# Rows and centres that fill the tiles, and that do not; both sides of the numbers that decide between the ways.
SHAPES = [
    (n_rows, n_features, n_clusters)
    for n_rows in (1, 5, 6, 7, 12, 100)
    for n_features in (16, 127, 128, 131, 200)
    for n_clusters in (1, 2, 3, 10, 32, 33)
]


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
    labels, distances = lloyd.assign(X, centers)
    exact = exact_distances(X, centers)
    chosen = exact[np.arange(n_rows), labels]
    assert (chosen <= exact.min(axis=1) * (1 + 1e-13)).all()
    np.testing.assert_allclose(distances, chosen.astype(float), rtol=1e-12)
