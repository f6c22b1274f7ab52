"""Bounds from a sketch that may exceed its rows, as products in float32 let it: held to the rows themselves.

The sketch is moved by far more than rounding, so that a bound that leaves `single_rounding` out is violated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.cluster.certificates.spectral import spectral_bound
from sketchselect.linalg.leverage import leverage_bounds, spectral_error, tail_ridge
from sketchselect.selectors import SketchedPCA
from sketchselect.selectors.kmeans_columns import column_subspace

N, P, SIZE = 60, 90, 5


def moved(seed: int) -> tuple[Any, Any]:
    """Return rows, and a sketch of them that exceeds them by its `single_rounding`."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) * (1.0 + np.arange(P)) ** -float(rng.choice([0.0, 0.5, 1.0]))
    sketch = sks.FrequentDirections(SIZE).from_block(X)
    B = sketch.centered_sketch * (1 + 0.2 * rng.random())
    B = B + 0.05 * np.linalg.norm(B) / np.sqrt(B.size) * rng.standard_normal(B.shape)
    D = X - X.mean(axis=0)
    difference = np.linalg.eigvalsh(D.T @ D - B.T @ B)
    record = replace(
        sketch.record,
        rows=B,
        shrinkage=max(float(difference[-1]), 1e-9),
        single_rounding=float(-np.minimum(difference, 0).sum()) * (1 + 1e-9),
    )
    return D, sketch._with(record, sketch.context)


SEEDS = pytest.mark.parametrize("seed", range(40))


@SEEDS
def test_no_clustering_is_below_the_spectral_bound(seed: int) -> None:
    D, sketch = moved(seed)
    squares = np.linalg.svd(D, compute_uv=False) ** 2
    for k in range(1, SIZE):
        exact = squares[k - 1 :].sum()
        assert spectral_bound(sketch, k)[0] <= exact
        assert column_subspace(sketch, k).lower_bound(k) <= exact


@SEEDS
def test_remainders_of_columns_are_within_their_bounds(seed: int) -> None:
    D, sketch = moved(seed)
    for k in range(1, SIZE):
        subspace = column_subspace(sketch, k)
        left = D - D @ subspace.vectors @ subspace.vectors.T
        assert ((left**2).sum(axis=0) <= subspace.column_residuals * (1 + 1e-9)).all()
        assert (left**2).sum() <= subspace.residual
        if subspace.angle is not None:
            exact = np.linalg.svd(D)[2][:k].T
            outside = subspace.vectors - exact @ (exact.T @ subspace.vectors)
            assert np.linalg.norm(outside, 2) <= subspace.angle + 1e-9


@SEEDS
def test_leverage_scores_are_within_their_bounds(seed: int) -> None:
    D, sketch = moved(seed)
    directions, gained = sketch.centered_directions, sketch.single_rounding
    gram, norms = D.T @ D, (D**2).sum(axis=0)
    tail = (np.linalg.svd(D, compute_uv=False)[2:] ** 2).sum() / 2
    ridge = tail_ridge(directions, float(norms.sum()), sketch.shrinkage, 2, gained)
    assert ridge <= tail * (1 + 1e-12)
    for ridge in (0.5 * gained, 1.5 * gained, 3 * gained, 10 * gained, 100 * gained, tail):
        exact = np.diag(np.linalg.solve(gram + ridge * np.eye(P), gram))
        lower, upper = leverage_bounds(directions, norms, sketch.shrinkage, ridge, gained)
        assert (lower <= exact + 1e-9).all()
        assert (exact <= upper + 1e-9).all()


@SEEDS
def test_the_error_of_a_sample_is_at_most_what_is_said(seed: int) -> None:
    D, sketch = moved(seed)
    gained = sketch.single_rounding
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(N)[: int(rng.integers(2, N))])
    sample = D[chosen] * np.sqrt(N / chosen.size)
    gram = D.T @ D
    for ridge in (0.5 * gained, 1.5 * gained, 3 * gained, 100 * gained):
        root = np.linalg.inv(np.linalg.cholesky(gram + ridge * np.eye(P)))
        exact = np.abs(np.linalg.eigvalsh(root @ (sample.T @ sample - gram) @ root.T)).max()
        bound = spectral_error(sample, sketch.centered_directions, sketch.shrinkage, ridge, gained)
        assert exact <= bound * (1 + 1e-9)


@SEEDS
def test_variances_are_within_their_intervals(seed: int) -> None:
    D, sketch = moved(seed)
    pca = SketchedPCA(n_components=SIZE - 2).fit_summary(sketch)
    exact = np.linalg.svd(D, compute_uv=False)[: pca.n_components_] ** 2 / (N - 1)
    low, high = pca.explained_variance_bounds_.T
    assert (low <= exact * (1 + 1e-9)).all()
    assert (exact <= high * (1 + 1e-9)).all()
