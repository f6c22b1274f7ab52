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

Rows of float32 are shrunk with products in float32, and what their rounding hides and adds is bounded. So that it is
small where the spectrum decays, the strongest directions V of the first rows, a few orthonormal ones, are taken out:
a row c has the coordinates V c and a remainder r orthogonal to V, and products of rows are those of the coordinates, in
float64, and those of the remainders, in float32. What rounding leaves in a remainder along V does not count: products
with remainders of new rows do not see it, and at the end it is removed. ``K = C C'`` of the sketch B and new rows N,
C = [B; N], decides what a shrink removes, and the shrunk rows are M C, ``M = diag(f) U'``, ``f_i^2 = (lam_i - delta) /
lam_i``. With u = 2^-24:

- With ``||K - K^|| <= e`` for the computed K^ a shrink loses at most e more than the eigenvalue that it takes away.
  Products of `CHUNK` columns are computed in float32, `RUN` of them are added up in float32 and the sums in float64, so
  that entry ij is off by at most ``(CHUNK + RUN + 2) u ||r_i|| ||r_j||`` (in any order of summation within a chunk: a
  term is rounded by its product, in the CHUNK - 1 sums of its chunk and in at most RUN - 1 after them; three for the
  rounding of rows and sums).
- The computed rows are M C + E. Multiples of `PIECE` rows are added up first, so that row i of E has at most
  ``v_i = (PIECE + m / PIECE + 2) u sum_j |M_ij| ||r_j||``: products and sums, and the rounding of M and of new rows.
- They lose at most ``2 ||(M C)'E||`` more in any direction. The rows of M C are orthogonal to e / lam_i and have norms
  ``b_i = f_i lam_i^1/2``, so that this is at most ``2 (1 + e max_i 1 / lam_i)^1/2 (sum b_i^2 v_i^2)^1/2``.
- They exceed the rows C, in the sum over all directions, by at most ``sum ||E_i||^2 lam_i / delta``, which is
  ``sum v_i^2 / (1 - f_i^2)``: for each row by ``(a + b)^2 <= a^2 / f_i^2 + b^2 / (1 - f_i^2)``, as those of U' C,
  the rows of M C over f_i, do not exceed C. This is a square of u: far less than what is lost.
- The squared norm of all rows falls by at least ``l (lam_l - e) - l^1/2 h - g``, with the second and third of these
  bounds as h and g, so that l times all that is lost is at most 8/7 of it where e + h + g is a 16th of lam_l or less.

Source: Higham 2002, sections 3.1 and 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dormqr, dsytrd

from sketchselect._kernels import kernel
from sketchselect.linalg.centering import center_apart, center_into, center_scaled, check_squares
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
FIRST_STEPS = 2  # Most shrinks in float64 of a new sketch: the first loses too little to be typical of more
LEAST_STEPS = 4  # Shrinks of a sketch below which another one is not worth its merge
_ROOM = 24  # Powers of two by which numbers may exceed those of the first rows: their products stay finite

# Bound of what a product loses below the least normal float32, 2^-126, for numbers of at most 2^_ROOM.
_UNDERFLOW = 2.0**-98


class SingleShrinks(NamedTuple):
    """What shrinks in float32 leave."""

    n_steps: int  # Steps of the block that were sketched; those behind them need products in float64
    sketches: list[Floats]  # The rows B of fewer than `FAN_IN` sketches, in float64
    initial: Floats | None  # The sketch of the last of these steps, with which float64 goes on
    lost: float  # ``D'D - B'B <= lost I`` for these rows D
    gained: float  # ``B'B - D'D <= F`` for some F >= 0 of this trace


