"""Least squares from moments: unregularised on a support, ridge, and thresholding of the full solution."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchselect.errors import BadParameter
from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.solvers.problem import Problem
from sketchselect.solvers.ranking import Fit, check_count, row_norms, strongest

_EPS = float(np.finfo(np.float64).eps)
_JITTER = 1e-8
# A column equal to an earlier one has a pivot of about twice the jitter.
_SUSPECT, _EQUAL = 1e-6, 1e-10
_SMALL = 1000


def least_squares(problem: Problem, support: ArrayLike) -> Floats:
    """Return the unregularised coefficients on a support, of shape (p, q): standardised columns, zero elsewhere.

    Where the support's correlations are singular to rounding (duplicated columns, fewer rows than columns) the
    solution is the one of least norm.

    Parameters
    ----------
    problem : Problem
        The moments.
    support : array of int
        Columns to use; constant ones get zero.

    Raises
    ------
    BadParameter
        If the support names a column that is not there, or one twice.

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
        raise BadParameter(f"a ridge penalty must be a positive number, got {penalty}; least_squares takes none")
    coef, _ = _shifted_solve(problem, float(penalty))
    return coef


def threshold(problem: Problem, n_select: int, *, jitter: float | None = None) -> Fit:
    """Return the columns of largest coefficients in the full least-squares solution, and the refit on them.

    The ranking solution has a tiny ridge so that it exists also with fewer rows than columns or with equal columns;
    the refit has none. With several targets the score is the norm of a column's coefficients. Of columns that equal
    each other up to sign and unit, the lowest has the score of all, the others zero.

    Parameters
    ----------
    problem : Problem
        The moments.
    n_select : int
        Number of columns.
    jitter : float, optional
        Ridge for the ranking; default 1e-8. It is raised (by factors of 100) if the matrix is not positive definite
        with it.

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
    if jitter is not None and not (np.isfinite(jitter) and jitter >= 0):
        raise BadParameter(f"jitter must be a number not below zero, got {jitter}")
    coef, pivots = _shifted_solve(problem, _JITTER if jitter is None else float(jitter))
    fold_copies(problem.correlation, coef, pivots)
    scores = row_norms(coef)
    support = strongest(scores, n_select, problem.active)
    return Fit(support, scores, least_squares(problem, support))


def blas_threads(size: int) -> AbstractContextManager[None]:
    """Return a context with as many BLAS threads as pay: for a small matrix they wait for each other longer."""
    return one_blas_thread() if size <= _SMALL else nullcontext()


def fold_copies(correlation: Floats, coef: Floats, pivots: Floats, columns: NDArray[np.int64] | None = None) -> None:
    """Give the coefficients of equal columns to the lowest of them, in place; the fitted values stay the same.

    Only columns whose Cholesky pivot shows that they depend on earlier ones are looked at. Coefficients and pivots are
    those of `columns`, or of all.
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
        raise BadParameter(f"a support is a list of column numbers, got an array of {columns.dtype}")
    if columns.min() < 0 or columns.max() >= problem.n_features:
        raise BadParameter(f"the support names column {columns.max()}, there are {problem.n_features} columns")
    if np.unique(columns).size != columns.size:
        raise BadParameter("the support names a column twice")
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
    kept = values > k * _EPS * max(float(values[-1]), 1.0)
    v = vectors[:, kept]
    least: Floats = v @ ((v.T @ right) / values[kept][:, None])
    return least


def shifted_solve(
    correlation: Floats, columns: NDArray[np.int64], right: Floats, shift: float, memory: Floats | None = None
) -> tuple[Floats, Floats]:
    """Solve ``(S + shift I) b = s`` on these columns, raising the shift until that is possible.

    Parameters
    ----------
    correlation : array of shape (p, p)
        S, of which the block on the columns is used.
    columns : array of int, shape (m,)
        Ascending, none constant.
    right : array of shape (m, q)
        s, on the columns.
    shift : float
        Not below zero.
    memory : array of m^2 numbers or more, optional
        Taken for the factor.

    Returns
    -------
    coef : array of shape (m, q)
        b.
    pivots : array of shape (m,)
        Squared pivots of the Cholesky factorisation.

    Raises
    ------
    BadParameter
        If that is not possible with a shift of 1.
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
            # The transposed view is what LAPACK can overwrite, so the copy above is the only one.
            factor, info = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
            if info == 0:
                coef = np.array(dpotrs(factor, right, lower=1)[0], order="C")
                return coef, factor.diagonal() ** 2
            tried = max(tried * 100.0, _JITTER)
    raise BadParameter("the correlation matrix is far from positive semi-definite; repair it with nearest_psd first")


def _shifted_solve(problem: Problem, shift: float) -> tuple[Floats, Floats]:
    """Solve for the columns that are not constant; return b and the squared pivots, 0 and 1 for the others."""
    columns = np.flatnonzero(problem.active)
    coef, pivots = np.zeros(problem.xy.shape), np.ones(problem.n_features)
    if columns.size:
        coef[columns], pivots[columns] = shifted_solve(problem.correlation, columns, problem.xy[columns], shift)
    return coef, pivots
