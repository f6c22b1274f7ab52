import itertools

import numpy as np
import pytest

from sketchselect.errors import BadParameter
from sketchselect.solvers import anneal, anneal_path, annealing, least_squares
from sketchselect.solvers.annealing import schedule
from sketchselect.solvers.linear import ShrinkingSubmatrix, leading_eigenvalue, updated_eigenvalue


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


def reference(data, k, n_iter, mu, sizes=()):
    """Annealing on the rows, with exact eigenvalues; and the largest columns of each size that a step passes."""
    passed = {}
    z, y = data.z, data.centered
    n, p = z.shape
    alive, b = np.arange(p), np.zeros((p, y.shape[1]))
    for size in schedule(p, k, n_iter, mu):
        x = z[:, alive]
        values, vectors = np.linalg.eigh(x.T @ x / n)
        step = 1.9 / np.r_[np.full(len(values) - 1, min(500 * values[-2], values[-1])), values[-1]]
        b[alive] -= vectors @ (step[:, None] * (vectors.T @ (x.T @ (x @ b[alive] - y)) / n))
        order = np.argsort(-np.linalg.norm(b[alive], axis=1), kind="stable")
        passed |= {s: np.sort(alive[order[:s]]).tolist() for s in sizes if size < s <= len(alive)}
        alive = np.sort(alive[order[:size]])
        b[np.setdiff1d(np.arange(p), alive)] = 0.0
    return (alive, b) if not sizes else passed | {k: alive.tolist()}


@pytest.mark.parametrize("newton", [False, True])
def test_models_of_all_sizes_come_from_one_descent(make, newton):
    data = make(400, 80, 8, q=2, beta=0.4)
    sizes = [3, 8, 20, 21, 50, 80]
    fits = anneal_path(data.problem, sizes, n_iter=100, newton=newton)
    supports = {size: fit.support.tolist() for size, fit in zip(sizes, fits, strict=True)}
    assert [len(s) for s in supports.values()] == sizes
    assert all(set(supports[a]) < set(supports[b]) for a, b in itertools.pairwise(sizes))
    assert supports[3] == anneal(data.problem, 3, n_iter=200, newton=newton).support.tolist()
    if not newton:
        assert supports == reference(data, 3, 200, 1.0, sizes)
    for fit in fits:
        np.testing.assert_array_equal(fit.coef, least_squares(data.problem, fit.support))


@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.statement("Sun 2019, Algorithm 2", "Sun 2019, Equation 10")
def test_same_columns_as_annealing_on_the_rows(make, q):
    data = make(400, 80, 8, q=q, beta=0.4)
    alive, b = reference(data, 8, 200, 1.0)
    fit = anneal(data.problem, 8, n_iter=200)
    assert fit.support.tolist() == alive.tolist()
    np.testing.assert_allclose(fit.scores[alive], np.linalg.norm(b[alive], axis=1), rtol=1e-3)
    assert not np.delete(fit.scores, alive).any()


@pytest.mark.slow
@pytest.mark.parametrize("q", [1, 2])
def test_one_factor_of_all_columns_does_not_slow_the_steps(make, q):
    """The first eigenvalue is 1,900 times the second: the steps are those of the preconditioned reference."""
    data = make(1500, 300, 30, q=q, rho=0.93)
    values = np.linalg.eigvalsh(data.problem.correlation)
    assert values[-1] > 1500 * values[-2]
    alive, _ = reference(data, 30, 60, 1.0)
    assert anneal(data.problem, 30, n_iter=60).support.tolist() == alive.tolist() == data.true.tolist()
    # Nothing is dropped: coefficients after 60 steps are three times those of steps of 1.9 / lambda_max.
    _, b = reference(data, 300, 60, 1.0)
    fit = anneal(data.problem, 300, n_iter=60)
    np.testing.assert_allclose(fit.scores, np.linalg.norm(b, axis=1), rtol=0.1, atol=0.05 * fit.scores.max())


def test_columns_of_a_strong_signal_that_the_short_steps_lose_are_exchanged_for_noise(make, monkeypatch):
    """Signals of six standard errors among 400 columns of one factor; of less than one, where hardly any changes."""
    fits = (annealing._exchanged, lambda problem, active, *fit: fit)
    for beta in (0.15, 0.015):
        samples = [make(1600, 400, 40, rho=0.93, beta=beta / np.sqrt(0.07), seed=seed) for seed in range(5)]
        last, before = [], []
        for supports, exchanged in zip((last, before), fits, strict=True):
            monkeypatch.setattr(annealing, "_exchanged", exchanged)
            supports.extend(anneal(data.problem, 40).support for data in samples)
        new = np.concatenate([np.setdiff1d(a, b) for a, b in zip(last, before, strict=True)])
        if beta == 0.15:
            assert new.size
            assert np.isin(new, samples[0].true).all()
        else:
            assert new.size <= 0.02 * 5 * 40


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.99, 1 - 1e-6])
def test_steps_never_diverge(make, rho):
    data = make(150, 120, 6, rho=rho)
    fit = anneal(data.problem, 120, n_iter=300)
    # Without drops it is gradient descent, whose solution stays below that of least squares in every direction.
    values, vectors = np.linalg.eigh(data.problem.correlation)
    limit = np.abs(vectors.T @ data.problem.xy[:, 0] / np.maximum(values, 1e-12))
    assert np.linalg.norm(fit.scores) <= 2.0 * np.linalg.norm(limit) + 1e-9


