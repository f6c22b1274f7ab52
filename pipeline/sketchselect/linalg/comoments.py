"""Centred second moments of rows, dense, sparse or float32: whole, in panels, or as triangular factors; their merges.

Sums of raw squares cancel once the mean is large against the spread (relative error 2e-3 at mean/sd = 1e6), so only
centred quantities are stored. Source: Chan, Golub and LeVeque 1983, eq. 2.1; Schubert and Gertz 2018.

A scatter matrix squares the condition number; its triangular factor R does not, and factors are merged by stacking.
Source: TSQR, Demmel, Grigori, Hoemmen and Langou 2012; the mean-difference row is Chan, Golub and LeVeque 1983, eq.
2.1, in factored form.

Products of float32 numbers are twice as fast as those of float64. They are safe because only centred, scaled numbers
are multiplied, for at most 256 rows at a time, and the products are added up in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import ssyrk
from scipy.linalg.lapack import dpotrf, spotrf, spstrf
from scipy.sparse import csr_array

from sketchselect._kernels import kernel
from sketchselect.errors import BadParameter
from sketchselect.linalg.centering import (
    block_mean,
    center_into,
    center_scaled,
    centered,
    centered_moments,
    check_squares,
)
from sketchselect.linalg.csr import add_transposed_times, by_column, scatter_rows, split_columns
from sketchselect.linalg.spectrum import FEW_ROWS
from sketchselect.linalg.validation import LARGEST, PIECE_ROWS, Array, Floats, is_csr, pieces


def centered_gram(
    block: Array, weights: Floats | None = None, start: int | Array = 0, targets: Floats | None = None
) -> tuple[float, Floats, Floats, Floats]:
    """Return ``(W, mean, S, q)``: total weight, column means, ``S = sum w (z - mean)(z - mean)'`` and its diagonal.

    The columns of z are those of the block, then those of the targets. All in float64, for any type of block.

    Cost: n p^2 multiply-adds (symmetric rank-k products) and two sweeps over the block; 2 p^2 + 2048 p numbers.
    """
    n, p = block.shape
    weight, shift = joint_mean(block, targets, weights, start)
    d = shift.shape[0]
    w = np.ones(n) if weights is None else weights
    sums, squares = np.zeros(d), np.zeros(d)
    gram: Floats | None = None
    buffer = np.empty((min(n, PIECE_ROWS), d))
    product = np.empty((d, d))
    for a, b in pieces(block):
        rows = buffer[: b - a]
        center_into(block[a:b], shift[:p], w[a:b], rows, sums[:p], squares[:p])
        check_squares(squares[:p], block, start)
        if targets is not None:
            center_into(targets[a:b], shift[p:], w[a:b], rows, sums[p:], squares[p:], offset=p)
            check_squares(squares[p:], targets, start, "target")
        if gram is None:
            gram = rows.T @ rows
        else:
            np.matmul(rows.T, rows, out=product)
            gram += product
    if gram is None:
        gram = np.zeros((d, d))
    return weight, *remove_residual(weight, shift, sums, gram, squares)


def joint_mean(
    block: Array, targets: Floats | None, weights: Floats | None, start: int | Array
) -> tuple[float, Floats]:
    """Return the total weight and the means of the columns of a block and its targets, as `block_mean`."""
    weight, shift = block_mean(block, weights, start)
    if targets is None:
        return weight, shift
    return weight, np.concatenate([shift, block_mean(targets, weights, start, "target")[1]])


def remove_residual(
    weight: float, shift: Floats, sums: Floats, gram: Floats, squares: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return mean, scatter and its diagonal about the mean, from sums about `shift`; changes `gram` in place."""
    mean, residual, squares = centered_moments(weight, shift, sums, squares)
    for a in range(0, residual.shape[0], 256):
        part = np.outer(residual[a : a + 256], residual)
        part *= weight  # afterwards, so that the matrix is symmetric to the last bit
        gram[a : a + 256] -= part
    np.fill_diagonal(gram, squares)
    return mean, gram, squares


