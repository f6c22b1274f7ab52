"""`UnivariateSelector`: ``P(any false column) <= alpha`` for fwe, ``E[false / selected] <= alpha`` for fdr and fdr-by.

By simulation, of numbers and of classes, with columns that have a part in the target and others of noise. P-values of
noise are uniform. Intervals of 95 % hold the effect of the population.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import sketchselect as sks

from .instances import each_instance

ALPHA = 0.2
N_TRUE = 3


def problem(seed: int, task: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 3 columns with a part in the target and 12 of noise; the latter alone where the seed is even."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 15)) * 10.0 ** rng.uniform(-6, 6, 15)
    part = (seed % 2) * (X[:, :N_TRUE] / X[:, :N_TRUE].std(axis=0)).sum(axis=1)
    noisy = part + rng.standard_normal(60)
    return X, noisy if task == "regression" else np.digitize(noisy, [-1.0, 0.5])


@each_instance
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_no_mode_selects_more_false_columns_than_it_states(seeds, task):
    shares = {"fwe": [], "fdr": [], "fdr-by": []}
    p_of_noise = []
    for seed in seeds:
        X, y = problem(seed, task)
        for mode, of_mode in shares.items():
            selector = sks.selectors.UnivariateSelector(mode=mode, alpha=ALPHA, task=task).fit(X, y)
            false = int((selector.support_ >= (N_TRUE if seed % 2 else 0)).sum())
            of_mode.append(float(false > 0) if mode == "fwe" else false / max(selector.support_.size, 1))
        p_of_noise.append(selector.pvalues_[-1])
    # Four standard errors: the tests below alpha fail by chance less often than once in ten thousand.
    error = np.sqrt(ALPHA * (1 - ALPHA) / len(shares["fwe"]))
    assert all(np.mean(of_mode) <= ALPHA + 4 * error for of_mode in shares.values())
    assert np.mean(shares["fdr-by"]) <= np.mean(shares["fdr"])
    assert stats.kstest(p_of_noise, "uniform").pvalue > 1e-4


def with_effects(rng: np.random.Generator, score: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Rows of 40 columns of one effect, the target, and that effect in the population."""
    n, labels = 120, np.repeat([0, 1, 2], [60, 40, 20])
    if score == "correlation":
        y = rng.standard_normal(n)
        return 0.4 * y[:, None] + np.sqrt(0.84) * rng.standard_normal((n, 40)), y, 0.4
    if score == "f":
        between = (np.array([60, 40, 20]) * (np.array([0.0, 0.5, 1.0]) - 1 / 3) ** 2).sum()
        return rng.standard_normal((n, 40)) + 0.5 * labels[:, None], labels, between / (between + n)
    if score == "t-test":
        X = rng.standard_normal((n, 40)) * np.where(labels > 0, 2.0, 1.0)[:, None] + 1.5 * (labels > 0)[:, None]
        return X, labels > 0, -1.5 / np.sqrt((59 + 4 * 59) / 118)
    if score == "chi2":
        mean = np.array([1.0, 2.0, 3.0])
        shares = np.array([60, 40, 20]) / n
        ratios = mean / (shares @ mean)
        X = rng.poisson(mean[labels][:, None], (n, 40)).astype(float)
        return X, labels, np.sqrt((shares * (ratios - 1) ** 2).sum() / 2)
    of_cell = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]])
    X = np.empty((n, 40))
    for k in range(3):
        X[labels == k] = rng.choice(4, p=of_cell[k], size=((labels == k).sum(), 40))
    if score == "wilcoxon":
        first, second = of_cell[:2]
        return X, labels > 0, 1 - 2 * float(second @ (np.cumsum(first) - first / 2))
    joint = of_cell * (np.array([60, 40, 20]) / n)[:, None]
    expected = joint.sum(axis=0) * joint.sum(axis=1, keepdims=True)
    return X, labels, float((joint * np.log(joint / expected)).sum() / stats.entropy([60, 40, 20]))


@pytest.mark.share(2)
@each_instance
@pytest.mark.parametrize("score", ["correlation", "f", "t-test", "chi2", "mutual-information", "wilcoxon"])
def test_intervals_hold_the_effect_of_the_population(seeds, score):
    inside = []
    for seed in seeds:
        X, y, effect = with_effects(np.random.default_rng(seed), score)
        low, high = sks.selectors.UnivariateSelector(score).fit(X, y).confint_.T
        inside += ((low <= effect) & (effect <= high)).tolist()
    # One per cent for the large-sample intervals, and four standard errors.
    assert np.mean(inside) >= 0.94 - 4 * np.sqrt(0.95 * 0.05 / len(inside))
