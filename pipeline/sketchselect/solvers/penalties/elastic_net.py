"""The elastic net penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_number
from sketchselect.solvers.penalties.base import Penalty


@dataclass(frozen=True)
class ElasticNet(Penalty):
    """``P(b) = alpha (l1_ratio |b| + (1 - l1_ratio) b^2 / 2)``, as scikit-learn scales it.

    Parameters
    ----------
    l1_ratio : float
        Above 0 (`ridge`) and at most 1 (the lasso).

    Raises
    ------
    BadParameter
        If `l1_ratio` is outside its range.

    Notes
    -----
    Source: Zou and Hastie 2005, without their rescaling of the result.

    Examples
    --------
    >>> ElasticNet(l1_ratio=0.5).prox(np.array([4.0]), alpha=2.0).tolist()
    [1.5]
    """

    name: ClassVar[str] = "elastic-net"
    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        require_number("l1_ratio", self.l1_ratio, above=0, most=1)

    def value(self, coef: Floats, alpha: float) -> Floats:
        """Return ``alpha (l1_ratio |b| + (1 - l1_ratio) b^2 / 2)``."""
        out: Floats = alpha * (self.l1_ratio * np.abs(coef) + 0.5 * (1.0 - self.l1_ratio) * coef * coef)
        return out

    def pieces(self, alpha: Floats) -> Floats:
        """Return one piece, an increasing derivative."""
        out = np.empty((*alpha.shape, 1, 3))
        out[..., 0, 0] = np.inf
        out[..., 0, 1] = alpha * (1.0 - self.l1_ratio)
        out[..., 0, 2] = alpha * self.l1_ratio
        return out
