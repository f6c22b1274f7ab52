"""Wang, Shen and Li (2018): its lemmas as frequencies, graphs as inputs, and the rivals of its Table 1."""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.linalg.leverage import ridge_factor as factored
from sketchselect.linalg.leverage import scatter_scores
from sketchselect.summaries import CentroidSums, LeverageSample

from ..cluster.exhaustive import cost, solved
from ..guarantees.rational import partitions
from ..summaries.oracles import relative_error
from ..summaries.test_leverage_sample import decaying


@pytest.mark.statement("Wang 2018, Lemma 1")
def test_columns_drawn_by_over_estimated_scores_are_a_spectral_approximation_of_the_stated_size():
    n, p, eps, n_seeds = 4, 3000, 0.9, 200
    A = decaying(n, p)
    rng = np.random.default_rng(1)
    exact = scatter_scores(A, factored(A.T @ A, 1e-12))
    assert exact.sum() == pytest.approx(n)
    over = np.minimum(exact * rng.uniform(1, 2, p), 1)
    c = 8 * np.log(n) / eps**2
    probabilities = np.minimum(c * over, 1)
    errors, sizes = [], []
    for _ in range(n_seeds):
        drawn = rng.random(p) < probabilities
        errors.append(relative_error(A[drawn] / np.sqrt(probabilities[drawn])[:, None], A))
        sizes.append(drawn.sum())
    failing = 2 * n * np.exp(-3 * c * eps**2 / 8)
    assert np.mean(np.array(errors) <= eps) >= 1 - failing - 3 * np.sqrt(failing / n_seeds)
    assert np.mean(sizes) <= c * over.sum() * (1 + 3 / np.sqrt(n_seeds))
    assert np.mean(sizes) < p / 20


def run_of_algorithm_1(A, eps, rate, ridge, seed):
    """Return (sum of all scores, columns kept, log-determinant of the sample over that of the ridge)."""
    u = np.random.default_rng(seed).random(len(A))
    M = ridge * np.eye(A.shape[1])
    inverse, total, kept = np.linalg.inv(M), 0.0, 0
    for i, a in enumerate(A):
        image = inverse @ a
        score = min((1 + eps) * (a @ image), 1.0)
        total += score
        p = min(rate * score, 1.0)
        if u[i] < p:
            kept += 1
            M += np.outer(a, a) / p
            inverse -= np.outer(image, image) / (p + a @ image)
    return total, kept, np.linalg.slogdet(M / ridge)[1]


@pytest.mark.slow
@pytest.mark.statement("Wang 2018, Lemma 2", "Wang 2018, Number of features")
@pytest.mark.parametrize("ridge", [1e-4, 1.0])
def test_scores_sum_to_the_growth_of_the_determinant_and_the_sample_is_of_that_size(ridge):
    """P(sum > 8 n + 8 log det(I + S S' / ridge)) <= exp(-n), and at most about rate times the sum are kept."""
    n, eps, rate = 5, 0.5, 20.0
    A = decaying(n, 1000)
    sums, sizes = [], []
    for seed in range(25):
        total, kept, growth = run_of_algorithm_1(A, eps, rate, ridge, seed)
        assert total <= 8 * n + 8 * growth
        assert growth <= n * np.log(1 + (1 + 2 * eps) * (A**2).sum() / ridge)
        assert kept <= rate * total + 4 * np.sqrt(rate * total)
        sums.append(total)
        sizes.append(LeverageSample(eps, rate, ridge, seed).from_block(A).n_kept)
    assert np.mean(sizes) <= rate * np.mean(sums) * (1 + 3 / np.sqrt(25))
    # n log ||A|| as printed depends on the units, and the sum does not.
    small = A / (10 * np.linalg.norm(A, 2))
    scale = (small[0, 0] / A[0, 0]) ** 2
    assert run_of_algorithm_1(small, eps, rate, ridge * scale, 0)[0] == pytest.approx(sums[0], rel=1e-6)
    assert n * np.log(np.linalg.norm(small, 2)) < 0 < sums[0]


