"""Decayed moments against weights written out row by row, in any order of merging, across gaps and for ever."""

import numpy as np
import pytest
from tests.summaries.oracles import check_moments

from sketchselect.errors import BadBlock, Incompatible
from sketchselect.summaries import DecayedMoments, Moments, decode, encode


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return 5 + rng.standard_normal((n, 4)), rng.standard_normal(n), rng.random(n) * 3


@pytest.mark.statement("Sun 2019, Equation 13")
def test_rows_are_weighted_by_their_own_index_across_gaps():
    X, y, w = rows()
    kept = np.flatnonzero(np.random.default_rng(2).random(300) < 0.4)
    kept = np.r_[kept[kept < 100], kept[kept > 240]]
    weights = w[kept] * 0.9 ** (kept[-1] - kept)
    d = DecayedMoments(decay=0.9)
    early, late = kept[kept < 60], kept[kept >= 60]
    parts = [d.from_block(X[k], y[k], start=k, sample_weight=w[k]) for k in (early, late)]
    assert parts[0].end == early[-1] + 1
    for merged in (parts[0].merge(parts[1]), parts[1].merge(parts[0]), d.from_block(X[kept], y[kept], start=kept)):
        assert merged.end == kept[-1] + 1
        assert merged.n_rows == len(kept)
    check_moments(parts[0].merge(parts[1]), X[kept], y[kept], weights)
    check_moments(parts[1].merge(parts[0]), X[kept], y[kept], weights)


def test_a_stream_goes_on_behind_its_last_row_and_not_behind_its_count():
    X, y, _ = rows(10)
    d = DecayedMoments(decay=0.5).from_block(X[:3], y[:3], start=np.array([4, 5, 9]))
    assert d.update(X[3:5], y[3:5]).end == 12


def test_what_is_very_old_fades_without_trouble():
    X, y, _ = rows()
    d = DecayedMoments(half_life=2)
    old = d.from_block(X[:100], y[:100], start=0)
    new = d.from_block(X[100:], y[100:], start=10**12)
    merged = old.merge(new)
    assert merged.n_rows == 300
    assert np.array_equal(merged.mean, new.mean)
    assert np.allclose(merged.covariance(), new.covariance(), rtol=1e-15)
    # A gap of a few thousand half-lives, where squares of weights underflow before the weights do.
    near = old.merge(d.from_block(X[100:], y[100:], start=1300))
    assert np.isfinite(near.covariance()).all()
    assert np.isfinite(near.n_effective)


def test_in_the_long_run_worth_as_many_rows_as_the_theory_says():
    X = np.zeros((5000, 1))
    for decay in (0.9, 0.99):
        result = DecayedMoments(decay=decay).from_block(X)
        assert result.n_effective == pytest.approx((1 + decay) / (1 - decay), rel=1e-9)
        assert result.weight == pytest.approx(1 / (1 - decay), rel=1e-9)


def test_without_decay_they_are_moments():
    X, y, w = rows()
    plain = Moments().from_block(X, y, sample_weight=w)
    result = DecayedMoments(decay=1).from_block(X, y, sample_weight=w)
    assert np.array_equal(result.covariance(), plain.covariance())
    assert result.weight == plain.weight


def test_labels_files_and_parameters():
    X, _, _ = rows()
    labels = np.array(["up", "down"])[np.arange(300) % 2]
    d = DecayedMoments(half_life=40, classes=["down", "up"]).from_block(X, labels)
    assert d.xy.shape == (4, 1)
    back = decode(encode(d))
    assert back == d
    assert back.end == 300
    assert back.update(X, labels) == d.update(X, labels)
    with pytest.raises(Incompatible, match="half_life"):
        d.merge(DecayedMoments(half_life=41, classes=["down", "up"]).from_block(X, labels))
    with pytest.raises(BadBlock, match="row 300"):
        d.update(X[:1], ["sideways"])
