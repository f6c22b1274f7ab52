"""Measures of the agreement between two groupings of the same rows."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from sketchselect.linalg.validation import Floats, Labels

Counts = NDArray[np.int64]

_SAFE_ROWS = 1 << 31  # Up to this number of rows, sums of squared counts fit into 64 bits


def normalized_mutual_information(counts: Counts) -> float:
    """Return ``2 I(U; V) / (H(U) + H(V))`` of a table: 1 for equal groupings, 0 for independent ones.

    `counts` of shape (n_first, n_second): Rows in each pair of groups.
    Source: Strehl and Ghosh 2003, with the arithmetic mean of the entropies. Two groupings of one group each agree: 1.

    Examples
    --------
    >>> normalized_mutual_information(np.array([[5, 0], [0, 3]]))
    1.0
    """
    table = _occupied(counts)
    if max(table.shape) <= 1:
        return 1.0
    n = float(table.sum())
    first, second = table.sum(axis=1) / n, table.sum(axis=0) / n
    i, j = np.nonzero(table)
    share = table[i, j] / n
    shared = float(share @ (np.log(share) - np.log(first[i]) - np.log(second[j])))
    entropies = -float(first @ np.log(first)) - float(second @ np.log(second))
    # For independent groupings the sum is zero up to rounding, of either sign.
    return min(max(2.0 * shared / entropies, 0.0), 1.0)


def adjusted_rand_index(counts: Counts) -> float:
    """Return the Rand index corrected for chance: 1 for equal groupings, about 0 for random ones, possibly negative.

    The pairs of rows are counted in integers, exactly, for any number of rows.

    `counts` of shape (n_first, n_second).
    Source: Hubert and Arabie 1985.

    Examples
    --------
    >>> adjusted_rand_index(np.array([[5, 0], [0, 3]]))
    1.0
    """
    table = _occupied(counts)
    n = int(table.sum())
    # These count ordered pairs, twice the number of unordered ones; the factor cancels.
    same_both = _sum_of_squares(table, n) - n
    same_first = _sum_of_squares(table.sum(axis=1), n) - n
    same_second = _sum_of_squares(table.sum(axis=0), n) - n
    pairs = n * (n - 1)
    # (index - expected) / (mean of the two - expected), both times 2 pairs
    above = 2 * (same_both * pairs - same_first * same_second)
    most = (same_first + same_second) * pairs - 2 * same_first * same_second
    return above / most if most else 1.0


def weighted_adjusted_rand(first: Labels, second: Labels, weights: Floats) -> float:
    """Return the adjusted Rand index of two clusterings of weighted rows: a pair of rows counts ``w_a w_b``.

    For equal weights of any size it is that of Hubert and Arabie (1985); for others the expectation over permutations
    of the labels of one clustering is still 0, up to that of a ratio.

    `first`, `second` of shape (n_rows,): Labels, not negative.
    `weights` of shape (n_rows,): Not negative; their scale does not matter.

    Examples
    --------
    >>> a, b = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 0, 1, 1])
    >>> weighted_adjusted_rand(a, a, np.full(6, 0.01)), round(weighted_adjusted_rand(a, b, np.full(6, 0.01)), 3)
    (1.0, -0.111)
    """
    shares = weights / (float(weights.max(initial=0.0)) or 1.0)

    def pairs(labels: Labels) -> float:
        return float((np.bincount(labels, shares) ** 2 - np.bincount(labels, shares**2)).sum())

    total, both = pairs(np.zeros_like(first)), pairs(first * (int(second.max(initial=0)) + 1) + second)
    same_first, same_second = pairs(first), pairs(second)
    expected, most = same_first * same_second / total if total > 0 else 0.0, (same_first + same_second) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def purity(counts: Counts) -> float:
    """Return the share of rows in the most frequent class of their cluster.

    `counts` of shape (n_classes, n_clusters).

    Examples
    --------
    >>> purity(np.array([[5, 1], [0, 2]]))
    0.875
    """
    return int(counts.max(axis=0, initial=0).sum()) / max(int(counts.sum()), 1)


def best_matching(counts: Counts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ``(first groups, second groups)``: the one-to-one pairs of groups that contain the most rows.

    `counts` of shape (n_first, n_second).
    Cost: O(min(shape)^2 max(shape)). Source: the assignment problem (Kuhn 1955).
    """
    first, second = scipy.optimize.linear_sum_assignment(counts, maximize=True)
    return first.astype(np.int64), second.astype(np.int64)


def matched_accuracy(counts: Counts) -> float:
    """Return the share of rows in pairs of the best one-to-one matching of the groups.

    `counts` of shape (n_first, n_second).

    Examples
    --------
    >>> matched_accuracy(np.array([[1, 5], [2, 0]]))
    0.875
    """
    return int(counts[best_matching(counts)].sum()) / max(int(counts.sum()), 1)


def _occupied(counts: Counts) -> Counts:
    """Return the table without empty groups."""
    return counts[counts.any(axis=1)][:, counts.any(axis=0)]


def _sum_of_squares(counts: Counts, n_rows: int) -> int:
    flat = counts.ravel()
    if n_rows < _SAFE_ROWS:
        return int(flat @ flat)
    return sum(int(count) ** 2 for count in flat[flat > 0])
