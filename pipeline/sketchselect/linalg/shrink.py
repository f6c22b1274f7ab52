"""The shrink step of Frequent Directions, through the small Gram matrix of the rows.

With K = C C' = U diag(lam) U' the shrunk rows are ``B = diag(f) U' C``, ``f_i^2 = max(lam_i - delta, 0) / lam_i`` and
``delta = lam_l``. For *any* orthonormal U and 0 <= f <= 1, ``C'C - B'B = C'(I - U f^2 U')C >= 0``: that the sketch
never exceeds the data does not depend on the accuracy of the eigenvectors. About five times faster than an SVD of C.
Source: Liberty 2013; Ghashami, Liberty, Phillips and Woodruff 2016, full-shrink variant.

The eigensolver computes the leading eigenpairs alone, in two thirds of the time of all of them: a shrink takes .91 of
the processor time a row at 4,000 columns and size 100, .81 at 1,000 and 50 (medians of seven alternating runs). The
matrix is made tridiagonal. Its eigenvalues follow by bisection, from the signs of the pivots of shifted matrices, and
the eigenvector of each in O(m) steps from the two factorisations that meet at the smallest pivot, both for all
eigenvalues side by side. Neighbours of close eigenvalues are not quite orthogonal, which one or two products repair.
The residual is measured, so that nothing rests on the theory of the method; where it is not at rounding level the
caller computes all eigenpairs instead. (LAPACK's own subsets, by bisection and inverse iteration or by relatively
robust representations, take longer than all eigenpairs.)
Source: Parlett and Dhillon 1997 (twisted factorisations); Golub and Van Loan 2013, sections 8.3 and 8.4.

Rows of float32 are shrunk with products in float32, and what their rounding hides and adds is bounded. Spectra of real
rows decay, and that of products of the strongest directions would be too large. So C = [B; N], the sketch B and new
rows N, is split into ``C = H V + T``: V are k of the strongest directions, orthonormal rows, ``H = C V'``, and T is
what is left. V, H and all products with them are in float64, T is in float32. K = C C' decides what a shrink removes,
and the shrunk rows are ``M C``, ``M = diag(f) U'``, ``f_i^2 = (lam_i - delta) / lam_i``.

B is ``P V + R`` by definition, R in float32, which rounding leaves not quite orthogonal to V; ``A = B V' = P + R V'``
is computed in float64. Of new rows, ``H = N V'``, and S is ``N - H V`` rounded to float32; R is such a rounding too
just after V is chosen anew, B being what it was. K has the blocks ``N N' = H H' + (N - H V)(N - H V)'`` and ``N B' = H
A' + (N - H V) R'``, as N - H V is orthogonal to V: there are no cross terms, and the products in float32 are those of R
and S alone. With u = 2^-24, t_i the norms of the rows of R and S, and b_i^2 = f_i^2 lam_i = lam_i - delta:

- With ``||K - K^|| <= e`` for the computed K^ a shrink loses at most e more than the eigenvalue that it takes away.
  Products of `CHUNK` columns are computed in float32, `RUN` of them are added up in float32 and the sums in float64, so
  that entry ij is off by at most ``(CHUNK + RUN + 2) u t_i t_j`` (in any order of summation within a chunk: a term is
  rounded by its product, in the CHUNK - 1 sums of its chunk and in at most RUN - 1 after them; three for the rounding
  of rows and sums). The matrix of these bounds, 0 for pairs of rows of B, has a norm of ``(n + (n^2 + 4 o n)^1/2) / 2``
  times the factor, where o and n are the sums of t_i^2 over the rows of B and N: that of [[0, (o n)^1/2], [., n]].
- B B' is known from the shrink before (the last point), or computed anew.
- The computed rows are M C + E, and row i of E is at most ``d_i = v sum_j |M_ij| t_j`` long, ``v = (PIECE + m / PIECE +
  2) u``: multiples of `PIECE` rows are added up first; products and sums, and the rounding of M and of new rows. Only
  the part in float32 is rounded: that of a strong direction, which hardly changes, by little.
- They lose at most ``2 ||(M C)'E||`` more in any direction. The rows of M C are orthogonal to e / lam_l and have norms
  b_i: ``(M C)(M C)' = diag(b) (I + X) diag(b)`` with ``||X|| <= e / lam_l``. So it is at most ``h = 2 (1 + e /
  lam_l)^1/2 (sum b_i^2 d_i^2)^1/2``.
- They exceed the rows C, in the sum over all directions, by at most ``g = sum d_i^2 / (1 - f_i^2)``: for each row by
  ``(a + b)^2 <= a^2 / f_i^2 + b^2 / (1 - f_i^2)``, as those of U' C, the rows of M C over f_i, do not exceed C. This is
  a square of u: far less than what is lost.
- The squared norm of all rows falls by at least ``l (lam_l - e) - l^1/2 h - g``: that of C to that of M C by ``tr((I -
  M'M) K) >= sum_{i <= l} (delta / lam_i) u_i'K u_i >= l (delta - e)``, and the rest is ``2 tr((M C)'E) + ||E||_F^2``.
  So l times all that is lost is at most 8/7 of it where e + h + g is a 16th of lam_l or less.
- The next B B', for B = M C + E: with ``D = M C V'`` and ``A = B V'``, both in float64, it is ``M K M' + A A' - D D'``,
  and the products of what is orthogonal to V: ``2 ||M C (I - V'V)|| ||E|| + ||E||^2`` at most. M K M' is taken for M K^
  M' = diag(b^2), off by at most e, and the square of that norm is at most ``||diag(b^2) - D D'|| + e``.

Products in float64, H and the orthogonality of V are off by some p units in the last place, which are added to e and d;
numbers too small for float32 are as well.

Source: Higham 2002, sections 3.1 and 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
from scipy.linalg.lapack import dormqr, dsytrd

from sketchselect._kernels import kernel
from sketchselect.linalg.centering import center_into, center_scaled, check_squares
from sketchselect.linalg.validation import LARGEST, Array, Floats

# An error E in ``K U = U diag(lam) + E`` moves eigenvalues of K by at most 2 / sqrt(3) ||E||: the largest norm of [[X,
# Y'], [Y, 0]] with [X; Y] of norm 1.
RESIDUALS = 1.16

_BAND = 4096


def shrink_factors(gram: Floats, size: int) -> tuple[Floats, Floats, float]:
    """Return ``(M, squares, lost)``: the matrix M = diag(f) U' of at most `size` - 1 rows, the diagonal of M K M', and
    the increase of Delta, lam_l and what rounding may add to it.
    """
    eps = float(np.finfo(np.float64).eps)
    pairs = leading_eigenpairs(gram, size - 1)
    if pairs is not None and pairs[0][-2] - pairs[0][-1] > RESIDUALS * pairs[2]:
        # The gap shows that no eigenvector was missed: what is orthogonal to those there are has at most lam_l, and
        # RESIDUALS times the residual.
        lam, vectors, residual = pairs
    else:
        lam, vectors = np.linalg.eigh(gram)
        lam, vectors, residual = lam[::-1][:size], vectors[:, ::-1][:, : size - 1], 0.0
    top = max(float(lam[0]), 0.0)
    delta = max(float(lam[-1]), 0.0) if lam.shape[0] == size else 0.0
    # Products and eigenvalues are known to some units of the largest one. Were that left out of Delta, many shrinks
    # would lose more than Delta bounds.
    lost = delta + eps * gram.shape[0] * top + 2.0 * RESIDUALS * residual
    lam = lam[: size - 1]
    # Eigenvalues at rounding level carry no direction; they stay out of B.
    keep = lam - delta > eps * top
    n = len(keep) if keep.all() else int(keep.argmin())
    squares = lam[:n] - delta
    f = np.sqrt(squares / lam[:n])
    matrix = f[:, None] * vectors[:, :n].T
    return matrix, squares, lost


def shrink(rows: Floats, size: int) -> tuple[Floats, float]:
    """Return ``(B, delta)`` with at most `size` - 1 rows and ``0 <= C'C - B'B <= delta I`` for C = `rows`.

    Also ``size * delta <= ||C||_F^2 - ||B||_F^2``, from which ``Delta <= ||A - A_k||_F^2 / (size - k)`` follows, up
    to the ``m eps ||C||_2^2`` for rounding that `delta` includes.

    Cost: 2 m^2 p + 2 (size - 1) m p flops and an eigenproblem of order m, for m rows of p columns.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.diag([3.0, 2.0, 1.0])
    >>> B, delta = shrink(C, 3)
    >>> B.shape, round(delta, 12)
    ((2, 3), 1.0)
    """
    if rows.shape[0] < size:
        return rows, 0.0
    matrix, _, lost = shrink_factors(rows @ rows.T, size)
    return matrix @ rows, lost


def shrink_parts(parts: Sequence[Floats], size: int, out: Floats | None = None) -> tuple[Floats, float]:
    """Return `shrink` of the rows of several matrices, which are not copied into one.

    `out` of shape (at least size - 1, n_columns): Memory of the result, which may be that of the first matrix.
    """
    edges = np.cumsum([0, *(len(part) for part in parts)])
    runs = [slice(a, b) for a, b in pairwise(edges)]
    gram = np.empty((edges[-1], edges[-1]))
    for i, part in enumerate(parts):
        for j in range(i + 1):
            # eigh reads the lower triangle only.
            gram[runs[i], runs[j]] = part @ parts[j].T
    matrix, _, lost = shrink_factors(gram, size)
    k = matrix.shape[0]
    out = np.empty((k, parts[0].shape[1])) if out is None or len(out) < k else out[:k]
    for a in range(0, out.shape[1], _BAND):
        band = slice(a, a + _BAND)
        total = matrix[:, runs[0]] @ parts[0][:, band]
        for run, part in zip(runs[1:], parts[1:], strict=True):
            total += matrix[:, run] @ part[:, band]
        out[:, band] = total
    return out, lost


_LEAST = 64  # Order below which nothing is saved
_BLOCKS = 8, 64  # Columns that LAPACK treats at a time, before and after: the fastest sizes of its work space

_EPS = float(np.finfo(np.float64).eps)


_TINY = 1e-290  # Least size of a pivot


@kernel(error_model="numpy")
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


@kernel(error_model="numpy")
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


@kernel()
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


CHUNK = 128  # Columns whose products BLAS adds up in float32
RUN = 8  # Products of a chunk that are added up in float32, which takes less time than in float64
PIECE = 64  # Rows whose multiples are added up in float32 before they are added to those of others

# Rounding of a product or sum in float32, with room for the higher orders of some hundreds of them.
UNIT = 1.001 * 2.0**-24

ENTRY = (CHUNK + RUN + 3) * UNIT  # Bound of the error of an entry of K as a share of the norms of its two computed rows
SHARE = 1 / 16  # Part of what a shrink loses above which products are computed in float64
FAN_IN = 4  # Sketches of one block that are merged at a time
LEAST_STEPS = 4  # Shrinks in float32 of a sketch below which another one is not worth its merge
MOST_DOUBLE = 8  # Shrinks in float64 after each other after which float32 is given up
MORE_DIRECTIONS, MOST_DIRECTIONS = 8, 24  # Directions that are taken out of the rows: how many more, and at most
ORTHOGONAL = 1.04  # Bound of the norm of the rows of M C, divided by what their norms should be: ``(1 + SHARE)^(1/2)``
_ROOM = 24  # Powers of two by which numbers may exceed those of the first rows: their products stay finite

# Bound of what a product loses below the least normal float32, 2^-126, for numbers of at most 2^_ROOM.
_UNDERFLOW = 2.0**-98


def _wide_rounding(n_columns: int) -> float:
    """Return a bound of the rounding of H H', N - H V and V V' = I in float64, as a share of the norms of two rows."""
    # (n + 2 k) units for each product of two rows, k^1/2 of them in the norm of a row of H, twice, and as much for V.
    return 20.0 * (n_columns + 2 * MOST_DIRECTIONS) * 2.0**-53


class SingleShrinks(NamedTuple):
    """What shrinks in float32 leave."""

    n_rows: int  # Rows of the block that were sketched; those behind them need products in float64
    sketches: list[Floats]  # The rows B of at most `FAN_IN` sketches, in float64
    lost: float  # ``D'D - B'B <= lost I`` for these rows D
    gained: float  # ``B'B - D'D <= F`` for some F >= 0 of this trace
    gram: Floats  # B B' of the last sketch


def shrink_single(
    block: Array, edges: Array, size: int, shift: Floats, weights: Floats, start: int | Array, moments: Floats
) -> SingleShrinks:
    """Return sketches of as many rows of a float32 block as float32 is enough for.

    The strongest directions of a sketch grow with its rows, and rounding with them: where it becomes too much they are
    determined anew, and where that does not help another sketch is begun. A sketch of few rows loses little, so that
    rounding may be too much: some of its first shrinks are in float64.

    `edges` of shape (n_steps + 1,): Rows at which the block is shrunk.
    `moments` of shape (2, n_columns): Sums and squares of the columns, to which those of these rows are added.
    """
    sketch = _SingleSketch(size - 1 + int(np.diff(edges).max()), block.shape[1], size)
    sketches: list[Floats] = []
    lost = 0.0
    i = n_single = n_double = (
        0  # Shrinks; in float32 since the sketch was begun; in float64 since the last one in float32
    )
    while i < len(edges) - 1:
        span = slice(*edges[i : i + 2])
        if i and sketch.shrink(block[span], shift, weights[span], moments):
            n_single, n_double = n_single + 1, 0
        elif i and sketch.deflate():
            continue
        elif n_double == MOST_DOUBLE:
            break
        else:
            if n_single >= LEAST_STEPS:
                sketches, delta = _merged([*sketches, sketch.take()], size)
                lost, n_single = lost + delta, 0
                sketch.clear()
            sketch.shrink_double(block, span, shift, weights, start, moments)
            n_double += 1
        i += 1
    gram = sketch.gram()
    return SingleShrinks(int(edges[i]), [*sketches, sketch.take()], lost + sketch.lost, sketch.gained, gram)


def _merged(sketches: list[Floats], size: int) -> tuple[list[Floats], float]:
    """Return the sketches, merged if they are `FAN_IN`, and what that loses."""
    if len(sketches) < FAN_IN:
        return sketches, 0.0
    # In the memory of the first: buffers and four sketches are what there is room for.
    rows, lost = shrink_parts(sketches, size, sketches[0])
    return [rows], lost


class _SingleSketch:
    """A sketch ``B = P V + R`` in units of a power of two: V has orthonormal rows and is in float64, R in float32.

    `height`: Most rows of a shrink.
    """

    def __init__(self, height: int, n_columns: int, size: int) -> None:
        # Two buffers in turn: each shrink writes where the next one reads. First R, then what is left of the new rows.
        self._memory = np.empty((2, height, n_columns), np.float32)
        self._size = size
        self._product = np.empty((size - 1, n_columns), np.float32)
        self._gram = np.empty((height, height))
        # A quarter of the sketch, for which there is memory, and so many rows in float64 at a time
        self._at_once = self._most = max(1, min(MOST_DIRECTIONS, size // 4))
        self._n_directions = 0
        self.lost = self.gained = 0.0
        self.clear()

    def clear(self) -> None:
        """Begin another sketch."""
        self._exponent = 0
        self._exact: Floats | None = np.empty((0, self._memory.shape[2]))  # B, until another one follows
        self._norms = np.empty(0)  # Squared norms of M C, of which B is the rounded form
        self._change, self._drift = np.empty((0, 0)), 0.0

    def shrink_double(
        self, block: Array, span: slice, shift: Floats, weights: Floats, start: int | Array, moments: Floats
    ) -> None:
        """Shrink the sketch and some rows of the block with products in float64."""
        gram, sketch, unit = self._products_of_rows(), self._rows(), self._exponent
        self._exponent = _exponent(block[span], shift, weights[span])
        if len(sketch):
            self._exponent = max(self._exponent, unit)
        unit -= self._exponent
        old, m = len(sketch), len(sketch) + span.stop - span.start
        # In the memory of the buffers, which hold nothing that is not in `sketch` as well
        rows = self._memory.reshape(-1).view(np.float64)[: m * block.shape[1]].reshape(m, -1)
        rows[:old], new = np.ldexp(sketch, unit), rows[old:]
        _center(block[span], shift, self._exponent, weights[span], new, moments)
        check_squares(moments[1], block, start)
        k = self._gram[:m, :m]
        k[:old, :old], k[old:, old:] = np.ldexp(gram, 2 * unit), new @ new.T
        np.matmul(new, rows[:old].T, out=k[old:, :old])
        matrix, self._norms, self._last = shrink_factors(k, self._size)
        self._exact = sketch = matrix @ rows
        self._change, self._drift = np.zeros((len(sketch), len(sketch))), 0.0
        self.lost += float(np.ldexp(self._last, 2 * self._exponent))
        self._buffer, self._other = self._memory
        self._project()

    def take(self) -> Floats:
        """Return the rows of the sketch."""
        return cast(Floats, np.ldexp(self._rows(), self._exponent))

    def gram(self) -> Floats:
        """Return the products of the rows of the sketch."""
        return cast(Floats, np.ldexp(self._products_of_rows(), 2 * self._exponent))

    def _products_of_rows(self) -> Floats:
        if not self._drift:
            return np.diag(self._norms) + self._change
        rows = self._rows()
        gram: Floats = rows @ rows.T
        return gram

    def deflate(self) -> bool:
        """Take the strongest directions of the sketch for V, more than before; return whether that changes it."""
        if self._exact is not None and len(self._directions) == min(self._most, len(self._norms)):
            return False
        self._exact = self._rows()
        self._n_directions = min(self._n_directions + MORE_DIRECTIONS, self._most)
        self._project()
        return True

    def _rows(self) -> Floats:
        if self._exact is not None:
            return self._exact
        rows: Floats = self._coordinates @ self._directions
        rows += self._buffer[: len(rows)]
        return rows

    def _project(self) -> None:
        """Write the sketch as ``P V + R``, V being its first directions."""
        rows = cast(Floats, self._exact)
        n_directions = min(self._n_directions, len(rows))
        self._directions = np.ascontiguousarray(np.linalg.qr(rows[:n_directions].T)[0].T)
        self._work = np.empty((2, self._at_once if n_directions else 0, rows.shape[1]))
        self._coordinates = np.empty((len(rows), n_directions))
        for a in range(0, len(rows), self._at_once):
            span = slice(a, a + self._at_once)
            self._split(rows[span], self._coordinates[span], self._buffer[: len(rows)][span])
        self._products = self._coordinates  # of B and V
        self._measure(len(rows))

    def _split(self, rows: Floats, coordinates: Floats, rest: Array) -> None:
        """Write ``rows V'`` and what is left of some rows without these multiples of V, in float32."""
        if not len(self._directions):
            rest[...] = rows
            return
        np.matmul(rows, self._directions.T, out=coordinates)
        product = np.matmul(coordinates, self._directions, out=self._work[1, : len(rows)])
        np.subtract(rows, product, out=rest, casting="same_kind")

    def _measure(self, n_rows: int) -> Floats:
        """Return ``R V'``, and keep the squared norms of the rows of R."""
        inner, self._squares = np.empty((n_rows, len(self._directions))), self._norms + self._drift
        for a in range(0, n_rows, self._at_once) if len(self._directions) else ():
            span = slice(a, min(a + self._at_once, n_rows))
            wide = self._work[0, : span.stop - a]
            wide[...] = self._buffer[span]
            np.matmul(wide, self._directions.T, out=inner[span])
            np.einsum("ij,ij->i", wide, wide, out=self._squares[span])
        return inner

    def shrink(self, block: Array, shift: Floats, weights: Floats, moments: Floats) -> bool:
        """Shrink the sketch and new rows; return whether float32 was enough. If not, nothing has changed."""
        old, m = len(self._norms), len(self._norms) + len(block)
        sums, rest = moments.copy(), self._buffer[old:m]
        inner = np.empty((len(block), len(self._directions)))
        at_once = self._at_once if len(self._directions) else len(block)
        for a in range(0, len(block), at_once):
            span = slice(a, min(a + at_once, len(block)))
            wide: Array = self._work[0, : span.stop - a] if len(self._directions) else rest
            _center(block[span], shift, self._exponent, weights[span], wide, sums)
            # Numbers that are not finite or too large are refused here as well; in float64 they raise.
            largest = float(sums[1].max())
            if not 0 < largest < LARGEST**2 or math.frexp(largest)[1] > 2 * (self._exponent + _ROOM):
                return False
            if len(self._directions):
                self._split(wide, inner[span], rest[span])
        limit = 0.5 * SHARE * self._last
        if not _of_products(float(np.vdot(rest, rest)), float(self._squares.sum())) <= limit:
            return False
        error, squares = self._fill(self._gram[:m, :m], inner, self._drift > limit)
        rounding = _wide_rounding(block.shape[1])
        energy = float(self._norms.sum() + np.trace(self._gram[old:m, old:m]))
        error += rounding * energy
        matrix, norms, lost = shrink_factors(self._gram[:m, :m], self._size)
        factors = np.einsum("ij,ij->i", matrix, matrix)
        if not 0 < factors.max(initial=0.0) < 1:
            return False
        pieces = range(0, m, PIECE)
        # Of each row of M C, by its own multiples of the rows.
        off = (min(m, PIECE) + len(pieces) + 2) * UNIT * (np.abs(matrix) @ np.sqrt(squares))
        off += m * m * block.shape[1] * _UNDERFLOW + rounding * math.sqrt(energy)
        hidden = 2.0 * ORTHOGONAL * float(np.sqrt(norms @ off**2))
        gained = float((off**2 / (1.0 - factors)).sum())
        if not error + hidden + gained <= SHARE * lost:
            return False
        narrow, out = matrix.astype(np.float32), self._other[: len(norms)]
        np.matmul(narrow[:, :PIECE], self._buffer[: min(m, PIECE)], out=out)
        product = self._product[: len(norms)]
        for i in pieces[1:]:
            out += np.matmul(narrow[:, i : i + PIECE], self._buffer[i : min(m, i + PIECE)], out=product)
        self._buffer, self._other = self._other, self._buffer
        self._exact, self._norms, self._last = None, norms, lost
        moments[...] = sums
        self._follow(matrix, inner, error, off)
        self.lost += float(np.ldexp(lost + error + hidden, 2 * self._exponent))
        self.gained += float(np.ldexp(gained, 2 * self._exponent))
        return True

    def _follow(self, matrix: Floats, inner: Floats, error: float, off: Floats) -> None:
        """Set what is known of the new sketch: P, its products with V and what they change of its Gram matrix."""
        before = matrix @ np.vstack([self._products, inner])  # M C V'
        self._coordinates = matrix @ np.vstack([self._coordinates, inner])
        known = before @ before.T
        rest = (np.diag(self._norms) - known) / self._norms[0]
        beside = float(self._norms[0] * np.sqrt(np.linalg.norm(rest @ rest))) + error
        of_rows = float(np.sqrt(off @ off))
        self._drift = error + 2.0 * math.sqrt(beside) * of_rows + of_rows**2
        self._products = self._coordinates + self._measure(len(matrix))
        self._change = self._products @ self._products.T - known

    def _fill(self, gram: Floats, inner: Floats, renew: bool) -> tuple[float, Floats]:
        """Write the lower triangle of K^; return a bound of its error, and the squared norms of the rows in float32."""
        old, rows = len(self._norms), self._buffer[: len(gram)]
        low = gram[old:]
        low[...] = 0.0
        n_columns, total, product = rows.shape[1], *np.empty((2, *low.shape), np.float32)
        for a in range(0, n_columns, RUN * CHUNK):
            for b in range(a, min(a + RUN * CHUNK, n_columns), CHUNK):
                part, out = rows[old:, b : b + CHUNK], total if b == a else product
                np.matmul(part, part.T, out=out[:, old:])
                np.matmul(part, rows[:old, b : b + CHUNK].T, out=out[:, :old])
                if b > a:
                    total += product
            low += total
        new = np.diag(low[:, old:]).copy()
        low += inner @ np.vstack([self._products, inner]).T
        gram[:old, :old] = np.diag(self._norms) + self._change
        drift = self._drift
        if renew:
            gram[:old, :old] = self._products_of_rows()
            drift = 0.0
        squares = 1.001 * np.concatenate([self._squares, new])
        error = drift + _of_products(float(squares[old:].sum()), float(squares[:old].sum()))
        return error + rows.size * _UNDERFLOW, squares


