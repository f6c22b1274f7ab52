"""Selection of the columns of largest score, with one rule for ties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_positive
from sketchselect.solvers.problem import Problem

_TIE = 1e-8


@dataclass(frozen=True)
class Fit:
    """A selection and the least-squares coefficients on it.

    Parameters
    ----------
    support : array of int, shape (k,)
        Selected columns, ascending.
    scores : array of shape (p,)
        Scores of all columns, not negative.
    coef : array of shape (p, q)
        Unregularised coefficients of the standardised columns; zero outside the support.
    """

    support: NDArray[np.int64]
    scores: Floats
    coef: Floats


def scaled_row_norms(coef: Floats) -> Floats:
    """Return the Euclidean norm of every row, scaled so that no square leaves float64."""
    largest = np.abs(coef).max(initial=0.0)
    if largest == 0.0:
        return np.zeros(coef.shape[0])
    scaled = coef / largest
    out: Floats = np.sqrt((scaled * scaled).sum(axis=1)) * largest
    return out


def check_count(problem: Problem, n_select: int) -> int:
    """Return `n_select` as an int, or raise `BadParameter` if the problem has fewer columns."""
    if require_positive("n_select", n_select) > problem.n_features:
        raise BadParameter(f"cannot select {n_select} columns of {problem.n_features}")
    return int(n_select)


def strongest(scores: Floats, n_select: int, active: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return the indices of the `n_select` largest scores, ascending; ties go to the lowest index.

    Scores tie if a chain of differences of at most 1e-8 of the largest score connects them, so that rounding does not
    separate equal columns. Columns that are not active come last.

    Examples
    --------
    >>> strongest(np.array([1.0, 3.0, 3.0, 3.0]), 2).tolist()
    [1, 2]
    """
    order = np.argsort(-scores, kind="stable")
    falls = -np.diff(scores[order], prepend=scores[order[:1]])
    level = np.cumsum(falls > _TIE * scores.max(initial=0.0))
    constant = np.zeros(scores.size, dtype=bool) if active is None else ~active[order]
    best = order[np.lexsort((order, level, constant))][:n_select]
    return np.sort(best).astype(np.int64)
