"""One sweep over a block: centre it, scale rows by the root of their weight, and sum up columns.

Reading the block twice (mean, then this sweep) is what keeps every second moment free of cancellation; a fused loop
is used because NumPy would make four sweeps over memory of it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sketchselect.errors import BadBlock
from sketchselect.linalg.arrays import LARGEST, Array, Floats, first_nonfinite, require_finite


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


def center_into(
    block: Array, shift: Floats, weights: Floats, out: Floats, sums: Floats, squares: Floats, offset: int = 0
) -> None:
    """Write ``sqrt(w) (x - shift)`` of every row into `out`; add ``w (x - shift)`` and ``w (x - shift)^2`` by column.

    Parameters
    ----------
    block : array of shape (n_rows, n_columns), any real dtype
    shift : array of shape (n_columns,)
    weights : array of shape (n_rows,)
    out : array of shape (n_rows, at least offset + n_columns)
    sums, squares : arrays of shape (n_columns,), changed in place
    offset : int
        Column of `out` that the first column goes to.
    """
    _center_into(block, shift, weights, out, sums, squares, offset)


def block_mean(
    block: Array, weights: Floats | None, start: int | Array = 0, name: str = "column"
) -> tuple[float, Floats]:
    """Return the total weight and the (weighted) mean of the columns of a block, screened for bad values.

    Raises
    ------
    NotFinite
        For NaN or infinity, naming row and column.
    BadBlock
        For magnitudes of 1e150 and more, whose squares leave float64.
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
        first = int(start[0]) if isinstance(start, np.ndarray) else start
        require_finite(block, first)
        _refuse_huge(block, first, name)
    mean: Floats = total / weight if weight > 0 else np.zeros(block.shape[1])
    return weight, mean


def check_squares(squares: Floats, block: Array, start: int | Array = 0, name: str = "column") -> None:
    """Raise the right error if the column sums of squares of a block say that it holds values we cannot square."""
    if not (squares < LARGEST**2).all():
        first = int(start[0]) if isinstance(start, np.ndarray) else start
        if first_nonfinite(block) is not None:
            require_finite(block, first)
        _refuse_huge(block, first, name)


def _refuse_huge(block: Array, start: int, name: str) -> None:
    magnitudes = np.abs(block.astype(np.float64))
    row, column = divmod(int(magnitudes.argmax()), block.shape[1])
    raise BadBlock(
        "values of magnitude 1e150 or more, columns or weights whose sums come near it, cannot be squared in float64: "
        f"the largest value, {magnitudes[row, column]:.3g}, is at row {start + row}, {name} {column}; rescale that "
        f"{name} or the weights"
    )