@pytest.mark.statement("Wang 2018, Lemma 3", "Wang 2018, Theorem 2", "Wang 2018, Theorem 1")
@pytest.mark.parametrize("k", [2, 3])
def test_every_partition_costs_nearly_the_same_on_the_selection(k):
    """On all partitions of the rows, and with the frequency of Theorem 1."""
    m, p, eps, rate = 7, 1200, 0.6, 40.0
    X = decaying(m, p, seed=3).T * 3
    every = [np.array(labels) for labels in partitions(m, k)]
    costs = np.array([cost(X, labels) for labels in every])
    good = []
    for seed in range(12):
        chosen = sks.OnlineLeverageSelector(
            eps=eps, sampling_rate=rate, ridge=1e-9, random_state=seed, about="zero"
        ).fit(X)
        error = relative_error((X[:, chosen.support_] * chosen.weights_).T, X.T)
        good.append(error <= eps)
        sampled = np.array([cost(X[:, chosen.support_] * chosen.weights_, labels) for labels in every])
        assert ((1 - error) * costs * (1 - 1e-9) <= sampled).all()
        assert (sampled <= (1 + error) * costs * (1 + 1e-9)).all()
        if error < 1:
            assert costs[sampled.argmin()] <= (1 + error) / (1 - error) * costs.min() * (1 + 1e-9)
        assert chosen.support_.size < 0.9 * p
    assert np.mean(good) >= 1 - 2 * m * np.exp(-3 * rate * eps**2 / 8)


@pytest.mark.statement("Wang 2018, Equations 3.5 and 3.6", "Boutsidis 2012, Section 3.3")
def test_the_objective_is_the_error_of_a_projection_onto_indicators():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 7))
    labels = rng.integers(4, size=40)
    X = (labels[:, None] == np.arange(4)) / np.sqrt(np.bincount(labels))
    assert np.allclose(X.T @ X, np.eye(4))
    sums = CentroidSums(4).from_block(A, labels)
    assert np.allclose(X @ X.T @ A, sums.cluster_means[labels])
    assert sums.objective == pytest.approx(((A - X @ X.T @ A) ** 2).sum())


# --- graphs --------------------------------------------------------------------------------------------------------


@pytest.mark.statement("Wang 2018, Laplacian inputs")
def test_scores_of_edges_by_projections_are_those_of_the_inverse(script):
    laplacian = script("laplacian")
    graph = laplacian.random_graph(80, 3000)
    p = np.random.default_rng(0).uniform(0.2, 1, 3000)
    for ridge in (1e-3, 1.0):
        M = graph.laplacian(graph.weight / p).toarray() + ridge * np.eye(80)
        columns = graph.columns(np.sqrt(graph.weight)).toarray()
        exact = np.einsum("ie,ie->e", columns, np.linalg.solve(M, columns))
        estimates = [laplacian.edge_scores(graph, graph, p, ridge, 100, seed) for seed in range(20)]
        # Each is a mean of 100 squares: its standard deviation is at most sqrt(2 / 100) of it.
        assert np.abs(np.mean(estimates, axis=0) / exact - 1).max() <= 6 * np.sqrt(2 / 2000)
        assert np.sqrt(np.mean((estimates / exact - 1) ** 2)) <= 1.2 * np.sqrt(2 / 100)


@pytest.mark.slow
@pytest.mark.statement("Wang 2018, Laplacian inputs")
def test_algorithm_1_on_edges_keeps_the_laplacian(script):
    laplacian = script("laplacian")
    n, eps, rate, ridge = 40, 0.5, 60.0, 1e-2
    graph = laplacian.random_graph(n, 20_000, seed=1)
    full = graph.laplacian(graph.weight).toarray() + ridge * np.eye(n)
    root = np.linalg.inv(np.linalg.cholesky(full))
    failing = 2 * n * np.exp(-3 * rate * eps**2 / 8)
    assert failing < 0.4
    good = []
    for seed in range(5):
        kept, p = laplacian.sample_edges(graph, eps, rate, ridge, 500, 60, seed)
        part = graph[kept].laplacian(graph.weight[kept] / p).toarray() + ridge * np.eye(n)
        good.append(np.abs(np.linalg.eigvalsh(root @ part @ root.T) - 1).max() <= eps)
        assert len(kept) < 0.8 * len(graph)
    assert np.mean(good) >= 1 - failing


# --- Table 1 -------------------------------------------------------------------------------------------------------


