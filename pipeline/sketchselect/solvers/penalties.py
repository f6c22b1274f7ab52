"""Penalties for sparse regression: lasso, elastic net, MCP and SCAD.

Each is an even function of one coefficient with a piecewise linear derivative, from which the solvers follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sketchselect.errors import BadParameter
from sketchselect.linalg.validation import Floats, require_number


class Penalty(ABC):
    """An even penalty ``P(b; alpha)`` whose derivative on b > 0 is continuous and piecewise linear.

    A subclass defines `value` and `pieces`, from which proximal step, distance to the subdifferential and the compiled
    solvers follow. With several targets the penalty is on the norm of the coefficients of a column.
    """

    name: ClassVar[str]

    @abstractmethod
    def value(self, coef: Floats, alpha: float) -> Floats:
        """Return ``P(b; alpha)`` of every entry."""

    @abstractmethod
    def pieces(self, alpha: Floats) -> Floats:
        """Return the derivative on b > 0 for every alpha, an array of shape ``alpha.shape + (K, 3)``.

        Row k is ``(end, slope, level)``: ``P'(b) = level + slope * b`` from the end of the row before (0 for the first)
        up to `end`; the last end is infinite. Slopes are above -1, so that the minimiser for one coefficient of a
        standardised column is unique.
        """

    @property
    def convex(self) -> bool:
        """Whether no piece of the derivative decreases."""
        return bool((self.pieces(np.ones(1))[..., 1] >= 0).all())

    def prox(self, values: Floats, alpha: float, step: float = 1.0) -> Floats:
        """Return ``argmin_b (b - t)^2 / 2 + step * P(b; alpha)`` for every entry t.

        Raises
        ------
        BadParameter
            If the minimiser is not unique, ``1 + step * slope <= 0``; the solvers take steps of at most 1.
        """
        pieces = self.pieces(np.asarray(float(alpha)))
        if (1.0 + step * pieces[:, 1] <= 0).any():
            raise BadParameter(f"step {step} is too long for the concave penalty {self.name}")
        size = np.abs(np.asarray(values, dtype=np.float64))
        out, start = np.zeros(size.shape), np.zeros(size.shape)
        for end, slope, level in pieces:
            inside = size > start + step * (level + slope * start)
            out = np.where(inside, np.minimum((size - step * level) / (1.0 + step * slope), end), out)
            start = np.full(size.shape, end)
            if not np.isfinite(end):
                break
        return np.copysign(out, values)

    def subdiff_distance(self, coef: Floats, gradient: Floats, alpha: float) -> Floats:
        """Return the distance of ``-gradient`` to the subdifferential of P at every coefficient.

        It is zero everywhere if and only if `coef` is a stationary point of the objective whose smooth part has this
        gradient.
        """
        size = np.abs(coef)
        pieces = self.pieces(np.asarray(float(alpha)))
        k = (size[..., None] > pieces[:, 0]).sum(axis=-1)
        slope = np.sign(coef) * (pieces[k, 2] + pieces[k, 1] * size)
        out: Floats = np.where(coef == 0, np.maximum(np.abs(gradient) - pieces[0, 2], 0.0), np.abs(gradient + slope))
        return out


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
        return alpha * np.abs(coef)

    def pieces(self, alpha: Floats) -> Floats:
        """Return one piece, a constant derivative."""
        out = np.zeros((*alpha.shape, 1, 3))
        out[..., 0, 0] = np.inf
        out[..., 0, 2] = alpha
        return out


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
        return alpha * (self.l1_ratio * np.abs(coef) + 0.5 * (1.0 - self.l1_ratio) * coef * coef)

    def pieces(self, alpha: Floats) -> Floats:
        """Return one piece, an increasing derivative."""
        out = np.empty((*alpha.shape, 1, 3))
        out[..., 0, 0] = np.inf
        out[..., 0, 1] = alpha * (1.0 - self.l1_ratio)
        out[..., 0, 2] = alpha * self.l1_ratio
        return out


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
        return alpha * size - size * size / (2.0 * self.gamma)

    def pieces(self, alpha: Floats) -> Floats:
        """Return a decreasing piece and zero."""
        out = np.zeros((*alpha.shape, 2, 3))
        out[..., 0, 0] = self.gamma * alpha
        out[..., 0, 1] = -1.0 / self.gamma
        out[..., 0, 2] = alpha
        out[..., 1, 0] = np.inf
        return out


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
        return alpha * np.minimum(size, alpha) + bent * (alpha - bent / (2.0 * (a - 1.0)))

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


PENALTIES: dict[str, type[Penalty]] = {penalty.name: penalty for penalty in (Lasso, ElasticNet, MCP, SCAD)}
"""Registry of the penalties, by name."""

__all__ = ["MCP", "PENALTIES", "SCAD", "ElasticNet", "Lasso", "Penalty"]
