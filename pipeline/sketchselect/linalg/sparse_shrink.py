"""The shrink step of Frequent Directions for sparse rows, without a dense copy of the block.

With C = [B; D], D the new rows about their mean, all steps use ``K = C C'`` of some hundred rows: products of sparse
rows, minus the mean as a rank-one term. For any U with orthonormal columns and 0 <= f <= 1, ``B = diag(f) U'C`` has
``C'C - B'B = C'(I - U f^2 U')C >= 0``, so the leading eigenvectors need not be accurate: one step of a block power
iteration from the rows of B and some random rows computes them. The loss is bounded afterwards, not estimated:
``t >= lambda_max(C'C - B'B)`` is proved by a Cholesky factorisation of ``t I - (I - U f^2 U')^(1/2) K (I - U
f^2 U')^(1/2)``, which has the same eigenvalues. The factor is computed in float32, and its rounding is bounded from the
factor itself. (Lanczos would give a lower estimate of that eigenvalue, which proves nothing.) If no t near the
subtracted eigenvalue passes, the eigenvectors are computed to full precision, as for dense rows.

A sketch may be in panels of columns: of all of them a shrink needs one small matrix. With C = [B; D; r], B the rows of
the sketch, D new rows about their own mean, and r the difference of the two means, ``C C'`` is the sum over the panels
of ``C_j C_j'``, and the shrunk panel is ``M C_j``. The rows of B are orthogonal, so that of each panel only its
products with D and r are needed. No process holds more than some panels, so B may be larger than the memory of any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyr2k, dtrsm, ssymv
from scipy.linalg.lapack import dpotrf, dtrtri, spotrf
from scipy.sparse import csr_array

from sketchselect.linalg.comoments import mean_rounding, merge_means
from sketchselect.linalg.csr import (
    ByColumn,
    add_row_gram,
    add_transposed_times,
    arrays_of,
    by_column,
    canonical_csr,
    complete,
    ends_of,
    refuse_huge,
    require_ordinary,
    split_columns,
    take_rows,
    times_dense,
)
from sketchselect.linalg.hashing import derive_seed, uniforms
from sketchselect.linalg.shrink import shrink_factors
from sketchselect.linalg.validation import LARGEST, Array, Floats

# Sparse rows per sketch row in one step: products with the dense B cost as much as some hundred sparse rows. More rows
# lose less; the cost of the small matrix, of the order of their cube, sets the limit.
BUFFER_FACTOR = 12

_BAND = 1024  # Columns of B that are rewritten at a time, in the cache
_RELEASED = 32 * _BAND  # Columns of B whose memory is given back at a time

_EXTRA = 20
_LEAST_SCALE = 1.0 / float(np.finfo(np.float32).max)  # Reciprocals of smaller numbers are not finite in float32
# Further steps of the power iteration: the first costs a tenth more time and lowers Delta by a tenth or more, the next
# by less.
_ROUNDS = 1
_LANCZOS = 16
_STEPS = (1.02, 1.1, 1.3)


def shrink_sparse(
    block: csr_array, size: int, weights: Floats | None, start: int | Array = 0
) -> tuple[Floats, float, float, Floats, Floats]:
    """Return ``(B, Delta, W, mean, squares)`` of a block of sparse rows, about its own mean.

    ``0 <= D'D - B'B <= Delta I`` for the rows ``D = sqrt(w) (x - mean)``, with B of at most `size` - 1 rows, and
    ``size * Delta <= ||D||_F^2 - ||B||_F^2``; as `shrink`. `squares` are the column sums of ``w (x - mean)^2``.

    Cost: 4 l flops for each stored entry, and for every 8 l rows 2 l^2 p and some 300 l^3 flops, l = `size`.
    """
    n = block.shape[0]
    w = np.ones(n) if weights is None else weights
    split = split_columns(block, weights, start)
    full = split.full
    dense, mean, squares = split.centered(w, start)
    roots = np.sqrt(w)
    norms = np.empty(0)
    # B in two parts, like the block: its full columns, and the transpose of all others with the mean as last column.
    b_dense, b_sparse = np.empty((0, full.size)), split.mean[:, None]
    # The products of the mean with the rows of B and with itself; they follow from those of the rows B is made of.
    products = np.array([split.mean @ split.mean])
    delta = 0.0
    n_steps = -(-n // (BUFFER_FACTOR * size))
    for a, b in pairwise(np.linspace(0, n, n_steps + 1).astype(int)):
        rows, new, v = take_rows(split.sparse, int(a), int(b)), dense[a:b], roots[a:b]
        columns = by_column(rows)
        values = rows.data[columns.places] * v[columns.rows]
        across = times_dense(values, columns, v.size, b_sparse)
        k = _gram(values, columns, v, across, products, norms, new, b_dense)
        known = norms.size
        matrix, norms, lost = sparse_factors(k, size, known)
        delta += lost
        of_b, of_new = matrix[:, :known], np.ascontiguousarray(matrix[:, known:].T)
        b_dense = of_b @ b_dense + of_new.T @ new
        turn = np.zeros((b_sparse.shape[1], size))
        turn[:known, : norms.size], turn[-1, : norms.size], turn[-1, -1] = of_b.T, -(v @ of_new), 1.0
        ahead = of_b @ products[:-1] + (across[:, -1] - products[-1] * v) @ of_new
        products = np.append(ahead, products[-1])
        b_sparse = _turned(b_sparse, turn)
        add_transposed_times(values, columns, of_new, b_sparse)
    sketch = np.empty((norms.size, split.mean.size))
    # Band by band, because one of the two sides is traversed down its columns: ten times faster. From the end, because
    # what has been copied is given back: both together may be more memory than there is.
    for a in reversed(range(0, split.mean.size, _BAND)):
        sketch[:, a : a + _BAND] = b_sparse[a : a + _BAND, : norms.size].T
        if a % _RELEASED == 0:
            b_sparse.resize((a, b_sparse.shape[1]), refcheck=False)
    sketch[:, full] = b_dense
    return sketch, delta, split.weight, mean, squares


def _turned(matrix: Floats, turn: Floats) -> Floats:
    """Return the product with a small matrix, in place where that is square: B may be most of the memory there is."""
    if turn.shape[0] != turn.shape[1]:
        return matrix @ turn
    for a in range(0, matrix.shape[0], _BAND):
        matrix[a : a + _BAND] = matrix[a : a + _BAND] @ turn
    return matrix


def _gram(
    values: Floats,
    columns: ByColumn,
    v: Floats,
    across: Floats,
    products: Floats,
    norms: Floats,
    new: Floats,
    b_dense: Floats,
) -> Floats:
    """Return ``C C'`` of ``C = [B; S - v mean', N]``; the rows of B are orthogonal, with squared norms `norms`.

    `across` are the products of S, `products` those of the mean, with the rows of B and the mean.
    """
    old, m = norms.size, v.size
    k = np.zeros((old + m, old + m))
    k[np.arange(old), np.arange(old)] = norms
    below = k[old:, :old]
    np.subtract(across[:, :old], np.multiply.outer(v, products[:old]), out=below)
    add_row_gram(values, columns, k[old:, old:])
    if new.shape[1]:
        below += new @ b_dense.T
        k[old:, old:] += new @ new.T
    complete(k, old, across[:, -1] - 0.5 * products[-1] * v, v)
    return k


def sparse_factors(gram: Floats, size: int, known: int) -> tuple[Floats, Floats, float]:
    """Return `shrink_factors` of a matrix, from approximate eigenvectors wherever their error can be bounded."""
    k, trace = gram.shape[0], float(gram.trace())
    width = min(size + _EXTRA, k)
    if k < 3 * width or not (trace > _LEAST_SCALE and float(gram.diagonal().max()) < 1.0 / _LEAST_SCALE):
        return shrink_factors(gram, size)
    lam, vectors, images = _leading(gram, width, trace, known)
    eps = float(np.finfo(np.float64).eps)
    noise = eps * k * trace
    delta = max(float(lam[size - 1]), 0.0)
    lam, vectors, images = lam[: size - 1], vectors[:, : size - 1], images[:, : size - 1]
    keep = lam - delta > max(eps * float(lam[0]), noise)
    lam, vectors, images = lam[keep], vectors[:, keep], images[:, keep]
    norms = lam - delta
    spent = trace - float(norms.sum())
    f = np.sqrt(norms / lam)
    # (I - U f^2 U')^(1/2) = I - U g U'
    g = norms / (lam * (1.0 + np.sqrt(delta / lam)))
    # loss = (I - U g U') K (I - U g U'), of which the lower triangle is computed
    half = images * g
    half -= 0.5 * vectors @ (g[:, None] * (vectors.T @ half))
    loss = dsyr2k(-1.0, half, vectors, 1.0, gram.T, lower=1)
    scale = max(delta, noise)
    if not scale > _LEAST_SCALE:
        return shrink_factors(gram, size)
    single = np.multiply(loss, 1.0 / scale, dtype=np.float32, casting="same_kind", order="F")
    least = max(1.0, _largest(single), 8 * noise / scale)
    for step in _STEPS:
        if size * (step * least * scale + noise) > spent:
            break
        shown = _upper(single, step * least)
        if size * (shown * scale + noise) <= spent:
            return f[:, None] * vectors.T, norms, shown * scale + noise
    # All eigenvectors take more memory than these.
    del loss, single
    return shrink_factors(gram, size)


def _largest(matrix: Array) -> float:
    """Return a lower estimate of the largest eigenvalue by Lanczos steps: the first candidate of the upper bound."""
    v = uniforms(derive_seed(0, "sparse-shrink bound"), np.arange(matrix.shape[0], dtype=np.uint64)) - 0.5
    v /= np.linalg.norm(v)
    basis = np.zeros((_LANCZOS, v.size))
    diagonal, beside = np.zeros(_LANCZOS), np.zeros(_LANCZOS)
    n = 0
    while n < _LANCZOS:
        basis[n] = v
        v = ssymv(1.0, matrix, v, lower=1).astype(np.float64)
        diagonal[n] = v @ basis[n]
        for _ in range(2):
            v -= (basis[: n + 1] @ v) @ basis[: n + 1]
        beside[n] = np.linalg.norm(v)
        n += 1
        if not beside[n - 1] > 2.0**-16 * abs(diagonal[0]):
            break
        v /= beside[n - 1]
    tridiagonal = np.diag(diagonal[:n]) + np.diag(beside[: n - 1], -1) + np.diag(beside[: n - 1], 1)
    return float(np.linalg.eigvalsh(tridiagonal)[-1])


def _upper(matrix: Array, bound: float) -> float:
    """Return an upper bound of the eigenvalues of a symmetric matrix (its lower triangle), slightly above `bound`.

    Infinite where ``A = I - matrix / bound`` has no Cholesky factor. If it has a factor R, the eigenvalues of A are at
    least minus the largest row sum of |R||R'|, times the order + 2 units of float32 (Higham 2002, theorem 10.3), minus
    the rounding of A itself.
    """
    k = matrix.shape[0]
    shifted = np.multiply(matrix, np.float32(-1.0 / bound), order="F")
    shifted[np.diag_indices(k)] += np.float32(1.0)
    factor, failed = spotrf(shifted, lower=1, clean=1, overwrite_a=1)
    if failed:
        return np.inf
    np.abs(factor, out=factor)
    rows = factor @ (factor.T @ np.ones(k, dtype=np.float32))
    unit = 2.0**-24
    error = 1.1 * unit * ((k + 2) * float(rows.max()) + 4.0 * np.sqrt(k))
    return float(bound * (1.0 + error))


def _leading(gram: Floats, width: int, trace: float, known: int) -> tuple[Floats, Floats, Floats]:
    """Return Ritz values (descending) and vectors of the leading eigenspace, and their products with the matrix.

    A block power iteration in float32, of which only the last basis has to be orthonormal to full precision. The first
    `known` unit vectors are among its initial vectors.
    """
    k = gram.shape[0]
    single = np.multiply(gram, 1.0 / trace, dtype=np.float32, casting="same_kind")
    known = min(known, width - _EXTRA)
    items = np.arange(k * (width - known), dtype=np.uint64)
    other = (uniforms(derive_seed(0, "sparse-shrink"), items).reshape(k, width - known) - 0.5).astype(np.float32)
    basis = np.hstack([single[:, :known], single @ other])
    for _ in range(_ROUNDS):
        basis = single @ _orthonormal(basis.astype(np.float64))[0].astype(np.float32)
    basis, turn = _orthonormal(basis.astype(np.float64))
    images = gram @ basis
    small = turn.T @ (basis.T @ images) @ turn
    lam, vectors = np.linalg.eigh(small)
    turn = turn @ vectors[:, ::-1]
    return lam[::-1], basis @ turn, images @ turn


def _orthonormal(matrix: Floats) -> tuple[Floats, Floats]:
    """Return ``(Q, T)`` such that Q T spans the columns and is orthonormal to full precision; T is nearly the identity.

    Two Cholesky factorisations of the Gram matrix are three times faster than Householder reflections, which are used
    where the columns are too close to dependent.
    """
    norms = np.sqrt(np.einsum("ij,ij->j", matrix, matrix))
    if norms.min() > 0:
        matrix = matrix / norms
        first, failed = dpotrf(matrix.T @ matrix, lower=0, clean=1)
        if not failed:
            basis = dtrsm(1.0, first, matrix, side=1, lower=0)
            gram = basis.T @ basis
            if np.abs(gram - np.eye(gram.shape[0])).max() < 0.1 / gram.shape[0]:
                second = dpotrf(gram, lower=0, clean=1)[0]
                return basis, dtrtri(second)[0]
    basis = np.linalg.qr(matrix)[0]
    return basis, np.eye(basis.shape[1])


_CACHED = 1024  # Columns of a panel that are rewritten at a time, in the cache

_NONE = np.empty(0)


class _Sized:
    def __sizeof__(self) -> int:
        # The size by which Dask decides where tasks run.
        return object.__sizeof__(self) + sum(getattr(value, "nbytes", 0) for value in vars(self).values())


@dataclass(frozen=True)
class SketchPanel(_Sized):
    """Some columns of a sketch."""

    rows: Floats  # shape (n_columns, m): The rows B of the sketch, each a column here
    # mean, squares: shape (n_columns,): Means of the columns, and sums of squares about them
    mean: Floats
    squares: Floats


@dataclass(frozen=True)
class NewRows:
    """Some columns of new rows about their mean: sparse entries less ``roots split'``, and dense columns."""

    values: Floats  # Entries times the roots of the rows' weights, in column order
    columns: ByColumn
    split: Floats  # shape (n_columns,): Means of the sparse columns, 0 for dense ones
    full: NDArray[np.int64]  # The dense columns
    dense: Floats  # shape (n_rows, len(full)): ``sqrt(w) (x - mean)``
    # mean, squares: shape (n_columns,): Of all columns, as those of `SketchPanel`
    mean: Floats
    squares: Floats


