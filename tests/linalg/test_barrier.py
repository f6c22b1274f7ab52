"""Lemmas 7, 8 and 9 of Boutsidis and Magdon-Ismail 2012 on random, structured and degenerate inputs."""

import numpy as np
import pytest

from sketchselect.errors import BadParameter
from sketchselect.linalg import barrier
from sketchselect.linalg.barrier import longest_run, sample_frobenius, sample_spectral, top_up
from sketchselect.linalg.hashing import approximate_directions, combinations, draw_columns, draw_weights, gaussians

SLACK = 1e-9


def orthonormal(rows):
    return np.linalg.qr(rows)[0]


def random(rng, n, k):
    return orthonormal(rng.standard_normal((n, k)))


def spiky(rng, n, k):
    return orthonormal(rng.standard_normal((n, k)) * 10.0 ** rng.uniform(-6, 2, size=(n, 1)))


def aligned(rng, n, k):
    """Each direction is one column; the others carry nothing."""
    V = np.zeros((n, k))
    V[rng.permutation(n)[:k], np.arange(k)] = 1
    return V


def clustered(rng, n, k):
    """All leverages equal within a group: indicator directions."""
    group = np.r_[np.arange(k), rng.integers(k, size=n - k)]
    V = (group[:, None] == np.arange(k)).astype(float)
    return V / np.sqrt(V.sum(axis=0))


