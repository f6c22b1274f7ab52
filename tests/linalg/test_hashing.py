"""Counter-based random numbers: uniform, independent of order, and never 0 or 1."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sketchselect.linalg import hashing
from sketchselect.linalg.hashing import derive_seed, exponential_keys, smallest_keys, splitmix64, uniforms


def reference(x: int) -> int:
    """The published finaliser in Python's own whole numbers."""
    mask = 2**64 - 1
    z = (x + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def test_splitmix64_equals_whole_number_arithmetic():
    items = np.array([0, 1, 2, 2**32, 2**63, 2**64 - 1], dtype=np.uint64)
    assert [int(z) for z in splitmix64(items)] == [reference(int(i)) for i in items]


def test_uniform_uncorrelated_and_independent_of_order():
    items = np.arange(20000, dtype=np.uint64)
    a, b = uniforms(1, items), uniforms(2, items)
    assert stats.kstest(a, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.03
    assert abs(np.corrcoef(a[1:], a[:-1])[0, 1]) < 0.03
    assert np.array_equal(uniforms(1, items[::-1])[::-1], a)


def test_never_0_or_1(monkeypatch):
    for word in (0, 2**64 - 1):
        monkeypatch.setattr(hashing, "splitmix64", lambda x, word=word: np.full(x.shape, word, dtype=np.uint64))
        u = uniforms(0, np.zeros(1, dtype=np.uint64))
        assert 0 < u[0] < 1


def test_stages_have_seeds_of_their_own():
    seeds = {derive_seed(s, stage, r) for s in (0, 1) for stage in ("seeding", "sample") for r in range(5)}
    assert len(seeds) == 20
    assert derive_seed(0, "seeding", 1) == derive_seed(0, "seeding", 1)


# Bottom-k samples: the smallest keys, ties by item, whatever the parts; keys whose minimum is drawn by rate.

KEYS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, np.inf]), max_size=30)


@given(KEYS, st.integers(1, 12) | st.none(), st.sampled_from([0.5, 2.0, np.inf]))
def test_equals_a_full_sort(keys, size, below):
    items = np.random.default_rng(len(keys)).permutation(len(keys))
    ranked = sorted((k, int(i), place) for place, (k, i) in enumerate(zip(keys, items, strict=True)) if k < below)
    places = smallest_keys(np.array(keys, dtype=float), items, size, below)
    assert places.tolist() == [place for _, _, place in ranked][:size]


@given(KEYS, st.integers(1, 12), st.integers(0, 30))
def test_smallest_of_parts_are_smallest_of_all(keys, size, cut):
    keys, items = np.array(keys, dtype=float), np.arange(len(keys))[::-1]
    parts = [np.flatnonzero(items < cut), np.flatnonzero(items >= cut)]
    survivors = np.concatenate([part[smallest_keys(keys[part], items[part], size)] for part in parts])
    merged = survivors[smallest_keys(keys[survivors], items[survivors], size)]
    assert merged.tolist() == smallest_keys(keys, items, size).tolist()


def test_smallest_key_is_drawn_in_proportion_to_the_rates():
    rates = np.array([1.0, 0.0, 3.0, 6.0])
    items = np.arange(4, dtype=np.uint64)
    winners = [int(exponential_keys(seed, items, rates).argmin()) for seed in range(4000)]
    counts = np.bincount(winners, minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], 400 * rates[[0, 2, 3]]).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.0, 5e-324])
def test_keys_beyond_float64_are_infinite(rate):
    assert exponential_keys(0, np.arange(3, dtype=np.uint64), np.full(3, rate)).tolist() == [np.inf] * 3