def merge_means(
    weight_a: float, mean_a: Floats, weight_b: float, mean_b: Floats
) -> tuple[float, Floats, Floats, float]:
    """Return ``(W, mean, difference, factor)`` of the union; `factor` is ``W_a W_b / W``.

    Second moments of the union are ``S_a + S_b + factor * difference difference'``. Weights are floats, so products of
    counts cannot overflow.
    """
    weight = weight_a + weight_b
    difference = mean_b - mean_a
    if weight <= 0:
        return 0.0, mean_a, difference, 0.0
    factor = weight_a * (weight_b / weight)
    # From the mean of the heavier side. A light side far away would otherwise leave its rounding in the mean of all.
    if weight_b > weight_a:
        return weight, mean_b - difference * (weight_a / weight), difference, factor
    return weight, mean_a + difference * (weight_b / weight), difference, factor


# Rounding of a mean as a share of its norm. Each merge adds up to half a unit in the last place, at random.
MEAN_UNITS = 4.0 * float(np.finfo(np.float64).eps)


def mean_rounding(norms: float, difference: float, factor: float) -> float:
    """Return what the rounding of two means may hide of ``factor difference difference'``, in any direction.

    Far from zero it is more than that of the rows. `norms` is the sum of the norms of the means, `difference` the norm
    of ``factor^1/2 difference``.
    """
    off = MEAN_UNITS * norms
    return off * (2.0 * float(np.sqrt(factor)) * difference + factor * off)


def triangular_factor(rows: Floats) -> Floats:
    """Return the upper-triangular (trapezoidal, if there are few rows) R of ``rows = Q R``, with diagonal >= 0."""
    factor = np.asarray(np.linalg.qr(rows, mode="r"))
    return factor * np.where(factor.diagonal() < 0, -1.0, 1.0)[:, None]


def centered_factor(
    block: Array, targets: Floats, weights: Floats | None = None, start: int | Array = 0
) -> tuple[float, Floats, Floats]:
    """Return ``(W, mean, R)`` with ``R'R = sum w (z - mean)(z - mean)'``; R has min(n, p + q) rows.

    Cost: 2 n d^2 multiply-adds for d = p + q, twice that of the scatter; 2 (2 d + 2048) d numbers.
    """
    n, p = block.shape
    weight, shift = joint_mean(block, targets, weights, start)
    d = shift.shape[0]
    w = np.ones(n) if weights is None else weights
    # The mean in two parts: its rounding error is subtracted from the centred rows, not lost.
    sums, squares = np.zeros(d), np.zeros(d)
    buffer = np.empty((min(n, PIECE_ROWS), d))
    for a, b in pieces(block):
        _center(block, targets, shift, w, buffer, sums, squares, a, b)
        check_squares(squares[:p], block, start)
        check_squares(squares[p:], targets, start, "target")
    mean, residual, _ = centered_moments(weight, shift, sums, squares)
    factor = np.zeros((0, d))
    for a, b in pieces(block):
        rows = _center(block, targets, shift, w, buffer, sums, squares, a, b)
        rows -= np.sqrt(w[a:b])[:, None] * residual
        factor = triangular_factor(np.vstack([factor, rows]))
    return weight, mean, factor


def centered_rows(
    block: Array, targets: Floats, weights: Floats | None = None, start: int | Array = 0
) -> tuple[float, Floats, Floats]:
    """Return ``(W, mean, B)`` with the rows ``sqrt(w) (z - mean)`` as B, so that ``B'B`` is their scatter."""
    n, p = block.shape
    weight, shift = joint_mean(block, targets, weights, start)
    d = shift.shape[0]
    w = np.ones(n) if weights is None else weights
    sums, squares, rows = np.zeros(d), np.zeros(d), np.empty((n, d))
    for a, b in pieces(block):
        _center(block, targets, shift, w, rows[a:b], sums, squares, a, b)
        check_squares(squares[:p], block, start)
        check_squares(squares[p:], targets, start, "target")
    mean, residual, _ = centered_moments(weight, shift, sums, squares)
    rows -= np.sqrt(w)[:, None] * residual
    return weight, mean, rows


