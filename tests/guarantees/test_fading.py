"""`DecayedMoments`: weight, mean and co-moments of the rows as they have faded, ``g^(end - 1 - i)``, exact to rounding.

With a half-life of one row the weights are powers of two, and the reference is rational; rounding as in
`test_unequal_weights`: 1e-13 of ``s_i s_j + s_i r_j + r_i s_j`` a row, with r_j the root of the weight times the mean.
"""

import numpy as np

from sketchselect.summaries import DecayedMoments

from .instances import each_instance, matrix, merged
from .rational import fractions_of, mean_of, rows_of, scatter_of


@each_instance
def test_faded_moments_are_exact_to_rounding(seeds):
    for seed in seeds:
        rng = np.random.default_rng(seed)
        n, p = int(rng.integers(1, 40)), int(rng.integers(1, 4))
        X = matrix(rng, n, p)
        moments = merged(rng, DecayedMoments(half_life=1), X)
        weights = fractions_of(0.5 ** np.arange(n)[::-1])
        rows = rows_of(X)
        total = float(sum(weights))
        assert abs(float(np.max(moments.weight)) - total) <= 1e-14 * n * total
        mean = np.array([float(m) for m in mean_of(rows, weights)])
        scatter = np.array([[float(v) for v in row] for row in scatter_of(rows, weights)])
        s, r = np.sqrt(np.diag(scatter)), np.sqrt(total) * np.abs(mean)
        unit = 1e-13 * (n + 8)
        assert (np.abs(moments.mean - mean) <= unit * (np.abs(mean) + s / np.sqrt(total)) + 1e-300).all()
        room = unit * (np.outer(s, s) + np.outer(s, r) + np.outer(r, s)) + unit**2 * np.outer(r, r)
        assert (np.abs(moments.covariance() * total - scatter) <= room + 1e-300).all()
