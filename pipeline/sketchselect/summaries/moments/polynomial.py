"""Polynomial features of degree 2, and the affine map of their moments to another shift or scale.

Every product of shifted columns is an affine function of the products about any other shift, so the moments of one
determine those of the other exactly. Order of the features: the p columns, then the pairs i <= j row by row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketchselect.errors import BadBlock
from sketchselect.linalg.arrays import Array, Floats, first_row, pieces, start_of_piece


def n_polynomial(n_features: int) -> int:
    """Return the number of features of degree 1 and 2: ``p + p (p + 1) / 2``."""
    return n_features + n_features * (n_features + 1) // 2


def pair_indices(n_features: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the two columns of each product, in the order of the features."""
    i, j = np.triu_indices(n_features)
    return i, j


def polynomial_names(names: tuple[str, ...] | None, n_features: int) -> tuple[str, ...]:
    """Return the names of the features: ``a``, ``a^2``, ``a b``; columns without names are x0, x1, ..."""
    base = names if names is not None else tuple(f"x{j}" for j in range(n_features))
    pairs = zip(*pair_indices(n_features), strict=True)
    return (*base, *(f"{base[i]}^2" if i == j else f"{base[i]} {base[j]}" for i, j in pairs))


def expand(X: Array, mean: Floats, scale: Floats | None = None) -> Floats:
    """Return the polynomial features of the rows of X: ``z``, and all ``z_i z_j`` of ``z = (x - mean) / scale``.

    `X` of shape (n_rows, p).
    `mean`, `scale` of shape (p,): Columns of scale 0 (constant columns) give zeros; the default scale is 1.

    Returns
    -------
    array of shape (n_rows, p + p (p + 1) / 2)

    Examples
    --------
    >>> import numpy as np
    >>> expand(np.array([[3.0, 5.0]]), np.array([1.0, 1.0])).tolist()
    [[2.0, 4.0, 4.0, 8.0, 16.0]]
    """
    z = np.asarray(X, dtype=np.float64) - mean
    if scale is not None:
        z = np.divide(z, scale, out=np.zeros_like(z), where=np.asarray(scale) > 0)
    p = z.shape[1]
    out = np.empty((z.shape[0], n_polynomial(p)))
    out[:, :p] = z
    at = p
    for i in range(p):
        np.multiply(z[:, i : i + 1], z[:, i:], out=out[:, at : at + p - i])
        at += p - i
    return out


def recentre(mean: Floats, comoment: Floats, offset: Floats, scale: Floats | None = None) -> tuple[Floats, Floats]:
    """Return mean and co-moment of the features of ``(x - offset) / scale`` from those of the features of x.

    ``(x_i - o_i)(x_j - o_j) = x_i x_j - o_j x_i - o_i x_j + o_i o_j``: a sparse affine map T of the features, and the
    co-moment becomes ``T C T'``, in 6 sweeps over it. Targets, which follow the features, are unchanged.

    `mean` of shape (P + q,).
    `comoment` of shape (P + q, P + q).
    `offset`, `scale` of shape (p,): A scale of 0 gives columns of zeros.
    """
    p = offset.shape[0]
    n = n_polynomial(p)
    i, j = pair_indices(p)
    new = comoment.copy()
    for turn in (new, new.T):
        # The same map on the rows and then on the columns; `turn` is a view.
        for k in range(p):
            at = slice(*_run(p, k))
            turn[at] -= offset[k:, None] * turn[k]
            turn[at] -= offset[k] * turn[k:p]
    moved = mean.copy()
    moved[p:n] -= offset[j] * mean[i] + offset[i] * mean[j] - offset[i] * offset[j]
    moved[:p] -= offset
    if scale is not None:
        inverse = np.divide(1.0, scale, out=np.zeros(p), where=scale > 0)
        factors = np.ones(mean.shape[0])
        factors[:p] = inverse
        factors[p:n] = inverse[i] * inverse[j]
        moved *= factors
        new *= factors
        new *= factors[:, None]
    diagonal = new.diagonal()
    np.fill_diagonal(new, np.maximum(diagonal, 0.0))
    return moved, new


def _run(n_features: int, i: int) -> tuple[int, int]:
    """Return first and last + 1 of the products of column i with itself and the columns after it."""
    start = n_features + i * n_features - i * (i - 1) // 2
    return start, start + n_features - i


def require_products(block: Array, shift: Floats, start: int | Array = 0) -> None:
    """Raise `BadBlock`, naming row and column, if squares of products of the shifted columns would leave float64."""
    for a, b in pieces(block):
        size = np.abs(block[a:b] - shift)
        top = size.max(axis=0)
        bad = (top >= 1e75) | ((top > 0) & (top < 1e-75))
        if bad.any():
            column = int(bad.argmax())
            row = first_row(start_of_piece(start, a + int(size[:, column].argmax()), b))
            raise BadBlock(
                f"column {column} varies by more than 1e75 or less than 1e-75 about its mean (row {row}), so that "
                "squares of its products leave float64; rescale it"
            )