def duplicated(rng, n, k):
    half = rng.standard_normal(((n + 1) // 2, k))
    return orthonormal(np.concatenate([half, half])[:n])


def with_zeros(rng, n, k):
    rows = rng.standard_normal((n, k))
    rows[rng.permutation(n)[: n - k - 1]] = 0
    return orthonormal(rows)


def nearly_parallel(rng, n, k):
    return orthonormal(np.ones((n, 1)) + 1e-4 * rng.standard_normal((n, k)))


MAKERS = [random, spiky, aligned, clustered, duplicated, with_zeros, nearly_parallel]
SHAPES = [(5, 1), (12, 1), (12, 3), (40, 4), (40, 11), (150, 8)]


def step_counts(n, k):
    """k + 1; a few more; more steps than columns."""
    return sorted({k + 1, 2 * k + 3, 5 * k, n + 7})


def cases():
    for maker in MAKERS:
        for n, k in SHAPES:
            for steps in step_counts(n, k):
                yield pytest.param(maker, n, k, steps, id=f"{maker.__name__}-{n}-{k}-{steps}")


def smallest(V, s2):
    return np.linalg.svd(V * np.sqrt(s2)[:, None], compute_uv=False)[-1]


def norms_of(rng, n):
    """Squared column norms of matrices B: flat, spread over twelve orders, mostly zero, all zero."""
    yield np.ones(n)
    yield 10.0 ** rng.uniform(-6, 6, n)
    yield np.where(rng.random(n) < 0.7, 0.0, rng.exponential(size=n))
    yield np.zeros(n)


@pytest.mark.share(20)
@pytest.mark.parametrize(("maker", "n", "k", "steps"), list(cases()))
@pytest.mark.statement("Boutsidis 2012, Lemma 7", "Boutsidis 2012, Algorithm 1")
def test_lemma_7(maker, n, k, steps):
    rng = np.random.default_rng([n, k, steps])
    V = maker(rng, n, k)
    for norms in norms_of(rng, n):
        run = sample_frobenius(V, norms, steps)
        assert smallest(V, run.squares) >= 1 - np.sqrt(k / steps) - SLACK
        assert run.squares @ norms <= norms.sum() * (1 + SLACK)
        assert 1 <= run.n_columns <= steps


@pytest.mark.share(20)
@pytest.mark.parametrize(("maker", "n", "k", "steps"), list(cases()))
@pytest.mark.statement("Boutsidis 2012, Lemma 8")
def test_lemma_8_with_the_identity(maker, n, k, steps):
    V = maker(np.random.default_rng([n, k, steps]), n, k)
    run = sample_spectral(V, steps)
    assert smallest(V, run.squares) >= 1 - np.sqrt(k / steps) - SLACK
    assert np.sqrt(run.squares.max()) <= 1 + np.sqrt(n / steps) + SLACK


@pytest.mark.parametrize("other", MAKERS)
@pytest.mark.parametrize(("n", "k", "size"), [(12, 1, 1), (40, 4, 7), (40, 11, 3)])
@pytest.mark.statement("Boutsidis 2012, Lemma 8")
def test_lemma_8_with_any_second_matrix(other, n, k, size):
    for maker in MAKERS:
        rng = np.random.default_rng([n, k, size])
        V, Q = maker(rng, n, k), other(rng, n, size)
        for steps in step_counts(n, k):
            s2 = sample_spectral(V, steps, Q).squares
            assert smallest(V, s2) >= 1 - np.sqrt(k / steps) - SLACK
            norm = np.linalg.svd(Q * np.sqrt(s2)[:, None], compute_uv=False)[0]
            assert norm <= 1 + np.sqrt(size / steps) + SLACK


def test_the_closed_form_of_the_identity_is_the_general_one():
    rng = np.random.default_rng(0)
    for n, k, steps in [(30, 3, 8), (30, 3, 80), (60, 5, 20)]:
        V = random(rng, n, k)
        closed, dense = sample_spectral(V, steps).squares, sample_spectral(V, steps, np.eye(n)).squares
        assert np.allclose(closed, dense, rtol=1e-9)


@pytest.mark.statement("Boutsidis 2012, Algorithm 2")
def test_every_step_lies_between_the_barriers_of_the_paper():
    """Each 1 / t lies in [U, L] as printed (with the root), computed from the definitions with dense inverses."""
    rng = np.random.default_rng(1)
    n, k, steps = 15, 3, 9
    V = random(rng, n, k)
    rise = (1 + np.sqrt(n / steps)) / (1 - np.sqrt(k / steps))
    A, B = np.zeros((k, k)), np.zeros((n, n))
    seen = []
    update = barrier._lower_coefficients

    def watch(values, level):
        assert np.isclose(level, len(seen) - np.sqrt(steps * k))
        seen.append(values)
        return update(values, level)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(barrier, "_lower_coefficients", watch)
        s2 = sample_spectral(V, steps).squares
    # Replay: the same greedy rule from dense formulas.
    times = np.zeros(n)
    for tau in range(steps):
        low, up = tau - np.sqrt(steps * k), rise * (tau + np.sqrt(n * steps))
        assert np.allclose(np.linalg.eigvalsh(A), seen[tau])
        near = np.linalg.inv(A - (low + 1) * np.eye(k))
        gap = np.trace(near) - np.trace(np.linalg.inv(A - low * np.eye(k)))
        far = np.linalg.inv((up + rise) * np.eye(n) - B)
        drop = np.trace(np.linalg.inv(up * np.eye(n) - B)) - np.trace(far)
        L = np.array([v @ near @ near @ v / gap - v @ near @ v for v in V])
        U = np.diag(far @ far / drop + far)
        i = int(np.argmax(L - U))
        assert U[i] <= L[i]
        t = 2 / (L[i] + U[i])
        times[i] += t
        A += t * np.outer(V[i], V[i])
        B[i, i] += t
    assert np.allclose(s2, times * (1 - np.sqrt(k / steps)) / steps, rtol=1e-8)


def test_lemma_8_where_the_constant_as_printed_breaks_it():
    # n = 500, k = 10, r = 100: with 1 + n / r for 1 + sqrt(n / r) in the step of the barrier the norm was 3.297.
    V = random(np.random.default_rng(0), 500, 10)
    s2 = sample_spectral(V, 100).squares
    assert np.sqrt(s2.max()) <= 1 + np.sqrt(5)
    assert smallest(V, s2) >= 1 - np.sqrt(0.1)


def test_the_same_bits_twice_whatever_the_number_of_blas_threads():
    from threadpoolctl import threadpool_limits

    V = random(np.random.default_rng(3), 9001, 6)
    norms = np.random.default_rng(4).exponential(size=9001)
    result = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            result.append((sample_spectral(V, 25).squares, sample_frobenius(V, norms, 25).squares))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*result, strict=True))


def test_of_equal_columns_the_first_is_picked():
    V = duplicated(np.random.default_rng(5), 40, 3)
    # Copies differ by rounding, as singular vectors computed by LAPACK do.
    V = V * (1 + 1e-14 * np.random.default_rng(6).standard_normal(V.shape))
    for run in (sample_spectral(V, 12), sample_frobenius(V, np.ones(40), 12)):
        picked = np.flatnonzero(run.squares)
        # A copy may follow (its upper barrier is free), never lead.
        assert set(picked[picked >= 20] - 20) <= set(picked[picked < 20])


