"""Second moments of rows with missing values: for each pair of columns, of the rows with a value in both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sketchselect.errors import NotFinite
from sketchselect.linalg.arrays import LARGEST, Array, Floats, first_row, pieces, start_of_piece
from sketchselect.linalg.centering import check_squares


@dataclass(frozen=True)
class PairMoments:
    """Weight, mean and scatter for each pair of columns, arrays of shape (d, d)."""

    weight: Floats  # ``weight[i, j]``: total weight of the rows with a value in both i and j
    mean: Floats  # ``mean[i, j]``: mean of column i over those rows (not symmetric)
    scatter: Floats  # ``scatter[i, j]``: co-moment of i and j over those rows, about these means


def pair_moments(block: Array, targets: Floats, weights: Floats, start: int | Array = 0) -> PairMoments:
    """Return the pairwise moments of a block in which NaN is a missing value.

    With the mask O and the values V about a shift, 0 where missing: ``N = O'O``, ``S = V'O``, ``P = V'V``, and
    ``scatter = P - S S' / N`` entry by entry.
    Raises `NotFinite` for infinite values, naming row and column.
    Cost: three products of n d^2 multiply-adds; 6 d^2 + 4 x 2048 d numbers.
    """
    shift = _present_means(block, targets, weights, start)
    p, d = block.shape[1], shift.shape[0]
    total, sums, products = np.zeros((d, d)), np.zeros((d, d)), np.zeros((d, d))
    for a, b in pieces(block):
        rows = np.hstack([block[a:b].astype(np.float64), targets[a:b]])
        rows -= shift
        present = (~np.isnan(rows)).astype(np.float64)
        np.nan_to_num(rows, copy=False, nan=0.0)
        root = np.sqrt(weights[a:b])[:, None]
        rows *= root
        present *= root
        total += present.T @ present
        with np.errstate(over="ignore"):
            sums += rows.T @ present
            products += rows.T @ rows
        if not (products.diagonal() < LARGEST**2).all():
            check_squares(products.diagonal()[:p], np.nan_to_num(block, nan=0.0), start)
            check_squares(products.diagonal()[p:], targets, start, "target")
    mean = np.divide(sums, total, out=np.zeros((d, d)), where=total > 0)
    products -= mean * sums.T
    np.fill_diagonal(products, np.maximum(products.diagonal(), 0.0))
    mean += shift[:, None]
    return PairMoments(total, np.where(total > 0, mean, 0.0), products)


def _present_means(block: Array, targets: Floats, weights: Floats, start: int | Array) -> Floats:
    """Return the weighted mean of the values present in each column; 0 for a column without values."""
    d = block.shape[1] + targets.shape[1]
    total, weight = np.zeros(d), np.zeros(d)
    shift = np.zeros(d)
    for a, b in pieces(block):
        rows = np.hstack([block[a:b].astype(np.float64), targets[a:b]])
        if np.isinf(rows).any():
            row, column = divmod(int(np.isinf(rows).argmax()), d)
            row = first_row(start_of_piece(start, a + row, b))
            raise NotFinite(f"infinite value at row {row}, column {column}; only NaN counts as missing: clean the data")
        missing = np.isnan(rows)
        if a == 0:
            # Relative to the first value present, so that the mean of values far from zero keeps its digits.
            shift = np.where(missing.all(axis=0), 0.0, rows[missing.argmin(axis=0), np.arange(d)])
        rows -= shift
        rows[missing] = 0.0
        total += weights[a:b] @ rows
        weight += weights[a:b] @ ~missing
    mean: Floats = shift + np.divide(total, weight, out=np.zeros(d), where=weight > 0)
    return mean


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
