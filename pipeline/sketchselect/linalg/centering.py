"""Centred, weighted rows of a block and the sums of its columns, in one sweep.

A first sweep for the mean and this one for the differences keep every second moment free of cancellation. The loop is
fused because NumPy would sweep over memory four times.
"""

from __future__ import annotations

import numpy as np

from sketchselect._kernels import REASSOCIATED, kernel
from sketchselect.linalg.validation import LARGEST, Array, Floats, first_row, magnitude_error, require_finite

_AT_ONCE = 4  # Rows of which each column's sums are read and written once


@kernel(inline="always")
def _centered(x, shift, weight, root, total, square):  # type: ignore[no-untyped-def]
    d = np.float64(x) - shift
    t = d * root
    return t, total + weight * d, square + t * t


@kernel(fastmath={"contract"})
def _center_into(block, shift, scale, weights, out, sums, squares, offset):  # type: ignore[no-untyped-def]
    n, p = block.shape
    i = 0
    while i < n:
        u = weights[i]
        r = np.sqrt(u)
        first = out[i, offset:]
        if i + _AT_ONCE <= n:
            v, w, x = weights[i + 1], weights[i + 2], weights[i + 3]
            s, t, y = np.sqrt(v), np.sqrt(w), np.sqrt(x)
            second, third, fourth = out[i + 1, offset:], out[i + 2, offset:], out[i + 3, offset:]
            # Written out, as the loop over columns runs in vector registers only then. Sums are in the order of rows.
            for j in range(p):
                at, to, total, square = shift[j], scale[j], sums[j], squares[j]
                value, total, square = _centered(block[i, j], at, u, r, total, square)
                first[j] = value * to
                value, total, square = _centered(block[i + 1, j], at, v, s, total, square)
                second[j] = value * to
                value, total, square = _centered(block[i + 2, j], at, w, t, total, square)
                third[j] = value * to
                value, total, square = _centered(block[i + 3, j], at, x, y, total, square)
                fourth[j] = value * to
                sums[j], squares[j] = total, square
            i += _AT_ONCE
        else:
            for j in range(p):
                value, sums[j], squares[j] = _centered(block[i, j], shift[j], u, r, sums[j], squares[j])
                first[j] = value * scale[j]
            i += 1


@kernel(fastmath={"contract"})
def center_scaled(block, shift, scale, weights, targets, out, sums, squares, cross):  # type: ignore[no-untyped-def]
    """Write ``sqrt(w) (x - shift) scale`` in float32, and add sums, squares and products with targets in float64."""
    for a in range(0, block.shape[0], _AT_ONCE):
        b = min(a + _AT_ONCE, block.shape[0])
        _center_into(block[a:b], shift, scale, weights[a:b], out[a:b], sums, squares, 0)
        # Products with targets in float64, from the block itself: the answers are most sensitive to them.
        for i in range(a, b):
            for k in range(targets.shape[1]):
                y = targets[i, k] * np.sqrt(weights[i])
                for j in range(block.shape[1]):
                    cross[k, j] += y * (np.float64(block[i, j]) - shift[j])


@kernel(fastmath=REASSOCIATED)
def _coordinates(rows, basis, out):  # type: ignore[no-untyped-def]
    for k in range(basis.shape[0]):
        direction = basis[k]
        if rows.shape[0] == _AT_ONCE:
            first, second, third, fourth = rows[0], rows[1], rows[2], rows[3]
            s = t = u = v = 0.0
            for j in range(basis.shape[1]):
                s += first[j] * direction[j]
                t += second[j] * direction[j]
                u += third[j] * direction[j]
                v += fourth[j] * direction[j]
            out[0, k], out[1, k], out[2, k], out[3, k] = s, t, u, v
        else:
            for i in range(rows.shape[0]):
                total = 0.0
                for j in range(basis.shape[1]):
                    total += rows[i, j] * direction[j]
                out[i, k] = total


