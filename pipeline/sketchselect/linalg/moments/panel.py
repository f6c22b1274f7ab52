"""Panels of a centred co-moment matrix: some of its rows, where the whole matrix is too large for a task."""

from __future__ import annotations

import numpy as np

from sketchselect.linalg.arrays import Array, Floats, pieces
from sketchselect.linalg.centering import centered_moments, check_squares
from sketchselect.linalg.moments.comoments import joint_mean

PIECE_NBYTES = 128 * 2**20
"""Bytes of centred rows in memory at a time."""


def panel_edges(width: int, panel_nbytes: int) -> tuple[int, ...]:
    """Return the edges that cut a `width` x `width` symmetric matrix into panels of at most `panel_nbytes`.

    Panel i has the rows ``e_i`` to ``e_{i+1}`` from the diagonal to the right, (e_{i+1} - e_i) x (width - e_i) numbers,
    at least one row; together the panels are the upper triangle.

    Examples
    --------
    >>> panel_edges(10, 8 * 30)
    (0, 3, 7, 10)
    """
    edges = [0]
    while edges[-1] < width:
        left = width - edges[-1]
        edges.append(edges[-1] + min(left, max(1, panel_nbytes // (8 * left))))
    return tuple(edges)


def piece_rows(width: int) -> int:
    """Return the number of rows of `width` numbers that are centred at a time."""
    return max(16, min(2048, PIECE_NBYTES // (8 * max(width, 1))))


def comoment_panel(
    block: Array, targets: Floats, rows: slice, weights: Floats | None, start: int | Array
) -> tuple[float, Floats, Floats]:
    """Return ``(W, mean, S)``: total weight, means of all columns of z = [x, y], and the `rows` of the co-moment
    ``sum w (z - mean)(z - mean)'`` from column ``rows.start`` on.

    Cost: n (rows) (d - rows.start) multiply-adds; two panels and one piece of centred rows in memory.
    """
    n, p = block.shape
    d = p + targets.shape[1]
    first, height = rows.start, rows.stop - rows.start
    weight, mean = joint_mean(block, targets, weights, start)
    roots = None if weights is None else np.sqrt(weights)[:, None]
    sums, squares = np.zeros(d - first), np.zeros(d - first)
    panel: Floats | None = None
    step = piece_rows(d - first)
    buffer = np.empty((min(n, step), d - first))
    product: Floats | None = None
    cut = max(p - first, 0)
    for a, b in pieces(block, step):
        centred = buffer[: b - a]
        np.subtract(block[a:b, first:], mean[first:p], out=centred[:, :cut], dtype=np.float64)
        np.subtract(targets[a:b, max(first - p, 0) :], mean[max(first, p) :], out=centred[:, cut:])
        if roots is None:
            sums += np.ones(b - a) @ centred
        else:
            centred *= roots[a:b]
            sums += roots[a:b, 0] @ centred
        squares += np.einsum("ij,ij->j", centred, centred)
        check_squares(squares[:cut], block, start)
        check_squares(squares[cut:], targets, start, "target")
        left = centred[:, :height].T
        if panel is None:
            panel = left @ centred
        else:
            product = np.empty_like(panel) if product is None else product
            np.matmul(left, centred, out=product)
            panel += product
    assert panel is not None
    mean[first:], residual, squares = centered_moments(weight, mean[first:], sums, squares)
    panel -= np.outer(weight * residual[:height], residual)
    np.fill_diagonal(panel, squares[:height])
    return weight, mean, panel