def correlations(seed, p=80):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((60 + 200 * seed, p))
    if seed % 2:
        x += rng.standard_normal((len(x), 1))
    x -= x.mean(axis=0)
    x /= x.std(axis=0)
    matrix = x.T @ x / len(x)
    np.fill_diagonal(matrix, 1.0)
    return matrix


@pytest.mark.share(4)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("accuracy", [0.02, 1e-4])
def test_eigenvalue_is_close_enough_for_the_step_at_every_drop(seed, accuracy):
    matrix = correlations(seed)
    before = matrix.copy()
    alive = np.arange(80)
    block = ShrinkingSubmatrix(matrix, alive)
    largest = leading_eigenvalue(block, accuracy)
    rng = np.random.default_rng(seed)
    followed = 0
    for size in range(79, 4, -2):
        exact = np.linalg.eigvalsh(matrix[np.ix_(alive, alive)])
        assert largest.value <= exact[-1] * (1 + 1e-12)
        assert largest.bound >= exact[-1] * (1 - 1e-12)
        assert largest.bound <= (1 + 2 * accuracy) * largest.value * (1 + 1e-12)
        assert largest.second >= 0.8 * exact[-2]
        kept = np.sort(rng.permutation(alive.size)[:size])
        block.keep(kept)
        alive = alive[kept]
        guess = largest.vector[kept] / np.linalg.norm(largest.vector[kept])
        image = block.times(guess[None])[0]
        np.testing.assert_allclose(image, matrix[np.ix_(alive, alive)] @ guess, atol=1e-12)
        found = updated_eigenvalue(largest, guess, image, accuracy)
        followed += found is not None
        largest = found or leading_eigenvalue(block, accuracy, guess)
    # Columns with a common factor need no second product as a rule.
    assert followed >= (20 if seed % 2 and accuracy == 0.02 else 0)
    assert (matrix == before).all()


def test_another_eigenvector_may_become_the_largest():
    # Two groups of equal columns: the larger one loses its columns, and the guess knows nothing of the other.
    matrix = np.zeros((30, 30))
    matrix[:20, :20], matrix[20:, 20:] = 0.9, 0.8
    np.fill_diagonal(matrix, 1.0)
    block = ShrinkingSubmatrix(matrix, np.arange(30))
    largest = leading_eigenvalue(block, 0.02)
    assert largest.value == pytest.approx(18.1, rel=1e-3)
    kept = np.arange(18, 30)
    block.keep(kept)
    guess = largest.vector[kept] / np.linalg.norm(largest.vector[kept])
    assert updated_eigenvalue(largest, guess, block.times(guess[None])[0], 0.02) is None
    assert leading_eigenvalue(block, 0.02, guess).value == pytest.approx(8.2, rel=1e-3)


def test_largest_eigenvalue_of_the_identity_and_of_opposite_columns():
    for p in (1, 2, 5):
        assert leading_eigenvalue(ShrinkingSubmatrix(np.eye(p), np.arange(p)), 0.02).value == pytest.approx(1.0)
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    matrix = 0.9 * np.outer(signs, signs) + 0.1 * np.eye(4)
    assert leading_eigenvalue(ShrinkingSubmatrix(matrix, np.arange(4)), 0.02).value == pytest.approx(3.7)


@pytest.mark.parametrize("t", [1, 2, 3, 4])
def test_products_of_the_columns_that_are_left(t):
    matrix = correlations(3)
    rng = np.random.default_rng(t)
    for size in (80, 79, 70, 30, 3, 1):
        kept = np.sort(rng.permutation(80)[:size])
        vectors = rng.standard_normal((t, size))
        block = ShrinkingSubmatrix(matrix, kept)
        np.testing.assert_allclose(block.times(vectors), vectors @ matrix[np.ix_(kept, kept)], atol=1e-12)


def test_newton_solves_the_columns_that_are_left(make):
    data = make(500, 60, 6, beta=0.5)
    fit = anneal(data.problem, 6, newton=True)
    assert fit.support.tolist() == data.true.tolist()
    np.testing.assert_allclose(fit.scores[fit.support], np.abs(fit.coef[fit.support, 0]), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"), [({"n_iter": 0}, "n_iter"), ({"n_iter": 2.5}, "n_iter"), ({"mu": -1.0}, "mu")]
)
def test_bad_options_are_named(make, options, words):
    with pytest.raises(BadParameter, match=words):
        anneal(make(30, 6, 2).problem, 2, **options)