@dataclass(frozen=True)
class Products(_Sized):
    """Products of one panel of B, D and r; those of all panels are summed."""

    old: Floats  # shape (n_rows + 1, m): Of D and r with B
    new: Floats  # shape (n_rows + 1,): Of D and r with r
    means: Floats  # shape (2,): Squared norms of the mean of the sketch and of that of the new rows


@dataclass(frozen=True)
class Total(_Sized):
    """State of a sketch besides its panels, and how its last step shrinks them."""

    n_rows: int
    weight: float
    shrinkage: float
    norms: Floats  # shape (m,): Squared norms of the rows of B
    matrix: Floats  # shape (m, rows of C): M of the last step

    @classmethod
    def empty(cls) -> Total:
        """Return that of no rows."""
        return cls(0, 0.0, 0.0, np.empty(0), np.empty((0, 0)))


def empty_panel(n_columns: int) -> SketchPanel:
    """Return a panel of a sketch of no rows."""
    return SketchPanel(np.empty((n_columns, 0)), np.zeros(n_columns), np.zeros(n_columns))


def n_steps(n_rows: int, size: int) -> int:
    """Return the number of shrinks for some rows."""
    return max(1, -(-n_rows // (BUFFER_FACTOR * size)))


def column_panels(block: csr_array, edges: Sequence[int]) -> list[csr_array]:
    """Return the columns of a block from each edge to the next."""
    data, indices, indptr = arrays_of(block)
    panels = []
    for first, last in pairwise(edges):
        inside = (indices >= first) & (indices < last)
        ends = ends_of(inside, indptr)
        panels.append(canonical_csr(data[inside], indices[inside] - first, ends, last - first))
    return panels


def require_summable(block: csr_array, weights: Floats | None, start: int | Array = 0) -> None:
    """Raise `NotFinite` or `BadBlock`, naming row and column, where the squares of a block may leave float64."""
    require_ordinary(block, start)
    largest = float(np.abs(block.data).max(initial=0.0))
    total = block.shape[0] if weights is None else float(weights.sum())
    if not largest * max(1.0, np.sqrt(total)) < LARGEST:
        refuse_huge(block, start)


def new_rows(block: csr_array, weights: Floats) -> NewRows:
    """Return one panel of new rows about their mean."""
    split = split_columns(block, weights)
    dense, mean, squares = split.centered(weights)
    columns = by_column(split.sparse)
    values = split.sparse.data[columns.places] * np.sqrt(weights)[columns.rows]
    return NewRows(values, columns, split.mean, split.full, dense, mean, squares)


def rows_gram(panels: Sequence[csr_array], weights: Floats) -> Floats:
    """Return the products ``D D'`` of new rows, shape (n_rows, n_rows), panel by panel."""
    roots = np.sqrt(weights)
    gram = np.zeros((roots.size, roots.size))
    for panel in panels:
        new = new_rows(panel, weights)
        products = np.zeros(gram.shape)
        add_row_gram(new.values, new.columns, products)
        if new.full.size:
            products += new.dense @ new.dense.T
        across = times_dense(new.values, new.columns, roots.size, new.split[:, None])[:, 0]
        complete(products, 0, across - 0.5 * float(new.split @ new.split) * roots, roots)
        gram += products
    return gram


def panel_products(panel: SketchPanel, block: csr_array, total: Total, weights: Floats) -> Products:
    """Return what a shrink has to know of one panel: of the sketch, and of the new rows."""
    new, roots = new_rows(block, weights), np.sqrt(weights)
    n = roots.size
    _, _, difference, factor = merge_means(total.weight, panel.mean, float(weights.sum()), new.mean)
    r = np.sqrt(factor) * difference
    old, last = np.empty((n + 1, panel.rows.shape[1])), np.empty(n + 1)
    beside = np.stack([new.split, r]) @ panel.rows  # In one sweep over the panel
    across = times_dense(new.values, new.columns, n, panel.rows)
    np.subtract(across, np.multiply.outer(roots, beside[0]), out=old[:-1])
    across = times_dense(new.values, new.columns, n, r[:, None])[:, 0]
    np.subtract(across, roots * float(new.split @ r), out=last[:-1])
    old[-1], last[-1] = beside[1], r @ r
    if new.full.size:
        old[:-1] += new.dense @ panel.rows[new.full]
        last[:-1] += new.dense @ r[new.full]
    return Products(old, last, np.array([panel.mean @ panel.mean, new.mean @ new.mean]))


def shrink_panels(total: Total, products: Floats, weights: Floats, parts: Sequence[Products], size: int) -> Total:
    """Return the total after a step: the matrix that shrinks the panels, and what that loses.

    ``0 <= C'C - B'B <= lost I`` for the new rows B, at most `size` - 1 of them, as for `shrink`. `products` are the
    ``D D'`` of the new rows.
    """
    known, n = total.norms.size, weights.size
    gram = np.zeros((known + n + 1, known + n + 1))
    gram[np.arange(known), np.arange(known)] = total.norms
    gram[known:-1, known:-1] = products
    means = np.zeros(2)
    for part in parts:
        gram[known:, :known] += part.old
        gram[-1, known:] += part.new
        means += part.means
    gram[:known, known:] = gram[known:, :known].T
    gram[known:, -1] = gram[-1, known:]
    weight, _, _, factor = merge_means(total.weight, _NONE, float(weights.sum()), _NONE)
    matrix, norms, lost = sparse_factors(gram, size, known)
    lost += mean_rounding(float(np.sqrt(means).sum()), float(np.sqrt(max(gram[-1, -1], 0.0))), factor)
    return Total(total.n_rows + n, weight, total.shrinkage + lost, norms, matrix)


def shrunk_panel(panel: SketchPanel, block: csr_array, before: Total, after: Total, weights: Floats) -> SketchPanel:
    """Return one panel of the sketch after a step."""
    new, roots, known = new_rows(block, weights), np.sqrt(weights), panel.rows.shape[1]
    _, mean, difference, factor = merge_means(before.weight, panel.mean, float(weights.sum()), new.mean)
    of_old = after.matrix[:, :known].T
    of_new = np.ascontiguousarray(after.matrix[:, known:-1].T)
    beside = np.stack([-(roots @ of_new), np.sqrt(factor) * after.matrix[:, -1]])
    pair = np.stack([new.split, difference], axis=1)
    rows = np.empty((panel.mean.size, after.norms.size))
    for a in range(0, panel.mean.size, _CACHED):
        part = slice(a, a + _CACHED)
        np.matmul(panel.rows[part], of_old, out=rows[part])
        rows[part] += pair[part] @ beside
    rows[new.full] += new.dense.T @ of_new
    add_transposed_times(new.values, new.columns, of_new, rows)
    return SketchPanel(rows, mean, panel.squares + new.squares + factor * difference * difference)


def joined(panels: Iterator[SketchPanel], n_columns: int, n_rows: int) -> tuple[Floats, Floats, Floats]:
    """Return ``(B, mean, squares)`` of all columns, B of shape (n_rows, n_columns)."""
    rows, mean, squares = np.empty((n_rows, n_columns)), np.empty(n_columns), np.empty(n_columns)
    first = 0
    for panel in panels:
        last = first + panel.mean.size
        mean[first:last], squares[first:last] = panel.mean, panel.squares
        for a in range(first, last, _CACHED):
            b = min(a + _CACHED, last)
            rows[:, a:b] = panel.rows[a - first : b - first].T
        first = last
    return rows, mean, squares
