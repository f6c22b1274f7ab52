"""`UnivariateSelector`: ``P(any false column) <= alpha`` for fwe, ``E[false / selected] <= alpha`` for fdr and fdr-by.

By simulation, of numbers and of classes, with columns that have a part in the target and others of noise. P-values of
noise are uniform.
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
