"""Moments of rows with missing values: each pair of columns against rational arithmetic.

With N, m, S the exact weight, means and scatter of the rows that have a value in both columns i and j,
s_i = sqrt(S_ii), r_i = sqrt(N) |m_i| and a = 4000 2^-52, for any blocks and any merge tree:

    |mean_i - m_i|        <= a (|m_i| + s_i / sqrt(N))
    |computed_ij - S_ij|  <= a (s_i s_j + s_i r_j + r_i s_j) + a^2 r_i r_j

In particular a value that is in no row of a pair changes nothing of it.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from sketchselect.summaries import Moments
from sketchselect.summaries.moment_forms import pairs_of

from .instances import each_number, merged
from .rational import fractions_of, mean_of, rows_of, scatter_of

FAST, ALL = range(60), range(60, 600)
whole = each_number(FAST, ALL)

UNIT = 4000 * 2.0**-52


def instance(number: int) -> tuple[Any, Any, Any, np.random.Generator]:
    """Return rows with gaps, targets, weights: glitches outside a pair, groups far apart, far from zero, gaps only."""
    rng = np.random.default_rng(number)
    n, d = int(rng.integers(4, 24)), int(rng.integers(2, 5))
    kind = ("glitch", "groups", "far", "rare", "weights", "constant")[number % 6]
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 4, d)
    missing = rng.random((n, d)) < rng.choice([0.0, 0.2, 0.6])
    w = np.ones(n)
    if kind == "glitch":
        X[0], X[1] = 10.0 ** rng.integers(6, 16), 10.0 ** rng.integers(6, 16)
        missing[0, 1:], missing[1, 0] = True, True
    elif kind == "groups":
        # Most rows of the first column are far away, and have no value in the others.
        far = rng.random(n) < 0.7
        X[far, 0] += 10.0 ** rng.integers(6, 14)
        missing[far, 1:] = True
    elif kind == "far":
        X += 10.0 ** rng.integers(3, 9)
    elif kind == "rare":
        missing[: n - 2, 0] = True
        X[:, 0] += 1e9
    elif kind == "weights":
        w = 10.0 ** rng.uniform(-9, 9, n) * (rng.random(n) < 0.8)
    elif kind == "constant":
        X[:, 0] = 1e7 / 3
    y = X[:, :1] * 0.5 + rng.standard_normal((n, 1))
    y[~np.isfinite(y)] = 0.0
    X[missing] = np.nan
    return X, y, w, rng


@whole
def test_every_pair_of_columns_has_the_moments_of_its_own_rows(number: int) -> None:
    X, y, w, rng = instance(number)
    pairs = pairs_of(merged(rng, Moments(missing="pairwise"), X, y, w).record)
    Z = np.hstack([X, y])
    for i in range(Z.shape[1]):
        for j in range(i, Z.shape[1]):
            both = ~(np.isnan(Z[:, i]) | np.isnan(Z[:, j])) & (w > 0)
            assert float(pairs.weight[i, j]) == pytest.approx(float(w[both].sum()), rel=1e-14)
            if not both.any():
                continue
            rows, weights = rows_of(Z[np.ix_(both, [i, j])]), fractions_of(w[both])
            m, S, total = mean_of(rows, weights), scatter_of(rows, weights), float(w[both].sum())
            s = [math.sqrt(S[k][k]) for k in range(2)]
            r = [math.sqrt(total) * abs(float(m[k])) for k in range(2)]
            for k, (a, b) in enumerate(((i, j), (j, i))):
                off = abs(Fraction(float(pairs.mean[a, b])) - m[k])
                assert off <= UNIT * (abs(float(m[k])) + s[k] / math.sqrt(total))
            allowed = UNIT * (s[0] * s[1] + s[0] * r[1] + r[0] * s[1]) + UNIT**2 * r[0] * r[1]
            assert abs(Fraction(float(pairs.scatter[i, j])) - S[0][1]) <= allowed


@pytest.mark.parametrize("glitch", [1e8, 1e9, 1e10, 1e12])
def test_a_glitch_outside_a_pair_does_not_change_its_covariance(glitch: float) -> None:
    X = np.random.default_rng(0).standard_normal((100, 2))
    X[0], X[1] = (glitch, np.nan), (np.nan, glitch)
    covariance = Moments(missing="pairwise").from_block(X).covariance()
    assert covariance[0, 1] == pytest.approx(np.cov(X[2:].T, ddof=0)[0, 1], rel=1e-12)