def shrink_single(
    block: Array, edges: Array, size: int, shift: Floats, weights: Floats, start: int | Array, moments: Floats
) -> SingleShrinks:
    """Return sketches of as many rows of a float32 block as float32 is enough for.

    The strongest directions of a sketch grow with its rows, and rounding with them: a new one is begun where it becomes
    too much, unless that is soon. The first steps of each are in float64, and show which directions to take out.

    `edges` of shape (n_steps + 1,): Rows at which the block is shrunk.
    `moments` of shape (2, n_columns): Sums and squares of the columns, to which those of these rows are added.
    """
    height = size - 1 + int(np.diff(edges).max())
    sketch = _SingleSketch(np.empty((2, height, block.shape[1]), np.float32), size)
    sketches: list[Floats] = []
    lost, i, n_steps = 0.0, 0, len(edges) - 1
    while i < n_steps:
        n_first, initial = sketch.begin(block, edges[i:], shift, weights, start, moments)
        first = i = i + n_first
        if initial is not None:
            return SingleShrinks(i, sketches, initial, lost + sketch.lost, sketch.gained)
        while i < n_steps:
            rows, before = slice(*edges[i : i + 2]), moments.copy()
            if not sketch.shrink(block[rows], shift, weights[rows], moments):
                moments[...] = before
                break
            i += 1
        sketches, delta = _merged([*sketches, sketch.take()], size)
        lost += delta
        if i - first < LEAST_STEPS:
            break
    return SingleShrinks(i, sketches, None, lost + sketch.lost, sketch.gained)


def _merged(sketches: list[Floats], size: int) -> tuple[list[Floats], float]:
    """Return the sketches, merged if they are `FAN_IN`, and what that loses."""
    if len(sketches) < FAN_IN:
        return sketches, 0.0
    # In the memory of the first: buffers and four sketches are what there is room for.
    rows, lost = shrink_parts(sketches, size, sketches[0])
    return [rows], lost


APART = 0, 4, 8, 16  # Numbers of directions that may be taken out
_STEPS = 16  # Shrinks that a number of directions should last for; later ones lose more than the first


def _n_apart(norms: Floats, lost: float, energy: float, size: int, n_steps: int) -> int | None:
    """Return how many directions to take out, so that float32 should be enough for `n_steps` shrinks; None if none is.

    `norms`: Squared norms of the sketch of the first rows, the squared norm of which is `energy`.
    """
    for steps in (min(n_steps, _STEPS), 1):
        growth = math.sqrt(steps)
        for n in APART:
            rest = max(energy - float((norms[:n] + lost).sum()), 0.0)
            # Bounds of the first kind grow with the root of the steps, and those of the second kind with the steps.
            if n <= size // 4 and ENTRY * rest * (1.0 + growth) * (1.0 + growth / 4.0) <= SHARE * lost:
                return n
    return None


