"""`StabilitySelector`: ``E |selected noise| <= error_bound_ = q^2 / ((2 threshold - 1) p) <= max_false``.

The bound that is stated against its formula and what was asked for, for random p, threshold, constant columns and
copies, which do not count; the expectation by simulation where all columns are noise.
"""

import numpy as np
import pytest

import sketchselect as sks
from sketchselect.errors import BadParameter

from .instances import each_instance


@each_instance
def test_the_bound_is_kept_or_refused(seeds):
    refused, n_false, stated = 0, 0, 0.0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        p, n_constant = int(rng.integers(1, 40)), int(rng.integers(0, 20))
        X = rng.standard_normal((60, p))
        copies = X[:, rng.integers(0, p, n_constant // 2)] * rng.choice([-1.0, 3.0])
        X = np.hstack([X, np.full((60, n_constant), 2.0), copies])
        y = rng.standard_normal(60)
        max_false, threshold = float(10.0 ** rng.uniform(-1.5, 0.7)), float(rng.uniform(0.55, 1.0))
        selector = sks.StabilitySelector(max_false=max_false, threshold=threshold, n_pairs=4, random_state=seed)
        share = 2 * threshold - 1
        if share * p * max_false < 1:
            with pytest.raises(BadParameter, match="cannot be kept"):
                selector.fit(X, y)
            refused += 1
            continue
        chosen = selector.fit(X, y)
        q = chosen.selection_.parameters["n_per_half"]
        assert q == min(int(np.sqrt(share * p * max_false * (1 + 1e-12))), p)
        assert chosen.error_bound_ == pytest.approx(min(max_false, q * q / (share * p)), rel=1e-9)
        assert not X[:, chosen.support_].std(axis=0, ddof=0).min(initial=1.0) < 1e-9
        n_false += chosen.support_.size
        stated += max_false
    assert refused
    # All columns are noise: their mean number is below the mean of the bounds.
    assert n_false <= stated
