"""Exponential decay by global row index: what summaries that forget have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Array, Floats, global_rows


def check_decay(owner: str, half_life: Any, decay: Any) -> tuple[float | None, float | None]:
    """Return `half_life` and `decay`, of which exactly one is given, as floats.

    Parameters
    ----------
    owner : str
        Who asks, for messages.
    half_life : float or None
        Rows after which a row counts half, ``g = 2^(-1 / half_life)``.
    decay : float or None
        The factor g of one row, in (0, 1].

    Raises
    ------
    BadParameter
        If both or neither are given, or one is no number or out of range.
    """
    if (half_life is None) == (decay is None):
        raise BadParameter(f"{owner} needs either half_life (in rows) or decay (a factor for each row)")
    rows = None if half_life is None else _number("half_life", half_life)
    factor = None if decay is None else _number("decay", decay)
    if rows is not None and not 0 < rows < np.inf:
        raise BadParameter(f"half_life must be a positive number of rows, got {half_life!r}")
    if factor is not None and not 0 < factor <= 1:
        raise BadParameter(f"decay must be above 0 and at most 1, got {decay!r}")
    return rows, factor


def decay_factors(ages: Any, half_life: float | None, decay: float | None) -> Any:
    """Return g to the power of these ages in rows.

    Examples
    --------
    >>> decay_factors([0, 2, 4], half_life=2.0, decay=None).tolist()
    [1.0, 0.5, 0.25]
    """
    ages = np.asarray(ages, dtype=np.float64)
    return np.exp2(-ages / half_life) if decay is None else np.power(decay, ages)


def row_weights(
    start: int | Array, n_rows: int, weights: Floats | None, half_life: float | None, decay: float | None
) -> tuple[int, Floats]:
    """Return ``(end, w)``: the global index after the last row of a block, and the weight of each row at that time."""
    rows = global_rows(start, n_rows).astype(np.int64)
    end = int(rows.max()) + 1
    decayed: Floats = decay_factors(end - 1 - rows, half_life, decay)
    return end, decayed if weights is None else decayed * weights


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise BadParameter(f"{name} must be a number, got {type(value).__name__}")
    return float(value)
