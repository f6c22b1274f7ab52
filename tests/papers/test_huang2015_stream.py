"""Algorithm 2 of Huang et al. (2015) as printed: the loop, its bounds, and section 3.4.1 where it holds."""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import BadParameter, Incompatible
from sketchselect.selectors.sketched import ridge_weights

SIZES = [(6, 3), (12, 5), (20, 5)]


def unit_rows(seed, n=200, p=30, decay=0.8):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, p)) * decay ** np.arange(p) @ np.linalg.qr(rng.standard_normal((p, p)))[0]
    A += 0.02 * rng.standard_normal((n, p))
    return A / np.linalg.norm(A, axis=1, keepdims=True)


def batches(A, n_t):
    return [A[a : a + n_t] for a in range(0, len(A), n_t)]


def literally(A, n_t, size, k, **settings):
    """Return the selector of Algorithm 2 after all batches."""
    selector = sks.SketchedRidgeSelector(5, k, size, normalize=None, literal=True, **settings)
    for rows in batches(A, n_t):
        selector.partial_fit(rows)
    return selector


def algorithm_2(A, n_t, size, k, alpha="paper"):
    """Steps 1 to 7, with features as rows as in the paper."""
    B, shrinkage = np.zeros((A.shape[1], size)), 0.0
    for Y in batches(A, n_t):
        U, s, _ = np.linalg.svd(np.hstack([B, Y.T]), full_matrices=False)
        U, s = U[:, :size], s[:size]
        least = s[size - 1] if len(s) == size else 0.0
        B = np.zeros((A.shape[1], size))
        shrunk = np.sqrt(np.maximum(s**2 - least**2, 0.0))
        B[:, : len(s)] = U * shrunk
        shrinkage += least**2
    ridge = 8 * shrunk[k - 1] if alpha == "paper" else alpha
    D = shrunk[:k] / (shrunk[:k] ** 2 + ridge)
    return np.abs(U[:, :k] * D).max(axis=1), B, U[:, :k], shrunk, shrinkage


@pytest.mark.share(4)
@pytest.mark.statement("Huang 2015, Algorithm 2")
@pytest.mark.parametrize(("size", "k"), SIZES)
@pytest.mark.parametrize("n_t", [1, 7, 100, 200])
def test_the_literal_selector_batch_by_batch_is_algorithm_2(size, k, n_t):
    """Wide rows and tall ones; also where a number replaces the paper's ridge."""
    for seed, (n, p) in enumerate(((100, 30), (210, 30), (210, 240))[: 2 if n_t == 1 else 3]):
        A = unit_rows(seed, n, p)
        expected, B, _, _, lost = algorithm_2(A, n_t, size, k)
        literal = literally(A, n_t, size, k)
        sketch = literal.summary_
        # The kernel takes the square roots of eigenvalues of the rows' Gram matrix.
        np.testing.assert_allclose(literal.scores_, expected, rtol=1e-9, atol=1e-11 * expected.max())
        np.testing.assert_allclose(sketch.sketch.T @ sketch.sketch, B @ B.T, atol=1e-11 * np.linalg.norm(A) ** 2)
        assert sketch.shrinkage == pytest.approx(lost, rel=1e-9, abs=1e-12)
        again = sks.SketchedRidgeSelector(5, k, size, alpha=0.3, literal=True).fit_summary(sketch)
        np.testing.assert_allclose(again.scores_, algorithm_2(A, n_t, size, k, alpha=0.3)[0], rtol=1e-9, atol=1e-11)


@pytest.mark.statement("Huang 2015, Algorithm 2")
def test_a_literal_stream_refuses_what_algorithm_2_has_not():
    A = unit_rows(0)
    with pytest.raises(BadParameter, match="half_life"):
        sks.SketchedRidgeSelector(5, 3, 12, literal=True, half_life=10).partial_fit(A)
    with pytest.raises(BadParameter, match='about="zero"'):
        sks.SketchedRidgeSelector(5, 3, 12, literal=True, about="mean").fit(A)
    with pytest.raises(Incompatible, match="batch-directions"):
        sks.SketchedRidgeSelector(5, 3, 12, literal=True).fit_summary(sks.FrequentDirections(12).from_block(A))
    changed = sks.SketchedRidgeSelector(5, 3, 12).partial_fit(A).set_params(literal=True)
    with pytest.raises(Incompatible, match="literal"):
        changed.partial_fit(A)


@pytest.mark.slow
@pytest.mark.statement("Huang 2015, Algorithm 2")
@pytest.mark.parametrize(("size", "k"), SIZES)
def test_the_default_is_within_both_shrinkages_of_algorithm_2_and_equals_it_where_nothing_is_lost(size, k):
    settings = {"sketch_size": size, "alpha": "paper", "normalize": None, "compensate": False}
    A = unit_rows(0, p=320)
    literal = literally(A, 50, size, k).summary_
    ours = sks.SketchedRidgeSelector(5, k, **settings).fit(A).summary_
    gap = np.linalg.eigvalsh(ours.sketch.T @ ours.sketch - literal.sketch.T @ literal.sketch)
    assert ours.shrinkage > 0
    assert -ours.shrinkage - 1e-9 <= gap[0] <= gap[-1] <= literal.shrinkage + 1e-9
    # Two rows fewer than the sketch holds: the mean is a row too.
    rank = size - 3
    low = A[:, :rank] @ np.random.default_rng(1).standard_normal((rank, 320))
    weights = literally(low, 50, size, min(k, rank)).scores_
    exact = sks.SketchedRidgeSelector(5, min(k, rank), **settings).fit(low)
    np.testing.assert_allclose(weights, exact.scores_, rtol=1e-6, atol=1e-9 * weights.max())


