"""Weights that differ by many powers of ten: moments, objectives and certificates against rational arithmetic.

With m the exact mean, S the exact scatter, W the total weight, a = 16 n 2^-52 for n rows, s_j = sqrt(S_jj) and
r_j = sqrt(W) |m_j|, for any blocks and any merge tree:

    |mean_j - m_j|      <= a (|m_j| + s_j / sqrt(W))
    |computed_ij - S_ij| <= a (s_i s_j + s_i r_j + r_i s_j) + a^2 r_i r_j    (a mean is stored in float64)
    |objective - F|     <= b F,  b = 2000 2^-52                            (its means are stored in twice that)
    lower bound of a certificate <= best objective <= objective, so no exact objective is impossible
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import sketchselect as sks
from sketchselect.cluster.certificates.spectral import spectral_bound
from sketchselect.summaries import BlockBound, CentroidSums, ColumnStats, FrequentDirections, Moments
from sketchselect.summaries.moment_panels import ComomentPanel

from .instances import each_number, merged
from .rational import best_objective, fractions_of, mean_of, objective_of, rows_of, scatter_of

FAST, ALL = range(60), range(60, 600)

UNIT = 16 * 2.0**-52
"""What a row may add in rounding."""

ABOUT_A_ROW = 2000 * 2.0**-52
"""Rounding of sums of squares about a value of the data, which are computed again about the mean beyond it."""


@dataclass(frozen=True)
class Instance:
    """Weighted rows, and the pieces in which they arrive."""

    X: Any
    w: Any
    rng: np.random.Generator

    @property
    def exact(self) -> tuple[list[list[Fraction]], list[Fraction]]:
        return rows_of(self.X), fractions_of(self.w)

    def merged(self, description: Any, y: Any = None, sparse: bool = False) -> Any:
        """Return the summary of the rows, from pieces."""
        return merged(self.rng, description, csr_array(self.X) if sparse else self.X, y, self.w)


def instance(number: int) -> Instance:
    """Return one of many: glitches that weigh nothing, far from the origin, duplicates, fading weights, zeros."""
    rng = np.random.default_rng(number)
    n, p = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    kind = ("glitch", "powers", "far", "equal", "fading", "empty")[number % 6]
    X = rng.standard_normal((n, p)) * 10.0 ** rng.integers(-6, 7, (1, p))
    w = 10.0 ** rng.uniform(-12, 12, n)
    if kind == "glitch":
        X[rng.integers(n)] *= 10.0 ** rng.integers(6, 16)
        w[:] = 10.0 ** rng.uniform(11, 12)
        w[int(np.abs(X).max(axis=1).argmax())] = 10.0 ** rng.uniform(-13, -11)
    elif kind == "powers":
        X *= 10.0 ** rng.integers(-8, 9, (n, 1))
    elif kind == "far":
        X += 10.0 ** rng.integers(3, 9)
    elif kind == "equal":
        X = X[rng.integers(0, max(1, n // 2), n)]
    elif kind == "fading":
        w = 2.0 ** -np.arange(0.0, 20.0 * n, 20.0)[::-1]
        X[0] *= 1e16
    elif kind == "empty":
        w[rng.random(n) < 0.4] = 0.0
        w[rng.integers(n)] = 1.0
    return Instance(X, w, rng)


whole = each_number(FAST, ALL)


@dataclass(frozen=True)
class Exact:
    """Exact moments of the rows of an instance, and the bounds of their rounding."""

    mean: list[Fraction]
    scatter: list[list[Fraction]]
    weight: float
    unit: float

    @classmethod
    def of(cls, one: Instance) -> Exact:
        rows, weights = one.exact
        return cls(mean_of(rows, weights), scatter_of(rows, weights), float(sum(weights)), UNIT * len(rows))

    def require(self, mean: Any, scatter: Any) -> None:
        """Fail unless the mean and the scatter are those of the rows, to rounding."""
        s = [math.sqrt(self.scatter[j][j]) for j in range(len(self.mean))]
        r = [math.sqrt(self.weight) * float(abs(m)) for m in self.mean]
        for i, exact in enumerate(self.mean):
            off = abs(Fraction(float(mean[i])) - exact)
            assert off <= self.unit * (float(abs(exact)) + s[i] / math.sqrt(self.weight)), "mean"
            for j in range(i, len(s)):
                allowed = self.unit * (s[i] * s[j] + s[i] * r[j] + r[i] * s[j]) + self.unit**2 * r[i] * r[j]
                assert abs(Fraction(float(scatter[i][j])) - self.scatter[i][j]) <= allowed, "scatter"


@whole
@pytest.mark.parametrize("sparse", [False, True])
def test_moments_of_unequal_weights_are_exact_to_rounding(number: int, sparse: bool) -> None:
    one = instance(number)
    exact = Exact.of(one)
    moments = one.merged(Moments(), sparse=sparse)
    exact.require(moments.mean, moments._scatter())
    factored = one.merged(Moments(method="qr"), sparse=sparse)
    exact.require(factored.mean, factored._scatter())
    sketch = one.merged(FrequentDirections(2), sparse=sparse)
    exact.require(sketch.mean, sketch.record.gram)
    panel = one.merged(ComomentPanel(0, one.X.shape[1]), sparse=sparse)
    exact.require(panel.mean, panel.comoment)
    pairs = one.merged(Moments(missing="pairwise"))
    exact.require(pairs.mean, pairs._scatter())


@whole
@pytest.mark.parametrize("sparse", [False, True])
def test_column_statistics_of_unequal_weights_are_exact_to_rounding(number: int, sparse: bool) -> None:
    one = instance(number)
    stats = one.merged(ColumnStats(), sparse=sparse)
    for j in range(one.X.shape[1]):
        column = replace(Exact.of(Instance(one.X[:, j : j + 1], one.w, one.rng)), unit=ABOUT_A_ROW)
        column.require(stats.mean[j : j + 1], [[stats.record.scatter[j]]])


@whole
def test_cluster_sums_of_unequal_weights_are_exact_to_rounding(number: int) -> None:
    one = instance(number)
    rows, weights = one.exact
    labels = one.rng.integers(0, 3, len(rows))
    exact = objective_of(rows, weights, labels.tolist())
    for sparse in (False, True):
        computed = one.merged(CentroidSums(3), labels, sparse).objective
        assert abs(Fraction(computed) - exact) <= ABOUT_A_ROW * exact


@whole
def test_no_exact_objective_is_called_impossible(number: int) -> None:
    one = instance(number)
    rows, weights = one.exact
    k = int(one.rng.integers(1, 4))
    best, labels = best_objective(rows, weights, k)
    for description in (Moments(), Moments(method="qr"), FrequentDirections(2), BlockBound(k)):
        summary = one.merged(description)
        lower = summary.lower_bound() if isinstance(summary, BlockBound) else spectral_bound(summary, k)[0]
        assert Fraction(lower) <= best
        certificate = sks.certify(summary, float(best), k)
        assert certificate.lower_bound <= best
        measured = sks.kmeans_objective(one.X, np.array(labels), k, sample_weight=one.w)
        assert sks.certify(summary, measured, k).factor >= 1


def test_the_objective_of_weights_a_hundred_powers_of_ten_apart() -> None:
    """Squares about a light row would hide all others: 0 was returned, and `certify_labels` called it impossible."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, labels = rng.standard_normal((9, 3)) * 10.0 ** rng.uniform(-9, 9), rng.permutation(np.arange(9) % 2)
        w = 10.0 ** rng.uniform(-60, 60, 9)
        if seed % 2:
            X[rng.random((9, 3)) < 0.8] = 0.0
        exact = objective_of(rows_of(X), fractions_of(w), labels.tolist())
        for rows in (X, csr_array(X)):
            computed = sks.kmeans_objective(rows, labels, 2, sample_weight=w)
            assert abs(Fraction(computed) - exact) <= ABOUT_A_ROW * exact
            assert sks.certify_labels(rows, labels, 2, sample_weight=w).factor >= 1