def _center(
    block: Array,
    targets: Floats,
    shift: Floats,
    weights: Floats,
    buffer: Floats,
    sums: Floats,
    squares: Floats,
    a: int,
    b: int,
) -> Floats:
    p = block.shape[1]
    rows = buffer[: b - a]
    center_into(block[a:b], shift[:p], weights[a:b], rows, sums[:p], squares[:p])
    center_into(targets[a:b], shift[p:], weights[a:b], rows, sums[p:], squares[p:], offset=p)
    return rows


def merge_factors(left: Floats, right: Floats, difference: Floats, factor: float) -> Floats:
    """Return R of the union: ``R'R = R_a'R_a + R_b'R_b + factor * difference difference'``."""
    return triangular_factor(np.vstack([left, right, np.sqrt(factor) * difference]))


def factor_least_squares(factor: Floats, n_features: int, columns: Array | None = None) -> Floats:
    """Return the least-squares coefficients of the targets on some features, from the factor of [X y].

    `factor` of shape (r, n_features + n_targets): Centred factor of the features and targets.
    `columns`: Features of the model; all by default.
    Raises `BadParameter` if the columns are linearly dependent to working precision; the message names one.
    """
    chosen = np.arange(n_features) if columns is None else np.asarray(columns, dtype=np.intp)
    k = chosen.shape[0]
    both = np.hstack([factor[:, chosen], factor[:, n_features:]])
    norms = np.linalg.norm(both, axis=0)
    # Scaled first, so that the test for dependence does not depend on the units.
    scale = np.where(norms > 0, norms, 1.0)
    r = triangular_factor(both / scale)
    if r.shape[0] < k:
        raise BadParameter(f"least squares of {k} columns needs more than {k} rows of data; choose fewer columns")
    diagonal = r.diagonal()[:k]
    dependent = np.flatnonzero(diagonal <= k * np.finfo(float).eps)
    if dependent.size:
        raise BadParameter(
            f"column {int(chosen[dependent[0]])} is a linear combination of the columns before it (or constant); "
            "leave it out"
        )
    from scipy.linalg import solve_triangular

    coef: Floats = solve_triangular(r[:k, :k], r[:k, k:])
    return coef * scale[k:] / scale[:k, None]


PIECE_NBYTES = 128 * 2**20  # Bytes of centred rows in memory at a time


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
        centred, y_mean, y_squares = centered(targets, w, start, "target")
        dense = np.hstack([dense, centred])
        mean, squares = np.concatenate([mean, y_mean]), np.concatenate([squares, y_squares])
        columns = np.concatenate([columns, np.arange(p, mean.size)])
    roots = np.sqrt(w)
    rows = split.sparse  # A copy of the entries, for this alone
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


SINGLE_ROWS = 256
"""Rows whose products are added up in float32; those of whole numbers up to 256 are exact, their sums at most 2^24."""

SINGLE_ROUNDING = (SINGLE_ROWS + 4) * 2.0**-24
"""Bound of the error of products in float32, in the Frobenius norm, as a share of the sum of the columns' scatter."""

_FEW_ROWS, _FEW_COLUMNS = 128, 64  # Below them float32 saves no time
_GLANCE = 16  # Rows that mostly show that a column has other than whole numbers
_LARGEST_WHOLE = 256  # Largest deviation of whole numbers
_ALL_WHOLE = 2.0**24  # Above it all numbers of float32 are whole
_ROWS_PER_COLUMN = 6  # Of fewer, float32 saves less than the factors that show the rank cost
_LEAST = 3e-4  # Eigenvalues of correlations above it are mostly far above their rounding,
_TIMES = 64  # and those above so many times the rounding of a sample are so where columns mostly have one value, too
_PROBES = 16  # Columns whose rounding is measured
_DOUBLE = 4 * float(np.finfo(np.float64).eps)  # Rounding a row of correlations in float64, which may be all of one sign
_CONSTANT = 1e-6  # Share of a column's squares about the centre below which it does not vary in the sample
_FEW = 1 / 16  # Share of columns whose products cost little in float64
_PIVOT = 8  # Columns with pivots above so many times an eigenvalue mostly have none below it
_SUPPORT = 1e-2  # Smaller coefficients may be rounding
_WEIGHT_SPAN = 2.0**60  # Ratio of weights up to which the lightest row is far above the underflow of float32


