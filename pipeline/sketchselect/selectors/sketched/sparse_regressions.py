"""Scores from the coefficients of lasso regressions with few columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_positive

N_NONZERO = 200
"""Most columns in a regression by default: the coefficients of later ones are small."""


def resolved_nonzero(n_nonzero: Any, n_select: int) -> int:
    """Return the number of columns of each regression; min(n_select, `N_NONZERO`) by default.

    Raises `BadParameter` if `n_nonzero` is not a whole number of at least 1.
    """
    return min(n_select, N_NONZERO) if n_nonzero is None else require_positive("n_nonzero", n_nonzero)


def with_marginal_order(scores: Floats, marginal: Floats) -> Floats:
    """Return scores in which columns that score 0 follow the others, in the order of `marginal` (not negative).

    Theirs are at most half of the smallest positive score; 0 where the marginal is 0 too.
    """
    used = scores > 0
    floor = float(scores[used].min()) if used.any() else 1.0
    top = float(marginal[~used].max(initial=0.0))
    if top <= 0:
        return scores
    return np.where(used, scores, 0.5 * floor * (marginal / top))
