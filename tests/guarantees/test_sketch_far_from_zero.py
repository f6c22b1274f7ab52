"""Sketches of rows far from zero: the rounding of the means is in `shrinkage`.

With A_c the rows (times the roots of their weights) about their exact mean, B_c the sketch, W the total weight,
a = 64 2^-52 ||A_c||_F^2 and N the norm of the largest mean, for any blocks and any merge tree:

    lambda_max(A_c'A_c - B_c'B_c) <= shrinkage + a
    lambda_min(A_c'A_c - B_c'B_c) >= -(a + 16 2^-52 N sqrt(W) ||A_c||_F + W (16 2^-52 N)^2)

The difference of the two Gram matrices is exact, in rational arithmetic.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from tests.passing import random_tree, split

from sketchselect.summaries import DecayedDirections, FrequentDirections

from .instances import each_number
from .rational import fractions_of, rows_of, scatter_of

FAST, ALL = range(20), range(20, 220)
whole = each_number(FAST, ALL)

UNIT = 2.0**-52


def gap(X: Any, w: Any, sketch: Any) -> tuple[float, float, float]:
    """Return the extreme eigenvalues of ``A_c'A_c - B_c'B_c``, and ``||A_c||_F^2``."""
    exact = scatter_of(rows_of(X), fractions_of(w))
    rows = [fractions_of(row) for row in sketch]
    p = X.shape[1]
    difference = np.array(
        [[float(exact[i][j] - sum((r[i] * r[j] for r in rows), Fraction(0))) for j in range(p)] for i in range(p)]
    )
    values = np.linalg.eigvalsh(difference)
    return float(values[0]), float(values[-1]), float(sum(exact[j][j] for j in range(p)))


@whole
def test_the_rounding_of_means_far_from_zero_is_in_the_shrinkage(number: int) -> None:
    rng = np.random.default_rng(number)
    n, p, rank = int(rng.integers(6, 25)), 31, int(rng.integers(1, 3))
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p)) * 10.0 ** rng.integers(-2, 3)
    X += 10.0 ** rng.integers(0, 10) * rng.choice([1.0, 1 / 3], p)
    w = np.ones(n) if number % 2 else 10.0 ** rng.uniform(-3, 3, n)
    if number % 5 == 0:
        description: Any = DecayedDirections(2, half_life=8)
        exact_w = w * 0.5 ** (np.arange(n)[::-1] / 8)
    else:
        description, exact_w = FrequentDirections(2), w
    cuts = np.sort(rng.choice(np.arange(1, n), int(rng.integers(1, 5)), replace=False)).tolist()
    sketch = random_tree(split(description, X, [0, *cuts, n], weights=w), rng)
    low, high, total = gap(X, exact_w, sketch.centered_sketch)
    unit, mean = 64 * UNIT * total, 16 * UNIT * float(np.linalg.norm(np.abs(X).max(axis=0)))
    weight = float(exact_w.sum())
    assert high <= sketch.shrinkage + unit
    assert low >= -(unit + mean * math.sqrt(weight * total) + weight * mean * mean)
