"""Counter-based random numbers: uniform, independent of order, and never 0 or 1."""

from __future__ import annotations

import numpy as np
from scipy import stats

from sketchselect.linalg import hashing
from sketchselect.linalg.hashing import derive_seed, splitmix64, uniforms


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
