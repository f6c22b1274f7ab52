"""A Frequent Directions sketch of sparse rows in panels of columns: of all of them a shrink needs one small matrix.

With C = [B; D; r], B the rows of the sketch, D new rows about their own mean, and r the difference of the two means,
``C C'`` is the sum over the panels of ``C_j C_j'``, and the shrunk panel is ``M C_j``. The rows of B are orthogonal, so
that of each panel only its products with D and r are needed. Nobody holds more than some panels: B may be larger than
the memory of any one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from sketchselect.linalg.arrays import LARGEST, Array, Floats
from sketchselect.linalg.moments.comoments import mean_rounding, merge_means
from sketchselect.linalg.sketch.sparse_shrink import BUFFER_FACTOR, sparse_factors
from sketchselect.linalg.sparse.csr import arrays_of
from sketchselect.linalg.sparse.products import add_row_gram, add_transposed_times, complete, times_dense
from sketchselect.linalg.sparse.split import ByColumn, by_column, refuse_huge, require_ordinary, split_columns

_CACHED = 1024
"""Columns of a panel that are rewritten at a time, in the cache."""

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
    """What is known of a sketch beside its panels, and how its last step shrinks them."""

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
        ends = np.concatenate([[0], np.cumsum(inside, dtype=np.int64)])[indptr]
        shape = (block.shape[0], last - first)
        panel = csr_array((data[inside], indices[inside] - first, ends.astype(indptr.dtype)), shape=shape)
        panel.has_canonical_format = True
        panels.append(panel)
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
