"""The lasso path from a design of few rows and many columns, without its Gram matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_positive
from sketchselect.solvers.homotopy import DEPENDENT, HomotopyState, append_row, solve_two


class Design:
    """Design matrix for `lasso_coefficients`: dense or sparse, centred or not, divided by its largest column norm.

    `rows` of shape (n_rows, n_features): Sparse rows are not made dense, but centred in the products.
    `center`: Whether the columns are centred.
    """

    def __init__(self, rows: Any, *, center: bool) -> None:
        self._sparse = sparse.issparse(rows)
        means = np.asarray(rows.mean(axis=0), dtype=np.float64).ravel() if center else np.zeros(rows.shape[1])
        if self._sparse:
            self._by_row, self._by_column, self._means = rows, rows.tocsc(), means
            squares = np.asarray(rows.multiply(rows).sum(axis=0)).ravel() - rows.shape[0] * means * means
        else:
            self._by_row = rows - means if center else np.asarray(rows, dtype=np.float64)
            squares = np.einsum("ij,ij->j", self._by_row, self._by_row)
        self.shape: tuple[int, int] = rows.shape
        self.scale = float(np.sqrt(max(squares.max(initial=0.0), 0.0)))

    def column(self, j: int) -> Floats:
        """Return column j, shape (n_rows,)."""
        scale = self.scale or 1.0
        if not self._sparse:
            return np.asarray(self._by_row[:, j]) / scale
        column = self._by_column
        out = np.full(self.shape[0], -self._means[j])
        inside = slice(column.indptr[j], column.indptr[j + 1])
        out[column.indices[inside]] += column.data[inside]
        return out / scale

    def products(self, vectors: Floats) -> Floats:
        """Return the products of all columns with `vectors` of shape (n_rows, m), as an array (n_features, m)."""
        out = np.asarray(self._by_row.T @ vectors)
        if self._sparse:
            out = out - np.outer(self._means, vectors.sum(axis=0))
        return out / (self.scale or 1.0)


def lasso_coefficients(design: Design, target: Floats, n_nonzero: int) -> Floats:
    """Return the lasso solution with `n_nonzero` columns, at the smallest alpha before another column enters.

    The minimiser of ``(1/2) ||target - D b||^2 + alpha ||b||_1``, followed from the largest alpha down. It has fewer
    columns if the design has fewer that are independent to rounding (1e-11 of the largest squared norm).

    `design`: D.
    `target` of shape (n_rows,): Of zero mean if the design is centred.
    `n_nonzero`: At least 1.
    Cost: per breakpoint one product with the design, 4 n_rows n_features flops (or 4 per stored entry), and 2 k^2.
    Memory: k columns. Source: Efron, Hastie, Johnstone and Tibshirani 2004; see `homotopy_path`.
    """
    n_nonzero = require_positive("n_nonzero", n_nonzero)
    out, unit = np.zeros(design.shape[1]), float(np.linalg.norm(target))
    if unit == 0.0 or design.scale == 0.0:
        return out
    state = _FactoredState(design, target / unit)
    columns, values = np.zeros(0, dtype=np.int64), np.zeros(0)
    for _ in range(20 * min(n_nonzero, *design.shape) + 100):
        new_columns, new_values = state.solution()
        if new_columns.size > n_nonzero:
            break
        columns, values = new_columns, new_values
        if state.alpha <= 0.0:
            break
        state.enter()
        if columns.size == n_nonzero and state.size > n_nonzero:
            break
        state.advance()
    out[columns] = values * (unit / design.scale)
    return out


class _FactoredState(HomotopyState):
    """State of the homotopy with columns instead of the Gram matrix."""

    def __init__(self, design: Design, target: Floats) -> None:
        self._design = design
        self._active_columns: list[Floats] = []
        xy = np.ascontiguousarray(design.products(target[:, None])[:, 0])
        super().__init__(np.zeros((0, 0)), xy, np.ones(xy.size, dtype=bool), 0.0)

    def _append(self, j: int, sign: float) -> bool:
        k, column = self.size, self._design.column(j)
        self._make_room(k)
        inner = np.array([active @ column for active in self._active_columns]) if k else np.zeros(0)
        if not append_row(self._factor, k, inner, float(column @ column), DEPENDENT):
            return False
        self._active_columns.append(column)
        self._take_in(j, sign)
        return True

    def _remove(self, i: int) -> None:
        del self._active_columns[i]
        super()._remove(i)

    def _solve(self) -> None:
        columns = np.array(self._inside, dtype=np.int64)
        self._pair = np.vstack([self._xy[columns], np.array(self._signs)])
        solve_two(self._factor, columns.size, self._pair)
        if not self._active_columns:
            self._offset, self._slope = self._xy.copy(), np.zeros(self._xy.size)
            return
        moved = self._design.products(np.array(self._active_columns).T @ self._pair.T)
        self._offset, self._slope = self._xy - moved[:, 0], np.ascontiguousarray(moved[:, 1])
