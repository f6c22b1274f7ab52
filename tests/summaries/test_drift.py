"""Drift against the rows themselves: its share, its bounds, planted rotations, and quiet days."""

import re
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import sparse

import sketchselect as sks
from sketchselect.errors import BadParameter, EmptyInput, Incompatible, NoData
from sketchselect.linalg.comoments import SINGLE_ROUNDING
from sketchselect.summaries import Bundle, ColumnStats, Drift, FrequentDirections, Moments, RowSample
from sketchselect.summaries import drift as measure
from sketchselect.summaries.moment_forms import SINGLE_UNIT

SPIKES = np.repeat([6.0, 1.0], [4, 56])


def gaussian(rng, n_rows, sd=SPIKES, rotation=None):
    """Rows whose first four directions are strong, about a mean that is not zero."""
    rows = rng.standard_normal((n_rows, len(sd))) * sd
    return 2.0 + (rows if rotation is None else rows @ rotation)


WIDE = np.repeat([10.0, 1.0], [4, 296])


def turned(angle, i=0, j=30, p=60):
    """The rotation of directions i and j into each other."""
    rotation = np.eye(p)
    rotation[[i, j], [i, j]] = np.cos(angle)
    rotation[i, j], rotation[j, i] = np.sin(angle), -np.sin(angle)
    return rotation


TOPICS = np.random.default_rng(7).dirichlet(np.full(200, 0.05), 5)


def words(rng, n_rows, shift=0):
    """Counts of words of five topics, as CSR; shifted, the words of every topic are others."""
    topics = rng.integers(5, size=n_rows)
    probabilities = np.roll(TOPICS, shift, axis=1)[topics]
    return sparse.csr_array(rng.multinomial(rng.poisson(30, n_rows) + 5, probabilities).astype(float))


def share_of_rows(X, base, k):
    """The definition, by singular vectors of the rows."""
    X, base = (rows.toarray() if sparse.issparse(rows) else rows for rows in (X, base))
    V = np.linalg.svd(base - base.mean(axis=0), full_matrices=False)[2][:k]
    A = X - X.mean(axis=0)
    return np.linalg.norm(A - A @ V.T @ V) ** 2 / np.linalg.norm(A) ** 2


@pytest.mark.parametrize("law", [gaussian, words])
@pytest.mark.parametrize("kinds", [(Moments(), Moments()), (FrequentDirections(20), Moments())])
def test_share_and_shift_are_those_of_the_rows(law, kinds):
    rng = np.random.default_rng(0)
    base, today = law(rng, 800), law(rng, 150)
    drift = measure(kinds[0].from_block(base), kinds[1].from_block(today))
    assert drift.share == pytest.approx(share_of_rows(today, base, drift.n_directions), rel=1e-9)
    assert drift.at_least == pytest.approx(drift.at_most, rel=1e-9)
    assert drift.low < drift.at_least <= drift.at_most < drift.high
    base, today = (rows.toarray() if sparse.issparse(rows) else rows for rows in (base, today))
    moved = np.linalg.norm(today.mean(axis=0) - base.mean(axis=0)) / np.sqrt(base.var(axis=0).sum())
    assert drift.shift == pytest.approx(moved, rel=1e-9)


@pytest.mark.parametrize("size", [4, 8, 16])
def test_bounds_hold_for_sketched_rows_and_widen_with_their_shrinkage(size):
    rng = np.random.default_rng(1)
    sd = np.repeat([8.0, 1.0], [3, 297])
    base = Moments().from_block(gaussian(rng, 900, sd))
    rows = gaussian(rng, 700, sd)
    sketch = FrequentDirections(size).from_block(rows)
    assert sketch.shrinkage > 0
    drift, exact = measure(base, sketch, n_directions=3), measure(base, Moments().from_block(rows), n_directions=3)
    assert drift.at_least - 1e-12 <= exact.share <= drift.at_most + 1e-12
    assert drift.at_most - drift.at_least <= 3 * sketch.shrinkage / sketch.centered_squared_norm + 1e-12
    assert drift.low < drift.at_least
    assert drift.high > drift.at_most
    # What the sketch may have lost is no evidence: the threshold is higher by as much.
    assert drift.threshold == pytest.approx(exact.threshold + (drift.at_most - drift.at_least) / 2, rel=1e-9)


