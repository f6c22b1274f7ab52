"""MCP and SCAD from moments: concave penalties, which leave large coefficients unshrunken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Unpack

from sketchselect.selectors.supervised.penalized import PathKeywords, PenalizedPath
from sketchselect.solvers.penalties import MCP, SCAD, Penalty


class MCPPath(PenalizedPath):
    """Minimax concave penalty from moments.

    ``P(b) = alpha |b| - b^2 / (2 gamma)`` up to ``|b| = gamma alpha``, then constant; columns standardised.
    The path starts at zero and goes down with warm starts; every model satisfies the conditions of a local optimum to
    `tol` (there may be other local optima).

    Parameters
    ----------
    gamma : float, default 3.0
        Concavity, above 1; the larger, the nearer to the lasso.

    Notes
    -----
    Guarantee: every model satisfies the conditions of a local optimum, within ``path_.gaps``.
    Cost after the pass: sweeps over the p x p covariance, each model starting from the one before.
    Source: Zhang 2010; from moments: Sun, Guo and Barbu 2019, Algorithm 3 with the proximal step corrected.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + rng.standard_normal(500)
    >>> MCPPath().fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "mcp"

    def __init__(
        self,
        gamma: float = 3.0,
        alphas: Sequence[float] | None = None,
        n_features_to_select: float | None = None,
        criterion: str | None = None,
        cv: int | None = None,
        **shared: Unpack[PathKeywords],
    ) -> None:
        super().__init__(alphas, n_features_to_select, criterion, cv, **shared)
        self.gamma = gamma

    def _penalty(self) -> Penalty:
        return MCP(self.gamma)


class SCADPath(PenalizedPath):
    """Smoothly clipped absolute deviation penalty from moments.

    ``P'(b) = alpha`` up to ``|b| = alpha``, falls linearly to 0 at ``|b| = gamma alpha``; columns standardised.
    The path starts at zero and goes down with warm starts; every model satisfies the conditions of a local optimum to
    `tol` (there may be other local optima).

    Parameters
    ----------
    gamma : float, default 3.7
        Concavity, above 2; the larger, the nearer to the lasso.

    Notes
    -----
    Guarantee: every model satisfies the conditions of a local optimum, within ``path_.gaps``.
    Cost after the pass: sweeps over the p x p covariance, each model starting from the one before.
    Source: Fan and Li 2001.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 11] + rng.standard_normal(500)
    >>> SCADPath().fit(X, y).support_.tolist()
    [4, 11]
    """

    method: ClassVar[str] = "scad"

    def __init__(
        self,
        gamma: float = 3.7,
        alphas: Sequence[float] | None = None,
        n_features_to_select: float | None = None,
        criterion: str | None = None,
        cv: int | None = None,
        **shared: Unpack[PathKeywords],
    ) -> None:
        super().__init__(alphas, n_features_to_select, criterion, cv, **shared)
        self.gamma = gamma

    def _penalty(self) -> Penalty:
        return SCAD(self.gamma)
