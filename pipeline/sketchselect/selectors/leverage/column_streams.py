"""Sources read by columns, scores of streams of columns, and samples of columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution import Source
from sketchselect.linalg.arrays import Floats
from sketchselect.readers import transposed


def column_source(source: Source, method: str) -> Source:
    """Return the source whose rows are the columns of another.

    Raises `BadParameter` if the source prepares or weights rows, or has selected columns: that needs whole rows.
    """
    if source.prepare:
        raise BadParameter(
            f"{method}: the step {source.prepare[0].name!r} needs whole rows, but this method reads columns; convert "
            "the data first, or use a method that reads rows"
        )
    if source.weight is not None:
        raise BadParameter(f"{method}: a method that reads columns takes no weights of rows; leave sample_weight out")
    if source.columns is not None:
        raise BadParameter(f"{method}: the source has selected columns; pass the whole matrix")
    return replace(source, matrix=transposed(source.matrix), target=None)


def n_columns_seen(seen: NDArray[np.int64]) -> int:
    """Return the number of columns up to the last of these indices, which ascend."""
    return int(seen[-1]) + 1 if seen.size else 0


def names_of_columns(names: tuple[str, ...] | None, n_columns: int) -> tuple[str, ...] | None:
    """Return the names; None unless there is one for each column."""
    return names if names is not None and len(names) == n_columns else None


def spread(seen: NDArray[np.int64], scores: Floats) -> Floats:
    """Return the scores of columns 0, 1, ...; NaN for columns that were not seen.

    Raises `Incompatible` if a column was seen twice.
    """
    if (np.diff(seen) == 0).any():
        twice = int(seen[:-1][np.diff(seen) == 0][0])
        raise Incompatible(
            f"column {twice} was summarised twice; pass the index of the first column of every band (start)"
        )
    out = np.full(n_columns_seen(seen), np.nan)
    out[seen] = scores
    return out


def priority_sample(intensities: Floats, draws: Floats, n_select: int) -> tuple[NDArray[np.int64], Floats]:
    """Return ``(indices, probabilities)`` of exactly `n_select` items, or of all whose intensity is positive.

    The items of largest ``intensity / draw`` are taken. With t the largest value that is not taken, an item is taken
    with probability ``min(1, intensity / t)``, so that weights of the inverse are unbiased.
    Source: Duffield, Lund and Thorup 2007 (priority sampling).

    Examples
    --------
    >>> import numpy as np
    >>> priority_sample(np.array([0.5, 0.0, 4.0, 1.0]), np.array([0.5, 0.1, 0.5, 0.25]), 2)[0].tolist()
    [2, 3]
    """
    possible = np.flatnonzero(intensities > 0)
    with np.errstate(over="ignore"):
        priority = intensities[possible] / draws[possible]
    order = np.argsort(-priority, kind="stable")
    taken = np.sort(possible[order[:n_select]])
    if taken.size == possible.size:
        return taken, np.ones(taken.size)
    threshold = float(priority[order[n_select]])
    return taken, np.minimum(1.0, intensities[taken] / threshold)
