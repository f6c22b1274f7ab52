"""Least squares from moments: unregularised on a support, ridge, and thresholded."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import require_number
from sketchselect.solvers.problem import Problem
from sketchselect.solvers.ranking import Fit, check_count, scaled_row_norms, strongest

_EPS = float(np.finfo(np.float64).eps)
_JITTER = 1e-8
# A column equal to an earlier one has a pivot of about twice the jitter.
_SUSPECT, _EQUAL = 1e-6, 1e-10
_SMALL = 1000


def least_squares(problem: Problem, support: ArrayLike) -> Floats:
    """Return the unregularised coefficients on a support, of shape (p, q): standardised columns, zero elsewhere.

    If the correlations of the support are singular to rounding (duplicated columns, fewer rows than columns), the
    solution of least norm.

    Parameters
    ----------
    problem : Problem
        The moments.
    support : array of int
        Columns of the model; the coefficients of constant columns are zero.

    Raises
    ------
    BadParameter
        If the support has a column that does not exist, or a column twice.

    Notes
    -----
    Cost: k^3 / 3, by Cholesky; an eigendecomposition, 9 k^3, if the reciprocal condition number is below k eps.
    """
    columns = _columns(problem, support)
    coef = np.zeros(problem.xy.shape)
    if columns.size:
        with blas_threads(columns.size):
            coef[columns] = _solve(problem.correlation[np.ix_(columns, columns)], problem.xy[columns])
    return coef


def ridge(problem: Problem, penalty: float) -> Floats:
    """Return the minimiser of ``f(b) + (penalty / 2) ||b||^2``, of shape (p, q), on standardised columns.

    Parameters
    ----------
    problem : Problem
        The moments.
    penalty : float
        Positive; in scikit-learn's `Ridge` this is ``alpha / n``.

    Raises
    ------
    BadParameter
        If `penalty` is not a positive number.

    Notes
    -----
    Cost: one Cholesky factorisation, p^3 / 3; p^2 numbers.
    """
    if not (np.isfinite(penalty) and penalty > 0):
        raise BadParameter(f"the ridge penalty must be a number above 0, got {penalty}; use least_squares without one")
    coef, _ = _shifted_solve(problem, float(penalty))
    return coef


def threshold(problem: Problem, n_select: int, *, jitter: float | None = None) -> Fit:
    """Return the columns of largest coefficients in the full least-squares solution, and the refit on them.

    The full solution has a tiny ridge, so that it exists with fewer rows than columns and with equal columns; the refit
    has none. With several targets the score is the norm of the coefficients of a column. Of columns that are equal up
    to sign and unit, the lowest has the score of all, the others zero.

    Parameters
    ----------
    problem : Problem
        The moments.
    n_select : int
        Number of columns.
    jitter : float, optional
        Ridge of the full solution; default 1e-8, raised by factors of 100 until the matrix is positive definite.

    Raises
    ------
    BadParameter
        If `n_select` is not between 1 and p, `jitter` is negative, or the matrix is not positive semi-definite.

    Notes
    -----
    Cost: one Cholesky factorisation, p^3 / 3, in one copy of the matrix. Source: Sun, Guo and Barbu 2019,
    Algorithm 1 (on standardised columns, as Proposition 2 assumes).
    """
    n_select = check_count(problem, n_select)
    shift = _JITTER if jitter is None else require_number("jitter", jitter, least=0)
    coef, pivots = _shifted_solve(problem, shift)
    fold_copies(problem.correlation, coef, pivots)
    scores = scaled_row_norms(coef)
    support = strongest(scores, n_select, problem.active)
    return Fit(support, scores, least_squares(problem, support))


def blas_threads(size: int) -> AbstractContextManager[None]:
    """Return a context with one BLAS thread for a small matrix, for which more threads are slower."""
    return one_blas_thread() if size <= _SMALL else nullcontext()


def fold_copies(correlation: Floats, coef: Floats, pivots: Floats, columns: NDArray[np.int64] | None = None) -> None:
    """Add the coefficients of equal columns to the lowest of them, in place; the fitted values stay the same.

    Only columns whose Cholesky pivot shows that they depend on earlier ones are compared. Coefficients and pivots are
    those of `columns`, by default of all columns.
    """
    for j in np.flatnonzero(pivots <= _SUSPECT):
        row = correlation[j, :j] if columns is None else correlation[columns[j], columns[:j]]
        equal = np.flatnonzero(np.abs(row) >= 1.0 - _EQUAL)
        if equal.size:
            first = int(equal[0])
            coef[first] += np.sign(row[first]) * coef[j]
            coef[j] = 0.0


def _columns(problem: Problem, support: ArrayLike) -> NDArray[np.int64]:
    columns = np.asarray(support)
    if columns.size == 0:
        return np.zeros(0, dtype=np.int64)
    if columns.ndim != 1 or columns.dtype.kind not in "iu":
        raise BadParameter(f"a support is a list of column indices, got an array of {columns.dtype}")
    unknown = columns[(columns < 0) | (columns >= problem.n_features)]
    if unknown.size:
        raise BadParameter(f"the support has column {unknown[0]}, there are {problem.n_features} columns")
    if np.unique(columns).size != columns.size:
        raise BadParameter("the support has a column twice")
    out: NDArray[np.int64] = columns[problem.active[columns]].astype(np.int64)
    return out


def _solve(matrix: Floats, right: Floats) -> Floats:
    """Solve for a copy of a block of the correlation matrix; least norm if it is singular to rounding."""
    from scipy.linalg.lapack import dpocon, dpotrf, dpotrs

    k = matrix.shape[0]
    one_norm = np.abs(matrix).sum(axis=0).max()
    factor, info = dpotrf(matrix.T, lower=1, clean=0)
    if info == 0:
        reciprocal, _ = dpocon(factor, one_norm, uplo="L")
        if reciprocal > k * _EPS:
            out: Floats = dpotrs(factor, right, lower=1)[0]
            return out
    values, vectors = np.linalg.eigh(matrix)
    nonzero = values > k * _EPS * max(float(values[-1]), 1.0)
    v = vectors[:, nonzero]
    least: Floats = v @ ((v.T @ right) / values[nonzero][:, None])
    return least


def shifted_solve(
    correlation: Floats, columns: NDArray[np.int64], right: Floats, shift: float, memory: Floats | None = None
) -> tuple[Floats, Floats]:
    """Solve ``(S + shift I) b = s`` on these columns, raising the shift until that is possible.

    `correlation` of shape (p, p): S.
    `columns` of shape (m,): Ascending, none constant.
    `right` of shape (m, q): s, on the columns.
    `shift`: At least 0.
    `memory`: Memory for the factor.

    Returns
    -------
    coef : array of shape (m, q)
        b.
    pivots : array of shape (m,)
        Squared pivots of the Cholesky factorisation.

    Raises
    ------
    BadParameter
        If that fails with a shift of 1.
    """
    from scipy.linalg.lapack import dpotrf, dpotrs

    from sketchselect.solvers.submatrix import gather

    m = columns.size
    matrix = (np.empty(m * m) if memory is None else memory[: m * m]).reshape(m, m)
    tried = shift
    with blas_threads(m):
        while tried <= 1.0:
            if m == correlation.shape[0]:
                np.copyto(matrix, correlation)
            else:
                gather(correlation, columns, matrix)
            matrix[np.diag_indices(m)] += tried
            # LAPACK overwrites the transposed view, so the copy above is the only one.
            factor, info = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
            if info == 0:
                coef = np.array(dpotrs(factor, right, lower=1)[0], order="C")
                return coef, factor.diagonal() ** 2
            tried = max(tried * 100.0, _JITTER)
    raise BadParameter("the correlation matrix is far from positive semi-definite; use nearest_psd first")


def _shifted_solve(problem: Problem, shift: float) -> tuple[Floats, Floats]:
    """Return b and the squared pivots of the columns that are not constant, 0 and 1 for constant columns."""
    columns = np.flatnonzero(problem.active)
    coef, pivots = np.zeros(problem.xy.shape), np.ones(problem.n_features)
    if columns.size:
        coef[columns], pivots[columns] = shifted_solve(problem.correlation, columns, problem.xy[columns], shift)
    return coef, pivots
