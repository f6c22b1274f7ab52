"""What selectors that read columns have in common: passes over column bands, streams of columns, sampled supports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadParameter, Incompatible
from sketchselect.execution import Source
from sketchselect.linalg.arrays import Floats
from sketchselect.readers import transposed


def column_source(source: Source, method: str) -> Source:
    """Return the source whose rows are the columns of another.

    Raises
    ------
    BadParameter
        Where rows are to be prepared, weighted or dropped: that needs whole rows.
    """
    if source.prepare:
        raise BadParameter(
            f"{method}: the step {source.prepare[0].name!r} needs whole rows, and columns are read here; convert the "
            "data first, or use a method that reads rows"
        )
    if source.weight is not None:
        raise BadParameter(f"{method}: weights of rows are not used where columns are read; leave sample_weight out")
    if source.columns is not None:
        raise BadParameter(f"{method}: columns were chosen already; give the whole matrix")
    return replace(source, matrix=transposed(source.matrix), target=None)


def n_columns_seen(seen: NDArray[np.int64]) -> int:
    """Return the number of columns of a matrix of which these were seen, by ascending index."""
    return int(seen[-1]) + 1 if seen.size else 0


def names_of_columns(names: tuple[str, ...] | None, n_columns: int) -> tuple[str, ...] | None:
    """Return the names where there is one for each column."""
    return names if names is not None and len(names) == n_columns else None


def require_seed(random_state: Any) -> int:
    """Return a random_state that is a seed: each column index has one number for ever, so generators will not do."""
    number = isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool)
    if not number or not 0 <= random_state < 2**64:
        raise BadParameter(f"random_state must be a whole number from 0 to 2^64 - 1, got {random_state!r:.40}")
    return int(random_state)


def spread(seen: NDArray[np.int64], scores: Floats) -> Floats:
    """Return the scores of columns 0, 1, ..., NaN for those that were not seen.

    Raises
    ------
    Incompatible
        If a column was seen twice.
    """
    if (np.diff(seen) == 0).any():
        twice = int(seen[:-1][np.diff(seen) == 0][0])
        raise Incompatible(
            f"column {twice} was summarised twice; give every band the index of its first column (start)"
        )
    out = np.full(n_columns_seen(seen), np.nan)
    out[seen] = scores
    return out


def priority_sample(intensities: Floats, draws: Floats, n_select: int) -> tuple[NDArray[np.int64], Floats]:
    """Return ``(places, probabilities)`` of exactly `n_select` items, or of all whose intensity is positive.

    Those with the largest ``intensity / draw`` are taken; given the first that is not, of value t, each was taken with
    probability ``min(1, intensity / t)``, and weighting by the inverse is unbiased.

    Notes
    -----
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
