"""Bottom-k samples: the items of smallest hashed key, the same for any blocks, order and merge tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.hashing import uniforms
from sketchselect.linalg.sparse.csr import densify, is_csr


def exponential_keys(seed: int, items: NDArray[np.uint64], rates: Floats) -> Floats:
    """Return the key ``-log(u_i) / rate_i`` of each item, u_i hashed from seed and item; infinite where the rate is 0.

    Of any items, item i has the smallest key with a probability in proportion to its rate.
    Source: the exponential race; Efraimidis and Spirakis 2006.
    """
    keys = np.full(rates.shape, np.inf)
    heavy = rates > 0
    with np.errstate(over="ignore"):
        keys[heavy] = -np.log(uniforms(seed, items[heavy])) / rates[heavy]
    return keys


def smallest_keys(keys: Floats, items: NDArray[Any], size: int | None, below: float = np.inf) -> NDArray[np.intp]:
    """Return the positions of the `size` (None: all) smallest keys less than `below`, by key and then by item.

    Merged samples are bottom-k samples of all rows: the smallest keys of a union are among the smallest of its parts.
    Cost: linear in the number of keys, and a sort of those returned. Source: Cohen and Kaplan 2007.

    Examples
    --------
    >>> import numpy as np
    >>> smallest_keys(np.array([0.5, 0.1, np.inf, 0.1]), np.array([7, 9, 8, 2]), 2).tolist()
    [3, 1]
    """
    places = np.flatnonzero(keys < below)
    if size is not None and places.size > size:
        places = places[keys[places] <= np.partition(keys[places], size - 1)[size - 1]]
    return places[np.lexsort((items[places], keys[places]))][:size]


@dataclass(frozen=True)
class KeyedRows:
    """Rows with the smallest keys; ties by row index. Which rows these are does not depend on the partitions."""

    keys: Floats  # shape (m,): Ascending
    rows: NDArray[np.int64]  # shape (m,): Global row indices
    points: Floats  # shape (m, n_features): Their values, float64
    weights: Floats  # shape (m,): Their weights

    def merge(self, other: KeyedRows, size: int | None = None, below: float = np.inf) -> KeyedRows:
        """Return the sample of the rows of both: the `size` smallest keys, and of them those below a limit."""
        return smallest_rows(
            np.concatenate([self.keys, other.keys]),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.points, other.points]),
            np.concatenate([self.weights, other.weights]),
            size,
            below,
        )


def smallest_rows(
    keys: Floats, rows: NDArray[np.int64], values: Any, weights: Floats, size: int | None, below: float = np.inf
) -> KeyedRows:
    """Return the `size` rows (None: all) of smallest key below a limit."""
    order = smallest_keys(keys, rows, size, below)
    points = densify(values[order]) if is_csr(values) else values[order]
    return KeyedRows(keys[order], rows[order], points.astype(np.float64), weights[order])