def planted(seed, m=9, p=400, k=2):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, p)) + rng.standard_normal((k, p))[np.arange(m) % k]


def ratio_on(X, reduced, k):
    return cost(X, solved(reduced, k)[1]) / solved(X, k)[0]


@pytest.mark.statement("Wang 2018, Table 1")
@pytest.mark.parametrize(
    ("method", "columns", "stated", "share"), [("random_signs", 8, 3.0, 0.9), ("sparse_embedding", None, 1.5, 0.5)]
)
def test_projections_of_table_1_keep_their_ratios(script, method, columns, stated, share):
    """Boutsidis 2015: 2 + eps from 4 k / eps^2 columns, eps = 1. Liu 2017: 1 + eps with probability 1 - delta."""
    rivals = script("kmeans_projections")
    columns = columns or rivals.embedding_columns(2, 0.5, 0.5)
    ratios = []
    for seed in range(10):
        X = planted(seed)
        reduced = getattr(rivals, method)(X, columns, seed)
        assert reduced.shape == (9, columns)
        ratios.append(ratio_on(X, reduced, 2))
    assert np.mean(np.array(ratios) <= stated) >= share


@pytest.mark.statement("Wang 2018, Table 1")
def test_the_reductions_of_table_1_are_unbiased(script):
    """Squared norms of rows in the mean over seeds; all entries kept is k-means on the rotated rows."""
    rivals = script("kmeans_projections")
    X = planted(0)
    norms = (X**2).sum(axis=1)
    for make in (rivals.random_signs, rivals.sparse_embedding):
        drawn = np.array([(make(X, 16, seed) ** 2).sum(axis=1) for seed in range(300)])
        error = drawn.std(axis=0, ddof=1) / np.sqrt(300)
        assert (np.abs(drawn.mean(axis=0) - norms) <= 4.5 * error).all()
    _, mask = rivals.sparsified(X, 100, 0)
    assert (mask.sum(axis=1) == 100).all()
    assert np.allclose((rivals.sparsified(X, 400, 0)[0] ** 2).sum(axis=1), norms)
    drawn = np.array([4 * (rivals.sparsified(X, 100, seed)[0] ** 2).sum(axis=1) for seed in range(200)])
    assert (np.abs(drawn.mean(axis=0) - norms) <= 4.5 * drawn.std(axis=0, ddof=1) / np.sqrt(200)).all()


@pytest.mark.statement("Wang 2018, Table 1")
def test_kmeans_on_sparsified_rows_finds_clusters_that_are_apart(script):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=150)
    X = rng.standard_normal((150, 200)) + 2 * rng.standard_normal((3, 200))[labels]
    found = script("kmeans_projections").sparsified_kmeans(X, 3, 60, 0)
    assert sks.summaries.Contingency.of(labels, found).nmi > 0.9


@pytest.mark.statement("Wang 2018, Lemma 4")
@pytest.mark.parametrize("eps", [2.0, 3.0, 4.5])
def test_lemma_4_for_a_martingale_whose_steps_depend_on_its_path(eps):
    """P(some |Y_k| >= eps while |W_k| <= sigma^2) <= 2 d exp(-eps^2 / 2 / (sigma^2 + R eps / 3)), for the norm."""
    d, n_steps, n_runs, variance, R = 3, 40, 4000, 1.0, 0.5
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((n_steps, d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    Y, W = np.zeros((n_runs, d, d)), np.zeros((n_runs, d, d))
    crossed = np.zeros(n_runs, dtype=bool)
    for v in directions:
        outer = np.outer(v, v)
        # Bold where the martingale is already large: the steps are predictable, not independent.
        size = np.where(np.abs(np.einsum("a,rab,b->r", v, Y, v)) > 0.5, R, 0.2)
        Y += (size * rng.choice([-1.0, 1.0], n_runs))[:, None, None] * outer
        W += (size**2)[:, None, None] * outer
        crossed |= (np.abs(np.linalg.eigvalsh(Y)).max(axis=1) >= eps) & (np.linalg.eigvalsh(W)[:, -1] <= variance)
    stated = 2 * d * np.exp(-(eps**2) / 2 / (variance + R * eps / 3))
    assert crossed.mean() <= stated + 4 * np.sqrt(stated / n_runs)
