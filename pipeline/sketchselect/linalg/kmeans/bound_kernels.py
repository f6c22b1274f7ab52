"""Compiled loops over the bounds per row and group of centres between sweeps of Lloyd's iteration."""

from __future__ import annotations

import numba
import numpy as np

from sketchselect.linalg.arrays import Array, Floats, Labels

# Bounds are float32, rounded down by this factor when stored and up when compared; it covers the rounding of the few
# operations between.
_DOWN = np.float32(1.0 - 2.0**-20)
_UP = np.float32(1.0 + 2.0**-20)
# Below the first float32 loses relative precision; above the second it is infinite.
_SMALLEST, _LARGEST = np.float32(1e-30), np.float32(1e38)
_ZERO = np.float32(0.0)


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def least_of_others(products: Array, labels: Labels, least: Array) -> None:
    """Write the least product of each group of centres, those of equal index modulo the number of groups.

    The product of the label is left out, and overwritten.
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
def store_bounds(
    least: Array, base: Array, unscale: np.float32, drift: Floats, where: Labels, a: int, lower: Array
) -> None:
    """Store, per row and group, a float32 that less the drift bounds the distance to any other centre of the group.

    The squared distance to a centre is at least `base` plus its value; the root of anything but a positive number is
    zero. `least` is overwritten.
    """
    n_groups, n_rows = least.shape
    for g in range(n_groups):
        low, away, stored = least[g], np.float32(drift[g]), lower[g]
        for f in range(n_rows):
            value = low[f]
            square = base[f] + value * unscale
            # Near its limits float32 loses squares: only a group without another centre is truly infinitely far.
            sound = (square > _SMALLEST) & ((square < _LARGEST) | (value == np.inf))
            bound = (np.sqrt(square if sound else _ZERO) + away) * _DOWN
            bound = bound if bound < _LARGEST else _LARGEST
            low[f] = bound if bound > _SMALLEST else _ZERO
        for f in range(n_rows):
            stored[np.uint64(a + where[f])] = low[np.uint64(f)]


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator]
def doubtful(
    labels: Labels, distances: Floats, moved: Array, drift: Floats, lower: Array, a: int, reach: Array, where: Labels
) -> int:
    """Fill `where` with the rows whose nearest centre may have changed; return their number.

    The nearest centre of a row stays the same if its distance, plus the step of the centre, is below the bound of every
    group, less the largest steps of the group since the bound was computed.
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
