"""Rational arithmetic for the references of the guarantees: every float is a fraction, and no step rounds."""

from __future__ import annotations

from fractions import Fraction
from operator import mul

import numpy as np

Row = list[Fraction]


def fractions(values) -> list[Row]:
    """Return a matrix as fractions."""
    return [[Fraction(float(v)) for v in row] for row in np.atleast_2d(values)]


def product(A: list[Row], B: list[Row]) -> list[Row]:
    """Return ``A B'``."""
    return [[sum(map(mul, a, b), Fraction()) for b in B] for a in A]


def solve(M: list[Row], B: list[Row]) -> list[Row]:
    """Return ``M^-1 B`` for a positive definite M."""
    n = len(M)
    rows = [list(m) + list(b) for m, b in zip(M, B, strict=True)]
    for i in range(n):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k in set(range(n)) - {i}:
            rows[k] = [x - rows[k][i] * y for x, y in zip(rows[k], rows[i], strict=True)]
    return [row[n:] for row in rows]


def leverage(X, ridge: float) -> Row:
    """Return the ridge leverage of the columns of X."""
    A = fractions(X)
    M = product(A, A)
    for i in range(len(M)):
        M[i][i] += Fraction(ridge)
    Z = solve(M, A)
    return [sum((a[j] * z[j] for a, z in zip(A, Z, strict=True)), Fraction()) for j in range(len(A[0]))]
