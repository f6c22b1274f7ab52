"""Ridge leverage, ``lower <= tau_i <= upper`` with ``tau_i = a_i'(AA' + ridge I)^-1 a_i``, against rational arithmetic.

Condition numbers ``||A||_F^2 / ridge`` up to 1e12, columns of zeros, copies, scales from 1e-5 to 1e5; of the columns as
they are and less their exact means, which may be 1e5 times what is left.
"""

import numpy as np
import pytest

import sketchselect as sks

from .instances import each_instance
from .rational import leverage, mean_of, rows_of


def instance(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(2, 5)), int(rng.integers(2, 10))
    X = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-5, 5) + rng.choice([0.0, 3.0])
    X *= np.geomspace(1, 10.0 ** -rng.uniform(0, 6), n)[:, None]
    X[:, int(rng.integers(p))] = X[:, 0]
    X[:, int(rng.integers(1, p))] *= rng.choice([0.0, 1.0, 1e3])
    ridge = rng.choice([0.0, 1e-10, 1e-6, 1e-2, 1.0]) * float((X**2).sum())
    return X, float(ridge)


def about_the_mean(X):
    rows = rows_of(X)
    mean = mean_of(rows, [1] * len(rows))
    return [[x - m for x, m in zip(row, mean, strict=True)] for row in rows]


@pytest.mark.parametrize("about", ["mean", "zero"])
@pytest.mark.parametrize("read", ["columns", "rows"])
@each_instance
def test_bounds_contain_the_exact_scores(read, about, seeds):
    rounded = 0
    for seed in seeds:
        X, ridge = instance(seed)
        chosen = sks.LeverageSelector(1, ridge=ridge, read=read, about=about).fit(X)
        lower, upper = chosen.score_bounds_
        exact = leverage(X if about == "zero" else about_the_mean(X), chosen.selection_.diagnostics["ridge"])
        assert all(a <= tau <= b for a, tau, b in zip(lower.tolist(), exact, upper.tolist(), strict=True)), seed
        assert (lower <= chosen.scores_).all()
        assert (chosen.scores_ <= upper).all()
        rounded += sum(score != tau for score, tau in zip(chosen.scores_.tolist(), exact, strict=True))
    assert rounded  # There is rounding for the bounds to cover.


@pytest.mark.parametrize("about", ["mean", "zero"])
@each_instance
def test_scores_are_within_their_relative_error_and_that_is_small_where_the_ridge_is_large(about, seeds):
    for seed in seeds:
        X, ridge = instance(seed)
        summary = sks.LeverageSelector(1, ridge=ridge, read="columns", about=about).fit(X).summary_
        exact = leverage(X if about == "zero" else about_the_mean(X), summary.ridge)
        for tau, score in zip(exact, summary.scores.tolist(), strict=True):
            assert abs(score - tau) <= summary.relative_error * tau
        if summary.ridge >= 1e-2 * float((X**2).sum()):
            assert summary.relative_error < 1e-10
