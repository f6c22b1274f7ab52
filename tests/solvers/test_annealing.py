from __future__ import annotations

import numpy as np
import pytest

from sketchselect.errors import BadParameter
from sketchselect.solvers import anneal
from sketchselect.solvers.annealing import _largest_eigenvalue, schedule


def test_schedule_is_the_formula_of_the_source():
    for p, k, n_iter, mu in ((1000, 100, 500, 1.0), (300, 30, 500, 10.0), (50, 50, 20, 1.0), (7, 2, 1, 0.0)):
        kept = schedule(p, k, n_iter, mu)
        for e in range(1, n_iter + 1):
            exact = k + (p - k) * max(0.0, (n_iter - 2 * e) / (2 * e * mu + n_iter))
            assert kept[e - 1] == int(np.floor(exact))
        assert (np.diff(kept) <= 0).all()
        assert (kept[(n_iter + 1) // 2 :] == k).all()
        assert kept[0] <= p


def test_larger_mu_drops_earlier():
    assert (schedule(500, 20, 100, 10.0) <= schedule(500, 20, 100, 1.0)).all()


def reference(data, k, n_iter, mu):
    """Annealing on the rows, with exact eigenvalues."""
    z, y = data.z, data.centered
    n, p = z.shape
    alive, b = np.arange(p), np.zeros((p, y.shape[1]))
    for size in schedule(p, k, n_iter, mu):
        x = z[:, alive]
        step = 1.9 / np.linalg.eigvalsh(x.T @ x / n)[-1]
        b[alive] -= step * (x.T @ (x @ b[alive] - y)) / n
        order = np.argsort(-np.linalg.norm(b[alive], axis=1), kind="stable")[:size]
        alive = np.sort(alive[order])
        b[np.setdiff1d(np.arange(p), alive)] = 0.0
    return alive, b


@pytest.mark.parametrize("q", [1, 2])
def test_same_columns_as_annealing_on_the_rows(make, q):
    data = make(400, 80, 8, q=q, beta=0.4)
    alive, b = reference(data, 8, 200, 1.0)
    fit = anneal(data.problem, 8, n_iter=200)
    assert fit.support.tolist() == alive.tolist()
    np.testing.assert_allclose(fit.scores[alive], np.linalg.norm(b[alive], axis=1), rtol=1e-3)
    assert not np.delete(fit.scores, alive).any()


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.99])
def test_steps_never_diverge(make, rho):
    data = make(150, 120, 6, rho=rho)
    fit = anneal(data.problem, 120, n_iter=300)
    # Without drops it is gradient descent, whose solution stays below that of least squares in every direction.
    values, vectors = np.linalg.eigh(data.problem.correlation)
    limit = np.abs(vectors.T @ data.problem.xy[:, 0] / np.maximum(values, 1e-12))
    assert np.linalg.norm(fit.scores) <= 2.0 * np.linalg.norm(limit) + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_largest_eigenvalue_is_close_enough_for_the_step(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((60 + 200 * seed, 80))
    x /= x.std(axis=0)
    matrix = x.T @ x / len(x)
    np.fill_diagonal(matrix, 1.0)
    exact = np.linalg.eigvalsh(matrix)[-1]
    found, _ = _largest_eigenvalue(matrix, matrix[0], 0.0)
    # A step of 1.9 over this estimate has to stay below 2 over the exact value.
    assert 0.95 * exact < found <= exact * (1 + 1e-12)


def test_largest_eigenvalue_of_the_identity_and_of_opposite_columns():
    assert _largest_eigenvalue(np.eye(5), np.zeros(5), 0.0)[0] == pytest.approx(1.0)
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    matrix = 0.9 * np.outer(signs, signs) + 0.1 * np.eye(4)
    assert _largest_eigenvalue(matrix, matrix[0], 0.0)[0] == pytest.approx(3.7)


def test_newton_solves_the_columns_that_are_left(make):
    data = make(500, 60, 6, beta=0.5)
    fit = anneal(data.problem, 6, newton=True)
    assert fit.support.tolist() == data.true.tolist()
    np.testing.assert_allclose(fit.scores[fit.support], np.abs(fit.coef[fit.support, 0]), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_iter": 0}, "n_iter"),
        ({"n_iter": 2.5}, "n_iter"),
        ({"mu": -1.0}, "mu"),
        ({"step": 2.0}, "step"),
        ({"step": 1.0, "newton": True}, "no meaning"),
    ],
)
def test_bad_options_are_named(make, options, words):
    with pytest.raises(BadParameter, match=words):
        anneal(make(30, 6, 2).problem, 2, **options)
