"""Seeded adversarial matrices, and summaries of them from random pieces in random trees of merges."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.passing import random_tree, split

FAST, ALL = range(24), range(24, 264)

NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)
"""Marks of the other instances: a share of them is in every run of the tests."""

each_instance = pytest.mark.parametrize("seeds", [FAST, pytest.param(ALL, marks=NIGHTLY)], ids=["fast", "all"])


def each_number(fast: range, others: range, size: int = 20) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator of tests of one instance, `number`: they are collected in tests of `size` instances.

    A failure says the number. Thousands of tests by themselves take longer to collect and to report than to run.
    """
    chunks = [fast[i : i + size] for i in range(0, len(fast), size)]
    chunks += [pytest.param(others[i : i + size], marks=NIGHTLY) for i in range(0, len(others), size)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def each(numbers: range, **arguments: Any) -> None:
            for number in numbers:
                try:
                    test(number=number, **arguments)
                except BaseException as error:
                    error.add_note(f"instance {number}")
                    raise

        signature = inspect.signature(test)
        names = [p.replace(name="numbers") if p.name == "number" else p for p in signature.parameters.values()]
        each.__signature__ = signature.replace(parameters=names)  # type: ignore[attr-defined]
        return pytest.mark.parametrize("numbers", chunks, ids=lambda chunk: f"{chunk[0]}-{chunk[-1]}")(each)

    return decorate


def matrix(rng: np.random.Generator, n: int, p: int) -> Any:
    """Return rows of a kind that has broken something: scales, copies, ranks, offsets, huge and late rows."""
    X = rng.standard_normal((n, p))
    kind = int(rng.integers(10))
    if kind == 1:
        X = X * 10.0 ** rng.uniform(-6, 6, p)
    elif kind == 2:
        X = X[:, rng.integers(p, size=p)] * rng.choice([-2.0, 1.0, 3.0], p)
    elif kind == 3:
        rank = int(rng.integers(1, 4))
        X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, p))
    elif kind == 4:
        X = X + 10.0 ** rng.uniform(0, 6)
    elif kind == 5:
        X[int(rng.integers(n))] *= 1e6
    elif kind == 6:
        X *= np.where(np.arange(n) < 0.8 * n, 1e-6, 1.0)[:, None]
    elif kind == 7:
        X[:, rng.random(p) < 0.5] = rng.choice([0.0, 7.0])
    elif kind == 8:
        X = X[rng.integers(max(n // 4, 1), size=n)]
    elif kind == 9:
        X = rng.poisson(0.5, (n, p)).astype(float)
    return X


def pieces(rng: np.random.Generator, n: int) -> list[int]:
    """Return the edges of neighbouring pieces of rows: one, some, or every row by itself."""
    cuts = np.flatnonzero(rng.random(max(n - 1, 0)) < rng.choice([0.0, 0.1, 0.5, 1.0])) + 1
    return [0, *cuts.tolist(), n]


def merged(rng: np.random.Generator, description: Any, X: Any, y: Any = None, weights: Any = None) -> Any:
    """Return the summary of the rows, in random pieces, merged with neighbours in random order."""
    return random_tree(split(description, X, pieces(rng, X.shape[0]), y, weights), rng)


def objective(X: Any, labels: Any) -> float:
    """Return the k-means objective of a partition of rows, negative labels apart."""
    return float(
        sum(((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum() for c in np.unique(labels[labels >= 0]))
    )
