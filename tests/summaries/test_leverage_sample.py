"""Leverage by brute force, the sampling guarantee over many seeds, and samples that do not depend on order."""

import itertools

import numpy as np
import pytest
from tests.summaries.oracles import relative_error

from sketchselect.errors import BadBlock, BadParameter, Incompatible, NotFinite
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.leverage import (
    GrowingFactor,
    column_error,
    floored,
    leverage_bounds,
    ridge_factor,
    sample_scores,
    scatter_scores,
    spectral_error,
    tail_ridge,
)
from sketchselect.linalg.spectrum import Directions, symmetric_directions
from sketchselect.summaries import FrequentDirections, LeverageSample, LeverageScores, decode, encode
from sketchselect.testing.nasty import nasty_matrices

NASTY = nasty_matrices()


def leverage(A, ridge):
    """Scores of the rows of A from its singular values: no inverse, no cancellation."""
    u, s, _ = np.linalg.svd(A, full_matrices=False)
    return (u**2) @ (s**2 / (s**2 + ridge)) if A.size else np.zeros(len(A))


def decaying(n, p, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((p, n)) / np.arange(1, n + 1)


def draws(seed, p):
    return uniforms(derive_seed(seed, "leverage-sample"), np.arange(p, dtype=np.uint64))


def by_hand(A, eps, rate, ridge, seed=0):
    """Algorithm 1 with a pseudo-inverse in every step."""
    u = draws(seed, len(A))
    M, kept = ridge * np.eye(A.shape[1]), {}
    for i, a in enumerate(A):
        p = min(rate * min((1 + eps) * (a @ np.linalg.pinv(M, hermitian=True) @ a), 1), 1)
        if u[i] < p:
            kept[i] = p
            M = M + np.outer(a, a) / p
    return kept


@pytest.mark.parametrize(("n", "p"), [(3, 300), (20, 150), (40, 110), (60, 40), (1, 50)])
@pytest.mark.parametrize("ridge", [1e-6, 0.3, 40.0])
@pytest.mark.statement("Wang 2018, Algorithm 1")
def test_blocks_select_what_a_pseudo_inverse_in_every_step_selects(n, p, ridge):
    A = decaying(n, p, seed=n)
    s = LeverageSample(eps=0.3, sampling_rate=4.0, ridge=ridge).from_block(A)
    expected = by_hand(A, 0.3, 4.0, ridge)
    assert s.items.tolist() == list(expected)
    assert np.allclose(s.probabilities, list(expected.values()), rtol=1e-7)


@pytest.mark.parametrize("m", [5, 30, 31, 80])
@pytest.mark.parametrize("ridge", [1e-9, 1e-2, 10.0])
def test_both_forms_of_the_inverse_equal_the_brute_force(m, ridge):
    rng = np.random.default_rng(m)
    C, X = rng.standard_normal((m, 31)), rng.standard_normal((7, 31))
    factor = GrowingFactor(31, ridge)
    for a in range(0, m, 4):
        factor.append(C[a : a + 4])
    _, sv, vt = np.linalg.svd(C)
    turned = X @ vt.T / np.sqrt(np.r_[sv, np.zeros(31 - sv.size)] ** 2 + ridge)
    oracle = turned @ turned.T
    assert np.allclose(factor.inner(X), oracle, rtol=1e-7, atol=1e-9 * np.abs(oracle).max())
    p = rng.random(m) * 0.9 + 0.1
    scaled = C / np.sqrt(p)[:, None]
    assert np.allclose(sample_scores(C, p, ridge), p * leverage(scaled, ridge), rtol=1e-7)
    assert np.allclose(scatter_scores(C, ridge_factor(C.T @ C, ridge)), leverage(C, ridge), rtol=1e-6)


@pytest.mark.share(40)
@pytest.mark.parametrize("name", list(NASTY))
@pytest.mark.parametrize("size", [2, 6, 20, 200])
@pytest.mark.parametrize("share", [1e-13, 1e-6, 1e-3, 1.0])
def test_bounds_from_a_sketch_hold_on_nasty_matrices(name, size, share):
    A = NASTY[name].astype(float)
    sketch = FrequentDirections(size).from_block(A)
    norm = float((A**2).sum())
    ridge = floored(share * norm, norm)
    lower, upper = leverage_bounds(sketch.directions, sketch.column_squared_norms, sketch.shrinkage, ridge)
    # The oracle itself knows no score better than this.
    room = 1e-15 * norm / ridge * np.sqrt(A.size)
    tau = leverage(A.T, ridge)
    assert (lower <= tau + room).all()
    assert (tau <= upper + room).all()
    assert (lower <= upper).all()
    assert (lower >= 0).all()
    assert (upper <= 1).all()
    assert (upper[(A == 0).all(axis=0)] == 0).all()


@pytest.mark.parametrize("k", [1, 3, 10])
def test_the_ridge_of_the_tail_is_a_lower_bound_and_scores_sum_to_at_most_2k(k):
    for seed in range(3):
        A = decaying(40, 120, seed)
        exact = np.linalg.svd(A, compute_uv=False)[k:] ** 2
        for size in (k + 1, 2 * k + 2, 40):
            sketch = FrequentDirections(size).from_block(A)
            ridge = tail_ridge(sketch.directions, sketch.squared_norm, sketch.shrinkage, k)
            assert ridge <= exact.sum() / k * (1 + 1e-9)
        assert leverage(A.T, exact.sum() / k).sum() <= 2 * k
        assert ridge == pytest.approx(exact.sum() / k)


def test_the_sum_of_upper_bounds_does_not_grow_with_the_number_of_columns():
    rng = np.random.default_rng(0)
    sums = []
    for p in (200, 800):
        A = rng.standard_normal((300, 5)) @ rng.standard_normal((5, p)) * 3 + rng.standard_normal((300, p))
        sketch = FrequentDirections(40).from_block(A)
        assert sketch.shrinkage > 0 or p == 200
        ridge = tail_ridge(sketch.directions, sketch.squared_norm, sketch.shrinkage, 5)
        _, upper = leverage_bounds(sketch.directions, sketch.column_squared_norms, sketch.shrinkage, ridge)
        sums.append(upper.sum())
    assert max(sums) < 8 * 5


# --- the guarantee ---------------------------------------------------------------------------------------------


def banded(description, A, n_bands):
    cuts = np.linspace(0, len(A), n_bands + 1).astype(int)
    return [description.from_block(A[a:b], start=int(a)) for a, b in itertools.pairwise(cuts)]


def merged(parts):
    parts = list(parts)
    while len(parts) > 1:
        parts = [parts[i].merge(parts[i + 1]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ridge", "n_bands"),
    [("auto", 8), (1.0, 1), *(pytest.param(*pair, marks=pytest.mark.nightly) for pair in (("auto", 1), (1.0, 8)))],
)
@pytest.mark.statement("Wang 2018, Theorem 1")
def test_guarantee_and_unbiased_weights_over_200_seeds(n_bands, ridge):
    n, p, eps, rate, n_seeds = 6, 900, 0.5, 60.0, 200
    A = decaying(n, p) * 4
    failing = 2 * n * np.exp(-3 * rate * eps**2 / 8)
    assert failing < 0.1
    errors, norms, kept, traces = [], [], [], []
    probe = np.random.default_rng(1).standard_normal((n, 3))
    for seed in range(n_seeds):
        s = merged(banded(LeverageSample(eps, rate, ridge, seed), A, n_bands))
        errors.append(relative_error(s.sample, A, s.final_ridge))
        norms.append((s.sample**2).sum())
        traces.append(((s.sample @ probe) ** 2).sum(axis=0))
        kept.append(s.n_kept)
    assert np.mean(np.array(errors) <= eps) >= 1 - failing
    assert np.mean(kept) < 0.95 * p, "nothing was sampled: this proves nothing"
    if n_bands == 1:
        # A martingale: without bias. Resampling at a merge depends on what was drawn before.
        for drawn, expected in (
            (np.array(norms)[:, None], [(A**2).sum()]),
            (np.array(traces), ((A @ probe) ** 2).sum(axis=0)),
        ):
            error = drawn.std(axis=0, ddof=1) / np.sqrt(n_seeds)
            assert (np.abs(drawn.mean(axis=0) - expected) <= 3 * error).all()


@pytest.mark.statement("Wang 2018, Equation 3.3")
def test_scores_stay_above_the_true_ones_where_the_guarantee_holds():
    A = decaying(10, 900)
    for seed in range(20):
        s = merged(banded(LeverageSample(0.5, "paper", "auto", seed), A, 4))
        assert ((1 + s.eps) * s.scores >= leverage(A, s.final_ridge) * (1 - 1e-9)).all()


def test_merging_reduces_and_keeps_a_nested_sample():
    A = decaying(10, 4000)
    d = LeverageSample(0.5, 20.0, 0.5)
    parts = banded(d, A, 16)
    union = set(np.concatenate([part.items for part in parts]))
    whole = merged(parts)
    assert set(whole.items) < union
    assert whole.n_kept < 0.5 * len(union)
    # One uniform number each: what is kept is what is below its probability, whatever the path.
    u = draws(0, len(A))
    assert (u[whole.items] < whole.probabilities).all()
    assert np.array_equal(whole.draws, u[whole.items])


def test_arrival_in_any_order_and_either_side_of_a_merge():
    A = decaying(15, 600)
    d = LeverageSample(0.5, 6.0)
    a, b = banded(d, A, 2)
    assert a.merge(b) == b.merge(a)
    order = np.random.default_rng(0).permutation(300)
    shuffled = d.from_block(A[order], start=order)
    assert shuffled.seen.tolist() == list(range(300))
    assert np.array_equal(shuffled.sample, A[shuffled.items] * shuffled.weights[:, None])


def test_update_goes_on_where_the_sample_stands():
    A = decaying(25, 900)
    d = LeverageSample(0.4, 5.0, 2.0)
    whole = d.from_block(A)
    stream = d.from_block(A[:123]).update(A[123:124]).update(A[124:700]).update(A[700:])
    assert stream.items.tolist() == whole.items.tolist()
    assert np.allclose(stream.probabilities, whole.probabilities, rtol=1e-9)
    assert stream.n_rows == 900
    assert decode(encode(stream)) == stream
    with pytest.raises(Incompatible, match="25 and 24"):
        stream.update(A[:, :24])


def test_the_ridge_is_a_share_of_what_was_seen_and_never_shrinks():
    A = decaying(8, 60)
    d = LeverageSample()
    a, b = banded(d, A, 2)
    assert a.final_ridge + b.final_ridge == pytest.approx(a.merge(b).final_ridge)
    assert a.merge(b).final_ridge == pytest.approx(1e-3 * (A**2).sum())
    assert d.from_block(A).final_ridge == pytest.approx(1e-3 * (A**2).sum())
    fixed = LeverageSample(ridge=0.7)
    x, y = banded(fixed, A, 2)
    assert x.merge(y).final_ridge == 0.7


# --- edges -----------------------------------------------------------------------------------------------------


def test_without_ridge_a_direction_outside_the_span_has_score_1():
    A = np.vstack([np.repeat(np.eye(5)[:3], 200, axis=0), 1e-3 * np.eye(5)[3:4], np.zeros((2, 5)), np.eye(5)[:1]])
    s = LeverageSample(ridge=0, sampling_rate=1.0).from_block(A)
    assert s.scores[600] == 1
    assert s.scores[0] == s.scores[200] == 1
    assert (s.scores[601:603] == 0).all()
    assert 600 in s.items
    assert not {601, 602} & set(s.items)
    assert s.scores[603] < 0.1


def test_zero_rows_only_and_no_rows():
    s = LeverageSample().from_block(np.zeros((4, 3)))
    assert s.n_kept == 0
    assert s.squared_norm == 0
    assert s.n_rows == 4
    assert s.merge(LeverageSample().from_block(np.zeros((4, 3)), start=4)).n_kept == 0
    assert LeverageSample().from_block(np.zeros((0, 3))).n_rows == 0


@pytest.mark.parametrize("scale", [1e-120, 1e-60, 1e60, 1e120])
def test_scale_does_not_matter(scale):
    A = decaying(9, 300)
    plain, scaled = (LeverageSample(0.5, 3.0).from_block(X) for X in (A, scale * A))
    assert plain.items.tolist() == scaled.items.tolist()
    assert np.allclose(plain.scores, scaled.scores, rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eps": 0}, "eps"),
        ({"eps": 1}, "eps"),
        ({"eps": float("nan")}, "eps"),
        ({"eps": "half"}, "eps"),
        ({"sampling_rate": 0}, "sampling_rate"),
        ({"sampling_rate": "theory"}, "sampling_rate"),
        ({"sampling_rate": float("inf")}, "sampling_rate"),
        ({"ridge": -1.0}, "ridge"),
        ({"ridge": "large"}, "ridge"),
        ({"ridge": True}, "ridge"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_bad_parameters_are_named(arguments, message):
    with pytest.raises(BadParameter, match=message):
        LeverageSample(**arguments)


def test_what_is_not_finite_and_weights_that_are_negative_are_refused():
    A = decaying(4, 20)
    A[7, 2] = np.nan
    with pytest.raises(NotFinite, match="row 107, column 2"):
        LeverageSample().from_block(A, start=100)
    with pytest.raises(NotFinite, match="row 7, column 2"):
        LeverageScores(np.eye(4), 1.0).from_block(A)
    with pytest.raises(BadBlock, match="sample_weight"):
        LeverageSample().from_block(A[:3], sample_weight=[1, -1, 1])
    for factor in (np.ones((2, 3)), -np.eye(2), np.full((2, 2), np.nan)):
        with pytest.raises(BadParameter, match="factor"):
            LeverageScores(factor, 1.0)
    with pytest.raises(Incompatible, match="4 values, these have 3"):
        LeverageScores(np.eye(4), 1.0).from_block(np.ones((2, 3)))


# --- the error measured afterwards -----------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "p"), [(6, 200), (40, 25), (30, 90)])
def test_realised_error_equals_the_general_eigenproblem(n, p):
    A = decaying(n, p)
    s = LeverageSample(0.5, 0.5, 0.01).from_block(A)
    expected = relative_error(s.sample, A, 0.01)
    assert spectral_error(s.sample, symmetric_directions(A.T @ A), 0.0, 0.01) == pytest.approx(expected, rel=1e-8)
    _, sv, vt = np.linalg.svd(A, full_matrices=False)
    assert spectral_error(s.sample, Directions(sv**2, vt), 0.0, 0.01) == pytest.approx(expected, rel=1e-8)
    weights = np.zeros(p)
    weights[s.items] = 1 / s.probabilities
    assert column_error(weights, symmetric_directions(A @ A.T), 0.01) == pytest.approx(expected, rel=1e-8)
    assert expected > 0.01


@pytest.mark.parametrize("size", [3, 10, 40])
def test_realised_error_from_a_sketch_is_an_upper_bound(size):
    for seed in range(5):
        A = decaying(120, 300, seed)
        s = LeverageSample(0.5, 2.0, 0.5, seed).from_block(A)
        sketch = FrequentDirections(size).from_block(A)
        assert size == 10 or size == 40 or sketch.shrinkage > 0
        result = spectral_error(s.sample, sketch.directions, sketch.shrinkage, 0.5)
        assert result >= relative_error(s.sample, A, 0.5) * (1 - 1e-9)


@pytest.mark.parametrize(("n", "ridge"), [(4, 1.0), (30, 0.01), (30, "auto")])
@pytest.mark.statement("Wang 2018, Memory cost")
def test_a_merged_sample_keeps_no_more_rows_than_it_says(n, ridge):
    rows = np.random.default_rng(0).standard_normal((6000, n))
    description = LeverageSample(sampling_rate=2.0, ridge=ridge)
    union = description.empty(n)
    for start in range(0, 6000, 500):
        union = union.merge(description.from_block(rows[start : start + 500], start=start))
    most = description.most_rows(n)
    assert union.n_kept <= most + 4 * np.sqrt(most)
    assert union.n_kept >= most / 20
