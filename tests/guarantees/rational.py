"""Linear algebra, weighted moments and k-means optima in rational arithmetic: every float is a fraction."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from operator import mul
from typing import Any

Rows = list[list[Fraction]]


def fractions_of(values: Any) -> list[Fraction]:
    """Return floats as the fractions that they are; fractions stay."""
    return [v if isinstance(v, Fraction) else Fraction(float(v)) for v in values]


def rows_of(X: Any) -> Rows:
    """Return the rows of an array as fractions."""
    return [fractions_of(row) for row in X]


def mean_of(rows: Rows, weights: Sequence[Fraction]) -> list[Fraction]:
    """Return the weighted means of the columns; zeros without weight."""
    total = sum(weights, Fraction(0))
    columns = len(rows[0])
    if total == 0:
        return [Fraction(0)] * columns
    return [
        sum((w * row[j] for w, row in zip(weights, rows, strict=True)), Fraction(0)) / total for j in range(columns)
    ]


def scatter_of(rows: Rows, weights: Sequence[Fraction]) -> list[list[Fraction]]:
    """Return ``sum w (x - mean)(x - mean)'``."""
    mean, columns = mean_of(rows, weights), range(len(rows[0]))
    about = [[x - m for x, m in zip(row, mean, strict=True)] for row in rows]
    return [
        [sum((w * row[i] * row[j] for w, row in zip(weights, about, strict=True)), Fraction(0)) for j in columns]
        for i in columns
    ]


def objective_of(rows: Rows, weights: Sequence[Fraction], labels: Sequence[int]) -> Fraction:
    """Return the weighted k-means objective of a partition."""
    total = Fraction(0)
    for label in set(labels):
        chosen = [i for i, other in enumerate(labels) if other == label]
        scatter = scatter_of([rows[i] for i in chosen], [weights[i] for i in chosen])
        total += sum((scatter[j][j] for j in range(len(scatter))), Fraction(0))
    return total


def best_objective(rows: Rows, weights: Sequence[Fraction], k: int) -> tuple[Fraction, list[int]]:
    """Return the smallest objective of all partitions into at most k clusters, and one that has it."""
    cost: dict[tuple[int, ...], Fraction] = {}

    def of(cluster: tuple[int, ...]) -> Fraction:
        if cluster not in cost:
            cost[cluster] = objective_of([rows[i] for i in cluster], [weights[i] for i in cluster], [0] * len(cluster))
        return cost[cluster]

    def total(labels: list[int]) -> Fraction:
        clusters = [tuple(i for i, label in enumerate(labels) if label == c) for c in range(max(labels) + 1)]
        return sum((of(cluster) for cluster in clusters), Fraction(0))

    return min(((total(labels), labels) for labels in partitions(len(rows), k)), key=lambda one: one[0])


def partitions(n: int, k: int) -> Iterator[list[int]]:
    """Yield the partitions of n things into at most k parts, as restricted growth strings."""

    def grow(labels: list[int]) -> Iterator[list[int]]:
        if len(labels) == n:
            yield labels
            return
        for label in range(min(max(labels) + 2, k)):
            yield from grow([*labels, label])

    yield from grow([0])


def product(A: Rows, B: Rows) -> Rows:
    """Return ``A B'``."""
    return [[sum(map(mul, a, b), Fraction()) for b in B] for a in A]


def solve(M: Rows, B: Rows) -> Rows:
    """Return ``M^-1 B`` for a positive definite M."""
    n = len(M)
    rows = [list(m) + list(b) for m, b in zip(M, B, strict=True)]
    for i in range(n):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for k in set(range(n)) - {i}:
            rows[k] = [x - rows[k][i] * y for x, y in zip(rows[k], rows[i], strict=True)]
    return [row[n:] for row in rows]


def leverage(X: Any, ridge: float) -> list[Fraction]:
    """Return the ridge leverage of the columns of X."""
    A = rows_of(X)
    M = product(A, A)
    for i in range(len(M)):
        M[i][i] += Fraction(ridge)
    Z = solve(M, A)
    return [sum((a[j] * z[j] for a, z in zip(A, Z, strict=True)), Fraction()) for j in range(len(A[0]))]
