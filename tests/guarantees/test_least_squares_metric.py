"""`certify_selection` in the least-squares metric: ``F <= (sqrt g + (1 + sqrt g) rho / sqrt L)^2 F*``, or less.

    ||A - A_J X||_F^2 <= rho^2 = `residual`,   F* >= L,   G the objective of k-means on A_J C with CC' = XX',
    G <= g G*  implies  F <= factor(g, "least-squares") F*

Columns chosen by chance, sketches of every size, every partition of at most nine rows; merged in any order.
"""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import sketchselect as sks
from sketchselect.cluster import certify_selection, least_squares_metric
from sketchselect.selectors import GreedySelector, OsinskySelector

from ..cluster.exhaustive import cost, solved
from .instances import each_instance, each_number, matrix, merged


def instance(number):
    """Return rows, clusters, columns and a summary: exact, or of a few directions of many columns."""
    rng = np.random.default_rng([28, number])
    k = int(rng.integers(1, 4))
    n = int(rng.integers(k + 1, 10))
    p = int(rng.integers(17, 70)) if number % 3 else int(rng.integers(1, 9))
    X = matrix(rng, n, p)
    if number % 7 == 0:
        X = X * 10.0 ** rng.choice([-120, 120])
    support = np.sort(rng.permutation(p)[: int(rng.integers(1, min(p, 20) + 1))])
    description = sks.Moments() if number % 5 == 0 else sks.FrequentDirections(int(rng.integers(2, 5)))
    return rng, X, k, support, merged(rng, description, X)


@each_number(range(100), range(100, 2000), size=50)
def test_no_clustering_is_further_from_the_best_than_the_factor(number):
    rng, X, k, support, summary = instance(number)
    bound = certify_selection(summary, support, k)
    Y = X[:, support] @ least_squares_metric(summary, support)
    (best, partition), (best_there, partition_there) = solved(X, k), solved(Y, k)
    room, room_there = (1e-6 * float(((Z - Z[0]) ** 2).sum()) for Z in (X, Y))
    if best <= room or best_there <= room_there:
        return  # Its objective is rounding of the rows.
    for labels in (partition_there, partition, rng.integers(k, size=len(X))):
        gamma = max(cost(Y, labels) / best_there, 1.0)
        assert cost(X, labels) <= bound.factor(gamma, "least-squares") * best * (1 + 1e-9)


@each_instance
def test_the_residual_is_not_below_the_least_error(seeds):
    n_lossy = n_close = 0
    for seed in seeds:
        _, X, k, support, summary = instance(seed)
        A = X - X.mean(axis=0)
        U, s, _ = np.linalg.svd(A[:, support], full_matrices=False)
        U = U[:, s > 1e-9 * s.max(initial=0.0)]
        scatter = float((A**2).sum())
        least = float(((A - U @ (U.T @ A)) ** 2).sum())
        bound = certify_selection(summary, support, k)
        assert bound.residual >= least - 1e-9 * scatter
        n_lossy += summary.shrinkage > 0
        # Far from zero the bound allows for the rounding of means, which is more.
        is_near = np.abs(X).max() < 1e3 * np.sqrt(scatter)
        if summary.shrinkage == 0 and is_near and s.min() ** 2 > 1e-4 * scatter > 0:
            # The ridge, 1e-9 of the largest square, adds (ridge / s^2)^2 of the squares along each direction.
            assert bound.residual <= least + 1e-8 * scatter
            n_close += 1
    assert n_lossy
    assert n_close


def test_the_metric_is_that_of_the_predictions():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 9)) @ rng.standard_normal((9, 9)) + 3.0
    support = np.array([7, 0, 4])
    A = X - X.mean(axis=0)
    coefficients = np.linalg.lstsq(A[:, support], A, rcond=None)[0]
    C = least_squares_metric(sks.Moments().from_block(X), support)
    assert pytest.approx(coefficients @ coefficients.T, rel=1e-6) == C @ C.T
    bound = certify_selection(sks.Moments().from_block(X), support, 4)
    rho = np.sqrt(((A - A[:, support] @ coefficients) ** 2).sum() / bound.lower_bound)
    for gamma in (1.0, 1.5, 4.0):
        # The triangle inequality alone proves this.
        assert bound.factor(gamma, "least-squares") <= (np.sqrt(gamma) + (1 + np.sqrt(gamma)) * rho) ** 2 * (1 + 1e-6)
    everything = certify_selection(sks.Moments().from_block(X), np.arange(9), 4)
    assert everything.factor(1.3, "least-squares") == pytest.approx(1.3)


@pytest.mark.parametrize("selector", [GreedySelector, OsinskySelector])
@pytest.mark.parametrize(("n_columns", "most"), [(20, 6.5), (40, 2.3)])
def test_digits(selector, n_columns, most):
    X = load_digits().data
    support = selector(n_features_to_select=n_columns).fit(X).support_
    bound = certify_selection(sks.summarize(X, sks.FrequentDirections(80)), support, 10)
    assert bound.factor(1.0, "least-squares") <= most
    assert "in the least-squares metric into 10 clusters" in bound.sentence("least-squares")
    with pytest.raises(sks.errors.BadParameter, match="metric must be 'euclidean' or 'least-squares', got 'cosine'"):
        bound.factor(1.0, "cosine")


def test_many_columns_need_no_matrix_of_all_of_them():
    X = np.random.default_rng(0).standard_normal((40, 50_000)) * np.linspace(0, 1, 50_000) ** 8
    summary = merged(np.random.default_rng(1), sks.FrequentDirections(12), X)
    bound = certify_selection(summary, np.arange(49_900, 50_000), 3)
    # 50,000 x 50,000 would be 20 GB; the columns that are left out hold the rest of the scatter.
    assert bound.factor(1.0, "least-squares") <= bound.factor(1.0) + 1.0
