"""Data and forms of moments shared by the tests of this folder."""

from functools import reduce

import numpy as np
from tests.passing import split

from sketchselect.summaries import Moments

FORMS = {
    "comoment": Moments(),
    "qr": Moments(method="qr"),
    "pairwise": Moments(missing="pairwise"),
    "degree 2": Moments(degree=2),
    "squares": Moments(degree=2, products=False),
}


def blocks(description, X, y=None, weights=None, n_blocks=7):
    """Return the summary of each of some unequal blocks."""
    edges = np.unique(np.r_[0, (len(X) * np.linspace(0, 1, n_blocks + 1)[1:-1] ** 1.5).astype(int), len(X)])
    return split(description, X, edges, y, weights)


def merged(parts):
    return reduce(lambda a, b: a.merge(b), parts)


def some_rows(n=400, p=6, q=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) @ rng.standard_normal((p, p)) + 10 * rng.standard_normal(p)
    y = X[:, :q] * 3 + rng.standard_normal((n, q))
    return X, y, rng.integers(0, 4, n) + rng.random(n)
