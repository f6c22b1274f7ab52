"""Column selection for k-means: certificates, factors and draws."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.selectors.conftest import blobs, objective

import sketchselect as sks
from sketchselect.errors import BadParameter, EmptyInput, Incompatible, NotFinite, SourceError
from sketchselect.selectors.deterministic import within_columns
from sketchselect.selectors.kmeans_columns import column_subspace
from sketchselect.selectors.randomized import n_candidates

SELECTORS = [sks.DeterministicSelector, sks.RandomizedSelector, sks.HybridSelector]
COMPLETE = [sks.DeterministicSelector, partial(sks.RandomizedSelector, top_up=True), sks.HybridSelector]


def random_labels(n, k, rng):
    return np.r_[np.arange(k), rng.integers(k, size=n - k)]


@pytest.mark.share(4)
@pytest.mark.parametrize("cls", COMPLETE)
@pytest.mark.parametrize("r", [5, 9, 20, 39])
def test_exactly_as_many_columns_as_asked_for_weights_and_scores(cls, r):
    X, _ = blobs()
    chosen = cls(r, n_clusters=4).fit(X)
    assert chosen.support_.size == np.unique(chosen.support_).size == r == chosen.weights_.size
    assert (chosen.weights_ > 0).all()
    dropped = np.setdiff1d(np.arange(40), chosen.support_)
    assert (chosen.scores_[dropped] == 0).all()
    assert chosen.selection_.weights.tolist() == chosen.weights_.tolist()
    # The scores sum up to ||Z' Omega S||_F^2.
    Z = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:4]
    if cls is sks.DeterministicSelector:
        assert np.isclose(chosen.scores_.sum(), ((Z[:, chosen.support_] * chosen.weights_) ** 2).sum())


@pytest.mark.share(6)
@pytest.mark.parametrize("cls", SELECTORS)
@pytest.mark.parametrize("size", [None, 6, 12])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.statement("Boutsidis 2012, Lemma 10", "Boutsidis 2012, Lemma 11")
def test_the_bound_holds_for_every_partition(cls, size, wide):
    """From exact moments, exact and shrunk sketches; for the best, bad and random partitions of the rows."""
    X, labels = blobs(d=200 if wide else 40)
    rng = np.random.default_rng(1)
    for r in (6, 15):
        chosen = cls(r, n_clusters=4, sketch_size=size).fit(X)
        assert (chosen.summary_.shrinkage > 0) == (wide and size is not None)
        c = chosen.certificate_
        C = X[:, chosen.support_] * chosen.weights_
        for k in (1, 2, 4, 9):
            for X_out in (random_labels(240, k, rng), np.minimum(labels, k - 1), sks.KMeans(k).fit(C).labels_):
                F, value = objective(X, X_out), objective(C, X_out)
                assert c.structural_bound(value) >= F
                assert c.dropped_bound(value) >= F
                assert c.bound(value) == min(c.structural_bound(value), c.dropped_bound(value))


def nasty(seed):
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((60, 4))
    yield "low rank", base @ rng.standard_normal((4, 20))
    yield "exactly rank one", np.outer(np.arange(60.0), rng.standard_normal(20))
    yield "copies", np.repeat(rng.standard_normal((60, 5)), 4, axis=1)
    yield "constant columns", np.c_[rng.standard_normal((60, 12)), np.full((60, 8), 7.0)]
    yield "far away", 1e7 + rng.standard_normal((60, 20))
    yield "scales", rng.standard_normal((60, 20)) * 10.0 ** rng.uniform(-8, 8, 20)
    yield "tiny", 1e-120 * rng.standard_normal((60, 20))
    yield "huge", 1e120 * rng.standard_normal((60, 20))
    yield "few rows", rng.standard_normal((5, 20))


@pytest.mark.share(3)
@pytest.mark.parametrize("cls", COMPLETE)
@pytest.mark.parametrize("seed", [0, 1])
def test_degenerate_data_keep_the_count_and_the_bound(cls, seed):
    rng = np.random.default_rng(seed)
    for what, X in nasty(seed):
        for k, r in [(1, 2), (3, 4), (3, 11), (3, 19)]:
            chosen = cls(r, n_clusters=k).fit(X)
            assert chosen.support_.size == r, what
            C = X[:, chosen.support_] * chosen.weights_
            for _ in range(3):
                X_out = random_labels(len(X), min(k + 1, len(X)), rng)
                # What objectives lose to rounding far from the origin is not the bound's business.
                F, value = (objective(M - M.mean(axis=0), X_out) for M in (X, C))
                assert chosen.certificate_.bound(value) * (1 + 1e-7) >= F, what


@pytest.mark.parametrize("cls", SELECTORS)
@pytest.mark.parametrize("size", [2, 3, None])
def test_rows_that_are_equal_to_rounding_have_nothing_to_select(cls, size):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        row = 10.0 ** rng.uniform(-9, 9, 57) * rng.standard_normal(57)
        X = np.tile(row, (int(rng.integers(2, 40)), 1))
        description = cls(5, n_clusters=1, sketch_size=size).summary_description(57)
        halves = description.from_block(X[:1]).merge(description.from_block(X[1:], start=1))
        for source in (description.from_block(X), halves):
            with pytest.raises(EmptyInput, match="constant"):
                cls(5, n_clusters=1, sketch_size=size).fit_summary(source)


@pytest.mark.parametrize("cls", SELECTORS)
@pytest.mark.parametrize("size", [4, 9])
def test_a_column_that_varies_less_than_others_are_rounded_is_still_seen(cls, size):
    # The rounding of constant columns of 1e8 is larger than what varies.
    rng = np.random.default_rng(0)
    X = np.tile(1e8 * rng.standard_normal(150), (30, 1))
    X[:, 7] = 1e-9 * rng.standard_normal(30)
    chosen = cls(2, n_clusters=1, sketch_size=size).fit(X)
    assert 7 in chosen.support_
    assert chosen.certificate_.sigma_min > 0.5


@pytest.mark.parametrize("size", [32, 200])
def test_residuals_of_columns_are_bounded_and_nearly_attained(size):
    X, _ = blobs(n=500, d=600)
    A = X - X.mean(axis=0)
    summary = sks.FrequentDirections(size).from_block(X[:200]).merge(sks.FrequentDirections(size).from_block(X[200:]))
    for svd in ("exact", "fast"):
        found = column_subspace(summary, 4, svd)
        Z = found.vectors
        assert np.allclose(Z.T @ Z, np.eye(4))
        E = A - A @ Z @ Z.T
        assert (E**2).sum() <= found.residual
        assert ((E**2).sum(axis=0) <= found.column_residuals).all()
        assert (found.shrinkage > 0) == (size == 32)
        assert found.column_residuals.sum() <= (2 if size == 32 else 1 + 1e-9) * (E**2).sum()


@pytest.mark.statement("Boutsidis 2012, Theorem 5")
def test_the_factor_of_the_hybrid_is_that_of_theorem_5():
    told = sks.HybridSelector(9, n_clusters=2)._proven_factor
    assert np.isclose(told(100, 2, 9, False), 15 + 320 * ((1 + np.sqrt(100 / 9)) / (1 - np.sqrt(2 / 9))) ** 2)
    assert told(100, 2, 9, True) > told(100, 2, 9, False)
    assert sks.HybridSelector(9, epsilon=0.9)._proven_factor(100, 2, 9, False) > told(100, 2, 9, False)
    assert sks.HybridSelector(9, svd="exact")._proven_factor(100, 2, 9, False) < told(100, 2, 9, False)


def test_certificate_numbers_are_those_of_their_definitions():
    X, _ = blobs()
    chosen = sks.DeterministicSelector(11, n_clusters=4).fit(X)
    A = X - X.mean(axis=0)
    Z = np.linalg.svd(A, full_matrices=False)[2][:4].T
    E = A - A @ Z @ Z.T
    S, w = chosen.support_, chosen.weights_
    c = chosen.certificate_
    assert np.isclose(c.sigma_min, np.linalg.svd(Z[S] * w[:, None], compute_uv=False)[-1])
    assert np.isclose(c.residual, (E**2).sum())
    assert np.isclose(c.weighted_residual, ((E[:, S] * w) ** 2).sum())
    assert np.isclose(c.dropped_scatter, (np.delete(A, S, axis=1) ** 2).sum())
    assert c.largest_weight == w.max()
    told = chosen.selection_.diagnostics
    assert {n: told[n] for n in c.to_dict()} == c.to_dict()


def test_the_dropped_bound_is_the_solution_of_its_linear_program():
    from scipy.optimize import linprog

    X, _ = blobs()
    c = sks.DeterministicSelector(9, n_clusters=4).fit(X).certificate_
    for share in (0.0, 0.05, 0.4, 1.0, 3.0):
        value = share * float(c.squares @ c.scatter)
        best = linprog(-np.ones(9), A_ub=c.squares[None, :], b_ub=[value], bounds=[(0, most) for most in c.scatter])
        assert np.isclose(c.dropped_bound(value), -best.fun + c.dropped_scatter)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_an_impossible_objective_is_refused(bad):
    X, _ = blobs()
    with pytest.raises(BadParameter, match="objective"):
        sks.DeterministicSelector(9, n_clusters=4).fit(X).certificate_.bound(bad)


@pytest.mark.statement("Boutsidis 2012, Algorithm 4")
def test_scalars_of_a_partition_equal_the_columns_of_the_matrix_they_stand_for():
    """||b_i||^2 of the 2 m x n matrix B = [A - A Z Z'; A - X X'A], built in full."""
    X, labels = blobs()
    A = X - X.mean(axis=0)
    Z = np.linalg.svd(A, full_matrices=False)[2][:4].T
    indicator = (labels[:, None] == np.arange(4)) / np.sqrt(np.bincount(labels))
    B = np.concatenate([A - A @ Z @ Z.T, A - indicator @ (indicator.T @ A)])
    moments, sums = sks.Moments().from_block(X), sks.summaries.CentroidSums(4).from_block(X, labels)
    got = column_subspace(moments, 4).column_residuals + within_columns(sums, moments)
    assert np.allclose(got, (B**2).sum(axis=0), rtol=1e-10)
    chosen = sks.DeterministicSelector(9, n_clusters=4).fit(X, partition=labels)
    w2 = chosen.weights_**2
    assert ((B[:, chosen.support_] ** 2).sum(axis=0) * w2).sum() <= (B**2).sum() * (1 + 1e-9)
    assert np.isclose(chosen.selection_.diagnostics["partition_objective"], objective(X, labels))
    assert chosen.selection_.diagnostics["algorithm"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("cls", COMPLETE[1:])
def test_draws_depend_on_the_seed_and_the_best_of_more_is_no_worse(cls):
    X, _ = blobs(d=900, seed=3)
    assert n_candidates(2, 9) < 900

    def loss(selector):
        c = selector.fit(X).certificate_
        return c.weighted_residual / c.sigma_min**2

    one, many = cls(9, n_clusters=2, n_draws=1, random_state=5), cls(9, n_clusters=2, n_draws=6, random_state=5)
    assert loss(many) <= loss(one)
    assert one.support_.tolist() == cls(9, n_clusters=2, n_draws=1, random_state=5).fit(X).support_.tolist()
    assert one.support_.tolist() != cls(9, n_clusters=2, n_draws=1, random_state=6).fit(X).support_.tolist()
    assert cls(9, n_clusters=2, random_state=np.random.RandomState(1)).fit(X).support_.size == 9


@pytest.mark.parametrize("r", [5, 39])
def test_it_is_algorithm_3_as_printed(r):
    X, _ = blobs()
    A = X - X.mean(axis=0)
    V = np.linalg.svd(A, full_matrices=False)[2][:4].T
    p = (V**2).sum(axis=1) / 4
    for seed in range(20):
        chosen = sks.RandomizedSelector(r, n_clusters=4, random_state=seed).fit_summary(sks.Moments().from_block(X))
        one = np.zeros(40)
        one[chosen.support_] = chosen.weights_**2
        # Each of the R draws adds 1 / (R p_i).
        draws = one * r * p
        assert np.allclose(draws, draws.round(), atol=1e-9)
        assert draws.sum() == pytest.approx(r)


@pytest.mark.parametrize("r", [5, 39])
def test_topping_up_adds_columns_to_those_drawn(r):
    X, _ = blobs()
    drawn = sks.RandomizedSelector(r, n_clusters=4).fit(X)
    whole = sks.RandomizedSelector(r, n_clusters=4, top_up=True).fit(X)
    assert whole.support_.size == r
    assert whole.selection_.diagnostics["n_added"] == r - drawn.support_.size > 0
    assert whole.selection_.diagnostics["n_iterations"] == r
    assert set(drawn.support_) < set(whole.support_)
    assert whole.weights_[np.isin(whole.support_, drawn.support_)].tolist() == drawn.weights_.tolist()
    assert whole.certificate_.sigma_min >= drawn.certificate_.sigma_min


def test_the_hybrid_without_fewer_candidates_than_columns_is_the_deterministic_one():
    X, _ = blobs()
    a = sks.HybridSelector(9, n_clusters=4, svd="exact").fit(X)
    b = sks.DeterministicSelector(9, n_clusters=4).fit(X)
    assert a.weights_.tolist() == b.weights_.tolist()


# Column selection for k-means: partitions, sources, bad input.


def test_a_partition_may_come_in_many_ways(tmp_path):
    X, labels = blobs()
    wanted = sks.DeterministicSelector(9, n_clusters=4).fit(X, partition=labels)
    np.save(tmp_path / "labels.npy", labels)
    sums = sks.summarize(X, {"a": sks.FrequentDirections(64), "b": sks.summaries.CentroidSums(4)}, y=labels)
    for got in (
        sks.DeterministicSelector(9, 4, labels).fit(X),
        sks.DeterministicSelector(9, 4, str(tmp_path / "labels.npy")).fit(X),
        sks.DeterministicSelector(9, 4).fit(X, partition=np.array(["d", "a", "c", "b"])[labels]),
        sks.DeterministicSelector(9, 4).fit(X, partition=labels.astype(float) - 7),
        sks.DeterministicSelector(9, 4, labels).fit_summary(sums),
        sks.DeterministicSelector(9, partition=labels).fit(X),
        sks.DeterministicSelector(9, 4, labels).fit_summary(wanted.summary_),
    ):
        assert got.support_.tolist() == wanted.support_.tolist()
        assert np.allclose(got.weights_, wanted.weights_, rtol=1e-8)
        assert got.selection_.parameters["n_clusters"] == 4
    # What fit was given holds for that fit alone.
    plain = sks.DeterministicSelector(9, 4)
    plain.fit(X, partition=labels)
    assert plain.fit(X).selection_.diagnostics["algorithm"] == 5


def test_the_target_is_ignored():
    X, labels = blobs()
    a, b = (sks.DeterministicSelector(9, 4).fit(X, y) for y in (None, labels))
    assert a.support_.tolist() == b.support_.tolist()
    assert a.weights_.tolist() == b.weights_.tolist()


def test_kmeans_plus_plus_makes_a_partition_first():
    X, labels = blobs(n=1500)
    chosen = sks.DeterministicSelector(9, 4, "kmeans++").fit(X)
    told = chosen.selection_.diagnostics
    assert told["algorithm"] == 4
    # Arthur and Vassilvitskii: 8 (log k + 2) in expectation; with refinement far below.
    assert told["partition_objective"] <= 2 * objective(X, labels)
    again = sks.DeterministicSelector(9, 4, "kmeans++").fit(X, client="serial")
    assert again.weights_.tobytes() == chosen.weights_.tobytes()
    weighted = sks.DeterministicSelector(9, 4, "kmeans++").fit(X, sample_weight=(labels < 3).astype(float))
    assert weighted.support_.size == 9


def test_the_sample_of_kmeans_plus_plus_does_not_depend_on_the_bands(monkeypatch):
    from sketchselect.execution import PassOptions, Source, open_engine
    from sketchselect.selectors import deterministic

    monkeypatch.setattr(deterministic, "SAMPLE_ROWS", 100)
    X, _ = blobs(n=3000)
    found = []
    for nbytes in (1 << 16, 1 << 18, 1 << 25):
        with open_engine("serial") as engine:
            source = Source(sks.open_matrix(X))
            found.append(deterministic.kmeans_sums(source, 4, 0, PassOptions(engine, nbytes)).centers)
    assert all((f == found[0]).all() for f in found)


@pytest.mark.parametrize(
    ("partition", "error", "message"),
    [
        (np.zeros(239, dtype=int), SourceError, "239"),
        (np.arange(240) % 5, BadParameter, "5 distinct labels"),
        (np.full(240, np.nan), BadParameter, "row 0"),
        (np.zeros((240, 2), dtype=int), BadParameter, "one label per row"),
        ("nowhere.npy", SourceError, "nowhere"),
    ],
)
def test_bad_partitions_are_named(partition, error, message):
    X, _ = blobs()
    with pytest.raises(error, match=message):
        sks.DeterministicSelector(9, 4, partition).fit(X)


def test_a_partition_needs_its_sums_and_all_rows():
    X, labels = blobs()
    selector = sks.DeterministicSelector(9, 4, labels)
    with pytest.raises(BadParameter, match="all rows"):
        selector.partial_fit(X)
    with pytest.raises(Incompatible, match="centroid-sums"):
        selector.fit_summary(sks.Moments().from_block(X))
    part = np.where(labels == 0, -1, labels)
    half = sks.Bundle.of({"a": sks.Moments().from_block(X), "b": sks.summaries.CentroidSums(4).from_block(X, part)})
    with pytest.raises(Incompatible, match="every row needs a cluster"):
        selector.fit_summary(half)


@pytest.mark.share(1)
@pytest.mark.parametrize("cls", SELECTORS)
def test_the_same_selection_from_any_banding_and_the_same_bits_twice(cls):
    X, _ = blobs(n=2000)
    wanted = cls(9, n_clusters=4).fit(X)
    assert cls(9, n_clusters=4).fit(X, client="serial").weights_.tobytes() == wanted.weights_.tobytes()
    for nbytes in (40_000, 200_000):
        for description in (sks.Moments(), sks.FrequentDirections(64)):
            summary = sks.summarize(X, description, partition_bytes=nbytes)
            got = cls(9, n_clusters=4).fit_summary(summary)
            assert got.support_.tolist() == wanted.support_.tolist()
            assert np.allclose(got.weights_, wanted.weights_, rtol=1e-7)
    stream = cls(9, n_clusters=4)
    for start in range(0, 2000, 300):
        stream.partial_fit(X[start : start + 300])
    assert stream.support_.tolist() == wanted.support_.tolist()


@pytest.mark.parametrize("cls", SELECTORS)
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_features_to_select": 4, "n_clusters": 4}, "must exceed n_clusters = 4"),
        ({"n_features_to_select": 3, "n_clusters": 7}, "must exceed n_clusters = 7"),
        ({"n_features_to_select": 9, "n_clusters": 40}, "below the number of columns"),
        ({"n_features_to_select": 9, "n_clusters": 4, "sketch_size": 4}, "sketch_size"),
    ],
)
def test_bad_parameters_are_named(cls, parameters, message):
    with pytest.raises(BadParameter, match=message):
        cls(**parameters).fit(blobs()[0])


@pytest.mark.parametrize("cls", SELECTORS)
def test_bad_data_are_named(cls, tmp_path):
    with pytest.raises(EmptyInput, match="40 columns are constant"):
        cls(9, n_clusters=4).fit(np.zeros((50, 40)))
    X, _ = blobs()
    X[17, 3] = np.nan
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(NotFinite, match="column 3"):
        cls(9, n_clusters=4).fit(str(tmp_path / "x.npy"))
    with pytest.raises(ValueError, match="NaN"):
        cls(9, n_clusters=4).fit(X)
    with pytest.raises(BadParameter, match="size 4 has only 3 directions"):
        cls(9, n_clusters=4).fit_summary(sks.FrequentDirections(4).from_block(blobs(d=100)[0]))


@pytest.mark.parametrize("cls", SELECTORS)
def test_a_stream_may_begin_with_one_row(cls):
    X, _ = blobs()
    chosen = cls(9, n_clusters=4).partial_fit(X[:1])
    assert chosen.support_.size == 9
    assert np.allclose(chosen.partial_fit(X[1:]).weights_, cls(9, n_clusters=4).fit(X).weights_, rtol=1e-7)


@pytest.mark.parametrize("cls", [sks.DeterministicSelector, sks.VarianceSelector])
def test_a_pass_of_a_subclass_begins_at_its_first_row(cls):
    class LateRows(cls):
        def single_pass(self, source):
            source, description = super().single_pass(source)
            return replace(source, first_row=100), description

    X, _ = blobs()
    parameters = {"n_clusters": 4} if cls is sks.DeterministicSelector else {}
    assert LateRows(5, **parameters).fit(X).summary_ == cls(5, **parameters).fit(X[100:]).summary_
