"""Columns for k-means with a proof: `deterministic`, `randomized`, `hybrid`.

    F(A, X) <= certificate_.bound(F(C, X))                                for every partition X, from any sketch
    F(A, best X of C) <= 1 + 4 (1 + sqrt(n/R))^2 / (1 - sqrt(k/R))^2 F*   deterministic, exact sketch
    P(sigma_k^2 >= 1 - sqrt(4 k log(20 k) / r)) >= 0.9                    randomized, one draw, r > 4 k log(20 k)
    E s_i^2 = 1                                                           randomized, r draws
    P(F(A, best X of C) <= proven_factor F*) >= 0.4                       hybrid, one draw

Every partition of at most eight rows is tried; probabilities are frequencies over seeds.
"""

import math

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import BadParameter, EmptyInput

from ..cluster.exhaustive import solved
from .instances import each_instance, matrix, merged, objective

SELECTORS = [sks.DeterministicSelector, sks.RandomizedSelector, sks.HybridSelector]


@each_instance
@pytest.mark.parametrize("cls", SELECTORS)
def test_the_bound_of_the_columns_holds_for_every_partition(seeds, cls):
    refused = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(2, 40)), int(rng.integers(3, 60))
        X, k = matrix(rng, n, p), int(rng.integers(1, 3))
        selector = cls(int(rng.integers(k + 1, p + 1)), n_clusters=k, sketch_size=int(rng.integers(k + 1, k + 4)))
        summary = merged(rng, selector.summary_description(p), X)
        if (X.std(axis=0) <= 1e-15 * np.abs(X).max(axis=0)).all():
            with pytest.raises((BadParameter, EmptyInput), match="constant"):
                selector.fit_summary(summary)
            refused += 1
            continue
        chosen = selector.fit_summary(summary)
        C = X[:, chosen.support_] * chosen.weights_
        # Objectives far from the origin are computed about the mean.
        A, C = X - X.mean(axis=0), C - C.mean(axis=0)
        for _ in range(4):
            labels = rng.integers(int(rng.integers(1, 5)), size=n)
            room = 1e-9 * objective(A, np.zeros(n, int))
            assert objective(A, labels) <= chosen.certificate_.bound(objective(C, labels)) + room
    assert refused < len(seeds) / 2


def ratio(selector, X, k):
    """Return the objective, in all columns, of the best clustering of the weighted ones, over the best; the factor."""
    chosen = selector.fit(X)
    A = X - X.mean(axis=0)
    _, labels = solved(A[:, chosen.support_] * chosen.weights_, k)
    return objective(A, labels) / solved(A, k)[0], chosen.selection_.diagnostics["proven_factor"]


@each_instance
def test_the_factor_of_the_deterministic_choice(seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, k, p = int(rng.integers(4, 9)), 2, int(rng.integers(4, 30))
        X = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-2, 2, p)
        X[: n // 2, rng.random(p) < 0.3] += 5
        found, factor = ratio(sks.DeterministicSelector(int(rng.integers(k + 1, p)), n_clusters=k), X, k)
        assert found <= factor


@pytest.mark.slow
def test_randomized_conditioning_has_its_probability():
    rng = np.random.default_rng(0)
    k, r = 2, 60
    assert r > 4 * k * math.log(20 * k)
    X = rng.standard_normal((80, 300)) * 10.0 ** rng.uniform(-1, 1, 300)
    moments = sks.Moments().from_block(X)
    least = 1 - math.sqrt(4 * k * math.log(20 * k) / r)
    for top_up in (False, True):
        kept = [
            sks.RandomizedSelector(r, n_clusters=k, random_state=seed, top_up=top_up)
            .fit_summary(moments)
            .certificate_.sigma_min
            ** 2
            >= least
            for seed in range(200)
        ]
        assert np.mean(kept) >= 0.9


@each_instance
def test_weights_of_the_draws_have_the_expectation_one(seeds):
    """For each matrix 20 seeds: the sum over columns of ``p_i s_i^2`` is 1 in every draw, ``s_i^2`` on average."""
    mean, spread = 0.0, 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        p, k = int(rng.integers(6, 30)), int(rng.integers(1, 4))
        r = int(rng.integers(k + 1, p))
        X = rng.standard_normal((50, p)) * rng.uniform(0.5, 2, p)
        moments = sks.Moments().from_block(X)
        share = (np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:k] ** 2).sum(axis=0) / k
        column = int(share.argmax())
        for draw in range(20):
            chosen = sks.RandomizedSelector(r, n_clusters=k, random_state=20 * seed + draw).fit_summary(moments)
            squares = np.zeros(p)
            squares[chosen.support_] = chosen.weights_**2
            assert share @ squares == pytest.approx(1.0, rel=1e-9)
            mean += squares[column] - 1
            spread += (1 / share[column] - 1) / r
    assert abs(mean) <= 5 * math.sqrt(spread)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scales", "copies", "far"])
@pytest.mark.statement("Boutsidis 2012, Theorem 5", "Boutsidis 2012, Algorithm 6")
def test_the_factor_of_one_hybrid_draw_has_its_probability(kind):
    """The frequency over 200 seeds, without room for chance."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((7, 200)) * 10.0 ** rng.uniform(-1, 1, 200)
    X[:3, ::7] += 4
    if kind == "copies":
        X[:, 100:] = X[:, :1]
    elif kind == "far":
        X += 1e6
    A = X - X.mean(axis=0)
    best = solved(A, 2)[0]
    within = 0
    for seed in range(200):
        chosen = sks.HybridSelector(6, n_clusters=2, n_draws=1, random_state=seed).fit(X)
        assert chosen.selection_.diagnostics["n_candidates"] < 200
        _, labels = solved(A[:, chosen.support_] * chosen.weights_, 2)
        within += objective(A, labels) <= chosen.selection_.diagnostics["proven_factor"] * best
    assert within >= 0.4 * 200
