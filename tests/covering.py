"""Covering choices: of all combinations of factors so many that every pair of values of two factors is among them."""

from itertools import combinations, product
from typing import Any

import pytest


def _pairs(row: tuple[int, ...]) -> set[tuple[int, int, int, int]]:
    return {(i, a, j, b) for (i, a), (j, b) in combinations(enumerate(row), 2)}


def same(*values: Any) -> dict[str, Any]:
    """Return a factor whose values are their own identifiers."""
    return {str(value): value for value in values}


def every_pair(names: str, *factors: dict[str, Any]) -> pytest.MarkDecorator:
    """Parametrise a test by factors, each a dictionary of identifiers and values, whose pairs of values are all tested.

    For laws over many factors: a fault lies with a value or with two that meet. The choice is always the same.
    """
    rows = list(product(*(range(len(factor)) for factor in factors)))
    chosen, missing = [], set().union(*map(_pairs, rows))
    while missing:
        chosen.append(max(rows, key=lambda row: len(_pairs(row) & missing)))
        missing -= _pairs(chosen[-1])
    cases = [[list(factor.items())[i] for factor, i in zip(factors, row, strict=True)] for row in sorted(chosen)]
    return pytest.mark.parametrize(
        names, [pytest.param(*(value for _, value in case), id="-".join(name for name, _ in case)) for case in cases]
    )
