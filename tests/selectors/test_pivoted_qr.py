"""Redundancy-aware selectors: LAPACK's pivots, brute force, duplicated and empty columns, and the same answer twice."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import qr

import sketchselect as sks
from sketchselect.errors import BadParameter, EmptyInput, Incompatible
from sketchselect.linalg.pivoting import greedy_columns, pivot_columns

METHODS = [sks.PivotedQRSelector, sks.GreedySelector]


def multiples(C):
    """The columns of C that are multiples of a column, by an oracle that compares unit columns."""
    with np.errstate(invalid="ignore"):
        U = C / np.linalg.norm(C, axis=0)
    return lambda j: np.flatnonzero(np.abs(np.abs(U.T @ U[:, j]) - 1) < 1e-12)


def pivots(C, n, unseen=None):
    return pivot_columns(C, np.zeros(C.shape[1]) if unseen is None else unseen, multiples(C), n)


def greedy(C, noise, n, unseen=None):
    return greedy_columns(C, noise, np.zeros(C.shape[1]) if unseen is None else unseen, multiples(C), n)


def spread(n=500, d=60, rank=12, seed=0):
    """Rows of low rank with clearly different singular values, and some noise."""
    rng = np.random.default_rng(seed)
    scale = np.geomspace(10, 1, rank)
    return (rng.standard_normal((n, rank)) * scale) @ rng.standard_normal((rank, d)) + 0.05 * rng.standard_normal(
        (n, d)
    )


# --- the kernels -------------------------------------------------------------------------------------------------


@pytest.mark.share(25)
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("shape", [(1, 9), (6, 40), (30, 30), (40, 17)])
def test_pivots_are_those_of_lapack(seed, shape):
    rng = np.random.default_rng(seed)
    C = rng.standard_normal(shape) * np.geomspace(1, 1e-3, shape[0])[:, None]
    k = min(shape)
    # geqp3 pivots on the same rule; well-separated random columns leave it no ties.
    assert pivots(C, k).order.tolist() == qr(C, mode="r", pivoting=True)[1][:k].tolist()


def test_pivots_keep_their_digits_where_columns_nearly_depend_on_each_other():
    # Lauchli-like: distances to the span are 1e-5 of the columns, with a clear order among them.
    rng = np.random.default_rng(1)
    small = 1e-5 * np.array([3.0, 9.0, 1.0, 27.0, 81.0])
    C = np.vstack([np.ones(6) * 4, np.c_[np.zeros(5), np.diag(small)]])
    C[0] += 1e-3 * rng.standard_normal(6)
    assert pivots(C, 6).order.tolist() == qr(C, mode="r", pivoting=True)[1][:6].tolist()


def test_columns_outside_the_directions_follow_by_their_norms_there():
    rng = np.random.default_rng(2)
    C, unseen = rng.standard_normal((5, 23)), rng.exponential(size=23)
    unseen[[4, 9]] = 0
    for choose in (pivots, lambda C, n, unseen: greedy(C, np.zeros(23), n, unseen)):
        order = choose(C, 23, unseen).order.tolist()
        assert sorted(order) == list(range(23))
        following = [j for j in np.argsort(-unseen) if j not in order[:5] and unseen[j] > 0]
        assert order[5 : 5 + len(following)] == following


def trace_left(C, noise, chosen):
    """Posterior trace of C'MC by its definition, M = (I + C_S diag(1/noise) C_S')^-1."""
    S = C[:, chosen]
    return np.trace(C.T @ np.linalg.inv(np.eye(len(C)) + (S / noise[chosen]) @ S.T) @ C)


@pytest.mark.parametrize("seed", range(8))
def test_greedy_choice_is_the_best_single_step_by_brute_force(seed):
    rng = np.random.default_rng(seed)
    C = rng.standard_normal((6, 30)) * np.geomspace(1, 0.05, 6)[:, None]
    noise = rng.uniform(0.01, 1.0, 30)
    chosen: list[int] = []
    for j in greedy(C, noise, 30).order:
        rest = [i for i in range(30) if i not in chosen]
        after = {i: trace_left(C, noise, [*chosen, i]) for i in rest}
        # Gains within a millionth of each other count as equal.
        assert after[j] <= min(after.values()) + 1e-6 * np.linalg.norm(C) ** 2
        chosen.append(int(j))


@pytest.mark.parametrize("seed", range(8))
def test_without_noise_it_is_greedy_column_subset_selection(seed):
    rng = np.random.default_rng(seed)
    C = rng.standard_normal((6, 30))
    chosen: list[int] = []
    for j in greedy(C, np.zeros(30), 6).order:
        errors = {}
        for i in set(range(30)) - set(chosen):
            q, _ = np.linalg.qr(C[:, [*chosen, i]])
            errors[i] = np.linalg.norm(C - q @ (q.T @ C)) ** 2
        assert errors[j] <= min(errors.values()) + 1e-6 * np.linalg.norm(C) ** 2
        chosen.append(int(j))


def test_many_updates_do_not_drift():
    rng = np.random.default_rng(3)
    C = rng.standard_normal((8, 700)) * np.geomspace(1, 1e-3, 8)[:, None]
    noise = np.full(700, 1e-4)
    result = greedy(C, noise, 600).order
    assert len(set(result.tolist())) == 600
    # The 500th choice is still the best single step.
    before = result[:499].tolist()
    rest = np.setdiff1d(np.arange(700), before)
    after = np.array([trace_left(C, noise, [*before, i]) for i in rest])
    assert after[rest.tolist().index(result[499])] <= after.min() * (1 + 1e-6)


@pytest.mark.parametrize("scale", [1e-140, 1e-9, 1e9, 1e140])
def test_units_do_not_matter(scale):
    rng = np.random.default_rng(4)
    C, noise = rng.standard_normal((5, 20)), rng.uniform(0, 1, 20)
    assert pivots(scale * C, 15, scale**2 * noise).order.tolist() == pivots(C, 15, noise).order.tolist()
    assert greedy(scale * C, scale**2 * noise, 15).order.tolist() == greedy(C, noise, 15).order.tolist()


@pytest.mark.parametrize("choose", [pivots, lambda C, n: greedy(C, np.zeros(C.shape[1]), n)])
class TestDegenerate:
    def test_copies_come_after_independent_columns(self, choose):
        rng = np.random.default_rng(5)
        base = rng.standard_normal((6, 6))
        C = np.repeat(base, 4, axis=1)
        result = choose(C, 24)
        for lap in range(4):
            assert sorted(j // 4 for j in result.order[6 * lap : 6 * lap + 6]) == list(range(6))
        # The lowest index of equal columns goes first.
        assert sorted(result.order[:6].tolist()) == [0, 4, 8, 12, 16, 20]

    def test_multiples_and_sums_count_as_copies(self, choose):
        rng = np.random.default_rng(6)
        base = rng.standard_normal((8, 3))
        C = np.c_[base, -0.5 * base, base @ rng.standard_normal((3, 4))]
        first = choose(C, 10).order[:3]
        assert np.linalg.matrix_rank(C[:, first]) == 3
        # The sums are not multiples, so the copies of the base come after them.
        order = choose(C, 10).order.tolist()
        assert choose(C, 10).n_copies == 3
        assert len({j % 3 for j in order[7:]}) == 3
        assert max(order[7:]) < 6

    def test_columns_of_zeros_come_last(self, choose):
        C = np.zeros((3, 7))
        C[:, [1, 4]] = np.array([[1.0, 0], [0, 1e-9], [0, 0]])
        result = choose(C, 7)
        assert result.order.tolist() == [1, 4, 0, 2, 3, 5, 6]
        assert result.n_copies == 0

    def test_nothing_but_zeros(self, choose):
        assert choose(np.zeros((3, 4)), 3).order.tolist() == [0, 1, 2]
        assert choose(np.zeros((0, 4)), 3).order.tolist() == [0, 1, 2]

    def test_one_direction(self, choose):
        # Without noise every multiple predicts as well as any other: the larger one goes first.
        C = np.array([[1.0, -5.0, 3.0, 0.0]])
        assert choose(C, 4).order.tolist() == [1, 2, 0, 3]

    def test_every_column_once(self, choose):
        rng = np.random.default_rng(7)
        C = rng.standard_normal((4, 50))
        C[:, 10:20] = C[:, :10]
        assert sorted(choose(C, 50).order.tolist()) == list(range(50))


# --- the selectors -----------------------------------------------------------------------------------------------


def test_first_pivots_of_the_selector_are_those_of_an_exact_decomposition():
    X = spread()
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    _, s, vt = np.linalg.svd(X, full_matrices=False)
    expected = qr(s[:8, None] * vt[:8], mode="r", pivoting=True)[1][:8]
    chosen = sks.PivotedQRSelector(8, n_components=8).fit(X)
    assert np.argsort(-chosen.scores_, kind="stable")[:8].tolist() == expected.tolist()
    assert chosen.support_.tolist() == sorted(expected.tolist())
    outside = np.linalg.norm(X - (X @ vt[:8].T) @ vt[:8], axis=0)
    outside[expected] = 0
    more = sks.PivotedQRSelector(20, n_components=8).fit(X)
    assert np.argsort(-more.scores_, kind="stable")[8:20].tolist() == np.argsort(-outside)[:12].tolist()


@pytest.mark.parametrize("selector", METHODS)
@pytest.mark.parametrize("r", [1, 5, 39, 60])
def test_scores_rank_the_choice(selector, r):
    chosen = selector(r).fit(spread())
    order = np.argsort(-chosen.scores_, kind="stable")
    assert sorted(order[:r].tolist()) == chosen.support_.tolist()
    assert chosen.scores_[order[:r]].tolist() == list(range(r, 0, -1))
    assert (chosen.scores_[order[r:]] <= 0.5).all()


@pytest.mark.parametrize("selector", METHODS)
def test_moments_and_an_exact_sketch_say_the_same(selector):
    X = spread()
    sketch = sks.summarize(X, sks.FrequentDirections(160), prepare=["l2"])
    moments = sks.summarize(X, sks.Moments(), prepare=["l2"])
    assert sketch.is_exact
    a, b = selector(15).fit_summary(sketch), selector(15).fit_summary(moments)
    assert a.support_.tolist() == b.support_.tolist()
    assert a.selection_.parameters["sketch_size"] == 160
    assert b.selection_.parameters["sketch_size"] is None


@pytest.mark.parametrize("selector", METHODS)
def test_a_shrunk_sketch_finds_the_groups_that_the_data_have(selector):
    # 12 independent groups of 40 copies with noise: 12 columns must be one of each.
    rng = np.random.default_rng(8)
    Z = rng.standard_normal((2000, 12))
    X = np.repeat(Z, 40, axis=1) + 0.3 * rng.standard_normal((2000, 480))
    chosen = selector(12, n_components=12, sketch_size=26, normalize=None).fit(X)
    assert chosen.summary_.shrinkage > 0
    assert sorted(j // 40 for j in chosen.support_) == list(range(12))


@pytest.mark.parametrize("selector", METHODS)
@pytest.mark.parametrize("seed", range(8))
def test_copies_of_float32_columns_are_seen_by_moments(selector, seed):
    X = np.repeat(np.random.default_rng(seed).standard_normal((400, 60)) * 0.9 ** np.arange(60), 2, axis=1)
    summary = sks.summarize(X.astype(np.float32), sks.Moments())
    assert len(set(selector(50, normalize=None).fit_summary(summary).support_ // 2)) == 50


@pytest.mark.filterwarnings("ignore:rows were scaled to unit length")
@pytest.mark.parametrize("selector", METHODS)
@pytest.mark.parametrize(
    "X",
    [
        np.zeros((5, 4)),
        np.ones((5, 4)),
        np.eye(4)[[0, 0, 0]],
        np.array([[1e140, 2e140, 0.0], [3e140, -1e140, 0.0]]),
        np.array([[1e-160, 2e-160, 0.0], [3e-160, -1e-160, 0.0]]),
    ],
)
def test_degenerate_data_have_an_answer(selector, X):
    for r in range(1, X.shape[1] + 1):
        for normalize in ("l2", None):
            if not np.ptp(X, axis=0).any():
                with pytest.raises(EmptyInput, match=f"all {X.shape[1]} columns are constant.*1e-160"):
                    selector(r, normalize=normalize).fit(X)
                continue
            chosen = selector(r, normalize=normalize).fit(X)
            assert len(set(chosen.support_.tolist())) == r
            assert np.isfinite(chosen.scores_).all()
            assert (chosen.scores_[~X.any(axis=0)] == 0).all()


@pytest.mark.parametrize("selector", METHODS)
def test_a_summary_that_cannot_answer_is_refused(selector):
    with pytest.raises(Incompatible, match="frequent-directions or moments"):
        selector(3).fit_summary(sks.ColumnStats().from_block(spread()))
    small = sks.FrequentDirections(6).from_block(spread(d=200))
    with pytest.raises(BadParameter, match="has only 5"):
        selector(3, n_components=6).fit_summary(small)
    # Left to itself, it takes what the sketch resolves.
    assert selector(9).fit_summary(small).selection_.parameters["n_components"] == 3


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("m", [1, 6])
def test_greedy_columns_of_any_layout_are_those_of_brute_force(m, order):
    """Each step lowers ``tr(C' M C)`` most; the factor is left as it is."""
    rng = np.random.default_rng(m)
    factor = np.asarray(rng.standard_normal((m, 40)) * rng.uniform(0.2, 3, 40), order=order)
    noise, before = rng.uniform(0.5, 1.5, 40), factor.copy()
    chosen = greedy_columns(factor, noise, noise, lambda j: np.array([j]), 10).order
    assert np.array_equal(factor, before)
    precision = np.eye(m)
    for j in chosen:
        after = [precision + np.outer(c, c) / e for c, e in zip(factor.T, noise, strict=True)]
        errors = [np.trace(np.linalg.solve(one, factor @ factor.T)) for one in after]
        errors = np.where(np.isin(np.arange(40), chosen[: list(chosen).index(j)]), np.inf, errors)
        assert errors[j] <= errors.min() * (1 + 1e-9)
        precision += np.outer(factor[:, j], factor[:, j]) / noise[j]
