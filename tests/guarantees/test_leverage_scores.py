"""Ridge leverage, ``lower <= tau_i <= upper`` with ``tau_i = a_i'(AA' + ridge I)^-1 a_i``, against rational arithmetic.

Condition numbers ``||A||_F^2 / ridge`` up to 1e12, columns of zeros, copies, scales from 1e-5 to 1e5.
"""

import numpy as np
import pytest

import sketchselect as sks

from .instances import each_instance
from .rational import leverage


def instance(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(2, 5)), int(rng.integers(2, 10))
    X = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-5, 5) + rng.choice([0.0, 3.0])
    X *= np.geomspace(1, 10.0 ** -rng.uniform(0, 6), n)[:, None]
    X[:, int(rng.integers(p))] = X[:, 0]
    X[:, int(rng.integers(1, p))] *= rng.choice([0.0, 1.0, 1e3])
    ridge = rng.choice([0.0, 1e-10, 1e-6, 1e-2, 1.0]) * float((X**2).sum())
    return X, float(ridge)


@pytest.mark.parametrize("read", ["columns", "rows"])
@each_instance
def test_bounds_contain_the_exact_scores(read, seeds):
    rounded = 0
    for seed in seeds:
        X, ridge = instance(seed)
        chosen = sks.LeverageSelector(1, ridge=ridge, read=read).fit(X)
        lower, upper = chosen.score_bounds_
        exact = leverage(X, chosen.selection_.diagnostics["ridge"])
        assert all(a <= tau <= b for a, tau, b in zip(lower.tolist(), exact, upper.tolist(), strict=True)), seed
        assert (lower <= chosen.scores_).all()
        assert (chosen.scores_ <= upper).all()
        rounded += sum(score != tau for score, tau in zip(chosen.scores_.tolist(), exact, strict=True))
    assert rounded  # There is rounding for the bounds to cover.


@each_instance
def test_scores_are_within_their_relative_error_and_that_is_small_where_the_ridge_is_large(seeds):
    for seed in seeds:
        X, ridge = instance(seed)
        summary = sks.LeverageSelector(1, ridge=ridge, read="columns").fit(X).summary_
        for tau, score in zip(leverage(X, summary.ridge), summary.scores.tolist(), strict=True):
            assert abs(score - tau) <= summary.relative_error * tau
        if summary.ridge >= 1e-2 * float((X**2).sum()):
            assert summary.relative_error < 1e-10
