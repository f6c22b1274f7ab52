"""Compiled loops over what is remembered of rows between sweeps of Lloyd's iteration: bounds per row and group."""

from __future__ import annotations

import numba
import numpy as np

from sketchselect.linalg.arrays import Array, Floats, Labels

# Bounds are float32, rounded down by this factor where they are stored and up where they are compared: it covers the
# roundings of the few operations between.
_DOWN = np.float32(1.0 - 2.0**-20)
_UP = np.float32(1.0 + 2.0**-20)
# Below it float32 loses relative precision; above the other it is infinite.
_SMALLEST, _LARGEST = np.float32(1e-30), np.float32(1e38)
_ZERO = np.float32(0.0)


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def least_of_others(products: Array, labels: Labels, least: Array) -> None:
    """Write, per group of centres (those of equal index modulo the number of groups), the least but for the label's.

    The label's own product is overwritten.
    """
    n_groups = least.shape[0]
    for f in range(labels.shape[0]):
        products[labels[f], f] = np.inf
    least[:] = np.inf
    for c in range(products.shape[0]):
        product, low = products[c], least[c % n_groups]
        for f in range(product.shape[0]):
            value, before = product[f], low[f]
            low[f] = value if value < before else before


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def keep_bounds(
    least: Array, base: Array, unscale: np.float32, drift: Floats, where: Labels, a: int, lower: Array
) -> None:
    """Keep, per row and group, a float32 of which, less the drift, no other centre of the group is closer.

    A centre's squared distance is at least `base` plus its value; the root of what is not a positive number counts as
    zero. `least` is overwritten.
    """
    n_groups, n_rows = least.shape
    for g in range(n_groups):
        low, away, kept = least[g], np.float32(drift[g]), lower[g]
        for f in range(n_rows):
            value = low[f]
            square = base[f] + value * unscale
            # Near its ends float32 loses squares: only a group without another centre is truly infinitely far.
            sound = (square > _SMALLEST) & ((square < _LARGEST) | (value == np.inf))
            bound = (np.sqrt(square if sound else _ZERO) + away) * _DOWN
            bound = bound if bound < _LARGEST else _LARGEST
            low[f] = bound if bound > _SMALLEST else _ZERO
        for f in range(n_rows):
            kept[np.uint64(a + where[f])] = low[np.uint64(f)]


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def doubtful(
    labels: Labels, distances: Floats, moved: Array, drift: Floats, lower: Array, a: int, reach: Array, where: Labels
) -> int:
    """Fill `where` with the rows whose nearest centre may be another than before; return how many.

    A row's centre stays the nearest where its distance, plus what the centre moved, is below every group's bound less
    what any centre of the group has moved since the bound was taken.
    """
    n_rows = labels.shape[0]
    certain = np.ones(n_rows, dtype=np.int8)
    for i in range(n_rows):
        reach[i] = np.float32(np.sqrt(distances[i])) + moved[labels[i]]
    for g in range(lower.shape[0]):
        away, bound = np.float32(drift[g]), lower[g, a : a + n_rows]
        for i in range(n_rows):
            certain[i] &= np.int8(bound[i] > (reach[i] + away) * _UP)
    count = 0
    for i in range(n_rows):
        where[count] = i
        count += 1 - certain[i]
    return count
