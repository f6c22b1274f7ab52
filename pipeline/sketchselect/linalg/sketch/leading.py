"""The leading eigenpairs of a small symmetric matrix, in two thirds of the time of all of them.

The matrix is made tridiagonal. Its eigenvalues cost little; the eigenvector of each follows in O(m) steps from the two
factorisations of the shifted matrix that meet at the smallest pivot, for all eigenvalues side by side. Neighbours of
close eigenvalues are not quite orthogonal, which one or two products repair. The residual is measured, so that nothing
rests on the theory of the method; where it is not at rounding level the caller computes all eigenpairs instead.
(LAPACK's own subsets, by bisection and inverse iteration or by relatively robust representations, take longer than all
eigenpairs.)
Source: Parlett and Dhillon 1997 (twisted factorisations); Golub and Van Loan 2013, section 8.3.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg.lapack import dormqr, dsterf, dsytrd

from sketchselect.linalg.arrays import Floats

_LEAST = 64
"""Order below which nothing is saved."""

_BLOCK = 32
"""Columns that LAPACK treats at a time: the size of its work space."""

_EPS = float(np.finfo(np.float64).eps)


@njit(nogil=True, cache=True, error_model="numpy")
def _twisted(d, e, lam):  # type: ignore[no-untyped-def]
    m, n = d.size, lam.size
    tiny = 1e-290
    down, up, z = np.empty((m, n)), np.empty((m, n)), np.zeros((m, n))
    # Rows outside, eigenvalues inside: every inner loop is a vector operation.
    for j in range(n):
        down[0, j] = d[0] - lam[j]
        up[m - 1, j] = d[m - 1] - lam[j]
    for i in range(1, m):
        square = e[i - 1] * e[i - 1]
        for j in range(n):
            pivot = down[i - 1, j]
            down[i - 1, j] = pivot if abs(pivot) > tiny else tiny
            down[i, j] = (d[i] - lam[j]) - square / down[i - 1, j]
    for i in range(m - 2, -1, -1):
        square = e[i] * e[i]
        for j in range(n):
            pivot = up[i + 1, j]
            up[i + 1, j] = pivot if abs(pivot) > tiny else tiny
            up[i, j] = (d[i] - lam[j]) - square / up[i + 1, j]
    least, twist = np.full(n, np.inf), np.zeros(n)
    for i in range(m):
        for j in range(n):
            gamma = abs(down[i, j] + up[i, j] - (d[i] - lam[j]))
            better = gamma < least[j]
            least[j] = gamma if better else least[j]
            twist[j] = i if better else twist[j]
    for i in range(m - 1, -1, -1):
        factor = -e[i] if i < m - 1 else 0.0
        following = min(i + 1, m - 1)
        for j in range(n):
            value = factor * z[following, j] / down[i, j]
            z[i, j] = value if i < twist[j] else (1.0 if i == twist[j] else 0.0)
    for i in range(1, m):
        for j in range(n):
            z[i, j] = -e[i - 1] * z[i - 1, j] / up[i, j] if i > twist[j] else z[i, j]
    norms = np.zeros(n)
    for i in range(m):
        for j in range(n):
            norms[j] += z[i, j] * z[i, j]
    for i in range(m):
        for j in range(n):
            z[i, j] /= np.sqrt(norms[j])
    return z


@njit(nogil=True, cache=True)
def _residual(d, e, lam, z):  # type: ignore[no-untyped-def]
    m, n = z.shape
    total = 0.0
    for i in range(m):
        for j in range(n):
            r = (d[i] - lam[j]) * z[i, j]
            if i > 0:
                r += e[i - 1] * z[i - 1, j]
            if i < m - 1:
                r += e[i] * z[i + 1, j]
            total += r * r
    return np.sqrt(total)


def leading_eigenpairs(matrix: Floats, n_vectors: int) -> tuple[Floats, Floats, float] | None:
    """Return ``(lam, U, residual)``: all eigenvalues, ascending, and orthonormal vectors of the `n_vectors` largest.

    ``||K U - U diag(lam)||_F <= residual <= m eps ||K||`` for the matrix K, to some rounding of K to tridiagonal form,
    and ``||U'U - I|| <= m eps``. U is in descending order, of shape (m, n_vectors). None where that is not reached
    (equal eigenvalues, say), where the last of them equals the next, or where nothing is saved.

    `matrix` of shape (m, m), of which the lower triangle is read.

    Cost: 4 / 3 m^3 + 2 m^2 n flops.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((80, 200))
    >>> lam, vectors, residual = leading_eigenpairs(rows @ rows.T, 30)
    >>> bool(np.allclose(rows @ (rows.T @ vectors), vectors * lam[::-1][:30])), residual < 1e-11
    (True, True)
    """
    m = matrix.shape[0]
    if m < _LEAST or not 0 < n_vectors <= 0.6 * m:
        return None
    reflectors, d, e, tau, failed = dsytrd(matrix, lower=1, lwork=_BLOCK * m)
    largest = float(np.maximum(np.abs(d).max(), np.abs(e).max()))
    if failed or not 0 < largest < np.inf:
        return None
    # By a power of two: squares of the entries neither over- nor underflow.
    exponent = int(np.frexp(largest)[1])
    d, e = np.ldexp(d, -exponent), np.ldexp(e, -exponent)
    lam, failed = dsterf(d, e)
    if failed:
        return None
    leading = lam[::-1][:n_vectors].copy()
    if not leading[-1] - lam[-1 - n_vectors] > _EPS * leading[0]:
        return None  # of rows of low rank, say: no residual would tell the last vector from the next
    vectors = _twisted(d, e, leading)
    # A step leaves .75 ||products||^2; more than rounding would let a shrink grow the rows.
    for _ in range(2):
        products = vectors.T @ vectors
        products[np.diag_indices(n_vectors)] -= 1.0
        square = float(np.vdot(products, products))
        if not square < np.sqrt(m * _EPS):
            return None
        vectors -= vectors @ (0.5 * products)
        if square < m * _EPS:
            break
    residual = _residual(d, e, leading, vectors)
    if not residual <= m * _EPS * leading[0]:
        return None
    vectors = np.asfortranarray(vectors)
    vectors[1:] = dormqr("L", "N", reflectors[1:, :-1], tau, vectors[1:], _BLOCK * n_vectors)[0]
    return np.ldexp(lam, exponent), vectors, float(np.ldexp(residual, exponent))
