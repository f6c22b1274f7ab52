"""Scores of columns on a graph of nearest neighbours: the Laplacian score, and multi-cluster feature selection."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.graph import degrees
from sketchselect.solvers.factored import Design, lasso_coefficients

_EPS = float(np.finfo(np.float64).eps)


def laplacian_scores(rows: Any, graph: Any) -> Floats:
    """Return the Laplacian score of every column, ``L_j = f'Lf / f'Df`` with f the column less its D-weighted mean.

    Between 0 (constant on connected rows) and 2; NaN for constant columns.

    `rows` of shape (n_rows, n_features).
    `graph` of shape (n_rows, n_rows): Symmetric; D are its degrees and ``L = D - W``.
    Cost: one product of the graph with the rows. Source: He, Cai and Niyogi 2005, equation (6).
    """
    degree = degrees(graph)
    total = float(degree.sum())
    if total <= 0:
        return np.full(rows.shape[1], np.nan)
    mean = np.asarray(rows.T @ degree).ravel() / total
    if not sparse.issparse(rows):
        # Far from zero the products below would cancel.
        rows, mean = rows - mean, np.zeros(mean.size)
    squares = np.asarray((rows.multiply(rows) if sparse.issparse(rows) else rows * rows).T @ degree).ravel()
    moved = graph @ rows
    joint = np.asarray((rows.multiply(moved) if sparse.issparse(rows) else rows * moved).sum(axis=0)).ravel()
    spread, smooth = squares - total * mean**2, joint - total * mean**2
    varies = _varying(rows, spread, squares)
    out = np.full(mean.size, np.nan)
    out[varies] = np.clip(1.0 - smooth[varies] / spread[varies], 0.0, 2.0)
    return out


def _varying(rows: Any, spread: Floats, squares: Floats) -> Any:
    """Return which columns are not constant: by their range, and to rounding."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    if sparse.issparse(low):
        low, high = low.toarray(), high.toarray()
    return (np.ravel(high) > np.ravel(low)) & (spread > 8.0 * _EPS * squares) & (spread > 0)


def mcfs_coefficients(rows: Any, embedding: Floats, n_nonzero: int, *, scale_columns: bool = False) -> Floats:
    """Return the sparse regressions of the embedding on the columns, shape (n_features, n_components).

    `rows` of shape (n_rows, n_features).
    `embedding` of shape (n_rows, n_components): Targets of the regressions; centred first, so that there is an
        intercept.
    `n_nonzero`: Columns in each regression.
    `scale_columns`: Whether columns are divided by their standard deviation first (constant ones stay as they are).
    Source: Cai, Zhang and He 2010, equation (6) and Table 1, by the lasso path.
    """
    if scale_columns:
        design = Design(_scaled(rows), center=True)
    else:
        design = Design(rows, center=True)
    targets = embedding - embedding.mean(axis=0)
    return (
        np.array([lasso_coefficients(design, target, n_nonzero) for target in targets.T]).reshape(-1, rows.shape[1]).T
    )


def _scaled(rows: Any) -> Any:
    n = rows.shape[0]
    mean = np.asarray(rows.mean(axis=0)).ravel()
    raw = np.asarray((rows.multiply(rows) if sparse.issparse(rows) else rows * rows).sum(axis=0)).ravel()
    squares = np.maximum(raw / n - mean**2, 0.0)
    varies = squares > 8.0 * _EPS * raw / n
    factor = np.divide(1.0, np.sqrt(squares), out=np.ones(mean.size), where=varies)
    return sparse.csr_array(rows @ sparse.diags_array(factor)) if sparse.issparse(rows) else rows * factor
