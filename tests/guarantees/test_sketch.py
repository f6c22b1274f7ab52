"""Sketches, also of fading rows and of batches: ``0 <= A'A - B'B <= Delta I`` and the same about the mean, any tree.

    0 <= A_c'A_c - B_c'B_c <= shrinkage,    shrinkage <= ||A_c - (A_c)_k||_F^2 / (l - k)    for every k < l
    sigma_i^2 - shrinkage <= s_i^2 <= sigma_i^2,    norms of columns exact,    Delta = 0 if columns <= min(15 l, 2048)
    shrinkage <= 5/4 ||A_c - (A_c)_k||_F^2 / (l - 5/4 k)    for k < 4/5 l and rows of float32, of which the sum of the
    negative eigenvalues of A'A - B'B and of A_c'A_c - B_c'B_c is at least -single_rounding, 0 for other rows
    ||A_c'A_c - G||_F <= single_rounding <= 2e-5 ||A_c||_F^2 for the Gram matrix G of float32 rows in few columns

Eigenvalues of the differences from the rows themselves (of float32: in long double); rounding: 1e-13 of ||A||_2^2 a
row, which the docstring states.
"""

import itertools

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.linalg.spectrum import subspace_angle
from sketchselect.summaries import BatchDirections, DecayedDirections

from .instances import each_instance, matrix, merged, pieces


def instance(seed):
    rng = np.random.default_rng(seed)
    n, size = int(rng.integers(1, 120)), int(rng.integers(2, 5))
    wide = seed % 4 > 0
    p = int(rng.integers(15 * size + 1, 90)) if wide else int(rng.integers(1, 15 * size))
    return rng, matrix(rng, n, p), size, wide


def require_bounds(sketch, A, center):
    n = len(A)
    weights = (A**2).sum()
    for B, D in ((sketch.sketch, A), (sketch.centered_sketch, center)):
        rounding = 1e-13 * (n + 8) * max(np.linalg.norm(D, 2) ** 2, 1e-3 * weights)
        difference = np.linalg.eigvalsh(D.T @ D - B.T @ B)
        assert difference[0] >= -rounding
        assert difference[-1] <= sketch.shrinkage + rounding
    assert np.allclose(sketch.column_squared_norms, (A**2).sum(axis=0), rtol=1e-12 * (n + 8), atol=0)


@each_instance
def test_the_sketch_loses_at_most_its_shrinkage(seeds):
    lossy = 0
    for seed in seeds:
        rng, X, size, wide = instance(seed)
        sketch = merged(rng, sks.FrequentDirections(size), X)
        centered = X - X.mean(axis=0)
        require_bounds(sketch, X, centered)
        assert sketch.is_exact == (not wide)
        assert wide or sketch.shrinkage == 0
        squares = np.linalg.svd(centered, compute_uv=False) ** 2
        for k in range(size):
            rounding = 1e-12 * len(X) * (squares[:1].sum() + X.shape[1] * 1e-12 * (X**2).sum())
            assert sketch.shrinkage * (size - k) <= squares[k:].sum() + size * rounding
        lossy += sketch.shrinkage > 1e-6 * (X**2).sum()
    assert lossy