def block_gram(
    block: Any,
    weights: Floats | None = None,
    start: int | Array = 0,
    targets: Floats | None = None,
    *,
    keeps_rank: bool = False,
) -> tuple[float, Floats, Floats, Floats, float]:
    """Return `centered_gram` of a block, dense or CSR, and the bound of the error of its products in float32.

    They are in float32 if every column that varies consists of whole numbers within 256 of its mean, without weights:
    such products are exact, and the bound is 0. They are so too if the block is of float32 and no column that varies
    consists of whole numbers: their linear dependences are exact, and have to stay so; if `keeps_rank`, only without
    targets and where `ranked_gram` allows it. All others are in float64, and the bound is 0; so are those of fewer than
    128 rows or 64 columns, which float32 does not make faster, of at least four times as many columns as rows, and of
    weights that span more than 2^60.
    """
    if is_csr(block):
        return *sparse_gram(block, weights, start, targets), 0.0
    scales = _single_scales(block, weights, start) if _may_be_single(block, weights, keeps_rank) else None
    if scales is None:
        return *centered_gram(block, weights, start, targets), 0.0
    if scales.is_exact or not keeps_rank:
        return single_gram(block, scales, weights, start, targets)
    single = ranked_gram(block, scales, weights, start) if targets is None else None
    return (*centered_gram(block, weights, start, targets), 0.0) if single is None else single


class SingleScales(NamedTuple):
    """Centres and powers of two that make the numbers of a block fit for products in float32."""

    centre: Floats  # shape (p,)
    scale: Floats  # shape (p,): brings the largest deviation of a column to about 1
    weight_scale: float
    is_exact: bool  # Whether the products are


@kernel(fastmath={"contract"})
def _survey(block, weights, sums, low, high, whole):  # type: ignore[no-untyped-def]
    for i in range(block.shape[0]):
        w = weights[i]
        for j in range(block.shape[1]):
            x = np.float64(block[i, j])
            sums[j] += w * x
            if w > 0:
                low[j] = min(low[j], x)
                high[j] = max(high[j], x)
                whole[j] &= x == np.rint(x)


@kernel()
def _add_lower(total, part):  # type: ignore[no-untyped-def]
    for i in range(part.shape[0]):
        for j in range(i + 1):
            total[i, j] += np.float64(part[i, j])


@kernel()
def _scale_lower(gram, factors, out):  # type: ignore[no-untyped-def]
    for i in range(factors.shape[0]):
        for j in range(i):
            out[i, j] = gram[i, j] * factors[i] * factors[j]


@kernel()
def _unscale(total, back):  # type: ignore[no-untyped-def]
    for i in range(back.shape[0]):
        for j in range(i + 1):
            total[i, j] *= back[i] * back[j]
            total[j, i] = total[i, j]


def _may_be_single(block: Array, weights: Floats | None, keeps_rank: bool) -> bool:
    """Return whether products may be in float32, by the type, the weights and the first rows."""
    n, p = block.shape
    # Of few rows the factor is computed, in which the rounding of a product would be divided by a pivot that is noise.
    if n < _FEW_ROWS or p < _FEW_COLUMNS or n * FEW_ROWS <= p or block.dtype.kind not in "fiu":
        return False
    if weights is not None and weights.max() > _WEIGHT_SPAN * weights.min(where=weights > 0, initial=np.inf):
        return False
    if block.dtype == np.float32 and not (keeps_rank and n < _ROWS_PER_COLUMN * p):
        return True
    if weights is not None:
        return False
    first = block[:_GLANCE]
    return bool(((first == np.rint(first)) | (first == first[0])).all())