class _SingleSketch:
    """A sketch in units of a power of two: coordinates in float64 along some directions, remainders in float32.

    `memory` of shape (2, height, n_columns): Two buffers in turn: each shrink writes where the next one reads them.
    """

    def __init__(self, memory: Array, size: int) -> None:
        self._memory = memory
        self._size = size
        self._product = np.empty((size - 1, memory.shape[2]), np.float32)
        self._gram = np.empty((memory.shape[1], memory.shape[1]))
        self.lost = self.gained = 0.0

    def begin(
        self, block: Array, edges: Array, shift: Floats, weights: Floats, start: int | Array, moments: Floats
    ) -> tuple[int, Floats | None]:
        """Begin a sketch with shrinks in float64; return their number, and the sketch where float32 would not go on."""
        first = slice(*edges[:2])
        self._exponent = exponent = _exponent(block[first], shift, weights[first])
        wide = self._memory.reshape(-1).view(np.float64).reshape(self._memory.shape[1:])
        old, lost = 0, 0.0
        for n_steps, (a, b) in enumerate(pairwise(edges[: FIRST_STEPS + 1]), 1):
            m = old + int(b - a)
            center_into(block[a:b], shift, weights[a:b], wide[old:m], *moments)
            check_squares(moments[1], block, start)
            wide[old:m] *= np.ldexp(1.0, -exponent)
            gram = np.matmul(wide[:m], wide[:m].T, out=self._gram[:m, :m])
            self.lost += float(np.ldexp(lost, 2 * exponent))
            matrix, norms, lost = shrink_factors(gram, self._size)
            sketch = matrix @ wide[:m]
            old = len(norms)
            wide[:old] = sketch
            n = _n_apart(norms, lost, float(np.trace(gram)), self._size, len(edges) - 1 - n_steps)
            if n == 0:
                break
        if n is not None:
            # Orthonormal already, but for directions that are weak against the first.
            self._basis = np.ascontiguousarray(np.linalg.qr(sketch[:n].T)[0].T)
            coordinates = sketch @ self._basis.T
            for a in range(0, sketch.shape[1], _BAND):
                sketch[:, a : a + _BAND] -= coordinates @ self._basis[:, a : a + _BAND]
            rest = np.sqrt(np.einsum("ij,ij->i", sketch, sketch))
            errors = 2.0 * UNIT * rest + sketch.shape[1] * _UNDERFLOW
            if rest.max(initial=0.0) <= 2.0**_ROOM and self._accept(matrix, norms, errors, 0.0, lost):
                self._buffer, self._other = self._memory
                self._buffer[: len(norms)] = sketch
                self._along_basis = 0.0
                self._describe(coordinates, norms, errors, 0.0, lost)
                return n_steps, None
            for a in range(0, sketch.shape[1], _BAND):
                sketch[:, a : a + _BAND] += coordinates @ self._basis[:, a : a + _BAND]
        self.lost += float(np.ldexp(lost, 2 * exponent))
        return n_steps, np.ldexp(sketch, exponent)

    def take(self) -> Floats:
        """Return the rows of the sketch."""
        rows: Floats = self._buffer[: len(self._norms)].astype(np.float64)
        along = self._coordinates - rows @ self._basis.T
        for a in range(0, rows.shape[1], _BAND):
            rows[:, a : a + _BAND] += along @ self._basis[:, a : a + _BAND]
        rows *= np.ldexp(1.0, self._exponent)
        return rows

    def shrink(self, block: Array, shift: Floats, weights: Floats, moments: Floats) -> bool:
        """Shrink the sketch and new rows; return whether float32 was enough. If not, only `moments` have changed."""
        old, m = len(self._norms), len(self._norms) + len(block)
        scale = np.full(block.shape[1], np.ldexp(1.0, -self._exponent))
        coordinates = np.empty((m, len(self._basis)))
        coordinates[:old] = self._coordinates
        if len(self._basis):
            center_apart(block, shift, scale, weights, self._basis, coordinates[old:], self._buffer[old:m], *moments)
        else:
            none = np.empty((len(block), 0))
            center_scaled(block, shift, scale, weights, none, self._buffer[old:m], *moments, none.T)
        largest = float(moments[1].max())
        # Numbers that are not finite or too large are refused here as well; in float64 they raise.
        if not 0 < largest < LARGEST**2 or math.frexp(largest)[1] > 2 * (self._exponent + _ROOM):
            return False
        gram = self._gram[:m, :m]
        error, rest = self._fill(gram, coordinates, self._drift > 0.5 * SHARE * self._last)
        if not error <= SHARE * self._last or not rest.max() <= 2.0**_ROOM:
            return False
        matrix, norms, lost = shrink_factors(gram, self._size)
        pieces = range(0, m, PIECE)
        unit = (min(m, PIECE) + len(pieces) + 2) * UNIT
        errors = unit * (np.abs(matrix) @ rest) + m * block.shape[1] * _UNDERFLOW
        if not self._accept(matrix, norms, errors, error, lost):
            return False
        narrow, out = matrix.astype(np.float32), self._other[: len(norms)]
        np.matmul(narrow[:, :PIECE], self._buffer[: min(m, PIECE)], out=out)
        product = self._product[: len(norms)]
        for i in pieces[1:]:
            out += np.matmul(narrow[:, i : i + PIECE], self._buffer[i : min(m, i + PIECE)], out=product)
        self._buffer, self._other = self._other, self._buffer
        self._describe(matrix @ coordinates, norms, errors, error, lost)
        return True

    def _accept(self, matrix: Floats, norms: Floats, errors: Floats, error: float, lost: float) -> bool:
        """Return whether rounding is a small part of what a shrink loses; if so, add what it loses and gains.

        `errors`: Bounds of the norms of the rows of E.
        `error`: Bound of ``||K - K^||``.
        """
        factors = np.einsum("ij,ij->i", matrix, matrix)
        if not 0 < factors.max(initial=0.0) < 1:
            return False
        # Each f_i^2 / b_i^2 is 1 / lam_i.
        orthogonal = 1.0 + error * float((factors / norms).max())
        hidden = 2.0 * math.sqrt(orthogonal) * float(np.sqrt(norms @ errors**2))
        gained = float((errors**2 / (1.0 - factors)).sum())
        if not error + hidden + gained <= SHARE * lost:
            return False
        self.lost += float(np.ldexp(lost + error + hidden, 2 * self._exponent))
        self.gained += float(np.ldexp(gained, 2 * self._exponent))
        return True

    def _describe(self, coordinates: Floats, norms: Floats, errors: Floats, error: float, lost: float) -> None:
        """Set what describes the rows M C + E of the sketch."""
        self._coordinates, self._norms, self._last = coordinates, norms, lost
        # Squared norms of the remainders of M C: those of its rows, the diagonal of M K M', less those along V. Both
        # are sums of as many terms as there are columns, in float64.
        most = (1.0 + self._product.shape[1] * _EPS) * norms + error
        squares = np.maximum(most - np.einsum("ij,ij->i", coordinates, coordinates), 0.0)
        off = float(np.linalg.norm(errors))
        largest = min(float(np.sqrt(norms.max(initial=0.0) + error)), float(np.sqrt(squares.sum())))
        self._rest = np.sqrt(squares) + errors + self._along_basis
        # What is along V in the remainders of all rows: ||M|| <= 1 lets it grow by E alone.
        self._along_basis += off if len(self._basis) else 0.0
        # The Gram matrix of M C, M K M', is taken for M K^ M', and that of the rows for it.
        self._drift = error + 2.0 * largest * off + off**2 + self._along_basis**2

    def _fill(self, gram: Floats, coordinates: Floats, renew: bool) -> tuple[float, Floats]:
        """Write the lower triangle of K^; return a bound of its error, and those of the norms of all remainders."""
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
        underflow = rows.size * _UNDERFLOW
        rest = np.concatenate([self._rest, np.sqrt(1.001 * np.diagonal(low, old) + underflow)])
        low += coordinates[old:] @ coordinates.T
        gram[:old, :old] = np.diag(self._norms)
        drift = self._drift
        if renew:
            wide = rows[:old].astype(np.float64)
            gram[:old, :old] = wide @ wide.T + coordinates[:old] @ coordinates[:old].T
            drift = self._along_basis**2
        new, sketched = float(rest[old:] @ rest[old:]), float(rest[:old] @ rest[:old])
        return drift + ENTRY * (new + math.sqrt(new * sketched)) + underflow, rest


