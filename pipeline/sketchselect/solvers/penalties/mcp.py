"""The minimax concave penalty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sketchselect.linalg.arrays import Floats
from sketchselect.linalg.validation import require_number
from sketchselect.solvers.penalties.base import Penalty


@dataclass(frozen=True)
class MCP(Penalty):
    """``P(b) = alpha |b| - b^2 / (2 gamma)`` up to ``|b| = gamma alpha``, then constant: strong columns are not shrunk.

    Parameters
    ----------
    gamma : float
        Above 1; the larger, the closer to the lasso.

    Raises
    ------
    BadParameter
        If `gamma` is outside its range.

    Notes
    -----
    Source: Zhang 2010. The proximal step is ``(t - step alpha) / (1 - step / gamma)`` in the first piece; formula 12 of
    Sun, Guo and Barbu 2019 holds for steps of 1 only.

    Examples
    --------
    >>> MCP(gamma=2.0).prox(np.array([0.5, 1.5, 9.0]), alpha=1.0).tolist()
    [0.0, 1.0, 9.0]
    """

    name: ClassVar[str] = "mcp"
    gamma: float = 3.0

    def __post_init__(self) -> None:
        require_number("gamma", self.gamma, above=1)

    def value(self, coef: Floats, alpha: float) -> Floats:
        """Return the penalty of every entry."""
        size = np.minimum(np.abs(coef), self.gamma * alpha)
        out: Floats = alpha * size - size * size / (2.0 * self.gamma)
        return out

    def pieces(self, alpha: Floats) -> Floats:
        """Return a decreasing piece and zero."""
        out = np.zeros((*alpha.shape, 2, 3))
        out[..., 0, 0] = self.gamma * alpha
        out[..., 0, 1] = -1.0 / self.gamma
        out[..., 0, 2] = alpha
        out[..., 1, 0] = np.inf
        return out