def test_the_bases_own_loss_raises_the_threshold():
    rng = np.random.default_rng(2)
    sd = np.repeat([8.0, 1.0], [3, 297])
    rows, today = gaussian(rng, 900, sd), Moments().from_block(gaussian(rng, 100, sd))
    exact, sketched = (measure(s.from_block(rows), today, n_directions=3) for s in (Moments(), FrequentDirections(8)))
    assert sketched.base_share > exact.base_share
    assert sketched.threshold > exact.threshold
    assert not sketched.exceeded
    assert "), at most " in sketched.sentence()
    assert "at most" not in exact.sentence()
    assert exact.base_at_least == pytest.approx(exact.base_share, rel=1e-9)


@pytest.mark.parametrize("size", [4, 8, 30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_share_of_a_sketched_base_is_within_its_bounds(size, dtype):
    rng = np.random.default_rng(size)
    rows = gaussian(rng, 900, np.repeat([60.0, 40.0, 1.0], [1, 1, 798])).astype(dtype)
    base, today = FrequentDirections(size).from_block(rows), Moments().from_block(rows[:100])
    for k in (1, 2):
        drift = measure(base, today, n_directions=k)
        true = left_outside(rows, base.centered_directions.vectors[:k])
        assert drift.base_at_least - 1e-12 <= true <= drift.base_share + 1e-12
        assert k * base.shrinkage / base.centered_squared_norm <= (drift.base_share - drift.base_at_least) * (1 + 1e-9)


DAYS = {
    "dense": (gaussian, lambda rng, n: gaussian(rng, n, rotation=turned(1.0)), Moments(), 120),
    "sketch": (
        lambda rng, n: gaussian(rng, n, WIDE),
        lambda rng, n: gaussian(rng, n, WIDE, turned(1.0, p=300)),
        FrequentDirections(48),
        200,
    ),
    "sparse": (words, lambda rng, n: words(rng, n, 20), Bundle({"a": FrequentDirections(16), "b": RowSample(500)}), 60),
}


@pytest.mark.parametrize("case", DAYS)
def test_rotation_is_found_on_its_day_and_quiet_days_give_no_alarm(case):
    quiet, rotated, description, n_rows = DAYS[case]
    rng = np.random.default_rng(3)
    base = description.from_block(quiet(rng, 3000))
    days = [description.from_block(quiet(rng, n_rows)) for _ in range(200)]
    days += [description.from_block(rotated(rng, n_rows)) for _ in range(5)]
    # At the level of 1 % in 200 days no alarm is what to expect.
    assert [measure(base, day).exceeded for day in days] == [False] * 200 + [True] * 5


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [25, 200])
@pytest.mark.parametrize("sd", [SPIKES, 1 / np.arange(1.0, 61.0), np.ones(20)], ids=["spikes", "falling", "equal"])
def test_alarms_come_as_often_as_the_level_says(monkeypatch, sd, n_rows):
    """Sixty bases with ten days each: 10 % of the shares are above a threshold at that level."""
    monkeypatch.setattr(sys.modules["sketchselect.summaries.drift"], "LEVEL", 0.2 * 200)
    rng, above = np.random.default_rng(4), []
    for _ in range(60):
        base = Moments().from_block(gaussian(rng, 1500, sd))
        drifts = [measure(base, Moments().from_block(gaussian(rng, n_rows, sd))) for _ in range(10)]
        above.append([(d.share > d.threshold, d.shifted) for d in drifts])
    rates, error = np.mean(above, axis=(0, 1)), 4 * np.sqrt(0.1 * 0.9 / 600)
    # Days that share a base are not independent, hence four standard errors; equal directions are over-covered.
    assert (rates < 0.1 + error).all()
    assert len(sd) == 20 or rates[0] > 0.1 - error
    assert rates[1] > 0.1 - error


@pytest.mark.slow
def test_intervals_cover_the_share_of_the_law():
    rng, covered = np.random.default_rng(5), []
    base = Moments().from_block(gaussian(rng, 2000))
    V = np.linalg.eigh(base.covariance())[1][:, ::-1]
    for _ in range(400):
        drift = measure(base, Moments().from_block(gaussian(rng, 80, rotation=turned(0.7))))
        law = turned(0.7).T @ np.diag(SPIKES**2) @ turned(0.7)
        top = V[:, : drift.n_directions]
        covered.append(drift.low <= 1 - np.trace(top.T @ law @ top) / np.trace(law) <= drift.high)
    assert abs(np.mean(covered) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 400)


@pytest.mark.parametrize("kind", [Moments(), FrequentDirections(12)], ids=lambda kind: kind.kind)
def test_intervals_are_as_wide_however_large_one_column_is(kind):
    rng, relative = np.random.default_rng(3), []
    rows = rng.standard_normal((2400, 12))
    for large in (1e2, 1e4, 1e6):
        base, today = (kind.from_block(part * np.r_[large, np.ones(11)]) for part in (rows[:2000], rows[2000:]))
        one = measure(base, today, n_directions=1)
        relative.append([one.low / one.share, one.high / one.share, one.threshold / one.share])
        assert one.low < one.share < one.high
    np.testing.assert_allclose(relative[1:], relative[:1] * 2, rtol=5e-3)


def test_rows_that_move_together_leave_the_share_and_show_in_the_shift():
    rng = np.random.default_rng(6)
    base, rows = Moments().from_block(gaussian(rng, 2000)), gaussian(rng, 100)
    quiet, moved = (measure(base, Moments().from_block(rows + by)) for by in (0.0, 1.5))
    assert moved.share == pytest.approx(quiet.share, rel=1e-9)
    assert (quiet.shifted, moved.shifted, moved.exceeded) == (False, True, True)
    # A threshold that was passed is the only alarm.
    alone = measure(base, Moments().from_block(rows + 1.5), threshold=1.0)
    assert (alone.shift, alone.shift_threshold, alone.exceeded) == (moved.shift, None, False)
    assert measure(base, Moments().from_block(rows), threshold=0.0).exceeded


def test_a_sample_of_the_base_measures_heavy_tails():
    rng = np.random.default_rng(8)

    def rows(n):
        return gaussian(rng, n) * np.exp(0.7 * rng.standard_normal((n, 1)))

    X, today = rows(4000), Moments().from_block(rows(200))
    plain = measure(Moments().from_block(X), today)
    sampled = measure({"m": Moments().from_block(X), "r": RowSample(2000).from_block(X)}, today)
    assert (plain.gaussian, sampled.gaussian) == (True, False)
    assert sampled.share == plain.share
    assert sampled.threshold > plain.threshold
    assert sampled.low < plain.low
    assert sampled.high > plain.high
    # The ratio of the two variances, from all rows and the formula.
    k, A = plain.n_directions, X - X.mean(axis=0)
    V = np.linalg.svd(A, full_matrices=False)[2][:k]
    inside, norms = ((A @ V.T) ** 2).sum(axis=1), (A**2).sum(axis=1)
    u = (norms - inside) - (1 - inside.sum() / norms.sum()) * norms
    assert (u**2).mean() / norms.mean() ** 2 > 1.5 * 2 * plain.share**2 / k


def test_fading_rows_count_as_fewer():
    rng = np.random.default_rng(9)
    X, today = gaussian(rng, 4000), Moments().from_block(gaussian(rng, 100))
    sketch, moments = (
        measure(kind.from_block(X), today) for kind in (FrequentDirections(8, 300), Moments(half_life=300))
    )
    weights = 0.5 ** (np.arange(4000) / 300)
    assert sketch.base_rows == pytest.approx(moments.base_rows, rel=1e-9)
    assert sketch.base_rows == pytest.approx(weights.sum() ** 2 / (weights**2).sum(), rel=1e-9)


@pytest.mark.parametrize("kind", [Moments(), FrequentDirections(16)])
@pytest.mark.parametrize(("before", "after"), [(0.0, 0.03), (0.02, 0.2)])
def test_filled_values_alone_are_no_drift_and_hide_none(kind, before, after):
    """Values that are missing independently, and in one column of three of the new rows."""
    rng = np.random.default_rng(3)
    loadings = rng.standard_normal((3, 24)) * np.array([[3.0], [2.0], [1.0]])

    def rows(n, loadings, shares):
        X = rng.standard_normal((n, 3)) @ loadings + 0.2 * rng.standard_normal((n, 24))
        return np.where(rng.random(X.shape) < shares, np.nan, X)

    fit = sks.fit_prepare(rows(4000, loadings, before), ["impute", "standardise"])
    summarize = partial(sks.summarize, prepare=fit.steps, client="serial")
    base = summarize(rows(4000, loadings, before), kind)
    uneven = np.where(np.arange(24) % 3 == 0, 2 * after, before)
    turned = loadings + 1.5 * rng.standard_normal(loadings.shape)
    for shares in (after, uneven):
        quiet = [measure(base, summarize(rows(300, loadings, shares), kind)) for _ in range(8)]
        assert not any(day.exceeded for day in quiet)
        assert all(
            day.exceeded for day in (measure(base, summarize(rows(300, turned, shares), kind)) for _ in range(8))
        )
        assert quiet[0].base_filled == pytest.approx(before, abs=0.005)
        assert quiet[0].filled == pytest.approx(np.mean(np.broadcast_to(shares, 24)), abs=0.02)
        assert re.search(r"were missing and filled, .* percentage points, which", quiet[0].sentence())
        assert quiet[0].to_dict()["filled_rise"] > 0
    same = measure(base, summarize(rows(300, loadings, 0.0), kind))
    assert same.filled_rise == 0
    assert "missing" not in same.sentence()


def test_directions_are_those_that_stand_out():
    rng = np.random.default_rng(10)
    today = Moments().from_block(gaussian(rng, 50))
    assert measure(Moments().from_block(gaussian(rng, 3000)), today).n_directions == 4
    assert measure(Moments().from_block(gaussian(rng, 3000)), today, n_directions=7).n_directions == 7


def test_no_direction_outside_is_no_drift():
    """Rows of rank two stay in their plane but for rounding, which is no alarm."""
    rng = np.random.default_rng(11)
    plane = rng.standard_normal((2, 12))
    base, quiet = (Moments().from_block(rng.standard_normal((n, 2)) @ plane) for n in (500, 40))
    drift = measure(base, quiet)
    assert (drift.exceeded, drift.share < 1e-12) == (False, True)
    assert measure(base, Moments().from_block(rng.standard_normal((40, 12)))).exceeded


def test_a_base_of_far_fewer_rows_is_said_to_be_rather_the_new_rows():
    rng = np.random.default_rng(12)
    year, day = (FrequentDirections(3).from_block(gaussian(rng, n_rows)) for n_rows in (2000, 150))
    assert "give the earlier rows first" in measure(day, year).sentence()
    assert "give the earlier rows first" not in measure(year, day).sentence()


def test_the_record_says_share_interval_and_threshold():
    rng = np.random.default_rng(12)
    base = FrequentDirections(3).from_block(gaussian(rng, 2000))
    drift = measure(base, FrequentDirections(3).from_block(gaussian(rng, 300)))
    assert isinstance(drift, Drift)
    text = drift.sentence()
    for value in (drift.share, drift.low, drift.high, drift.threshold, drift.at_least, drift.at_most):
        assert f"{100 * value:.3g} %" in text
    assert drift.to_dict()["exceeded"] is drift.exceeded is False
    with pytest.raises(AttributeError):
        drift.share = 0.0  # type: ignore[misc]


def named(names, **context):
    X = np.random.default_rng(0).standard_normal((20, 3))
    return Moments().from_block(X).with_context(prepare=context.get("prepare", ()), feature_names=names)


MISTAKES = {
    "width": (Moments().from_block(np.eye(4)), Incompatible, "the base has 3 columns, the new rows have 4"),
    "names": (named(("a", "x", "c")), Incompatible, "column 1 is named 'b' in the base and 'x'"),
    "order": (named(("a", "c", "b")), Incompatible, "both have the same columns in another order; write"),
    "a column less": (
        Moments().from_block(np.eye(2)).with_context(prepare=(), feature_names=("a", "c")),
        Incompatible,
        "the base has 3 columns, the new rows have 2; only the first has 'b'",
    ),
    "steps": (named(None, prepare=("l2",)), Incompatible, "prepared with [], the new rows with ['l2']"),
    "constant": (Moments().from_block(np.ones((5, 3))), EmptyInput, "no scatter in the new rows: 5 rows, all equal"),
    "one row": (Moments().from_block(np.ones((1, 3))), EmptyInput, "no scatter in the new rows: 1 rows"),
    "kind": (ColumnStats().from_block(np.eye(3)), Incompatible, "needs a summary of kind frequent-directions"),
    "missing": (Moments(missing="pairwise").from_block(np.eye(3)), Incompatible, "may be missing in the new rows"),
    "description": (Moments(), NoData, ""),
    "path": ("today.sks", Incompatible, "sketchselect.load"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_cannot_be_compared_is_refused_in_one_line(mistake):
    today, error, text = MISTAKES[mistake]
    with pytest.raises(error) as raised:
        measure(named(("a", "b", "c")), today)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("options", [{"threshold": 1.5}, {"threshold": "x"}, {"n_directions": 3}, {"n_directions": 0}])
def test_parameters_out_of_range_are_refused(options):
    with pytest.raises(BadParameter, match=next(iter(options))):
        measure(named(None), named(None), **options)


def left_outside(X, vectors):
    """The share of float32 rows' scatter outside some directions, in float64."""
    A = X.astype(float) - X.astype(float).mean(axis=0)
    return np.linalg.norm(A - A @ vectors.T @ vectors) ** 2 / np.linalg.norm(A) ** 2


def of_low_rank(seed, rank, n_rows=1200, p=80, noise=0.0):
    """Float32 rows of few directions, a tenth of them not zero for every other seed."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n_rows, rank)) @ rng.standard_normal((rank, p)) + noise * rng.standard_normal(p)
    rows = rows + noise * rng.standard_normal(rows.shape)
    if seed % 2:
        rows = rows * (rng.random((n_rows, 1)) < 0.1) - 0.37 * np.abs(rng.standard_normal(p))
    return rows.astype(np.float32)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rank", [1, 3, 12])
def test_of_float32_rows_of_low_rank_the_share_is_said_to_be_unknown(seed, rank):
    X = of_low_rank(seed, rank)
    base, today = Moments().from_block(X[:800]), Moments().from_block(X[800:])
    drift = measure(base, today)
    assert (drift.n_directions, drift.exceeded) == (rank, False)
    assert drift.low <= drift.at_least <= drift.share <= drift.at_most <= drift.high
    true = left_outside(X[800:], base.centered_directions.vectors[:rank])
    assert drift.at_least <= true <= drift.at_most < drift.high < 2 * drift.at_most
    assert left_outside(X[:800], base.centered_directions.vectors[:rank]) <= drift.base_share
    assert "An unknown part, at most" in drift.sentence()
    assert "; products in float32 cannot tell it from none), at most " in drift.sentence()
    exact = measure(*(Moments().from_block(rows.astype(float)) for rows in (X[:800], X[800:])))
    assert exact.n_directions == rank
    assert exact.rounding == exact.base_rounding == 0
    assert "unknown" not in exact.sentence()
    other = measure(base, Moments().from_block(of_low_rank(seed + 100, rank)))
    assert other.exceeded
    assert "unknown" not in other.sentence()


def test_what_a_sketch_lost_is_not_said_to_be_rounding():
    """Of sketches with several directions rounding is up to 2e-6 of all."""
    X = of_low_rank(0, 12, n_rows=4000, p=400)
    drift = measure(Moments().from_block(X[:2000]), FrequentDirections(4).from_block(X[2000:]))
    assert drift.at_least == 0 < 0.1 < drift.at_most
    assert drift.rounding > 0
    sentence = replace(drift, rounding=2e-6).sentence()
    assert "float32" not in sentence
    assert "proved for these very rows: 0 % to" in sentence


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [1, 4, 20])
@pytest.mark.parametrize("sign", [-1, 1])
def test_shares_are_within_their_bounds_whatever_float32_products_lost(seed, k, sign):
    """Products that are off by all of the bound, where it hurts most, as the diagonal is exact."""
    X, rng = of_low_rank(2 * seed, 20, noise=10.0 ** -(seed + 1)), np.random.default_rng(seed)
    V = np.linalg.qr(rng.standard_normal((80, 80)))[0][:k]
    if seed % 2:
        V = np.linalg.svd(X[:800].astype(float) - X[:800].astype(float).mean(axis=0))[2][:k]
    error = sign * (V.T @ V - np.diag(np.einsum("ij,ij->j", V, V)))
    off = []
    for rows in (X[:800], X[800:]):
        moments = Moments().from_block(rows)
        record = moments.record
        E = error * moments.single_rounding / np.linalg.norm(error)
        exact = Moments().from_block(rows.astype(float)).record.comoment
        off.append(moments._with(replace(record, comoment=exact + E), moments.context))
    base, today = off
    drift = measure(base, today, n_directions=k)
    vectors = base.centered_directions.vectors[:k]
    assert drift.at_least - 1e-12 <= left_outside(X[800:], vectors) <= drift.at_most + 1e-12
    assert left_outside(X[:800], vectors) <= drift.base_share + 1e-12
    most = 2 * np.sqrt(k) * today.single_rounding / today.centered_squared_norm
    assert drift.at_most - drift.at_least <= most * (1 + 1e-9)
    assert drift.low <= drift.at_least <= drift.share <= drift.at_most <= drift.high


@pytest.mark.parametrize("kind", [Moments(), FrequentDirections(40)])
def test_columns_that_begin_to_vary_give_an_alarm_with_products_in_float32(kind):
    """Rounding of the other columns is no share of theirs."""
    rng = np.random.default_rng(1)
    X = np.full((9000, 200), 2.5)
    X[:, :80] = rng.standard_normal((9000, 80))
    X[7000:, 80:] += 1e-3 * rng.standard_normal((2000, 120))
    base, quiet, moved = (kind.from_block(rows.astype(np.float32)) for rows in (X[:5000], X[5000:7000], X[7000:]))
    assert min(one.single_rounding for one in (base, quiet, moved)) > 0
    drift = measure(base, quiet)
    assert (drift.n_directions, drift.exceeded) == (80, False)
    assert "unknown" not in drift.sentence()
    drift = measure(base, moved)
    assert drift.exceeded
    true = left_outside(X[7000:].astype(np.float32), base.centered_directions.vectors[:80])
    assert drift.at_least * (1 - 1e-6) <= true <= drift.at_most * (1 + 1e-6) <= 2e-6


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("k", [3, 40, 75])
def test_shares_are_within_their_bounds_whatever_any_product_in_float32_lost(k, sign):
    """Every product of two columns off by all of its bound, in the direction that hurts most."""
    X = of_low_rank(3, 20, noise=1e-2)
    vectors = Moments().from_block(X[:800].astype(float)).centered_directions.vectors[:k]
    signs = np.sign(vectors.T @ vectors) * (1 - np.eye(80))
    exact = Moments().from_block(X[800:].astype(float))
    norms = np.sqrt(exact.centered_column_squared_norms)
    E = sign * SINGLE_ROUNDING * signs * np.outer(norms, norms)
    lost = SINGLE_ROUNDING / SINGLE_UNIT * float(norms @ norms)
    record = replace(exact.record, comoment=exact.record.comoment + E, single_scatter=lost)
    today = exact._with(record, exact.context)
    drift = measure(Moments().from_block(X[:800].astype(float)), today, n_directions=k)
    assert drift.at_least - 1e-12 <= left_outside(X[800:], vectors) <= drift.at_most + 1e-12
    moved = sign * float(np.sum(vectors.T @ vectors * E)) / today.centered_squared_norm
    assert moved >= (drift.at_most - drift.at_least) / 32


def test_rows_outside_a_base_that_leaves_exactly_nothing_give_an_alarm():
    """The threshold had been no number, with which nothing compares."""
    rng = np.random.default_rng(0)
    rows = np.zeros((500, 6))
    rows[:, 0] = rng.standard_normal(500)
    base = Moments().from_block(rows)
    quiet, moved = (measure(base, Moments().from_block(X)) for X in (rows[:100], rng.standard_normal((100, 6))))
    assert (quiet.exceeded, moved.exceeded) == (False, True)
    assert quiet.low == quiet.high == 0
    assert 0 <= quiet.threshold < 1e-12
