"""The smoothly clipped absolute deviation penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_number
from sketchselect.solvers.penalties.base import Penalty


@dataclass(frozen=True)
class SCAD(Penalty):
    """The lasso up to ``|b| = alpha``, then of decreasing slope, constant from ``|b| = gamma alpha`` on.

    Parameters
    ----------
    gamma : float
        Above 2.

    Raises
    ------
    BadParameter
        If `gamma` is outside its range.

    Notes
    -----
    Source: Fan and Li 2001, eq. 2.7 (their a is `gamma`).

    Examples
    --------
    >>> SCAD(gamma=3.0).prox(np.array([1.5, 2.5, 9.0]), alpha=1.0).tolist()
    [0.5, 2.0, 9.0]
    """

    name: ClassVar[str] = "scad"
    gamma: float = 3.7

    def __post_init__(self) -> None:
        require_number("gamma", self.gamma, above=2)

    def value(self, coef: Floats, alpha: float) -> Floats:
        """Return the penalty of every entry."""
        a, size = self.gamma, np.abs(coef)
        bent = np.clip(size, alpha, a * alpha) - alpha
        # The integral of the derivative, which decreases from alpha to zero over the second piece.
        out: Floats = alpha * np.minimum(size, alpha) + bent * (alpha - bent / (2.0 * (a - 1.0)))
        return out

    def pieces(self, alpha: Floats) -> Floats:
        """Return a constant piece, a decreasing piece and zero."""
        a = self.gamma
        out = np.zeros((*alpha.shape, 3, 3))
        out[..., 0, 0] = alpha
        out[..., 0, 2] = alpha
        out[..., 1, 0] = a * alpha
        out[..., 1, 1] = -1.0 / (a - 1.0)
        out[..., 1, 2] = a * alpha / (a - 1.0)
        out[..., 2, 0] = np.inf
        return out