def _single_scales(block: Array, weights: Floats | None, start: int | Array) -> SingleScales | None:
    """Return how to multiply in float32; None if products have to be in float64."""
    n, p = block.shape
    w = np.ones(n) if weights is None else weights
    sums, low, high, whole = np.zeros(p), np.full(p, np.inf), np.full(p, -np.inf), np.ones(p, np.bool_)
    _survey(block, w, sums, low, high, whole)
    if not (np.abs(sums) < LARGEST).all():
        # Raises the error that names row and column.
        block_mean(block, weights, start)
    weight = float(w.sum())
    mean = sums / weight if weight > 0 else np.zeros(p)
    varies = low < high
    if block.dtype == np.float32:
        whole &= np.maximum(-low, high) < _ALL_WHOLE
    is_exact = weights is None and bool(whole[varies].all())
    # Whole numbers less a whole number are whole; a constant less itself is zero.
    centre = np.where(low == high, low, np.rint(mean) if is_exact else mean)
    largest = np.maximum(high - centre, centre - low)
    if (largest > _LARGEST_WHOLE).any() if is_exact else block.dtype != np.float32 or whole[varies].any():
        return None
    exponents = np.frexp(np.where(largest > 0, largest, 1.0))[1]
    heaviest = float(w.max(initial=0.0))
    exponent = int(np.frexp(heaviest)[1]) // 2 if heaviest > 0 else 0
    return SingleScales(centre, np.ldexp(1.0, -exponents), float(np.ldexp(1.0, -exponent)), is_exact)


def single_gram(
    block: Array,
    scales: SingleScales,
    weights: Floats | None = None,
    start: int | Array = 0,
    targets: Floats | None = None,
) -> tuple[float, Floats, Floats, Floats, float]:
    """Return `block_gram` of a dense block, with products of its columns computed in float32.

    Means, variances and everything with a target are summed in float64. The error of a co-moment of two columns is at
    most ``260 u sqrt(S_ii S_jj)``, u = 6e-8, and 0 for whole numbers. Columns are scaled by powers of two, so that no
    magnitude over- or underflows.

    Cost: n p^2 / 2 float32 multiply-adds, p^2 / 2 additions per 256 rows, and four sweeps; (p + q)^2 + p^2 / 2 + 256
    (1.5 p + q) numbers of 8 bytes.
    Source: shifted sums, Chan, Golub and LeVeque 1983; blocked summation, Higham 2002, section 4.2.
    """
    products = _SingleProducts(block, scales, weights, start, targets)
    for a, b in pieces(block, SINGLE_ROWS):
        products.add(a, b)
    return products.about_mean()