@each_instance
def test_the_rounding_of_products_in_float32_is_in_the_shrinkage(seeds):
    """Blocks of many shrinks: spectra from flat to i^-4, low rank, copies, offsets, unequal rows, 1e-30 to 1e30."""
    rounded = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, p, size = int(rng.integers(60, 300)), int(rng.integers(70, 200)), int(rng.integers(2, 5))
        X = matrix(rng, n, p) * (1.0 + np.arange(p)) ** -float(rng.choice([0, 0, 0.5, 1, 4]))
        X = (X * rng.choice([1e-30, 1.0, 1e30])).astype(np.float32)
        A = X.astype(np.longdouble)
        center = A - A.mean(axis=0)
        sketch = (
            merged(rng, sks.FrequentDirections(size), X) if seed % 2 else sks.FrequentDirections(size).from_block(X)
        )
        squares = np.linalg.svd(center.astype(float), compute_uv=False) ** 2
        # The mean is rounded to float64, which for rows far from zero is more than the rounding of what is about it.
        mean = float(np.linalg.norm(np.abs(A).max(axis=0)))
        off = 2.0**-48 * mean * np.sqrt(n)
        for B, D in ((sketch.sketch, A), (sketch.centered_sketch, center)):
            total = float((D**2).sum())
            rounding = 1e-13 * (n + 8) * total + off * (np.sqrt(total) + off)
            wide = B.astype(np.longdouble)
            difference = np.linalg.eigvalsh((D.T @ D - wide.T @ wide).astype(float))
            assert -np.minimum(difference + rounding, 0).sum() <= sketch.single_rounding
            assert difference[-1] <= sketch.shrinkage + rounding
        for k in range(size):
            if k < 0.8 * size:
                tail = squares[k:].sum() + 1e-12 * n * (squares.sum() + off * (np.sqrt(squares.sum()) + off))
                assert sketch.shrinkage * (size - 1.25 * k) <= 1.25 * tail
        other = sks.FrequentDirections(size).from_block(X.astype(float))
        assert other.single_rounding == 0
        assert sketch.single_rounding <= sketch.shrinkage / 16
        rounded += sketch.single_rounding > 0
    assert rounded


