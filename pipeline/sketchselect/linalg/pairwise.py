"""Second moments of rows with missing values: for each pair of columns, of the rows with a value in both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from sketchselect.errors import NotFinite
from sketchselect.linalg.arrays import LARGEST, Array, Floats, first_row, pieces, start_of_piece
from sketchselect.linalg.centering import check_squares

# Rows of a block whose median centres the columns: a mean would follow a glitch that most pairs do not contain.
_SAMPLED = 64

# Beyond this ratio of squares about the common centre to squares about its own means a pair is summed again. The ratio
# is known to about 1e-4 of the squares about the centre.
_CANCELLED = 1e2


@dataclass(frozen=True)
class PairMoments:
    """Weight, mean and scatter for each pair of columns, arrays of shape (d, d)."""

    weight: Floats  # ``weight[i, j]``: total weight of the rows with a value in both i and j
    mean: Floats  # ``mean[i, j]``: mean of column i over those rows (not symmetric)
    scatter: Floats  # ``scatter[i, j]``: co-moment of i and j over those rows, about these means


def pair_moments(block: Array, targets: Floats, weights: Floats, start: int | Array = 0) -> PairMoments:
    """Return the pairwise moments of a block in which NaN is a missing value.

    With the mask O and the values V about a robust centre, 0 where missing: ``N = O'O``, ``S = V'O``, ``P = V'V``, and
    ``scatter = P - S S' / N`` entry by entry. Where the rows of a pair are so far from the centre that this cancels, as
    ``(V^2)'O`` shows, they are summed again about their own means.

    Raises `NotFinite` for infinite values, naming row and column.

    Notes
    -----
    Cost: three products of n d^2 multiply-adds, with weights three and a half, one where no value is missing;
    8 d^2 + 6 x 2048 d numbers.
    """
    shift = _centre(block, targets, start)
    p, d = block.shape[1], shift.shape[0]
    total, sums, products, squares = (np.zeros((d, d)) for _ in range(4))
    counted = bool((weights == 1.0).all())
    for a, b in pieces(block):
        rows = np.hstack([block[a:b].astype(np.float64), targets[a:b]])
        rows -= shift
        mask = ~np.isnan(rows)
        np.copyto(rows, 0.0, where=~mask)
        root = np.sqrt(weights[a:b])
        if not counted:
            rows *= root[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            gram = rows.T @ rows
            products += gram
            if mask.all():
                total += weights[a:b].sum()
                sums += (root @ rows)[:, None]
                squares += gram.diagonal()[:, None]
                continue
            present, single = mask.astype(np.float64), mask.astype(np.float32)
            if not counted:
                present *= root[:, None]
            # Counts of so few rows are exact in float32.
            total += single.T @ single if counted else present.T @ present
            sums += rows.T @ present
            # Only to see where digits cancel, so float32 is enough for columns scaled to 1.
            top = np.maximum(rows.max(axis=0), -rows.min(axis=0))
            scaled = np.divide(rows, np.where(top > 0, top, 1.0), out=np.empty_like(single), casting="same_kind")
            squares += np.square(top)[:, None] * (np.square(scaled, out=scaled).T @ single)
    if not (products.diagonal() < LARGEST**2).all():
        check_squares(products.diagonal()[:p], np.nan_to_num(block, nan=0.0), start)
        check_squares(products.diagonal()[p:], targets, start, "target")
    mean = np.divide(sums, total, out=np.zeros((d, d)), where=total > 0)
    about = mean * sums
    poor = about > _CANCELLED * np.maximum(squares - about, 0.0)
    products -= mean * sums.T
    mean += shift[:, None]
    mean[total <= 0] = 0.0
    _sum_again(block, targets, weights, np.argwhere(np.triu(poor | poor.T)), total, mean, products)
    np.fill_diagonal(products, np.maximum(products.diagonal(), 0.0))
    return PairMoments(total, mean, products)


@njit(nogil=True, cache=True)
def _sum_again(block, targets, weights, pairs, total, mean, scatter):  # type: ignore[no-untyped-def]
    """Write means and scatter of some pairs of columns, from two sweeps over the rows with a value in both."""
    p = block.shape[1]
    for k in range(pairs.shape[0]):
        i, j = pairs[k]
        weight = total[i, j]
        x, y, both = mean[i, j], mean[j, i], 0.0
        # The second sweep is about means that have all their digits.
        for _ in range(2):
            first, second, both = 0.0, 0.0, 0.0
            for r in range(block.shape[0]):
                u = np.float64(block[r, i]) if i < p else targets[r, i - p]
                v = np.float64(block[r, j]) if j < p else targets[r, j - p]
                if weights[r] > 0.0 and not (np.isnan(u) or np.isnan(v)):
                    first += weights[r] * (u - x)
                    second += weights[r] * (v - y)
                    both += weights[r] * (u - x) * (v - y)
            x, y, both = x + first / weight, y + second / weight, both - first * (second / weight)
        mean[i, j], mean[j, i] = x, y
        scatter[i, j] = both
        scatter[j, i] = both


def _centre(block: Array, targets: Floats, start: int | Array) -> Floats:
    """Return the median of the values present in some rows, for each column; 0 for a column without any."""
    for a, b in pieces(block):
        if np.isinf(block[a:b]).any() or np.isinf(targets[a:b]).any():
            infinite = np.isinf(np.hstack([block[a:b], targets[a:b]]))
            row, column = divmod(int(infinite.argmax()), infinite.shape[1])
            row = first_row(start_of_piece(start, a + row, b))
            raise NotFinite(f"infinite value at row {row}, column {column}; only NaN counts as missing: clean the data")
    some = np.unique(np.linspace(0, block.shape[0] - 1, _SAMPLED).astype(int))
    # Missing values are sorted last.
    ordered = np.sort(np.hstack([block[some].astype(np.float64), targets[some]]), axis=0)
    count = (~np.isnan(ordered)).sum(axis=0)
    # A value of the data, so that differences of equal values are 0.
    median = ordered[np.maximum(count - 1, 0) // 2, np.arange(count.size)]
    return np.where(count > 0, median, 0.0)


def merge_pairs(left: PairMoments, right: PairMoments, sign: float = 1.0) -> PairMoments:
    """Return the moments of the rows of both, entry by entry; with `sign` = -1, of `left` without those of `right`."""
    weight = left.weight + sign * right.weight
    some = weight > 0
    share = np.divide(right.weight, weight, out=np.zeros_like(weight), where=some)
    difference = right.mean - left.mean
    if sign > 0:
        difference[(left.weight == 0) | (right.weight == 0)] = 0.0
        # From the mean of the heavier side, as `merge_means`.
        from_right = right.weight > left.weight
        other = np.divide(left.weight, weight, out=np.zeros_like(weight), where=some)
        mean = np.where(from_right, right.mean - other * difference, left.mean + share * difference)
        scatter = left.scatter + right.scatter + left.weight * share * difference * difference.T
    else:
        difference[right.weight == 0] = 0.0
        mean = left.mean - share * difference
        # The difference between the two parts is that between part and total, times W / W_a.
        scatter = left.scatter - right.scatter - left.weight * share * difference * difference.T
    np.fill_diagonal(scatter, np.maximum(scatter.diagonal(), 0.0))
    return PairMoments(np.where(some, weight, 0.0), np.where(some, mean, 0.0), np.where(some, scatter, 0.0))