@pytest.mark.share(4)
@pytest.mark.statement(
    "Huang 2015, Section 3.4, bound of Liberty", "Huang 2015, Section 3.4, bound of Ghashami and Phillips"
)
@pytest.mark.parametrize(("size", "k"), SIZES)
@pytest.mark.parametrize("n_t", [1, 7, 100, 200])
def test_the_bounds_of_frequent_directions_hold_for_any_batches(size, k, n_t):
    for seed in range(2):
        A = unit_rows(seed, decay=0.95)
        stream = literally(A, n_t, size, k).summary_
        Q, shrinkage = stream.sketch, stream.shrinkage
        gap = np.linalg.eigvalsh(A.T @ A - Q.T @ Q)
        slack = 1e-10 * len(A)
        assert -slack <= gap[0] <= gap[-1] <= min(shrinkage, 2 * len(A) / size) + slack
        exact, kept = np.linalg.svd(A, compute_uv=False) ** 2, np.linalg.svd(Q, compute_uv=False) ** 2
        for j in range(size):
            lost = len(A) - kept[:j].sum()
            assert exact[j:].sum() - slack <= lost <= size / (size - j) * exact[j:].sum() + slack


def aligned(A, n_t, size, k, alpha):
    """Return w, U, D, all singular values; the same of the sketch, with the signs of U; and the shrinkage."""
    _, s, vt = np.linalg.svd(A, full_matrices=False)
    sketched, _, V, shrunk, shrinkage = algorithm_2(A, n_t, size, k, alpha)
    U = vt[:k].T
    D = s[:k] / (s[:k] ** 2 + alpha)
    V = V * np.sign((U * V).sum(axis=0))
    E = shrunk[:k] / (shrunk[:k] ** 2 + alpha)
    return (np.abs(U * D).max(axis=1), U, D, s), (sketched, V, E, shrunk), shrinkage


def gammas(squares, shrunk, k):
    """Equations 7 and 8."""
    kappa2, head, kept = squares[0] / squares[k - 1], squares[:k].sum(), (shrunk[:k] ** 2).sum()
    return (kappa2 * head - kept) / (head - kept), 1 + 2 / (kappa2 - shrunk[0] ** 2 / squares[0])


@pytest.mark.statement(
    "Huang 2015, Equation 6", "Huang 2015, Equations 7 and 8", "Huang 2015, Proposition 3.5", "Huang 2015, Theorem 3.1"
)
@pytest.mark.parametrize(("size", "k"), SIZES)
@pytest.mark.parametrize("share", [0.01, 1.0, 100.0])
def test_weights_of_the_sketch_are_as_close_as_the_directions_and_the_singular_values(size, k, share):
    for seed in range(5):
        A = unit_rows(seed, decay=0.6)
        squares = np.linalg.svd(A, compute_uv=False) ** 2
        alpha = share * np.sqrt(squares[k - 1])
        (w, U, D, _), (sketched, V, E, shrunk), shrinkage = aligned(A, 50, size, k, alpha)
        error, spread = np.linalg.norm(w - sketched), np.abs(D - E).max()
        assert error <= np.linalg.norm(U - V) * D.max() + np.sqrt(k) * spread + 1e-12
        gamma_a, gamma_b = gammas(squares, shrunk, k)
        assert gamma_a >= 1
        assert gamma_b >= 1
        # Proposition 3.5, and the sharper bound from which it follows.
        tail, least = np.sqrt(squares[k:].sum()), shrunk[k - 1] ** 2 + alpha
        sharp = np.sqrt(shrinkage) / least
        assert spread <= sharp * (1 + 1e-9) <= tail / least * np.sqrt(gamma_a * gamma_b * k / (size - k)) * (1 + 1e-8)
        # Theorem 3.1 with the bound of Davis and Kahan: |u - v|^2 <= 8 (Delta / gap)^2, whatever the sketch.
        gaps = np.array([np.abs(np.delete(squares, i) - squares[i]).min() for i in range(k)])
        turned = np.minimum(8 * (shrinkage / gaps) ** 2, 2.0).sum() ** 0.5
        assert np.linalg.norm(U - V) <= turned + 1e-9
        assert error <= turned * D.max() + np.sqrt(k) * sharp + 1e-12


