"""Loss of sums of squares at the lower end of double precision."""

from __future__ import annotations

SMALLEST = 2.0**-1074
"""Smallest number above 0."""


def underflow(n_rows: int, n_features: int, weight: float) -> float:
    """Return what sums of (weighted) squares of `n_rows` rows can have lost to squares below the smallest number.

    Each square is off by up to half the smallest number, times the row's weight, and so is each product and merge
    after it; some dozen of these an entry. Of no effect beside squares above 1e-290.
    """
    return 64.0 * SMALLEST * n_features * (weight + n_rows)