class _SingleProducts:
    """Sums of products of pieces of a block, in float32 those of its columns, about a fixed centre."""

    def __init__(
        self, block: Array, scales: SingleScales, weights: Floats | None, start: int | Array, targets: Floats | None
    ) -> None:
        n, p = block.shape
        self.block, self.start, self.is_exact = block, start, scales.is_exact
        self.weights = np.ones(n) if weights is None else weights
        self.targets = np.empty((n, 0)) if targets is None else targets
        self.shift = np.concatenate([scales.centre, block_mean(self.targets, weights, start, "target")[1]])
        self.scale = scales.scale * scales.weight_scale
        d = self.shift.shape[0]
        self.weight, self.sums, self.squares = 0.0, np.zeros(d), np.zeros(d)
        self.gram, self.cross = np.zeros((d, d)), np.zeros((d - p, p))
        self.rows = np.empty((min(n, SINGLE_ROWS), p), np.float32)
        self.wide = np.empty((min(n, SINGLE_ROWS), d - p))
        self.product = np.zeros((p, p), np.float32)

    def add(self, a: int, b: int) -> None:
        """Add the products of the rows a to b."""
        p, start, squares = self.block.shape[1], self.start, self.squares
        rows, wide, w = self.rows[: b - a], self.wide[: b - a], self.weights[a:b]
        self.weight += float(w.sum())
        center_into(self.targets[a:b], self.shift[p:], w, wide, self.sums[p:], squares[p:])
        check_squares(squares[p:], self.targets, start, "target")
        self.gram[p:, p:] += wide.T @ wide
        center_scaled(
            self.block[a:b], self.shift[:p], self.scale, w, wide, rows, self.sums[:p], squares[:p], self.cross
        )
        check_squares(squares[:p], self.block, start)
        # One triangle, into the memory of the last product: LAPACK's upper one is the lower one of rows in C order.
        _add_lower(self.gram, ssyrk(1.0, rows.T, c=self.product.T, overwrite_c=True).T)

    def about_mean(self, *, in_place: bool = True) -> tuple[float, Floats, Floats, Floats, float]:
        """Return what `block_gram` returns, of the rows so far."""
        p = self.block.shape[1]
        gram = self.gram if in_place else self.gram.copy()
        _unscale(gram, 1.0 / self.scale)
        gram[p:, :p] = self.cross
        gram[:p, p:] = self.cross.T
        rounding = 0.0 if self.is_exact else SINGLE_ROUNDING * float(self.squares[:p].sum())
        return self.weight, *remove_residual(self.weight, self.shift, self.sums, gram, self.squares), rounding


def ranked_gram(
    block: Array, scales: SingleScales, weights: Floats | None = None, start: int | Array = 0
) -> tuple[float, Floats, Floats, Floats, float] | None:
    """Return `single_gram` where its rounding is a small share of the squares in any direction, and None elsewhere.

    So the rank is that of float64, and so are linear dependences. The share is mostly below 1 %: eigenvalues of the
    correlations are above 3e-4, and above 64 times their rounding in a sample of rows and columns. A few columns that
    depend on few others, as pixels at the edge of images do, have their products in float64. Most other blocks are
    given up after the sample of rows.

    Cost: `single_gram`, products of a sample of 5/4 p rows with 16 columns in float64, and two Cholesky factors of
    order p in float32, or five; 2 p^2 more numbers of 8 bytes.
    """
    n, p = block.shape
    products = _SingleProducts(block, scales, weights, start, None)
    order = list(pieces(block, SINGLE_ROWS))
    step = n // (p + p // 4)
    for a, b in order[::step]:
        products.add(a, b)
    _, mean, gram, squares, _ = products.about_mean(in_place=False)
    squares = np.where(squares > _CONSTANT * products.squares, squares, 0.0)
    # The smallest eigenvalue of a sample of 5/4 p rows is about a hundredth of that of many.
    if not _few_depend(gram, squares, _LEAST / 64):
        return None
    least = max(_LEAST, _TIMES * _sampled_rounding(gram, squares, mean, block, weights, order[::step]))
    for a, b in (part for i, part in enumerate(order) if i % step):
        products.add(a, b)
    weight, mean, gram, squares, rounding = products.about_mean()
    if not _rounds_little(gram, squares, least):
        columns = _dependent(gram, squares, least)
        if columns is None:
            return None
        gram[:, columns] = _products_with(columns, block, mean, weights, order)
        gram[columns] = gram[:, columns].T
        np.fill_diagonal(gram, squares)
        if not _rounds_little(gram, squares, least, columns, n * _DOUBLE):
            return None
    return weight, mean, gram, squares, rounding