def test_a_glitch_that_weighs_nothing_does_not_make_the_best_clustering_impossible() -> None:
    X = np.array([[1.51182162e9], [9.50463696e-4], [1.44159613e-4]])
    w = np.array([1e-12, 1e12, 1e12])
    exact = objective_of(rows_of(X), fractions_of(w), [0, 0, 0])
    parts = [Moments().from_block(X[i : i + 1], sample_weight=w[i : i + 1]) for i in range(3)]
    moments = parts[0].merge(parts[1]).merge(parts[2])
    assert spectral_bound(moments, 1)[0] <= exact
    measured = sks.kmeans_objective(X, [0, 0, 0], 1, sample_weight=w)
    assert measured == pytest.approx(float(exact), rel=1e-14)
    assert sks.certify(moments, measured, 1).factor == pytest.approx(1.0, abs=1e-12)


def test_a_glitch_that_has_faded_does_not_move_a_decayed_mean() -> None:
    """One value of 1e16 that weighs 2^-100, in blocks of one row and in one block."""
    x = np.random.default_rng(0).normal(5.0, 1.0, (101, 1))
    x[0] = 1e16
    w = [Fraction(1, 2 ** (100 - i)) for i in range(101)]
    exact = mean_of(rows_of(x), w)[0]
    for description in (sks.summaries.DecayedMoments(half_life=1), sks.summaries.DecayedDirections(2, half_life=1)):
        merged = description.from_block(x[:1])
        for i in range(1, 101):
            merged = merged.update(x[i : i + 1])
        for summary in (merged, description.from_block(x)):
            assert abs(Fraction(float(summary.mean[0])) - exact) <= 1e-13 * exact