@pytest.mark.parametrize("maker", MAKERS)
def test_the_longest_run_keeps_the_lemmas_and_the_number_of_columns(maker):
    rng = np.random.default_rng(7)
    for n, k, r in [(40, 3, 4), (40, 3, 9), (40, 3, 40), (120, 6, 30)]:
        V, norms = maker(rng, n, k), rng.exponential(size=n)
        order = np.argsort(-(V**2).sum(axis=1), kind="stable")
        run = longest_run(lambda steps, V=V, r=r: sample_spectral(V, steps, most=r), r)
        R = run.n_iterations
        assert run.complete
        assert r <= R <= 8 * r
        assert run.n_columns <= r
        s2 = top_up(run.squares, order, r)
        assert np.count_nonzero(s2) == r
        assert smallest(V, s2) >= smallest(V, run.squares) - SLACK >= 1 - np.sqrt(k / R) - 2 * SLACK
        assert np.sqrt(s2.max()) <= 1 + np.sqrt(n / R) + SLACK
        run = longest_run(lambda steps, V=V, norms=norms, r=r: sample_frobenius(V, norms, steps, most=r), r)
        s2 = top_up(run.squares, order, r, norms, norms.sum())
        assert np.count_nonzero(s2) == r
        assert smallest(V, s2) >= 1 - np.sqrt(k / run.n_iterations) - SLACK
        assert s2 @ norms <= norms.sum() * (1 + SLACK)


def test_a_run_is_given_up_with_one_column_too_many():
    V = random(np.random.default_rng(8), 50, 4)
    assert not sample_spectral(V, 30, most=3).complete
    whole = sample_spectral(V, 30)
    assert sample_spectral(V, 30, most=whole.n_columns).complete


def test_too_few_steps_are_refused():
    V = random(np.random.default_rng(9), 10, 4)
    for call in (lambda: sample_spectral(V, 4), lambda: sample_frobenius(V, np.ones(10), 4)):
        with pytest.raises(BadParameter, match="more than 4 steps"):
            call()


@pytest.mark.share(2)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.statement("Boutsidis 2012, Lemma 9", "Boutsidis 2012, Algorithm 3")
def test_lemma_9(maker):
    """Unbiased to three standard errors; sigma_k bounded in nine of ten draws where the bound says anything."""
    rng = np.random.default_rng(10)
    n, k = 60, 2
    V = maker(rng, n, k)
    p = (V**2).sum(axis=1)
    # Columns without leverage are never drawn, so B must have none there either.
    norms = np.where(p > 0, p * rng.exponential(size=n), 0.0)
    r = int(np.ceil(16 * k * np.log(20 * k)))
    sums, good = [], 0
    for seed in range(200):
        s2 = draw_weights(p, draw_columns(p, r, seed))
        sums.append(s2 @ norms)
        good += smallest(V, s2) ** 2 >= 1 - np.sqrt(4 * k * np.log(20 * k) / r)
    error = np.std(sums) / np.sqrt(200)
    assert abs(np.mean(sums) - norms.sum()) <= 3 * error + SLACK
    assert good >= 180


def test_draws_are_keyed_by_their_index_and_follow_the_probabilities():
    p = np.array([0.1, 0.0, 0.6, 0.3])
    long = draw_columns(p, 20_000, seed=1)
    assert (draw_columns(p, 50, seed=1) == long[:50]).all()
    share = np.bincount(long, minlength=4) / long.size
    assert share[1] == 0
    assert np.abs(share - p).max() <= 4 * np.sqrt(0.25 / long.size)


def test_gaussians_are_standard_normal():
    g = gaussians(3, (200, 500)).ravel()
    assert abs(g.mean()) < 4 / np.sqrt(g.size)
    assert abs(g.var() - 1) < 4 * np.sqrt(2 / g.size)
    assert abs((g**4).mean() - 3) < 4 * np.sqrt(96 / g.size)


@pytest.mark.parametrize("decay", [0.0, 0.5, 2.0])
@pytest.mark.statement("Boutsidis 2012, Lemma 6")
def test_lemma_6_the_residual_of_random_directions(decay):
    """E ||B - B Z Z'||^2 <= (1 + eps) ||B - B_k||^2, in the mean over seeds."""
    rng = np.random.default_rng(11)
    m, n, k, epsilon = 40, 70, 4, 0.5
    B = random(rng, m, m) * (1.0 + np.arange(m)) ** -decay @ random(rng, n, m).T
    best = (np.linalg.svd(B, compute_uv=False)[k:] ** 2).sum()
    losses = []
    for seed in range(40):
        image = B.T @ gaussians(seed, (m, combinations(k, epsilon)))
        Z = approximate_directions(image, lambda M: B.T @ (B @ M), k)
        assert np.allclose(Z.T @ Z, np.eye(k))
        losses.append(((B - B @ Z @ Z.T) ** 2).sum())
    assert min(losses) >= best * (1 - SLACK)
    assert np.mean(losses) <= (1 + epsilon) * best


def test_directions_of_a_matrix_of_low_rank_are_no_more_than_its_rank():
    rng = np.random.default_rng(12)
    B = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 25))
    Z = approximate_directions(B.T @ gaussians(0, (30, 10)), lambda M: B.T @ (B @ M), 5)
    assert Z.shape == (25, 2)
    assert np.allclose(B @ Z @ Z.T, B)