def _rounds_little(
    gram: Floats, squares: Floats, least: float, exact: Array | None = None, rounding: float = 0.0
) -> bool:
    """Return whether rounding in float32 of products of columns that are not `exact` is a small share in any direction.

    With C the correlations, E their rounding, and P the unit matrix of the columns that are not exact, it is at most
    ``||E|| / least`` if ``C - least P`` is positive: ``|x'Ex| = |x'P E P x| <= ||E|| x'P x <= ||E|| x'C x / least``.
    Correlations of exact columns are known to some `rounding` in float64.
    """
    diagonal = np.full(squares.size, 1.0 - least)
    if exact is not None:
        diagonal[exact] = 1.0 + rounding
    shifted = _correlations(gram, squares, diagonal, np.float32 if exact is None else np.float64)
    factor = spotrf if exact is None else dpotrf
    return bool(factor(shifted.T, overwrite_a=True, clean=False)[1] == 0)


def _correlations(gram: Floats, squares: Floats, diagonal: Floats, dtype: type) -> Array:
    """Return the correlations below a diagonal; those of columns that do not vary are 0."""
    correlations: Array = np.zeros(gram.shape, dtype)
    roots = np.where(squares > 0, np.sqrt(squares), np.inf)
    _scale_lower(gram, 1.0 / roots, correlations)
    np.fill_diagonal(correlations, diagonal)
    return correlations


def _few_depend(gram: Floats, squares: Floats, least: float) -> bool:
    """Return whether rounding is a small share, perhaps but for a few columns."""
    if _rounds_little(gram, squares, least):
        return True
    correlations = _correlations(gram, squares, np.ones_like(squares), np.float32)
    _, order, rank, _ = spstrf(correlations.T, tol=_PIVOT * least, overwrite_a=True)
    if not 0 < squares.size - rank <= _FEW * squares.size:
        return False
    squares = squares.copy()
    squares[order[rank:] - 1] = 0.0
    return _rounds_little(gram, squares, least)


def _dependent(gram: Floats, squares: Floats, least: float) -> Array | None:
    """Return the columns that depend on others, with those others; None if they are many."""
    correlations = _correlations(gram, squares, np.ones_like(squares), np.float32)
    factor, order, rank, _ = spstrf(correlations.T, tol=_PIVOT * least, overwrite_a=True)
    if not 0 < squares.size - rank <= _FEW * squares.size:
        return None
    from scipy.linalg import solve_triangular

    coefficients = solve_triangular(factor[:rank, :rank], factor[:rank, rank:])
    supports = (np.abs(coefficients) > _SUPPORT).any(axis=1)
    columns = np.sort(order[np.concatenate([supports, np.ones(squares.size - rank, np.bool_)])] - 1)
    return columns if columns.size <= 2 * _FEW * squares.size else None


def _sampled_rounding(
    gram: Floats, squares: Floats, mean: Floats, block: Array, weights: Floats | None, parts: list[tuple[int, int]]
) -> float:
    """Return the rounding of the correlations of some rows, in the spectral norm, estimated from a few columns.

    Products of all columns with these are computed in float64. If errors e are independent, those of p columns have a
    norm of about 2 p^1/2 e, and those of 16 columns of (p^1/2 + 4) e, at least half of it.
    """
    columns = np.unique(np.linspace(0, squares.size - 1, _PROBES).astype(np.intp))
    factors = np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0)
    errors = _products_with(columns, block, mean, weights, parts) - gram[:, columns]
    errors[columns, np.arange(columns.size)] = 0.0
    return 2.0 * float(np.linalg.norm(factors[:, None] * errors * factors[columns], 2))


def _products_with(
    columns: Array, block: Array, mean: Floats, weights: Floats | None, parts: list[tuple[int, int]]
) -> Floats:
    """Return the co-moments of all columns with some, in float64, of the rows in some parts."""
    n, p = block.shape
    w = np.ones(n) if weights is None else weights
    total, sums, squares = np.zeros((p, columns.size)), np.zeros(p), np.zeros(p)
    buffer = np.empty((min(n, SINGLE_ROWS), p))
    for a, b in parts:
        rows = buffer[: b - a]
        center_into(block[a:b], mean, w[a:b], rows, sums, squares)
        total += rows.T @ rows[:, columns]
    return total
