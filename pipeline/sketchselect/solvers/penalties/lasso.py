"""The lasso penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.solvers.penalties.base import Penalty


@dataclass(frozen=True)
class Lasso(Penalty):
    """``P(b) = alpha |b|``.

    Notes
    -----
    Source: Tibshirani 1996.

    Examples
    --------
    >>> Lasso().prox(np.array([3.0, -0.5]), alpha=1.0).tolist()
    [2.0, -0.0]
    """

    name: ClassVar[str] = "lasso"

    def value(self, coef: Floats, alpha: float) -> Floats:
        """Return ``alpha |b|``."""
        out: Floats = alpha * np.abs(coef)
        return out

    def pieces(self, alpha: Floats) -> Floats:
        """Return one piece, a constant derivative."""
        out = np.zeros((*alpha.shape, 1, 3))
        out[..., 0, 0] = np.inf
        out[..., 0, 2] = alpha
        return out
