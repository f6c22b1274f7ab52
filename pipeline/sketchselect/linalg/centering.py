"""Centred, weighted rows of a block and the sums of its columns, in one sweep.

A first sweep for the mean and this one for the differences keep every second moment free of cancellation. The loop is
fused because NumPy would sweep over memory four times.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sketchselect.linalg.arrays import LARGEST, Array, Floats, first_row, magnitude_error, require_finite


@njit(nogil=True, cache=True, fastmath={"contract"})
def _center_into(block, shift, weights, out, sums, squares, offset):  # type: ignore[no-untyped-def]
    for i in range(block.shape[0]):
        w = weights[i]
        root = np.sqrt(w)
        for j in range(block.shape[1]):
            d = np.float64(block[i, j]) - shift[j]
            t = d * root
            out[i, offset + j] = t
            sums[j] += w * d
            squares[j] += t * t


@njit(nogil=True, cache=True, fastmath={"contract"})
def center_scaled(block, shift, scale, weights, targets, out, sums, squares, cross):  # type: ignore[no-untyped-def]
    """Write ``sqrt(w) (x - shift) scale`` in float32, and add sums, squares and products with targets in float64."""
    for i in range(block.shape[0]):
        w = weights[i]
        root = np.sqrt(w)
        for j in range(block.shape[1]):
            d = np.float64(block[i, j]) - shift[j]
            t = d * root
            out[i, j] = np.float32(t * scale[j])
            sums[j] += w * d
            squares[j] += t * t
        # Products with targets in float64, from the block itself: the answers are most sensitive to them.
        for k in range(targets.shape[1]):
            y = targets[i, k] * root
            for j in range(block.shape[1]):
                cross[k, j] += y * (np.float64(block[i, j]) - shift[j])


def center_into(
    block: Array, shift: Floats, weights: Floats, out: Floats, sums: Floats, squares: Floats, offset: int = 0
) -> None:
    """Write ``sqrt(w) (x - shift)`` of every row into `out`; add ``w (x - shift)`` and ``w (x - shift)^2`` by column.

    `block` of shape (n_rows, n_columns).
    `shift` of shape (n_columns,).
    `weights` of shape (n_rows,).
    `out` of shape (n_rows, at least offset + n_columns).
    `sums`, `squares` of shape (n_columns,).
    `offset`: Column of `out` that the first column goes to.
    """
    _center_into(block, shift, weights, out, sums, squares, offset)


def block_mean(
    block: Array, weights: Floats | None, start: int | Array = 0, name: str = "column"
) -> tuple[float, Floats]:
    """Return the total weight and the weighted column means of a block; refuse values that are not finite or too large.

    Raises `NotFinite` for NaN or infinity, naming row and column; `BadBlock` for magnitudes of 1e150 and more, whose
    squares leave float64.
    """
    n = block.shape[0]
    if weights is None:
        # BLAS reads float64 at memory speed; other types are summed in float64 without a copy of the block.
        ones = np.ones(n)
        total = ones @ block if block.dtype == np.float64 else np.einsum("ij->j", block, dtype=np.float64)
        weight = float(n)
    else:
        total = weights @ block
        weight = float(weights.sum())
    if not (np.abs(total) < LARGEST).all():
        _refuse(block, first_row(start), name)
    mean: Floats = total / weight if weight > 0 else np.zeros(block.shape[1])
    return weight, mean


def centered_moments(weight: float, shift: Floats, sums: Floats, squares: Floats) -> tuple[Floats, Floats, Floats]:
    """Return ``(mean, residual, squares about the mean)`` from sums about `shift`, the rounded mean.

    The rounding of the mean leaves the residual, a small sum, in the centred rows.
    """
    residual = sums / weight if weight > 0 else np.zeros_like(sums)
    return shift + residual, residual, np.maximum(squares - weight * residual * residual, 0.0)


def check_squares(squares: Floats, block: Array, start: int | Array = 0, name: str = "column") -> None:
    """Raise `NotFinite` or `BadBlock` if the column sums of squares show values that float64 cannot square."""
    if not (squares < LARGEST**2).all():
        _refuse(block, first_row(start), name)


def _refuse(block: Array, start: int, name: str) -> None:
    require_finite(block, start)
    row, column = divmod(int(np.abs(block.astype(np.float64)).argmax()), block.shape[1])
    raise magnitude_error(start + row, column, name)