@pytest.mark.statement("Huang 2015, Proposition 3.4")
def test_proposition_3_4_depends_on_the_units_and_so_is_false_for_any_constant():
    """The condition and the left side do not change with the unit of the data; the right side falls with its size."""
    size, k = 12, 3
    A = unit_rows(0, decay=0.6)
    sides = []
    for scale in (1.0, 1e3, 1e6):
        Y = scale * A
        (_, U, _, s), (_, V, _, shrunk), _ = aligned(Y, 50, size, k, 1.0)
        squares = s**2
        kappa2 = squares[0] / squares[k - 1]
        L = np.abs(np.diff(squares)).min()
        gamma_a, gamma_b = gammas(squares, shrunk, k)
        condition = np.sqrt(Y.shape[1]) * kappa2 * squares[0] * gamma_a * gamma_b * k * squares[k:].sum() / L**2
        right = np.sqrt(2) * L / np.sqrt(L + 8 * kappa2 * squares[0]) / np.hypot(L, 4 * kappa2 * squares[0])
        sides.append((condition, np.linalg.norm(U - V), right))
    (condition, left, right), *others = sides
    assert left > 0
    for factor, (other_condition, other_left, other_right) in zip((1e3, 1e6), others, strict=True):
        assert other_condition == pytest.approx(condition, rel=1e-3)
        assert other_left == pytest.approx(left, rel=1e-3)
        assert other_right == pytest.approx(right / factor, rel=1e-3)
    assert others[-1][1] > others[-1][2]


@pytest.mark.statement("Huang 2015, Algorithm 2, storage")
def test_storage_is_that_of_the_sketch_whatever_the_number_of_rows():
    size, p = 8, 300
    for n in (200, 600):
        A = np.random.default_rng(0).standard_normal((n, p))
        literal = literally(A, 50, size, 3).summary_
        assert literal.sketch.shape == (size - 1, p)
        assert len(sks.summaries.encode(literal)) <= 8 * size * p + 8192
        sketch = sks.FrequentDirections(size).from_block(A)
        assert len(sks.summaries.encode(sketch)) <= 8 * (2 * size * p + 2 * p) + 8192


# --- section 3.5 -------------------------------------------------------------------------------------------------


def regressions(A, V, alpha):
    """Algorithm 1 with p = 2 for any targets V, solved as it stands."""
    return np.abs(np.linalg.solve(A.T @ A + alpha * np.eye(A.shape[1]), A.T @ V)).max(axis=1)


@pytest.mark.statement("Huang 2015, Section 3.5, zero mean and unit variance")
def test_standardised_rows_have_principal_components_as_targets():
    rng = np.random.default_rng(0)
    X = unit_rows(0) * 10.0 ** rng.uniform(-2, 2, 30) + 10 * rng.standard_normal(30)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    selector = sks.SketchedRidgeSelector(5, 4, 20, normalize=None)
    sketch = sks.summarize(X, selector.summary_description(30), prepare=["standardise"], client="serial")
    U, s, _ = np.linalg.svd(Z, full_matrices=False)
    assert np.allclose(sketch.directions.squares[:4] / len(X), np.linalg.eigvalsh(np.corrcoef(X.T))[::-1][:4])
    fitted = selector.fit_summary(sketch)
    np.testing.assert_allclose(fitted.scores_, regressions(Z, U[:, :4], s[3] ** 2), rtol=1e-6, atol=1e-9)


@pytest.mark.statement("Huang 2015, Section 3.5, random walk")
def test_rows_weighted_by_their_degrees_have_the_random_walk_as_affinity():
    """The eigenvalues of N^-1 Y'Y are the squared singular values of N^-1/2 Y': rows of weight 1 / N_ii."""
    Y = np.abs(unit_rows(0))
    Y /= np.linalg.norm(Y, axis=1, keepdims=True)
    degrees = Y @ Y.sum(axis=0)
    walk = np.linalg.eigvals((Y @ Y.T) / degrees[:, None])
    sketch = sks.FrequentDirections(20).from_block(Y, sample_weight=1 / degrees)
    assert np.allclose(sketch.directions.squares[:6], np.sort(walk.real)[::-1][:6])
    assert sketch.directions.squares[0] == pytest.approx(1)
    scores, alpha = ridge_weights(sketch.directions.squares, sketch.directions.vectors, 4)
    root = Y / np.sqrt(degrees)[:, None]
    U = np.linalg.svd(root, full_matrices=False)[0][:, :4]
    np.testing.assert_allclose(scores, regressions(root, U, alpha), rtol=1e-6, atol=1e-9)


@pytest.mark.statement("Huang 2015, Theorem 2.1", "Huang 2015, Equations 1 and 2")
def test_directions_give_the_best_approximation_and_the_regressions_without_penalty():
    A = unit_rows(3)
    U, s, _ = np.linalg.svd(A, full_matrices=False)
    directions = sks.FrequentDirections(20).from_block(A).directions
    V = directions.vectors[:4]
    assert ((A - A @ V.T @ V) ** 2).sum() == pytest.approx((s[4:] ** 2).sum(), rel=1e-9)
    scores, _ = ridge_weights(directions.squares, directions.vectors, 4, alpha=0.0)
    expected = np.abs(np.linalg.lstsq(A, U[:, :4], rcond=None)[0]).max(axis=1)
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-9)