def _exponent(block: Array, shift: Floats, weights: Floats) -> int:
    """Return the power of two that no number of these rows exceeds."""
    largest = float(np.abs(block).max()) + float(np.abs(shift).max())
    return math.frexp(largest * float(np.sqrt(weights.max())))[1]


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
    initial: Floats | None = None
    lost, gained, done = 0.0, 0.0, 0
    if block.dtype == np.float32:
        done, parts, initial, lost, gained = shrink_single(block, edges, size, shift, weights, start, moments)
    if done < n_steps:
        rows, delta = _shrink_double(block, edges[done:], size, shift, weights, start, moments, initial)
        parts, lost = [*parts, rows], lost + delta
    elif initial is not None:
        parts = [*parts, initial]
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
    initial: Floats | None,
) -> tuple[Floats, float]:
    """Return the sketch of the rows from the first of `edges` to the last, and what its shrinks lose, in float64.

    `initial`: A sketch of rows before them, of orthogonal rows.
    """
    height = size - 1 + int(np.diff(edges).max())
    # Two buffers in turn: each shrink writes its rows where the next one reads them, and nothing is allocated inside.
    buffer, other = np.empty((2, height, block.shape[1]))
    gram = np.empty((height, height))
    norms = np.empty(0)
    if initial is not None:
        buffer[: len(initial)] = initial
        norms = np.einsum("ij,ij->i", initial, initial)
    delta = 0.0
    for a, b in pairwise(edges):
        old, m = len(norms), len(norms) + int(b - a)
        new = buffer[old:m]
        center_into(block[a:b], shift, weights[a:b], new, *moments)
        check_squares(moments[1], block, start)
        k = gram[:m, :m]
        k[:old, :old] = np.diag(norms)
        k[old:, old:] = new @ new.T
        # eigh reads the lower triangle only.
        np.matmul(new, buffer[:old].T, out=k[old:, :old])
        matrix, norms, lost = shrink_factors(k, size)
        np.matmul(matrix, buffer[:m], out=other[: len(norms)])
        buffer, other = other, buffer
        delta += lost
    return buffer[: len(norms)].copy(), delta
