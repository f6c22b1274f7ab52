"""Centred second moments of sparse rows: products of the stored entries, from which the mean is subtracted."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from sketchselect.linalg.arrays import Array, Floats
from sketchselect.linalg.centering import block_mean, center_into, centered_moments, check_squares
from sketchselect.linalg.sparse.products import add_transposed_times, scatter_rows
from sketchselect.linalg.sparse.split import by_column, split_columns

_ROWS = 256


def sparse_gram(
    block: csr_array, weights: Floats | None = None, start: int | Array = 0, targets: Floats | None = None
) -> tuple[float, Floats, Floats, Floats]:
    """Return ``(W, mean, S, q)`` of the rows z = [x, y] of a sparse block: `centered_gram`, up to rounding.

    Nothing cancels (`sparse.split`): full columns and targets are centred entry by entry, and subtracting the mean
    reduces the squares of the others by a quarter at most.

    Cost: half the sum of squared row lengths in multiply-adds, and one sweep over S.
    """
    p = block.shape[1]
    q = 0 if targets is None else targets.shape[1]
    weight, mean, squares, gram = sparse_panel(block, weights, start, targets, 0, p + q)
    for a in range(0, p + q, _ROWS):
        b = a + _ROWS
        gram[b:, a:b] = gram[a:b, b:].T
        gram[a:b, a:b] = np.triu(gram[a:b, a:b]) + np.triu(gram[a:b, a:b], 1).T
    return weight, mean, gram, squares


def sparse_panel(
    block: csr_array, weights: Floats | None, start: int | Array, targets: Floats | None, first: int, last: int
) -> tuple[float, Floats, Floats, Floats]:
    """Return ``(W, mean, q, S[first:last, first:])`` of the rows [x, y]; entries below the diagonal are undefined.

    Cost: as `sparse_gram`, for the entries in columns from `first` on.
    """
    n, p = block.shape
    w = np.ones(n) if weights is None else weights
    split = split_columns(block, weights, start)
    dense, mean, squares = split.centered(w, start)
    columns = split.full
    if targets is not None and targets.shape[1]:
        centred, y_mean, y_squares = _centered_targets(targets, w, start)
        dense = np.hstack([dense, centred])
        mean, squares = np.concatenate([mean, y_mean]), np.concatenate([squares, y_squares])
        columns = np.concatenate([columns, np.arange(p, mean.size)])
    roots = np.sqrt(w)
    rows = split.sparse.copy()
    rows.data *= np.repeat(roots, np.diff(rows.indptr))
    order = by_column(rows)
    width = mean.size - first
    panel = np.zeros((last - first, width))
    light = np.zeros(mean.size)
    light[:p] = split.mean
    stop = min(last, p)
    if stop > first:
        scatter_rows(rows, order, first, panel[: stop - first])
        for a in range(first, stop, _ROWS):
            b = min(a + _ROWS, stop)
            panel[a - first : b - first] -= np.outer(split.weight * light[a:b], light[first:])
    if columns.size:
        across = np.zeros((mean.size, columns.size))
        add_transposed_times(rows.data[order.places], order, np.ascontiguousarray(dense), across[:p])
        across -= np.outer(light, roots @ dense)
        across[columns] = dense.T @ dense
        below, beside = columns >= first, (columns >= first) & (columns < last)
        panel[:, columns[below] - first] = across[first:last, below]
        panel[columns[beside] - first] = across[first:, beside].T
    np.fill_diagonal(panel, squares[first:last])
    return split.weight, mean, squares, panel


def _centered_targets(targets: Floats, weights: Floats, start: int | Array) -> tuple[Floats, Floats, Floats]:
    """Return the weighted targets about their mean, the mean, and the sums of squares about it."""
    weight, shift = block_mean(targets, weights, start, "target")
    rows = np.empty(targets.shape)
    sums, squares = np.zeros(targets.shape[1]), np.zeros(targets.shape[1])
    center_into(targets, shift, weights, rows, sums, squares)
    check_squares(squares, targets, start, "target")
    mean, _, squares = centered_moments(weight, shift, sums, squares)
    return rows, mean, squares