def _center(block: Array, shift: Floats, exponent: int, weights: Floats, out: Array, moments: Floats) -> None:
    """Write ``sqrt(w) (x - shift) 2^-exponent``, and add sums and squares of the columns without that power."""
    none = np.empty((len(block), 0))
    center_scaled(block, shift, np.full(block.shape[1], np.ldexp(1.0, -exponent)), weights, none, out, *moments, none.T)


def _exponent(block: Array, shift: Floats, weights: Floats) -> int:
    """Return the power of two that no number of these rows exceeds."""
    largest = float(np.abs(block).max()) + float(np.abs(shift).max())
    return math.frexp(largest * float(np.sqrt(weights.max())))[1]


def _of_products(new: float, old: float) -> float:
    """Return the bound for ``N N'`` and ``N B'``, from the squared norms of N and B."""
    # The norm of [[0, a b], [a b, b^2]]. Of each by itself: their product may over- or underflow.
    return 0.5 * ENTRY * (new + math.sqrt(new) * math.sqrt(new + 4.0 * old))


# Rows of the streaming buffer per sketch row. The cost of a row, products and eigenproblem, is flat from 1.9 to 2.7
# (the products alone are cheapest at 1 + sqrt(2)); within that, fewer and larger shrinks lose less.
BUFFER_FACTOR = 2.5

