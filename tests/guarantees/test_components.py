"""Principal components: ``s_i^2 <= (W - 1) lambda_i <= s_i^2 + Delta``, and so the variance of column i of `transform`.

    sine of the angle of the subspaces <= Delta / (s_k^2 - s_{k+1}^2 - Delta),    1 - sum of ratios >= share left over

Oracle: the singular values and vectors of the rows about their mean. Rounding: 1e-13 of ||A_c||_2^2 a row, and that of
means far from zero.
"""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.selectors import SketchedPCA

from .instances import each_instance, matrix, merged


@pytest.mark.filterwarnings("ignore:n_components = ")  # Some instances have fewer directions.
@each_instance
def test_variances_and_angle_are_within_their_bounds(seeds):
    lossy = measured = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        k = int(rng.integers(1, 4))
        n, p = int(rng.integers(2, 120)), int(rng.integers(k, 90))
        X = matrix(rng, n, p)
        pca = SketchedPCA(k).fit_summary(merged(rng, sks.FrequentDirections(k + 1), X))
        C = X - X.mean(axis=0)
        sigma, vectors = np.linalg.svd(C, full_matrices=False)[1:]
        m = pca.n_components_
        squares = np.zeros(p)
        squares[: sigma.size] = sigma**2
        rounding = 1e-13 * (n + 8) * max(squares[0], 1e-3 * float((X**2).sum()))
        low, high = (n - 1) * pca.explained_variance_bounds_.T
        assert (low <= squares[:m] + rounding).all()
        assert (squares[:m] <= high + rounding).all()
        assert np.allclose(pca.components_ @ pca.components_.T, np.eye(m), atol=1e-9)
        scores = pca.transform(X)
        spread = ((scores - scores.mean(axis=0)) ** 2).sum(axis=0)
        assert (low <= spread + rounding).all()
        assert (spread <= high + rounding).all()
        left = ((X - pca.inverse_transform(scores)) ** 2).sum()
        assert left <= (1 - pca.explained_variance_ratio_.sum()) * squares.sum() + (m + 1) * rounding
        lossy += pca.summary_.shrinkage > 1e-6 * squares.sum()
        if pca.subspace_angle_ is not None and pca.subspace_angle_ < 1:
            outside = pca.components_ - pca.components_ @ vectors[:m].T @ vectors[:m]
            assert np.linalg.norm(outside, 2) <= pca.subspace_angle_ + 1e-9
            measured += pca.summary_.shrinkage > 0
    assert lossy
    assert measured
