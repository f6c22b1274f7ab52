"""What the selectors share that score columns by the coefficients of lasso regressions with few columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_positive

N_NONZERO = 200
"""Most columns in a regression, unless told: the coefficients of later ones are small."""


def resolved_nonzero(n_nonzero: Any, n_select: int) -> int:
    """Return the columns of each regression: as many as are selected, up to `N_NONZERO`, unless told.

    Raises
    ------
    BadParameter
        If a number is given that is not a whole one of at least 1.
    """
    return min(n_select, N_NONZERO) if n_nonzero is None else require_positive("n_nonzero", n_nonzero)


def with_marginal_order(scores: Floats, marginal: Floats) -> Floats:
    """Return scores in which columns that score 0 follow the others, in the order of `marginal` (not negative).

    They are put below half of the smallest score; those of no marginal either keep 0.
    """
    used = scores > 0
    floor = float(scores[used].min()) if used.any() else 1.0
    top = float(marginal[~used].max(initial=0.0))
    if top <= 0:
        return scores
    return np.where(used, scores, 0.5 * floor * (marginal / top))
