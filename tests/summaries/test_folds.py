"""Folds: which row goes where depends on its index alone, and every part is what a direct summary would be."""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import BadBlock, BadParameter, Incompatible
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.summaries import (
    Bundle,
    ColumnStats,
    DecayedMoments,
    Folds,
    FrequentDirections,
    Moments,
    decode,
    encode,
    pick,
)


def rows(n=500, p=5):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p))
    return X, X[:, :2] + rng.standard_normal((n, 2)), rng.random(n)


def fold_numbers(n, n_folds, seed):
    return np.floor(uniforms(derive_seed(seed, "fold"), np.arange(n, dtype=np.uint64)) * n_folds)


def same(result, expected):
    assert result.n_rows == expected.n_rows
    assert result.weight == pytest.approx(expected.weight)
    assert np.allclose(result.mean, expected.mean, rtol=1e-12, atol=1e-14)
    assert np.allclose(result.covariance(), expected.covariance(), rtol=1e-11, atol=1e-13)
    assert np.allclose(result.xy, expected.xy, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(
    ("inner", "names"), [(Moments(), "moments"), (Bundle(exact=Moments(), stats=ColumnStats()), "exact, stats")]
)
def test_folds_of_a_member_that_is_not_there_name_those_that_are(inner, names):
    with pytest.raises(Incompatible, match=f"'counts'.*{names}"):
        Folds(inner).from_block(rows()[0]).of_member("counts")


@pytest.mark.parametrize("inner", [Moments(), Moments(method="qr")])
def test_folds_and_complements_are_those_of_the_rows(inner):
    X, y, w = rows()
    description = Folds(inner, n_folds=4, seed=3)
    folds = description.from_block(X[:123], y[:123], sample_weight=w[:123]).merge(
        description.from_block(X[123:], y[123:], start=123, sample_weight=w[123:])
    )
    number = fold_numbers(500, 4, 3)
    for i in range(4):
        same(folds[i], inner.from_block(X[number == i], y[number == i], sample_weight=w[number == i]))
        same(folds.complement(i), inner.from_block(X[number != i], y[number != i], sample_weight=w[number != i]))
    same(folds.total, inner.from_block(X, y, sample_weight=w))
    assert folds[-1] == folds[3]
    assert folds.complement(-1) == folds.complement(3)
    assert len(list(folds)) == len(folds) == 4
    assert folds.weight == pytest.approx(w.sum())
    with pytest.raises(IndexError):
        folds[4]
    with pytest.raises(IndexError):
        folds.complement(4)


def test_folds_are_of_equal_size_and_differ_by_seed():
    n = 40000
    numbers = [fold_numbers(n, 5, seed) for seed in range(3)]
    for number in numbers:
        sizes = np.bincount(number.astype(int), minlength=5)
        # Six standard deviations of a binomial.
        assert np.abs(sizes - n / 5).max() < 6 * np.sqrt(n * 0.2 * 0.8)
    agree = (numbers[0] == numbers[1]).mean()
    assert abs(agree - 0.2) < 6 * np.sqrt(0.16 / n)
    # Neighbouring rows are independent: one is in the same fold as the next one time in five.
    assert abs((numbers[0][1:] == numbers[0][:-1]).mean() - 0.2) < 6 * np.sqrt(0.16 / n)


def test_dropped_rows_leave_the_folds_of_the_others_alone():
    X, y, _ = rows()
    X[100:110, 2] = np.nan
    good = ~np.isnan(X).any(axis=1)
    source = sks.open_matrix(X, nonfinite="drop_rows")
    folds = sks.summarize(source, Folds(Moments(), 3), y=y, partition_bytes=2000)
    number = fold_numbers(500, 3, 0)
    for i in range(3):
        chosen = good & (number == i)
        same(folds[i], Moments().from_block(X[chosen], y[chosen]))


@pytest.mark.parametrize("client", ["serial", "threads"])
def test_a_pass_in_partitions_gives_the_same_folds(client):
    X, y, _ = rows()
    folds = sks.summarize(X, Folds(Moments(), 5), y=y, partition_bytes=1600, client=client)
    assert folds == sks.summarize(X, Folds(Moments(), 5), y=y, partition_bytes=1600, client="serial")
    whole = Folds(Moments(), 5).from_block(X, y)
    for result, expected in zip(folds, whole, strict=True):
        same(result, expected)


def test_a_fold_without_rows_is_empty_and_harmless():
    X, y, _ = rows(2)
    folds = Folds(Moments(), n_folds=40).from_block(X, y)
    empty = [i for i, fold in enumerate(folds) if fold.n_rows == 0]
    assert len(empty) >= 38
    assert folds.total.n_rows == 2
    assert folds.complement(empty[0]).n_rows == 2
    assert folds[empty[0]].n_targets == 2
    with pytest.raises(BadParameter, match="undefined"):
        folds[empty[0]].covariance()
    back = decode(encode(folds))
    assert back == folds


def test_other_summaries_labels_and_names():
    X, _, _ = rows()
    labels = np.array(["a", "b", "c"])[np.arange(500) % 3]
    description = Folds(Moments(classes=["a", "b", "c"]), 4)
    folds = description.from_block(X, labels).with_context(prepare=(), feature_names=tuple("vwxyz"))
    assert folds.total.xy.shape == (5, 3)
    assert folds[0].feature_names == folds.total.feature_names == tuple("vwxyz")
    assert decode(encode(folds)) == folds
    assert decode(encode(folds))[0].feature_names == tuple("vwxyz")
    with pytest.raises(BadBlock, match="row 7"):
        description.from_block(X, np.where(np.arange(500) == 7, "d", labels))
    sketches = Folds(FrequentDirections(4), 3).from_block(X)
    assert sketches.total.squared_norm == pytest.approx((X**2).sum())
    stats = Folds(ColumnStats(), 3).from_block(np.where(X > 2, np.nan, X))
    assert Folds(ColumnStats(), 3).accepts_missing
    assert np.array_equal(stats.total.missing, (X > 2).sum(axis=0))


def test_a_bundle_of_folds_is_saved_and_found(tmp_path):
    X, y, _ = rows()
    bundle = Bundle(cv=Folds(Moments(), 3), stats=ColumnStats()).from_block(X, y)
    sks.save(bundle, tmp_path / "b.sks")
    back = sks.load(tmp_path / "b.sks")
    assert back == bundle
    same(pick(back, "folds").total, Moments().from_block(X, y))
    with pytest.raises(Incompatible, match="moments"):
        pick(back, "moments")


def test_what_is_refused():
    X, y, _ = rows()
    for bad in (lambda: Folds(Moments(), 1), lambda: Folds(Moments(), 2.0), lambda: Folds(Moments(), seed="x")):
        with pytest.raises(BadParameter):
            bad()
    with pytest.raises(BadParameter, match="decayed-moments"):
        Folds(DecayedMoments(half_life=3))
    with pytest.raises(BadParameter, match="parts of parts"):
        Folds(Folds(Moments()))
    with pytest.raises(BadParameter, match="description"):
        Folds("moments")
    a = Folds(Moments(), 3).from_block(X, y)
    with pytest.raises(Incompatible, match="seed"):
        a.merge(Folds(Moments(), 3, seed=1).from_block(X, y))
    with pytest.raises(Incompatible, match=r"summary: Moments\(\) and Moments\("):
        a.merge(Folds(Moments(method="qr"), 3).from_block(X, y))


def test_bundles_that_do_not_merge_say_which_member_differs_and_how():
    X = rows()[0]
    small, large = (Bundle(sketch=FrequentDirections(n), stats=ColumnStats()).from_block(X) for n in (4, 8))
    says = "cannot merge frequent-directions summaries with different size: 4 and 8; summarize both alike"
    with pytest.raises(Incompatible, match=says):
        small.merge(large)
    with pytest.raises(Incompatible, match=r"a bundle of sketch, stats with one of stats$"):
        small.merge(Bundle(stats=ColumnStats()).from_block(X))


def test_folds_of_numbers_that_divide_one_another_merge():
    X = np.random.default_rng(0).standard_normal((90, 3))
    one, other = (Folds(ColumnStats(), n_folds=n).from_block(X[:50]) for n in (20, 5))
    more, few = (Folds(ColumnStats(), n_folds=n).from_block(X[50:], start=50) for n in (20, 5))
    expected = other.merge(few)
    for merged in (one.merge(few), other.merge(more)):
        assert (merged.n_folds, [fold.n_rows for fold in merged]) == (5, [fold.n_rows for fold in expected])
        np.testing.assert_allclose([fold.mean for fold in merged], [fold.mean for fold in expected], rtol=1e-12)
    with pytest.raises(Incompatible, match="n_folds: 20 and 7"):
        one.merge(Folds(ColumnStats(), n_folds=7).from_block(X[50:], start=50))
    with pytest.raises(Incompatible, match="seed"):
        one.merge(Folds(ColumnStats(), n_folds=5, seed=1).from_block(X[50:], start=50))