@each_instance
def test_a_gram_matrix_of_float32_rows_is_exact_where_directions_are_near_rounding(seeds):
    """Low ranks beside strong directions, and whole numbers, whose products are in float32."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, p, rank = int(rng.integers(128, 400)), int(rng.integers(64, 120)), int(rng.integers(1, 4))
        X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p)) + 10.0 ** rng.choice(
            [-9, -4]
        ) * rng.standard_normal((n, p))
        X = (rng.integers(-100, 100, (n, p)) if seed % 3 == 0 else X).astype(np.float32)
        sketch = merged(rng, sks.FrequentDirections(60), X)
        A = X.astype(float) - X.astype(float).mean(axis=0)
        assert sketch.single_rounding == sketch.shrinkage == 0
        assert np.linalg.norm(A.T @ A - sketch.record.gram) <= 1e-13 * n * (A**2).sum()


@each_instance
def test_a_gram_matrix_of_products_in_float32_is_within_its_rounding_and_near_in_every_direction(seeds):
    """Rows that fade or not: spectra from flat to i^-1, copies, offsets, units from 1e-15 to 1e15, one block or two.

    In no direction does rounding change the squares by a quarter, and where there are none, there are none.
    """
    rounded = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        p = int(rng.integers(64, 90))
        n = p * int(rng.integers(4, 10))
        turn = np.linalg.qr(rng.standard_normal((p, p)))[0]
        X = rng.standard_normal((n, p)) * (1.0 + np.arange(p)) ** -float(rng.choice([0, 0, 0.5, 1])) @ turn
        X = np.where(np.arange(p) % 3 == 0, X**3, X) + rng.choice([0, 0, 3])
        X = (X * 10.0 ** (rng.choice([0, 15]) * rng.uniform(-1, 1, p))).astype(np.float32)
        X[:, 4], X[:, 7], X[:, 9] = 2 * X[:, 3], X[:, 5] - X[:, 6], np.where(np.arange(n) == 5, 0.3, X[0, 9])
        half_life = n if seed % 3 == 0 else None
        kind = sks.FrequentDirections(8) if half_life is None else DecayedDirections(8, half_life=half_life)
        sketch = kind.from_block(X)
        if seed % 2:
            sketch = kind.from_block(X[: 3 * n // 4]).merge(kind.from_block(X[3 * n // 4 :], start=3 * n // 4))
        rounded += sketch.single_rounding > 0
        A = X.astype(np.longdouble)
        w = np.ones(n) if half_life is None else 0.5 ** ((n - 1 - np.arange(n)) / half_life)
        D = np.sqrt(w)[:, None] * (A - w @ A / w.sum())
        exact, total = (D.T @ D), float((D**2).sum())
        error = (sketch.record.gram - exact).astype(float)
        assert np.linalg.norm(error) <= sketch.single_rounding + 1e-13 * n * total
        assert sketch.single_rounding <= 2e-5 * total
        assert sketch.shrinkage == 0
        norms = np.sqrt(np.diag(exact)).astype(float)
        squares, vectors = np.linalg.eigh((exact / np.outer(norms, norms)).astype(float))
        vectors /= norms[:, None]
        none = squares < 1e-11
        assert np.abs(error @ vectors[:, none] / norms[:, None]).max(initial=0) <= 1e-9
        vectors = vectors[:, ~none] / np.sqrt(squares[~none])
        assert np.abs(np.linalg.eigvalsh(vectors.T @ error @ vectors)).max() < 0.25
    assert rounded


@each_instance
def test_a_sketch_of_batches_loses_at_most_its_shrinkage_whatever_the_batches(seeds):
    lossy = 0
    for seed in seeds:
        rng, X, size, _ = instance(seed)
        stream = BatchDirections(size).empty(X.shape[1])
        for a, b in itertools.pairwise(pieces(rng, len(X))):
            stream = stream.update(X[a:b])
        squares = np.linalg.svd(X, compute_uv=False) ** 2
        rounding = 1e-13 * (len(X) + 8) * squares.sum()
        for sketch in (stream, merged(rng, BatchDirections(size), X)):
            difference = np.linalg.eigvalsh(X.T @ X - sketch.sketch.T @ sketch.sketch)
            assert -rounding <= difference[0] <= difference[-1] <= sketch.shrinkage + rounding
            for k in range(size):
                assert sketch.shrinkage * (size - k) <= squares[k:].sum() + 10 * size * rounding
        lossy += stream.shrinkage > 1e-6 * squares.sum()
    assert lossy


@each_instance
@pytest.mark.parametrize("half_life", [3.0, 50.0])
def test_rows_that_fade_take_their_shrinkage_with_them(seeds, half_life):
    for seed in seeds:
        rng, X, size, _ = instance(seed)
        sketch = merged(rng, DecayedDirections(size, half_life=half_life), X)
        w = 0.5 ** ((len(X) - 1 - np.arange(len(X))) / half_life)
        root = np.sqrt(w)[:, None]
        require_bounds(sketch, root * X, root * (X - w @ X / w.sum()))


@each_instance
@pytest.mark.parametrize("cls", [sks.SketchedRidgeSelector, sks.selectors.SketchedLassoSelector])
def test_the_spectrum_behind_the_scores_is_within_its_bounds(seeds, cls):
    """``s_i^2 <= sigma_i^2 <= s_i^2 + Delta``, and the angle of the top subspaces by the theorem of Davis and Kahan."""
    measured = 0
    for seed in seeds:
        rng, X, _, _ = instance(seed)
        k = int(rng.integers(1, 4))
        if X.shape[1] <= k + 2 or not X.any():
            continue
        chosen = cls(2, n_components=k, sketch_size=k + 2, normalize=None).fit_summary(
            merged(rng, sks.FrequentDirections(k + 2), X)
        )
        summary = chosen.summary_
        sigma, vectors = np.linalg.svd(X, full_matrices=False)[1:]
        squares = np.zeros(X.shape[1])
        squares[: sigma.size] = sigma**2
        found = np.zeros(X.shape[1])
        found[: summary.directions.squares.size] = summary.directions.squares[: X.shape[1]]
        rounding = 1e-13 * (len(X) + 8) * squares[0]
        assert (found <= squares + rounding).all()
        assert (squares <= found + summary.shrinkage + rounding).all()
        bound = subspace_angle(summary.directions.squares, k, summary.shrinkage, X.shape[1])
        if bound is not None and bound < 1:
            # Of directions to which the rows have nothing, any is as good.
            outside = summary.directions.vectors[:k] - summary.directions.vectors[:k] @ vectors[:k].T @ vectors[:k]
            assert np.linalg.norm(outside, 2) <= bound + 1e-9
            measured += 1
    assert measured
