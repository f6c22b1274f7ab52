"""`thresholded-ols`, `annealing`: least squares on the columns chosen, exact to rounding, and their number.

n_selected = min(k, columns that vary), 0 for a constant target; a warning where that is below k
[1 X_S]'[1 X_S] (b0, b) = [1 X_S]'y, in rational numbers: |error| <= 1e-13 n cond(correlation) (|b| sd + sd_y)
"""

import warnings

import numpy as np
import pytest

import sketchselect as sks

from .instances import each_instance
from .rational import product, rows_of, solve


def instance(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(12, 40)), int(rng.integers(2, 7))
    X = rng.standard_normal((n, p)) * 10.0 ** rng.uniform(-3, 3, p) + rng.choice([0.0, 5.0])
    y = X[:, 0] / X[:, 0].std() + rng.standard_normal(n)
    X[:, rng.random(p) < 0.3] = rng.choice([0.0, 7.0, 0.1])
    if seed % 10 == 0:
        y = np.full(n, 0.3)
    return rng, X, y, int(rng.integers(1, p + 1))


@each_instance
@pytest.mark.parametrize("cls", [sks.ThresholdedOLS, sks.FeatureSelectionAnnealing])
def test_number_of_columns_and_their_least_squares(seeds, cls):
    warned = 0
    for seed in seeds:
        _, X, y, k = instance(seed)
        varying = np.flatnonzero(X.max(axis=0) > X.min(axis=0))
        constant_target = y.max() == y.min()
        with warnings.catch_warnings(record=True) as messages:
            warnings.simplefilter("always")
            model = cls(k).fit(X, y)
        S = model.support_
        expected = 0 if constant_target else min(k, varying.size)
        assert S.size == expected == model.selection_.diagnostics["n_selected"]
        assert set(S.tolist()) <= set(varying.tolist())
        assert bool(messages) == (expected < k)
        warned += bool(messages)
        if not S.size:
            assert model.intercept_ == pytest.approx(y.mean())
            continue
        design = np.hstack([np.ones((len(y), 1)), X[:, S]])
        Z, t = rows_of(design.T), rows_of([y])
        exact = np.array([float(b[0]) for b in solve(product(Z, Z), product(Z, t))])
        sd = X[:, S].std(axis=0)
        condition = np.linalg.cond(np.corrcoef(X[:, S], rowvar=False)) if S.size > 1 else 1.0
        offset = np.abs(X[:, S]).max(axis=0) / sd
        room = 1e-13 * len(y) * condition * (np.abs(exact[1:]) * sd + y.std()) * (1 + offset.max())
        assert (np.abs(model.coef_[S] - exact[1:]) * sd <= room).all()
    assert warned
