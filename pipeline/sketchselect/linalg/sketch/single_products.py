"""Shrinks of float32 rows with products in float32, and bounds of what their rounding hides and adds.

``K = C C'`` of the sketch B and new rows N, C = [B; N], decides what a shrink removes, and the shrunk rows are M C,
``M = diag(f) U'``, ``f_i^2 = (lam_i - delta) / lam_i``. With u = 2^-24:

- With ``||K - K^|| <= e`` for the computed K^ a shrink loses at most e more than the eigenvalue that it takes away.
  Products of `CHUNK` columns are computed in float32, `RUN` of them are added up in float32 and the sums in float64, so
  that entry ij is off by at most ``(CHUNK + RUN + 2) u ||c_i|| ||c_j||`` (in any order of summation within a chunk: a
  term is rounded by its product, in the CHUNK - 1 sums of its chunk and in at most RUN - 1 after them; three for the
  rounding of rows and sums).
- The computed rows are M C + E. Multiples of `PIECE` rows are added up first, so that row i of E has at most
  ``v f_i``, ``v = (PIECE + m / PIECE + 2) u ||C||_F``: products and sums, and the rounding of M and of new rows.
- They lose at most ``2 ||(M C)'E||`` more in any direction. The rows of M C are orthogonal to e / lam_l and have norms
  ``b_i = f_i lam_i^1/2``, so that this is at most ``2 (1 + e / lam_l)^1/2 v (sum b_i^2 f_i^2)^1/2``.
- They exceed the rows C, in the sum over all directions, by at most ``sum ||E_i||^2 lam_i / delta``, which is
  ``v^2 sum f_i^2 / (1 - f_i^2)``: for each row by ``(a + b)^2 <= a^2 / f_i^2 + b^2 / (1 - f_i^2)``, as those of U' C,
  the rows of M C over f_i, do not exceed C. This is a square of u: far less than what is lost.
- The squared norm of all rows falls by at least ``l (lam_l - e) - l^1/2 h - g``, with the second and third of these
  bounds as h and g, so that l times all that is lost is at most 8/7 of it where e + h + g is a 16th of lam_l or less.

Source: Higham 2002, sections 3.1 and 4.2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sketchselect.linalg.arrays import LARGEST, Array, Floats
from sketchselect.linalg.centering import center_scaled
from sketchselect.linalg.sketch.shrink import shrink_factors, shrink_parts

CHUNK = 128
"""Columns whose products BLAS adds up in float32."""

RUN = 8
"""Products of a chunk that are added up in float32, which takes less time than in float64."""

PIECE = 64
"""Rows whose multiples are added up in float32 before they are added to those of others."""

UNIT = 1.001 * 2.0**-24
"""Rounding of a product or sum in float32, with room for the higher orders of some hundreds of them."""

ENTRY = (CHUNK + RUN + 3) * UNIT
"""Bound of the error of an entry of K as a share of the norms of its two computed rows."""

SHARE = 1 / 16
"""Part of what a shrink loses above which products are computed in float64."""

FAN_IN = 4
"""Sketches of one block that are merged at a time."""

LEAST_STEPS = 4
"""Shrinks of a sketch below which another one is not worth its merge."""

ORTHOGONAL = 1.04
"""Bound of the norm of the rows of M C, divided by what their norms should be: ``(1 + SHARE)^(1/2)``."""

_ROOM = 24
"""Powers of two by which numbers may exceed those of the first rows: their products stay finite."""

_UNDERFLOW = 2.0**-98
"""Bound of what a product loses below the least normal float32, 2^-126, for numbers of at most 2^_ROOM."""


class SingleShrinks(NamedTuple):
    """What shrinks in float32 leave."""

    n_rows: int  # Rows of the block that were sketched; those behind them need products in float64
    sketches: list[Floats]  # The rows B of fewer than `FAN_IN` sketches, in float64
    lost: float  # ``D'D - B'B <= lost I`` for these rows D
    gained: float  # ``B'B - D'D <= F`` for some F >= 0 of this trace


def shrink_single(
    block: Array, edges: Array, size: int, shift: Floats, weights: Floats, moments: Floats
) -> SingleShrinks:
    """Return sketches of as many rows of a float32 block as float32 is enough for.

    The strongest directions of a sketch grow with its rows, and rounding with them: a new one is begun where it becomes
    too much, unless that is soon.

    `edges` of shape (n_steps + 1,): Rows at which the block is shrunk.
    `moments` of shape (2, n_columns): Sums and squares of the columns, to which those of these rows are added.
    """
    height = size - 1 + int(np.diff(edges).max())
    sketch = _SingleSketch(np.empty((2, height, block.shape[1]), np.float32), size)
    sketches: list[Floats] = []
    lost = 0.0
    i = begin = 0
    while i < len(edges) - 1:
        rows, before = slice(*edges[i : i + 2]), moments.copy()
        if sketch.shrink(block[rows], shift, weights[rows], moments):
            i += 1
            continue
        moments[...] = before
        if i - begin < LEAST_STEPS:
            break
        sketches, delta = _merged([*sketches, sketch.take()], size)
        begin, lost = i, lost + delta
    if i > begin:
        sketches, delta = _merged([*sketches, sketch.take()], size)
        lost += delta
    return SingleShrinks(int(edges[i]), sketches, lost + sketch.lost, sketch.gained)


def _merged(sketches: list[Floats], size: int) -> tuple[list[Floats], float]:
    """Return the sketches, merged if they are `FAN_IN`, and what that loses."""
    if len(sketches) < FAN_IN:
        return sketches, 0.0
    # In the memory of the first: buffers and four sketches are what there is room for.
    rows, lost = shrink_parts(sketches, size, sketches[0])
    return [rows], lost


class _SingleSketch:
    """A sketch in float32, in units of a power of two.

    `memory` of shape (2, height, n_columns): Two buffers in turn: each shrink writes where the next one reads.
    """

    def __init__(self, memory: Array, size: int) -> None:
        self._buffer, self._other = memory
        self._size = size
        self._product = np.empty((size - 1, memory.shape[2]), np.float32)
        self._gram = np.empty((memory.shape[1], memory.shape[1]))
        self.lost = self.gained = 0.0
        self._begin()

    def take(self) -> Floats:
        """Return the rows of the sketch, and begin another one."""
        rows: Floats = np.ldexp(self._buffer[: len(self._norms)].astype(np.float64), self._exponent or 0)
        self._begin()
        return rows

    def _begin(self) -> None:
        self._exponent: int | None = None
        self._norms = np.empty(0)  # Squared norms of the rows of the sketch
        self._drift = 0.0  # Of the Gram matrix of the sketch from the diagonal matrix that it is taken for
        self._last = np.inf  # What the last shrink lost

    def shrink(self, block: Array, shift: Floats, weights: Floats, moments: Floats) -> bool:
        """Shrink the sketch and new rows; return whether float32 was enough. If not, only `moments` have changed."""
        old, m = len(self._norms), len(self._norms) + len(block)
        exponent = _exponent(block, shift, weights) if self._exponent is None else self._exponent
        before = float(moments[1].sum())
        scale = np.full(block.shape[1], np.ldexp(1.0, -exponent))
        none = np.empty((len(block), 0))
        center_scaled(block, shift, scale, weights, none, self._buffer[old:m], moments[0], moments[1], none.T)
        largest, limit = float(moments[1].max()), 0.5 * SHARE * self._last
        # Numbers that are not finite or too large are refused here as well; in float64 they raise.
        if not 0 < largest < LARGEST**2 or math.frexp(largest)[1] > 2 * (exponent + _ROOM):
            return False
        if not _of_products(float(moments[1].sum()) - before, float(self._norms.sum())) <= limit:
            return False
        error, energy = self._fill(self._gram[:m, :m], exponent, self._drift > limit)
        matrix, norms, lost = shrink_factors(self._gram[:m, :m], self._size)
        factors = np.einsum("ij,ij->i", matrix, matrix)
        if not 0 < factors.max(initial=0.0) < 1:
            return False
        pieces = range(0, m, PIECE)
        unit = (min(m, PIECE) + len(pieces) + 2) * UNIT * float(np.sqrt(energy))
        underflow = float(np.ldexp(m * m * block.shape[1] * _UNDERFLOW, exponent))
        hidden = 2.0 * (ORTHOGONAL * unit * float(np.sqrt(norms @ factors)) + underflow * float(np.sqrt(norms.sum())))
        gained = 2.0 * (unit**2 * float((factors / (1.0 - factors)).sum()) + underflow**2 / float(1.0 - factors.max()))
        if not error + hidden + gained <= SHARE * lost:
            return False
        narrow, out = matrix.astype(np.float32), self._other[: len(norms)]
        np.matmul(narrow[:, :PIECE], self._buffer[: min(m, PIECE)], out=out)
        product = self._product[: len(norms)]
        for i in pieces[1:]:
            out += np.matmul(narrow[:, i : i + PIECE], self._buffer[i : min(m, i + PIECE)], out=product)
        self._buffer, self._other = self._other, self._buffer
        self._exponent, self._norms, self._last = exponent, norms, lost
        # Those rows are M C + E, and the Gram matrix of M C, M K M', is taken for M K^ M'.
        of_rows = unit * float(np.sqrt(factors.sum())) + underflow
        self._drift = error + 2.0 * float(np.sqrt(norms[0] + error)) * of_rows + of_rows**2
        self.lost += lost + error + hidden
        self.gained += gained
        return True

    def _fill(self, gram: Floats, exponent: int, renew: bool) -> tuple[float, float]:
        """Write the lower triangle of K^; return a bound of its error, and one of the squared norm of all rows."""
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
        low *= np.ldexp(1.0, 2 * exponent)
        gram[:old, :old] = np.diag(self._norms)
        drift = self._drift
        if renew:
            wide = rows[:old].astype(np.float64)
            gram[:old, :old] = np.ldexp(wide @ wide.T, 2 * exponent)
            drift = 0.0
        new, sketched = float(np.trace(low[:, old:])), float(self._norms.sum()) + old * self._drift
        underflow = float(np.ldexp(rows.size * _UNDERFLOW, 2 * exponent))
        return drift + _of_products(new, sketched) + underflow, 1.001 * (new + sketched)


def _exponent(block: Array, shift: Floats, weights: Floats) -> int:
    """Return the power of two that no number of these rows exceeds."""
    largest = float(np.abs(block).max()) + float(np.abs(shift).max())
    return math.frexp(largest * float(np.sqrt(weights.max())))[1]


def _of_products(new: float, old: float) -> float:
    """Return the bound for ``N N'`` and ``N B'``, from the squared norms of N and B."""
    # Of each by itself: their product may over- or underflow.
    return ENTRY * (new + math.sqrt(new) * math.sqrt(old))
