"""Triangle inequalities of clusterings: they hold for every partition, whatever the multipliers and the weights."""

from __future__ import annotations

import numpy as np
import pytest
from tests.guarantees.rational import partitions

from sketchselect.linalg.kmeans.triangles import Triangles


def clustering(labels, roots):
    """Return the matrix Z of a partition."""
    same = labels[:, None] == labels
    return same * np.outer(roots, roots) / (same @ roots**2)[:, None]


@pytest.mark.parametrize("spread", [0.0, 1.0, 40.0, 150.0])
def test_they_hold_for_every_partition(spread):
    """Also where the weights are of quite different size: of entries that vanish in single precision."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 8))
        roots = 10.0 ** -rng.uniform(0, spread, n)
        roots /= roots.max()
        triangles = Triangles(roots)
        target = rng.standard_normal((n, n)) * np.outer(roots, roots)
        target += target.T
        for _ in range(5):
            triangles.separate(np.abs(target + triangles.adjoint()))
            matrix = (target + triangles.adjoint()).astype(np.float32)
            triangles.project(matrix)
        M = triangles.adjoint()
        assert spread > 1 or len(triangles) > 0
        assert np.array_equal(M, M.T)
        assert np.isfinite(M).all()
        for labels in map(np.array, partitions(n, n)):
            assert (M * clustering(labels, roots)).sum() >= -triangles.rounding


def test_every_violated_one_is_separated_and_no_other():
    """Against all of them, written out, in a matrix of few rows; with weights, of entries over the roots."""
    rng = np.random.default_rng(0)
    Y = rng.random((7, 7))
    Y += Y.T
    roots = rng.uniform(0.5, 1.0, 7)
    Z = Y * np.outer(roots, roots)
    triangles, least = Triangles(roots), 0.05 * np.trace(Z) / (roots @ roots)
    expected = sum(
        Y[i, j] + Y[i, k] - Y[i, i] - Y[j, k] > least and Y[i, j] > least
        for i in range(7)
        for j in range(7)
        for k in range(j + 1, 7)
        if i not in (j, k)
    )
    assert expected > 0
    assert triangles.separate(Z) == expected
    # Those that are there have a multiplier of 0 so far, and are dropped and added again.
    assert triangles.separate(Z) == expected == len(triangles)


def test_sweeps_end_at_the_nearest_matrix():
    """Of the cone of the inequalities and of entries >= 0: feasible and complementary where no sweep moves it."""
    rng = np.random.default_rng(1)
    target = rng.random((8, 8))
    target += target.T
    triangles = Triangles(np.ones(8))
    triangles.separate(target)
    matrix = target.copy()
    for _ in range(3000):
        triangles.project(matrix)
    before = matrix.copy()
    triangles.project(matrix)
    assert np.array_equal(matrix, before)
    assert matrix == pytest.approx(target + triangles.adjoint(), abs=1e-9)
    # What was moved is orthogonal to where it ended: no point of the cone is nearer.
    nearest = np.maximum(matrix, 0.0)
    assert np.linalg.norm(nearest - target) > 0.1
    assert float(((nearest - target) * nearest).sum()) == pytest.approx(0.0, abs=1e-8)
