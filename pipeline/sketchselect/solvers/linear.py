"""Linear models without a path of penalties: least squares, ridge and thresholding.

Each works on principal submatrices of the Gram matrix; thresholding updates one as its set of columns shrinks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.lapack import dpocon, dpotrf, dpotrs

from sketchselect._kernels import kernel
from sketchselect.errors import BadParameter
from sketchselect.linalg.threads import one_blas_thread
from sketchselect.linalg.validation import Array, Floats, require_number
from sketchselect.solvers.path import Fit, check_count, scaled_row_norms, strongest
from sketchselect.solvers.problem import Problem

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
            coef[columns] = _solve(problem.gram[np.ix_(columns, columns)], problem.xy[columns])
    return coef


@dataclass(frozen=True)
class CoefficientTests:
    """Least squares on all columns, with the t-test of each coefficient, in the columns' original units.

    `coef`, `errors`, `pvalues`, shape (p,): Coefficients, their standard errors, and two-sided p-values.
    `intervals`, shape (p, 2): 95 % confidence intervals. NaN for constant columns.
    """

    coef: Floats
    errors: Floats
    pvalues: Floats
    intervals: Floats


def coefficient_tests(problem: Problem, n_rows: int | None = None) -> CoefficientTests | None:
    """Return least squares of one target on all columns with tests of the coefficients; None where there are none.

    ``var(b_j) = s^2 (S^-1)_jj`` with ``s^2 = (yy - c'b) / (n - p - 1)``, exact for a target that is linear in the
    columns, with Gaussian errors of one variance (or, with weights, of variances inverse to them). There are none for
    several targets, fewer than p + 2 rows, or columns in a linear relation. Cost: p^3.

    `n_rows`: Number n of rows of positive weight; by default that of the problem, which of weighted rows is effective.

    Examples
    --------
    >>> import numpy as np
    >>> from sketchselect.solvers import standardize
    >>> problem = standardize(np.eye(1), [2.0], 5.0, mean=[0.0], y_mean=0.0, n=102)
    >>> tests = coefficient_tests(problem)
    >>> tests.coef.round(12).tolist(), tests.errors.round(12).tolist()
    ([2.0], [0.1])
    """
    active = np.flatnonzero(problem.active)
    freedom = (problem.n if n_rows is None else n_rows) - active.size - 1.0
    if problem.n_targets != 1 or freedom < 1.0 or not active.size:
        return None
    correlation, xy = problem.correlation[np.ix_(active, active)], problem.xy[active, 0]
    with blas_threads(active.size):
        values, vectors = np.linalg.eigh(correlation)
        if values[0] <= active.size * _EPS * values[-1]:
            return None
        coef = vectors @ ((xy @ vectors) / values)
        variances = (vectors**2 / values).sum(axis=1)
    rss = max(float(problem.yy[0, 0] - coef @ xy), 0.0)
    errors = np.sqrt(variances * rss / freedom)
    with np.errstate(divide="ignore", invalid="ignore"):
        pvalues = 2.0 * scipy.special.stdtr(freedom, -np.abs(coef / errors))
    half = errors * scipy.special.stdtrit(freedom, 0.975)
    out = np.full((5, problem.n_features), np.nan)
    scale = problem.scale[active]
    out[:, active] = coef / scale, errors / scale, pvalues, (coef - half) / scale, (coef + half) / scale
    return CoefficientTests(out[0], out[1], out[2], out[3:].T)


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


# The submatrix is copied to a contiguous array when at most this share of its columns is left: from p to p / 10 columns
# in 250 steps, copies and products with dropped columns then cost about a third of the necessary products.
_SHARE = 0.85
_MOST_STEPS = 60


class ShrinkingSubmatrix:
    """A symmetric matrix on the remaining columns, for products with a few vectors in one sweep over it.

    `matrix` of shape (p, p): Symmetric; never changed, and copied only after a sufficient share of the columns has been
        dropped.
    `columns`: The initial columns, ascending.
    Cost of a product: one sweep over the remaining rows, of whose entries at least `_SHARE` are needed.
    """

    def __init__(self, matrix: Floats, columns: NDArray[np.int64]) -> None:
        self._matrix = np.ascontiguousarray(matrix)
        self._at = columns
        self._compact()

    @property
    def size(self) -> int:
        """Number of remaining columns."""
        return int(self._at.size)

    def times(self, vectors: Floats) -> Floats:
        """Return the products with the rows of `vectors`, shape (t, size), as rows."""
        width = self._matrix.shape[0]
        out = np.empty((vectors.shape[0], width))
        products(self._matrix, self._at, vectors, out)
        return out if self._at.size == width else out[:, self._at]

    def keep(self, places: NDArray[np.int64]) -> None:
        """Drop all remaining columns except those at these ascending positions among them."""
        self._at = self._at[places]
        self._compact()

    def _compact(self) -> None:
        size = self._at.size
        if size <= _SHARE * self._matrix.shape[0]:
            block = np.empty((size, size))
            gather(self._matrix, self._at, block)
            self._matrix, self._at = block, np.arange(size)


@dataclass(frozen=True)
class LeadingEigenvalue:
    """Bounds of the largest eigenvalue of a submatrix, and its eigenvector."""

    value: float  # Lower bound
    bound: float  # Upper bound, unless the Krylov space misses the eigenvector
    second: float  # At least 0.8 of the second largest eigenvalue; if that is not known, `bound`
    vector: Floats  # shape (size,): Of length one, close to the eigenvector


def leading_eigenvalue(block: ShrinkingSubmatrix, accuracy: float, guess: Floats | None = None) -> LeadingEigenvalue:
    """Return the largest eigenvalue to a relative accuracy by Lanczos steps, from a guess of the eigenvector.

    Some noise is added to the guess, so that it is not orthogonal to the eigenvector.
    Cost: a product per step, at most 60; some 10 if the largest eigenvalue is well separated.
    """
    noise = np.random.default_rng(0).standard_normal(block.size)
    noise /= np.linalg.norm(noise)
    start = noise if guess is None else guess + 0.05 * noise
    most = min(_MOST_STEPS, block.size)
    basis = np.empty((most, block.size))
    basis[0] = start / np.linalg.norm(start)
    small = np.zeros((most, most))
    for m in range(most):
        image = block.times(basis[m : m + 1])[0]
        small[m, m] = image @ basis[m]
        known = basis[: m + 1]
        for _ in range(2):
            image -= (known @ image) @ known
        residual = float(np.linalg.norm(image))
        values, vectors = np.linalg.eigh(small[: m + 1, : m + 1])
        errors = residual * np.abs(vectors[-1])
        top = max(float(values[-1]), np.finfo(np.float64).tiny)
        if m + 1 == most or residual <= 1e-12 * top:
            break
        # A second eigenvalue that is nearly as large does not help `updated_eigenvalue`, so it need not be known.
        if (
            m >= 2
            and errors[-1] <= 0.5 * accuracy * top
            and (errors[-2] <= 0.1 * values[-2] or values[-2] >= 0.5 * top)
        ):
            break
        small[m, m + 1] = small[m + 1, m] = residual
        basis[m + 1] = image / residual
    vector = vectors[:, -1] @ known
    # Some eigenvalue is within the error; among several of about this size the largest may be a little further off.
    bound = top + max(2.0 * float(errors[-1]), accuracy * top)
    # The error of the vector leaves error^2 / top of the largest eigenvalue in the directions orthogonal to it.
    second = float(values[-2] + errors[-2] + errors[-1] ** 2 / top) if m and errors[-2] <= 0.1 * values[-2] else bound
    return LeadingEigenvalue(top, bound, second, vector / np.linalg.norm(vector))


def updated_eigenvalue(
    before: LeadingEigenvalue, vector: Floats, image: Floats, accuracy: float
) -> LeadingEigenvalue | None:
    """Return the largest eigenvalue after columns were dropped, from one product; None if it is uncertain.

    `before`: That of the larger submatrix. No eigenvalue of a submatrix exceeds that of the same rank of the whole
        (Cauchy).
    `vector`, `image` of shape (size,): A vector of length one, and its product with the submatrix.
    `accuracy`: Relative; the upper bound must be within twice this of the value.
    Source: the inequality of Kato and Temple, ``lambda_1 <= theta + residual^2 / (theta - lambda_2)`` for the
    quotient theta of any vector.
    """
    norm, quotient = float(np.linalg.norm(image)), float(vector @ image)
    bound = before.bound
    # Twice as large, and 0.8 of the gap, because the second eigenvalue is not known well.
    if quotient >= 2.0 * before.second:
        bound = min(bound, quotient + max(norm * norm - quotient * quotient, 0.0) / (0.8 * quotient - before.second))
    # If the vector is almost exact, the bound may be too small by rounding.
    bound = max(bound, norm)
    return (
        None if bound > (1.0 + 2.0 * accuracy) * norm else LeadingEigenvalue(norm, bound, before.second, image / norm)
    )


@kernel(error_model="numpy")
def products(matrix: Floats, rows: Array, vectors: Floats, out: Floats) -> None:
    """Set row t of `out` to the sum of these rows of a matrix times the entries of row t of `vectors`."""
    out[:] = 0.0
    n_vectors, n_rows = vectors.shape
    i = 0
    # Four rows and two vectors at a time: the matrix is read from memory once, and each sum is updated once for four.
    while i + 4 <= n_rows:
        r0, r1, r2, r3 = matrix[rows[i]], matrix[rows[i + 1]], matrix[rows[i + 2]], matrix[rows[i + 3]]
        t = 0
        while t + 2 <= n_vectors:
            a, b = out[t], out[t + 1]
            a0, a1, a2, a3 = vectors[t, i], vectors[t, i + 1], vectors[t, i + 2], vectors[t, i + 3]
            b0, b1, b2, b3 = vectors[t + 1, i], vectors[t + 1, i + 1], vectors[t + 1, i + 2], vectors[t + 1, i + 3]
            for j in range(a.shape[0]):
                a[j] += a0 * r0[j] + a1 * r1[j] + a2 * r2[j] + a3 * r3[j]
                b[j] += b0 * r0[j] + b1 * r1[j] + b2 * r2[j] + b3 * r3[j]
            t += 2
        if t < n_vectors:
            a = out[t]
            a0, a1, a2, a3 = vectors[t, i], vectors[t, i + 1], vectors[t, i + 2], vectors[t, i + 3]
            for j in range(a.shape[0]):
                a[j] += a0 * r0[j] + a1 * r1[j] + a2 * r2[j] + a3 * r3[j]
        i += 4
    while i < n_rows:
        r0 = matrix[rows[i]]
        for t in range(n_vectors):
            a, a0 = out[t], vectors[t, i]
            for j in range(a.shape[0]):
                a[j] += a0 * r0[j]
        i += 1


@kernel(error_model="numpy")
def gather(matrix: Floats, columns: Array, out: Floats) -> None:
    """Set `out` to the block of these rows and columns."""
    for i in range(columns.shape[0]):
        row, target = matrix[columns[i]], out[i]
        for j in range(columns.shape[0]):
            target[j] = row[columns[j]]
