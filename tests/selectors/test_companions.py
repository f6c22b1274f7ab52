"""The companions of FSDS: lasso on the sketch, MCFS, the Laplacian score, the angle."""

from functools import partial

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

import sketchselect as sks
from sketchselect.errors import Incompatible
from sketchselect.linalg.spectrum import subspace_angle
from sketchselect.selectors import LaplacianScoreSelector, MCFSSelector
from sketchselect.selectors.graph import (
    degrees,
    laplacian_scores,
    mcfs_coefficients,
    neighbour_graph,
    spectral_embedding,
)
from sketchselect.selectors.sketched import lasso_weights, with_marginal_order
from sketchselect.solvers.homotopy import Design, lasso_coefficients


def groups(n=240, p=14, seed=0):
    """Three groups of rows told apart by columns 2, 5 and 9, the rest noise; column 11 repeats column 2."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    for group, column in enumerate((2, 5, 9)):
        X[np.arange(n) % 3 == group, column] += 6.0
    X[:, 11] = X[:, 2]
    return X


# --- the lasso on a design of few rows -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(40, 150), (150, 40)])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("n_nonzero", [1, 4, 17])
def test_lasso_coefficients_are_a_minimum_with_so_many_columns(shape, center, n_nonzero):
    rng = np.random.default_rng(n_nonzero)
    X = rng.standard_normal(shape) * rng.uniform(0.1, 3, shape[1]) + 2.0
    X *= rng.random(shape) < 0.5
    X[:, 3], X[:, 8] = X[:, 7], 0
    y = X[:, :5] @ np.array([1.0, -2, 3, 1, 1]) + rng.standard_normal(shape[0])
    D = X - X.mean(axis=0) if center else X
    y = y - y.mean() if center else y
    b = lasso_coefficients(Design(X, center=center), y, n_nonzero)
    used = np.flatnonzero(b)
    assert used.size == n_nonzero
    residual = D.T @ (y - D @ b)
    alpha = np.abs(residual).max()
    # Optimality: |D'r| is alpha on the support, with the sign of the coefficient, and nowhere above.
    assert np.allclose(residual[used] * np.sign(b[used]), alpha, rtol=1e-9)
    assert not {3, 7} <= set(used)
    sparse = lasso_coefficients(Design(sp.csr_array(X), center=center), y, n_nonzero)
    assert np.allclose(sparse, b, rtol=1e-7, atol=1e-10)


@pytest.mark.statement("Huang 2015, Algorithm 1, p = 1")
def test_lasso_weights_are_the_regressions_of_the_left_singular_vectors():
    rng = np.random.default_rng(3)
    B = rng.standard_normal((30, 80)) * np.geomspace(5, 1, 30)[:, None]
    u, s, vt = np.linalg.svd(B, full_matrices=False)
    found = lasso_weights(s**2, vt, 4, 6)
    for h in range(4):
        direct = lasso_coefficients(Design(B, center=False), u[:, h], 6)
        assert np.allclose(found[:, h], direct, rtol=1e-7, atol=1e-12)
        assert np.count_nonzero(found[:, h]) == 6


def test_lasso_on_the_sketch_leaves_copies_out_and_equals_the_offline_one():
    X = groups()
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    u = np.linalg.svd(X)[0]
    wanted = np.abs([lasso_coefficients(Design(X, center=False), u[:, h], 5) for h in range(3)]).max(axis=0)
    chosen = sks.SketchedLassoSelector(5, n_components=3, n_nonzero=5).fit(X)
    used = wanted > 0
    assert np.allclose(chosen.scores_[used], wanted[used], rtol=1e-7)
    assert (chosen.scores_[~used] < wanted[used].min()).all()
    assert chosen.selection_.diagnostics["n_with_coefficient"] == used.sum()
    assert not {2, 11} <= set(np.flatnonzero(used))
    ridge = sks.SketchedRidgeSelector(5, n_components=3).fit(X)
    assert {2, 11} <= set(ridge.support_), "the ridge takes both copies"


def test_columns_without_a_coefficient_follow_the_others():
    scores = with_marginal_order(np.array([0.0, 0.4, 0.0, 0.8, 0.0]), np.array([3.0, 9.0, 6.0, 1.0, 0.0]))
    assert np.argsort(-scores, kind="stable").tolist() == [3, 1, 2, 0, 4]
    assert scores[4] == 0
    assert with_marginal_order(np.zeros(2), np.array([1.0, 2.0])).argmax() == 1


# --- graphs ----------------------------------------------------------------------------------------------------------


def brute_graph(X, k, weight):
    """Dense formulas: k nearest by sorting distances, either way."""
    n = len(X)
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    near = np.zeros((n, n), bool)
    for i in range(n):
        order = [j for j in np.argsort(squares[i], kind="stable") if j != i]
        near[i, order[:k]] = True
    if weight == "heat":
        values = np.exp(-squares / (2 * squares[near].mean()))
    elif weight == "cosine":
        norms = np.linalg.norm(X, axis=1)
        values = np.maximum(X @ X.T / np.outer(norms, norms), 0)
    else:
        values = np.ones((n, n))
    return np.where(near | near.T, values, 0.0)


@pytest.mark.parametrize("weight", ["heat", "cosine", "binary"])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_the_graph_is_that_of_sorted_distances(weight, kind):
    X = groups(60)
    assert np.allclose(neighbour_graph(kind(X), 5, weight).toarray(), brute_graph(X, 5, weight), atol=1e-12)


def test_laplacian_scores_by_the_dense_formula():
    X = groups(60) + 50.0
    X[:, 4] = 0.1
    W = brute_graph(X, 5, "heat")
    D = np.diag(W.sum(axis=0))
    one = np.ones(60)
    wanted = []
    for f in X.T:
        f = f - (f @ D @ one) / (one @ D @ one)
        wanted.append((f @ (D - W) @ f) / (f @ D @ f))
    for kind in (np.asarray, sp.csr_array):
        found = laplacian_scores(kind(X), sp.csr_array(W))
        assert np.isnan(found[4])
        keep = np.arange(14) != 4
        assert np.allclose(found[keep], np.array(wanted)[keep], rtol=1e-7)


def test_the_embedding_solves_the_generalised_problem():
    # Dense and Lanczos; connected.
    for n in (120, 700):
        graph = neighbour_graph(np.random.default_rng(0).standard_normal((n, 2)), 8)
        W = graph.toarray()
        D = np.diag(W.sum(axis=0))
        lam = scipy.linalg.eigh(D - W, D, eigvals_only=True)[1:5]
        Y = spectral_embedding(graph, 4)
        assert np.allclose((D - W) @ Y, D @ Y * lam, atol=1e-7)
        assert np.allclose(Y.T @ D @ Y, np.eye(4), atol=1e-8)
        assert np.allclose(degrees(graph) @ Y, 0, atol=1e-8)


def test_parts_that_are_not_connected_are_told_apart_first():
    rng = np.random.default_rng(1)
    part = np.repeat([0, 1, 2], [50, 30, 40])
    graph = neighbour_graph(rng.standard_normal((120, 2)) + 1000.0 * part[:, None], 5)
    Y = spectral_embedding(graph, 4)
    L = np.diag(degrees(graph)) - graph.toarray()
    assert np.allclose(L @ Y[:, :2], 0, atol=1e-9)
    for column, of in zip(Y.T[:2], (2, 1), strict=True):
        assert np.ptp(column[part == of]) < 1e-12
        assert np.ptp(column[part != of]) < 1e-12
        assert abs(column[part == of][0] - column[part != of][0]) > 1e-3
    assert (np.linalg.norm(L @ Y[:, 2:], axis=0) > 1e-6).all()


def test_mcfs_by_hand():
    X = groups(150)
    embedding = np.random.default_rng(5).standard_normal((150, 2))
    found = mcfs_coefficients(X, embedding, 3)
    centred = X - X.mean(axis=0)
    for h in range(2):
        y = embedding[:, h] - embedding[:, h].mean()
        residual = centred.T @ (y - centred @ found[:, h])
        used = np.flatnonzero(found[:, h])
        assert used.size == 3
        assert np.allclose(np.abs(residual[used]), np.abs(residual).max(), rtol=1e-9)
    scaled = mcfs_coefficients(X, embedding, 3, scale_columns=True)
    assert np.allclose(mcfs_coefficients(X / X.std(axis=0), embedding, 3), scaled, atol=1e-12)
    assert np.allclose(mcfs_coefficients(sp.csr_array(X), embedding, 3, scale_columns=True), scaled, atol=1e-8)


@pytest.mark.parametrize(
    "make", [partial(MCFSSelector, n_clusters=2), LaplacianScoreSelector], ids=["mcfs", "laplacian-score"]
)
def test_methods_on_a_sample_find_the_groups_from_any_source(make, tmp_path):
    X = groups(600)
    chosen = make(4, normalize=None, n_rows=200).fit(X)
    assert {5, 9} <= set(chosen.support_)
    assert chosen.selection_.diagnostics["n_sampled_rows"] == 200
    np.save(tmp_path / "x.npy", X)
    for other in (
        make(4, normalize=None, n_rows=200).fit(str(tmp_path / "x.npy")),
        make(4, normalize=None).fit_summary(sks.summaries.RowSample(200).from_block(X)),
        make(4, normalize=None, n_rows=200).partial_fit(X[:77]).partial_fit(X[77:]),
    ):
        assert np.array_equal(other.scores_, chosen.scores_)
    assert np.allclose(make(4, normalize=None, n_rows=200).fit(sp.csr_array(X)).scores_, chosen.scores_, rtol=1e-6)
    coreset = sks.summaries.RowSample(200, center=X.mean(axis=0), spread=1.0).from_block(X)
    with pytest.raises(Incompatible, match="uniform"):
        make(4).fit_summary(coreset)


def test_mcfs_uses_few_columns_and_signs_on_request():
    X = groups(300)
    one = MCFSSelector(3, n_clusters=2, n_nonzero=1, normalize=None).fit(X)
    assert one.selection_.parameters["n_nonzero"] == 1
    both = [MCFSSelector(3, n_clusters=2, n_nonzero=4, normalize=None, signed=s).fit(X) for s in (False, True)]
    assert (both[1].scores_ <= both[0].scores_ + 1e-12).all()
    assert not {2, 11} <= set(both[0].support_), "columns that repeat others are left out"


# --- the angle -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_angle_is_never_exceeded_and_is_in_every_selection_from_a_sketch():
    rng = np.random.default_rng(2)
    scale = np.r_[30.0, 25, 20, np.geomspace(3, 0.1, 77)]
    X = rng.standard_normal((900, 80)) * scale @ np.linalg.qr(rng.standard_normal((80, 80)))[0]
    X = np.hstack([X, 0.01 * rng.standard_normal((900, 120))])
    told = 0
    for size in (8, 10, 13):
        sketch = sks.FrequentDirections(size).from_block(X)
        assert sketch.shrinkage > 0
        for k in range(1, 6):
            bound = subspace_angle(sketch.directions.squares, k, sketch.shrinkage, 200)
            if bound is None:
                continue
            told += 1
            exact = np.linalg.svd(X, full_matrices=False)[2][:k]
            cosines = np.linalg.svd(exact @ sketch.directions.vectors[:k].T, compute_uv=False)
            assert np.sqrt(max(1 - cosines.min() ** 2, 0)) <= bound + 1e-9
        for selector in (
            sks.SketchedRidgeSelector(5, n_components=3, sketch_size=size, normalize=None),
            sks.SketchedLassoSelector(5, n_components=3, sketch_size=size, normalize=None),
            sks.PivotedQRSelector(5, n_components=3, sketch_size=size, normalize=None),
            sks.GreedySelector(5, n_components=3, sketch_size=size, normalize=None),
            sks.DeterministicSelector(5, n_clusters=3, sketch_size=size),
        ):
            angle = selector.fit(X).selection_.diagnostics["subspace_angle"]
            assert angle is not None, selector
            assert 0 < angle < 0.5
    assert told >= 5
