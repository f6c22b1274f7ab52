"""Products of the new rows of a float32 block in float32, with a bound of what their rounding may hide.

``K = C C'`` of the sketch B and new rows N, C = [B; N], decides what a shrink removes; the shrunk rows themselves are
products in float64. So a sketch never exceeds its data, whatever the error of K, and with ``||K - K^|| <= e`` for the
computed K^ a shrink loses at most e more than the eigenvalue that it takes away. A bound of e follows from the norms
of the rows: products of `CHUNK` columns are computed in float32 and added up in float64, so that entry ij is off by at
most ``(CHUNK + 3) u ||c_i|| ||c_j||``, u = 2^-24 (in any order of summation; three for the rounding of rows and sums).
Source: Higham 2002, section 3.1 and 4.2.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sketchselect.linalg.arrays import Array, Floats

CHUNK = 256
"""Columns whose products are added up in float32."""

ENTRY = 1.001 * (CHUNK + 4) * 2.0**-24
"""Bound of the error of an entry as a share of the norms of its two computed rows."""

SHARE = 1 / 16
"""Part of what a shrink loses above which products are computed in float64."""

_UNDERFLOW = 2.0**-120
"""Bound of what is lost below the least float32, for numbers of at most 1 each."""


@njit(nogil=True, cache=True)
def _narrow(rows, scale, out):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[i, j] = np.float32(rows[i, j] * scale)


class SingleProducts:
    """The shrinks of one block, with Gram matrices in float32, and how far these are from those of the rows.

    `narrow` of shape (height, n_columns): Work space of float32.
    `energy`: Squared norm of the rows of the block so far.
    `lost`: What the last shrink lost.
    """

    def __init__(self, narrow: Array, energy: float, lost: float) -> None:
        self._narrow, self._energy, self._lost = narrow, energy, lost
        # Of the Gram matrix of the sketch from the diagonal matrix that it is taken for
        self.drift = 0.0

    def fill(self, gram: Floats, rows: Floats, norms: Floats, squares: Floats) -> float | None:
        """Write the lower triangle of K^ and return a bound of its error, or None where that will be too much.

        `gram` of shape (m, m).
        `rows` of shape (m, n_columns): C, the sketch first.
        `norms`: Squared norms of the rows of the sketch as the last shrink has them.
        `squares` of shape (n_columns,): Squared norms of the columns of all rows of the block up to the new ones.
        """
        energy, limit = float(squares.sum()), 0.5 * SHARE * self._lost
        new, self._energy = max(energy - self._energy, 0.0), energy
        if not _rounding(new, float(norms.sum())) <= limit:
            return None
        return self._fill(gram, rows, norms, squares, self.drift > limit)

    def accepts(self, error: float, lost: float) -> bool:
        """Return whether a shrink that lost as much may have this error."""
        # The next sketch is M C: its Gram matrix is M K M', with ||M|| <= 1, and is taken for M K^ M'.
        self.drift, self._lost = error, lost
        return error <= SHARE * lost

    def _fill(self, gram: Floats, rows: Floats, norms: Floats, squares: Floats, renew: bool) -> float:
        """Write the lower triangle of K^; return a bound of its error."""
        old = norms.shape[0]
        # No number of the rows, or of the sketch, which never exceeds them, is above the root of the largest square.
        exponent = int(np.frexp(float(squares.max()))[1]) // 2 + 1
        narrow = self._narrow[: len(rows)]
        _narrow(rows, np.ldexp(1.0, -exponent), narrow)
        low = gram[old:]
        low[...] = 0.0
        for a in range(0, rows.shape[1], CHUNK):
            part = narrow[old:, a : a + CHUNK]
            low[:, old:] += part @ part.T
            low[:, :old] += part @ narrow[:old, a : a + CHUNK].T
        low *= np.ldexp(1.0, 2 * exponent)
        gram[:old, :old] = rows[:old] @ rows[:old].T if renew else np.diag(norms)
        drift = 0.0 if renew else self.drift
        error = _rounding(float(np.trace(low[:, old:])), float(norms.sum()) + old * self.drift)
        return drift + error + rows.size * float(np.ldexp(_UNDERFLOW, 2 * exponent))


def _rounding(new: float, old: float) -> float:
    """Return the bound for ``N N'`` and ``N B'``, from the squared norms of N and B."""
    return ENTRY * (new + float(np.sqrt(new * old)))
