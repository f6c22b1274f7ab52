"""Columns sampled by leverage, at the rate of the paper: ``|CC' - AA'| <= eps (AA' + ridge I)`` with its probability.

    P(failure) <= 2 n exp(-3 c eps^2 / 8) <= 2 / (n + 1)^2  for n rows and c = 8 log(n + 1) / eps^2
    eps_ = the least eps for which the columns chosen satisfy it, also at the default rate, which states no probability

References: generalised eigenvalues from the columns themselves; frequencies over seeds, in random pieces and trees.
"""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.summaries import LeverageSample

from ..summaries.oracles import relative_error
from .instances import each_instance, merged


def columns(seed):
    """Columns of few rows, as the rows of a matrix: noise, few strong ones, late ones, of several scales."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(2, 7)), int(rng.integers(50, 400))
    A = rng.standard_normal((p, n)) * 10.0 ** rng.uniform(-1, 1, n)
    kind = seed % 4
    if kind == 1:
        A[rng.integers(p, size=3)] *= 30
    elif kind == 2:
        A[: p // 2] *= 1e-3
    elif kind == 3:
        A[:, 0] *= np.arange(p) > 0.9 * p
    return rng, A


@pytest.mark.slow
@each_instance
def test_the_rate_of_the_paper_has_its_probability(seeds):
    failures, allowed = 0, 0.0
    for seed in seeds:
        rng, A = columns(seed)
        n = A.shape[1]
        eps = float(rng.choice([0.5, 0.9]))
        result = merged(rng, LeverageSample(eps=eps, sampling_rate="paper", seed=seed), A)
        failures += relative_error(result.sample, A, result.final_ridge) > eps
        allowed += 2 * n / (n + 1) ** 3
    assert failures <= allowed


@pytest.mark.share(2)
@each_instance
@pytest.mark.filterwarnings("ignore:every one of the")
@pytest.mark.parametrize("rate", [None, "paper", 1.5])
@pytest.mark.parametrize("about", ["mean", "zero"])
def test_the_error_that_was_realised_is_measured(seeds, rate, about):
    for seed in seeds:
        _, A = columns(seed)
        chosen = sks.OnlineLeverageSelector(sampling_rate=rate, random_state=seed, about=about).fit(A.T)
        if about == "mean":
            A = A - A.mean(axis=1, keepdims=True)
        sample = A[chosen.support_] * chosen.weights_[:, None]
        exact = relative_error(sample, A, chosen.selection_.diagnostics["ridge"])
        assert chosen.eps_ == pytest.approx(exact, rel=1e-5, abs=1e-9)
