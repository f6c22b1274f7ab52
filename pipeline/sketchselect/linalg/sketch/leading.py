"""The leading eigenpairs of a small symmetric matrix, in two thirds of the time of all of them.

The matrix is made tridiagonal. Its eigenvalues follow by bisection, from the signs of the pivots of shifted matrices,
and the eigenvector of each in O(m) steps from the two factorisations that meet at the smallest pivot, both for all
eigenvalues side by side. Neighbours of
close eigenvalues are not quite orthogonal, which one or two products repair. The residual is measured, so that nothing
rests on the theory of the method; where it is not at rounding level the caller computes all eigenpairs instead.
(LAPACK's own subsets, by bisection and inverse iteration or by relatively robust representations, take longer than all
eigenpairs.)
Source: Parlett and Dhillon 1997 (twisted factorisations); Golub and Van Loan 2013, sections 8.3 and 8.4.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg.lapack import dormqr, dsytrd

from sketchselect.linalg.arrays import Floats

_LEAST = 64
"""Order below which nothing is saved."""

_BLOCKS = 8, 64
"""Columns that LAPACK treats at a time, before and after: the fastest sizes of its work space."""

_EPS = float(np.finfo(np.float64).eps)


_TINY = 1e-290
"""Least size of a pivot."""


@njit(nogil=True, cache=True, error_model="numpy")
def _largest(d, e, n):  # type: ignore[no-untyped-def]
    m = d.size
    radius = 0.0
    for i in range(m):
        beside = (abs(e[i - 1]) if i > 0 else 0.0) + (abs(e[i]) if i < m - 1 else 0.0)
        radius = max(radius, abs(d[i]) + beside)
    low, high = np.full(n, -radius), np.full(n, radius)
    middle, pivot, below = np.empty(n), np.empty(n), np.empty(n)
    # Steps halve the intervals until they have the size of rounding of their own eigenvalue: of graded matrices the
    # small ones are known as well, so that their vectors are orthogonal.
    for _ in range(2 * 54):
        wide = 0.0
        for j in range(n):
            wide = max(wide, high[j] - low[j] - 2 * _EPS * max(abs(low[j]), abs(high[j])))
        if not wide > _EPS * _EPS * radius:
            break
        # A pivot of zero is taken for a negative one, and counts as such.
        for j in range(n):
            middle[j] = 0.5 * (low[j] + high[j])
            pivot[j] = d[0] - middle[j]
            below[j] = 1.0 if pivot[j] <= _TINY else 0.0
        for i in range(1, m):
            square = e[i - 1] * e[i - 1]
            for j in range(n):
                previous = pivot[j] if abs(pivot[j]) > _TINY else -_TINY
                pivot[j] = (d[i] - middle[j]) - square / previous
                below[j] += 1.0 if pivot[j] <= _TINY else 0.0
        for j in range(n):
            above = m - below[j] > j
            low[j] = middle[j] if above else low[j]
            high[j] = high[j] if above else middle[j]
    return 0.5 * (low + high)


@njit(nogil=True, cache=True, error_model="numpy")
def _twisted(d, e, lam):  # type: ignore[no-untyped-def]
    m, n = d.size, lam.size
    down, up, z = np.empty((m, n)), np.empty((m, n)), np.zeros((m, n))
    # Rows outside, eigenvalues inside: every inner loop is a vector operation.
    for j in range(n):
        down[0, j] = d[0] - lam[j]
        up[m - 1, j] = d[m - 1] - lam[j]
    for i in range(1, m):
        square = e[i - 1] * e[i - 1]
        for j in range(n):
            pivot = down[i - 1, j]
            down[i - 1, j] = pivot if abs(pivot) > _TINY else _TINY
            down[i, j] = (d[i] - lam[j]) - square / down[i - 1, j]
    for i in range(m - 2, -1, -1):
        square = e[i] * e[i]
        for j in range(n):
            pivot = up[i + 1, j]
            up[i + 1, j] = pivot if abs(pivot) > _TINY else _TINY
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
    """Return ``(lam, U, residual)``: the `n_vectors` + 1 largest eigenvalues, orthonormal vectors of the first ones.

    ``||K U - U diag(lam)||_F <= residual <= m eps ||K||`` for the matrix K, to some rounding of K to tridiagonal form,
    and ``||U'U - I|| <= m eps``. In descending order, U of shape (m, n_vectors). None where that is not reached
    (equal eigenvalues, say), where the last of them equals the next, or where nothing is saved.

    `matrix` of shape (m, m), of which the lower triangle is read.

    Cost: 4 / 3 m^3 + 2 m^2 n flops.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((80, 200))
    >>> lam, vectors, residual = leading_eigenpairs(rows @ rows.T, 30)
    >>> bool(np.allclose(rows @ (rows.T @ vectors), vectors * lam[:30])), residual < 1e-11
    (True, True)
    """
    m = matrix.shape[0]
    if m < _LEAST or not 0 < n_vectors <= 0.6 * m:
        return None
    reflectors, d, e, tau, failed = dsytrd(matrix, lower=1, lwork=_BLOCKS[0] * m)
    largest = float(np.maximum(np.abs(d).max(), np.abs(e).max()))
    if failed or not 0 < largest < np.inf:
        return None
    # By a power of two: squares of the entries neither over- nor underflow.
    exponent = int(np.frexp(largest)[1])
    d, e = np.ldexp(d, -exponent), np.ldexp(e, -exponent)
    lam = _largest(d, e, n_vectors + 1)
    leading = lam[:-1].copy()
    if not leading[-1] - lam[-1] > _EPS * leading[0]:
        return None  # of rows of low rank, say: no residual would tell the last vector from the next
    vectors = _twisted(d, e, leading)
    # A step leaves .75 ||products||^2; more than rounding would let a shrink grow the rows.
    for _ in range(2):
        products = vectors.T @ vectors
        products.flat[:: n_vectors + 1] -= 1.0
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
    vectors[1:] = dormqr("L", "N", reflectors[1:, :-1], tau, vectors[1:], _BLOCKS[1] * n_vectors)[0]
    return np.ldexp(lam, exponent), vectors, float(np.ldexp(residual, exponent))
