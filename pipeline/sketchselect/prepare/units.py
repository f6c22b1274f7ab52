"""Remark on columns of unlike units: few of them have nearly all of the variance, and so decide all distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sketchselect._text import first_few
from sketchselect.linalg.validation import Floats
from sketchselect.prepare.fitted import Standardise

# Columns are said to have nearly all of the variance where they have this share, are one or a quarter of all at most,
# and the largest variance is this many times the median, of an even number the lower of two: so it is with raw columns
# of different units.
OUTWEIGHING, UNLIKE = 0.99, 1e3
WIDEST_TABLE = 100
"""Columns up to which whole numbers from 0 on are those of a table, unless most of them are 0; others are counts."""


def outweighing(rows: Any, names: Sequence[str] | None, weights: Floats | None = None) -> str:
    """Return in words which few columns have nearly all of the variance, as in raw units; empty where none have.

    Counts have one unit, and sparse rows are mostly such.

    `rows` of shape (n_rows, n_columns): Some rows, as an array or CSR.
    `names`: Those of the columns.
    `weights` of shape (n_rows,): Weights of the rows; all 1 by default.
    """
    if not isinstance(rows, np.ndarray):
        return ""
    weights = np.ones(len(rows)) if weights is None else weights
    if not (weights > 0).all():
        rows, weights = rows[weights > 0], weights[weights > 0]
    if not rows.size or not np.isfinite(rows).all():
        return ""
    # One row mostly shows that they are not.
    are_whole = all(of.min() >= 0 and (of == np.rint(of)).all() for of in (rows[:1], rows))
    if are_whole and (rows.shape[1] > WIDEST_TABLE or 2 * np.count_nonzero(rows) < rows.size):
        return ""
    # In one array: new ones of megabytes take longer than what is computed.
    steps = rows - weights @ rows / weights.sum()
    unit = max(steps.max(), -steps.min())
    if unit > 0:
        steps /= unit
    return outweighing_variances(weights @ np.square(steps, out=steps), names)


def outweighing_variances(variances: Floats, names: Sequence[str] | None) -> str:
    """Return in words which few columns have nearly all of the variance; empty where none have.

    `variances` of shape (n_columns,): Variances, or multiples of them.
    `names`: Those of the columns.
    """
    varying = variances[variances > 0]
    order = np.argsort(-variances, kind="stable")
    shares = np.cumsum(variances[order]) / (variances.sum() or 1.0)
    n = int(np.searchsorted(shares, OUTWEIGHING)) + 1
    lower_median = np.sort(varying)[(varying.size - 1) // 2] if varying.size else 0.0
    if varying.size < 2 or n > max(1, varying.size // 4) or variances.max() < UNLIKE * lower_median:
        return ""
    heavy = [str(j) if names is None else f"{names[j]!r:.80}" for j in order[:n].tolist()]
    have = f"Column {heavy[0]} has" if n == 1 else f"Columns {first_few(heavy)} have"
    return (
        f"{have} {100.0 * shares[n - 1]:.1f} % of the variance of all {variances.size} columns; if they are of "
        f'different units, the prepare step "{Standardise.name}" gives each the same weight.'
    )