@kernel(fastmath={"contract"})
def center_apart(block, shift, scale, weights, basis, coordinates, out, sums, squares):  # type: ignore[no-untyped-def]
    """Write the coordinates of ``sqrt(w) (x - shift) scale`` in an orthonormal basis, and the remainder in float32."""
    wide = np.empty((_AT_ONCE, block.shape[1]))
    for a in range(0, block.shape[0], _AT_ONCE):
        b = min(a + _AT_ONCE, block.shape[0])
        _center_into(block[a:b], shift, scale, weights[a:b], wide, sums, squares, 0)
        _coordinates(wide[: b - a], basis, coordinates[a:b])
        for i in range(b - a):
            row, at, remainder = wide[i], coordinates[a + i], out[a + i]
            k = 0
            while k < basis.shape[0]:
                # Four directions at once, as far as there are: the row is read and written once for them.
                if k + 4 <= basis.shape[0]:
                    s, t, u, v = at[k], at[k + 1], at[k + 2], at[k + 3]
                    first, second, third, fourth = basis[k], basis[k + 1], basis[k + 2], basis[k + 3]
                    for j in range(block.shape[1]):
                        row[j] -= s * first[j] + t * second[j] + u * third[j] + v * fourth[j]
                    k += 4
                else:
                    s, first = at[k], basis[k]
                    for j in range(block.shape[1]):
                        row[j] -= s * first[j]
                    k += 1
            for j in range(block.shape[1]):
                remainder[j] = row[j]


@kernel(fastmath={"contract"})
def _column_sums(block, weights):  # type: ignore[no-untyped-def]
    n, p = block.shape
    sums = np.zeros(p)
    i = 0
    while i < n:
        u = weights[i]
        if i + _AT_ONCE <= n:
            v, w, x = weights[i + 1], weights[i + 2], weights[i + 3]
            for j in range(p):
                total = sums[j] + u * np.float64(block[i, j])
                total += v * np.float64(block[i + 1, j])
                total += w * np.float64(block[i + 2, j])
                sums[j] = total + x * np.float64(block[i + 3, j])
            i += _AT_ONCE
        else:
            for j in range(p):
                sums[j] += u * np.float64(block[i, j])
            i += 1
    return sums


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
    _center_into(block, shift, np.ones(block.shape[1]), weights, out, sums, squares, offset)


@kernel()
def _center_rows(rows, out):  # type: ignore[no-untyped-def]
    n, p = rows.shape
    for i in range(n):
        total, varies = 0.0, False
        for j in range(p):
            total += np.float64(rows[i, j])
            varies |= rows[i, j] != rows[i, 0]
        mean, rest = total / p, 0.0
        for j in range(p):
            out[i, j] = np.float64(rows[i, j]) - mean
            rest += out[i, j]
        # The mean of what is left removes the rounding of the mean, which far from zero is more than that of the rest.
        for j in range(p):
            out[i, j] = out[i, j] - rest / p if varies else 0.0


def center_rows(rows: Array) -> Floats:
    """Return every row less its own mean, in float64; exactly 0 where a row is constant.

    The error of an entry is at most some units in the last place of the row's largest difference from its mean, however
    far from zero that is. A row has the same bits in any block.

    Examples
    --------
    >>> center_rows(np.array([[1e8, 1e8 + 3.0], [0.1, 0.1]])).tolist()
    [[-1.5, 1.5], [0.0, 0.0]]
    """
    out = np.empty(rows.shape)
    if rows.shape[1]:
        _center_rows(rows, out)
    return out


def block_mean(
    block: Array, weights: Floats | None, start: int | Array = 0, name: str = "column"
) -> tuple[float, Floats]:
    """Return the total weight and the weighted column means of a block; refuse values that are not finite or too large.

    Raises `NotFinite` for NaN or infinity, naming row and column; `BadBlock` for magnitudes of 1e150 and more, whose
    squares leave float64.
    """
    w = np.ones(block.shape[0]) if weights is None else weights
    # BLAS reads float64 at memory speed; other types would be copied.
    total = w @ block if block.dtype == np.float64 else _column_sums(block, w)
    weight = float(w.sum())
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


def centered(values: Array, weights: Floats, start: int | Array, name: str = "column") -> tuple[Floats, Floats, Floats]:
    """Return ``sqrt(w) (x - mean)``, the means, and the sums of squares about them."""
    weight, shift = block_mean(values, weights, start, name)
    rows, (sums, squares) = np.empty(values.shape), np.zeros((2, shift.size))
    center_into(values, shift, weights, rows, sums, squares)
    check_squares(squares, values, start, name)
    mean, _, squares = centered_moments(weight, shift, sums, squares)
    return rows, mean, squares


def check_squares(squares: Floats, block: Array, start: int | Array = 0, name: str = "column") -> None:
    """Raise `NotFinite` or `BadBlock` if the column sums of squares show values that float64 cannot square."""
    if not squares.max(initial=0.0) < LARGEST**2:
        _refuse(block, first_row(start), name)


def _refuse(block: Array, start: int, name: str) -> None:
    require_finite(block, start)
    row, column = divmod(int(np.abs(block.astype(np.float64)).argmax()), block.shape[1])
    raise magnitude_error(start + row, column, name)