# Divisor of the new rows of a shrink: BLAS multiplies whole tiles of them, 3 to 6 % faster than 141 rows, say.
STEP_UNIT = 8

SINGLE_SHRINK_FACTOR = 4  # A block of at most this multiple of the sketch size is shrunk once: fewer shrinks lose less


def shrink_block(
    block: Array, size: int, shift: Floats, weights: Floats, start: int | Array = 0
) -> tuple[Floats, float, float, Floats, Floats]:
    """Return ``(B, Delta, gained, sums, squares)`` of a block of rows about `shift`.

    ``-F <= D'D - B'B <= Delta I`` for the rows ``D = sqrt(w) (x - shift)`` and some F >= 0 of trace `gained`, which is
    0 but for long blocks of float32; `sums` and `squares` are the column sums of ``w (x - shift)`` and
    ``w (x - shift)^2``. B has at most ``2 size`` rows (nothing is lost while the block is small).

    Cost: for long blocks about 6.8 l p flops a row: the rows of B after a shrink are orthogonal with known norms, so
    the next Gram matrix needs only their products with the new rows. They are in float32 for rows of float32, as long
    as the bounds of their rounding are at most a 16th of what is lost.
    """
    n, p = block.shape
    moments = np.zeros((2, p))
    if n <= max(SINGLE_SHRINK_FACTOR, BUFFER_FACTOR) * size:
        rows = np.empty((n, p))
        center_into(block, shift, weights, rows, *moments)
        check_squares(moments[1], block, start)
        sketch, delta = (rows, 0.0) if n <= 2 * size else shrink(rows, size)
        return sketch, delta, 0.0, *moments
    units, most = -(-n // STEP_UNIT), -(-(int(BUFFER_FACTOR * size) - (size - 1)) // STEP_UNIT)
    n_steps = -(-units // most)
    edges = np.minimum(STEP_UNIT * (np.arange(n_steps + 1) * units // n_steps), n)
    parts: list[Floats] = []
    lost, gained, done, gram = 0.0, 0.0, 0, np.empty((0, 0))
    if block.dtype == np.float32:
        done, parts, lost, gained, gram = shrink_single(block, edges, size, shift, weights, start, moments)
    if done < n:
        edges = edges[np.searchsorted(edges, done) :]
        last = parts.pop() if parts else np.empty((0, p))
        rows, delta = _shrink_double(block, edges, size, shift, weights, start, moments, last, gram)
        parts, lost = [*parts, rows], lost + delta
    if len(parts) > 1:
        parts[0], delta = shrink_parts(parts, size)
        lost += delta
    return parts[0], lost, gained, *moments


def _shrink_double(
    block: Array,
    edges: Array,
    size: int,
    shift: Floats,
    weights: Floats,
    start: int | Array,
    moments: Floats,
    sketch: Floats,
    old_gram: Floats,
) -> tuple[Floats, float]:
    """Return the sketch of a sketch and the rows from the first of `edges` to the last, and what its shrinks lose.

    In float64. `old_gram` of shape (len(sketch), len(sketch)): The products of the rows of the sketch.
    """
    height = size - 1 + int(np.diff(edges).max())
    # Two buffers in turn: each shrink writes its rows where the next one reads them, and nothing is allocated inside.
    buffer, other = np.empty((2, height, block.shape[1]))
    gram = np.empty((height, height))
    buffer[: len(sketch)] = sketch
    delta = 0.0
    for a, b in pairwise(edges):
        old, m = len(old_gram), len(old_gram) + int(b - a)
        new = buffer[old:m]
        center_into(block[a:b], shift, weights[a:b], new, *moments)
        check_squares(moments[1], block, start)
        k = gram[:m, :m]
        k[:old, :old] = old_gram
        k[old:, old:] = new @ new.T
        # eigh reads the lower triangle only.
        np.matmul(new, buffer[:old].T, out=k[old:, :old])
        matrix, norms, lost = shrink_factors(k, size)
        np.matmul(matrix, buffer[:m], out=other[: len(norms)])
        buffer, other = other, buffer
        old_gram = np.diag(norms)
        delta += lost
    return buffer[: len(old_gram)].copy(), delta
